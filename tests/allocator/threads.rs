//! Several threads on one allocator: every history of one host has an order in which each answer was right, and no number
//! is ever given twice or lost.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use portreeve::allocator::{
    AfterRelease, Allocator, GangMember, ReserveError, SameNumbers, Transaction,
};
use portreeve::identity::{HostId, ReplicaId};
use portreeve::port_pool::PortGrant;
use portreeve::time::Monotonic;

use crate::world::{Dice, any, fixed, hosts, replica, rounds};

const NOW: Monotonic = Monotonic::from_millis(0);

/// What a thread did to the one host of a history, and what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Deed {
    /// Asked for this many numbers, or for one by name, and got these.
    Got(BTreeSet<u16>),
    /// Asked for so many and was refused.
    TooFew(usize),
    /// Asked for this number and was refused.
    Taken(u16),
    /// Gave these back, by abort or release.
    Gave(BTreeSet<u16>),
}

/// A deed with the moments around it.
#[derive(Clone, Debug)]
struct Event {
    began: u64,
    ended: u64,
    deed: Deed,
}

/// A clock that only orders.
#[derive(Default)]
struct Order(AtomicU64);

impl Order {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn around(&self, act: impl FnOnce() -> Deed) -> Event {
        let began = self.next();
        let deed = act();
        Event {
            began,
            ended: self.next(),
            deed,
        }
    }
}

const FIRST: u16 = 20_000;
const NUMBERS: u16 = 4;

/// One thread's part of a history: transactions that commit or abort, then releases.
fn act(allocator: &Allocator, order: &Order, thread: u64, dice: &mut Dice) -> Vec<Event> {
    let mut events = Vec::new();
    let mut held: Vec<(ReplicaId, BTreeSet<u16>)> = Vec::new();
    for turn in 0..4 {
        if let Some((who, numbers)) = held.pop_if(|_| dice.one_in(2)) {
            events.push(order.around(|| {
                let free = AfterRelease::Free;
                allocator.confirm_release(who, NOW, free).unwrap();
                Deed::Gave(numbers)
            }));
            continue;
        }
        let who = replica(thread, turn, 0);
        let mut transaction = allocator.begin(NOW);
        let count = 1 + dice.below::<usize>(2);
        let named = dice.one_in(3).then(|| FIRST + dice.below::<u16>(4));
        let request = named.map_or_else(|| any(count), fixed);
        let mut got = None;
        events.push(order.around(
            || match transaction.reserve(HostId(0), who, &request, None) {
                Ok(grant) => {
                    let numbers = numbers(&grant);
                    got = Some(numbers.clone());
                    Deed::Got(numbers)
                }
                Err(ReserveError::Refused { .. } | ReserveError::DoesNotFit { .. }) => {
                    named.map_or(Deed::TooFew(count), Deed::Taken)
                }
                Err(other) => panic!("{other}"),
            },
        ));
        match got {
            Some(numbers) if dice.one_in(3) => {
                events.push(order.around(|| {
                    drop(transaction);
                    Deed::Gave(numbers)
                }));
            }
            Some(numbers) => {
                transaction.commit();
                held.push((who, numbers));
            }
            None => {}
        }
    }
    events
}

fn numbers(grant: &PortGrant) -> BTreeSet<u16> {
    let numbers = grant.ports.iter().flat_map(|port| port.numbers.iter());
    numbers.map(|port| port.number()).collect()
}

/// Whether some order of the events, in which each stands between its own two moments, gives every
/// answer (Wing and Gong's search, remembering where it has been).
fn has_an_order(events: &[Event]) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![(0_u64, BTreeSet::new())];
    while let Some((done, held)) = open.pop() {
        if done.count_ones() as usize == events.len() {
            return true;
        }
        if !seen.insert((done, held.clone())) {
            continue;
        }
        let waiting = || {
            events
                .iter()
                .enumerate()
                .filter(|(at, _)| done >> at & 1 == 0)
        };
        let soonest_end = waiting().map(|(_, event)| event.ended).min();
        for (at, event) in waiting().filter(|(_, event)| Some(event.began) < soonest_end) {
            if let Some(after) = follow(&held, &event.deed) {
                open.push((done | 1 << at, after));
            }
        }
    }
    false
}

