//! The processes of one replica on its host: they follow their script, whoever watches, and somebody holds on to
//! what became of them until a worker asks.

use std::sync::Arc;
use std::time::Duration;

use portreeve::attendance::Found;
use portreeve::identity::Run;
use portreeve::port::{Port, PortRange};
use portreeve::port_pool::PortGrant;
use portreeve::supervision::{ExitStatus, ProbeKind, ProbeOutcome, StartFailure};
use portreeve::time::Monotonic;

use super::Place;
use super::happening::{Happening, Heard};
use super::ports::{Bound, Holder, Listeners};
use crate::scenario::{Answer, Binds, RunScript, Scripts};

/// The processes of the newest run of one replica.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    scripts: Arc<Scripts>,
    run: Run,
    stage: Stage,
    spawned: Monotonic,
    exited: Monotonic,
    end: End,
    /// Whether the end of the group was told to a worker.
    is_emptied: bool,
    /// Whether an onlooker saw its beginning, and its end: as soon as a worker hears of them.
    is_seen: (bool, bool),
    /// Kept over all runs.
    is_pre_exec_done: bool,
    pid: u32,
    bound: Vec<Bound>,
    alone_since: Option<Monotonic>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was begun.
    Idle,
    PreExec,
    Spawning,
    Up,
    /// The main process ended, or never was.
    Over,
}

/// How the newest run ended, for a worker that asks later.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    None,
    Exit(ExitStatus),
    Failed(Box<StartFailure>),
}

/// Where the processes of a replica live.
pub(crate) struct Ground<'a> {
    pub(crate) place: Place,
    pub(crate) grant: &'a PortGrant,
    pub(crate) listeners: &'a mut Listeners,
    /// What is to happen later, or at the end of this instant.
    pub(crate) later: &'a mut Vec<(Monotonic, Happening)>,
}

impl Processes {
    /// None; with `pre_exec`, such a command is due before the first run.
    pub(crate) const fn new(scripts: Arc<Scripts>, pre_exec: bool) -> Self {
        Self {
            scripts,
            run: Run(0),
            stage: Stage::Idle,
            spawned: Monotonic::from_millis(0),
            exited: Monotonic::from_millis(0),
            end: End::None,
            is_emptied: false,
            is_seen: (false, false),
            is_pre_exec_done: !pre_exec,
            pid: 0,
            bound: Vec::new(),
            alone_since: None,
        }
    }

    /// The newest run that was begun.
    pub(crate) const fn run(&self) -> Run {
        self.run
    }

    /// Whether the main process lives, or the command before it.
    pub(crate) const fn main_lives(&self) -> bool {
        matches!(self.stage, Stage::PreExec | Stage::Spawning | Stage::Up)
    }

    /// The run that would be begun next.
    pub(crate) const fn next_run(&self) -> Run {
        Run(self.run().0.saturating_add(1))
    }

    /// Whether the main process was begun and a worker cannot stop it by telling nobody.
    pub(crate) const fn is_spawned(&self) -> bool {
        matches!(self.stage, Stage::Spawning | Stage::Up)
    }

    /// Whether others of its group live at `now` after its end.
    pub(crate) fn leftover_lives(&self, now: Monotonic) -> bool {
        let spawned = matches!(self.end, End::Exit(_));
        spawned && self.gone_at().is_none_or(|gone| gone > now)
    }

    fn script(&self, run: Run) -> &RunScript {
        self.scripts.of(run)
    }

    /// When the last of the group is gone, after the end of the main process.
    fn gone_at(&self) -> Option<Monotonic> {
        let leftover = self.script(self.run).leftover?;
        Some(self.exited + leftover)
    }

    /// Begins a run; nothing of an earlier one lives.
    pub(crate) fn spawn(&mut self, now: Monotonic, run: Run, pid: u32, ground: &mut Ground<'_>) {
        self.let_go(ground.listeners);
        self.run = run;
        self.end = End::None;
        self.is_emptied = false;
        self.is_seen = (false, false);
        self.pid = pid;
        self.alone_since = None;
        if self.is_pre_exec_done {
            return self.begin(now, ground);
        }
        self.stage = Stage::PreExec;
        let success = (Duration::ZERO, ExitStatus::Code(0));
        let (takes, status) = self.script(run).pre_exec.unwrap_or(success);
        ground.later.push((now, Happening::PreExecStarts(run)));
        let ends = Happening::PreExecEnds(run, status);
        ground.later.push((now + takes, ends));
    }

    fn begin(&mut self, now: Monotonic, ground: &mut Ground<'_>) {
        self.stage = Stage::Spawning;
        let script = self.script(self.run);
        // A refusal takes no time.
        let takes = match script.spawn_error {
            Some(_) => Duration::ZERO,
            None => script.spawn_takes,
        };
        ground
            .later
            .push((now + takes, Happening::Spawns(self.run)));
    }

