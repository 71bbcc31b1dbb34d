//! `env_file`: `NAME=value` lines that hold secrets, read at each start.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use portreeve::profile::is_variable;
use rustix::fs::OFlags;

/// The longest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the variables of the file, in order.
///
/// Blank lines and lines that begin with `#` say nothing; `export ` before a name and one pair of quotes
/// around a value are taken off.
///
/// # Errors
///
/// [`EnvFileError`]; nothing of the file is used then.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, String)>, EnvFileError> {
    let refuse = |fault| EnvFileError {
        path: path.to_owned(),
        fault,
    };
    let text = content(path).map_err(refuse)?;
    variables(&text).map_err(refuse)
}

/// The variables of a text.
pub(crate) fn variables(text: &str) -> Result<Vec<(String, String)>, Fault> {
    let mut variables = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line
            .split_once('=')
            .filter(|(name, _)| is_variable(name.trim_end()))
            .ok_or(Fault::Line { number: number + 1 })?;
        variables.push((
            name.trim_end().to_owned(),
            unquoted(value.trim()).to_owned(),
        ));
    }
    Ok(variables)
}

fn content(path: &Path) -> Result<String, Fault> {
    // Without the flag, a pipe with nobody at its other end would stop the worker.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(Fault::NotAFile);
    }
    let ours = rustix::process::geteuid().as_raw();
    if facts.uid() != ours && facts.uid() != 0 {
        return Err(Fault::Owner { uid: facts.uid() });
    }
    if facts.mode() & 0o077 != 0 {
        return Err(Fault::Open {
            mode: facts.mode() & 0o7777,
        });
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Fault::TooLong);
    }
    Ok(text)
}

fn unquoted(value: &str) -> &str {
    ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(value)
}

/// Why an `env_file` is not used.
#[derive(Debug, thiserror::Error)]
#[error("env_file {}: {fault}", path.display())]
pub(crate) struct EnvFileError {
    path: PathBuf,
    fault: Fault,
}

/// What is wrong with it. A line is named by its number: its text may be a secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it belongs to uid {uid}, so somebody else could change it")]
    Owner { uid: u32 },
    #[error("its group or others have rights to it (mode {mode:04o}); run chmod 600 on it")]
    Open { mode: u32 },
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("line {number} is not NAME=value")]
    Line { number: usize },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    #[test]
    fn lines_are_read_as_people_write_them() {
        let text = "# secrets\n\nA=1\nexport B = \"two words\" \nC='x=y'\nD=\n";
        let (_folder, path) = file(text, 0o600);
        let read = read(&path).unwrap();
        let read: Vec<_> = read.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            read,
            [("A", "1"), ("B", "two words"), ("C", "x=y"), ("D", "")]
        );
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_cure() {
        for mode in [0o644, 0o640, 0o604, 0o620] {
            let (_folder, path) = file("A=1\n", mode);
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains("chmod 600"), "{refused}");
        }
    }

    #[test]
    fn a_bad_line_is_named_by_number_and_never_shown() {
        let (_folder, path) = file("A=1\nhunter2\n", 0o600);
        let refused = read(&path).unwrap_err().to_string();
        assert!(
            refused.contains("line 2") && !refused.contains("hunter2"),
            "{refused}"
        );
    }

    #[test]
    fn pipes_folders_and_missing_files_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
        nix::unistd::mkfifo(&pipe, mode).unwrap();
        for path in [pipe.as_path(), folder.path(), &folder.path().join("none")] {
            assert!(read(path).is_err(), "{}", path.display());
        }
    }
}
