//! Submitting a profile: a new service, no change, a replacement, or running again what ended.

use std::sync::Arc;

use crate::identity::{ServiceId, ServiceName};
use crate::port::{Port, PortRanges};
use crate::port_pool::Want;
use crate::profile::{Profile, Replicas, Source};
use crate::rights::Caller;

use super::attach::not_ours;
use super::commands::{answer, copies, gap_note, order_of};
use super::machine::Registry;
use super::pending::fixed_port_note;
use super::records::{EndKind, Phase, Replica, Roll, RollKind, Service, WaitCause, Waiting, Wish};
use super::truth::{MetaKey, TombstoneKey};
use super::{Answer, HostOwner, Refusal, Submission};

/// The lowest number that a process without privilege may bind.
const UNPRIVILEGED: Port = match Port::new(1024) {
    Some(port) => port,
    None => Port::MAX,
};

impl Registry {
    pub(super) fn submit(
        &mut self,
        by: &Caller,
        submission: Submission,
    ) -> Result<Answer, Refusal> {
        let name = submission.service.clone();
        self.fit_for_here(by, &name, &submission.profile)?;
        // Who only asks where it would fit is told NO BLOCK for each host.
        if let Some(reason) = self.too_long_a_block(&submission.profile) {
            let service = name;
            return Err(Refusal::Unfit { service, reason });
        }
        let known = self.names.get(&name);
        let service = known.and_then(|id| self.truth.services.find(id));
        let seen = service.filter(|it| by.may_see(it.holding()));
        if seen.is_none() && !by.may_submit_into(name.namespace()) {
            // The same whether the name is taken there or not.
            return Err(Refusal::NotAllowed {
                user: by.user.clone(),
                action: "submit",
                owner: name.namespace().to_string(),
                service: name,
            });
        }
        if service.is_none() {
            let desired = self.wanted_copies(&submission.profile);
            self.fit_within_limits(by, &name, &submission.profile, desired)?;
            return self.submit_new(by, &name, submission.profile, submission.source);
        }
        if seen.is_none() {
            return Err(Refusal::Unfit {
                service: name,
                reason: "the name is taken in this namespace; choose another".to_owned(),
            });
        }
        let service = self.managed(by, &name, "submit")?;
        not_ours(service, "delete it first, or choose another name")?;
        let id = service.id;
        let mut changes = differences(service.profile(), &submission.profile);
        let written = match submission.profile.replicas {
            Replicas::Count(count) => count,
            Replicas::PerHost => service.desired,
        };
        let scaled = changes.is_empty() && written != service.desired;
        if scaled && submission.replace {
            // Who replaces wants what is written, also where it was scaled since.
            changes.push("replicas".to_owned());
        }
        if changes.is_empty() {
            let desired = service.desired;
            let mut answer = self.run_ended(id, by, &name);
            if scaled {
                answer.notes.push(format!(
                    "it stays scaled to {desired}; the profile says {written}: `portreeve submit --replace` or `portreeve scale {name} {written}`"
                ));
            }
            return Ok(answer);
        }
        let lives = self
            .truth
            .replicas_of(id)
            .any(|(_, it)| !matches!(it.phase, Phase::Ended(_)));
        if lives && !submission.replace {
            return Err(Refusal::Differs {
                service: name,
                difference: changes.join(", "),
            });
        }
        let desired = self.wanted_copies(&submission.profile);
        self.fit_within_limits(by, &name, &submission.profile, desired)?;
        if let Some(service) = self.truth.services.change(&id) {
            service.source = submission.source.map(Arc::new);
        }
        Ok(self.replace(&name, id, by, submission.profile, &changes))
    }

    /// Refuses what no host here could ever run.
    pub(super) fn fit_for_here(
        &self,
        by: &Caller,
        name: &ServiceName,
        profile: &Profile,
    ) -> Result<(), Refusal> {
        let unfit = |reason: String| Refusal::Unfit {
            service: name.clone(),
            reason,
        };
        if let Some(reason) = self.unknown_network(profile) {
            return Err(unfit(reason));
        }
        let privileged = profile.ports.iter().find_map(|port| match port.want {
            Want::Fixed(number) if number < UNPRIVILEGED => Some((number, port.protocol)),
            _ => None,
        });
        // Who offers such a number on a host lets everybody bind it.
        let is_offered = |number| {
            let mut hosts = self.truth.known_hosts();
            hosts.any(|(_, host)| host.facts.fixed.contains(number))
        };
        match privileged {
            Some((number, protocol))
                if by.uid != Some(0) && !self.host_names.is_empty() && !is_offered(number) =>
            {
                Err(unfit(format!(
                    "port {number}/{protocol} needs privilege: {} may bind {UNPRIVILEGED} to 65535, and no host offers a lower number",
                    by.user
                )))
            }
            _ => Ok(()),
        }
    }

