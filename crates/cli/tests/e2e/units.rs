//! Runs as transient units of a real `systemd --user`, beside the same as plain processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::world::{World, eventually, kill, names_in};

/// Set for the part of a test that runs where a service manager can be started.
const INSIDE: &str = "PORTREEVE_TEST_INSIDE_UNITS";

/// Runs the test of this name again, where `systemd --user` can be started; its outcome is that of the caller.
pub(crate) fn where_a_manager_can_be(test: &str) {
    let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
    let possible = nix::unistd::geteuid().is_root()
        && ["systemd", "systemd-run", "unshare"].iter().all(|program| {
            let found = Command::new("sh")
                .args(["-c", &format!("command -v {program}")])
                .stdout(Stdio::null())
                .status();
            found.is_ok_and(|status| status.success())
        });
    let has_bus = Path::new("/usr/lib/systemd/user/dbus.socket").exists();
    if !possible || !has_bus {
        assert!(
            !required,
            "systemd with a user's bus and root are required here"
        );
        eprintln!("skipped: needs systemd with a user's bus (dbus-user-session) and root");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/manager.sh");
    let output = Command::new(script)
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// A world with its own `systemd --user`, which is killed with it.
pub(crate) struct Managed {
    manager: Child,
    pub(crate) world: World,
}

impl Managed {
    pub(crate) fn new() -> Self {
        let world = World::new().unwrap();
        let manager = Self::start(&world);
        let managed = Self { manager, world };
        managed.is_up();
        managed
    }

    fn start(world: &World) -> Child {
        let log = std::fs::File::create(world.path("manager.log")).unwrap();
        world
            .command("systemd")
            .args(["--user", "--log-target=console"])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn is_up(&self) {
        let up = eventually(|| {
            let state = self.systemctl(&["is-system-running"]);
            ["running", "degraded"].contains(&state.trim())
        });
        let log = std::fs::read_to_string(self.world.path("manager.log"));
        assert!(up, "no manager: {log:?}");
    }

    /// Ends the manager without a word to anybody, and the bus it had, which would wait for it.
    fn kill_manager(&mut self) {
        self.manager.kill().unwrap();
        self.manager.wait().unwrap();
        for bus in self.processes("dbus-daemon") {
            kill(bus, "KILL");
        }
    }

    pub(crate) fn systemctl(&self, arguments: &[&str]) -> String {
        let mut command = self.world.command("systemctl");
        let output = command.arg("--user").args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The names of all units of ours that the manager knows.
    fn units(&self) -> Vec<String> {
        let list = self.systemctl(&[
            "list-units",
            "--all",
            "--no-legend",
            "--plain",
            "portreeve-*.service",
        ]);
        let name = |line: &str| line.split_ascii_whitespace().next().map(str::to_owned);
        list.lines().filter_map(name).collect()
    }

    /// Processes of this world whose command line holds the word.
    fn processes(&self, word: &str) -> Vec<i32> {
        let all = self.world.processes().into_iter();
        all.filter(|(_, line)| line.contains(word))
            .map(|(pid, _)| pid)
            .collect()
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.world.path("manager.log"));
            eprintln!("--- manager\n{}", log.unwrap_or_default());
            eprintln!("--- units {:?}", self.units());
            for (pid, line) in self.world.processes() {
                eprintln!("{pid} {line}");
            }
        }
        let _ = self.manager.kill();
        let _ = self.manager.wait();
    }
}

/// Listens, and leaves a child in a session of its own that shows nothing of where it came from and ignores TERM.
const FAMILY: &str = r#"
import os, signal, socket, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # One process: a shell would be two for a moment, each time before its child becomes another program.
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000000) # runaway"], {})
    os._exit(0)
os.wait()
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", int(os.environ["PORTREEVE_PORT_HTTP"])))
s.listen()
def end(*_):
    print("told to end", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
while True:
    s.accept()[0].close()
"#;

fn family(world: &World) -> String {
    let program = world.profile("family.py", FAMILY);
    world.profile(
        "web.toml",
        &format!(
            "kind = \"service\"\nname = \"web\"\ncommand = \"exec python3 {program}\"\n\
             [ports]\nhttp = \"any\"\n[restart]\nbackoff = {{ initial = \"200ms\", max = \"1s\" }}\n\
             [readiness]\ntcp = {{ port = \"http\" }}\ninterval = \"200ms\"\n"
        ),
    )
}

fn pid_of(replica: &Value) -> i32 {
    i32::try_from(replica["pid"].as_i64().unwrap()).unwrap()
}

#[test]
fn a_run_is_a_unit_that_outlives_worker_and_agent_and_leaves_nothing() {
    // D8 double fork with setsid; kill -9 of service, worker, shim and agent, each under a service manager
    if !is_inside() {
        return where_a_manager_can_be(
            "units::a_run_is_a_unit_that_outlives_worker_and_agent_and_leaves_nothing",
        );
    }
    let managed = Managed::new();
    let world = &managed.world;
    let profile = family(world);
    // A name that a manager would fill in by itself.
    let data = world.path("data $HOME %n");
    let data = data.to_str().unwrap();
    let dev = world.dev(&["--backend", "systemd", "--data", data, &profile]);
    world.ok(&["wait", "web", "--timeout", "30s"]);
    let host = world.json(&["hosts"])["hosts"][0].clone();
    let words = host["capabilities"].as_array().unwrap();
    assert!(
        words.contains(&"containment:systemd-user".into()),
        "{words:?}"
    );
    let first = world.replica("web", 0);
    let [unit] = managed.units().try_into().unwrap();
    assert!(unit.contains("-run1-"), "{unit}");
    let cgroup = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert!(cgroup(pid_of(&first)).contains(&unit));
    let [runaway] = managed.processes("runaway").try_into().unwrap();
    assert!(cgroup(runaway).contains(&unit));
    // What only passed descriptors on is gone.
    assert!(managed.processes("systemd-run").is_empty());

    // The service dies: the same ports in another unit, and nothing of the first run.
    kill(pid_of(&first), "KILL");
    let second = world.replica_when("web", 0, "came back", |it| {
        it["restarts"] == 1 && it["ready"] == true
    });
    assert_eq!(second["ports"], first["ports"]);
    assert_eq!(second["last_failure"], "signal 9 (KILL)");
    let [unit] = managed.units().try_into().unwrap();
    assert!(unit.contains("-run2-"), "{unit}");
    assert_eq!(managed.processes("runaway").len(), 1);

    // The worker dies: the next one finds the unit untouched.
    let [worker] = managed.processes("worker --folder").try_into().unwrap();
    kill(worker, "KILL");
    assert!(eventually(|| {
        let workers = managed.processes("worker --folder");
        workers.len() == 1 && workers[0] != worker
    }));
    let adopted = world.replica_when("web", 0, "stayed", |it| it["ready"] == true);
    assert_eq!(
        (&adopted["pid"], &adopted["run"]),
        (&second["pid"], &second["run"])
    );
    assert_eq!(managed.units(), [unit.as_str()]);

    // The agent dies, and the controller with it here: the next ones find it untouched too.
    assert_eq!(dev.end("KILL"), None);
    assert_eq!(managed.units(), [unit.as_str()]);
    let dev = world.dev(&["--backend", "systemd", "--data", data]);
    let kept = world.replica_when("web", 0, "stayed", |it| it["ready"] == true);
    assert_eq!(
        (&kept["pid"], &kept["run"]),
        (&second["pid"], &second["run"])
    );

    // The shim dies, and the manager clears the unit at once.
    let [shim] = managed.processes(" shim ").try_into().unwrap();
    kill(shim, "KILL");
    let third = world.replica_when("web", 0, "came back", |it| {
        it["restarts"] == 2 && it["ready"] == true
    });
    assert_eq!(third["ports"], first["ports"]);
    let [unit] = managed.units().try_into().unwrap();
    assert!(unit.contains("-run3-"), "{unit}");
    assert_eq!(managed.processes("runaway").len(), 1);

    // Somebody stops the unit: one TERM for the service, as at a shutdown, and to the worker it is an end like any.
    managed.systemctl(&["stop", &unit]);
    let fourth = world.replica_when("web", 0, "came back", |it| {
        it["restarts"] == 3 && it["ready"] == true
    });
    assert_eq!(fourth["ports"], first["ports"]);

    // Worker and shim die at once: the next worker finds a unit that is gone, or ends what there is of it.
    let [worker] = managed.processes("worker --folder").try_into().unwrap();
    let [shim] = managed.processes(" shim ").try_into().unwrap();
    kill(worker, "KILL");
    kill(shim, "KILL");
    let fifth = world.replica_when("web", 0, "came back", |it| {
        it["restarts"] == 4 && it["ready"] == true
    });
    assert_eq!(fifth["last_failure"], "exit status unknown");
    assert_eq!(managed.processes("runaway").len(), 1);
    assert_eq!(managed.units().len(), 1);
    assert_eq!(world.ok(&["logs", "web"]), "told to end\n");

    world.ok(&["stop", "web"]);
    world.replica_when("web", 0, "stopped", |it| it["state"] == "stopped");
    assert!(eventually(|| managed.units().is_empty()));
    assert!(managed.processes("runaway").is_empty());
    assert!(managed.processes("family.py").is_empty());
    assert!(managed.processes(" shim ").is_empty());
    assert_eq!(dev.end("TERM"), Some(0));
    assert!(managed.processes("worker --folder").is_empty());
}

#[test]
fn a_service_outlives_its_manager_and_starts_again_when_there_is_one() {
    if !is_inside() {
        return where_a_manager_can_be(
            "units::a_service_outlives_its_manager_and_starts_again_when_there_is_one",
        );
    }
    let mut managed = Managed::new();
    let profile = family(&managed.world);
    let _dev = managed.world.dev(&["--backend", "systemd", &profile]);
    managed.world.ok(&["wait", "web", "--timeout", "30s"]);
    let first = managed.world.replica("web", 0);
    managed.kill_manager();
    // Nobody but the worker can clear the unit now: its shim dies, and the child that shows nothing goes all the same.
    let [shim] = managed.processes(" shim ").try_into().unwrap();
    kill(shim, "KILL");
    let words = "systemd-run: Failed to connect to bus";
    managed
        .world
        .replica_when("web", 0, "told why it does not start", |it| {
            let why = it["last_failure"].as_str();
            why.is_some_and(|why| why.contains(words))
        });
    assert!(managed.processes("runaway").is_empty());
    assert!(managed.processes("family.py").is_empty());
    managed.manager = Managed::start(&managed.world);
    managed.is_up();
    let back = managed
        .world
        .replica_when("web", 0, "came back", |it| it["ready"] == true);
    assert_eq!(back["ports"], first["ports"]);
    assert_eq!(back["incarnation"], first["incarnation"]);
}

#[test]
fn a_service_sees_the_same_and_ends_the_same_in_a_unit_and_without() {
    if !is_inside() {
        return where_a_manager_can_be(
            "units::a_service_sees_the_same_and_ends_the_same_in_a_unit_and_without",
        );
    }
    let managed = Managed::new();
    let world = &managed.world;
    let seen = |backend: &str| -> (BTreeMap<String, String>, Vec<Value>) {
        let show = "env; grep -E '^(Sig(Blk|Ign|Cgt)|Umask|NoNewPrivs|Uid|Gid|Groups)' /proc/self/status | tr -d ' \\t' | tr : =; \
                    echo FDS=$(ls /proc/self/fd | wc -l); echo CWD=$(pwd)";
        let show = show.replace("$(", "$$(");
        let profile = world.profile(
            &format!("show-{backend}.toml"),
            &format!(
                "kind = \"service\"\nname = \"show\"\ncommand = \"{show}; echo END=1; exec sleep 1000000\"\n\
                 env = {{ MONEY = \"$$HOME %n $${{X}}\" }}\n[ports]\nhttp = 24680\n"
            ),
        );
        let ends = |name: &str, end: &str| {
            let text = format!(
                "kind = \"service\"\nname = \"{name}\"\ncommand = \"{end}\"\nrestart.policy = \"never\"\n"
            );
            world.profile(&format!("{name}-{backend}.toml"), &text)
        };
        let files = [
            profile,
            ends("code", "exit 7"),
            ends("signal", "kill -USR1 $$$$"),
            ends("good", "exit 0"),
        ];
        let data = world.path(backend);
        let data = data.to_str().unwrap();
        let run = world.path("run").display().to_string();
        let mut arguments = vec![
            "dev",
            "--run-dir",
            &run,
            "--backend",
            backend,
            "--data",
            data,
        ];
        arguments.extend(files.iter().map(String::as_str));
        let dev = world.start(backend, &arguments);
        let mut variables = BTreeMap::new();
        let printed = eventually(|| {
            let text = world.run(&["logs", "show"]).stdout.replace(data, "DATA");
            let lines = text.lines().filter_map(|line| line.split_once('='));
            variables = lines
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            variables.contains_key("END")
        });
        assert!(printed, "{}", world.ok(&["service", "show"]));
        let ended = ["code", "signal", "good"].map(|name| {
            let ended = world.replica_when(name, 0, "ended", |it| {
                ["failed", "completed"].contains(&it["state"].as_str().unwrap_or_default())
            });
            ended["last_failure_detail"]["exit"].clone()
        });
        let units = managed.units().len();
        assert_eq!(units, usize::from(backend == "systemd"));
        assert_eq!(dev.end("TERM"), Some(0));
        assert!(eventually(|| managed.units().is_empty()));
        (variables, ended.into())
    };
    let (plain, plain_ends) = seen("process");
    let (unit, unit_ends) = seen("systemd");
    assert_eq!(unit, plain);
    assert_eq!(plain["MONEY"], "$HOME %n ${X}");
    assert_eq!(unit_ends, plain_ends);
    assert_eq!(unit_ends[0]["code"], 7, "{unit_ends:?}");
    assert_eq!(unit_ends[1]["signal"]["signal"], 10, "{unit_ends:?}");
}

#[test]
fn without_a_service_manager_an_agent_says_so_and_does_not_start() {
    let Some(world) = World::new() else { return };
    let data = world.path("data");
    let empty = world.path("nobody-home");
    std::fs::create_dir(&empty).unwrap();
    let output = world
        .portreeve(&["agent", "--backend", "systemd", "--data"])
        .arg(&data)
        .env("XDG_RUNTIME_DIR", &empty)
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("no systemd runs units here"), "{words}");
    assert!(words.contains("--backend systemd"), "{words}");
    assert_eq!(names_in(&data), [""; 0]);
}
