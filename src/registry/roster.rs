//! A list by name whose copies share what they have in common.
//!
//! Invariant: names ascend, each once; no page is empty or holds more than [`PAGE`] entries. A copy copies
//! one pointer a page, and changing an entry of it one page: so a reader keeps its version for the price of a few
//! hundred bytes, and one flip among thousands of replicas is no rebuild of all of them.

use std::fmt::{self, Debug};
use std::ops::{Bound, Index, RangeBounds};
use std::sync::Arc;

/// How many entries one page holds at most.
const PAGE: usize = 64;

/// What a roster lists, and by which name.
pub trait Named {
    /// What tells two entries apart, and orders them.
    type Name: Ord;

    /// The entry's own.
    fn name(&self) -> &Self::Name;
}

/// Entries by name, ascending. Cheap to copy: see the module.
pub struct Roster<T> {
    pages: Vec<Arc<Vec<Arc<T>>>>,
    len: usize,
}

impl<T: Named> Roster<T> {
    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entry of this name. Cost: two binary searches.
    #[must_use]
    pub fn get(&self, name: &T::Name) -> Option<&Arc<T>> {
        let (page, entry) = self.place(name).ok()?;
        Some(&self.pages[page][entry])
    }

    /// Whether there is an entry of this name.
    #[must_use]
    pub fn contains_key(&self, name: &T::Name) -> bool {
        self.place(name).is_ok()
    }

    /// The entry at this place of the order.
    #[must_use]
    pub fn nth(&self, mut place: usize) -> Option<&Arc<T>> {
        for page in &self.pages {
            match page.get(place) {
                Some(entry) => return Some(entry),
                None => place -= page.len(),
            }
        }
        None
    }

    /// Every entry, by name.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Arc<T>> + Clone {
        self.pages.iter().flat_map(|page| page.iter())
    }

    /// Every name, ascending.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &T::Name> + Clone {
        self.values().map(|entry| entry.name())
    }

    /// Every name with its entry, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&T::Name, &Arc<T>)> + Clone {
        self.values().map(|entry| (entry.name(), entry))
    }

    /// The entries whose names are in the range. Cost: a binary search to the first, then each one given.
    pub fn range(
        &self,
        names: impl RangeBounds<T::Name>,
    ) -> impl Iterator<Item = (&T::Name, &Arc<T>)> {
        let (page, entry) = match names.start_bound() {
            Bound::Unbounded => (0, 0),
            Bound::Included(name) => self.place(name).unwrap_or_else(|place| place),
            Bound::Excluded(name) => match self.place(name) {
                Ok((page, entry)) => (page, entry + 1),
                Err(place) => place,
            },
        };
        let first = self.pages.get(page).map_or(&[][..], |page| &page[entry..]);
        let rest = self.pages.get(page + 1..).unwrap_or_default();
        let from = first.iter().chain(rest.iter().flat_map(|page| page.iter()));
        from.map(|entry| (entry.name(), entry))
            .take_while(move |(name, _)| match names.end_bound() {
                Bound::Unbounded => true,
                Bound::Included(end) => *name <= end,
                Bound::Excluded(end) => *name < end,
            })
    }

    /// Adds an entry, or replaces the one of its name. Cost: a copy of its page if that is shared.
    pub fn insert(&mut self, entry: Arc<T>) {
        match self.place(entry.name()) {
            Ok((page, at)) => Arc::make_mut(&mut self.pages[page])[at] = entry,
            Err((page, at)) => {
                self.len += 1;
                // Behind the last of a page is before the first of the next: the earlier one takes it.
                let Some(shared) = self.pages.get_mut(page) else {
                    self.pages.push(Arc::new(vec![entry]));
                    return;
                };
                let own = Arc::make_mut(shared);
                own.insert(at, entry);
                if own.len() > PAGE {
                    // Names mostly come in order: what is added at the end leaves full pages behind it.
                    let split = if at + 1 == own.len() { PAGE } else { PAGE / 2 };
                    let upper = own.split_off(split);
                    self.pages.insert(page + 1, Arc::new(upper));
                }
            }
        }
    }

    /// Takes an entry away.
    pub fn remove(&mut self, name: &T::Name) -> Option<Arc<T>> {
        let (page, at) = self.place(name).ok()?;
        let own = Arc::make_mut(&mut self.pages[page]);
        let gone = own.remove(at);
        if own.is_empty() {
            self.pages.remove(page);
        }
        self.len -= 1;
        Some(gone)
    }

    /// Every entry, to be changed in place but for its name. Cost: a copy of everything that is shared.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T>
    where
        T: Clone,
    {
        let pages = self.pages.iter_mut();
        let entries = pages.flat_map(|page| Arc::make_mut(page).iter_mut());
        entries.map(Arc::make_mut)
    }

    /// Where the name is, or where it would be put: page and place in it.
    fn place(&self, name: &T::Name) -> Result<(usize, usize), (usize, usize)> {
        let after = self.pages.partition_point(|page| page[0].name() <= name);
        let Some(page) = after.checked_sub(1) else {
            return Err((0, 0));
        };
        match self.pages[page].binary_search_by(|entry| entry.name().cmp(name)) {
            Ok(at) => Ok((page, at)),
            Err(at) => Err((page, at)),
        }
    }
}

