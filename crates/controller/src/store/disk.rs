//! A disk for tests: it fails as told, and forgets at a power loss what was not synced.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, StorageBackend};

use crate::tally::Noted;

use super::{Medium, RedbStore, builder, write_format};
use portreeve::registry::StoreError;

/// Copies are the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<Platter>>);

#[derive(Debug, Default)]
struct Platter {
    /// What is read back while the machine runs.
    cached: Vec<u8>,
    /// What a power loss leaves for sure.
    durable: Vec<u8>,
    /// What came since the last sync, in order.
    unsynced: Vec<Change>,
    /// Reads aside.
    operations: u64,
    faults: Faults,
    older: Option<(u32, Vec<u8>)>,
    noted: Option<Noted>,
    /// What a power loss leaves of it for sure.
    durably_noted: Option<Noted>,
}

#[derive(Clone, Debug)]
enum Change {
    Len(usize),
    Write(usize, Vec<u8>),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Writes and syncs find no room.
    pub(super) full: bool,
    /// Writes are refused.
    pub(super) writes: bool,
    /// Writes end in the middle.
    pub(super) short: bool,
    /// Syncs are refused, and what they were for is taken for written all the same.
    pub(super) syncs: bool,
    /// From this operation on nothing is taken any more: the process is dead.
    pub(super) dies_at: Option<u64>,
}

impl Disk {
    /// A power loss keeps or loses each of these on its own.
    const SECTOR: usize = 512;

    pub(super) fn holding(bytes: Vec<u8>) -> Self {
        let platter = Platter {
            cached: bytes.clone(),
            durable: bytes,
            ..Platter::default()
        };
        Self(Arc::new(Mutex::new(platter)))
    }

    pub(super) fn store(&self) -> Result<RedbStore, StoreError> {
        RedbStore::on("disk".into(), Box::new(self.clone()))
    }

    pub(super) fn fails(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    pub(super) fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// What the machine reads back.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().cached.clone()
    }

    /// The copy that was left of an older format.
    pub(super) fn older(&self) -> Option<(u32, Vec<u8>)> {
        self.0.lock().older.clone()
    }

    /// The power goes: of what was not synced, `survives` says which sectors are there, in whatever order they came.
    pub(super) fn lose_power(&self, mut survives: impl FnMut() -> bool) {
        let mut platter = self.0.lock();
        let mut bytes = std::mem::take(&mut platter.durable);
        let mut grows = true;
        for change in std::mem::take(&mut platter.unsynced) {
            match change {
                // The length is the file system's own record: in order, or not at all.
                Change::Len(len) => {
                    grows = grows && survives();
                    if grows {
                        bytes.resize(len, 0);
                    }
                }
                Change::Write(at, data) => {
                    for (n, sector) in data.chunks(Self::SECTOR).enumerate() {
                        let from = at + n * Self::SECTOR;
                        if survives()
                            && let Some(there) = bytes.get_mut(from..from + sector.len())
                        {
                            there.copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        platter.cached.clone_from(&bytes);
        platter.durable = bytes;
        if survives() {
            platter.durably_noted = platter.noted;
        }
        platter.noted = platter.durably_noted;
        platter.faults = Faults::default();
    }
}

impl Platter {
    fn operation(&mut self) -> io::Result<()> {
        self.operations += 1;
        let dies_at = self.faults.dies_at;
        if dies_at.is_some_and(|at| self.operations >= at) {
            return Err(io::Error::other("dead"));
        }
        if self.faults.full {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.cached, &change);
        self.unsynced.push(change);
    }

    fn write(&mut self, at: usize, data: &[u8]) -> io::Result<()> {
        self.operation()?;
        let Faults { writes, short, .. } = self.faults;
        if writes || short {
            let taken = if short { data.len() / 2 } else { 0 };
            self.change(Change::Write(at, data[..taken].to_vec()));
            return Err(io::Error::other("the disk refuses to write"));
        }
        self.change(Change::Write(at, data.to_vec()));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.operation()?;
        if self.faults.syncs {
            // As Linux does: pages whose writing failed are clean, and read back until the power goes.
            let lengths = |change: &Change| matches!(change, Change::Len(_));
            self.unsynced.retain(lengths);
            return Err(io::Error::other("the disk refuses to sync"));
        }
        for change in std::mem::take(&mut self.unsynced) {
            apply(&mut self.durable, &change);
        }
        Ok(())
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Len(len) => bytes.resize(*len, 0),
        Change::Write(at, data) => bytes[*at..*at + data.len()].copy_from_slice(data),
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).expect("a test's disk is small")
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.0.lock();
        let from = place(offset);
        let piece = platter.cached.get(from..from + out.len());
        out.copy_from_slice(piece.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platter = self.0.lock();
        platter.operation()?;
        platter.change(Change::Len(place(len)));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.lock().sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.lock().write(place(offset), data)
    }
}

impl Medium for Disk {
    fn open(&self) -> Result<Database, redb::Error> {
        let fresh = self.0.lock().cached.is_empty();
        let database = builder().create_with_backend(self.clone())?;
        if fresh {
            let transaction = database.begin_write()?;
            write_format(&transaction, RedbStore::FORMAT)?;
            transaction.commit()?;
        }
        Ok(database)
    }

    fn keep_older(&self, format: u32) -> io::Result<()> {
        let mut platter = self.0.lock();
        platter.operation()?;
        platter.older = Some((format, platter.cached.clone()));
        Ok(())
    }

    fn rewrite(&self) -> io::Result<()> {
        let mut platter = self.0.lock();
        let all = platter.cached.clone();
        platter.write(0, &all)?;
        platter.sync()
    }

    fn noted(&self) -> Option<Noted> {
        self.0.lock().noted
    }

    fn note(&self, noted: Noted) {
        let mut platter = self.0.lock();
        let dies_at = platter.faults.dies_at;
        if dies_at.is_none_or(|at| platter.operations < at) {
            platter.noted = Some(noted);
        }
    }
}
