//! One test's own network namespace and folders; everything started in it is gone with it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use portreeve_api::containment::{Choice, Ladder};
use serde_json::Value;

use crate::namespace::Namespace;

/// The binary under test.
pub(crate) const PORTREEVE: &str = env!("CARGO_BIN_EXE_portreeve");
/// The longest wait for a condition. Nothing asserts that something is fast.
const PATIENCE: Duration = Duration::from_secs(60);

/// A network namespace with only loopback, and a folder.
pub(crate) struct World {
    // Dropped first: its processes write into the folder.
    home: Namespace,
    // Then the groups of those processes, which are known by the folder.
    _groups: Groups,
    folder: tempfile::TempDir,
}

/// The control groups of the agents below a folder; removed when nothing runs in them any more.
struct Groups(PathBuf);

impl Drop for Groups {
    fn drop(&mut self) {
        for state in agents(&self.0, 4) {
            if let Ok(ladder) = Ladder::climb(Choice::Auto, &state) {
                // Its last processes were killed and may end only now.
                for _ in 0..50 {
                    if ladder.sweep() {
                        break;
                    }
                    pause();
                }
            }
        }
    }
}

/// The state folders of agents, at most so deep.
fn agents(folder: &Path, depth: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let below = folders.map(|entry| entry.path());
    below
        .flat_map(|path| match depth {
            _ if path.ends_with("agent") => vec![path],
            0 => Vec::new(),
            _ => agents(&path, depth - 1),
        })
        .collect()
}

impl World {
    /// A new world, or `None` with a printed reason where the machine does not allow one.
    /// With `PORTREEVE_REQUIRE_EXTERNAL=1` that is a failure.
    pub(crate) fn new() -> Option<Self> {
        let refused = match Namespace::new() {
            Ok(home) => {
                let folder = tempfile::tempdir().unwrap();
                return Some(Self {
                    home,
                    _groups: Groups(folder.path().to_owned()),
                    folder,
                });
            }
            Err(refused) => refused,
        };
        let required = std::env::var("PORTREEVE_REQUIRE_EXTERNAL").is_ok_and(|value| value == "1");
        assert!(!required, "a network namespace is required here: {refused}");
        eprintln!("skipped: needs a network namespace (unshare, ip): {refused}");
        None
    }

    /// This world's network.
    pub(crate) const fn network(&self) -> &Namespace {
        &self.home
    }

    /// A path below this world's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where this world's controller answers.
    pub(crate) fn socket(&self) -> String {
        format!("unix:{}", self.path("run/controller.sock").display())
    }

