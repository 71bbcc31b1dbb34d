//! The program of the commit before, with services running, is replaced by this one: controller first, then the agent, while
//! the workers stay.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::world::{PORTREEVE, Running, USUAL, World, eventually, hello, kill};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The program of the commit before this one: that which `PORTREEVE_OLD` names, else built from the repository, once for
/// each commit. `None` with a printed reason where there is no such commit at hand.
fn program_before() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("PORTREEVE_OLD") {
        return Some(named.into());
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(ROOT)
            .args(arguments)
            .output();
        let output = output.ok().filter(|it| it.status.success())?;
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--verify", "--quiet", "HEAD~1^{commit}"]) else {
        let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
        assert!(!required, "git and the commit before are required here");
        eprintln!("skipped: needs git and the commit before, or PORTREEVE_OLD");
        return None;
    };
    let built = Path::new(PORTREEVE).parent().unwrap();
    let place = built.parent().unwrap().join("before");
    // Of the name by which jobs call it.
    let program = place.join(&commit).join("portreeve");
    if program.exists() {
        return Some(program);
    }
    // Of earlier commits nothing is kept.
    _ = std::fs::remove_dir_all(&place);
    let tree = place.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    let unpacked = Command::new("sh")
        .args([
            "-c",
            "git -C \"$1\" archive \"$2\" | tar -x -C \"$3\"",
            "sh",
        ])
        .args([ROOT, &commit])
        .arg(&tree)
        .status();
    assert!(unpacked.unwrap().success(), "no tree of {commit}");
    // In a place of its own: it must not stand where the program under test does. What it shares with that, the crates of
    // others, is taken from there.
    let target = place.join("target");
    std::fs::create_dir_all(target.join("debug")).unwrap();
    for (folder, how) in [(".fingerprint", "-a"), ("build", "-a"), ("deps", "-al")] {
        let copied = Command::new("cp")
            .arg(how)
            .arg(built.join(folder))
            .arg(target.join("debug"))
            .status();
        assert!(copied.unwrap().success(), "{folder}");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--locked", "--quiet", "-p", "portreeve-cli"])
        .current_dir(&tree)
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{commit}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // By another process: a child that another test starts meanwhile would hold the copy open for writing, and nobody could
    // run it.
    let mut install = Command::new("install");
    install
        .args(["-D", "-m", "755"])
        .arg(target.join("debug/portreeve"));
    assert!(install.arg(&program).status().unwrap().success());
    for done in [&tree, &target] {
        std::fs::remove_dir_all(done).unwrap();
    }
    Some(program)
}

/// Starts the controller as this program.
fn controller(world: &World, program: &Path) -> Running {
    let (data, run) = (world.path("controller"), world.path("run"));
    let arguments = [
        "controller",
        "--single-host",
        "--data",
        data.to_str().unwrap(),
        "--run-dir",
        run.to_str().unwrap(),
    ];
    world.start_by(world.command(program), "controller", &arguments)
}

/// Starts the agent as this program.
fn agent(world: &World, program: &Path) -> Running {
    let (data, socket) = (world.path("host"), world.path("agent.sock"));
    let controller = world.socket();
    let arguments = [
        "agent",
        "--single-host",
        "--host",
        "n1",
        "--data",
        data.to_str().unwrap(),
        "--socket",
        socket.to_str().unwrap(),
        "--controller",
        &controller,
    ];
    world.start_by(world.command(program), "agent", &arguments)
}

/// What must not change of each replica.
fn standing(world: &World) -> Vec<Value> {
    let fields = [
        "incarnation",
        "host",
        "ports",
        "pid",
        "run",
        "restarts",
        "restarts_total",
        "ready",
        "first_failure_detail",
        "last_failure_detail",
    ];
    (0..3)
        .map(|index| {
            let replica = world.replica("hello", index);
            fields.iter().map(|it| replica[*it].clone()).collect()
        })
        .collect()
}

/// The programs of the workers of a service.
fn worker_programs(world: &World, service: &str) -> Vec<PathBuf> {
    let is_one = |line: &str| line.contains(" worker --folder ") && line.contains(service);
    let processes = world.processes().into_iter();
    let workers = processes.filter(|(_, line)| is_one(line));
    workers
        .map(|(pid, _)| std::fs::read_link(format!("/proc/{pid}/exe")).unwrap())
        .collect()
}

