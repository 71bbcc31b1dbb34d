//! Who waits and could start now.

use std::collections::BTreeSet;

use crate::identity::{HostId, ReplicaId};
use crate::port::Port;
use crate::port_pool::{NetworkNo, PortRequest, Side};
use crate::time::Monotonic;

use super::{Allocator, HostSet, Need};

/// Those who wait for alike: one host or any, the same fixed numbers, and the same networks. If the oldest
/// of them does not fit, the others wait behind it.
type Kind = (Option<HostId>, Vec<(Side, Port)>, Vec<NetworkNo>);

impl Allocator {
    /// Who waits and fits now, oldest first, if there is new room since the last call. Of those who
    /// wait for alike (the same host or any, the same fixed numbers and networks) it stops at the first that no
    /// longer fits, so nobody overtakes an older one; who is being placed, or has other ports, is
    /// passed over. Each that is told counts as placed for those
    /// after it: one free number wakes one.
    ///
    /// This reserves nothing. Who is told and does not ask, or is refused, stays waiting, and is
    /// told again when there is new room. It uses up what [`Self::take_freed`] would tell: use one
    /// or the other.
    ///
    /// Cost: nothing without new room; else one question about all hosts for each that is told, and for
    /// each kind.
    pub fn take_woken(&self, now: Monotonic) -> Vec<ReplicaId> {
        let mut world = self.what_if(now);
        let mut woken = Vec::new();
        if self.take_freed().is_empty() || self.waiting.count() == 0 {
            return woken;
        }
        let waits: Vec<(ReplicaId, Option<HostId>, PortRequest)> = {
            let requests = self.waiting.requests();
            let waits = requests.by_age();
            waits
                .map(|(replica, wait)| (replica, wait.wanted, wait.request.clone()))
                .collect()
        };
        let mut stopped: BTreeSet<Kind> = BTreeSet::new();
        let mut fitting = HostSet::new();
        for (replica, wanted, request) in waits {
            let mut fixed = request.fixed().to_vec();
            fixed.sort_unstable();
            let kind = (wanted, fixed, request.networks().iter().collect());
            if stopped.contains(&kind) {
                continue;
            }
            let wish: Option<HostSet> = wanted.map(|host| [host].into_iter().collect());
            let need = Need::new(&request, replica.service);
            world.feasible_into(&need, wish.as_ref(), &mut fitting);
            let placed = fitting
                .iter()
                .any(|host| world.reserve(host, replica, &request, None).is_ok());
            if placed {
                woken.push(replica);
            } else if world.claim_against(replica).is_none() {
                stopped.insert(kind);
            }
        }
        woken
    }
}
