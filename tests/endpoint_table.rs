//! The endpoint table under load: many readers, a quick writer, and nobody who is told a mixture.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the writer keeps a pace, and the long figures are asked for by a variable"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test whose names do not parse has failed"
)]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use portreeve::endpoints::{
    Change, EndpointTable, Entry, Handle, Listing, ServiceUpdate, Snapshot,
};
use portreeve::identity::{Incarnation, ServiceName};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Marked {
    key: u32,
    mark: u64,
}

impl Entry for Marked {
    type Key = u32;
    type Kept = Self;

    fn keep(self) -> Self {
        self
    }

    fn of(kept: &Self) -> &Self {
        kept
    }

    fn key(&self) -> u32 {
        self.key
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(0)
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn same_but_for_age(&self, other: &Self) -> bool {
        self == other
    }
}

/// The last of them holds the sum of the others.
const ENTRIES: u32 = 16;

fn service() -> ServiceName {
    "web.alice".parse().unwrap()
}

fn update(change: Change<Marked>) -> ServiceUpdate<Marked> {
    ServiceUpdate {
        service: service(),
        desired: ENTRIES,
        change,
    }
}

/// Changes one entry and the sum, in one batch.
struct Writer {
    table: Arc<EndpointTable<Marked>>,
    marks: [u64; ENTRIES as usize - 1],
    revision: u64,
}

impl Writer {
    fn new() -> Self {
        let table = Arc::new(EndpointTable::new("4f1c".to_owned(), 0));
        let all = (0..ENTRIES).map(|key| Marked { key, mark: 0 });
        table.publish(1, vec![update(Change::Whole(all.collect()))], &[]);
        Self {
            table,
            marks: [0; ENTRIES as usize - 1],
            revision: 1,
        }
    }

    fn change(&mut self) {
        self.revision += 1;
        // Any spread will do; the revision is in it, so that every change is one.
        let mark = self.revision.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = u32::try_from(mark >> 40).unwrap() % (ENTRIES - 1);
        self.marks[key as usize] = mark;
        let sum = self
            .marks
            .iter()
            .fold(0, |sum: u64, mark| sum.wrapping_add(*mark));
        let upsert = vec![
            Marked { key, mark },
            Marked {
                key: ENTRIES - 1,
                mark: sum,
            },
        ];
        let remove = Vec::new();
        let changed = update(Change::Parts { upsert, remove });
        assert!(self.table.publish(self.revision, vec![changed], &[]));
    }
}

/// The revision of a snapshot that is whole.
fn checked(snapshot: &Snapshot<Marked>) -> u64 {
    let mut sum: u64 = 0;
    let mut last = 0;
    let mut newest = 0;
    for (entry, revision) in snapshot.entries() {
        sum = sum.wrapping_add(last);
        last = entry.mark;
        newest = newest.max(revision);
    }
    assert_eq!(sum, last, "a torn snapshot");
    assert_eq!(newest, snapshot.mod_revision());
    assert_eq!(snapshot.ready(), ENTRIES as usize);
    newest
}

#[test]
fn eight_readers_never_meet_a_mixture_under_ten_thousand_swaps_a_second() {
    const READERS: u32 = 8;
    const PACE: Duration = Duration::from_micros(100);
    let reads: u32 = if std::env::var_os("PORTREEVE_LONG").is_some() {
        10_000_000
    } else {
        200_000
    };
    let mut writer = Writer::new();
    let table = Arc::clone(&writer.table);
    let done = AtomicU64::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                let name = service();
                let handle = table.service(&name).unwrap();
                let mut newest = 0;
                for turn in 0..reads {
                    let promised = table.revision();
                    let seen = if (turn + reader) % 2 == 0 {
                        handle.read(checked)
                    } else {
                        table.read(&name, checked).unwrap()
                    };
                    assert!(seen >= promised, "{seen} is older than {promised}");
                    assert!(seen >= newest, "{seen} came after {newest}");
                    newest = seen;
                }
                done.fetch_add(1, Ordering::Release);
            });
        }
        let mut due = begun;
        while done.load(Ordering::Acquire) < u64::from(READERS) {
            due += PACE;
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                thread::sleep(early);
            }
            writer.change();
        }
    });
    let (swaps, took) = (writer.revision - 1, begun.elapsed());
    println!(
        "{} reads, {swaps} swaps in {took:.1?}: {:.0} swaps a second",
        u64::from(reads) * u64::from(READERS),
        swaps as f64 / took.as_secs_f64(),
    );
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            // Far longer than any pause of the writer: who sleeps on has missed a wake.
            Poll::Pending => {
                let slept = Instant::now();
                thread::park_timeout(Duration::from_secs(20));
                assert!(slept.elapsed() < Duration::from_secs(20), "never woken");
            }
        }
    }
}

/// Follows by changes until the last revision, and ends with the same list as who reads it whole.
fn follow(handle: &Handle<Marked>, is_last: impl Fn(u64) -> bool) {
    let mut sleeper = handle.subscribe();
    let mut has = [0; ENTRIES as usize];
    let mut since = 0;
    loop {
        sleeper.mark_unchanged();
        let snapshot = handle.snapshot();
        let changes = snapshot.changes_since(since, Listing::Ready);
        let told = changes.map_or_else(|| snapshot.entries().collect(), |it| it.upsert);
        for (entry, _) in told {
            has[entry.key as usize] = entry.mark;
        }
        since = checked(&snapshot);
        assert!(snapshot.listed().map(|entry| entry.mark).eq(has));
        if is_last(since) {
            return;
        }
        block_on(sleeper.changed());
    }
}

#[test]
fn followers_are_woken_until_they_have_the_last_change() {
    let mut writer = Writer::new();
    let table = Arc::clone(&writer.table);
    let last = AtomicU64::new(u64::MAX);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let handle = table.service(&service()).unwrap();
                follow(&handle, |seen| seen >= last.load(Ordering::Acquire));
            });
        }
        for _ in 0..20_000 {
            writer.change();
        }
        last.store(writer.revision + 1, Ordering::Release);
        writer.change();
    });
}
