//! What replicas hold on one host: compact slots that are used again, found by replica.

use smallvec::SmallVec;

use crate::identity::ReplicaId;
use crate::port::Protocol;

use super::span::Span;
use super::{GrantedPort, Phase, PortGrant, PortRequest, Side};

/// What one replica holds. Fits in a cache line: who holds a number is found by a walk over all.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) replica: ReplicaId,
    /// The names and protocols, in order; nothing in a slot that is not in use.
    request: Option<PortRequest>,
    /// The numbers of each port, in the same order.
    pub(super) spans: SmallVec<[Span; 4]>,
    pub(super) phase: Phase,
}

/// Every holding of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Holdings {
    slots: Vec<Holding>,
    vacant: Vec<u32>,
    index: Index,
}

#[expect(
    clippy::disallowed_types,
    reason = "looked up by replica, never walked: its order reaches no decision"
)]
type Index = std::collections::HashMap<ReplicaId, u32, foldhash::fast::FixedState>;

impl Holding {
    /// The names and protocols of its ports.
    pub(super) fn request(&self) -> &PortRequest {
        self.request
            .as_ref()
            .expect("only slots in use leave this file")
    }

    /// Its runs, port by port and side by side.
    pub(super) fn sides(&self) -> impl Iterator<Item = (Side, Span)> + '_ {
        self.ports()
            .flat_map(|(protocol, span)| Side::of(protocol).map(move |side| (side, span)))
    }

    /// Its ports.
    pub(super) fn ports(&self) -> impl Iterator<Item = (Protocol, Span)> + '_ {
        let wanted = self.request().as_slice().iter();
        wanted
            .zip(&self.spans)
            .map(|(wanted, span)| (wanted.protocol, *span))
    }

    /// Its ports, neighbours of one protocol joined.
    pub(super) fn runs(&self) -> impl Iterator<Item = (Protocol, Span)> + '_ {
        joined(self.ports())
    }

    /// How many numbers it holds; one that is held on both sides once.
    pub(super) fn count(&self) -> u32 {
        self.spans.iter().map(|span| span.count()).sum()
    }

    /// As a record of its own.
    pub(super) fn grant(&self) -> PortGrant {
        let wanted = self.request().as_slice().iter();
        let ports = wanted.zip(&self.spans).map(|(wanted, span)| GrantedPort {
            name: wanted.name.clone(),
            protocol: wanted.protocol,
            numbers: (*span).into(),
        });
        PortGrant {
            ports: ports.collect(),
        }
    }

    /// Holds what a record says.
    pub(super) fn record(&mut self, grant: &PortGrant) {
        self.request = Some(PortRequest::recorded(&grant.ports));
        self.spans = grant.ports.iter().map(|port| port.numbers.into()).collect();
    }

    fn is_in_use(&self) -> bool {
        self.request.is_some()
    }
}

/// Joins neighbours of one protocol.
pub(super) fn joined(
    ports: impl Iterator<Item = (Protocol, Span)>,
) -> impl Iterator<Item = (Protocol, Span)> {
    let mut ports = ports.peekable();
    std::iter::from_fn(move || {
        let (protocol, mut span) = ports.next()?;
        while let Some((_, next)) =
            ports.next_if(|(other, next)| *other == protocol && span.is_before(*next))
        {
            span.last = next.last;
        }
        Some((protocol, span))
    })
}

impl Holdings {
    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Every holding, in no order that means anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Holding> {
        self.slots.iter().filter(|holding| holding.is_in_use())
    }

    /// Every holding, ascending by replica. Cost: sorts them.
    pub(super) fn by_replica(&self) -> Vec<&Holding> {
        let mut all: Vec<&Holding> = self.iter().collect();
        all.sort_unstable_by_key(|holding| holding.replica);
        all
    }

    pub(super) fn get(&self, replica: ReplicaId) -> Option<&Holding> {
        let slot = *self.index.get(&replica)?;
        self.slots.get(slot as usize)
    }

    pub(super) fn get_mut(&mut self, replica: ReplicaId) -> Option<&mut Holding> {
        let slot = *self.index.get(&replica)?;
        self.slots.get_mut(slot as usize)
    }

    /// A holding of `replica`, which has none yet, without numbers.
    pub(super) fn insert(
        &mut self,
        replica: ReplicaId,
        request: PortRequest,
        phase: Phase,
    ) -> &mut Holding {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Holding {
                replica,
                request: None,
                spans: SmallVec::new(),
                phase,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 replicas fit in memory")
        });
        let before = self.index.insert(replica, slot);
        debug_assert_eq!(before, None, "{replica:?} took ports twice");
        let holding = &mut self.slots[slot as usize];
        holding.replica = replica;
        holding.request = Some(request);
        holding.phase = phase;
        holding
    }

    /// Takes the holding of `replica` out. [`Self::recycle`] it when it was looked at.
    pub(super) fn remove(&mut self, replica: ReplicaId) -> Option<(Slot, Holding)> {
        let slot = self.index.remove(&replica)?;
        let left = Holding {
            replica,
            request: None,
            spans: SmallVec::new(),
            phase: Phase::Tentative,
        };
        let holding = std::mem::replace(&mut self.slots[slot as usize], left);
        Some((Slot(slot), holding))
    }

    /// Makes the slot of a holding that was removed, and the room for its numbers, free for another.
    pub(super) fn recycle(&mut self, slot: Slot, holding: Holding) {
        let mut spans = holding.spans;
        spans.clear();
        self.slots[slot.0 as usize].spans = spans;
        self.vacant.push(slot.0);
    }

    /// Gives spare memory back.
    pub(super) fn compact(&mut self) {
        while self.slots.last().is_some_and(|last| !last.is_in_use()) {
            self.slots.pop();
        }
        let slots = self.slots.len();
        self.vacant.retain(|slot| (*slot as usize) < slots);
        for holding in &mut self.slots {
            holding.spans.shrink_to_fit();
        }
        self.slots.shrink_to_fit();
        self.vacant.shrink_to_fit();
        self.index.shrink_to_fit();
    }
}

/// Where a holding that was removed stood.
pub(super) struct Slot(u32);

/// Equal if the same replicas hold the same, wherever it is kept.
impl PartialEq for Holdings {
    fn eq(&self, other: &Self) -> bool {
        let whole = |holding: &&Holding| (holding.replica, holding.grant(), holding.phase);
        let (ours, theirs) = (self.by_replica(), other.by_replica());
        ours.iter().map(whole).eq(theirs.iter().map(whole))
    }
}

impl Eq for Holdings {}
