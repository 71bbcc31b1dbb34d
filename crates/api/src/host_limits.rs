//! What all workers of one host share beyond their folders: how many probes by a command run at once, how fast services
//! are started again, and when the controller last heard of the host.
//!
//! The agent keeps one small page, 0600, and hands it to every worker as standard input, whatever user that runs
//! as; a new agent hands on the same page. A probe holds one of the page's bytes by a record lock, which the kernel
//! gives up when its process ends, however it ends. The bucket of tokens is one time in the page. Nothing in the
//! page is believed beyond its bounds, and where it cannot be used nothing stops: a worker then keeps the limits
//! for itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Stdin};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use portreeve::residency::Pace;
use portreeve::time::Monotonic;

pub use portreeve::attendance::Contact;

/// The most probes by a command that run at once on one host.
pub const MOST_COMMAND_PROBES: u32 = 64;

/// The shared page of one host.
#[derive(Debug)]
pub struct HostLimits(Place);

/// What workers noted in the page, each count since the page was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Probes that could not begin within their interval, for the limits of the host.
    pub late: u64,
    /// Probes that this host had no room for: no process, descriptor, memory or source port.
    pub shortages: u64,
    /// The error number of the last shortage.
    pub last_shortage: i32,
}

/// What a worker notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A probe did not begin within its interval.
    Late,
    /// The host refused what a probe needs, with this error number.
    Shortage(i32),
}

impl HostLimits {
    /// The page at `path`, for the agent: made if missing, made anew in place if it is no page.
    ///
    /// # Errors
    ///
    /// The system's. Workers then keep the limits each for itself.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        let page = Self(Place::File(file));
        if !page.is_page() {
            page.write(0, &MAGIC)?;
            page.write(DUE, &NOTHING_NOTED)?;
        }
        Ok(page)
    }

    /// The page that this process was started with as its standard input; `None` if that is anything else.
    #[must_use]
    pub fn inherited() -> Option<Self> {
        let page = Self(Place::Stdin(io::stdin()));
        let is_file = rustix::fs::fstat(&page.0).is_ok_and(|stat| {
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile
        });
        (is_file && page.is_page()).then_some(page)
    }

    /// Takes a free place among [`MOST_COMMAND_PROBES`], if there is one. `own`: the places that this very process
    /// holds, one bit each, since its own locks never hinder it. `chance` spreads the tries. Never waits.
    ///
    /// # Errors
    ///
    /// The page cannot be used.
    pub fn take_place(&self, own: u64, chance: u32) -> io::Result<Option<u32>> {
        for step in 0..MOST_COMMAND_PROBES {
            let place = chance.wrapping_add(step) % MOST_COMMAND_PROBES;
            if own & (1 << place) == 0 && self.lock(SLOTS + i64::from(place), 1)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Gives a place back.
    pub fn give_back(&self, place: u32) {
        self.unlock(SLOTS + i64::from(place), 1);
    }

    /// Lets `take` change the bucket; `None` while another process does. Never waits.
    ///
    /// # Errors
    ///
    /// The page cannot be used.
    pub fn pace<T>(&self, take: impl FnOnce(&mut Pace) -> T) -> io::Result<Option<T>> {
        self.exclusively(|| {
            let due = self.number(DUE)?;
            let mut pace = Pace::next_at(Monotonic::from_millis(due));
            let taken = take(&mut pace);
            self.write(DUE, &pace.next().as_millis().to_ne_bytes())?;
            Ok(taken)
        })
    }

    /// Counts what happened to a probe. One that meets another note at the same instant may be lost.
    pub fn note(&self, note: Note) {
        // A count that is not kept hurts nobody.
        _ = self.exclusively(|| {
            let at = match note {
                Note::Late => LATE,
                Note::Shortage(errno) => {
                    self.write(LAST_SHORTAGE, &errno.to_ne_bytes())?;
                    SHORTAGES
                }
            };
            self.write(at, &self.number(at)?.wrapping_add(1).to_ne_bytes())
        });
    }

    /// Notes when the controller last heard of this host.
    ///
    /// # Errors
    ///
    /// The page cannot be used.
    pub fn note_contact(&self, contact: Contact) -> io::Result<()> {
        let grace = u64::try_from(contact.grace.as_millis()).unwrap_or(u64::MAX);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&contact.at.as_millis().to_ne_bytes());
        bytes[8..].copy_from_slice(&grace.to_ne_bytes());
        self.write(CONTACT, &bytes)
    }

    /// When that was; `None` if no agent noted it, or what stands there cannot be.
    #[must_use]
    pub fn contact(&self) -> Option<Contact> {
        let bytes: [u8; 16] = self.bytes(CONTACT).ok()?;
        let number = |from: usize| {
            let part = bytes[from..from + 8].try_into();
            u64::from_ne_bytes(part.expect("a number has eight bytes"))
        };
        let contact = Contact {
            at: Monotonic::from_millis(number(0)),
            grace: Duration::from_millis(number(8)),
        };
        (!contact.grace.is_zero() && contact.grace <= Contact::LONGEST).then_some(contact)
    }

    /// What was noted.
    ///
    /// # Errors
    ///
    /// The page cannot be read.
    pub fn tallies(&self) -> io::Result<Tallies> {
        Ok(Tallies {
            late: self.number(LATE)?,
            shortages: self.number(SHORTAGES)?,
            last_shortage: i32::from_ne_bytes(self.bytes(LAST_SHORTAGE)?),
        })
    }

    fn is_page(&self) -> bool {
        self.bytes(0).is_ok_and(|found: [u8; 16]| found == MAGIC)
    }

    /// Alone on what the page holds beside the places.
    fn exclusively<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
        if !self.lock(DUE, SLOTS - DUE)? {
            return Ok(None);
        }
        let done = work();
        self.unlock(DUE, SLOTS - DUE);
        done.map(Some)
    }

    fn number(&self, at: i64) -> io::Result<u64> {
        Ok(u64::from_ne_bytes(self.bytes(at)?))
    }

    fn bytes<const N: usize>(&self, at: i64) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        let read = rustix::io::pread(&self.0, &mut bytes[..], at.cast_unsigned())?;
        // What a short page lacks reads as nothing noted.
        bytes[read..].fill(0);
        Ok(bytes)
    }

    fn write(&self, at: i64, bytes: &[u8]) -> io::Result<()> {
        rustix::io::pwrite(&self.0, bytes, at.cast_unsigned())?;
        Ok(())
    }

    /// Whether the lock could be had at once.
    fn lock(&self, from: i64, length: i64) -> io::Result<bool> {
        match self.set_lock(libc::F_WRLCK, from, length) {
            Ok(()) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(cause) => Err(cause.into()),
        }
    }

    fn unlock(&self, from: i64, length: i64) {
        // The end of the process unlocks at the latest.
        _ = self.set_lock(libc::F_UNLCK, from, length);
    }

    fn set_lock(&self, kind: libc::c_int, from: i64, length: i64) -> Result<(), Errno> {
        let lock = libc::flock {
            l_type: i16::try_from(kind).unwrap_or_default(),
            l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
            l_start: from,
            l_len: length,
            l_pid: 0,
        };
        fcntl(&self.0, FcntlArg::F_SETLK(&lock)).map(drop)
    }
}

