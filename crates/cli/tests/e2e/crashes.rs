//! What ends, hangs or never begins: restart in place, give-up, and who is told.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{USUAL, World, eventually, hello, kill};

#[test]
fn a_killed_replica_is_back_on_its_ports_with_its_variables() {
    let Some(world) = World::new() else { return };
    let profile = world.profile("hello.toml", &hello("hello", 2, "", USUAL));
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    let before = world.replica("hello", 0);
    let pid = before["pid"].as_i64().unwrap();
    let variables = |pid: i64| {
        let text = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let mut lines: Vec<_> = String::from_utf8_lossy(&text)
            .split('\0')
            .map(str::to_owned)
            .collect();
        // The same at every restart in place, but for these two.
        lines.retain(|line| {
            !line.starts_with("PORTREEVE_RUN=") && !line.starts_with("PORTREEVE_SCRATCH=")
        });
        lines.sort();
        lines
    };
    let environment = variables(pid);
    kill(i32::try_from(pid).unwrap(), "KILL");
    world.replica_when("hello", 0, "left the endpoints", |replica| {
        replica["pid"].as_i64() != Some(pid)
    });
    let after = world.replica_when("hello", 0, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
    assert_eq!(after["ports"], before["ports"]);
    assert_eq!(after["host"], before["host"]);
    assert_eq!(after["incarnation"], before["incarnation"]);
    assert_eq!(after["last_failure"], "signal 9 (KILL)");
    assert_eq!(variables(after["pid"].as_i64().unwrap()), environment);
    assert_eq!(world.ok(&["endpoints", "hello"]).lines().count(), 2);
    let events = world.ok(&["events", "hello"]);
    assert!(events.contains("signal 9 (KILL)"), "{events}");
}

#[test]
fn a_dead_replicas_endpoint_leaves_before_it_is_restarted() {
    let Some(world) = World::new() else { return };
    let slow = USUAL.replace(
        "initial = \"500ms\", max = \"1s\"",
        "initial = \"1h\", max = \"1h\"",
    );
    let profile = world.profile("hello.toml", &hello("hello", 2, "", &slow));
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    kill(
        i32::try_from(world.replica("hello", 1)["pid"].as_i64().unwrap()).unwrap(),
        "KILL",
    );
    assert!(eventually(|| world
        .ok(&["endpoints", "hello"])
        .lines()
        .count()
        == 1));
    let waiting = world.replica_when("hello", 1, "waited", |replica| {
        replica["state"] == "backoff"
    });
    assert_eq!(waiting["ready"], false);
    assert_eq!(waiting["restarts"], 0);
}

#[test]
fn a_hanging_replica_is_restarted_by_its_liveness_probe() {
    let Some(world) = World::new() else { return };
    let more = format!(
        "{USUAL}[liveness]\nhttp = {{ path = \"/\" }}\ninterval = \"200ms\"\ntimeout = \"200ms\"\nfailure_threshold = 3\n"
    );
    let profile = world.profile("hello.toml", &hello("hello", 1, "", &more));
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "hello", "--timeout", "30s"]);
    let before = world.replica("hello", 0);
    kill(
        i32::try_from(before["pid"].as_i64().unwrap()).unwrap(),
        "USR1",
    );
    let after = world.replica_when("hello", 0, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
    assert_eq!(after["ports"], before["ports"]);
    let why = after["last_failure"].as_str().unwrap();
    assert!(why.contains("liveness"), "{why}");
}

#[test]
fn a_service_whose_shim_is_killed_before_it_was_ready_restarts_on_its_ports() {
    // It listens still when its end is told, and is no stranger for that.
    let Some(world) = World::new() else { return };
    let never = USUAL.replace("path = \"/\"", "path = \"/ready\"");
    let profile = world.profile("hello.toml", &hello("hello", 1, "--ready-after 1h", &never));
    let _dev = world.dev(&[&profile]);
    let before = world.replica_when("hello", 0, "listened", |replica| {
        replica["reason"]
            .as_str()
            .is_some_and(|why| why.contains("503"))
    });
    let processes = world.processes();
    let shim = processes.iter().find(|(_, line)| line.contains(" shim "));
    kill(shim.expect("a shim runs").0, "KILL");
    let after = world.replica_when("hello", 0, "came back", |replica| {
        replica["restarts"] == 1 || replica["incarnation"] != before["incarnation"]
    });
    assert_eq!(after["incarnation"], before["incarnation"], "{after:#}");
    assert_eq!(after["ports"], before["ports"]);
}

