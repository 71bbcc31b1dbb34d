//! Where a replica would fit now: asked by people before they submit, and of what waits.

use std::sync::Arc;

use crate::identity::{HostId, ServiceId, ServiceName};
use crate::profile::{Profile, Replicas};
use crate::rights::Caller;
use crate::time::Now;

use super::machine::Registry;
use super::pending::{Depth, Seeker, fixed_port_note};
use super::records::{Phase, Wish};
use super::{FitView, Refusal};

/// What is to be explained.
#[derive(Clone, Debug)]
pub enum Explain {
    /// One replica of a profile, as if it were submitted under this name.
    Profile {
        /// The full name.
        service: ServiceName,
        /// What it would run.
        profile: Box<Profile>,
    },
    /// A replica of a known service.
    Service {
        /// Its full name.
        service: ServiceName,
        /// Which one; `None`: the first that waits, else one more.
        replica: Option<u32>,
    },
}

/// The number of a service that does not exist: it holds nothing and nothing rests for it.
const NOBODY: ServiceId = ServiceId(u64::MAX);

impl Registry {
    /// Where the replica would fit at `now`, with everything against every other host, holders as far as `by`
    /// may see them. Changes nothing. Cost: a question to each host.
    ///
    /// The caller of a [`Explain::Service`] must be checked to read its reasons before.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoSuchService`] and [`Refusal::NoSuchReplica`]; [`Refusal::Unfit`] as a submit would be
    /// refused; the message says why.
    pub fn explain(&mut self, now: Now, by: &Caller, what: &Explain) -> Result<FitView, Refusal> {
        // What is left of a rest is told as of now, not as of the newest input.
        self.now = now;
        match what {
            Explain::Profile { service, profile } => {
                self.fit_for_here(by, service, profile)?;
                let known = self.names.get(service).copied();
                let known = known.filter(|id| {
                    let service = self.truth.services.find(id);
                    service.is_some_and(|it| by.may_manage(it.holding()))
                });
                let desired = self.wanted_copies(profile);
                self.fit_within_limits(by, service, profile, desired)?;
                let id = known.unwrap_or(NOBODY);
                let mut fit = self.fit(by, (id, service, None), profile, desired);
                if known.is_some() {
                    fit.notes
                        .push("it is known already; this is for one more replica".to_owned());
                }
                Ok(fit)
            }
            Explain::Service { service, replica } => self.explain_service(by, service, *replica),
        }
    }

    fn explain_service(
        &mut self,
        by: &Caller,
        name: &ServiceName,
        asked: Option<u32>,
    ) -> Result<FitView, Refusal> {
        let id = self.names.get(name).copied();
        let found = id.and_then(|id| self.truth.services.find(&id));
        let (id, service) = id.zip(found).ok_or_else(|| Refusal::NoSuchService {
            service: name.clone(),
        })?;
        let waits = |index: &u32| {
            let replica = self.truth.replicas.find(&(id, *index));
            replica.is_some_and(|it| matches!(it.phase, Phase::Waiting(_)))
        };
        let all: Vec<u32> = self.truth.replicas_of(id).map(|(index, _)| index).collect();
        if let Some(index) = asked
            && !all.contains(&index)
        {
            let service = name.clone();
            return Err(Refusal::NoSuchReplica { service, index });
        }
        let meant = asked.or_else(|| all.iter().copied().find(waits));
        let waiting = meant.filter(waits);
        let mut notes = Vec::new();
        if let Some(index) = asked.filter(|_| waiting.is_none()) {
            notes.push(self.why_not_waiting(id, index));
        }
        if service.wish == Wish::Stopped {
            notes.push(format!("it is stopped; `portreeve start {name}` runs it"));
        }
        let replica = waiting.and_then(|index| self.truth.replicas.find(&(id, index)));
        let profile = match replica {
            Some(replica) => Arc::clone(service.profile_of(replica.generation)),
            None => Arc::clone(service.profile()),
        };
        let desired = service.desired;
        if let Some(left) = waiting.and_then(|it| self.waits.rest_left((id, it), self.now.mono)) {
            let left = crate::time::Spelled(super::survey::whole_seconds(left));
            notes.push(format!("it rests {left} before it looks for a place again"));
        }
        let mut fit = self.fit(by, (id, name, waiting), &profile, desired);
        fit.notes.append(&mut notes);
        Ok(fit)
    }

    fn why_not_waiting(&self, service: ServiceId, index: u32) -> String {
        let replica = self.truth.replicas.find(&(service, index));
        match replica.map(|replica| &replica.phase) {
            Some(Phase::Placed(placement)) => format!(
                "replica {index} waits for nothing, it is on host {}; this is for one more",
                self.host_name(placement.host)
            ),
            _ => format!("replica {index} waits for nothing, it ended; this is for one more"),
        }
    }

    fn fit(
        &mut self,
        by: &Caller,
        (id, name, replica): (ServiceId, &ServiceName, Option<u32>),
        profile: &Profile,
        desired: u32,
    ) -> FitView {
        self.waits.held.clear();
        let crowd = self.crowd();
        let known = self.truth.services.find(&id);
        let owner = known.map_or_else(|| by.owner(), |service| service.owner.clone());
        let waiting =
            replica.and_then(|index| Some((index, self.truth.replicas.find(&(id, index))?)));
        let claim = match known.zip(waiting) {
            Some((service, (index, replica))) => Self::claim_of(service, index, replica),
            None => Self::claim(id, &owner, name, profile),
        };
        let usages = self.usages_for([&claim]);
        let limited = usages.reached_on(&claim, |host| self.host_name(host));
        let mut candidates: Vec<HostId> = self.candidates(id, profile, &crowd);
        candidates.retain(|host| !limited.contains_key(host));
        let request = profile.request();
        let seeker = Seeker {
            service: id,
            profile,
            request: &request,
            candidates: &candidates,
            limited: &limited,
            desired,
        };
        let mut survey = self.survey(&seeker, Depth::EXPLAIN);
        survey.limit = usages.reached(&claim);
        for at in &mut survey.named {
            let Some(host) = self.host_names.get(&at.host).copied() else {
                continue;
            };
            for obstacle in &mut at.against {
                // A placement that is not on disk may never have been: it is no news for readers.
                let holder = obstacle.holder.take();
                obstacle.holder = holder.filter(|it| self.is_durable(host, it.by));
            }
        }
        let mut notes: Vec<String> = Vec::new();
        notes.extend(fixed_port_note(profile, desired, survey.eligible));
        if profile.replicas == Replicas::PerHost {
            notes.push("it runs one replica on each eligible host".to_owned());
        }
        if (survey.eligible as usize) > survey.named.len() {
            let more = survey.eligible as usize - survey.named.len();
            notes.push(format!("{more} more hosts are summed but not listed"));
        }
        FitView {
            service: name.clone(),
            replica,
            sentence: survey.sum(),
            notes,
            sums: survey.sums(),
            hosts: survey.hosts(by, self.now.mono),
        }
    }
}
