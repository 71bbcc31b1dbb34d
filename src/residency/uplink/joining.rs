//! How a controller is joined, kept and left: what its answers mean.

use super::contact::Heard;
use super::outgoing::{News, Outgoing};
use super::{Asked, Question, Renewal, Shutdown, Stage, Uplink};
use crate::residency::{lease, skew};
use crate::time::{Monotonic, Now};

impl<O: Clone + PartialEq, R: Clone> Uplink<O, R> {
    pub(super) fn ask_lease(&mut self, now: Now, out: &mut Vec<Outgoing<O, R>>) -> Asked<O, R> {
        let asked = self.question(now, Question::Lease);
        out.push(Outgoing::Lease {
            no: asked.no,
            skew_ms: self.skew_ms,
        });
        asked
    }

    /// The full report was taken: what else belongs to a join, then the lease.
    pub(super) fn told_everything(&mut self, now: Now, out: &mut Vec<Outgoing<O, R>>) {
        let asked = if self.is_closing() {
            // A full report alone reads as a host that is there for good.
            let asked = self.question(now, Question::Shutdown);
            out.push(Outgoing::Shutdown { no: asked.no });
            asked
        } else {
            self.ask_lease(now, out)
        };
        if let Stage::Joining { asked: place, .. } = &mut self.stage {
            *place = asked;
        }
    }

    pub(super) fn told_shutdown(&mut self, now: Now, out: &mut Vec<Outgoing<O, R>>) {
        self.shutdown = Shutdown::Told;
        if matches!(self.stage, Stage::Joining { .. }) {
            let lease = self.ask_lease(now, out);
            if let Stage::Joining { asked, .. } = &mut self.stage {
                *asked = lease;
            }
        }
    }

    pub(super) fn renewed(
        &mut self,
        now: Now,
        asked: Now,
        renewal: &Renewal<'_>,
        out: &mut Vec<Outgoing<O, R>>,
    ) {
        out.push(Outgoing::Contact {
            // The controller counts from when it heard, which is later.
            at: asked.mono,
            grace: renewal.grace,
        });
        let period = renewal.period.unwrap_or(lease::PERIOD);
        self.period = period.clamp(lease::SHORTEST_PERIOD, lease::PERIOD);
        let theirs = renewal.now;
        if let Some(skew) = theirs.and_then(|theirs| skew::skew_ms(asked, now, theirs)) {
            if skew::is_off(skew) && !self.skew_ms.is_some_and(skew::is_off) {
                out.push(Outgoing::News(News::Skewed(skew)));
            }
            self.skew_ms = Some(skew);
        }
        let next = now.mono + self.period;
        match &mut self.stage {
            Stage::Joined {
                instance,
                next_lease,
                ..
            } => {
                if **instance != *renewal.instance {
                    out.push(Outgoing::News(News::NewController));
                    return self.leave(now.mono);
                }
                *next_lease = next;
            }
            Stage::Joining { told, .. } => {
                self.stage = Stage::Joined {
                    instance: renewal.instance.into(),
                    told: told.clone(),
                    next_lease: next,
                    asked: None,
                };
                self.poll.joined(now.mono, renewal.instance);
                out.push(Outgoing::News(News::Told));
            }
            Stage::Apart(_) | Stage::Gathering(_) => return,
        }
        match self.contact.heard(now.mono) {
            Heard::First => out.push(Outgoing::News(News::Joined)),
            Heard::Again(silence) => out.push(Outgoing::News(News::Found(silence))),
            Heard::Still => {}
        }
    }

    /// What was told did not arrive, or was not wanted.
    pub(super) fn failed(&mut self, now: Now, what: Question<O, R>, out: &mut Vec<Outgoing<O, R>>) {
        self.fail(now, out);
        let again = now.mono + self.contact.wait(self.period);
        match (&mut self.stage, what) {
            (Stage::Joined { .. }, Question::Shutdown) => {
                out.push(Outgoing::News(News::ShutdownUntold));
                // Joined anew, it is told again.
                self.leave(again);
            }
            (Stage::Joined { next_lease, .. }, what) => {
                *next_lease = again;
                // Told again once the lease says that somebody listens.
                if let Question::Change(_, ends) = what {
                    self.not_told(ends);
                }
            }
            _ => self.stage = Stage::Apart(again),
        }
        self.go_on(now, out);
    }

    pub(super) fn fail(&mut self, now: Now, out: &mut Vec<Outgoing<O, R>>) {
        if self.contact.failed(now.mono) {
            out.push(Outgoing::News(News::Lost));
        }
    }

    /// The controller is told everything then: what was to be told goes with it, or is told of anew.
    pub(super) fn leave(&mut self, until: Monotonic) {
        self.untold.clear();
        self.rejoin = false;
        self.refusals = 0;
        self.change_after = Monotonic::default();
        self.stage = Stage::Apart(until);
    }
}
