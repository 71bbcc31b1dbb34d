//! The truth on disk: one redb file with a checksum on every page and one writer.
//!
//! Invariant: what [`RedbStore::commit`] accepted survives a power loss, what it refused leaves no trace,
//! and a file that cannot be read whole is named and never written to.

mod migration;
mod place;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::tally::{Noted, Tally};
use place::Place;
use portreeve::registry::{Batch, Store, StoreError, Stored, Write, tables};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

/// The embedded store: `portreeve.redb` in the data directory.
pub struct RedbStore {
    place: String,
    medium: Box<dyn Medium>,
    /// `None` after a refused commit: redb must be opened anew after an I/O error.
    database: Option<Database>,
    doubt: Option<Doubt>,
}

/// A commit whose outcome the system did not tell; settled before anything else is written.
struct Doubt {
    commits: u64,
    undo: Vec<Write>,
}

/// A database that was found whole.
struct Opened {
    database: Database,
    format: u32,
    commits: u64,
    /// Whether the last process left a commit whose outcome it did not know.
    doubt: bool,
}

/// What the database lies on.
pub(crate) trait Medium: Send {
    /// Opens the database, and checks every page of it.
    fn open(&self) -> Result<Database, redb::Error>;

    /// Leaves a copy of the database, which is closed, as the one of an older format.
    fn keep_older(&self, format: u32) -> std::io::Result<()>;

    /// Writes every byte of the database, which is closed, to where it is.
    ///
    /// After a sync that failed, the system may hold pages that it takes for written and that are not: they are read
    /// back, also by a check, until the power goes. Only what is written anew and synced is sure to be there.
    fn rewrite(&self) -> std::io::Result<()>;

    /// What was noted last, if anything was.
    fn noted(&self) -> Option<Noted>;

    /// Notes it, where a process that dies leaves it to the next one.
    fn note(&self, noted: Noted);
}

impl RedbStore {
    /// The file's name in the data directory.
    pub const FILE: &'static str = "portreeve.redb";
    /// The stored format this version reads and writes.
    pub const FORMAT: u32 = 2;
    /// The most memory that redb keeps pages in, in bytes.
    const CACHE: usize = 32 << 20;

