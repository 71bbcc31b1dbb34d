//! The cases of supervision.md 2.1, each with its exact times.

use super::ProbeKind::{Liveness, Readiness, Startup};
use super::RestartPolicy::{Always, Never, OnFailure};
use super::record::{replay, why};
use super::virtual_driver::{
    Answer, EVER, FAILS, Group, World, config, give_up, probe, seconds, signal,
};
use super::{Config, Event, ExitCause, ExitStatus, ProbeOutcome, RestartPolicy, Then};

/// One row: the rules, what each run does, what else happens, what is to be seen.
struct Case {
    number: u32,
    rules: Config,
    script: &'static str,
    prepare: fn(&mut World),
    until_s: u64,
    /// In this order, other reports between them; `only` in front: these and nothing else.
    expected: &'static str,
    /// Words that no report begins with.
    absent: &'static [&'static str],
}

fn case(number: u32, policy: RestartPolicy, script: &'static str, expected: &'static str) -> Case {
    Case {
        number,
        rules: config(policy),
        script,
        prepare: |_| {},
        until_s: 100,
        expected,
        absent: &[],
    }
}

impl Case {
    fn rules(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.rules);
        self
    }

    /// The liveness probe most rows have: first at 5 s, every 10 s, within 1 s, three failures.
    fn live(self) -> Self {
        self.rules(|c| c.liveness = Some(probe(5, 10, 1, 3)))
    }

    fn prepare(mut self, prepare: fn(&mut World)) -> Self {
        self.prepare = prepare;
        self
    }

    fn until(mut self, until_s: u64) -> Self {
        self.until_s = until_s;
        self
    }

    fn absent(mut self, words: &'static [&'static str]) -> Self {
        self.absent = words;
        self
    }

    fn play(&self, how: fn(&mut World)) -> World {
        let mut world = World::new(self.rules.clone(), self.script);
        (self.prepare)(&mut world);
        how(&mut world);
        world.run_until(self.until_s * 1000);
        world
    }

    fn check(&self) {
        let log = self.play(|_| {}).log;
        let number = self.number;
        let (only, expected) = match self.expected.strip_prefix("only ") {
            Some(rest) => (true, rest),
            None => (false, self.expected),
        };
        let expected: Vec<_> = expected
            .split("; ")
            .filter(|item| !item.is_empty())
            .collect();
        let mut rest = log.iter();
        for item in &expected {
            assert!(
                rest.any(|seen| seen == item),
                "case {number}: no {item} in {log:#?}"
            );
        }
        assert!(
            !only || log.len() == expected.len(),
            "case {number}: more than expected: {log:#?}"
        );
        for word in self.absent {
            let seen = log.iter().find(|entry| {
                let (_, what) = entry.split_once(' ').unwrap();
                what.starts_with(word) || entry == word
            });
            assert_eq!(seen, None, "case {number}: {log:#?}");
        }
    }
}

#[test]
fn every_case_of_the_page_happens_at_its_exact_time() {
    for case in cases() {
        case.check();
    }
}

#[test]
fn storing_and_reading_back_at_every_step_changes_nothing() {
    for case in cases() {
        let plain = case.play(|_| {}).log;
        let restored = case.play(|world| world.restores = true).log;
        assert_eq!(plain, restored, "case {}", case.number);
    }
}

#[test]
fn the_record_of_every_case_gives_the_same_reports_again() {
    // supervision 2.1: a trace replayed through the machine gives byte-equal reports.
    for case in cases() {
        let world = case.play(World::record);
        let record = world.record_text();
        let replayed = replay(&record).unwrap_or_else(|error| panic!("{}: {error}", case.number));
        assert_eq!(replayed.differences, [], "case {}", case.number);
        let recorded = record.matches("\"reports\":").count();
        assert!(replayed.told.len() >= recorded, "case {}", case.number);
        why(&record).unwrap();
    }
}

#[test]
fn repeated_and_old_events_change_nothing() {
    for case in cases() {
        let plain = case.play(|_| {}).log;
        let repeated = case.play(|world| world.repeats_events = true).log;
        assert_eq!(plain, repeated, "case {}", case.number);
    }
}

