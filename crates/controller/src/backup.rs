//! A backup: everything a store holds at one commit, in a file that says whole whether it is whole.
//!
//! It is a gzip of lines of JSON: a head, one line for each record, and an end with their number and the SHA-256 of
//! everything before it. So it can be read with `zcat`, does not depend on how the store lies on its disk, and a file
//! that was cut off or changed anywhere is refused by name, never half restored.

mod restore;

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use portreeve::registry::{StoreError, Stored, tables};
use portreeve::time::WallClock;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::data_dir::{DataDir, TakeError};
use crate::store::RedbStore;
use crate::token::{KeyError, TokenKey};

pub use restore::{Former, Restored, restore};

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHead {
    /// The form of the file: [`BackupHead::FORM`].
    pub portreeve_backup: u32,
    /// The format of the store that it is of, which a restore gives back.
    pub store_format: u32,
    /// The version that made it.
    pub version: String,
    /// When it was made.
    pub created: WallClock,
    /// The commit it was made at: everything up to it is there, and nothing after it.
    pub commits: u64,
    /// Whether the secret that signs the tokens of replicas is in it.
    pub secrets: bool,
}

impl BackupHead {
    /// The form this version writes; it reads all up to it.
    pub const FORM: u32 = 1;
}

/// What is in a backup.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) head: BackupHead,
    pub(crate) stored: Stored,
    pub(crate) secret: Option<[u8; TokenKey::LENGTH]>,
}

/// One line between head and end.
#[derive(Serialize, Deserialize)]
enum Line<'a> {
    /// Table, key and record.
    #[serde(rename = "r")]
    Record(&'a str, String, String),
    #[serde(rename = "secret")]
    Secret(String),
    #[serde(rename = "end")]
    End { records: u64, sha256: String },
}

impl Backup {
    /// The longest line: no record is longer.
    const LONGEST_LINE: u64 = 64 << 20;
    /// The most bytes of all lines together.
    const LONGEST: u64 = 16 << 30;

    /// What a store of this format holds, as a backup.
    pub(crate) fn of(
        store_format: u32,
        mut stored: Stored,
        secret: Option<[u8; TokenKey::LENGTH]>,
        now: WallClock,
    ) -> Self {
        if secret.is_none() {
            // What a token hashes to is not its secret, but nobody's business either.
            stored.tables.remove(tables::TOKENS);
        }
        Self {
            head: BackupHead {
                portreeve_backup: BackupHead::FORM,
                store_format,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                created: now,
                commits: stored.commits,
                secrets: secret.is_some(),
            },
            stored,
            secret,
        }
    }

    /// How many records it has.
    pub(crate) fn records(&self) -> u64 {
        let tables = self.stored.tables.values();
        tables.map(|table| table.len() as u64).sum()
    }

