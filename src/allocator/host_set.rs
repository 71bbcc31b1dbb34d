//! A set of hosts.

use roaring::RoaringBitmap;

use crate::identity::HostId;

/// Hosts by number, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSet(RoaringBitmap);

impl HostSet {
    /// No host.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The hosts of 64-bit words: host `h` is bit `h % 64` of word `h / 64`. Words beyond the
    /// number space of hosts are ignored.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Self {
        let hosts = (0u32..).zip(words).flat_map(|(word, bits)| {
            (0u32..64)
                .filter(move |bit| bits >> bit & 1 == 1)
                .filter_map(move |bit| word.checked_mul(64)?.checked_add(bit))
        });
        Self(hosts.collect())
    }

    /// Writes the set into words as [`Self::from_words`] reads them; hosts beyond the last word are
    /// left out. Returns how many hosts were written.
    pub fn write_words(&self, words: &mut [u64]) -> u64 {
        words.fill(0);
        let mut written = 0;
        for host in &self.0 {
            let word = usize::try_from(host / 64)
                .ok()
                .and_then(|at| words.get_mut(at));
            let Some(word) = word else { break };
            *word |= 1 << (host % 64);
            written += 1;
        }
        written
    }

    /// Adds a host; whether it was new.
    pub fn insert(&mut self, host: HostId) -> bool {
        self.0.insert(host.0)
    }

    /// Adds every host of `other`.
    pub fn extend(&mut self, other: &Self) {
        self.0 |= &other.0;
    }

    /// Takes a host out; whether it was there.
    pub fn remove(&mut self, host: HostId) -> bool {
        self.0.remove(host.0)
    }

    /// Whether `host` is in it.
    #[must_use]
    pub fn contains(&self, host: HostId) -> bool {
        self.0.contains(host.0)
    }

    /// How many hosts it holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether it holds no host.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every host, ascending.
    pub fn iter(&self) -> impl Iterator<Item = HostId> + '_ {
        self.0.iter().map(HostId)
    }
}

impl FromIterator<HostId> for HostSet {
    fn from_iter<I: IntoIterator<Item = HostId>>(hosts: I) -> Self {
        Self(hosts.into_iter().map(|host| host.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_reads_back_from_its_words_and_is_cut_at_the_last() {
        let set: HostSet = [0, 63, 64, 130].map(HostId).into_iter().collect();
        let mut words = [u64::MAX; 3];
        assert_eq!(set.write_words(&mut words), 4);
        assert_eq!(words, [1 | 1 << 63, 1, 4]);
        assert_eq!(HostSet::from_words(&words), set);
        assert_eq!(set.write_words(&mut words[..2]), 3);
    }
}
