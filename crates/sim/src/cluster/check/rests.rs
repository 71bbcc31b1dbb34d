//! A freed number rests before another service gets it: an own clock for every number, held against the pool's.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use portreeve::identity::{HostId, ReplicaId, ServiceId};
use portreeve::port::{PortName, PortRange, PortRanges};
use portreeve::port_pool::{PortGrant, PortState, Side, Want, WantedPort};
use portreeve::registry::PoolAudit;
use portreeve::residency::ReplicaName;
use portreeve::time::Monotonic;

use super::numbers::{Placed, holder, on};
use super::{Verdict, broken};

/// Numbers that only a host knows of are held by such services; no service of the store has one of them.
const UNKNOWN: u64 = u64::MAX / 2;

/// The rests of one host.
#[derive(Debug)]
pub(crate) struct Rests {
    cooling: Duration,
    /// Which host of the pools this was, and when it was looked at.
    last: Option<(HostId, Monotonic)>,
    /// Every number that was held or rested then, ascending.
    stands: Vec<(Side, u16, Stand)>,
    /// Grants that were on disk: only their numbers anybody ever knew.
    durable: BTreeSet<ReplicaId>,
    /// Numbers that were given although they rested, until it is known what was asked for.
    given: VecDeque<Given>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Held(ReplicaId),
    Resting { until: Monotonic, of: ServiceId },
}

/// A number that was given out of its rest.
#[derive(Debug)]
struct Given {
    to: ReplicaId,
    side: Side,
    number: u16,
    until: Monotonic,
    at: Monotonic,
    of: ServiceId,
    /// What was free at that moment on each side, for everybody.
    free: [PortRanges; 2],
}

/// What is seen of one host.
pub(crate) struct Seen<'a> {
    pub(crate) host: &'a str,
    pub(crate) now: Monotonic,
    pub(crate) pool: &'a PoolAudit,
    pub(crate) placed: &'a [Placed],
    /// What the profile of a replica asks for under this name.
    pub(crate) asks: &'a dyn Fn(&ReplicaName, &PortName) -> Option<WantedPort>,
    /// Fixed numbers that anybody may wait for: "any" leaves them alone.
    pub(crate) awaited: &'a PortRanges,
}

impl Rests {
    pub(crate) const fn new(cooling: Duration) -> Self {
        Self {
            cooling,
            last: None,
            stands: Vec::new(),
            durable: BTreeSet::new(),
            given: VecDeque::new(),
        }
    }

