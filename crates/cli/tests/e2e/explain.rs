//! `explain` and `ports`: the same causes for who asks before, who waits, and who looks at a host.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::stranger::Stranger;
use crate::world::{PORTREEVE, USUAL, World, hello, quiet_dev};

/// `[code, number, protocol]` of every reason of a list.
fn causes(reasons: &Value) -> Vec<(String, u64, String)> {
    let text = |it: &Value| it.as_str().unwrap_or("-").to_owned();
    let reasons = reasons.as_array().unwrap().iter();
    reasons
        .map(|it| {
            let number = it["number"].as_u64().unwrap_or(0);
            (text(&it["code"]), number, text(&it["protocol"]))
        })
        .collect()
}

#[test]
fn every_cause_is_told_per_host_and_port_before_a_submit_and_after_it() {
    // P36
    let Some(world) = World::new() else { return };
    let stranger = Stranger::new(&world, "0.0.0.0", 5236);
    let _dev = quiet_dev(
        &world,
        &[
            "--host",
            "n1",
            "--ports",
            "20000-20009",
            "--reserved-ports",
            "9000-9009",
        ],
    );
    let two = USUAL
        .replace("http = \"any\"\n", "http = 8888\nother = 20005\n")
        .replace("{ path", "{ port = \"http\", path");
    let holder = hello("holder", 1, "", &two);
    world.ok(&["submit", &world.profile("holder.toml", &holder)]);
    world.ok(&["wait", "holder", "--timeout", "30s"]);
    let ports = "http = 8888\nforeign = 5236\nreserved = 9001\nbelow = { any = 1, range = \"100-200\" }\n\
                 block = { any = 10, range = \"20000-20010\" }\n";
    let usual = USUAL
        .replace("http = \"any\"\n", ports)
        .replace("{ path", "{ port = \"http\", path");
    let wants = hello("wants", 1, "", &usual);
    let file = world.profile("wants.toml", &wants);

    // Before: a line each, the sum beside it, nothing stored.
    let fit = world.run(&["explain", &file, "--show", "placement"]);
    assert_eq!(fit.code, Some(1), "{fit:?}");
    let lines: Vec<Vec<&str>> = fit
        .stdout
        .lines()
        .map(|it| it.split('\t').collect())
        .collect();
    let user = world.json(&["whoami"])["user"].as_str().unwrap().to_owned();
    let by = format!("holder.{user}/0");
    let pid = format!("pid {} python3", stranger.pid());
    assert_eq!(
        lines,
        [
            [
                "n1",
                "no",
                "HELD",
                "http",
                "8888/tcp",
                by.as_str(),
                "-",
                "-"
            ],
            [
                "n1",
                "no",
                "FOREIGN",
                "foreign",
                "5236/tcp",
                "-",
                "-",
                pid.as_str()
            ],
            [
                "n1", "no", "RESERVED", "reserved", "9001/tcp", "-", "-", "-"
            ],
            [
                "n1",
                "no",
                "NO BLOCK",
                "block",
                "any/tcp",
                "-",
                "-",
                "block of 10 in 20000-20009"
            ],
            [
                "n1",
                "no",
                "NOT IN POOL",
                "below",
                "any/tcp",
                "-",
                "-",
                "offered: 20000-20009"
            ],
        ]
    );
    assert!(fit.stderr.contains("0 of 1 host fits; 1 HELD"), "{fit:?}");
    assert_eq!(world.run(&["service", "wants"]).code, Some(4));
    let asked = world.run(&["explain", &file, "-o", "json"]);
    assert_eq!(asked.code, Some(1), "{asked:?}");
    let before: Value = serde_json::from_str(&asked.stdout).unwrap();

    // After: the same list.
    world.ok(&["submit", &file]);
    let pending = world.replica_when("wants", 0, "pended", |it| it["reason"].is_string());
    assert_eq!(pending["reasons"], before["hosts"][0]["reasons"]);
    assert_eq!(
        causes(&pending["reasons"])[0],
        ("HELD".to_owned(), 8888, "tcp".to_owned())
    );
    assert_eq!(pending["reasons"][0]["code_number"], 1);
    let reason = pending["reason"].as_str().unwrap();
    for words in [
        format!("port 8888/tcp on host n1 is held by holder.{user} replica 0"),
        "port 5236/tcp on host n1 is in use by a process outside portreeve".to_owned(),
        "port 9001/tcp on host n1 is reserved by the site".to_owned(),
        "no 10 consecutive free ports in 20000-20009 on host n1".to_owned(),
        "may only be in 100-200, outside the host's dynamic range 20000-20009".to_owned(),
    ] {
        assert!(reason.contains(&words), "{words:?} is missing: {reason}");
    }
    let listed = world.ok(&["services"]);
    let short = format!("1 replica waits: 8888/tcp HELD by {by} on n1 and 4 more");
    assert!(listed.contains(&short), "{listed}");
    let again = world.run(&["explain", "--service", "wants/0", "-o", "json"]);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["replica"], 0);
    assert_eq!(again["hosts"], before["hosts"]);
}

