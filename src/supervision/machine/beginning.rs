//! How a run begins, and how its ending is ordered.

use std::time::Duration;

use super::super::config::ProbeTiming;
use super::super::phase::{By, Cause, Phase, PreExec, Respawn, Step, Up};
use super::super::status::State;
use super::super::track::Track;
use super::super::vocabulary::{Effect, ProbeKind, Reason, Report};
use super::Machine;
use crate::identity::Run;
use crate::time::Monotonic;

impl Machine {
    pub(super) fn spawn(&mut self, replaces: Option<Respawn>, out: &mut Vec<Effect>) {
        self.run = self.run.next();
        self.phase = Phase::Starting {
            replaces,
            pre_exec: PreExec::Absent,
        };
        out.push(Effect::Spawn { run: self.run });
    }

    /// So many runs began and ended after the newest that is known here: that one is over, and the last of them is now the
    /// newest, of which nothing is known. What has ended for good has none.
    pub fn skip_runs(&mut self, runs: u32) {
        if !matches!(self.phase.state(), State::Final(_)) {
            self.run = Run(self.run.0.saturating_add(runs));
        }
    }

    pub(super) fn pre_exec_started(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        let Phase::Starting { pre_exec, .. } = &mut self.phase else {
            return;
        };
        if *pre_exec == PreExec::Absent {
            *pre_exec = PreExec::Running;
            if let Some(grace) = self.stop {
                self.signal_pre_exec(now, grace, out);
            }
        }
    }

    pub(super) fn signal_pre_exec(
        &mut self,
        now: Monotonic,
        grace: Duration,
        out: &mut Vec<Effect>,
    ) {
        if let Phase::Starting { pre_exec, .. } = &mut self.phase {
            *pre_exec = PreExec::Signalled {
                kill_at: Some(now + grace),
            };
            out.push(Effect::Term { run: self.run });
        }
    }

    pub(super) fn spawned(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::Starting { .. }) {
            return;
        }
        self.attempted(out);
        if let Some(grace) = self.stop {
            // Nobody was ever sent to it, so there is nothing to drain.
            self.begin_stopping(now, Cause::Stop, Duration::ZERO, grace, out);
        } else if let Some(timing) = &self.config.startup {
            self.phase = Phase::Startup {
                probe: Track::new(now + timing.initial_delay),
            };
        } else {
            self.enter_up(now);
        }
    }

    /// Counts and reports the restart that was attempted just now, if this start is one.
    pub(super) fn attempted(&mut self, out: &mut Vec<Effect>) {
        let Phase::Starting { replaces, .. } = &mut self.phase else {
            return;
        };
        let Some(respawn) = replaces.take() else {
            return;
        };
        match respawn.by {
            By::Policy => self.restarts = self.restarts.saturating_add(1),
            By::User => self.user_restarts = self.user_restarts.saturating_add(1),
        }
        out.push(Effect::Report(Report::Restarted {
            count: self.restarts,
            reason: respawn.reason,
            user_restarts: self.user_restarts,
        }));
    }

    pub(super) fn enter_up(&mut self, now: Monotonic) {
        // This run began after the user asked; an end in a week must not pass for the user's.
        self.user_restart = false;
        let track = |timing: &ProbeTiming| Track::new(now + timing.initial_delay);
        let readiness = self.config.readiness.as_ref().map(track);
        let unprobed = readiness.is_none();
        self.phase = Phase::Up(Up {
            liveness: self.config.liveness.as_ref().map(track),
            readiness,
            ready_at: unprobed.then(|| now + self.config.min_up),
            stable_since: unprobed.then_some(now),
        });
    }

    pub(super) fn begin_stopping(
        &mut self,
        now: Monotonic,
        cause: Cause,
        drain: Duration,
        grace: Duration,
        out: &mut Vec<Effect>,
    ) {
        let serving = self.ready;
        self.leave_up(cause.reason(), out);
        let step = if drain.is_zero() {
            out.push(Effect::Term { run: self.run });
            Step::Signalled {
                kill_at: now + grace,
            }
        } else {
            Step::Draining {
                until: now + drain,
                grace,
                serving,
            }
        };
        self.phase = Phase::Stopping {
            cause,
            step,
            stable_since: self.stable_since(),
        };
    }

    /// Not ready first, then no probe any more: before anything else is said or done.
    pub(super) fn leave_up(&mut self, reason: Reason, out: &mut Vec<Effect>) {
        self.set_not_ready(reason, out);
        let run = self.run;
        let mut cancel = |kind, track: Option<&Track>| {
            if let Some(probe) = track.and_then(Track::in_flight) {
                out.push(Effect::CancelProbe { run, kind, probe });
            }
        };
        match &self.phase {
            Phase::Startup { probe } => cancel(ProbeKind::Startup, Some(probe)),
            Phase::Up(up) => {
                cancel(ProbeKind::Liveness, up.liveness.as_ref());
                cancel(ProbeKind::Readiness, up.readiness.as_ref());
            }
            _ => {}
        }
    }
}
