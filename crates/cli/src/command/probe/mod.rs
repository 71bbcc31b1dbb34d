//! `portreeve probe`: one probe by the code that the worker runs, for schedulers that keep their own watch.

mod words;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use portreeve::port::{Port, PortRange, PortRanges};
use portreeve::profile::ListenerOwner;
use portreeve::supervision::{ProbeKind, ProbeOutcome};
use portreeve_worker::probe::{
    Check, CommandCheck, HttpCheck, ProbeTarget, Root, SourcePorts, TargetPort, probe,
};
use serde::Serialize;

use super::told::Told;
use crate::exit::{Code, Failure};
use crate::output::{Format, print, print_json};
use crate::span::Span;
use words::{Codes, HeaderLine, Numbers};

/// Run one probe, as a worker would, and say what it found.
///
/// Exit codes: 0 it succeeded, 1 it failed or took too long, 75 it says nothing (this machine had no room for it), 2
/// usage. It asks no controller and needs none; the fields are those of a profile's probe.
#[derive(Args, Debug)]
pub(crate) struct Probe {
    #[command(subcommand)]
    form: Form,
}

#[derive(Debug, Subcommand)]
enum Form {
    /// One GET: one connection, no redirect followed, no proxy asked
    #[command(
        after_help = "Example: portreeve probe http --port 8080 --path /health --expect 200-299"
    )]
    Http(Http),
    /// One connect, closed without a trace
    #[command(after_help = "Example: portreeve probe tcp --port 5432 --pid 4711")]
    Tcp(Tcp),
    /// No connection: each port has a listener that clients reach
    #[command(
        after_help = "Example: portreeve probe listening --port 8080 --port 9000-9003 --address 10.1.0.17 --pid 4711"
    )]
    Listening(Listening),
    /// A program whose exit code decides; it and all it starts ends with the probe
    #[command(after_help = "Example: portreeve probe command --timeout 5s -- pg_isready -p 5432")]
    Command(Command),
}

