//! Services, replicas and hosts in the words that people read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::allocator::Conflict;
use crate::endpoints::EndpointState;
use crate::identity::{HostId, HostName, ReplicaId, Run};
use crate::supervision::State;
use crate::time::Spelled;

use super::commands::{copies, runs};
use super::heard::HeardOf;
use super::look::RUNNING;
use super::machine::Registry;
use super::records::{EndKind, Lost, Phase, Replica, Service, WaitCause, Waiting, Wish};
use super::truth::ReplicaKey;
use super::unknown::{UNKNOWN_KEPT, UNKNOWN_NAMED};
use super::view::{LastKnown, Waits};
use super::{HostView, ReplicaView, ServiceView};

/// A clock that is further off is warned of.
const SKEW_WARNED: Duration = Duration::from_secs(2);

impl Registry {
    /// The service but for what is under way.
    pub(super) fn service_view(
        &self,
        service: &Service,
        replicas: &[(u32, &Replica)],
    ) -> ServiceView {
        let all_ended = !replicas.is_empty()
            && replicas
                .iter()
                .all(|(_, it)| matches!(it.phase, Phase::Ended(_)));
        let state = match service.wish {
            Wish::Stopped => "stopped",
            Wish::Running if all_ended => "ended",
            Wish::Running => "running",
        };
        let newest = replicas.iter().map(|(_, it)| it.since).max();
        let changed = if self.shown.is_shown(service.id) {
            self.now.wall
        } else {
            // Shown for the first time since this start: what the records say.
            newest.unwrap_or_default().max(service.submitted)
        };
        let one = |(index, replica): &(u32, &Replica)| self.replica_view(service, *index, replica);
        let shown: Vec<ReplicaView> = replicas.iter().map(one).collect();
        let ready = shown.iter().filter(|it| it.ready).count();
        let view = ServiceView {
            service: service.name.clone(),
            owner: service.owner.user.clone(),
            owner_groups: service.owner.groups.as_slice().into(),
            state: state.to_owned(),
            desired: service.desired,
            ready: u32::try_from(ready).unwrap_or(u32::MAX),
            under_way: None,
            waits_for: None,
            submitted: service.submitted,
            changed,
            revision: 0,
            replicas: shown.into(),
            profile: Arc::clone(service.profile()),
            attached: service.attached,
            id: service.id,
            heard: self.heard_of(replicas),
            definition: self.definition(service),
        };
        view.told_as_found(&service.owner.as_reader())
    }

    /// When the hosts of these replicas were last heard of.
    fn heard_of(&self, replicas: &[(u32, &Replica)]) -> HeardOf {
        let hosts = replicas.iter().filter_map(|(_, it)| match &it.phase {
            Phase::Placed(placement) => Some(placement.host),
            _ => None,
        });
        let hosts: BTreeSet<HostId> = hosts.collect();
        let lives = hosts.iter().filter_map(|host| self.lives.get(host));
        lives.map(|life| life.heard_at.clone()).collect()
    }

