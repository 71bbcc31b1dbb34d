//! Numbers and who has them: no two holders, none grantable while a process of ours may use it, sums that add up.

use std::collections::{BTreeMap, BTreeSet};

use portreeve::allocator::HostState;
use portreeve::identity::{ReplicaId, Run};
use portreeve::port::{PortRange, PortRanges, Protocol};
use portreeve::port_pool::{ListedPorts, PortGrant, PortState, Side};
use portreeve::registry::PoolAudit;
use portreeve::residency::ReplicaName;

use super::{Verdict, broken};

/// A living process of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) name: ReplicaName,
    pub(crate) run: Run,
    /// Else one that outlived it.
    pub(crate) is_main: bool,
}

/// An incarnation that the disk has on a host, with its numbers.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) name: ReplicaName,
    pub(crate) id: ReplicaId,
    pub(crate) grant: PortGrant,
    /// It is told to end.
    pub(crate) is_stopping: bool,
}

/// What is seen of the numbers of one host at one moment.
pub(crate) struct Seen<'a> {
    pub(crate) host: &'a str,
    pub(crate) pool: &'a PoolAudit,
    pub(crate) placed: &'a [Placed],
    pub(crate) living: &'a [Life],
    /// Who a holder is.
    pub(crate) who: &'a dyn Fn(ReplicaId) -> Option<ReplicaName>,
}

/// What is remembered of the numbers of one host.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// What those were granted that are placed or live.
    granted: BTreeMap<ReplicaName, PortGrant>,
    /// The host was declared unable to run anything while these lived: by that word their numbers are free.
    forsworn: BTreeSet<ReplicaName>,
    /// So many orders that say so are under way: what they free is free before they are answered.
    fencings: u32,
    /// The store was set back, so grants may contradict each other until all ends are told.
    is_set_back: bool,
}

impl Numbers {
    /// The store was set back to an older state.
    pub(crate) const fn set_back(&mut self) {
        self.is_set_back = true;
    }

    /// An operator orders that the host be taken for one on which nothing runs; not answered yet.
    pub(crate) const fn being_fenced(&mut self) {
        self.fencings += 1;
    }

    /// That was answered, or never will be.
    pub(crate) const fn fenced(&mut self) {
        self.fencings = self.fencings.saturating_sub(1);
    }

    /// An operator says that nothing runs on the host, though these do.
    pub(crate) fn forswear(&mut self, living: impl IntoIterator<Item = ReplicaName>) {
        self.forsworn.extend(living);
    }

    /// Whether an operator said that it does not run, though it lives.
    pub(crate) fn is_forsworn(&self, name: &ReplicaName) -> bool {
        self.forsworn.contains(name)
    }

    /// Remembers what was granted, also where nobody knows the host.
    pub(crate) fn remember(&mut self, placed: &[Placed], living: &[Life]) {
        for one in placed {
            if !self.granted.contains_key(&one.name) {
                let (name, grant) = (one.name.clone(), one.grant.clone());
                self.granted.insert(name, grant);
            }
        }
        if self.granted.len() > placed.len() + living.len() {
            let is_here = |name: &ReplicaName| {
                placed.iter().any(|it| it.name == *name) || living.iter().any(|it| it.name == *name)
            };
            self.granted.retain(|name, _| is_here(name));
            self.forsworn.retain(is_here);
        }
    }

    /// Holds one moment against the promises.
    pub(crate) fn check(&mut self, seen: &Seen<'_>) -> Verdict {
        self.remember(seen.placed, seen.living);
        self.one_holder(seen)?;
        self.placed_apart(seen)?;
        held_for_somebody(seen)?;
        strangers_are_left_alone(seen)?;
        adds_up(seen)?;
        self.living_hold(seen)
    }

