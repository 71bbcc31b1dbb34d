//! The cases of cases/probes.md that the machine decides, by their numbers. Those of the probes themselves
//! (43 to 49) are the worker's; what a driver adds to 43 is the time of a timeout, which the virtual one keeps.

use std::time::Duration;

use super::ProbeKind::{Liveness, Readiness, Startup};
use super::RestartPolicy::{Always, Never, OnFailure};
use super::virtual_driver::{Answer, EVER, FAILS, World, config, give_up, probe, seconds, signal};
use super::{Config, Event, Final, ProbeOutcome, RestartPolicy, State};

const SUCCEEDS: Answer = Answer::Gives(ProbeOutcome::Ok);

fn always(change: impl FnOnce(&mut Config)) -> Config {
    with(Always, change)
}

fn with(policy: RestartPolicy, change: impl FnOnce(&mut Config)) -> Config {
    let mut rules = config(policy);
    change(&mut rules);
    rules
}

/// What is said until then, `time what` each.
fn said(
    rules: Config,
    script: &str,
    until_s: u64,
    prepare: impl FnOnce(&mut World),
) -> Vec<String> {
    let mut world = World::new(rules, script);
    prepare(&mut world);
    world.run_until(until_s * 1000);
    world.log
}

/// One probe a second whose results are these, `S` and `F`; the last one stays.
fn results(world: &mut World, kind: super::ProbeKind, results: &str) {
    let last = results.len() - 1;
    for (second, result) in results.bytes().enumerate() {
        let answer = if result == b'S' { SUCCEEDS } else { FAILS };
        let from = second as u64 * 1000;
        let to = if second == last { EVER } else { from + 1000 };
        world.answers(0, kind, from, to, answer);
    }
}

#[test]
fn nothing_is_ready_before_its_first_success_and_nothing_killed_before_a_failure() {
    // probes 37
    let rules = always(|c| c.readiness = Some(probe(5, 5, 1, 3)));
    assert_eq!(said(rules, "up", 100, |_| {}), ["5 R"]);
    // No readiness probe: after `min_up`, not before.
    let rules = always(|c| c.min_up = seconds(7));
    assert_eq!(said(rules, "up", 100, |_| {}), ["7 R"]);
    // Startup is unknown until its first success: neither ready nor killed.
    let rules = always(|c| c.startup = Some(probe(0, 5, 1, 100)));
    let mut world = World::new(rules, "up");
    world.answers(0, Startup, 0, EVER, FAILS);
    world.run_until(100_000);
    assert_eq!(world.log, [] as [&str; 0]);
    assert_eq!(world.machine.state(), State::Startup);
    // Liveness begins alive: one failure less than the threshold changes nothing.
    let rules = always(|c| c.liveness = Some(probe(0, 1, 1, 3)));
    let quiet = said(rules, "up", 100, |world| results(world, Liveness, "FFS"));
    assert_eq!(quiet, ["1 R"]);
}

#[test]
fn only_failures_in_a_row_take_readiness_away() {
    // probes 38
    let rules = always(|c| c.readiness = Some(probe(0, 1, 1, 3)));
    let seen = said(rules.clone(), "up", 100, |world| {
        results(world, Readiness, "SFFFS");
    });
    assert_eq!(seen, ["0 R", "3 N(probe)", "4 R"]);
    // probes 39
    let seen = said(rules, "up", 100, |world| {
        results(world, Readiness, "SFFSFFS");
    });
    assert_eq!(seen, ["0 R"]);
    let rules = always(|c| c.liveness = Some(probe(0, 1, 1, 3)));
    let seen = said(rules, "up", 100, |world| results(world, Liveness, "FFSFFS"));
    assert_eq!(seen, ["1 R"]);
}

#[test]
fn readiness_may_ask_for_successes_in_a_row_each_time_anew() {
    // probes 40
    let rules = always(|c| {
        c.readiness = Some(probe(0, 1, 1, 1));
        c.readiness.as_mut().unwrap().success_threshold = 3;
    });
    let seen = said(rules, "up", 100, |world| {
        results(world, Readiness, "SSSFSSFSSS");
    });
    assert_eq!(seen, ["2 R", "3 N(probe)", "9 R"]);
}

