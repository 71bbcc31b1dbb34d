//! `why` and `replay`: what the record of a replica's events tells.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::Method;
use portreeve::supervision::record::{Because, replay, why};
use portreeve_api::{Client, paths};
use serde::Serialize;

use crate::connect::Connect;
use crate::exit::Failure;
use crate::names::ReplicaArg;
use crate::output::{Format, moment, print, print_json, tell};

/// Say why a replica stands where it stands: the rule and the boundary that fired last.
///
/// It plays the record that the replica's worker keeps on its host, so it needs the right to read the service's
/// logs. It works for a replica that has ended too, as long as its folder is kept.
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The service or one replica: NAME[/N]; without N replica 0
    name: ReplicaArg,
    /// Every turn of the record, not only the newest
    #[arg(long)]
    all: bool,
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Play a record of events through the machine again, and print what it reports.
///
/// A record is `supervision.jsonl` in a replica's folder, or what GET .../logs?stream=events answers. Exit code 1 if the reports are
/// not those of the record.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// The record
    file: PathBuf,
    /// JSON: one object for each report
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The most that is read of one part of a record; its worker keeps less.
const MOST: u32 = 1 << 20;
/// The most that is replayed: both parts and more.
const MOST_REPLAYED: u64 = 4 << 20;
/// A part comes from the agent within this time.
const PATIENCE: Duration = Duration::from_secs(40);
/// How many turns before the newest are shown.
const BEFORE: usize = 8;

#[derive(Serialize)]
struct Shown {
    service: String,
    replica: u32,
    turns: Vec<Because>,
}

impl Why {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let client = connect.client()?;
        let index = self.name.index.unwrap_or(0);
        let name = format!("{}/{index}", self.name.service);
        let mut record = self.part(&client, "events-before").await?;
        record.push('\n');
        record.push_str(&self.part(&client, "events").await?);
        if record.trim().is_empty() {
            return Err(Failure::plain(format!(
                "the record of {name} is gone, or nothing was recorded: its host keeps it with the replica's folder; \
                 `portreeve events {}` shows what the controller knows",
                self.name.service
            )));
        }
        let turns = why(&record).map_err(|cause| {
            Failure::plain(format!("the record of {name} cannot be played: {cause}"))
        })?;
        match self.output {
            Format::Json => print_json(&Shown {
                service: self.name.service.to_string(),
                replica: index,
                turns,
            }),
            Format::Table => print(&told(&name, &turns, self.all)),
        }
    }

    async fn part(&self, client: &Client, stream: &str) -> Result<String, Failure> {
        let index = self.name.index.unwrap_or(0);
        let mut path = paths::replica_part(&self.name.service, index, "logs");
        path.push_str(&format!("?stream={stream}&max={MOST}"));
        let reply = client
            .send(Method::GET, &path, None, "text/plain", PATIENCE)
            .await?;
        Ok(String::from_utf8_lossy(&reply.body).into_owned())
    }
}

/// The newest turn, then those before it, newest first.
fn told(name: &str, turns: &[Because], all: bool) -> String {
    let Some((newest, before)) = turns.split_last() else {
        return format!("{name}: it has begun, and no rule has fired yet\n");
    };
    let mut text = format!("{name}: {}\n", newest.sentence);
    let boundary = newest
        .boundary
        .as_deref()
        .map_or(String::new(), |it| format!("{it}; "));
    // Writing to a string cannot fail.
    _ = writeln!(
        text,
        "  {boundary}run {}, {} s after it began, {}",
        newest.run,
        seconds(newest.at_ms),
        moment(newest.wall)
    );
    let shown = if all {
        before.len()
    } else {
        before.len().min(BEFORE)
    };
    if shown > 0 {
        text.push_str("before that:\n");
    }
    for turn in before.iter().rev().take(shown) {
        _ = writeln!(
            text,
            "{:>11} s  run {}  {}",
            seconds(turn.at_ms),
            turn.run,
            turn.sentence
        );
    }
    if shown < before.len() {
        _ = writeln!(text, "  and {} more: --all", before.len() - shown);
    }
    text
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

impl Replay {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let name = self.file.display().to_string();
        let failed = |cause: &dyn std::fmt::Display| Failure::plain(format!("{name}: {cause}"));
        let mut bytes = Vec::new();
        File::open(&self.file)
            .and_then(|file| file.take(MOST_REPLAYED + 1).read_to_end(&mut bytes))
            .map_err(|cause| failed(&cause))?;
        if bytes.len() as u64 > MOST_REPLAYED {
            return Err(failed(&format!(
                "it is longer than {MOST_REPLAYED} bytes; a worker's record is at most 262144"
            )));
        }
        // A byte that is no text spoils its line, not the record.
        let text = String::from_utf8_lossy(&bytes);
        let replayed = replay(&text).map_err(|cause| failed(&cause))?;
        let mut lines = String::new();
        for told in &replayed.told {
            match self.output {
                Format::Json => {
                    lines.push_str(&serde_json::to_string(told).map_err(Failure::plain)?);
                    lines.push('\n');
                }
                Format::Table => {
                    let at = told.at.since(replayed.began);
                    let at = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
                    _ = writeln!(
                        lines,
                        "{:>11}  {:>3}  {}",
                        seconds(at),
                        told.run,
                        told.report
                    );
                }
            }
        }
        print(&lines)?;
        if replayed.unread > 0 {
            tell!(
                "{name}: {} could not be read (cut short, changed or of another version); what followed up to the next \
                 state is left out",
                match replayed.unread {
                    1 => "1 line".to_owned(),
                    lines => format!("{lines} lines"),
                }
            );
        }
        for difference in &replayed.differences {
            tell!("{name}: {difference}");
        }
        match replayed.differences.len() {
            0 => Ok(()),
            _ => Err(Failure::plain(
                "the machine reports other than the record says",
            )),
        }
    }
}
