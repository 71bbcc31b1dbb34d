//! Which host a waiting replica gets: the reference scheduler. Small on purpose; a real one uses the allocator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use crate::port::Protocol;
use crate::port_pool::CauseCode;
use crate::profile::{PlacementRule, Profile, Replicas};
use crate::time::Monotonic;

use super::HostOwner;
use super::choice::Seeks;
use super::limits::LimitReached;
use super::machine::Registry;
use super::pending::Taken;
use super::records::{Host, Phase, Placement, WaitCause, Wish};
use super::spread::Crowd;
use super::survey::{Code, Survey};
use super::truth::ReplicaKey;
use super::usages::{Claim, Usages};

/// What waiting replicas wait for; rests are in full again after a start of the controller.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Something changed that may give somebody a place.
    is_due: bool,
    rests: BTreeMap<ReplicaKey, Monotonic>,
    /// Why each waiting replica has no place.
    pub(super) reasons: BTreeMap<ReplicaKey, Reason>,
    /// The numbers of hosts that nobody can have, as found in this round: to list a host for each of many who wait takes long.
    pub(super) held: BTreeMap<(HostId, Protocol), Taken>,
    /// Recent ends by strangers' ports: of which incarnation, and when.
    pub(super) conflicts: BTreeMap<ReplicaKey, Vec<(Incarnation, Monotonic)>>,
}

/// What the hosts said, and when; told with the time that was left then until something else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) survey: Arc<Survey>,
    pub(super) at: Monotonic,
}

/// How many hosts are asked for reasons in one round; who waits beyond it is told of the first hosts only.
/// A question costs well under a microsecond to a few, so that a round stays below a second.
const ASKED_A_ROUND: usize = 100_000;

impl Waits {
    /// Whether everybody who waits is looked at again.
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Has everybody who waits looked at again.
    pub(super) const fn wake(&mut self) {
        self.is_due = true;
    }

    /// Keeps a replica from a place until then; `None`: nothing keeps it.
    pub(super) fn rest(&mut self, key: ReplicaKey, until: Option<Monotonic>) {
        match until {
            Some(until) => self.rests.insert(key, until),
            None => self.rests.remove(&key),
        };
    }

    /// The replica waits no more, and begins without a past if it ever does again.
    pub(super) fn forget(&mut self, key: ReplicaKey) {
        self.rests.remove(&key);
        self.reasons.remove(&key);
        self.conflicts.remove(&key);
    }

    /// Forgets what was remembered of replicas that do not count any more.
    pub(super) fn keep(&mut self, counts: impl Fn(&ReplicaKey) -> bool) {
        self.rests.retain(|key, _| counts(key));
        self.reasons.retain(|key, _| counts(key));
        self.conflicts.retain(|key, _| counts(key));
    }

    /// How long the replica still rests.
    pub(super) fn rest_left(&self, key: ReplicaKey, now: Monotonic) -> Option<Duration> {
        self.rests.get(&key).map(|until| until.since(now))
    }

    pub(super) fn end_rests(&mut self, now: Monotonic) {
        let before = self.rests.len();
        self.rests.retain(|_, until| *until > now);
        self.is_due |= self.rests.len() < before;
    }

    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.rests.values().copied().min()
    }
}

impl Registry {
    /// Gives a place to every waiting replica that fits: first to those that go on, then in order of submission.
    pub(super) fn place(&mut self) {
        if !std::mem::take(&mut self.waits.is_due) {
            return;
        }
        self.follow_hosts();
        self.spread.follow(&self.truth.replicas);
        #[cfg(test)]
        self.assert_followed();
        // Each round but the last gives somebody a place.
        while self.place_round() {}
    }

