//! Controller, agent and workers as processes of their own: each may be killed, and nothing restarts.

use serde_json::Value;

use crate::world::{Running, USUAL, World, eventually, hello, kill, names_in, pause};

pub(crate) fn controller(world: &World) -> Running {
    let data = world.path("controller").display().to_string();
    let run = world.path("run").display().to_string();
    world.start(
        "controller",
        &[
            "controller",
            "--data",
            &data,
            "--run-dir",
            &run,
            "--single-host",
        ],
    )
}

pub(crate) fn agent(world: &World) -> Running {
    let data = world.path("host").display().to_string();
    let socket = world.socket();
    world.start(
        "agent",
        &[
            "agent",
            "--data",
            &data,
            "--controller",
            &socket,
            "--single-host",
        ],
    )
}

/// What must not change: places, ports, counts, failures and processes.
fn standing(world: &World) -> Vec<Value> {
    (0..3)
        .map(|index| {
            let replica = world.replica("hello", index);
            let fields = [
                "incarnation",
                "host",
                "ports",
                "restarts",
                "restarts_total",
                "pid",
                "ready",
                "run",
                "first_failure_detail",
                "last_failure_detail",
            ];
            fields.iter().map(|field| replica[*field].clone()).collect()
        })
        .collect()
}

fn three_ready(world: &World) -> Vec<Value> {
    world.ok(&[
        "submit",
        &world.profile("hello.toml", &hello("hello", 3, "", USUAL)),
    ]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    // One restart, so that a count is there to be kept.
    let pid = world.replica("hello", 0)["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    world.replica_when("hello", 0, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
    // News is written with the next truth: what follows may kill the controller at once.
    let quiet = "kind = \"service\"\nname = \"quiet\"\ncommand = \"exec sleep 1000000\"\n";
    world.ok(&["submit", &world.profile("quiet.toml", quiet)]);
    standing(world)
}

#[test]
fn a_killed_controller_comes_back_with_the_same_endpoints_ports_and_counts() {
    let Some(world) = World::new() else { return };
    let first = controller(&world);
    let _agent = agent(&world);
    let before = three_ready(&world);
    let lines = world.ok(&["endpoints", "hello"]);
    assert_eq!(first.end("KILL"), None);
    let away = world.run(&["endpoints", "hello"]);
    assert_eq!((away.code, away.stdout.as_str()), (Some(6), ""), "{away:?}");
    let _second = controller(&world);
    // At once, before any host has spoken.
    assert_eq!(world.ok(&["endpoints", "hello"]), lines);
    assert_eq!(standing(&world), before);
    // And still so after the agent has reported to the new one.
    assert!(eventually(
        || world.json(&["hosts"])["hosts"][0]["state"] == "up"
    ));
    assert_eq!(standing(&world), before);
    let pid = before[1][5].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    world.replica_when("hello", 1, "was still supervised", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
}

#[test]
fn a_killed_agent_adopts_what_runs() {
    let Some(world) = World::new() else { return };
    let _controller = controller(&world);
    let first = agent(&world);
    let before = three_ready(&world);
    assert_eq!(first.end("KILL"), None);
    assert_eq!(
        standing(&world),
        before,
        "the services need no agent to go on"
    );
    let second = agent(&world);
    assert!(eventually(
        || world.json(&["hosts"])["hosts"][0]["state"] == "up"
    ));
    assert_eq!(standing(&world), before);
    assert_eq!(second.end("TERM"), Some(0));
    assert_eq!(
        standing(&world),
        before,
        "a mere stop of the agent touches nothing"
    );
    let _third = agent(&world);
    world.ok(&["stop", "hello"]);
    world.ok(&["wait", "hello", "--gone", "--timeout", "60s"]);
}

#[test]
fn a_killed_worker_is_replaced_under_the_living_service() {
    let Some(world) = World::new() else { return };
    let _controller = controller(&world);
    let _agent = agent(&world);
    let before = three_ready(&world);
    for (pid, line) in world.processes() {
        if line.contains(" worker --folder") {
            kill(pid, "KILL");
        }
    }
    let workers = || {
        world
            .processes()
            .iter()
            .filter(|(_, line)| line.contains(" worker --folder"))
            .count()
    };
    assert!(eventually(|| workers() == 4), "{:?}", world.processes());
    assert_eq!(standing(&world), before);
    let pid = before[2][5].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    world.replica_when("hello", 2, "was still supervised", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
}

#[test]
fn a_reader_never_sees_an_empty_success_while_the_controller_restarts() {
    // P25, native reads
    let Some(world) = World::new() else { return };
    let mut running = controller(&world);
    let _agent = agent(&world);
    three_ready(&world);
    let (rounds, reads) = if std::env::var_os("PORTREEVE_LONG").is_some() {
        (50, 40)
    } else {
        (8, 15)
    };
    let mut answered = 0;
    for _ in 0..rounds {
        kill(running.pid(), "KILL");
        let poll = |answered: &mut u32| {
            let outcome = world.run(&["endpoints", "hello"]);
            match outcome.code {
                Some(0) => {
                    assert_eq!(outcome.stdout.lines().count(), 3, "{outcome:?}");
                    *answered += 1;
                }
                Some(6) => assert_eq!(outcome.stdout, "", "{outcome:?}"),
                _ => panic!("neither the endpoints nor unreachable: {outcome:?}"),
            }
        };
        poll(&mut answered);
        running = controller(&world);
        for _ in 0..reads {
            poll(&mut answered);
            pause();
        }
    }
    assert!(answered >= rounds, "only {answered} answers");
}

#[test]
fn a_run_that_could_not_be_recorded_costs_a_restart_and_neither_port_nor_twin() {
    // On a full disk a worker goes on; dead there, it leaves a record that is older than its service.
    let Some(world) = World::new() else { return };
    let _controller = controller(&world);
    let first = agent(&world);
    let profile = world.profile("hello.toml", &hello("hello", 1, "", USUAL));
    world.ok(&["submit", &profile]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    let before = world.replica("hello", 0);
    let replicas = world.path("host/agent/replicas");
    let record = replicas.join(&names_in(&replicas)[0]).join("machine.json");
    let old = std::fs::read(&record).unwrap();
    let pid = before["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    let unrecorded = world.replica_when("hello", 0, "came back", |replica| {
        replica["ready"] == true && replica["restarts"] == 1
    });
    assert_eq!(first.end("KILL"), None);
    let worker = |(_, line): &(i32, String)| line.contains(" worker ");
    let worker = world.processes().into_iter().find(worker);
    kill(worker.expect("a worker runs").0, "KILL");
    std::fs::write(&record, old).unwrap();

    let _second = agent(&world);
    let after = world.replica_when("hello", 0, "began anew", |replica| {
        replica["ready"] == true && replica["pid"] != unrecorded["pid"]
    });
    assert_eq!(after["ports"], before["ports"], "{after:#}");
    assert_eq!(after["incarnation"], before["incarnation"]);
    let services = |(_, line): &(i32, String)| line.contains("hello --port");
    let services = world.processes().into_iter().filter(services).count();
    assert_eq!(services, 1, "{:?}", world.processes());
}

#[test]
fn a_daemon_whose_log_cannot_be_written_goes_on() {
    // A full disk below the log file of an agent, and of the workers that it starts.
    let Some(world) = World::new() else { return };
    let _controller = controller(&world);
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
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
    let mut agent = world
        .portreeve(&arguments)
        .stdout(std::process::Stdio::null())
        .stderr(full)
        .spawn()
        .unwrap();
    world.ok(&[
        "submit",
        &world.profile("hello.toml", &hello("hello", 1, "", USUAL)),
    ]);
    world.ok(&["wait", "hello", "--timeout", "60s"]);
    assert_eq!(agent.try_wait().unwrap(), None);
    kill(agent.id().cast_signed(), "TERM");
    assert_eq!(agent.wait().unwrap().code(), Some(0));
}
