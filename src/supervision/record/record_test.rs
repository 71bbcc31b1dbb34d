//! A record is the run again, byte for byte, and says why.

use super::*;
use crate::supervision::virtual_driver::{FAILS, World, config, give_up, probe};
use crate::supervision::{ProbeKind, RestartPolicy};

/// Plays a world whose driver records, and gives its record.
fn recorded(mut world: World, until_s: u64) -> String {
    world.record();
    world.run_until(until_s * 1000);
    world.record_text()
}

fn sentences(record: &str) -> Vec<String> {
    let turns = why(record).unwrap();
    turns.into_iter().map(|turn| turn.sentence).collect()
}

#[test]
fn equal_results_of_a_probe_write_nothing_and_are_counted() {
    let mut rules = config(RestartPolicy::Always);
    rules.liveness = Some(probe(0, 10, 1, 3));
    rules.readiness = Some(probe(0, 1, 1, 3));
    let mut world = World::new(rules, "20000:x1");
    world.answers(0, ProbeKind::Readiness, 10_000_000, 10_001_000, FAILS);
    let record = recorded(world, 20_001);
    // State, start, spawn, two first results; one failure and its counts, the next success; then the end.
    assert!(record.lines().count() < 20, "{record}");
    assert!(record.contains("\"count\":9999"), "{record}");
    let replayed = replay(&record).unwrap();
    assert_eq!(replayed.differences, []);
    assert_eq!(replayed.told.len(), 5);
}

#[test]
fn a_line_that_was_cut_short_loses_only_what_follows_up_to_the_next_state() {
    let world = World::new(config(RestartPolicy::Always), "5:x1 *");
    let record = recorded(world, 10);
    let cut = &record[..record.len() - 20];
    let text = format!("{cut}\n{record}");
    let replayed = replay(&text).unwrap();
    assert_eq!((replayed.unread, replayed.differences.len()), (1, 0));
    let half = &record[record.find('\n').unwrap() + 1..];
    assert_eq!(replay(half), Err(ReplayError::NoState));
    assert_eq!(replay(""), Err(ReplayError::NoState));
}

#[test]
fn a_changed_record_is_told() {
    let world = World::new(config(RestartPolicy::Always), "5:x1 *");
    let record = recorded(world, 10);
    let changed = record.replacen("\"secs\":1,", "\"secs\":3,", 1);
    assert_ne!(record, changed);
    let replayed = replay(&changed).unwrap();
    assert!(!replayed.differences.is_empty());
}

#[test]
fn the_rule_and_the_boundary_are_named() {
    let mut rules = config(RestartPolicy::Always);
    rules.liveness = Some(probe(5, 10, 1, 3));
    let mut world = World::new(rules, "up");
    world.answers(0, ProbeKind::Liveness, 20_000, u64::MAX, FAILS);
    let said = sentences(&recorded(world, 50));
    assert_eq!(
        said,
        [
            "ready: up for min_up 1s at 1.0 s",
            "liveness: 3 consecutive failures (failure_threshold 3) at 45.0 s, first at 25.0 s",
            "backoff: restart 1 in a row, delay 1s = min(1m, 1s·2^0); liveness probe failed 3 times",
            "restarted: restart 1, its wait was over and the run before was gone",
            "ready: up for min_up 1s at 47.0 s",
        ]
    );
    let mut rules = config(RestartPolicy::Always);
    rules.give_up = Some(give_up(3, 60));
    let said = sentences(&recorded(World::new(rules, "0:x1 *"), 60));
    assert_eq!(
        said[4],
        "backoff: restart 3 in a row, delay 4s = min(1m, 1s·2^2); exit 1"
    );
    assert_eq!(
        said.last().unwrap(),
        "gave up: 4th failure within window 1m (3 restarts granted at 0.0, 1.0, 3.0 s); exit 1"
    );
}
