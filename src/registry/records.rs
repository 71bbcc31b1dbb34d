//! What the store holds, record by record, and how it is written: JSON with the number of its format.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::identity::{HostId, HostName, Incarnation, ServiceId, ServiceName};
use crate::port::PortRange;
use crate::port_pool::PortGrant;
use crate::profile::{Profile, Source};
use crate::residency::ReplicaName;
use crate::rights::{Holding, Owner};
use crate::supervision::{Failure, Leaving, Status};
use crate::time::WallClock;

use super::HostFacts;
use super::view::is_false;

/// The format this version writes; it reads all up to it.
pub(super) const FORMAT: u32 = 1;

/// Counters and the life of the revision line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) epoch: String,
    /// No revision reaches it before a higher one is durable.
    pub(super) ceiling: u64,
    pub(super) next_service: u64,
    /// The revision at which it last changed who may see a service, or one that is not below it.
    #[serde(default)]
    pub(super) rights: u64,
    /// No new service begins below it: this store was set back, and hosts may run more than it knows of.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) incarnation_base: u32,
}

/// One service: what its owner wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Service {
    pub(super) id: ServiceId,
    pub(super) name: ServiceName,
    /// Who submitted it, with the rights of that moment.
    pub(super) owner: Owner,
    /// The account's number on the hosts.
    pub(super) uid: u32,
    /// Profiles by generation: the newest, and those that replicas still run.
    pub(super) profiles: BTreeMap<u64, Arc<Profile>>,
    /// What the newest profile was made of, as it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<Arc<Source>>,
    /// The newest; +1 with each replaced profile.
    pub(super) generation: u64,
    pub(super) desired: u32,
    pub(super) wish: Wish,
    pub(super) submitted: WallClock,
    pub(super) roll: Option<Roll>,
    /// Above every incarnation of replicas that are forgotten: their names on hosts never come again.
    pub(super) incarnation_floor: u32,
    /// Incarnations, each from and before, that were never given here: what hosts run of them is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped: Vec<(u32, u32)>,
    /// The same for copies that are not there: what a restored backup does not know may have begun as any of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) skipped_anew: Vec<(u32, u32)>,
    /// Its replicas are brought along by jobs of another scheduler: never placed, moved or started from here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) attached: bool,
    /// The replica that a drain took last and that is not ready elsewhere yet: no other is taken before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) moving: Option<u32>,
}

/// How many gaps among the incarnations of a service are remembered; the earliest go first.
const SKIPPED_KEPT: usize = 16;

fn leave_out(gaps: &mut Vec<(u32, u32)>, from: u32, to: u32) {
    if from < to {
        if gaps.len() >= SKIPPED_KEPT {
            gaps.remove(0);
        }
        gaps.push((from, to));
    }
}

fn holds(gaps: &[(u32, u32)], incarnation: Incarnation) -> bool {
    let mut gaps = gaps.iter();
    gaps.any(|(from, to)| (*from..*to).contains(&incarnation.0))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field to it by reference"
)]
const fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Service {
    /// What its rights are decided by.
    pub(super) fn holding(&self) -> Holding<'_> {
        Holding {
            owner: &self.owner.user,
            groups: &self.owner.groups,
            visibility: &self.profile().visibility,
        }
    }

    /// Notes that no incarnation from `from` to before `to` was given here.
    pub(super) fn skip(&mut self, from: u32, to: u32) {
        leave_out(&mut self.skipped, from, to);
    }

    /// Notes that copies which are not there may have begun as these incarnations elsewhere, and not here.
    pub(super) fn skip_anew(&mut self, from: u32, to: u32) {
        leave_out(&mut self.skipped_anew, from, to);
    }

    /// Whether the incarnation is one that was never given here to a copy that is there.
    pub(super) fn is_skipped(&self, incarnation: Incarnation) -> bool {
        holds(&self.skipped, incarnation)
    }

    /// Whether the incarnation is one that was never given here to a copy that is not there.
    pub(super) fn is_skipped_anew(&self, incarnation: Incarnation) -> bool {
        holds(&self.skipped_anew, incarnation)
    }

    /// The profile that new placements run.
    pub(super) fn profile(&self) -> &Arc<Profile> {
        self.profile_of(self.generation)
    }

    /// The profile of a generation that a replica of this service has.
    pub(super) fn profile_of(&self, generation: u64) -> &Arc<Profile> {
        self.profiles
            .get(&generation)
            .or_else(|| self.profiles.values().next_back())
            .expect("a service keeps at least its newest profile; `load` refuses one without")
    }
}

