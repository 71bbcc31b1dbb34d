//! What an operator says of a host that is gone, and of replicas there that nobody here knows.

use std::sync::Arc;

use crate::allocator::{AfterRelease, GrantRecord};
use crate::identity::{HostId, ReplicaId};
use crate::profile::Profile;
use crate::residency::{ReplicaName, Want};
use crate::rights::Caller;
use crate::time::Spelled;

use super::host_verbs::{HostReplica, host_answer};
use super::machine::Registry;
use super::records::{Phase, Placement, Wish};
use super::unknown::Unknown;
use super::{Answer, Desired, Refusal};

impl Registry {
    /// Takes the host for lost now; `fenced`: its numbers are freed too.
    pub(super) fn host_down(
        &mut self,
        by: &Caller,
        host: HostId,
        fenced: bool,
    ) -> Result<Answer, Refusal> {
        let name = self.host_name(host);
        let life = self.lives.get(&host);
        // Before the start of this controller it may have been heard of by the one before.
        let silent = life.map(|life| self.now.mono.since(life.heard));
        let suspect_after = self.config.silence.map(|it| it.suspect_after());
        let too_short = silent.zip(suspect_after).filter(|(it, least)| it < least);
        let is_heard = life.is_some_and(|life| life.is_heard);
        if let Some((silent, least)) = too_short
            && fenced
        {
            let silent = Spelled(std::time::Duration::from_secs(silent.as_secs()));
            let known = if is_heard {
                format!("it was heard of {silent} ago")
            } else {
                format!(
                    "this controller was started {silent} ago and cannot know how long it has been silent"
                )
            };
            let reason = format!(
                "{known}, so something may still run there with its numbers; cut its power, and say so again once it has \
                 been silent for {}",
                Spelled(least)
            );
            return Err(self.unfit_host(host, &reason));
        }
        let before = self.lost(host).cloned();
        if before.as_ref().is_some_and(|lost| lost.fenced || !fenced) {
            let note = "nothing to change: it is lost already";
            return Ok(host_answer(name, false, vec![note.to_owned()]));
        }
        let here = self.placed_on(host).count();
        let stranded = self.stranded_on(host).count() + here;
        let mut lost = self.loss(host, Some(by.user.clone()));
        if let Some(before) = before {
            (lost.at, lost.last_contact, lost.before) =
                (before.at, before.last_contact, before.before);
        }
        lost.fenced = fenced;
        let text = format!(
            "declared down{} by {}; {}",
            if fenced { " and fenced" } else { "" },
            by.user,
            lost.contact()
        );
        if let Some(host) = self.truth.hosts.change(&host) {
            host.lost = Some(lost);
        }
        self.tell_host(host, "down", text);
        self.given_up(host);
        self.look_at_stranded_of(host);
        self.shown.hosts_truth.insert(host);
        let services: Vec<_> = self.placed_on(host).map(|(key, _)| key.0).collect();
        self.attention.extend(services.iter().copied());
        self.shown.truth.extend(services);
        if fenced {
            self.keep_unknown(host, |_| false);
        }
        let mut notes = vec![match here {
            0 => "it is lost".to_owned(),
            many => format!(
                "it is lost: what ran there is run elsewhere or ends ({})",
                super::commands::copies(u32::try_from(many).unwrap_or(u32::MAX))
            ),
        }];
        notes.push(if fenced {
            "its numbers are free".to_owned()
        } else if stranded > 0 {
            format!(
                "its numbers stay held until it reports or is booted; `portreeve host down {name} --fenced` frees them \
                 once nothing can run there any more"
            )
        } else {
            "it has no numbers".to_owned()
        });
        if too_short.is_some() && is_heard {
            notes.push(
                "it was heard of a moment ago: alive, it is back with its next report, and what was replaced is stopped there"
                    .to_owned(),
            );
        }
        Ok(host_answer(name, true, notes))
    }