fn cases() -> Vec<Case> {
    let mut all = ends_and_restarts();
    all.extend(waits_and_giving_up());
    all.extend(probes());
    all.extend(stops_groups_and_users());
    let mut numbers: Vec<_> = all.iter().map(|case| case.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=60).collect::<Vec<_>>());
    all
}

fn ends_and_restarts() -> Vec<Case> {
    vec![
        case(
            1,
            Always,
            "5:x0 | up",
            "only 1 R; 5 N(x0); 5 B(x0,1); 6 S(1); 7 R",
        ),
        case(2, OnFailure, "5:x0", "only 1 R; 5 N(x0); 5 SUCCEEDED"),
        case(
            3,
            OnFailure,
            "5:x1 | up",
            "only 1 R; 5 N(x1); 5 B(x1,1); 6 S(1); 7 R",
        ),
        case(4, Never, "5:x1", "only 1 R; 5 N(x1); 5 FAILED(x1)"),
        case(5, Never, "5:x0", "only 1 R; 5 N(x0); 5 SUCCEEDED"),
        case(6, OnFailure, "5:sig15", "5 B(sig15,1); 6 S(1)"),
        case(7, OnFailure, "5:x143", "5 B(x143,1); 6 S(1)"),
        case(8, OnFailure, "5:x3", "5 N(x3); 5 SUCCEEDED").rules(|c| {
            c.success_exit.insert(ExitCause::Code(3));
        }),
        case(9, Always, "5:x78", "5 N(x78); 5 FAILED(x78)")
            .rules(|c| {
                c.no_restart_exit.insert(ExitCause::Code(78));
            })
            .absent(&["S("]),
        case(50, OnFailure, "5:unknown", "5 B(unknown,1); 6 S(1)"),
        case(55, Always, "1.0:x1", "only 1 B(x1,1); 2 S(1); 3 R"),
        case(
            59,
            Always,
            "5:x1",
            "only 1 R; 5 N(x1); 5 B(x1,1); 6 PORT_CONFLICT",
        )
        .prepare(|world| world.stranger_from = 5500),
    ]
}

