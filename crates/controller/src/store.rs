//! The truth on disk: one redb file with a checksum on every page and one writer.
//!
//! Invariant: what [`RedbStore::commit`] accepted survives a power loss, what it refused leaves no trace,
//! and a file that cannot be read whole is named and never written to.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::tally::Tally;
use portreeve::registry::{Batch, Store, StoreError, Stored, Write, tables};
use redb::backends::FileBackend;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

/// The embedded store: `portreeve.redb` in the data directory.
pub struct RedbStore {
    place: String,
    open: Box<dyn Fn() -> Result<Database, redb::Error> + Send>,
    /// `None` after a refused commit: redb must be opened anew after an I/O error.
    database: Option<Database>,
    doubt: Option<Doubt>,
    /// `None`: a store that is not a file of ours.
    tally: Option<Tally>,
}

/// A commit whose outcome the system did not tell; settled before anything else is written.
struct Doubt {
    commits: u64,
    undo: Vec<Write>,
}

impl RedbStore {
    /// The file's name in the data directory.
    pub const FILE: &'static str = "portreeve.redb";
    /// The stored format this version reads and writes.
    pub const FORMAT: u32 = 1;
    /// The most memory that redb keeps pages in, in bytes.
    const CACHE: usize = 32 << 20;

    /// Opens the store in `folder`, making it if there is none. Every page is checked once.
    ///
    /// # Errors
    ///
    /// [`StoreError`] names the file and what is wrong with it, which is then left as it was.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(Self::FILE);
        let place = path.display().to_string();
        let exists = path.try_exists();
        if !exists.map_err(|cause| io_error(&place, &cause))? {
            Self::make(folder, &path, &place)?;
        }
        // An emptied file is a truncated one: `create` would begin anew in it.
        let mut store = Self::with(place, move || Ok(builder().open(&path)?))?;
        let tally = Tally::of(folder);
        store.refuse_older(&tally)?;
        store.tally = Some(tally);
        Ok(store)
    }

    /// How many commits it holds.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it cannot be read.
    pub(crate) fn commits(&mut self) -> Result<u64, StoreError> {
        let place = self.place.clone();
        let (_, commits) = read_format(self.database()?).map_err(|cause| refused(&place, cause))?;
        Ok(commits)
    }

    /// Refuses a store that lacks commits which were accepted: damaged at its end, or an older copy.
    fn refuse_older(&mut self, tally: &Tally) -> Result<(), StoreError> {
        let commits = self.commits()?;
        match tally.noted() {
            Some(noted) if noted > commits => Err(StoreError::Damaged {
                place: self.place.clone(),
                reason: format!(
                    "it ends with commit {commits}, but {noted} were accepted (remove {} to go on without the others)",
                    tally.path().display()
                ),
            }),
            _ => Ok(()),
        }
    }

    fn with(
        place: String,
        open: impl Fn() -> Result<Database, redb::Error> + Send + 'static,
    ) -> Result<Self, StoreError> {
        let mut store = Self {
            place,
            open: Box::new(open),
            database: None,
            doubt: None,
            tally: None,
        };
        store.database()?;
        Ok(store)
    }

    /// Makes the store under another name first, so that a crash leaves none or a whole one.
    fn make(folder: &Path, path: &Path, place: &str) -> Result<(), StoreError> {
        let io = |cause: std::io::Error| io_error(place, &cause);
        let begun = folder.join(format!("{}.new", Self::FILE));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&begun)
            .map_err(io)?;
        let made = || -> Result<(), redb::Error> {
            let database = builder().create_with_backend(FileBackend::new(file)?)?;
            write_format(&database)
        };
        made().map_err(|cause| refused(place, cause))?;
        std::fs::rename(&begun, path).map_err(io)?;
        let folder = File::open(folder).map_err(io)?;
        folder.sync_all().map_err(io)
    }

    /// The open database; opens it if a refused commit closed it, and settles what that left in doubt.
    fn database(&mut self) -> Result<&Database, StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.reopened()?,
        };
        Ok(self.database.insert(database))
    }

    fn reopened(&mut self) -> Result<Database, StoreError> {
        let failed = |cause| refused(&self.place, cause);
        let database = (self.open)().map_err(failed)?;
        let (format, commits) = read_format(&database).map_err(failed)?;
        match format {
            Some(Self::FORMAT) => {}
            Some(found) if found > Self::FORMAT => {
                return Err(StoreError::Newer {
                    place: self.place.clone(),
                    found,
                    known: Self::FORMAT,
                });
            }
            other => {
                return Err(StoreError::Damaged {
                    place: self.place.clone(),
                    reason: match other {
                        Some(found) => format!("it says format {found}, which never was"),
                        None => "it is a database, but not of portreeve".to_owned(),
                    },
                });
            }
        }
        if let Some(doubt) = &self.doubt
            && doubt.commits == commits
        {
            // It was refused to its askers, so it must not stand.
            write(&database, doubt.undo.iter().rev())
                .and_then(|written| Ok(written.transaction.commit()?))
                .map_err(failed)?;
        }
        self.doubt = None;
        Ok(database)
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Stored, StoreError> {
        let place = self.place.clone();
        let database = self.database()?;
        read_all(database).map_err(|cause| refused(&place, cause))
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let place = self.place.clone();
        let database = self.database()?;
        let cause = match write(database, batch.writes.iter()) {
            Err(cause) => cause,
            Ok(written) => match written.transaction.commit() {
                Ok(()) => {
                    if let Some(tally) = &self.tally {
                        tally.note(written.commits);
                    }
                    return Ok(());
                }
                Err(cause) => {
                    self.doubt = Some(Doubt {
                        commits: written.commits,
                        undo: written.undo,
                    });
                    cause.into()
                }
            },
        };
        self.database = None;
        if self.doubt.is_some()
            && let Err(again) = self.database()
        {
            tracing::warn!(%again, "the store stays closed until the next write");
        }
        Err(refused(&place, cause))
    }
}

