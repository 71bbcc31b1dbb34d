//! Ids that C keeps: kind, context, slot and generation in 64 bits; never a pointer.
//!
//! An id is never given twice within a process: a slot is reused with a higher generation, and a later
//! context in the place of an ended one begins above all that the earlier one gave out.

use std::collections::VecDeque;

use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::constants::PR_ENOMEM;

/// What an id stands for. 0 is nothing's, so a zeroed id is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Context = 1,
    Transaction = 2,
    Alloc = 3,
    /// Of who waits; never given out.
    Wait = 4,
    Snap = 5,
    Watch = 6,
    /// A machine of the worker half, which has no context.
    Sup = 7,
}

/// An id, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle {
    kind: u32,
    place: u32,
    slot: u32,
    generation: u32,
}

const KIND_BITS: u32 = 4;
const PLACE_BITS: u32 = 8;
const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 28;
const _: () = assert!(KIND_BITS + PLACE_BITS + SLOT_BITS + GENERATION_BITS == u64::BITS);

/// How many contexts an id can tell apart.
pub(crate) const PLACES: usize = 1 << PLACE_BITS;
/// How many slots of one context an id can tell apart.
pub(crate) const SLOTS: u32 = 1 << SLOT_BITS;
/// The last generation: what has reached it rests for good.
pub(crate) const LAST_GENERATION: u32 = (1 << GENERATION_BITS) - 1;

impl Handle {
    pub(crate) const fn new(kind: Kind, place: u32, slot: u32, generation: u32) -> Self {
        debug_assert!((place as usize) < PLACES && slot < SLOTS && generation <= LAST_GENERATION);
        Self {
            kind: kind as u32,
            place,
            slot,
            generation,
        }
    }

    /// The handle that `id` spells.
    ///
    /// # Errors
    ///
    /// `PR_ESTALE` if it is of another kind.
    pub(crate) const fn read(id: u64, kind: Kind) -> Result<Self, Failure> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most 28 bits are left after the mask"
        )]
        const fn field(id: u64, shift: u32, bits: u32) -> u32 {
            ((id >> shift) & ((1 << bits) - 1)) as u32
        }
        let handle = Self {
            kind: field(id, u64::BITS - KIND_BITS, KIND_BITS),
            place: field(id, SLOT_BITS + GENERATION_BITS, PLACE_BITS),
            slot: field(id, GENERATION_BITS, SLOT_BITS),
            generation: field(id, 0, GENERATION_BITS),
        };
        if handle.kind == kind as u32 {
            Ok(handle)
        } else {
            Err(Failure::id("an id of another kind", id))
        }
    }

    pub(crate) const fn id(self) -> u64 {
        ((self.kind as u64) << (u64::BITS - KIND_BITS))
            | ((self.place as u64) << (SLOT_BITS + GENERATION_BITS))
            | ((self.slot as u64) << GENERATION_BITS)
            | self.generation as u64
    }

    /// What is kept in a slot of the same context.
    pub(crate) const fn alloc(self, slot: u32, generation: u32) -> Self {
        Self::new(Kind::Alloc, self.place, slot, generation)
    }

    /// Who waits in a slot of the same context.
    pub(crate) const fn wait(self, slot: u32, generation: u32) -> Self {
        Self::new(Kind::Wait, self.place, slot, generation)
    }

    /// The `number`th transaction of all contexts in a place.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "both parts are masked to their fields"
    )]
    pub(crate) const fn transaction(self, number: u64) -> Self {
        let slot = (number >> GENERATION_BITS) & (SLOTS as u64 - 1);
        let generation = number & LAST_GENERATION as u64;
        Self::new(
            Kind::Transaction,
            self.place,
            slot as u32,
            generation as u32,
        )
    }

    pub(crate) const fn is(self, kind: Kind) -> bool {
        self.kind == kind as u32
    }

    pub(crate) const fn slot(self) -> u32 {
        self.slot
    }

    pub(crate) const fn place(self) -> usize {
        self.place as usize
    }

    pub(crate) const fn generation(self) -> u32 {
        self.generation
    }

    /// That nothing lives under this handle (any more).
    pub(crate) const fn stale(self) -> Failure {
        Failure::id("nothing lives under this id", self.id())
    }
}

/// Values of one context under handles.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    kind: Kind,
    place: u32,
    /// Above every generation of earlier contexts in this place.
    first_generation: u32,
    highest_generation: u32,
    most: u32,
    /// Slots that are not free: with what lives, or with what ended and was not freed yet.
    used: u32,
    slots: Vec<Slot<T>>,
    /// Oldest first, so that generations rise evenly.
    free: VecDeque<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    is_live: bool,
    /// What lives here, or lived here last.
    value: Option<T>,
}