fn waits_and_giving_up() -> Vec<Case> {
    let eight = |c: &mut Config| c.backoff.max = seconds(8);
    let eight_ten = |c: &mut Config| {
        c.backoff.max = seconds(8);
        c.backoff.reset_after = seconds(10);
    };
    vec![
        case(
            10,
            Always,
            "0:x1 *",
            "0 B(x1,1); 1 B(x1,2); 3 B(x1,4); 7 B(x1,8); 15 B(x1,8); 23 B(x1,8); 31 B(x1,8); 39 B(x1,8)",
        )
        .rules(eight)
        .absent(&["R"]),
        case(
            11,
            Always,
            "0:x1 | 0:x1 | 10:x1",
            "1 S(1); 3 S(2); 13 B(x1,1)",
        )
        .rules(eight_ten),
        case(12, Always, "0:x1 | 0:x1 | 9.999:x1", "12.999 B(x1,4)").rules(eight_ten),
        case(13, Always, "0:x1 | 14:x1", "6 R; 15 N(x1); 15 B(x1,2)")
            .rules(eight_ten)
            .rules(|c| c.readiness = Some(probe(0, 1, 1, 3)))
            .prepare(|world| world.answers(1, Readiness, 0, 5000, FAILS)),
        case(14, Always, "0:x1 | 30:x1", "31 B(x1,2)")
            .rules(eight_ten)
            .rules(|c| c.readiness = Some(probe(0, 1, 1, 3)))
            .prepare(|world| world.answers(1, Readiness, 0, EVER, FAILS))
            .until(31)
            .absent(&["R"]),
        case(
            15,
            Always,
            "0:x1 *",
            "only 0 B(x1,1); 1 S(1); 1 B(x1,2); 3 S(2); 3 B(x1,4); 7 S(3); 7 GAVEUP(x1,3)",
        )
        .rules(|c| c.give_up = Some(give_up(3, 60))),
        case(16, Always, "0:x1 | 9:x1", "10 B(x1,2); 12 S(2)")
            .rules(|c| c.give_up = Some(give_up(1, 10))),
        case(17, Always, "0:x1 | 8.999:x1", "9.999 GAVEUP(x1,1)")
            .rules(|c| c.give_up = Some(give_up(1, 10))),
        case(18, Always, "5:x1", "only 1 R; 5 N(x1); 5 GAVEUP(x1,0)")
            .rules(|c| c.give_up = Some(give_up(0, 60))),
        case(
            19,
            Always,
            "50:x1 | 4.9:x1 | 3.9:x1 | 1.9:x1",
            "50.1 S(1); 55.1 S(2); 59.1 S(3); 61 GAVEUP(x1,3)",
        )
        .rules(|c| {
            c.backoff.initial = std::time::Duration::from_millis(100);
            c.backoff.max = c.backoff.initial;
            c.backoff.reset_after = seconds(1000);
            c.give_up = Some(give_up(3, 60));
        }),
        case(
            20,
            Always,
            "enoent *",
            "only 0 B(start-failed,1); 1 S(1); 1 B(start-failed,2); 3 S(2); 3 B(start-failed,4); 7 S(3); 7 GAVEUP(start-failed,3)",
        )
        .rules(|c| c.give_up = Some(give_up(3, 60))),
        case(49, Always, "2:x9 *", "3 S(1); 5 N(x9); 5 GAVEUP(x9,1)").rules(|c| {
            let mut rule = give_up(1, 60);
            rule.then = Then::Requeue {
                rest: seconds(60),
                max_requeues: 5,
            };
            c.give_up = Some(rule);
        }),
        case(
            51,
            Always,
            "70:x1 *",
            "70 B(x1,1); 71 S(1); 141 B(x1,1); 142 S(2); 212 B(x1,1); 213 S(3); 283 B(x1,1); 284 S(4)",
        )
        .until(300),
        case(
            52,
            Always,
            "59:x1 *",
            "59 B(x1,1); 60 S(1); 119 B(x1,2); 121 S(2); 180 B(x1,4); 184 S(3); 243 B(x1,8); 251 S(4); 310 B(x1,16); 326 S(5); 385 B(x1,32); 417 S(6); 476 B(x1,60); 536 S(7); 595 B(x1,60)",
        )
        .until(600),
        case(
            58,
            Always,
            "0:x1 *",
            "1 S(1); 3 S(2); 7 S(3); 15 S(4); 31 S(5); 63 S(6); 123 S(7); 183 S(8); 243 S(9); 303 S(10); 303 GAVEUP(x1,10)",
        )
        // What an unwritten rule becomes with this backoff: supervision.md 1.2.
        .rules(|c| c.give_up = Some(give_up(10, 606)))
        .until(400),
    ]
}

