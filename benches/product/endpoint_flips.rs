//! Rows 11 and 12: what it costs to publish one replica of many, and the start of all of them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use criterion::Criterion;
use portreeve::endpoints::{
    Change, Endpoint, EndpointState, EndpointTable, Entry, Listing, ServiceUpdate,
};
use portreeve::identity::{Incarnation, ServiceName};

use crate::interleaved::{Ratio, clocked, interleave, spelled};
use crate::verdict::{Bound, Part, Row};

const BIG: u32 = 10_000;
const SMALL: u32 = 10;
/// Case 30 of the endpoint table speaks of so many.
const MANY: u32 = 5_000;
const ROUNDS: usize = 41;
/// How many changes of a start storm are published at once.
const COALESCED: usize = 100;

/// An entry of 32 bytes, as a scheduler might keep it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Flat {
    replica: u32,
    incarnation: u32,
    address: [u8; 16],
    host: u32,
    port: u16,
    is_ready: bool,
}

impl Entry for Flat {
    type Key = u32;
    type Kept = Self;

    fn keep(self) -> Self {
        self
    }

    fn of(kept: &Self) -> &Self {
        kept
    }

    fn key(&self) -> u32 {
        self.replica
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation)
    }

    fn is_listed(&self) -> bool {
        self.is_ready
    }

    fn same_but_for_age(&self, other: &Self) -> bool {
        self == other
    }
}

/// One service, flipped replica by replica, each time another.
struct Flips<E: Entry> {
    table: EndpointTable<E>,
    revision: u64,
    turn: u32,
    replicas: u32,
    entry: fn(u32, bool) -> E,
    service: ServiceName,
}

impl<E: Entry> Flips<E> {
    fn new(replicas: u32, entry: fn(u32, bool) -> E) -> Self {
        let table = EndpointTable::new("bench".to_owned(), 0);
        let all = (0..replicas).map(|replica| entry(replica, true));
        let service = service();
        table.publish(1, vec![update(&service, Change::Whole(all.collect()))], &[]);
        Self {
            service,
            table,
            revision: 1,
            turn: 0,
            replicas,
            entry,
        }
    }

    fn flip(&mut self) {
        // A stride that meets every replica, so that no chunk stays warm longer than in life.
        let replica = self.turn.wrapping_mul(7_919) % self.replicas;
        let is_ready = self.turn / self.replicas % 2 == 1;
        self.turn = self.turn.wrapping_add(1);
        self.revision += 1;
        let upsert = vec![(self.entry)(replica, is_ready)];
        let remove = Vec::new();
        let parts = update(&self.service, Change::Parts { upsert, remove });
        let published = self.table.publish(self.revision, vec![parts], &[]);
        std::hint::black_box(published);
    }
}

fn update<E: Entry>(service: &ServiceName, change: Change<E>) -> ServiceUpdate<E> {
    ServiceUpdate {
        service: service.clone(),
        desired: 1,
        change,
    }
}

fn service() -> ServiceName {
    "web.alice".parse().expect("it is a service name")
}

fn flat(replica: u32, is_ready: bool) -> Flat {
    Flat {
        replica,
        incarnation: 0,
        address: [10; 16],
        host: 17,
        port: 31_000,
        is_ready,
    }
}

/// What the controller shows.
fn full(replica: u32, is_ready: bool) -> Endpoint {
    Endpoint {
        replica,
        state: if is_ready {
            EndpointState::Ready
        } else {
            EndpointState::NotReady
        },
        address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ..crate::endpoint_reads::endpoint()
    }
}

/// The list copied whole for each flip, with nothing else to it.
struct Copies {
    list: ArcSwap<Vec<Flat>>,
    turn: u32,
}

impl Copies {
    fn new(replicas: u32) -> Self {
        let all = (0..replicas).map(|replica| flat(replica, true));
        Self {
            list: ArcSwap::from_pointee(all.collect()),
            turn: 0,
        }
    }

    fn flip(&mut self) {
        let mut list = Vec::clone(&self.list.load());
        let place = self.turn.wrapping_mul(7_919) as usize % list.len();
        self.turn = self.turn.wrapping_add(1);
        list[place].is_ready ^= true;
        self.list.store(Arc::new(list));
    }
}

