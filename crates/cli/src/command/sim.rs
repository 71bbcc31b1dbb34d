//! `sim`: a whole cluster on virtual time, with people, machines and processes that follow a script.

mod serve;

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use portreeve::identity::{HostName, ServiceName};
use portreeve::profile::MAX_FILE;
use portreeve::time::{Monotonic, Spelled};
use portreeve_sim::{Entry, MAX_SCENARIO, Outcome, Played, Progress, Scenario, account, play_with};
use serde::Serialize;

use crate::command::on_all_cores;
use crate::exit::{Code, Failure};
use crate::output::{Format, print};
use crate::places::{self, Places};

/// Play a scenario on virtual time, before a rule meets a real service.
///
/// A controller, hosts, a network and disks are as the scenario says, and people, machines and processes do what it
/// tells; what decides is what decides in a real cluster. Prints what matters of it and where everything stands at
/// the end. The same file and seed print the same bytes. Exit code 1 if something that the scenario expects is not
/// seen, or a promise of portreeve is broken.
#[derive(Args, Debug)]
pub(crate) struct Sim {
    /// The scenario, TOML; see docs/sim.md
    file: PathBuf,
    /// Print everything that is seen, one line each, and no summary
    #[arg(long)]
    timeline: bool,
    /// Only what is seen of this service, such as web or web.alice; may be repeated
    #[arg(long, value_name = "NAME")]
    service: Vec<String>,
    /// Only what is seen on this host or of it; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Another seed than the scenario's: all chance follows from it
    #[arg(long)]
    seed: Option<u64>,
    /// JSON: one object for each line. Without it the text is the same on a terminal and in a pipe
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Be a controller that anybody can use, over the scenario's hosts, by the real clock, until Ctrl-C
    #[arg(long, conflicts_with_all = ["timeline", "service", "host", "output"])]
    serve: bool,
    /// Where the socket of --serve is made; other commands look there by default
    #[arg(long, value_name = "DIR", requires = "serve")]
    run_dir: Option<PathBuf>,
    /// Addresses for --serve to listen on; loopback only
    #[arg(long, value_name = "ADDRESS", requires = "serve", default_values = places::LISTEN)]
    listen: Vec<SocketAddr>,
}

impl Sim {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let name = self.file.display().to_string();
        let text = text(&self.file, MAX_SCENARIO)
            .map_err(|cause| Failure::plain(format!("{name}: {cause}")))?;
        let text = utf8(text).map_err(|cause| Failure::plain(format!("{name}:{cause}")))?;
        let beside = self.file.parent().unwrap_or(Path::new(""));
        let mut scenario =
            Scenario::from_toml(&text, |path| text_of(beside, path)).map_err(|errors| {
                Failure::plain(format!(
                    "the scenario is refused\n{}",
                    errors.in_file(&name)
                ))
            })?;
        if let Some(seed) = self.seed {
            scenario = scenario.with_seed(seed);
        }
        if self.serve {
            let run_dir = self.run_dir.unwrap_or_else(|| Places::here().run);
            let listen = self.listen;
            let place = serve::Place { run_dir, listen };
            return on_all_cores(serve::serve(&scenario, place));
        }
        self.are_there(&name, &scenario)?;
        let mut told = Told::new();
        let played = play_with(&scenario, |progress| told.tell(progress));
        told.end();
        let mut played = played.map_err(|cause| Failure::plain(format!("{name}: {cause}")))?;
        self.keep_what_is_asked_for(&mut played);
        self.print(&played)?;
        verdict(&name, &played)
    }

    /// Refuses names that the scenario does not have: an empty answer would look like a quiet run.
    fn are_there(&self, file: &str, scenario: &Scenario) -> Result<(), Failure> {
        let absent = |what: &str, name: &str| {
            let text = format!("{file} has no {what} {name}");
            Failure::new(Code::NoSuchService, text)
        };
        if let Some(name) = self.service.iter().find(|it| !scenario.has_service(it)) {
            return Err(absent("service", name));
        }
        match self.host.iter().find(|it| !scenario.has_host(it)) {
            Some(name) => Err(absent("host", name)),
            None => Ok(()),
        }
    }

    fn keep_what_is_asked_for(&self, played: &mut Played) {
        if self.service.is_empty() && self.host.is_empty() {
            return;
        }
        let service = |name: Option<&ServiceName>| {
            self.service.is_empty() || name.is_some_and(|name| is_called(name, &self.service))
        };
        let host = |host: Option<&HostName>| {
            let asked = |host: &HostName| self.host.iter().any(|name| name == host.as_str());
            self.host.is_empty() || host.is_some_and(asked)
        };
        let timeline = &mut played.timeline;
        timeline.retain(|one| service(one.service.as_ref()) && host(one.host.as_ref()));
        let outcomes = &mut played.outcomes;
        outcomes.retain(|one| service(Some(&one.service)) && host(one.host.as_ref()));
        played.services.retain(|one| service(Some(&one.service)));
    }

    fn print(&self, played: &Played) -> Result<(), Failure> {
        match (self.timeline, self.output) {
            (true, Format::Table) => {
                let lines = played.timeline.iter().map(|entry| format!("{entry}\n"));
                print(&format!(
                    "{}\n{}",
                    Entry::HEADING,
                    lines.collect::<String>()
                ))
            }
            (true, Format::Json) => print_lines(&played.timeline),
            (false, Format::Table) => print(&account(played)),
            (false, Format::Json) => {
                let outcomes = played.outcomes.iter().map(Shown::of);
                print_lines(&outcomes.collect::<Vec<_>>())
            }
        }
    }
}

