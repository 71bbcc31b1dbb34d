//! Attached replicas: jobs of another scheduler that bring a running copy along and ask for its ports.
//!
//! The host is given, so there is nothing to place: the numbers are granted at once or refused with the reason, and
//! an attached replica never waits, moves or follows itself. What ends, ends; the job that ran it asks again.

use std::sync::Arc;

use crate::identity::{HostId, HostName, Incarnation, ReplicaId, ServiceId, ServiceName};
use crate::port_pool::PortGrant;
use crate::profile::{PlacementRule, Profile, Replicas, Source};
use crate::rights::Caller;

use super::commands::answer;
use super::machine::Registry;
use super::pending::{Depth, Seeker};
use super::records::{Attached, Phase, Placement, Service, Wish};
use super::submit::{Kept, differences};
use super::truth::ReplicaKey;
use super::{Answer, Refusal};

/// What a job of another scheduler asks for, for one copy of a service on its host.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The full name.
    pub service: ServiceName,
    /// What the job runs. How many replicas and where is the other scheduler's.
    pub profile: Profile,
    /// What the profile was made of, where it came as a text.
    pub source: Option<Source>,
    /// Where the job runs: the only host considered.
    pub host: HostName,
    /// Which copy; `None`: the lowest that is free.
    pub index: Option<u32>,
    /// Names this very ask: the same again on the same host is answered with the same grant.
    pub key: String,
    /// The job in the words of its scheduler, such as `slurm 4711`.
    pub job: Option<String>,
}

/// The fields that may differ from task to task of one attached service: what each runs, not what clients meet.
const A_TASKS_OWN: [&str; 6] = [
    "command",
    "pre_exec",
    "working_dir",
    "env",
    "env_file",
    "env_secret",
];

/// Where an attachment goes.
struct Berth {
    service: Option<ServiceId>,
    /// The generation with this profile; `None`: a new one.
    generation: Option<u64>,
    id: ReplicaId,
}

impl Registry {
    /// Grants the ports on the job's host, or says why not; then nothing changed.
    pub(super) fn attach(
        &mut self,
        by: &Caller,
        mut attachment: Attachment,
    ) -> Result<Answer, Refusal> {
        // The other scheduler's, whatever is written.
        attachment.profile.replicas = Replicas::Count(1);
        attachment.profile.placement = PlacementRule::default();
        let name = attachment.service.clone();
        self.fit_for_here(by, &name, &attachment.profile)?;
        self.fit_alone(by, &name, &attachment.profile, 1)?;
        let unfit = |reason: String| Refusal::Unfit {
            service: name.clone(),
            reason,
        };
        let index_bound = Replicas::MOST;
        if attachment.index.is_some_and(|index| index >= index_bound) {
            return Err(unfit(format!(
                "replica numbers are below {index_bound}; name a lower one with --replica"
            )));
        }
        let Some(host) = self.host_names.get(&attachment.host).copied() else {
            // Its agent asks, so it is there and will report: this passes.
            return Err(Refusal::NoRoom {
                service: name.clone(),
                reason: format!(
                    "host {} has not reported to this controller yet",
                    attachment.host
                ),
                host: attachment.host,
            });
        };
        if let Some(known) = self.attached_by(by, &name, host, &attachment.key) {
            return Ok(known);
        }
        let berth = self.berth(by, &attachment)?;
        let is_known = self
            .truth
            .replicas
            .find(&(berth.id.service, berth.id.index));
        self.fit_beside_what_is_known(by, &name, u32::from(is_known.is_none()))?;
        let grant = self.grant_there(by, &attachment, &berth, host)?;
        self.moor(by, attachment, &berth, host, grant)
    }

    /// The answer to an ask that was granted before and whose answer may be lost. It has the replica's tokens, so it is
    /// for the account of the first ask only.
    fn attached_by(
        &self,
        by: &Caller,
        name: &ServiceName,
        host: HostId,
        key: &str,
    ) -> Option<Answer> {
        let service = self.truth.services.find(self.names.get(name)?)?;
        if by.uid != Some(service.uid) {
            return None;
        }
        let (index, _) = self.truth.replicas_of(service.id).find(|(_, replica)| {
            matches!(&replica.phase, Phase::Placed(at)
                if at.host == host && at.attached.as_ref().is_some_and(|it| it.key == key))
        })?;
        Some(self.granted(service, index, false))
    }

