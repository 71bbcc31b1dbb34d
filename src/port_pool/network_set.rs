//! Named networks by number: in which of them a host has an address, and in which a request needs one.

/// A named network of whoever owns the pools: below [`NetworkSet::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkNo(u8);

impl NetworkNo {
    /// The network of this number; `None` from [`NetworkSet::MOST`] on.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < NetworkSet::MOST {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// A set of named networks: one word, so that a host is asked in one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkSet(u64);

impl NetworkSet {
    /// How many networks can be told apart.
    pub const MOST: usize = 64;

    /// Adds a network.
    pub const fn insert(&mut self, network: NetworkNo) {
        self.0 |= 1 << network.0;
    }

    /// Whether `network` is in it.
    #[must_use]
    pub const fn contains(self, network: NetworkNo) -> bool {
        self.0 & (1 << network.0) != 0
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every network of `other` is in it.
    #[must_use]
    pub const fn has_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The networks that one of the two has and the other has not.
    #[must_use]
    pub const fn differing(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    /// Every network, ascending.
    pub fn iter(self) -> impl Iterator<Item = NetworkNo> {
        (0..64).map(NetworkNo).filter(move |no| self.contains(*no))
    }
}

impl FromIterator<NetworkNo> for NetworkSet {
    fn from_iter<I: IntoIterator<Item = NetworkNo>>(networks: I) -> Self {
        let mut set = Self::default();
        networks.into_iter().for_each(|network| set.insert(network));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_says_what_it_holds_and_what_differs() {
        let set = |numbers: &[u8]| -> NetworkSet {
            let all = numbers.iter().filter_map(|number| NetworkNo::new(*number));
            all.collect()
        };
        let both = set(&[0, 63]);
        assert!(both.has_all(set(&[63])) && !set(&[63]).has_all(both));
        assert!(both.has_all(NetworkSet::default()) && NetworkSet::default().is_empty());
        let differing = both.differing(set(&[5, 63]));
        assert_eq!(differing, set(&[0, 5]));
        assert!(differing.iter().map(NetworkNo::place).eq([0, 5]));
        assert_eq!(NetworkNo::new(64), None);
    }
}
