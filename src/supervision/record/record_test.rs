//! A record is the run again, byte for byte, and says why.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::supervision::invariants_test::rules;
use crate::supervision::virtual_driver::{FAILS, World, config, give_up, probe, signal};
use crate::supervision::{
    Agenda, Config, Effect, ExitStatus, Machine, ProbeOutcome, RestartPolicy,
};
use crate::time::Now;

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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(500)))]

    #[test]
    fn a_record_of_late_wake_ups_gives_the_same_reports_again(rules in rules(), seed: u64) {
        // A real driver wakes late, and its probes take time: counted results are replayed earlier than they came.
        let (record, told) = late_run(rules, seed);
        let replayed = replay(&record).map_err(|error| TestCaseError::fail(format!("{error}\n{record}")))?;
        prop_assert_eq!(&replayed.differences, &[], "{}", record);
        let again = replayed.told.into_iter().map(|told| (told.at, told.report));
        prop_assert_eq!(again.collect::<Vec<_>>(), told);
        prop_assert!(why(&record).is_ok());
    }
}

/// Some hundred seconds of a service at the hands of chance, and what its machine reported.
fn late_run(rules: Config, seed: u64) -> (String, Vec<(Monotonic, Report)>) {
    let mut draws = 0;
    let mut chance = |below: u64| {
        draws += 1;
        crate::supervision::decision::mix(seed, draws) % below
    };
    let mut machine = Machine::new(rules, seed);
    let mut recorder = Recorder::default();
    let mut agenda = Agenda::new();
    let mut now = Monotonic::from_millis(1000);
    let clocks = |mono| Now {
        mono,
        ..Now::default()
    };
    let mut entries = vec![recorder.state(clocks(now), now, &machine)];
    let mut told = Vec::new();
    agenda.put(now, Event::Start);
    for _ in 0..400 {
        let due = machine.next_deadline();
        let Some(next) = agenda.next().into_iter().chain(due).min() else {
            break;
        };
        // Mostly a little late, now and then very late.
        let late = if chance(20) == 0 {
            chance(4000)
        } else {
            chance(30)
        };
        now = now.max(next) + Duration::from_millis(late);
        match chance(60) {
            0 => agenda.put(now, Event::UserRestart),
            1 => {
                // A new worker: its record goes on with the state.
                agenda.retain(|event| !matches!(event, Event::ProbeResult { .. }));
                let text = serde_json::to_string(&machine).unwrap();
                machine = serde_json::from_str(&text).unwrap();
                recorder = Recorder::default();
                entries.push(recorder.state(clocks(now), now, &machine));
                agenda.put(now, Event::taken_over(Duration::from_secs(chance(200))));
            }
            2 if chance(8) == 0 => agenda.put(now, Event::Stop { grace: None }),
            _ => {}
        }
        let mut out = Vec::new();
        while let Some(event) = agenda.take(now) {
            recorder.handle(&mut machine, now, event, None, &mut out, &mut entries);
        }
        recorder.on_deadline(&mut machine, now, &mut out, &mut entries);
        for effect in out {
            let (run, at) = (machine.run(), now + Duration::from_millis(chance(900)));
            match effect {
                Effect::Spawn { run } => {
                    agenda.put(at, Event::Spawned { run });
                    if chance(3) > 0 {
                        let lives = Duration::from_millis(chance(40_000));
                        let status = ExitStatus::Code(i32::try_from(chance(3)).unwrap());
                        agenda.put(at + lives, Event::Exited { run, status });
                    }
                }
                Effect::Term { run } if chance(4) > 0 => {
                    let status = signal(15);
                    agenda.put(at, Event::Exited { run, status });
                }
                Effect::KillGroup { .. } => {
                    let status = signal(9);
                    agenda.put(at, Event::Exited { run, status });
                    agenda.put(at, Event::GroupEmpty { run });
                }
                Effect::Probe {
                    run, kind, probe, ..
                } => {
                    let outcome = match chance(10) {
                        0 => ProbeOutcome::Inconclusive,
                        1 => ProbeOutcome::Timeout,
                        2..=4 => ProbeOutcome::Fail,
                        _ => ProbeOutcome::Ok,
                    };
                    let result = Event::ProbeResult {
                        run,
                        kind,
                        probe,
                        outcome,
                    };
                    agenda.put(at, result);
                }
                Effect::Report(report) => told.push((now, report)),
                _ => {}
            }
        }
    }
    recorder.count_down(&mut entries);
    (entries.iter().map(Entry::line).collect(), told)
}

/// The record of a run that its liveness probe ends, and of the next.
fn short_record() -> String {
    let mut rules = config(RestartPolicy::Always);
    rules.liveness = Some(probe(5, 10, 1, 3));
    rules.readiness = Some(probe(5, 10, 1, 3));
    let mut world = World::new(rules, "up");
    world.answers(0, ProbeKind::Liveness, 10_000, 40_000, FAILS);
    recorded(world, 60)
}

#[test]
fn a_state_whose_rules_lack_a_probe_that_is_due_has_an_end() {
    let damaged = short_record()
        .replace("\"readiness\":{\"initial", "\"reaeiness\":{\"initial")
        .replace("\"liveness\":{\"initial", "\"liveniss\":{\"initial");
    _ = replay(&damaged);
    let up = Machine::new(config(RestartPolicy::Always), 1);
    let mut rules = config(RestartPolicy::Always);
    rules.liveness = Some(probe(5, 10, 1, 3));
    rules.readiness = rules.liveness.clone();
    rules.startup = rules.liveness.clone();
    let mut machine = Machine::new(rules, 1);
    let mut out = Vec::new();
    let at = Monotonic::from_millis;
    machine.handle(at(0), Event::Start, &mut out);
    let run = machine.run();
    machine.handle(at(0), Event::Spawned { run }, &mut out);
    // The phase of the one with the rules of the other.
    let mut mixed = serde_json::to_value(&machine).unwrap();
    mixed["config"] = serde_json::to_value(&up).unwrap()["config"].clone();
    let mut mixed: Machine = serde_json::from_value(mixed).unwrap();
    mixed.on_deadline(at(60_000), &mut out);
    mixed.on_deadline(at(61_000), &mut out);
    assert_eq!(mixed.next_probe(), None);
    assert!(mixed.is_ready());
}

#[test]
fn no_number_in_a_record_makes_it_panic() {
    let record = short_record();
    let digits = |at: usize| record[at..].bytes().take_while(u8::is_ascii_digit).count();
    let begins = |at: &usize| {
        let bytes = record.as_bytes();
        bytes[*at].is_ascii_digit() && !bytes[at - 1].is_ascii_digit()
    };
    for at in (1..record.len()).filter(begins) {
        for number in [
            "0",
            "4294967295",
            "9223372036854775807",
            "18446744073709551615",
        ] {
            let end = at + digits(at);
            let changed = format!("{}{number}{}", &record[..at], &record[end..]);
            _ = replay(&changed);
            _ = why(&changed);
        }
    }
}

#[test]
fn what_a_probe_says_moves_no_cursor_of_who_asks_why() {
    let record = short_record();
    let says = |line: &str| match line.strip_suffix('}') {
        Some(rest) if line.contains("\"Fail\"") => {
            format!("{rest},\"text\":\"\\u001b[2J\\nbad\"}}\n")
        }
        _ => format!("{line}\n"),
    };
    let record: String = record.lines().map(says).collect();
    let bad = why(&record).unwrap();
    assert!(bad.iter().any(|turn| turn.sentence.contains("bad")));
    for turn in bad {
        assert!(!turn.sentence.contains(char::is_control), "{turn:?}");
    }
}
