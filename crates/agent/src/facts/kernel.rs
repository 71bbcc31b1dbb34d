//! What the kernel says about itself.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use portreeve::port::Port;
use portreeve_api::containment::{Ladder, Rung};
use portreeve_api::service_manager::{BackendKind, ServiceManager};
use portreeve_api::sockets::{Side, listeners};
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

/// What this host can do for the supervision of processes, in words: `NAME` or `NAME:VALUE`. Each was tried.
pub(crate) fn capabilities(ladder: &Ladder, backend: BackendKind) -> Vec<String> {
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
    match backend {
        BackendKind::Process => {
            if ladder.used() == Rung::Cgroup && names_groups_of_sockets() {
                able("owner-proof:cgroup");
            }
            able(&format!("containment:{}", ladder.used()));
        }
        // A unit is held by its manager, whatever rung there is.
        BackendKind::Systemd(ServiceManager::System) => able("containment:systemd-system"),
        BackendKind::Systemd(ServiceManager::User) => able("containment:systemd-user"),
    }
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
    fn a_machine_is_told_apart_without_telling_its_own_number() {
        let one = machine_number("0123456789abcdef0123456789abcdef\n");
        assert_eq!(one.len(), 16);
        assert_eq!(one, machine_number("0123456789abcdef0123456789abcdef"));
        assert_ne!(one, machine_number("1123456789abcdef0123456789abcdef"));
        assert!(!"0123456789abcdef0123456789abcdef".contains(&one));
        assert_eq!(machine_number("\n"), "-");
    }

    #[test]
    fn this_kernel_tells_its_boot() {
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
