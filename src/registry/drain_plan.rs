//! Where the replicas of a drained host would go: tried in the allocator, and undone.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocator::{HostSet, Need};
use crate::identity::{HostId, Incarnation, ReplicaId, ServiceId};
use crate::rights::Caller;

use super::machine::Registry;
use super::pending::{Depth, Seeker};
use super::records::{Phase, Replica, StopWhy, WaitCause};
use super::survey::Told;
use super::truth::ReplicaKey;

/// How many hosts are summed up for one replica that has nowhere to go; of more only the first are asked.
const SUMMED: usize = 1000;

impl Registry {
    /// Which of `asked` have a place on another host, moved in this order and after what is on its way already.
    ///
    /// Cost: for each service a look at every host, for each replica one search.
    pub(super) fn with_places(&self, asked: &[ReplicaKey]) -> BTreeSet<ReplicaKey> {
        let mut found = BTreeSet::new();
        if asked.is_empty() {
            return found;
        }
        let mut crowd = self.crowd();
        let mut trial = self.pools.trial(self.now.mono);
        let mut candidates: BTreeMap<ServiceId, Vec<HostId>> = BTreeMap::new();
        let mut full: BTreeSet<ServiceId> = BTreeSet::new();
        let under_way = self.truth.replicas.iter();
        let under_way = under_way.filter(|(_, it)| is_under_way(it));
        let under_way: Vec<ReplicaKey> = under_way.map(|(key, _)| *key).collect();
        for key in under_way.iter().chain(asked) {
            let service = self.truth.services.find(&key.0);
            let Some((service, replica)) = service.zip(self.truth.replicas.find(key)) else {
                continue;
            };
            if full.contains(&key.0) {
                continue;
            }
            // It will run the newest profile, as its next incarnation.
            let profile = service.profile();
            let all = candidates.entry(key.0).or_insert_with(|| {
                // What it holds in all stays as it is; on each host its owner may be at the end of what that may have.
                let claim = Self::claim_of(service, profile);
                let limited = self.usages([&claim]);
                let limited = limited.reached_on(&claim, |host| self.host_name(host));
                let mut all = self.candidates(key.0, profile, &crowd);
                all.retain(|host| !limited.contains_key(host));
                all
            });
            let next = match replica.phase {
                Phase::Placed(_) => replica.incarnation.0.saturating_add(1),
                _ => replica.incarnation.0,
            };
            let id = ReplicaId {
                service: key.0,
                index: key.1,
                incarnation: Incarnation(next),
            };
            let request = profile.request();
            let among: HostSet = all.iter().copied().collect();
            let need = Need::new(&request, key.0);
            let mut feasible = trial.feasible(&need, Some(&among));
            let rank = |host: &HostId| self.rank(&crowd, key.0, *host, None);
            let mut place = None;
            while place.is_none()
                && let Some(best) = feasible.iter().min_by_key(rank)
            {
                let grant = trial.reserve(best, id, &request, None).ok();
                place = grant.map(|grant| (best, grant));
                feasible.remove(best);
            }
            match place {
                Some((host, grant)) => {
                    crowd.add(key.0, host, &grant);
                    found.insert(*key);
                }
                None => {
                    full.insert(key.0);
                }
            }
        }
        found.retain(|key| !under_way.contains(key));
        found
    }

    /// Why a replica has no place on another host, in a few words that name no holder.
    pub(super) fn why_nowhere(&mut self, key: ReplicaKey) -> String {
        let nobody = Caller {
            user: String::new(),
            uid: None,
            groups: Vec::new(),
            admin: false,
        };
        match self.nowhere(key, &nobody) {
            Some((_, 1..)) => "nowhere to go: others that move before it take the room".to_owned(),
            Some((told, 0)) => format!("nowhere to go: {}", told.short),
            None => "nowhere to go".to_owned(),
        }
    }

    /// Why a replica has no place on another host, for one reader; and how many hosts would take it but for others
    /// that move before it.
    pub(super) fn nowhere(&mut self, key: ReplicaKey, reader: &Caller) -> Option<(Told, u32)> {
        let service = self.truth.services.find(&key.0)?;
        let profile = std::sync::Arc::clone(service.profile());
        let desired = service.desired;
        let claim = Self::claim_of(service, &profile);
        let usages = self.usages([&claim]);
        let limited = usages.reached_on(&claim, |host| self.host_name(host));
        let crowd = self.crowd();
        let mut candidates = self.candidates(key.0, &profile, &crowd);
        candidates.retain(|host| !limited.contains_key(host));
        let request = profile.request();
        let seeker = Seeker {
            service: key.0,
            profile: &profile,
            request: &request,
            candidates: &candidates,
            limited: &limited,
            desired,
        };
        self.waits.held.clear();
        let survey = self.survey(&seeker, Depth::pending(SUMMED));
        Some((survey.told(reader, self.now.mono), survey.fitting))
    }
}

/// Whether a drain stopped it and it has no new place yet.
fn is_under_way(replica: &Replica) -> bool {
    match &replica.phase {
        Phase::Placed(placement) => {
            let why = placement.stop.as_ref().map(|order| order.why);
            matches!(why, Some(StopWhy::Drained | StopWhy::HostShutdown))
        }
        Phase::Waiting(waiting) => matches!(waiting.cause, WaitCause::Moved(_)),
        Phase::Ended(_) => false,
    }
}
