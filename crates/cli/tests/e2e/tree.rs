//! The tree of processes on a real host: held by each rung of the ladder, killed whole, adopted, and never left behind.

use serde_json::Value;

use crate::daemons::controller;
use crate::world::{PORTREEVE, Running, USUAL, World, eventually, hello, kill, names_in, pause};

/// The ladder from the top.
const RUNGS: [&str; 4] = ["cgroup", "pid-namespace", "freezer", "process-tree"];

/// An agent that holds its replicas by this rung; `None` with a printed reason where it is not possible here.
fn agent(world: &World, rung: &str) -> Option<Running> {
    let data = world.path("host").display().to_string();
    let socket = world.socket();
    let arguments = [
        "agent",
        "--data",
        &data,
        "--controller",
        &socket,
        "--single-host",
    ];
    let arguments = [&arguments[..], &["--containment", rung]].concat();
    let possible = rung
        .parse::<portreeve_api::containment::Rung>()
        .unwrap()
        .possible();
    let Err(refused) = possible else {
        return Some(world.start("agent", &arguments));
    };
    // What cannot be is refused at once, with what to do.
    let outcome = world.run(&arguments);
    assert_ne!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("containment"), "{outcome:?}");
    let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
    assert!(!required, "containment {rung} is required here: {refused}");
    eprintln!("skipped: needs containment {rung}: {refused}");
    None
}

/// Does it in a world of its own for each rung that there is.
fn on_each_rung(test: impl Fn(&World, &str, Running)) {
    for rung in RUNGS {
        let Some(world) = World::new() else { return };
        let _controller = controller(&world);
        if let Some(agent) = agent(&world, rung) {
            test(&world, rung, agent);
        }
    }
}

fn pid(replica: &Value) -> i32 {
    i32::try_from(replica["pid"].as_i64().unwrap()).unwrap()
}

/// What must not change while only its supervisors come and go.
fn standing(world: &World, service: &str) -> Vec<Value> {
    let replicas = world.json(&["service", service])["replicas"].clone();
    let fields = ["incarnation", "ports", "restarts", "pid", "ready", "run"];
    let of = |replica: &Value| fields.iter().map(|field| replica[*field].clone()).collect();
    replicas.as_array().unwrap().iter().map(of).collect()
}

/// Processes of the world whose command line holds this.
fn running(world: &World, what: &str) -> Vec<i32> {
    let all = world.processes().into_iter();
    all.filter(|(_, line)| line.contains(what))
        .map(|(pid, _)| pid)
        .collect()
}

#[test]
fn the_host_says_which_rungs_there_are_and_which_is_used() {
    on_each_rung(|world, rung, _agent| {
        let host = || world.json(&["hosts"])["hosts"][0].clone();
        assert!(eventually(|| host()["capabilities"].is_array()));
        let host = host();
        let words: Vec<_> = host["capabilities"].as_array().unwrap().iter().collect();
        let has = |word: String| words.iter().any(|one| **one == word);
        assert!(has(format!("containment:{rung}")), "{words:?}");
        assert!(
            has(format!("rung:{rung}")) && has("rung:process-tree".into()),
            "{words:?}"
        );
        assert_eq!(
            has("owner-proof:cgroup".into()),
            rung == "cgroup",
            "{words:?}"
        );
    });
}

