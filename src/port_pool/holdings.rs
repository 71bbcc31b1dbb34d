//! What replicas hold on one host: compact slots that are used again, found by replica.

use crate::identity::ReplicaId;
use crate::port::Protocol;

use super::number_runs::refill;
use super::replica_index::ReplicaIndex;
use super::span::Span;
use super::spare_rooms::{Room, SpareRooms};
use super::{GrantedPort, Phase, PortGrant, PortRequest, Side};

/// What one replica holds. Fits in a cache line: who holds a number is found by a walk over all.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) replica: ReplicaId,
    /// The names and protocols, in order. A slot that is not in use keeps its last one: the next
    /// holder is often of the same service, and a count that all hosts share is left alone.
    request: PortRequest,
    is_in_use: bool,
    /// The numbers of each port, in the same order.
    pub(super) spans: Spans,
    pub(super) phase: Phase,
}

/// The numbers of a few ports inside the slot, of more beside it.
type Spans = Room<Span>;

/// Every holding of a host.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    slots: Vec<Holding>,
    vacant: Vec<u32>,
    /// Room for the numbers of many ports that is not in use, whichever slot it was made for.
    spare_rooms: SpareRooms<Span>,
    /// How many are being released: mostly none, and then who holds is known to hold.
    releasing: u32,
    index: ReplicaIndex,
}

impl Holding {
    /// The names and protocols of its ports.
    pub(super) fn request(&self) -> &PortRequest {
        &self.request
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

    /// See [`run`].
    pub(super) fn run(&self, next: usize) -> Option<(Protocol, Span, usize)> {
        run(&self.request, &self.spans, next)
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
        self.request = PortRequest::recorded(&grant.ports);
        self.spans = grant.ports.iter().map(|port| port.numbers.into()).collect();
    }
}

/// The port at `next` and those after it that continue its numbers on the same protocol, as one run;
/// and where the next run begins.
pub(super) fn run(
    request: &PortRequest,
    spans: &[Span],
    next: usize,
) -> Option<(Protocol, Span, usize)> {
    let wanted = request.as_slice();
    let (protocol, mut span) = (wanted.get(next)?.protocol, *spans.get(next)?);
    let mut next = next + 1;
    while let (Some(port), Some(following)) = (wanted.get(next), spans.get(next)) {
        if port.protocol != protocol || !span.is_before(*following) {
            break;
        }
        span.last = following.last;
        next += 1;
    }
    Some((protocol, span, next))
}

impl Holdings {
    /// The memory beside the value itself, about.
    pub(super) fn bytes(&self) -> usize {
        // Of each slot an entry of the index, which keeps a third of its places free.
        const INDEXED: usize = 24;
        let rooms = self.slots.iter().map(|slot| &slot.spans);
        let rooms = rooms.filter(|room| room.spilled());
        let rooms: usize = rooms.map(|room| room.capacity() * size_of::<Span>()).sum();
        let rooms = rooms + self.spare_rooms.bytes();
        self.slots.capacity() * (size_of::<Holding>() + INDEXED) + rooms
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Every holding, in no order that means anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Holding> {
        self.slots.iter().filter(|holding| holding.is_in_use)
    }

    /// Every holding, ascending by replica. Cost: sorts them.
    pub(super) fn by_replica(&self) -> Vec<&Holding> {
        let mut all: Vec<&Holding> = self.iter().collect();
        all.sort_unstable_by_key(|holding| holding.replica);
        all
    }

    pub(super) fn get(&self, replica: ReplicaId) -> Option<&Holding> {
        let slot = self.slot(replica)?;
        self.slots.get(slot as usize)
    }

    pub(super) fn get_mut(&mut self, replica: ReplicaId) -> Option<&mut Holding> {
        let slot = self.slot(replica)?;
        self.slots.get_mut(slot as usize)
    }

    fn slot(&self, replica: ReplicaId) -> Option<u32> {
        self.index
            .find(replica, |slot| self.slots[slot as usize].replica)
    }

    /// A holding of `replica`, which has none yet, without numbers.
    pub(super) fn insert(
        &mut self,
        replica: ReplicaId,
        request: &PortRequest,
        phase: Phase,
    ) -> &mut Holding {
        debug_assert!(self.slot(replica).is_none(), "{replica:?} took ports twice");
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Holding {
                replica,
                request: request.clone(),
                is_in_use: false,
                spans: Spans::new(),
                phase,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 replicas fit in memory")
        });
        // When all of them are given back at once, nothing has to grow.
        let most = self.slots.len() - self.vacant.len();
        self.vacant.reserve(most);
        self.index.insert(replica, slot);
        let holding = &mut self.slots[slot as usize];
        let ports = request.as_slice().len();
        self.spare_rooms.fit(&mut holding.spans, ports);
        if !holding.request.is_same(request) {
            holding.request = request.clone();
        }
        holding.replica = replica;
        holding.phase = phase;
        holding.is_in_use = true;
        self.releasing += u32::from(phase == Phase::Releasing);
        holding
    }

    /// Moves the holding of `replica` to another phase; a replica without one is left alone.
    pub(super) fn set_phase(&mut self, replica: ReplicaId, phase: Phase) {
        if let Some(holding) = self.get_mut(replica) {
            let before = std::mem::replace(&mut holding.phase, phase);
            self.releasing += u32::from(phase == Phase::Releasing);
            self.releasing -= u32::from(before == Phase::Releasing);
        }
    }