    /// A command that runs in this world's network and knows its controller.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.command_in(&self.home, program)
    }

    /// The same in another network.
    pub(crate) fn command_in(
        &self,
        network: &Namespace,
        program: impl AsRef<std::ffi::OsStr>,
    ) -> Command {
        let mut command = network.command(program);
        command
            .env("PORTREEVE_CONTROLLER", self.socket())
            .env("TMPDIR", self.folder.path());
        command
    }

    /// `portreeve` with these arguments.
    pub(crate) fn portreeve(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(PORTREEVE);
        command.args(arguments);
        command
    }

    /// Runs `portreeve` to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.portreeve(arguments).output().unwrap())
    }

    /// Runs `portreeve` to its end, which must be success, and gives its standard output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let outcome = self.run(arguments);
        assert_eq!(
            outcome.code,
            Some(0),
            "portreeve {arguments:?}: {outcome:?}"
        );
        outcome.stdout
    }

    /// The JSON that `portreeve ARGUMENTS -o json` prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|cause| panic!("{cause}: {text}"))
    }

    /// One replica as `service NAME -o json` shows it.
    pub(crate) fn replica(&self, service: &str, index: usize) -> Value {
        self.json(&["service", service])["replicas"][index].clone()
    }

    /// Waits until the replica meets the condition, and gives it.
    pub(crate) fn replica_when(
        &self,
        service: &str,
        index: usize,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut replica = Value::Null;
        let met = eventually(|| {
            replica = self.replica(service, index);
            condition(&replica)
        });
        assert!(met, "{service}/{index} never {what}: {replica:#}");
        replica
    }

    /// Writes a profile and gives its path.
    pub(crate) fn profile(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Starts `portreeve dev` and waits until its profiles, or those that it continues, are submitted.
    pub(crate) fn dev(&self, arguments: &[&str]) -> Running {
        let run = self.path("run").display().to_string();
        let mut all = vec!["dev", "--run-dir", &run];
        all.extend(arguments);
        let running = self.start("dev", &all);
        let profiles = arguments.iter().filter(|text| text.ends_with(".toml"));
        let expected = profiles.count().max(1);
        let submitted = eventually(|| {
            let list = self.json(&["services"]);
            let services = list["services"].as_array().unwrap();
            let running = |service: &&Value| service["state"] == "running";
            services.iter().filter(running).count() >= expected
        });
        assert!(submitted, "nothing was submitted: {}", running.output());
        running
    }

    /// The same with further variables, each `NAME=VALUE`.
    pub(crate) fn dev_with(&self, variables: &[String], arguments: &[&str]) -> Running {
        let run = self.path("run").display().to_string();
        let out = std::fs::File::create(self.path("dev.out")).unwrap();
        let mut command = self.command(PORTREEVE);
        command
            .args(["dev", "--run-dir", &run])
            .args(arguments)
            .env_remove("PORTREEVE_CONTROLLER")
            .envs(variables.iter().filter_map(|line| line.split_once('=')));
        let child = command.stderr(out.try_clone().unwrap()).stdout(out).spawn();
        let running = Running {
            child: child.unwrap(),
            out: self.path("dev.out"),
        };
        let answers = || self.run(&["hosts"]).code == Some(0);
        assert!(
            eventually(answers),
            "it never answered: {}",
            running.output()
        );
        running
    }

    /// Starts a daemon of ours, its output in files, and waits until the controller answers.
    pub(crate) fn start(&self, name: &str, arguments: &[&str]) -> Running {
        self.start_in(&self.home, name, arguments)
    }

    /// The same in another network.
    pub(crate) fn start_in(&self, network: &Namespace, name: &str, arguments: &[&str]) -> Running {
        self.start_by(self.command_in(network, PORTREEVE), name, arguments)
    }

    /// The same by another program, such as `unshare --uts`, which is to run what it is given.
    pub(crate) fn start_through(
        &self,
        network: &Namespace,
        name: &str,
        through: &[&str],
        arguments: &[&str],
    ) -> Running {
        let line = [through, &[PORTREEVE], arguments].concat();
        self.start_by(self.command_in(network, line[0]), name, &line[1..])
    }

    /// The same by another command that becomes the daemon.
    pub(crate) fn start_by(&self, command: Command, name: &str, arguments: &[&str]) -> Running {
        let mut running = self.spawn(command, name, arguments);
        let met = eventually(|| {
            assert!(
                running.child.try_wait().unwrap().is_none(),
                "{name} ended: {}",
                running.output()
            );
            self.run(&["hosts"]).code == Some(0)
        });
        assert!(met, "{name} never answered: {}", running.output());
        running
    }

    /// Starts a daemon of ours in this world's network, whether or not a controller answers.
    pub(crate) fn start_alone(&self, name: &str, arguments: &[&str]) -> Running {
        self.spawn(self.command_in(&self.home, PORTREEVE), name, arguments)
    }

    /// Starts another program, already complete.
    pub(crate) fn start_other(&self, command: Command, name: &str) -> Running {
        self.spawn(command, name, &[])
    }

    fn spawn(&self, mut command: Command, name: &str, arguments: &[&str]) -> Running {
        let out = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{name}.out")))
            .unwrap();
        let err = out.try_clone().unwrap();
        command.args(arguments).env_remove("PORTREEVE_CONTROLLER");
        let child = command.stdout(out).stderr(err).spawn();
        Running {
            child: child.unwrap(),
            out: self.path(&format!("{name}.out")),
        }
    }

    /// What `curl` prints, which must succeed.
    pub(crate) fn curl(&self, arguments: &[&str]) -> String {
        let output = self
            .command("curl")
            .args(["-sS", "--max-time", "30"])
            .args(arguments)
            .output();
        let outcome = Outcome::of(output.unwrap());
        assert_eq!(outcome.code, Some(0), "curl {arguments:?}: {outcome:?}");
        outcome.stdout
    }

    /// The processes of this world but for its holder: number and command line.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        self.home.processes()
    }

    /// Whether something listens on this TCP port of the world.
    pub(crate) fn listens(&self, port: u64) -> bool {
        self.home.listens(port)
    }
}

