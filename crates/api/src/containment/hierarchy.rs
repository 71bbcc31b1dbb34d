//! Where control groups are: read in what the kernel says of this process, never assumed.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::NotPossible;

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
                Self::Freezer | Self::Memory => {
                    controllers.split(',').any(|one| one == self.name())
                }
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

    pub(super) fn possible(self) -> Result<(), NotPossible> {
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
    [
        (r"\040", " "),
        (r"\011", "\t"),
        (r"\012", "\n"),
        (r"\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}

impl fmt::Display for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
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
        for text in [
            "",
            ":",
            "0::",
            "0:\n::/\n",
            " - ",
            "1 2 3 4 5 - cgroup2 x\n",
        ] {
            assert_eq!(Hierarchy::Unified.place(text, text), None, "{text:?}");
            assert_eq!(Hierarchy::Unified.place("0::/a\n", text), None, "{text:?}");
        }
    }
}