/// Whether the service is one of these, with or without its namespace.
fn is_called(service: &ServiceName, names: &[String]) -> bool {
    let full = service.to_string();
    let mut names = names.iter();
    names.any(|name| *name == full || name == service.label().as_str())
}

/// Says what was not as it should be; a failure if anything was not.
fn verdict(name: &str, played: &Played) -> Result<(), Failure> {
    let mut told = std::io::stderr().lock();
    for unmet in &played.unmet {
        // The code counts even where nobody can read the words.
        _ = writeln!(told, "{name}: {unmet}");
    }
    if played.more_unmet > 0 {
        _ = writeln!(told, "{name}: and {} more", played.more_unmet);
    }
    if let Some(broken) = &played.broken {
        return Err(Failure::plain(format!(
            "a promise of portreeve is broken, please report this scenario: {broken}"
        )));
    }
    match played.unmet.len() + played.more_unmet {
        0 => Ok(()),
        1 => Err(Failure::plain("1 expectation is not met".to_owned())),
        many => Err(Failure::plain(format!("{many} expectations are not met"))),
    }
}

/// How far a long run is, for whoever waits at a terminal.
struct Told {
    terminal: bool,
    newest: Instant,
    is_there: bool,
}

impl Told {
    fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            newest: Instant::now(),
            is_there: false,
        }
    }

    fn tell(&mut self, progress: Progress) {
        /// A run that is over sooner says nothing.
        const PACE: Duration = Duration::from_millis(500);
        if !self.terminal || self.newest.elapsed() < PACE {
            return;
        }
        self.newest = Instant::now();
        self.is_there = true;
        let second = |at: Monotonic| Duration::from_secs(at.as_millis() / 1000);
        _ = write!(
            std::io::stderr(),
            "\r{} of {}, {} steps ",
            Spelled(second(progress.at)),
            Spelled(second(progress.until)),
            progress.steps
        );
    }

    /// Takes the line away again.
    fn end(&self) {
        if self.is_there {
            _ = write!(std::io::stderr(), "\r{:<60}\r", "");
        }
    }
}

/// The file as far as one of this kind may reach, and one byte more: it may be a device without an end.
fn text(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let most = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|cause| cause.to_string())
}

/// The text, or where it is none.
fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let sound = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let before = String::from_utf8_lossy(&bytes[..sound]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!(
            "{line}:{column}: the byte 0x{:02x} is not UTF-8; write the file in UTF-8",
            bytes[sound]
        )
    })
}

/// A profile that a scenario names, relative to the scenario's own folder.
fn text_of(beside: &Path, path: &str) -> Result<Vec<u8>, String> {
    text(&beside.join(path), MAX_FILE)
}

fn print_lines(lines: &[impl Serialize]) -> Result<(), Failure> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&serde_json::to_string(line).map_err(Failure::plain)?);
        text.push('\n');
    }
    print(&text)
}

/// One replica's end.
#[derive(Serialize)]
struct Shown<'o> {
    service: &'o ServiceName,
    replica: u32,
    incarnation: u32,
    host: Option<&'o HostName>,
    state: &'o str,
    reason: Option<&'o str>,
    ready: bool,
    runs: u32,
    restarts: u32,
    ready_ms: u128,
}

impl<'o> Shown<'o> {
    fn of(outcome: &'o Outcome) -> Self {
        Self {
            service: &outcome.service,
            replica: outcome.replica,
            incarnation: outcome.incarnation.0,
            host: outcome.host.as_ref(),
            state: &outcome.state,
            reason: outcome.reason.as_deref(),
            ready: outcome.ready,
            runs: outcome.runs,
            restarts: outcome.restarts,
            ready_ms: outcome.ready_for.as_millis(),
        }
    }
}