    /// Opens the store in `folder`, making it if there is none. Every page is checked once. One of an older format
    /// becomes one of [`RedbStore::FORMAT`]; as it was, it stays beside it as `portreeve.redb.format-N`.
    ///
    /// # Errors
    ///
    /// [`StoreError`] names the file and what is wrong with it, which is then left as it was.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let file = Place::of(folder);
        let place = file.path().display().to_string();
        if !file.exists().map_err(|cause| io_error(&place, &cause))? {
            file.make().map_err(|cause| refused(&place, cause))?;
        }
        // An emptied file is a truncated one: `create` would begin anew in it.
        Self::on(place, Box::new(file))
    }

    /// What the store in `folder` holds, and of which format it is. It stays of that one, so that the version which
    /// made it takes it still.
    pub(crate) fn read(folder: &Path) -> Result<(u32, Stored), StoreError> {
        let file = Place::of(folder);
        let place = file.path().display().to_string();
        let store = Self::closed(place, Box::new(file));
        let opened = store.checked()?;
        let stored = read_all(&opened.database).map_err(|cause| refused(&store.place, cause))?;
        Ok((opened.format, stored))
    }

    /// Makes a store of this format that holds this, beside the one of `folder`, and says where: to be moved into its
    /// place.
    pub(crate) fn restored(
        folder: &Path,
        format: u32,
        stored: &Stored,
    ) -> Result<PathBuf, StoreError> {
        let file = Place::of(folder);
        let place = file.path().display().to_string();
        file.make_holding("restored", format, stored)
            .map_err(|cause| refused(&place, cause))
    }

    fn on(place: String, medium: Box<dyn Medium>) -> Result<Self, StoreError> {
        let mut store = Self::closed(place, medium);
        store.database()?;
        Ok(store)
    }

    fn closed(place: String, medium: Box<dyn Medium>) -> Self {
        Self {
            place,
            medium,
            database: None,
            doubt: None,
        }
    }

    /// Refuses a store that lacks commits which were accepted: damaged at its end, or an older copy.
    fn refuse_older(&self, noted: Option<Noted>, commits: u64) -> Result<(), StoreError> {
        match noted {
            Some(noted) if noted.commits > commits => Err(StoreError::Damaged {
                place: self.place.clone(),
                reason: format!(
                    "it ends with commit {commits}, but {} were accepted (remove {} beside it to go on without the others)",
                    noted.commits,
                    Tally::FILE
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The open database; opens it if a refused commit closed it, and settles what that left in doubt.
    fn database(&mut self) -> Result<&Database, StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.reopened()?,
        };
        Ok(self.database.insert(database))
    }

    /// The database as it lies there, found whole.
    fn checked(&self) -> Result<Opened, StoreError> {
        let failed = |cause| refused(&self.place, cause);
        let noted = self.medium.noted();
        let doubt = noted.is_some_and(|noted| noted.doubt);
        if doubt || self.doubt.is_some() {
            let rewritten = self.medium.rewrite();
            rewritten.map_err(|cause| io_error(&self.place, &cause))?;
        }
        let database = self.medium.open().map_err(failed)?;
        let (format, commits) = read_format(&database).map_err(failed)?;
        let format = self.known(format)?;
        self.refuse_older(noted, commits)?;
        Ok(Opened {
            database,
            format,
            commits,
            doubt,
        })
    }

    fn reopened(&mut self) -> Result<Database, StoreError> {
        let Opened {
            mut database,
            format,
            mut commits,
            doubt,
        } = self.checked()?;
        let failed = |cause| refused(&self.place, cause);
        if format < Self::FORMAT {
            drop(database);
            database = self.migrated(format)?;
        }
        if let Some(doubt) = &self.doubt
            && doubt.commits == commits
        {
            // It was refused to its askers, so it must not stand.
            let undone = write(&database, doubt.undo.iter().rev()).and_then(|written| {
                written.transaction.commit()?;
                Ok(written.commits)
            });
            commits = undone.map_err(failed)?;
        }
        if doubt {
            self.medium.note(Noted {
                commits,
                doubt: false,
            });
        }
        self.doubt = None;
        Ok(database)
    }

    /// The format, if this version reads it.
    fn known(&self, format: Option<u32>) -> Result<u32, StoreError> {
        match format {
            Some(known) if (migration::OLDEST..=Self::FORMAT).contains(&known) => Ok(known),
            Some(found) if found > Self::FORMAT => Err(StoreError::Newer {
                place: self.place.clone(),
                found,
                known: Self::FORMAT,
            }),
            other => Err(StoreError::Damaged {
                place: self.place.clone(),
                reason: match other {
                    Some(found) => format!("it says format {found}, which never was"),
                    None => "it is a database, but not of portreeve".to_owned(),
                },
            }),
        }
    }

    /// The database, which is closed and of an older format, as one of this. A crash at any step leaves it of the
    /// older one, or as it shall be.
    fn migrated(&self, from: u32) -> Result<Database, StoreError> {
        let kept = self.medium.keep_older(from);
        kept.map_err(|cause| StoreError::Io {
            place: self.place.clone(),
            reason: format!(
                "it has format {from}, and a copy of it could not be left beside it before it becomes format {}: {cause}",
                Self::FORMAT
            ),
        })?;
        let failed = |cause| refused(&self.place, cause);
        let database = self.medium.open().map_err(failed)?;
        migration::migrate(&database, from).map_err(failed)?;
        tracing::info!(
            "{} had format {from} and has format {} now; as it was, it is beside it as {}.format-{from}",
            self.place,
            Self::FORMAT,
            Self::FILE
        );
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
                    self.medium.note(Noted {
                        commits: written.commits,
                        doubt: false,
                    });
                    return Ok(());
                }
                Err(cause) => {
                    self.medium.note(Noted {
                        commits: written.commits - 1,
                        doubt: true,
                    });
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

/// Has the database, which may be empty, be one of this format with every table.
fn write_format(transaction: &redb::WriteTransaction, format: u32) -> Result<(), redb::Error> {
    transaction
        .open_table(HEAD)?
        .insert(FORMAT, u64::from(format))?;
    for name in tables::ALL {
        transaction.open_table(records(name))?;
    }
    Ok(())
}

/// Has the database, which is empty, hold this.
fn fill(transaction: &redb::WriteTransaction, stored: &Stored) -> Result<(), redb::Error> {
    for name in tables::ALL {
        let mut table = transaction.open_table(records(name))?;
        for (key, record) in stored.tables.get(name).into_iter().flatten() {
            table.insert(key.as_str(), record.as_slice())?;
        }
    }
    let mut head = transaction.open_table(HEAD)?;
    head.insert(COMMITS, stored.commits)?;
    Ok(())
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
    let head = transaction.open_table(HEAD)?;
    stored.commits = head.get(COMMITS)?.map_or(0, |commits| commits.value());
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
mod disk;
#[cfg(test)]
mod faults_test;
#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
