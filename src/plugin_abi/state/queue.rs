//! What calls of any thread leave for the next cycle, in order.
//!
//! What hot calls leave has its room from the start: the stop and the end of each grant, each at most once before
//! the queue is taken, and the end of each wait. Reports bring the room for theirs, and a newer one takes the place of
//! an older one about the same: however often hosts report while no cycle begins, each is here once.

use std::collections::BTreeMap;

use crate::allocator::HostState;
use crate::identity::{HostId, HostName, ReplicaId};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::state::context::{Context, Cycle, Limits};
use crate::plugin_abi::state::room;
use crate::port::{Port, Protocol};
use crate::port_pool::{Foreign, NetworkSet, PortRequest, Stranger};
use crate::time::Monotonic;

/// What waits for the next cycle.
#[derive(Clone, Debug)]
pub(crate) enum Queued {
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
    Wait(Box<Wait>),
    /// A newer report about the same came after it.
    Superseded,
}

/// One who waits from now on.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) replica: ReplicaId,
    pub(crate) host: Option<HostId>,
    pub(crate) request: PortRequest,
    /// The pools have never heard of it.
    pub(crate) is_new: bool,
}

/// A number that a replica could not bind.
#[derive(Clone, Debug)]
pub(crate) struct RefusedBind {
    pub(crate) host: HostName,
    pub(crate) port: Port,
    pub(crate) protocol: Protocol,
    pub(crate) stranger: Stranger,
    pub(crate) at: Monotonic,
}

/// What a report is about: of two about the same, only the newer one counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    State(HostName),
    Networks(HostName),
    Foreign(HostName),
    Conflict(HostName, Port, Protocol),
    Wait(ReplicaId),
}

impl Queued {
    fn subject(&self) -> Option<Subject> {
        match self {
            Self::State(host, _) => Some(Subject::State(host.clone())),
            Self::Networks(host, _) => Some(Subject::Networks(host.clone())),
            Self::Foreign(report) => Some(Subject::Foreign(report.0.clone())),
            Self::Conflict(refused) => {
                let (port, protocol) = (refused.port, refused.protocol);
                Some(Subject::Conflict(refused.host.clone(), port, protocol))
            }
            Self::Wait(wait) => Some(Subject::Wait(wait.replica)),
            _ => None,
        }
    }

    const fn is_superseded(&self) -> bool {
        matches!(self, Self::Superseded)
    }

    /// The slot of a grant that it is about.
    const fn slot(&self) -> Option<u32> {
        match self {
            Self::Begin(slot) | Self::Confirm(slot) => Some(*slot),
            _ => None,
        }
    }
}

/// See the [module page](self).
#[derive(Debug)]
pub(crate) struct Queue {
    entries: Vec<Queued>,
    /// How many of them hot calls left.
    hot: usize,
    /// How many of theirs there can be.
    most_hot: usize,
    /// Where the newest report about each subject is.
    newest: BTreeMap<Subject, usize>,
    superseded: usize,
}

impl Queue {
    /// # Errors
    ///
    /// `PR_ENOMEM` if there is no memory for what hot calls may leave.
    pub(crate) fn new(limits: Limits) -> Result<Self, Failure> {
        let most_hot = 2 * limits.allocs as usize + limits.waits as usize;
        Ok(Self {
            entries: room::list(most_hot, "room for releases")?,
            hot: 0,
            most_hot,
            newest: BTreeMap::new(),
            superseded: 0,
        })
    }

    /// What a report leaves. Of two about the same the newer one stays, at the end; of two waits the older one, which
    /// keeps its place.
    pub(crate) fn push(&mut self, queued: Queued) {
        if let Some(subject) = queued.subject() {
            let is_wait = matches!(queued, Queued::Wait(_));
            match self.newest.get(&subject).copied() {
                Some(_) if is_wait => return,
                Some(older) => self.supersede(older),
                None => {}
            }
            self.newest.insert(subject, self.entries.len());
        }
        // Hot calls find their room behind it.
        let still = self.most_hot.saturating_sub(self.hot);
        self.entries.reserve(still + 1);
        self.entries.push(queued);
    }

    /// What a hot call leaves. Allocates nothing.
    pub(crate) fn push_hot(&mut self, queued: Queued) {
        self.hot += 1;
        self.entries.push(queued);
    }

    /// One who waited does not any more, as a report says.
    pub(crate) fn stop_waiting(&mut self, replica: ReplicaId) {
        if let Some(at) = self.newest.remove(&Subject::Wait(replica)) {
            let is_new = matches!(&self.entries[at], Queued::Wait(wait) if wait.is_new);
            self.supersede(at);
            if is_new {
                return;
            }
        }
        self.push(Queued::StopWaiting(replica));
    }

    /// What stands there counts no more. Once most do not, they are taken out.
    fn supersede(&mut self, at: usize) {
        self.entries[at] = Queued::Superseded;
        self.superseded += 1;
        if self.superseded > FEW && self.superseded > self.entries.len() / 2 {
            self.entries.retain(|queued| !queued.is_superseded());
            self.superseded = 0;
            self.find_newest();
        }
    }

    fn find_newest(&mut self) {
        let subjects = self.entries.iter().map(Queued::subject).zip(0..);
        self.newest = subjects
            .filter_map(|(subject, at)| Some((subject?, at)))
            .collect();
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len() - self.superseded
    }

    /// Takes out everything about the grants of some slots.
    pub(crate) fn forget(&mut self, is_lost: impl Fn(u32) -> bool) {
        let before = self.entries.len();
        self.entries
            .retain(|queued| !queued.slot().is_some_and(&is_lost));
        self.hot = self.hot.saturating_sub(before - self.entries.len());
        self.find_newest();
    }
}

/// So many superseded entries are not worth moving the others.
const FEW: usize = 64;

impl Cycle {
    /// Lets the allocator know what calls of other threads left in the register.
    pub(crate) fn apply_queue(&mut self, context: &Context) {
        std::mem::swap(&mut context.register().queue, &mut self.queue);
        let mut entries = std::mem::take(&mut self.queue.entries);
        for queued in entries.drain(..) {
            let harmless = self.apply(context, queued);
            debug_assert!(harmless, "the register and the allocator disagree");
        }
        self.queue.entries = entries;
        self.queue.hot = 0;
        self.queue.newest.clear();
        self.queue.superseded = 0;
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
                allocator.wait(wait.replica, wait.host, &wait.request);
                // What it waits for may have come free before it said so.
                allocator.look_again();
                true
            }
            Queued::Superseded => true,
        }
    }
}