/// A daemon of this test; killed with it.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Fails the test if it ended.
    pub(crate) fn runs(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended: {}", self.output());
    }

    /// Everything it wrote so far.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Sends a signal and waits for the end; gives the exit code.
    pub(crate) fn end(mut self, signal: &str) -> Option<i32> {
        kill(self.pid(), signal);
        self.code()
    }

    /// Waits for the end; gives the exit code.
    pub(crate) fn code(&mut self) -> Option<i32> {
        let mut code = None;
        let ended = eventually(|| match self.child.try_wait().unwrap() {
            Some(status) => {
                code = status.code();
                true
            }
            None => false,
        });
        assert!(ended, "it did not end: {}", self.output());
        code
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Whether the condition is met within the patience of a test.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        pause();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the pause between two looks at a condition with a deadline"
)]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Sends a signal by name to a process of this test.
pub(crate) fn kill(pid: i32, signal: &str) {
    let _ = Command::new("kill")
        .arg(format!("-{signal}"))
        .arg(pid.to_string())
        .stderr(Stdio::null())
        .status();
}

/// Whether the folder holds nothing but what is named.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).map(|entries| entries.flatten().collect::<Vec<_>>());
    let mut names: Vec<_> = entries
        .unwrap_or_default()
        .iter()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A service of ours as a profile: `portreeve hello` with these further arguments and lines.
pub(crate) fn hello(name: &str, replicas: u32, arguments: &str, more: &str) -> String {
    format!(
        "kind = \"service\"\nname = \"{name}\"\nreplicas = {replicas}\n\
         command = \"exec portreeve hello --port ${{port.http}} {arguments}\"\n\
         {more}\n"
    )
}

/// The usual tables of a test profile: one port, HTTP readiness, quick backoff.
pub(crate) const USUAL: &str = "[ports]\nhttp = \"any\"\n\
    [restart]\nbackoff = { initial = \"500ms\", max = \"1s\" }\n\
    [readiness]\nhttp = { path = \"/\" }\ninterval = \"200ms\"\n";

/// A dev with one quiet service without ports.
pub(crate) fn quiet_dev(world: &World, more: &[&str]) -> Running {
    let quiet = world.profile(
        "quiet.toml",
        "kind = \"service\"\nname = \"quiet\"\ncommand = \"exec sleep 1000000\"\n",
    );
    world.dev(&[&[quiet.as_str()], more].concat())
}

/// A program that binds and keeps every number it was given, those of names with `udp` on UDP, and the command
/// that runs it.
pub(crate) fn binder(world: &World) -> String {
    let code = r#"
import os, socket, sys, time
kept = []
for name, value in sorted(os.environ.items()):
    if not name.startswith("PORTREEVE_PORT_") or name.endswith(("_LAST", "_COUNT")):
        continue
    for port in range(int(value), int(os.environ.get(name + "_LAST", value)) + 1):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if "UDP" in name else socket.SOCK_STREAM)
        if "UDP" not in name:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("0.0.0.0", port))
        if "UDP" not in name:
            s.listen()
        kept.append(s)
print("bound", len(kept), flush=True)
time.sleep(1000000)
"#;
    let path = world.profile("binder.py", code);
    format!("exec python3 {path}")
}
