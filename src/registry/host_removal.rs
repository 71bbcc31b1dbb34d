//! Forgetting a host for good: only what is gone, and only once nothing of it counts any more.
//!
//! The record stays with the bare name, so that its number is never another host's and what ended there keeps its
//! place; a host of the name that reports again is a new one.

use std::time::Duration;

use crate::allocator::Removal;
use crate::identity::{HostId, HostName, ServiceId};
use crate::port::PortRanges;
use crate::profile::Replicas;
use crate::time::{Spelled, WallClock};

use super::commands::copies;
use super::host_verbs::host_answer;
use super::machine::Registry;
use super::records::{Phase, Replica};
use super::{Answer, Effect, HostFacts, HostOwner, Input, Refusal};

/// How long a host has to be silent before it can be removed: four leases.
const SILENT_FOR: Duration = Duration::from_secs(20);

/// How long the name of a removed host is kept for what is written of it.
const NAME_KEPT: Duration = Duration::from_secs(90 * 86_400);

/// How many of what holds a host are named.
const NAMED: usize = 5;

impl Registry {
    /// Forgets the host, unless it is there or something of it still counts.
    pub(super) fn remove_host(&mut self, host: HostId) -> Result<Answer, Refusal> {
        let name = self.host_name(host);
        let unfit = |reason: String| Refusal::HostUnfit {
            host: name.clone(),
            reason,
        };
        let silent = self.lives.get(&host).map(|life| life.heard);
        let silent = silent.map_or(SILENT_FOR, |heard| self.now.mono.since(heard));
        if silent < SILENT_FOR && self.lost(host).is_none() {
            return Err(unfit(format!(
                "it was heard of within the last {}: stop its agent, and remove it then",
                Spelled(SILENT_FOR)
            )));
        }
        let held = self.held_by(host);
        if !held.is_empty() {
            let first: Vec<&str> = held.iter().take(NAMED).map(String::as_str).collect();
            let more = match held.len() - first.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            return Err(unfit(format!(
                "{} may still live there: {}{more}; `portreeve host down {name} --fenced` says that nothing of it \
                 runs any more",
                copies(u32::try_from(held.len()).unwrap_or(u32::MAX)),
                first.join(", ")
            )));
        }
        let now = self.now.wall;
        if let Some(record) = self.truth.hosts.change(&host) {
            record.facts = bare(name.clone());
            record.drain = None;
            record.lost = None;
            record.fences.clear();
            record.removed = Some(now);
        }
        let resting: Vec<_> = self.truth.resting.iter().map(|(key, _)| *key).collect();
        for number in resting.iter().filter(|number| number.host == host) {
            self.truth.resting.remove(number);
        }
        self.pools.remove_host(host);
        self.revoke_tokens_of(&name);
        self.drains.note(host, None, self.now);
        self.shrink_to_hosts();
        self.waits.wake();
        self.shown.hosts_truth.insert(host);
        let note = "removed; an agent that reports under this name makes it a new host";
        Ok(host_answer(name, true, vec![note.to_owned()]))
    }

    /// Everything that may still live on a host.
    fn held_by(&self, host: HostId) -> Vec<String> {
        let at = |it: &Replica| matches!(&it.phase, Phase::Placed(at) if at.host == host);
        let placed = self.truth.replicas.iter().filter(|(_, it)| at(it));
        let mut held: Vec<String> = placed
            .filter_map(|(key, _)| {
                let service = self.truth.services.find(&key.0)?;
                Some(format!("{}/{}", service.name, key.1))
            })
            .collect();
        let stranded = self.stranded_on(host);
        held.extend(stranded.map(|(at, it)| {
            let id = at.replica;
            format!("{}/{} incarnation {}", it.name, id.index, id.incarnation)
        }));
        if self.lost(host).is_some_and(|lost| lost.fenced) {
            // Nothing runs there, by the word of an operator.
            return held;
        }
        let unknown = self.unplaced_on(host);
        held.extend(
            unknown.map(|(it, _)| {
                format!("{}/{} incarnation {}", it.service, it.index, it.incarnation)
            }),
        );
        held
    }

