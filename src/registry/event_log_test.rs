//! Logs are bounded, fold what repeats, and keep the last failures.

use std::time::Duration;

use proptest::prelude::*;

use crate::supervision::State;
use crate::time::WallClock;

use super::event_log::{EventLogs, FAILURES_KEPT, Standing};
use super::ledger::Ledger;
use super::rig::{Rig, exit, failure, web};
use super::{EVENTS_KEPT, EventView};

type Events = Ledger<(u8, u64), EventView>;

fn event(at: u64, replica: Option<u32>, kind: &str, text: &str) -> EventView {
    EventView {
        at: WallClock::from_unix_millis(at),
        replica,
        incarnation: None,
        host: None,
        kind: kind.to_owned(),
        text: text.to_owned(),
        times: 1,
        first: None,
    }
}

/// `kind×times` of every event, oldest first.
fn told(events: &Events) -> Vec<String> {
    let line = |(_, it): (&(u8, u64), &EventView)| format!("{}×{}", it.kind, it.times);
    events.iter().map(line).collect()
}

fn log() -> (EventLogs<u8>, Events) {
    (EventLogs::default(), Ledger::new(Default::default()))
}

#[test]
fn equal_cycles_become_one_with_how_often_since_when_and_when_last() {
    let (mut logs, mut events) = log();
    logs.append(
        &mut events,
        1,
        event(1, Some(0), "placed", "on n1"),
        Standing::News,
    );
    for round in 0..50_u64 {
        let at = 10 * round;
        logs.append(
            &mut events,
            1,
            event(at + 2, Some(0), "failed", "exit 1"),
            Standing::News,
        );
        let text = format!("restart {} after exit 1", round + 1);
        logs.append(
            &mut events,
            1,
            event(at + 3, Some(0), "restarted", &text),
            Standing::News,
        );
        logs.append(
            &mut events,
            1,
            event(at + 4, Some(0), "ready", "ready"),
            Standing::News,
        );
    }
    assert_eq!(
        told(&events),
        ["placed×1", "failed×50", "restarted×50", "ready×50"]
    );
    let (_, restarted) = events.iter().nth(2).unwrap();
    assert_eq!(restarted.text, "restart 50 after exit 1");
    assert_eq!(restarted.first, Some(WallClock::from_unix_millis(3)));
    assert_eq!(restarted.at, WallClock::from_unix_millis(493));
    // Another cause is another event.
    logs.append(
        &mut events,
        1,
        event(600, Some(0), "failed", "exit 2"),
        Standing::News,
    );
    assert_eq!(told(&events).last().unwrap(), "failed×1");
}

#[test]
fn replicas_that_fail_in_turns_are_folded_each_by_itself() {
    let (mut logs, mut events) = log();
    for round in 0..30 {
        for replica in 0..3 {
            let failed = event(round, Some(replica), "failed", "exit 1");
            logs.append(&mut events, 1, failed, Standing::News);
        }
    }
    assert_eq!(told(&events), ["failed×30"; 3]);
}

#[test]
fn what_an_open_batch_holds_is_folded_only_when_it_cannot_be_undone_any_more() {
    let (mut logs, mut events) = log();
    let scaled = |at| event(at, None, "scaled", "scaled from 1 to 2 by alice");
    logs.append(&mut events, 1, scaled(1), Standing::Truth);
    events.take_writes();
    events.commit();
    logs.append(&mut events, 1, scaled(2), Standing::Truth);
    logs.append(&mut events, 1, scaled(3), Standing::Truth);
    assert_eq!(told(&events), ["scaled×1"; 3]);
    events.revert();
    logs.index(&events, 1);
    assert_eq!(told(&events), ["scaled×1"]);
    for at in 4..6 {
        logs.append(&mut events, 1, scaled(at), Standing::Truth);
        events.take_writes();
        events.commit();
    }
    logs.append(
        &mut events,
        1,
        event(7, None, "stopped", "by alice"),
        Standing::News,
    );
    assert_eq!(told(&events), ["scaled×2", "scaled×1", "stopped×1"]);
}

// P33: what happened can be read long after.
#[test]
fn the_last_failures_outlive_a_thousand_other_events_and_any_age() {
    let (mut logs, mut events) = log();
    for number in 0..15 {
        let text = format!("exit {number}");
        logs.append(
            &mut events,
            1,
            event(number, Some(0), "failed", &text),
            Standing::News,
        );
    }
    for number in 0..2 * EVENTS_KEPT {
        let text = format!("scaled to {number}");
        logs.append(
            &mut events,
            1,
            event(100 + number, None, "scaled", &text),
            Standing::News,
        );
    }
    assert_eq!(events.len() as u64, EVENTS_KEPT);
    let failures = |events: &Events| -> Vec<String> {
        let failed = events.iter().filter(|(_, it)| it.kind == "failed");
        failed.map(|(_, it)| it.text.clone()).collect()
    };
    let last: Vec<String> = (5..15).map(|number| format!("exit {number}")).collect();
    assert_eq!(failures(&events), last);
    logs.expire(&mut events, WallClock::from_unix_millis(1_000_000));
    assert_eq!(events.len(), FAILURES_KEPT);
    assert_eq!(failures(&events), last);
}

