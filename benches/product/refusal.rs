//! Row 9: a refusal must be much cheaper than a successful transaction, since a busy cluster mostly refuses.

use std::time::Duration;

use criterion::Criterion;
use portreeve::allocator::{AfterRelease, Allocator, AllocatorConfig, HostSpec, HostState};
use portreeve::identity::{HostId, ReplicaId};
use portreeve::port::PortRange;
use portreeve::port_pool::PortRequest;
use portreeve::time::Monotonic;

use crate::interleaved::{Ratio, clocked, interleave};
use crate::requests::{any, fixed_and_any, replica};
use crate::verdict::{Bound, Part, Row};

const HOST: HostId = HostId(0);
const HELD: u16 = 8080;
/// Replicas on the host before they are released.
const AT_ONCE: u32 = 64;
const ASKER: ReplicaId = replica(2, 0);
const NOW: Monotonic = Monotonic::from_millis(0);

/// Criterion's own samples of both sides.
pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("transaction");
    let allocator = allocator();
    let (fits, refused) = (any(4), fixed_and_any(&[HELD], 0));
    let mut numbers = Vec::new();
    group.bench_function("any 4, dropped", |bencher| {
        bencher.iter(|| attempt(&allocator, &fits, &mut numbers));
    });
    group.bench_function("fixed, held: refused", |bencher| {
        bencher.iter(|| attempt(&allocator, &refused, &mut numbers));
    });
    group.finish();
}

/// Both sides in turn on one allocator.
pub(crate) fn row() -> Row {
    let allocator = allocator();
    let (fits, refused) = (any(4), fixed_and_any(&[HELD], 0));
    let (mut drawn, mut none) = (Vec::new(), Vec::new());
    let (mut open_a, mut open_b) = (allocator.begin(NOW), allocator.begin(NOW));
    let (mut taken, mut nothing) = (Vec::new(), Vec::new());
    let [success, failure, committed, dropped, refused, explained] = interleave(
        201,
        [
            &mut |times| {
                clocked(times, || {
                    taken.clear();
                    let mark = open_a.mark();
                    let fits = open_a.reserve_into(HOST, ASKER, &fits, None, &mut taken);
                    fits.is_ok() && open_a.rollback(mark).is_ok()
                })
            },
            &mut |times| {
                clocked(times, || {
                    open_b
                        .reserve_into(HOST, ASKER, &refused, None, &mut nothing)
                        .is_err()
                })
            },
            &mut |times| placed(&allocator, &fits, times),
            &mut |times| clocked(times, || attempt(&allocator, &fits, &mut drawn)),
            &mut |times| clocked(times, || attempt(&allocator, &refused, &mut none)),
            &mut |times| {
                clocked(times, || {
                    let mut transaction = allocator.begin(NOW);
                    transaction.reserve(HOST, ASKER, &refused, None).is_err()
                })
            },
        ],
    );
    let part = |case: &str, success, failure, bound| {
        let ratio = Ratio::of(success, failure);
        Part::ratio(case, &ratio, ("success", "refusal"), bound)
    };
    Row {
        number: 9,
        what: "in an open transaction: a held fixed number refused, against 4 any taken and rolled back",
        target: ">= 5x cheaper",
        parts: vec![
            part(
                "refused, the port named",
                &success,
                &failure,
                Bound::AtLeast(5.0),
            ),
            part(
                "as a transaction of its own, against one that commits",
                &committed,
                &refused,
                Bound::Told,
            ),
            part(
                "as a transaction of its own, against one that is dropped",
                &dropped,
                &refused,
                Bound::Told,
            ),
            part(
                "the same with every cause told, against one that commits",
                &committed,
                &explained,
                Bound::Told,
            ),
        ],
    }
}

/// How long it takes to place so many replicas. They are released outside that time.
fn placed(allocator: &Allocator, request: &PortRequest, times: u32) -> Duration {
    let mut numbers = Vec::with_capacity(4);
    let mut taken = Duration::ZERO;
    let mut left = times;
    while left > 0 {
        let some = left.min(AT_ONCE);
        let mut index = 0;
        taken += clocked(some, || {
            let mut transaction = allocator.begin(NOW);
            numbers.clear();
            transaction
                .reserve_into(HOST, replica(3, index), request, None, &mut numbers)
                .expect("the host has room");
            index += 1;
            transaction.commit()
        });
        for index in 0..some {
            allocator
                .confirm_release(replica(3, index), NOW, AfterRelease::Free)
                .expect("it was placed");
        }
        left -= some;
    }
    taken
}

fn attempt(allocator: &Allocator, request: &PortRequest, numbers: &mut Vec<PortRange>) -> bool {
    numbers.clear();
    // Dropped, so that the state stays the same for the next.
    allocator
        .begin(NOW)
        .reserve_into(HOST, ASKER, request, None, numbers)
        .is_ok()
}

/// One host on which 8080 is held.
fn allocator() -> Allocator {
    let allocator = Allocator::new(AllocatorConfig::default());
    let name = "n1".parse().expect("n1 is a host name");
    allocator
        .put_host(HOST, HostSpec::new(name))
        .expect("the first host is new");
    allocator
        .set_host_state(HOST, HostState::Up)
        .expect("the host is known");
    let mut transaction = allocator.begin(NOW);
    transaction
        .reserve(HOST, replica(1, 0), &fixed_and_any(&[HELD], 0), None)
        .expect("8080 is free");
    transaction.commit();
    allocator
}
