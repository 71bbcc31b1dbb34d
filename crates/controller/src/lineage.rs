//! Whether the data directory is the one that the last controller left here, or a restored backup or a clone of it.
//!
//! Readers may know more, or other, than a copy does, under numbers that the copy gives anew: so it begins an epoch of its
//! own. A witness beside the store tells. Its name holds how many commits there were when the last controller began, and
//! its text what the system calls this very file: machine, device, inode and moment of birth. Each start renames it, so that
//!
//! * a copy on another machine or in another directory holds a witness of another file;
//! * a backup put back over the directory leaves two witnesses, or again one of another file;
//! * a store that was put back alone has fewer commits than the witness.
//!
//! What looks like a copy and is none (another kernel number for the disk, a lost file) costs readers one full set. What
//! cannot be told from inside is a disk or machine that was set back as a whole: `controller --new-epoch`.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What the witness of a data directory says.
#[derive(Debug)]
pub(crate) struct Lineage {
    folder: PathBuf,
    witnesses: Vec<PathBuf>,
    machine: String,
    copied: Option<String>,
}

impl Lineage {
    /// How the file's name begins; the number of commits follows.
    const PREFIX: &str = "portreeve.line-";
    /// No witness is longer.
    const MOST: u64 = 4096;

    /// Looks at the directory of a store that holds so many commits, of which `noted` were noted beside it.
    pub(crate) fn of(folder: &Path, commits: u64, noted: Option<u64>) -> Self {
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let mut lineage = Self {
            folder: folder.to_owned(),
            witnesses: witnesses(folder),
            machine: machine.trim().chars().take(64).collect(),
            copied: None,
        };
        if commits > 0 {
            lineage.copied = lineage.refuted(commits, noted).err();
        }
        lineage
    }

    /// Has the next start of the directory begin an epoch of its own.
    pub(crate) fn forget(folder: &Path) -> io::Result<()> {
        for witness in witnesses(folder) {
            fs::remove_file(witness)?;
        }
        Ok(())
    }

    /// Why it is not the directory that the last controller left; `None`: it is, or there was none.
    pub(crate) fn copied(&self) -> Option<&str> {
        self.copied.as_deref()
    }

    fn refuted(&self, commits: u64, noted: Option<u64>) -> Result<(), String> {
        let [witness] = self.witnesses.as_slice() else {
            return Err(match self.witnesses.len() {
                0 => "it has no witness of the last start".to_owned(),
                many => format!("it has {many} witnesses of the last start"),
            });
        };
        let name = witness.file_name().unwrap_or_default().to_string_lossy();
        let begun = name
            .strip_prefix(Self::PREFIX)
            .and_then(|it| it.parse().ok());
        let begun: u64 = begun.ok_or_else(|| format!("{name} has no number of commits"))?;
        if begun > commits {
            return Err(format!(
                "the last start found {begun} commits, and the store holds {commits}"
            ));
        }
        if noted.is_none() {
            return Err("nothing notes how many commits were accepted".to_owned());
        }
        match self.is_this_file(witness) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("{name} was copied here")),
            Err(cause) => Err(format!("{name} cannot be read: {cause}")),
        }
    }

    fn is_this_file(&self, witness: &Path) -> io::Result<bool> {
        let metadata = fs::symlink_metadata(witness)?;
        if !metadata.is_file() || metadata.len() > Self::MOST {
            return Ok(false);
        }
        Ok(fs::read(witness)? == self.text(&metadata).into_bytes())
    }

    /// Has the witness say that a controller began on so many commits: those that make the epoch durable among them.
    pub(crate) fn note(&self, commits: u64) -> io::Result<()> {
        let path = self.folder.join(format!("{}{commits:020}", Self::PREFIX));
        if let ([witness], None, true) = (&self.witnesses[..], &self.copied, commits > 0) {
            // One step, so that a crash leaves one witness; and a full disk takes it.
            return fs::rename(witness, path);
        }
        for witness in &self.witnesses {
            fs::remove_file(witness)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let text = self.text(&file.metadata()?);
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        File::open(&self.folder)?.sync_all()
    }

    fn text(&self, file: &Metadata) -> String {
        let born = file.created().ok();
        let born = born.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let born = born.map_or(0, |since| since.as_nanos());
        let (device, inode, machine) = (file.dev(), file.ino(), &self.machine);
        format!("machine {machine}\ndevice {device}\ninode {inode}\nborn {born}\n")
    }
}

