//! A set of hosts.

use std::collections::TryReserveError;

use crate::identity::HostId;

/// Hosts by number, ascending: one bit per number, as schedulers keep them.
///
/// Unions, intersections and differences go word by word in place, and allocate nothing once the set
/// has the room. Memory: an eighth of a byte per host number up to the highest ever put in. Two
/// sets are equal if they hold the same hosts.
#[derive(Default)]
pub struct HostSet {
    /// Host `h` is bit `h % 64` of word `h / 64`. Words at the end may be empty.
    words: Vec<u64>,
}

impl HostSet {
    /// The most host numbers there can be: a set takes at most 2 MiB.
    pub const MAX_HOSTS: u32 = 1 << 24;

    /// No host.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// No host, with room for those below `hosts`.
    ///
    /// # Errors
    ///
    /// [`TryReserveError`] if there is no memory for it.
    pub fn try_with_room(hosts: u32) -> Result<Self, TryReserveError> {
        let mut words = Vec::new();
        let most = hosts.min(Self::MAX_HOSTS).div_ceil(64);
        words.try_reserve_exact(most as usize)?;
        Ok(Self { words })
    }

    /// Makes room for the hosts below `hosts`.
    pub(super) fn reserve(&mut self, hosts: u32) {
        let most = hosts.min(Self::MAX_HOSTS).div_ceil(64) as usize;
        self.words.reserve(most.saturating_sub(self.words.len()));
    }

    /// The hosts of 64-bit words: host `h` is bit `h % 64` of word `h / 64`. Words beyond
    /// [`Self::MAX_HOSTS`] are ignored.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Self {
        let mut set = Self::new();
        set.set_words(words);
        set
    }

    /// Makes this the set that [`Self::from_words`] reads. Allocates nothing once it has the room.
    pub fn set_words(&mut self, words: &[u64]) {
        let most = Self::MAX_HOSTS as usize / 64;
        self.words.clear();
        self.words
            .extend_from_slice(words.get(..most).unwrap_or(words));
    }

    /// Makes this the set of the first `many` words that `write` is given to fill, which are empty before,
    /// without the hosts from `end` on. Allocates nothing once it has the room.
    pub(crate) fn refill(&mut self, many: u32, end: u32, write: impl FnOnce(&mut [u64])) {
        let end = end.min(Self::MAX_HOSTS);
        let many = many.min(end.div_ceil(64)) as usize;
        self.words.clear();
        self.words.resize(many, 0);
        write(&mut self.words);
        if let Some(last) = self.words.get_mut(end as usize / 64) {
            *last &= (1 << (end % 64)) - 1;
        }
    }

    /// Writes the set into words as [`Self::from_words`] reads them; hosts beyond the last word are
    /// left out. Returns how many hosts were written.
    pub fn write_words(&self, words: &mut [u64]) -> u64 {
        words.fill(0);
        let mut written = 0;
        for (to, from) in words.iter_mut().zip(&self.words) {
            *to = *from;
            written += u64::from(from.count_ones());
        }
        written
    }

    /// The words, as [`Self::from_words`] reads them; hosts beyond the last one are not in the set.
    #[must_use]
    pub fn as_words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a host; whether it was new. A number from [`Self::MAX_HOSTS`] on is no host, and is left
    /// out.
    pub fn insert(&mut self, host: HostId) -> bool {
        if host.0 >= Self::MAX_HOSTS {
            return false;
        }
        let (word, bit) = place(host);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let was = self.words[word];
        self.words[word] = was | bit;
        was & bit == 0
    }

    /// Takes a host out; whether it was there.
    pub fn remove(&mut self, host: HostId) -> bool {
        let (word, bit) = place(host);
        let Some(word) = self.words.get_mut(word) else {
            return false;
        };
        let was = *word;
        *word = was & !bit;
        was & bit != 0
    }

    /// Puts a host in or takes it out.
    pub(super) fn set(&mut self, host: HostId, is_in: bool) {
        if is_in {
            self.insert(host);
        } else {
            self.remove(host);
        }
    }

    /// Makes room for every host of `other`, so that putting them in allocates nothing.
    pub(super) fn room_as(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
    }

    /// Takes every host out, and keeps the room.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// Whether `host` is in it.
    #[must_use]
    pub fn contains(&self, host: HostId) -> bool {
        let (word, bit) = place(host);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// How many hosts it holds. Cost: a look at each word.
    #[must_use]
    pub fn len(&self) -> u64 {
        let ones = |word: &u64| u64::from(word.count_ones());
        self.words.iter().map(ones).sum()
    }

    /// Whether it holds no host.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Every host, ascending.
    pub fn iter(&self) -> impl Iterator<Item = HostId> + '_ {
        (0u32..)
            .zip(&self.words)
            .flat_map(|(word, bits)| Bits(*bits).map(move |bit| HostId(word * 64 + bit)))
    }

    /// Keeps those hosts for which `keep` says so, asking in ascending order.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(HostId) -> bool) {
        for (at, word) in (0u32..).zip(&mut self.words) {
            for bit in Bits(*word) {
                if !keep(HostId(at * 64 + bit)) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    /// Asks `keep` of the hosts that are also in `doubted`, and keeps all others.
    pub(super) fn retain_among(&mut self, doubted: &Self, mut keep: impl FnMut(HostId) -> bool) {
        for (at, (word, doubt)) in (0u32..).zip(self.words.iter_mut().zip(&doubted.words)) {
            for bit in Bits(*word & doubt) {
                if !keep(HostId(at * 64 + bit)) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    /// Keeps of the hosts that are also in `doubted` those of the words that `keep` returns, and all
    /// others. It is given the place of the word, and the hosts of that word.
    pub(super) fn retain_words(&mut self, doubted: &Self, mut keep: impl FnMut(u32, u64) -> u64) {
        for (at, (word, doubt)) in (0u32..).zip(self.words.iter_mut().zip(&doubted.words)) {
            let asked = *word & doubt;
            if asked != 0 {
                *word &= !asked | keep(at, asked);
            }
        }
    }

    /// Adds every host of `other`.
    pub fn extend(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Keeps the hosts that are in `other` too.
    pub fn intersect(&mut self, other: &Self) {
        self.words.truncate(other.words.len());
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Takes out every host of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= !other;
        }
    }

    /// Takes out every host of `other` that is not in `but`.
    pub(super) fn subtract_but(&mut self, other: &Self, but: &Self) {
        for (at, (word, other)) in self.words.iter_mut().zip(&other.words).enumerate() {
            *word &= !other | but.words.get(at).copied().unwrap_or(0);
        }
    }
}

/// The bits of one word, ascending.
pub(super) struct Bits(pub(super) u64);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

const fn place(host: HostId) -> (usize, u64) {
    (host.0 as usize / 64, 1 << (host.0 % 64))
}

impl Clone for HostSet {
    fn clone(&self) -> Self {
        Self {
            words: self.words.clone(),
        }
    }

    /// Without allocating, where the room is enough.
    fn clone_from(&mut self, source: &Self) {
        self.words.clone_from(&source.words);
    }
}

impl PartialEq for HostSet {
    fn eq(&self, other: &Self) -> bool {
        let common = self.words.len().min(other.words.len());
        let rest = self.words[common..].iter().chain(&other.words[common..]);
        self.words[..common] == other.words[..common] && rest.into_iter().all(|word| *word == 0)
    }
}

impl Eq for HostSet {}

impl std::fmt::Debug for HostSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|host| host.0))
            .finish()
    }
}

