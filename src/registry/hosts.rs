//! Hosts as they report themselves: facts, addresses, ranges, strangers; and what is known since this start.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::identity::{HostId, HostName, NetworkName, Run};
use crate::residency::ReplicaName;
use crate::supervision::Status;
use crate::time::{Monotonic, Now, WallClock};

use super::contact::Contact;
use super::heard::Heard;
use super::machine::Registry;
use super::records::Host;
use super::truth::TenureKey;
use super::unknown::Unknown;
use super::{Desired, HostFacts, HostOwner, ReplicaReport};

/// What is known of a host since this start; never stored.
#[derive(Debug, Default)]
pub(super) struct HostLife {
    /// Whether it told everything since this start. Before, it takes no new grant.
    pub(super) reported: bool,
    /// Its last sign of life.
    pub(super) last_seen: WallClock,
    /// The same for decisions.
    pub(super) heard: Monotonic,
    /// The same for readers.
    pub(super) heard_at: Heard,
    /// Its address in each network in which it has one.
    pub(super) networks: BTreeMap<NetworkName, IpAddr>,
    /// Of the addresses it claims, those at which another machine is published, with that.
    pub(super) doubles: BTreeMap<IpAddr, HostId>,
    /// How far its clock is ahead of ours, in milliseconds, as it last measured; within [`SKEW_STEP_MS`].
    pub(super) skew_ms: Option<i64>,
    /// The number of its wanted set.
    pub(super) orders: u64,
    /// What lives there and is not wanted any more.
    pub(super) leftovers: BTreeMap<ReplicaName, Leftover>,
    /// What lives there and nobody here knows.
    pub(super) unknown: BTreeMap<ReplicaName, Unknown>,
    /// Whether there are more of them than are remembered, since its newest full report.
    pub(super) hides_unknown: bool,
    /// What its silence means so far.
    pub(super) contact: Contact,
    /// Whether it was heard of since this start.
    pub(super) is_heard: bool,
    /// Whether its silence counts.
    pub(super) is_watched: bool,
    /// The number of its newest report, of the boot that it is in.
    pub(super) newest_report: Option<u64>,
    /// Of what is stranded there, what it told since its newest full report.
    pub(super) seen: BTreeMap<TenureKey, Status>,
}

impl HostLife {
    /// Notes a sign of life. True: it was suspect.
    fn hear(&mut self, now: Now) -> bool {
        (self.last_seen, self.heard) = (now.wall, now.mono);
        self.is_heard = true;
        self.heard_at.note(now.mono);
        std::mem::take(&mut self.contact) == Contact::Suspect
    }
}

/// What a host's report tells beside the one before, for its log.
fn told_by(old: Option<&HostFacts>, new: &HostFacts) -> Vec<(&'static str, String)> {
    let at = |facts: &HostFacts| match facts.published {
        Some(address) => address.to_string(),
        None => "no address".to_owned(),
    };
    let Some(old) = old else {
        let text = format!(
            "joined with {}, ports {}, agent {}",
            at(new),
            new.dynamic,
            new.agent_version
        );
        return vec![("joined", text)];
    };
    let mut told = Vec::new();
    if old.boot_id != new.boot_id {
        told.push((
            "rebooted",
            "booted anew: everything that ran there ended".to_owned(),
        ));
    }
    if old.published != new.published {
        let text = format!("published at {} in place of {}", at(new), at(old));
        told.push(("address", text));
    }
    if (&old.dynamic, &old.fixed) != (&new.dynamic, &new.fixed) {
        let text = format!(
            "offers {} and fixed {} in place of {} and fixed {}",
            new.dynamic, new.fixed, old.dynamic, old.fixed
        );
        told.push(("ports", text));
    }
    if old.owner != new.owner {
        let text = match new.owner {
            HostOwner::Controller => "this controller gives its ports",
            HostOwner::Plugin => {
                "another scheduler's plugin gives its ports: nothing new comes here"
            }
        };
        told.push(("owner", text.to_owned()));
    }
    if old.agent_version != new.agent_version {
        let text = format!(
            "agent {} in place of {}",
            new.agent_version, old.agent_version
        );
        told.push(("agent", text));
    }
    told
}

/// What a host shall stop or forget.
#[derive(Debug)]
pub(super) struct Leftover {
    /// The number `(run, seq)` of its end, if that is known here: what was told before may arrive after.
    pub(super) ended: Option<(Run, u64)>,
    /// When it was found, or last told by the host.
    pub(super) at: Monotonic,
    /// The order, but for what is wanted.
    pub(super) desired: Desired,
}

/// How long a host that gives signs of life is told to forget what ended there. It asks every 30 s, and
/// one that comes back tells everything first, so that this begins anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// A skew that differs less from the one shown is no news: each lease measures it a little differently.
const SKEW_STEP_MS: u64 = 500;

impl Registry {
    /// Takes in a host's sign of life.
    pub(super) fn lease(&mut self, host: &HostName, skew_ms: Option<i64>) {
        let id = self.host_names.get(host);
        if let Some((id, life)) = id.and_then(|id| Some((*id, self.lives.get_mut(id)?))) {
            let was_suspect = life.hear(self.now);
            if let Some(skew) = skew_ms
                && life
                    .skew_ms
                    .is_none_or(|shown| shown.abs_diff(skew) >= SKEW_STEP_MS)
            {
                life.skew_ms = Some(skew);
            }
            let now = self.now.mono;
            life.leftovers
                .retain(|_, it| it.ended.is_none() || now.since(it.at) < FORGOTTEN_AFTER);
            let is_double = !life.doubles.is_empty();
            self.shown.hosts_seen.insert(id);
            if was_suspect {
                self.suspect_no_more(id);
            }
            if is_double {
                self.settle_address(id);
            }
        }
    }

