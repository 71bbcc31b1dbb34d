//! The record of what happened to the replica, in its folder: what `portreeve why` and `portreeve replay` read.
//!
//! Two files of at most [`MOST`] bytes: the newer one grows, and takes the place of the older one when a run ends
//! beyond half of it. Each begins with the machine's state, so each can be played alone. The record is worth less
//! than the service: nothing waits for the disk, and what cannot be written leaves a gap that is told by the next
//! state.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use portreeve::supervision::record::{Entry, Recorder};
use portreeve::supervision::{Effect, Event, Machine, State};
use portreeve::time::{Monotonic, Now};
use portreeve_api::local::{LogStream, ReplicaFolder};

/// The most bytes of one file.
const MOST: u64 = 256 << 10;
/// Left for one turn: a state and the entries that follow it.
const ONE_TURN: u64 = 32 << 10;

/// Hands events to the machine and writes down what is worth it.
pub(crate) struct Journal {
    folder: ReplicaFolder,
    recorder: Recorder,
    /// When the replica began.
    began: Monotonic,
    entries: Vec<Entry>,
    /// The newer file and its length; `None` before the first write and after one that failed.
    file: Option<(File, u64)>,
}

impl Journal {
    pub(crate) fn new(folder: ReplicaFolder, began: Monotonic) -> Self {
        Self {
            folder,
            recorder: Recorder::default(),
            began,
            entries: Vec::new(),
            file: None,
        }
    }

    /// A turn begins: what follows is told of the machine as it is now.
    pub(crate) fn turn(&mut self, now: Now, machine: &Machine) {
        let full = self.file.as_ref().is_some_and(|(_, length)| {
            let between_runs = machine.state() == State::Backoff;
            *length > MOST - ONE_TURN || between_runs && *length > MOST / 2
        });
        if full {
            self.recorder.count_down(&mut self.entries);
            self.write();
            self.file = None;
            let newer = self.folder.log(LogStream::Events);
            // Without the older place the newer file is begun anew.
            if fs::rename(&newer, self.folder.log(LogStream::EventsBefore)).is_err() {
                _ = fs::remove_file(newer);
            }
        }
        if self.file.is_none() {
            self.entries.clear();
            let state = self.recorder.state(now, self.began, machine);
            self.entries.push(state);
        }
    }

    /// Hands an event over; `text` is what a probe said.
    pub(crate) fn handle(
        &mut self,
        machine: &mut Machine,
        now: Now,
        event: Event,
        text: Option<&str>,
        effects: &mut Vec<Effect>,
    ) {
        self.recorder
            .handle(machine, now.mono, event, text, effects, &mut self.entries);
    }

    /// Lets what is due happen.
    pub(crate) fn on_deadline(
        &mut self,
        machine: &mut Machine,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        self.recorder
            .on_deadline(machine, now.mono, effects, &mut self.entries);
    }

    /// Writes what the turn was worth, in one write; nothing if it was worth nothing.
    pub(crate) fn write(&mut self) {
        let state_only = self.file.is_none() && self.entries.len() <= 1;
        if self.entries.is_empty() || state_only {
            return;
        }
        let text: String = self.entries.drain(..).map(|entry| entry.line()).collect();
        if let Err(cause) = self.append(&text) {
            tracing::warn!("the record of events has a gap: {cause}");
            self.file = None;
        }
    }

    /// Ends the record with what was only counted.
    pub(crate) fn end(&mut self) {
        self.recorder.count_down(&mut self.entries);
        self.write();
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        let (file, length) = match &mut self.file {
            Some(open) => open,
            none => {
                let mut file = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .mode(0o600)
                    .open(self.folder.log(LogStream::Events))?;
                let length = file.metadata()?.len();
                if length > 0 {
                    // An earlier line may have been cut short; what begins here must not be lost with it.
                    file.write_all(b"\n")?;
                }
                none.insert((file, length))
            }
        };
        file.write_all(text.as_bytes())?;
        *length += text.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::identity::Run;
    use portreeve::profile::Profile;
    use portreeve::supervision::ExitStatus;
    use portreeve::supervision::record::replay;
    use portreeve::time::WallClock;

    fn at(ms: u64) -> Now {
        Now {
            mono: Monotonic::from_millis(ms),
            wall: WallClock::from_unix_millis(1_000_000 + ms),
        }
    }

    fn machine() -> Machine {
        let text = "name = \"web\"\ncommand = [\"web\"]\n[restart]\ngive_up = \"never\"";
        let profile = Profile::from_toml(text).unwrap().profile;
        Machine::new(profile.supervision, 1)
    }

    /// One crash and the start after it.
    fn crash(journal: &mut Journal, machine: &mut Machine, ms: &mut u64) {
        let mut effects = Vec::new();
        let run = machine.run();
        let status = ExitStatus::Code(1);
        let due = [
            Event::Spawned { run },
            Event::Exited { run, status },
            Event::GroupEmpty { run },
        ];
        for event in due {
            *ms += 1;
            journal.turn(at(*ms), machine);
            journal.handle(machine, at(*ms), event, None, &mut effects);
            journal.write();
        }
        *ms = machine.next_deadline().unwrap().as_millis();
        journal.turn(at(*ms), machine);
        journal.on_deadline(machine, at(*ms), &mut effects);
        journal.write();
    }

    fn begun(folder: &ReplicaFolder) -> (Journal, Machine, u64) {
        let mut journal = Journal::new(folder.clone(), at(5).mono);
        let mut machine = machine();
        journal.turn(at(5), &machine);
        let mut effects = Vec::new();
        journal.handle(&mut machine, at(5), Event::Start, None, &mut effects);
        journal.write();
        (journal, machine, 5)
    }

    #[test]
    fn the_record_stays_bounded_and_each_file_can_be_played_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = ReplicaFolder::at(place.path());
        let (mut journal, mut machine, mut ms) = begun(&folder);
        for _ in 0..2000 {
            crash(&mut journal, &mut machine, &mut ms);
        }
        for stream in [LogStream::Events, LogStream::EventsBefore] {
            let text = fs::read_to_string(folder.log(stream)).unwrap();
            assert!(text.len() as u64 <= MOST, "{stream:?}: {}", text.len());
            let replayed = replay(&text).unwrap();
            assert_eq!((replayed.differences.len(), replayed.unread), (0, 0));
            assert!(!replayed.told.is_empty());
        }
    }

    #[test]
    fn a_full_disk_costs_the_record_a_gap_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let folder = ReplicaFolder::at(place.path());
        let newer = folder.log(LogStream::Events);
        std::os::unix::fs::symlink("/dev/full", &newer).unwrap();
        let (mut journal, mut machine, mut ms) = begun(&folder);
        crash(&mut journal, &mut machine, &mut ms);
        assert_eq!(machine.run(), Run(2));
        fs::remove_file(&newer).unwrap();
        crash(&mut journal, &mut machine, &mut ms);
        let text = fs::read_to_string(&newer).unwrap();
        let replayed = replay(&text).unwrap();
        assert_eq!(replayed.differences, []);
        assert_eq!(replayed.told.len(), 2);
    }
}
