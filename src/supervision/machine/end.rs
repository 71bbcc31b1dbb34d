//! How the end of a run is taken, and what it leads to.

use super::super::decision::{self, WindowFull};
use super::super::phase::{By, Cause, Next, Phase, Respawn};
use super::super::status::Final;
use super::super::vocabulary::{Effect, ExitStatus, Reason, Report, StartFailure};
use super::{Machine, RunFailure};
use crate::time::Monotonic;

impl Machine {
    pub(super) fn ended(&mut self, now: Monotonic, end: End, out: &mut Vec<Effect>) {
        let cause = match self.phase {
            Phase::Stopping { cause, .. } | Phase::StuckProcess { cause, .. } => Some(cause),
            _ => None,
        };
        let (reason, status) = match (&end, cause) {
            (End::Exited(status), Some(cause)) => (cause.reason(), Some(*status)),
            (End::Exited(status), None) => (Reason::Exit(*status), Some(*status)),
            (End::NotStarted(why), _) => (Reason::StartFailed(why.clone()), None),
            // Whatever status there was went with the conflict.
            (End::Conflict(_), cause) => {
                let reason = cause.map_or(Reason::Exit(ExitStatus::Unknown), Cause::reason);
                (reason, None)
            }
        };
        let stable = self
            .stable_since()
            .is_some_and(|since| now.since(since) >= self.config.backoff.reset_after);
        self.leave_up(reason.clone(), out);
        out.push(Effect::KillGroup { run: self.run });
        let next = match end {
            _ if self.stop.is_some() => Next::End(Final::Stopped),
            End::Conflict(conflict) => Next::End(conflict),
            End::Exited(_) | End::NotStarted(_) => {
                let own_end = if cause.is_none() { status } else { None };
                self.note_failure(now, &reason, own_end, status);
                self.decide(
                    now,
                    reason,
                    own_end,
                    stable,
                    cause == Some(Cause::User),
                    out,
                )
            }
        };
        self.phase = Phase::Reaping {
            stuck_at: now + self.config.stop.unkillable_after,
            next,
        };
    }

    pub(super) fn note_failure(
        &mut self,
        now: Monotonic,
        reason: &Reason,
        own_end: Option<ExitStatus>,
        exit: Option<ExitStatus>,
    ) {
        let success = own_end.is_some_and(|status| decision::is_success(status, &self.config));
        if success || matches!(reason, Reason::User | Reason::Stop) {
            return;
        }
        let failure = RunFailure {
            run: self.run,
            reason: reason.clone(),
            exit,
            at: now,
        };
        if self.first_failure.is_none() {
            self.first_failure = Some(failure.clone());
        }
        self.last_failure = Some(failure);
    }

    pub(super) fn decide(
        &mut self,
        now: Monotonic,
        reason: Reason,
        own_end: Option<ExitStatus>,
        stable: bool,
        users: bool,
        out: &mut Vec<Effect>,
    ) -> Next {
        if users || self.user_restart {
            self.user_restart = false;
            self.budget.reset_backoff();
            return Next::Respawn(Respawn {
                at: now,
                reason: Reason::User,
                by: By::User,
            });
        }
        if own_end.is_some_and(|status| decision::forbids_restart(status, &self.config)) {
            return Next::End(Final::Failed(reason));
        }
        let success = own_end.is_some_and(|status| decision::is_success(status, &self.config));
        if !decision::policy_restarts(self.config.restart, success) {
            return Next::End(if success {
                Final::Succeeded
            } else {
                Final::Failed(reason)
            });
        }
        if stable {
            self.budget.reset_backoff();
        }
        match self.budget.grant(now, &self.config, self.seed, self.run) {
            Ok(delay) => {
                out.push(Effect::Report(Report::Backoff {
                    reason: reason.clone(),
                    delay,
                }));
                Next::Respawn(Respawn {
                    at: now + delay,
                    reason,
                    by: By::Policy,
                })
            }
            Err(WindowFull) => Next::End(Final::GaveUp {
                reason,
                count: self.restarts,
            }),
        }
    }

    pub(super) fn group_empty(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        let (Phase::Reaping { next, .. } | Phase::StuckGroup { next }) = &self.phase else {
            return;
        };
        match next.clone() {
            Next::End(end) => self.finish(end, out),
            Next::Respawn(respawn) if respawn.at <= now => self.spawn(Some(respawn), out),
            Next::Respawn(respawn) => self.phase = Phase::Backoff(respawn),
        }
    }

    pub(super) fn finish(&mut self, end: Final, out: &mut Vec<Effect>) {
        out.push(Effect::Report(Report::Final(end.clone())));
        self.phase = Phase::Final(end);
    }

    /// Whether the process of the newest run may exist and its end is awaited.
    pub(super) const fn runs(&self) -> bool {
        match self.phase {
            Phase::Starting { .. }
            | Phase::Startup { .. }
            | Phase::Up(_)
            | Phase::Stopping { .. }
            | Phase::StuckProcess { .. } => true,
            Phase::Idle
            | Phase::Reaping { .. }
            | Phase::StuckGroup { .. }
            | Phase::Backoff(_)
            | Phase::Final(_) => false,
        }
    }

    pub(super) fn stable_since(&self) -> Option<Monotonic> {
        match &self.phase {
            Phase::Up(up) => up.stable_since,
            Phase::Stopping { stable_since, .. } | Phase::StuckProcess { stable_since, .. } => {
                *stable_since
            }
            _ => None,
        }
    }
}

/// How a run ended, or was found to have no chance.
pub(super) enum End {
    Exited(ExitStatus),
    NotStarted(StartFailure),
    Conflict(Final),
}