/// The held numbers after the deed, if its answer is right where these are held before it.
fn follow(held: &BTreeSet<u16>, deed: &Deed) -> Option<BTreeSet<u16>> {
    let right = match deed {
        Deed::Got(numbers) => held.is_disjoint(numbers),
        Deed::TooFew(count) => usize::from(NUMBERS) - held.len() < *count,
        Deed::Taken(number) => held.contains(number),
        Deed::Gave(numbers) => held.is_superset(numbers),
    };
    right.then(|| match deed {
        Deed::Got(numbers) => held.union(numbers).copied().collect(),
        Deed::Gave(numbers) => held.difference(numbers).copied().collect(),
        Deed::TooFew(_) | Deed::Taken(_) => held.clone(),
    })
}

#[test]
fn the_check_of_orders_can_fail() {
    let event = |began, ended, deed| Event { began, ended, deed };
    let one = BTreeSet::from([FIRST]);
    // Two holders of one number at once, and a refusal while all was free.
    let twice = [
        event(0, 1, Deed::Got(one.clone())),
        event(2, 3, Deed::Got(one.clone())),
    ];
    assert!(!has_an_order(&twice));
    assert!(!has_an_order(&[event(0, 1, Deed::TooFew(1))]));
    // The same, overlapping with what gives it back, has an order.
    let passed_on = [
        event(0, 1, Deed::Got(one.clone())),
        event(2, 5, Deed::Gave(one.clone())),
        event(3, 4, Deed::Got(one)),
    ];
    assert!(has_an_order(&passed_on));
}

#[test]
fn every_history_of_one_host_has_an_order_in_which_each_answer_was_right() {
    const THREADS: usize = 3;
    for round in 0..rounds(2_000) {
        let allocator = hosts(1, FIRST, FIRST + NUMBERS - 1);
        let (order, start) = (Order::default(), Barrier::new(THREADS));
        let history = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS as u64 {
                let (allocator, order, start, history) = (&allocator, &order, &start, &history);
                scope.spawn(move || {
                    let mut dice = Dice::new(round * THREADS as u64 + thread);
                    start.wait();
                    let mut events = act(allocator, order, thread, &mut dice);
                    history.lock().unwrap().append(&mut events);
                });
            }
        });
        let history = history.into_inner().unwrap();
        assert!(has_an_order(&history), "round {round}: {history:#?}");
    }
}

/// Who has each number, told by the threads themselves: 0 is nobody.
struct Owners(Vec<AtomicU64>);

impl Owners {
    fn new(hosts: u32) -> Self {
        Self((0..hosts << 16).map(|_| AtomicU64::new(0)).collect())
    }

    fn place(&self, host: HostId, number: u16) -> &AtomicU64 {
        &self.0[(host.0 as usize) << 16 | usize::from(number)]
    }

    fn take(&self, host: HostId, numbers: &BTreeSet<u16>, owner: u64) {
        for number in numbers {
            let before = self.place(host, *number).swap(owner, Ordering::SeqCst);
            assert_eq!(before, 0, "{number} on {host} belongs to {before}");
        }
    }

    fn give(&self, host: HostId, numbers: &BTreeSet<u16>, owner: u64) {
        for number in numbers {
            let before = self.place(host, *number).swap(0, Ordering::SeqCst);
            assert_eq!(before, owner, "{number} on {host} was another's");
        }
    }
}