    /// Which service, profile and index it is to be. Changes nothing.
    fn berth(&self, by: &Caller, attachment: &Attachment) -> Result<Berth, Refusal> {
        let name = &attachment.service;
        let unfit = |reason: &str| Refusal::Unfit {
            service: name.clone(),
            reason: reason.to_owned(),
        };
        let known = self.names.get(name);
        let Some(service) = known.and_then(|id| self.truth.services.find(id)) else {
            if !by.may_submit_into(name.namespace()) {
                return Err(Refusal::NotAllowed {
                    user: by.user.clone(),
                    action: "attach to",
                    owner: name.namespace().to_string(),
                    service: name.clone(),
                });
            }
            self.account_for(by, name)?;
            return Ok(Berth {
                service: None,
                generation: None,
                id: ReplicaId {
                    service: ServiceId(self.meta().next_service),
                    index: attachment.index.unwrap_or(0),
                    incarnation: Incarnation(self.floor_of(name)),
                },
            });
        };
        if !by.may_see(service.holding()) {
            return Err(unfit(
                "the name is taken in this namespace; choose another with --name",
            ));
        }
        let service = self.managed(by, name, "attach to")?;
        if !service.attached {
            return Err(unfit(
                "this controller places and starts its replicas itself; choose another name with --name, or delete it",
            ));
        }
        if by.uid != Some(service.uid) {
            return Err(unfit(&format!(
                "its replicas run as {} (uid {}); run the job as that account, or choose another name with --name",
                service.owner.user, service.uid
            )));
        }
        let holds = |index: u32| match self.truth.replicas.find(&(service.id, index)) {
            Some(replica) => match &replica.phase {
                Phase::Placed(placement) => Some(placement.host),
                _ => None,
            },
            None => None,
        };
        let index = match attachment.index {
            Some(index) => match holds(index) {
                Some(host) => {
                    return Err(Refusal::Taken {
                        service: name.clone(),
                        index,
                        host: self.host_name(host),
                    });
                }
                None => index,
            },
            // One more than there are replicas is free at the latest.
            None => (0..Replicas::MOST)
                .find(|index| holds(*index).is_none())
                .ok_or_else(|| unfit("it has as many replicas as a service may have"))?,
        };
        let generation = self.generation_for(service, &attachment.profile)?;
        let before = self.truth.replicas.find(&(service.id, index));
        let incarnation = match before {
            Some(before) => self.next_incarnation(service.id, index, before.incarnation),
            None => {
                let unknown = self.above_unknown(&service.name, Some(index));
                Incarnation(service.incarnation_floor.max(unknown))
            }
        };
        Ok(Berth {
            service: Some(service.id),
            generation,
            id: ReplicaId {
                service: service.id,
                index,
                incarnation,
            },
        })
    }

    /// The generation that runs this profile. Clients of one service meet one kind of replica, so a profile that
    /// differs in more than a task's own fields waits until none of the earlier ones lives.
    fn generation_for(&self, service: &Service, profile: &Profile) -> Result<Option<u64>, Refusal> {
        let mut known = service.profiles.iter();
        let same = known.find(|(_, it)| it.as_ref() == profile);
        let lives = self
            .truth
            .replicas_of(service.id)
            .any(|(_, it)| matches!(it.phase, Phase::Placed(_)));
        let mut changes = differences(service.profile(), profile);
        changes.retain(|field| !A_TASKS_OWN.contains(&field.as_str()));
        if lives && !changes.is_empty() {
            return Err(Refusal::Unfit {
                service: service.name.clone(),
                reason: format!(
                    "its living replicas have another profile ({}); use the same, wait for their end, or choose another name with --name",
                    changes.join(", ")
                ),
            });
        }
        Ok(same.map(|(generation, _)| *generation))
    }

    /// Takes the numbers on the host, or says what is against it there.
    fn grant_there(
        &mut self,
        by: &Caller,
        attachment: &Attachment,
        berth: &Berth,
        host: HostId,
    ) -> Result<PortGrant, Refusal> {
        let profile = &attachment.profile;
        let request = profile.request();
        let now = self.now.mono;
        let known = self.truth.services.find(&berth.id.service);
        let owner = known.map_or_else(|| by.owner(), |service| service.owner.clone());
        let claim = Self::claim(berth.id.service, &owner, &attachment.service, profile);
        let usages = self.usages_for([&claim]);
        let no_room = |reason: String| Refusal::NoRoom {
            service: attachment.service.clone(),
            host: attachment.host.clone(),
            reason,
        };
        if let Some(limit) = usages.reached(&claim) {
            return Err(no_room(format!("LIMIT: {limit}")));
        }
        let limited = usages.reached_on(&claim, |host| self.host_name(host));
        let mut candidates = self.candidates(berth.id.service, profile, &self.crowd());
        candidates.retain(|host| !limited.contains_key(host));
        let key = (berth.id.service, berth.id.index);
        let former = self.truth.replicas.find(&key);
        let former = former.and_then(|replica| {
            let former = replica.former.as_ref()?;
            Some((former.host, former.grant.clone()))
        });
        let granted = if candidates.contains(&host) {
            self.pools
                .place(now, berth.id, &request, former.as_ref(), host)
        } else {
            None
        };
        granted.ok_or_else(|| {
            let here = PlacementRule {
                hosts: [attachment.host.clone()].into(),
                ..PlacementRule::default()
            };
            let profile = Profile {
                placement: here,
                ..profile.clone()
            };
            self.waits.held.clear();
            let seeker = Seeker {
                service: berth.id.service,
                profile: &profile,
                request: &request,
                candidates: &candidates,
                limited: &limited,
                desired: 1,
            };
            let survey = self.survey(&seeker, Depth::pending(1));
            no_room(survey.told(by, now).sentence)
        })
    }

