//! What the kernel says about itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// New at each boot of the machine.
///
/// # Errors
///
/// The system's, when `/proc` cannot be read.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// What this host can do for the supervision of processes, in words.
pub(crate) fn capabilities() -> Vec<String> {
    let mut words = Vec::new();
    if pidfd_open(getpid(), PidfdFlags::empty()).is_ok() {
        words.push("pidfd");
    }
    if rustix::process::child_subreaper().is_ok() {
        words.push("subreaper");
    }
    if own_cgroup().is_some_and(|folder| can_kill_groups(&folder)) {
        words.push("cgroup-v2-kill");
    }
    // Whose socket it is can be told by the inodes behind a process's descriptors.
    if fs::read_dir("/proc/self/fd").is_ok() && Path::new("/proc/net/tcp").exists() {
        words.push("owner-proof");
    }
    words.into_iter().map(str::to_owned).collect()
}

/// The version 2 control group of this process.
fn own_cgroup() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let mount = mounts
        .map(Path::new)
        .into_iter()
        .find(|mount| mount.join("cgroup.procs").exists())?;
    Some(mount.join(own))
}

/// Whether groups can be made below `folder` and be killed whole.
fn can_kill_groups(folder: &Path) -> bool {
    // The root group has no such file, but its children do; the file came with Linux 5.14.
    let below = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut groups = below.map(|entry| entry.path()).chain([folder.to_owned()]);
    access(folder, Access::WRITE_OK).is_ok()
        && groups.any(|group| group.join("cgroup.kill").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_tells_its_boot() {
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
