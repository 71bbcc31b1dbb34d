//! The state a service begins in: nothing inherited but what is meant.

use std::process::Command;

use portreeve::port::PortName;
use portreeve::supervision::State;
use portreeve_api::local::WorkerCommand;

use crate::world::{World, until, write_private};

#[test]
fn no_signal_state_no_descriptor_and_no_input_is_inherited() {
    // Not `$$`: in a namespace of process numbers that is another than the host's.
    let mut world = World::prepared(
        "read me rest < /proc/self/stat
         grep ^Sig /proc/self/status > signals
         readlink /proc/$me/fd/0 > input
         ps -o sid= -o pgid= -p $me > group; echo $me >> group
         echo done > done; exec sleep 1000",
        "[liveness]\ncommand = \"grep ^Sig /proc/self/status > new; mv new checked; ls /proc/self/fd > new; mv new open\"\ninterval = \"100ms\"",
    );
    // D8 blocked signals and open descriptors: a worker started by a careless parent, which also ignores some.
    let mut careless = Command::new("python3");
    careless
        .args([
            "-c",
            "import os, signal, sys\n\
             for one in signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE: signal.signal(one, signal.SIG_IGN)\n\
             signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n\
             os.dup2(os.open('/etc/passwd', os.O_RDONLY), 7)\n\
             os.execv(sys.argv[1], sys.argv[1:])",
        ])
        .arg(env!("CARGO_BIN_EXE_portreeve-worker-harness"))
        .args(["worker", "--folder"])
        .arg(world.folder.path());
    world.start_worker_by(careless);
    let ready = world.ready();
    world.text_once_there("done");
    until("the shell is gone", || {
        let pid = ready.pid.unwrap();
        std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "sleep\n"
    });
    let set = |of: &str, name: &str| {
        let signals = world.text_once_there(of);
        let line = signals.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.unwrap().trim_start_matches(':').trim(), 16).unwrap()
    };
    for of in ["signals", "checked"] {
        assert_eq!(set(of, "SigBlk"), 0, "{of}");
        // The C library's own two, 32 and 33, are ignored by every spawn of its and set by every program of its.
        assert_eq!(set(of, "SigIgn") & !(0b11 << 31), 0, "{of}");
    }
    // The fourth is the folder that is listed.
    assert_eq!(world.text_once_there("open"), "0\n1\n2\n3\n");
    let open = std::fs::read_dir(format!("/proc/{}/fd", ready.pid.unwrap())).unwrap();
    let mut open: Vec<_> = open.map(|entry| entry.unwrap().file_name()).collect();
    open.sort();
    assert_eq!(open, ["0", "1", "2"]);
    assert_eq!(world.text("input"), "/dev/null\n");
    let group = world.text("group");
    let group: Vec<_> = group.split_whitespace().collect();
    assert_eq!(
        [group[0], group[1]],
        [group[2]; 2],
        "it leads a session of its own"
    );
}

#[test]
fn the_workers_own_variables_are_not_passed_on() {
    let mut world = World::prepared(
        "env > env; ls -A $PORTREEVE_SCRATCH > scratch; cat $PORTREEVE_TOKEN_FILE > told
         touch $PORTREEVE_SCRATCH/left; echo done > done; exec sleep 1000",
        "env = { GREETING = \"${env.HOME} and ${service.name}\", A = \"profile\" }\nenv_file = \"~/secrets\"",
    );
    write_private(&world.path("secrets"), "SECRET=hunter2\nA=file\n", 0o600);
    let mut command = Command::new(env!("CARGO_BIN_EXE_portreeve-worker-harness"));
    command
        .args(["worker", "--folder"])
        .arg(world.folder.path())
        .env("LEAKED", "yes")
        .env("HOME", world.folder.path());
    world.start_worker_by(command);
    world.ready();
    world.text_once_there("done");
    let env = world.text("env");
    let has = |line: &str| env.lines().any(|one| one == line);
    let home = world.folder.path().display();
    assert!(has(&format!("GREETING={home} and web")), "{env}");
    assert!(has("SECRET=hunter2") && has("A=profile"), "{env}");
    assert!(
        has("PORTREEVE_SERVICE=web") && has("PORTREEVE_REPLICA=0"),
        "{env}"
    );
    assert!(
        has(&format!(
            "PORTREEVE_CONTROLLER={}",
            world.controller.target()
        )),
        "{env}"
    );
    assert!(
        !env.contains("LEAKED") && !env.contains("token-of-web"),
        "{env}"
    );
    assert_eq!(world.text("scratch"), "");
    assert_eq!(world.text("told"), "token-of-its-job");
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_portreeve-worker-harness"));
    let path = env.lines().find(|line| line.starts_with("PATH=")).unwrap();
    assert!(
        path.ends_with(own.parent().unwrap().to_str().unwrap()),
        "{path}"
    );
}