#[test]
fn the_first_probe_comes_after_the_initial_delay_however_long_the_interval() {
    // probes 41
    for interval in [1, 10, 3600] {
        let rules = always(|c| c.readiness = Some(probe(10, interval, 1, 1)));
        let mut world = World::new(rules, "up");
        world.run_until(9_999);
        assert_eq!(world.log, [] as [&str; 0]);
        world.run_until(10_000);
        assert_eq!(world.log, ["10 R"]);
    }
}

#[test]
fn a_dead_service_is_killed_within_delay_periods_and_one_timeout() {
    // probes 42: 10 + 2 * 5 + 3
    let rules = always(|c| c.liveness = Some(probe(10, 5, 3, 3)));
    let seen = said(rules, "up", 23, |world| {
        world.answers(0, Liveness, 0, EVER, Answer::Hangs);
    });
    assert_eq!(seen[..3], ["1 R", "23 N(liveness)", "23 T"]);
    // A timeout beyond the period: the next one begins where the one before ended, so no two overlap.
    let rules = always(|c| c.liveness = Some(probe(0, 10, 11, 3)));
    let seen = said(rules, "up", 33, |world| {
        world.answers(0, Liveness, 0, EVER, Answer::Hangs);
    });
    assert_eq!(seen[..3], ["1 R", "33 N(liveness)", "33 T"]);
}

#[test]
fn an_answer_after_the_timeout_is_a_failure_and_one_before_it_a_success() {
    // probes 43, with the driver's clock
    for (takes, expected) in [(900, vec!["0.9 R"]), (1100, vec![])] {
        let rules = always(|c| c.readiness = Some(probe(0, 2, 1, 1)));
        let answer = Answer::GivesAfter(takes, ProbeOutcome::Ok);
        let seen = said(rules, "up", 100, |world| {
            world.answers(0, Readiness, 0, EVER, answer);
        });
        assert_eq!(seen, expected);
    }
}

#[test]
fn the_threshold_orders_one_restart_and_the_next_run_begins_at_zero() {
    // probes 50
    let rules = always(|c| c.liveness = Some(probe(0, 1, 1, 3)));
    let seen = said(rules.clone(), "up | up", 100, |world| {
        world.answers(0, Liveness, 2000, EVER, FAILS);
        // It takes its time to end, and every probe would fail meanwhile.
        world.scripts[0].on_term = Some((5000, signal(15)));
        // Two failures less than a third: the first run's do not count.
        world.answers(1, Liveness, 0, 2000, FAILS);
    });
    assert_eq!(
        seen,
        [
            "1 R",
            "4 N(liveness)",
            "4 T",
            "9 B(liveness,1)",
            "10 S(1)",
            "11 R"
        ]
    );
    // Also after a crash that no probe caused.
    let seen = said(rules, "3.5:x1 | up", 100, |world| {
        world.answers(0, Liveness, 2000, EVER, FAILS);
        world.answers(1, Liveness, 0, 2000, FAILS);
    });
    assert_eq!(
        seen,
        ["1 R", "3.5 N(x1)", "3.5 B(x1,1)", "4.5 S(1)", "5.5 R"]
    );
}

#[test]
fn an_exit_takes_readiness_at_once_without_a_threshold() {
    // probes 51
    let rules = always(|c| c.readiness = Some(probe(0, 60, 1, 100)));
    let seen = said(rules, "7.123:x0 | up", 8, |_| {});
    assert_eq!(seen[..2], ["0 R", "7.123 N(x0)"]);
}

