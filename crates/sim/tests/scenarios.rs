//! The shipped scenarios meet their expectations, and a scenario that is wrong is refused with its places.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the scenarios has failed"
)]

use std::path::{Path, PathBuf};

use portreeve_sim::{Played, Scenario, play};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn shipped() -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn read(text: &str) -> Scenario {
    Scenario::from_toml(text, |path| {
        std::fs::read(folder().join(path)).map_err(|cause| cause.to_string())
    })
    .unwrap_or_else(|errors| panic!("{errors}"))
}

fn timeline(played: &Played) -> String {
    let lines = played.timeline.iter();
    lines.map(|entry| format!("{entry}\n")).collect()
}

#[test]
fn every_shipped_scenario_expects_something_and_sees_it() {
    let shipped = shipped();
    assert!(shipped.len() >= 6);
    for (name, text) in shipped {
        // Ten thousand replicas take a while without optimisation.
        if name.starts_with("start-storm") && std::env::var_os("PORTREEVE_LONG").is_none() {
            read(&text);
            continue;
        }
        let expects = text.contains("\nexpect = [") || text.contains("\nholds = [");
        assert!(expects, "{name} expects nothing");
        let played = play(&read(&text)).unwrap();
        let unmet: Vec<_> = played.unmet.iter().map(ToString::to_string).collect();
        assert_eq!(played.broken, None, "{name}");
        assert!(
            unmet.is_empty(),
            "{name}:\n{}\n{}",
            unmet.join("\n"),
            timeline(&played)
        );
    }
}

#[test]
fn a_shipped_scenario_with_another_rule_does_not_see_what_it_expects() {
    for (name, rule, other) in [
        ("flapping-service", "window = \"5m\"", "window = \"2m\""),
        (
            "flapping-service",
            "reset_after = \"20s\"",
            "reset_after = \"10m\"",
        ),
        ("exhausted-pool", "cooling = \"60s\"", "cooling = \"1s\""),
        ("exhausted-pool", "20000-20002", "20000-20009"),
        ("rolling-replacement", "to = \"5s\"", "to = \"5m\""),
        (
            "host-loss-during-rollout",
            "host_grace = \"90s\"",
            "host_grace = \"40s\"",
        ),
        (
            "partition-around-the-grace",
            "host_grace = \"90s\"",
            "host_grace = \"60s\"",
        ),
        (
            "partition-around-the-grace",
            "host_grace = \"90s\"",
            "host_grace = \"150s\"",
        ),
        ("controller-restart-storm", "\"written\"", "\"lost\""),
    ] {
        let text = std::fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap();
        assert!(text.contains(rule), "{name}: {rule}");
        let played = play(&read(&text.replace(rule, other))).unwrap();
        assert_eq!(played.broken, None, "{name}: {other}");
        assert!(!played.unmet.is_empty(), "{name} with {other}");
    }
}

#[test]
fn a_small_start_storm_is_as_quiet_as_the_shipped_one() {
    let storm = std::fs::read_to_string(folder().join("start-storm.toml")).unwrap();
    // A twentieth of it.
    let mut small = storm;
    for (large, little) in [
        ("n[001-500]", "n[001-025]"),
        ("job[001-100]", "job[001-005]"),
        ("listed 10000", "listed 500"),
        ("hosts up 500", "hosts up 25"),
    ] {
        assert!(small.contains(large), "{large}");
        small = small.replace(large, little);
    }
    let played = play(&read(&small)).unwrap();
    assert_eq!(played.broken, None);
    let unmet: Vec<_> = played.unmet.iter().map(ToString::to_string).collect();
    assert!(unmet.is_empty(), "{}", unmet.join("\n"));
    // Whoever reads it is told the same of five services, and of 500 replicas, in a few lines.
    let account = portreeve_sim::account(&played);
    assert!(account.lines().count() < 20, "{account}");
}