    pub(super) fn replica_view(
        &self,
        service: &Service,
        index: u32,
        replica: &Replica,
    ) -> ReplicaView {
        let key = (service.id, index);
        let profile = service.profile_of(replica.generation);
        let status = replica.status.as_ref();
        let failure = status
            .and_then(|status| status.last_failure.clone())
            .or_else(|| replica.failure_earlier.clone());
        let restarts = status.map_or(0, |status| status.restarts);
        let mut view = ReplicaView {
            replica: key.1,
            incarnation: replica.incarnation,
            job_state: String::new(),
            state: String::new(),
            ready: false,
            unknown_since: None,
            reason: None,
            reasons: Vec::new(),
            reason_sums: None,
            restarts,
            restarts_total: replica.restarts_earlier.saturating_add(restarts),
            user_restarts: status.map_or(0, |status| status.user_restarts),
            last_failure: failure.as_ref().map(|failure| failure.reason.to_string()),
            last_failure_detail: failure,
            first_failure_detail: status.and_then(|status| status.first_failure.clone()),
            run: status.map_or(Run::default(), |status| status.run),
            host: None,
            address: None,
            addresses: BTreeMap::new(),
            ports: BTreeMap::new(),
            pid: None,
            since: replica.since,
            attached: false,
            job: None,
            waits: None,
            known: None,
        };
        view.attached = self.is_attached(key.0);
        match &replica.phase {
            Phase::Waiting(waiting) => self.fill_waiting(&mut view, key, waiting),
            Phase::Placed(placement) => {
                let (condition, reason) = self.condition(profile, replica, placement);
                let host = self.truth.hosts.find(&placement.host);
                view.job_state = RUNNING.to_owned();
                view.state = running(replica, placement.stop.is_some(), condition.is_listed());
                view.ready = condition.is_listed();
                view.reason = reason;
                view.host = host.map(|host| host.name().clone());
                view.address = self.published(placement.host);
                view.addresses = self.own_addresses(placement.host, profile);
                view.ports = placement
                    .grant
                    .ports
                    .iter()
                    .map(|port| (port.name.to_string(), port.numbers))
                    .collect();
                view.pid = status.and_then(|status| status.pid);
                view.job = placement.attached.as_ref().and_then(|it| it.job.clone());
                self.tell_silence(&mut view, placement.host, condition);
            }
            Phase::Ended(ended) => {
                view.job_state = match ended.how {
                    EndKind::Done => "DONE",
                    _ => "EXIT",
                }
                .to_owned();
                view.state = ended.how.state().to_owned();
                view.reason = Some(ended.reason.clone());
                view.host = ended.host.map(|host| self.host_name(host));
            }
        }
        view
    }

    /// Says so where nothing is known of how the replica is now.
    fn tell_silence(&self, view: &mut ReplicaView, host: HostId, condition: EndpointState) {
        if self.shown_lost(host).is_some() {
            "host lost".clone_into(&mut view.state);
        }
        let Some(since) = self.unknown_since(host) else {
            return;
        };
        // What is said of a listed one is that its host is silent; that is no last known reason.
        let told = view.reason.take();
        view.known = Some(LastKnown {
            state: std::mem::replace(&mut view.state, "unknown".to_owned()),
            reason: told.filter(|_| condition != EndpointState::Unconfirmed),
        });
        view.unknown_since = Some(since);
        view.reason = Some(self.silent(host, since));
    }

    fn fill_waiting(&self, view: &mut ReplicaView, key: ReplicaKey, waiting: &Waiting) {
        let cause = match &waiting.cause {
            WaitCause::Asked => None,
            WaitCause::Conflict(why) | WaitCause::GaveUp(why) | WaitCause::Moved(why) => {
                Some(why.clone())
            }
            WaitCause::Rebooted => Some("its host rebooted".to_owned()),
            WaitCause::HostLost(why) => Some(why.clone()),
            WaitCause::Left(why) => Some(format!("it was stopped: {why}")),
        };
        let left = self.waits.rest_left(key, self.now.mono);
        view.job_state = "PEND".to_owned();
        view.state = match (&waiting.cause, left) {
            (WaitCause::Conflict(_), _) => "port conflict",
            (_, Some(_)) => "resting",
            (_, None) => "pending",
        }
        .to_owned();
        // Told in words together with the others of its service.
        view.waits = self.waits.reasons.get(&key).map(|reason| Waits {
            reason: reason.clone(),
            after: cause.clone(),
        });
        view.reason = cause.map(|cause| match waiting.rest {
            Some(rest) => format!("{cause}; rests {}", Spelled(rest)),
            None => cause,
        });
    }