#[test]
fn a_stop_during_failing_liveness_is_the_users() {
    // probes 52: after two failures of three, and while the kill is under way.
    for (stop_at, expected) in [
        (3_500, vec!["1 R", "3.5 N(stop)", "3.5 T", "8.5 STOPPED"]),
        (4_500, vec!["1 R", "4 N(liveness)", "4 T", "9 STOPPED"]),
    ] {
        let rules = always(|c| c.liveness = Some(probe(0, 1, 1, 3)));
        let seen = said(rules, "up", 100, |world| {
            world.answers(0, Liveness, 2000, EVER, FAILS);
            world.scripts[0].on_term = Some((5000, signal(15)));
            world.stop_at(stop_at, None);
        });
        assert_eq!(seen, expected);
    }
}

#[test]
fn liveness_waits_for_the_start_and_the_last_allowed_failure_kills() {
    // probes 54
    let rules = always(|c| {
        c.startup = Some(probe(0, 10, 1, 30));
        c.liveness = Some(probe(0, 1, 1, 1));
    });
    let kill = |fails_until: u64| {
        let mut world = World::new(rules.clone(), "up");
        world.answers(0, Startup, 0, fails_until, FAILS);
        // It would kill at the first look.
        world.answers(0, Liveness, 0, fails_until, FAILS);
        world.run_until(290_500);
        world
    };
    // 29 failures, at 0 to 280 s, then a success.
    let world = kill(281_000);
    assert_eq!(world.log, [] as [&str; 0]);
    assert_eq!(world.machine.state(), State::Up);
    let world = kill(EVER);
    assert_eq!(world.log, ["290 T", "290 B(startup,1)"]);
}

#[test]
fn a_new_worker_keeps_readiness_and_counts_what_it_missed_once() {
    // probes 55
    let adopt = Event::Adopt {
        spread: Some(seconds(3)),
        stale: false,
    };
    let rules = always(|c| c.readiness = Some(probe(0, 5, 1, 3)));
    let seen = said(rules.clone(), "up", 100, |world| {
        world.at(20_000, adopt.clone());
    });
    assert_eq!(seen, ["0 R"]);
    // It died meanwhile: the exit is seen at the adoption.
    let mut world = World::new(rules, "20:x1 | up");
    world.at(20_000, adopt);
    world.run_until(100_000);
    assert_eq!(
        world.log,
        ["0 R", "20 N(x1)", "20 B(x1,1)", "21 S(1)", "21 R"]
    );
    assert_eq!(world.machine.restarts(), 1);
}

#[test]
fn the_policy_says_which_ends_are_followed_by_a_restart() {
    // probes 56
    for (policy, end, expected) in [
        (Always, "2:x0", "2 B(x0,1)"),
        (Always, "2:x3", "2 B(x3,1)"),
        (OnFailure, "2:x0", "2 SUCCEEDED"),
        (OnFailure, "2:x3", "2 B(x3,1)"),
        (Never, "2:x0", "2 SUCCEEDED"),
        (Never, "2:x3", "2 FAILED(x3)"),
    ] {
        let seen = said(config(policy), end, 2, |_| {});
        assert_eq!(seen.last().unwrap(), expected, "{policy:?} {end}");
    }
}

#[test]
fn waits_double_to_the_longest_and_a_stable_run_begins_anew() {
    // probes 57
    let rules = always(|c| {
        c.backoff.initial = seconds(10);
        c.backoff.max = seconds(300);
        c.backoff.reset_after = seconds(300);
    });
    let waits = |script: &str, until_s| -> Vec<String> {
        let seen = said(rules.clone(), script, until_s, |_| {});
        let wait = |entry: String| entry.split_once("B(x1,").map(|(_, wait)| wait.to_owned());
        seen.into_iter().filter_map(wait).collect()
    };
    let first = waits("0:x1 *", 1000);
    assert_eq!(
        first[..7],
        ["10)", "20)", "40)", "80)", "160)", "300)", "300)"]
    );
    assert_eq!(waits("0:x1 | 300:x1", 400), ["10)", "10)"]);
    assert_eq!(waits("0:x1 | 299.999:x1", 400), ["10)", "20)"]);
}

