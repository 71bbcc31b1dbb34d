//! Endpoints as `host:port` lines.

use std::net::SocketAddr;

use portreeve::endpoints::{Endpoint, Snapshot};

use crate::rest::query::Query;
use crate::rest::refused::Refused;

use super::view::EndpointsView;

/// Which of several lines an answer has, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// One: with a seed the one that the seed likes best, else one at random.
    One { seed: Option<String> },
    /// Every one: with a seed in the order in which the seed likes them, else by index.
    All { seed: Option<String> },
}

impl Pick {
    /// The longest seed that is taken.
    const MAX_SEED: usize = 256;

    /// Takes `pick` and `seed` out of the query.
    pub(crate) fn take(query: &mut Query) -> Result<Self, Refused> {
        let one = query.one_of("pick", &[("one", true), ("all", false)])?;
        let seed = query.text("seed")?;
        if seed
            .as_ref()
            .is_some_and(|seed| seed.len() > Self::MAX_SEED)
        {
            let reason = format!("longer than {} bytes", Self::MAX_SEED);
            return Err(Refused::parameter("seed", reason));
        }
        Ok(if one.unwrap_or(false) {
            Self::One { seed }
        } else {
            Self::All { seed }
        })
    }
}

/// One line each: of the named port, else of the first published one.
pub(crate) fn lines(snapshot: &Snapshot, asked: &EndpointsView, pick: &Pick) -> String {
    let listed = snapshot.entries().map(|(endpoint, _)| endpoint);
    let listed = listed.filter(|endpoint| asked.lists(endpoint));
    let mut places: Vec<_> = listed
        .filter_map(|endpoint| Some((endpoint.replica, place(endpoint, asked)?)))
        .collect();
    match pick {
        Pick::All { seed: None } => {}
        Pick::One { seed: None } => {
            let chosen = at_random(places.len());
            places = places.get(chosen).copied().into_iter().collect();
        }
        Pick::One { seed: Some(seed) } => {
            let best = places
                .iter()
                .max_by_key(|(replica, _)| liking(seed, *replica));
            places = best.copied().into_iter().collect();
        }
        Pick::All { seed: Some(seed) } => {
            places.sort_by_cached_key(|(replica, _)| std::cmp::Reverse(liking(seed, *replica)));
        }
    }
    let lines = places.iter().map(|(_, place)| format!("{place}\n"));
    lines.collect()
}

/// Where clients of it are sent.
fn place(endpoint: &Endpoint, asked: &EndpointsView) -> Option<SocketAddr> {
    let port = asked.port.as_ref();
    let mut ports = endpoint.ports.iter();
    let port = ports.find(|candidate| port.is_none_or(|name| candidate.name == *name))?;
    let first = port.numbers.first().number();
    let address = endpoint.address_of(port)?;
    Some(SocketAddr::new(address, first))
}

/// A place below `count`; 0 of none.
fn at_random(count: usize) -> usize {
    let mut random = [0; 8];
    // Without randomness everybody gets the first, which is still a right answer.
    let _ = getrandom::fill(&mut random);
    let place = u64::from_ne_bytes(random) % (count.max(1) as u64);
    usize::try_from(place).unwrap_or(0)
}

/// How much a seed likes a replica (rendezvous hashing): its favourite stays it for as long as it is listed, whoever
/// else comes and goes, and seeds spread evenly. FNV-1a with a last mixing, the same on every machine and in every
/// version: askers may rely on it.
fn liking(seed: &str, replica: u32) -> (u64, u32) {
    let bytes = seed.bytes().chain([0xff]).chain(replica.to_le_bytes());
    let hashed = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (hashed ^ (hashed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (mixed ^ (mixed >> 33), replica)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn favourite(seed: &str, replicas: impl Iterator<Item = u32>) -> u32 {
        replicas
            .max_by_key(|replica| liking(seed, *replica))
            .unwrap()
    }

    #[test]
    fn a_seed_keeps_its_replica_while_others_come_and_go() {
        let mut kept = 0;
        for nth in 0..1_000 {
            let seed = format!("client-{nth}");
            let before = favourite(&seed, 0..10);
            assert_eq!(
                before,
                favourite(&seed, (0..10).rev()),
                "whatever the order"
            );
            let without = favourite(&seed, (0..10).filter(|replica| *replica != 3));
            assert!(before == 3 || before == without);
            let with = favourite(&seed, 0..11);
            assert!(with == 10 || with == before);
            kept += u32::from(with == before);
        }
        assert!((850..960).contains(&kept), "one of eleven moves: {kept}");
    }

    #[test]
    fn seeds_spread_over_the_replicas() {
        let mut counts = [0_u32; 4];
        for nth in 0..4_000 {
            counts[favourite(&nth.to_string(), 0..4) as usize] += 1;
        }
        for count in counts {
            assert!((850..1_150).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn a_place_at_random_is_one_of_them() {
        assert_eq!(at_random(0), 0);
        assert_eq!(at_random(1), 0);
        assert!((0..100).all(|_| at_random(3) < 3));
    }
}
