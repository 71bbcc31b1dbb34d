//! Rows 5 and 6: which hosts can take fixed numbers and three of any, asked once for many hosts.

use criterion::Criterion;
use portreeve::allocator::{Allocator, HostSet, Need};
use portreeve::identity::{HostId, ServiceId};
use portreeve::port_pool::PortRequest;
use portreeve::time::Monotonic;

use crate::baseline::scan::Scan;
use crate::chance::Chance;
use crate::fleet::{Plan, allocator};
use crate::interleaved::{Ratio, clocked, interleave};
use crate::requests::fixed_and_any;
use crate::verdict::{Bound, Part, Row};

/// A fixed number of the cluster, and on how many of a hundred hosts it is used.
const ASKED: [(u16, u32); 3] = [(8081, 1), (8080, 30), (8082, 99)];
/// Single numbers asked beside it.
const ANY: u32 = 3;
/// Who asks.
const ASKER: ServiceId = ServiceId(9);
const ROUNDS: usize = 61;

/// The product and the scan over the same hosts.
pub(crate) struct Cluster {
    allocator: Allocator,
    scan: Scan,
    hosts: u32,
}

impl Cluster {
    pub(crate) fn new(hosts: u32) -> Self {
        let plan = Plan::cluster(hosts);
        Self {
            allocator: allocator(&plan),
            scan: Scan::new(&plan),
            hosts,
        }
    }

    /// Asks the product for every host, and the scan, in turn.
    pub(crate) fn against_scan(&self, number: u16) -> Ratio {
        let request = fixed_and_any(&[number], ANY as usize);
        let need = Need::new(&request, ASKER);
        let mut transaction = self.allocator.begin(Monotonic::from_millis(0));
        let mut fits = HostSet::new();
        let mut listed = Vec::new();
        let [product, scan] = interleave(
            ROUNDS,
            [
                &mut |times| clocked(times, || transaction.feasible_into(&need, None, &mut fits)),
                &mut |times| clocked(times, || self.scan.feasible(&[number], ANY, &mut listed)),
            ],
        );
        let same: HostSet = listed.into_iter().map(HostId).collect();
        assert!(fits == same, "both sides answer alike");
        Ratio::of(&scan, &product)
    }

    /// Some hosts of the cluster, ascending.
    fn candidates(&self, count: u32) -> Vec<u32> {
        let mut chance = Chance::new(u64::from(count));
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < count as usize {
            chosen.insert(chance.below(self.hosts));
        }
        chosen.into_iter().collect()
    }
}

/// Criterion's own samples.
pub(crate) fn bench(criterion: &mut Criterion) {
    let cluster = Cluster::new(10_000);
    let request = fixed_and_any(&[8080], ANY as usize);
    let need = Need::new(&request, ASKER);
    let mut transaction = cluster.allocator.begin(Monotonic::from_millis(0));
    let mut group = criterion.benchmark_group("feasible, 10,000 hosts");
    let mut fits = HostSet::new();
    group.bench_function("product", |bencher| {
        bencher.iter(|| transaction.feasible_into(&need, None, &mut fits));
    });
    let mut listed = Vec::new();
    group.bench_function("scan", |bencher| {
        bencher.iter(|| cluster.scan.feasible(&[8080], ANY, &mut listed));
    });
    group.finish();
}

/// Rows 5 and 6.
pub(crate) fn rows() -> Vec<Row> {
    let mut everywhere = Vec::new();
    let mut among = Vec::new();
    for (hosts, bound) in [(10_000, 15.0), (100_000, 100.0)] {
        let cluster = Cluster::new(hosts);
        for (number, percent) in ASKED {
            everywhere.push(Part::ratio(
                format!("{hosts} hosts, {percent} % used"),
                &cluster.against_scan(number),
                ("scan", "product"),
                Bound::AtLeast(bound),
            ));
        }
        for count in [100, 1_000] {
            among.extend(candidates(&cluster, count));
        }
    }
    // What is told beside comes last.
    among.sort_by_key(|part| part.bound == Bound::Told);
    vec![
        Row {
            number: 5,
            what: "all hosts that take {1 fixed + 3 any}, 2 % of the hosts nearly full, against a scan of bare sets without locks",
            target: ">= 15x faster at 10,000 hosts, >= 100x at 100,000",
            parts: everywhere,
        },
        Row {
            number: 6,
            what: "the same among few candidates, against the better of asking each and asking for all",
            target: "<= 1.5x",
            parts: among,
        },
    ]
}

fn candidates(cluster: &Cluster, count: u32) -> Vec<Part> {
    let number = 8080;
    let listed = cluster.candidates(count);
    let set: HostSet = listed.iter().copied().map(HostId).collect();
    let request: PortRequest = fixed_and_any(&[number], ANY as usize);
    let need = Need::new(&request, ASKER);
    let mut transaction = cluster.allocator.begin(Monotonic::from_millis(0));
    let transaction = std::cell::RefCell::new(&mut transaction);
    let (mut chosen, mut all) = (HostSet::new(), HostSet::new());
    let mut scanned = Vec::new();
    let each = |host: u32| {
        transaction
            .borrow_mut()
            .max_replicas(&need, HostId(host), 1)
            > 0
    };
    let [product, direct, mask, scan] = interleave(
        2 * ROUNDS,
        [
            &mut |times| {
                let mut transaction = transaction.borrow_mut();
                clocked(times, || {
                    transaction.feasible_into(&need, Some(&set), &mut chosen);
                })
            },
            &mut |times| clocked(times, || listed.iter().filter(|host| each(**host)).count()),
            &mut |times| {
                let mut transaction = transaction.borrow_mut();
                clocked(times, || transaction.feasible_into(&need, None, &mut all))
            },
            &mut |times| {
                clocked(times, || {
                    cluster
                        .scan
                        .feasible_among(&listed, &[number], ANY, &mut scanned);
                })
            },
        ],
    );
    let same: HostSet = scanned.into_iter().map(HostId).collect();
    assert!(chosen == same, "both sides answer alike");
    let (name, better) = if direct.median() < mask.median() {
        ("each", &direct)
    } else {
        ("all", &mask)
    };
    let case = format!("{count} of {} hosts", cluster.hosts);
    vec![
        Part::ratio(
            case.clone(),
            &Ratio::of(&product, better),
            ("product", name),
            Bound::AtMost(1.5),
        ),
        Part::ratio(
            format!("{case}, beside bare sets without locks"),
            &Ratio::of(&product, &scan),
            ("product", "scan"),
            Bound::Told,
        ),
        Part::ratio(
            format!("{case}, asking for all beside asking each"),
            &Ratio::of(&mask, &direct),
            ("all", "each"),
            Bound::Told,
        ),
    ]
}
