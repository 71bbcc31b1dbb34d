//! A server in a folder of its own, on an address of this machine alone.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::scripted::ScriptedHost;
use crate::wire::{Place, Wire};

/// The longest wait for one answer, and for a server to begin.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is ended with this.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map(Self)
    }

    /// How long its threads were on a processor, in nanoseconds.
    pub(crate) fn busy(&self) -> io::Result<f64> {
        let mut sum = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let figures = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            let first = figures.split_ascii_whitespace().next();
            sum += first.and_then(|text| text.parse().ok()).unwrap_or(0.0);
        }
        Ok(sum)
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident(&self) -> io::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
        number
            .map(|kilobytes: f64| kilobytes * 1024.0)
            .ok_or_else(|| io::Error::other("no resident size"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A controller of the shipped binary with one service `web` on a scripted host.
pub(crate) struct Served {
    pub(crate) host: ScriptedHost,
    pub(crate) controller: Process,
    pub(crate) place: Place,
    _folder: tempfile::TempDir,
}

impl Served {
    /// So many replicas, all ready; by another program in front, such as `taskset`, where one is given.
    pub(crate) fn start(replicas: usize, through: &[&str]) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = free_address()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let line = [
            through,
            &[
                env!("CARGO_BIN_EXE_portreeve"),
                "controller",
                "--single-host",
            ],
        ]
        .concat();
        let mut command = Command::new(line[0]);
        command
            .args(&line[1..])
            .args(["--listen", &address.to_string()])
            .arg("--data")
            .arg(folder.path().join("data"))
            .arg("--run-dir")
            .arg(folder.path().join("run"))
            .env("PORTREEVE_LOG", "warn")
            .stderr(log);
        let controller = Process::start(&mut command)?;
        let place = Place::Tcp(address);
        await_answer(&place, "/healthz")?;
        submit(&place, folder.path(), replicas)?;
        let mut host = ScriptedHost::join(&place, "n1")?;
        host.start(replicas)?;
        for nth in 0..replicas {
            host.tell(nth, true)?;
        }
        // News that comes in a row is gathered for a moment.
        let mut wire = Wire::open(&place, PATIENCE)?;
        let begun = Instant::now();
        while wire.get("/api/v1/resolve/web", &[])?.text().lines().count() < replicas {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("its replicas were never listed"));
            }
        }
        Ok(Self {
            host,
            controller,
            place,
            _folder: folder,
        })
    }
}

fn submit(place: &Place, folder: &Path, replicas: usize) -> io::Result<()> {
    let profile = format!(
        "kind = \"service\"\nname = \"web\"\nreplicas = {replicas}\ncommand = [\"sleep\", \"9\"]\n\
         working_dir = \"{}\"\n[ports]\nhttp = \"any\"\n",
        folder.display()
    );
    let mut wire = Wire::open(place, PATIENCE)?;
    let toml = [("Content-Type", "application/toml")];
    wire.ask("PUT", "/api/v1/services/web", &toml, profile.as_bytes())?;
    let answer = wire.answer()?;
    match answer.head.status {
        200 | 201 => Ok(()),
        _ => Err(io::Error::other(answer.text().to_owned())),
    }
}

/// Waits until a server answers this with 200.
pub(crate) fn await_answer(place: &Place, path: &str) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let asked = Wire::open(place, PATIENCE).and_then(|mut wire| wire.get(path, &[]));
        match asked {
            Ok(answer) if answer.head.status == 200 => return Ok(()),
            Err(cause) if begun.elapsed() > PATIENCE => return Err(cause),
            Ok(answer) if begun.elapsed() > PATIENCE => {
                return Err(io::Error::other(answer.text().to_owned()));
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// An address that was free a moment ago.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Says why a row is absent.
pub(crate) fn absent<T>(row: u32, measured: io::Result<T>) -> Option<T> {
    measured
        .inspect_err(|cause| eprintln!("row {row} is absent: {cause}"))
        .ok()
}
