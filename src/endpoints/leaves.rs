//! The entries of one version, shared with the versions before and after it.
//!
//! Two levels of chunks under one short root: to change one of N entries copies one chunk of each level.
//! What a copy costs is counting the holders of the chunks it shares, and memory in pieces above a kilobyte,
//! for which the allocator has no quick shelf; the sizes keep both low.

use std::slice;
use std::sync::Arc;

use crate::endpoints::Entry;

/// Entries by place, each with the revision of its last change and a bit that says whether it is listed.
#[derive(Debug)]
pub(super) struct Leaves<E: Entry> {
    branches: Arc<[Branch<E>]>,
    len: usize,
    listed: usize,
}

type Branch<E> = Arc<[Leaf<E>]>;

#[derive(Debug)]
struct Leaf<E: Entry> {
    /// Bit i: a default answer lists entry i.
    listed: u64,
    details: Arc<[Detail<E>]>,
}

/// An entry with the revision of its last change.
#[derive(Debug)]
pub(super) struct Detail<E: Entry> {
    pub(super) entry: E::Kept,
    pub(super) revision: u64,
}

/// Entries in a chunk: no more than a word has bits.
const LEAF: usize = 32;
/// Chunks in a branch.
const BRANCH: usize = 16;

impl<E: Entry> Leaves<E> {
    pub(super) fn new(details: &[Detail<E>]) -> Self {
        let branches = details.chunks(LEAF * BRANCH).map(|branch| {
            let leaves = branch.chunks(LEAF);
            leaves.map(Leaf::new).collect()
        });
        let branches: Arc<[Branch<E>]> = branches.collect();
        let leaves = branches.iter().flat_map(|branch| branch.iter());
        Self {
            listed: leaves.map(|leaf| leaf.listed.count_ones() as usize).sum(),
            len: details.len(),
            branches,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// How many a default answer lists.
    pub(super) const fn listed_len(&self) -> usize {
        self.listed
    }

    /// The entry at a place below [`Leaves::len`].
    pub(super) fn at(&self, place: usize) -> &Detail<E> {
        let leaf = &self.branches[place / LEAF / BRANCH][place / LEAF % BRANCH];
        &leaf.details[place % LEAF]
    }

    /// Puts an entry in the place of another. Copies what other versions share, once.
    pub(super) fn replace(&mut self, place: usize, detail: Detail<E>) {
        let branch = &mut Arc::make_mut(&mut self.branches)[place / LEAF / BRANCH];
        let leaf = &mut Arc::make_mut(branch)[place / LEAF % BRANCH];
        let bit = 1 << (place % LEAF);
        self.listed -= usize::from(leaf.listed & bit != 0);
        if E::of(&detail.entry).is_listed() {
            self.listed += 1;
            leaf.listed |= bit;
        } else {
            leaf.listed &= !bit;
        }
        Arc::make_mut(&mut leaf.details)[place % LEAF] = detail;
    }

    pub(super) fn iter(&self) -> Entries<'_, E> {
        Entries {
            branches: self.branches.iter(),
            leaves: [].iter(),
            details: [].iter(),
            left: self.len,
        }
    }

    pub(super) fn listed(&self) -> Listed<'_, E> {
        Listed {
            branches: self.branches.iter(),
            leaves: [].iter(),
            details: &[],
            bits: 0,
            left: self.listed,
        }
    }
}

impl<E: Entry> Leaf<E> {
    fn new(details: &[Detail<E>]) -> Self {
        let bits = details.iter().enumerate().map(|(place, detail)| {
            let listed = E::of(&detail.entry).is_listed();
            u64::from(listed) << place
        });
        Self {
            listed: bits.fold(0, |all, bit| all | bit),
            details: details.into(),
        }
    }
}

impl<E: Entry> Clone for Leaves<E> {
    fn clone(&self) -> Self {
        Self {
            branches: Arc::clone(&self.branches),
            ..*self
        }
    }
}

impl<E: Entry> Clone for Leaf<E> {
    fn clone(&self) -> Self {
        Self {
            listed: self.listed,
            details: Arc::clone(&self.details),
        }
    }
}

impl<E: Entry> Clone for Detail<E> {
    fn clone(&self) -> Self {
        Self {
            entry: self.entry.clone(),
            revision: self.revision,
        }
    }
}

/// Every entry in order, with the revision of its last change.
#[derive(Debug)]
pub struct Entries<'a, E: Entry> {
    branches: slice::Iter<'a, Branch<E>>,
    leaves: slice::Iter<'a, Leaf<E>>,
    details: slice::Iter<'a, Detail<E>>,
    left: usize,
}

impl<'a, E: Entry> Iterator for Entries<'a, E> {
    type Item = (&'a E, u64);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(detail) = self.details.next() {
                self.left -= 1;
                return Some((E::of(&detail.entry), detail.revision));
            }
            match self.leaves.next() {
                Some(leaf) => self.details = leaf.details.iter(),
                None => self.leaves = self.branches.next()?.iter(),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<E: Entry> ExactSizeIterator for Entries<'_, E> {}

impl<E: Entry> Clone for Entries<'_, E> {
    fn clone(&self) -> Self {
        Self {
            branches: self.branches.clone(),
            leaves: self.leaves.clone(),
            details: self.details.clone(),
            left: self.left,
        }
    }
}

/// The entries of a default answer in order.
#[derive(Debug)]
pub struct Listed<'a, E: Entry> {
    branches: slice::Iter<'a, Branch<E>>,
    leaves: slice::Iter<'a, Leaf<E>>,
    details: &'a [Detail<E>],
    /// Of `details`, which are still to come.
    bits: u64,
    left: usize,
}

impl<'a, E: Entry> Iterator for Listed<'a, E> {
    type Item = &'a E;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.bits != 0 {
                let place = self.bits.trailing_zeros() as usize;
                self.bits &= self.bits - 1;
                self.left -= 1;
                return Some(E::of(&self.details[place].entry));
            }
            match self.leaves.next() {
                Some(leaf) => (self.bits, self.details) = (leaf.listed, &leaf.details),
                None => self.leaves = self.branches.next()?.iter(),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<E: Entry> ExactSizeIterator for Listed<'_, E> {}

impl<E: Entry> Clone for Listed<'_, E> {
    fn clone(&self) -> Self {
        Self {
            branches: self.branches.clone(),
            leaves: self.leaves.clone(),
            ..*self
        }
    }
}
