//! Why a host does not fit: one machine code and one sentence per cause.

use std::fmt;
use std::time::Duration;

use crate::identity::{ReplicaId, ServiceId};
use crate::port::{Port, PortName, Protocol};
use crate::time::Spelled;

use super::Stranger;

/// One reason against one host, with the port of the request that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Which port of the request; `None`: the host as a whole.
    pub port: Option<WhyPort>,
    /// What is in the way.
    pub cause: Cause,
}

/// The port of a request that a cause concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyPort {
    /// Its name in the profile.
    pub name: PortName,
    /// The side or sides concerned: of a `tcp+udp` port only the one that is in the way.
    pub protocol: Protocol,
    /// The number, where the cause is about one.
    pub number: Option<Port>,
}

/// What is in the way. The set may grow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A replica has the number.
    Held {
        /// Who; show it only to who may see it.
        by: ReplicaId,
    },
    /// A replica has the number until its last process is gone.
    Releasing {
        /// Who; show it only to who may see it.
        by: ReplicaId,
    },
    /// It was released and rests.
    Cooling {
        /// How long still.
        left: Duration,
    },
    /// The site never gives it.
    Reserved,
    /// A stranger listens there.
    Foreign(Stranger),
    /// "Any" leaves it to a waiting request that names it.
    Awaited,
    /// The host's ranges do not offer it.
    NotInPool,
    /// Not enough numbers are free or cooling.
    TooFew {
        /// How many there are for the ports that ask alike.
        have: u32,
        /// How many those ports need.
        want: u32,
    },
    /// No run of consecutive numbers is long enough.
    NoBlock {
        /// The size asked for.
        size: u16,
    },
    /// The host takes nothing new.
    HostDrained,
    /// The host was not heard of for a while.
    HostSuspect,
    /// The host is lost.
    HostLost,
    /// The host has not said yet what runs on it.
    HostNotReported,
    /// There is no such host.
    UnknownHost,
    /// The host has no address to publish. Found by who knows addresses, not by the allocator.
    NoAddress,
}

impl Cause {
    /// The machine code. The numbers are those of `PR_R_*` in the C header and never change.
    #[must_use]
    pub const fn code(&self) -> CauseCode {
        match self {
            Self::Held { .. } => CauseCode::Held,
            Self::Releasing { .. } => CauseCode::Releasing,
            Self::Cooling { .. } => CauseCode::Cooling,
            Self::Reserved => CauseCode::Reserved,
            Self::Foreign(_) => CauseCode::Foreign,
            Self::Awaited => CauseCode::Awaited,
            Self::NotInPool => CauseCode::NotInPool,
            Self::TooFew { .. } => CauseCode::TooFew,
            Self::NoBlock { .. } => CauseCode::NoBlock,
            Self::HostDrained => CauseCode::HostDrained,
            Self::HostSuspect => CauseCode::HostSuspect,
            Self::HostLost => CauseCode::HostLost,
            Self::HostNotReported => CauseCode::HostNotReported,
            Self::UnknownHost => CauseCode::UnknownHost,
            Self::NoAddress => CauseCode::NoAddress,
        }
    }

    /// Who holds the number, where a replica does.
    #[must_use]
    pub const fn holder(&self) -> Option<ReplicaId> {
        match self {
            Self::Held { by } | Self::Releasing { by } => Some(*by),
            _ => None,
        }
    }
}

macro_rules! cause_codes {
    ($($name:ident = $number:literal, $word:literal;)*) => {
        /// A cause as a stable number and word, for machines and for sums over hosts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum CauseCode {
            $(
                #[doc = concat!("`", $word, "`.")]
                $name = $number,
            )*
        }

        impl CauseCode {
            /// Every code, ascending by number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word, such as `NOT IN POOL`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// The number in the C header.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }
        }
    };
}

