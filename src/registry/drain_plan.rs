//! Where the replicas of a drained host would go: tried in the allocator, and undone.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::allocator::{HostSet, Need};
use crate::identity::{Incarnation, NetworkName, ReplicaId, ServiceId};
use crate::profile::{PlacementRule, Profile, Replicas};
use crate::rights::{Caller, Rights};

use super::drain::NOWHERE;
use super::machine::Registry;
use super::pending::{Depth, Seeker};
use super::records::{Phase, Replica, StopWhy, WaitCause};
use super::spread::Crowd;
use super::survey::Told;
use super::truth::ReplicaKey;

/// How many hosts are summed up for one replica that has nowhere to go; of more only the first are asked.
const SUMMED: usize = 1000;

/// How places are tried.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trial {
    /// Where each would be placed, until so many have a place.
    Likely(usize),
    /// Anywhere, for all: cheap enough to answer an order with.
    Any,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) found: BTreeSet<ReplicaKey>,
    pub(super) nowhere: BTreeSet<ReplicaKey>,
}

impl Registry {
    /// Which of `asked` have a place on another host, moved in this order and after what is on its way already. What
    /// is in neither list was not looked at.
    ///
    /// Cost: a look at every replica and, for each kind of placement rule, at every host; for each replica one search,
    /// and under [`Trial::Likely`] for each that is found one more look at the hosts that fit.
    pub(super) fn with_places(&self, asked: &[ReplicaKey], how: Trial) -> Places {
        let mut places = Places::default();
        if asked.is_empty() {
            return places;
        }
        let under_way = self.truth.replicas.iter();
        let under_way = under_way.filter(|(_, it)| is_under_way(it));
        let under_way: Vec<ReplicaKey> = under_way.map(|(key, _)| *key).collect();
        let claims = asked.iter().filter_map(|key| self.claim_of_moved(*key));
        let mut usages = self.usages_for(&claims.collect::<Vec<_>>());
        let mut crowd = self.crowd();
        let mut trial = self.pools.trial(self.now.mono);
        let mut shapes: Vec<(Shape<'_>, HostSet)> = Vec::new();
        let mut full: BTreeSet<ServiceId> = BTreeSet::new();
        let all = under_way.iter().map(|key| (key, false));
        for (key, is_asked) in all.chain(asked.iter().map(|key| (key, true))) {
            if matches!(how, Trial::Likely(most) if places.found.len() >= most) {
                break;
            }
            let service = self.truth.services.find(&key.0);
            let Some((service, replica)) = service.zip(self.truth.replicas.find(key)) else {
                continue;
            };
            // It will run the newest profile, as its next incarnation.
            let profile = service.profile();
            if profile.replicas == Replicas::PerHost {
                continue;
            }
            let id = ReplicaId {
                service: key.0,
                index: key.1,
                incarnation: match replica.phase {
                    Phase::Placed(_) => Incarnation(replica.incarnation.0.saturating_add(1)),
                    _ => replica.incarnation,
                },
            };
            let request = profile.request();
            let need = Need::new(&request, key.0);
            let mut feasible = match full.contains(&key.0) {
                true => HostSet::new(),
                false => trial.feasible(&need, Some(self.of_shape(profile, &mut shapes))),
            };
            let Some(claim) = self.claim_of_moved(*key) else {
                continue;
            };
            let limited = usages.reached_on(&claim, |host| self.host_name(host));
            for host in limited.keys() {
                feasible.remove(*host);
            }
            let mut place = None;
            while place.is_none()
                && let Some(best) = match how {
                    Trial::Any => feasible.iter().next(),
                    Trial::Likely(_) => feasible
                        .iter()
                        .min_by_key(|host| self.rank(&crowd, key.0, *host, None)),
                }
            {
                let grant = trial.reserve(best, id, &request, None).ok();
                place = grant.map(|grant| (best, grant));
                feasible.remove(best);
            }
            match place {
                Some((host, grant)) => {
                    crowd.add(key.0, host, &grant);
                    usages.add(&claim, host);
                    if is_asked {
                        places.found.insert(*key);
                    }
                }
                None => {
                    full.insert(key.0);
                    if is_asked {
                        places.nowhere.insert(*key);
                    }
                }
            }
        }
        places
    }

    /// The hosts that take a replica of such a profile, were there ports; looked for once for profiles alike.
    fn of_shape<'a, 'b>(
        &self,
        profile: &'a Profile,
        shapes: &'b mut Vec<(Shape<'a>, HostSet)>,
    ) -> &'b HostSet {
        let shape = Shape {
            rule: &profile.placement,
            publishes: profile.ports.iter().any(|port| port.publish),
            networks: profile
                .ports
                .iter()
                .filter_map(|port| port.network.as_ref())
                .collect(),
        };
        let place = shapes.iter().position(|(known, _)| *known == shape);
        let place = place.unwrap_or_else(|| {
            // Of a service that runs one on each host it is never asked.
            let hosts = self.candidates(ServiceId(0), profile, &Crowd::default());
            shapes.push((shape, hosts.into_iter().collect()));
            shapes.len() - 1
        });
        &shapes[place].1
    }

    /// Why a replica has no place on another host, in a few words that name no holder.
    pub(super) fn why_nowhere(&mut self, key: ReplicaKey, crowd: &Crowd) -> String {
        let nobody = Caller::new(String::new(), None, Vec::new(), Rights::VIEWER);
        match self.nowhere(key, &nobody, crowd) {
            Some((_, 1..)) => format!("{NOWHERE}: others that move before it take the room"),
            Some((told, 0)) => format!("{NOWHERE}: {}", told.short),
            None => NOWHERE.to_owned(),
        }
    }

    /// Why a replica has no place on another host, for one reader; and how many hosts would take it but for others
    /// that move before it.
    pub(super) fn nowhere(
        &mut self,
        key: ReplicaKey,
        reader: &Caller,
        crowd: &Crowd,
    ) -> Option<(Told, u32)> {
        let service = self.truth.services.find(&key.0)?;
        let profile = Arc::clone(service.profile());
        let desired = service.desired;
        let claim = self.claim_of_moved(key)?;
        let usages = self.usages_for([&claim]);
        let limited = usages.reached_on(&claim, |host| self.host_name(host));
        let mut candidates = self.candidates(key.0, &profile, crowd);
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

/// What decides which hosts a profile may run on, ports and numbers apart.
#[derive(PartialEq)]
struct Shape<'a> {
    rule: &'a PlacementRule,
    publishes: bool,
    networks: Vec<&'a NetworkName>,
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
