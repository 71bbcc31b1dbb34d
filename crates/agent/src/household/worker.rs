//! The worker of one replica: started so that it outlives the agent, recognised again, watched and told.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use portreeve_api::host_limits::HostLimits;
use portreeve_api::local::{JobUser, ProcessIdentity, ReplicaFolder, WorkerAnswer, WorkerCommand};
use portreeve_api::tls::{self, OwnCertificate};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;

use super::folder;
use crate::owner::{HeldSocket, Owner};

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A worker that lives, held so that its number cannot come to mean another process.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) pid: u32,
    process: OwnedFd,
}

impl Worker {
    /// Starts `program worker --folder DIR` in a session of its own, so that neither a terminal nor the end
    /// of the agent reaches it. For another user it is also told whom to become, by its arguments: what
    /// stands in the folder is that user's to change. And it is told which certificate it shows to the controller, whose key
    /// it reads before it becomes that user, who could not.
    ///
    /// # Errors
    ///
    /// The system's, also when the program cannot be executed; no process exists then.
    pub(super) fn start(
        program: &Path,
        replica: &ReplicaFolder,
        user: Option<&JobUser>,
        own: Option<&OwnCertificate>,
    ) -> Result<Self, Errno> {
        let system = |cause: io::Error| Errno::from_raw(cause.raw_os_error().unwrap_or(0));
        // It has nothing to read but the limits that it shares with the other workers of this host.
        let limits = replica
            .host_limits()
            .and_then(|path| HostLimits::open(&path).ok());
        let nothing = File::open("/dev/null").map_err(system)?;
        let input = limits.as_ref().map_or(nothing.as_fd(), AsFd::as_fd);
        // What a job puts in its place keeps nobody from supervising the job.
        let log = folder::open_worker_log(replica)
            .or_else(|_| File::options().write(true).open("/dev/null"))
            .map_err(system)?;
        let mut actions = PosixSpawnFileActions::init()?;
        actions.add_dup2(input.as_raw_fd(), 0)?;
        actions.add_dup2(log.as_raw_fd(), 1)?;
        actions.add_dup2(log.as_raw_fd(), 2)?;
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
        let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(|_| Errno::EINVAL);
        let mut arguments = vec![
            text(program.as_os_str())?,
            c"worker".to_owned(),
            c"--folder".to_owned(),
            text(replica.path().as_os_str())?,
        ];
        if let Some(user) = user {
            arguments.push(c"--as".to_owned());
            arguments.push(text(user.ids.to_string().as_ref())?);
        }
        let environment = environment(user, own).into_iter().map(|(name, value)| {
            text(&[name.as_os_str(), value.as_os_str()].join(OsStr::new("=")))
        });
        let environment = environment.collect::<Result<Vec<_>, _>>()?;
        let pid = posix_spawn(program, &actions, &attributes, &arguments, &environment)?;
        // A child of ours keeps its number until we have waited for it, so this is the one that was started.
        Self::hold(u32::try_from(pid.as_raw()).map_err(|_| Errno::ESRCH)?)
    }

    /// The living process with this identity, if it is the owner's; `None` if there is none any more.
    pub(super) fn recognise(identity: &ProcessIdentity, owner: Owner) -> Option<Self> {
        Self::recognise_of(identity, &[owner.uid])
    }

    fn recognise_of(identity: &ProcessIdentity, users: &[u32]) -> Option<Self> {
        Self::living(identity, |pid| runs_as(pid, users))
    }

    /// The living process with this identity, whoever runs it, if it `is_meant`.
    pub(crate) fn living(
        identity: &ProcessIdentity,
        is_meant: impl FnOnce(u32) -> bool,
    ) -> Option<Self> {
        let worker = Self::hold(identity.pid).ok()?;
        // Looked at while the number is held: it cannot pass to another process in between.
        let is_it = identity.is_alive() && is_meant(identity.pid) && !worker.has_ended();
        is_it.then_some(worker)
    }

    fn hold(pid: u32) -> Result<Self, Errno> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = pidfd_open(number.ok_or(Errno::ESRCH)?, PidfdFlags::empty())
            .map_err(|cause| Errno::from_raw(cause.raw_os_error()))?;
        Ok(Self { pid, process })
    }

    fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut ready = [PollFd::new(&self.process, PollFlags::IN)];
        let now = rustix::event::Timespec::default();
        poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Ends the process and nothing that it supervises.
    pub(super) fn end(&self) {
        // It ended already.
        _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// Returns when the process has ended. A child is reaped.
    ///
    /// # Errors
    ///
    /// The system's, when it cannot be waited for.
    pub(crate) async fn ended(self) -> io::Result<()> {
        #[expect(
            deprecated,
            reason = "its successor asks for a promise by hand that an OwnedFd keeps by itself: the descriptor stays open and the same"
        )]
        let process = AsyncFd::with_interest(self.process, Interest::READABLE)?;
        process.readable().await?.retain_ready();
        // An adopted worker is nobody's child here and somebody else reaps it.
        match waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED) {
            Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
            Err(cause) => Err(cause.into()),
        }
    }
}

