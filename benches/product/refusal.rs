//! Row 9: a refusal must be much cheaper than a successful transaction, since a busy cluster mostly refuses.

use std::num::NonZeroU16;
use std::time::Instant;

use criterion::Criterion;
use portreeve::allocator::{Allocator, AllocatorConfig, HostSpec, HostState};
use portreeve::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use portreeve::port::{Port, Protocol};
use portreeve::port_pool::{PortRequest, Want, WantedPort};
use portreeve::time::Monotonic;

use crate::verdict::{Ratios, Row};

const HOST: HostId = HostId(0);

/// Criterion's own samples of both sides.
pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("transaction");
    let mut allocator = allocator();
    let (fits, refused) = (any(), fixed());
    group.bench_function("any 4, rolled back", |bencher| {
        bencher.iter(|| attempt(&mut allocator, &fits));
    });
    group.bench_function("fixed, held: refused", |bencher| {
        bencher.iter(|| attempt(&mut allocator, &refused));
    });
    group.finish();
}

/// Both sides in turn, so that a change of the machine's speed meets both.
pub(crate) fn row() -> Row {
    let mut allocator = allocator();
    let (fits, refused) = (any(), fixed());
    let mut time = |request: &PortRequest| {
        let begun = Instant::now();
        for _ in 0..1_000 {
            attempt(&mut allocator, request);
        }
        begun.elapsed().as_secs_f64()
    };
    let ratios = (0..41).map(|_| time(&fits) / time(&refused)).collect();
    Row {
        number: 9,
        what: "refusal against a successful transaction",
        target: ">= 5x cheaper",
        measured: Ratios::new(ratios),
        ok: |ratio| ratio >= 5.0,
    }
}

fn attempt(allocator: &mut Allocator, request: &PortRequest) -> bool {
    let asker = ReplicaId {
        service: ServiceId(2),
        index: 0,
        incarnation: Incarnation(0),
    };
    let mut transaction = allocator.begin(Monotonic::from_millis(0));
    // Dropped, so that the state stays the same for the next.
    transaction.reserve(HOST, asker, request, None).is_ok()
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
    let holder = ReplicaId {
        service: ServiceId(1),
        index: 0,
        incarnation: Incarnation(0),
    };
    let mut transaction = allocator.begin(Monotonic::from_millis(0));
    transaction
        .reserve(HOST, holder, &fixed(), None)
        .expect("8080 is free");
    transaction.commit();
    allocator
}

fn any() -> PortRequest {
    request(
        ["a", "b", "c", "d"]
            .map(|name| {
                (
                    name,
                    Want::Any {
                        count: NonZeroU16::MIN,
                    },
                )
            })
            .to_vec(),
    )
}

fn fixed() -> PortRequest {
    request(vec![(
        "http",
        Want::Fixed(Port::new(8080).expect("8080 is a port")),
    )])
}

fn request(ports: Vec<(&str, Want)>) -> PortRequest {
    let wanted = ports.into_iter().map(|(name, want)| WantedPort {
        name: name.parse().expect("the names are port names"),
        protocol: Protocol::Tcp,
        want,
        within: None,
    });
    PortRequest::new(wanted.collect()).expect("the ports can stand together")
}