    pub(super) fn host_view(&self, id: HostId) -> Option<HostView> {
        let host = self.truth.hosts.find(&id)?;
        if self.truth.hosts.durable(&id)?.removed.is_some() {
            return None;
        }
        let life = self.lives.get(&id);
        let facts = &host.facts;
        Some(HostView {
            host: host.name().clone(),
            state: self.host_state(id).to_owned(),
            owner: facts.owner,
            address: self.published(id),
            address_rule: facts.address_rule.clone(),
            networks: self.network_views(id),
            addresses: facts.addresses.clone(),
            unusable: facts.unusable.clone(),
            agent: facts.agent.clone(),
            agent_version: facts.agent_version.clone(),
            clock_skew_ms: life.and_then(|life| life.skew_ms),
            boot_id: facts.boot_id.clone(),
            last_seen: life.map_or(host.reported_at, |life| life.last_seen),
            since: match self.shown_lost(id) {
                Some(lost) => Some(lost.at),
                None => self.unknown_since(id).filter(|_| self.has_reported(id)),
            },
            dynamic: facts.dynamic.clone(),
            counts: self.port_counts(id, &self.port_views(id)),
            drain: self.drain_view(id),
            warnings: self.warnings(id),
            capabilities: facts.capabilities.clone(),
            labels: facts.labels.clone(),
        })
    }

    /// The state of a host as people read it.
    pub(super) fn host_state(&self, id: HostId) -> &'static str {
        let durable = self.truth.hosts.durable(&id);
        let is_drained = durable.is_some_and(|host| host.drain.is_some());
        if self.shown_lost(id).is_some() {
            "lost"
        } else if self.shuts_down(id) {
            "shutting down"
        } else if !self.has_reported(id) {
            "not reported"
        } else if self.unknown_since(id).is_some() {
            "suspect"
        } else if is_drained && self.left_on(id).ours > 0 {
            "draining"
        } else if is_drained {
            "drained"
        } else {
            "up"
        }
    }

    /// What is odd about a host.
    fn warnings(&self, id: HostId) -> Vec<String> {
        let Some(host) = self.truth.hosts.find(&id) else {
            return Vec::new();
        };
        let mut warnings = host.facts.conditions.clone();
        if let Some(lost) = self.shown_lost(id) {
            warnings.push(given_up(host.name(), lost));
        }
        let overlap = host.facts.dynamic.intersection(&host.facts.ephemeral);
        if !overlap.is_empty() {
            warnings.push(format!(
                "the pool {} overlaps the kernel's ephemeral range {} at {overlap}: \
                 `sysctl -w net.ipv4.ip_local_reserved_ports={overlap}` keeps the kernel off",
                host.facts.dynamic, host.facts.ephemeral
            ));
        }
        warnings.extend(self.lives.get(&id).and_then(|life| skewed(life.skew_ms?)));
        let doubles = self.lives.get(&id).map(|life| &life.doubles);
        for (address, other) in doubles.into_iter().flatten() {
            let other = self.host_name(*other);
            warnings.push(if host.facts.published == Some(*address) {
                format!(
                    "{address} is published as the address of {other} already, so nothing of this host is listed; \
                     name one that is its own with `agent --address`"
                )
            } else {
                format!(
                    "{address} is published as an address of {other} already, so this host has none in that network"
                )
            });
        }
        for conflict in &self.conflicts {
            if let Conflict::Shared {
                host,
                numbers,
                protocol,
                first,
                second,
            } = conflict
                && *host == id
            {
                warnings.push(format!(
                    "{numbers}/{protocol} is recorded for {} and {}; both keep it until both end",
                    self.replica_name(*first),
                    self.replica_name(*second)
                ));
            }
        }
        let fences = self.truth.hosts.durable(&id).map(|host| &host.fences);
        for (key, unknown) in self.unknown_on(id).take(UNKNOWN_NAMED) {
            let held = match &unknown.grant {
                Some(grant) if !grant.ports.is_empty() => {
                    format!(", with {},", super::stranded::spelled(grant))
                }
                _ => String::new(),
            };
            let is_fenced = fences.is_some_and(|fences| fences.contains(key));
            let what = if is_fenced {
                "it is ordered to stop".to_owned()
            } else {
                let named = format!("{} {}/{}", host.name(), key.service, key.index);
                format!(
                    "it is left alone (`portreeve host adopt {named}` takes it in, `portreeve host fence {named}` \
                     stops it)"
                )
            };
            warnings.push(format!(
                "{} replica {} incarnation {} runs here{held} and is not known to this controller; {what}",
                key.service, key.index, key.incarnation
            ));
        }
        let more = self.unknown_on(id).count().saturating_sub(UNKNOWN_NAMED);
        if self.lives.get(&id).is_some_and(|life| life.hides_unknown) {
            warnings.push(format!(
                "more than {UNKNOWN_KEPT} replicas run here that are not known to this controller; it takes nothing new until \
                 it tells of fewer (`portreeve host fence {} --all` stops those that are remembered)",
                self.host_name(id)
            ));
        } else if more > 0 {
            warnings.push(format!(
                "{more} more replicas run here and are not known to this controller"
            ));
        }
        warnings
    }

    fn replica_name(&self, replica: ReplicaId) -> String {
        let mut hosts = self.lives.keys();
        if let Some((name, _)) = hosts.find_map(|host| self.unknown_by(*host, replica)) {
            return format!(
                "{} replica {}, which is not known here",
                name.service, name.index
            );
        }
        match self.truth.services.find(&replica.service) {
            Some(service) => format!("{} replica {}", service.name, replica.index),
            None => format!("service {} replica {}", replica.service, replica.index),
        }
    }
}