#[test]
fn one_seed_is_one_run_and_another_seed_another() {
    let text = "until = \"1h\"\nreplicas = 3\n[service]\nkind = \"service\"\nname = \"web\"\n\
                command = [\"web\"]\n[[run]]\nexit = { after = \"5s\", code = 1 }";
    let scenario = read(text);
    let first = timeline(&play(&scenario).unwrap());
    assert_eq!(first, timeline(&play(&scenario).unwrap()));
    assert_ne!(first, timeline(&play(&scenario.with_seed(1)).unwrap()));
    // Its replicas do not restart in step.
    let backoffs = |replica: &str| {
        let lines = first.lines().filter(|line| line.contains("BACKOFF"));
        let own = lines.filter(|line| line.split_whitespace().nth(1) == Some(replica));
        own.map(|line| line.split_whitespace().next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert!(backoffs("web/0").len() > 3);
    assert_ne!(backoffs("web/0"), backoffs("web/1"));
}

#[test]
fn everything_wrong_is_told_at_once_with_its_place() {
    let text = "until = 5\nexpcet = []\nexpect = [\"READY\"]\n[service]\nkind = \"service\"\nname = \"web\"\n\
                command = [\"web\"]\n[service.restart]\npolicy = \"allways\"\n\
                [[run]]\nexit = { after = \"5\", cod = 1 }\n[[user]]\nact = \"stop\"\n";
    let errors = Scenario::from_toml(text, |_| unreachable!()).unwrap_err();
    let told = errors.in_file("x.toml").to_string();
    let starts: Vec<_> = told
        .lines()
        .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": "))
        .collect();
    assert_eq!(
        starts,
        [
            "x.toml:1:9: until",
            "x.toml:2:1: expcet",
            "x.toml:3:11: expect",
            "x.toml:9:10: service.restart.policy",
            "x.toml:11:18: run.exit.after",
            "x.toml:11:23: run.exit.cod",
            "x.toml:12:1: user.at",
        ],
        "{told}"
    );
    assert!(told.contains("did you mean expect?"), "{told}");
    assert!(told.contains("did you mean code?"), "{told}");
}

#[test]
fn a_scenario_may_name_a_profile() {
    let text = "until = \"1m\"\nprofile = \"../profiles/hello.toml\"\nexpect = [\"0s READY\"]\n";
    assert!(play(&read(text)).unwrap().unmet.is_empty());
    let missing = Scenario::from_toml("until = \"1s\"\nprofile = \"none.toml\"", |_| {
        Err("no such file".to_owned())
    });
    let told = missing.unwrap_err().to_string();
    assert_eq!(told, "2:11: profile: none.toml: no such file");
}

#[test]
fn a_stuck_group_keeps_its_ports_and_a_stranger_ends_the_replica() {
    let service = "[service]\nkind = \"service\"\nname = \"web\"\ncommand = [\"web\"]\n";
    let stuck = format!(
        "until = \"3m\"\nexpect = [\"65s STUCK\"]\nnever = [\"STOPPED\", \"RESTARTED\"]\n{service}\
         [[run]]\nexit = {{ after = \"5s\", code = 1 }}\nleftover_stays = true\n\
         [[user]]\nat = \"100s\"\nact = \"stop\""
    );
    let played = play(&read(&stuck)).unwrap();
    assert!(played.unmet.is_empty(), "{}", timeline(&played));
    let stranger = format!(
        "until = \"3m\"\nexpect = [\"5s BACKOFF\", \"6s PORT_CONFLICT\"]\nnever = [\"RESTARTED\"]\n{service}\
         restart = {{ backoff = {{ jitter = 0.0 }} }}\n\
         [[run]]\nexit = {{ after = \"5s\", code = 1 }}\n[[stranger]]\nfrom = \"5500ms\""
    );
    let played = play(&read(&stranger)).unwrap();
    assert!(played.unmet.is_empty(), "{}", timeline(&played));
}

#[test]
fn every_sample_profile_gets_ready_and_gives_up_a_crash_loop_unless_it_says_never() {
    let profiles = folder().join("../profiles");
    let names = std::fs::read_dir(profiles).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.ends_with(".toml")).collect();
    names.sort();
    assert!(names.len() >= 29, "{names:?}");
    // Four hours of a whole cluster each: all of them where time allows, else some.
    let long = std::env::var_os("PORTREEVE_LONG").is_some();
    for name in names.iter().step_by(if long { 1 } else { 8 }) {
        let begin = format!("until = \"4h\"\nreplicas = 1\nprofile = \"../profiles/{name}\"\n");
        let obedient = play(&read(&begin)).unwrap();
        assert!(obedient.outcomes[0].ready, "{name}");
        assert_eq!(obedient.outcomes[0].runs, 1, "{name}");
        let crashing = format!("{begin}[[run]]\nexit = {{ after = \"100ms\", code = 70 }}\n");
        let crashing = play(&read(&crashing)).unwrap();
        let text = std::fs::read_to_string(folder().join("../profiles").join(name)).unwrap();
        let never = text.contains("give_up = \"never\"");
        let state = &crashing.outcomes[0].state;
        let ended = ["gave up", "failed"].contains(&state.as_str());
        assert_eq!(ended, !never, "{name}: {state:?}");
    }
}

const SERVICE: &str = "[service]\nkind = \"service\"\nname = \"web\"\ncommand = [\"web\"]\n";

fn told(text: &str) -> String {
    let refused = Scenario::from_toml(text, |_| unreachable!());
    refused.unwrap_err().in_file("x.toml").to_string()
}

