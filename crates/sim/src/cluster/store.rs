//! The controller's store on virtual time: what is kept outlives every process, a commit takes its time, and may be
//! refused, or be the last thing that a process began.

use portreeve::registry::{Batch, MemoryStore, Store, StoreError, Stored};
use portreeve::time::Monotonic;

use super::chance::Chance;
use super::spec::DiskSpec;

/// The store, and what it does now.
#[derive(Debug)]
pub(crate) struct VirtualStore {
    kept: MemoryStore,
    /// A backup.
    aside: Option<MemoryStore>,
    spec: DiskSpec,
    is_full: bool,
    /// The process that begins the next commit dies before it hears of it; whether that is written.
    dies: Option<bool>,
    at_work: Option<AtWork>,
    chance: Chance,
}

/// A commit that is begun.
#[derive(Debug)]
struct AtWork {
    batch: Batch,
    done: Monotonic,
    dies: Option<bool>,
}

/// How a commit ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The process hears of it.
    Told {
        /// What was asked to be written.
        batch: Batch,
        result: Result<(), StoreError>,
    },
    /// The process is dead.
    Died { written: bool },
}

impl VirtualStore {
    pub(crate) fn new(spec: DiskSpec, chance: Chance) -> Self {
        Self {
            kept: MemoryStore::default(),
            aside: None,
            spec,
            is_full: false,
            dies: None,
            at_work: None,
            chance,
        }
    }

    /// Everything that is kept. Cost: a copy of it.
    pub(crate) fn load(&mut self) -> Result<Stored, StoreError> {
        self.kept.load()
    }

    /// Everything that is kept, to be looked at.
    pub(crate) const fn kept(&self) -> &Stored {
        self.kept.stored()
    }

    /// How commits go that begin from now on.
    pub(crate) fn become_like(&mut self, spec: DiskSpec) {
        self.spec = spec;
    }

    /// From now on whatever ends is refused, or not any more.
    pub(crate) const fn fill(&mut self, full: bool) {
        self.is_full = full;
    }

    /// Nothing is refused any more, and nobody dies; it stays as slow as it is.
    pub(crate) const fn heal(&mut self) {
        self.spec.refusal = 0;
        self.is_full = false;
        self.dies = None;
        if let Some(work) = &mut self.at_work {
            work.dies = None;
        }
    }

    /// Whoever begins the next commit dies in it.
    pub(crate) const fn kill_in_commit(&mut self, written: bool) {
        self.dies = Some(written);
    }

    /// Begins to write. One at a time.
    pub(crate) fn begin(&mut self, now: Monotonic, batch: Batch) {
        assert!(self.at_work.is_none(), "one batch is written at a time");
        self.at_work = Some(AtWork {
            batch,
            done: now + self.chance.span(&self.spec.commit),
            dies: self.dies.take(),
        });
    }

    /// When what is begun ends.
    pub(crate) fn next(&self) -> Option<Monotonic> {
        self.at_work.as_ref().map(|work| work.done)
    }

    /// What became of what ends at `now`.
    pub(crate) fn end(&mut self, now: Monotonic) -> Option<Ended> {
        let work = self.at_work.take_if(|work| work.done <= now)?;
        if let Some(written) = work.dies {
            let written = written && self.write(&work.batch).is_ok();
            return Some(Ended::Died { written });
        }
        Some(Ended::Told {
            result: self.write(&work.batch),
            batch: work.batch,
        })
    }

    /// The process is gone: whether what it began is written, nobody knows before the next start.
    pub(crate) fn abandon(&mut self) {
        if let Some(work) = self.at_work.take()
            && work
                .dies
                .unwrap_or_else(|| self.chance.hits(Chance::WHOLE / 2))
        {
            // Refused or not, nobody hears of it.
            let _ = self.write(&work.batch);
        }
    }

    /// Puts a copy aside.
    pub(crate) fn back_up(&mut self) {
        self.aside = Some(self.kept.clone());
    }