    /// Sends the stop signal to the main process, or to the command before it.
    pub(crate) fn term(&self, now: Monotonic, run: Run, ground: &mut Ground<'_>) {
        if let Some((takes, status)) = self.script(run).on_term {
            self.end_later(now + takes, run, status, ground);
        }
    }

    /// Kills every process of the run; whether there was a main process to kill.
    pub(crate) fn kill_group(&mut self, now: Monotonic, run: Run, ground: &mut Ground<'_>) -> bool {
        if self.run == run && self.main_lives() {
            if self.stage == Stage::PreExec || self.script(run).killable {
                self.end_later(now, run, KILLED, ground);
            }
            return true;
        }
        let gone = match self.end {
            End::Exit(_) if self.run == run => self.gone_at(),
            // Of one that never was.
            _ => self.script(run).leftover.map(|_| now),
        };
        if let Some(gone) = gone {
            ground.later.push((gone.max(now), Happening::Empties(run)));
        }
        false
    }

    /// The main process, or the command in its place, ends at `at`.
    pub(crate) fn end_later(
        &self,
        at: Monotonic,
        run: Run,
        status: ExitStatus,
        ground: &mut Ground<'_>,
    ) {
        let ends = if self.stage == Stage::PreExec {
            Happening::PreExecEnds(run, status)
        } else {
            Happening::Ends(run, status)
        };
        ground.later.push((at, ends));
    }

    /// Something that was to happen does, unless it was overtaken; what whoever watches hears of it.
    pub(crate) fn happen(
        &mut self,
        now: Monotonic,
        happening: Happening,
        ground: &mut Ground<'_>,
    ) -> Option<Heard> {
        match happening {
            Happening::PreExecStarts(run) if self.is(run, Stage::PreExec) => {
                Some(Heard::PreExecStarted(run))
            }
            Happening::PreExecEnds(run, ExitStatus::Code(0)) if self.is(run, Stage::PreExec) => {
                self.is_pre_exec_done = true;
                self.begin(now, ground);
                None
            }
            Happening::PreExecEnds(run, status) if self.is(run, Stage::PreExec) => {
                Some(self.fail(run, StartFailure::PreExec(status)))
            }
            Happening::Spawns(run) if self.is(run, Stage::Spawning) => {
                let script = self.script(run);
                if let Some(errno) = script.spawn_error {
                    return Some(self.fail(run, StartFailure::Errno(errno)));
                }
                if let Some((after, status)) = script.exit {
                    ground
                        .later
                        .push((now + after, Happening::Ends(run, status)));
                }
                let binds_after = script.binds_after;
                self.stage = Stage::Up;
                self.spawned = now;
                if binds_after.is_zero() {
                    self.bind(now, ground);
                } else {
                    ground
                        .later
                        .push((now + binds_after, Happening::Binds(run)));
                }
                Some(Heard::Spawned(run, self.pid))
            }
            Happening::Binds(run) if self.is(run, Stage::Up) => {
                self.bind(now, ground);
                None
            }
            Happening::Ends(run, status) if self.run == run && self.is_spawned() => {
                self.stage = Stage::Over;
                self.exited = now;
                self.end = End::Exit(status);
                let gone = self.gone_at();
                if !self.script(run).leftover_listens || gone == Some(now) {
                    self.let_go(ground.listeners);
                } else if let Some(gone) = gone {
                    ground.later.push((gone, Happening::LetsGo(run)));
                }
                Some(Heard::Exited(run, status))
            }
            Happening::LetsGo(run) if self.run == run => {
                self.let_go(ground.listeners);
                None
            }
            Happening::Empties(run) => {
                if self.run == run {
                    self.let_go(ground.listeners);
                    if std::mem::replace(&mut self.is_emptied, true) {
                        return None;
                    }
                }
                Some(Heard::GroupEmpty(run))
            }
            _ => None,
        }
    }

    fn is(&self, run: Run, stage: Stage) -> bool {
        self.run == run && self.stage == stage
    }

    fn fail(&mut self, run: Run, why: StartFailure) -> Heard {
        self.stage = Stage::Over;
        self.end = End::Failed(Box::new(why.clone()));
        Heard::SpawnFailed(run, why)
    }

    /// It listens as its script says; one that cannot ends, as servers do.
    fn bind(&mut self, now: Monotonic, ground: &mut Ground<'_>) {
        let above = match self.script(self.run).binds {
            Binds::Granted => 0,
            Binds::Beside(above) => above,
            Binds::Never => return,
        };
        let holder = Holder::Process(ground.place, self.run);
        for granted in &ground.grant.ports {
            let Some(numbers) = moved(granted.numbers, above) else {
                continue;
            };
            let bound = Bound {
                numbers,
                protocol: granted.protocol,
            };
            if ground.listeners.bind(bound, holder).is_err() {
                let ends = Happening::Ends(self.run, ExitStatus::Code(1));
                ground.later.push((now, ends));
                return;
            }
            self.bound.push(bound);
        }
    }