#[test]
fn a_profile_that_is_not_below_its_header_is_refused_where_it_stands() {
    let inline = "{ kind = \"service\", name = \"web\", command = [\"web\"] }";
    for (text, place) in [
        (format!("until = \"1s\"\nservice = {inline}\n"), "2:13"),
        ("until = \"1s\"\nservice.name = \"web\"\n".to_owned(), "2:9"),
        (
            format!("until = \"1s\"\n{SERVICE}[ service . restart ]\npolicy = \"never\"\n"),
            "6:13",
        ),
        (
            format!("until = \"1s\"\n{SERVICE}[\"service\".restart.backoff]\njitter = 0.0\n"),
            "6:12",
        ),
    ] {
        let told = told(&text);
        let begin = format!("x.toml:{place}: service: this is not read");
        assert!(told.starts_with(&begin), "{told}");
    }
    let array = told(&format!("until = \"1s\"\n{SERVICE}[[service.foo]]\n"));
    assert!(array.starts_with("x.toml:6:11: service.foo"), "{array}");
}

#[test]
fn a_long_scenario_is_no_long_profile() {
    let users = "[[user]]\nat = \"1s\"\nact = \"restart\"\n".repeat(9000);
    let text = format!("until = \"2s\"\n{users}{SERVICE}");
    // All of them at once are one restart.
    assert_eq!(play(&read(&text)).unwrap().outcomes[0].runs, 2);
}

#[test]
fn a_worker_goes_only_when_it_is_there() {
    let worker = |from, to, of| format!("[[worker]]\nkilled = \"{from}s\"\nback = \"{to}s\"\n{of}");
    let begin = format!("until = \"1m\"\nreplicas = 2\n{SERVICE}");
    let (first, second) = ("replica = 0\n", "replica = 1\n");
    for (one, other) in [("", ""), ("", first), (first, ""), (first, first)] {
        let text = format!("{begin}{}{}", worker(10, 20, one), worker(12, 15, other));
        let told = told(&text);
        assert!(told.contains(": worker: the worker is away"), "{told}");
    }
    for (one, other) in [
        (worker(10, 20, first), worker(12, 15, second)),
        (worker(20, 30, ""), worker(10, 20, "")),
    ] {
        let played = play(&read(&format!("{begin}{one}{other}"))).unwrap();
        assert!(played.timeline.is_sorted_by_key(|entry| entry.at));
    }
}

#[test]
fn no_scenario_takes_more_than_its_share_of_time_and_memory() {
    let many = format!("until = \"1s\"\nreplicas = 10000\n{SERVICE}");
    // Told apart by replica, these were 10^8 scripts.
    let few = format!("until = \"1s\"\nreplicas = 300\n{SERVICE}");
    let runs = format!("{few}{}", "[[run]]\n".repeat(9999));
    assert_eq!(play(&read(&runs)).unwrap().outcomes.len(), 300);
    let strangers = format!("{many}{}", "[[stranger]]\nfrom = \"9s\"\n".repeat(101));
    assert!(told(&strangers).contains("at most 1000000 in all"));
    // A look for each place, and one for each value, made minutes of these.
    let keys = |of| (0..70_000).map(move |n| format!("{of}{n} = \"\"\n"));
    let unknown = keys("a").collect::<String>();
    assert_eq!(told(&unknown).lines().count(), 100);
    let values = format!(
        "until = \"1s\"\n{SERVICE}[service.env]\n{}",
        keys("A").collect::<String>()
    );
    assert!(told(&values).contains("the profile is too long"));
}

#[test]
fn of_many_differences_the_first_are_told_and_the_rest_is_counted() {
    let lines = |words: &str, count| {
        let line = |n| format!("\"{words} {n}\",");
        (0..count).map(line).collect::<String>()
    };
    let text = format!(
        "until = \"10m\"\nexpect = [{}]\nnever = [{}]\ncomplete = true\n{SERVICE}\
         restart = {{ give_up = \"never\", backoff = {{ initial = \"100ms\", max = \"100ms\" }} }}\n\
         [[run]]\nexit = {{ after = \"1s\" }}\n",
        lines("1s STUCK", 1000),
        lines("BACKOFF", 1000)
    );
    let played = play(&read(&text)).unwrap();
    assert_eq!(played.unmet.len(), 50);
    let reports = played.timeline.iter();
    let reports = reports.filter(|entry| matches!(entry.what, portreeve_sim::What::Report(_)));
    assert_eq!(played.more_unmet, 950 + reports.count());
}

#[test]
fn a_key_that_moves_a_cursor_is_told_in_quotes() {
    let told = told(&format!(
        "until = \"1s\"\n{SERVICE}[[run]]\n\"a\\u001b[2J\" = 1\n"
    ));
    assert!(told.contains("run.\"a\\u{1b}[2J\": unknown"), "{told}");
}
