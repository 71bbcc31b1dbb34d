//! Row 7: two threads place and release replicas on hosts of one cluster.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::Criterion;
use portreeve::allocator::{AfterRelease, Allocator};
use portreeve::identity::HostId;
use portreeve::port_pool::PortRequest;
use portreeve::time::Monotonic;

use crate::baseline::locked_map::LockedMap;
use crate::chance::Chance;
use crate::fleet::{Plan, allocator, name};
use crate::interleaved::{Ratio, Samples};
use crate::requests::{any, replica};
use crate::verdict::{Bound, Part, Row};

const HOSTS: u32 = 10_000;
/// Long enough (about 2 ms) beside the start of a round, shorter than a time slice of others' work.
const PAIRS: u32 = 4_000;
const ROUNDS: usize = 151;
const NOW: Monotonic = Monotonic::from_millis(0);

/// Criterion's own samples, one thread.
pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("place 4 any on a random host and release, 1 thread");
    let (product, map) = (product(), map());
    let names: Vec<String> = (0..HOSTS).map(name).collect();
    let request = any(4);
    let mut chance = Chance::new(1);
    let mut numbers = Vec::new();
    group.bench_function("product", |bencher| {
        bencher.iter(|| {
            let host = chance.below(HOSTS);
            product_pair(&product, host, 0, 0, &request, &mut numbers);
        });
    });
    group.bench_function("RwLock<HashMap>", |bencher| {
        bencher.iter(|| {
            let host = chance.below(HOSTS);
            map_pair(&map, &names[host as usize], 0, 0, &request);
        });
    });
    group.finish();
}

/// Row 7.
pub(crate) fn row() -> Row {
    let (product, map) = (product(), map());
    let names: Vec<String> = (0..HOSTS).map(name).collect();
    let request = any(4);
    let case = |threads, hosts| {
        let mut times = (Vec::new(), Vec::new());
        for round in 0..ROUNDS as u64 {
            times.0.push(together(threads, |thread| {
                let mut chance = Chance::new(2 * round + thread);
                let mut numbers = Vec::with_capacity(4);
                for index in 0..PAIRS {
                    let host = chance.below(hosts);
                    product_pair(&product, host, thread, index, &request, &mut numbers);
                }
            }));
            times.1.push(together(threads, |thread| {
                let mut chance = Chance::new(2 * round + thread);
                for index in 0..PAIRS {
                    let host = &names[chance.place(hosts as usize)];
                    map_pair(&map, host, thread, index, &request);
                }
            }));
        }
        Ratio::of(&Samples::new(times.1), &Samples::new(times.0))
    };
    let sides = ("RwLock<HashMap>", "product");
    let two = case(2, HOSTS);
    Row {
        number: 7,
        what: "4 any placed on a random one of 10,000 hosts in a transaction and released, 2 threads, against RwLock<HashMap> of the same pools with the grants in the same lock",
        target: ">= 2x faster",
        parts: vec![
            Part::ratio("2 threads", &two, sides, Bound::AtLeast(2.0)),
            Part::ratio("1 thread", &case(1, HOSTS), sides, Bound::Told),
            Part::ratio("2 threads on 1 host", &case(2, 1), sides, Bound::Told),
        ],
    }
}

fn product() -> Allocator {
    allocator(&Plan::empty(HOSTS))
}

fn map() -> LockedMap {
    LockedMap::new((0..HOSTS).map(name))
}

fn product_pair(
    product: &Allocator,
    host: u32,
    thread: u64,
    index: u32,
    request: &PortRequest,
    numbers: &mut Vec<portreeve::port::PortRange>,
) {
    let by = replica(10 + thread, index);
    let mut transaction = product.begin(NOW);
    numbers.clear();
    transaction
        .reserve_into(HostId(host), by, request, None, numbers)
        .expect("the host has room");
    transaction.commit();
    product
        .confirm_release(by, NOW, AfterRelease::Free)
        .expect("it was placed");
}

fn map_pair(map: &LockedMap, host: &str, thread: u64, index: u32, request: &PortRequest) {
    let by = replica(10 + thread, index);
    assert!(map.hold(host, by, request), "the host has room");
    assert!(map.release(by), "it was placed");
}

/// Nanoseconds per pair while so many threads do the same at once.
fn together(threads: u64, work: impl Fn(u64) + Sync) -> f64 {
    let arrived = AtomicU64::new(0);
    let run = &|thread| {
        // Spinning, so that no thread is still asleep while the other runs alone.
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < threads {
            std::hint::spin_loop();
        }
        let begun = Instant::now();
        work(thread);
        begun.elapsed()
    };
    let longest = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|thread| scope.spawn(move || run(thread)))
            .collect();
        let own = run(0);
        let ended = others.into_iter().map(|thread| thread.join());
        let ended = ended.map(|time| time.expect("no thread panics"));
        ended.fold(own, Duration::max)
    });
    longest.as_secs_f64() * 1e9 / f64::from(PAIRS)
}
