//! Row 8: a gang over 1,000 hosts, all or nothing, must not cost much more than 1,000 placements.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use criterion::Criterion;
use portreeve::allocator::{AfterRelease, Allocator, GangMember, SameNumbers};
use portreeve::identity::HostId;
use portreeve::port_pool::{PortGrant, PortRequest};
use portreeve::time::Monotonic;

use crate::baseline::host_locks::HostLocks;
use crate::chance::Chance;
use crate::fleet::{Plan, allocator};
use crate::interleaved::{Ratio, clocked, interleave};
use crate::product_pool::Kept;
use crate::requests::{any, replica};
use crate::verdict::{Bound, Part, Row};

const HOSTS: u32 = 10_000;
const MEMBERS: u32 = 1_000;
const ROUNDS: usize = 101;
const NOW: Monotonic = Monotonic::from_millis(0);

/// Criterion's own samples.
pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gang of 1,000 hosts");
    let product = allocator(&Plan::empty(HOSTS));
    let request = any(4);
    let members = members(&request);
    group.bench_function("product, dropped", |bencher| {
        bencher.iter(|| {
            let mut transaction = product.begin(NOW);
            transaction.reserve_gang(&members, SameNumbers::No).is_ok()
        });
    });
    group.finish();
}

/// Row 8.
pub(crate) fn row() -> Row {
    let product = allocator(&Plan::empty(HOSTS));
    let locks = HostLocks::new(HOSTS);
    let request = any(4);
    let members = members(&request);
    let mut kept = Kept::default();
    let [gang, alone, one_by_one] = interleave(
        ROUNDS,
        [
            &mut |times| {
                repeated(times, || {
                    let begun = Instant::now();
                    let mut transaction = product.begin(NOW);
                    transaction
                        .reserve_gang(&members, SameNumbers::No)
                        .expect("the hosts have room");
                    transaction.commit();
                    let taken = begun.elapsed();
                    release(&product, &members);
                    taken
                })
            },
            &mut |times| {
                repeated(times, || {
                    let taken = clocked(1, || {
                        let hold = |member: &GangMember<'_>| {
                            locks
                                .hold(member.host.0, member.replica, &request, &mut kept)
                                .expect("the hosts have room")
                        };
                        members.iter().map(hold).collect::<Vec<PortGrant>>()
                    });
                    members.iter().for_each(|member| {
                        locks.release(member.replica);
                    });
                    taken
                })
            },
            &mut |times| {
                repeated(times, || {
                    let taken = clocked(1, || {
                        let place = |member: &GangMember<'_>| {
                            let mut transaction = product.begin(NOW);
                            let grant = transaction
                                .reserve(member.host, member.replica, &request, None)
                                .expect("the hosts have room");
                            transaction.commit();
                            grant
                        };
                        members.iter().map(place).collect::<Vec<PortGrant>>()
                    });
                    release(&product, &members);
                    taken
                })
            },
        ],
    );
    Row {
        number: 8,
        what: "a gang of 4 any on each of 1,000 random hosts, all or nothing, against a transaction per member that locks its host for itself; both return grants",
        target: "<= 1.6x slower",
        parts: vec![
            Part::ratio(
                "1,000 hosts",
                &Ratio::of(&gang, &one_by_one),
                ("gang", "transactions"),
                Bound::AtMost(1.6),
            ),
            Part::ratio(
                "beside host locks without transactions, claims and commit",
                &Ratio::of(&gang, &alone),
                ("gang", "host locks"),
                Bound::Told,
            ),
        ],
    }
}

/// One replica on each of so many random hosts.
fn members(request: &PortRequest) -> Vec<GangMember<'_>> {
    let mut chance = Chance::new(4);
    let mut hosts = BTreeSet::new();
    while hosts.len() < MEMBERS as usize {
        hosts.insert(chance.below(HOSTS));
    }
    let member = |(index, host)| GangMember {
        host: HostId(host),
        replica: replica(10, index),
        request,
        former: None,
    };
    (0..).zip(hosts).map(member).collect()
}

/// What so many runs of something took that times itself.
fn repeated(times: u32, mut run: impl FnMut() -> Duration) -> Duration {
    (0..times).map(|_| run()).sum()
}

fn release(product: &Allocator, members: &[GangMember<'_>]) {
    for member in members {
        product
            .confirm_release(member.replica, NOW, AfterRelease::Free)
            .expect("it was placed");
    }
}