    /// No number of one side has two entries.
    fn one_holder(&self, seen: &Seen<'_>) -> Verdict {
        for side in Side::BOTH {
            let mut last: Option<&ListedPorts> = None;
            for entry in on(side, &seen.pool.ports) {
                let overlaps = last.filter(|it| it.numbers.last() >= entry.numbers.first());
                if let Some(other) = overlaps
                    && !(self.is_set_back && is_held(other) && is_held(entry))
                {
                    let text = format!(
                        "{} of {}: {} and {}",
                        entry.numbers,
                        seen.host,
                        spelled(seen, other),
                        spelled(seen, entry)
                    );
                    return broken("one holder", text);
                }
                last = last
                    .filter(|it| it.numbers.last() > entry.numbers.last())
                    .or(Some(entry));
            }
        }
        Ok(())
    }

    /// The disk gives no number of a host to two.
    fn placed_apart(&self, seen: &Seen<'_>) -> Verdict {
        if self.is_set_back {
            return Ok(());
        }
        let mut all: Vec<(Side, PortRange, &ReplicaName)> = Vec::new();
        for one in seen.placed {
            for port in &one.grant.ports {
                all.extend(Side::of(port.protocol).map(|side| (side, port.numbers, &one.name)));
            }
        }
        all.sort_unstable_by_key(|(side, numbers, _)| (*side, numbers.first()));
        for pair in all.windows(2) {
            let [(side, numbers, name), (next_side, next, other)] = pair else {
                continue;
            };
            if side == next_side && numbers.last() >= next.first() {
                let text = format!("{next} of {} is recorded for {name} and {other}", seen.host);
                return broken("one holder on disk", text);
            }
        }
        Ok(())
    }