    /// Asks for each that waits, once. Returns whether to ask again: somebody got a place for whom numbers were left on
    /// several hosts, and others wait for such.
    fn place_round(&mut self) -> bool {
        let mut waiting = self.waiting_among(self.spread.waiting());
        let mut usages = self.usages_for(waiting.iter().map(|(_, claim)| claim));
        let keys: Vec<ReplicaKey> = waiting.iter().map(|(key, _)| *key).collect();
        self.tell_awaited(&keys);
        // What ran before does not lose its place to what waits to begin.
        waiting.sort_by_key(|(_, claim)| claim.goes_on_from().is_none());
        // Replicas of one profile differ only in the host they prefer: where one finds none, all do.
        let mut refused: BTreeMap<(ServiceId, u64, Option<HostId>), Arc<Survey>> = BTreeMap::new();
        let mut room = ASKED_A_ROUND;
        let mut leaves_numbers = false;
        self.waits.held.clear();
        for (key, claim) in waiting {
            if self.waits.rest_left(key, self.now.mono).is_some() {
                self.keep_reason(key, None);
                continue;
            }
            let Some(replica) = self.truth.replicas.find(&key) else {
                continue;
            };
            let alike = (key.0, replica.generation, claim.goes_on_from());
            let reason = match refused.get(&alike) {
                Some(reason) => Some(Arc::clone(reason)),
                None => self.place_one(key, &claim, &mut usages, &mut room),
            };
            match &reason {
                Some(reason) => {
                    refused.insert(alike, Arc::clone(reason));
                }
                None => leaves_numbers |= self.awaits_numbers(key),
            }
            self.keep_reason(key, reason);
        }
        let may_be_left = |survey: &Survey| {
            use CauseCode::{Awaited, NoBlock, TooFew};
            let mut lacks = [Awaited, TooFew, NoBlock].map(Code::Allocator).into_iter();
            lacks.any(|code| survey.by_code.contains_key(&code)) || survey.asked < survey.eligible
        };
        let mut reasons = self.waits.reasons.values();
        leaves_numbers && reasons.any(|it| may_be_left(&it.survey))
    }

    /// Gives one replica a place, or says why there is none.
    fn place_one(
        &mut self,
        key: ReplicaKey,
        claim: &Claim,
        usages: &mut Usages,
        room: &mut usize,
    ) -> Option<Arc<Survey>> {
        let service = self.truth.services.find(&key.0)?;
        let replica = self.truth.replicas.find(&key)?;
        let profile = Arc::clone(service.profile_of(replica.generation));
        let former = replica.former.as_ref();
        let seeks = Seeks {
            id: ReplicaId {
                service: key.0,
                index: key.1,
                incarnation: replica.incarnation,
            },
            request: profile.request(),
            former: former.map(|former| (former.host, former.grant.clone())),
            avoids: matches!(&replica.phase, Phase::Waiting(it)
                if matches!(it.cause, WaitCause::GaveUp(_) | WaitCause::HostLost(_))),
            desired: service.desired,
            profile,
        };
        if let Some(limit) = usages.reached(claim) {
            return Some(Arc::new(self.limited(&seeks.profile, limit)));
        }
        let (host, grant) = match self.choose(&seeks, claim, usages, room) {
            Ok(placed) => placed,
            Err(survey) => return Some(survey),
        };
        usages.add(claim, host);
        self.waits.held.retain(|(at, _), _| *at != host);
        let ports: Vec<String> = grant
            .ports
            .iter()
            .map(|port| format!("{} {}", port.name, port.numbers))
            .collect();
        let boot_id = self.truth.hosts.find(&host)?.facts.boot_id.clone();
        let now = self.now.wall;
        let replica = self.truth.replicas.change(&key)?;
        replica.since = now;
        replica.phase = Phase::Placed(Placement {
            host,
            boot_id,
            grant,
            placed_at: now,
            stop: None,
            attached: None,
        });
        let name = self.host_name(host);
        let on = if ports.is_empty() {
            format!("placed on host {name}")
        } else {
            format!("placed on host {name}: {}", ports.join(", "))
        };
        self.spread.moved(key, self.truth.replicas.find(&key));
        self.tell_replica(key, "placed", on);
        self.outbox.order(host);
        self.shown.hosts_truth.insert(host);
        None
    }

    /// Who waits, in order of submission, and what each would count as. Cost: a walk over all replicas.
    pub(super) fn waiting(&self) -> Vec<(ReplicaKey, Claim)> {
        let all = self.truth.replicas.iter();
        let waiting = all.filter(|(_, it)| matches!(it.phase, Phase::Waiting(_)));
        self.waiting_among(waiting.map(|(key, _)| *key))
    }

