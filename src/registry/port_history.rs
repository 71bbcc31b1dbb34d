//! Who had which numbers of a host, and when: known from the grant on, and for 90 days after the release.
//!
//! Invariant: each incarnation has one tenure on its host. While it is placed there that is told from the placement; in
//! the batch that takes the placement away it is written down, open where the numbers stay held on a lost host, and it
//! ends in the batch that frees them. So nothing is written twice, a start reads no more than what is over, and a
//! decision that could not be stored leaves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::identity::{HostId, HostName, Incarnation, ReplicaId, ServiceName};
use crate::port::{Port, PortName, PortRange, Protocol};
use crate::port_pool::PortState;
use crate::rights::{Caller, Holding};
use crate::time::WallClock;

use super::machine::Registry;
use super::records::{Phase, Replica, Service, Tenure};
use super::truth::{ReplicaKey, TenureKey};

/// How long it is known who had a number: 90 days.
pub(super) const HISTORY_KEPT_FOR: Duration = Duration::from_secs(90 * 86_400);

/// How many placements of one host are known at most; the earliest that ended go first. Looked at now and then, so
/// that there may be [`LOOKED_AT_EVERY`] more.
const KEPT_OF_A_HOST: usize = 5_000;

/// How many placements are known in all: some 20 MB of records, and below 90 MB of memory.
const KEPT_IN_ALL: usize = 100_000;

/// After so many placements on a host its history is looked at for what is too much.
const LOOKED_AT_EVERY: u32 = 64;

/// The most entries of one answer.
const TOLD_AT_ONCE: usize = 1_000;

/// What is known of the history beside its records: derived, never stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Archive {
    /// Every host that is in it, also under numbers that it had before it was removed.
    hosts: BTreeMap<HostName, BTreeSet<HostId>>,
    /// How many placements of a host were written since its history was looked at.
    since_look: BTreeMap<HostId, u32>,
}

/// Which part of a host's history is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuestion {
    /// Only tenures of this number.
    pub port: Option<Port>,
    /// Only those that were at this moment.
    pub at: Option<WallClock>,
    /// Only those that were at this moment or later.
    pub since: Option<WallClock>,
}

/// Who had which numbers of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortHistory {
    /// The host.
    pub host: HostName,
    /// Earliest first; one entry a number or block of one placement.
    pub tenures: Vec<TenureView>,
    /// How many earlier ones the answer leaves out.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: u64,
    /// Nothing is known of what ended before; later where the host had very many placements.
    pub known_since: WallClock,
}

