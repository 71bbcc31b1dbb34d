//! Row 23: what is told and written while everything is as it was. Nothing, however much is probed.
//!
//! Real workers on a real agent. There are fewer than a thousand, because each is three processes with what it serves,
//! and they probe so much more often: the probes of a minute are those of a thousand replicas.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::served::{PATIENCE, Process, absent, await_answer, free_address};
use crate::verdict::{Bound, Part, Row};
use crate::wire::{Place, Wire};

/// Each is probed twice in [`INTERVAL`].
const WORKERS: usize = 50;
const INTERVAL: Duration = Duration::from_millis(100);
/// As the table has it.
const SPAN: Duration = Duration::from_secs(60);
/// Until what the last change began is through.
const SETTLED: Duration = Duration::from_secs(6);

/// The row, where so many processes may be.
pub(crate) fn row() -> Option<Row> {
    absent(23, measure())
}

/// A controller and an agent of the shipped binary; its services end with it.
struct Site {
    agent: Process,
    _controller: Process,
    place: Place,
    folder: tempfile::TempDir,
}

/// What was done and told since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    probes: u64,
    /// By workers, and written by them.
    messages: u64,
    writes: u64,
    /// Heard and written by the controller.
    statuses: u64,
    reports: u64,
    commits: u64,
    leases: u64,
}

fn measure() -> io::Result<Row> {
    let site = Site::start()?;
    std::thread::sleep(SETTLED);
    let before = site.told()?;
    let begun = Instant::now();
    std::thread::sleep(SPAN);
    let after = site.told()?;
    let lasted = begun.elapsed().as_secs();
    site.end()?;
    let probes = after.probes - before.probes;
    let part = |case: &str, before: u64, after: u64| {
        let count = after - before;
        Part {
            case: case.to_owned(),
            measured: count as f64,
            shown: count.to_string(),
            detail: format!("in {lasted} s, with {probes} probes"),
            bound: Bound::AtMost(0.0),
        }
    };
    let leases = after.leases - before.leases;
    Ok(Row {
        number: 23,
        what: "told and written in steady state: 50 real workers probe as 1,000 replicas with one probe a second do",
        target: "0 reports, 0 commits (leases aside)",
        parts: vec![
            part("messages of workers", before.messages, after.messages),
            part("writes of workers", before.writes, after.writes),
            part("statuses", before.statuses, after.statuses),
            part("reports", before.reports, after.reports),
            part("commits", before.commits, after.commits),
            Part {
                case: "leases of the one host".to_owned(),
                measured: leases as f64,
                shown: leases.to_string(),
                detail: format!("in {lasted} s"),
                bound: Bound::Told,
            },
        ],
    })
}

impl Site {
    fn start() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = free_address()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let ours = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_portreeve"));
            command.args(arguments).env("PORTREEVE_LOG", "warn");
            command
        };
        let mut controller = ours(&["controller", "--single-host", "--listen"]);
        controller
            .arg(address.to_string())
            .arg("--data")
            .arg(folder.path().join("controller"))
            .arg("--run-dir")
            .arg(folder.path().join("run"))
            .stderr(log.try_clone()?);
        let controller = Process::start(&mut controller)?;
        let place = Place::Tcp(address);
        await_answer(&place, "/healthz")?;
        let mut agent = ours(&["agent", "--host", "n1", "--single-host", "--controller"]);
        agent
            .arg(format!("http://{address}"))
            .arg("--data")
            .arg(folder.path().join("host"))
            .arg("--socket")
            .arg(folder.path().join("agent.sock"))
            .stderr(log);
        let agent = Process::start(&mut agent)?;
        let site = Self {
            agent,
            _controller: controller,
            place,
            folder,
        };
        site.submit()?;
        let begun = Instant::now();
        while site.json("services/web")?["ready"] != WORKERS {
            if begun.elapsed() > 4 * PATIENCE {
                return Err(io::Error::other("its replicas were never ready"));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(site)
    }

    fn submit(&self) -> io::Result<()> {
        let interval = INTERVAL.as_millis();
        let profile = format!(
            "kind = \"service\"\nname = \"web\"\nreplicas = {WORKERS}\n\
             command = [\"{}\", \"hello\", \"--port\", \"${{port.http}}\"]\nworking_dir = \"{}\"\n\
             [ports]\nhttp = \"any\"\n[readiness]\nhttp = {{ path = \"/\" }}\ninterval = \"{interval}ms\"\n\
             [liveness]\ntcp = {{}}\ninterval = \"{interval}ms\"\n",
            env!("CARGO_BIN_EXE_portreeve"),
            self.folder.path().display(),
        );
        let toml = [("Content-Type", "application/toml")];
        let mut wire = Wire::open(&self.place, PATIENCE)?;
        wire.ask("PUT", "/api/v1/services/web", &toml, profile.as_bytes())?;
        let answer = wire.answer()?;
        match answer.head.status {
            200 | 201 => Ok(()),
            _ => Err(io::Error::other(answer.text().to_owned())),
        }
    }

    fn json(&self, path: &str) -> io::Result<Value> {
        let mut wire = Wire::open(&self.place, PATIENCE)?;
        Ok(wire.get(&format!("/api/v1/{path}"), &[])?.json())
    }

    fn told(&self) -> io::Result<Told> {
        let mut told = Told::default();
        for folder in self.replicas()? {
            let counters = worker(&folder)?;
            told.probes += count(&counters, "probes")?;
            told.messages += count(&counters, "messages")?;
            told.writes += count(&counters, "writes")?;
        }
        let counters = self.json("counters")?;
        told.statuses = count(&counters, "statuses")?;
        told.reports = count(&counters, "reports")?;
        told.commits = count(&counters, "commits")?;
        told.leases = count(&counters, "leases")?;
        Ok(told)
    }

    fn replicas(&self) -> io::Result<Vec<PathBuf>> {
        let folders = std::fs::read_dir(self.folder.path().join("host/agent/replicas"))?;
        folders.map(|entry| Ok(entry?.path())).collect()
    }

    /// Stops the service, so that no process is left.
    fn end(self) -> io::Result<()> {
        let mut wire = Wire::open(&self.place, PATIENCE)?;
        wire.ask("POST", "/api/v1/services/web/stop", &[], b"")?;
        wire.answer()?;
        let begun = Instant::now();
        let lives = |service: &Value| {
            let replicas = service["replicas"].as_array().into_iter().flatten();
            replicas.clone().any(|it| it["job_state"] == "RUN")
        };
        while lives(&self.json("services/web")?) && begun.elapsed() < 2 * PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(self.agent);
        Ok(())
    }
}

/// What a worker did, as it tells on its socket.
fn worker(folder: &Path) -> io::Result<Value> {
    let mut stream = UnixStream::connect(folder.join("worker.sock"))?;
    stream.write_all(b"\"tell\"\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let answer: Value = serde_json::from_str(&line)?;
    Ok(answer["counters"].clone())
}

fn count(counters: &Value, what: &str) -> io::Result<u64> {
    let count = counters[what].as_u64();
    count.ok_or_else(|| io::Error::other(format!("no count of {what}")))
}