impl AsFd for HostLimits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[derive(Debug)]
enum Place {
    File(File),
    /// Never closed, so no lock of this process is lost by a close.
    Stdin(Stdin),
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(file) => file.as_fd(),
            Self::Stdin(stdin) => stdin.as_fd(),
        }
    }
}

/// What the page begins with.
const MAGIC: [u8; 16] = *b"portreeve host 1";
/// What follows until the first of [`SLOTS`].
const NOTHING_NOTED: [u8; 48] = [0; 48];
/// When the next token is due, in ms of CLOCK_MONOTONIC.
const DUE: i64 = 16;
const LATE: i64 = 24;
const SHORTAGES: i64 = 32;
const LAST_SHORTAGE: i64 = 40;
/// The last contact and the grace, both in ms.
const CONTACT: i64 = 48;
/// The first of the bytes that stand for probes in flight.
const SLOTS: i64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    const PAGE: &str = "PORTREEVE_TEST_PAGE";
    const RANGE: &str = "PORTREEVE_TEST_RANGE";

    /// Another process that holds a range of the page, played by this very test program; ended when dropped.
    struct Holder(Child);

    impl Holder {
        fn of(page: &Path, from: i64, length: i64) -> Self {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "host_limits::tests::a_played_holder",
                    "--nocapture",
                ])
                .env(PAGE, page)
                .env(RANGE, format!("{from} {length}"))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let out = BufReader::new(child.stdout.take().unwrap());
            let said = out
                .lines()
                .map_while(Result::ok)
                .find(|line| line.contains("holds it"));
            assert!(said.is_some(), "it never held it");
            Self(child)
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    /// Passes at once unless another test started it.
    #[test]
    fn a_played_holder() {
        let Some(path) = std::env::var_os(PAGE) else {
            return;
        };
        let range = std::env::var(RANGE).unwrap();
        let (from, length) = range.split_once(' ').unwrap();
        let page = HostLimits::open(path.as_ref()).unwrap();
        let held = page.lock(from.parse().unwrap(), length.parse().unwrap());
        println!(
            "{}",
            if held.unwrap() {
                "holds it"
            } else {
                "has it not"
            }
        );
        loop {
            std::thread::park();
        }
    }

    fn page() -> (tempfile::TempDir, std::path::PathBuf, HostLimits) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits");
        let page = HostLimits::open(&path).unwrap();
        (folder, path, page)
    }

    #[test]
    fn places_of_another_process_are_passed_over_and_freed_by_its_death() {
        let (_folder, path, page) = page();
        let other = Holder::of(&path, SLOTS, 63);
        assert_eq!(page.take_place(0, 7).unwrap(), Some(63));
        assert_eq!(page.take_place(1 << 63, 7).unwrap(), None);
        drop(other);
        assert_eq!(page.take_place(1 << 63, 7).unwrap(), Some(7));
        page.give_back(7);
        assert_eq!(page.take_place(0, 7).unwrap(), Some(7));
    }

    #[test]
    fn a_stopped_process_in_the_middle_of_the_bucket_holds_nobody_up() {
        let (_folder, path, page) = page();
        assert_eq!(page.pace(|_| ()).unwrap(), Some(()));
        let other = Holder::of(&path, DUE, SLOTS - DUE);
        assert_eq!(page.pace(|_| ()).unwrap(), None);
        page.note(Note::Late);
        drop(other);
        assert_eq!(page.pace(|_| ()).unwrap(), Some(()));
        assert_eq!(page.tallies().unwrap(), Tallies::default());
    }

    #[test]
    fn what_is_noted_outlives_the_agent_and_a_page_that_is_none_is_made_anew() {
        let (_folder, path, page) = page();
        page.note(Note::Late);
        page.note(Note::Shortage(11));
        page.note(Note::Shortage(24));
        let noted = Tallies {
            late: 1,
            shortages: 2,
            last_shortage: 24,
        };
        assert_eq!(page.tallies().unwrap(), noted);
        drop(page);
        let page = HostLimits::open(&path).unwrap();
        assert_eq!(page.tallies().unwrap(), noted);
        let now = Monotonic::from_millis(5);
        for damage in [&b""[..], b"x", &[0xFF; 4096]] {
            std::fs::write(&path, damage).unwrap();
            // A page in use is only as good as what it holds.
            assert!(page.pace(|pace| pace.restart(now)).unwrap().is_some());
            std::fs::write(&path, damage).unwrap();
            let page = HostLimits::open(&path).unwrap();
            assert_eq!(page.tallies().unwrap(), Tallies::default());
        }
    }

    #[test]
    fn the_last_contact_is_what_the_agent_noted_and_damage_is_none() {
        let (_folder, path, page) = page();
        assert_eq!(page.contact(), None);
        let contact = Contact {
            at: Monotonic::from_millis(7_000),
            grace: Duration::from_secs(90),
        };
        page.note_contact(contact).unwrap();
        page.note(Note::Late);
        let worker = HostLimits::open(&path).unwrap();
        assert_eq!(worker.contact(), Some(contact));
        for damage in [&b""[..], &[0xFF; 4096]] {
            std::fs::write(&path, damage).unwrap();
            assert_eq!(page.contact(), None);
        }
    }

    #[test]
    fn the_pace_is_one_for_all_who_have_the_page() {
        let (_folder, path, page) = page();
        let now = Monotonic::from_millis(1_000_000);
        let restart = |page: &HostLimits| {
            page.pace(|pace| pace.restart(now))
                .unwrap()
                .unwrap()
                .is_zero()
        };
        while restart(&page) {}
        let other = HostLimits::open(&path).unwrap();
        assert!(!restart(&other));
        let taken = u64::from(Pace::BURST + 2);
        assert_eq!(other.number(DUE).unwrap(), 1_000_000 + taken * 50);
    }
}
