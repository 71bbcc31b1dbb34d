//! How costs grow with hosts, with replicas in one transaction and with grants; and what hosts weigh.
//! No row: the table has no target for it.

use std::time::Instant;

use portreeve::allocator::{AfterRelease, Allocator, HostSet, Need};
use portreeve::identity::{HostId, ServiceId};
use portreeve::port::PortRange;
use portreeve::port_pool::PortRequest;
use portreeve::time::Monotonic;

use crate::baseline::scan::Scan;
use crate::chance::Chance;
use crate::fleet::{DYNAMIC, Plan, allocator};
use crate::heap::counted;
use crate::interleaved::{clocked, interleave, spelled};
use crate::requests::{any, block, fixed_and_any, replica};
use crate::verdict::Growth;

const NOW: Monotonic = Monotonic::from_millis(0);
const HOST: HostId = HostId(0);
const ASKER: ServiceId = ServiceId(9);

/// The lines of the table, but for those by fill.
pub(crate) fn lines() -> Vec<Growth> {
    let mut lines = Vec::new();
    for hosts in [1_000, 10_000, 100_000, 1_000_000] {
        lines.extend(by_hosts(hosts));
    }
    lines.extend([1, 10, 100, 1_000].map(by_batch));
    lines.extend(weights());
    lines.push(crowded());
    lines
}

fn by_hosts(hosts: u32) -> Vec<Growth> {
    let plan = Plan::cluster(hosts);
    let product = allocator(&plan);
    let scan = Scan::new(&plan);
    let request = fixed_and_any(&[8080], 3);
    let need = Need::new(&request, ASKER);
    let mut fits = HostSet::new();
    let mut listed = Vec::new();
    let mut transaction = product.begin(NOW);
    let begun = Instant::now();
    transaction.feasible_into(&need, None, &mut fits);
    let first = begun.elapsed().as_secs_f64() * 1e9;
    let [again, scanned] = interleave(
        if hosts > 100_000 { 11 } else { 41 },
        [
            &mut |times| clocked(times, || transaction.feasible_into(&need, None, &mut fits)),
            &mut |times| clocked(times, || scan.feasible(&[8080], 3, &mut listed)),
        ],
    );
    transaction.commit();
    let four = any(4);
    let mut chance = Chance::new(5);
    // Where the plan leaves next to nothing free, the next host is asked.
    let mut numbers = Vec::new();
    let [pair] = interleave(
        41,
        [&mut |times| {
            clocked(times, || {
                let by = replica(10, 0);
                let mut transaction = product.begin(NOW);
                numbers.clear();
                let host = HostId(chance.below(hosts));
                let placed = transaction.reserve_into(host, by, &four, None, &mut numbers);
                transaction.commit();
                placed
                    .is_ok()
                    .then(|| product.confirm_release(by, NOW, AfterRelease::Free))
            })
        }],
    );
    let at = format!("{hosts} hosts");
    let each = |nanos: f64| format!("{:.2} ns per host", nanos / f64::from(hosts));
    vec![
        Growth {
            what: "all hosts that take {8080 + 3 any}, 30 % used".to_owned(),
            at: at.clone(),
            measured: format!(
                "asked first {}, again {} ({}), scan {} ({})",
                spelled(first),
                spelled(again.median()),
                each(again.median()),
                spelled(scanned.median()),
                each(scanned.median()),
            ),
        },
        Growth {
            what: "4 any placed on a random host and released, 1 thread".to_owned(),
            at,
            measured: spelled(pair.median()),
        },
    ]
}