#[test]
fn threads_that_place_gangs_and_singles_never_share_a_number_and_lose_none() {
    const THREADS: u64 = 4;
    const HOSTS: u32 = 8;
    let turns = rounds(20_000);
    // Few enough that refusals and races for the last number are common.
    let allocator = hosts(HOSTS, FIRST, FIRST + 24);
    let owners = Owners::new(HOSTS);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (allocator, owners) = (&allocator, &owners);
            scope.spawn(move || churn(allocator, owners, thread, turns));
        }
    });
    for host in (0..HOSTS).map(HostId) {
        let counts = allocator.counts(host);
        assert_eq!(
            (counts.free_tcp, counts.held),
            (counts.dynamic, 0),
            "{host}"
        );
        assert_eq!(allocator.ports(host), []);
    }
    assert_eq!(allocator.export(), Default::default());
}

fn churn(allocator: &Allocator, owners: &Owners, thread: u64, turns: u64) {
    let mut dice = Dice::new(thread);
    let mut held: Vec<(ReplicaId, BTreeMap<HostId, BTreeSet<u16>>)> = Vec::new();
    for turn in 0..turns {
        let index = u32::try_from(turn).unwrap();
        if held.len() > 6 || dice.one_in(3) {
            release(allocator, owners, thread, &mut held);
            continue;
        }
        let mut transaction = allocator.begin(NOW);
        let taken = if dice.one_in(8) {
            gang(&mut transaction, thread, index, &mut dice)
        } else {
            single(&mut transaction, thread, index, &mut dice)
        };
        // Said before the commit and after the way back, so that a number is never said to be another's by mistake.
        for (_, there) in &taken {
            for (host, numbers) in there {
                owners.take(*host, numbers, thread);
            }
        }
        if dice.one_in(4) {
            for (_, there) in &taken {
                for (host, numbers) in there {
                    owners.give(*host, numbers, thread);
                }
            }
            drop(transaction);
        } else {
            transaction.commit();
            held.extend(taken);
        }
    }
    while !held.is_empty() {
        release(allocator, owners, thread, &mut held);
    }
}

type Taken = Vec<(ReplicaId, BTreeMap<HostId, BTreeSet<u16>>)>;

fn single(transaction: &mut Transaction<'_>, thread: u64, index: u32, dice: &mut Dice) -> Taken {
    let host = HostId(dice.below(8));
    let who = replica(thread, index, 0);
    let request = match dice.below::<usize>(4) {
        0 => fixed(FIRST + dice.below::<u16>(25)),
        count => any(count),
    };
    match transaction.reserve(host, who, &request, None) {
        Ok(grant) => vec![(who, BTreeMap::from([(host, numbers(&grant))]))],
        Err(ReserveError::Refused { .. } | ReserveError::DoesNotFit { .. }) => Vec::new(),
        Err(other) => panic!("{other}"),
    }
}

fn gang(transaction: &mut Transaction<'_>, thread: u64, index: u32, dice: &mut Dice) -> Taken {
    let same = if dice.one_in(2) {
        SameNumbers::Yes
    } else {
        SameNumbers::No
    };
    let request = any(2);
    // From high to low: the order of locking is not the caller's.
    let members: Vec<GangMember<'_>> = [7, 5, 3, 0]
        .into_iter()
        .zip(0_u64..)
        .map(|(host, place)| GangMember {
            host: HostId(host),
            replica: replica(100 + thread * 10 + place, index, 0),
            request: &request,
            former: None,
        })
        .collect();
    let Ok(grants) = transaction.reserve_gang(&members, same) else {
        return Vec::new();
    };
    if same == SameNumbers::Yes {
        let first = numbers(&grants[0]);
        assert!(grants.iter().all(|grant| numbers(grant) == first));
    }
    let taken = members.iter().zip(&grants);
    taken
        .map(|(member, grant)| {
            let there = BTreeMap::from([(member.host, numbers(grant))]);
            (member.replica, there)
        })
        .collect()
}

fn release(allocator: &Allocator, owners: &Owners, thread: u64, held: &mut Taken) {
    let Some((who, there)) = held.pop() else {
        return;
    };
    for (host, numbers) in &there {
        owners.give(*host, numbers, thread);
    }
    allocator.begin_release(who).unwrap();
    allocator
        .confirm_release(who, NOW, AfterRelease::Free)
        .unwrap();
}