#[test]
fn a_profile_that_fits_is_told_where_and_may_come_by_standard_input() {
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &["--host", "n1"]);
    let mut child = world
        .portreeve(&["explain", "-", "--show", "placement"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = hello("web", 1, "", USUAL);
    let mut input = child.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "n1\tyes\t-\t-\t-\t-\t-\t-\n"
    );
    // Standard input may be a socket, or a file that only the caller could open: no name leads to either.
    let (mut input, other) = std::os::unix::net::UnixStream::pair().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let other = std::os::fd::OwnedFd::from(other);
    let mut by_socket = world.portreeve(&["explain", "-"]);
    let output = by_socket.stdin(Stdio::from(other)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let bad = world.profile("bad.toml", "name = \"x\"\n");
    let refused = world.run(&["explain", &bad]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let first = format!("{bad}:1:1: command: ");
    assert!(refused.stderr.starts_with(&first), "{refused:?}");
    let mistaken = world.run(&["explain", "quiet"]);
    assert_eq!(mistaken.code, Some(1), "{mistaken:?}");
    assert!(
        mistaken.stderr.contains("explain --service quiet"),
        "{mistaken:?}"
    );
    assert_eq!(world.run(&["explain"]).code, Some(2));
    assert_eq!(
        world.run(&["explain", &bad, "--service", "x"]).code,
        Some(2)
    );
    assert_eq!(
        world.run(&["explain", "--service", "nothing"]).code,
        Some(4)
    );
    let page = std::process::Command::new(PORTREEVE)
        .args(["explain", "--help"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8(page.stdout)
            .unwrap()
            .contains("standard input")
    );
}

#[test]
fn ports_of_a_host_are_lines_in_a_pipe_and_whole_as_json() {
    let Some(world) = World::new() else { return };
    let stranger = Stranger::new(&world, "127.0.0.1", 20003);
    let _dev = quiet_dev(
        &world,
        &[
            "--host",
            "n1",
            "--ports",
            "20000-20009",
            "--reserved-ports",
            "20008-20009",
            "--cooling",
            "10m",
        ],
    );
    let web = hello("web", 2, "", USUAL);
    world.ok(&["submit", &world.profile("web.toml", &web)]);
    world.ok(&["wait", "web", "--timeout", "30s"]);
    world.ok(&["kill", "web/1"]);
    world.replica_when("web", 1, "ended", |it| it["state"] == "killed");
    let lines = world.ok(&["ports", "n1"]);
    let user = world.json(&["whoami"])["user"].as_str().unwrap().to_owned();
    for line in [
        format!("20000/tcp\theld\tweb.{user}/0\thttp\n"),
        format!("20001/tcp\tcooling\tweb.{user}\tfree in "),
        format!("20003/tcp\tforeign\t-\tpid {} python3\n", stranger.pid()),
        "20008-20009/tcp+udp\treserved\t-\t-\n".to_owned(),
    ] {
        assert!(lines.contains(&line), "{line:?} is missing: {lines}");
    }
    assert!(
        lines.lines().all(|line| line.split('\t').count() == 4),
        "{lines}"
    );
    let whole = world.json(&["ports", "n1"]);
    assert_eq!(whole["ranges"]["reserved"], "20008-20009");
    let counts = &whole["counts"];
    for (name, count) in [
        ("dynamic", 10),
        ("free_tcp", 5),
        ("free_udp", 8),
        ("held", 1),
        ("cooling", 1),
        ("reserved", 2),
    ] {
        assert_eq!(counts[name], count, "{name}: {whole:#}");
    }
    let figures = world.ok(&["ports", "n1", "--counts"]);
    for line in [
        "dynamic-range\t20000-20009\n",
        "free-tcp\t5\n",
        "cooling\t1\n",
    ] {
        assert!(figures.contains(line), "{line:?} is missing: {figures}");
    }
    let unknown = world.run(&["ports", "n9"]);
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    assert!(unknown.stderr.contains("no host n9"), "{unknown:?}");
}

#[test]
fn a_profile_is_explained_with_the_layer_of_each_value_and_what_its_rules_will_do() {
    let Some(world) = World::new() else { return };
    std::fs::create_dir(world.path("site")).unwrap();
    let site = world.path("site").display().to_string();
    world.profile(
        "site/slow.toml",
        "[restart]\nbackoff = { initial = \"10s\", max = \"300s\" }\n",
    );
    let text = "name = \"llm\"\nextends = \"site/slow\"\ncommand = [\"serve\"]\n[ports]\nhttp = \"any\"\n\
                [liveness]\nhttp = { path = \"/health\" }\n";
    let file = world.profile("llm.toml", text);
    let set = ["--set", "stop.grace=20s"];
    let alone = world.run(&["explain", &file, set[0], set[1], "--site-profiles", &site]);
    assert_eq!(alone.code, Some(6), "{alone:?}");
    let _dev = quiet_dev(&world, &["--host", "n1", "--site-profiles", &site]);
    // The controller has the site's profiles.
    let told = world.run(&["explain", &file, set[0], set[1]]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let parts: Vec<_> = told.stdout.split("\n\n").collect();
    let [placement, values, forecast] = parts.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(*placement, "n1\tyes\t-\t-\t-\t-\t-\t-");
    assert_eq!(alone.stdout, format!("{values}\n\n{forecast}"));
    for line in [
        "name\t\"llm\"\tprofile",
        "restart.backoff.max\t\"5m\"\tsite/slow",
        "restart.backoff.jitter\t0.1\tdefault",
        "restart.give_up.window\t\"1h20s\"\tdefault",
        "stop.grace\t\"20s\"\tflag",
    ] {
        assert!(
            values.lines().any(|it| it == line),
            "{line:?} is missing: {values}"
        );
    }
    assert!(
        forecast.contains("at the failure after 10 restarts within 1h20s; where every run fails at once, 27m9s to 30m10s after the first failure"),
        "{forecast}"
    );
    assert!(
        forecast.contains("hang, until it is ended: 23s to 33s\n"),
        "{forecast}"
    );
    let json = world.run(&["explain", &file, "-o", "json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["forecast"]["give_up"]["window"], "1h20s");
    assert_eq!(json["effective"][0]["layer"], "default");
    assert_eq!(json["hosts"][0]["fits"], true);
    let only = world.ok(&["explain", &file, "--show", "forecast"]);
    assert_eq!(only, *forecast);
    let running = world.ok(&["explain", "--service", "quiet", "--show", "forecast"]);
    assert!(running.contains("waits before a restart"), "{running}");
}