/// What the owner wants of the whole service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wish {
    Running,
    Stopped,
}

/// A change that takes one replica after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Roll {
    pub(super) kind: RollKind,
    pub(super) by: String,
    /// Taken, but not ready again yet.
    pub(super) current: Option<u32>,
    /// Not taken yet; the highest comes next.
    pub(super) remaining: BTreeSet<u32>,
}

/// What a roll does to each replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RollKind {
    /// A new incarnation with the newest profile.
    Replace,
    /// A restart in place.
    Restart,
}

/// One copy of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Replica {
    pub(super) incarnation: Incarnation,
    /// Which of the service's profiles it runs.
    pub(super) generation: u64,
    pub(super) phase: Phase,
    /// The user's newest restart of this incarnation.
    pub(super) restart_no: u64,
    /// In its shown state since.
    pub(super) since: WallClock,
    pub(super) ready_since: Option<WallClock>,
    /// The newest status of this incarnation.
    pub(super) status: Option<Status>,
    /// Automatic restarts of earlier incarnations.
    pub(super) restarts_earlier: u32,
    /// The newest failure of earlier incarnations.
    pub(super) failure_earlier: Option<Failure>,
    /// Placements that followed a give-up, since the owner last started it.
    pub(super) requeues: u32,
    /// Where it was before, to prefer or to avoid.
    pub(super) former: Option<Former>,
}

/// Where a replica stands, as the controller decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Phase {
    /// It has no host.
    Waiting(Waiting),
    /// It has a host and holds ports there.
    Placed(Placement),
    /// Nothing follows by itself.
    Ended(Ended),
}

/// Why a replica waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) cause: WaitCause,
    /// Not before it rested this long; in full again after a start of the controller.
    pub(super) rest: Option<Duration>,
}

/// What made a replica wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WaitCause {
    /// It was asked for.
    Asked,
    /// A stranger had one of its ports; in words.
    Conflict(String),
    /// It gave up; in words.
    GaveUp(String),
    /// Its host was booted.
    Rebooted,
    /// Its host was given up; in words.
    HostLost(String),
    /// Its host was taken out of service; in words.
    Moved(String),
    /// Its host ended it by itself.
    Left(Leaving),
}

/// A host and ports on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Placement {
    pub(super) host: HostId,
    /// The boot of the host it belongs to; in another one every run of it is gone.
    pub(super) boot_id: String,
    pub(super) grant: PortGrant,
    pub(super) placed_at: WallClock,
    /// It was told to end.
    pub(super) stop: Option<StopOrder>,
    /// The job of another scheduler that runs it; `None`: we placed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) attached: Option<Attached>,
}

/// What is known of the job that an attached replica runs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attached {
    /// Names the ask that was granted, so that asking again is harmless.
    pub(super) key: String,
    /// The job in its scheduler's words.
    pub(super) job: Option<String>,
}

/// Why a replica was told to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StopOrder {
    pub(super) why: StopWhy,
    pub(super) by: String,
}

/// What follows a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StopWhy {
    /// The service is stopped.
    Stopped,
    /// The index stays empty until start or submit.
    Killed,
    /// The index is not wanted any more.
    ScaledDown,
    /// A new incarnation follows.
    Renewed,
    /// Its host is drained: a new incarnation follows elsewhere.
    Drained,
    /// Its host shuts down: a new incarnation follows, once there is a place.
    HostShutdown,
}

impl StopWhy {
    /// Whether no other incarnation follows, unless its owner wants one.
    pub(super) const fn is_final(self) -> bool {
        matches!(self, Self::Stopped | Self::Killed | Self::ScaledDown)
    }
}

/// How a replica ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) how: EndKind,
    /// One sentence.
    pub(super) reason: String,
    /// The host it was last on.
    pub(super) host: Option<HostId>,
}

/// The classes of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EndKind {
    /// In success, under the policy `never`: job state DONE.
    Done,
    /// In success, under another policy: it does not serve any more.
    Completed,
    /// It failed and is not to be restarted.
    Failed,
    /// The restart rule ended it.
    GaveUp,
    /// The owner stopped the service.
    Stopped,
    /// The owner ended this replica.
    Killed,
    /// Its host was booted and it is not to be run again.
    HostRebooted,
    /// Its host was given up and it is not to be run again.
    HostLost,
    /// Its host ended it by itself and it is not to be run again.
    LeftHost,
    /// A stranger had its port, and only the job that ran it can ask anew.
    PortConflict,
    /// Its host was drained and it is not to be run again.
    HostDrained,
    /// Its host shut down and it is not to be run again.
    HostShutdown,
}

