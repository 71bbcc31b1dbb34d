//! Starts a process that inherits nothing: no signal state, no descriptor, no variable.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::unistd::{AccessFlags, access};
use portreeve::supervision::StartFailure;
use portreeve_api::local::{LogStream, ReplicaFolder};
use rustix::process::Pid;

/// Starts `argv` in `working_dir` with exactly `env`: in a session of its own, with an empty signal
/// mask, default dispositions, no standard input, and its output appended to the replica's log files.
///
/// Moves the calling process to `working_dir`, since a spawn has no working directory of its own.
///
/// # Errors
///
/// [`StartFailure`]; no process exists then.
pub(super) fn start(
    argv: &[String],
    env: &[(String, String)],
    working_dir: &Path,
    replica: &ReplicaFolder,
) -> Result<Pid, StartFailure> {
    let logs = [LogStream::Stdout, LogStream::Stderr].map(|stream| open_log(replica, stream));
    let [stdout, stderr] = logs;
    let (stdout, stderr) = (stdout?, stderr?);
    let stdin = File::open("/dev/null")
        .map_err(|cause| StartFailure::Prepare(format!("/dev/null cannot be opened: {cause}")))?;
    std::env::set_current_dir(working_dir).map_err(|cause| {
        StartFailure::Prepare(format!(
            "working_dir {} cannot be entered: {cause}",
            working_dir.display()
        ))
    })?;
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    let name = argv.first().map(String::as_str).unwrap_or_default();
    let refused = |cause: Errno| StartFailure::Exec {
        // It goes into every report and event, so hostile lengths are cut.
        program: name.chars().take(128).collect(),
        errno: cause as i32,
    };
    let program = find_program(name, path.map_or("", |(_, path)| path)).map_err(refused)?;
    let args = c_strings(argv.iter().cloned())?;
    let env = c_strings(env.iter().map(|(name, value)| format!("{name}={value}")))?;

    let spawn = || -> Result<nix::unistd::Pid, Errno> {
        let mut actions = PosixSpawnFileActions::init()?;
        actions.add_dup2(stdin.as_raw_fd(), 0)?;
        actions.add_dup2(stdout.as_raw_fd(), 1)?;
        actions.add_dup2(stderr.as_raw_fd(), 2)?;
        // Ours are closed on exec by the standard library; what a parent leaked into us is closed here.
        for descriptor in open_descriptors() {
            actions.add_close(descriptor)?;
        }
        let mut attributes = PosixSpawnAttr::init()?;
        // The wrapper does not name this flag, but hands it on; both C libraries have it since 2017.
        let own_session = PosixSpawnFlags::from_bits_retain(nix::libc::POSIX_SPAWN_SETSID.into());
        attributes.set_flags(
            own_session
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK,
        )?;
        attributes.set_sigdefault(&SigSet::all())?;
        attributes.set_sigmask(&SigSet::empty())?;
        posix_spawn(program.as_path(), &actions, &attributes, &args, &env)
    };
    let pid = spawn().map_err(refused)?;
    Pid::from_raw(pid.as_raw()).ok_or(StartFailure::Errno(Errno::ESRCH as i32))
}

/// Looks a program up as `execvp` does, but in the job's `PATH`, not in ours.
fn find_program(name: &str, path: &str) -> Result<PathBuf, Errno> {
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.contains('/') {
        return Ok(name.into());
    }
    let mut refusal = Errno::ENOENT;
    for folder in path.split(':') {
        let candidate = Path::new(if folder.is_empty() { "." } else { folder }).join(name);
        if candidate.is_file() {
            match access(&candidate, AccessFlags::X_OK) {
                Ok(()) => return Ok(candidate),
                Err(cause) => refusal = cause,
            }
        }
    }
    Err(refusal)
}

fn open_log(replica: &ReplicaFolder, stream: LogStream) -> Result<File, StartFailure> {
    let path = replica.log(stream);
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)
        .map_err(|cause| {
            StartFailure::Prepare(format!("{} cannot be opened: {cause}", path.display()))
        })
}

/// Every descriptor from 3 on.
fn open_descriptors() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect()
}

fn c_strings(texts: impl Iterator<Item = String>) -> Result<Vec<CString>, StartFailure> {
    texts
        .map(|text| CString::new(text).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput)))
        .collect::<Result<_, _>>()
        .map_err(|_| {
            StartFailure::Prepare(
                "an argument or a variable holds a NUL byte, which no program can be given".into(),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_up_in_the_given_path_only() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("tool");
        fs::write(&plain, "").unwrap();
        let path = format!("/nowhere:{}", folder.path().display());
        assert_eq!(find_program("tool", &path), Err(Errno::EACCES));
        assert_eq!(find_program("sh", &path), Err(Errno::ENOENT));
        assert!(find_program("sh", &format!("{path}:/bin")).is_ok());
        assert_eq!(find_program("", "/bin"), Err(Errno::ENOENT));
        assert_eq!(find_program("./x", "/bin"), Ok("./x".into()));
    }
}