impl<T> Slots<T> {
    /// Room for `most` values, taken now.
    ///
    /// # Errors
    ///
    /// `PR_ENOMEM` if there is no memory for them.
    pub(crate) fn new(kind: Kind, context: Handle, most: u32) -> Result<Self, Failure> {
        let mut slots = Vec::new();
        let mut free = VecDeque::new();
        let room = most as usize;
        let reserved = slots
            .try_reserve_exact(room)
            .and_then(|()| free.try_reserve_exact(room));
        reserved.map_err(|_| Failure::value(PR_ENOMEM, "room for grants", u64::from(most)))?;
        Ok(Self {
            kind,
            place: context.place,
            first_generation: context.generation,
            highest_generation: context.generation,
            most,
            used: 0,
            slots,
            free,
        })
    }

    /// The handle that the next value gets.
    ///
    /// # Errors
    ///
    /// `PR_ELIMIT` if there are as many as may be.
    pub(crate) fn next(&self) -> Result<Handle, Failure> {
        self.next_after(0)
    }

    /// The handle that a value gets which is kept after `others` more.
    ///
    /// # Errors
    ///
    /// As [`Slots::next`].
    pub(crate) fn next_after(&self, others: u32) -> Result<Handle, Failure> {
        let used = u64::from(self.used) + u64::from(others);
        let full = Failure::limit("grants", used + 1, u64::from(self.most));
        if used >= u64::from(self.most) {
            return Err(full);
        }
        let others = others as usize;
        let (slot, generation) = match self.free.get(others) {
            Some(slot) => (*slot, self.slots[*slot as usize].generation),
            None => match u32::try_from(self.slots.len() + others - self.free.len()) {
                Ok(slot) if slot < SLOTS => (slot, self.first_generation),
                _ => return Err(full),
            },
        };
        Ok(Handle::new(self.kind, self.place, slot, generation))
    }

    /// Keeps a value.
    ///
    /// # Errors
    ///
    /// As [`Slots::next`].
    pub(crate) fn insert(&mut self, value: T) -> Result<Handle, Failure> {
        self.insert_with(|_| value)
    }

