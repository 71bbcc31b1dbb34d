//! Whatever processes, users and workers do: what a replica may never do. Random scenarios, each named by its seed
//! and printed whole when it fails.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what a test cannot do is its failure"
)]

use std::fmt::Write;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use portreeve::supervision::{Final, Reason, Report};
use portreeve::time::Monotonic;
use portreeve_sim::{Entry, Scenario, What, play};

/// So many scenarios of fixed seeds and as many of fresh ones, or ten times as many where time allows.
const SCENARIOS: u64 = 50;

#[test]
fn no_scenario_breaks_a_rule() {
    let long = std::env::var_os("PORTREEVE_LONG").is_some();
    let count = if long { SCENARIOS * 10 } else { SCENARIOS };
    let fresh = RandomState::new().build_hasher().finish() >> 1;
    for seed in (0..count).chain(fresh..fresh + count) {
        let (text, rules) = scenario(seed);
        let scenario = Scenario::from_toml(&text, |_| unreachable!());
        let scenario = scenario.unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
        let played = play(&scenario).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        let again = play(&scenario).unwrap();
        assert_eq!(played.timeline, again.timeline, "seed {seed}");
        for replica in 0..2 {
            let own: Vec<_> = played
                .timeline
                .iter()
                .filter(|it| it.replica == Some(replica))
                .collect();
            if let Err(broken) = check(&own, &rules) {
                let lines: String = own.iter().map(|entry| format!("{entry}\n")).collect();
                panic!("seed {seed}, replica {replica}: {broken}\n{text}\n{lines}");
            }
        }
    }
}

/// The numbers that a scenario's rules are held against.
struct Rules {
    max_restarts: usize,
    window: Duration,
    longest_wait: Duration,
    drain_and_grace: Duration,
}

/// An onlooker, who knows the rules but not the machine.
fn check(seen: &[&Entry], rules: &Rules) -> Result<(), String> {
    let (mut ready, mut alive, mut ended) = (false, false, false);
    let mut stopped: Option<Monotonic> = None;
    let mut restarts = 0;
    let mut granted: Vec<Monotonic> = Vec::new();
    for entry in seen {
        let at = entry.at;
        let broken = |what: &str| Err(format!("{what} at {} ms", at.as_millis()));
        match &entry.what {
            What::Spawned if alive => return broken("two live runs"),
            What::Spawned if stopped.is_some() => return broken("a start after the stop"),
            What::Spawned => alive = true,
            What::Exited(_) if !alive => return broken("an end without a start"),
            What::Exited(_) => alive = false,
            What::User(act) if act == "stop" => stopped = stopped.or(Some(at)),
            What::Kill => {
                let latest = stopped.map(|stop| stop + rules.drain_and_grace);
                if latest.is_some_and(|latest| at > latest) {
                    return broken("a kill after the grace");
                }
            }
            What::Term if !alive => return broken("a signal to nobody"),
            What::Report(_) if ended => return broken("a report after the final one"),
            What::Report(report) => match report {
                Report::Ready if ready || !alive => {
                    return broken("ready twice or without a process");
                }
                Report::Ready => ready = true,
                Report::NotReady(_) if !ready => return broken("not ready twice"),
                Report::NotReady(_) => ready = false,
                Report::Backoff { delay, .. } => {
                    if ready {
                        return broken("it waits and is still ready");
                    }
                    if *delay > rules.longest_wait {
                        return broken("a wait above the longest");
                    }
                    granted.push(at);
                    let inside = granted.iter().filter(|one| at.since(**one) < rules.window);
                    if inside.count() > rules.max_restarts {
                        return broken("more restarts than the window may hold");
                    }
                }
                Report::Restarted { count, reason, .. } => {
                    restarts += u32::from(*reason != Reason::User);
                    if *count != restarts {
                        return broken("a restart that is not counted once");
                    }
                }
                Report::Stuck => {}
                Report::Final(end) => {
                    if ready || alive {
                        return broken("final while ready or alive");
                    }
                    if let Final::GaveUp { .. } = end {
                        let newest = granted.iter().rev().take(rules.max_restarts);
                        // At the exit; what is left of the group may have taken a while after it.
                        if newest.count() < rules.max_restarts {
                            return broken("it gave up before the window was full");
                        }
                    }
                    ended = true;
                }
            },
            _ => {}
        }
    }
    Ok(())
}

