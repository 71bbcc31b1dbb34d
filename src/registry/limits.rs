//! How much users and groups may hold, and the words for a limit that is in the way.
//!
//! What they do hold is counted in `usages`. A limit keeps what waits from a place; it never ends what runs.

use std::collections::BTreeMap;
use std::fmt;

use crate::identity::HostName;

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
