//! A plain model of pools: every number carries its layers, and every question is a loop over all.

use std::collections::{BTreeMap, BTreeSet};

use crate::identity::{HostId, ReplicaId, ServiceId};
use crate::port::Protocol;
use crate::port_pool::{
    GrantedPort, PoolRanges, PortGrant, PortRequest, PortState, Side, Stranger, Want, WantedPort,
};
use crate::time::Monotonic;

use super::AfterRelease;
use super::testing::port;

pub(super) const LOW: u16 = 100;
pub(super) const HIGH: u16 = 123;
pub(super) const COOLING_MS: u64 = 60_000;

/// Everything that one number carries.
#[derive(Clone, Debug, Default)]
pub(super) struct Layers {
    /// A holder stands here once for each port of its that names the number.
    pub(super) holders: Vec<(ReplicaId, bool)>,
    pub(super) cooling: Option<(u64, ServiceId)>,
    pub(super) reported: bool,
    pub(super) rests_until: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct ModelHost {
    pub(super) up: bool,
    pub(super) ranges: PoolRanges,
    pub(super) numbers: BTreeMap<(Side, u16), Layers>,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) now: u64,
    pub(super) hosts: Vec<ModelHost>,
    /// Who has a grant, be it an empty one.
    pub(super) granted: BTreeSet<ReplicaId>,
    pub(super) waiting: BTreeMap<ReplicaId, (Option<HostId>, PortRequest)>,
}

impl ModelHost {
    pub(super) fn layers(&mut self, side: Side, number: u16) -> &mut Layers {
        self.numbers.entry((side, number)).or_default()
    }

    fn reserved(&self, number: u16) -> bool {
        self.ranges.reserved.contains(port(number))
    }

    /// Whether the number carries nothing, or nothing but cooling where that `may_cool`.
    fn usable(&self, side: Side, number: u16, may_cool: impl Fn(ServiceId) -> bool) -> bool {
        let Some(layers) = self.numbers.get(&(side, number)) else {
            return !self.reserved(number);
        };
        layers.holders.is_empty()
            && !layers.reported
            && layers.rests_until.is_none()
            && !self.reserved(number)
            && layers.cooling.is_none_or(|(_, service)| may_cool(service))
    }

    pub(super) fn state(&self, side: Side, number: u16) -> PortState {
        let layers = self
            .numbers
            .get(&(side, number))
            .cloned()
            .unwrap_or_default();
        let lowest = layers.holders.iter().min_by_key(|(by, _)| *by);
        if let Some((by, releasing)) = lowest {
            return if *releasing {
                PortState::Releasing { by: *by }
            } else {
                PortState::Held { by: *by }
            };
        }
        if let Some((until, service)) = layers.cooling {
            let until = Monotonic::from_millis(until);
            return PortState::Cooling { until, service };
        }
        if layers.reported || layers.rests_until.is_some() {
            return PortState::Foreign(Stranger::default());
        }
        if self.reserved(number) {
            return PortState::Reserved;
        }
        PortState::Free
    }
}

impl Model {
    pub(super) fn advance(&mut self, ms: u64) {
        self.now = self.now.max(ms);
        for layers in self.hosts.iter_mut().flat_map(|h| h.numbers.values_mut()) {
            layers.cooling = layers.cooling.filter(|(until, _)| *until > self.now);
            layers.rests_until = layers.rests_until.filter(|until| *until > self.now);
        }
    }

    pub(super) fn hold(&mut self, host: HostId, by: ReplicaId, grant: &PortGrant, releasing: bool) {
        self.granted.insert(by);
        let host = &mut self.hosts[host.0 as usize];
        for (side, number) in places(grant) {
            let layers = host.layers(side, number);
            layers.holders.push((by, releasing));
            layers.cooling = None;
        }
    }

    pub(super) fn holds(&self, by: ReplicaId) -> bool {
        self.granted.contains(&by)
    }

    pub(super) fn release(&mut self, by: ReplicaId, after: AfterRelease) {
        self.granted.remove(&by);
        for layers in self.hosts.iter_mut().flat_map(|h| h.numbers.values_mut()) {
            let before = layers.holders.len();
            layers.holders.retain(|(holder, _)| *holder != by);
            let gone = before > 0 && layers.holders.is_empty();
            if gone && after == AfterRelease::Cool {
                layers.cooling = Some((self.now + COOLING_MS, by.service));
            }
        }
    }

    fn awaited(&self, host: HostId, side: Side, number: u16) -> bool {
        self.waiting.values().any(|(wanted, request)| {
            wanted.is_none_or(|wanted| wanted == host)
                && request.as_slice().iter().any(|wanted| {
                    wanted.want == Want::Fixed(port(number))
                        && Side::of(wanted.protocol).any(|taken| taken == side)
                })
        })
    }

