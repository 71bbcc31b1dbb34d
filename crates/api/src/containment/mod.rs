//! How the processes of a run are kept together, so that none escapes its end: the rung of the ladder that a
//! replica began with, and what of the ladder this host allows.
//!
//! The agent chooses, once for a replica, and prepares what needs its rights; worker and shim use it. Where a
//! control group is, is read in `/proc/self/mountinfo` and `/proc/self/cgroup`, never assumed.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod hierarchy;
mod ladder;

pub use hierarchy::Hierarchy;
pub use ladder::{Choice, Ladder};

/// A way to hold the processes of a run, the surest first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// A control group of version 2 for each run, ended by `cgroup.kill` (Linux 5.14).
    Cgroup,
    /// A namespace of process numbers for each run: its end is the end of everything in it.
    PidNamespace,
    /// A control group of the freezer of version 1 for each run: nothing forks while it is killed.
    Freezer,
    /// The shim adopts every orphan, and kills by walking the tree below it until nothing is left.
    #[default]
    ProcessTree,
}

impl Rung {
    /// The whole ladder from the top.
    pub const LADDER: [Self; 4] = [
        Self::Cgroup,
        Self::PidNamespace,
        Self::Freezer,
        Self::ProcessTree,
    ];

    /// Its name in flags and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::PidNamespace => "pid-namespace",
            Self::Freezer => "freezer",
            Self::ProcessTree => "process-tree",
        }
    }

    /// Whether this process can hold others by it: tried, not guessed. Leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`NotPossible`] says what is missing.
    pub fn possible(self) -> Result<(), NotPossible> {
        match self {
            Self::Cgroup => Hierarchy::Unified.possible(),
            Self::Freezer => Hierarchy::Freezer.possible(),
            Self::PidNamespace => may_make_namespaces(),
            Self::ProcessTree => Ok(()),
        }
    }

    /// The kind of control group that it takes, if any.
    #[must_use]
    pub const fn hierarchy(self) -> Option<Hierarchy> {
        match self {
            Self::Cgroup => Some(Hierarchy::Unified),
            Self::Freezer => Some(Hierarchy::Freezer),
            Self::PidNamespace | Self::ProcessTree => None,
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Rung {
    type Err = UnknownRung;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::LADDER.into_iter().find(|rung| rung.name() == text);
        known.ok_or_else(|| UnknownRung(text.chars().take(40).collect()))
    }
}

/// A word that is no rung.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no containment; there are auto, cgroup, pid-namespace, freezer and process-tree")]
pub struct UnknownRung(String);

/// How one replica is held, from its first run to its last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Containment {
    /// The rung.
    #[serde(default)]
    pub rung: Rung,
    /// The replica's own control group, where the rung takes one: made by the agent, owned by the job's user.
    /// The worker and its shims are in [`Containment::WORKER`] below it, each run in a group beside that.
    #[serde(default)]
    pub group: Option<PathBuf>,
}

impl Containment {
    /// The child group of the worker and its shims: no end of a run reaches it.
    pub const WORKER: &str = "worker";

    /// Makes the replica's group, and hands it to `owner`, user and group, so that a worker without privileges
    /// can move processes in it. Done again, it is left as it is. Nothing for a rung without a group.
    ///
    /// # Errors
    ///
    /// The system's, with the path; the group may be there in part and is made whole the next time.
    pub fn prepare(&self, owner: Option<(u32, u32)>) -> io::Result<()> {
        let Some(group) = &self.group else {
            return Ok(());
        };
        let worker = group.join(Self::WORKER);
        fs::create_dir_all(&worker).map_err(|cause| about(&worker, &cause))?;
        // Whoever owns a group may make others in it, and each takes memory of the kernel. Not handed over.
        for (file, most) in [
            ("cgroup.max.descendants", MOST_GROUPS),
            ("cgroup.max.depth", DEEPEST_GROUP),
        ] {
            let limit = group.join(file);
            if owner.is_some() && limit.exists() {
                fs::write(&limit, most.to_string()).map_err(|cause| about(&limit, &cause))?;
            }
        }
        let Some((user, of)) = owner else {
            return Ok(());
        };
        for folder in [group, &worker] {
            let files = HANDED_OVER.map(|file| folder.join(file));
            // Each kind and age of group has some of them.
            let there = files.iter().filter(|file| file.exists());
            for path in std::iter::once(folder).chain(there) {
                std::os::unix::fs::chown(path, Some(user), Some(of))
                    .map_err(|cause| about(path, &cause))?;
            }
        }
        Ok(())
    }

    /// Moves the process `pid` to where the worker belongs; nothing for a rung without a group.
    ///
    /// # Errors
    ///
    /// The system's, with the path; the process is then where it was.
    pub fn admit_worker(&self, pid: u32) -> io::Result<()> {
        let Some(group) = &self.group else {
            return Ok(());
        };
        let door = group.join(Self::WORKER).join("cgroup.procs");
        fs::write(&door, pid.to_string()).map_err(|cause| about(&door, &cause))
    }

    /// Kills every process in the replica's group and below, its worker and shims too: for an agent whose replica is
    /// over, or has to be, and has no worker that would see to it. Whether none is left; `None` for a rung without a
    /// group, of which that cannot be told here. Does not wait: asked again a moment later, it may have another answer.
    #[must_use]
    pub fn end(&self) -> Option<bool> {
        let group = self.group.as_ref()?;
        match self.rung {
            // Without the file there is no group.
            Rung::Cgroup => _ = fs::write(group.join("cgroup.kill"), "1"),
            _ => end_frozen(group),
        }
        Some(!ladder::is_populated(group))
    }