    /// Why no known host could ever answer a block of the profile; nothing while no host is known.
    fn too_long_a_block(&self, profile: &Profile) -> Option<String> {
        let is_block = |want: Want| matches!(want, Want::Any { count } if count.get() > 1);
        if !profile.ports.iter().any(|port| is_block(port.want)) {
            return None;
        }
        let offers = self.truth.known_hosts().map(|(_, host)| {
            let facts = &host.facts;
            facts.dynamic.difference(&facts.reserved)
        });
        let offers: Vec<PortRanges> = offers.collect();
        if offers.is_empty() {
            return None;
        }
        let longest = |within: Option<&PortRanges>| {
            let runs = offers.iter().map(|offered| match within {
                Some(within) => offered.intersection(within),
                None => offered.clone(),
            });
            let runs = runs.filter_map(|ranges| ranges.longest().map(|range| range.count()));
            runs.max().unwrap_or(0)
        };
        profile.ports.iter().find_map(|port| {
            let wanted = match port.want {
                Want::Any { count } if count.get() > 1 => u32::from(count.get()),
                _ => return None,
            };
            let longest = longest(port.within.as_ref());
            (longest < wanted).then(|| {
                format!(
                    "port {} asks for a block of {wanted}, and no host offers more than {longest} consecutive numbers for it; \
                     ask for fewer, or let an agent offer more with --ports",
                    port.name
                )
            })
        })
    }

    fn submit_new(
        &mut self,
        by: &Caller,
        name: &ServiceName,
        profile: Profile,
        source: Option<Source>,
    ) -> Result<Answer, Refusal> {
        let desired = self.wanted_copies(&profile);
        let id = self.new_service(by, name, profile, source, (desired, Kept::Here))?;
        let Some(service) = self.truth.services.find(&id) else {
            return Ok(answer(name, false, Vec::new()));
        };
        let mut notes = vec![format!("created with {}", copies(desired))];
        notes.extend(self.room_notes(service, desired));
        self.resize(id, desired, &by.user);
        self.tell_service(
            id,
            "submitted",
            format!("submitted by {} with {}", by.user, copies(desired)),
        );
        Ok(answer(name, true, notes))
    }

    /// Above every incarnation that a deleted service of this name had, or that a host may run in this name.
    pub(super) fn floor_of(&self, name: &ServiceName) -> u32 {
        let floor = self.known_floor(name);
        let unknown = self.above_unknown(name, None);
        floor.max(self.meta().incarnation_base).max(unknown)
    }

    /// The same as far as the store knows.
    fn known_floor(&self, name: &ServiceName) -> u32 {
        let floor = self.truth.tombstones.find(&TombstoneKey(name.clone()));
        floor.map_or(0, |it| it.incarnation_floor)
    }

    /// The uid under which a new service of this name runs, if the caller may have one.
    pub(super) fn account_for(&self, by: &Caller, name: &ServiceName) -> Result<u32, Refusal> {
        let unfit = |reason: String| Refusal::Unfit {
            service: name.clone(),
            reason,
        };
        let uid = by.uid.ok_or_else(|| {
            unfit(format!(
                "the account {} has no uid on the controller's machine, so no host could run it",
                by.user
            ))
        })?;
        let lower = |name: &ServiceName| name.namespace().as_str().to_lowercase();
        let twin = self
            .names
            .keys()
            .find(|known| known.namespace() != name.namespace() && lower(known) == lower(name));
        match twin {
            Some(twin) => Err(unfit(format!(
                "namespace {} differs from {} in upper and lower case only",
                name.namespace(),
                twin.namespace()
            ))),
            None => Ok(uid),
        }
    }

    /// Adds a service that has no replica yet.
    pub(super) fn new_service(
        &mut self,
        by: &Caller,
        name: &ServiceName,
        profile: Profile,
        source: Option<Source>,
        (desired, kept): (u32, Kept),
    ) -> Result<ServiceId, Refusal> {
        let uid = self.account_for(by, name)?;
        let (known, incarnation_floor) = (self.known_floor(name), self.floor_of(name));
        let Some(meta) = self.truth.meta.change(&MetaKey) else {
            return Err(Refusal::NotStored {
                reason: "the store has no counters".to_owned(),
            });
        };
        let id = ServiceId(meta.next_service);
        meta.next_service += 1;
        let mut service = Service {
            id,
            name: name.clone(),
            owner: by.owner(),
            uid,
            profiles: std::collections::BTreeMap::from([(0, Arc::new(profile))]),
            source: source.map(Arc::new),
            generation: 0,
            desired,
            wish: Wish::Running,
            submitted: self.now.wall,
            roll: None,
            incarnation_floor,
            skipped: Vec::new(),
            skipped_anew: Vec::new(),
            attached: kept == Kept::ByJobs,
            moving: None,
        };
        service.skip(known, incarnation_floor);
        self.truth.services.insert(id, service);
        self.names.insert(name.clone(), id);
        Ok(id)
    }

    /// The same profile again: what the owner stopped or what failed runs again, what completed does not.
    fn run_ended(&mut self, id: ServiceId, by: &Caller, name: &ServiceName) -> Answer {
        let changed = self.run_again(id, &by.user, |how| how != EndKind::Done);
        if !changed {
            let note = "nothing to change: it is known with this profile";
            return answer(name, false, vec![note.to_owned()]);
        }
        self.tell_service(id, "started", format!("submitted again by {}", by.user));
        answer(
            name,
            true,
            vec!["known with this profile, started again".to_owned()],
        )
    }

