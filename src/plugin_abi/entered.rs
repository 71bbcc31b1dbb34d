//! One grant of a context, as the register has it and as readers share it.

use std::sync::Arc;

use crate::allocator::AfterRelease;
use crate::identity::{Incarnation, ReplicaId};
use crate::plugin_abi::board::HostNo;
use crate::plugin_abi::handle::Handle;
use crate::plugin_abi::profile::Profile;
use crate::plugin_abi::types::PrWant;
use crate::port::PortRange;
use crate::port_pool::{GrantedPort, PortGrant, Room};
use crate::time::Monotonic;

/// What a scheduler calls a replica; its incarnations share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) job: u64,
    pub(super) step: u32,
    pub(super) replica: u32,
}

impl From<&PrWant> for Key {
    fn from(want: &PrWant) -> Self {
        Self {
            job: want.job,
            step: want.step,
            replica: want.replica,
        }
    }
}

/// The numbers of each port of a profile, in its order.
pub(super) type Numbers = Room<PortRange>;

/// A grant from reserve to release.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) key: Key,
    pub(super) incarnation: u32,
    pub(super) host: HostNo,
    pub(super) profile: Arc<Profile>,
    pub(super) numbers: Numbers,
    pub(super) replica: ReplicaId,
    pub(super) stage: Stage,
    pub(super) reported: Reported,
    /// How it ended, until the allocator knows.
    pub(super) leaving: Option<(Monotonic, AfterRelease)>,
    /// Whether it ended and is found by its key.
    pub(super) is_former: bool,
    /// Whether readers are yet to be told of the slot.
    pub(super) is_dirty: bool,
}

impl Entered {
    /// Its numbers with their names.
    pub(super) fn ports(&self) -> impl Iterator<Item = GrantedPort> + '_ {
        let wanted = self.profile.request.as_slice().iter();
        wanted
            .zip(&self.numbers)
            .map(|(wanted, numbers)| GrantedPort {
                name: wanted.name.clone(),
                protocol: wanted.protocol,
                numbers: *numbers,
            })
    }
}

/// A new grant, without its numbers.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) incarnation: u32,
    pub(super) host: HostNo,
    pub(super) profile: Arc<Profile>,
}

/// A grant as readers share it.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) handle: Handle,
    pub(super) key: Key,
    pub(super) incarnation: u32,
    pub(super) host: HostNo,
    pub(super) profile: Arc<Profile>,
    pub(super) grant: PortGrant,
}

/// What the allocator calls the grant under `handle`. Not the scheduler's own numbers: one service
/// may have a replica 0 in each of many jobs.
pub(super) fn replica_id(profile: &Profile, handle: Handle) -> ReplicaId {
    ReplicaId {
        service: profile.service_id,
        index: handle.slot(),
        incarnation: Incarnation(handle.generation()),
    }
}

/// How firm a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Tentative,
    Held,
    Releasing,
}

/// The newest report of a replica, for its record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reported {
    pub(super) seq: u64,
    pub(super) run: u32,
    pub(super) state: u32,
    pub(super) restarts: u32,
}
