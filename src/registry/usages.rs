//! What users and groups hold: placed replicas, their numbers, the services of those. What they may is in `limits`.
//!
//! Invariant: nothing of it is remembered. What somebody holds is counted from the records when it is asked, so that no
//! crash, no refused commit and no change of a limit can make it wrong. What waits for room is looked at again whenever
//! somebody's numbers are freed.
//!
//! A replica that ran and goes on by no wish of its owner, because its host was drained, lost or booted, keeps its share
//! while it waits: nobody takes it meanwhile, and no limit is asked again for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::identity::{HostId, HostName, ServiceId, ServiceName};
use crate::port_pool::Want;
use crate::profile::{Profile, Replicas};
use crate::rights::{Caller, Owner};

use super::Refusal;
use super::limits::{Allowance, Claimant, LimitReached, Limited, Limits};
use super::machine::Registry;
use super::records::{Phase, Replica, Service, WaitCause};
use super::truth::ReplicaKey;

/// What one claimant holds.
#[derive(Clone, Debug, Default)]
struct Usage {
    services: BTreeSet<ServiceId>,
    replicas: u32,
    ports: u32,
    on: BTreeMap<HostId, u32>,
    /// Services, whether they run or not.
    known: u32,
    /// Replicas asked for or kept, whether they have a place or not.
    replicas_known: u32,
}

/// What some claimants hold, and may.
#[derive(Clone, Debug, Default)]
pub(super) struct Usages {
    users: BTreeMap<String, (Allowance, Usage)>,
    groups: BTreeMap<String, (Allowance, Usage)>,
}

/// One more replica, or what would become of a service.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    whose: Vec<Claimant>,
    service: ServiceId,
    /// The numbers of each replica.
    numbers: u32,
    /// The host it was on, if it is one that goes on: it is counted already.
    goes_on_from: Option<HostId>,
}

impl Claim {
    /// The host it was on, if it is one that goes on.
    pub(super) const fn goes_on_from(&self) -> Option<HostId> {
        self.goes_on_from
    }

    /// Whether its numbers are too many on a host where so many are held already.
    fn is_too_much_on(&self, host: HostId, has: u32, allowance: &Allowance) -> bool {
        let is_more = self.numbers > 0 && self.goes_on_from != Some(host);
        is_more && has.saturating_add(self.numbers) > allowance.ports_per_host
    }
}

impl Usages {
    /// One more replica of the service has a place.
    pub(super) fn add(&mut self, claim: &Claim, host: HostId) {
        for whose in &claim.whose {
            let (of_its_kind, name) = match whose {
                Claimant::User(name) => (&mut self.users, name),
                Claimant::Group(name) => (&mut self.groups, name),
            };
            let Some((_, usage)) = of_its_kind.get_mut(name) else {
                continue;
            };
            if claim.goes_on_from.is_none() {
                usage.add(claim.service, claim.numbers);
            }
            usage.add_numbers_on(host, claim.numbers);
        }
    }

    /// What keeps one more replica from every host.
    pub(super) fn reached(&self, claim: &Claim) -> Option<LimitReached> {
        if claim.goes_on_from.is_some() {
            return None;
        }
        self.find(&claim.whose, |allowance, usage| {
            let asks = u32::from(!usage.services.contains(&claim.service));
            let services = u32::try_from(usage.services.len()).unwrap_or(u32::MAX);
            [
                (Limited::Services, services, allowance.services, asks),
                (Limited::Replicas, usage.replicas, allowance.replicas, 1),
                (Limited::Ports, usage.ports, allowance.ports, claim.numbers),
                (
                    Limited::PortsOfAReplica,
                    0,
                    allowance.ports_per_host,
                    claim.numbers,
                ),
            ]
        })
    }