/// Fails if what a watcher was told has fewer than three endpoints at any time.
fn without_a_gap(told: &str) -> usize {
    fn look(value: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::Array(endpoints)) = fields.get("endpoints") {
                    assert_eq!(endpoints.len(), 3, "{value}");
                }
                if let Some(Value::Array(gone)) = fields.get("remove") {
                    assert!(gone.is_empty(), "{value}");
                }
                fields.values().for_each(look);
            }
            Value::Array(items) => items.iter().for_each(look),
            _ => {}
        }
    }
    let lines: Vec<_> = told.lines().filter(|line| line.starts_with('{')).collect();
    for line in &lines {
        look(&serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line}")));
    }
    lines.len()
}

fn submit_quiet(world: &World, name: &str) {
    let text = format!("kind = \"service\"\nname = \"{name}\"\ncommand = \"exec sleep 1000000\"\n");
    world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
    world.ok(&["wait", name, "--timeout", "60s"]);
}

#[test]
fn an_upgrade_of_controller_and_agent_touches_no_service_and_old_workers_go_on() {
    let Some(world) = World::new() else { return };
    let Some(before) = program_before() else {
        return;
    };
    let new = Path::new(PORTREEVE);
    let old_controller = controller(&world, &before);
    let old_agent = agent(&world, &before);
    let profile = world.profile("hello.toml", &hello("hello", 3, "", USUAL));
    world.ok(&["submit", &profile]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    // One restart, so that a count is there to be kept.
    let pid = world.replica("hello", 0)["pid"].as_i64().unwrap();
    kill(pid.try_into().unwrap(), "KILL");
    world.replica_when("hello", 0, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
    // News is written with the next truth.
    submit_quiet(&world, "quiet");
    let was = standing(&world);
    let socket = world.socket();
    let follow = ["--controller", &socket, "watch", "hello", "-o", "json"];
    let watcher = world.start_alone("watch", &follow);
    let told = || without_a_gap(&watcher.output());
    assert!(eventually(|| told() > 0), "{}", watcher.output());

    // The controller first: it speaks with the old agent and the old workers.
    old_controller.end("TERM");
    let _controller = controller(&world, new);
    let same = || standing(&world) == was;
    assert!(eventually(same), "{was:#?}, now {:#?}", standing(&world));
    submit_quiet(&world, "by-the-old-agent");

    // Then the agent: it adopts what the old one began.
    old_agent.end("TERM");
    let _agent = agent(&world, new);
    submit_quiet(&world, "by-the-new-agent");
    assert!(eventually(same), "{was:#?}, now {:#?}", standing(&world));
    let before = before.canonicalize().unwrap();
    assert_eq!(worker_programs(&world, "/hello."), vec![before; 3]);
    let new = new.canonicalize().unwrap();
    let by_new = worker_programs(&world, "/by-the-new-agent.");
    assert_eq!(by_new, std::slice::from_ref(&new));
    assert!(told() > 0);

    old_workers_do_as_before(&world, &was);

    // The workers last, if one wishes: each new one goes on with the run of the one before.
    let was = standing(&world);
    let socket = world.path("agent.sock").display().to_string();
    let renewed = world.ok(&[
        "agent",
        "--renew-workers",
        "--socket",
        &socket,
        "-o",
        "json",
    ]);
    let renewed: Value = serde_json::from_str(&renewed).unwrap();
    // Three, the quiet one, and the one of the old agent.
    assert_eq!(renewed, serde_json::json!({"renewed": 5, "left": 0}));
    assert_eq!(worker_programs(&world, "/hello."), vec![new; 3]);
    assert!(
        eventually(|| standing(&world) == was),
        "{was:#?}, now {:#?}",
        standing(&world)
    );
    let again = world.ok(&["agent", "--renew-workers", "--socket", &socket]);
    assert_eq!(again, "no worker runs an older program\n");
    let pid = world.replica("hello", 0)["pid"].as_i64().unwrap();
    kill(pid.try_into().unwrap(), "KILL");
    world.replica_when("hello", 0, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 2
    });
    for name in ["hello", "by-the-old-agent"] {
        world.ok(&["stop", name]);
        world.ok(&["wait", name, "--gone", "--timeout", "60s"]);
    }
}

/// What is told and ordered goes through the old workers as before.
fn old_workers_do_as_before(world: &World, was: &[Value]) {
    let pid = world.replica("hello", 1)["pid"].as_i64().unwrap();
    kill(pid.try_into().unwrap(), "KILL");
    world.replica_when("hello", 1, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 1 && replica["pid"] != pid
    });
    world.ok(&["restart", "hello/2"]);
    world.replica_when("hello", 2, "was restarted", |replica| {
        replica["ready"] == true && replica["pid"] != was[2][3]
    });
    assert!(!world.ok(&["why", "hello/1"]).is_empty());
}
