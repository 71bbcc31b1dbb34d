//! What readers see of services and replicas: plain data, the bodies of the REST answers too; hosts are in `host_view`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::{HostName, Incarnation, ServiceId, ServiceName};
use crate::port::{PortName, PortRange};
use crate::port_pool::PortGrant;
use crate::profile::Profile;
use crate::residency::{ReplicaName, Want};
use crate::rights::{Caller, Holding};
use crate::supervision::{Failure, Status};
use crate::time::{Monotonic, WallClock};

use super::heard::HeardOf;
use super::host_view::HostView;
use super::placement::Reason;
use super::reasons::{HostSums, ReasonView};
use super::replica_list::ReplicaList;
use super::roster::{Named, Roster};
use super::token_records::{Token, TokenId};

/// Everything at one moment; built anew for what changed, shared for the rest.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The newest revision of anything in it.
    pub revision: u64,
    /// Services by name.
    pub services: Roster<ServiceView>,
    /// Hosts by name.
    pub hosts: Roster<HostView>,
    /// The revision at which a service last left it.
    pub removed: u64,
    /// The revision at which it last changed who may see a service that was there before: its owner, whose groups, or its visibility.
    pub rights: u64,
    /// Rises when a service that was stale is not any more; no revision moves with it.
    pub synced: u64,
    /// The tokens that there are. Never told as they are: each to whom it concerns.
    pub tokens: Arc<BTreeMap<TokenId, Arc<Token>>>,
    /// Rises with every change of the tokens; no revision moves with it.
    pub access: u64,
    /// Services that are shown as they were stored: a host of theirs has not told everything since this start.
    pub(super) stale: Arc<BTreeSet<ServiceName>>,
}

impl View {
    /// Whether what is shown of the service may be older than this start of the controller. Cost: one look-up.
    #[must_use]
    pub fn is_stale(&self, service: &ServiceName) -> bool {
        self.stale.contains(service)
    }
}

/// One service as people see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceView {
    /// Its full name.
    pub service: ServiceName,
    /// Who submitted it.
    pub owner: String,
    /// `running`, `stopped` or `ended`.
    pub state: String,
    /// How many replicas there shall be.
    pub desired: u32,
    /// How many are listed.
    pub ready: u32,
    /// The restart or replacement that is not through yet, in words. Until it is, `ready` counts replicas that
    /// are still to be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<String>,
    /// What its waiting replicas wait for, in a few words: `1 replica waits: 8888/tcp HELD by nb.alice/0 on n1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// When it was submitted.
    pub submitted: WallClock,
    /// The last change that anything here shows.
    pub changed: WallClock,
    /// Rises with every change that anything here shows; what a long poll waits for.
    pub revision: u64,
    /// Its replicas, by index.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<ReplicaView>))]
    pub replicas: ReplicaList,
    /// The effective profile, as JSON of the profile's schema; secrets are names only.
    pub profile: Arc<Profile>,
    /// Its replicas are brought along by jobs of another scheduler (`portreeve run`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub attached: bool,
    /// Who may see it beside the owner is in the profile; the id is for logs.
    pub id: ServiceId,
    /// When its hosts were last heard of.
    /// The groups of who submitted it.
    #[serde(skip)]
    pub(super) owner_groups: Arc<[String]>,
    #[serde(skip)]
    pub(super) heard: HeardOf,
    /// The tag of its definition.
    #[serde(skip)]
    pub(super) definition: String,
}

/// One replica as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReplicaView {
    /// Its index.
    pub replica: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// The job state: `PEND`, `RUN`, `DONE` or `EXIT`.
    pub job_state: String,
    /// The detail: `pending`, `starting`, `ready`, `not ready`, `backoff`, `stopping`, `stuck`,
    /// `gave up`, `stopped`, `completed`, `port conflict`, …
    pub state: String,
    /// Whether it is listed.
    pub ready: bool,
    /// Since when its host is silent, so that nobody knows how it is now; `state` is `unknown` then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_since: Option<WallClock>,
    /// Why it is as it is, one sentence: why it pends, is not ready, or ended.
    pub reason: Option<String>,
    /// Of a replica that has no place: what is against the first three hosts by name, up to eight causes each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<ReasonView>,
    /// Of a replica that has no place: all hosts, by the first cause against each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_sums: Option<HostSums>,
    /// Automatic restarts of this incarnation.
    pub restarts: u32,
    /// Automatic restarts over all incarnations; never falls.
    pub restarts_total: u32,
    /// Restarts by the user in this incarnation.
    pub user_restarts: u32,
    /// The newest failure in words, such as `signal 9 (KILL)`.
    pub last_failure: Option<String>,
    /// The newest failure whole.
    pub last_failure_detail: Option<Failure>,
    /// The first failure of this incarnation whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure_detail: Option<Failure>,
    /// The newest start of this incarnation; 0 before the first.
    #[serde(default)]
    pub run: crate::identity::Run,
    /// Where it is placed.
    pub host: Option<HostName>,
    /// The host's published address.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub address: Option<IpAddr>,
    /// The addresses of its ports that name a network, by port name; the others have the host's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub addresses: BTreeMap<PortName, IpAddr>,
    /// Its numbers by port name: `20001`, or `20001-20004` for a block.
    pub ports: BTreeMap<String, PortRange>,
    /// The process of the living run.
    pub pid: Option<u32>,
    /// Since when it is in this state.
    pub since: WallClock,
    /// It runs inside a job of another scheduler: never placed, moved or started anew from here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub attached: bool,
    /// That job in its scheduler's words, such as `slurm 4711`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// What `reason` and `reasons` are told from, to tell them anew to another reader or at another moment.
    #[serde(skip)]
    pub(super) waits: Option<Waits>,
    /// How it was when its host was last heard of, where that is silent.
    #[serde(skip)]
    pub(super) known: Option<LastKnown>,
}

