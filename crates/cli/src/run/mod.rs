//! `portreeve run`: one replica inside another scheduler's job. The process is its worker.

mod end;
mod job;
pub(crate) mod link;
mod notices;
mod seek;
mod signals;
mod spec;
mod voice;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use portreeve::registry::Want;
use portreeve::supervision::{Final, State, Status};
use portreeve_api::attach::{Again, Ask, ProfileForm};
use portreeve_api::local::{Assignment, ReplicaFolder, WorkerCommand};
use portreeve_worker::{Berth, Outcome, run_attached};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::command::logging::log_by;
use crate::command::submit::{Draft, Flags};
use crate::exit::{Code, Failure};
use crate::places::{self, Places};
use crate::span::Span;

use end::{NO_PORT, OUR_FAILURE, exit_code};
use job::Job;
use link::{Connected, Link};
use notices::Notices;
use seek::{Found, Seeker};
pub(crate) use signals::Signals;
use spec::{PortSpec, ReadySpec, RestartSpec};
use voice::say;

/// Run one replica inside a job of another scheduler (Slurm, LSF, PBS), with ports of this host.
///
/// The other scheduler chose the host; this asks the host's agent for free ports, runs the service here, watches it,
/// restarts it in place and lists it once it is ready, like every replica. TERM is the normal stop: unpublished,
/// drained, TERM, grace, KILL.
///
/// A profile: `portreeve run web.toml`
///
/// In a few words: `portreeve run --port http --ready http:/health -- ./server --port '${port.http}'`
///
/// The command is filled in: ${port.http}, ${addr.http}, ${host.address}; put it in single quotes. The service also finds
/// PORTREEVE_PORT_HTTP and the like in its environment, beside the job's own.
///
/// Exit codes: that of the service, 128+n where signal n ended it, 75 when there was no port in time, 125 when portreeve
/// itself failed, 2 for a wrong use.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The profile, TOML; `-` reads standard input
    #[arg(conflicts_with_all = ["command", "ports", "ready", "restart"])]
    file: Option<PathBuf>,
    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// A port the service needs: http, http:any or http:8080; may be repeated
    #[arg(long = "port", value_name = "NAME[:NUMBER]")]
    ports: Vec<PortSpec>,
    /// When it is ready: listening, tcp, tcp:PORT, PORT:/path for HTTP, command:WORDS; by default listening
    #[arg(long, value_name = "SPEC")]
    ready: Option<ReadySpec>,
    /// What to do when it exits; with on-failure, exit 0 ends the job
    #[arg(long, value_enum, default_value_t)]
    restart: RestartSpec,
    /// The service; by default the profile's name, else the program's
    #[arg(long, value_name = "SERVICE")]
    name: Option<String>,
    /// Which replica; by default the task's or the array's number, else the next free
    #[arg(long, value_name = "INDEX")]
    replica: Option<u32>,
    /// How long to wait for ports
    #[arg(long, value_name = "TIME", default_value = "60s")]
    port_wait: Span,
    /// How long the other scheduler waits between TERM and KILL; by default 30s under Slurm, 10s under LSF and PBS
    #[arg(long, value_name = "TIME")]
    kill_wait: Option<Span>,
    /// The socket of this host's agent; by default the one of this user, then the one of this machine
    #[arg(long, value_name = "SOCKET", env = "PORTREEVE_AGENT")]
    agent: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// How often new numbers are asked for after strangers' ports, within [`CONFLICT_WINDOW`].
const CONFLICTS_ALLOWED: usize = 5;
/// How long such a conflict counts.
const CONFLICT_WINDOW: Duration = Duration::from_secs(600);
/// How long the agent may take to hear the end.
const LAST_WORD: Duration = Duration::from_secs(2);

impl Run {
    pub(crate) async fn run(self) -> ExitCode {
        if let Err(failure) = self.is_whole() {
            return failure.report();
        }
        let code = match self.through().await {
            Ok(code) => code,
            Err(failure) => {
                say(&failure.to_string());
                OUR_FAILURE
            }
        };
        voice::finish();
        ExitCode::from(code)
    }