/// How every form is asked and answers.
#[derive(Args, Debug)]
struct Asked {
    /// An answer later than this is a failure: 10ms to 1h
    #[arg(long, value_name = "TIME", default_value = "3s")]
    timeout: Span,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Whose a listener must be.
#[derive(Args, Debug)]
struct Whose {
    /// The process at or below which the service runs: who else answers is a stranger
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Whose listener counts: run (of --pid), user (this user's), any; by default run with --pid, else any
    #[arg(long, value_enum)]
    owner: Option<Owner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Owner {
    Run,
    User,
    Any,
}

#[derive(Args, Debug)]
struct Http {
    /// The number
    #[arg(long)]
    port: Port,
    /// A literal address instead of 127.0.0.1
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
    /// What to ask for
    #[arg(long, default_value = "/")]
    path: String,
    /// Accepted codes and ranges, such as 200-299,404
    #[arg(long, value_name = "CODES", default_value = "200-399")]
    expect: Codes,
    /// A further header, such as 'Host: model.site'; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<HeaderLine>,
    /// The body must contain this text within its first 64 KiB
    #[arg(long, value_name = "TEXT")]
    require_body: Option<String>,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
struct Tcp {
    /// The number
    #[arg(long)]
    port: Port,
    /// A literal address instead of 127.0.0.1
    #[arg(long, value_name = "ADDRESS")]
    host: Option<IpAddr>,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
struct Listening {
    /// A number, or a block such as 9000-9003 of which one is enough; may be repeated
    #[arg(long = "port", value_name = "NUMBERS", required = true)]
    ports: Vec<Numbers>,
    /// Where clients are sent: the listener must cover it. Without it any address of this machine will do
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    #[command(flatten)]
    whose: Whose,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args, Debug)]
struct Command {
    /// Where it runs; by default here
    #[arg(long, value_name = "DIR")]
    working_dir: Option<PathBuf>,
    #[command(flatten)]
    asked: Asked,
    /// The program and its arguments; it sees this environment
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<String>,
}

/// What `-o json` prints.
#[derive(Debug, Serialize)]
struct Found {
    /// `ok`, `fail`, `timeout` or `inconclusive`.
    outcome: &'static str,
    text: String,
    took_ms: u64,
}

impl Probe {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let (check, target, asked) = match self.form {
            Form::Http(http) => http.check()?,
            Form::Tcp(tcp) => tcp.check()?,
            Form::Listening(listening) => listening.check()?,
            Form::Command(command) => command.check()?,
        };
        let timeout = asked.timeout.0;
        if !SOUND_TIMEOUTS.contains(&timeout) {
            return Err(usage("--timeout is 10ms to 1h"));
        }
        let mut told = Told::listen()?;
        let begun = Instant::now();
        let (outcome, text) = tokio::select! {
            report = probe(check, target, timeout, timeout, || ()) => (report.outcome, report.text),
            // What a command started ends with it.
            () = told.stop() => (ProbeOutcome::Inconclusive, "told to end before it was decided".to_owned()),
        };
        let code = match outcome {
            ProbeOutcome::Ok => ExitCode::SUCCESS,
            ProbeOutcome::Fail | ProbeOutcome::Timeout => ExitCode::FAILURE,
            ProbeOutcome::Inconclusive => ExitCode::from(INCONCLUSIVE),
        };
        match asked.output {
            Format::Json => print_json(&Found {
                outcome: match outcome {
                    ProbeOutcome::Ok => "ok",
                    ProbeOutcome::Fail => "fail",
                    ProbeOutcome::Timeout => "timeout",
                    ProbeOutcome::Inconclusive => "inconclusive",
                },
                text,
                took_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            })?,
            // What a command wrote may be several lines.
            Format::Table => print(&format!("{}\n", text.replace('\n', " ")))?,
        }
        Ok(code)
    }
}

impl Http {
    fn check(self) -> Result<(Check, ProbeTarget, Asked), Failure> {
        // A wrong use must not look like a service that fails.
        if !self.path.starts_with('/') {
            return Err(usage(&format!(
                "--path {:?}: write it from the first /, such as /health",
                self.path
            )));
        }
        let target = self
            .whose
            .target(&[PortRange::single(self.port)], self.host)?;
        let check = HttpCheck {
            port: self.port,
            host: self.host.filter(|_| self.whose.is_nobodys()),
            path: self.path,
            expect: self.expect.0,
            headers: self.headers.into_iter().map(|line| line.0).collect(),
            require_body: self.require_body,
        };
        Ok((Check::Http(check), target, self.asked))
    }
}

impl Tcp {
    fn check(self) -> Result<(Check, ProbeTarget, Asked), Failure> {
        let target = self
            .whose
            .target(&[PortRange::single(self.port)], self.host)?;
        let check = Check::Tcp {
            port: self.port,
            host: self.host.filter(|_| self.whose.is_nobodys()),
        };
        Ok((check, target, self.asked))
    }
}

impl Listening {
    fn check(self) -> Result<(Check, ProbeTarget, Asked), Failure> {
        let numbers: Vec<_> = self.ports.into_iter().map(|numbers| numbers.0).collect();
        let mut target = self.whose.target(&numbers, self.address)?;
        target.anywhere = self.address.is_none();
        Ok((Check::Listening, target, self.asked))
    }
}

impl Command {
    fn check(self) -> Result<(Check, ProbeTarget, Asked), Failure> {
        let working_dir = match self.working_dir {
            Some(folder) => folder,
            None => std::env::current_dir()?,
        };
        if !working_dir.is_dir() {
            return Err(usage(&format!(
                "--working-dir {}: no such folder",
                working_dir.display()
            )));
        }
        let check = CommandCheck::alone(self.argv, std::env::vars_os().collect(), working_dir);
        let whose = Whose {
            pid: None,
            owner: None,
        };
        Ok((Check::Command(check), whose.target(&[], None)?, self.asked))
    }
}

impl Whose {
    /// Whether no owner is asked for. A literal address may then be another machine's, of which the listeners of this
    /// one tell nothing.
    const fn is_nobodys(&self) -> bool {
        self.pid.is_none() && self.owner.is_none()
    }

    /// The service with these ports, whose clients are sent to `address`.
    fn target(
        &self,
        numbers: &[PortRange],
        address: Option<IpAddr>,
    ) -> Result<ProbeTarget, Failure> {
        let owner = match (self.owner, self.pid) {
            (Some(Owner::Run), None) => return Err(usage("--owner run needs --pid")),
            (Some(Owner::Run), Some(_)) | (None, Some(_)) => ListenerOwner::Run,
            (Some(Owner::User), _) => ListenerOwner::User,
            (Some(Owner::Any), _) | (None, None) => ListenerOwner::Any,
        };
        // With a number that is nobody's every listener would be a stranger, which is not what is the matter.
        if let Some(pid) = self.pid
            && !std::path::Path::new(&format!("/proc/{pid}")).exists()
        {
            return Err(Failure::plain(format!(
                "--pid {pid}: no such process here; what it served is gone with it"
            )));
        }
        let ports = numbers.iter().map(|numbers| TargetPort {
            own: None,
            numbers: *numbers,
            publish: true,
            owner,
        });
        Ok(ProbeTarget {
            kind: ProbeKind::Readiness,
            ports: ports.collect(),
            address: address.unwrap_or(Ipv4Addr::LOCALHOST.into()),
            // It may be any machine's.
            own_address: false,
            single_host: false,
            anywhere: false,
            root: self.pid.map(|pid| Root { pid, group: None }),
            sources: SourcePorts::beside(&PortRanges::new(numbers.iter().copied())),
        })
    }
}

fn usage(words: &str) -> Failure {
    Failure::new(Code::Usage, words)
}

/// As `EX_TEMPFAIL`: it may be tried again and says nothing about the service.
const INCONCLUSIVE: u8 = 75;
/// The bounds of a profile's timeout.
const SOUND_TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);