fn probes() -> Vec<Case> {
    vec![
        case(
            21,
            Always,
            "up",
            "only 1 R; 45 N(liveness); 45 T; 45.5 B(liveness,1); 46.5 S(1); 47.5 R",
        )
        .live()
        .prepare(|world| {
            world.answers(0, Liveness, 20_000, EVER, FAILS);
            world.scripts[0].on_term = Some((500, signal(15)));
        }),
        case(22, Always, "up", "46 N(liveness); 46 T; 46.5 B(liveness,1)")
            .live()
            .prepare(|world| {
                world.answers(0, Liveness, 20_000, EVER, Answer::Hangs);
                world.scripts[0].on_term = Some((500, signal(15)));
            }),
        case(23, Always, "up", "only 1 R").live().prepare(|world| {
            world.scripts[0].probes.extend([
                (Liveness, 20_000, 40_000, FAILS),
                (Liveness, 50_000, 70_000, FAILS),
            ]);
        }),
        case(24, OnFailure, "up", "45.5 B(liveness,1); 46.5 S(1)")
            .live()
            .prepare(|world| {
                world.answers(0, Liveness, 20_000, EVER, FAILS);
                world.scripts[0].on_term = Some((500, ExitStatus::Code(0)));
            }),
        case(
            25,
            Always,
            "up",
            "only 1 R; 45 N(liveness); 45 T; 55 K; 55 B(liveness,1); 56 S(1); 57 R",
        )
        .live()
        .prepare(|world| {
            world.answers(0, Liveness, 20_000, EVER, FAILS);
            world.scripts[0].on_term = None;
        }),
        case(26, Always, "45:x1", "45 N(x1); 45 B(x1,1)")
            .live()
            .absent(&["T"])
            .prepare(|world| {
                world.answers(0, Liveness, 20_000, EVER, FAILS);
            }),
        case(
            27,
            Always,
            "5.5:x1",
            "only 1 R; 5.5 N(x1); 5.5 B(x1,1); 6.5 S(1); 7.5 R",
        )
        .rules(|c| c.liveness = Some(probe(5, 10, 1, 1)))
        .prepare(|world| {
            let late = Answer::GivesAfter(900, ProbeOutcome::Fail);
            world.answers(0, Liveness, 0, EVER, late);
        }),
        case(
            28,
            Always,
            "36:x1 | up",
            "only 1 R; 36 N(x1); 36 B(x1,1); 37 S(1); 38 R",
        )
        .live()
        .prepare(|world| {
            world.answers(0, Liveness, 20_000, EVER, FAILS);
            world.answers(1, Liveness, 0, 20_000, FAILS);
        }),
        case(29, Always, "up", "only 12 R; 42 N(probe); 57 R")
            .rules(|c| {
                let mut ready = probe(2, 5, 1, 3);
                ready.success_threshold = 2;
                c.readiness = Some(ready);
            })
            .prepare(|world| {
                world.scripts[0].probes.extend([
                    (Readiness, 0, 5000, FAILS),
                    (Readiness, 30_000, 50_000, FAILS),
                ]);
            }),
        case(30, Always, "up", "only 1 R"),
        case(
            31,
            Always,
            "3.2:x1 | up",
            "only 0 R; 3.2 N(x1); 3.2 B(x1,1); 4.2 S(1); 4.2 R",
        )
        .rules(|c| c.readiness = Some(probe(0, 1, 1, 3))),
        case(
            32,
            Always,
            "up",
            "only 0 R; 2 N(probe); 4 R; 6 N(probe); 8 R",
        )
        .rules(|c| c.readiness = Some(probe(0, 2, 1, 1)))
        .prepare(|world| {
            world.scripts[0].probes.extend([
                (Readiness, 2000, 3000, FAILS),
                (Readiness, 6000, 7000, FAILS),
            ]);
        }),
        case(33, Always, "up", "only ")
            .rules(|c| c.readiness = Some(probe(0, 1, 1, 3)))
            .prepare(|world| world.answers(0, Readiness, 0, EVER, FAILS)),
        case(34, Always, "up", "only 15 R")
            .rules(|c| {
                c.startup = Some(probe(0, 5, 1, 6));
                c.liveness = Some(probe(0, 10, 1, 3));
                c.readiness = Some(probe(0, 1, 1, 3));
            })
            .prepare(|world| {
                world.scripts[0]
                    .probes
                    .extend([(Startup, 0, 12_000, FAILS), (Liveness, 0, 13_000, FAILS)]);
            }),
        case(
            35,
            Always,
            "up",
            "only 11 T; 11 B(startup,1); 12 S(1); 13 R",
        )
        .rules(|c| c.startup = Some(probe(0, 5, 1, 3)))
        .prepare(|world| world.answers(0, Startup, 0, EVER, Answer::Hangs)),
        case(53, Always, "up", "only 0 R; 33 N(probe)")
            .rules(|c| c.readiness = Some(probe(0, 5, 1, 3)))
            .prepare(|world| {
                world.answers(0, Readiness, 18_000, EVER, FAILS);
                let spread = Some(seconds(3));
                world.at(
                    20_000,
                    Event::Adopt {
                        spread,
                        stale: false,
                    },
                );
            }),
        case(54, Always, "up", "only 1 R").live().prepare(|world| {
            let nothing = Answer::Gives(ProbeOutcome::Inconclusive);
            world.answers(0, Liveness, 0, 30_000, nothing);
        }),
        case(56, Always, "up", "30 N(liveness); 30 T; 30 B(liveness,1)")
            .rules(|c| c.liveness = Some(probe(0, 10, 10, 3)))
            .prepare(|world| world.answers(0, Liveness, 0, EVER, Answer::Hangs)),
        case(57, Always, "up", "33 N(liveness); 33 T; 33 B(liveness,1)")
            .rules(|c| c.liveness = Some(probe(0, 10, 11, 3)))
            .prepare(|world| world.answers(0, Liveness, 0, EVER, Answer::Hangs)),
        // `within = "12s"` with this interval is four failures: profile.md.
        case(
            60,
            Always,
            "up",
            "only 15 T; 15 B(startup,1); 16 S(1); 17 R",
        )
        .rules(|c| c.startup = Some(probe(0, 5, 1, 4)))
        .prepare(|world| world.answers(0, Startup, 0, EVER, FAILS)),
    ]
}