    /// Whether the words together say what to run.
    fn is_whole(&self) -> Result<(), Failure> {
        if self.file.is_none() && self.command.is_empty() {
            return Err(Failure::new(
                Code::Usage,
                "nothing to run is named: `portreeve run web.toml` runs a profile, \
                 `portreeve run --port http -- ./server --port '${port.http}'` a command",
            ));
        }
        match spec::named_twice(&self.ports) {
            Some(name) => Err(Failure::new(
                Code::Usage,
                format!("--port {name} is there twice; give each port a name of its own"),
            )),
            None => Ok(()),
        }
    }

    async fn through(self) -> Result<u8, Failure> {
        // The service's output is the job's; ours stays out of it unless something is wrong.
        log_by("warn", || voice::Log);
        let mut signals = Signals::listen()?;
        let job = Job::from_variables(|name| std::env::var(name).ok());
        let socket = self.agent.clone().or_else(usual_agent);
        let mut seeker = Seeker {
            ask: self.ask(&job)?,
            socket: socket.ok_or_else(no_agent)?,
            is_explicit: self.replica.is_some(),
            port_wait: self.port_wait.0,
        };
        let kill_wait = self.kill_wait.map(|it| it.0).or(job.kill_wait);
        let mut conflicts: Vec<Instant> = Vec::new();
        loop {
            seeker.ask.key = random_key()?;
            let home = private_folder()?;
            seeker.ask.folder = home.path().to_owned();
            let (assignment, notes, connected) = match seeker.find(&mut signals).await? {
                Found::Granted(granted) => *granted,
                Found::TooLate(reason) => {
                    say(&reason);
                    return Ok(NO_PORT);
                }
                Found::Signal(number) => return Ok(128 + number),
            };
            if conflicts.is_empty() {
                notes
                    .iter()
                    .for_each(|note| say(&format!("warning: {note}")));
                warn_of_kill(&assignment, kill_wait);
            }
            let name = format!(
                "{}/{}",
                assignment.desired.service, assignment.desired.index
            );
            say(&granted_words(&name, &assignment));
            seeker.ask.index = Some(assignment.desired.index);
            let stop = supervise(&seeker, assignment, connected, &mut signals).await?;
            let is_conflict = matches!(
                stop.outcome.status.state,
                State::Final(Final::PortConflict { .. })
            );
            conflicts.retain(|at| at.elapsed() < CONFLICT_WINDOW);
            if is_conflict && stop.signal.is_none() && conflicts.len() < CONFLICTS_ALLOWED {
                conflicts.push(Instant::now());
                say(&format!(
                    "{name}: {}; asks for other numbers",
                    end::words(&stop.outcome)
                ));
                continue;
            }
            if let Some(words) = end::worth_saying(&stop.outcome, stop.signal) {
                say(&format!("{name}: {words}"));
            }
            return Ok(exit_code(&stop.outcome, stop.signal));
        }
    }

    /// What is asked for; refused here as far as the controller is not needed for it.
    fn ask(&self, job: &Job) -> Result<Ask, Failure> {
        let (profile, form) = match &self.file {
            Some(file) => {
                let draft = Draft::read(file, self.flags.set.clone())?;
                draft.check_alone()?;
                (draft.text()?, ProfileForm::Toml)
            }
            None => {
                let name = self.short_name()?;
                let text = spec::profile(
                    &name,
                    &self.ports,
                    self.ready.as_ref(),
                    self.restart,
                    &self.command,
                );
                (text, ProfileForm::Json)
            }
        };
        Ok(Ask {
            profile,
            form,
            set: self.flags.set.clone(),
            name: self.name.clone(),
            index: self.replica.or(job.index),
            key: String::new(),
            job: job.name.clone(),
            folder: PathBuf::new(),
        })
    }

    /// The service's name within its namespace.
    fn short_name(&self) -> Result<String, Failure> {
        if let Some(name) = &self.name {
            return Ok(name.split('.').next().unwrap_or_default().to_owned());
        }
        let named = spec::name_of(&self.command);
        let named = named.ok_or_else(|| {
            Failure::plain("the command's name is no service name; give one with --name")
        })?;
        Ok(named.to_string())
    }
}

/// How a supervised replica came to its end.
struct Stop {
    outcome: Outcome,
    /// The first signal that we were sent.
    signal: Option<u8>,
}

