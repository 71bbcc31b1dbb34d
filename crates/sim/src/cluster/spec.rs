//! What a virtual cluster is made of. Made by a scenario or by a seed; nothing here is checked again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use portreeve::identity::{HostName, Namespace, ServiceName};
use portreeve::port::PortRanges;
use portreeve::profile::Profile;
use portreeve::registry::Config;
use portreeve::rights::Caller;
use portreeve::time::{Monotonic, WallClock};

use super::act::Planned;
use crate::scenario::Scripts;

/// Everything that one run is determined by.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// All chance follows from it.
    pub(crate) seed: u64,
    /// The run ends then.
    pub(crate) until: Monotonic,
    /// What clocks show at the start.
    pub(crate) wall: WallClock,
    /// The registry's settings, as a site would set them.
    pub(crate) config: Config,
    pub(crate) hosts: Vec<HostSpec>,
    /// Addressed by their place in this list, whether they are submitted already or not.
    pub(crate) services: Vec<ServiceSpec>,
    pub(crate) network: NetworkSpec,
    pub(crate) disk: DiskSpec,
    /// What happens and when, in order of time.
    pub(crate) acts: Vec<Planned>,
    /// What people do at random.
    pub(crate) workloads: Vec<Workload>,
}

/// One host.
#[derive(Clone, Debug)]
pub(crate) struct HostSpec {
    pub(crate) name: HostName,
    pub(crate) dynamic: PortRanges,
    pub(crate) fixed: PortRanges,
    pub(crate) reserved: PortRanges,
    pub(crate) labels: BTreeMap<String, String>,
}

/// One service: its profile, whose it is, and what its processes do.
#[derive(Clone, Debug)]
pub(crate) struct ServiceSpec {
    pub(crate) profile: Arc<Profile>,
    pub(crate) owner: Caller,
    /// What runs do, by replica; under `None` for all that have none of their own.
    pub(crate) scripts: BTreeMap<Option<u32>, Arc<Scripts>>,
}

impl ServiceSpec {
    /// Whether this is its name: in the namespace that its profile says, else in its owner's.
    pub(crate) fn is(&self, name: &ServiceName) -> bool {
        let written = self.profile.namespace.as_ref();
        let namespace = written.map_or(self.owner.user.as_str(), |written| written.as_str());
        self.profile.name == *name.label() && namespace == name.namespace().as_str()
    }

    /// What the controller calls it: in the namespace of the profile, else in that of the owner.
    pub(crate) fn name(&self) -> ServiceName {
        let own = || Namespace::try_from(self.owner.user.clone());
        let namespace = self.profile.namespace.clone().map_or_else(own, Ok);
        // An owner without one has no service that the controller would take either.
        let fallback = || Namespace::try_from("nobody".to_owned()).expect("a word is a namespace");
        ServiceName::new(
            self.profile.name.clone(),
            namespace.unwrap_or_else(|_| fallback()),
        )
    }
}

/// How messages travel between hosts and the controller. A part is of 1,000,000.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkSpec {
    /// Each message takes a time out of this; equal ends: always that.
    pub(crate) delay: Range<Duration>,
    /// Parts of messages that never arrive.
    pub(crate) loss: u32,
    /// Parts of messages that arrive twice.
    pub(crate) duplication: u32,
    /// Parts of messages that are held back so long that later ones overtake them, and for how long at most.
    pub(crate) reordering: (u32, Duration),
}

/// How fast and how reliably the controller's store works. A part is of 1,000,000.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskSpec {
    /// A commit takes a time out of this.
    pub(crate) commit: Range<Duration>,
    /// Parts of commits that are refused, with nothing of them kept.
    pub(crate) refusal: u32,
}

impl Default for NetworkSpec {
    /// Ideal.
    fn default() -> Self {
        Self {
            delay: Duration::ZERO..Duration::ZERO,
            loss: 0,
            duplication: 0,
            reordering: (0, Duration::ZERO),
        }
    }
}

impl Default for DiskSpec {
    /// Ideal.
    fn default() -> Self {
        Self {
            commit: Duration::ZERO..Duration::ZERO,
            refusal: 0,
        }
    }
}

/// What people do at random, by rate.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Within this time.
    pub(crate) within: Range<Monotonic>,
    /// So often in a minute on average.
    pub(crate) per_minute: u32,
    pub(crate) kind: WorkloadKind,
    /// Among which services, by their places.
    pub(crate) services: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    /// Submit one that is not there, stop one that is; delete one that is stopped.
    Churn,
    /// Scale to anything from nothing to as many.
    Scale { most: u32 },
    /// Restart one replica or all.
    Restart,
    /// Submit it again with another environment, so that it is rolled.
    Replace,
    /// Kill a random process, as a crash.
    Crash,
}
