//! How often an onlooker looks at what no step singled out.

/// All hosts of a cluster of so many are looked at after each turn of the controller; of larger ones some in turn.
pub(super) const ALL_HOSTS: usize = 16;

/// After how many steps things are looked at that no step singled out, so that a step costs as much in a large cluster as in a small one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Everything.
    pub(super) sweep: u64,
    /// The next host in turn, where not all are looked at each time.
    pub(super) turn: u64,
}

impl Pace {
    pub(super) const fn of(hosts: u64, replicas: u64) -> Self {
        let sweep = hosts + replicas;
        Self {
            sweep: if sweep < 256 { 256 } else { sweep },
            turn: match replicas.checked_div(hosts) {
                Some(on_each) => 1 + on_each,
                None => 1,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_cluster_is_looked_at_whole_as_seldom_as_it_is_large() {
        let small = Pace {
            sweep: 256,
            turn: 1,
        };
        assert_eq!(Pace::of(0, 0), small);
        assert_eq!(Pace::of(40, 30), small);
        let large = Pace {
            sweep: 10_500,
            turn: 21,
        };
        assert_eq!(Pace::of(500, 10_000), large);
    }
}