    /// Nothing is known of the past any more: the store was set back, or the host is unknown.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.cooling);
    }

    /// Holds what became of every number since the last look against its rest.
    pub(crate) fn check(&mut self, seen: &Seen<'_>) -> Verdict {
        if self.last.is_some_and(|(host, _)| host != seen.pool.host) {
            self.forget();
        }
        let stands = stands_of(seen.pool);
        if let Some((_, before)) = self.last {
            self.follow(seen, before, &stands)?;
        }
        // The number of a service whose submit was refused is another's later: it knows nothing of what that held.
        self.durable.extend(seen.placed.iter().map(|it| it.id));
        self.last = Some((seen.pool.host, seen.now));
        self.stands = stands;
        if self.durable.len() > seen.placed.len() + 64 {
            let placed: BTreeSet<ReplicaId> = seen.placed.iter().map(|it| it.id).collect();
            let stands = &self.stands;
            let holds = |id: &ReplicaId| stands.iter().any(|(.., it)| *it == Stand::Held(*id));
            self.durable.retain(|id| placed.contains(id) || holds(id));
        }
        self.given_rightly(seen)
    }

    fn follow(
        &mut self,
        seen: &Seen<'_>,
        before: Monotonic,
        stands: &[(Side, u16, Stand)],
    ) -> Verdict {
        if self.cooling.is_zero() {
            return Ok(());
        }
        let mut now = stands.iter().peekable();
        for (side, number, was) in &self.stands {
            while now
                .next_if(|(of, at, _)| (*of, *at) < (*side, *number))
                .is_some()
            {}
            let is = now.next_if(|(of, at, _)| (*of, *at) == (*side, *number));
            let is = is.map(|(.., is)| *is);
            let (until, of) = match *was {
                Stand::Held(by) => {
                    let is_same = is == Some(Stand::Held(by));
                    if is_same || by.service.0 > UNKNOWN || !self.durable.contains(&by) {
                        continue;
                    }
                    // It was freed now at the latest, and after the last look.
                    (before + self.cooling, by.service)
                }
                Stand::Resting { of, .. } if of.0 > UNKNOWN => continue,
                Stand::Resting { until, of } => (until, of),
            };
            match is {
                Some(Stand::Held(by)) if by.service == of || by.service.0 > UNKNOWN => {}
                Some(Stand::Held(to)) if seen.now < until => {
                    self.given.push_back(Given {
                        to,
                        side: *side,
                        number: *number,
                        until,
                        at: seen.now,
                        of,
                        free: Side::BOTH.map(|side| free_on(side, seen)),
                    });
                }
                Some(Stand::Resting { until: later, .. }) if later >= until => {}
                _ if seen.now >= until => {}
                Some(Stand::Held(_)) => {}
                Some(Stand::Resting { until: later, .. }) => {
                    let text = format!(
                        "{number}/{} of {} rests until {} ms only, not {} ms",
                        side.protocol(),
                        seen.host,
                        later.as_millis(),
                        until.as_millis()
                    );
                    return broken("freed numbers rest", text);
                }
                None => {
                    let text = format!(
                        "{number}/{} of {} rests no more at {} ms, before {} ms; it was {was:?}",
                        side.protocol(),
                        seen.host,
                        seen.now.as_millis(),
                        until.as_millis()
                    );
                    return broken("freed numbers rest", text);
                }
            }
        }
        Ok(())
    }

    /// A number that rests for another service is given only where the ask could not be answered without.
    fn given_rightly(&mut self, seen: &Seen<'_>) -> Verdict {
        let mut open = VecDeque::new();
        while let Some(given) = self.given.pop_front() {
            let placed = seen.placed.iter().find(|it| it.id == given.to);
            let Some(placed) = placed else {
                // Not on disk yet, or it never will be.
                let is_held = self
                    .stands
                    .iter()
                    .any(|(.., it)| *it == Stand::Held(given.to));
                if is_held {
                    open.push_back(given);
                }
                continue;
            };
            let Some(port) = port_with(&placed.grant, given.side, given.number) else {
                continue;
            };
            let asked = (seen.asks)(&placed.name, &port.name);
            let asked = asked.filter(|it| it.protocol == port.protocol);
            let Some(asked) = asked else { continue };
            let needless = match asked.want {
                Want::Fixed(_) => true,
                Want::Any { count } => {
                    let candidates = candidates(&given, &asked, seen);
                    let longest = candidates.longest().map_or(0, PortRange::count);
                    longest >= u32::from(count.get())
                }
            };
            if needless {
                let text = format!(
                    "{}/{} of {} was given to {} at {} ms, and rests for service {} until {} ms",
                    given.number,
                    given.side.protocol(),
                    seen.host,
                    placed.name,
                    given.at.as_millis(),
                    given.of,
                    given.until.as_millis()
                );
                return broken("freed numbers rest", text);
            }
        }
        self.given = open;
        Ok(())
    }
}

/// The numbers that would have answered the ask without any that rests.
fn candidates(given: &Given, asked: &WantedPort, seen: &Seen<'_>) -> PortRanges {
    let [tcp, udp] = &given.free;
    let free = match (asked.protocol.has_tcp(), asked.protocol.has_udp()) {
        (true, true) => tcp.intersection(udp),
        (true, false) => tcp.clone(),
        _ => udp.clone(),
    };
    let free = match &asked.within {
        Some(within) => free.intersection(within),
        None => free,
    };
    free.difference(seen.awaited)
}

fn free_on(side: Side, seen: &Seen<'_>) -> PortRanges {
    let taken = PortRanges::new(on(side, &seen.pool.ports).map(|it| it.numbers));
    seen.pool.dynamic.difference(&taken)
}

fn stands_of(pool: &PoolAudit) -> Vec<(Side, u16, Stand)> {
    let mut stands = Vec::new();
    for side in Side::BOTH {
        for entry in on(side, &pool.ports) {
            let stand = match (holder(entry), &entry.state) {
                (Some(by), _) => Stand::Held(by),
                (None, PortState::Cooling { until, service }) => Stand::Resting {
                    until: *until,
                    of: *service,
                },
                _ => continue,
            };
            let numbers = entry.numbers.iter();
            stands.extend(numbers.map(|port| (side, port.number(), stand)));
        }
    }
    // Two holders of one number are another promise's business.
    stands.sort_by_key(|(side, number, _)| (*side, *number));
    stands.dedup_by_key(|(side, number, _)| (*side, *number));
    stands
}

fn port_with(
    grant: &PortGrant,
    side: Side,
    number: u16,
) -> Option<&portreeve::port_pool::GrantedPort> {
    grant.ports.iter().find(|port| {
        let numbers = port.numbers.first().number()..=port.numbers.last().number();
        numbers.contains(&number) && Side::of(port.protocol).any(|of| of == side)
    })
}

#[cfg(test)]
mod tests {
    use portreeve::supervision::{Final, State};

    use super::super::stage::{Stage, host};
    use super::*;

    const COOLING: Duration = Duration::from_secs(60);

