//! The worker in C with real children: one that listens late, dies, is restarted, gives up; a worker that is killed.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot start what it tests has failed"
)]

mod built;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use built::{compiler, root, run, shared_object, temporary};

/// The worker, built once.
static WORKER: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = temporary().join("mini_worker");
    run(compiler()
        .arg(root().join("examples/mini_worker.c"))
        .args(["-ldl", "-o"])
        .arg(&program));
    program
});

/// Quick enough for a test: one restart after 100 ms, a second one after 200 ms, then none.
const PROFILE: &str = r#"{
    "name": "web", "command": ["the", "command", "line"], "ports": {"http": "any"},
    "restart": {"backoff": {"initial": "100ms", "max": "200ms", "jitter": 0},
        "give_up": {"max_restarts": 2, "window": "lifetime"}},
    "readiness": {"tcp": {}, "interval": "100ms", "timeout": "100ms", "failure_threshold": 1000},
    "stop": {"grace": "5s"}
}"#;

/// No condition of these tests takes so long.
const LONGEST: Duration = Duration::from_secs(60);

#[test]
fn a_service_that_listens_late_and_dies_is_restarted_and_stopped() {
    let mut replica = Replica::new("dies");
    replica.start();
    replica.says("run 1 READY");
    kill("KILL", replica.service());
    replica.says("run 1 NOTREADY: signal 9");
    replica.says("run 1 BACKOFF 100 ms: signal 9");
    replica.says("run 2 RESTARTED 1: signal 9");
    replica.says("run 2 READY");
    // By the user, which is charged to nobody.
    replica.tell("HUP");
    replica.says("run 2 NOTREADY: user");
    replica.says("run 3 RESTARTED 1: user");
    replica.says("run 3 READY");
    let left = replica.left_behind();
    replica.tell("TERM");
    replica.says("run 3 NOTREADY: stop");
    replica.says("run 3 STOPPED");
    replica.ends(0);
    assert!(!lives(left), "its group is not empty");
    assert!(!replica.state().exists(), "its end was told");
}

#[test]
fn what_never_stays_up_is_given_up() {
    let mut replica = Replica::new("gives_up");
    replica.command = vec!["sh".into(), "-c".into(), "exit 3".into()];
    replica.start();
    replica.says("run 1 BACKOFF 100 ms: exit 3");
    replica.says("run 2 RESTARTED 1: exit 3");
    replica.says("run 2 BACKOFF 200 ms: exit 3");
    replica.says("run 3 RESTARTED 2: exit 3");
    replica.says("run 3 GAVEUP after 2: exit 3");
    replica.ends(1);
    replica.command = vec!["/nonexistent/server".into()];
    replica.start();
    replica.says("run 1 BACKOFF 100 ms: start failed: errno 2");
    replica.says("run 2 RESTARTED 1: start failed: errno 2");
    replica.tell("TERM");
}

#[test]
fn a_killed_worker_leaves_the_service_running_and_the_next_one_takes_it_over() {
    let mut replica = Replica::new("killed");
    replica.start();
    replica.says("run 1 READY");
    let service = replica.service();
    replica.kill_worker();
    assert!(lives(service), "the service ended with its worker");
    replica.start();
    replica.says("run 1 taken over");
    replica.tell("HUP");
    replica.says("run 1 NOTREADY: user");
    replica.says("run 2 RESTARTED 0: user");
    replica.says("run 2 READY");
    // The service dies while nobody watches: how, nobody can tell, and it is one restart.
    replica.kill_worker();
    kill("KILL", replica.service());
    replica.start();
    replica.says("run 2 taken over");
    replica.says("run 2 NOTREADY: status unknown");
    replica.says("run 2 BACKOFF 100 ms: status unknown");
    replica.says("run 3 RESTARTED 1: status unknown");
    replica.says("run 3 READY");
    replica.tell("TERM");
    replica.says("run 3 NOTREADY: stop");
    replica.says("run 3 STOPPED");
    replica.ends(0);
}

