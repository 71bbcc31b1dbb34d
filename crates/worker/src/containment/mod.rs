//! The rungs of the ladder: how the processes of one run are held together, killed whole and known to be gone.
//!
//! The shim starts everything of a run inside its [`Hold`]; whoever follows a run whose shim is dead ends it by
//! the same. A hold is never the only way: the shim adopts every orphan and walks the tree below it under each
//! rung, and what a dead shim left is also looked for by what it inherited (see `backend/remains.rs`).
//!
//! Invariant: the process that opens a hold is inside only for the moment in which it starts another.

mod cgroup;
mod freezer;
mod oom;
mod pid_namespace;

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portreeve::identity::Run;
use portreeve_api::containment::{Containment, Rung, remove_tree, tree};

use crate::process::{self, Stat};

pub(crate) use cgroup::{PROBE, ProbeGroup};
pub(crate) use oom::OomCount;
pub(crate) use pid_namespace::init;

use cgroup::RunGroup;
use freezer::FreezerGroup;
use pid_namespace::Namespace;

/// What holds the processes of one run.
#[derive(Debug)]
pub(crate) enum Hold {
    /// A control group of version 2.
    Cgroup(RunGroup),
    /// A namespace of process numbers.
    PidNamespace(Namespace),
    /// A control group of version 1 that can be frozen.
    Freezer(FreezerGroup),
    /// Only the tree below the shim.
    ProcessTree,
}

impl Hold {
    /// That of this run. Makes nothing.
    pub(crate) fn of(containment: &Containment, run: Run) -> Self {
        match (containment.rung, &containment.group) {
            (Rung::Cgroup, Some(group)) => Self::Cgroup(RunGroup::of(group, run)),
            (Rung::Freezer, Some(group)) => Self::Freezer(FreezerGroup::of(group, run)),
            (Rung::PidNamespace, _) => Self::PidNamespace(Namespace::default()),
            // A rung whose group nobody made holds nothing by itself.
            (Rung::ProcessTree | Rung::Cgroup | Rung::Freezer, _) => Self::ProcessTree,
        }
    }

    /// Makes it, for a shim that has not started anything yet. `init` are the arguments by which this program
    /// becomes the first process of a namespace, and `env` what that one is marked with.
    ///
    /// # Errors
    ///
    /// The system's; the run must not be started then, for it could not be held.
    pub(crate) fn prepare(&mut self, init: &[String], env: &[(String, String)]) -> io::Result<()> {
        match self {
            Self::Cgroup(group) => group.prepare(),
            Self::PidNamespace(namespace) => namespace.prepare(init, env),
            Self::Freezer(group) => group.prepare(),
            Self::ProcessTree => Ok(()),
        }
    }

    /// Does `start` so that a process it starts is inside from its first instruction.
    ///
    /// # Errors
    ///
    /// The system's; `start` was not called then.
    pub(crate) fn start<T>(&mut self, start: impl FnOnce() -> T) -> io::Result<T> {
        match self {
            Self::Cgroup(group) => group.start(start),
            Self::Freezer(group) => group.start(start),
            // The namespace is entered by being started, and the tree by being a child.
            Self::PidNamespace(_) | Self::ProcessTree => Ok(start()),
        }
    }

    /// Kills every process inside; repeated until none is left. What it cannot is tried by the walk.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Cgroup(group) => group.kill(),
            Self::PidNamespace(namespace) => namespace.kill(),
            Self::Freezer(group) => group.kill(),
            Self::ProcessTree => {}
        }
    }

    /// Whether no process is inside. Only a group can tell by itself; the other rungs are empty when the
    /// shim has no child, which it knows.
    ///
    /// # Errors
    ///
    /// The system's: unknown is not gone.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        match self {
            Self::Cgroup(group) => group.is_empty(),
            Self::Freezer(group) => group.is_empty(),
            Self::PidNamespace(_) | Self::ProcessTree => Ok(true),
        }
    }

    /// Ends what only serves the hold once nothing else is inside: the main process has ended and nobody may
    /// come and say that the rest is to be killed.
    pub(crate) fn close_if_unused(&self) {
        if let Self::PidNamespace(namespace) = self {
            namespace.close_if_unused();
        }
    }

    /// Becomes ready by `PRI` when [`Hold::is_empty`] may have another answer; to be asked then.
    pub(crate) fn changes(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Cgroup(group) => group.changes(),
            _ => None,
        }
    }

    /// Removes what was made of an empty hold; whether nothing is left of it.
    pub(crate) fn remove(&self) -> bool {
        match self {
            Self::Cgroup(group) => remove_tree(group.path()),
            Self::Freezer(group) => remove_tree(group.path()),
            Self::PidNamespace(_) | Self::ProcessTree => true,
        }
    }

    /// The control group of version 2 in which the run's sockets are made.
    pub(crate) fn group(&self) -> Option<&Path> {
        match self {
            Self::Cgroup(group) => Some(group.path()),
            _ => None,
        }
    }
}

