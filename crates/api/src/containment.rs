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
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// A way to hold the processes of a run, the surest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
#[error("{0:?} is no containment; there are cgroup, pid-namespace, freezer and process-tree")]
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
}

/// A tree of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 2.
    Unified,
    /// Version 1 with the freezer.
    Freezer,
    /// Version 1 with the account of memory: holds nothing, but tells who was killed for want of it.
    Memory,
}

impl Hierarchy {
    /// The control group in which this process is.
    ///
    /// # Errors
    ///
    /// [`NotPossible::NotMounted`], [`NotPossible::Unreadable`].
    pub fn own(self) -> Result<PathBuf, NotPossible> {
        let read = |path: &'static str| {
            fs::read_to_string(path).map_err(|cause| NotPossible::Unreadable {
                path: path.into(),
                cause,
            })
        };
        let groups = read("/proc/self/cgroup")?;
        let mounts = read("/proc/self/mountinfo")?;
        self.place(&groups, &mounts)
            .ok_or(NotPossible::NotMounted { hierarchy: self })
    }

    /// The folder of the group that `/proc/PID/cgroup` names, by the mounts of `/proc/PID/mountinfo`.
    fn place(self, groups: &str, mounts: &str) -> Option<PathBuf> {
        let own = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let is_it = match self {
                Self::Unified => number == "0" && controllers.is_empty(),
                Self::Freezer | Self::Memory => controllers.split(',').any(|one| one == self.name()),
            };
            is_it.then_some(Path::new(path))
        })?;
        mounts.lines().find_map(|line| {
            // 36 35 98:0 ROOT POINT OPTIONS… - TYPE SOURCE SUPER-OPTIONS
            let (front, back) = line.split_once(" - ")?;
            let mut front = front.split(' ').skip(3);
            let (root, point) = (unescaped(front.next()?), unescaped(front.next()?));
            let mut back = back.split(' ');
            let (kind, options) = (back.next()?, back.nth(1)?);
            let is_it = match self {
                Self::Unified => kind == "cgroup2",
                Self::Freezer | Self::Memory => {
                    kind == "cgroup" && options.split(',').any(|one| one == self.name())
                }
            };
            // Of a container's own group only what is below may be mounted.
            let below = own.strip_prefix(&root).ok().filter(|_| is_it)?;
            Some(Path::new(&point).join(below))
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Unified => "version 2",
            Self::Freezer => "freezer",
            Self::Memory => "memory",
        }
    }

    fn possible(self) -> Result<(), NotPossible> {
        static TRIES: AtomicU64 = AtomicU64::new(0);
        let own = self.own()?;
        let number = TRIES.fetch_add(1, Ordering::Relaxed);
        let try_out = own.join(format!("portreeve-try-{}-{number}", std::process::id()));
        let refused = |path: &Path, cause| NotPossible::Refused {
            path: path.to_owned(),
            cause,
        };
        if let Err(cause) = fs::create_dir(&try_out)
            && cause.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(refused(&try_out, cause));
        }
        let needed = match self {
            Self::Unified => "cgroup.kill",
            Self::Freezer => "freezer.state",
            Self::Memory => "memory.oom_control",
        };
        let found = try_out.join(needed).exists();
        fs::remove_dir(&try_out).map_err(|cause| refused(&try_out, cause))?;
        if !found {
            return Err(NotPossible::TooOld { needed });
        }
        // Whoever moves processes between groups must own what the groups have in common.
        let door = own.join("cgroup.procs");
        match fs::OpenOptions::new().write(true).open(&door) {
            Ok(_) => Ok(()),
            Err(cause) => Err(refused(&door, cause)),
        }
    }
}

/// What a mount table writes as `\ooo`.
fn unescaped(text: &str) -> String {
    [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
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
    #[error("no control groups ({}) are mounted here", hierarchy.name())]
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

    const HYBRID: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        36 31 0:33 / /sys/fs/cgroup/freezer rw,relatime shared:7 - cgroup cgroup rw,freezer\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn groups_are_found_in_a_hybrid_and_in_a_unified_machine() {
        let groups = "6:freezer:/batch\n1:cpu,cpuacct:/\n0::/system.slice/a b.service\n";
        let place = |hierarchy: Hierarchy, mounts| hierarchy.place(groups, mounts);
        assert_eq!(
            place(Hierarchy::Unified, HYBRID).unwrap(),
            Path::new("/sys/fs/cgroup/unified/system.slice/a b.service")
        );
        assert_eq!(
            place(Hierarchy::Freezer, HYBRID).unwrap(),
            Path::new("/sys/fs/cgroup/freezer/batch")
        );
        let unified = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup rw,nsdelegate\n";
        assert_eq!(
            place(Hierarchy::Unified, unified).unwrap(),
            Path::new("/sys/fs/cgroup/system.slice/a b.service")
        );
        assert_eq!(place(Hierarchy::Freezer, unified), None);
    }

    #[test]
    fn a_part_of_the_tree_that_is_mounted_elsewhere_is_read_as_that_part() {
        // A container without a namespace of control groups.
        let mounts = "41 31 0:38 /docker/abc /sys/fs/cgroup\\040here ro - cgroup2 cgroup2 rw\n";
        let place = |own: &str| Hierarchy::Unified.place(&format!("0::{own}\n"), mounts);
        assert_eq!(
            place("/docker/abc/x").unwrap(),
            Path::new("/sys/fs/cgroup here/x")
        );
        // It is not in what is mounted: nothing there is its own.
        assert_eq!(place("/docker/abcd"), None);
    }

    #[test]
    fn hostile_tables_name_no_group() {
        for text in ["", ":", "0::", "0:\n::/\n", " - ", "1 2 3 4 5 - cgroup2 x\n"] {
            assert_eq!(Hierarchy::Unified.place(text, text), None, "{text:?}");
            assert_eq!(Hierarchy::Unified.place("0::/a\n", text), None, "{text:?}");
        }
    }

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
