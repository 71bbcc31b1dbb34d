//! What is going to happen to one replica in virtual time, handed over in the order of one instant.

use std::collections::BTreeMap;

use super::vocabulary::Event;
use crate::time::Monotonic;

/// Events that are still to come, for a driver without a clock of its own.
///
/// Events of one instant come in the order of [`Event::rank`], equal ranks in the order in which they were
/// put here. Deadlines are the last of an instant: a driver takes events until there is none, then calls
/// [`super::Machine::on_deadline`], whose effects may put further events at the same instant.
#[derive(Clone, Debug, Default)]
pub struct Agenda {
    events: BTreeMap<(Monotonic, u8, u64), Event>,
    put: u64,
}

impl Agenda {
    /// Nothing is going to happen.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            events: BTreeMap::new(),
            put: 0,
        }
    }

    /// `event` comes at `at`. Cost: logarithmic.
    pub fn put(&mut self, at: Monotonic, event: Event) {
        self.put += 1;
        self.events.insert((at, event.rank(), self.put), event);
    }

    /// When the next event comes.
    #[must_use]
    pub fn next(&self) -> Option<Monotonic> {
        self.events.keys().next().map(|(at, ..)| *at)
    }

    /// The next event that is due at `now`; `None`: it is the turn of the deadlines.
    pub fn take(&mut self, now: Monotonic) -> Option<Event> {
        let first = self.events.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Everything before `end` comes at `end` instead, after `first`, because nobody listened meanwhile.
    pub fn hold_until(&mut self, end: Monotonic, first: impl IntoIterator<Item = Event>) {
        let later = self.events.split_off(&(end, 0, 0));
        let held = std::mem::replace(&mut self.events, later);
        let at_end: Vec<_> = self
            .events
            .range(..=(end, u8::MAX, u64::MAX))
            .map(|(key, _)| *key)
            .collect();
        let at_end: Vec<_> = at_end
            .iter()
            .filter_map(|key| self.events.remove(key))
            .collect();
        for event in first.into_iter().chain(held.into_values()).chain(at_end) {
            self.put(end, event);
        }
    }

    /// Forgets every event that `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(&Event) -> bool) {
        self.events.retain(|_, event| keep(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Run;
    use crate::supervision::ExitStatus;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    fn exited() -> Event {
        let status = ExitStatus::Code(1);
        Event::Exited {
            run: Run(1),
            status,
        }
    }

    #[test]
    fn events_of_one_instant_come_in_their_order_whatever_order_they_were_put_in() {
        // supervision 1.1
        let run = Run(1);
        let mut agenda = Agenda::new();
        let order = [
            Event::UserRestart,
            Event::Spawned { run },
            exited(),
            Event::GroupEmpty { run },
        ];
        for event in order.iter().rev() {
            agenda.put(at(5), event.clone());
        }
        assert_eq!(agenda.next(), Some(at(5)));
        assert_eq!(agenda.take(at(4)), None);
        let taken: Vec<_> = std::iter::from_fn(|| agenda.take(at(5))).collect();
        assert_eq!(taken, order);
        assert_eq!(agenda.next(), None);
    }

    #[test]
    fn what_nobody_heard_comes_when_somebody_listens_again() {
        let mut agenda = Agenda::new();
        agenda.put(at(3), exited());
        agenda.put(at(2), Event::UserRestart);
        agenda.put(at(9), Event::Start);
        let adopt = Event::taken_over(std::time::Duration::ZERO);
        agenda.hold_until(at(7), [adopt.clone()]);
        assert_eq!(agenda.next(), Some(at(7)));
        let taken: Vec<_> = std::iter::from_fn(|| agenda.take(at(7))).collect();
        assert_eq!(taken, [adopt, Event::UserRestart, exited()]);
        assert_eq!(agenda.take(at(9)), Some(Event::Start));
    }
}
