//! What is going to happen on one host, in the order in which it is handed over.
//!
//! Of one instant, everything of one actor comes before anything of the next: its events in the order of their
//! ranks, equal ranks in the order in which they were put here, then its deadline.

use std::collections::{BTreeMap, BTreeSet};

use portreeve::time::Monotonic;

use super::Place;

/// Who acts by itself, or whom an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Actor {
    /// The machine itself.
    Machine,
    /// A replica: its processes and its worker.
    Worker(Place),
    Agent,
}

/// Events of one host that are still to come, and the deadlines of who acts there by itself.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    events: BTreeMap<(Monotonic, Actor, u8, u64), E>,
    put: u64,
    wakes: BTreeSet<(Monotonic, Actor)>,
    by_actor: BTreeMap<Actor, Monotonic>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn<E> {
    Event(Actor, E),
    Deadline(Actor),
}

impl<E> Agenda<E> {
    pub(crate) const fn new() -> Self {
        Self {
            events: BTreeMap::new(),
            put: 0,
            wakes: BTreeSet::new(),
            by_actor: BTreeMap::new(),
        }
    }

    /// `event` comes at `at`. Cost: logarithmic.
    pub(crate) fn put(&mut self, at: Monotonic, actor: Actor, rank: u8, event: E) {
        self.put += 1;
        self.events.insert((at, actor, rank, self.put), event);
    }

    /// From now on the actor's deadline is this one. Cost: logarithmic; none where it is the one that is known.
    pub(crate) fn wake(&mut self, actor: Actor, at: Option<Monotonic>) {
        let before = match at {
            Some(at) => self.by_actor.insert(actor, at),
            None => self.by_actor.remove(&actor),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.wakes.remove(&(before, actor));
        }
        self.wakes.extend(at.map(|at| (at, actor)));
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Option<Monotonic> {
        let event = self.events.first_key_value().map(|((at, ..), _)| *at);
        let wake = self.wakes.first().map(|(at, _)| *at);
        event.into_iter().chain(wake).min()
    }

    /// The next thing that is due by `now`; a deadline is forgotten with that.
    pub(crate) fn take(&mut self, now: Monotonic) -> Option<Turn<E>> {
        let wake = self.wakes.first().copied();
        if let Some(event) = self.events.first_entry() {
            let (at, actor, ..) = *event.key();
            if wake.is_none_or(|wake| (at, actor) <= wake) {
                return (at <= now).then(|| Turn::Event(actor, event.remove()));
            }
        }
        let (_, actor) = wake.filter(|(at, _)| *at <= now)?;
        self.wake(actor, None);
        Some(Turn::Deadline(actor))
    }

    /// The next event of this actor, if it is due by `now` and nothing of another one comes first.
    pub(crate) fn take_of(&mut self, now: Monotonic, actor: Actor) -> Option<E> {
        let event = self.events.first_entry()?;
        let (at, of, ..) = *event.key();
        (of == actor && at <= now).then(|| event.remove())
    }

    /// Nothing is going to happen.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.wakes.clear();
        self.by_actor.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_instant_an_actor_has_its_events_by_rank_and_then_its_deadline() {
        let at = Monotonic::from_millis;
        let (first, second) = (Actor::Worker(Place(1)), Actor::Worker(Place(2)));
        let mut agenda = Agenda::new();
        agenda.wake(Actor::Agent, Some(at(5)));
        agenda.wake(first, Some(at(9)));
        agenda.wake(first, Some(at(5)));
        for (moment, actor, rank, event) in [
            (5, second, 0, 'e'),
            (5, first, 3, 'd'),
            (5, first, 0, 'b'),
            (4, second, 9, 'a'),
            (5, first, 0, 'c'),
        ] {
            agenda.put(at(moment), actor, rank, event);
        }
        assert_eq!(agenda.next(), Some(at(4)));
        assert_eq!(agenda.take(at(3)), None);
        assert_eq!(agenda.take(at(5)), Some(Turn::Event(second, 'a')));
        assert_eq!(agenda.take_of(at(5), second), None);
        assert_eq!(agenda.take_of(at(5), first), Some('b'));
        let taken: Vec<_> = std::iter::from_fn(|| agenda.take(at(5))).collect();
        let expected = [
            Turn::Event(first, 'c'),
            Turn::Event(first, 'd'),
            Turn::Deadline(first),
            Turn::Event(second, 'e'),
            Turn::Deadline(Actor::Agent),
        ];
        assert_eq!(taken, expected);
        assert_eq!(agenda.next(), None);
    }
}