#[test]
fn a_rung_that_is_not_known_is_refused_with_those_that_are() {
    let Some(world) = World::new() else { return };
    let outcome = world.run(&["agent", "--containment", "jail"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("pid-namespace"), "{outcome:?}");
}

#[test]
fn a_rung_that_the_host_does_not_allow_is_refused_at_the_start_with_what_is_missing() {
    let Some(world) = World::new() else { return };
    let data = world.path("host").display().to_string();
    let refused = world
        .command("setpriv")
        .args(["--bounding-set", "-sys_admin", PORTREEVE, "agent"])
        .args(["--containment", "pid-namespace", "--data", &data])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(
        words.contains("containment pid-namespace is not possible: it needs CAP_SYS_ADMIN"),
        "{words}"
    );
    assert!(words.contains("--containment"), "{words}");
}

#[test]
fn a_wrapper_at_any_depth_that_ignores_term_keeps_no_port() {
    // P34: chains of depth 1 to 3, TERM ignored at each depth.
    on_each_rung(|world, rung, _agent| {
        for depth in 1..=3 {
            let name = format!("deep{depth}");
            let mut line = "portreeve hello --port ${port.http} --ignore-term".to_owned();
            for level in 0..depth {
                let script = world.profile(
                    &format!("{name}-{level}.sh"),
                    &format!(
                        "trap '' TERM\n{}\n:\n",
                        line.replace("${port.http}", "$PORT")
                    ),
                );
                line = format!("sh {script}");
            }
            let text = format!(
                "kind = \"service\"\nname = \"{name}\"\ncommand = \"trap '' TERM; {line}; :\"\n{USUAL}\
                 [stop]\ngrace = \"300ms\"\n"
            );
            world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
            world.ok(&["wait", &name, "--timeout", "30s"]);
            let before = world.replica(&name, 0);
            let port = before["ports"]["http"].as_u64().unwrap();
            let serving = || running(world, &format!("hello --port {port}"));
            assert_eq!(
                serving().len(),
                1,
                "{rung} {depth}: {:?}",
                world.processes()
            );
            let first = serving();
            kill(pid(&before), "KILL");
            let after = world.replica_when(&name, 0, "came back", |it| {
                it["ready"] == true && it["restarts"] == 1
            });
            assert_eq!(after["ports"], before["ports"]);
            let second = serving();
            assert!(
                second.len() == 1 && second != first,
                "{rung} {depth}: the orphan still serves"
            );
            world.ok(&["stop", &name]);
            world.ok(&["wait", &name, "--gone", "--timeout", "30s"]);
            assert_eq!(serving(), Vec::<i32>::new(), "{rung} {depth}");
            assert!(!world.listens(port), "{rung} {depth}");
        }
    });
}

#[test]
fn a_restart_waits_for_the_last_process_of_the_old_run_and_is_counted_once() {
    // P06: TERM is ignored, so that the old run holds its fixed port for the whole grace.
    on_each_rung(|world, rung, _agent| {
        let usual = USUAL.replace("http = \"any\"", "http = 25006");
        let text = hello("fixed", 1, "--ignore-term", &usual) + "[stop]\ngrace = \"1s\"\n";
        world.ok(&["submit", &world.profile("fixed.toml", &text)]);
        world.ok(&["wait", "fixed", "--timeout", "30s"]);
        let before = world.replica("fixed", 0);
        world.ok(&["restart", "fixed"]);
        let mut together = 0;
        let again = eventually(|| {
            together = together.max(running(world, "hello --port 25006").len());
            let now = world.replica("fixed", 0);
            now["ready"] == true && now["pid"] != before["pid"]
        });
        assert!(again, "{rung}: {:#}", world.replica("fixed", 0));
        assert_eq!(together, 1, "{rung}: old and new lived together");
        let after = world.replica("fixed", 0);
        assert_eq!(after["ports"], before["ports"]);
        assert_eq!(
            after["run"].as_u64().unwrap(),
            before["run"].as_u64().unwrap() + 1,
            "{rung}"
        );
        // As ordered, and not a failure of its own.
        assert_eq!(
            (&after["restarts"], &after["last_failure"]),
            (&before["restarts"], &Value::Null),
            "{rung}: {after:#}"
        );
        let log = world.ok(&["logs", "fixed", "--stderr"]);
        assert!(!log.to_lowercase().contains("in use"), "{rung}: {log}");
    });
}

#[test]
fn an_agent_that_is_killed_again_and_again_is_not_noticed_by_services_or_watchers() {
    // P20
    let rounds = if std::env::var_os("PORTREEVE_LONG").is_some() {
        20
    } else {
        4
    };
    let Some(world) = World::new() else { return };
    let _controller = controller(&world);
    let Some(mut agent) = agent(&world, "cgroup") else {
        return;
    };
    let text = hello("ten", 10, "", USUAL);
    world.ok(&["submit", &world.profile("ten.toml", &text)]);
    world.ok(&["wait", "ten", "--timeout", "60s"]);
    assert!(eventually(|| standing(&world, "ten")
        .iter()
        .all(|it| it[4] == true)));
    let before = standing(&world, "ten");
    let endpoints = || world.json(&["endpoints", "ten"]);
    let seen = endpoints();
    for round in 0..rounds {
        assert_eq!(agent.end("KILL"), None);
        assert_eq!(
            standing(&world, "ten"),
            before,
            "round {round}, without an agent"
        );
        agent = self::agent(&world, "cgroup").unwrap();
        assert!(eventually(
            || world.json(&["hosts"])["hosts"][0]["state"] == "up"
        ));
        assert_eq!(standing(&world, "ten"), before, "round {round}");
        assert_eq!(endpoints(), seen, "round {round}: a watcher was woken");
    }
    world.ok(&["stop", "ten"]);
    world.ok(&["wait", "ten", "--gone", "--timeout", "60s"]);
    assert_eq!(running(&world, "hello --port"), Vec::<i32>::new());
}

#[test]
fn an_agent_killed_in_each_state_changes_nothing_of_it() {
    // Point 8: starting with pre_exec, starting up, up, stopping, backoff.
    on_each_rung(|world, rung, mut agent| {
        let go = world.path("go");
        let service = |name: &str, command: &str, more: &str| {
            let text =
                format!("kind = \"service\"\nname = \"{name}\"\ncommand = \"{command}\"\n{more}\n");
            world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
        };
        let port = "[ports]\nhttp = { any = 1, publish = false }\n";
        let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
        service(
            "pre",
            "exec sleep 1000000",
            &format!(
                "pre_exec = \"echo x >> {}; {wait}\"\n{port}",
                world.path("tries").display()
            ),
        );
        service(
            "startup",
            "exec sleep 1000000",
            &format!(
                "{port}[startup]\ncommand = [\"test\", \"-e\", \"{}\"]\ninterval = \"200ms\"\nfailure_threshold = 600\n",
                go.display()
            ),
        );
        service("up", "exec sleep 1000000", port);
        service(
            "stop",
            "trap '' TERM; while :; do sleep 0.1; done",
            &format!("{port}[stop]\ngrace = \"4s\"\n"),
        );
        service(
            "backoff",
            &format!("[ -e {} ] && exec sleep 1000000; exit 3", go.display()),
            &format!(
                "{port}[restart]\nbackoff = {{ initial = \"5s\", max = \"5s\", jitter = 0 }}\n"
            ),
        );
        let states = ["pre", "startup", "up", "stop", "backoff"];
        let state = |name: &str| world.replica(name, 0)["detail"].clone();
        world.replica_when("up", 0, "was ready", |it| it["ready"] == true);
        world.replica_when("stop", 0, "was ready", |it| it["ready"] == true);
        assert!(eventually(|| world.path("tries").exists()));
        world.replica_when("startup", 0, "started", |it| it["pid"].is_i64());
        world.ok(&["stop", "stop"]);
        world.replica_when("backoff", 0, "failed", |it| !it["last_failure"].is_null());
        let before: Vec<_> = states.iter().map(|name| world.replica(name, 0)).collect();
        assert_eq!(agent.end("KILL"), None);
        let Some(next) = self::agent(world, rung) else {
            return;
        };
        agent = next;
        std::fs::write(&go, "").unwrap();
        for (name, before) in states.iter().zip(&before) {
            if *name == "stop" {
                world.ok(&["wait", "stop", "--gone", "--timeout", "30s"]);
                continue;
            }
            let after = world.replica_when(name, 0, "was ready", |it| it["ready"] == true);
            let restarts = u64::from(*name == "backoff");
            assert_eq!(
                after["restarts"],
                restarts,
                "{rung} {name}: {:?} {after:#}",
                state(name)
            );
            assert_eq!(after["ports"], before["ports"], "{rung} {name}");
            assert_eq!(after["incarnation"], before["incarnation"], "{rung} {name}");
            if before["pid"].is_i64() && *name != "backoff" {
                assert_eq!(after["pid"], before["pid"], "{rung} {name}");
            }
        }
        let tries = std::fs::read_to_string(world.path("tries")).unwrap();
        assert_eq!(tries, "x\n", "{rung}: pre_exec ran twice");
        drop(agent);
    });
}

#[test]
fn a_controller_that_is_away_fails_answers_garbage_or_hangs_ends_nothing() {
    // P21
    let Some(world) = World::new() else { return };
    let first = controller(&world);
    let Some(_agent) = agent(&world, "cgroup") else {
        return;
    };
    for (name, replicas) in [("hello", 2), ("fails", 1)] {
        let text = hello(name, replicas, "", USUAL);
        world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
        world.ok(&["wait", name, "--timeout", "60s"]);
    }
    // News is written with the next truth.
    let quiet = "kind = \"service\"\nname = \"quiet\"\ncommand = \"exec sleep 1000000\"\n";
    world.ok(&["submit", &world.profile("quiet.toml", quiet)]);
    let before = standing(&world, "hello");
    let failing = world.replica("fails", 0);
    let port = |replica: &Value| replica["ports"]["http"].as_u64().unwrap();
    let ports = [0, 1].map(|index| port(&world.replica("hello", index)));
    let serving = |port: u64| running(&world, &format!("hello --port {port} "));
    let endpoints = world.ok(&["endpoints", "hello"]);
    assert_eq!(first.end("KILL"), None);
    let services = ports.map(serving);
    let socket = world.path("run/controller.sock");
    let problem = "b'HTTP/1.1 500 Internal Server Error\\r\\ncontent-type: application/json\\r\\n\
                   content-length: 2\\r\\n\\r\\n{}'";
    let unknown = problem.replace("500 Internal Server Error", "404 Not Found");
    let answers = [
        ("failures", problem),
        ("unknown", &unknown),
        (
            "garbage",
            "b'HTTP/1.1 200 OK\\r\\ncontent-length: 4\\r\\n\\r\\n{}}}'",
        ),
        // Takes everything and never says a word.
        ("silence", "None"),
    ];
    for (what, answer) in &answers {
        _ = std::fs::remove_file(&socket);
        let code = format!(
            "import os, socket\n\
             s = socket.socket(socket.AF_UNIX)\ns.bind('{}')\ns.listen(64)\nkept = []\nanswer = {answer}\n\
             while True:\n \
             c, _ = s.accept()\n \
             open('{}', 'a').write('x')\n \
             kept.append(c)\n \
             if answer:\n  try:\n   c.recv(65536)\n   c.sendall(answer)\n  except OSError: pass\n  c.close()\n",
            socket.display(),
            world.path(what).display()
        );
        let script = world.profile(&format!("{what}.py"), &code);
        let mut false_controller = world.command("python3").arg(script).spawn().unwrap();
        // What fails meanwhile is restarted by who watches it, and that is told to this one in vain.
        let number = port(&failing);
        let old = serving(number);
        old.iter().for_each(|pid| kill(*pid, "KILL"));
        let restarted = eventually(|| {
            let now = serving(number);
            !now.is_empty() && now != old && world.listens(number)
        });
        let asked = || {
            std::fs::read_to_string(world.path(what))
                .unwrap_or_default()
                .len()
        };
        let heard = eventually(|| asked() >= 3);
        for _ in 0..50 {
            pause();
        }
        assert_eq!(ports.map(serving), services, "{what}");
        assert!(ports.iter().all(|port| world.listens(*port)), "{what}");
        false_controller.kill().unwrap();
        false_controller.wait().unwrap();
        assert!(restarted, "{what}: nobody watches any more");
        assert!(heard, "{what} was never asked");
    }
    _ = std::fs::remove_file(&socket);
    let _second = controller(&world);
    assert_eq!(world.ok(&["endpoints", "hello"]), endpoints);
    assert!(eventually(
        || world.json(&["hosts"])["hosts"][0]["state"] == "up"
    ));
    assert_eq!(standing(&world, "hello"), before);
    // Each end is told once, late or not.
    let failed = world.replica_when("fails", 0, "was told with every restart", |it| {
        it["ready"] == true && it["restarts"] == answers.len()
    });
    for field in ["incarnation", "ports", "host"] {
        assert_eq!(failed[field], failing[field], "{field}");
    }
}

#[test]
fn what_was_made_to_hold_a_replica_goes_with_it() {
    for rung in ["cgroup", "freezer"] {
        let Some(world) = World::new() else { return };
        let _controller = controller(&world);
        let Some(_agent) = agent(&world, rung) else {
            continue;
        };
        world.ok(&[
            "submit",
            &world.profile("hello.toml", &hello("hello", 2, "", USUAL)),
        ]);
        world.ok(&["wait", "hello", "--timeout", "60s"]);
        let hello = pid(&world.replica("hello", 0));
        let line = std::fs::read_to_string(format!("/proc/{hello}/cgroup")).unwrap();
        let group = line
            .lines()
            .find(|line| line.contains("/portreeve-"))
            .unwrap();
        let group = group.split(':').nth(2).unwrap();
        let hierarchy = match rung {
            "cgroup" => portreeve_api::containment::Hierarchy::Unified,
            _ => portreeve_api::containment::Hierarchy::Freezer,
        };
        // Of this process's own group everything of the test's is below.
        let own = hierarchy.own().unwrap();
        let name = group
            .split('/')
            .find(|name| name.starts_with("portreeve-"))
            .unwrap();
        assert_eq!(
            names_in(&own.join(name))
                .iter()
                .filter(|one| one.contains('~'))
                .count(),
            2
        );
        world.ok(&["stop", "hello"]);
        world.ok(&["wait", "hello", "--gone", "--timeout", "30s"]);
        assert!(
            eventually(|| !own.join(name).exists()),
            "{rung}: {:?}",
            names_in(&own.join(name))
        );
    }
}

#[test]
fn a_replica_keeps_the_rung_it_began_with_under_an_agent_that_is_told_otherwise() {
    let Some(world) = World::new() else { return };
    let _controller = controller(&world);
    let Some(first) = agent(&world, "cgroup") else {
        return;
    };
    world.ok(&[
        "submit",
        &world.profile("old.toml", &hello("old", 1, "", USUAL)),
    ]);
    world.ok(&["wait", "old", "--timeout", "60s"]);
    let before = world.replica("old", 0);
    assert_eq!(first.end("KILL"), None);
    for worker in running(&world, " worker --folder") {
        kill(worker, "KILL");
    }
    let Some(_second) = agent(&world, "process-tree") else {
        return;
    };
    world.ok(&[
        "submit",
        &world.profile("new.toml", &hello("new", 1, "", USUAL)),
    ]);
    world.ok(&["wait", "new", "--timeout", "60s"]);
    let group = |replica: &Value| {
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", pid(replica))).unwrap();
        groups
            .lines()
            .any(|line| line.starts_with("0::") && line.contains("/run-"))
    };
    assert_eq!(world.replica("old", 0)["pid"], before["pid"]);
    world.ok(&["restart", "old"]);
    let again = world.replica_when("old", 0, "ran again", |it| {
        it["ready"] == true && it["pid"] != before["pid"]
    });
    assert!(group(&again) && !group(&world.replica("new", 0)));
}