    /// Makes a replica that is not known here ours again.
    pub(super) fn adopt_unknown(
        &mut self,
        by: &Caller,
        host: HostId,
        replica: &HostReplica,
    ) -> Result<Answer, Refusal> {
        let (name, unknown) = self.unknown_named(host, replica)?;
        if self.lost(host).is_some() {
            let reason =
                format!("it is lost, so {name} may not run any more; wait until it is back");
            return Err(self.unfit_host(host, &reason));
        }
        if self.is_of_plugin(host) {
            let reason =
                format!("another scheduler's plugin gives its ports, so {name} cannot be ours");
            return Err(self.unfit_host(host, &reason));
        }
        let service = self.names.get(&name.service);
        let Some(service) = service.and_then(|id| self.truth.services.find(id)) else {
            let here = self.host_name(host);
            let reason = format!(
                "no service {} is known, so nobody can say how {name} is to be run; `portreeve host drain {here} --no-wait`, \
                 submit it, adopt this and `portreeve host undrain {here}`; or `portreeve host fence` stops the replica",
                name.service
            );
            return Err(self.unfit_host(host, &reason));
        };
        if service.wish == Wish::Stopped || name.index >= service.desired && !service.attached {
            let reason = format!(
                "{} is not wanted: the service is {} with {}; start or scale it first, or `portreeve host fence` stops \
                 the replica",
                name,
                if service.wish == Wish::Stopped {
                    "stopped"
                } else {
                    "running"
                },
                super::commands::copies(service.desired)
            );
            return Err(self.unfit_host(host, &reason));
        }
        if service.attached {
            let reason = format!(
                "{name} runs inside a job of another scheduler, which would have to ask again; end that job, or `portreeve \
                 host fence` stops the replica"
            );
            return Err(self.unfit_host(host, &reason));
        }
        let Some(grant) = unknown.grant else {
            let reason =
                format!("its agent does not say which numbers {name} has; use a newer agent");
            return Err(self.unfit_host(host, &reason));
        };
        let (id, generation) = (service.id, service.generation);
        let key = (id, name.index);
        let known = self.truth.replicas.find(&key);
        if let Some(Phase::Placed(placement)) = known.map(|it| &it.phase) {
            let other = self.host_name(placement.host);
            let reason = format!(
                "replica {} of {} runs on host {other} already; kill that one first, or `portreeve host fence` stops this one",
                name.index, name.service
            );
            return Err(self.unfit_host(host, &reason));
        }
        let newest = known.map_or(name.incarnation, |it| it.incarnation);
        let floor = self.next_incarnation(id, name.index, newest.max(name.incarnation));
        if let Some(service) = self.truth.services.change(&id) {
            service.incarnation_floor = service.incarnation_floor.max(floor.0);
        }
        if self.truth.replicas.find(&key).is_none() {
            let first = self.new_replica(name.incarnation, generation);
            self.truth.replicas.insert(key, first);
        }
        let now = self.now.wall;
        let boot_id = self
            .truth
            .hosts
            .find(&host)
            .map(|it| it.facts.boot_id.clone());
        let status = unknown.status;
        if let Some(replica) = self.truth.replicas.change(&key) {
            replica.incarnation = name.incarnation;
            replica.generation = generation;
            replica.since = now;
            replica.ready_since = status.ready.then_some(now);
            replica.restart_no = status.restart_no;
            replica.status = Some(status).filter(|status| !status.is_silent());
            replica.phase = Phase::Placed(Placement {
                host,
                boot_id: boot_id.unwrap_or_default(),
                grant: grant.clone(),
                placed_at: now,
                stop: None,
                attached: None,
            });
        }
        self.pools
            .release(unknown.id, self.now.mono, AfterRelease::Free);
        self.end_conflicts_of(unknown.id);
        let record = GrantRecord {
            host,
            replica: ReplicaId {
                service: id,
                index: name.index,
                incarnation: name.incarnation,
            },
            grant,
            releasing: false,
        };
        let conflicts = self.pools.restore([record]);
        self.conflicts.extend(conflicts);
        self.waits.forget(key);
        let told = self.host_name(host);
        self.tell_replica(
            key,
            "adopted",
            format!("adopted on host {told} by {}", by.user),
        );
        self.outbox.order(host);
        self.shown.hosts_truth.insert(host);
        self.shown.truth.insert(id);
        self.attention.insert(id);
        Ok(host_answer(told, true, vec![format!("adopted {name}")]))
    }