    /// Whether this number may answer one port of a request by `service`.
    fn may_answer(&self, host: HostId, wanted: &WantedPort, service: ServiceId, n: u16) -> bool {
        let there = &self.hosts[host.0 as usize];
        Side::of(wanted.protocol).all(|side| match wanted.want {
            Want::Fixed(number) => {
                number == port(n)
                    && there.ranges.fixed.contains(number)
                    && there.usable(side, n, |cools_for| cools_for == service)
            }
            Want::Any { .. } => {
                there.ranges.dynamic.contains(port(n))
                    && wanted.within.as_ref().is_none_or(|w| w.contains(port(n)))
                    && there.usable(side, n, |_| true)
                    && !self.awaited(host, side, n)
            }
        })
    }

    pub(super) fn check_grant(
        &self,
        host: HostId,
        service: ServiceId,
        ask: &PortRequest,
        grant: &PortGrant,
    ) {
        let there = &self.hosts[host.0 as usize];
        assert!(there.up, "a host that is not up gave a grant");
        let mut seen = BTreeSet::new();
        for (wanted, granted) in ask.as_slice().iter().zip(&grant.ports) {
            assert_eq!(granted.numbers.count(), u32::from(wanted.count().get()));
            for number in granted.numbers.iter() {
                assert!(
                    self.may_answer(host, wanted, service, number.number()),
                    "{number} was given for {wanted:?}"
                );
            }
            for place in granted_places(granted) {
                assert!(seen.insert(place), "{place:?} was given twice in one grant");
            }
        }
    }

    /// One number from cooling: nothing was free for it, and none cools for longer already.
    pub(super) fn check_oldest_first(
        &self,
        host: HostId,
        service: ServiceId,
        ask: &PortRequest,
        grant: &PortGrant,
    ) {
        let there = &self.hosts[host.0 as usize];
        let lone = match (ask.as_slice(), grant.ports.as_slice()) {
            ([wanted], [granted]) if is_single_any(wanted) => Some((wanted, granted)),
            _ => None,
        };
        let Some((wanted, granted)) = lone.filter(|(w, _)| w.protocol != Protocol::TcpUdp) else {
            return;
        };
        let (side, number) = granted_places(granted).next().unwrap();
        let rest = |n| there.numbers.get(&(side, n)).and_then(|l| l.cooling);
        if let Some((until, _)) = rest(number) {
            for n in (LOW..=HIGH).filter(|n| self.may_answer(host, wanted, service, *n)) {
                let (other, _) = rest(n).expect("nothing was free");
                assert!(until <= other, "{number} was given before the older {n}");
            }
        }
    }

    /// Whether the host must be able to answer; `None` where only packing could tell.
    pub(super) fn must_fit(
        &self,
        host: HostId,
        service: ServiceId,
        ask: &PortRequest,
    ) -> Option<bool> {
        if !self.hosts[host.0 as usize].up {
            return Some(false);
        }
        let fixed = |wanted: &&WantedPort| matches!(wanted.want, Want::Fixed(_));
        let may = |wanted: &WantedPort, n: u16| self.may_answer(host, wanted, service, n);
        for wanted in ask.as_slice().iter().filter(fixed) {
            let Want::Fixed(number) = wanted.want else {
                continue;
            };
            if !may(wanted, number.number()) {
                return Some(false);
            }
        }
        let rest: Vec<&WantedPort> = ask.as_slice().iter().filter(|w| !fixed(w)).collect();
        let Some(first) = rest.first() else {
            return Some(true);
        };
        let named = |n: u16| {
            ask.as_slice().iter().any(|wanted| {
                wanted.want == Want::Fixed(port(n)) && wanted.protocol.overlaps(first.protocol)
            })
        };
        let open: Vec<u16> = (LOW..=HIGH)
            .filter(|n| may(first, *n) && !named(*n))
            .collect();
        if let [block] = rest.as_slice() {
            let count = usize::from(block.count().get());
            let runs = open
                .windows(count)
                .any(|run| usize::from(run[count - 1] - run[0]) == count - 1);
            return Some(runs);
        }
        let alike = |wanted: &&WantedPort| {
            is_single_any(wanted)
                && wanted.protocol == first.protocol
                && wanted.within == first.within
        };
        rest.iter().all(alike).then_some(open.len() >= rest.len())
    }
}

fn is_single_any(wanted: &WantedPort) -> bool {
    matches!(wanted.want, Want::Any { count } if count.get() == 1)
}

fn granted_places(granted: &GrantedPort) -> impl Iterator<Item = (Side, u16)> + '_ {
    granted
        .numbers
        .iter()
        .flat_map(|number| Side::of(granted.protocol).map(move |side| (side, number.number())))
}

fn places(grant: &PortGrant) -> impl Iterator<Item = (Side, u16)> + '_ {
    grant.ports.iter().flat_map(granted_places)
}