/// Criterion's own samples.
pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("readiness flip");
    for replicas in [SMALL, BIG] {
        let mut flips = Flips::new(replicas, flat);
        group.bench_function(format!("among {replicas}"), |bencher| {
            bencher.iter(|| flips.flip());
        });
    }
    group.finish();
}

/// The flip of one among many, with its details, its log and its numbers.
pub(crate) fn flip_row() -> Row {
    let (mut big, mut small) = (Flips::new(BIG, flat), Flips::new(SMALL, flat));
    let mut copies = Copies::new(BIG);
    let (mut many, mut few) = (Flips::new(MANY, full), Flips::new(MANY / 100, full));
    let [big, small, copies, many, few] = interleave(
        ROUNDS,
        [
            &mut |times| clocked(times, || big.flip()),
            &mut |times| clocked(times, || small.flip()),
            &mut |times| clocked(times, || copies.flip()),
            &mut |times| clocked(times, || many.flip()),
            &mut |times| clocked(times, || few.flip()),
        ],
    );
    Row {
        number: 11,
        what: "one readiness flip among 10,000, against the list copied whole",
        target: ">= 15x cheaper with bits and log, >= 8x with details; <= 3x its cost among 10",
        parts: vec![
            Part::ratio(
                "10,000 with bits, log and details, through the whole table",
                &Ratio::of(&copies, &big),
                ("copy", "table"),
                Bound::AtLeast(8.0),
            ),
            Part::ratio(
                "10,000 against 10",
                &Ratio::of(&big, &small),
                ("10,000", "10"),
                Bound::AtMost(3.0),
            ),
            Part::ratio(
                "5,000 of the controller's against 50",
                &Ratio::of(&many, &few),
                ("5,000", "50"),
                Bound::AtMost(2.0),
            ),
            changes(),
        ],
    }
}

/// What one flip costs a follower of changes.
fn changes() -> Part {
    let mut flips = Flips::new(BIG, flat);
    (0..64).for_each(|_| flips.flip());
    let handle = flips
        .table
        .service(&flips.service)
        .expect("it was published");
    let snapshot = handle.snapshot();
    let since = flips.revision - 1;
    let read = |times: u32| {
        clocked(times, || {
            let changes = snapshot.changes_since(since, Listing::All);
            changes.map_or(0, |changes| changes.upsert.len())
        })
    };
    let each = read(10_000).as_secs_f64() * 1e9 / 1e4;
    Part {
        case: "a follower's changes".to_owned(),
        measured: each,
        shown: spelled(each),
        detail: "one flip among 10,000 read from the log".to_owned(),
        bound: Bound::Told,
    }
}

/// The start of 10,000 replicas, published by the hundred or one by one.
pub(crate) fn storm_row() -> Row {
    let mut rounds: [Vec<f64>; 2] = Default::default();
    for _ in 0..5 {
        for (side, at_once) in rounds.iter_mut().zip([COALESCED, 1]) {
            side.push(storm(at_once).as_secs_f64() * 1e9);
        }
    }
    let [together, single] = rounds.map(crate::interleaved::Samples::new);
    Row {
        number: 12,
        what: "start storm of 10,000 replicas, 100 changes a swap, against a swap per change",
        target: ">= 10x",
        parts: vec![Part::ratio(
            "10,000 replicas appear",
            &Ratio::of(&single, &together),
            ("swap per change", "by 100"),
            Bound::AtLeast(10.0),
        )],
    }
}

fn storm(at_once: usize) -> Duration {
    let table = EndpointTable::new("bench".to_owned(), 0);
    let batches = (BIG as usize).div_ceil(at_once);
    let mut entries = (0..BIG).map(|replica| flat(replica, true));
    let mut revision = 0;
    let service = service();
    clocked(u32::try_from(batches).expect("they are few"), || {
        revision += 1;
        let upsert = entries.by_ref().take(at_once).collect();
        let remove = Vec::new();
        table.publish(
            revision,
            vec![update(&service, Change::Parts { upsert, remove })],
            &[],
        )
    })
}