    /// Whether any is being released.
    pub(super) const fn has_releasing(&self) -> bool {
        self.releasing > 0
    }

    /// Takes the holding of `replica` out. Its slot may be looked at until it is
    /// [recycled](Self::recycle).
    pub(super) fn remove(&mut self, replica: ReplicaId) -> Option<Slot> {
        let slots = &self.slots;
        let slot = self
            .index
            .remove(replica, |slot| slots[slot as usize].replica)?;
        let holding = &mut self.slots[slot as usize];
        holding.is_in_use = false;
        self.releasing -= u32::from(holding.phase == Phase::Releasing);
        Some(Slot(slot))
    }

    /// What a slot held that was taken out.
    pub(super) fn removed(&self, slot: &Slot) -> &Holding {
        &self.slots[slot.0 as usize]
    }

    /// Makes a slot that was taken out, and its room for numbers, free for another.
    pub(super) fn recycle(&mut self, slot: Slot) {
        let Slot(slot) = slot;
        let spans = &mut self.slots[slot as usize].spans;
        spans.clear();
        self.spare_rooms.fit(spans, 0);
        self.vacant.push(slot);
    }

    /// Puts back a holding that was taken out and not recycled.
    pub(super) fn put_back(&mut self, slot: Slot) {
        let Slot(slot) = slot;
        let holding = &mut self.slots[slot as usize];
        holding.is_in_use = true;
        self.releasing += u32::from(holding.phase == Phase::Releasing);
        self.index.insert(holding.replica, slot);
    }

    /// Gives spare memory back.
    pub(super) fn compact(&mut self) {
        while self.slots.last().is_some_and(|last| !last.is_in_use) {
            self.slots.pop();
        }
        let slots = self.slots.len();
        self.vacant.retain(|slot| (*slot as usize) < slots);
        for holding in self.slots.iter_mut().filter(|holding| !holding.is_in_use) {
            holding.request = PortRequest::recorded(&[]);
        }
        self.spare_rooms.compact();
        self.slots.shrink_to_fit();
        self.vacant.shrink_to_fit();
        self.index.compact();
    }
}

/// Where a holding that was taken out stood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot(u32);

impl Clone for Holding {
    fn clone(&self) -> Self {
        Self {
            replica: self.replica,
            request: self.request.clone(),
            is_in_use: self.is_in_use,
            spans: self.spans.clone(),
            phase: self.phase,
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.replica = source.replica;
        if !self.request.is_same(&source.request) {
            self.request = source.request.clone();
        }
        self.is_in_use = source.is_in_use;
        self.spans.clear();
        self.spans.extend_from_slice(&source.spans);
        self.phase = source.phase;
    }
}

impl Clone for Holdings {
    fn clone(&self) -> Self {
        let mut copy = Self::default();
        copy.clone_from(self);
        copy
    }

    fn clone_from(&mut self, source: &Self) {
        // What a slot needs no more is kept for those that need it.
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let needs = source.slots.get(at).map_or(0, |from| from.spans.len());
            if needs <= slot.spans.inline_size() {
                slot.spans.clear();
                self.spare_rooms.fit_one(&mut slot.spans, 0);
            }
        }
        self.slots.truncate(source.slots.len());
        let more = source.slots.len() / 4 + 8;
        let most = (source.slots.len() + more).next_power_of_two();
        self.slots.reserve(most - self.slots.len());
        for (at, from) in source.slots.iter().enumerate() {
            let needs = from.spans.len();
            if let Some(slot) = self.slots.get_mut(at) {
                slot.spans.clear();
                self.spare_rooms.fit_one(&mut slot.spans, needs);
                slot.clone_from(from);
                continue;
            }
            let mut spans = Spans::new();
            self.spare_rooms.fit_one(&mut spans, needs);
            spans.extend_from_slice(&from.spans);
            self.slots.push(Holding {
                replica: from.replica,
                request: from.request.clone(),
                is_in_use: from.is_in_use,
                spans,
                phase: from.phase,
            });
        }
        refill(&mut self.vacant, &source.vacant);
        self.releasing = source.releasing;
        self.index.clone_from(&source.index);
    }
}

/// Equal if the same replicas hold the same, wherever it is kept.
impl PartialEq for Holdings {
    fn eq(&self, other: &Self) -> bool {
        let whole = |holding: &&Holding| (holding.replica, holding.grant(), holding.phase);
        let (ours, theirs) = (self.by_replica(), other.by_replica());
        ours.iter().map(whole).eq(theirs.iter().map(whole))
    }
}

impl Eq for Holdings {}

#[cfg(test)]
mod tests {
    use super::super::testing::granted;
    use super::super::{Draw, PoolRanges, PortPool};
    use super::*;
    use crate::identity::{Incarnation, ServiceId};

    #[test]
    fn records_that_come_and_go_leave_no_room_behind() {
        let mut pool = PortPool::new(PoolRanges::default(), Draw::default());
        let who = ReplicaId {
            service: ServiceId(1),
            index: 0,
            incarnation: Incarnation(0),
        };
        let many = granted("a=1 b=3 c=5 d=7 e=9 f=11");
        for _ in 0..1000 {
            pool.restore(who, &many, Phase::Held);
            pool.release(who, None);
        }
        assert!(pool.holdings.spare_rooms.is_empty());
    }
}