fn stops_groups_and_users() -> Vec<Case> {
    vec![
        case(36, Always, "up", "only 1 R; 20 N(stop); 20 T; 23 STOPPED")
            .rules(|c| c.liveness = Some(probe(5, 5, 1, 1)))
            .prepare(|world| {
                world.scripts[0].on_term = Some((3000, ExitStatus::Code(0)));
                world.answers(0, Liveness, 20_000, EVER, FAILS);
                world.stop_at(20_000, None);
            }),
        case(37, Always, "up", "only 1 R; 20 N(stop); 22 T; 25 STOPPED")
            .rules(|c| c.stop.drain = seconds(2))
            .prepare(|world| {
                world.scripts[0].on_term = Some((3000, ExitStatus::Code(0)));
                world.stop_at(20_000, None);
            }),
        case(
            38,
            Always,
            "5:x1",
            "only 1 R; 5 N(x1); 5 B(x1,1); 5.5 STOPPED",
        )
        .prepare(|world| world.stop_at(5500, None)),
        case(39, Always, "up", "only 2 T; 2.1 STOPPED").prepare(|world| {
            world.scripts[0].spawn_takes = 2000;
            world.scripts[0].on_term = Some((100, signal(15)));
            world.stop_at(1000, None);
        }),
        case(
            40,
            Always,
            "up",
            "only 1 R; 5 N(liveness); 5 T; 10 K; 10 STOPPED",
        )
        .rules(|c| c.liveness = Some(probe(5, 10, 1, 1)))
        .prepare(|world| {
            world.answers(0, Liveness, 0, EVER, FAILS);
            world.scripts[0].on_term = None;
            world.stop_at(8000, Some(2));
        }),
        case(
            41,
            Always,
            "up",
            "only 1 R; 20 N(stop); 20 T; 30 K; 30 STOPPED",
        )
        .prepare(|world| {
            world.scripts[0].on_term = None;
            world.stop_at(20_000, None);
        }),
        case(
            42,
            Always,
            "up",
            "only 1 R; 20 N(stop); 20 T; 25 K; 25 STOPPED",
        )
        .prepare(|world| {
            world.scripts[0].on_term = None;
            world.stop_at(20_000, Some(5));
            world.stop_at(22_000, Some(60));
        }),
        case(
            43,
            Always,
            "20:x1",
            "only 1 R; 20 N(stop); 20 T; 20 STOPPED",
        )
        .prepare(|world| world.stop_at(20_000, None)),
        case(
            44,
            Always,
            "5:x1",
            "only 1 R; 5 N(x1); 5 B(x1,1); 8 S(1); 9 R",
        )
        .prepare(|world| world.scripts[0].group = Group::After(3000)),
        case(45, Always, "5:x1", "only 1 R; 5 N(x1); 5 B(x1,1); 65 STUCK")
            .prepare(|world| world.scripts[0].group = Group::Never)
            .until(1000),
        case(
            46,
            Always,
            "5:x1",
            "only 1 R; 5 N(x1); 5 B(x1,1); 65 STUCK; 100 S(1); 101 R",
        )
        .prepare(|world| world.scripts[0].group = Group::At(100_000))
        .until(200),
        case(
            47,
            Always,
            "up",
            "only 1 R; 20 N(user); 20 T; 21 S(0,user); 22 R",
        )
        .prepare(|world| {
            world.scripts[0].on_term = Some((1000, ExitStatus::Code(0)));
            world.at(20_000, Event::UserRestart);
        }),
        case(
            48,
            Always,
            "5:x1",
            "only 1 R; 5 N(x1); 5 B(x1,30); 10 S(0,user); 11 R",
        )
        .rules(|c| c.backoff.initial = seconds(30))
        .prepare(|world| world.at(10_000, Event::UserRestart)),
    ]
}