#[test]
fn a_command_that_always_exits_gives_up_and_frees_its_ports() {
    // P32, P33
    let Some(world) = World::new() else { return };
    let profile = world.profile(
        "broken.toml",
        "kind = \"service\"\nname = \"broken\"\ncommand = \"exit 7\"\n[ports]\nhttp = \"any\"\n\
         [restart]\nbackoff = { initial = \"100ms\", max = \"200ms\" }\n\
         give_up = { max_restarts = 5, window = \"10m\" }\n",
    );
    let quiet = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let _dev = world.dev(&[&quiet]);
    world.ok(&["submit", &profile]);
    let ended = world.replica_when("broken", 0, "gave up", |replica| {
        replica["job_state"] == "EXIT"
    });
    assert_eq!(ended["restarts"], 5, "{ended:#}");
    let reason = ended["reason"].as_str().unwrap();
    assert!(
        reason.contains("gave up") && reason.contains('5') && reason.contains("exit 7"),
        "{reason}"
    );
    let host = world.replica("hello", 0)["host"]
        .as_str()
        .unwrap()
        .to_owned();
    let held = |service: &str| {
        let ports = world.json(&["ports", &host]);
        let of = |port: &&Value| {
            port["state"] == "held"
                && port["service"]
                    .as_str()
                    .is_some_and(|name| name.starts_with(service))
        };
        let ports = ports["ports"].as_array().unwrap();
        ports.iter().filter(of).count()
    };
    assert!(
        eventually(|| held("broken") == 0),
        "its ports are still held"
    );
    assert_eq!(held("hello"), 1);
    // Reversible by one command: a fresh budget, and it gives up again.
    world.ok(&["start", "broken"]);
    world.replica_when("broken", 0, "gave up again", |replica| {
        replica["job_state"] == "EXIT"
            && replica["incarnation"].as_u64() > ended["incarnation"].as_u64()
    });
}

#[test]
fn a_waiter_is_told_at_once_when_the_replica_cannot_become_ready() {
    // P40
    let Some(world) = World::new() else { return };
    let text = "kind = \"service\"\nname = \"dies\"\ncommand = \"sleep 1; exit 1\"\n[ports]\nhttp = \"any\"\n\
        [restart]\npolicy = \"never\"\n";
    let profile = world.profile("dies.toml", text);
    let quiet = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let _dev = world.dev(&[&quiet]);
    world.ok(&["submit", &profile]);
    let mut wait = world.start_alone("wait", &["wait", "dies", "--timeout", "300s"]);
    world.replica_when("dies", 0, "had ended", |it| it["job_state"] == "EXIT");
    let ended = Instant::now();
    assert_eq!(wait.code(), Some(1), "{}", wait.output());
    // Within a second of that, and what a busy machine adds.
    assert!(
        ended.elapsed() < Duration::from_secs(5),
        "{:?}",
        ended.elapsed()
    );
    assert!(wait.output().contains("exit 1"), "{}", wait.output());
}

#[test]
fn a_waiter_goes_on_while_a_replica_waits_for_its_number_or_its_next_start() {
    // P40, the other half: neither is an end.
    let Some(world) = World::new() else { return };
    let quiet = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    let _dev = world.dev(&["--ports", "20000-20002", &quiet]);
    let text = "kind = \"service\"\nname = \"again\"\ncommand = \"exit 1\"\n[ports]\nhttp = \"any\"\n\
        [restart]\nbackoff = { initial = \"1h\", max = \"1h\" }\n";
    world.ok(&["submit", &world.profile("again.toml", text)]);
    let many = hello("many", 1, "", &USUAL.replace("\"any\"", "{ any = 3 }"));
    world.ok(&["submit", &world.profile("many.toml", &many)]);
    world.replica_when("again", 0, "waited for its next start", |it| {
        it["state"] == "backoff"
    });
    for name in ["again", "many"] {
        let outcome = world.run(&["wait", name, "--timeout", "2s"]);
        assert_eq!(outcome.code, Some(7), "{name}: {outcome:?}");
    }
}