impl FromIterator<HostId> for HostSet {
    fn from_iter<I: IntoIterator<Item = HostId>>(hosts: I) -> Self {
        let mut set = Self::new();
        for host in hosts {
            set.insert(host);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set_of(hosts: &BTreeSet<u32>) -> HostSet {
        hosts.iter().copied().map(HostId).collect()
    }

    fn back(set: &HostSet) -> BTreeSet<u32> {
        set.iter().map(|host| host.0).collect()
    }

    #[test]
    fn a_set_reads_back_from_its_words_and_is_cut_at_the_last() {
        let set: HostSet = [0, 63, 64, 130].map(HostId).into_iter().collect();
        let mut words = [u64::MAX; 3];
        assert_eq!(set.write_words(&mut words), 4);
        assert_eq!(words, [1 | 1 << 63, 1, 4]);
        assert_eq!(HostSet::from_words(&words), set);
        assert_eq!(set.write_words(&mut words[..2]), 3);
    }

    #[test]
    fn a_number_that_no_host_can_have_costs_nothing_and_is_not_in_it() {
        let mut set = HostSet::new();
        for host in [HostSet::MAX_HOSTS, u32::MAX].map(HostId) {
            assert!(!set.insert(host));
            assert!(!set.contains(host) && !set.remove(host));
        }
        assert!(set.as_words().is_empty());
        assert!(set.insert(HostId(HostSet::MAX_HOSTS - 1)));
    }

    fn hosts() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0u32..400, 0..60)
    }

    proptest! {
        #[test]
        fn sets_of_words_agree_with_plain_sets(a in hosts(), b in hosts(), c in hosts()) {
            let (x, y, z) = (set_of(&a), set_of(&b), set_of(&c));
            prop_assert_eq!(&back(&x), &a);
            prop_assert_eq!(x.len(), a.len() as u64);
            prop_assert_eq!(x == y, a == b);
            let with = |change: &dyn Fn(&mut HostSet)| {
                let mut set = HostSet::new();
                set.clone_from(&x);
                change(&mut set);
                back(&set)
            };
            let kept = |keep: &dyn Fn(&u32) -> bool| -> BTreeSet<u32> {
                a.iter().copied().filter(keep).collect()
            };
            prop_assert_eq!(with(&|s| s.extend(&y)), &a | &b);
            prop_assert_eq!(with(&|s| s.intersect(&y)), &a & &b);
            prop_assert_eq!(with(&|s| s.subtract(&y)), &a - &b);
            prop_assert_eq!(with(&|s| s.subtract_but(&y, &z)), &a - &(&b - &c));
            prop_assert_eq!(with(&|s| s.retain(|h| h.0 % 3 == 0)), kept(&|h| h % 3 == 0));
            prop_assert_eq!(
                with(&|s| s.retain_among(&y, |h| h.0 % 3 == 0)),
                kept(&|h| h % 3 == 0 || !b.contains(h))
            );
        }
    }
}