#[test]
fn a_restart_by_the_user_begins_the_waits_anew() {
    // The second crash waits 2 s. The user does not, in the wait or before the last process is gone, and
    // the third crash waits 1 s again.
    for (asked_at, empty_after) in [(4_000, 0), (3_500, 1_000)] {
        let mut world = World::new(config(Always), "1:x1 | 1:x1 | 1:x1 | up");
        world.scripts[1].group = Group::After(empty_after);
        world.at(0, Event::Start);
        world.at(asked_at, Event::UserRestart);
        world.run_until(10_000);
        let waits: Vec<_> = world
            .log
            .iter()
            .filter(|seen| seen.contains(" B("))
            .collect();
        assert_eq!(
            waits,
            ["1 B(x1,1)", "3 B(x1,2)", "5 B(x1,1)"],
            "{:#?}",
            world.log
        );
    }
}

#[test]
fn a_run_has_no_limit() {
    // With the widest intervals that a profile may name no deadline is near, with the narrowest many pass.
    let mut rules = config(Always);
    rules.give_up = Some(give_up(10, 606));
    rules.startup = Some(probe(0, 10, 3, 60));
    rules.liveness = Some(probe(0, 3600, 5, 3));
    rules.readiness = Some(probe(0, 3600, 5, 1));
    let mut world = World::new(rules, "up");
    world.at(0, Event::Start);
    world.run_until(400 * 86_400 * 1000);
    assert_eq!(world.log, ["0 R"]);
    assert_eq!(world.machine.restarts(), 0);
    assert!(world.machine.is_ready());
}

#[test]
fn a_restart_of_a_living_run_begins_the_waits_anew() {
    // supervision 1.3 rule 8: k = 0. Two crashes in a row, the user's restart, and the next crash waits 1 s.
    let mut world = World::new(config(Always), "1:x1 | 1:x1 | up | 1:x1 | up");
    world.at(6_000, Event::UserRestart);
    world.run_until(10_000);
    let waits = world.log.iter().filter(|seen| seen.contains(" B("));
    let waits: Vec<_> = waits.map(String::as_str).collect();
    assert_eq!(waits, ["1 B(x1,1)", "3 B(x1,2)", "7 B(x1,1)"]);
}

#[test]
fn a_second_stop_while_draining_makes_the_grace_only_shorter() {
    // supervision 1.3 rule 12
    for (first, second) in [(2, 60), (60, 2)] {
        let mut rules = config(Always);
        rules.stop.drain = seconds(5);
        let mut world = World::new(rules, "up");
        world.scripts[0].on_term = None;
        world.stop_at(20_000, Some(first));
        world.stop_at(22_000, Some(second));
        world.run_until(100_000);
        assert_eq!(
            world.log,
            ["1 R", "20 N(stop)", "25 T", "27 K", "27 STOPPED"]
        );
    }
}

#[test]
fn what_was_ready_serves_while_it_drains_and_not_once_it_is_signalled() {
    // endpoints 22
    let serving = |stopped_at: u64, moments: [u64; 3]| {
        let mut rules = config(Always);
        rules.stop.drain = seconds(5);
        let mut world = World::new(rules, "up");
        world.scripts[0].on_term = None;
        world.stop_at(stopped_at, Some(60));
        moments.map(|at| {
            world.run_until(at);
            world.machine.standing().serving
        })
    };
    assert_eq!(
        serving(20_000, [19_000, 24_000, 26_000]),
        [false, true, false]
    );
    // Nobody was ever sent to this one.
    assert_eq!(serving(500, [400, 600, 6_000]), [false; 3]);
}

#[test]
fn a_result_that_says_nothing_breaks_no_row() {
    // supervision 1.3 rule 4
    let nothing = Answer::Gives(ProbeOutcome::Inconclusive);
    let mut rules = config(Always);
    rules.liveness = Some(probe(5, 10, 1, 3));
    rules.readiness = Some(probe(0, 10, 1, 3));
    if let Some(readiness) = &mut rules.readiness {
        readiness.success_threshold = 2;
    }
    let mut world = World::new(rules, "up");
    // Liveness fails at 5 and 15, says nothing at 25, fails at 35; readiness says nothing between two successes.
    world.answers(0, Liveness, 0, EVER, FAILS);
    world.answers(0, Liveness, 20_000, 30_000, nothing);
    world.answers(0, Readiness, 5_000, 15_000, nothing);
    world.run_until(35_000);
    let begin = ["20 R", "35 N(liveness)", "35 T"];
    assert_eq!(world.log[..3], begin, "{:#?}", world.log);
}

