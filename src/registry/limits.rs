//! How much users and groups may hold, and what they hold: placed replicas, their numbers, the services of those.
//!
//! Invariant: nothing of it is remembered. What somebody holds is counted from the records when it is asked, so that no
//! crash, no refused commit and no change of a limit can make it wrong. A limit keeps what waits from a place; it
//! never ends what runs, and what waits for room is looked at again whenever somebody's numbers are freed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::identity::{HostId, HostName, ServiceId, ServiceName};
use crate::port_pool::Want;
use crate::profile::{Profile, Replicas};
use crate::rights::Caller;

use super::Refusal;
use super::machine::Registry;
use super::records::{Phase, Service};

/// What one user or group may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Numbers on one host.
    pub ports_per_host: u32,
    /// Numbers on all hosts.
    pub ports: u32,
    /// Replicas that have a place.
    pub replicas: u32,
    /// Services with such a replica.
    pub services: u32,
}

impl Allowance {
    /// As much as anybody likes.
    pub const UNLIMITED: u32 = u32::MAX;
    /// No limit at all.
    pub const NO_LIMIT: Self = Self {
        ports_per_host: Self::UNLIMITED,
        ports: Self::UNLIMITED,
        replicas: Self::UNLIMITED,
        services: Self::UNLIMITED,
    };
    /// How many services may be known, and how many replicas asked for, for each that may have a place: what waits or
    /// ended costs memory too.
    pub const KNOWN_FOR_EACH: u32 = 10;
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            ports_per_host: 512,
            ports: 5_000,
            replicas: 1_000,
            services: 100,
        }
    }
}

/// What everybody may hold. A service counts for the user who submitted it and, in the namespace of one of that user's
/// groups, for the group as well. What an admin submits counts for no user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Users who are not named.
    pub user: Allowance,
    /// Groups that are not named.
    pub group: Allowance,
    /// Users by account.
    pub users: BTreeMap<String, Allowance>,
    /// Groups by name.
    pub groups: BTreeMap<String, Allowance>,
}

impl Limits {
    /// What this user or group may hold.
    #[must_use]
    pub fn of(&self, whose: &Claimant) -> Allowance {
        let (named, others, name) = match whose {
            Claimant::User(name) => (&self.users, &self.user, name),
            Claimant::Group(name) => (&self.groups, &self.group, name),
        };
        *named.get(name).unwrap_or(others)
    }
}

/// For whom a service counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claimant {
    /// An account.
    User(String),
    /// A group, for the services in its namespace.
    Group(String),
}

impl fmt::Display for Claimant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => f.write_str(name),
            Self::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// What is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Numbers on one host.
    PortsOn(HostName),
    /// Numbers of one replica, which are all on one host.
    PortsOfAReplica,
    /// Numbers.
    Ports,
    /// Replicas.
    Replicas,
    /// Services.
    Services,
    /// Replicas that are asked for, whether they have a place or not.
    KnownReplicas,
    /// Services that are known, whether they run or not.
    KnownServices,
}

/// A limit in the way of something. `asks` more would be more than `most`, of which `has` are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// Whose limit.
    pub whose: Claimant,
    /// Of what.
    pub what: Limited,
    /// How much of it is taken.
    pub has: u32,
    /// How much of it there may be.
    pub most: u32,
    /// How much more is asked for.
    pub asks: u32,
}

impl LimitReached {
    /// Whether it is in the way although nothing is taken yet.
    const fn is_for_ever(&self) -> bool {
        self.asks > self.most
    }
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            whose,
            what,
            has,
            most,
            asks,
        } = self;
        match what {
            Limited::PortsOfAReplica => {
                return write!(
                    f,
                    "each replica asks for {asks} ports; {whose} may hold {most} on one host"
                );
            }
            Limited::KnownServices => {
                return write!(
                    f,
                    "{whose} has {has} services, and {most} may be known; `portreeve delete NAME` forgets one that ended"
                );
            }
            Limited::KnownReplicas => {
                return write!(
                    f,
                    "{whose} asked for {has} replicas, and for {asks} more now; {most} may be asked for"
                );
            }
            _ => {}
        }
        let noun = match what {
            Limited::Replicas => "replicas",
            Limited::Services => "services",
            _ => "ports",
        };
        if self.is_for_ever() {
            return write!(
                f,
                "{asks} {noun} are asked for; {whose} may have {most}: ask for fewer, or the site for more \
                 (`controller --limits`)"
            );
        }
        let verb = if noun == "ports" { "holds" } else { "has" };
        write!(f, "{whose} {verb} {has} of {most} {noun}")?;
        if let Limited::PortsOn(host) = what {
            write!(f, " on host {host}")?;
        }
        if has < most {
            write!(f, ", and {asks} more are asked for")?;
        }
        Ok(())
    }
}

/// What one claimant holds.
#[derive(Clone, Debug, Default)]
struct Usage {
    services: BTreeSet<ServiceId>,
    replicas: u32,
    ports: u32,
    on: BTreeMap<HostId, u32>,
    /// Services, whether they run or not.
    known: u32,
    /// Replicas asked for, whether they have a place or not.
    desired: u32,
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
}

