//! Who is next: every actor has one time at which it wants to be called, or none.
//!
//! In one instant actors are called in the order of [`Actor`]: what is done to the world first, then hosts by their
//! numbers, then what arrives, and then what the controller makes of all that arrived.

use std::collections::BTreeSet;

use portreeve::time::Monotonic;

use super::act::HostNo;

/// Who can be next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Actor {
    /// The script of the world.
    World,
    /// What people do at random, by its place in the spec.
    Workload(usize),
    Host(HostNo),
    /// The network delivers.
    Network,
    /// The controller: a commit is through, something is due, or what it took in is to be decided.
    Controller,
}

/// When each actor is next. Cost: logarithmic in the number of actors.
#[derive(Debug)]
pub(crate) struct Schedule {
    due: BTreeSet<(Monotonic, Actor)>,
    of_hosts: Vec<Option<Monotonic>>,
    of_workloads: Vec<Option<Monotonic>>,
    world: Option<Monotonic>,
    network: Option<Monotonic>,
    controller: Option<Monotonic>,
}

impl Schedule {
    pub(crate) fn new(hosts: usize, workloads: usize) -> Self {
        Self {
            due: BTreeSet::new(),
            of_hosts: vec![None; hosts],
            of_workloads: vec![None; workloads],
            world: None,
            network: None,
            controller: None,
        }
    }

    /// From now on the actor is called at `next`, and at no time that was said before.
    pub(crate) fn put(&mut self, actor: Actor, next: Option<Monotonic>) {
        let known = match actor {
            Actor::World => &mut self.world,
            Actor::Workload(no) => &mut self.of_workloads[no],
            Actor::Network => &mut self.network,
            Actor::Controller => &mut self.controller,
            Actor::Host(no) => &mut self.of_hosts[no],
        };
        if *known == next {
            return;
        }
        if let Some(before) = known.take() {
            self.due.remove(&(before, actor));
        }
        *known = next;
        self.due.extend(next.map(|next| (next, actor)));
    }

    /// Who is next, and when; `None`: nobody any more.
    pub(crate) fn first(&self) -> Option<(Monotonic, Actor)> {
        self.due.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Option<Monotonic> {
        Some(Monotonic::from_millis(ms))
    }

    #[test]
    fn each_actor_is_due_once_and_in_a_fixed_order_within_an_instant() {
        let mut schedule = Schedule::new(2, 1);
        assert_eq!(schedule.first(), None);
        schedule.put(Actor::Host(1), at(5));
        schedule.put(Actor::Host(0), at(5));
        schedule.put(Actor::Controller, at(5));
        schedule.put(Actor::Host(1), at(3));
        assert_eq!(schedule.first().unwrap().1, Actor::Host(1));
        schedule.put(Actor::Host(1), None);
        for actor in [Actor::Host(0), Actor::Controller] {
            assert_eq!(schedule.first().unwrap(), (at(5).unwrap(), actor));
            schedule.put(actor, None);
        }
        assert_eq!(schedule.first(), None);
    }
}
