//! Why a replica stands where it stands, told from what its worker recorded.

use std::path::{Path, PathBuf};

use crate::world::{World, kill};

#[test]
fn a_replica_that_gave_up_says_which_rule_and_which_boundary() {
    let Some(world) = World::new() else { return };
    let profile = world.profile(
        "broken.toml",
        "name = \"broken\"\ncommand = \"exit 3\"\n[restart]\n\
         backoff = { initial = \"100ms\", max = \"1s\" }\ngive_up = { max_restarts = 2, window = \"1m\" }\n",
    );
    let data = world.path("data");
    let data = data.to_str().unwrap();
    let _dev = world.dev(&["--data", data, &profile]);
    world.replica_when("broken", 0, "gave up", |replica| {
        replica["state"] == "gave up"
    });
    let said = world.ok(&["why", "broken/0"]);
    let first = said.lines().next().unwrap();
    assert!(
        first
            .starts_with("broken/0: gave up: 3rd failure within window 1m (2 restarts granted at "),
        "{said}"
    );
    assert!(first.ends_with("; exit 3"), "{said}");
    assert!(
        said.contains("backoff: restart 2 in a row, delay "),
        "{said}"
    );
    // P33: the state, the count and the window are there, and the command that reverts it.
    assert!(said.contains("`portreeve start broken."), "{said}");
    assert!(said.contains("what led there:"), "{said}");
    let turns = world.json(&["why", "broken"]);
    assert_eq!(turns["state"], "gave up");
    let newest = turns["turns"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(newest["rule"], "gave-up");
    assert_eq!(newest["boundary"], "restart.give_up.max_restarts = 2");
    let record = find(Path::new(data), "supervision.jsonl").unwrap();
    let replayed = world.ok(&["replay", record.to_str().unwrap()]);
    assert_eq!(replayed.matches("BACKOFF").count(), 2, "{replayed}");
    assert_eq!(replayed.matches("GAVEUP").count(), 1, "{replayed}");
    // A new start begins afresh: its own window, its own count; the total goes on.
    world.ok(&["start", "broken"]);
    let again = world.replica_when("broken", 0, "gave up again", |replica| {
        replica["incarnation"] == 1 && replica["state"] == "gave up"
    });
    assert_eq!(
        (again["restarts"].clone(), again["restarts_total"].clone()),
        (2.into(), 4.into())
    );
    while let Some(record) = find(Path::new(data), "supervision.jsonl") {
        std::fs::remove_file(record).unwrap();
    }
    // Without the record the controller still knows what came of it, and what to do.
    let gone = world.run(&["why", "broken"]);
    assert_eq!(gone.code, Some(0));
    assert!(gone.stderr.contains("is gone"), "{}", gone.stderr);
    assert!(
        gone.stdout
            .starts_with("broken/0: gave up after 2 restarts: exit 3 (at most 2 within 1m)\n"),
        "{}",
        gone.stdout
    );
    assert!(gone.stdout.contains("next: "), "{}", gone.stdout);
    assert_eq!(world.run(&["why", "nobody"]).code, Some(4));
    assert_eq!(world.run(&["why", "broken/7"]).code, Some(4));
    // What was never there is not told by silence.
    let nothing = world.run(&["events", "broken/7"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert!(
        nothing.stderr.contains("nothing is known"),
        "{}",
        nothing.stderr
    );
}

#[test]
fn a_scenario_that_does_not_see_what_it_expects_says_so() {
    let Some(world) = World::new() else { return };
    let scenario = "until = \"10s\"\nexpect = [\"2s READY\"]\n[service]\nkind = \"service\"\nname = \"web\"\ncommand = [\"web\"]\n";
    let file = world.profile("scenario.toml", scenario);
    let wrong = world.run(&["sim", &file]);
    assert_eq!(wrong.code, Some(1));
    assert!(
        wrong
            .stderr
            .contains("expected: 2s READY\n instead: 1.000 @web/0 READY"),
        "{wrong:?}"
    );
    let right = world.profile("scenario.toml", &scenario.replace("2s READY", "1s READY"));
    let timeline = world.ok(&["sim", &right, "--timeline"]);
    assert!(
        timeline.contains("      1.000  web/0           1  READY"),
        "{timeline}"
    );
    let lines = world.ok(&["sim", &right, "--timeline", "-o", "json"]);
    let mut lines = lines.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line
    });
    let spawned = lines.find(|line| line["what"] == "spawned").unwrap();
    assert_eq!(spawned["service"], "web.me");
    let refused = world.run(&["sim", "no-such-file.toml"]);
    assert_eq!(refused.code, Some(1));
    for (option, name) in [("--service", "wbe"), ("--host", "n9")] {
        let absent = world.run(&["sim", &right, option, name]);
        assert_eq!(absent.code, Some(4), "{absent:?}");
        assert_eq!(absent.stdout, "");
    }
}

#[test]
fn failures_are_told_whole_and_the_total_of_restarts_never_falls() {
    // Issue 4, point 6.
    let Some(world) = World::new() else { return };
    let profile = world.profile(
        "web.toml",
        "name = \"web\"\ncommand = \"exec sleep 1000\"\nmin_up = \"100ms\"\n[restart]\nbackoff = { initial = \"100ms\", max = \"1s\" }\n",
    );
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "web", "--timeout", "30s"]);
    let pid = world.replica("web", 0)["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "SEGV");
    let back = world.replica_when("web", 0, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
    assert_eq!(back["restarts_total"], 1);
    assert_eq!(back["run"], 2);
    let failure = &back["last_failure_detail"];
    assert_eq!(&back["first_failure_detail"], failure);
    assert_eq!(failure["exit"]["signal"]["signal"], 11);
    assert_eq!(failure["run"], 1);
    assert!(failure["at"].as_u64().unwrap() > 0);
    // A new placement begins its own count; the total goes on.
    world.ok(&["stop", "web"]);
    world.replica_when("web", 0, "stopped", |replica| replica["state"] == "stopped");
    world.ok(&["start", "web"]);
    let anew = world.replica_when("web", 0, "is back", |replica| replica["ready"] == true);
    assert_eq!(
        (anew["restarts"].clone(), anew["restarts_total"].clone()),
        (0.into(), 1.into())
    );
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.find_map(|path| match path.file_name() {
        Some(found) if found == name => Some(path),
        _ if path.is_dir() => find(&path, name),
        _ => None,
    })
}

/// One profile, and the same behaviour for virtual and for real processes.
fn foretold(world: &World, name: &str, rules: &str, command: &str, script: &str) {
    let profile = format!("name = \"{name}\"\ncommand = {command:?}\nmin_up = \"100ms\"\n{rules}");
    let profile = world.profile(&format!("{name}.toml"), &profile);
    let scenario = format!("until = \"1m\"\nprofile = \"{name}.toml\"\n{script}");
    let scenario = world.profile(&format!("{name}-scenario.toml"), &scenario);
    let reports = |lines: &str, column: usize| {
        let words = |line: &str| {
            let words: Vec<_> = line.split_whitespace().skip(column).collect();
            words.join(" ")
        };
        let is_report = |words: &String| words.starts_with(|c: char| c.is_ascii_uppercase());
        let lines = lines.lines().filter(|line| line.starts_with(' '));
        lines.map(words).filter(is_report).collect::<Vec<_>>()
    };
    let timeline = world.ok(&["sim", &scenario, "--timeline"]);
    let (_, timeline) = timeline.split_once('\n').unwrap();
    let virtually = reports(timeline, 3);
    let data = world.path(name);
    let _dev = world.dev(&["--data", data.to_str().unwrap(), &profile]);
    world.replica_when(name, 0, "gave up", |replica| replica["state"] == "gave up");
    let record = find(&data, "supervision.jsonl").unwrap();
    let really = reports(&world.ok(&["replay", record.to_str().unwrap()]), 2);
    assert!(really.len() > 4, "{really:#?}");
    assert_eq!(virtually, really);
}

const RULES: &str = "[restart]\nbackoff = { initial = \"200ms\", max = \"300ms\", jitter = 0.0 }\ngive_up = { max_restarts = 2, window = \"1m\" }\n";

#[test]
fn the_simulator_foretells_what_a_real_worker_reports_of_a_crash_loop() {
    let Some(world) = World::new() else { return };
    let script = "[[run]]\nexit = { after = \"1s\", code = 3 }\n";
    foretold(&world, "crashes", RULES, "sleep 1; exit 3", script);
}

#[test]
fn the_simulator_foretells_what_a_real_worker_reports_of_a_hang() {
    let Some(world) = World::new() else { return };
    let rules = format!(
        "{RULES}[liveness]\ncommand = [\"test\", \"-f\", \"alive\"]\ninitial_delay = \"600ms\"\ninterval = \"200ms\"\nfailure_threshold = 2\n"
    );
    let script = "[[run]]\n[[run.probe]]\nkind = \"liveness\"\nfrom = \"1s\"\nanswer = \"fail\"\n";
    let command = "touch alive; sleep 1; rm alive; exec sleep 1000";
    foretold(&world, "hangs", &rules, command, script);
}