/// Our own two numbers: the format, and how many commits there were.
const HEAD: TableDefinition<'_, &str, u64> = TableDefinition::new("portreeve");
const FORMAT: &str = "format";
const COMMITS: &str = "commits";

fn records(table: &str) -> TableDefinition<'_, &'static str, &'static [u8]> {
    TableDefinition::new(table)
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    // A plain open trusts the file and may panic on a damaged one.
    builder.set_check_integrity_on_open(true);
    builder.set_cache_size(RedbStore::CACHE);
    builder
}

struct Written {
    transaction: redb::WriteTransaction,
    commits: u64,
    /// What brings the records back, to be applied in reverse.
    undo: Vec<Write>,
}

fn write<'a>(
    database: &Database,
    writes: impl Iterator<Item = &'a Write>,
) -> Result<Written, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let mut undo = Vec::new();
    for write in writes {
        let mut table = transaction.open_table(records(write.table))?;
        let key = write.key.as_str();
        let former = match &write.value {
            Some(value) => table.insert(key, value.as_slice())?,
            None => table.remove(key)?,
        };
        undo.push(Write {
            table: write.table,
            key: write.key.clone(),
            value: former.map(|record| record.value().to_vec()),
        });
    }
    let commits = {
        let mut head = transaction.open_table(HEAD)?;
        let commits = head.get(COMMITS)?.map_or(0, |count| count.value()) + 1;
        head.insert(COMMITS, commits)?;
        commits
    };
    Ok(Written {
        transaction,
        commits,
        undo,
    })
}

fn write_format(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction
        .open_table(HEAD)?
        .insert(FORMAT, u64::from(RedbStore::FORMAT))?;
    for name in tables::ALL {
        transaction.open_table(records(name))?;
    }
    Ok(transaction.commit()?)
}

fn read_format(database: &Database) -> Result<(Option<u32>, u64), redb::Error> {
    let transaction = database.begin_read()?;
    let head = match transaction.open_table(HEAD) {
        Ok(head) => head,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok((None, 0)),
        Err(cause) => return Err(cause.into()),
    };
    let number = |name| -> Result<Option<u64>, redb::Error> {
        Ok(head.get(name)?.map(|number| number.value()))
    };
    let format = number(FORMAT)?.map(|format| u32::try_from(format).unwrap_or(u32::MAX));
    Ok((format, number(COMMITS)?.unwrap_or(0)))
}

fn read_all(database: &Database) -> Result<Stored, redb::Error> {
    let transaction = database.begin_read()?;
    let mut stored = Stored::default();
    for name in tables::ALL {
        let table = match transaction.open_table(records(name)) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => continue,
            Err(cause) => return Err(cause.into()),
        };
        let kept = stored.tables.entry(name.to_owned()).or_default();
        for record in table.iter()? {
            let (key, value) = record?;
            kept.insert(key.value().to_owned(), value.value().to_vec());
        }
    }
    Ok(stored)
}

fn io_error(place: &str, cause: &std::io::Error) -> StoreError {
    let place = place.to_owned();
    match cause.kind() {
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => StoreError::Damaged {
            place,
            reason: cause.to_string(),
        },
        _ => StoreError::Io {
            place,
            reason: cause.to_string(),
        },
    }
}

fn refused(place: &str, cause: redb::Error) -> StoreError {
    let damaged = |reason: String| StoreError::Damaged {
        place: place.to_owned(),
        reason,
    };
    match cause {
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => StoreError::InUse {
            place: place.to_owned(),
        },
        redb::Error::Corrupted(reason) => damaged(reason),
        redb::Error::RepairAborted | redb::Error::UpgradeRequired(_) => damaged(cause.to_string()),
        redb::Error::Io(cause) => io_error(place, &cause),
        other => StoreError::Io {
            place: place.to_owned(),
            reason: other.to_string(),
        },
    }
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