    fn waiting_among(&self, keys: impl Iterator<Item = ReplicaKey>) -> Vec<(ReplicaKey, Claim)> {
        let waiting = keys.filter_map(|key| {
            let replica = self.truth.replicas.find(&key)?;
            let service = self.truth.services.find(&key.0)?;
            let may_run = service.wish == Wish::Running;
            may_run.then(|| (key, Self::claim_of(service, key.1, replica)))
        });
        waiting.collect()
    }

    /// A limit is in the way everywhere: no host need be asked.
    fn limited(&self, profile: &Profile, limit: LimitReached) -> Survey {
        let eligible = u32::try_from(self.eligible_hosts(profile).len()).unwrap_or(u32::MAX);
        Survey {
            known: u32::try_from(self.host_names.len()).unwrap_or(u32::MAX),
            eligible,
            asked: eligible,
            by_code: BTreeMap::from([(Code::Limit, eligible)]),
            limit: Some(limit),
            ..Survey::default()
        }
    }

    fn keep_reason(&mut self, key: ReplicaKey, reason: Option<Arc<Survey>>) {
        let before = self.waits.reasons.get(&key).map(|reason| &reason.survey);
        if before == reason.as_ref() {
            return;
        }
        let at = self.now.mono;
        match reason {
            Some(survey) => self.waits.reasons.insert(key, Reason { survey, at }),
            None => self.waits.reasons.remove(&key),
        };
        // A reason may name a grant of this very batch.
        if self.truth.is_changed() {
            self.shown.truth.insert(key.0);
        } else {
            self.shown.news.insert(key.0);
        }
    }

    /// Hosts that could take a replica of the service now, were there ports.
    pub(super) fn candidates(
        &self,
        service: ServiceId,
        profile: &Profile,
        crowd: &Crowd,
    ) -> Vec<HostId> {
        let eligible = self.eligible_hosts(profile).into_iter();
        eligible
            .filter(|host| self.is_candidate(host, service, profile, crowd))
            .map(|host| host.id)
            .collect()
    }

    /// Whether a host that the profile's placement allows could take such a replica, were there ports.
    pub(super) fn is_candidate(
        &self,
        host: &Host,
        service: ServiceId,
        profile: &Profile,
        crowd: &Crowd,
    ) -> bool {
        let needs_address = profile.ports.iter().any(|port| port.publish);
        let one_each = profile.replicas == Replicas::PerHost;
        host.facts.owner == HostOwner::Controller
            && self.takes_grants(host.id)
            && !self.is_drained(host.id)
            && !self.shuts_down(host.id)
            && (!needs_address || self.published(host.id).is_some())
            && self.lacking(host.id, &profile.ports).is_empty()
            && (!one_each || crowd.of_service(service, host.id) == 0)
    }

    /// Hosts that the profile's placement rule allows, whatever their state.
    pub(super) fn eligible_hosts(&self, profile: &Profile) -> Vec<&Host> {
        self.truth
            .known_hosts()
            .map(|(_, host)| host)
            .filter(|host| allows(&profile.placement, host))
            .collect()
    }

    /// Whether a plugin gives the numbers of the host.
    pub(super) fn is_of_plugin(&self, host: HostId) -> bool {
        let host = self.truth.hosts.find(&host);
        host.is_some_and(|host| host.facts.owner == HostOwner::Plugin)
    }

    /// A service that runs on each eligible host grows as hosts join.
    fn follow_hosts(&mut self) {
        let grown: Vec<(ServiceId, u32)> = self
            .truth
            .services
            .iter()
            .filter(|(_, it)| it.wish == Wish::Running && !it.attached)
            .filter(|(_, it)| it.profile().replicas == Replicas::PerHost)
            .map(|(id, it)| (*id, self.wanted_copies(it.profile())))
            .filter(|(id, wanted)| {
                let service = self.truth.services.find(id);
                service.is_some_and(|it| it.desired < *wanted)
            })
            .collect();
        for (id, wanted) in grown {
            self.resize(id, wanted, "portreeve");
        }
        // What was just added is looked at in this same round.
        self.waits.is_due = false;
    }
}

pub(super) fn allows(rule: &PlacementRule, host: &Host) -> bool {
    let name = host.name();
    (rule.hosts.is_empty() || rule.hosts.contains(name))
        && !rule.exclude.contains(name)
        && rule
            .labels
            .iter()
            .all(|(label, value)| host.facts.labels.get(label) == Some(value))
}