    /// Writes down what was granted.
    fn moor(
        &mut self,
        by: &Caller,
        attachment: Attachment,
        berth: &Berth,
        host: HostId,
        grant: PortGrant,
    ) -> Result<Answer, Refusal> {
        let name = attachment.service;
        let key = (berth.id.service, berth.id.index);
        let generation = match berth.service {
            None => {
                let kept = (0, Kept::ByJobs);
                self.new_service(by, &name, attachment.profile, attachment.source, kept)?;
                0
            }
            Some(id) => {
                self.adopt_profile(id, berth.generation, attachment.profile, attachment.source)
            }
        };
        let host_facts = self.truth.hosts.find(&host).map(|host| &host.facts);
        let boot_id = host_facts.map_or_else(String::new, |facts| facts.boot_id.clone());
        let ports: Vec<String> = grant
            .ports
            .iter()
            .map(|port| format!("{} {}", port.name, port.numbers))
            .collect();
        let ports = match ports.is_empty() {
            true => String::new(),
            false => format!(": {}", ports.join(", ")),
        };
        let inside = attachment.job.as_ref();
        let inside = inside.map_or(String::new(), |job| format!(" inside {job}"));
        let text = format!("attached on host {}{inside}{ports}", attachment.host);
        let placement = Placement {
            host,
            boot_id,
            grant,
            placed_at: self.now.wall,
            stop: None,
            attached: Some(Attached {
                key: attachment.key,
                job: attachment.job,
            }),
        };
        // What is left out for the sake of unknown ones is noted; it is what the berth was given.
        match self.truth.replicas.find(&key) {
            Some(_) => drop(self.take_incarnation(key)),
            None => drop(self.first_incarnation(key)),
        }
        let mut first = self.new_replica(berth.id.incarnation, generation);
        match self.truth.replicas.change(&key) {
            Some(replica) => {
                replica.begin_anew(self.now, berth.id.incarnation);
                replica.generation = generation;
                replica.phase = Phase::Placed(placement);
            }
            None => {
                first.phase = Phase::Placed(placement);
                self.truth.replicas.insert(key, first);
            }
        }
        self.waits.forget(key);
        self.tell_replica(key, "attached", text);
        self.count_attached(key.0);
        self.prune_profiles(key.0);
        self.outbox.order(host);
        self.shown.hosts_truth.insert(host);
        self.shown.truth.insert(key.0);
        let service = self.truth.services.find(&key.0);
        let service = service.expect("it was just found or made");
        Ok(self.granted(service, key.1, true))
    }

    /// Has the service keep the profile of a new attachment; its generation.
    fn adopt_profile(
        &mut self,
        id: ServiceId,
        generation: Option<u64>,
        profile: Profile,
        source: Option<Source>,
    ) -> u64 {
        let Some(service) = self.truth.services.change(&id) else {
            return 0;
        };
        service.wish = Wish::Running;
        if let Some(generation) = generation {
            return generation;
        }
        service.generation += 1;
        service
            .profiles
            .insert(service.generation, Arc::new(profile));
        service.source = source.map(Arc::new);
        service.generation
    }

    /// There shall be as many replicas of an attached service as jobs brought along and live.
    pub(super) fn count_attached(&mut self, id: ServiceId) {
        let placed = self.truth.replicas_of(id);
        let placed = placed.filter(|(_, it)| matches!(it.phase, Phase::Placed(_)));
        let count = u32::try_from(placed.count()).unwrap_or(u32::MAX);
        let service = self.truth.services.find(&id);
        if service.is_some_and(|it| it.attached && it.desired != count)
            && let Some(service) = self.truth.services.change(&id)
        {
            service.desired = count;
            self.shown.truth.insert(id);
        }
    }

    /// Whether the service's replicas are brought along by jobs of another scheduler.
    pub(super) fn is_attached(&self, id: ServiceId) -> bool {
        self.truth
            .services
            .find(&id)
            .is_some_and(|service| service.attached)
    }

    fn granted(&self, service: &Service, index: u32, changed: bool) -> Answer {
        let key: ReplicaKey = (service.id, index);
        let placed = self.truth.replicas.find(&key).and_then(|replica| {
            let Phase::Placed(placement) = &replica.phase else {
                return None;
            };
            Some(self.placed(service, index, replica, placement))
        });
        Answer {
            granted: placed.map(Box::new),
            ..answer(&service.name, changed, Vec::new())
        }
    }
}

/// Refuses a verb that only makes sense where this controller places the replicas.
pub(super) fn not_ours(service: &Service, instead: &str) -> Result<(), Refusal> {
    if !service.attached {
        return Ok(());
    }
    Err(Refusal::Unfit {
        service: service.name.clone(),
        reason: format!(
            "its replicas run inside jobs of another scheduler (`portreeve run`); {instead}"
        ),
    })
}