/// A scenario of two replicas for a seed, and its rules.
fn scenario(seed: u64) -> (String, Rules) {
    let mut dice = Dice(seed);
    let initial = 100 + dice.below(3000);
    let longest = initial + dice.below(20_000);
    let max_restarts = dice.below(6);
    let window = 200_000 + dice.below(2_000_000);
    let (drain, grace) = (dice.below(5000), dice.below(8000));
    let policy = dice.one(&["always", "always", "always", "on-failure", "never"]);
    let mut text = format!(
        "until = \"20m\"\nreplicas = 2\nseed = {}\n\
         [service]\nkind = \"service\"\nname = \"web\"\ncommand = [\"web\"]\nports = {{ http = \"any\" }}\nmin_up = \"{}ms\"\n\
         stop = {{ drain = \"{drain}ms\", grace = \"{grace}ms\", unkillable_after = \"{}ms\" }}\n\
         [service.restart]\npolicy = \"{policy}\"\nno_restart_exit = [78]\n\
         backoff = {{ initial = \"{initial}ms\", max = \"{longest}ms\", jitter = 0.{} }}\n\
         give_up = {{ max_restarts = {max_restarts}, window = \"{window}ms\" }}\n",
        dice.below(1000),
        dice.below(3000),
        1000 + dice.below(60_000),
        dice.below(10),
    );
    for kind in ["startup", "liveness", "readiness"] {
        if dice.below(3) > 0 {
            // Writing to a string cannot fail.
            _ = writeln!(
                text,
                "[service.{kind}]\nhttp = {{}}\ninterval = \"{}ms\"\ntimeout = \"{}ms\"\ninitial_delay = \"{}ms\"\nfailure_threshold = {}",
                500 + dice.below(10_000),
                100 + dice.below(4000),
                dice.below(5000),
                1 + dice.below(4),
            );
        }
    }
    for _ in 0..dice.below(4) {
        run(&mut text, &mut dice);
    }
    for _ in 0..dice.below(4) {
        let act = dice.one(&["restart", "restart", "stop"]);
        _ = writeln!(
            text,
            "[[user]]\nat = \"{}ms\"\nact = \"{act}\"",
            dice.below(900_000)
        );
    }
    if dice.below(2) == 0 {
        let from = dice.below(600_000);
        let (gone, back) = dice.one(&[("killed", "back"), ("stopped", "continued")]);
        let to = from + 1 + dice.below(200_000);
        _ = writeln!(
            text,
            "[[worker]]\n{gone} = \"{from}ms\"\n{back} = \"{to}ms\""
        );
    }
    let rules = Rules {
        max_restarts: usize::try_from(max_restarts).unwrap(),
        window: Duration::from_millis(window),
        longest_wait: Duration::from_millis(longest),
        // A worker that is away cannot kill in time, so a kill is then as late as the worker.
        drain_and_grace: Duration::from_millis(drain + grace + 200_000),
    };
    (text, rules)
}

fn run(text: &mut String, dice: &mut Dice) {
    text.push_str("[[run]]\n");
    if dice.below(3) > 0 {
        let end = dice.one(&[
            "code = 0",
            "code = 1",
            "code = 78",
            "signal = \"SEGV\"",
            "signal = \"TERM\"",
            "lost = true",
        ]);
        let after = dice.one(&[0, 10, 3000, 40_000]) + dice.below(2000);
        _ = writeln!(text, "exit = {{ after = \"{after}ms\", {end} }}");
    }
    match dice.below(4) {
        0 => text.push_str("ignores_term = true\n"),
        1 => {
            _ = writeln!(
                text,
                "on_term = {{ takes = \"{}ms\", code = 0 }}",
                dice.below(9000)
            );
        }
        _ => {}
    }
    match dice.below(8) {
        0 => text.push_str("leftover_stays = true\n"),
        1 => {
            _ = writeln!(text, "leftover = \"{}ms\"", dice.below(90_000));
        }
        2 => text.push_str("spawn_error = \"ENOENT\"\n"),
        3 => {
            _ = writeln!(text, "hangs = \"{}ms\"", dice.below(90_000));
        }
        _ => {}
    }
    for _ in 0..dice.below(3) {
        let answer = dice.one(&["ok", "fail", "none", "inconclusive"]);
        let from = dice.below(60_000);
        _ = writeln!(
            text,
            "[[run.probe]]\nfrom = \"{from}ms\"\nto = \"{}ms\"\nanswer = \"{answer}\"\ntakes = \"{}ms\"",
            from + 1 + dice.below(60_000),
            dice.below(3000)
        );
    }
}

/// The same throws for the same seed: splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        let place = usize::try_from(self.below(of.len() as u64)).unwrap();
        of[place]
    }
}
