//! Row 13: one change wakes everybody who waits for it, and each costs the same however many they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use portreeve::endpoints::{EndpointTable, Handle, Watcher};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::endpoint_reads::{name, update};
use crate::interleaved::{Ratio, Samples};
use crate::verdict::{Bound, Part, Row};

const ROUNDS: usize = 15;

/// Both sizes, and tokio's own channel at the larger.
pub(crate) fn row() -> Row {
    let (mut few, mut many) = (Crowd::of_table(1_000), Crowd::of_table(10_000));
    let mut channel = Crowd::of_channel(10_000);
    let mut times: [Vec<f64>; 3] = Default::default();
    // The first round only warms.
    for round in 0..=ROUNDS {
        for (crowd, times) in [&mut few, &mut many, &mut channel]
            .into_iter()
            .zip(&mut times)
        {
            let each = crowd.round().as_secs_f64() * 1e9 / f64::from(crowd.size);
            if round > 0 {
                times.push(each);
            }
        }
    }
    let [few, many, channel] = times.map(Samples::new);
    Row {
        number: 13,
        what: "time until all watchers of a service have read a change, for each of them",
        target: "at 10,000 <= 1.5x that at 1,000",
        parts: vec![
            Part::ratio(
                "10,000 watchers",
                &Ratio::of(&many, &few),
                ("at 10,000", "at 1,000"),
                Bound::AtMost(1.5),
            ),
            Part::ratio(
                "tokio's watch channel",
                &Ratio::of(&channel, &many),
                ("channel", "table"),
                Bound::Told,
            ),
        ],
    }
}

/// Tasks that wait for the next number, on a runtime of their own.
struct Crowd {
    size: u32,
    runtime: Runtime,
    /// How many have read the newest change.
    read: Arc<AtomicU32>,
    change: Box<dyn FnMut()>,
}

impl Crowd {
    fn of_table(size: u32) -> Self {
        let table = EndpointTable::new("bench".to_owned(), 0);
        let service = name(0);
        table.publish(1, vec![update(&service, 1)], &[]);
        let handle = table.service(&service).expect("it was published");
        let mut revision = 1;
        let change = move || {
            revision += 1;
            table.publish(revision, vec![update(&service, revision as u32)], &[]);
        };
        Self::new(size, change, |read| {
            watch_table(handle.clone(), handle.subscribe(), read)
        })
    }

    fn of_channel(size: u32) -> Self {
        let number = watch::Sender::new(1_u64);
        let receiver = number.subscribe();
        let change = move || number.send_modify(|number| *number += 1);
        Self::new(size, change, |read| watch_channel(receiver.clone(), read))
    }

    fn new<T>(size: u32, change: impl FnMut() + 'static, task: impl Fn(Arc<AtomicU32>) -> T) -> Self
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder
            .worker_threads(2)
            .build()
            .expect("threads can be had");
        let read = Arc::new(AtomicU32::new(0));
        for _ in 0..size {
            runtime.spawn(task(Arc::clone(&read)));
        }
        let crowd = Self {
            size,
            runtime,
            read,
            change: Box::new(change),
        };
        crowd.wait(0);
        crowd
    }

    fn round(&mut self) -> Duration {
        self.read.store(0, Ordering::Release);
        let begun = Instant::now();
        (self.change)();
        self.wait(self.size);
        begun.elapsed()
    }

    /// Until all have read, or all sleep: neither takes a second.
    fn wait(&self, read: u32) {
        let latest = Instant::now() + Duration::from_secs(10);
        while self.read.load(Ordering::Acquire) < read && Instant::now() < latest {
            std::thread::yield_now();
        }
        // All sleep again before the next change is made.
        while self.runtime.metrics().global_queue_depth() > 0 && Instant::now() < latest {
            std::thread::yield_now();
        }
    }
}

async fn watch_table(handle: Handle, mut number: Watcher, read: Arc<AtomicU32>) {
    loop {
        number.changed().await;
        std::hint::black_box(handle.read(|seen| seen.desired()));
        read.fetch_add(1, Ordering::Release);
    }
}

async fn watch_channel(mut number: watch::Receiver<u64>, read: Arc<AtomicU32>) {
    while number.changed().await.is_ok() {
        std::hint::black_box(*number.borrow());
        read.fetch_add(1, Ordering::Release);
    }
}