    /// Removes the replica's group with everything below it; whether nothing of it is left. Ends no process: what
    /// still has one stays. A group can be busy for a moment after its last process ended.
    #[must_use]
    pub fn remove(&self) -> bool {
        let Some(group) = &self.group else {
            return true;
        };
        let gone = remove_tree(group);
        if gone && let Some(all) = group.parent() {
            // That of all replicas of this agent goes with the last of them.
            _ = fs::remove_dir(all);
        }
        gone
    }
}

/// What of a group its new owner must be able to write.
const HANDED_OVER: [&str; 6] = [
    "cgroup.procs",
    "cgroup.threads",
    "cgroup.subtree_control",
    "cgroup.kill",
    "tasks",
    "freezer.state",
];

/// Groups that a job may have in its own, and how deep; what runs containers of its own needs a few.
const MOST_GROUPS: usize = 1_000;
const DEEPEST_GROUP: usize = 16;

/// Removes a tree of empty control groups; whether it is gone. Bounded: of a tree that is larger than any job may
/// make, something stays.
#[must_use]
pub fn remove_tree(group: &Path) -> bool {
    let groups = tree(group);
    for below in groups.iter().rev() {
        // What is left of it keeps those above too.
        _ = fs::remove_dir(below);
    }
    !group.exists()
}

/// A group and those below it, parents before children; of a larger tree a part.
#[must_use]
pub fn tree(group: &Path) -> Vec<PathBuf> {
    let mut found = vec![group.to_owned()];
    let mut next = 0;
    while let Some(folder) = found.get(next).filter(|_| found.len() <= MOST_GROUPS) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let room = MOST_GROUPS * 2 - found.len();
        let below: Vec<_> = folders.map(|entry| entry.path()).take(room).collect();
        found.extend(below);
        next += 1;
    }
    found
}

/// Freezes a group of version 1, so that nothing in it forks, kills what is in it and below, and thaws it: a frozen
/// process does not end.
fn end_frozen(group: &Path) {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let groups = tree(group);
    let members = |group: &Path| {
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let pids = text.lines().filter_map(|line| line.parse::<i32>().ok());
        pids.collect::<Vec<_>>()
    };
    _ = fs::write(group.join("freezer.state"), "FROZEN");
    for one in &groups {
        let held = members(one).into_iter().filter_map(|pid| {
            let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty());
            Some((pid, process.ok()?))
        });
        let held: Vec<_> = held.collect();
        // Who is named again after it was pinned is inside, whatever its number meant before.
        let still = members(one);
        for (_, process) in held.iter().filter(|(pid, _)| still.contains(pid)) {
            _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
    for one in &groups {
        _ = fs::write(one.join("freezer.state"), "THAWED");
    }
}

fn about(path: &Path, cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("{}: {cause}", path.display()))
}

/// Whether this process may make namespaces of process numbers.
fn may_make_namespaces() -> Result<(), NotPossible> {
    /// `CAP_SYS_ADMIN`.
    const ADMINISTRATE: u32 = 21;
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).map_err(|cause| NotPossible::Unreadable {
        path: path.to_owned(),
        cause,
    })?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if effective.is_none_or(|mask| mask >> ADMINISTRATE & 1 == 0) {
        return Err(NotPossible::NoPrivilege);
    }
    if !Path::new("/proc/self/ns/pid_for_children").exists() {
        return Err(NotPossible::TooOld {
            needed: "/proc/self/ns/pid_for_children",
        });
    }
    Ok(())
}

/// Why a rung cannot be used here. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotPossible {
    /// There is no such tree of control groups.
    #[error("no control groups ({hierarchy}) are mounted here")]
    NotMounted {
        /// Which was looked for.
        hierarchy: Hierarchy,
    },
    /// What tells of them cannot be read.
    #[error("{}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// Groups cannot be made or filled.
    #[error(
        "{}: {cause}; run as root, or have the control group delegated (systemd: Delegate=yes)",
        path.display()
    )]
    Refused {
        /// The file or folder.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// The kernel does not offer it.
    #[error("this kernel has no {needed}")]
    TooOld {
        /// What is missing.
        needed: &'static str,
    },
    /// Only who administrates the machine may.
    #[error("it needs CAP_SYS_ADMIN, which this process has not")]
    NoPrivilege,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_written_as_they_are_read() {
        for rung in Rung::LADDER {
            assert_eq!(rung.to_string().parse(), Ok(rung));
            let json = serde_json::to_string(&rung).unwrap();
            assert_eq!(json, format!("\"{rung}\""));
        }
        assert!("cgroups".parse::<Rung>().is_err());
        // What an earlier version wrote.
        let none: Containment = serde_json::from_str("{}").unwrap();
        assert_eq!(none, Containment::default());
    }

    #[test]
    fn the_last_rung_is_always_there_and_trying_leaves_nothing() {
        for rung in Rung::LADDER {
            _ = rung.possible();
        }
        assert!(Rung::ProcessTree.possible().is_ok());
        let ours = format!("portreeve-try-{}-", std::process::id());
        for hierarchy in [Hierarchy::Unified, Hierarchy::Freezer] {
            let Ok(own) = hierarchy.own() else { continue };
            let left = fs::read_dir(own).into_iter().flatten().flatten();
            let mut left = left.filter_map(|entry| entry.file_name().into_string().ok());
            assert_eq!(left.find(|name| name.starts_with(&ours)), None);
        }
    }
}