    /// Another profile for a known service: takes effect at once where nothing runs, else by a roll.
    fn replace(
        &mut self,
        name: &ServiceName,
        id: ServiceId,
        by: &Caller,
        profile: Profile,
        changes: &[String],
    ) -> Answer {
        let desired = self.wanted_copies(&profile);
        let only_count = changes.iter().all(|field| field == "replicas");
        let Some(service) = self.truth.services.change(&id) else {
            return answer(name, false, Vec::new());
        };
        service.wish = Wish::Running;
        // Another number of replicas is no reason to restart the others.
        if !only_count {
            service.generation += 1;
        }
        let generation = service.generation;
        service.profiles.insert(generation, Arc::new(profile));
        service.roll = None;
        let service = service.clone();
        let room = self.room_notes(&service, desired);
        self.tell_service(
            id,
            "replaced",
            format!("profile replaced by {}: {}", by.user, changes.join(", ")),
        );
        self.resize(id, desired, &by.user);
        let placed = |replica: &Replica| matches!(replica.phase, Phase::Placed(_));
        let lives = self.truth.replicas_of(id).any(|(_, it)| placed(it));
        let changed = changes.join(", ");
        let mut notes = vec![match (only_count, lives) {
            (true, _) => format!("scaled to {}", copies(desired)),
            (false, true) => {
                let order = order_of(desired);
                format!("replacing {}{order} (changed: {changed})", copies(desired))
            }
            (false, false) => {
                format!("replaced with {} (changed: {changed})", copies(desired))
            }
        }];
        notes.extend(room);
        if only_count {
            self.run_again(id, &by.user, |how| how != EndKind::Done);
            return answer(name, true, notes);
        }
        // What has no process yet runs the new profile from its first run on.
        let waiting: Vec<u32> = self
            .truth
            .replicas_of(id)
            .filter(|(_, it)| matches!(it.phase, Phase::Waiting(_)))
            .map(|(index, _)| index)
            .collect();
        for index in waiting {
            if let Some(replica) = self.truth.replicas.change(&(id, index)) {
                replica.generation = generation;
                replica.requeues = 0;
                replica.phase = Phase::Waiting(Waiting {
                    cause: WaitCause::Asked,
                    rest: None,
                });
                self.waits.forget((id, index));
            }
        }
        let ended =
            |(index, it): &(u32, &Replica)| *index < desired && matches!(it.phase, Phase::Ended(_));
        let ended = self.truth.replicas_of(id).filter(ended);
        let witness = ended.map(|(index, _)| index).max();
        // Also while others live: it takes nothing from clients, and what stops the roll is no reason to keep it ended.
        self.run_again(id, &by.user, |_| true);
        if lives {
            notes.extend(gap_note(desired as usize));
            let remaining = self.truth.replicas_of(id).map(|(index, _)| index);
            let remaining = remaining.filter(|index| *index < desired && Some(*index) != witness);
            let remaining = remaining.collect();
            self.begin_roll(
                id,
                Roll {
                    kind: RollKind::Replace,
                    by: by.user.clone(),
                    // What serves is taken once one that did not shows what the new profile is worth.
                    current: witness,
                    remaining,
                },
            );
        }
        self.prune_profiles(id);
        answer(name, true, notes)
    }

    /// How many copies the profile asks for, on the hosts known now.
    pub(super) fn wanted_copies(&self, profile: &Profile) -> u32 {
        match profile.replicas {
            Replicas::Count(count) => count,
            Replicas::PerHost => {
                let hosts = self.eligible_hosts(profile).into_iter();
                let ours = hosts.filter(|host| host.facts.owner == HostOwner::Controller);
                u32::try_from(ours.count())
                    .unwrap_or(Replicas::MOST)
                    .min(Replicas::MOST)
            }
        }
    }

    /// What to know at once about room for so many replicas.
    pub(super) fn room_notes(&self, service: &Service, replicas: u32) -> Vec<String> {
        let profile = service.profile();
        let eligible = self.eligible_hosts(profile).len();
        let eligible = u32::try_from(eligible).unwrap_or(u32::MAX);
        fixed_port_note(profile, replicas, eligible)
            .into_iter()
            .collect()
    }
}

/// Who starts the replicas of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The agents, on the hosts that are chosen here.
    Here,
    /// Jobs of another scheduler.
    ByJobs,
}

/// The fields in which two profiles differ, in the words of the profile.
pub(super) fn differences(old: &Profile, new: &Profile) -> Vec<String> {
    if old == new {
        return Vec::new();
    }
    let fields = |profile: &Profile| match serde_json::to_value(profile) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (fields(old), fields(new));
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut differing: Vec<String> = names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name))
        .cloned()
        .collect();
    if differing.is_empty() {
        // They are not equal, so something differs that the written form does not name.
        differing.push("profile".to_owned());
    }
    differing
}