#[test]
fn a_state_of_another_boot_is_no_state_and_a_damaged_one_is_refused() {
    let mut replica = Replica::new("damaged");
    replica.start();
    replica.says("run 1 READY");
    let service = replica.service();
    replica.kill_worker();
    let state = std::fs::read(replica.state()).unwrap();
    let mut damaged = state.clone();
    *damaged.last_mut().unwrap() ^= 4;
    std::fs::write(replica.state(), &damaged).unwrap();
    replica.start();
    replica.ends(2);
    let words = std::fs::read_to_string(replica.folder.join("stderr")).unwrap();
    assert!(words.contains("state: it is damaged"), "{words}");
    // Of its own line is too little left to tell whose it is.
    std::fs::write(replica.state(), &state[..20]).unwrap();
    replica.start();
    replica.ends(2);
    let words = std::fs::read_to_string(replica.folder.join("stderr")).unwrap();
    assert!(words.contains("state: it is damaged"), "{words}");
    assert!(lives(service));
    kill("KILL", replica.left_behind());
    kill("KILL", service);
    // Else it might still have the port.
    is_gone(service);
    // The number of that boot's process may be anybody's by now.
    let mut other = state;
    other[0] = if other[0] == b'0' { b'1' } else { b'0' };
    std::fs::write(replica.state(), &other).unwrap();
    replica.start();
    replica.says("run 1 READY");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the instant of a kill is a time and no condition; nothing is hoped for meanwhile"
)]
fn a_worker_that_is_killed_at_any_instant_never_runs_a_second_service() {
    let mut replica = Replica::new("instants");
    replica.profile("\"max_restarts\": 1000");
    // A small generator: no instant is better than another.
    let mut dice: u64 = 0x9e37_79b9_7f4a_7c15;
    for round in 0..10 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        replica.start();
        // The instant itself; nothing is waited for.
        std::thread::sleep(Duration::from_millis((dice >> 33) % 300));
        if round % 2 == 0 {
            replica.tell("HUP");
            std::thread::sleep(Duration::from_millis((dice >> 50) % 20));
        }
        replica.kill_worker();
        assert!(replica.services() <= 1, "round {round}");
    }
    replica.start();
    replica.hears(" taken over");
    replica.tell("TERM");
    replica.hears(" STOPPED");
    replica.ends(0);
    assert_eq!(replica.services(), 0);
    let left = replica.pids().into_iter().find(|pid| lives(*pid));
    assert_eq!(left, None, "its group is not empty");
}

#[test]
fn a_state_file_without_room_starts_nothing_and_the_worker_goes_on_when_there_is_room() {
    let mut replica = Replica::new("no_room");
    replica.profile("\"max_restarts\": 1000");
    replica.start();
    replica.says("run 1 READY");
    // Nothing can be written there.
    let obstacle = replica.folder.join("state.new");
    std::fs::create_dir(&obstacle).unwrap();
    let service = replica.service();
    replica.tell("HUP");
    is_gone(service);
    replica.complains("state.new: Is a directory");
    assert_eq!(replica.services(), 0);
    std::fs::remove_dir(&obstacle).unwrap();
    replica.says("run 1 NOTREADY: user");
    replica.says("run 2 RESTARTED 0: user");
    replica.hears(" READY");
    // What it said is saved again: it can be taken over.
    replica.kill_worker();
    replica.start();
    replica.hears(" taken over");
    replica.tell("TERM");
    replica.hears(" STOPPED");
    replica.ends(0);
}

#[test]
fn a_stranger_on_the_port_ends_it_before_anything_runs() {
    let mut replica = Replica::new("stranger");
    let stranger = TcpListener::bind(("127.0.0.1", replica.port)).unwrap();
    replica.start();
    replica.says("run 1 PORT_CONFLICT");
    replica.ends(75);
    drop(stranger);
    assert!(!replica.folder.join("pids").exists());
}

/// Needs the program, which `make external` has built: the probe that a worker of ours runs, owner and all.
#[test]
#[ignore = "run by make external"]
fn the_probe_command_decides_as_it_does_for_every_worker() {
    let target = temporary().parent().unwrap_or(temporary());
    run(Command::new(env!("CARGO"))
        .args([
            "build",
            "--locked",
            "-p",
            "portreeve-cli",
            "--features",
            "portreeve-cli/e2e",
        ])
        .arg("--target-dir")
        .arg(target)
        .current_dir(root()));
    let mut replica = Replica::new("probe");
    replica.probe = target.join("debug/portreeve");
    replica.start();
    replica.says("run 1 READY");
    kill("KILL", replica.service());
    replica.says("run 1 NOTREADY: signal 9");
    replica.says("run 1 BACKOFF 100 ms: signal 9");
    replica.says("run 2 RESTARTED 1: signal 9");
    replica.says("run 2 READY");
}

/// One replica with a folder of its own and, from time to time, a worker.
struct Replica {
    folder: PathBuf,
    port: u16,
    probe: PathBuf,
    command: Vec<PathBuf>,
    worker: Option<(Child, Receiver<String>)>,
}

