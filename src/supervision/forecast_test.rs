//! The arithmetic of the forecast, in exact numbers; where the machine can show the same, it does.

use super::super::decision::Budget;
use super::super::virtual_driver::{World, config, give_up, probe, seconds};
use super::*;
use crate::identity::Run;
use crate::supervision::Then;
use crate::time::Monotonic;
use proptest::prelude::*;

fn secs(best: f64, worst: f64) -> Between {
    Between {
        best: Duration::from_secs_f64(best),
        worst: Duration::from_secs_f64(worst),
    }
}

/// The rules of a profile that writes none.
fn unwritten() -> Config {
    let mut rules = config(RestartPolicy::Always);
    rules.backoff.jitter_permille = 100;
    rules.give_up = Some(GiveUp {
        max_restarts: 10,
        window: Window::Span(GiveUp::unwritten_window(10, &rules.backoff, None)),
        then: Then::Exit,
    });
    rules
}

fn forecast(rules: &Config) -> Forecast {
    Forecast::of(rules, &ProbeForms::default())
}

#[test]
fn the_unwritten_rule_gives_up_303_s_after_the_first_failure_within_606_s() {
    let said = forecast(&unwritten());
    let waits: Vec<_> = said.waits.iter().map(|wait| wait.worst.as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60]);
    assert_eq!(said.waits[0], secs(0.9, 1.0));
    assert_eq!(said.waits[6], secs(54.0, 60.0));
    let rule = said.give_up.unwrap();
    assert_eq!((rule.max_restarts, rule.window), (10, Some(seconds(606))));
    assert_eq!(rule.crashing, Some(secs(272.7, 303.0)));
    assert_eq!(rule.never_up, None);
}

#[test]
fn the_machine_gives_up_when_the_forecast_says_so() {
    for (restarts, window) in [(10, 606), (3, 60), (1, 10), (0, 10)] {
        let mut rules = config(RestartPolicy::Always);
        rules.give_up = Some(give_up(restarts, window));
        let said = forecast(&rules).give_up.unwrap().crashing.unwrap();
        let mut world = World::new(rules, "0:x1 *");
        world.run_until(1_000_000);
        let end = format!("{} GAVEUP(x1,{restarts})", said.worst.as_secs());
        assert_eq!(world.log.last(), Some(&end));
    }
}

#[test]
fn a_start_up_that_never_succeeds_counts_with_its_whole_length() {
    let mut rules = unwritten();
    let timing = probe(10, 5, 2, 6);
    let window = GiveUp::unwritten_window(10, &rules.backoff, Some(&timing));
    // Twice 303 s of waits and 10 start-ups of 40 s.
    assert_eq!(window, seconds(1406));
    rules.startup = Some(timing);
    rules.give_up.as_mut().unwrap().window = Window::Span(window);
    let rule = forecast(&rules).give_up.unwrap();
    // Eleven start-ups of 35 s where every probe is refused, of 37 s where every probe hangs.
    assert_eq!(
        rule.never_up,
        Some(secs(11.0 * 35.0 + 272.7, 11.0 * 37.0 + 303.0))
    );
    rules.give_up = Some(give_up(10, 600));
    let said = forecast(&rules);
    assert_eq!(said.give_up.unwrap().never_up, None);
    assert!(
        said.warnings
            .iter()
            .any(|text| text.starts_with("start-ups that time out"))
    );
    rules.give_up.as_mut().unwrap().window = Window::Lifetime;
    assert!(forecast(&rules).give_up.unwrap().never_up.is_some());
}

#[test]
fn a_hang_is_noticed_by_the_threshold_of_whole_timeouts() {
    // interval 10 s, timeout 3 s, 3 failures.
    let mut rules = unwritten();
    rules.liveness = Some(probe(0, 10, 3, 3));
    assert_eq!(forecast(&rules).hang, Some(secs(23.0, 33.0)));
    // A timeout beyond the interval sets the pace.
    rules.liveness = Some(probe(0, 10, 11, 3));
    assert_eq!(forecast(&rules).hang, Some(secs(33.0, 43.0)));
    rules.liveness = None;
    rules.readiness = Some(probe(0, 5, 3, 3));
    let said = forecast(&rules);
    assert_eq!((said.hang, said.not_ready), (None, Some(secs(13.0, 18.0))));
    assert!(said.warnings[0].contains("hangs is never restarted"));
    assert_eq!(said.exit, secs(0.0, 0.0));
}