/// Replicas of 4 ports on random hosts, all in one transaction.
fn by_batch(replicas: u32) -> Growth {
    let hosts = 10_000;
    let product = allocator(&Plan::empty(hosts));
    let request = any(4);
    let mut chance = Chance::new(6);
    let mut numbers: Vec<PortRange> = Vec::new();
    let mut batch = |commit: bool| {
        let mut transaction = product.begin(NOW);
        for index in 0..replicas {
            numbers.clear();
            let host = HostId(chance.below(hosts));
            transaction
                .reserve_into(host, replica(10, index), &request, None, &mut numbers)
                .expect("the hosts have room");
        }
        if commit {
            transaction.commit();
            for index in 0..replicas {
                product
                    .confirm_release(replica(10, index), NOW, AfterRelease::Free)
                    .expect("it was placed");
            }
        }
    };
    let batch = std::cell::RefCell::new(&mut batch);
    let [dropped, kept] = interleave(
        41,
        [
            &mut |times| clocked(times, || (batch.borrow_mut())(false)),
            &mut |times| clocked(times, || (batch.borrow_mut())(true)),
        ],
    );
    let each = |nanos: f64| spelled(nanos / f64::from(replicas));
    Growth {
        what: "one transaction over 10,000 hosts, 4 any for each replica".to_owned(),
        at: format!("{replicas} replicas"),
        measured: format!(
            "dropped {} per replica, committed and released {} per replica",
            each(dropped.median()),
            each(kept.median())
        ),
    }
}

/// Heap per host.
fn weights() -> Vec<Growth> {
    let weigh = |what: &str, hosts: u32, fill: &dyn Fn(&Allocator)| {
        let (_, bytes) = counted(|| {
            let product = allocator(&Plan::empty(hosts));
            fill(&product);
            product
        });
        let each = bytes.kept as f64 / f64::from(hosts);
        Growth {
            what: format!("heap per host, {what}"),
            at: format!("{hosts} hosts"),
            measured: format!("{each:.0} B, {:.1} MB in all", bytes.kept as f64 / 1e6),
        }
    };
    let four = any(4);
    let full = block(256);
    let hold = |product: &Allocator, host: u32, index: &mut u32, request: &PortRequest| {
        let mut transaction = product.begin(NOW);
        transaction
            .reserve(HostId(host), replica(1, *index), request, None)
            .expect("the host has room");
        transaction.commit();
        *index += 1;
    };
    vec![
        weigh("nothing held", 100_000, &|_| {}),
        weigh("4 ports in one grant", 100_000, &|product| {
            let mut index = 0;
            (0..100_000).for_each(|host| hold(product, host, &mut index, &four));
        }),
        weigh(
            "cluster mix: mean 280 ports, 2 % nearly full, grants of 4",
            100_000,
            &|product| {
                let (mut index, mut chance) = (0, Chance::new(8));
                for host in 0..100_000 {
                    // 3,190 grants are a full host but for 8 ports; the others hold 0 to 50 ports.
                    let grants = if chance.below(50) == 0 {
                        3_190
                    } else {
                        chance.below(13)
                    };
                    (0..grants).for_each(|_| hold(product, host, &mut index, &four));
                }
            },
        ),
        weigh("full, in 50 blocks", 10_000, &|product| {
            let mut index = 0;
            for host in 0..10_000 {
                (0..DYNAMIC.len() / 256).for_each(|_| hold(product, host, &mut index, &full));
            }
        }),
        weigh("full, in 12,768 grants of one port", 10, &|product| {
            let (mut index, one) = (0, any(1));
            for host in 0..10 {
                (0..DYNAMIC.len()).for_each(|_| hold(product, host, &mut index, &one));
            }
        }),
    ]
}

/// Questions about a host with as many grants as it has numbers.
fn crowded() -> Growth {
    let product = allocator(&Plan::empty(1));
    let one = any(1);
    for index in 0..DYNAMIC.len() as u32 {
        let mut transaction = product.begin(NOW);
        transaction
            .reserve(HOST, replica(1, index), &one, None)
            .expect("the host has room");
        transaction.commit();
    }
    let held = fixed_and_any(&[*DYNAMIC.end()], 0);
    let need = Need::new(&held, ASKER);
    let transaction = product.begin(NOW);
    let [first, every, listed, refused] = interleave(
        41,
        [
            &mut |times| clocked(times, || transaction.explain_first(HOST, &need)),
            &mut |times| clocked(times, || transaction.explain(HOST, &need)),
            &mut |times| clocked(times, || product.ports(HOST)),
            &mut |times| clocked(times, || transaction.explain_all(&need, None)),
        ],
    );
    Growth {
        what: "questions about one full host".to_owned(),
        at: "12,768 grants".to_owned(),
        measured: format!(
            "first cause {}, every cause {}, all numbers listed {}, summary over the host {}",
            spelled(first.median()),
            spelled(every.median()),
            spelled(listed.median()),
            spelled(refused.median())
        ),
    }
}