/// A time in which one replica had a number, or a block of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TenureView {
    /// The number, or consecutive ones.
    pub numbers: PortRange,
    /// The side or sides.
    pub protocol: Protocol,
    /// Since when.
    pub from: WallClock,
    /// Until when: the replica's last process was gone then. None: it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<WallClock>,
    /// Who had them, where the reader may see that; all that follows is left out with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Its index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<u32>,
    /// Which placement of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
    /// What the profile called them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PortName>,
    /// The job of another scheduler that ran it, in that one's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Who submitted the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// As which account it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// How it ended, one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field to it by reference"
)]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Registry {
    /// Writes down what ports the replica has, with the batch that takes its placement away.
    pub(super) fn keep_tenure(&mut self, key: ReplicaKey) {
        let found = self.truth.services.find(&key.0);
        let Some((service, replica)) = found.zip(self.truth.replicas.find(&key)) else {
            return;
        };
        let Some((key, tenure)) = self.tenure(service, key.1, replica) else {
            return;
        };
        if self.truth.history.find(&key).is_some() {
            // Stranded and taken back before: it goes on.
            return;
        }
        self.archive.note(&key, &tenure);
        self.truth.history.insert(key, tenure);
        let written = self.archive.since_look.entry(key.host).or_default();
        *written += 1;
        if *written >= LOOKED_AT_EVERY {
            *written = 0;
            self.thin_history(key.host);
        }
    }

    /// Writes down that an incarnation has its ports on `host` no more, with the batch that frees them. `how` is one
    /// sentence. Ended before, nothing changes.
    pub(super) fn history_close(&mut self, host: HostId, replica: ReplicaId, how: &str) {
        let key = TenureKey { host, replica };
        let is_open = |tenure: &Tenure| tenure.until.is_none();
        let now = self.now.wall;
        if self.truth.history.find(&key).is_some_and(is_open)
            && let Some(tenure) = self.truth.history.change(&key)
        {
            // A clock that was set back makes no tenure end before it began.
            tenure.until = Some(now.max(tenure.from));
            tenure.how = Some(how.to_owned());
            self.retention.arm(self.now.mono);
        }
    }

    /// Who had what of a host, as far as `reader` may know; `None`: a host of which nothing was ever known. Cost:
    /// linear in the history of the host.
    #[must_use]
    pub fn port_history(
        &self,
        reader: &Caller,
        host: &HostName,
        asked: &HistoryQuestion,
    ) -> Option<PortHistory> {
        let mut ids = self.archive.hosts.get(host).cloned().unwrap_or_default();
        ids.extend(self.host_names.get(host));
        if ids.is_empty() {
            return None;
        }
        let mut known: BTreeMap<TenureKey, Tenure> = BTreeMap::new();
        for id in ids {
            let written = self.truth.history.durable_range(TenureKey::all_of(id));
            known.extend(written.into_iter().map(|(key, it)| (*key, it.clone())));
            for (key, tenure) in self.tenures_on(id) {
                known.entry(key).or_insert(tenure);
            }
        }
        let mut tenures = Vec::new();
        for (key, tenure) in &known {
            if asked.asks_for(tenure) {
                let is_seen = self.may_see_tenure(reader, key, tenure);
                tenures.extend(asked.views(key, tenure, is_seen));
            }
        }
        tenures.sort_by_key(|it| (it.from, it.numbers.first(), it.protocol));
        let left_out = tenures.len().saturating_sub(TOLD_AT_ONCE);
        tenures.drain(..left_out);
        Some(PortHistory {
            host: host.clone(),
            tenures,
            left_out: u64::try_from(left_out).unwrap_or(u64::MAX),
            known_since: self.now.wall.before(HISTORY_KEPT_FOR),
        })
    }

    /// What stands: by the service's present visibility; of a deleted one only who submitted it knows.
    fn may_see_tenure(&self, reader: &Caller, key: &TenureKey, tenure: &Tenure) -> bool {
        match self.truth.services.find(&key.replica.service) {
            Some(service) => reader.may_see(service.holding()),
            None => reader.may_manage(Holding::private_of(&tenure.user)),
        }
    }

    /// The tenures of what is placed on a host, as the disk has it.
    fn tenures_on(&self, host: HostId) -> Vec<(TenureKey, Tenure)> {
        let holders = self.pools.listed(host).into_iter();
        let holders = holders.filter_map(|listed| match listed.state {
            PortState::Held { by } | PortState::Releasing { by } => Some((by.service, by.index)),
            _ => None,
        });
        // The pools are ahead of the disk: what they freed may still be its holder's there.
        let undurable = self.truth.replicas.undurable().map(|(key, ..)| *key);
        let keys: BTreeSet<ReplicaKey> = holders.chain(undurable).collect();
        let tenures = keys.into_iter().filter_map(|key| {
            let service = self.truth.services.durable(&key.0)?;
            let replica = self.truth.replicas.durable(&key)?;
            self.tenure(service, key.1, replica)
        });
        tenures.filter(|(key, _)| key.host == host).collect()
    }

    /// Takes up of which hosts something is known.
    pub(super) fn take_up_history(&mut self) {
        for (key, tenure) in self.truth.history.iter() {
            self.archive.note(key, tenure);
        }
    }

    /// Forgets what ended too long ago. Cost: linear in the history.
    pub(super) fn expire_history(&mut self, now: WallClock) {
        let before = now.before(HISTORY_KEPT_FOR);
        let old = |tenure: &Tenure| tenure.until.is_some_and(|until| until < before);
        let history = self.truth.history.iter();
        let old: Vec<TenureKey> = history
            .filter(|(_, tenure)| old(tenure))
            .map(|(key, _)| *key)
            .collect();
        for key in old {
            self.forget_tenure(&key);
        }
    }

    /// Whether something is in the history that will be too old one day.
    pub(super) fn has_past_tenures(&self) -> bool {
        let mut all = self.truth.history.iter();
        all.any(|(_, tenure)| tenure.until.is_some())
    }

    /// The tenure of a placed replica that has ports.
    fn tenure(
        &self,
        service: &Service,
        index: u32,
        replica: &Replica,
    ) -> Option<(TenureKey, Tenure)> {
        let Phase::Placed(placement) = &replica.phase else {
            return None;
        };
        let host = self.truth.hosts.find(&placement.host)?;
        if placement.grant.ports.is_empty() {
            return None;
        }
        let id = ReplicaId {
            service: service.id,
            index,
            incarnation: replica.incarnation,
        };
        let tenure = Tenure {
            host: host.name().clone(),
            service: service.name.clone(),
            user: service.owner.user.clone(),
            uid: service.uid,
            job: placement.attached.as_ref().and_then(|it| it.job.clone()),
            grant: placement.grant.clone(),
            from: placement.placed_at,
            until: None,
            how: None,
        };
        let host = placement.host;
        Some((TenureKey { host, replica: id }, tenure))
    }

    /// Forgets the earliest ends of a host, or of all, where there are too many: an eighth at once, so that it is
    /// seldom looked for them.
    fn thin_history(&mut self, host: HostId) {
        let here = || self.truth.history.range(TenureKey::all_of(host));
        if here().count() > KEPT_OF_A_HOST {
            let ended = ends(here());
            self.forget_earliest(ended, KEPT_OF_A_HOST / 8);
        }
        if self.truth.history.len() > KEPT_IN_ALL {
            let ended = ends(self.truth.history.iter());
            self.forget_earliest(ended, KEPT_IN_ALL / 8);
        }
    }

    fn forget_earliest(&mut self, mut ended: Vec<(WallClock, TenureKey)>, many: usize) {
        ended.sort_unstable();
        for (_, key) in ended.into_iter().take(many) {
            self.forget_tenure(&key);
        }
    }

    /// Forgets a tenure that ended, unless an open batch has its end.
    fn forget_tenure(&mut self, key: &TenureKey) {
        if self.truth.history.is_settled(key) {
            self.truth.history.note_gone(key);
        }
    }
}