    fn let_go(&mut self, listeners: &mut Listeners) {
        for bound in self.bound.drain(..) {
            listeners.unbind(bound);
        }
        // A replica at rest holds no memory for it.
        self.bound = Vec::new();
    }

    /// What was begun after `run` is gone, and as if it had never been.
    pub(crate) fn forget_runs_after(&mut self, run: Run) {
        if self.run > run {
            self.run = Run(0);
            self.stage = Stage::Idle;
            self.end = End::None;
            self.alone_since = None;
        }
    }

    /// The worker hears that the run began; whether that is new to an onlooker.
    pub(crate) fn see_begin(&mut self, run: Run) -> bool {
        self.run == run && !std::mem::replace(&mut self.is_seen.0, true)
    }

    /// The worker hears that the run ended; whether that is new to an onlooker.
    pub(crate) fn see_end(&mut self, run: Run) -> bool {
        self.run == run && !std::mem::replace(&mut self.is_seen.1, true)
    }

    /// Whether a command is due before the first run.
    pub(crate) const fn expect_pre_exec(&mut self, is_due: bool) {
        self.is_pre_exec_done = !is_due;
    }

    /// All of them are gone with the power, and what they listened on.
    pub(crate) fn lose_power(&mut self) {
        self.forget_runs_after(Run(0));
        self.bound = Vec::new();
    }

    /// Nobody watches from now on.
    pub(crate) fn leave_alone(&mut self, now: Monotonic) {
        if self.stage != Stage::Idle {
            self.alone_since.get_or_insert(now);
        }
    }

    /// Another worker looks for what one before it began of `run`; what there is of it, and everything that is known
    /// of it so far.
    pub(crate) fn adopt(&mut self, now: Monotonic, run: Run) -> (Found, Vec<Heard>) {
        if self.run != run || self.stage == Stage::Idle {
            return (Found::Nothing, Vec::new());
        }
        let alone_since = self.alone_since.take().unwrap_or(now);
        let mut known = Vec::new();
        match (&self.stage, &self.end) {
            (Stage::PreExec, _) => known.push(Heard::PreExecStarted(run)),
            (Stage::Up, _) => known.push(Heard::Spawned(run, self.pid)),
            (_, End::Failed(why)) => known.push(Heard::SpawnFailed(run, (**why).clone())),
            (_, End::Exit(status)) => {
                known.push(Heard::Spawned(run, self.pid));
                known.push(Heard::Exited(run, *status));
            }
            _ => {}
        }
        // Who asked before may have died before it heard.
        self.is_emptied = false;
        (
            Found::Begun {
                alone_since: Some(alone_since),
            },
            known,
        )
    }

    /// Whether something is left of a run before `run`; it is killed, and the last of it is gone then, if ever.
    pub(crate) fn clear(
        &mut self,
        now: Monotonic,
        run: Run,
        ground: &mut Ground<'_>,
    ) -> Option<Option<Monotonic>> {
        if self.run >= run || !(self.main_lives() || self.leftover_lives(now)) {
            return None;
        }
        let before = self.run;
        if self.main_lives() {
            _ = self.happen(now, Happening::Ends(before, KILLED), ground);
            self.stage = Stage::Over;
            self.exited = now;
        }
        Some(self.gone_at().map(|gone| gone.max(now)))
    }

    /// How a probe that begins now ends.
    pub(crate) fn answer(&self, now: Monotonic, kind: ProbeKind, by_process: bool) -> Answer {
        let script = self.script(self.run);
        let age = now.since(if self.stage == Stage::Up {
            self.spawned
        } else {
            now
        });
        if by_process && script.hangs.is_some_and(|from| age >= from) {
            return Answer::Never;
        }
        let mut said = script.probes.iter().rev();
        let said = said
            .find(|one| one.kind.is_none_or(|of| of == kind) && (one.from..one.to).contains(&age));
        said.map_or(Answer::After(Duration::ZERO, ProbeOutcome::Ok), |one| {
            one.answer
        })
    }
}

/// The same many numbers so far above; `None` beyond the last.
fn moved(numbers: PortRange, above: u16) -> Option<PortRange> {
    let up = |port: Port| Port::new(port.number().checked_add(above)?);
    PortRange::new(up(numbers.first())?, up(numbers.last())?)
}

const KILLED: ExitStatus = ExitStatus::Signal {
    signal: 9,
    core: false,
    oom: false,
};

#[cfg(test)]
#[path = "process_test.rs"]
mod tests;
