use std::time::Duration;

use serde_json::json;

use super::*;
use crate::port_pool::PortRequest;
use crate::supervision::{GiveUp, Then, Window};

pub(super) const LEAST: &str = "name = \"web\"\ncommand = [\"serve\"]\n";

/// A profile of the least that is needed and these lines.
fn checked(lines: &str) -> Checked {
    Profile::from_toml(&format!("{LEAST}{lines}")).unwrap_or_else(|errors| panic!("{errors}"))
}

pub(super) fn profile(lines: &str) -> Profile {
    checked(lines).profile
}

/// What is told of the least that is needed and these lines, without places.
fn refused(lines: &str) -> Vec<String> {
    let errors = Profile::from_toml(&format!("{LEAST}{lines}")).unwrap_err();
    errors.as_slice().iter().map(ToString::to_string).collect()
}

#[track_caller]
fn refuses(lines: &str, part: &str) {
    let told = refused(lines);
    let [only] = told.as_slice() else {
        panic!("not one error but {told:#?}");
    };
    assert!(only.contains(part), "{only:?} does not say {part:?}");
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn everything_wrong_with_a_file_is_told_at_once_with_its_place() {
    let text = r#"kind = "service"
name = "llm"
comand = ["vllm"]
command = ["vllm", "serve", "--port", "${port.htpp}"]
env = { HF_HOME = "/data/hf }

[ports]
http = 65536
admin = "any"
admin = 9100
metrics = { any = 1, protocol = "tpc" }

[readiness]
http = { port = "web", path = "/health" }
interval = 5
timeout = "soon"

[stop
grace = "5s"

[restart]
policy = "alway"
"#;
    let errors = Profile::from_toml(text).unwrap_err();
    let told = errors.in_file("llm.toml").to_string();
    let told: Vec<_> = told.lines().collect();
    assert_eq!(
        told,
        [
            "llm.toml:3:1: comand: unknown key (did you mean \"command\"?); known here: kind, name, namespace, replicas, command, pre_exec, working_dir, env, env_file, env_secret, labels, visibility, logs, rerunnable, on_cut_off, min_up, ports, restart, startup, liveness, readiness, stop, placement, extends",
            "llm.toml:4:39: command[3]: no port is called \"htpp\"; the profile's ports: http, admin, metrics",
            "llm.toml:5:7: env: broken TOML: unclosed inline table; expected `}`",
            "llm.toml:8:8: ports.http: 65536 is out of bounds; write a whole number from 1 to 65535, or \"any\"",
            "llm.toml:10:1: ports.admin: two ports are called admin, the first in line 9; choose another name",
            "llm.toml:11:33: ports.metrics.protocol: \"tpc\" is not known, did you mean \"tcp\"?; write \"tcp\", \"udp\" or \"tcp+udp\"",
            "llm.toml:14:17: readiness.http.port: no port is called \"web\"; the profile's ports: http, admin, metrics",
            "llm.toml:15:12: readiness.interval: 5 has no unit; write a time with its unit, such as \"10s\", from \"100ms\" to \"24h\"",
            "llm.toml:16:11: readiness.timeout: \"soon\" is not a time; write a time with its unit, such as \"10s\", from \"10ms\" to \"1h\"",
            "llm.toml:18:6: broken TOML: unclosed table; expected `]`",
            "llm.toml:22:10: restart.policy: \"alway\" is not known, did you mean \"always\"?; write \"always\", \"on-failure\" or \"never\"",
        ]
    );
}

#[test]
fn a_broken_line_makes_no_false_error_elsewhere() {
    // The name, a port and a table's header are lost with their lines; nothing may be said to miss them.
    let text = "name = \"web\ncommand = [\"a\", \"${port.http}\"]\n[ports]\nhttp = \"any\n[liveness\ntcp = { port = \"http\" }\ninterval = \"5s\"\n";
    let errors = Profile::from_toml(text).unwrap_err();
    let lines: Vec<_> = errors
        .as_slice()
        .iter()
        .map(|e| e.place.unwrap().line)
        .collect();
    assert_eq!(lines, [1, 4, 5], "{errors}");
    assert!(
        errors
            .as_slice()
            .iter()
            .all(|e| e.problem.starts_with("broken TOML"))
    );
}

#[test]
fn json_has_the_same_rules_and_names_the_field() {
    let bad = json!({
        "name": "web", "command": [], "replicas": -1,
        "ports": { "http": 65536 },
        "readiness": { "http": { "port": "web" }, "interval": 5 },
        "colour": "red",
    });
    let errors = Profile::from_json(&bad).unwrap_err();
    let fields: Vec<_> = errors.as_slice().iter().map(|e| e.field.as_str()).collect();
    let expected = [
        "colour",
        "replicas",
        "ports.http",
        "command",
        "readiness.http.port",
        "readiness.interval",
    ];
    assert_eq!(fields, expected);
    let on_the_wire = serde_json::to_value(&errors).unwrap();
    assert_eq!(
        on_the_wire["errors"][2],
        json!({
            "field": "ports.http",
            "problem": "65536 is out of bounds",
            "allowed": "write a whole number from 1 to 65535, or \"any\"",
        })
    );
    let errors =
        Profile::from_json_text("{ \"name\": \"web\",\n  \"name\": \"web\" }").unwrap_err();
    assert!(
        errors.to_string().contains("name: written twice"),
        "{errors}"
    );
    let errors = Profile::from_json_text("{\n  \"name\" \"web\" }").unwrap_err();
    assert!(
        errors.to_string().starts_with("2:10: broken JSON"),
        "{errors}"
    );
    let errors = Profile::from_json_text("").unwrap_err().to_string();
    assert_eq!(errors, "1:1: broken JSON: EOF while parsing a value");
}

#[test]
fn a_table_written_twice_is_told_with_the_line_of_the_first() {
    // It said that the second one was the first.
    let twice = |lines: &str| Profile::from_toml(&format!("{LEAST}{lines}")).unwrap_err();
    let errors = twice("[ports]\na = \"any\"\n[ ports ]\nb = 65536\n");
    let expected = "5:3: ports: written twice, first in line 3; write it once";
    assert!(errors.to_string().contains(expected), "{errors}");
    let errors = twice("[labels]\nports = \"x\"\n[ports.a]\nany = 1\n[ports.a]\nany = 2\n");
    let expected = "7:8: ports.a: two ports are called a, the first in line 5; choose another name";
    assert!(errors.to_string().contains(expected), "{errors}");
    let errors = twice("ports.a = \"any\"\n[ports]\nb = \"any\"\n");
    let expected = "4:2: ports: written twice; write it once";
    assert!(errors.to_string().contains(expected), "{errors}");
}

#[test]
fn bytes_that_are_no_text_are_refused_at_their_place() {
    let mut bytes = LEAST.as_bytes().to_vec();
    bytes.extend(b"labels = { a = \"\xe9\" }\n");
    let errors = Profile::from_toml_bytes(&bytes).unwrap_err().to_string();
    assert_eq!(
        errors,
        "3:17: the byte 0xe9 is not UTF-8; write the file in UTF-8"
    );
    let errors = Profile::from_json_bytes(b"{\n\xff").unwrap_err();
    assert!(
        errors
            .to_string()
            .starts_with("2:1: the byte 0xff is not UTF-8")
    );
    let errors = Profile::from_toml_bytes(&vec![0xff; MAX_FILE + 1]).unwrap_err();
    assert!(errors.to_string().contains("too long"), "{errors}");
}

#[test]
fn the_errors_of_a_text_carry_line_and_column_on_the_wire() {
    let errors = Profile::from_toml("name = \"web\"\ncommand = 1\n").unwrap_err();
    let on_the_wire = serde_json::to_value(&errors).unwrap();
    assert_eq!(on_the_wire["errors"][0]["line"], 2);
    assert_eq!(on_the_wire["errors"][0]["column"], 11);
}

#[test]
fn the_least_profile_has_the_documented_defaults() {
    let profile = profile("");
    assert_eq!(profile.replicas, Replicas::Count(1));
    assert_eq!(profile.visibility, Visibility::Private);
    assert_eq!(
        (profile.rerunnable, profile.on_cut_off),
        (true, OnCutOff::Keep)
    );
    assert_eq!(profile.stop_signal, 15);
    let config = &profile.supervision;
    assert_eq!(
        (config.backoff.initial, config.backoff.max),
        (secs(1), secs(60))
    );
    assert_eq!(
        (config.backoff.jitter_permille, config.backoff.reset_after),
        (100, secs(60))
    );
    assert_eq!((config.stop.drain, config.stop.grace), (secs(0), secs(10)));
    assert_eq!(config.stop.unkillable_after, secs(60));
    assert_eq!(config.min_up, secs(1));
    assert_eq!(
        (&config.startup, &config.liveness, &config.readiness),
        (&None, &None, &None)
    );
    // probes 58 of supervision.md: 2 x 303 s.
    let window = Window::Span(secs(606));
    let then = Then::Exit;
    let max_restarts = 10;
    assert_eq!(
        config.give_up,
        Some(GiveUp {
            max_restarts,
            window,
            then
        })
    );
    assert!(profile.request().is_empty());
}

#[test]
fn a_port_is_a_word_a_number_or_a_table() {
    let profile = profile(
        "[ports]\nhttp = \"any\"\nadmin = 9100\nrpc = { any = 4 }\ndns = { fixed = 53, protocol = \"tcp+udp\" }\n\
         agent = { any = 1, range = \"below 32768\", env = \"RAY_AGENT_PORT\", publish = false }\n",
    );
    let request = profile.request();
    let asked: Vec<_> = request
        .as_slice()
        .iter()
        .map(|port| port.name.as_str())
        .collect();
    assert_eq!(asked, ["http", "admin", "rpc", "dns", "agent"]);
    assert_eq!(request.as_slice()[2].count().get(), 4);
    assert_eq!(request.as_slice()[3].protocol, Protocol::TcpUdp);
    assert_eq!(profile.ports[4].env.as_deref(), Some("RAY_AGENT_PORT"));
    assert!(!profile.ports[4].publish);
}

#[test]
fn ports_that_cannot_be_asked_for_are_refused_at_the_file() {
    // ports 3
    for bad in [
        "0",
        "-1",
        "65536",
        "\"080\"",
        "\"80\"",
        "99999999999999999999",
        "true",
        "[]",
    ] {
        refuses(&format!("[ports]\nhttp = {bad}\n"), "ports.http");
    }
    // ports 8
    for bad in ["3-1", "", "1-65537", "0", "9223372036854775807"] {
        let port = format!("[ports]\nhttp = {{ any = 1, range = \"{bad}\" }}\n");
        refuses(&port, "is not a range of ports");
    }
    // ports 14, P36
    refuses(
        "[ports]\na = 80\nb = { fixed = 80, protocol = \"tcp+udp\" }\n",
        "ports a and b both fix 80",
    );
    profile("[ports]\na = 80\nb = { fixed = 80, protocol = \"udp\" }\n");
    // ports 21, P41
    for bad in ["9p", "HTTP", "a_b", "workers-last", "\"\""] {
        refuses(&format!("[ports]\n{bad} = \"any\"\n"), "is not a port name");
    }
    refuses(
        "[ports]\na = { any = 200 }\nb = { any = 57 }\n",
        "asks for 257 numbers",
    );
    refuses(
        "[ports]\na = { any = 4, range = \"1-3,5-7\" }\n",
        "the longest run has 3",
    );
    refuses(
        "[ports]\na = { fixed = 1, range = \"1-3\" }\n",
        "a fixed number needs no range",
    );
    refuses(
        "[ports]\na = { publish = false }\n",
        "which number is not said",
    );
    assert_eq!(PortRequest::MAX_NUMBERS, 256);
}

#[test]
fn variables_of_ours_and_doubled_variables_are_refused() {
    // P27
    refuses("env = { PORTREEVE_X = \"1\" }", "begins with PORTREEVE_");
    refuses(
        "env_secret = [\"PORTREEVE_TOKEN\"]",
        "begins with PORTREEVE_",
    );
    refuses(
        "[ports]\na = { any = 1, env = \"PORTREEVE_A\" }",
        "begins with PORTREEVE_",
    );
    refuses(
        "env = { A = \"1\" }\n[ports]\na = { any = 1, env = \"A\" }",
        "A is set by env too",
    );
    refuses(
        "env_secret = [\"A\"]\n[ports]\na = { any = 1, env = \"A\" }",
        "A is set by env_secret too",
    );
    let two = "[ports]\na = { any = 1, env = \"A\" }\nb = { any = 1, env = \"A\" }";
    refuses(two, "A is claimed by ports.a.env too");
    for bad in ["1A", "", "A-B", "A=B", "Ä"] {
        refuses(
            &format!("[ports]\na = {{ any = 1, env = \"{bad}\" }}"),
            "is no variable's name",
        );
    }
    let other = format!("{LEAST}env = {{ XCE_A = \"1\" }}");
    assert!(Profile::from_toml(&other).is_ok());
    assert!(Profile::from_toml_with(&other, "XCE_").is_err());
}

#[test]
fn a_rule_that_can_never_fire_is_refused_with_the_arithmetic() {
    let rule = |initial: &str, max: &str, restarts: u32, window: &str| {
        format!(
            "[restart]\nbackoff = {{ initial = \"{initial}\", max = \"{max}\", jitter = 0.0 }}\ngive_up = {{ max_restarts = {restarts}, window = \"{window}\" }}"
        )
    };
    // Validation of supervision.md 2.1.
    refuses(
        &rule("10s", "10s", 5, "10s"),
        "their waits 10s + 10s + 10s + 10s + 10s add up to 50s",
    );
    refuses(&rule("5s", "5s", 5, "20s"), "add up to 25s");
    refuses(
        &rule("1s", "60s", 5, "31s"),
        "5 restarts in 31s can never happen",
    );
    profile(&rule("1s", "60s", 5, "32s"));
    profile(&rule("1s", "60s", 5, "60s"));
    profile(&rule("1s", "60s", 0, "1s"));
    let lifetime = profile(&rule("1s", "60s", 5, "lifetime"))
        .supervision
        .give_up
        .clone()
        .unwrap();
    assert_eq!(lifetime.window, Window::Lifetime);
    // With jitter the waits may be shorter: 31 s x 0.9 < 31 s.
    profile("[restart]\ngive_up = { max_restarts = 5, window = \"31s\" }");
    // probes 58
    refuses(
        "[restart]\nbackoff = { initial = \"2s\", max = \"1s\" }",
        "shorter than the initial wait",
    );
    assert_eq!(
        profile("[restart]\ngive_up = \"never\"")
            .supervision
            .give_up,
        None
    );
}

#[test]
fn an_unwritten_window_grows_with_the_waits_and_the_startup_window() {
    let window = |lines: &str| match profile(lines).supervision.give_up.clone().unwrap().window {
        Window::Span(window) => window,
        Window::Lifetime => Duration::MAX,
    };
    let waits = "[restart]\nbackoff = { initial = \"10s\", max = \"300s\" }\n";
    // 2 x (10 + 20 + 40 + 80 + 160 + 5 x 300).
    assert_eq!(window(waits), secs(3620));
    assert_eq!(
        window("[restart]\ngive_up = { max_restarts = 2 }"),
        secs(600)
    );
    // 2 x (3 + 2 x (5 + 10 x 30)).
    let startup = "[restart]\ngive_up = { max_restarts = 2 }\n[startup]\ncommand = [\"true\"]\ninitial_delay = \"5s\"\nfailure_threshold = 30\n";
    assert_eq!(window(startup), secs(1226));
}

#[test]
fn within_is_a_threshold_that_never_decides_early() {
    let threshold = |lines: &str| {
        let startup = profile(&format!("[startup]\ncommand = [\"true\"]\n{lines}"));
        startup
            .supervision
            .startup
            .clone()
            .unwrap()
            .failure_threshold
    };
    assert_eq!(threshold("interval = \"5s\"\nwithin = \"12s\""), 4);
    assert_eq!(threshold("interval = \"5s\"\nwithin = \"10s\""), 3);
    assert_eq!(
        threshold("interval = \"10s\"\nwithin = \"615s\"\ninitial_delay = \"15s\""),
        61
    );
    assert_eq!(threshold(""), 3);
    let startup = "[startup]\ncommand = [\"true\"]\nwithin = \"1m\"\n";
    refuses(
        &format!("{startup}failure_threshold = 3"),
        "within says it already",
    );
    refuses(
        &format!("{startup}timeout = \"11s\""),
        "probes that end before the next one starts",
    );
    refuses(
        &format!("{startup}initial_delay = \"1m\""),
        "over before the first probe",
    );
    refuses(
        "[liveness]\ncommand = [\"true\"]\nwithin = \"1m\"",
        "unknown key",
    );
}

#[test]
fn probes_take_the_only_port_and_refuse_numbers_and_names_of_hosts() {
    let one = "[ports]\nhttp = \"any\"\n";
    let http = profile(&format!(
        "{one}[readiness]\nhttp = {{ path = \"/health\" }}"
    ));
    let Some(Probe::Http(probe)) = http.readiness else {
        panic!()
    };
    assert_eq!(
        (probe.port.as_str(), probe.expect.as_slice()),
        ("http", &[(200, 399)][..])
    );
    assert_eq!(http.supervision.min_up, Duration::ZERO);
    refuses(
        &format!("{one}[readiness]\ntcp = 8080"),
        "readiness.tcp: a number",
    );
    refuses(
        &format!("{one}[readiness]\ntcp = {{ port = 8080 }}"),
        "a number is not known before placement",
    );
    refuses(
        &format!("{one}[readiness]\ntcp = {{ port = \"grpc\" }}"),
        "no port is called \"grpc\"",
    );
    refuses(
        &format!("{one}[readiness]\ntcp = {{ host = \"localhost\" }}"),
        "is not an address",
    );
    refuses("[readiness]\ntcp = { }", "the profile declares no port");
    let two = "[ports]\na = \"any\"\nb = { any = 1, protocol = \"udp\" }\n";
    refuses(
        &format!("{two}[readiness]\ntcp = {{ }}"),
        "write port = \"a\" or \"b\"",
    );
    refuses(
        &format!("{two}[readiness]\ntcp = {{ port = \"b\" }}"),
        "udp only",
    );
    refuses(
        &format!("{one}[readiness]\ntcp = {{ }}\nlistening = true"),
        "beside another form",
    );
    refuses(
        &format!("{one}[liveness]\ninterval = \"30s\""),
        "what the probe does is not said",
    );
    refuses(
        &format!("{one}[readiness]\nhttp = {{ path = \"health\" }}"),
        "is not a path",
    );
    refuses(
        &format!("{one}[readiness]\nhttp = {{ expect = \"100\" }}"),
        "no final status codes",
    );
    refuses(
        &format!("{one}[liveness]\ntcp = {{ }}\nsuccess_threshold = 2"),
        "one success decides",
    );
    refuses(
        &format!("{one}[readiness]\ninterval = \"99ms\""),
        "out of bounds",
    );
}

#[test]
fn readiness_and_startup_have_forms_of_their_own_by_default() {
    let ports = profile("[ports]\nhttp = \"any\"");
    assert_eq!(ports.readiness, Some(Probe::Listening));
    assert_eq!(
        ports.supervision.readiness.clone().unwrap().interval,
        secs(5)
    );
    assert_eq!(ports.supervision.min_up, Duration::ZERO);
    // Nothing to look at: running for a second decides.
    let hidden = profile("[ports]\nhttp = { any = 1, publish = false }");
    assert_eq!(hidden.supervision.min_up, secs(1));
    let one = "[ports]\nhttp = \"any\"\n[startup]\nwithin = \"1m\"\n";
    assert_eq!(profile(one).startup, Some(Probe::Listening));
    let readiness = profile(&format!("{one}[readiness]\ntcp = {{ }}"));
    assert_eq!(readiness.startup, readiness.readiness);
    let liveness = profile("[startup]\nwithin = \"1m\"\n[liveness]\ncommand = [\"true\"]");
    assert_eq!(liveness.startup, liveness.liveness);
    refuses(
        "[startup]\nwithin = \"1m\"",
        "startup: what the probe does is not said",
    );
}

#[test]
fn what_is_unwise_is_told_but_accepted() {
    let warns = |lines: &str, part: &str| {
        let warnings = checked(lines).warnings;
        let told: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert!(
            told.iter().any(|text| text.contains(part)),
            "{told:#?} does not say {part:?}"
        );
    };
    let one = "[ports]\nhttp = \"any\"\n";
    warns(
        &format!("env = {{ A = \"${{host.address}}:${{port.http}}\" }}\n{one}"),
        "`${addr.http}` is host:port",
    );
    warns(
        "pre_exec = [\"get\", \"--api-token\", \"abc\"]",
        "the value of --api-token",
    );
    warns("pre_exec = \"get password=abc\"", "the value of password");
    warns("env_secret = [\"HF_TOKEN\"]", "not handed over");
    warns(
        "env_secret = [\"T\"]\npre_exec = [\"get\", \"${env.T}\"]",
        "${env.T} stands on a command line",
    );
    warns(
        "[liveness]\ncommand = [\"true\"]\ninterval = \"9s\"",
        "not up within 27s is restarted",
    );
    warns(
        "[readiness]\ncommand = [\"true\"]\ninterval = \"1s\"",
        "starts a process each time",
    );
    warns(
        &format!("{one}[liveness]\ntcp = {{ }}"),
        "notices a hang late",
    );
    warns(
        "[liveness]\ncommand = [\"true\"]\ninterval = \"10s\"\ntimeout = \"11s\"",
        "11s is longer than the interval of 10s",
    );
    let late = "[restart]\ngive_up = { max_restarts = 3, window = \"10m\" }\n[startup]\ncommand = [\"true\"]\nwithin = \"5m\"";
    warns(late, "start-ups that time out never reach the rule");
    warns(
        "pre_exec = [\"get\", \"postgres://bob:abc@host/db\"]",
        "the password of an address",
    );
    let hidden = &checked("pre_exec = \"get https://bob@h/?token=abc\"").warnings[0];
    assert!(
        hidden.text.starts_with("the value of token stands"),
        "{hidden}"
    );
    for quiet in [
        "--max-tokens 5",
        "--token-file /t",
        "--token=",
        "--tokenizer x",
    ] {
        let warnings = checked(&format!("pre_exec = \"get {quiet}\"")).warnings;
        assert!(warnings.is_empty(), "{warnings:?}");
    }
    let warning = &checked("[liveness]\ncommand = [\"true\"]\ninterval = \"9s\"").warnings[0];
    let line = warning.in_file("a.toml").to_string();
    assert!(
        line.starts_with("a.toml:3:1: warning: liveness: without a startup probe"),
        "{line}"
    );
}

#[test]
fn small_rules_hold() {
    refuses("extends = \"site/gpu\"", "the site has no profile site/gpu");
    refuses("kind = \"batch\"", "\"batch\" is not known");
    refuses("replicas = 100001", "or \"per-host\"");
    refuses("replicas = \"all\"", "no number of replicas");
    refuses("working_dir = \"data\"", "depends on the directory");
    refuses("env = { A = 1 }", "write it as a text, in quotes");
    refuses("env = { A = \"${port.x}\" }", "no port is called \"x\"");
    refuses("env = { A = \"${gpu.x}\" }", "${gpu.x} is unknown");
    refuses("env = { A = \"a\\u0000b\" }", "NUL");
    refuses(
        "visibility = \"all\"",
        "write \"private\", \"cluster\" or a list",
    );
    refuses("logs = [\"chem\"]", "neither a group nor a user");
    refuses("namespace = \"a b\"", "is not a namespace");
    refuses("[stop]\nsignal = \"TREM\"", "is no signal");
    refuses("[stop]\ngrace = 30", "30 has no unit");
    refuses("[stop]\ngrace = \"30\"", "\"30\" has no unit");
    refuses("[restart]\nbackoff = { jitter = 1.5 }", "from 0 to 1");
    refuses("[restart]\nsuccess_exit = [256]", "256 is no exit code");
    refuses("[placement]\nhosts = \"n[1-3\"", "do not pair");
    refuses(
        "[placement]\nhosts = \"n1\"\nexclude = \"n[1-2]\"",
        "excludes every host",
    );
    refuses("labels = { \"a b\" = \"x\" }", "labels.\"a b\"");
    assert_eq!(profile("[stop]\nsignal = \"SIGINT\"").stop_signal, 2);
    assert_eq!(
        profile("replicas = \"per-host\"").replicas,
        Replicas::PerHost
    );
    assert_eq!(
        profile("[placement]\nhosts = \"n[01-16]\"\nexclude = \"n07\"")
            .placement
            .hosts
            .len(),
        16
    );
}
