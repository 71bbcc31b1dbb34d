//! Once warm, nothing that a scheduler calls in its loop allocates.

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::time::Duration;

use portreeve::allocator::{AfterRelease, Allocator, AllocatorConfig, HostSet, Need, ReserveError};
use portreeve::identity::{HostId, ReplicaId};
use portreeve::port::{Port, PortRange, Protocol};
use portreeve::port_pool::{PortRequest, Want, WantedPort};
use portreeve::time::Monotonic;

use crate::world::{Dice, hosts_of, replica};

/// More than are asked one by one, so that the sets of hosts are used as well.
const HOSTS: u32 = 260;
const USED: u32 = 8;
/// Few enough that hosts become full and numbers are taken from cooling.
const FIRST: u16 = 20_000;
const LAST: u16 = 20_399;

struct Cycle {
    allocator: Allocator,
    requests: Vec<PortRequest>,
    held: VecDeque<ReplicaId>,
    dice: Dice,
    now: u64,
    next: u32,
    used: HostSet,
    /// Kept between cycles, as a scheduler would.
    feasible: HostSet,
    numbers: Vec<PortRange>,
    told: Told,
}

#[derive(Debug, Default)]
struct Told {
    granted: u64,
    refused: u64,
    rolled_back: u64,
    released: u64,
}

impl Cycle {
    fn new() -> Self {
        let any = |count, protocol| (any_of(count), protocol);
        let fixed = |number| (Want::Fixed(Port::new(number).unwrap()), Protocol::Tcp);
        let (tcp, udp, pair) = (Protocol::Tcp, Protocol::Udp, Protocol::TcpUdp);
        Self {
            allocator: hosts_of(
                HOSTS,
                FIRST,
                LAST,
                AllocatorConfig {
                    cooling: Duration::from_secs(5),
                    room_for: 2_000,
                    ..AllocatorConfig::default()
                },
            ),
            requests: vec![
                request(&[any(1, tcp), any(1, tcp), any(1, tcp), any(1, tcp)]),
                request(&[fixed(8080), any(1, tcp), any(1, tcp), any(1, tcp)]),
                request(&[any(16, tcp), any(1, udp)]),
                request(&[any(1, pair), any(1, tcp), any(4, tcp)]),
                request(&[any(1, tcp)]),
                request(&[fixed(20_007), any(1, pair)]),
            ],
            held: VecDeque::with_capacity(1 << 16),
            dice: Dice::new(1),
            now: 0,
            next: 0,
            used: (0..USED).map(HostId).collect(),
            feasible: HostSet::new(),
            numbers: Vec::new(),
            told: Told::default(),
        }
    }

    /// One cycle of a scheduler: who fits, a try on one host, another try, commit; then releases.
    fn turn(&mut self, target: usize) {
        self.now += self.dice.below::<u64>(20);
        let now = Monotonic::from_millis(self.now);
        let request = &self.requests[self.dice.below::<usize>(6)];
        let who = replica(self.dice.below(40), self.next, 0);
        self.next += 1;
        let need = Need::new(request, who.service);
        let mut transaction = self.allocator.begin(now);
        // Now and then of all hosts, else of the few that are used and become full.
        let among = if self.dice.one_in(8) {
            None
        } else {
            Some(&self.used)
        };
        transaction.feasible_into(&need, among, &mut self.feasible);
        let host = HostId(self.dice.below(USED.into()));
        let most = transaction.max_replicas(&need, host, 3);
        let fits = self.feasible.contains(host);
        assert_eq!(most > 0, fits);
        let mark = transaction.mark();
        self.numbers.clear();
        match transaction.reserve_into(host, who, request, None, &mut self.numbers) {
            Ok(()) => {
                assert!(fits);
                if self.dice.one_in(5) {
                    transaction.rollback(mark).unwrap();
                    self.told.rolled_back += 1;
                } else {
                    self.told.granted += 1;
                    self.held.push_back(who);
                }
            }
            Err(ReserveError::DoesNotFit { .. }) => {
                assert!(!fits);
                self.told.refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
        transaction.commit();
        while self.held.len() > target {
            let who = self.held.pop_front().unwrap();
            self.allocator.begin_release(who).unwrap();
            let after = if self.dice.one_in(4) {
                AfterRelease::Free
            } else {
                AfterRelease::Cool
            };
            self.allocator.confirm_release(who, now, after).unwrap();
            self.told.released += 1;
        }
    }

    /// A load that rises and falls.
    fn turns(&mut self, turns: u64) {
        for turn in 0..turns {
            let phase = turn % 2_000;
            let height = phase.min(2_000 - phase);
            self.turn(usize::try_from(height).unwrap());
        }
    }
}

fn request(ports: &[(Want, Protocol)]) -> PortRequest {
    let wanted = ports.iter().enumerate().map(|(place, port)| WantedPort {
        name: format!("p{place}").parse().unwrap(),
        protocol: port.1,
        want: port.0,
        within: None,
    });
    PortRequest::new(wanted.collect()).unwrap()
}

fn any_of(count: u16) -> Want {
    Want::Any {
        count: NonZeroU16::new(count).unwrap(),
    }
}

#[test]
fn a_warm_cycle_allocates_nothing() {
    let mut cycle = Cycle::new();
    cycle.turns(16_000);
    cycle.told = Told::default();
    // Not more of them: ever more rarely, a host has more runs at once than ever before, and its list grows once.
    let turns = 10_000;
    let counted = allocation_counter::measure(|| cycle.turns(turns));
    let told = &cycle.told;
    println!("{turns} cycles: {told:?}, {counted:?}");
    let all = [told.granted, told.refused, told.rolled_back, told.released];
    assert!(all.into_iter().min() > Some(turns / 50), "{told:?}");
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