#[test]
fn a_new_worker_repeats_no_startup_probe() {
    // supervision 1.3 rule 13
    let mut rules = config(Always);
    rules.startup = Some(probe(0, 5, 1, 3));
    rules.readiness = Some(probe(0, 5, 1, 3));
    let mut world = World::new(rules, "up");
    world.answers(0, Startup, 10_000, EVER, FAILS);
    world.at(20_000, Event::taken_over(std::time::Duration::ZERO));
    world.run_until(100_000);
    assert_eq!(world.log, ["0 R"]);
}

#[test]
fn the_window_forgets_one_restart_at_a_time() {
    // supervision 1.3 rule 10: at 11 that of 0 is out and that of 6 is not, so 13 is the third within 10 s.
    let mut rules = config(Always);
    rules.backoff.initial = std::time::Duration::from_millis(100);
    rules.backoff.max = rules.backoff.initial;
    rules.give_up = Some(give_up(2, 10));
    let mut world = World::new(rules, "0:x1 | 5.9:x1 | 4.9:x1 | 1.9:x1 | up");
    world.run_until(20_000);
    let last = world.log.last().map(String::as_str);
    assert_eq!(last, Some("13 GAVEUP(x1,3)"), "{:#?}", world.log);
}

#[test]
fn an_order_during_a_start_that_works_is_no_excuse_for_its_end() {
    let mut machine = super::Machine::new(config(Always), 1);
    let at = crate::time::Monotonic::from_millis;
    let mut out = Vec::new();
    machine.handle(at(0), Event::Start, &mut out);
    machine.handle(at(10), Event::UserRestart, &mut out);
    let run = machine.run();
    machine.handle(at(20), Event::Spawned { run }, &mut out);
    let status = ExitStatus::Code(1);
    machine.handle(at(5_000), Event::Exited { run, status }, &mut out);
    machine.handle(at(5_000), Event::GroupEmpty { run }, &mut out);
    assert_eq!(machine.next_deadline(), Some(at(6_000)));
    machine.on_deadline(at(6_000), &mut out);
    let run = machine.run();
    machine.handle(at(6_000), Event::Spawned { run }, &mut out);
    assert_eq!((machine.restarts(), machine.user_restarts()), (1, 0));
}

#[test]
fn a_new_worker_counts_failures_from_zero() {
    // supervision 1.3 rule 13: two failures before it and two after it are no three in a row.
    let mut rules = config(Always);
    rules.liveness = Some(probe(5, 10, 1, 3));
    let mut world = World::new(rules, "up");
    world.answers(0, Liveness, 20_000, 52_000, FAILS);
    // Probes fail at 25 and 35; those of the next worker begin within ten seconds of 37.
    world.at(37_000, Event::taken_over(std::time::Duration::ZERO));
    world.run_until(100_000);
    assert_eq!(world.log, ["1 R"]);
}

#[test]
fn no_order_starts_a_replica_again_whose_port_a_stranger_has() {
    let mut machine = super::Machine::new(config(Always), 1);
    let at = crate::time::Monotonic::from_millis;
    let mut out = Vec::new();
    machine.handle(at(0), Event::Start, &mut out);
    let run = machine.run();
    let conflict = Event::PortConflict {
        run,
        port: crate::port::Port::MAX,
        protocol: crate::port::Protocol::Tcp,
        pid: None,
        comm: None,
    };
    machine.handle(at(1), conflict, &mut out);
    machine.handle(at(2), Event::UserRestart, &mut out);
    machine.handle(at(3), Event::GroupEmpty { run }, &mut out);
    assert!(machine.is_final(), "{machine:?}");
}

#[test]
fn a_kill_for_want_of_memory_is_no_success_whatever_its_signal() {
    let mut rules = config(OnFailure);
    rules.success_exit.insert(ExitCause::Signal(9));
    for (oom, succeeded) in [(false, true), (true, false)] {
        let status = ExitStatus::Signal {
            signal: 9,
            core: false,
            oom,
        };
        let success = super::decision::is_success(status, &rules);
        assert_eq!(success, succeeded);
    }
}
