//! A network of its own with only loopback: what a host of a test is.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::world::{kill, pause};

/// A network namespace. Everything that runs in it is killed with it.
pub(crate) struct Namespace {
    holder: Child,
}

impl Namespace {
    /// A new one, or why the machine does not allow one.
    pub(crate) fn new() -> Result<Self, String> {
        let mut command = Command::new("unshare");
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        Self::made_by(command)
    }

    /// A new one that the other may be linked with.
    pub(crate) fn within(other: &Self) -> Result<Self, String> {
        Self::made_by(other.command("unshare"))
    }

    fn made_by(mut command: Command) -> Result<Self, String> {
        command.args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && echo up && exec sleep 100000",
        ]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut holder = command
            .spawn()
            .map_err(|cause| format!("unshare: {cause}"))?;
        let mut line = String::new();
        let out = holder.stdout.take().expect("stdout is piped");
        BufReader::new(out).read_line(&mut line).unwrap();
        if line == "up\n" {
            return Ok(Self { holder });
        }
        let _ = holder.kill();
        let mut words = String::new();
        let _ = holder
            .stderr
            .take()
            .expect("stderr is piped")
            .read_to_string(&mut words);
        let _ = holder.wait();
        Err(words)
    }

    /// The process that holds it open.
    pub(crate) fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// A command that runs in it.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        let namespace = |kind: &str| format!("--{kind}=/proc/{}/ns/{kind}", self.holder.id());
        if !is_root() {
            command.args([namespace("user").as_str(), "--preserve-credentials"]);
        }
        command.arg(namespace("net")).arg("--").arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// Its processes but for its holder: number and command line.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = namespace(&self.holder.id().to_string());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(pid) = name.parse::<i32>() else {
                continue;
            };
            if pid.unsigned_abs() != self.holder.id() && namespace(&name) == own && own.is_some() {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
            }
        }
        found
    }

    /// Whether something listens on this TCP port of it.
    pub(crate) fn listens(&self, port: u64) -> bool {
        let table = |name: &str| {
            std::fs::read_to_string(format!("/proc/{}/net/{name}", self.holder.id()))
                .unwrap_or_default()
        };
        let wanted = format!(":{port:04X} ");
        [table("tcp"), table("tcp6")]
            .iter()
            .flat_map(|text| text.lines())
            .any(|line| {
                let mut fields = line.split_ascii_whitespace();
                let local = fields.nth(1).unwrap_or_default();
                format!("{local} ").ends_with(&wanted) && fields.nth(1) == Some("0A")
            })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Killed until none is left: a worker may start one while its predecessors are killed.
        for _ in 0..100 {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            for (pid, _) in left {
                kill(pid, "KILL");
            }
            pause();
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