#[test]
fn jitter_shortens_each_wait_by_its_share_at_most() {
    // probes 58, on the whole machine: the seed decides, and only downwards.
    let rules = always(|c| c.backoff.jitter_permille = 250);
    let seen = said(rules, "0:x1 *", 1000, |_| {});
    let waits = seen.iter().filter_map(|entry| entry.split_once("B(x1,"));
    let waits: Vec<f64> = waits
        .map(|(_, wait)| wait.trim_end_matches(')').parse().unwrap())
        .collect();
    for (nth, wait) in waits.iter().enumerate() {
        let whole = 60_f64.min(f64::from(1 << nth.min(6)));
        assert!(*wait <= whole && *wait >= whole * 0.75, "{nth}: {wait}");
    }
    assert!(waits.iter().any(|wait| wait.fract() > 0.0));
}

#[test]
fn the_restart_beyond_the_window_is_refused_at_the_exit() {
    // probes 59: five spread over 601 s go on, a sixth within 600 s does not.
    let rules = |window| {
        always(|c| {
            c.backoff.initial = Duration::from_millis(100);
            c.backoff.max = Duration::from_millis(100);
            c.give_up = Some(give_up(5, window));
        })
    };
    // Exits at 0, then each 120.1 s: the first is 600.5 s old at the sixth.
    let script = "0:x1 | 120:x1 *";
    let seen = said(rules(600), script, 5000, |_| {});
    assert!(
        !seen.iter().any(|entry| entry.contains("GAVEUP")),
        "{seen:?}"
    );
    let seen = said(rules(601), script, 5000, |_| {});
    assert_eq!(seen.last().unwrap(), "600.5 GAVEUP(x1,5)");
}

#[test]
fn the_count_of_restarts_never_falls_and_says_why() {
    // probes 60
    let rules = always(|c| c.backoff.reset_after = seconds(1));
    let mut world = World::new(rules, "3:x1 *");
    world.restores = true;
    for at in [10_500, 30_500] {
        world.at(at, Event::UserRestart);
        let adopt = Event::Adopt {
            spread: None,
            stale: true,
        };
        world.at(at + 2_000, adopt);
    }
    world.run_until(100_000);
    let counts = world.log.iter().filter_map(|entry| {
        let (_, count) = entry.split_once("S(")?;
        count
            .trim_end_matches(",user)")
            .trim_end_matches(')')
            .parse()
            .ok()
    });
    let counts: Vec<u32> = counts.collect();
    assert!(counts.len() > 10 && counts.is_sorted(), "{counts:?}");
    let users = world
        .log
        .iter()
        .filter(|entry| entry.ends_with(",user)"))
        .count();
    assert_eq!(users, 2);
    assert_eq!(world.machine.restarts() as usize + users, counts.len());
    assert_eq!(world.machine.user_restarts(), 2);
}

#[test]
fn a_machine_knows_no_wall_clock() {
    // probes 61: whatever the wall clock does, all that goes in is monotonic. That nothing of this room reads a
    // clock is held by clippy.toml; that only differences count is shown by another beginning.
    let play = |begin: u64| {
        let rules = always(|c| c.give_up = Some(give_up(3, 60)));
        let mut machine = super::Machine::new(rules, 7);
        let mut said = Vec::new();
        let mut now = crate::time::Monotonic::from_millis(begin);
        machine.handle(now, Event::Start, &mut said);
        while machine.state()
            != State::Final(Final::GaveUp {
                reason: super::Reason::Exit(super::ExitStatus::Code(1)),
                count: 3,
            })
        {
            let run = machine.run();
            let status = super::ExitStatus::Code(1);
            for event in [
                Event::Spawned { run },
                Event::Exited { run, status },
                Event::GroupEmpty { run },
            ] {
                machine.handle(now, event, &mut said);
            }
            if let Some(at) = machine.next_deadline() {
                now = at;
                machine.on_deadline(now, &mut said);
            }
        }
        (said, now.as_millis() - begin)
    };
    assert_eq!(play(0), play(1 << 40));
    assert_eq!(play(0).1, 7_000);
}