    /// The hosts on which one more replica would be too much, each with the limit.
    pub(super) fn reached_on(
        &self,
        claim: &Claim,
        name: impl Fn(HostId) -> HostName,
    ) -> BTreeMap<HostId, LimitReached> {
        let mut reached = BTreeMap::new();
        for whose in &claim.whose {
            let Some((allowance, usage)) = self.of(whose) else {
                continue;
            };
            for (host, has) in &usage.on {
                let most = allowance.ports_per_host;
                if claim.is_too_much_on(*host, *has, allowance) {
                    reached.entry(*host).or_insert_with(|| LimitReached {
                        whose: whose.clone(),
                        what: Limited::PortsOn(name(*host)),
                        has: *has,
                        most,
                        asks: claim.numbers,
                    });
                }
            }
        }
        reached
    }

    /// Whether one more replica would be too much on this host.
    pub(super) fn is_reached_on(&self, claim: &Claim, host: HostId) -> bool {
        let all = claim.whose.iter().filter_map(|whose| self.of(whose));
        let mut has = all.filter_map(|(allowance, usage)| Some((allowance, usage.on.get(&host)?)));
        has.any(|(allowance, has)| claim.is_too_much_on(host, *has, allowance))
    }

    fn of(&self, whose: &Claimant) -> Option<&(Allowance, Usage)> {
        match whose {
            Claimant::User(name) => self.users.get(name),
            Claimant::Group(name) => self.groups.get(name),
        }
    }

    fn find<const N: usize>(
        &self,
        all: &[Claimant],
        each: impl Fn(&Allowance, &Usage) -> [(Limited, u32, u32, u32); N],
    ) -> Option<LimitReached> {
        all.iter().find_map(|whose| {
            let (allowance, usage) = self.of(whose)?;
            let mut all = each(allowance, usage).into_iter();
            let (what, has, most, asks) =
                all.find(|(_, has, most, asks)| *asks > 0 && has.saturating_add(*asks) > *most)?;
            Some(LimitReached {
                whose: whose.clone(),
                what,
                has,
                most,
                asks,
            })
        })
    }
}

impl Usage {
    /// One more replica with so many numbers.
    fn add(&mut self, service: ServiceId, numbers: u32) {
        self.services.insert(service);
        self.replicas = self.replicas.saturating_add(1);
        self.ports = self.ports.saturating_add(numbers);
    }

    /// Numbers that are held on a host; in all they are counted elsewhere.
    fn add_numbers_on(&mut self, host: HostId, numbers: u32) {
        let on = self.on.entry(host).or_default();
        *on = on.saturating_add(numbers);
    }
}