#[test]
fn a_file_of_variables_that_others_can_read_stops_the_start() {
    let mut world = World::prepared("touch started", "env_file = \"~/secrets\"");
    write_private(&world.path("secrets"), "SECRET=hunter2\n", 0o644);
    let mut command = Command::new(env!("CARGO_BIN_EXE_portreeve-worker-harness"));
    command
        .args(["worker", "--folder"])
        .arg(world.folder.path())
        .env("HOME", world.folder.path());
    world.start_worker_by(command);
    let told = world
        .controller
        .until("backoff", |status| status.state == State::Backoff);
    let why = told.last_failure.unwrap().reason.to_string();
    assert!(
        why.contains("chmod 600") && !why.contains("hunter2"),
        "{why}"
    );
    assert!(!world.path("started").exists());
}

#[test]
fn the_address_of_a_port_in_a_network_is_kept_until_another_is_told_and_seen_from_the_next_start_on()
 {
    let mut world = World::prepared(
        "echo $PORTREEVE_ADDR_HTTP $PORTREEVE_ADDR_ADMIN >> seen; exec sleep 1000",
        "[ports]\nhttp = { any = 1, network = \"data\" }\nadmin = \"any\"",
    );
    let http: PortName = "http".parse().unwrap();
    let at = |address: &str| [(http.clone(), address.parse().unwrap())].into();
    let number = |name: &str| {
        let ports = &world.assignment.desired.grant.ports;
        let mut ports = ports.iter().filter(|port| port.name.as_str() == name);
        ports.next().unwrap().numbers.first()
    };
    let (of_http, of_admin) = (number("http"), number("admin"));
    let line =
        |network: &str, published: &str| format!("{network}:{of_http} {published}:{of_admin}\n");
    world.assignment.desired.addresses = at("10.20.0.7");
    world.start_worker();
    world.ready();
    let first = line("10.20.0.7", "127.0.0.1");
    assert_eq!(world.text("seen"), first);
    let restart = |world: &World, run: u32| {
        world.order(&WorkerCommand::Restart);
        world
            .controller
            .until("the next run", |status| status.run.0 == run && status.ready);
    };
    // The published address alone moves: the port stays where it was told to be.
    let address = "127.0.0.3".parse().unwrap();
    let ports = std::collections::BTreeMap::new();
    world.order(&WorkerCommand::Address { address, ports });
    restart(&world, 2);
    let second = line("10.20.0.7", "127.0.0.3");
    assert_eq!(world.text("seen"), format!("{first}{second}"));
    let ports = at("10.20.0.9");
    world.order(&WorkerCommand::Address { address, ports });
    // A worker that takes over goes by what was told last, whatever stood in the assignment.
    world.kill_worker();
    world.start_worker();
    world.ready();
    restart(&world, 3);
    let third = line("10.20.0.9", "127.0.0.3");
    assert_eq!(world.text("seen"), format!("{first}{second}{third}"));
}