#[test]
fn restarts_and_reports_of_an_hour_are_bounded_by_waits_and_window() {
    let mut rules = unwritten();
    // Ten in any 606 s: six such windows touch an hour.
    let said = forecast(&rules);
    assert_eq!((said.restarts_per_hour, said.reports_per_hour), (60, 240));
    // Without the rule the worst pattern is one stable run and five quick ones: 5 in 91 s, less jitter.
    rules.give_up = None;
    rules.backoff.jitter_permille = 0;
    // 39.6 such patterns fit in an hour; 5 x 40, and what the bound is wide.
    assert_eq!(forecast(&rules).restarts_per_hour, 202);
    // A readiness probe that turns at each chance: twice in 4 intervals of 5 s.
    rules.give_up = Some(give_up(3, 3600));
    rules.readiness = Some(probe(0, 5, 1, 3));
    let said = forecast(&rules);
    assert_eq!((said.restarts_per_hour, said.reports_per_hour), (3, 372));
    rules.restart = RestartPolicy::Never;
    rules.readiness = None;
    let said = forecast(&rules);
    assert_eq!(
        (said.restarts_per_hour, said.reports_per_hour, said.waits),
        (0, 0, vec![])
    );
}

proptest! {
    #[test]
    fn no_pattern_of_runs_is_granted_more_restarts_in_an_hour(
        initial in 100u64..5_000, factor in 1u64..100, reset in 100u64..100_000,
        limit in proptest::option::of((0u32..20, 1u64..4000)),
        quick in 1u32..12, more in 0u64..2_000,
    ) {
        let mut rules = config(RestartPolicy::Always);
        rules.backoff.initial = Duration::from_millis(initial);
        rules.backoff.max = Duration::from_millis(initial * factor);
        rules.backoff.reset_after = Duration::from_millis(reset);
        rules.give_up = limit.map(|(restarts, window)| give_up(restarts, window));
        let bound = forecast(&rules).restarts_per_hour;
        // The quick ones, then one that is just stable, or a little longer.
        let mut budget = Budget::default();
        let (mut now, mut grants) = (Monotonic::from_millis(0), Vec::new());
        for nth in 0.. {
            if now > Monotonic::from_millis(2 * 3_600_000) {
                break;
            }
            if nth % quick == 0 {
                budget.reset_backoff();
            }
            let granted = budget.grant(now, &rules, 7, Run(nth));
            let waited = granted.unwrap_or(seconds(60));
            if granted.is_ok() {
                grants.push(now);
            }
            let stable = (nth + 1) % quick == 0;
            let runs = if stable { reset + more } else { 0 };
            now = now + waited + Duration::from_millis(runs);
        }
        let mut first = 0;
        for (nth, at) in grants.iter().enumerate() {
            while at.since(grants[first]) >= HOUR {
                first += 1;
            }
            let inside = nth + 1 - first;
            prop_assert!(inside <= bound as usize, "{} of {}", inside, bound);
        }
    }
}

#[test]
fn a_thousand_replicas_with_two_probes_in_ten_seconds_cost_what_was_measured() {
    let mut rules = unwritten();
    rules.liveness = Some(probe(0, 10, 3, 3));
    rules.readiness = Some(probe(0, 10, 3, 3));
    let percent_of_a_thousand = |form| {
        let forms = ProbeForms {
            liveness: Some(form),
            readiness: Some(form),
        };
        Forecast::of(&rules, &forms).probe_cpu_ppb as f64 * 1000.0 / 1e7
    };
    // supervision.md, section 3: 16 % of one core by command, 0.5 % by tcp.
    assert!((percent_of_a_thousand(ProbeForm::Shell) - 15.66).abs() < 0.01);
    assert!((percent_of_a_thousand(ProbeForm::Tcp) - 0.46).abs() < 0.01);
    assert!((percent_of_a_thousand(ProbeForm::Listening { ports: 2 }) - 0.4).abs() < 0.01);
}

#[test]
fn the_forecast_reads_as_lines_and_as_json() {
    let mut rules = unwritten();
    rules.liveness = Some(probe(0, 10, 3, 3));
    rules.readiness = Some(probe(0, 5, 3, 3));
    let forms = ProbeForms {
        liveness: Some(ProbeForm::Http),
        readiness: Some(ProbeForm::Http),
    };
    let said = Forecast::of(&rules, &forms);
    assert_eq!(
        said.to_string(),
        "waits before a restart: 900ms to 1s, 1s800ms to 2s, 3s600ms to 4s, 7s200ms to 8s, 14s400ms to 16s, 28s800ms to 32s, 54s to 1m, and so on; they begin anew after a run that was stable for 1m\n\
         gives up: at the failure after 10 restarts within 10m6s; where every run fails at once, 4m32s700ms to 5m3s after the first failure\n\
         hang, until it is ended: 23s to 33s\n\
         hang, until its endpoint goes: 13s to 18s\n\
         exit, until it is noticed: at once\n\
         reports at worst: 600 an hour, with 60 restarts; none without a change\n\
         probes of a replica that is up: 0.00195 % of a processor"
    );
    let json = serde_json::to_value(&said).unwrap();
    assert_eq!(json["waits"][0]["best"], "900ms");
    assert_eq!(json["give_up"]["window"], "10m6s");
    assert_eq!(json["hang"]["worst"], "33s");
    assert_eq!(json["probe_cpu_ppb"], 19_500);
    assert_eq!(serde_json::from_value::<Forecast>(json).unwrap(), said);
}
