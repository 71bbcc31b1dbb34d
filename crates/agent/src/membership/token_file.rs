//! Tokens in files: read if nobody else could have, and written so that a crash leaves the old or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use portreeve_api::plain_file;

/// A longer file is none of a token.
const MOST_BYTES: u64 = 4096;
/// Others than the owner may read or write.
const TOO_WIDE: u32 = 0o077;

/// The token in the file; `None`: there is no file.
///
/// # Errors
///
/// [`TokenFileError`].
pub(crate) fn read(path: &Path) -> Result<Option<String>, TokenFileError> {
    let system = |cause| TokenFileError::System {
        path: path.to_owned(),
        cause,
    };
    let file = match plain_file::open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(system(cause)),
    };
    let mode = file.metadata().map_err(system)?.mode() & 0o777;
    if mode & TOO_WIDE != 0 {
        return Err(TokenFileError::TooWide {
            path: path.to_owned(),
            mode,
        });
    }
    let mut text = String::new();
    let read = file.take(MOST_BYTES).read_to_string(&mut text);
    read.map_err(system)?;
    let token = text.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token {
        return Err(TokenFileError::NoToken {
            path: path.to_owned(),
        });
    }
    Ok(Some(token.to_owned()))
}

/// A file that will have a token, made before there is one: what cannot be kept is not asked for.
#[derive(Debug)]
pub(crate) struct Draft {
    beside: PathBuf,
    path: PathBuf,
    file: File,
}

impl Draft {
    /// Makes room beside `path`.
    ///
    /// # Errors
    ///
    /// [`TokenFileError::System`].
    pub(crate) fn beside(path: &Path) -> Result<Self, TokenFileError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!(".{name}"));
        let made = || {
            match fs::remove_file(&beside) {
                Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause),
                _ => {}
            }
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&beside)
        };
        let file = made().map_err(|cause| TokenFileError::System {
            path: beside.clone(),
            cause,
        })?;
        Ok(Self {
            beside,
            path: path.to_owned(),
            file,
        })
    }

    /// Has the token in its place and on the disk.
    ///
    /// # Errors
    ///
    /// [`TokenFileError::System`]; what was in its place still is, or the token.
    pub(crate) fn keep(mut self, token: &str) -> Result<(), TokenFileError> {
        let kept = self.write(token);
        kept.map_err(|cause| TokenFileError::System {
            path: self.path.clone(),
            cause,
        })
    }

    fn write(&mut self, token: &str) -> io::Result<()> {
        writeln!(self.file, "{token}")?;
        self.file.sync_all()?;
        fs::rename(&self.beside, &self.path)?;
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Once it is in its place, there is none.
        _ = fs::remove_file(&self.beside);
    }
}

/// Why the file of a token is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The system refuses.
    #[error("{}: {cause}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Its words.
        cause: io::Error,
    },
    /// Others could have read it, or put another there.
    #[error(
        "{} holds a token and has mode {mode:04o}: others may read or change it; `chmod 600 {}`",
        path.display(),
        path.display()
    )]
    TooWide {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is empty, or holds something else.
    #[error("{} holds no token", path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_kept_for_its_owner_alone_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host-token");
        assert_eq!(read(&path).unwrap(), None);
        for token in ["prh1.a.b", "prh1.c.d"] {
            Draft::beside(&path).unwrap().keep(token).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(token));
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        }
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
    }

    #[test]
    fn a_trade_that_fails_leaves_the_token_that_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host-token");
        Draft::beside(&path).unwrap().keep("prh1.a.b").unwrap();
        drop(Draft::beside(&path).unwrap());
        assert_eq!(read(&path).unwrap().as_deref(), Some("prh1.a.b"));
        // As after a crash in the middle.
        std::mem::forget(Draft::beside(&path).unwrap());
        Draft::beside(&path).unwrap().keep("prh1.c.d").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("prh1.c.d"));
    }

    #[test]
    fn a_token_that_others_may_read_and_a_file_without_one_are_refused_with_the_cure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("join-token");
        fs::write(&path, "prj1.a.b\n").unwrap();
        for mode in [0o604, 0o640, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let words = read(&path).unwrap_err().to_string();
            assert!(words.contains("chmod 600"), "{words}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("prj1.a.b"));
        for text in ["", "\n", "two words", "[table]\nx = 1\n"] {
            fs::write(&path, text).unwrap();
            assert!(
                matches!(read(&path), Err(TokenFileError::NoToken { .. })),
                "{text:?}"
            );
        }
    }
}