    fn look(rests: &mut Rests, stage: &Stage, pool: &PoolAudit) -> Result<(), &'static str> {
        let view = stage.registry.view();
        let asks = |name: &ReplicaName, port: &PortName| {
            let service = view.services.get(&name.service)?;
            let ports = service.profile.ports.iter();
            ports
                .clone()
                .find(|it| it.name == *port)
                .map(|it| it.wanted())
        };
        let seen = Seen {
            host: "n1",
            now: stage.now.mono,
            pool,
            placed: &stage.placed(),
            asks: &asks,
            awaited: &PortRanges::default(),
        };
        rests.check(&seen).map_err(|it| it.invariant)
    }

    fn pool(stage: &Stage) -> PoolAudit {
        stage.registry.pool_audit(&host()).unwrap()
    }

    /// A service whose only replica ended a moment ago.
    fn ended() -> (Stage, Rests) {
        let mut stage = Stage::new("20000-20003");
        let mut rests = Rests::new(COOLING);
        stage.submit(
            "web",
            "[restart]\npolicy = \"never\"\n[ports]\nhttp = { any = 2 }\n",
        );
        assert_eq!(look(&mut rests, &stage, &pool(&stage)), Ok(()));
        stage.pass(1000);
        let name = stage.placed()[0].name.clone();
        stage.becomes(&name, 1, State::Final(Final::Succeeded));
        (stage, rests)
    }

    #[test]
    fn a_number_rests_for_the_whole_time_and_is_then_free() {
        let (mut stage, mut rests) = ended();
        assert_eq!(look(&mut rests, &stage, &pool(&stage)), Ok(()));
        stage.pass(59_000);
        assert_eq!(look(&mut rests, &stage, &pool(&stage)), Ok(()));
        stage.pass(1000);
        assert!(pool(&stage).ports.is_empty());
        assert_eq!(look(&mut rests, &stage, &pool(&stage)), Ok(()));
    }

    #[test]
    fn a_number_that_does_not_rest_or_rests_too_briefly_is_found() {
        let (stage, mut rests) = ended();
        let mut forgotten = pool(&stage);
        forgotten.ports.clear();
        let found = look(&mut rests, &stage, &forgotten);
        assert_eq!(found, Err("freed numbers rest"));
        let (mut stage, mut rests) = ended();
        assert_eq!(look(&mut rests, &stage, &pool(&stage)), Ok(()));
        stage.pass(30_000);
        let mut brief = pool(&stage);
        for entry in &mut brief.ports {
            if let PortState::Cooling { until, .. } = &mut entry.state {
                *until = Monotonic::from_millis(until.as_millis() - 1);
            }
        }
        let found = look(&mut rests, &stage, &brief);
        assert_eq!(found, Err("freed numbers rest"));
    }

    #[test]
    fn a_resting_number_is_given_where_nothing_else_is_left_and_not_before() {
        let (mut stage, mut rests) = ended();
        assert_eq!(look(&mut rests, &stage, &pool(&stage)), Ok(()));
        // Two are free and two rest.
        stage.submit("db", "replicas = 3\n[ports]\nsql = \"any\"\n");
        assert_eq!(stage.placed().len(), 3);
        assert_eq!(look(&mut rests, &stage, &pool(&stage)), Ok(()));
        let (mut stage, mut rests) = ended();
        assert_eq!(look(&mut rests, &stage, &pool(&stage)), Ok(()));
        stage.submit("db", "[ports]\nsql = \"any\"\n");
        assert_eq!(look(&mut rests, &stage, &pool(&stage)), Ok(()));
        stage.pass(1000);
        // As if it had taken the first of those that rest, and not the first that is free.
        stage.submit("other", "[ports]\nsql = \"any\"\n");
        let mut early = pool(&stage);
        let mut placed = stage.placed();
        let at = placed
            .iter()
            .position(|it| it.name.service.to_string() == "other.alice");
        let (taken, rested) = (placed[at.unwrap()].clone(), 20_000.try_into().unwrap());
        placed[at.unwrap()].grant.ports[0].numbers = PortRange::single(rested);
        for entry in &mut early.ports {
            if holder(entry) == Some(taken.id) {
                entry.numbers = PortRange::single(rested);
            } else if matches!(entry.state, PortState::Cooling { .. }) {
                entry.numbers = PortRange::single(20_001.try_into().unwrap());
            }
        }
        early.ports.sort_by_key(|it| it.numbers.first());
        let asks = |_: &ReplicaName, _: &PortName| {
            Some(WantedPort {
                name: "sql".parse().unwrap(),
                protocol: portreeve::port::Protocol::Tcp,
                want: Want::Any {
                    count: std::num::NonZeroU16::MIN,
                },
                within: None,
            })
        };
        let seen = Seen {
            host: "n1",
            now: stage.now.mono,
            pool: &early,
            placed: &placed,
            asks: &asks,
            awaited: &PortRanges::default(),
        };
        let found = rests.check(&seen).unwrap_err();
        assert_eq!(found.invariant, "freed numbers rest");
    }
}