/// Runs the replica to its end.
async fn supervise(
    seeker: &Seeker,
    assignment: Assignment,
    connected: Connected,
    signals: &mut Signals,
) -> Result<Stop, Failure> {
    let (orders, wanted) = mpsc::channel(16);
    let (newest, told) = watch::channel(None);
    let mut heard = told.clone();
    let desired = &assignment.desired;
    let name = format!("{}/{}", desired.service, desired.index);
    let mut notices = Notices::default();
    let link = Link {
        socket: seeker.socket.clone(),
        again: Again {
            service: desired.service.clone(),
            index: desired.index,
            incarnation: desired.incarnation,
            token: assignment.tokens.worker.clone(),
            status: None,
            folder: seeker.ask.folder.clone(),
        },
        orders: orders.clone(),
        newest: told,
    };
    let linked = tokio::spawn(link.keep(connected));
    let working = run_attached(Berth {
        folder: ReplicaFolder::at(&seeker.ask.folder),
        assignment,
        orders: wanted,
        newest,
    });
    tokio::pin!(working);
    let mut first = None;
    let outcome = loop {
        let number = tokio::select! {
            outcome = &mut working => break outcome?,
            number = signals.next() => number,
            Ok(()) = heard.changed() => {
                let status: Option<Status> = heard.borrow_and_update().clone();
                if let Some(words) = status.and_then(|status| notices.of(&status)) {
                    say(&format!("{name}: {words}"));
                }
                continue;
            }
        };
        if first.is_none() && number == Signals::INTERRUPT && std::io::stderr().is_terminal() {
            say(&format!("{name}: stops; Ctrl-C again ends it at once"));
        }
        // LSF sends INT and then TERM: only a second Ctrl-C is impatience.
        let order = if first == Some(Signals::INTERRUPT) && number == Signals::INTERRUPT {
            WorkerCommand::Hurry
        } else {
            WorkerCommand::Want {
                want: Want::Stop,
                restart_no: 0,
            }
        };
        first.get_or_insert(number);
        // It fails only when the replica is over.
        _ = orders.try_send(order);
    };
    _ = tokio::time::timeout(LAST_WORD, linked).await;
    Ok(Stop {
        outcome,
        signal: first,
    })
}

/// `web.alice/0 on host n1: http 20001`.
fn granted_words(name: &str, assignment: &Assignment) -> String {
    let ports = assignment.desired.grant.ports.iter();
    let ports: Vec<String> = ports
        .map(|port| format!("{} {}", port.name, port.numbers))
        .collect();
    let host = &assignment.host;
    if ports.is_empty() {
        return format!("{name} on host {host}");
    }
    format!("{name} on host {host}: {}", ports.join(", "))
}

/// A stop that takes longer than the scheduler waits ends in its KILL.
fn warn_of_kill(assignment: &Assignment, kill_wait: Option<Duration>) {
    let stop = &assignment.desired.profile.supervision.stop;
    let takes = stop.drain + stop.grace;
    if let Some(kill_wait) = kill_wait.filter(|kill_wait| takes > *kill_wait) {
        let span = |span: Duration| portreeve::time::Spelled(span);
        say(&format!(
            "warning: a stop takes up to {} (drain {} and grace {}) and the scheduler kills {} after TERM; shorten stop.grace, or raise its wait and say so with --kill-wait",
            span(takes),
            span(stop.drain),
            span(stop.grace),
            span(kill_wait)
        ));
    }
}

/// The sockets to try where none is named: one's own agent's, the system's.
fn usual_agent() -> Option<PathBuf> {
    let own = places::agent_socket(&Places::here().run);
    let system = places::agent_socket(places::SYSTEM_RUN.as_ref());
    [own, system]
        .into_iter()
        .find(|socket| socket.exists() && places::is_trusted(socket))
}

fn no_agent() -> Failure {
    Failure::plain(
        "no agent runs on this host, and only it gives ports here; `portreeve agent` runs one, --agent names its socket",
    )
}

/// A folder of the job's own, 0700, that goes with the value. Scratch directories are below it, so it is where
/// temporary files are, and not in a runtime folder, which is memory.
fn private_folder() -> Result<tempfile::TempDir, Failure> {
    let home = tempfile::Builder::new()
        .prefix("portreeve-run-")
        .tempdir_in(std::path::absolute(std::env::temp_dir())?);
    home.map_err(|cause| {
        Failure::plain(format!(
            "no private folder in {}: {cause}; TMPDIR names another place",
            std::env::temp_dir().display()
        ))
    })
}

/// Names one ask.
fn random_key() -> Result<String, Failure> {
    let key = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(key.trim().to_owned())
}
