//! Requests that wait: "any" leaves the numbers they fix alone.

use std::collections::BTreeMap;

use crate::identity::{HostId, ReplicaId};
use crate::port_pool::{Awaited, PortRequest, Want, WantedPort};

use super::host::Host;
use super::{Allocator, HostSet};

/// Who waits for what, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    requests: BTreeMap<ReplicaId, (Option<HostId>, PortRequest)>,
    /// The numbers of requests that take any host.
    pub(super) anywhere: Awaited,
}

impl Waiting {
    fn add(
        &mut self,
        replica: ReplicaId,
        wanted: Option<HostId>,
        request: &PortRequest,
        hosts: &mut [Option<Host>],
    ) {
        self.remove(replica, hosts);
        if let Some(awaited) = self.awaited(wanted, hosts) {
            awaited.add(request);
        }
        self.requests.insert(replica, (wanted, request.clone()));
    }

    fn remove(&mut self, replica: ReplicaId, hosts: &mut [Option<Host>]) -> Option<PortRequest> {
        let (wanted, request) = self.requests.remove(&replica)?;
        if let Some(awaited) = self.awaited(wanted, hosts) {
            awaited.remove(&request);
        }
        Some(request)
    }

    /// Counts anew for a host that has come to stand at `id`.
    pub(super) fn count_for(&self, id: HostId, hosts: &mut [Option<Host>]) {
        let Some(host) = hosts.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        host.awaited = Awaited::default();
        for (wanted, request) in self.requests.values() {
            if *wanted == Some(id) {
                host.awaited.add(request);
            }
        }
    }

    fn awaited<'a>(
        &'a mut self,
        wanted: Option<HostId>,
        hosts: &'a mut [Option<Host>],
    ) -> Option<&'a mut Awaited> {
        match wanted {
            None => Some(&mut self.anywhere),
            Some(id) => {
                let host = hosts.get_mut(id.0 as usize)?.as_mut()?;
                Some(&mut host.awaited)
            }
        }
    }
}

impl Allocator {
    /// Makes known that `replica` waits for `request`, on `host` or on any. From now on "any" draws
    /// none of the numbers it fixes there. Replaces what it waited for before; a grant to it, once
    /// committed, ends it.
    pub fn wait(&mut self, replica: ReplicaId, host: Option<HostId>, request: &PortRequest) {
        self.waiting.add(replica, host, request, &mut self.hosts);
    }

    /// `replica` waits no more. Whether it did.
    pub fn stop_waiting(&mut self, replica: ReplicaId) -> bool {
        let Some(request) = self.waiting.remove(replica, &mut self.hosts) else {
            return false;
        };
        let fixes = |port: &WantedPort| matches!(port.want, Want::Fixed(_));
        if request.as_slice().iter().any(fixes) {
            // What it fixed may be what an "any" waits for, wherever that is.
            let all: HostSet = self.hosts().map(|(id, _, _)| id).collect();
            self.freed.extend(&all);
        }
        true
    }
}
