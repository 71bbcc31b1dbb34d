//! What the kernel says about itself.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use portreeve::port::{Port, PortRange, PortRanges};
use portreeve_api::containment::{Ladder, Rung};
use portreeve_api::sockets::{Side, listeners};
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

/// The numbers that the kernel may give to outgoing connections: its range without what is reserved from it.
///
/// # Errors
///
/// The system's, or [`io::ErrorKind::InvalidData`].
pub(super) fn ephemeral() -> io::Result<PortRanges> {
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

/// What this host can do for the supervision of processes, in words: `NAME` or `NAME:VALUE`. Each was tried.
pub(crate) fn capabilities(ladder: &Ladder) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut able = |word: &str| words.push(word.to_owned());
    if pidfd_open(getpid(), PidfdFlags::empty()).is_ok() {
        able("pidfd");
    }
    if rustix::process::child_subreaper().is_ok() {
        able("subreaper");
    }
    if ladder.possible().contains(&Rung::Cgroup) {
        able("cgroup-v2-kill");
    }
    // Whose socket it is can be told by the inodes behind a process's descriptors, also where the kernel names
    // the control group in which it was made.
    if fs::read_dir("/proc/self/fd").is_ok() && Path::new("/proc/net/tcp").exists() {
        able("owner-proof");
    }
    if ladder.used() == Rung::Cgroup && names_groups_of_sockets() {
        able("owner-proof:cgroup");
    }
    able(&format!("containment:{}", ladder.used()));
    for rung in ladder.possible() {
        able(&format!("rung:{rung}"));
    }
    words
}

/// Whether the kernel tells in which control group a listener was made (5.9): asked about one of our own.
fn names_groups_of_sockets() -> bool {
    let Ok(own) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else {
        return false;
    };
    let port = own.local_addr().ok().and_then(|at| Port::new(at.port()));
    let found = port.and_then(|port| listeners(Side::Tcp, port).ok());
    found.is_some_and(|found| found.iter().any(|one| one.cgroup.is_some()))
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
    fn this_kernel_tells_its_range_and_its_boot() {
        assert!(!ephemeral().unwrap().is_empty());
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
