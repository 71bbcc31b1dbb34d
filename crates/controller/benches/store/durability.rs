//! Rows 14 and 15: what it costs until a record survives a power loss.

use std::fs::File;
use std::io::Write as _;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portreeve::registry::{Batch, BatchNumber, Store, Write, tables};
use portreeve_controller::RedbStore;

use crate::interleaved::{Ratio, Samples};
use crate::verdict::{Bound, Part, Row};

/// How many wait for a record each, at once.
const WRITERS: usize = 64;
/// How many records each of them makes durable in a round.
const EACH: usize = 8;
const ROUNDS: usize = 15;
/// What the controller takes into one batch at most.
const ROUND: usize = 256;
/// As long as the record of a replica.
const RECORD: usize = 600;

fn record(n: usize) -> Write {
    Write {
        table: tables::REPLICAS,
        key: format!("7/{}", n % 20_000),
        value: Some(vec![b'x'; RECORD]),
    }
}

fn commit(store: &mut RedbStore, number: usize, writes: Vec<Write>) {
    let number = BatchNumber(number as u64);
    let done = store.commit(&Batch { number, writes });
    done.expect("the disk takes it");
}

/// One record of each writer per round behind one that commits all that wait, as the controller's driver does.
fn grouped(store: &Mutex<RedbStore>) -> Duration {
    let (send, receive) = channel::<(Write, Sender<()>)>();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut store = store.lock().expect("no other thread has it");
            while let Ok(first) = receive.recv() {
                let all: Vec<_> = std::iter::once(first)
                    .chain(receive.try_iter().take(ROUND - 1))
                    .collect();
                let (writes, replies): (Vec<_>, Vec<_>) = all.into_iter().unzip();
                commit(&mut store, 0, writes);
                for reply in replies {
                    reply.send(()).expect("it waits");
                }
            }
        });
        for writer in 0..WRITERS {
            let send = send.clone();
            scope.spawn(move || {
                for n in 0..EACH {
                    let (reply, done) = channel();
                    let asked = send.send((record(writer * EACH + n), reply));
                    asked.expect("the writer lives");
                    done.recv().expect("it answers");
                }
            });
        }
        drop(send);
    });
    begun.elapsed()
}

/// The same records, each a commit of its own.
fn single(store: &Mutex<RedbStore>) -> Duration {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for n in 0..EACH {
                    let mut store = store.lock().expect("no writer panics");
                    commit(&mut store, 0, vec![record(writer * EACH + n)]);
                }
            });
        }
    });
    begun.elapsed()
}

fn per_record(times: Vec<Duration>) -> Samples {
    let records = (WRITERS * EACH) as f64;
    let nanos = times.iter().map(|time| time.as_secs_f64() * 1e9 / records);
    Samples::new(nanos.collect())
}

pub(crate) fn group_row() -> Row {
    let folders = [crate::folder(), crate::folder()];
    let stores = folders.each_ref().map(|folder| {
        let store = RedbStore::open(folder.path()).expect("a new store");
        Arc::new(Mutex::new(store))
    });
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        together.push(grouped(&stores[0]));
        alone.push(single(&stores[1]));
    }
    let ratio = Ratio::of(&per_record(alone), &per_record(together));
    Row {
        number: 14,
        what: "durable records of 64 writers: redb behind one writer that commits all that wait",
        target: ">= 6x the rate of one commit per record, same engine",
        parts: vec![Part::ratio(
            "64 writers",
            &ratio,
            ("one each", "grouped"),
            Bound::AtLeast(6.0),
        )],
    }
}

pub(crate) fn engine_row() -> Row {
    const COMMITS: usize = 40;
    let folder = crate::folder();
    let mut store = RedbStore::open(folder.path()).expect("a new store");
    let mut log = File::create(folder.path().join("log")).expect("the folder takes files");
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    let per_commit = |time: Duration| time.as_secs_f64() * 1e9 / COMMITS as f64;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        for n in 0..COMMITS {
            commit(&mut store, n, vec![record(round * COMMITS + n)]);
        }
        ours.push(per_commit(begun.elapsed()));
        let begun = Instant::now();
        for n in 0..COMMITS {
            let write = record(round * COMMITS + n);
            let bytes = write.value.expect("it has one");
            log.write_all(&bytes).expect("the disk takes it");
            log.sync_data().expect("the disk takes it");
        }
        raw.push(per_commit(begun.elapsed()));
    }
    // The rate of ours as a part of the raw one.
    let ratio = Ratio::of(&Samples::new(raw), &Samples::new(ours));
    Row {
        number: 15,
        what: "one durable record at a time: redb with checksums and a count of commits",
        target: ">= 0.5x the rate of append + fdatasync",
        parts: vec![Part {
            shown: format!("{:.2}x", ratio.value),
            ..Part::ratio("one writer", &ratio, ("raw", "redb"), Bound::AtLeast(0.5))
        }],
    }
}
