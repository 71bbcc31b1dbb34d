//! What calls of any thread leave for the next cycle, in order.
//!
//! What hot calls leave has its room from the start: the stop and the end of each grant, each at most once before
//! the queue is taken, and the end of each wait. Reports bring the room for theirs.

use crate::allocator::HostState;
use crate::identity::{HostId, HostName, ReplicaId};
use crate::plugin_abi::context::{Context, Cycle, Limits};
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::room;
use crate::port::{Port, Protocol};
use crate::port_pool::{Foreign, NetworkSet, PortRequest, Stranger};
use crate::time::Monotonic;

/// What waits for the next cycle.
#[derive(Clone, Debug)]
pub(super) enum Queued {
    /// The stop of the grant in this slot was ordered.
    Begin(u32),
    /// The grant that was in this slot has ended.
    Confirm(u32),
    StopWaiting(ReplicaId),
    State(HostName, HostState),
    /// In which networks a host has an address, if it has said.
    Networks(HostName, Option<NetworkSet>),
    Foreign(Box<(HostName, Vec<Foreign>)>),
    Conflict(Box<RefusedBind>),
    Wait(Box<(ReplicaId, Option<HostId>, PortRequest)>),
}

/// A number that a replica could not bind.
#[derive(Clone, Debug)]
pub(super) struct RefusedBind {
    pub(super) host: HostName,
    pub(super) port: Port,
    pub(super) protocol: Protocol,
    pub(super) stranger: Stranger,
    pub(super) at: Monotonic,
}

impl Queued {
    /// The slot of a grant that it is about.
    const fn slot(&self) -> Option<u32> {
        match self {
            Self::Begin(slot) | Self::Confirm(slot) => Some(*slot),
            _ => None,
        }
    }

    /// Whether hot calls leave it.
    const fn is_hot(&self) -> bool {
        matches!(
            self,
            Self::Begin(_) | Self::Confirm(_) | Self::StopWaiting(_)
        )
    }
}

/// See the [module page](self).
#[derive(Debug)]
pub(super) struct Queue {
    entries: Vec<Queued>,
    /// How many of them hot calls left.
    hot: usize,
    /// How many of theirs there can be.
    most_hot: usize,
}

impl Queue {
    /// # Errors
    ///
    /// `PR_ENOMEM` if there is no memory for what hot calls may leave.
    pub(super) fn new(limits: Limits) -> Result<Self, Failure> {
        let most_hot = 2 * limits.allocs as usize + limits.waits as usize;
        Ok(Self {
            entries: room::list(most_hot, "room for releases")?,
            hot: 0,
            most_hot,
        })
    }

    /// Allocates nothing for what hot calls leave.
    pub(super) fn push(&mut self, queued: Queued) {
        if queued.is_hot() {
            self.hot += 1;
            debug_assert!(self.hot <= self.most_hot, "each grant ends once");
        } else {
            // Hot calls find their room behind it.
            let still = self.most_hot.saturating_sub(self.hot);
            self.entries.reserve(still + 1);
        }
        self.entries.push(queued);
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes out everything about the grants of some slots.
    pub(super) fn forget(&mut self, is_lost: impl Fn(u32) -> bool) {
        self.entries
            .retain(|queued| !queued.slot().is_some_and(&is_lost));
        self.hot = self.entries.iter().filter(|queued| queued.is_hot()).count();
    }
}

impl Cycle {
    /// Lets the allocator know what calls of other threads left in the register.
    pub(super) fn apply_queue(&mut self, context: &Context) {
        std::mem::swap(&mut context.register().queue, &mut self.queue);
        let mut entries = std::mem::take(&mut self.queue.entries);
        for queued in entries.drain(..) {
            let harmless = self.apply(context, queued);
            debug_assert!(harmless, "the register and the allocator disagree");
        }
        self.queue.entries = entries;
        self.queue.hot = 0;
    }

    /// Whether the allocator knew what it is about.
    fn apply(&self, context: &Context, queued: Queued) -> bool {
        let allocator = &self.allocator;
        match queued {
            Queued::Begin(slot) => {
                let replica = context.register().replica_in(slot);
                replica.is_some_and(|replica| allocator.begin_release(replica).is_ok())
            }
            Queued::Confirm(slot) => {
                let leaving = context.register().leaving(slot);
                let Some((replica, at, after)) = leaving else {
                    return false;
                };
                let known = allocator.confirm_release(replica, at, after).is_ok();
                context.register().leave(slot);
                known
            }
            Queued::StopWaiting(replica) => {
                // A grant may have ended it.
                allocator.stop_waiting(replica);
                true
            }
            // A host that was displaced or removed since is asked about nothing.
            Queued::State(name, state) => allocator
                .host_id(&name)
                .is_none_or(|host| allocator.set_host_state(host, state).is_ok()),
            Queued::Networks(name, networks) => allocator
                .host_id(&name)
                .is_none_or(|host| allocator.set_networks(host, networks).is_ok()),
            Queued::Foreign(report) => allocator
                .host_id(&report.0)
                .is_none_or(|host| allocator.set_foreign(host, &report.1).is_ok()),
            Queued::Conflict(refused) => {
                let host = allocator.host_id(&refused.host);
                host.is_none_or(|host| {
                    let (port, protocol) = (refused.port, refused.protocol);
                    allocator
                        .report_conflict(host, port, protocol, &refused.stranger, refused.at)
                        .is_ok()
                })
            }
            Queued::Wait(wait) => {
                let (replica, host, request) = &*wait;
                allocator.wait(*replica, *host, request);
                // What it waits for may have come free before it said so.
                allocator.look_again();
                true
            }
        }
    }
}