impl Usages {
    /// One more replica of the service has a place.
    pub(super) fn add(&mut self, claim: &Claim, host: HostId) {
        for whose in &claim.whose {
            let (of_its_kind, name) = match whose {
                Claimant::User(name) => (&mut self.users, name),
                Claimant::Group(name) => (&mut self.groups, name),
            };
            if let Some((_, usage)) = of_its_kind.get_mut(name) {
                usage.add(claim.service, host, claim.numbers);
            }
        }
    }

    /// What keeps one more replica from every host.
    pub(super) fn reached(&self, claim: &Claim) -> Option<LimitReached> {
        self.find(claim, |allowance, usage| {
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
                if claim.numbers > 0 && has.saturating_add(claim.numbers) > most {
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

    fn of(&self, whose: &Claimant) -> Option<&(Allowance, Usage)> {
        match whose {
            Claimant::User(name) => self.users.get(name),
            Claimant::Group(name) => self.groups.get(name),
        }
    }

    fn find<const N: usize>(
        &self,
        claim: &Claim,
        each: impl Fn(&Allowance, &Usage) -> [(Limited, u32, u32, u32); N],
    ) -> Option<LimitReached> {
        claim.whose.iter().find_map(|whose| {
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
    fn add(&mut self, service: ServiceId, host: HostId, numbers: u32) {
        self.services.insert(service);
        self.replicas = self.replicas.saturating_add(1);
        self.add_numbers(host, numbers, true);
    }

    /// Numbers that are held on a host, which in all may be counted elsewhere.
    fn add_numbers(&mut self, host: HostId, numbers: u32, counts: bool) {
        if counts {
            self.ports = self.ports.saturating_add(numbers);
        }
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
        owner: &Caller,
        name: &ServiceName,
        profile: &Profile,
    ) -> Claim {
        Claim {
            whose: claimants(owner, name),
            service,
            numbers: numbers_of(profile),
        }
    }

    /// What everybody holds for whom one of the claims counts. Cost: a look at every service, and at the replicas of
    /// those that count for one of them.
    pub(super) fn usages<'a>(&self, claims: impl IntoIterator<Item = &'a Claim>) -> Usages {
        let mut usages = Usages::default();
        for whose in claims.into_iter().flat_map(|claim| &claim.whose) {
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
                usage.desired = usage.desired.saturating_add(service.desired);
                for (_, replica) in self.truth.replicas_of(*id) {
                    if let Phase::Placed(placement) = &replica.phase {
                        usage.add(*id, placement.host, placement.grant.count());
                    }
                }
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
                usage.add_numbers(at.host, stranded.grant.count(), !goes_on);
            }
        }
    }

    /// Refuses what no freed number would ever make possible: more than the whole of a limit in one service.
    pub(super) fn fit_within_limits(
        &self,
        by: &Caller,
        name: &ServiceName,
        profile: &Profile,
        replicas: u32,
    ) -> Result<(), Refusal> {
        let known = self.names.get(name);
        let known = known.and_then(|id| self.truth.services.find(id));
        let owner = known.map_or(by, |service| &service.owner);
        let numbers = numbers_of(profile);
        // How many there are of a service that runs on each host is not for its owner to say.
        let copies = match profile.replicas {
            Replicas::Count(_) => replicas,
            Replicas::PerHost => replicas.min(1),
        };
        let before = known.map_or(0, |service| service.desired);
        let claim = Self::claim(ServiceId(u64::MAX), owner, name, profile);
        let usages = self.usages([&claim]);
        let alone = usages.find(&claim, |allowance, _| {
            let ports = numbers.saturating_mul(copies);
            [
                (
                    Limited::PortsOfAReplica,
                    0,
                    allowance.ports_per_host,
                    numbers,
                ),
                (Limited::Ports, 0, allowance.ports, ports),
                (Limited::Replicas, 0, allowance.replicas, copies),
                (Limited::Services, 0, allowance.services, copies.min(1)),
            ]
        });
        let crowded = || {
            usages.find(&claim, |allowance, usage| {
                let known_for = |each: u32| each.saturating_mul(Allowance::KNOWN_FOR_EACH);
                let new = u32::from(known.is_none());
                let more = copies.saturating_sub(before);
                let services = known_for(allowance.services);
                let replicas = known_for(allowance.replicas);
                [
                    (Limited::KnownServices, usage.known, services, new),
                    (Limited::KnownReplicas, usage.desired, replicas, more),
                ]
            })
        };
        match alone.or_else(crowded) {
            Some(limit) => Err(Refusal::BeyondLimit {
                service: name.clone(),
                limit: Box::new(limit),
            }),
            None => Ok(()),
        }
    }

    /// Whether the limits leave room for one more replica of the service, and on which hosts they do not.
    pub(super) fn claim_of(service: &Service, profile: &Profile) -> Claim {
        Self::claim(service.id, &service.owner, &service.name, profile)
    }
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
fn claimants(owner: &Caller, name: &ServiceName) -> Vec<Claimant> {
    let user = (!owner.admin).then(|| Claimant::User(owner.user.clone()));
    let group = owner.group_of(name.namespace());
    let group = group.map(|group| Claimant::Group(group.to_owned()));
    user.into_iter().chain(group).collect()
}
