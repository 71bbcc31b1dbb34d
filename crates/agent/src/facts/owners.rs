//! Whose the strangers' sockets are, where that can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use portreeve::port::{Port, Protocol};
use portreeve::port_pool::Foreign;

use super::Granted;
use super::listeners::Socket;

/// The owners of strangers' sockets by inode. Processes are searched only when a new one shows up.
#[derive(Debug, Default)]
pub(super) struct Owners(BTreeMap<u64, Option<Owner>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    pid: u32,
    comm: Option<String>,
}

impl Owners {
    /// The sockets on numbers that no replica here was granted, one entry a number and side.
    pub(super) fn foreign(&mut self, sockets: Vec<Socket>, granted: &Granted) -> Vec<Foreign> {
        let mut foreign: BTreeMap<(Port, Protocol), BTreeSet<u64>> = BTreeMap::new();
        for socket in sockets {
            let place = (socket.port, socket.protocol);
            if !granted.contains(&place) {
                foreign.entry(place).or_default().insert(socket.inode);
            }
        }
        let inodes: BTreeSet<u64> = foreign.values().flatten().copied().collect();
        self.learn(&inodes);
        let named = foreign.into_iter().map(|((port, protocol), inodes)| {
            // Several sockets may share a number; the oldest process stands for all, so that the entry stays the same.
            let owner = inodes
                .iter()
                .filter_map(|inode| self.0.get(inode)?.as_ref())
                .min();
            Foreign {
                port,
                protocol,
                pid: owner.map(|owner| owner.pid),
                comm: owner.and_then(|owner| owner.comm.clone()),
            }
        });
        named.collect()
    }

    fn learn(&mut self, inodes: &BTreeSet<u64>) {
        self.0.retain(|inode, _| inodes.contains(inode));
        let unknown: BTreeSet<u64> = inodes
            .iter()
            .filter(|inode| !self.0.contains_key(inode))
            .copied()
            .collect();
        if unknown.is_empty() {
            return;
        }
        let mut found = search(&unknown);
        for inode in unknown {
            // One whose owner cannot be read is not searched again.
            self.0.insert(inode, found.remove(&inode));
        }
    }
}

/// The lowest process that has each of these sockets open, as far as `/proc` lets us look.
fn search(inodes: &BTreeSet<u64>) -> BTreeMap<u64, Owner> {
    let mut found: BTreeMap<u64, Owner> = BTreeMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        for descriptor in fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let target = fs::read_link(descriptor.path()).ok();
            let inode = target.as_ref().and_then(|target| {
                let inode = target
                    .to_str()?
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?;
                inode.parse().ok()
            });
            let Some(inode) = inode.filter(|inode| inodes.contains(inode)) else {
                continue;
            };
            if found.get(&inode).is_none_or(|owner| pid < owner.pid) {
                let comm = fs::read(process.path().join("comm")).ok();
                let comm = comm.map(|comm| String::from_utf8_lossy(&comm).trim_end().to_owned());
                found.insert(inode, Owner { pid, comm });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_strangers_listener_is_named_with_its_process_and_a_granted_one_is_not() {
        // P08: this very process is the stranger.
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.each_ref().map(|listener| {
            let port = listener.local_addr().unwrap().port();
            Port::new(port).unwrap()
        });
        let sockets = super::super::listeners::all(|port| ports.contains(&port)).unwrap();
        let granted = Granted::from([(ports[0], Protocol::Tcp), (ports[1], Protocol::Udp)]);
        let foreign = Owners::default().foreign(sockets, &granted);
        let comm = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(
            foreign,
            [Foreign {
                port: ports[1],
                protocol: Protocol::Tcp,
                pid: Some(std::process::id()),
                comm: Some(comm.trim_end().to_owned()),
            }]
        );
    }
}