/// What a worker inherits: for another user nothing that tells of the agent's own account.
fn environment(user: Option<&JobUser>, own: Option<&OwnCertificate>) -> Vec<(OsString, OsString)> {
    /// Of the machine, not of an account.
    const PASSED_ON: [&str; 5] = ["PATH", "LANG", "TZ", "PORTREEVE_LOG", "RUST_BACKTRACE"];
    let Some(user) = user else {
        return std::env::vars_os().collect();
    };
    let passed_on = PASSED_ON
        .iter()
        .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    let account: [(&str, &OsStr); 4] = [
        ("HOME", user.home.as_os_str()),
        ("USER", user.name.as_ref()),
        ("LOGNAME", user.name.as_ref()),
        ("SHELL", user.shell.as_os_str()),
    ];
    let account = account.map(|(name, value)| (name.into(), value.to_owned()));
    let own = own.into_iter().flat_map(|own| {
        let files = [
            (tls::CERTIFICATE_VARIABLE, &own.certificate),
            (tls::KEY_VARIABLE, &own.key),
        ];
        files.map(|(name, path)| (name.into(), path.clone().into_os_string()))
    });
    passed_on.chain(account).chain(own).collect()
}

/// Whether the process runs as nobody but these. A user can give a process of another any look but this.
fn runs_as(pid: u32, users: &[u32]) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let is_theirs = |uid: &str| uid.parse().is_ok_and(|uid| users.contains(&uid));
    uids.is_some_and(|uids| uids.split_ascii_whitespace().all(is_theirs))
}

/// Looks for a worker of this folder that could not yet say who it is: the agent may be killed right
/// after it has started one.
pub(super) fn search(replica: &ReplicaFolder) -> Option<Worker> {
    let arguments = [
        b"worker".as_slice(),
        b"--folder",
        replica.path().as_os_str().as_bytes(),
    ];
    // It may be on its way from our own user to the folder's.
    let users = [Owner::of(replica.path()).ok()?.uid, Owner::own().uid];
    let process = fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let command = fs::read(process.path().join("cmdline")).ok()?;
        let words = command.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let words: Vec<_> = words.collect();
        let is_named = words.windows(arguments.len()).any(|some| some == arguments);
        // Anybody may write anything into an argument list.
        (is_named && runs_as(pid, &users)).then(|| ProcessIdentity::of(pid).ok())?
    })?;
    Worker::recognise_of(&process, &users)
}

/// Tells the worker of this folder one thing and returns what it answers.
///
/// # Errors
///
/// The system's; [`ErrorKind::TimedOut`] after 2 s; [`ErrorKind::InvalidData`] for an answer that is not ours.
pub(super) async fn tell(
    replica: &ReplicaFolder,
    command: &WorkerCommand,
) -> io::Result<WorkerAnswer> {
    tokio::time::timeout(PATIENCE, exchange(replica, command))
        .await
        .map_err(|_| io::Error::from(ErrorKind::TimedOut))?
}

async fn exchange(replica: &ReplicaFolder, command: &WorkerCommand) -> io::Result<WorkerAnswer> {
    /// An answer holds one status, a refusal and a few numbers.
    const MOST: u64 = folder::MOST_STATUS + (8 << 10);
    let owner = Owner::of(replica.path())?;
    let path = HeldSocket::of(owner, &replica.worker_socket())?;
    let mut stream = UnixStream::connect(path.as_path()).await?;
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = Vec::new();
    let mut reader = BufReader::new(stream.take(MOST));
    reader.read_until(b'\n', &mut answer).await?;
    Ok(serde_json::from_slice(&answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_has_not_said_who_it_is_is_found_by_its_folder() {
        let place = tempfile::tempdir().unwrap();
        let replica = ReplicaFolder::at(place.path().join("web.alice~0~0"));
        fs::create_dir(replica.path()).unwrap();
        let program = place.path().join("worker.sh");
        use std::os::unix::fs::OpenOptionsExt;
        let mut file = fs::OpenOptions::new();
        let file = file.write(true).create(true).truncate(true).mode(0o755);
        let script = "#!/bin/sh\nwhile [ -e \"$3\" ]; do sleep 0.1; done\n";
        io::Write::write_all(&mut file.open(&program).unwrap(), script.as_bytes()).unwrap();

        assert!(search(&replica).is_none());
        let worker = Worker::start(&program, &replica, None, None).unwrap();
        let owner = Owner::own();
        let identity = ProcessIdentity::of(worker.pid).unwrap();
        // The kernel lets the parent go on a moment before it shows the new command line.
        let found = async {
            loop {
                match search(&replica) {
                    Some(found) => break found,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        let patience = Duration::from_secs(10);
        let found = tokio::time::timeout(patience, found).await.unwrap();
        assert_eq!(found.pid, worker.pid);
        assert_eq!(Worker::recognise(&identity, owner).unwrap().pid, worker.pid);
        let impostor = ProcessIdentity {
            start_ticks: identity.start_ticks + 1,
            ..identity.clone()
        };
        assert!(Worker::recognise(&impostor, owner).is_none());
        // Of somebody else's folder it is no worker, whatever stands there.
        let ids = "54321:54321:".parse::<portreeve_api::local::Ids>().unwrap();
        assert!(Worker::recognise(&identity, Owner::from(&ids)).is_none());

        fs::remove_dir_all(replica.path()).unwrap();
        worker.ended().await.unwrap();
        // Reaped: nothing is left that could be taken for it.
        assert!(!identity.is_alive());
    }

    #[test]
    fn a_program_that_is_missing_is_told_and_leaves_no_process() {
        let place = tempfile::tempdir().unwrap();
        let replica = ReplicaFolder::at(place.path());
        let refused = Worker::start(Path::new("/nowhere/portreeve"), &replica, None, None);
        assert_eq!(refused.unwrap_err(), Errno::ENOENT);
    }
}