impl Archive {
    fn note(&mut self, key: &TenureKey, tenure: &Tenure) {
        let ids = self.hosts.get_mut(&tenure.host);
        match ids {
            Some(ids) => {
                ids.insert(key.host);
            }
            None => {
                let ids = BTreeSet::from([key.host]);
                self.hosts.insert(tenure.host.clone(), ids);
            }
        }
    }
}

impl HistoryQuestion {
    fn asks_for(&self, tenure: &Tenure) -> bool {
        let is_over = |moment| tenure.until.is_some_and(|until| until < moment);
        self.at.is_none_or(|at| tenure.from <= at && !is_over(at))
            && self.since.is_none_or(|since| !is_over(since))
    }

    fn views(
        &self,
        key: &TenureKey,
        tenure: &Tenure,
        is_seen: bool,
    ) -> impl Iterator<Item = TenureView> {
        let has = |numbers: PortRange| {
            let here = |port| numbers.first() <= port && port <= numbers.last();
            self.port.is_none_or(here)
        };
        let ports = tenure.grant.ports.iter();
        ports
            .filter(move |port| has(port.numbers))
            .map(move |port| {
                let hidden = TenureView {
                    numbers: port.numbers,
                    protocol: port.protocol,
                    from: tenure.from,
                    until: tenure.until,
                    service: None,
                    replica: None,
                    incarnation: None,
                    name: None,
                    job: None,
                    user: None,
                    uid: None,
                    how: None,
                };
                if !is_seen {
                    return hidden;
                }
                TenureView {
                    service: Some(tenure.service.clone()),
                    replica: Some(key.replica.index),
                    incarnation: Some(key.replica.incarnation),
                    name: Some(port.name.clone()),
                    job: tenure.job.clone(),
                    user: Some(tenure.user.clone()),
                    uid: Some(tenure.uid),
                    how: tenure.how.clone(),
                    ..hidden
                }
            })
    }
}

/// When each that ended did.
fn ends<'a>(
    tenures: impl Iterator<Item = (&'a TenureKey, &'a Tenure)>,
) -> Vec<(WallClock, TenureKey)> {
    let ended = tenures.filter_map(|(key, tenure)| Some((tenure.until?, *key)));
    ended.collect()
}