impl Replica {
    fn new(name: &str) -> Self {
        let folder = temporary().join("mini_worker.d").join(name);
        _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("profile.json"), PROFILE).unwrap();
        let scripts = root().join("crates/plugin/tests/mini_worker");
        // Free a moment ago; nothing else on this machine asks for a number by name.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self {
            port: listener.local_addr().unwrap().port(),
            probe: scripts.join("probe.py"),
            command: vec!["python3".into(), scripts.join("service.py"), folder.clone()],
            folder,
            worker: None,
        }
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn start(&mut self) {
        let errors = File::create(self.folder.join("stderr")).unwrap();
        let mut worker = Command::new(&*WORKER)
            .arg(shared_object())
            .arg(&self.probe)
            .arg(self.folder.join("profile.json"))
            .arg(self.state())
            .arg(self.port.to_string())
            .args(&self.command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A file, so that nothing of ours that is left keeps a pipe of the caller's open.
            .stderr(errors)
            .spawn()
            .unwrap();
        let (lines, heard) = channel();
        let said = BufReader::new(worker.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        self.worker = Some((worker, heard));
    }

    /// The next line of the worker.
    fn says(&mut self, expected: &str) {
        let (_, heard) = self.worker.as_ref().unwrap();
        let line = heard.recv_timeout(LONGEST);
        assert_eq!(line.as_deref(), Ok(expected));
    }

    /// Whatever it says before a line that ends so.
    fn hears(&mut self, end: &str) {
        let (_, heard) = self.worker.as_ref().unwrap();
        while !heard.recv_timeout(LONGEST).unwrap().ends_with(end) {}
    }

    /// It says so on its standard error, at some time.
    fn complains(&self, words: &str) {
        let begun = Instant::now();
        let path = self.folder.join("stderr");
        while !std::fs::read_to_string(&path).unwrap().contains(words) {
            assert!(begun.elapsed() < LONGEST, "it does not say {words:?}");
            std::thread::yield_now();
        }
    }

    /// The usual profile with other words for its greatest number of restarts.
    fn profile(&self, most: &str) {
        let text = PROFILE.replace("\"max_restarts\": 2", most);
        std::fs::write(self.folder.join("profile.json"), text).unwrap();
    }

    /// How many main processes of this service run.
    fn services(&self) -> usize {
        let folder = self.folder.to_str().unwrap();
        let all = std::fs::read_dir("/proc").unwrap().map_while(Result::ok);
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let services = pids.filter(|pid: &u32| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            let line = line.unwrap_or_default();
            line.starts_with("python3\0") && line.contains(folder) && lives(*pid)
        });
        services.count()
    }

    fn tell(&self, signal: &str) {
        kill(signal, self.worker.as_ref().unwrap().0.id());
    }

    /// The worker ends by itself, saying nothing more.
    fn ends(&mut self, code: i32) {
        let (mut worker, heard) = self.worker.take().unwrap();
        // The end of its output, which only it has.
        assert!(heard.recv_timeout(LONGEST).is_err(), "it says more");
        assert_eq!(worker.wait().unwrap().code(), Some(code));
    }

    fn kill_worker(&mut self) {
        if let Some((mut worker, _)) = self.worker.take() {
            _ = worker.kill();
            _ = worker.wait();
        }
    }

    /// The newest run's main process.
    fn service(&self) -> u32 {
        self.pids()[0]
    }

    /// What it leaves behind in its group.
    fn left_behind(&self) -> u32 {
        self.pids()[1]
    }

    fn pids(&self) -> Vec<u32> {
        let said = std::fs::read_to_string(self.folder.join("pids")).unwrap_or_default();
        said.split(' ').filter_map(|pid| pid.parse().ok()).collect()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill_worker();
        for pid in self.pids() {
            // Only if it is still what this replica began.
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            let line = line.unwrap_or_default();
            if line.contains("service.py") || line.starts_with("sleep") {
                _ = signal("KILL", pid).output();
            }
        }
    }
}

fn signal(name: &str, pid: u32) -> Command {
    let mut command = Command::new("kill");
    command.arg(format!("-{name}")).arg(pid.to_string());
    command
}

fn kill(name: &str, pid: u32) {
    run(&mut signal(name, pid));
}

/// Whether a process runs; one that waits to be reaped does not.
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    let stat = stat.unwrap_or_default();
    let after = stat.rsplit_once(") ").map(|(_, after)| after);
    after.is_some_and(|after| !after.starts_with('Z'))
}

fn is_gone(pid: u32) {
    let begun = Instant::now();
    while lives(pid) {
        assert!(begun.elapsed() < LONGEST, "{pid} outlives its kill");
        std::thread::yield_now();
    }
}