    /// Writes it. Cost: a pass over everything, compressed.
    pub(crate) fn write(&self, out: impl io::Write) -> io::Result<()> {
        let mut out = Summed {
            inner: GzEncoder::new(out, Compression::fast()),
            sum: Sha256::new(),
        };
        out.line(&self.head)?;
        for (table, records) in &self.stored.tables {
            for (key, record) in records {
                // Records are JSON, and so text.
                let record = String::from_utf8(record.clone());
                let record =
                    record.map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause))?;
                out.line(&Line::Record(table, key.clone(), record))?;
            }
        }
        if let Some(secret) = &self.secret {
            out.line(&Line::Secret(hex(secret)))?;
        }
        let sha256 = hex(&out.sum.clone().finalize());
        out.line(&Line::End {
            records: self.records(),
            sha256,
        })?;
        out.inner.finish()?.flush()
    }

    /// Reads and checks all of it.
    pub(crate) fn read(from: impl Read) -> Result<Self, BackupError> {
        let mut lines = BufReader::new(GzDecoder::new(from).take(Self::LONGEST));
        let mut line = Vec::new();
        let mut sum = Sha256::new();
        next(&mut lines, &mut line)?;
        let head: BackupHead = serde_json::from_slice(&line)
            .map_err(|_| BackupError::damaged("it does not begin as a backup of portreeve"))?;
        if head.portreeve_backup > BackupHead::FORM || head.store_format > RedbStore::FORMAT {
            return Err(BackupError::Newer {
                version: head.version,
            });
        }
        if head.portreeve_backup == 0 || head.store_format == 0 {
            return Err(BackupError::damaged("it says format 0, which never was"));
        }
        let mut backup = Self {
            stored: Stored {
                commits: head.commits,
                ..Stored::default()
            },
            head,
            secret: None,
        };
        loop {
            sum.update(&line);
            next(&mut lines, &mut line)?;
            let read: Line<'_> = serde_json::from_slice(&line).map_err(|cause| {
                BackupError::damaged(format!("after {} records: {cause}", backup.records()))
            })?;
            match read {
                Line::Record(table, key, record) => {
                    if !tables::ALL.contains(&table) {
                        return Err(BackupError::damaged(format!("there is no table {table:?}")));
                    }
                    let records = backup.stored.tables.entry(table.to_owned()).or_default();
                    records.insert(key, record.into_bytes());
                }
                Line::Secret(secret) => backup.secret = Some(unhex(&secret)?),
                Line::End { records, sha256 } => {
                    if sha256 != hex(&sum.finalize()) || records != backup.records() {
                        return Err(BackupError::damaged(
                            "its checksum is not that of its records",
                        ));
                    }
                    line.clear();
                    let more = lines
                        .read_until(b'\n', &mut line)
                        .map_err(BackupError::read)?;
                    if more != 0 {
                        return Err(BackupError::damaged("something follows its end"));
                    }
                    return Ok(backup);
                }
            }
        }
    }
}

/// For the fuzzer, which neither packs nor sums up.
#[cfg(fuzzing)]
impl Backup {
    /// Reads the bytes as the lines of a backup before its end. What is accepted is written and read again.
    pub(crate) fn read_lines(bytes: &[u8]) {
        use io::Write as _;

        let end = |records: usize, sum: Sha256| Line::End {
            records: records as u64,
            sha256: hex(&sum.finalize()),
        };
        let mut packed = Summed {
            inner: GzEncoder::new(Vec::new(), Compression::fast()),
            sum: Sha256::new(),
        };
        let mut records = std::collections::BTreeSet::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            packed.sum.update(line);
            packed.inner.write_all(line).expect("memory takes all");
            if let Ok(Line::Record(table, key, _)) = serde_json::from_slice(line) {
                records.insert((table.to_owned(), key));
            }
        }
        let end = end(records.len(), packed.sum.clone());
        packed.line(&end).expect("memory takes all");
        let packed = packed.inner.finish().expect("memory takes all");
        let Ok(backup) = Self::read(packed.as_slice()) else {
            return;
        };
        let mut again = Vec::new();
        backup.write(&mut again).expect("memory takes all");
        let again = Self::read(again.as_slice()).expect("what was written is read");
        assert_eq!(again.stored, backup.stored);
        assert_eq!(again.secret, backup.secret);
    }
}

/// The next line with its end.
fn next(lines: &mut impl BufRead, line: &mut Vec<u8>) -> Result<(), BackupError> {
    line.clear();
    let read = lines.take(Backup::LONGEST_LINE).read_until(b'\n', line);
    read.map_err(BackupError::read)?;
    if line.last() == Some(&b'\n') {
        return Ok(());
    }
    Err(BackupError::damaged(
        "it ends before its end: it was cut off",
    ))
}

/// A writer that sums up what it wrote.
struct Summed<W> {
    inner: W,
    sum: Sha256,
}

impl<W: io::Write> Summed<W> {
    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.sum.update(&bytes);
        self.inner.write_all(&bytes)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<[u8; TokenKey::LENGTH], BackupError> {
    let digit = |at: usize| {
        text.get(at..at + 2)
            .and_then(|two| u8::from_str_radix(two, 16).ok())
    };
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| BackupError::damaged("its secret is none"))
}