fn witnesses(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes()
            .starts_with(Lineage::PREFIX.as_bytes())
    });
    named.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A start on a store with so many commits; why it was taken for a copy.
    fn start(folder: &Path, commits: u64) -> Option<String> {
        let lineage = Lineage::of(folder, commits, Some(commits));
        lineage.note(commits + 1).unwrap();
        assert_eq!(witnesses(folder).len(), 1);
        lineage.copied().map(str::to_owned)
    }

    fn copy(from: &Path, to: &Path) {
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }

    fn folders() -> [TempDir; 2] {
        [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()]
    }

    #[test]
    fn starts_in_one_place_are_one_line() {
        let [data, _] = folders();
        assert_eq!(start(data.path(), 0), None);
        for commits in [1, 2, 3, 500] {
            assert_eq!(start(data.path(), commits), None);
        }
    }

    #[test]
    fn a_start_that_died_before_its_note_is_the_same_line() {
        let [data, _] = folders();
        start(data.path(), 0);
        drop(Lineage::of(data.path(), 1, Some(1)));
        assert_eq!(start(data.path(), 2), None);
    }

    #[test]
    fn a_copy_elsewhere_and_one_put_back_are_told_and_then_are_lines_of_their_own() {
        let [data, backup] = folders();
        start(data.path(), 0);
        copy(data.path(), backup.path());
        // The original goes on.
        assert_eq!(start(data.path(), 1), None);
        let told = start(backup.path(), 1).unwrap();
        assert!(told.ends_with("was copied here"), "{told}");
        assert_eq!(start(backup.path(), 2), None);
        // Put back over what is there.
        copy(backup.path(), data.path());
        assert_eq!(
            start(data.path(), 3).unwrap(),
            "it has 2 witnesses of the last start"
        );
        assert_eq!(start(data.path(), 4), None);
        // Put back in its place.
        for witness in witnesses(data.path()) {
            fs::remove_file(witness).unwrap();
        }
        copy(backup.path(), data.path());
        assert!(start(data.path(), 5).unwrap().ends_with("was copied here"));
    }

    #[test]
    fn a_store_that_was_put_back_alone_has_too_few_commits() {
        let [data, _] = folders();
        start(data.path(), 0);
        start(data.path(), 900);
        assert_eq!(
            start(data.path(), 400).unwrap(),
            "the last start found 901 commits, and the store holds 400"
        );
    }

    #[test]
    fn what_is_missing_or_damaged_is_taken_for_a_copy() {
        let [data, _] = folders();
        assert_eq!(
            start(data.path(), 7).unwrap(),
            "it has no witness of the last start"
        );
        let lineage = Lineage::of(data.path(), 8, None);
        let told = lineage.copied().unwrap();
        assert_eq!(told, "nothing notes how many commits were accepted");
        let mut commits = 8;
        for hostile in ["", "x", "machine \ndevice 0\n", &"y".repeat(10_000)] {
            fs::write(&witnesses(data.path())[0], hostile).unwrap();
            commits += 1;
            let told = start(data.path(), commits).unwrap();
            assert!(told.ends_with("was copied here"), "{told}");
        }
        let witness = &witnesses(data.path())[0];
        fs::rename(witness, data.path().join("portreeve.line-x")).unwrap();
        let told = start(data.path(), 20).unwrap();
        assert_eq!(told, "portreeve.line-x has no number of commits");
    }
}