impl<T> Clone for Roster<T> {
    fn clone(&self) -> Self {
        Self {
            pages: self.pages.clone(),
            len: self.len,
        }
    }
}

impl<T> Default for Roster<T> {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Named + Debug> Debug for Roster<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}

impl<T: Named + PartialEq> PartialEq for Roster<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self
                .values()
                .zip(other.values())
                .all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

impl<T: Named + Eq> Eq for Roster<T> {}

impl<T: Named> FromIterator<Arc<T>> for Roster<T> {
    fn from_iter<I: IntoIterator<Item = Arc<T>>>(entries: I) -> Self {
        let mut roster = Self::default();
        for entry in entries {
            roster.insert(entry);
        }
        roster
    }
}

impl<T: Named> Index<&T::Name> for Roster<T> {
    type Output = Arc<T>;

    /// # Panics
    ///
    /// If there is no entry of this name; [`Roster::get`] asks.
    fn index(&self, name: &T::Name) -> &Arc<T> {
        self.get(name).expect("the caller knows the name")
    }
}

impl<'a, T: Named> IntoIterator for &'a Roster<T> {
    type Item = (&'a T::Name, &'a Arc<T>);
    type IntoIter = Box<dyn Iterator<Item = Self::Item> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Entry(u16, u8);

    impl Named for Entry {
        type Name = u16;

        fn name(&self) -> &u16 {
            &self.0
        }
    }

    fn check(roster: &Roster<Entry>, model: &BTreeMap<u16, u8>) {
        let all: Vec<_> = roster.values().map(|it| (it.0, it.1)).collect();
        let expected: Vec<_> = model.iter().map(|(name, value)| (*name, *value)).collect();
        assert_eq!(all, expected);
        assert_eq!(roster.len(), model.len());
        let full = |page: &Arc<Vec<_>>| !page.is_empty() && page.len() <= PAGE;
        assert!(roster.pages.iter().all(full));
        for (place, name) in model.keys().enumerate() {
            assert_eq!(roster.nth(place).unwrap().0, *name);
        }
        assert!(roster.nth(model.len()).is_none());
    }

    proptest! {
        #[test]
        fn it_holds_what_a_plain_map_holds_and_a_copy_stays_as_it_was(
            ops in proptest::collection::vec((0..400_u16, any::<u8>(), 0..4_u8), 0..600),
            from in 0..400_u16,
            to in 0..400_u16,
        ) {
            let (mut roster, mut model) = (Roster::default(), BTreeMap::new());
            let mut copy = None;
            for (at, (name, value, what)) in ops.into_iter().enumerate() {
                if what == 0 {
                    let gone = roster.remove(&name).map(|it: Arc<Entry>| it.1);
                    prop_assert_eq!(gone, model.remove(&name));
                } else {
                    roster.insert(Arc::new(Entry(name, value)));
                    model.insert(name, value);
                }
                prop_assert_eq!(roster.get(&name).map(|it| it.1), model.get(&name).copied());
                if at == 200 {
                    copy = Some((roster.clone(), model.clone()));
                }
            }
            check(&roster, &model);
            if let Some((roster, model)) = copy {
                check(&roster, &model);
            }
            if from <= to {
                let ranged: Vec<_> = roster.range(from..to).map(|(name, _)| *name).collect();
                let expected: Vec<_> = model.range(from..to).map(|(name, _)| *name).collect();
                prop_assert_eq!(ranged, expected);
            }
            let after: Vec<_> = roster.range((Bound::Excluded(from), Bound::Unbounded)).collect();
            prop_assert_eq!(after.len(), model.range((Bound::Excluded(from), Bound::Unbounded)).count());
        }
    }

    #[test]
    fn names_that_come_in_order_fill_their_pages_and_a_change_copies_one_of_them() {
        let entries = (0..5000_u16).map(|name| Arc::new(Entry(name, 0)));
        let roster: Roster<Entry> = entries.collect();
        assert_eq!(roster.pages.len(), 5000_usize.div_ceil(PAGE));
        let mut changed = roster.clone();
        changed.insert(Arc::new(Entry(2500, 1)));
        let pages = roster.pages.iter().zip(&changed.pages);
        let copied = pages.filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!(copied, 1);
        assert_ne!(roster, changed);
    }
}