    /// A service that runs on each host has one host less.
    fn shrink_to_hosts(&mut self) {
        let services = self.truth.services.iter();
        let too_many: Vec<(ServiceId, u32)> = services
            .filter(|(_, it)| !it.attached && it.profile().replicas == Replicas::PerHost)
            .map(|(id, it)| (*id, it.desired, self.wanted_copies(it.profile())))
            .filter(|(_, desired, wanted)| desired > wanted)
            .map(|(id, _, wanted)| (id, wanted))
            .collect();
        for (id, wanted) in too_many {
            self.resize(id, wanted, "portreeve");
        }
    }

    /// Whether what this host tells has to wait: its removal is not on disk, so that it is neither known nor new.
    pub(super) fn is_being_removed(&self, input: &Input) -> bool {
        let host = match input {
            Input::HostReport(facts) => &facts.host,
            Input::HostShutdown { host } => host,
            // A sign of life or a status of what is not there changes nothing.
            _ => return false,
        };
        let record = |id: &HostId| self.truth.hosts.find(id);
        let record = self.host_names.get(host).and_then(record);
        record.is_some_and(|it| it.removed.is_some())
    }

    /// Forgets what is known of hosts whose removal is durable now. What was wanted of them is wanted no more: an agent
    /// that still runs there is to hear that it is not known.
    pub(super) fn forget_removed(&mut self, out: &mut Vec<Effect>) {
        // Only what this batch changed can have been removed by it.
        let changed = self.shown.hosts_truth.iter();
        let gone: Vec<(HostId, HostName)> = changed
            .filter_map(|id| self.truth.hosts.find(id))
            .filter(|record| record.removed.is_some())
            .map(|record| (record.id, record.name().clone()))
            .collect();
        for (id, name) in gone {
            if self.host_names.get(&name) == Some(&id) {
                self.host_names.remove(&name);
            }
            self.lives.remove(&id);
            self.contacts.forget(id);
            self.spread.forget_host(id);
            self.with_unknown.remove(&id);
            self.shown.stale.end_of(id);
            self.claims.note(id, std::collections::BTreeSet::new());
            self.shown.hosts_seen.remove(&id);
            self.shown.hosts_news.remove(&id);
            self.shown.hosts_truth.remove(&id);
            out.push(Effect::Order { host: name.clone() });
            self.shown.hosts_gone.insert(name);
        }
    }

    /// Drops names of hosts that were removed long ago and that nothing speaks of any more.
    pub(super) fn drop_old_names(&mut self) {
        let last = self.truth.hosts.iter().next_back().map(|(id, _)| *id);
        let now = self.now.wall;
        let is_old = |at: WallClock| now.since(at) >= NAME_KEPT;
        let mut old: std::collections::BTreeSet<HostId> = self
            .truth
            .hosts
            .iter()
            // The last one's number says which comes next.
            .filter(|(id, it)| it.removed.is_some_and(is_old) && Some(**id) != last)
            .map(|(id, _)| *id)
            .collect();
        for (_, replica) in self.truth.replicas.iter() {
            let ended = match &replica.phase {
                Phase::Ended(ended) => ended.host,
                _ => None,
            };
            let former = replica.former.as_ref().map(|former| former.host);
            for host in ended.iter().chain(&former) {
                old.remove(host);
            }
        }
        for id in old {
            self.truth.hosts.note_gone(&id);
        }
    }
}

impl super::pools::Pools {
    /// Forgets a host on which nothing is held.
    fn remove_host(&mut self, host: HostId) {
        self.forget_host(host, Removal::IfEmpty);
    }
}

/// What is kept of a host that is gone.
fn bare(host: HostName) -> HostFacts {
    HostFacts {
        host,
        boot_id: String::new(),
        agent_version: String::new(),
        agent: None,
        seq: None,
        addresses: Vec::new(),
        unusable: Vec::new(),
        published: None,
        address_rule: String::new(),
        dynamic: PortRanges::default(),
        fixed: PortRanges::default(),
        reserved: PortRanges::default(),
        ephemeral: PortRanges::default(),
        foreign: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        capabilities: Vec::new(),
        conditions: Vec::new(),
        owner: HostOwner::default(),
        shutting_down: false,
        replicas: Vec::new(),
        full: false,
    }
}
