//! What the kernel says about itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use portreeve::port::{PortRange, PortRanges};
use rustix::fs::{Access, access};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use sha2::{Digest, Sha256};

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

/// A number made of the machine's own, which is nobody else's to know (machine-id(5)); `-` where it has none, as in
/// many containers.
pub(crate) fn machine_id() -> String {
    let text = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    machine_number(&text)
}

fn machine_number(text: &str) -> String {
    let id = text.trim();
    if id.is_empty() {
        return "-".to_owned();
    }
    let digest = Sha256::new()
        .chain_update(b"portreeve machine\0")
        .chain_update(id)
        .finalize();
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The numbers that the kernel may give to outgoing connections: its range without what is reserved from it.
///
/// # Errors
///
/// The system's, or [`io::ErrorKind::InvalidData`].
pub(crate) fn ephemeral() -> io::Result<PortRanges> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let reserved = fs::read_to_string("/proc/sys/net/ipv4/ip_local_reserved_ports")?;
    parse_ephemeral(&range, &reserved).ok_or_else(|| {
        let words = format!("{:?} without {:?}", range.trim(), reserved.trim());
        io::Error::new(io::ErrorKind::InvalidData, words)
    })
}

fn parse_ephemeral(range: &str, reserved: &str) -> Option<PortRanges> {
    let (first, last) = range.trim().split_once(char::is_whitespace)?;
    let range = PortRange::new(first.parse().ok()?, last.trim().parse().ok()?)?;
    let reserved = PortRanges::try_from(reserved.trim().to_owned()).ok()?;
    if reserved.is_empty() {
        return Some(PortRanges::new([range]));
    }
    let left = range.iter().filter(|port| !reserved.contains(*port));
    Some(PortRanges::new(left.map(PortRange::single)))
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
    fn reserved_ports_are_not_ephemeral() {
        let shown =
            |range, reserved| parse_ephemeral(range, reserved).map(|ranges| ranges.to_string());
        assert_eq!(
            shown("32768\t60999\n", "\n").as_deref(),
            Some("32768-60999")
        );
        assert_eq!(
            shown("32768\t60999\n", "8080,40000-40009\n").as_deref(),
            Some("32768-39999,40010-60999")
        );
        assert_eq!(shown("60999 32768", ""), None);
        assert_eq!(shown("", ""), None);
    }

    #[test]
    fn a_machine_is_told_apart_without_telling_its_own_number() {
        let one = machine_number("0123456789abcdef0123456789abcdef\n");
        assert_eq!(one.len(), 16);
        assert_eq!(one, machine_number("0123456789abcdef0123456789abcdef"));
        assert_ne!(one, machine_number("1123456789abcdef0123456789abcdef"));
        assert!(!"0123456789abcdef0123456789abcdef".contains(&one));
        assert_eq!(machine_number("\n"), "-");
    }

    #[test]
    fn this_kernel_tells_its_range_and_its_boot() {
        assert!(!ephemeral().unwrap().is_empty());
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
