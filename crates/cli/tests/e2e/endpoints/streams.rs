//! Streams of changes over connections that break, dawdle or are many.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::follower::{Followed, Proxy, follow};
use super::wire::{Events, Place};
use super::{Scripted, get, is_long, place, ports, wait_listed};
use crate::world::{eventually, pause};

const PATIENCE: Duration = Duration::from_secs(60);
const ONE: &str = "/api/v1/services/web/endpoints";

/// Every kind of stream that shows the service.
const KINDS: [&str; 4] = [
    ONE,
    "/api/v1/services/web/endpoints?delta=1",
    "/api/v1/watch?service=web",
    "/api/v1/watch?prefix=we&delta=1",
];

/// What `endpoints` lists now.
fn listed(site: &Scripted) -> Vec<u64> {
    ports(&get(&site.world, "services/web/endpoints").json())
}

#[test]
fn watchers_whose_connections_break_all_the_time_end_with_what_resolve_says() {
    // P24: full sets and changes, one service and several.
    let Some(mut site) = Scripted::new("web", 4) else {
        return;
    };
    let cuts = if is_long() { 200 } else { 40 };
    let all = ports(&get(&site.world, "services/web/endpoints?state=all").json());
    let followers: Vec<_> = KINDS
        .iter()
        .zip(1..)
        .map(|(path, seed)| {
            let near = site.world.path(&format!("proxy{seed}.sock"));
            let far = site.world.path("run/controller.sock");
            let proxy = Proxy::start(&near, &far, cuts, seed).unwrap();
            let (path, place) = ((*path).to_owned(), Place::Unix(near));
            let all = all.clone();
            // All four are ready only at the end: 0 and 1 never are at once before.
            let end = move |followed: &Followed| followed.ports("web") == all;
            let following = std::thread::spawn(move || follow(&place, &path, PATIENCE, end));
            (proxy, following)
        })
        .collect();
    let mut nth = 0;
    while followers.iter().any(|(proxy, _)| proxy.cuts() < cuts) {
        match nth % 6 {
            0 => site.tell(1, false),
            1 => site.tell(0, true),
            3 => site.tell(0, false),
            4 => site.tell(1, true),
            _ => site.flip(2 + nth / 6 % 2),
        }
        nth += 1;
        pause();
        // One ends too soon only where it found something wrong.
        if followers
            .iter()
            .any(|(_, following)| following.is_finished())
        {
            break;
        }
    }
    for nth in 0..4 {
        site.tell(nth, true);
    }
    assert!(eventually(|| listed(&site) == all));
    for ((proxy, following), path) in followers.into_iter().zip(KINDS) {
        let followed = following
            .join()
            .unwrap()
            .unwrap_or_else(|wrong| panic!("{path}: {wrong}"));
        let (broken, events) = (proxy.cuts(), followed.events);
        assert!(
            broken >= cuts,
            "{path}: cut {broken} times, {events} events"
        );
        assert_eq!(
            followed.resets, 0,
            "{path}: nothing was lost that asks for a reset"
        );
    }
}

#[test]
fn a_watcher_that_resumes_gets_what_came_after_or_a_reset_and_never_silence() {
    // endpoints 35
    let Some(mut site) = Scripted::new("web", 2) else {
        return;
    };
    site.tell(0, true);
    wait_listed(&site.world, "web", 1);
    let current = get(&site.world, "services/web/endpoints").json();
    let (epoch, revision) = (
        current["epoch"].as_str().unwrap().to_owned(),
        current["revision"].as_u64().unwrap(),
    );
    let place = place(&site.world);
    let open = |after: &str| Events::open(&place, ONE, Some(after), PATIENCE).unwrap();
    let first = |after: &str| {
        let mut events = open(after);
        let mut names = Vec::new();
        loop {
            let event = events.next().unwrap().unwrap();
            names.push(event.name.clone());
            if event.name == "endpoints" {
                return (names, ports(&event.data));
            }
        }
    };
    // Older: what is now. From another lineage, or from the future: everything anew, and told so.
    let now = listed(&site);
    assert_eq!(first(&format!("{epoch}.{}", revision - 1)).1, now);
    for foreign in [
        format!("ffffffff.{revision}"),
        format!("{epoch}.{}", revision + 1_000_000),
    ] {
        let (names, set) = first(&foreign);
        assert_eq!(
            (names[0].as_str(), set),
            ("reset", now.clone()),
            "{foreign}: {names:?}"
        );
    }
    // Current: nothing of that again, and the next change at once.
    let mut events = open(&format!("{epoch}.{revision}"));
    site.tell(1, true);
    let event = loop {
        let event = events.next().unwrap().unwrap();
        if event.name != "bookmark" {
            break event;
        }
    };
    assert_eq!(
        (event.name.as_str(), ports(&event.data).len()),
        ("endpoints", 2),
        "{event:?}"
    );
}

/// The resident memory of a process in bytes.
fn resident(pid: i32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim()
        .trim_end_matches(" kB")
        .trim()
        .parse::<i64>()
        .unwrap()
        * 1024
}