    /// The copy takes the place of everything; false: there is none.
    pub(crate) fn restore(&mut self) -> bool {
        let copy = self.aside.clone();
        let is_there = copy.is_some();
        if let Some(copy) = copy {
            self.kept = copy;
        }
        is_there
    }

    fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let reason = if self.is_full {
            "no space left on device"
        } else if self.chance.hits(self.spec.refusal) {
            "input/output error"
        } else {
            return self.kept.commit(batch);
        };
        Err(StoreError::Io {
            place: "/var/lib/portreeve/truth.redb".to_owned(),
            reason: reason.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portreeve::registry::{BatchNumber, Write, tables};

    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    fn store(commit_ms: u64) -> VirtualStore {
        let commit = Duration::from_millis(commit_ms);
        let spec = DiskSpec {
            commit: commit..commit,
            refusal: 0,
        };
        VirtualStore::new(spec, Chance::of(1))
    }

    fn batch(number: u64) -> Batch {
        Batch {
            number: BatchNumber(number),
            writes: vec![Write {
                table: tables::META,
                key: format!("key {number}"),
                value: Some(vec![1]),
            }],
        }
    }

    fn is_kept(store: &mut VirtualStore, number: u64) -> bool {
        let stored = store.load().unwrap();
        let meta = stored.tables.get(tables::META);
        meta.is_some_and(|meta| meta.contains_key(&format!("key {number}")))
    }

    #[test]
    fn a_commit_takes_its_time_and_is_kept_when_it_ends() {
        let mut store = store(5);
        store.begin(at(1), batch(1));
        assert_eq!(store.next(), Some(at(6)));
        assert!(store.end(at(5)).is_none());
        assert!(!is_kept(&mut store, 1));
        assert!(matches!(
            store.end(at(6)),
            Some(Ended::Told { result: Ok(()), .. })
        ));
        assert!(is_kept(&mut store, 1));
        assert_eq!(store.next(), None);
    }

    #[test]
    fn a_full_disk_refuses_and_keeps_nothing_until_it_is_not_full_any_more() {
        let mut store = store(0);
        store.fill(true);
        store.begin(at(1), batch(1));
        let Some(Ended::Told { result, .. }) = store.end(at(1)) else {
            panic!("the process lives");
        };
        assert!(result.unwrap_err().to_string().contains("no space left"));
        assert!(!is_kept(&mut store, 1));
        store.heal();
        store.begin(at(2), batch(2));
        store.end(at(2)).unwrap();
        assert!(is_kept(&mut store, 2));
    }

    #[test]
    fn a_process_that_dies_in_a_commit_hears_nothing_whether_it_is_written_or_not() {
        for written in [true, false] {
            let mut store = store(3);
            store.kill_in_commit(written);
            store.begin(at(1), batch(1));
            assert!(matches!(store.end(at(4)), Some(Ended::Died { .. })));
            assert_eq!(is_kept(&mut store, 1), written);
            store.begin(at(5), batch(2));
            store.abandon();
            assert_eq!(store.next(), None);
        }
    }

    #[test]
    fn who_would_die_in_a_commit_that_is_begun_does_not_once_everything_is_right_again() {
        let mut store = store(3);
        store.kill_in_commit(false);
        store.begin(at(1), batch(1));
        store.heal();
        assert!(matches!(store.end(at(4)), Some(Ended::Told { .. })));
        assert!(is_kept(&mut store, 1));
    }

    #[test]
    fn a_backup_brings_back_what_was_there_and_nothing_else() {
        let mut store = store(0);
        assert!(!store.restore());
        store.begin(at(1), batch(1));
        store.end(at(1)).unwrap();
        store.back_up();
        store.begin(at(2), batch(2));
        store.end(at(2)).unwrap();
        assert!(store.restore());
        assert!(is_kept(&mut store, 1));
        assert!(!is_kept(&mut store, 2));
    }
}