#[test]
fn the_log_of_what_is_gone_goes_with_it() {
    let (mut logs, mut events) = log();
    for of in [1, 2] {
        let lost = event(1, None, "lost", "silent");
        logs.append(&mut events, of, lost, Standing::News);
    }
    logs.keep(&mut events, |of| *of == 2);
    let left: Vec<_> = events.iter().map(|(key, _)| *key).collect();
    assert_eq!(left, [(2, 0)]);
}

#[test]
fn only_what_is_old_expires() {
    let (mut logs, mut events) = log();
    for at in 0..20 {
        let text = format!("scaled to {at}");
        logs.append(
            &mut events,
            1,
            event(at, None, "scaled", &text),
            Standing::News,
        );
    }
    logs.expire(&mut events, WallClock::from_unix_millis(7));
    assert_eq!(
        events.iter().next().unwrap().1.at,
        WallClock::from_unix_millis(7)
    );
    assert_eq!(events.len(), 13);
}

proptest! {
    /// Whatever is told, decided and undone: nothing is lost but by folding and by the bound.
    #[test]
    fn every_event_is_counted_in_some_entry_and_a_start_finds_the_same(
        ops in proptest::collection::vec((0..6_u8, 0..3_u32, 0..3_u8), 0..300),
    ) {
        let (mut logs, mut events) = log();
        let mut expected = 0_u64;
        let mut open = 0_u64;
        for (at, (what, replica, standing)) in ops.into_iter().enumerate() {
            let kind = ["failed", "ready", "not-ready", "restarted"].get(usize::from(what));
            match kind {
                Some(kind) => {
                    let event = event(at as u64, Some(replica), kind, kind);
                    let is_truth = standing == 0;
                    let standing = if is_truth { Standing::Truth } else { Standing::News };
                    logs.append(&mut events, 1, event, standing);
                    expected += 1;
                    open += u64::from(is_truth);
                }
                None if what == 4 => {
                    events.take_writes();
                    events.commit();
                    open = 0;
                }
                None => {
                    events.take_writes();
                    events.revert();
                    logs.index(&events, 1);
                    expected -= open;
                    open = 0;
                }
            }
            let counted: u64 = events.iter().map(|(_, it)| u64::from(it.times)).sum();
            prop_assert_eq!(counted, expected);
            let order: Vec<_> = events.iter().map(|(_, it)| it.first.unwrap_or(it.at)).collect();
            prop_assert!(order.is_sorted(), "{:?}", told(&events));
        }
    }
}

#[test]
fn a_crash_loop_of_a_service_is_told_once_and_found_again_by_a_start() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    for round in 1..=40 {
        rig.ready("web", 0);
        rig.status("web", 0, |status| {
            status.ready = false;
            status.state = State::Backoff;
            status.restarts = round;
            status.last_failure = Some(failure(exit(1), round));
        });
        rig.pass(Duration::from_secs(1));
    }
    let events = rig.events("web");
    let failed: Vec<_> = events.iter().filter(|it| it.kind == "failed").collect();
    assert_eq!(failed.iter().map(|it| it.times).sum::<u32>(), 40);
    assert!(events.len() < 12, "{events:#?}");
    assert_eq!(failed[0].host.as_ref().unwrap().as_str(), "n1");
    rig.pass(Duration::from_secs(2));
    let rig = rig.restart();
    assert_eq!(rig.events("web"), events);
}

#[test]
fn a_host_has_a_log_of_its_own_that_names_no_service() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let booted = super::HostFacts {
        boot_id: "boot-2".into(),
        published: Some([10, 0, 0, 9].into()),
        ..rig.facts("n1")
    };
    rig.tell(super::Input::HostReport(booted));
    rig.registry
        .tell_host(crate::identity::HostId(0), "drain", "by root".into());
    rig.settle();
    rig.pass(Duration::from_secs(2));
    let rig = rig.restart();
    let events = rig.registry.host_events(&"n1".parse().unwrap()).unwrap();
    let kinds: Vec<_> = events.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["joined", "rebooted", "address", "drain"]);
    assert!(events.iter().all(|it| !it.text.contains("web")));
    assert_eq!(rig.registry.host_events(&"n9".parse().unwrap()), None);
}
