//! Room for the numbers of many ports that is not in use, by how much it is.

use smallvec::SmallVec;

/// The numbers of the ports of one grant: of a few inside the value, of more in room beside it.
pub(crate) type Room<T> = SmallVec<[T; 4]>;

/// Rooms of 8 elements, of 16, and so on, each kind for itself: a room that was made for a few never has to grow
/// for many, so that what is needed at once of each kind is all that is ever made.
#[derive(Debug)]
pub(crate) struct SpareRooms<T> {
    sizes: Vec<OneSize<T>>,
    /// How many of one size are made ahead at most.
    most: usize,
}

#[derive(Debug)]
struct OneSize<T> {
    spare: Vec<Room<T>>,
    /// How many there are, used and spare.
    made: usize,
}

/// The least room has 2^3 elements.
const LEAST_BITS: u32 = 3;

impl<T> Default for SpareRooms<T> {
    fn default() -> Self {
        Self::for_most(usize::MAX)
    }
}

impl<T> SpareRooms<T> {
    /// For so many users at most. Allocates nothing.
    pub(crate) const fn for_most(most: usize) -> Self {
        let sizes = Vec::new();
        Self { sizes, most }
    }

    /// Makes `room`, which is empty, the one that so many ports need. Allocates if more rooms of that size are
    /// needed at once than ever, and then for as many again: a load that sways a little needs no more.
    pub(crate) fn fit(&mut self, room: &mut Room<T>, ports: usize) {
        self.exchange(room, ports, |made| made.max(1));
    }

    /// As [`Self::fit`], and makes one at most.
    pub(super) fn fit_one(&mut self, room: &mut Room<T>, ports: usize) {
        self.exchange(room, ports, |_| 1);
    }

    fn exchange(&mut self, room: &mut Room<T>, ports: usize, more: impl Fn(usize) -> usize) {
        let wanted = (ports > room.inline_size()).then(|| size_for(ports));
        let is_right = match wanted {
            None => !room.spilled(),
            Some(size) => room.spilled() && size_of_room(room) == Some(size),
        };
        if is_right {
            return;
        }
        self.give(std::mem::take(room));
        let Some(size) = wanted else { return };
        while self.sizes.len() <= size {
            self.sizes.push(OneSize {
                spare: Vec::new(),
                made: 0,
            });
        }
        let of_size = &mut self.sizes[size];
        if of_size.spare.is_empty() {
            let still = self.most.saturating_sub(of_size.made).max(1);
            let more = more(of_size.made).min(still);
            let new = || Room::with_capacity(1 << (LEAST_BITS as usize + size));
            of_size.made += more;
            // When all of them are given back at once, nothing has to grow.
            of_size.spare.reserve(of_size.made);
            of_size.spare.extend(std::iter::repeat_with(new).take(more));
        }
        *room = of_size.spare.pop().unwrap_or_default();
    }

    /// Keeps `room`, which is empty, for another. One that was not made here goes, unless it is missed.
    pub(crate) fn give(&mut self, room: Room<T>) {
        let of_size = size_of_room(&room).and_then(|size| self.sizes.get_mut(size));
        if let Some(of_size) = of_size.filter(|it| it.spare.len() < it.made) {
            of_size.spare.push(room);
        }
    }

    /// The memory of what is spare.
    pub(crate) fn bytes(&self) -> usize {
        let spare = self.sizes.iter().flat_map(|of_size| &of_size.spare);
        let elements: usize = spare.map(Room::capacity).sum();
        elements * size_of::<T>()
    }

    /// Gives back what is spare.
    pub(super) fn compact(&mut self) {
        for of_size in &mut self.sizes {
            of_size.made = of_size.made.saturating_sub(of_size.spare.len());
            of_size.spare = Vec::new();
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.sizes.iter().all(|of_size| of_size.spare.is_empty())
    }
}

/// Which size so many elements need.
const fn size_for(elements: usize) -> usize {
    let bits = elements.next_power_of_two().ilog2();
    bits.saturating_sub(LEAST_BITS) as usize
}

/// The largest size that a room is enough for; `None` if it has no more than is in every value.
fn size_of_room<T>(room: &Room<T>) -> Option<usize> {
    let bits = room.capacity().ilog2().checked_sub(LEAST_BITS)?;
    room.spilled().then_some(bits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_that_were_once_enough_at_the_same_time_are_enough_in_any_order() {
        let mut rooms: SpareRooms<u32> = SpareRooms::default();
        let sizes = [5, 8, 9, 16, 17, 200, 1, 4, 6, 12];
        let mut held: Vec<Room<u32>> = vec![Room::new(); sizes.len()];
        let fill = |rooms: &mut SpareRooms<u32>, room: &mut Room<u32>, ports: usize| {
            room.clear();
            rooms.fit(room, ports);
            room.extend((0..4).cycle().take(ports));
        };
        for (room, ports) in held.iter_mut().zip(sizes) {
            fill(&mut rooms, room, ports);
        }
        let counted = allocation_counter::measure(|| {
            for turn in 0..1_000 {
                for (at, room) in held.iter_mut().enumerate() {
                    room.clear();
                    rooms.fit(room, 0);
                    assert!(!room.spilled(), "{at}");
                }
                for (at, room) in held.iter_mut().enumerate() {
                    fill(&mut rooms, room, sizes[(at + turn) % sizes.len()]);
                }
            }
        });
        assert_eq!(counted.count_total, 0);
    }
}
