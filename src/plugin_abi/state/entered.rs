//! One grant of a context, as the register has it and as readers share it.

use std::sync::Arc;

use crate::allocator::AfterRelease;
use crate::identity::{Incarnation, ReplicaId};
use crate::plugin_abi::border::handle::Handle;
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::state::board::HostNo;
use crate::plugin_abi::types::PrWant;
use crate::port::PortRange;
use crate::port_pool::{GrantedPort, PortGrant, Room};
use crate::time::Monotonic;

/// What a scheduler calls a replica; its incarnations share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) job: u64,
    pub(crate) step: u32,
    pub(crate) replica: u32,
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
pub(crate) type Numbers = Room<PortRange>;

/// A grant from reserve to release.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) key: Key,
    pub(crate) incarnation: u32,
    pub(crate) host: HostNo,
    pub(crate) profile: Arc<Profile>,
    pub(crate) numbers: Numbers,
    pub(crate) replica: ReplicaId,
    pub(crate) stage: Stage,
    pub(crate) reported: Reported,
    /// How it ended, until the allocator knows.
    pub(crate) leaving: Option<(Monotonic, AfterRelease)>,
    /// Whether it ended and is found by its key.
    pub(crate) is_former: bool,
    /// Whether readers are yet to be told of the slot.
    pub(crate) is_dirty: bool,
}

impl Entered {
    /// Its numbers with their names.
    pub(crate) fn ports(&self) -> impl Iterator<Item = GrantedPort> + '_ {
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
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) incarnation: u32,
    pub(crate) host: HostNo,
    pub(crate) profile: Arc<Profile>,
}

/// A grant as readers share it.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) handle: Handle,
    pub(crate) key: Key,
    pub(crate) incarnation: u32,
    pub(crate) host: HostNo,
    pub(crate) profile: Arc<Profile>,
    pub(crate) grant: PortGrant,
}

/// What the allocator calls the grant under `handle`. Not the scheduler's own numbers: one service
/// may have a replica 0 in each of many jobs.
pub(crate) fn replica_id(profile: &Profile, handle: Handle) -> ReplicaId {
    ReplicaId {
        service: profile.service_id,
        index: handle.slot(),
        incarnation: Incarnation(handle.generation()),
    }
}

/// How firm a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Tentative,
    Held,
    Releasing,
}

/// The newest report of a replica, for its record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reported {
    pub(crate) seq: u64,
    pub(crate) run: u32,
    pub(crate) state: u32,
    pub(crate) restarts: u32,
}
