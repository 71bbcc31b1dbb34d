//! What operators order about hosts: who may, which host is meant, and which rule answers.

use std::time::Duration;

use crate::identity::{HostId, HostName, Incarnation, ServiceName};
use crate::rights::Caller;

use super::machine::Registry;
use super::{Answer, Refusal};

/// What an operator can order about a host. For operators only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostVerb {
    /// Give it nothing new and move what runs there; a drain under way takes the new pace.
    Drain {
        /// How fast.
        pace: DrainPace,
    },
    /// End its drain; what was moved stays where it is.
    Undrain,
    /// Take it for lost now, without waiting for the grace.
    Down {
        /// It cannot run anything any more, by the operator's word: its numbers are freed too.
        fenced: bool,
    },
    /// Forget it: it is gone for good.
    Remove,
    /// Make a replica that runs there and is not known here ours again.
    Adopt {
        /// Which.
        replica: HostReplica,
    },
    /// Stop what runs there and is not known here.
    Fence {
        /// Which; `None`: all of it.
        replica: Option<HostReplica>,
    },
}

/// How a drain goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainPace {
    /// One replica of a service after the other, each ready elsewhere before the next; what has nowhere to go stays.
    OneByOne,
    /// The same, and whatever is left after this time is stopped at once.
    Within(Duration),
    /// Everything is stopped at once, whether it has somewhere to go or not.
    AtOnce,
}

/// A replica as a host tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostReplica {
    /// Whose copy.
    pub service: ServiceName,
    /// Which copy.
    pub index: u32,
    /// Which placement; `None`: the only one there.
    pub incarnation: Option<Incarnation>,
}

impl HostVerb {
    /// The word people type.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Drain { .. } => "drain",
            Self::Undrain => "undrain",
            Self::Down { .. } => "take down",
            Self::Remove => "remove",
            Self::Adopt { .. } => "adopt a replica of",
            Self::Fence { .. } => "fence a replica of",
        }
    }
}

impl Registry {
    /// Does what an operator orders about a host, or says why not; then nothing changed.
    pub(super) fn host_command(
        &mut self,
        by: &Caller,
        host: &HostName,
        verb: HostVerb,
    ) -> Result<Answer, Refusal> {
        if !by.may_operate() {
            return Err(Refusal::OperatorsOnly {
                user: by.user.clone(),
                action: verb.word(),
                host: host.clone(),
            });
        }
        let id = self.known_host(host)?;
        match verb {
            HostVerb::Drain { pace } => Ok(self.drain_host(by, id, pace)),
            HostVerb::Undrain => Ok(self.undrain_host(by, id)),
            HostVerb::Down { fenced } => self.host_down(by, id, fenced),
            HostVerb::Remove => self.remove_host(id),
            HostVerb::Adopt { replica } => self.adopt_unknown(by, id, &replica),
            HostVerb::Fence { replica } => self.fence_unknown(by, id, replica.as_ref()),
        }
    }

    fn known_host(&self, host: &HostName) -> Result<HostId, Refusal> {
        let id = self.host_names.get(host).copied();
        let id = id.filter(|id| {
            self.truth
                .hosts
                .find(id)
                .is_some_and(|it| it.removed.is_none())
        });
        id.ok_or_else(|| Refusal::NoSuchHost { host: host.clone() })
    }

    pub(super) fn unfit_host(&self, host: HostId, reason: &str) -> Refusal {
        Refusal::HostUnfit {
            host: self.host_name(host),
            reason: reason.to_owned(),
        }
    }
}

/// What became of an order about a host.
pub(super) const fn host_answer(host: HostName, changed: bool, notes: Vec<String>) -> Answer {
    Answer {
        service: None,
        host: Some(host),
        changed,
        notes,
        granted: None,
    }
}