    /// Keeps the value that is made of the one that ended in the same slot last.
    ///
    /// # Errors
    ///
    /// As [`Slots::next`].
    pub(crate) fn insert_with(
        &mut self,
        make: impl FnOnce(Option<T>) -> T,
    ) -> Result<Handle, Failure> {
        let handle = self.next()?;
        if self.free.pop_front().is_none() {
            self.slots.push(Slot {
                generation: handle.generation,
                is_live: false,
                value: None,
            });
        }
        let slot = &mut self.slots[handle.slot as usize];
        slot.value = Some(make(slot.value.take()));
        slot.is_live = true;
        self.used += 1;
        Ok(handle)
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.slot as usize)?;
        let same = slot.generation == handle.generation && self.place == handle.place;
        slot.value.as_ref().filter(|_| same && slot.is_live)
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        let same = slot.generation == handle.generation && self.place == handle.place;
        slot.value.as_mut().filter(|_| same && slot.is_live)
    }

    /// What lives in a slot.
    pub(crate) fn living(&self, slot: u32) -> Option<(Handle, &T)> {
        let there = self.slots.get(slot as usize)?;
        let value = there.value.as_ref().filter(|_| there.is_live)?;
        let handle = Handle::new(self.kind, self.place, slot, there.generation);
        Some((handle, value))
    }

    /// What lives in a slot, or lived there last.
    pub(crate) fn last_in(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.value.as_ref()
    }

    /// As [`Slots::last_in`].
    pub(crate) fn last_in_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    /// The first value in `from` or a later slot.
    pub(crate) fn next_living(&self, from: u32) -> Option<Handle> {
        let rest = self.slots.get(from as usize..)?;
        let (slot, living) = (from..).zip(rest).find(|(_, slot)| slot.is_live)?;
        Some(Handle::new(self.kind, self.place, slot, living.generation))
    }

    /// Ends a value; its handle is stale from here on, for ever. Its slot is used again once it is freed, and keeps
    /// the value until then.
    pub(crate) fn end(&mut self, handle: Handle) -> Option<&mut T> {
        self.get(handle)?;
        let slot = &mut self.slots[handle.slot as usize];
        slot.is_live = false;
        if slot.generation < LAST_GENERATION {
            slot.generation += 1;
            self.highest_generation = self.highest_generation.max(slot.generation);
        }
        slot.value.as_mut()
    }

    /// Lets a slot be used again, after all others that are free, whose value ended.
    pub(crate) fn free(&mut self, slot: u32) {
        self.used -= 1;
        if self.is_usable(slot) {
            self.free.push_back(slot);
        }
    }

    /// Lets a slot be used again, before all others that are free, whose value ended.
    pub(crate) fn free_first(&mut self, slot: u32) {
        self.used -= 1;
        if self.is_usable(slot) {
            self.free.push_front(slot);
        }
    }

    /// What has reached the last generation rests for good.
    fn is_usable(&self, slot: u32) -> bool {
        let slot = &self.slots[slot as usize];
        debug_assert!(!slot.is_live, "what is freed has ended");
        slot.generation < LAST_GENERATION
    }

    /// Ends a value and frees its slot.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        self.end(handle)?;
        let value = self.slots[handle.slot as usize].value.take();
        self.free(handle.slot);
        value
    }

    /// The memory of its slots, used or not.
    pub(crate) fn bytes(&self) -> u64 {
        let slots = self.slots.capacity() * size_of::<Slot<T>>();
        (slots + self.free.capacity() * size_of::<u32>()) as u64
    }

    /// The highest generation any of its handles has or had.
    pub(crate) const fn highest_generation(&self) -> u32 {
        self.highest_generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(most: u32) -> Slots<u32> {
        let context = Handle::new(Kind::Context, 7, 0, 5);
        Slots::new(Kind::Alloc, context, most).unwrap()
    }

    #[test]
    fn an_id_spells_its_handle() {
        let handle = Handle::new(Kind::Alloc, 255, SLOTS - 1, LAST_GENERATION);
        assert_eq!(Handle::read(handle.id(), Kind::Alloc).unwrap(), handle);
        assert!(Handle::read(handle.id(), Kind::Context).is_err());
        assert!(Handle::read(0, Kind::Context).is_err());
    }

    #[test]
    fn a_reused_slot_never_answers_to_an_old_id() {
        // abi 13
        let mut slots = slots(1);
        let first = slots.insert(0).unwrap();
        slots.remove(first);
        let mut newest = first;
        for round in 1..=1 << 20 {
            newest = slots.insert(round).unwrap();
            assert!(slots.get(first).is_none());
            assert_eq!(slots.remove(newest), Some(round));
        }
        assert!(slots.remove(newest).is_none());
        assert_eq!(slots.highest_generation(), 5 + (1 << 20) + 1);
    }

    #[test]
    fn the_next_handles_are_known_before_their_values_come() {
        let mut slots = slots(4);
        let known: Vec<_> = (0..3).map(|value| slots.insert(value).unwrap()).collect();
        slots.remove(known[1]);
        slots.remove(known[0]);
        let next: Vec<_> = (0..3).map(|at| slots.next_after(at).unwrap()).collect();
        assert!(slots.next_after(3).is_err());
        let came: Vec<_> = (0..3).map(|value| slots.insert(value).unwrap()).collect();
        assert_eq!(next, came);
    }

    #[test]
    fn a_full_context_refuses_and_stays_unchanged() {
        let mut slots = slots(2);
        let first = slots.insert(1).unwrap();
        slots.insert(2).unwrap();
        assert!(slots.insert(3).is_err());
        assert_eq!(slots.get(first), Some(&1));
    }

    #[test]
    fn an_id_of_another_context_is_stale() {
        let mut slots = slots(2);
        let mine = slots.insert(1).unwrap();
        let other = Handle::new(Kind::Alloc, 8, 0, mine.generation);
        assert!(slots.get(other).is_none());
    }

    #[test]
    fn an_ended_value_is_stale_at_once_and_its_slot_used_again_once_it_is_freed() {
        let mut slots = slots(2);
        let (first, second) = (slots.insert(1).unwrap(), slots.insert(2).unwrap());
        assert_eq!(slots.end(first), Some(&mut 1));
        assert!(slots.get(first).is_none() && slots.end(first).is_none());
        // Nor does what will be its next id answer.
        let coming = Handle::new(Kind::Alloc, 7, 0, first.generation + 1);
        assert!(slots.get(coming).is_none());
        assert!(slots.insert(3).is_err());
        assert_eq!(slots.last_in(0), Some(&1));
        slots.free(0);
        let again = slots.insert_with(|before| before.unwrap() + 9).unwrap();
        assert_eq!((again, slots.get(again)), (coming, Some(&10)));
        assert_eq!(slots.living(1), Some((second, &2)));
    }
}
