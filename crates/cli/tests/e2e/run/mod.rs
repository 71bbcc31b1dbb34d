//! `portreeve run`: replicas inside jobs of another scheduler.

mod crashes;
mod ends;
mod grants;
mod hostile;
mod inside;
mod launchers;
mod odds;
mod verbs;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::Value;

use crate::world::{PORTREEVE, Running, World, eventually, kill};

/// A host with an agent that jobs can ask.
struct Site {
    world: World,
    agent: RefCell<Option<Running>>,
    controller: RefCell<Option<Running>>,
}

impl Site {
    fn new(ports: &str) -> Option<Self> {
        let world = World::new()?;
        let site = Self {
            controller: RefCell::new(Some(controller(&world))),
            agent: RefCell::default(),
            world,
        };
        site.start_agent(ports);
        Some(site)
    }

    fn socket(&self) -> String {
        self.world.path("agent.sock").display().to_string()
    }

    fn start_agent(&self, ports: &str) {
        let data = self.world.path("host").display().to_string();
        let (controller, socket) = (self.world.socket(), self.socket());
        let arguments = [
            "agent",
            "--host",
            "n1",
            "--data",
            &data,
            "--controller",
            &controller,
            "--single-host",
            "--socket",
            &socket,
            "--ports",
            ports,
        ];
        self.agent
            .replace(Some(self.world.start("agent", &arguments)));
        let up = || self.world.json(&["hosts"])["hosts"][0]["state"] == "up";
        assert!(eventually(up), "the host never joined");
    }

    /// Starts `portreeve run` with these arguments; its output is in files.
    fn job(&self, name: &str, arguments: &[&str]) -> Job<'_> {
        self.job_in(name, arguments, &[])
    }

    /// The same with further variables.
    fn job_in(&self, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Job<'_> {
        self.job_with(name, arguments, |command| {
            command.envs(variables.iter().copied());
        })
    }

    /// The same, its command made what the test wants.
    fn job_with(
        &self,
        name: &str,
        arguments: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Job<'_> {
        self.job_through(name, &[], arguments, change)
    }

    /// The same by other programs, such as `unshare --pid`, which run what they are given.
    fn job_through(
        &self,
        name: &str,
        through: &[&str],
        arguments: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Job<'_> {
        let out = self.world.path(&format!("{name}.out"));
        let err = self.world.path(&format!("{name}.err"));
        let file = |path: &PathBuf| std::fs::File::create(path).unwrap();
        let line = [through, &[PORTREEVE, "run"], arguments].concat();
        let mut command = self.world.command(line[0]);
        command
            .args(&line[1..])
            .env("PORTREEVE_AGENT", self.socket())
            .stdout(file(&out))
            .stderr(file(&err));
        change(&mut command);
        Job {
            child: command.spawn().unwrap(),
            site: self,
            out,
            err,
        }
    }

    /// The replica, once it is ready.
    fn ready(&self, service: &str, index: u32) -> Value {
        self.replica_when(service, index, "ready", |it| it["ready"] == true)
    }

    /// The replica, once there is one and it meets the condition.
    fn replica_when(
        &self,
        service: &str,
        index: u32,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut replica = Value::Null;
        let met = eventually(|| {
            let shown = self.world.run(&["service", service, "-o", "json"]);
            let shown: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
            let all = shown["replicas"].as_array();
            let mut all = all.into_iter().flatten();
            replica = all
                .find(|it| it["replica"] == index)
                .cloned()
                .unwrap_or_default();
            condition(&replica)
        });
        assert!(met, "{service}/{index} never {what}: {replica:#}");
        replica
    }

    /// The processes of this world that are neither the daemons nor what asks.
    fn others(&self) -> Vec<String> {
        let daemons = [" controller ", " agent "];
        let processes = self.world.processes().into_iter();
        let lines = processes.map(|(_, line)| line);
        lines
            .filter(|line| !line.is_empty() && !daemons.iter().any(|it| line.contains(it)))
            .collect()
    }

    /// The numbers of the same.
    fn jobs_processes(&self) -> Vec<i32> {
        let processes = self.world.processes().into_iter();
        let is_daemons = |line: &str| line.contains(" controller ") || line.contains(" agent ");
        processes
            .filter(|(_, line)| !line.is_empty() && !is_daemons(line))
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Whether the number is a stranger's to the host.
    fn is_foreign(&self, port: u64) -> bool {
        let ports = self.world.json(&["ports", "n1"]);
        let mut all = ports["ports"].as_array().unwrap().iter();
        all.any(|it| it["state"] == "foreign" && it["numbers"] == port)
    }

    /// How many numbers of the host are held.
    fn held(&self) -> u64 {
        self.world.json(&["hosts"])["hosts"][0]["counts"]["held"]
            .as_u64()
            .unwrap()
    }
}

/// A controller that lets a freed number rest for a moment only.
fn controller(world: &World) -> Running {
    let data = world.path("controller").display().to_string();
    let run = world.path("run").display().to_string();
    let arguments = [
        "controller",
        "--data",
        &data,
        "--run-dir",
        &run,
        "--single-host",
        "--cooling",
        "1s",
    ];
    world.start("controller", &arguments)
}

/// A running `portreeve run`; killed with its test.
struct Job<'a> {
    child: Child,
    site: &'a Site,
    out: PathBuf,
    err: PathBuf,
}

impl Job<'_> {
    /// The run itself, which `nsenter` becomes.
    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn signal(&self, signal: &str) {
        kill(self.pid(), signal);
    }

    fn stdout(&self) -> String {
        std::fs::read_to_string(&self.out).unwrap()
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(&self.err).unwrap()
    }

    /// Waits for its end; gives the exit code.
    fn ended(&mut self) -> Option<i32> {
        let mut code = None;
        let ended = eventually(|| match self.child.try_wait().unwrap() {
            Some(status) => {
                code = status.code();
                true
            }
            None => false,
        });
        assert!(ended, "it never ended: {}", self.stderr());
        code
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}: {}{}", self.out.display(), self.stdout(), self.stderr());
            for name in ["agent.out", "controller.out"] {
                let text = std::fs::read_to_string(self.site.world.path(name));
                eprintln!("{name}: {}", text.unwrap_or_default());
            }
        }
    }
}

const POOL: &str = "20000-20009";

/// A web service in a few words, asked often whether it is ready.
const HELLO: [&str; 12] = [
    "--name",
    "web",
    "--port",
    "http",
    "--ready",
    "http:/",
    "--set",
    "readiness.interval=200ms",
    "--",
    PORTREEVE,
    "hello",
    "--port=${port.http}",
];

/// The same with further options.
fn hello<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [options, &HELLO].concat()
}

/// A shell command without a port.
fn shell<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [options, &["--", "sh", "-c", script]].concat()
}

fn port(replica: &Value) -> u64 {
    let text = replica["ports"]["http"].as_str();
    text.map_or_else(
        || replica["ports"]["http"].as_u64().unwrap(),
        |it| it.parse().unwrap(),
    )
}

/// What must not change.
fn standing(replica: &Value) -> Vec<Value> {
    let fields = ["incarnation", "ports", "pid", "restarts", "run", "ready"];
    fields.iter().map(|it| replica[*it].clone()).collect()
}
