//! Removing a folder that somebody else filled: however deep, however wide, whatever still goes on in it.
//!
//! The usual way down takes a descriptor and a frame of the stack for each level, so that a job could end its
//! supervisors by a folder that is deep enough. Here what lies deeper than a few levels is lifted to the top and
//! looked at later: a few dozen descriptors and one frame, for any depth. No link is followed.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat};
use rustix::io::Errno;

/// Somebody who fills the folder as fast as it is emptied is given up after this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Removes the folder and everything in it. One that is not there is removed already. Takes as long as there is
/// something to remove, at most about a minute: call it where that holds up nobody.
///
/// # Errors
///
/// The system's; [`io::ErrorKind::TimedOut`] when it is filled meanwhile. Repeated, it goes on where it stopped.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let above = match openat(rustix::fs::CWD, parent, FOLDER, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        above => above?,
    };
    let name = CString::new(std::os::unix::ffi::OsStrExt::as_bytes(name))?;
    match open(above.as_fd(), &name) {
        Ok(top) => empty(&top)?,
        Err(Errno::NOENT) => return Ok(()),
        // A link or a file in its place is what is to go.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            unlinkat(&above, &name, AtFlags::empty())?;
            return Ok(());
        }
        Err(cause) => return Err(cause.into()),
    }
    match unlinkat(&above, &name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(cause) => Err(cause.into()),
    }
}

/// How far down at once.
const DEEPEST: usize = 32;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The folder `name` in `above`; one of our own that we closed to ourselves is opened first.
fn open(above: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    match openat(above, name, FOLDER, Mode::empty()) {
        Err(Errno::ACCESS) => {
            open_up(above, name)?;
            openat(above, name, FOLDER, Mode::empty())
        }
        opened => opened,
    }
}

/// Gives the folder `name` in `above` its owner's rights to it. Held first, and changed by what is held: whoever puts a
/// link in its place meanwhile must not have the mode of something else changed.
fn open_up(above: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    let held = openat(above, name, FOLDER | OFlags::PATH, Mode::empty())?;
    rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::RWXU)
}

/// A folder on the way down, being read.
struct Level {
    folder: OwnedFd,
    entries: Dir,
    /// In the level above.
    name: CString,
}

impl Level {
    fn of(folder: OwnedFd, name: &CStr) -> rustix::io::Result<Self> {
        let entries = Dir::read_from(&folder)?;
        Ok(Self {
            folder,
            entries,
            name: name.to_owned(),
        })
    }
}

/// Removes what is in `top`, pass after pass until one finds nothing.
fn empty(top: &OwnedFd) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut lifted = 0_u64;
    while pass(top, &mut lifted, until)? {}
    Ok(())
}

/// One way down and up again; whether there was anything.
fn pass(top: &OwnedFd, lifted: &mut u64, until: Instant) -> io::Result<bool> {
    let mut found = false;
    let mut stays = None;
    let mut levels = vec![Level::of(top.try_clone()?, c".")?];
    loop {
        let depth = levels.len();
        let Some(level) = levels.last_mut() else {
            break;
        };
        let Some(entry) = level.entries.read() else {
            let name = levels.pop().map(|level| level.name).unwrap_or_default();
            if let Some(above) = levels.last() {
                match unlinkat(&above.folder, &name, AtFlags::REMOVEDIR) {
                    // Something came meanwhile: another pass.
                    Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
                    Err(cause) => stays = Some(cause),
                }
            }
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        found = true;
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let folder = level.folder.as_fd();
        let removed = match remove_file(folder, name) {
            Ok(false) if depth < DEEPEST => open(folder, name).and_then(|below| {
                levels.push(Level::of(below, name)?);
                Ok(())
            }),
            Ok(false) => lift(folder, name, top, lifted),
            Ok(true) => Ok(()),
            Err(cause) => Err(cause),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(cause) => stays = Some(cause),
        }
    }
    match stays {
        Some(cause) => Err(cause.into()),
        None => Ok(found),
    }
}

/// Moves the folder `name` from where it is to the top, for a later pass.
fn lift(
    from: BorrowedFd<'_>,
    name: &CStr,
    top: &OwnedFd,
    lifted: &mut u64,
) -> rustix::io::Result<()> {
    loop {
        // A name that is taken is that of an entry that goes as well.
        *lifted += 1;
        let free = format!(".removed-{lifted}");
        match renameat_with(from, name, top, free, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            // What moves must be writable, for it learns where it is.
            Err(Errno::ACCESS) => open_up(from, name)?,
            done => return done,
        }
    }
}

/// Whether it is gone; a folder is not.
fn remove_file(folder: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<bool> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(Errno::ACCESS | Errno::PERM) => {
            // A folder closed to its owner. `/proc/self/fd` would need /proc; the way by the folder's name does not.
            let dot = openat(folder, c".", FOLDER, Mode::empty())?;
            rustix::fs::fchmod(&dot, Mode::RWXU)?;
            match unlinkat(folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(true),
                Err(Errno::ISDIR) => Ok(false),
                Err(cause) => Err(cause),
            }
        }
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    /// Folders one inside the other; deeper than any path can name.
    fn deep(root: &Path, levels: usize) {
        let mut above = openat(rustix::fs::CWD, root, FOLDER, Mode::empty()).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&above, c"d", Mode::RWXU).unwrap();
            above = open(above.as_fd(), c"d").unwrap();
        }
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        fs::create_dir(&folder).unwrap();
        (place, folder)
    }

    #[test]
    fn a_folder_of_any_depth_goes_on_a_small_stack() {
        let (_place, folder) = place();
        deep(&folder, 2_500);
        let small = std::thread::Builder::new().stack_size(256 << 10);
        let removing = small.spawn({
            let folder = folder.clone();
            move || remove_folder(&folder)
        });
        removing.unwrap().join().unwrap().unwrap();
        assert!(!folder.exists());
        remove_folder(&folder).unwrap();
    }

    #[test]
    fn a_link_that_takes_the_place_of_a_closed_folder_opens_nothing_else() {
        // Between the look at a closed folder and its opening a link could lead to a file of root's.
        let (place, folder) = place();
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o555)).unwrap();
        symlink(&outside, folder.join("link")).unwrap();
        let above = openat(rustix::fs::CWD, &folder, FOLDER, Mode::empty()).unwrap();
        open_up(above.as_fd(), c"link").unwrap_err();
        let mode = || fs::metadata(&outside).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o555);
        fs::create_dir(folder.join("closed")).unwrap();
        fs::set_permissions(folder.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        open_up(above.as_fd(), c"closed").unwrap();
        fs::write(folder.join("closed/file"), "x").unwrap();
    }

    #[test]
    fn what_a_link_points_to_stays_and_what_is_closed_goes() {
        let (place, folder) = place();
        let outside = place.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        symlink(&outside, folder.join("link")).unwrap();
        for name in ["closed/inner", ".removed-1/.removed-2", "a/b/c"] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("file"), "x").unwrap();
            symlink(&outside, folder.join(name).join("link")).unwrap();
        }
        for (name, mode) in [("closed/inner", 0o000), ("closed", 0o500), ("a/b", 0o555)] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(folder.join(name), mode).unwrap();
        }
        remove_folder(&folder).unwrap();
        assert!(!folder.exists());
        symlink(&outside, &folder).unwrap();
        remove_folder(&folder).unwrap();
        assert!(folder.symlink_metadata().is_err());
        assert!(outside.join("kept").exists());
    }
}
