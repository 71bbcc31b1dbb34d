//! The record of what happened to the replica, in its folder: what `portreeve why` and `portreeve replay` read.
//!
//! Two files of at most [`MOST`] bytes: the newer one grows, and takes the place of the older one when a run ends
//! beyond half of it. Each begins with the machine's state, so each can be played alone. The record is worth less
//! than the service: nothing waits for the disk, and what cannot be written leaves a gap that is told by the next
//! state.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use portreeve::attendance::Attendance;
use portreeve::supervision::State;
use portreeve::time::Now;
use portreeve_api::local::{LogStream, ReplicaFolder};

/// The most bytes of one file.
const MOST: u64 = 256 << 10;
/// Left for one turn: a state and the entries that follow it.
const ONE_TURN: u64 = 32 << 10;

/// Writes down what happened to the replica, as far as it is worth it.
pub(crate) struct Journal {
    folder: ReplicaFolder,
    /// The newer file and its length; `None` before the first write and after one that failed.
    file: Option<(File, u64)>,
}

impl Journal {
    pub(crate) fn new(folder: ReplicaFolder) -> Self {
        Self { folder, file: None }
    }

    /// A turn begins: what follows is told of the machine as it is now.
    pub(crate) fn turn(&mut self, now: Now, attendance: &mut Attendance) {
        let full = self.file.as_ref().is_some_and(|(_, length)| {
            let between_runs = attendance.machine().state() == State::Backoff;
            *length > MOST - ONE_TURN || between_runs && *length > MOST / 2
        });
        if full {
            attendance.end_entries();
            self.write(attendance);
            self.file = None;
            let newer = self.folder.log(LogStream::Events);
            // Without the older place the newer file is begun anew.
            if fs::rename(&newer, self.folder.log(LogStream::EventsBefore)).is_err() {
                _ = fs::remove_file(newer);
            }
        }
        if self.file.is_none() {
            attendance.begin_entries(now);
        }
    }

    /// Writes what the turn was worth, in one write; nothing if it was worth nothing.
    pub(crate) fn write(&mut self, attendance: &mut Attendance) {
        let Some(entries) = attendance.entries() else {
            return;
        };
        let state_only = self.file.is_none() && entries.len() <= 1;
        if entries.is_empty() || state_only {
            return;
        }
        let text: String = entries.drain(..).map(|entry| entry.line()).collect();
        if let Err(cause) = self.append(&text) {
            tracing::warn!("the record of events has a gap: {cause}");
            self.file = None;
        }
    }

    /// Ends the record with what was only counted.
    pub(crate) fn end(&mut self, attendance: &mut Attendance) {
        attendance.end_entries();
        self.write(attendance);
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
    use portreeve::attendance::{
        Beginning, Contact, Found, Happened, MainProcess, Manner, ProcessEvent, Record, Standing,
        Stranger, Surroundings, Token,
    };
    use portreeve::identity::Run;
    use portreeve::profile::Profile;
    use portreeve::registry::Want;
    use portreeve::supervision::record::replay;
    use portreeve::supervision::{ExitStatus, Machine};
    use portreeve::time::{Monotonic, WallClock};
    use std::time::Duration;

    /// A host on which nothing is in the way.
    struct Empty;

    impl Surroundings for Empty {
        fn contact(&mut self) -> Option<Contact> {
            None
        }

        fn restart_token(&mut self, _: Monotonic, _: Run) -> Token {
            Token::After(Duration::ZERO)
        }

        fn stranger_after(&mut self, _: Run) -> Option<Stranger> {
            None
        }
    }

    fn at(ms: u64) -> Now {
        Now {
            mono: Monotonic::from_millis(ms),
            wall: WallClock::from_unix_millis(1_000_000 + ms),
        }
    }

    fn attendance() -> Attendance {
        let text = "name = \"web\"\ncommand = [\"web\"]\n[restart]\ngive_up = \"never\"";
        let profile = Profile::from_toml(text).unwrap().profile;
        let standing = Standing {
            user: (0, "root"),
            worker_uid: 0,
            assigned_in: "",
            boot_id: "",
            restart_no: 0,
            host_address: [127, 0, 0, 1].into(),
            port_addresses: std::collections::BTreeMap::new(),
        };
        let record = Record::new(Machine::new(profile.supervision, 1), standing);
        Attendance::new(at(5).mono, record, Manner::default())
    }

    /// One turn in which this became of a process; without it, what is due.
    fn turn(
        journal: &mut Journal,
        attendance: &mut Attendance,
        ms: u64,
        event: Option<ProcessEvent>,
    ) {
        journal.turn(at(ms), attendance);
        let mut happened = Happened::<()> {
            processes: event.into_iter().collect(),
            ..Happened::default()
        };
        attendance.turn(at(ms), &mut happened, &mut Empty, &mut Vec::new());
        journal.write(attendance);
    }

    /// One crash and the start after it.
    fn crash(journal: &mut Journal, attendance: &mut Attendance, ms: &mut u64) {
        let run = attendance.run();
        let process = MainProcess {
            pid: 1,
            start_ticks: 1,
            boot_id: String::new(),
        };
        let status = ExitStatus::Code(1);
        let due = [
            ProcessEvent::Spawned { run, process },
            ProcessEvent::Exited { run, status },
            ProcessEvent::GroupEmpty { run },
        ];
        for event in due {
            *ms += 1;
            turn(journal, attendance, *ms, Some(event));
        }
        *ms = attendance.machine().next_deadline().unwrap().as_millis();
        turn(journal, attendance, *ms, None);
    }

    fn begun(folder: &ReplicaFolder) -> (Journal, Attendance, u64) {
        let mut journal = Journal::new(folder.clone());
        let mut attendance = attendance();
        journal.turn(at(5), &mut attendance);
        let beginning = Beginning {
            unrecorded: 0,
            is_behind: false,
            found: Found::Nothing,
            want: Want::Run,
            restart_no: 0,
        };
        attendance.begin::<()>(at(5), beginning, &mut Empty, &mut Vec::new());
        journal.write(&mut attendance);
        (journal, attendance, 5)
    }

    #[test]
    fn the_record_stays_bounded_and_each_file_can_be_played_alone() {
        let place = tempfile::tempdir().unwrap();
        let folder = ReplicaFolder::at(place.path());
        let (mut journal, mut attendance, mut ms) = begun(&folder);
        for _ in 0..2000 {
            crash(&mut journal, &mut attendance, &mut ms);
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
        let (mut journal, mut attendance, mut ms) = begun(&folder);
        crash(&mut journal, &mut attendance, &mut ms);
        assert_eq!(attendance.run(), Run(2));
        fs::remove_file(&newer).unwrap();
        crash(&mut journal, &mut attendance, &mut ms);
        let text = fs::read_to_string(&newer).unwrap();
        let replayed = replay(&text).unwrap();
        assert_eq!(replayed.differences, []);
        assert_eq!(replayed.told.len(), 2);
    }
}
