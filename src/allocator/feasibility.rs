//! Which of all hosts can take a request: by sets where they decide, by asking where they do not.

use std::sync::Arc;

use crate::identity::HostId;
use crate::port::{Port, Protocol};
use crate::port_pool::{Awaited, Choice, Listing, PortPool, Side};

use super::census::{ROOM, ROOMY};
use super::host_set::Bits;
use super::question::Around;
use super::{Allocator, HostSet, Need};

/// Asking one host takes as long as so many words of a set (about 50 ns, and about 0.3 ns): measured.
const WORDS_PER_HOST: u64 = 160;

/// What questions need room for, kept and used again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) look: Look,
    pub(super) awaited: SeenAwaited,
    /// Hosts that the sets do not decide.
    doubted: HostSet,
    /// Hosts that are asked one after the other.
    pub(super) asked: HostSet,
    pub(super) listed: Listed,
}

/// What a look at one host needs room for.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) choice: Choice,
    /// A host's pool as it will be later; whose does not matter.
    pub(super) later: Option<Box<PortPool>>,
}

/// What is not free on one host, kept until the transaction ends.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) host: Option<HostId>,
    pub(super) listing: Listing,
}

impl Scratch {
    /// Makes room for hosts below `end`.
    pub(super) fn make_room(&mut self, end: u32) {
        self.doubted.reserve(end);
    }
}

/// Awaited numbers as they were published last.
#[derive(Debug, Default)]
pub(super) struct SeenAwaited {
    pub(super) version: u64,
    pub(super) numbers: Arc<Awaited>,
}

/// Which hosts of an answer have to be asked.
enum Doubt {
    /// Those that were left in `doubted`.
    Some,
    /// The same, but a host with less room than the first does not fit, and one with the second does.
    Counted(u32, u32),
    All,
}

impl Allocator {
    /// Leaves in `out` the hosts among `candidates` that answer `need` at this moment.
    pub(super) fn find_feasible(
        &self,
        need: &Need<'_>,
        candidates: Option<&HostSet>,
        scratch: &mut Scratch,
        out: &mut HostSet,
    ) {
        self.waiting.refresh(&mut scratch.awaited);
        out.clone_from(&self.census.read().up);
        if let Some(candidates) = candidates {
            out.intersect(candidates);
        }
        for network in need.request.networks().iter() {
            out.intersect(self.census.read().in_network(network));
        }
        if need.request.is_empty() {
            return;
        }
        let Scratch {
            look,
            awaited,
            doubted,
            ..
        } = scratch;
        let around = Around::new(&awaited.numbers, self.now(), need.at);
        let doubt = if self.asks_each(need, out) {
            Doubt::All
        } else {
            self.narrow(need, &around, out, doubted)
        };
        let mut fits = |id| {
            let asked = self.hosts.with(id, |host| host.fits(need, &around, look));
            asked.unwrap_or(false)
        };
        match doubt {
            Doubt::All => out.retain(fits),
            Doubt::Some => out.retain_among(doubted, fits),
            Doubt::Counted(least, enough) => {
                out.retain_words(doubted, |at, hosts| {
                    let (roomy, unclear) = self.census.roomy(at, hosts, least, enough);
                    let asked = Bits(unclear).filter(|bit| fits(HostId(at * 64 + bit)));
                    asked.fold(roomy, |kept, bit| kept | 1 << bit)
                });
            }
        }
    }

    /// Whether asking each of `hosts` is less work than the sets of all hosts.
    fn asks_each(&self, need: &Need<'_>, hosts: &HostSet) -> bool {
        if self.config.direct_below == 0 {
            return false;
        }
        let fixed = need.request.fixed();
        let many = hosts.len();
        // The first question about a number visits every host, which is worth it for many of them.
        if many < u64::from(self.config.direct_below)
            && !fixed.iter().all(|key| self.watches.is_watched(*key))
        {
            return true;
        }
        let sets = fixed.len() as u64 + 2;
        many * WORDS_PER_HOST < hosts.as_words().len() as u64 * sets
    }

    /// Takes out of `out` what the sets rule out, and leaves in `doubted` whom they do not decide.
    fn narrow(
        &self,
        need: &Need<'_>,
        around: &Around<'_>,
        out: &mut HostSet,
        doubted: &mut HostSet,
    ) -> Doubt {
        doubted.clear();
        if around.later.is_some() {
            // What rests there may be over by then, which no set knows.
            doubted.clone_from(out);
            doubted.intersect(&self.census.read().resting);
        }
        let fixed = need.request.fixed();
        if need.replicas > 1 && !fixed.is_empty() {
            // One host has each number once.
            out.clear();
            return Doubt::Some;
        }
        let known = fixed
            .iter()
            .all(|key| self.watches.narrow(*key, need.service, &self.hosts, out));
        out.extend(doubted);
        let drawn = need.drawn();
        if drawn == 0 {
            return if known { Doubt::Some } else { Doubt::All };
        }
        // Each number drawn, fixed or awaited takes at most one from those that are free on both sides;
        // a fixed one that no host offers to "any" takes none.
        let offered = |key: &&(Side, Port)| self.census.offered.contains(key.1);
        let fixed = fixed.iter().filter(offered).count();
        let beside = u32::try_from(fixed + around.anywhere.len()).unwrap_or(u32::MAX);
        let room = drawn.saturating_add(beside);
        let searched = need.request.has_blocks() || need.request.is_narrowed();
        if searched || !known || room > ROOMY {
            return Doubt::All;
        }
        let sets = self.census.read();
        doubted.extend(if room > ROOM {
            &sets.scarce
        } else {
            &sets.scarcer
        });
        doubted.extend(&sets.wished);
        // What rests may be over by a later moment; what draws from UDP is not counted.
        let drawn_elsewhere = [Protocol::Udp, Protocol::TcpUdp]
            .into_iter()
            .any(|protocol| need.request.single_any(protocol) > 0);
        if around.later.is_some() || drawn_elsewhere {
            return Doubt::Some;
        }
        Doubt::Counted(drawn, room)
    }
}
