//! Where the store's file lies, and what happens to it as a file.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use portreeve::registry::Stored;
use redb::backends::FileBackend;
use redb::{Database, Durability};

use crate::tally::{Noted, Tally};

use super::{Medium, RedbStore, builder, fill, write_format};

/// `portreeve.redb` in its folder.
#[derive(Clone, Debug)]
pub(super) struct Place {
    folder: PathBuf,
    path: PathBuf,
}

impl Place {
    /// How much of it is rewritten at once.
    const PIECE: usize = 1 << 20;

    pub(super) fn of(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            path: folder.join(RedbStore::FILE),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn exists(&self) -> io::Result<bool> {
        self.path.try_exists()
    }

    /// Makes an empty store under another name first, so that a crash leaves none or a whole one.
    pub(super) fn make(&self) -> Result<(), redb::Error> {
        let begun = self.make_holding("new", RedbStore::FORMAT, &Stored::default())?;
        Ok(self.renamed(&begun, &self.path)?)
    }

    /// Makes a store of this format that holds this, and says where: beside the real one, under its name and this
    /// ending.
    pub(super) fn make_holding(
        &self,
        ending: &str,
        format: u32,
        stored: &Stored,
    ) -> Result<PathBuf, redb::Error> {
        let begun = self.beside(ending);
        let make = || {
            let database = builder().create_with_backend(FileBackend::new(fresh(&begun)?)?)?;
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            write_format(&transaction, format)?;
            fill(&transaction, stored)?;
            Ok::<_, redb::Error>(transaction.commit()?)
        };
        let made = make();
        if made.is_err() {
            // Half a store would only take the room that is missing.
            let _ = std::fs::remove_file(&begun);
        }
        made.map(|()| begun)
    }

    fn beside(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", RedbStore::FILE))
    }

    fn renamed(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)?;
        File::open(&self.folder)?.sync_all()
    }
}

impl Medium for Place {
    fn open(&self) -> Result<Database, redb::Error> {
        Ok(builder().open(&self.path)?)
    }

    fn keep_older(&self, format: u32) -> io::Result<()> {
        let begun = self.beside("older");
        let mut copy = fresh(&begun)?;
        let copied = io::copy(&mut File::open(&self.path)?, &mut copy)
            .and_then(|_| copy.sync_all())
            .and_then(|()| self.renamed(&begun, &self.beside(&format!("format-{format}"))));
        if copied.is_err() {
            // Half a copy would only take the room that is missing.
            let _ = std::fs::remove_file(&begun);
        }
        copied
    }

    fn rewrite(&self) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let mut piece = vec![0; Self::PIECE];
        let mut at = 0;
        loop {
            let read = file.read_at(&mut piece, at)?;
            if read == 0 {
                return file.sync_all();
            }
            file.write_all_at(&piece[..read], at)?;
            at += read as u64;
        }
    }

    fn noted(&self) -> Option<Noted> {
        Tally::of(&self.folder).noted()
    }

    fn note(&self, noted: Noted) {
        Tally::of(&self.folder).note(noted);
    }
}

/// An empty file that nobody else can read, also where another one was.
fn fresh(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}