cause_codes! {
    Held = 1, "HELD";
    Releasing = 2, "RELEASING";
    Cooling = 3, "COOLING";
    Reserved = 4, "RESERVED";
    Foreign = 5, "FOREIGN";
    NotInPool = 6, "NOT IN POOL";
    TooFew = 7, "TOO FEW FREE";
    NoBlock = 8, "NO BLOCK";
    Awaited = 9, "AWAITED";
    HostDrained = 10, "HOST DRAINED";
    HostSuspect = 11, "HOST SUSPECT";
    HostLost = 12, "HOST LOST";
    UnknownHost = 13, "UNKNOWN HOST";
    NoAddress = 14, "NO ADDRESS";
    HostNotReported = 15, "HOST NOT REPORTED";
}

impl fmt::Display for CauseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Why {
    /// The sentence, with holders named by `name_of`: `port http: 8080/tcp is HELD by web.alice
    /// replica 2`. Where `name_of` gives nothing (unknown, or not for this reader) it says
    /// `another service`.
    pub fn told<'a, N>(&'a self, name_of: &'a N) -> impl fmt::Display + 'a
    where
        N: Fn(ServiceId) -> Option<String>,
    {
        Told { why: self, name_of }
    }
}

/// Without names: `another service` for every holder.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told(&|_| None).fmt(f)
    }
}

struct Told<'a, N> {
    why: &'a Why,
    name_of: &'a N,
}

impl<N: Fn(ServiceId) -> Option<String>> fmt::Display for Told<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(port) = &self.why.port {
            match port.number {
                Some(number) => write!(f, "port {}: {number}/{} is ", port.name, port.protocol)?,
                None => write!(f, "port {} ({}): ", port.name, port.protocol)?,
            }
        }
        f.write_str(self.why.cause.code().as_str())?;
        match &self.why.cause {
            Cause::Held { by } | Cause::Releasing { by } => match (self.name_of)(by.service) {
                Some(name) => write!(f, " by {name} replica {}", by.index),
                None => f.write_str(" by another service"),
            },
            Cause::Cooling { left } => write!(f, " {}", Spelled(in_seconds(*left))),
            Cause::Foreign(stranger) => write!(f, "{stranger}"),
            Cause::TooFew { have, want } => write!(f, " ({have} of {want})"),
            Cause::NoBlock { size } => write!(f, " OF {size}"),
            _ => Ok(()),
        }
    }
}

/// Rounded up to whole seconds: people read it, and 0 s would say that it is over.
fn in_seconds(left: Duration) -> Duration {
    Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Incarnation;

    #[test]
    fn a_cause_is_one_sentence_and_names_holders_only_to_who_may_see_them() {
        let by = ReplicaId {
            service: ServiceId(7),
            index: 2,
            incarnation: Incarnation(0),
        };
        let why = |cause| Why {
            port: Some(WhyPort {
                name: "http".parse().unwrap(),
                protocol: Protocol::Tcp,
                number: Port::new(8080),
            }),
            cause,
        };
        let held = why(Cause::Held { by });
        let names = |service: ServiceId| (service.0 == 7).then(|| "web.alice".to_owned());
        assert_eq!(
            held.told(&names).to_string(),
            "port http: 8080/tcp is HELD by web.alice replica 2"
        );
        assert_eq!(
            held.to_string(),
            "port http: 8080/tcp is HELD by another service"
        );
        let left = Duration::from_millis(41_001);
        assert_eq!(
            why(Cause::Cooling { left }).to_string(),
            "port http: 8080/tcp is COOLING 42s"
        );
        let nginx = Stranger {
            pid: Some(811),
            comm: Some("nginx".into()),
        };
        assert_eq!(
            why(Cause::Foreign(nginx)).to_string(),
            "port http: 8080/tcp is FOREIGN pid 811 (nginx)"
        );
        let few = Why {
            port: Some(WhyPort {
                name: "rpc".parse().unwrap(),
                protocol: Protocol::Udp,
                number: None,
            }),
            cause: Cause::TooFew { have: 2, want: 3 },
        };
        assert_eq!(few.to_string(), "port rpc (udp): TOO FEW FREE (2 of 3)");
        let drained = Why {
            port: None,
            cause: Cause::HostDrained,
        };
        assert_eq!(drained.to_string(), "HOST DRAINED");
    }
}
