//! What the calls of a cycle need room for, taken when the context is made and used again by each of them.

use crate::allocator::HostSet;
use crate::identity::{HostId, ReplicaId};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::Handle;
use crate::plugin_abi::constants::PR_ENOMEM;
use crate::plugin_abi::cycle::reserve::{Answer, Wish};
use crate::plugin_abi::state::context::{Limits, MarkHere};
use crate::plugin_abi::state::register::Key;
use crate::plugin_abi::state::room;
use crate::port::PortRange;
use crate::port_pool::{PortGrant, PortRequest, Why};

/// See the [module page](self).
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The lists of the next transaction, empty.
    pub(crate) lists: Lists,
    /// What became of each want of a call.
    pub(crate) answers: Vec<Answer>,
    /// What a replica held last.
    pub(crate) former: PortGrant,
    /// What was taken for a replica.
    pub(crate) numbers: Vec<PortRange>,
    /// What is against it.
    pub(crate) why: Vec<Why>,
    pub(crate) gang: Gang,
    pub(crate) candidates: HostSet,
    pub(crate) fitting: HostSet,
}

/// The wants of a gang with the same numbers.
#[derive(Debug)]
pub(crate) struct Gang {
    /// Sorted, each with its place in the call.
    pub(crate) keys: Vec<(Key, u32)>,
    /// What is known of each before numbers are looked for.
    pub(crate) looked: Vec<Option<Answer>>,
    /// Those that have no numbers yet.
    pub(crate) wishes: Vec<(Handle, Wish)>,
    pub(crate) members: Vec<(HostId, ReplicaId)>,
}

/// What a transaction keeps of its course.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// What it took, in order.
    pub(crate) taken: Vec<Handle>,
    /// What ended in it, in order, if it is a what-if.
    pub(crate) given: Vec<Handle>,
    pub(crate) marks: Vec<MarkHere>,
}

impl Scratch {
    /// # Errors
    ///
    /// `PR_ENOMEM` if there is no memory for it.
    pub(crate) fn new(limits: Limits) -> Result<Self, Failure> {
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
pub(crate) const MOST_MARKS: usize = 1 << 16;