/// An earlier placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Former {
    pub(super) host: HostId,
    pub(super) grant: PortGrant,
}

/// A host as it last reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) id: HostId,
    /// Its report without the replicas: those are in their own records.
    pub(super) facts: HostFacts,
    /// When this report came.
    pub(super) reported_at: WallClock,
    /// It is given up until it tells everything again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<Lost>,
    /// What an operator ordered to stop there that is not known here; until the host told its end.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) fences: BTreeSet<ReplicaName>,
    /// An operator takes it out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) drain: Option<Drain>,
    /// When an operator had it forgotten: only its name is kept, for what ended there and was written of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) removed: Option<WallClock>,
}

/// Since when and why a host is given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lost {
    pub(super) at: WallClock,
    /// Its last sign of life.
    pub(super) last_contact: WallClock,
    /// That was still before this moment: nothing was heard since the controller started.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) before: bool,
    /// Who declared it down; `None`: its silence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    /// Somebody answers for it that nothing runs there any more.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) fenced: bool,
}

/// Numbers of a host that an incarnation may still use which was given up with its host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stranded {
    /// The name under which the host knows it, also once the service is deleted.
    pub(super) name: ServiceName,
    pub(super) grant: PortGrant,
    /// The boot of the host in which it ran; in another one it is gone.
    pub(super) boot_id: String,
    /// What it ran, to be taken back as.
    pub(super) generation: u64,
    /// Its automatic restarts, as far as they are counted among the replica's earlier ones.
    #[serde(default)]
    pub(super) restarts: u32,
    /// When it was given up.
    pub(super) since: WallClock,
    /// Why, in words.
    pub(super) why: String,
    /// The job of another scheduler that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) attached: Option<Attached>,
    /// For whom it ran, once its service is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) orphan: Option<Orphan>,
}

/// What a host is to be told of a service that is deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Orphan {
    pub(super) user: String,
    pub(super) uid: u32,
    pub(super) profile: Arc<Profile>,
}

/// The order to take a host out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Drain {
    pub(super) by: String,
    pub(super) since: WallClock,
    /// Whatever is left then is stopped at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<WallClock>,
    /// How many replicas were to leave when it began.
    pub(super) replicas: u32,
}

impl Host {
    pub(super) const fn name(&self) -> &HostName {
        &self.facts.host
    }
}

/// A service that was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tombstone {
    pub(super) removed: WallClock,
    pub(super) incarnation_floor: u32,
    /// At which revision readers lost it; `None` until they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<u64>,
}

/// A number that rests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Resting {
    /// Whose it was.
    pub(super) service: ServiceId,
    /// The number of the key, or the block that begins with it.
    pub(super) numbers: PortRange,
}

/// The time in which one incarnation had its ports. All that may be asked later is in it: its service and its host may
/// be gone by then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tenure {
    pub(super) host: HostName,
    pub(super) service: ServiceName,
    /// Who submitted the service.
    pub(super) user: String,
    /// As which account the replica ran.
    pub(super) uid: u32,
    /// The job of another scheduler that ran it, in that one's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) job: Option<String>,
    pub(super) grant: PortGrant,
    pub(super) from: WallClock,
    /// `None`: it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<WallClock>,
    /// How it ended, one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) how: Option<String>,
}

#[derive(Serialize)]
struct Written<'a, T> {
    format: u32,
    record: &'a T,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Deserialize)]
struct Read<T> {
    format: u32,
    record: T,
}

/// The bytes of a record.
pub(super) fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(&Written {
        format: FORMAT,
        record,
    })
    .expect("records are plain data with text keys")
}

/// The record of these bytes.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (format, read) = match serde_json::from_slice::<Read<T>>(bytes) {
        Ok(Read { format, record }) => (format, Ok(record)),
        // What a newer version wrote need not be a record here; a start reads each record once, so only then.
        Err(cause) => {
            let damaged = DecodeError::Damaged(cause.to_string());
            match serde_json::from_slice::<Format>(bytes) {
                Ok(Format { format }) => (format, Err(damaged)),
                Err(_) => return Err(damaged),
            }
        }
    };
    if format > FORMAT {
        return Err(DecodeError::Newer(format));
    }
    read
}

/// Why bytes are no record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// The reader's words.
    Damaged(String),
    /// The format found.
    Newer(u32),
}