/// What was last known of a replica of which nothing is known now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastKnown {
    pub(super) state: String,
    pub(super) reason: Option<String>,
}

/// What a replica without a place waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) reason: Reason,
    /// What took it from its last place.
    pub(super) after: Option<String>,
}

/// Something that happened to a service or a host; several equal ones in a row of equal ones are one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventView {
    /// When.
    pub at: WallClock,
    /// To which replica; `None`: the service.
    pub replica: Option<u32>,
    /// In which placement.
    pub incarnation: Option<Incarnation>,
    /// Where that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// One word: `submitted`, `placed`, `ready`, `not-ready`, `restarted`, `gave-up`, …
    pub kind: String,
    /// One sentence.
    pub text: String,
    /// How often it happened since `first`, together with those beside it that have the same count.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u32,
    /// When it first happened, if more than once; `at` is when it last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<WallClock>,
}

impl Named for ServiceView {
    type Name = ServiceName;

    fn name(&self) -> &ServiceName {
        &self.service
    }
}

impl ReplicaView {
    /// The same as it was when its host was last heard of: equal however silent that is.
    pub(super) fn as_last_known(&self) -> Self {
        let mut view = self.clone();
        view.unknown_since = None;
        if let Some(known) = view.known.take() {
            (view.state, view.reason) = (known.state, known.reason);
        }
        view
    }
}

impl ServiceView {
    /// What its rights are decided by.
    #[must_use]
    pub fn holding(&self) -> Holding<'_> {
        Holding {
            owner: &self.owner,
            groups: &self.owner_groups,
            visibility: &self.profile.visibility,
        }
    }

    /// How old what is known of its replicas may be at `now`: since the one of their hosts that has been silent
    /// for longest was heard of; zero without a host. Cost: a nanosecond or so for each host.
    #[must_use]
    pub fn age(&self, now: Monotonic) -> Duration {
        self.heard.age(now)
    }

    /// The tag of what its owner wants: another one once that is something else, and the same however its replicas fare.
    #[must_use]
    pub fn definition(&self) -> &str {
        &self.definition
    }

    /// Whether a replica has no place, so that what is told of it differs by reader and moment.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.replicas.iter().any(|replica| replica.waits.is_some())
    }

    /// The same as `reader` may see it at `now`: holders of ports by their rights, rests by what is left of them.
    #[must_use]
    pub fn told_to(&self, reader: &Caller, now: Monotonic) -> Self {
        let mut view = self.clone();
        let mut first = None;
        let mut waiting: u32 = 0;
        for replica in &mut view.replicas {
            let Some(waits) = replica.waits.take() else {
                continue;
            };
            let told = waits.reason.survey.told(reader, now);
            replica.reason = Some(match &waits.after {
                Some(after) => format!("{} ({after})", told.sentence),
                None => told.sentence,
            });
            replica.reasons = told.reasons;
            replica.reason_sums = Some(told.sums);
            first.get_or_insert(told.short);
            waiting += 1;
            replica.waits = Some(waits);
        }
        view.waits_for = first.map(|short| match waiting {
            1 => format!("1 replica waits: {short}"),
            many => format!("{many} replicas wait: {short}"),
        });
        view
    }

    /// Whether both show the same but for how old what is known of their replicas is.
    pub(super) fn same_but_for_age(&self, other: &Self) -> bool {
        let mut ageless = self.clone();
        ageless.replicas = ReplicaList::default();
        let all = self.replicas.iter().zip(&other.replicas);
        self.replicas.len() == other.replicas.len()
            && all
                .into_iter()
                .all(|(a, b)| a == b || a.as_last_known() == b.as_last_known())
            && ageless
                == Self {
                    replicas: ReplicaList::default(),
                    ..other.clone()
                }
    }

    /// The same as it was when the hosts last said something else: equal until they do.
    pub(super) fn told_as_found(self, reader: &Caller) -> Self {
        let found = self.replicas.iter().find_map(|it| it.waits.as_ref());
        match found.map(|waits| waits.reason.at) {
            Some(at) => self.told_to(reader, at),
            None => self,
        }
    }
}

/// What a host shall do about one replica. State, not a message: acting on it twice is harmless.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Desired {
    /// Whose copy.
    pub service: ServiceName,
    /// Its number.
    pub service_id: ServiceId,
    /// Which copy.
    pub index: u32,
    /// Which placement.
    pub incarnation: Incarnation,
    /// Run, drain or stop.
    pub want: Want,
    /// A number above the one acted on is a restart by the user.
    pub restart_no: u64,
    /// Its ports.
    pub grant: PortGrant,
    /// Where clients of those ports are sent that name a network; one without is left out, and what was told before
    /// stands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<PortName, IpAddr>,
    /// What to run. All orders of a generation share it.
    pub profile: Arc<Profile>,
    /// The submitting account.
    pub user: String,
    /// Its uid.
    pub uid: u32,
    /// The newest status the controller has, so that a host that lost its records knows.
    pub last_status: Option<Status>,
    /// A job of another scheduler runs it: the host starts nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub attached: bool,
}

const fn once() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field to it by reference"
)]
const fn is_once(times: &u32) -> bool {
    *times == 1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field to it by reference"
)]
pub(super) const fn is_false(value: &bool) -> bool {
    !*value
}

impl Desired {
    /// Whom it speaks of.
    #[must_use]
    pub fn name(&self) -> ReplicaName {
        ReplicaName {
            service: self.service.clone(),
            index: self.index,
            incarnation: self.incarnation,
        }
    }
}
