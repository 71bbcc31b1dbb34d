//! What is going to happen on one host, in the order in which it is handed over.
//!
//! Of one instant, events come before what agent and workers do at their own deadlines; events in the order of
//! their ranks, equal ranks in the order in which they were put here; deadlines in the order of [`Actor`].

use std::collections::{BTreeMap, BTreeSet};

use portreeve::time::Monotonic;

use super::Place;

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Actor {
    Worker(Place),
    Agent,
}

/// Events of one host that are still to come, and the deadlines of who acts there by itself.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    events: BTreeMap<(Monotonic, u8, u64), E>,
    put: u64,
    wakes: BTreeSet<(Monotonic, Actor)>,
    by_actor: BTreeMap<Actor, Monotonic>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn<E> {
    Event(E),
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
    pub(crate) fn put(&mut self, at: Monotonic, rank: u8, event: E) {
        self.put += 1;
        self.events.insert((at, rank, self.put), event);
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
        let event = self.events.first_entry();
        let event = event.filter(|event| wake.is_none_or(|(at, _)| event.key().0 <= at));
        if let Some(event) = event {
            return (event.key().0 <= now).then(|| Turn::Event(event.remove()));
        }
        let (_, actor) = wake.filter(|(at, _)| *at <= now)?;
        self.wake(actor, None);
        Some(Turn::Deadline(actor))
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
    fn of_one_instant_events_come_by_rank_and_deadlines_last() {
        let at = Monotonic::from_millis;
        let mut agenda = Agenda::new();
        agenda.wake(Actor::Agent, Some(at(5)));
        agenda.wake(Actor::Worker(Place(3)), Some(at(9)));
        agenda.wake(Actor::Worker(Place(3)), Some(at(5)));
        for (moment, rank, event) in [(5, 3, 'd'), (5, 0, 'b'), (4, 9, 'a'), (5, 0, 'c')] {
            agenda.put(at(moment), rank, event);
        }
        assert_eq!(agenda.next(), Some(at(4)));
        assert_eq!(agenda.take(at(3)), None);
        let taken: Vec<_> = std::iter::from_fn(|| agenda.take(at(5))).collect();
        let events = ['a', 'b', 'c', 'd'].map(Turn::Event);
        let deadlines = [Actor::Worker(Place(3)), Actor::Agent].map(Turn::Deadline);
        assert_eq!(
            taken,
            events.into_iter().chain(deadlines).collect::<Vec<_>>()
        );
        assert_eq!(agenda.next(), None);
    }
}
