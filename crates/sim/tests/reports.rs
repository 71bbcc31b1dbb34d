//! Public reports about restarts and probes that take minutes: tried on virtual time. Each names its case.

use portreeve_sim::{Played, Scenario, play};

/// A service with one port; what follows is its tables, then its script.
fn played(head: &str, more: &str) -> Played {
    let text = format!(
        "{head}\ncomplete = true\n[service]\nkind = \"service\"\nname = \"it\"\ncommand = [\"./it\"]\n\
         [service.ports]\nhttp = \"any\"\n{more}"
    );
    let scenario = Scenario::from_toml(&text, |_| Err("no file".to_owned()));
    let scenario = scenario.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    play(&scenario).unwrap_or_else(|cause| panic!("{cause}"))
}

fn assert_met(played: &Played) {
    let unmet: Vec<_> = played.unmet.iter().map(ToString::to_string).collect();
    let lines: Vec<_> = played.timeline.iter().map(ToString::to_string).collect();
    assert!(
        unmet.is_empty(),
        "{}\nbut seen:\n{}",
        unmet.join("\n"),
        lines.join("\n")
    );
}

#[test]
fn a_thousand_probes_without_a_change_are_one_report() {
    // P23
    assert_met(&played(
        "until = \"17m\"\nexpect = [\"0s READY\"]",
        "[service.readiness]\ncommand = [\"date\"]\ninterval = \"1s\"\n[[run]]\n",
    ));
}

#[test]
fn a_model_that_loads_long_is_left_alone_and_published_when_it_answers() {
    // P28: eight minutes, thirty minutes, and a small one after 20 s; the window is the same.
    for (loads, ready) in [("8m", "8m"), ("30m", "30m"), ("20s", "20s")] {
        assert_met(&played(
            &format!("until = \"40m\"\nexpect = [\"{ready} READY\"]\nnever = [\"term\"]"),
            &format!(
                "[service.startup]\nhttp = {{ path = \"/health\" }}\ninterval = \"5s\"\nwithin = \"31m\"\n\
                 [service.liveness]\nhttp = {{ path = \"/health\" }}\n\
                 [service.readiness]\nhttp = {{ path = \"/health\" }}\n\
                 [[run]]\n[[run.probe]]\nto = \"{loads}\"\nanswer = \"fail\"\n"
            ),
        ));
    }
}

#[test]
fn the_end_of_the_start_window_is_a_failed_start_with_that_reason() {
    // P28
    assert_met(&played(
        "until = \"1m6s\"\n\
         expect = [\"1m term\", \"1m BACKOFF 1s: startup\", \"1m1s RESTARTED 1: startup\"]\nnever = [\"READY\"]",
        "[service.startup]\nhttp = { path = \"/health\" }\ninterval = \"5s\"\nwithin = \"1m\"\n\
         [service.restart]\nbackoff = { jitter = 0.0 }\n\
         [[run]]\n[[run.probe]]\nanswer = \"fail\"\n",
    ));
}

#[test]
fn a_busy_service_that_answers_late_is_never_restarted_by_the_defaults() {
    // P30: answers take from half a second to just under the default timeout, and one in a while fails.
    let mut script = String::from("[[run]]\n");
    for (place, takes) in (0..60).zip(["500ms", "2s900ms", "1s", "2s", "2s500ms"].iter().cycle()) {
        script.push_str(&format!(
            "[[run.probe]]\nfrom = \"{}s\"\nto = \"{}s\"\nanswer = \"{}\"\ntakes = \"{takes}\"\n",
            place * 10,
            place * 10 + 10,
            // Two failures in a row are no unbroken run of three.
            if place % 5 > 2 { "fail" } else { "ok" },
        ));
    }
    let played = played(
        "until = \"10m\"\nexpect = [\"500ms READY\"]\nnever = [\"term\", \"BACKOFF\", \"RESTARTED\"]",
        &format!(
            "[service.liveness]\nhttp = {{ path = \"/health\" }}\n\
             [service.readiness]\ncommand = [\"true\"]\nfailure_threshold = 1000\n{script}"
        ),
    );
    assert_met(&played);
}

#[test]
fn a_permanent_cause_is_tried_at_growing_distances_and_then_given_up() {
    // P32: five restarts in ten minutes.
    assert_met(&played(
        "until = \"20m\"\nexpect = [\n\
         \"0s BACKOFF 1s\", \"1s RESTARTED 1\", \"1s BACKOFF 2s\", \"3s RESTARTED 2\", \"3s BACKOFF 4s\",\n\
         \"7s RESTARTED 3\", \"7s BACKOFF 8s\", \"15s RESTARTED 4\", \"15s BACKOFF 16s\",\n\
         \"31s RESTARTED 5\", \"31s GAVEUP after 5 restarts: exit 1\"]",
        "[service.restart]\nbackoff = { jitter = 0.0 }\ngive_up = { max_restarts = 5, window = \"10m\" }\n\
         [[run]]\nexit = { code = 1 }\n",
    ));
}