    /// Whatever lives has its numbers, or its host gives none away.
    fn living_hold(&self, seen: &Seen<'_>) -> Verdict {
        let counts = match seen.pool.state {
            HostState::Up => true,
            // Silence frees nothing, though nothing is given there meanwhile.
            HostState::Lost => !self.is_set_back && self.fencings == 0,
            _ => false,
        };
        if !counts {
            return Ok(());
        }
        for life in seen.living {
            let Some(grant) = self.granted.get(&life.name) else {
                continue;
            };
            if self.forsworn.contains(&life.name) {
                continue;
            }
            for port in &grant.ports {
                for side in Side::of(port.protocol) {
                    let held = covered(seen, side, port.numbers, &life.name);
                    if held < port.numbers.count() {
                        let text = format!(
                            "{} {} lives on {} with {} {}/{}, of which {held} are held for it: {}",
                            life.name,
                            if life.is_main { "itself" } else { "in part" },
                            seen.host,
                            port.name,
                            port.numbers,
                            side.protocol(),
                            shown(seen, side, port.numbers),
                        );
                        return broken("none free while bound", text);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Nobody holds a number that is not known to: what a refused batch took is free again.
fn held_for_somebody(seen: &Seen<'_>) -> Verdict {
    for entry in &seen.pool.ports {
        if let Some(by) = holder(entry)
            && (seen.who)(by).is_none()
        {
            let text = format!("{} of {} is held for {by:?}", entry.numbers, seen.host);
            return broken("held for somebody", text);
        }
    }
    Ok(())
}

/// No number on which a stranger was said to listen is free.
fn strangers_are_left_alone(seen: &Seen<'_>) -> Verdict {
    for stranger in &seen.pool.foreign {
        let number = PortRange::single(stranger.port);
        for side in Side::of(stranger.protocol) {
            let mut taken = on(side, &seen.pool.ports);
            if !taken.any(|it| overlap(it.numbers, number).is_some()) {
                let text = format!(
                    "a stranger listens on {number}/{} of {}, which is free",
                    side.protocol(),
                    seen.host
                );
                return broken("none free while a stranger listens", text);
            }
        }
    }
    Ok(())
}

/// Free, held, releasing, cooling, foreign and reserved are all numbers that there are, by the pool's own sums.
fn adds_up(seen: &Seen<'_>) -> Verdict {
    let pool = seen.pool;
    let taken = |is_meant: fn(Protocol) -> bool| {
        let those = pool.ports.iter().filter(|it| is_meant(it.protocol));
        PortRanges::new(those.map(|it| it.numbers))
    };
    let all = pool.dynamic.count();
    let free = |taken: PortRanges| all - taken.intersection(&pool.dynamic).count();
    let (tcp, udp) = (taken(Protocol::has_tcp), taken(Protocol::has_udp));
    let (free_tcp, free_udp, free_both) = (free(tcp), free(udp), free(taken(|_| true)));
    let resting = PortRanges::new(
        pool.ports
            .iter()
            .filter(|it| matches!(it.state, PortState::Cooling { .. }))
            .map(|it| it.numbers),
    );
    let counts = &pool.counts;
    let found = (all, free_tcp, free_udp, free_both);
    let told = (
        counts.dynamic,
        counts.free_tcp,
        counts.free_udp,
        counts.free_both,
    );
    if found != told {
        let text = format!(
            "{}: (all, free tcp, udp, both) is {found:?} by its list and {told:?} by its sums: {:?}",
            seen.host, pool.ports
        );
        return broken("sums of numbers", text);
    }
    // What rests and is also a stranger's or the site's is listed as resting, and not summed as such.
    if resting.count() < counts.resting {
        let text = format!(
            "{}: {} rest by its list and {} by its sums",
            seen.host,
            resting.count(),
            counts.resting
        );
        return broken("sums of numbers", text);
    }
    Ok(())
}

/// How many of the numbers are held for the replica.
fn covered(seen: &Seen<'_>, side: Side, numbers: PortRange, name: &ReplicaName) -> u32 {
    let within = on(side, &seen.pool.ports).filter(|it| overlap(it.numbers, numbers).is_some());
    let held =
        within.filter(|it| holder(it).is_some_and(|by| (seen.who)(by).as_ref() == Some(name)));
    let held = held.filter_map(|it| overlap(it.numbers, numbers));
    held.map(PortRange::count).sum()
}

/// How the numbers stand, for people.
fn shown(seen: &Seen<'_>, side: Side, numbers: PortRange) -> String {
    let within = on(side, &seen.pool.ports).filter(|it| overlap(it.numbers, numbers).is_some());
    let all: Vec<String> = within.map(|it| spelled(seen, it)).collect();
    if all.is_empty() {
        "free".to_owned()
    } else {
        all.join(", ")
    }
}

fn spelled(seen: &Seen<'_>, entry: &ListedPorts) -> String {
    match holder(entry) {
        Some(by) => match (seen.who)(by) {
            Some(name) => format!("{} held by {name}", entry.numbers),
            None => format!("{} held by {by:?}", entry.numbers),
        },
        None => format!("{} {:?}", entry.numbers, entry.state),
    }
}

/// The entries of one side, ascending.
pub(super) fn on(side: Side, ports: &[ListedPorts]) -> impl Iterator<Item = &ListedPorts> {
    ports
        .iter()
        .filter(move |it| Side::of(it.protocol).any(|of| of == side))
}

pub(super) const fn holder(entry: &ListedPorts) -> Option<ReplicaId> {
    match entry.state {
        PortState::Held { by } | PortState::Releasing { by } => Some(by),
        _ => None,
    }
}

const fn is_held(entry: &ListedPorts) -> bool {
    holder(entry).is_some()
}

pub(super) fn overlap(one: PortRange, other: PortRange) -> Option<PortRange> {
    let (first, last) = (one.first().max(other.first()), one.last().min(other.last()));
    PortRange::new(first, last)
}

#[cfg(test)]
mod tests {
    use portreeve::port_pool::{Foreign, GrantedPort, Stranger};

    use super::super::stage::{Stage, host};
    use super::*;

    /// A registry with two replicas, each alive, and what is seen of it.
    struct World {
        stage: Stage,
        pool: PoolAudit,
        placed: Vec<Placed>,
        living: Vec<Life>,
        numbers: Numbers,
    }

    impl World {
        fn new() -> Self {
            let mut stage = Stage::new("20000-20009");
            stage.submit(
                "web",
                "replicas = 2\n[ports]\nhttp = \"any\"\nrpc = { any = 2, protocol = \"tcp+udp\" }\n",
            );
            let placed = stage.placed();
            let living = placed.iter().map(|it| Life {
                name: it.name.clone(),
                run: Run(1),
                is_main: true,
            });
            Self {
                pool: stage.registry.pool_audit(&host()).unwrap(),
                living: living.collect(),
                placed,
                stage,
                numbers: Numbers::default(),
            }
        }

        fn check(&mut self) -> Result<(), &'static str> {
            let id = self.pool.host;
            let registry = &self.stage.registry;
            let who = |by| registry.holder_audit(id, by);
            let seen = Seen {
                host: "n1",
                pool: &self.pool,
                placed: &self.placed,
                living: &self.living,
                who: &who,
            };
            let found = self.numbers.check(&seen);
            found.map_err(|violation| violation.invariant)
        }
    }

    #[test]
    fn what_is_granted_and_runs_is_as_it_shall_be() {
        let mut world = World::new();
        assert_eq!(world.placed.len(), 2);
        assert_eq!(world.check(), Ok(()));
    }

    #[test]
    fn a_number_with_two_holders_is_found() {
        let mut world = World::new();
        let mut twice = world.pool.ports[0].clone();
        twice.state = PortState::Held {
            by: world.placed[1].id,
        };
        world.pool.ports.insert(0, twice);
        assert_eq!(world.check(), Err("one holder"));
        // After the store was set back both are kept until one ends.
        world.numbers.set_back();
        assert_ne!(world.check(), Err("one holder"));
    }

    #[test]
    fn a_number_that_is_held_for_nobody_is_found() {
        let mut world = World::new();
        for entry in &mut world.pool.ports {
            if let PortState::Held { by } = &mut entry.state {
                by.incarnation.0 += 1;
            }
        }
        assert_eq!(world.check(), Err("held for somebody"));
    }

    #[test]
    fn a_number_that_two_have_on_disk_is_found() {
        let mut world = World::new();
        let port: GrantedPort = world.placed[0].grant.ports[0].clone();
        world.placed[1].grant.ports.push(port);
        assert_eq!(world.check(), Err("one holder on disk"));
    }

    #[test]
    fn a_number_that_is_free_while_its_process_lives_is_found_also_once_the_disk_forgot_it() {
        let mut world = World::new();
        assert_eq!(world.check(), Ok(()));
        // Its end is believed, but a leftover of it lives.
        let gone = world.placed[0].name.clone();
        world.stage.becomes(&gone, 1, State::Final(Final::Stopped));
        world.pool = world.stage.registry.pool_audit(&host()).unwrap();
        world.placed = world.stage.placed();
        world.living[0].is_main = false;
        assert_eq!(world.check(), Err("none free while bound"));
        world.pool.state = HostState::Lost;
        assert_eq!(world.check(), Err("none free while bound"));
        world.pool.state = HostState::NotReported;
        assert_eq!(world.check(), Ok(()));
        world.pool.state = HostState::Up;
        world.numbers.forswear([gone]);
        assert_eq!(world.check(), Ok(()));
    }

    #[test]
    fn a_number_that_is_free_while_a_stranger_listens_is_found() {
        let mut world = World::new();
        let stranger = |port: portreeve::port::Port| Foreign {
            port,
            protocol: Protocol::Tcp,
            pid: None,
            comm: None,
        };
        let held = world.pool.ports[0].numbers.first();
        world.pool.foreign = vec![stranger(held)];
        assert_eq!(world.check(), Ok(()));
        world.pool.foreign = vec![stranger(20_009.try_into().unwrap())];
        assert_eq!(world.check(), Err("none free while a stranger listens"));
    }

    #[test]
    fn sums_that_do_not_add_up_are_found() {
        let mut world = World::new();
        world.pool.counts.free_udp += 1;
        assert_eq!(world.check(), Err("sums of numbers"));
        let mut world = World::new();
        world.pool.ports.push(ListedPorts {
            numbers: PortRange::single(20_009.try_into().unwrap()),
            protocol: Protocol::Tcp,
            state: PortState::Foreign(Stranger {
                pid: None,
                comm: None,
            }),
        });
        assert_eq!(world.check(), Err("sums of numbers"));
    }

    use portreeve::supervision::{Final, State};
}
