//! A look at the hosts for one replica: which fit, and what is against the others. Pending reasons and
//! `explain` are two readings of it.

use std::collections::BTreeMap;

use crate::allocator::HostSet;
use crate::host_addr::Prefix;
use crate::identity::{HostId, HostName, NetworkName, ReplicaId, ServiceId};
use crate::port::{PortRanges, Protocol};
use crate::port_pool::{Cause, PortRequest, PortState, Want, Why, WhyPort};
use crate::profile::{DeclaredPort, Profile};

use super::limits::LimitReached;
use super::machine::Registry;
use super::survey::{Code, Holder, Obstacle, Obstruction, Offer, Survey, Surveyed, TakenOf};

/// For whom hosts are looked at.
pub(super) struct Seeker<'a> {
    /// Whose replica: its own resting numbers are given to it, its own holders are told as such.
    pub(super) service: ServiceId,
    pub(super) profile: &'a Profile,
    pub(super) request: &'a PortRequest,
    /// Hosts that could take it, were there ports.
    pub(super) candidates: &'a [HostId],
    /// Hosts among the others where the owner, or its group, holds as much as it may.
    pub(super) limited: &'a BTreeMap<HostId, LimitReached>,
    /// How many replicas there shall be.
    pub(super) desired: u32,
}

/// How far a survey goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    /// How many hosts are named before the rest is summed.
    pub(super) hosts: usize,
    /// How many causes of each are told.
    pub(super) causes: usize,
    /// Up to how many hosts are summed; beyond it only the named ones are asked.
    pub(super) summed: usize,
}

impl Depth {
    /// What a waiting replica is shown with.
    pub(super) const fn pending(summed: usize) -> Self {
        Self {
            hosts: 3,
            causes: 8,
            summed,
        }
    }

    /// What `explain` answers.
    pub(super) const EXPLAIN: Self = Self {
        hosts: 1000,
        causes: 64,
        summed: usize::MAX,
    };
}

/// The numbers of a host that nobody can have on one of the sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    held: PortRanges,
    /// Those, and what strangers and the site have.
    all: PortRanges,
}

/// On how many hosts of a survey held numbers are counted: that reads the whole list of the host.
const COUNTED: usize = 3;

impl Registry {
    /// Looks at every host that the profile's placement allows.
    pub(super) fn survey(&mut self, seeker: &Seeker<'_>, depth: Depth) -> Survey {
        let mut eligible: Vec<(&HostName, HostId)> = self
            .eligible_hosts(seeker.profile)
            .into_iter()
            .map(|host| (host.name(), host.id))
            .collect();
        if eligible.len() > depth.hosts {
            // Only the first are named, so only they need to be in order.
            eligible.select_nth_unstable(depth.hosts);
        }
        let named = eligible.len().min(depth.hosts);
        eligible[..named].sort_unstable();
        let named: Vec<(HostName, HostId)> = eligible[..named]
            .iter()
            .map(|(name, host)| ((*name).clone(), *host))
            .collect();
        let eligible: Vec<HostId> = eligible.into_iter().map(|(_, host)| host).collect();
        let candidates: HostSet = seeker.candidates.iter().copied().collect();
        let mut survey = Survey {
            known: count(self.host_names.len()),
            eligible: count(eligible.len()),
            ..Survey::default()
        };
        for (place, (name, host)) in named.into_iter().enumerate() {
            let mut against = self.against_host(seeker, host, &candidates);
            if against.is_empty() {
                against = self.against_ports(seeker, host, place);
            }
            let left_out = against.len().saturating_sub(depth.causes);
            against.truncate(depth.causes);
            survey.named.push(Surveyed {
                host: name,
                against,
                left_out,
            });
        }
        if eligible.len() <= depth.hosts || eligible.len() > depth.summed {
            survey.asked = count(survey.named.len());
            for at in &survey.named {
                match at.against.first() {
                    None => survey.fitting += 1,
                    Some(first) => *survey.by_code.entry(first.code()).or_default() += 1,
                }
            }
        } else {
            self.sum(seeker, &eligible, &candidates, &mut survey);
        }
        survey.note = self.too_many_for_a_fixed_port(seeker, &survey);
        survey
    }