impl Registry {
    /// Other limits hold from now on. Nothing ends by them; who waits is looked at again.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.config.limits = limits;
        self.waits.wake();
    }

    /// What a replica of this profile would count as.
    pub(super) fn claim(
        service: ServiceId,
        owner: &Owner,
        name: &ServiceName,
        profile: &Profile,
    ) -> Claim {
        Claim {
            whose: claimants(owner, name),
            service,
            numbers: numbers_of(profile),
            goes_on_from: None,
        }
    }

    /// What everybody holds for whom one of the claims counts. Cost: see [`Registry::usages`].
    pub(super) fn usages_for<'a>(&self, claims: impl IntoIterator<Item = &'a Claim>) -> Usages {
        self.usages(claims.into_iter().flat_map(|claim| &claim.whose))
    }

    /// What these hold. Cost: a look at every service, and at the replicas of those that count for one of them.
    fn usages<'a>(&self, all: impl IntoIterator<Item = &'a Claimant>) -> Usages {
        let mut usages = Usages::default();
        for whose in all {
            let (of_its_kind, name) = match whose {
                Claimant::User(name) => (&mut usages.users, name),
                Claimant::Group(name) => (&mut usages.groups, name),
            };
            if !of_its_kind.contains_key(name) {
                let allowance = self.config.limits.of(whose);
                of_its_kind.insert(name.clone(), (allowance, Usage::default()));
            }
        }
        if usages.users.is_empty() && usages.groups.is_empty() {
            return usages;
        }
        for (id, service) in self.truth.services.iter() {
            let owner = &service.owner;
            let user = (!owner.admin).then(|| usages.users.get_mut(&owner.user));
            let group =
                (!usages.groups.is_empty()).then(|| owner.group_of(service.name.namespace()));
            let group = group
                .flatten()
                .and_then(|group| usages.groups.get_mut(group));
            for (_, usage) in user.flatten().into_iter().chain(group) {
                usage.known += 1;
                let mut records = 0_u32;
                for (index, replica) in self.truth.replicas_of(*id) {
                    records += 1;
                    if let Phase::Placed(placement) = &replica.phase {
                        let numbers = placement.grant.count();
                        usage.add(*id, numbers);
                        usage.add_numbers_on(placement.host, numbers);
                    } else if goes_on_from(service, index, replica).is_some() {
                        usage.add(*id, numbers_of(service.profile_of(replica.generation)));
                    }
                }
                // Jobs of other schedulers leave replicas that ended, and are not asked for any more.
                let known = service.desired.max(records);
                usage.replicas_known = usage.replicas_known.saturating_add(known);
            }
        }
        self.count_stranded(&mut usages);
        usages
    }

    /// What is left on lost hosts is held there. In all it counts for a replica that is over: one that goes on elsewhere,
    /// or waits to, counts by itself, and a user at its limit is not kept from moving off a lost host.
    fn count_stranded(&self, usages: &mut Usages) {
        for (at, stranded) in self.truth.stranded.iter() {
            let service = self.truth.services.find(&at.replica.service);
            let orphan = stranded.orphan.as_ref();
            let is_admin = service.is_some_and(|it| it.owner.admin);
            let user = service.map(|it| &it.owner.user);
            let user = user.or(orphan.map(|it| &it.user)).filter(|_| !is_admin);
            let group = service.and_then(|it| it.owner.group_of(it.name.namespace()));
            let replica = (at.replica.service, at.replica.index);
            let replica = self.truth.replicas.find(&replica);
            let goes_on = replica.is_some_and(|it| !matches!(it.phase, Phase::Ended(_)));
            let user = user.and_then(|user| usages.users.get_mut(user));
            let group = group.and_then(|group| usages.groups.get_mut(group));
            for (_, usage) in user.into_iter().chain(group) {
                let numbers = stranded.grant.count();
                usage.add_numbers_on(at.host, numbers);
                if !goes_on {
                    usage.ports = usage.ports.saturating_add(numbers);
                }
            }
        }
    }

    /// Refuses what no freed number would ever make possible, more than the whole of a limit in one service, and what
    /// would have too much be known.
    pub(super) fn fit_within_limits(
        &self,
        by: &Caller,
        name: &ServiceName,
        profile: &Profile,
        replicas: u32,
    ) -> Result<(), Refusal> {
        // How many there are of a service that runs on each host is not for its owner to say.
        let copies = match profile.replicas {
            Replicas::Count(_) => replicas,
            Replicas::PerHost => replicas.min(1),
        };
        self.fit_alone(by, name, profile, copies)?;
        let before = self.managed_by(by, name).map_or(0, |it| it.desired);
        self.fit_beside_what_is_known(by, name, copies.saturating_sub(before))
    }

    /// Refuses more in one service than the whole of a limit.
    pub(super) fn fit_alone(
        &self,
        by: &Caller,
        name: &ServiceName,
        profile: &Profile,
        copies: u32,
    ) -> Result<(), Refusal> {
        let numbers = numbers_of(profile);
        self.refuse_beyond(by, name, |allowance, _| {
            let per_host = allowance.ports_per_host;
            let ports = numbers.saturating_mul(copies);
            [
                (Limited::PortsOfAReplica, 0, per_host, numbers),
                (Limited::Ports, 0, allowance.ports, ports),
                (Limited::Replicas, 0, allowance.replicas, copies),
                (Limited::Services, 0, allowance.services, copies.min(1)),
            ]
        })
    }

    /// Refuses so many replicas more, and a service if it is new, where as many are known as may be.
    pub(super) fn fit_beside_what_is_known(
        &self,
        by: &Caller,
        name: &ServiceName,
        more: u32,
    ) -> Result<(), Refusal> {
        let is_new = u32::from(self.managed_by(by, name).is_none());
        self.refuse_beyond(by, name, |allowance, usage| {
            let known_for = |each: u32| each.saturating_mul(Allowance::KNOWN_FOR_EACH);
            let services = known_for(allowance.services);
            let replicas = known_for(allowance.replicas);
            [
                (Limited::KnownServices, usage.known, services, is_new),
                (Limited::KnownReplicas, usage.replicas_known, replicas, more),
            ]
        })
    }

    fn refuse_beyond<const N: usize>(
        &self,
        by: &Caller,
        name: &ServiceName,
        each: impl Fn(&Allowance, &Usage) -> [(Limited, u32, u32, u32); N],
    ) -> Result<(), Refusal> {
        let owner = self.managed_by(by, name).map(|it| it.owner.clone());
        let whose = claimants(&owner.unwrap_or_else(|| by.owner()), name);
        match self.usages(&whose).find(&whose, each) {
            Some(limit) => Err(Refusal::BeyondLimit {
                service: name.clone(),
                limit: Box::new(limit),
            }),
            None => Ok(()),
        }
    }

    /// The service of this name. Who may not manage it is told nothing of what its owner holds: another refusal
    /// follows.
    fn managed_by(&self, by: &Caller, name: &ServiceName) -> Option<&Service> {
        let known = self.truth.services.find(self.names.get(name)?);
        known.filter(|service| by.may_manage(service.holding()))
    }

    /// What the replica counts as once it runs the newest profile elsewhere: nothing more than it does, numbers on
    /// another host apart.
    pub(super) fn claim_of_moved(&self, key: ReplicaKey) -> Option<Claim> {
        let service = self.truth.services.find(&key.0)?;
        let replica = self.truth.replicas.find(&key)?;
        let from = match &replica.phase {
            Phase::Placed(placement) => Some(placement.host),
            _ => replica.former.as_ref().map(|former| former.host),
        };
        Some(Claim {
            goes_on_from: from,
            ..Self::claim(service.id, &service.owner, &service.name, service.profile())
        })
    }

    /// What this replica of the service counts as once it has a place.
    pub(super) fn claim_of(service: &Service, index: u32, replica: &Replica) -> Claim {
        let profile = service.profile_of(replica.generation);
        Claim {
            goes_on_from: goes_on_from(service, index, replica),
            ..Self::claim(service.id, &service.owner, &service.name, profile)
        }
    }
}