#[test]
fn a_watcher_that_reads_a_byte_a_second_costs_no_memory_and_ends_with_the_last_state() {
    // Entry 16: five minutes and 10^5 changes with PORTREEVE_LONG.
    let Some(mut site) = Scripted::new("web", 4) else {
        return;
    };
    let span = if is_long() { 300 } else { 5 };
    let pid = site.controller.as_ref().unwrap().pid();
    // What the controller keeps of its own for as many changes is told from what it keeps for the watcher.
    let alone = resident(pid);
    let changes = many_changes(&mut site, span, if is_long() { 100_000 } else { 0 });
    let before = resident(pid);
    let mut slow = Events::open(&place(&site.world), ONE, None, Duration::from_secs(400)).unwrap();
    let hurried = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&hurried);
    let slow = std::thread::spawn(move || {
        let mut read = 0;
        while !told.load(Ordering::Relaxed) {
            let byte = slow.0.byte().unwrap();
            assert!(byte.is_some(), "it was cut after {read} bytes");
            read += 1;
            dawdle();
        }
        // It catches up: in the middle of an event, whose end is skipped.
        let mut followed = Followed::default();
        while let Some(line) = slow.0.line().unwrap() {
            if line.is_empty() {
                break;
            }
        }
        loop {
            let event = slow.next().unwrap().expect("it goes on");
            followed.take(&event).unwrap();
            if followed.ports("web").len() == 4 {
                return read;
            }
        }
    });
    let place = place(&site.world);
    let quick = std::thread::spawn(move || {
        // As long as all the changes take, on a busy machine too.
        let patience = Duration::from_secs(if is_long() { 3_600 } else { 400 });
        follow(&place, ONE, patience, |it| it.ports("web").len() == 4)
    });
    let told = many_changes(&mut site, span, changes);
    let grown = resident(pid) - before;
    for nth in 0..4 {
        site.tell(nth, true);
    }
    let followed = quick.join().unwrap().unwrap();
    assert!(followed.events > 30, "{followed:#?}");
    hurried.store(true, Ordering::Relaxed);
    let read = slow.join().unwrap();
    eprintln!(
        "{told} changes beside a watcher that read {read} bytes: grown by {grown} bytes, by {} without it",
        before - alone
    );
    let own = (before - alone).max(0);
    assert!(
        grown < own + (1 << 20),
        "grown by {grown} bytes in {told} changes"
    );
}

/// At least so many changes and for so many seconds, of which none makes replica 1 ready; gives how many.
fn many_changes(site: &mut Scripted, seconds: u64, least: usize) -> usize {
    let begun = Instant::now();
    let mut told = 0;
    while told < least || begun.elapsed() < Duration::from_secs(seconds) {
        for nth in [0, 2, 3] {
            site.flip(nth);
        }
        told += 3;
    }
    told
}

#[expect(
    clippy::disallowed_methods,
    reason = "the pace of a slow reader is what is tried"
)]
fn dawdle() {
    std::thread::sleep(Duration::from_secs(1));
}

#[test]
fn one_change_reaches_every_idle_stream_and_what_is_no_change_sends_nothing() {
    // Entry 17: 2,000 with PORTREEVE_LONG, where so many files may be open.
    let Some(mut site) = Scripted::new("web", 2) else {
        return;
    };
    site.tell(0, true);
    wait_listed(&site.world, "web", 1);
    let count = if is_long() && may_open(4_200) {
        2_000
    } else {
        300
    };
    let pid = site.controller.as_ref().unwrap().pid();
    let before = resident(pid);
    let place = place(&site.world);
    let mut streams: Vec<_> = (0..count)
        .map(|_| {
            let mut events = Events::open(&place, ONE, None, PATIENCE).unwrap();
            while events.next().unwrap().unwrap().name != "endpoints" {}
            events
        })
        .collect();
    let weight = (resident(pid) - before) / i64::from(count);
    eprintln!("{count} idle streams: {weight} bytes each in a build for tests");
    // An equal report, and one of what the default answer does not show.
    site.host.report().unwrap();
    site.tell(0, true);
    site.tell(1, false);
    let begun = Instant::now();
    site.tell(1, true);
    let mut heard = BTreeSet::new();
    for events in &mut streams {
        let event = loop {
            let event = events.next().unwrap().unwrap();
            // Of the beginning, not of what was no change.
            if event.name != "bookmark" {
                break event;
            }
        };
        assert_eq!(
            (event.name.as_str(), ports(&event.data).len()),
            ("endpoints", 2),
            "{event:?}"
        );
        heard.insert(event.id);
    }
    eprintln!("the last of {count} heard after {:?}", begun.elapsed());
    assert_eq!(heard.len(), 1, "one event of one revision for all");
}

/// Whether this process may have so many files open; the controller inherits it.
fn may_open(files: u64) -> bool {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_ascii_whitespace().nth(3)?.parse::<u64>().ok());
    soft.is_some_and(|soft| soft >= files)
}
