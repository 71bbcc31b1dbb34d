//! What the calls of a cycle need room for, taken when the context is made and used again by each of them.

use crate::allocator::HostSet;
use crate::identity::{HostId, ReplicaId};
use crate::plugin_abi::constants::PR_ENOMEM;
use crate::plugin_abi::context::{Limits, MarkHere};
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::handle::Handle;
use crate::plugin_abi::register::Key;
use crate::plugin_abi::reserve::{Answer, Wish};
use crate::plugin_abi::room;
use crate::port::PortRange;
use crate::port_pool::{PortGrant, PortRequest, Why};

/// See the [module page](self).
#[derive(Debug)]
pub(super) struct Scratch {
    /// The lists of the next transaction, empty.
    pub(super) lists: Lists,
    /// What became of each want of a call.
    pub(super) answers: Vec<Answer>,
    /// What a replica held last.
    pub(super) former: PortGrant,
    /// What was taken for a replica.
    pub(super) numbers: Vec<PortRange>,
    /// What is against it.
    pub(super) why: Vec<Why>,
    pub(super) gang: Gang,
    pub(super) candidates: HostSet,
    pub(super) fitting: HostSet,
}

/// The wants of a gang with the same numbers.
#[derive(Debug)]
pub(super) struct Gang {
    /// Sorted, each with its place in the call.
    pub(super) keys: Vec<(Key, u32)>,
    /// What is known of each before numbers are looked for.
    pub(super) looked: Vec<Option<Answer>>,
    /// Those that have no numbers yet.
    pub(super) wishes: Vec<(Handle, Wish)>,
    pub(super) members: Vec<(HostId, ReplicaId)>,
}

/// What a transaction keeps of its course.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// What it took, in order.
    pub(super) taken: Vec<Handle>,
    /// What ended in it, in order, if it is a what-if.
    pub(super) given: Vec<Handle>,
    pub(super) marks: Vec<MarkHere>,
}

impl Scratch {
    /// # Errors
    ///
    /// `PR_ENOMEM` if there is no memory for it.
    pub(super) fn new(limits: Limits) -> Result<Self, Failure> {
        let (allocs, ports) = (limits.allocs as usize, PortRequest::MAX_NUMBERS as usize);
        let lists = Lists {
            taken: room::list(allocs, "room for a transaction")?,
            given: room::list(allocs, "room for a transaction")?,
            marks: room::list(MOST_MARKS, "room for marks")?,
        };
        Ok(Self {
            lists,
            answers: room::list(allocs, "room for answers")?,
            former: PortGrant {
                ports: room::list(ports, "room for numbers")?,
            },
            numbers: room::list(ports, "room for numbers")?,
            // Each side of each port, and the host.
            why: room::list(2 * ports + 1, "room for causes")?,
            gang: Gang {
                keys: room::list(allocs, "room for a gang")?,
                looked: room::list(allocs, "room for a gang")?,
                wishes: room::list(allocs, "room for a gang")?,
                members: room::list(allocs, "room for a gang")?,
            },
            candidates: hosts(limits)?,
            fitting: hosts(limits)?,
        })
    }
}

fn hosts(limits: Limits) -> Result<HostSet, Failure> {
    HostSet::try_with_room(limits.hosts)
        .map_err(|_| Failure::value(PR_ENOMEM, "room for hosts", limits.hosts.into()))
}

/// How many marks a transaction can have.
pub(super) const MOST_MARKS: usize = 1 << 16;