/// The host on which a waiting replica was, if it goes on by no wish of its owner, or takes part in a roll, with no more
/// numbers than it had. One that gave up begins anew.
fn goes_on_from(service: &Service, index: u32, replica: &Replica) -> Option<HostId> {
    let Phase::Waiting(waiting) = &replica.phase else {
        return None;
    };
    let goes_on = match &waiting.cause {
        WaitCause::Asked => {
            let roll = service.roll.as_ref();
            roll.is_some_and(|roll| roll.current == Some(index))
        }
        WaitCause::GaveUp(_) => false,
        WaitCause::Conflict(_)
        | WaitCause::Rebooted
        | WaitCause::HostLost(_)
        | WaitCause::Moved(_)
        | WaitCause::Left(_) => true,
    };
    let former = replica.former.as_ref().filter(|_| goes_on)?;
    let numbers = numbers_of(service.profile_of(replica.generation));
    (numbers <= former.grant.count()).then_some(former.host)
}

/// How many numbers each replica of the profile holds, as [`PortGrant::count`](crate::port_pool::PortGrant::count) counts them.
fn numbers_of(profile: &Profile) -> u32 {
    let each = profile.ports.iter().map(|port| match port.want {
        Want::Any { count } => u32::from(count.get()),
        Want::Fixed(_) => 1,
    });
    each.fold(0, u32::saturating_add)
}

/// For whom a service of this name and owner counts: nobody, the user, or the user and the group.
fn claimants(owner: &Owner, name: &ServiceName) -> Vec<Claimant> {
    let user = (!owner.admin).then(|| Claimant::User(owner.user.clone()));
    let group = owner.group_of(name.namespace());
    let group = group.map(|group| Claimant::Group(group.to_owned()));
    user.into_iter().chain(group).collect()
}
