//! Row 10: readers of the endpoint table must not stand in each other's way.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, RwLock};
use std::time::{Duration, Instant};

use criterion::Criterion;
use portreeve::endpoints::{
    Change, Endpoint, EndpointState, EndpointTable, ServiceEndpoints, ServiceUpdate, Snapshot,
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

/// One reader and two at once on each side, in turn.
pub(crate) fn row() -> Row {
    let names = Arc::new(names());
    let (table, locked) = (Arc::new(table(&names)), Arc::new(locked(&names)));
    let mut times: [Vec<f64>; 6] = Default::default();
    for _ in 0..9 {
        let spans = [
            readers(2, &names, &table, |table| {
                let mut reader = table.reader();
                move |name| reader.read(name, Snapshot::desired).unwrap_or_default()
            }),
            readers(2, &names, &locked, |locked| {
                |name| look_locked(locked, name)
            }),
            readers(1, &names, &table, |table| {
                let mut reader = table.reader();
                move |name| reader.read(name, Snapshot::desired).unwrap_or_default()
            }),
            readers(2, &names, &table, |table| |name| look(table, name)),
            readers(1, &names, &table, |table| |name| look(table, name)),
            readers(2, &names, &table, |table| {
                let kept = table.service(&names[0]).expect("it was published");
                move |_| kept.read(Snapshot::desired)
            }),
        ];
        for (times, span) in times.iter_mut().zip(spans) {
            times.push(span.as_secs_f64() * 1e9 / READS as f64);
        }
    }
    let [reader, locked, alone, plain, plain_alone, kept] = times.map(Samples::new);
    let against = |ours: &Samples, called| {
        let ratio = Ratio::of(&locked, ours);
        move |case: &str, bound| Part::ratio(case, &ratio, ("RwLock<HashMap>", called), bound)
    };
    let own = |two: &Samples, one: &Samples| Ratio::of(two, one);
    Row {
        number: 10,
        what: "endpoint read by name, 2 readers, against RwLock<HashMap>",
        target: ">= 3x faster; 2 readers <= 1.4x of 1",
        parts: vec![
            against(&reader, "kept reader")("2 kept readers", Bound::AtLeast(3.0)),
            Part::ratio(
                "2 kept readers against 1",
                &own(&reader, &alone),
                ("2 readers", "1 reader"),
                Bound::AtMost(1.4),
            ),
            against(&plain, "table")("2 readers through the table", Bound::Told),
            Part::ratio(
                "2 readers through the table against 1",
                &own(&plain, &plain_alone),
                ("2 readers", "1 reader"),
                Bound::Told,
            ),
            against(&kept, "handle")("2 with a handle, no look-up", Bound::Told),
        ],
    }
}

/// How long each of so many readers takes at most, all of them at once.
fn readers<'a, T, R>(
    readers: usize,
    names: &Arc<Vec<ServiceName>>,
    of: &'a Arc<T>,
    reader: impl Fn(&'a T) -> R + Sync,
) -> Duration
where
    T: Send + Sync,
    R: FnMut(&ServiceName) -> u32,
{
    let barrier = Barrier::new(readers);
    let (barrier, reader) = (&barrier, &reader);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers)
            .map(|offset| {
                scope.spawn(move || {
                    let mut read = reader(of);
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
        let spans = threads
            .into_iter()
            .map(|it| it.join().expect("no reader panics"));
        spans.max().unwrap_or_default()
    })
}

fn look(table: &EndpointTable, name: &ServiceName) -> u32 {
    table.read(name, Snapshot::desired).unwrap_or_default()
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