    /// Orders the stop of what is not known here; `None`: all of it.
    pub(super) fn fence_unknown(
        &mut self,
        by: &Caller,
        host: HostId,
        replica: Option<&HostReplica>,
    ) -> Result<Answer, Refusal> {
        let names: Vec<ReplicaName> = match replica {
            Some(replica) => vec![self.unknown_named(host, replica)?.0],
            None => self
                .unknown_on(host)
                .map(|(name, _)| name.clone())
                .collect(),
        };
        let name = self.host_name(host);
        if names.is_empty() {
            let note = "nothing to stop: everything there is known";
            return Ok(host_answer(name, false, vec![note.to_owned()]));
        }
        let mut changed = false;
        if let Some(host) = self.truth.hosts.change(&host) {
            for name in &names {
                changed |= host.fences.insert(name.clone());
            }
        }
        let words = super::commands::copies(u32::try_from(names.len()).unwrap_or(u32::MAX));
        if changed {
            self.tell_host(
                host,
                "fenced",
                format!(
                    "{} ordered {words} to stop that {} not known here",
                    by.user,
                    if names.len() == 1 { "is" } else { "are" }
                ),
            );
        }
        self.outbox.order(host);
        self.shown.hosts_truth.insert(host);
        let note = match changed {
            true => format!("stopping {words}; the numbers are free once they have ended"),
            false => {
                format!(
                    "nothing to change: {words} told to stop before; `portreeve host {name}` shows what is left"
                )
            }
        };
        Ok(host_answer(name, changed, vec![note]))
    }

    /// The order to stop what an operator fenced and nobody here knows; as far as it is durable.
    pub(super) fn fenced_orders(&self, host: HostId) -> Vec<Desired> {
        let Some(fences) = self.truth.hosts.durable(&host).map(|it| &it.fences) else {
            return Vec::new();
        };
        if fences.is_empty() {
            return Vec::new();
        }
        let unknown = self
            .unknown_on(host)
            .filter(|(name, _)| fences.contains(*name));
        unknown.map(|(name, it)| stop_of(name, it)).collect()
    }

    fn unknown_named(
        &self,
        host: HostId,
        replica: &HostReplica,
    ) -> Result<(ReplicaName, Unknown), Refusal> {
        let is_it = |name: &ReplicaName| {
            (&name.service, name.index) == (&replica.service, replica.index)
                && replica.incarnation.is_none_or(|it| it == name.incarnation)
        };
        let mut found = self.unknown_on(host).filter(|(name, _)| is_it(name));
        let (first, second) = (found.next(), found.next());
        let host_name = self.host_name(host);
        match (first, second) {
            (Some((name, unknown)), None) => Ok((name.clone(), unknown.clone())),
            (Some(_), Some(_)) => Err(self.unfit_host(
                host,
                &format!(
                    "several incarnations of {}/{} run there; `portreeve host {host_name}` lists them, name one",
                    replica.service, replica.index
                ),
            )),
            (None, _) => Err(self.unfit_host(
                host,
                &format!(
                    "no unknown replica {}/{} runs there; `portreeve host {host_name}` lists those that do",
                    replica.service, replica.index
                ),
            )),
        }
    }
}

/// A stop names what is to end; how that would be run says nothing.
pub(super) fn stop_of(name: &ReplicaName, unknown: &Unknown) -> Desired {
    let text = "kind = \"service\"\nname = \"unknown\"\ncommand = [\"true\"]\n";
    let profile = Profile::from_toml(text).expect("it has all that a profile needs");
    Desired {
        service: name.service.clone(),
        service_id: unknown.id.service,
        index: name.index,
        incarnation: name.incarnation,
        want: Want::Stop,
        restart_no: 0,
        grant: unknown.grant.clone().unwrap_or_default(),
        addresses: std::collections::BTreeMap::new(),
        profile: Arc::new(profile.profile),
        user: String::new(),
        uid: 0,
        last_status: None,
        attached: false,
    }
}