/// The control group of version 2 of a run, if it has one: that in which its sockets are made.
pub(crate) fn group_of(containment: &Containment, run: Run) -> Option<PathBuf> {
    let group = containment.group.as_deref()?;
    (containment.rung == Rung::Cgroup).then(|| run_group(group, run))
}

/// The runs that have a group in this replica's, newest last.
pub(crate) fn runs_with_groups(containment: &Containment) -> Vec<Run> {
    let entries = containment
        .group
        .iter()
        .filter_map(|group| fs::read_dir(group).ok());
    let mut runs: Vec<Run> = entries
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix(PREFIX)?.parse().ok().map(Run)
        })
        .collect();
    runs.sort_unstable();
    runs
}

/// Whoever is anywhere in the replica's group but this process: to be asked only when no run and no shim of the
/// replica may live. A service may move to a group of its own beside that of its run, and its shim may be dead.
///
/// # Errors
///
/// The system's: there may be more.
pub(crate) fn strays(containment: &Containment) -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    let Some(replica) = &containment.group else {
        return Ok(found);
    };
    for group in tree(replica) {
        let members = match fs::read_to_string(group.join("cgroup.procs")) {
            Ok(members) => members,
            Err(cause) if process::is_gone(&cause) => continue,
            // It ended while it was read.
            Err(cause) if cause.raw_os_error() == Some(nix::errno::Errno::ENODEV as i32) => {
                continue;
            }
            Err(cause) => return Err(cause),
        };
        let pids = members.lines().filter_map(|line| line.parse().ok());
        let others = pids.filter(|pid| *pid != std::process::id());
        found.extend(others.filter_map(|pid| Stat::read(pid).ok()));
    }
    // A child of ours is a shim that is about to end: nobody can become one.
    found.retain(|one| !one.is_dead() && one.parent != std::process::id());
    Ok(found)
}

/// Begins the name of every run's group.
const PREFIX: &str = "run-";

fn run_group(replica: &Path, run: Run) -> PathBuf {
    replica.join(format!("{PREFIX}{run}"))
}

/// Whether the group that the kernel calls `id`, which is the inode of its folder, is `group` or below it, but not that
/// of its probes; `None` if there is no such group as `group`.
///
/// Cost: one look where it is `group` itself, as of a service that makes no groups of its own.
pub(crate) fn holds(group: &Path, id: u64) -> Option<bool> {
    if fs::metadata(group).ok()?.ino() == id {
        return Some(true);
    }
    let mut folders: Vec<_> = below(group)
        .filter(|one| *one != group.join(PROBE))
        .collect();
    let mut seen = 1;
    while let Some(folder) = folders.pop() {
        if fs::metadata(&folder).is_ok_and(|folder| folder.ino() == id) {
            return Some(true);
        }
        seen += 1;
        // A service may make groups of its own; far more than this is no service.
        if seen < MOST_GROUPS {
            folders.extend(below(&folder));
        }
    }
    Some(false)
}

const MOST_GROUPS: usize = 1024;

fn below(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path())
}

/// Moves this process, with all its threads, into a group.
fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Moves this process into `inside`, does `start`, and moves it back to `home`; whether it is back.
fn from_inside<T>(
    inside: &Path,
    home: &Path,
    start: impl FnOnce() -> T,
) -> io::Result<(T, io::Result<()>)> {
    enter(inside)?;
    let started = start();
    Ok((started, enter(home)))
}

/// Moves the worker to where it belongs, unless the agent, who may have the right to where it may not, did it or is
/// about to.
///
/// # Errors
///
/// The system's, if it is elsewhere after [`ADMISSION`]; then no run can be started.
pub(crate) async fn settle_worker(containment: &Containment) -> io::Result<()> {
    let mut refused = containment.admit_worker(std::process::id());
    let asked = tokio::time::Instant::now();
    while refused.is_err() && !is_settled(containment) && asked.elapsed() < ADMISSION {
        tokio::time::sleep(Duration::from_millis(5)).await;
        refused = containment.admit_worker(std::process::id());
    }
    if is_settled(containment) {
        Ok(())
    } else {
        refused
    }
}

fn is_settled(containment: &Containment) -> bool {
    let home = containment.group.as_ref().and_then(|group| {
        let replica = Path::new(group.file_name()?);
        Some(replica.join(Containment::WORKER))
    });
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    home.is_none_or(|home| groups.lines().any(|line| Path::new(line).ends_with(&home)))
}

/// How long the agent may take to move a worker that it has started.
const ADMISSION: Duration = Duration::from_secs(2);

/// Leaves the replica's group and removes it: for a worker whose agent is gone and nobody comes after.
pub(crate) fn leave_for_good(containment: &Containment) {
    if let Some(above) = containment
        .group
        .as_ref()
        .and_then(|group| group.parent()?.parent())
        && enter(above).is_ok()
    {
        _ = containment.remove();
    }
}

/// Makes a folder that may be there already.
fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => Err(cause),
        _ => Ok(()),
    }
}

/// `cause` with the group it is about.
fn about(group: &Path, cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("{}: {cause}", group.display()))
}
