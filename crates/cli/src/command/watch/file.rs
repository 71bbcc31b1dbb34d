//! A file that is always whole: who reads it gets what was written before or what is written now, never a part.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::exit::{Code, Failure};

/// A file that is replaced as a whole.
#[derive(Debug)]
pub(super) struct WholeFile {
    path: PathBuf,
}

impl WholeFile {
    /// The file at `path`, which need not exist; its folder must.
    ///
    /// # Errors
    ///
    /// [`Code::Usage`] if it cannot be replaced.
    pub(super) fn at(path: &Path) -> Result<Self, Failure> {
        let refused = |cause: io::Error| {
            let cause = told(&cause);
            Failure::new(Code::Usage, format!("--output {}: {cause}", path.display()))
        };
        let whole = Self {
            path: std::path::absolute(path).map_err(refused)?,
        };
        whole.place().map_err(refused)?;
        Ok(whole)
    }

    /// Where it is, as it was named.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file to replace and its folder. Links are followed at each write, so that one stays a link, and one that
    /// is switched to another folder is followed there.
    fn place(&self) -> io::Result<(PathBuf, PathBuf)> {
        let path = match fs::canonicalize(&self.path) {
            Ok(real) => real,
            Err(cause) if cause.kind() == ErrorKind::NotFound => {
                if fs::symlink_metadata(&self.path).is_ok() {
                    return Err(io::Error::other("a link to nothing"));
                }
                self.path.clone()
            }
            Err(cause) => return Err(cause),
        };
        // A pipe, which is no file either, would be waited for.
        if fs::metadata(&path).is_ok_and(|it| !it.is_file()) {
            return Err(io::Error::other("not a file that can be replaced"));
        }
        let folder = path
            .parent()
            .ok_or_else(|| io::Error::other("not a file"))?;
        if !folder.is_dir() {
            let folder = folder.display();
            return Err(io::Error::other(format!("there is no folder {folder}")));
        }
        let folder = folder.to_owned();
        Ok((path, folder))
    }

    /// Replaces the content, if it is another; says whether it was. What is written survives a crash of the machine.
    ///
    /// A file that is there keeps its mode, and its owner where that may be given; a new one gets what the umask
    /// leaves of 0666.
    ///
    /// # Errors
    ///
    /// What the system says. The content is then as before.
    pub(super) fn replace(&self, content: &[u8]) -> io::Result<bool> {
        let (path, folder) = self.place()?;
        let before = match File::open(&path) {
            Ok(file) => Some((file.metadata()?, is_just(file, content)?)),
            Err(cause) if cause.kind() == ErrorKind::NotFound => None,
            Err(cause) => return Err(cause),
        };
        if let Some((_, true)) = before {
            return Ok(false);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut fresh = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(&folder)?;
        fresh.write_all(content)?;
        if let Some((before, _)) = before {
            let ours = fresh.as_file().metadata()?;
            if (ours.uid(), ours.gid()) != (before.uid(), before.gid()) {
                // Only root may give a file away; without that it is a file of who writes it, as with any editor.
                _ = fchown(fresh.as_file(), Some(before.uid()), Some(before.gid()));
            }
            let mode = before.permissions().mode() & 0o7777;
            fresh
                .as_file()
                .set_permissions(Permissions::from_mode(mode))?;
        }
        fresh.as_file().sync_all()?;
        fresh.persist(&path).map_err(|refused| refused.error)?;
        File::open(&folder)?.sync_all()?;
        Ok(true)
    }
}

/// The cause, without the passing name beside the file that `tempfile` adds to the system's words.
pub(super) fn told(cause: &io::Error) -> String {
    let words = cause.to_string();
    match words.split_once(" at path ") {
        Some((words, _)) => words.to_owned(),
        None => words,
    }
}

/// Whether the file has this content and nothing else. Reads no more than that.
fn is_just(file: File, content: &[u8]) -> io::Result<bool> {
    if file.metadata()?.len() != content.len() as u64 {
        return Ok(false);
    }
    let mut held = Vec::with_capacity(content.len());
    io::Read::read_to_end(
        &mut io::Read::take(file, content.len() as u64 + 1),
        &mut held,
    )?;
    Ok(held == content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_keeps_its_mode_and_is_left_alone_when_nothing_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.conf");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let file = WholeFile::at(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(file.replace(b"new").unwrap());
        assert_eq!(io::read_to_string(reader).unwrap(), "old");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o640);
        let number = fs::metadata(&path).unwrap().ino();
        assert!(!file.replace(b"new").unwrap());
        assert_eq!(fs::metadata(&path).unwrap().ino(), number);
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        WholeFile::at(&link).unwrap().replace(b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
    }

    // A folder of releases is switched by a link; what was resolved once at the start wrote into the old one for ever.
    #[test]
    fn a_link_that_is_switched_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (now, next) = (folder.path().join("now"), folder.path().join("next"));
        for release in ["one", "two"] {
            fs::create_dir(folder.path().join(release)).unwrap();
        }
        std::os::unix::fs::symlink("one", &now).unwrap();
        let file = WholeFile::at(&now.join("web.conf")).unwrap();
        assert!(file.replace(b"a").unwrap());
        std::os::unix::fs::symlink("two", &next).unwrap();
        fs::rename(&next, &now).unwrap();
        assert!(file.replace(b"a").unwrap());
        let text = fs::read_to_string(folder.path().join("two/web.conf")).unwrap();
        assert_eq!(text, "a");
    }

    // To open a pipe is to wait for its other end: the watch then heard no signal any more.
    #[test]
    fn what_became_no_file_is_told_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web");
        let file = WholeFile::at(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = file.replace(b"a").unwrap_err();
        assert_eq!(told(&refused), "not a file that can be replaced");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        file.replace(b"a").unwrap_err();
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("nothing", &path).unwrap();
        assert_eq!(told(&file.replace(b"a").unwrap_err()), "a link to nothing");
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn what_cannot_be_replaced_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        assert!(WholeFile::at(folder.path()).is_err());
        assert!(WholeFile::at(&folder.path().join("no/file")).is_err());
        assert!(WholeFile::at(Path::new("/dev/null")).is_err());
        assert!(WholeFile::at(Path::new("/")).is_err());
    }
}