/// What to say of a lost host.
fn given_up(host: &HostName, lost: &Lost) -> String {
    let why = match &lost.by {
        None => "given up after its silence".to_owned(),
        Some(by) => format!("declared down by {by}"),
    };
    let numbers = if lost.fenced {
        "its numbers are free".to_owned()
    } else {
        format!(
            "its numbers stay held until it reports, is booted, or `portreeve host down {host} --fenced` says that \
             nothing runs there any more"
        )
    };
    format!("{why} ({}): {numbers}", lost.contact())
}

/// What to say of a clock that is so many milliseconds ahead.
fn skewed(skew_ms: i64) -> Option<String> {
    let ahead = if skew_ms > 0 { "ahead of" } else { "behind" };
    let off = Duration::from_millis(skew_ms.unsigned_abs());
    (off > SKEW_WARNED).then(|| {
        format!(
            "its clock is {:.1} s {ahead} the controller's: times in its logs and records are off, and tokens may \
             end early or late; keep both by NTP (`chronyc tracking`, `timedatectl`)",
            off.as_secs_f64()
        )
    })
}

/// The roll that is not through, or so many restarts that the hosts have not acted on yet.
pub(super) fn under_way(service: &Service, restarting: usize) -> Option<String> {
    if let Some(roll) = &service.roll {
        let left = copies(roll.left());
        return Some(format!("{} by {}, {left} to go", roll.kind.word(), roll.by));
    }
    let told = u32::try_from(restarting).unwrap_or(u32::MAX);
    (told > 0).then(|| format!("restart of {}", copies(told)))
}

/// Whether an ordered restart is one that its host has not acted on yet.
pub(super) fn is_told_to_restart(replica: &Replica) -> bool {
    let acted = replica.status.as_ref().map(|status| status.restart_no);
    runs(replica) && acted.is_some_and(|acted| acted < replica.restart_no)
}

/// The detail of a placed replica.
fn running(replica: &Replica, is_stopping: bool, is_ready: bool) -> String {
    let state = replica.status.as_ref().map(|status| &status.state);
    match state {
        Some(State::Stuck) => "stuck",
        _ if is_stopping => "stopping",
        None | Some(State::Idle | State::Starting | State::Startup) => "starting",
        Some(State::Up) if is_ready => "ready",
        Some(State::Up) => "not ready",
        Some(State::Stopping | State::Reaping | State::Final(_)) => "stopping",
        Some(State::Backoff) => "backoff",
    }
    .to_owned()
}

impl EndKind {
    /// The detail of an ended replica.
    const fn state(self) -> &'static str {
        match self {
            Self::Done | Self::Completed => "completed",
            Self::Failed => "failed",
            Self::GaveUp => "gave up",
            Self::Stopped => "stopped",
            Self::Killed => "killed",
            Self::HostRebooted => "host rebooted",
            Self::HostLost => "host lost",
            Self::LeftHost => "stopped by its host",
            Self::PortConflict => "port conflict",
            Self::HostDrained => "host drained",
            Self::HostShutdown => "host shut down",
        }
    }
}
