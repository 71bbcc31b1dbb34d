//! A backend that starts nothing: each run does what a script says, in the time of the event loop.
//!
//! Only the driver's tests have it. It stands behind the same border as the real ones, so that what they see is
//! the driver that ships.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use portreeve::attendance::{Found, MainProcess, ProcessEvent};
use portreeve::identity::Run;
use portreeve::supervision::{ExitStatus, StartFailure};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::probe::owner::Root;
use crate::shim::Launch;

use super::{Backend, BackendEvent};

/// What one run does, in times from its spawn.
#[derive(Clone, Debug)]
pub(crate) struct RunScript {
    pub(crate) spawn_takes: Duration,
    pub(crate) spawn_error: Option<i32>,
    /// When it ends by itself, and how.
    pub(crate) exit: Option<(Duration, ExitStatus)>,
    /// Its answer to a signal and how long that takes; `None`: it takes no notice.
    pub(crate) on_term: Option<(Duration, ExitStatus)>,
    /// How long after its end the last of its processes is gone; `None`: never.
    pub(crate) empties: Option<Duration>,
}

impl Default for RunScript {
    /// It runs for ever and ends when it is told to.
    fn default() -> Self {
        Self {
            spawn_takes: Duration::ZERO,
            spawn_error: None,
            exit: None,
            on_term: Some((Duration::ZERO, ExitStatus::Code(0))),
            empties: Some(Duration::ZERO),
        }
    }
}

/// What was done to the runs, in order, for a test to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Spawned(Run),
    Signalled(Run),
    Killed(Run),
}

/// Plays the scripts, the last one for every later run too.
pub(crate) struct SimulatedBackend {
    scripts: Vec<RunScript>,
    events: mpsc::UnboundedSender<BackendEvent>,
    done: mpsc::UnboundedSender<Done>,
    living: Rc<RefCell<Living>>,
}

/// The newest run.
#[derive(Default)]
struct Living {
    run: Run,
    /// It has ended, or never began.
    over: bool,
    /// Its end by itself, or by a signal, that is still to come.
    ends: Vec<AbortHandle>,
    emptying: bool,
}

impl SimulatedBackend {
    pub(crate) fn new(
        scripts: Vec<RunScript>,
        events: mpsc::UnboundedSender<BackendEvent>,
        done: mpsc::UnboundedSender<Done>,
    ) -> Self {
        let living = Living {
            over: true,
            ..Living::default()
        };
        Self {
            scripts,
            events,
            done,
            living: Rc::new(RefCell::new(living)),
        }
    }

    fn script(&self, run: Run) -> RunScript {
        let nth = usize::try_from(run.0)
            .unwrap_or(usize::MAX)
            .saturating_sub(1);
        let script = self.scripts.get(nth).or(self.scripts.last());
        script.cloned().unwrap_or_default()
    }

    /// Ends the run after a while, unless it ended before.
    fn end_after(&self, run: Run, after: Duration, status: ExitStatus) {
        let (living, events) = (self.living.clone(), self.events.clone());
        let ending = tokio::task::spawn_local(async move {
            sleep(after).await;
            let over = {
                let mut living = living.borrow_mut();
                living.run != run || std::mem::replace(&mut living.over, true)
            };
            if !over {
                events
                    .send(ProcessEvent::Exited { run, status }.into())
                    .unwrap();
            }
        });
        self.living.borrow_mut().ends.push(ending.abort_handle());
    }
}

impl Backend for SimulatedBackend {
    fn spawn(&mut self, launch: Launch) {
        let run = launch.run;
        self.done.send(Done::Spawned(run)).unwrap();
        let script = self.script(run);
        *self.living.borrow_mut() = Living {
            run,
            over: script.spawn_error.is_some(),
            ..Living::default()
        };
        let (events, takes) = (self.events.clone(), script.spawn_takes);
        let outcome = match script.spawn_error {
            Some(errno) => ProcessEvent::SpawnFailed {
                run,
                why: StartFailure::Errno(errno),
            },
            None => ProcessEvent::Spawned {
                run,
                process: MainProcess {
                    pid: 1_000 + run.0,
                    start_ticks: 1,
                    boot_id: "simulated".into(),
                },
            },
        };
        if takes.is_zero() {
            events.send(outcome.into()).unwrap();
        } else {
            tokio::task::spawn_local(async move {
                sleep(takes).await;
                events.send(outcome.into()).unwrap();
            });
        }
        if let Some((after, status)) = script.exit {
            self.end_after(run, takes + after, status);
        }
    }

    fn adopt(&mut self, run: Run) {
        let adopted = BackendEvent::Adopted {
            run,
            found: Found::Nothing,
        };
        self.events.send(adopted).unwrap();
    }

    fn term(&mut self, run: Run, _signal: i32) {
        self.done.send(Done::Signalled(run)).unwrap();
        if let Some((after, status)) = self.script(run).on_term {
            self.end_after(run, after, status);
        }
    }

    fn kill_group(&mut self, run: Run) {
        let was_living = {
            let mut living = self.living.borrow_mut();
            if living.run != run || std::mem::replace(&mut living.emptying, true) {
                return;
            }
            for end in living.ends.drain(..) {
                end.abort();
            }
            !std::mem::replace(&mut living.over, true)
        };
        if was_living {
            self.done.send(Done::Killed(run)).unwrap();
            let status = ExitStatus::Signal {
                signal: 9,
                core: false,
                oom: false,
            };
            self.events
                .send(ProcessEvent::Exited { run, status }.into())
                .unwrap();
        }
        let Some(after) = self.script(run).empties else {
            return;
        };
        let events = self.events.clone();
        tokio::task::spawn_local(async move {
            sleep(after).await;
            events
                .send(ProcessEvent::GroupEmpty { run }.into())
                .unwrap();
        });
    }

    fn end_unrecorded(&mut self, _run: Run) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(std::future::ready(()))
    }

    fn root(&self) -> Option<Root> {
        None
    }
}
