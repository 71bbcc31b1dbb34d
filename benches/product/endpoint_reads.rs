//! Row 10: readers of the endpoint table must not stand in each other's way.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, RwLock};
use std::time::{Duration, Instant};

use criterion::Criterion;
use portreeve::endpoints::{
    Change, Endpoint, EndpointState, EndpointTable, ServiceEndpoints, ServiceUpdate,
};
use portreeve::identity::{Incarnation, ServiceName};

use crate::interleaved::{Ratio, Samples};
use crate::verdict::{Bound, Part, Row};

const SERVICES: usize = 1_000;
/// Long enough (about 60 ms) that both readers overlap for nearly all of it.
const READS: usize = 2_000_000;

/// Criterion's own samples, one reader.
pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("endpoint read by name");
    let names = names();
    let (table, locked) = (table(&names), locked(&names));
    let mut turn = names.iter().cycle();
    group.bench_function("table", |bencher| {
        bencher.iter(|| look(&table, turn.next().expect("a cycle never ends")));
    });
    group.bench_function("RwLock<HashMap>", |bencher| {
        bencher.iter(|| look_locked(&locked, turn.next().expect("a cycle never ends")));
    });
    group.finish();
}

/// Two readers at once on each side, in turn.
pub(crate) fn row() -> Row {
    let names = Arc::new(names());
    let (table, locked) = (Arc::new(table(&names)), Arc::new(locked(&names)));
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let (ours, theirs) = (Arc::clone(&table), Arc::clone(&locked));
        times
            .0
            .push(two_readers(&names, move |name| look(&ours, name)));
        times
            .1
            .push(two_readers(&names, move |name| look_locked(&theirs, name)));
    }
    let samples = |spans: Vec<Duration>| {
        let each = spans
            .iter()
            .map(|span| span.as_secs_f64() * 1e9 / READS as f64);
        Samples::new(each.collect())
    };
    Row {
        number: 10,
        what: "endpoint read by name, 2 readers, against RwLock<HashMap>",
        target: ">= 3x faster",
        parts: vec![Part::ratio(
            "2 readers",
            &Ratio::of(&samples(times.1), &samples(times.0)),
            ("RwLock<HashMap>", "table"),
            Bound::AtLeast(3.0),
        )],
    }
}

fn two_readers<F>(names: &Arc<Vec<ServiceName>>, read: F) -> Duration
where
    F: Fn(&ServiceName) -> u32 + Send + Sync + 'static,
{
    let (read, barrier) = (Arc::new(read), Arc::new(Barrier::new(2)));
    let readers: Vec<_> = (0..2)
        .map(|offset| {
            let (names, read, barrier) =
                (Arc::clone(names), Arc::clone(&read), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                let begun = Instant::now();
                let mut sum = 0;
                for name in names.iter().cycle().skip(offset * 500).take(READS) {
                    sum += read(name);
                }
                std::hint::black_box(sum);
                begun.elapsed()
            })
        })
        .collect();
    readers
        .into_iter()
        .map(|reader| reader.join().expect("a reader does not panic"))
        .max()
        .unwrap_or_default()
}

fn look(table: &EndpointTable, name: &ServiceName) -> u32 {
    table
        .read(name, |snapshot| snapshot.desired())
        .unwrap_or_default()
}

fn look_locked(
    table: &RwLock<HashMap<ServiceName, Arc<ServiceEndpoints>>>,
    name: &ServiceName,
) -> u32 {
    let table = table.read().expect("no writer panics");
    table.get(name).map_or(0, |set| set.desired)
}

fn table(names: &[ServiceName]) -> EndpointTable {
    let table = EndpointTable::new("bench".to_owned(), 0);
    table.publish(1, names.iter().map(|name| update(name, 3)).collect(), &[]);
    table
}

fn locked(names: &[ServiceName]) -> RwLock<HashMap<ServiceName, Arc<ServiceEndpoints>>> {
    let entry = |name: &ServiceName| {
        let set = ServiceEndpoints {
            service: name.clone(),
            desired: 3,
            endpoints: endpoints(),
        };
        (name.clone(), Arc::new(set))
    };
    RwLock::new(names.iter().map(entry).collect())
}

pub(crate) fn update(name: &ServiceName, desired: u32) -> ServiceUpdate {
    ServiceUpdate {
        service: name.clone(),
        desired,
        change: Change::Whole(endpoints()),
    }
}

fn endpoints() -> Vec<Endpoint> {
    let all = (0..10).map(|replica| Endpoint {
        replica,
        ..endpoint()
    });
    all.collect()
}

pub(crate) fn endpoint() -> Endpoint {
    Endpoint {
        replica: 0,
        incarnation: Incarnation(0),
        job: None,
        host: "n017".parse().expect("it is a host name"),
        address: Some([10, 1, 0, 17].into()),
        ports: Vec::new(),
        state: EndpointState::Ready,
        reason: None,
        ready_since: None,
        restarts: 0,
        labels: Arc::default(),
    }
}

fn names() -> Vec<ServiceName> {
    (0..SERVICES).map(name).collect()
}

/// Spread, so that neighbours in the list are not neighbours in the map.
pub(crate) fn name(number: usize) -> ServiceName {
    let name = format!("service-{:04}.alice", number * 7_919 % 10_000);
    name.parse().expect("it is a service name")
}
