//! Row 9: a refusal must be much cheaper than a successful transaction, since a busy cluster mostly refuses.

use std::cell::RefCell;

use criterion::Criterion;
use portreeve::allocator::{Allocator, AllocatorConfig, HostSpec, HostState};
use portreeve::identity::HostId;
use portreeve::port_pool::PortRequest;
use portreeve::time::Monotonic;

use crate::interleaved::{Ratio, clocked, interleave};
use crate::requests::{any, fixed_and_any, replica};
use crate::verdict::{Bound, Part, Row};

const HOST: HostId = HostId(0);
const HELD: u16 = 8080;

/// Criterion's own samples of both sides.
pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("transaction");
    let mut allocator = allocator();
    let (fits, refused) = (any(4), fixed_and_any(&[HELD], 0));
    group.bench_function("any 4, rolled back", |bencher| {
        bencher.iter(|| attempt(&mut allocator, &fits));
    });
    group.bench_function("fixed, held: refused", |bencher| {
        bencher.iter(|| attempt(&mut allocator, &refused));
    });
    group.finish();
}

/// Both sides in turn on one allocator.
pub(crate) fn row() -> Row {
    let allocator = RefCell::new(allocator());
    let (fits, refused) = (any(4), fixed_and_any(&[HELD], 0));
    let attempts = |request: &PortRequest, times| {
        clocked(times, || attempt(&mut allocator.borrow_mut(), request))
    };
    let [fits, refused] = interleave(
        201,
        [&mut |times| attempts(&fits, times), &mut |times| {
            attempts(&refused, times)
        }],
    );
    Row {
        number: 9,
        what: "a fixed number that is held, refused, against 4 any in a transaction that is dropped",
        target: ">= 5x cheaper",
        parts: vec![Part::ratio(
            "1 host",
            &Ratio::of(&fits, &refused),
            ("success", "refusal"),
            Bound::AtLeast(5.0),
        )],
    }
}

fn attempt(allocator: &mut Allocator, request: &PortRequest) -> bool {
    let mut transaction = allocator.begin(Monotonic::from_millis(0));
    // Dropped, so that the state stays the same for the next.
    transaction
        .reserve(HOST, replica(2, 0), request, None)
        .is_ok()
}

/// One host on which 8080 is held.
fn allocator() -> Allocator {
    let mut allocator = Allocator::new(AllocatorConfig::default());
    let name = "n1".parse().expect("n1 is a host name");
    allocator
        .put_host(HOST, HostSpec::new(name))
        .expect("the first host is new");
    allocator
        .set_host_state(HOST, HostState::Up)
        .expect("the host is known");
    let mut transaction = allocator.begin(Monotonic::from_millis(0));
    transaction
        .reserve(HOST, replica(1, 0), &fixed_and_any(&[HELD], 0), None)
        .expect("8080 is free");
    transaction.commit();
    allocator
}