/// Writes a backup of the data directory that no controller has to `out`, and says what it is. A store of an older
/// format stays of that one.
///
/// # Errors
///
/// [`BackupError`]; the directory is as it was. `out` may have a part of it.
pub fn back_up(
    data: &Path,
    with_secrets: bool,
    now: WallClock,
    out: impl io::Write,
) -> Result<BackupHead, BackupError> {
    if !data.join(RedbStore::FILE).is_file() {
        return Err(BackupError::NoStore {
            data: data.display().to_string(),
        });
    }
    let data = DataDir::take(data)?;
    let (format, stored) = RedbStore::read(data.path())?;
    let secret = with_secrets.then(|| TokenKey::bytes_of(data.path()));
    let backup = Backup::of(format, stored, secret.transpose()?, now);
    backup.write(out).map_err(BackupError::read)?;
    Ok(backup.head)
}

/// Reads and checks a whole backup, and says what it is.
///
/// # Errors
///
/// [`BackupError`] names what is wrong with it.
pub fn check_backup(from: impl Read) -> Result<BackupHead, BackupError> {
    Backup::read(from).map(|backup| backup.head)
}

/// Why there is no backup, or it is not restored. The store that was there is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// It cannot be read as one.
    #[error("the backup is damaged: {reason}")]
    Damaged {
        /// What was found.
        reason: String,
    },
    /// A newer version made it.
    #[error(
        "the backup was made by portreeve {version}, which is newer than this one; restore it with that version"
    )]
    Newer {
        /// Which.
        version: String,
    },
    /// There is nothing to be backed up.
    #[error("{data} holds no store; name the directory of the controller with --data")]
    NoStore {
        /// Where.
        data: String,
    },
    /// A store would be replaced.
    #[error(
        "{data} holds a store already; --force puts the backup in its place and leaves it beside as {kept}"
    )]
    StoreThere {
        /// Where.
        data: String,
        /// What it would be called.
        kept: &'static str,
    },
    /// What an earlier restore left aside would be lost.
    #[error(
        "{kept} is there already, from an earlier restore; move it away, or remove it if nobody needs it, and restore then"
    )]
    KeptThere {
        /// Where.
        kept: String,
    },
    /// A controller has the directory.
    #[error("{data} is in use by a controller{}; {}", pid.map_or_else(String::new, |pid| format!(" (process {pid})")), "stop it first; `portreeve backup FILE` without --data asks it for one while it runs")]
    InUse {
        /// Where.
        data: String,
        /// The process, where known.
        pid: Option<u32>,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refused.
    #[error("{place}: {reason}")]
    Io {
        /// What.
        place: String,
        /// The system's words.
        reason: String,
    },
}

impl BackupError {
    fn damaged(reason: impl Into<String>) -> Self {
        Self::Damaged {
            reason: reason.into(),
        }
    }

    /// Of the stream that the backup comes from or goes to.
    fn read(cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                Self::damaged(format!("it is no whole gzip file: {cause}"))
            }
            io::ErrorKind::UnexpectedEof => Self::damaged("it ends before its end: it was cut off"),
            _ => Self::io("the backup", &cause),
        }
    }

    fn io(place: impl ToString, cause: &io::Error) -> Self {
        Self::Io {
            place: place.to_string(),
            reason: cause.to_string(),
        }
    }
}

impl From<TakeError> for BackupError {
    fn from(cause: TakeError) -> Self {
        match cause {
            TakeError::InUse { path, pid } => Self::InUse {
                data: path.display().to_string(),
                pid,
            },
            TakeError::Io { path, reason } => Self::Io {
                place: path.display().to_string(),
                reason,
            },
        }
    }
}

impl From<KeyError> for BackupError {
    fn from(cause: KeyError) -> Self {
        Self::Io {
            place: cause.path.display().to_string(),
            reason: cause.reason,
        }
    }
}

#[cfg(test)]
#[path = "backup_test.rs"]
mod tests;
