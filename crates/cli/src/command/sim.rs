//! `sim`: a service on virtual time, with processes that follow a script.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use portreeve::profile::MAX_FILE;
use portreeve::supervision::State;
use portreeve::time::Spelled;
use portreeve_sim::{Entry, MAX_SCENARIO, Outcome, Scenario, play};
use serde::Serialize;

use crate::exit::Failure;
use crate::output::{Format, print, rows};

/// Play a scenario on virtual time, before a rule meets a real service.
///
/// The same machine as on a host decides; only processes, probes and users follow the scenario. The same file
/// and seed print the same bytes. Exit code 1 if something that the scenario expects is not seen.
#[derive(Args, Debug)]
pub(crate) struct Sim {
    /// The scenario, TOML; see docs/supervision.md
    file: PathBuf,
    /// Print everything that is seen, with its times, instead of a summary
    #[arg(long)]
    timeline: bool,
    /// Another seed than the scenario's: it decides jitter and the spread of probes
    #[arg(long)]
    seed: Option<u64>,
    /// JSON: one object for each line
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
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
        let played = play(&scenario).map_err(|cause| Failure::plain(format!("{name}: {cause}")))?;
        match (self.timeline, self.output) {
            (true, Format::Table) => {
                let lines = played.timeline.iter().map(|entry| format!("{entry}\n"));
                print(&format!(
                    "{}\n{}",
                    Entry::HEADING,
                    lines.collect::<String>()
                ))?;
            }
            (true, Format::Json) => print_lines(&played.timeline)?,
            (false, Format::Table) => print(&summary(&played.outcomes))?,
            (false, Format::Json) => {
                let outcomes = played.outcomes.iter().enumerate();
                print_lines(
                    &outcomes
                        .map(|(replica, one)| Shown::of(replica, one))
                        .collect::<Vec<_>>(),
                )?;
            }
        }
        if played.unmet.is_empty() {
            return Ok(());
        }
        let mut told = std::io::stderr().lock();
        for unmet in &played.unmet {
            // The code counts even where nobody can read the words.
            _ = writeln!(told, "{name}: {unmet}");
        }
        if played.more_unmet > 0 {
            _ = writeln!(told, "{name}: and {} more", played.more_unmet);
        }
        let count = match played.unmet.len() + played.more_unmet {
            1 => "1 expectation is".to_owned(),
            many => format!("{many} expectations are"),
        };
        Err(Failure::plain(format!("{count} not met")))
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
struct Shown {
    replica: usize,
    state: State,
    ready: bool,
    runs: u32,
    restarts: u32,
    ready_ms: u128,
}

impl Shown {
    fn of(replica: usize, outcome: &Outcome) -> Self {
        Self {
            replica,
            state: outcome.state.clone(),
            ready: outcome.ready,
            runs: outcome.runs,
            restarts: outcome.restarts,
            ready_ms: outcome.ready_for.as_millis(),
        }
    }
}

fn summary(outcomes: &[Outcome]) -> String {
    let row = |(replica, one): (usize, &Outcome)| {
        vec![
            replica.to_string(),
            match &one.state {
                State::Final(end) => end.to_string(),
                state => format!("{state:?}").to_lowercase(),
            },
            if one.ready { "ready" } else { "not ready" }.to_owned(),
            one.runs.to_string(),
            one.restarts.to_string(),
            Spelled(one.ready_for).to_string(),
        ]
    };
    rows(
        &["REPLICA", "STATE", "READY", "RUNS", "RESTARTS", "READY FOR"],
        outcomes.iter().enumerate().map(row).collect(),
    )
}