    /// Whether a newer report of the same boot was taken, or this one was already: its agent has given it up, or sent it
    /// twice. It tells how things were, and what began since would seem to be gone.
    fn is_overtaken(&self, id: HostId, facts: &HostFacts) -> bool {
        let known = self.truth.hosts.find(&id);
        let is_same_boot = known.is_some_and(|known| known.facts.boot_id == facts.boot_id);
        let newest = self.lives.get(&id).and_then(|life| life.newest_report);
        is_same_boot
            && newest
                .zip(facts.seq)
                .is_some_and(|(newest, it)| it <= newest)
    }

    /// Takes in what a host says about itself and its replicas.
    pub(super) fn host_report(&mut self, mut facts: HostFacts) {
        let replicas = std::mem::take(&mut facts.replicas);
        let full = std::mem::replace(&mut facts.full, false);
        let id = self.host_id(&facts.host);
        if self.is_overtaken(id, &facts) {
            return;
        }
        // It is of the report, not of the host.
        let seq = facts.seq.take();
        self.keep_shutdown(id, &mut facts, full);
        if self
            .truth
            .hosts
            .find(&id)
            .is_none_or(|host| host.facts != facts)
        {
            self.new_facts(id, facts);
        }
        let life = self.lives.entry(id).or_default();
        life.newest_report = seq;
        if life.hear(self.now) {
            self.suspect_no_more(id);
        }
        self.shown.hosts_seen.insert(id);
        if full {
            self.found_again(id);
            self.look_at_stranded_of(id);
            let seen = self.seen_of_taken_back(id, &replicas);
            let life = self.lives.entry(id).or_default();
            life.seen = seen;
            let told: BTreeSet<ReplicaName> = replicas.iter().map(ReplicaReport::name).collect();
            let before = life.leftovers.len();
            // What a full report leaves out is forgotten there.
            life.leftovers.retain(|key, _| told.contains(key));
            if before != life.leftovers.len() || !life.reported {
                self.shown.hosts_news.insert(id);
                self.shown.orders.insert(id);
            }
            let hid_unknown = std::mem::take(&mut life.hides_unknown);
            let is_first = !std::mem::replace(&mut life.reported, true);
            if is_first || hid_unknown {
                self.pools.set_state(id, self.pool_state(id));
                self.shown.stale.end_of(id);
                self.waits.wake();
            }
            if is_first {
                self.forget_what_is_gone(id, &told);
            }
            self.keep_unknown(id, |name| told.contains(name));
            self.forget_fences(id, |name| told.contains(name));
        }
        self.watch_contact(id);
        self.settle_address(id);
        for mut report in replicas {
            report.host = self.host_name(id);
            self.status_on(id, report);
        }
    }

    /// Keeps the new facts and tells everybody whom they concern.
    fn new_facts(&mut self, id: HostId, facts: HostFacts) {
        self.pools.put_host(id, &facts);
        self.spread.put_host(id, &facts.host);
        // Another boot ends what is stranded here.
        self.look_at_stranded_of(id);
        let old = self.truth.hosts.find(&id).map(|host| host.facts.clone());
        if old.as_ref().is_some_and(|old| old.boot_id != facts.boot_id) {
            // What its agent finds now still says that what ended with the old boot is to run.
            self.shown.orders.insert(id);
        }
        let moved = old.as_ref().is_some_and(|old| {
            old.published != facts.published
                || old.boot_id != facts.boot_id
                || old.shutting_down != facts.shutting_down
        });
        let moved = self.claim_addresses(id, &facts) || moved;
        let told = told_by(old.as_ref(), &facts);
        let reported_at = self.now.wall;
        if old.is_some() {
            // What was decided about the host is no news of its own.
            self.truth.hosts.note(&id, |host| {
                (host.facts, host.reported_at) = (facts.clone(), reported_at);
            });
        } else {
            let host = Host {
                id,
                facts,
                reported_at,
                lost: None,
                fences: BTreeSet::new(),
                drain: None,
                removed: None,
            };
            self.truth.hosts.note_whole(id, host);
        }
        for (kind, text) in told {
            self.relay_host(id, kind, text);
        }
        self.shown.hosts_news.insert(id);
        // Room, a number or a label may be what somebody waits for.
        self.waits.wake();
        if moved {
            self.address_moved(id);
        }
    }

    /// The number of the host of this name; a new one for a new name.
    fn host_id(&mut self, name: &HostName) -> HostId {
        if let Some(id) = self.host_names.get(name) {
            return *id;
        }
        let last = self.truth.hosts.iter().next_back();
        let id = HostId(last.map_or(0, |(id, _)| id.0 + 1));
        self.host_names.insert(name.clone(), id);
        id
    }

    /// The name of a host that reported once.
    pub(super) fn host_name(&self, id: HostId) -> HostName {
        self.truth
            .hosts
            .find(&id)
            .map(|host| host.name().clone())
            .expect(
                "the name of a host is kept as long as a record speaks of it; `load` refuses records that name others",
            )
    }

    /// Whether the host told everything since this start.
    pub(super) fn has_reported(&self, id: HostId) -> bool {
        self.lives.get(&id).is_some_and(|life| life.reported)
    }
}
