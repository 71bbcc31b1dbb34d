//! Tokens in files: nobody but their owner may read one, and the one of `portreeve login` lies in the state folder.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::exit::{Code, Failure};

/// Where `portreeve login` keeps its token: in the state folder of the person, also root's; the system's is the
/// controller's.
pub(crate) fn login_file() -> PathBuf {
    let folder = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let home = || {
        folder("HOME")
            .unwrap_or_else(|| "/".into())
            .join(".local/state")
    };
    let state = folder("XDG_STATE_HOME").unwrap_or_else(home);
    state.join("portreeve/login-token")
}

/// The longest token, and then some.
const MOST_BYTES: u64 = 16 << 10;

/// Reads a token that somebody named; one that others may read too is not used.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let refused = |reason: String| {
        let words = format!("token file {}: {reason}", path.display());
        Failure::new(Code::NotAllowed, words)
    };
    let file = File::open(path).map_err(|cause| refused(cause.to_string()))?;
    let about = file
        .metadata()
        .map_err(|cause| refused(cause.to_string()))?;
    let own = nix::unistd::geteuid().as_raw();
    if about.uid() != own && about.uid() != 0 {
        return Err(refused(format!(
            "it belongs to uid {} and not to you; use one of your own",
            about.uid()
        )));
    }
    if about.mode() & 0o077 != 0 {
        return Err(refused(format!(
            "others may read it (mode {:04o}); chmod 600 it, and where others did read it `portreeve token rotate` makes \
             what they read worth nothing",
            about.mode() & 0o7777
        )));
    }
    let mut text = String::new();
    let read = file.take(MOST_BYTES).read_to_string(&mut text);
    read.map_err(|cause| refused(cause.to_string()))?;
    let text = text.trim();
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(refused("there is no token in it".to_owned()));
    }
    Ok(text.to_owned())
}

/// The token of `portreeve login`, if there is one.
pub(crate) fn of_login() -> Result<Option<String>, Failure> {
    let path = login_file();
    match std::fs::symlink_metadata(&path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => read(&path).map(Some),
    }
}

/// Writes a token that only its owner may read, whole or not at all. `replace`: over one that is there.
pub(crate) fn write(path: &Path, token: &str, replace: bool) -> Result<(), Failure> {
    let failed = |cause: io::Error| Failure::plain(format!("{}: {cause}", path.display()));
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    // Made with 0600, whatever the umask.
    let mut begun = tempfile::Builder::new()
        .prefix(".token.")
        .permissions(std::fs::Permissions::from_mode(0o600))
        .tempfile_in(folder)
        .map_err(failed)?;
    writeln!(begun, "{token}").map_err(failed)?;
    begun.as_file().sync_all().map_err(failed)?;
    if replace {
        begun.persist(path).map_err(|cause| failed(cause.error))?;
    } else {
        begun
            .persist_noclobber(path)
            .map_err(|cause| failed(cause.error))?;
    }
    Ok(())
}

/// Makes the folder of the login file, for its owner alone.
pub(crate) fn make_folder() -> Result<(), Failure> {
    let path = login_file();
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|cause| Failure::plain(format!("{}: {cause}", folder.display())))
}

/// The id within a token's text, where it is a stored token's.
pub(crate) fn id_of(token: &str) -> Option<&str> {
    let rest = token.strip_prefix("prt1.")?;
    rest.split_once('.').map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_only_where_nobody_else_could() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        write(&path, "prt1.0123.abc", false).unwrap();
        let about = std::fs::metadata(&path).unwrap();
        assert_eq!(about.mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap(), "prt1.0123.abc");
        assert!(
            write(&path, "other", false).is_err(),
            "one that is there stays"
        );
        write(&path, "prt1.4567.def", true).unwrap();
        assert_eq!(read(&path).unwrap(), "prt1.4567.def");
        for mode in [0o640, 0o604, 0o644] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let refused = read(&path).unwrap_err();
            assert_eq!(refused.code(), Code::NotAllowed);
            assert!(refused.to_string().contains("chmod 600"), "{refused}");
        }
        let missing = read(&folder.path().join("none")).unwrap_err();
        assert_eq!(missing.code(), Code::NotAllowed);
    }

    #[test]
    fn the_id_of_a_token_is_its_middle_part() {
        assert_eq!(id_of("prt1.0123456789abcdef.aa"), Some("0123456789abcdef"));
        assert_eq!(id_of("pj1.x.y"), None);
    }
}