#[test]
fn the_child_of_a_dead_shell_does_not_keep_the_port() {
    // P34, depth 1: a wrapper without exec.
    let Some(world) = World::new() else { return };
    let text = hello("wrapped", 1, "", USUAL)
        .replace("exec portreeve", "true; portreeve")
        .replace("http} ", "http} --ignore-term; true");
    let profile = world.profile(
        "wrapped.toml",
        &format!("{text}[stop]\ngrace = \"500ms\"\n"),
    );
    let _dev = world.dev(&[&profile]);
    world.ok(&["wait", "wrapped", "--timeout", "30s"]);
    let before = world.replica("wrapped", 0);
    let children = |world: &World| {
        let hellos = |(_, line): &(i32, String)| {
            line.contains("hello --port") && !line.starts_with("/bin/sh")
        };
        world
            .processes()
            .into_iter()
            .filter(hellos)
            .map(|(pid, _)| pid)
            .collect::<Vec<_>>()
    };
    let first = children(&world);
    assert_eq!(first.len(), 1, "{:?}", world.processes());
    kill(
        i32::try_from(before["pid"].as_i64().unwrap()).unwrap(),
        "KILL",
    );
    let after = world.replica_when("wrapped", 0, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
    assert_eq!(after["ports"], before["ports"]);
    let second = children(&world);
    assert_eq!(second.len(), 1, "{:?}", world.processes());
    assert_ne!(first, second, "the orphan still serves");
    world.ok(&["stop", "wrapped"]);
    world.ok(&["wait", "wrapped", "--gone", "--timeout", "30s"]);
    assert_eq!(children(&world), Vec::<i32>::new());
}

#[test]
fn a_start_begins_with_an_empty_folder_so_that_a_marker_of_the_last_one_makes_no_check_easier() {
    // P42: strict until it has succeeded once, then lenient, by a marker in the run's own folder.
    let Some(world) = World::new() else { return };
    let check = "echo $PORTREEVE_RUN >> checks; \
        test -e $PORTREEVE_SCRATCH/marker || { test -e ready && touch $PORTREEVE_SCRATCH/marker; }";
    let profile = world.profile(
        "strict.toml",
        &format!(
            "kind = \"service\"\nname = \"strict\"\ncommand = \"exec sleep 1000000\"\n\
             working_dir = \"{}\"\n[ports]\nhttp = \"any\"\n\
             [restart]\nbackoff = {{ initial = \"100ms\", max = \"1s\" }}\n\
             [readiness]\ncommand = [\"sh\", \"-c\", \"{check}\"]\ninterval = \"100ms\"\n",
            world.path("").display()
        ),
    );
    let _dev = world.dev(&[&profile]);
    let ready = world.path("ready");
    std::fs::write(&ready, "").unwrap();
    let first = world.replica_when("strict", 0, "was ready", |it| it["ready"] == true);
    // The lenient check alone holds it now.
    std::fs::remove_file(&ready).unwrap();
    kill(
        i32::try_from(first["pid"].as_i64().unwrap()).unwrap(),
        "KILL",
    );
    let second = world.replica_when("strict", 0, "was up again", |it| {
        it["restarts"] == 1 && it["pid"].is_i64() && it["pid"] != first["pid"]
    });
    assert_eq!(second["ports"], first["ports"]);
    // Checked again and again, and strictly each time.
    let checks = || {
        let text = std::fs::read_to_string(world.path("checks")).unwrap();
        text.lines().filter(|run| *run == "2").count()
    };
    assert!(eventually(|| checks() >= 10), "the checks stopped");
    let strict = world.replica("strict", 0);
    assert_eq!(
        (&strict["ready"], &strict["run"]),
        (&false.into(), &2.into())
    );
    std::fs::write(&ready, "").unwrap();
    let again = world.replica_when("strict", 0, "was ready again", |it| it["ready"] == true);
    assert_eq!(again["restarts"], 1);
}

#[test]
fn a_check_that_prints_something_new_each_time_is_no_news() {
    // P23, on a real host: fifty checks, and nothing that a reader or the record could tell them by.
    let Some(world) = World::new() else { return };
    let looks = world.path("looks");
    let profile = world.profile(
        "noisy.toml",
        &format!(
            "kind = \"service\"\nname = \"noisy\"\ncommand = \"exec sleep 1000000\"\n\
             [ports]\nhttp = \"any\"\n\
             [readiness]\ncommand = [\"sh\", \"-c\", \"date +%N | tee -a {}\"]\ninterval = \"100ms\"\n",
            looks.display()
        ),
    );
    let _dev = world.dev(&[&profile]);
    world.replica_when("noisy", 0, "was ready", |it| it["ready"] == true);
    let told = || {
        let service = world.json(&["service", "noisy"]);
        (
            service["revision"].clone(),
            service["replicas"].clone(),
            world.ok(&["events", "noisy"]),
            world.ok(&["why", "noisy", "--all"]),
        )
    };
    let looked = || {
        std::fs::read_to_string(&looks)
            .unwrap_or_default()
            .lines()
            .count()
    };
    let (before, from) = (told(), looked());
    assert!(eventually(|| looked() >= from + 50), "the checks stopped");
    assert_eq!(told(), before);
}