    fn sum(
        &mut self,
        seeker: &Seeker<'_>,
        eligible: &[HostId],
        candidates: &HostSet,
        survey: &mut Survey,
    ) {
        survey.asked = survey.eligible;
        for host in eligible {
            let against = self.against_host(seeker, *host, candidates);
            if let Some(first) = against.first() {
                *survey.by_code.entry(first.code()).or_default() += 1;
            }
        }
        let summary =
            self.pools
                .explain_all(self.now.mono, candidates, seeker.request, seeker.service);
        survey.fitting = summary.fitting;
        for (code, hosts) in summary.by_cause {
            *survey.by_code.entry(Code::Allocator(code)).or_default() += hosts;
        }
    }

    /// What keeps any replica of the profile from the host, before numbers are looked at.
    fn against_host(
        &self,
        seeker: &Seeker<'_>,
        host: HostId,
        candidates: &HostSet,
    ) -> Vec<Obstacle> {
        let profile = seeker.profile;
        if candidates.contains(host) {
            return Vec::new();
        }
        if self.is_of_plugin(host) {
            return vec![bare(Obstruction::OtherOwner)];
        }
        if let Some(cause) = self.pool_state(host).cause() {
            return vec![bare(Obstruction::Allocator(cause))];
        }
        if self.is_drained(host) {
            return vec![bare(Obstruction::Allocator(Cause::HostDrained))];
        }
        if self.shuts_down(host) {
            return vec![bare(Obstruction::ShutsDown)];
        }
        if self.published(host).is_none() && profile.ports.iter().any(|port| port.publish) {
            return vec![bare(Obstruction::Allocator(Cause::NoAddress))];
        }
        let lacking = self.lacking(host, &profile.ports);
        if lacking.is_empty() {
            if let Some(limit) = seeker.limited.get(&host) {
                return vec![bare(Obstruction::Limit(Box::new(limit.clone())))];
            }
            return vec![bare(Obstruction::OnePerHost)];
        }
        let obstacle = |(port, network): (&DeclaredPort, &NetworkName)| Obstacle {
            port: Some(WhyPort {
                name: port.name.clone(),
                protocol: port.protocol,
                number: None,
            }),
            ..bare(Obstruction::NotInNetwork {
                network: network.clone(),
                prefixes: self.config.networks.find(network).map(<[Prefix]>::to_vec),
            })
        };
        lacking.into_iter().map(obstacle).collect()
    }

    /// Every cause in the host's pool, with what makes it readable. `place`: how many hosts are named before it.
    fn against_ports(&mut self, seeker: &Seeker<'_>, host: HostId, place: usize) -> Vec<Obstacle> {
        let now = self.now.mono;
        let whys = self
            .pools
            .explain(now, host, seeker.request, seeker.service);
        joined(whys)
            .into_iter()
            .map(|Why { port, mut cause }| {
                let until = match &mut cause {
                    Cause::Cooling { left } => Some(now + std::mem::take(left)),
                    _ => None,
                };
                let named = port.as_ref();
                let offer =
                    named.and_then(|port| self.offer(seeker.request, host, port, &cause, place));
                Obstacle {
                    holder: cause.holder().and_then(|by| self.holder(by)),
                    until,
                    offer,
                    port,
                    cause: Obstruction::Allocator(cause),
                }
            })
            .collect()
    }

    /// What the host offers for a port for which nothing of it will do.
    fn offer(
        &mut self,
        request: &PortRequest,
        host: HostId,
        port: &WhyPort,
        cause: &Cause,
        place: usize,
    ) -> Option<Offer> {
        let facts = &self.truth.hosts.find(&host)?.facts;
        let mut wanted = request.as_slice().iter();
        let wanted = wanted.find(|wanted| wanted.name == port.name);
        let within = wanted.and_then(|wanted| wanted.within.as_ref());
        let offer = |range, narrowed, taken| {
            Some(Offer {
                range,
                narrowed,
                taken,
            })
        };
        match (cause, port.number) {
            (Cause::NotInPool, Some(_)) => offer(facts.fixed.clone(), None, None),
            (Cause::NotInPool, None) => offer(facts.dynamic.clone(), within.cloned(), None),
            (Cause::TooFew { .. } | Cause::NoBlock { .. }, _) => {
                let range = match within {
                    Some(within) => facts.dynamic.intersection(within),
                    None => facts.dynamic.clone(),
                };
                let is_told = matches!(cause, Cause::TooFew { want: 1, .. }) && place < COUNTED;
                let taken = is_told.then(|| self.taken_within(host, port.protocol, &range));
                offer(range, None, taken)
            }
            _ => None,
        }
    }

