//! Cut off: what becomes of a service whose host the controller has not heard of for longer than its grace.
//!
//! By then it may run elsewhere. A profile says `on_cut_off = "stop"` where two copies do more harm than none.

use std::time::Duration;

use crate::supervision::{Effect, Leaving};
use crate::time::{Monotonic, Now};

use super::output::Surroundings;
use super::turn::Attendance;

/// How long until it is looked again where no agent has noted a contact yet: one that has just begun notes it with its
/// first lease, and an older one never does.
const NOTHING_NOTED: Duration = Duration::from_secs(15);

impl Attendance {
    /// Begins to look, if the profile says so and somebody notes when the controller heard of the host.
    pub(super) fn watch_contact(&mut self, now: Monotonic, around: &mut impl Surroundings) {
        let looks = self.manner.ends_cut_off;
        self.look_for_contact = looks.then(|| self.next_look(now, around));
    }

    /// Stops the service once its host is cut off for longer than the grace. A pause of this worker, or of the whole
    /// machine, is none: the agent may have noted a contact meanwhile, which is read first.
    pub(super) fn look_for_contact(
        &mut self,
        now: Now,
        around: &mut impl Surroundings,
        effects: &mut Vec<Effect>,
    ) {
        if self.look_for_contact.is_none_or(|at| now.mono < at) {
            return;
        }
        let next = self.next_look(now.mono, around);
        if now.mono < next {
            self.look_for_contact = Some(next);
            return;
        }
        self.look_for_contact = None;
        self.leave(Leaving::CutOff, now, effects);
    }

    /// Ends the replica without an order of the controller, unless it was told to end anyway.
    pub(super) fn leave(&mut self, why: Leaving, now: Now, effects: &mut Vec<Effect>) {
        if self.record.is_final() || self.record.machine.is_stop_wanted() {
            return;
        }
        self.record.leaving = Some(why);
        self.stop(now, effects);
    }

    /// When the grace is over that began with the last contact.
    fn next_look(&self, now: Monotonic, around: &mut impl Surroundings) -> Monotonic {
        let Some(contact) = around.contact() else {
            return now + NOTHING_NOTED;
        };
        // What stands there may be older than the replica, whose start was ordered by the controller.
        contact.at.max(self.record.began()) + contact.grace
    }
}
