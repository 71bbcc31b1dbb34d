//! How a run ends: who is reaped, who is killed, and what is left to remove.

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use portreeve::supervision::ExitStatus;
use rustix::event::{Timespec, poll};
use rustix::process::{WaitOptions, WaitStatus};

use super::{ALONE, KILL_AGAIN, Phase, REMOVE_AGAIN, REMOVE_TRIES, Shim};
use crate::containment::OomCount;
use crate::{clock, process};

impl Shim {
    /// Takes every ended child; its own orphans among them are only buried.
    pub(super) fn reap(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    // Something moved: walk at once, for its children are ours now.
                    self.kill = self.kill.map(|_| KILL_AGAIN.0);
                    match self.phase {
                        Phase::PreExec { pid: main, .. } if main == pid => {
                            self.on_pre_exec_end(exit_status(status));
                        }
                        Phase::Service { pid: main } if main == pid => {
                            self.phase = Phase::Over;
                            self.state.exited = Some(self.service_exit(status));
                            self.changed();
                        }
                        _ => {}
                    }
                }
                Ok(None) => return,
                // No child left at all. A descendant without a living parent would be our child, so none is left.
                Err(rustix::io::Errno::CHILD) => {
                    // Unless the group knows one that came from elsewhere; then it says when that one is gone.
                    let group_is_empty = self.hold.is_empty().unwrap_or(false);
                    if matches!(self.phase, Phase::Over) && !self.state.empty && group_is_empty {
                        self.state.empty = true;
                        self.changed();
                    }
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// How the service ended. That nobody here killed it is known only of a run that is not being killed.
    fn service_exit(&self, status: WaitStatus) -> ExitStatus {
        match exit_status(status) {
            ExitStatus::Signal { signal, core, .. } => ExitStatus::Signal {
                signal,
                core,
                oom: signal == Signal::SIGKILL as i32
                    && self.kill.is_none()
                    && self.oom.as_ref().is_some_and(OomCount::has_risen),
            },
            status => status,
        }
    }

    /// Kills what is left, while it is to be killed and when a window has passed.
    pub(super) fn walk(&mut self) {
        if self.kill.is_none() && self.left_alone() == Some(Duration::ZERO) {
            self.stop_asked = true;
            self.kill = Some(KILL_AGAIN.0);
        }
        if let Phase::PreExec { until, .. } = self.phase
            && until <= clock::monotonic()
            && self.kill.is_none()
        {
            self.kill = Some(KILL_AGAIN.0);
        }
        let Some(wait) = self.kill else {
            if matches!(self.phase, Phase::Over) && !self.state.empty {
                self.hold.close_if_unused();
            }
            return;
        };
        self.hold.kill();
        // The net below every rung: what left the group, which a privileged service can, is still ours by descent.
        for stat in process::descendants(std::process::id()) {
            process::kill(&stat);
        }
        self.kill = Some((wait * 2).min(KILL_AGAIN.1));
    }

    /// A group can be busy for about a millisecond after its last process ended. One that stays is removed before
    /// the next start, or with the replica.
    pub(super) fn remove_hold(&self) {
        let pause = Timespec::try_from(REMOVE_AGAIN).ok();
        for _ in 0..REMOVE_TRIES {
            if self.hold.remove() {
                return;
            }
            _ = poll(&mut [], pause.as_ref());
        }
    }

    /// Of an attached service without a worker: how long it may still go on.
    pub(super) fn left_alone(&self) -> Option<Duration> {
        let since = self.state.alone_since.filter(|_| self.launch.attached)?;
        Some((since + ALONE).since(clock::monotonic()))
    }

    /// Whether somebody removed the run's folder: nobody will ever ask how it ended.
    pub(super) fn is_forgotten(&self) -> bool {
        let found = std::fs::symlink_metadata(self.files.path());
        found.is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound)
    }
}

fn exit_status(status: WaitStatus) -> ExitStatus {
    /// The bit of a wait status that says a core was dumped.
    const CORE: i32 = 0x80;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitStatus::Code(code),
        (None, Some(signal)) => ExitStatus::Signal {
            signal,
            core: status.as_raw() & CORE != 0,
            oom: false,
        },
        (None, None) => ExitStatus::Unknown,
    }
}
