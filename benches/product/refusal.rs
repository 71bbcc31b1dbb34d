//! Row 9: a refusal must be much cheaper than a successful transaction, since a busy cluster mostly refuses.

use criterion::Criterion;
use portreeve::allocator::{Allocator, AllocatorConfig, HostSpec, HostState};
use portreeve::identity::{HostId, ReplicaId};
use portreeve::port::PortRange;
use portreeve::port_pool::PortRequest;
use portreeve::time::Monotonic;

use crate::interleaved::{Ratio, clocked, interleave};
use crate::requests::{any, fixed_and_any, replica};
use crate::verdict::{Bound, Part, Row};

const HOST: HostId = HostId(0);
const HELD: u16 = 8080;
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
    let [fits, refused, explained] = interleave(
        201,
        [
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
    Row {
        number: 9,
        what: "a fixed number that is held: refused, against 4 any taken in a transaction that is dropped",
        target: ">= 5x cheaper",
        parts: vec![
            Part::ratio(
                "refused, the port named",
                &Ratio::of(&fits, &refused),
                ("success", "refusal"),
                Bound::AtLeast(5.0),
            ),
            Part::ratio(
                "refused with every cause",
                &Ratio::of(&fits, &explained),
                ("success", "refusal"),
                Bound::Told,
            ),
        ],
    }
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
