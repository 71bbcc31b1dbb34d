//! `replay`: a record of events through the machine again.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use portreeve::supervision::record::replay;

use crate::exit::Failure;
use crate::output::{Format, print, tell};

use super::record::seconds;

/// The most that is replayed: both parts and more.
const MOST_REPLAYED: u64 = 4 << 20;

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