    /// What has these numbers on one of the sides.
    fn taken_within(&mut self, host: HostId, protocol: Protocol, range: &PortRanges) -> TakenOf {
        let taken = self.waits.held.entry((host, protocol)).or_insert_with(|| {
            let listed = self.pools.listed(host).into_iter();
            let listed = listed.filter(|it| protocol.overlaps(it.protocol));
            let (mut held, mut lost) = (Vec::new(), Vec::new());
            for it in listed {
                match it.state {
                    PortState::Held { .. } | PortState::Releasing { .. } => held.push(it.numbers),
                    PortState::Foreign(_) | PortState::Reserved => lost.push(it.numbers),
                    // One that rests is taken all the same where nothing else is left.
                    PortState::Cooling { .. } | PortState::Free => {}
                }
            }
            Taken {
                all: PortRanges::new(held.iter().chain(&lost).copied()),
                held: PortRanges::new(held),
            }
        });
        let held = taken.held.intersection(range).count();
        let all = taken.all.intersection(range).count();
        TakenOf {
            held,
            left: range.count() - all,
        }
    }

    /// The replica that has a number.
    fn holder(&self, by: ReplicaId) -> Option<Holder> {
        let service = self.truth.services.find(&by.service)?;
        Some(Holder {
            by,
            service: service.name.clone(),
            index: by.index,
            owner: service.owner.user.clone(),
            groups: service.owner.groups.clone(),
            visibility: service.profile().visibility.clone(),
        })
    }

    /// What to say first where a service waits for more hosts than there are.
    fn too_many_for_a_fixed_port(&self, seeker: &Seeker<'_>, survey: &Survey) -> Option<String> {
        let note = fixed_port_note(seeker.profile, seeker.desired, survey.eligible)?;
        let own = &self.truth.services.find(&seeker.service)?.name;
        let is_own = |it: &Obstacle| it.holder.as_ref().is_some_and(|it| it.service == *own);
        let mut all = survey.named.iter().flat_map(|at| &at.against);
        all.any(is_own).then_some(note)
    }
}

/// What to know of room for so many replicas where each needs one and the same number.
pub(super) fn fixed_port_note(profile: &Profile, replicas: u32, hosts: u32) -> Option<String> {
    let fixed = profile.ports.iter().find_map(|port| match port.want {
        Want::Fixed(number) => Some((number, port.protocol)),
        Want::Any { .. } => None,
    });
    let (port, protocol) = fixed.filter(|_| replicas > hosts)?;
    let noun = if hosts == 1 { "host" } else { "hosts" };
    Some(format!(
        "fixed port {port}/{protocol}: at most one replica per host; {hosts} {noun} eligible"
    ))
}

/// Makes one cause of two that differ in the side only: a `tcp+udp` port is in the way as a whole.
fn joined(whys: Vec<Why>) -> Vec<Why> {
    let mut all: Vec<Why> = Vec::with_capacity(whys.len());
    for why in whys {
        let twin = all.last_mut().filter(|last| last.cause == why.cause);
        let ports = twin
            .and_then(|last| last.port.as_mut())
            .zip(why.port.as_ref());
        match ports {
            Some((last, port)) if last.name == port.name && last.number == port.number => {
                last.protocol = Protocol::TcpUdp;
            }
            _ => all.push(why),
        }
    }
    all
}

const fn bare(cause: Obstruction) -> Obstacle {
    Obstacle {
        port: None,
        cause,
        holder: None,
        until: None,
        offer: None,
    }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
