//! What people are told where something is off: what it is, and what to do.

use crate::world::{Outcome, PORTREEVE, World, eventually, kill, quiet_dev};

#[test]
fn a_jobs_log_tells_each_restart_and_what_was_ordered_from_outside() {
    let Some(world) = World::new() else { return };
    let _dev = quiet_dev(&world, &[]);
    let told = world.path("job.err");
    let mut command = world.command(PORTREEVE);
    command
        .args(["run", "--name", "web", "--set"])
        .arg("restart.backoff={ initial = \"100ms\", max = \"1s\" }")
        .args(["--", "sleep", "1000000"])
        .env("PORTREEVE_AGENT", world.path("run/agent.sock"))
        .stderr(std::fs::File::create(&told).unwrap());
    let mut job = command.spawn().unwrap();
    let told = || std::fs::read_to_string(&told).unwrap();
    let living = || {
        let shown = world.run(&["service", "web", "-o", "json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown.stdout).ok()?;
        let replica = shown["replicas"].get(0)?;
        let ready = replica["ready"] == true;
        ready.then(|| replica["pid"].as_i64())?
    };
    assert!(eventually(|| living().is_some()), "{}", told());
    kill(i32::try_from(living().unwrap()).unwrap(), "KILL");
    let words = "portreeve: web.root/0: signal 9 (KILL); is started again on the same ports\n";
    assert!(eventually(|| told().contains(words)), "{}", told());
    assert!(eventually(|| living().is_some()), "{}", told());
    world.ok(&["restart", "web"]);
    let words = "portreeve: web.root/0: restarts as ordered, on the same ports\n";
    assert!(eventually(|| told().contains(words)), "{}", told());
    // Nobody is sent to `start`, which is refused for it.
    let killed = world.run(&["kill", "web/0"]);
    assert!(killed.stdout.contains("its job ends with it"), "{killed:?}");
    let mut over = None;
    eventually(|| {
        over = job.try_wait().unwrap();
        over.is_some()
    });
    if over.is_none() {
        _ = job.kill();
        _ = job.wait();
    }
    assert!(over.is_some(), "the job went on: {}", told());
    let words = "portreeve: web.root/0: stopped as ordered from outside the job\n";
    assert!(told().ends_with(words), "{}", told());
}

#[test]
fn a_run_of_nothing_or_with_a_port_named_twice_is_a_wrong_use() {
    let Some(world) = World::new() else { return };
    let nothing = world.run(&["run"]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("nothing to run"), "{nothing:?}");
    let twice = world.run(&["run", "--port", "a", "--port", "a:8080", "--", "true"]);
    assert_eq!(twice.code, Some(2), "{twice:?}");
    assert!(
        twice.stderr.contains("--port a is there twice"),
        "{twice:?}"
    );
}

#[test]
fn a_check_of_an_agent_finds_that_no_systemd_runs_units() {
    let Some(world) = World::new() else { return };
    let empty = world.path("nobody-home");
    std::fs::create_dir(&empty).unwrap();
    let check = world
        .portreeve(&["agent", "--check", "--single-host", "--backend", "systemd"])
        .env("XDG_RUNTIME_DIR", &empty)
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere")
        .output();
    let check = Outcome::of(check.unwrap());
    assert_eq!(check.code, Some(1), "{check:?}");
    // What systemd says has several lines, a finding has one.
    let found = check.stdout.lines();
    let found: Vec<_> = found.filter(|line| line.starts_with("backend\t")).collect();
    let [line] = found[..] else {
        panic!("{check:?}")
    };
    assert!(
        line.contains("not ready\tno systemd runs units here"),
        "{line}"
    );
    assert!(
        line.ends_with("start without `--backend systemd`, or have it running"),
        "{line}"
    );
}
