//! Whose a listening socket is: the control group in which it was made, where the run has one of its own, and
//! its inode, held against the open files of processes.

use std::fs;
use std::io;
use std::path::PathBuf;

use portreeve::profile::ListenerOwner;
use portreeve_api::sockets::Listener;

use crate::{containment, process};

/// Whether a listener counts as the replica's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// It does.
    Own,
    /// It does not; the process that has it, where readable.
    Stranger(Option<Holder>),
    /// The open files of some process of the run cannot be read, by right or for want of descriptors, and no readable
    /// one has it.
    Unreadable,
}

/// Where everything of a run lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The process at or below which it does.
    pub pid: u32,
    /// The run's own control group of version 2, where it has one.
    pub group: Option<PathBuf>,
}

impl Root {
    /// That of processes which no control group holds.
    #[must_use]
    pub const fn below(pid: u32) -> Self {
        Self { pid, group: None }
    }
}

/// A process that has a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) comm: Option<String>,
}

/// Whether `listener` counts for a replica whose run lives at and below `root`.
pub(crate) fn ownership(
    listener: &Listener,
    owner: ListenerOwner,
    root: Option<&Root>,
) -> Ownership {
    match owner {
        ListenerOwner::Any => Ownership::Own,
        ListenerOwner::User if listener.uid == rustix::process::getuid().as_raw() => Ownership::Own,
        ListenerOwner::User => Ownership::Stranger(holder(listener.inode)),
        ListenerOwner::Run => match root {
            Some(root) => of_run(listener, root),
            None => Ownership::Unreadable,
        },
    }
}

fn of_run(listener: &Listener, root: &Root) -> Ownership {
    let made_in = listener.cgroup.zip(root.group.as_deref());
    let proof = made_in.and_then(|(id, group)| containment::holds(group, id));
    if proof == Some(true) {
        return Ownership::Own;
    }
    // The usual case costs no look at every process of the host. A process of the run may also have been given a
    // socket that was made elsewhere.
    let mut near = process::near(root.pid);
    if near.any(|pid| has_socket(pid, listener.inode).unwrap_or(false)) {
        return Ownership::Own;
    }
    // Where some process cannot be read, for want of descriptors say, it may be a member.
    let Ok(below) = process::all_descendants(root.pid) else {
        return Ownership::Unreadable;
    };
    let (mut unreadable, mut forbidden) = (false, false);
    for pid in std::iter::once(root.pid).chain(below.iter().map(|stat| stat.pid)) {
        match has_socket(pid, listener.inode) {
            Ok(true) => return Ownership::Own,
            Ok(false) => {}
            // One that ended meanwhile has nothing.
            Err(cause) if process::is_gone(&cause) => {}
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => forbidden = true,
            Err(_) => unreadable = true,
        }
    }
    // Of one whose files we may not read, the group of the socket tells enough.
    if unreadable || forbidden && proof.is_none() {
        Ownership::Unreadable
    } else {
        Ownership::Stranger(holder(listener.inode))
    }
}

/// The processes of the run.
pub(crate) fn members(root: u32) -> impl Iterator<Item = u32> {
    let below = process::descendants(root).into_iter();
    std::iter::once(root).chain(below.map(|stat| stat.pid))
}

/// The first process that has the socket, of those whose open files we may read.
pub(crate) fn holder(inode: u64) -> Option<Holder> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pid = pids.find(|pid| has_socket(*pid, inode).unwrap_or(false))?;
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    Some(Holder {
        pid,
        comm: comm.map(|name| name.trim_end().to_owned()),
    })
}

/// Whether the process has the socket open.
fn has_socket(pid: u32, inode: u64) -> io::Result<bool> {
    Ok(sockets(pid)?.any(|own| own == inode))
}

/// The inodes of the sockets the process has open.
pub(crate) fn sockets(pid: u32) -> io::Result<impl Iterator<Item = u64>> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))?;
    Ok(files.flatten().filter_map(|file| {
        let target = fs::read_link(file.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?;
        inode.strip_suffix(']')?.parse().ok()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::port::Port;
    use portreeve_api::sockets::{Side, listeners};
    use std::net::TcpListener;

    #[test]
    fn a_listener_belongs_to_the_run_that_has_it_open_and_to_no_other() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = Port::new(socket.local_addr().unwrap().port()).unwrap();
        let [listener] = &listeners(Side::Tcp, port).unwrap()[..] else {
            panic!("not exactly one listener");
        };
        let me = std::process::id();
        assert_eq!(
            ownership(listener, ListenerOwner::Run, Some(&Root::below(me))),
            Ownership::Own
        );
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let found = ownership(listener, ListenerOwner::Run, Some(&Root::below(child.id())));
        child.kill().unwrap();
        child.wait().unwrap();
        let Ownership::Stranger(Some(holder)) = found else {
            panic!("{found:?}");
        };
        assert_eq!(holder.pid, me);
        assert!(holder.comm.is_some());
        assert_eq!(
            ownership(listener, ListenerOwner::User, None),
            Ownership::Own
        );
        assert_eq!(
            ownership(listener, ListenerOwner::Run, None),
            Ownership::Unreadable
        );
    }
}
