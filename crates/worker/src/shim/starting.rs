//! How a shim starts its run: what holds it, `pre_exec`, the service.

use portreeve::supervision::{ExitStatus, StartFailure};
use portreeve_api::local::ProcessIdentity;
use rustix::process::Pid;

use super::spawn::{self, Output};
use super::{KILL_AGAIN, PRE_EXEC_WINDOW, Phase, Shim, number, pre_exec_done};
use crate::clock;
use crate::containment::OomCount;
use crate::file::{self, Durability};

impl Shim {
    pub(super) fn begin(&mut self) {
        let mark = self.launch.mark();
        if let Err(cause) = self.hold.prepare(&self.launch.init, &mark) {
            // Held by nothing, what it leaves could keep its ports from the next run.
            return self.fail(StartFailure::Prepare(format!(
                "its processes cannot be held together: {cause}"
            )));
        }
        match self.launch.pre_exec.clone() {
            Some(argv) => match self.start(&argv) {
                Ok(pid) => {
                    let until = clock::monotonic() + PRE_EXEC_WINDOW;
                    self.phase = Phase::PreExec { pid, until };
                    self.state.pre_exec = true;
                    self.changed();
                }
                Err(why) => self.fail(why),
            },
            None => self.start_service(),
        }
    }

    pub(super) fn start_service(&mut self) {
        let argv = std::mem::take(&mut self.launch.argv);
        match self.start(&argv) {
            Ok(pid) => {
                self.phase = Phase::Service { pid };
                self.oom = Some(OomCount::begin(self.hold.group()));
                // Our own unreaped child: its entry exists even if it ended already.
                match ProcessIdentity::of(number(pid)) {
                    Ok(identity) => self.state.spawned = Some(identity),
                    Err(cause) => self.fail(StartFailure::Prepare(format!(
                        "the new process cannot be read in /proc: {cause}"
                    ))),
                }
                self.changed();
            }
            Err(why) => self.fail(why),
        }
        // The secrets in it are needed no longer.
        self.launch.env.clear();
    }

    fn start(&mut self, argv: &[String]) -> Result<Pid, StartFailure> {
        let output = if self.launch.attached {
            Output::Inherited
        } else {
            Output::Logs(&self.replica)
        };
        let (env, working_dir) = (&self.launch.env, &self.launch.working_dir);
        let started = self
            .hold
            .start(|| spawn::start(argv, env, working_dir, output));
        started.unwrap_or_else(|cause| {
            Err(StartFailure::Prepare(format!(
                "it cannot be started where its processes are held together: {cause}"
            )))
        })
    }

    pub(super) fn fail(&mut self, why: StartFailure) {
        self.state.failed = Some(why);
        self.changed();
        self.kill = Some(KILL_AGAIN.0);
    }

    pub(super) fn on_pre_exec_end(&mut self, status: ExitStatus) {
        self.phase = Phase::Over;
        if status != ExitStatus::Code(0) || self.stop_asked {
            return self.fail(StartFailure::PreExec(status));
        }
        let done = pre_exec_done(&self.replica);
        match file::write(&done, b"", Durability::Written) {
            Ok(()) => self.start_service(),
            // Without the mark it would run again at the next restart, which it must not.
            Err(cause) => self.fail(StartFailure::Prepare(format!(
                "that pre_exec succeeded cannot be written down: {cause}"
            ))),
        }
    }
}
