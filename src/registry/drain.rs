//! Taking a host out of service: nothing new comes, and its replicas move one by one.
//!
//! A drain is a mark on the host's record; whom it takes next follows from what is, so that a crash or a refused batch
//! between any two steps changes nothing. Of a service one replica is on its way at a time: the next is taken once
//! that one is ready elsewhere. What has nowhere to go stays, and what runs in jobs of another scheduler always does.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocator::HostState;
use crate::identity::{HostId, ServiceId};
use crate::profile::Replicas;
use crate::supervision::State;
use crate::time::{Monotonic, Spelled, WallClock};

use super::drain_plan::Trial;
use super::host_view::{DrainView, StayView};
use super::machine::Registry;
use super::records::{Drain, EndKind, Phase, Replica, StopWhy};
use super::truth::ReplicaKey;

/// What is known of drains beside the records.
#[derive(Debug, Default)]
pub(super) struct Drains {
    /// Something changed that may let a drain take its next step.
    is_due: bool,
    hosts: BTreeSet<HostId>,
    /// When what is left on a host is stopped at once; those that are past are in `overdue`.
    until: BTreeMap<HostId, Monotonic>,
    overdue: BTreeSet<HostId>,
    /// What stays on a host for now, and why.
    stays: BTreeMap<HostId, Stays>,
    /// Who is there by what is on disk.
    shown: BTreeMap<HostId, Left>,
}

/// What stays on a host for now, and why.
pub(super) type Stays = BTreeMap<ReplicaKey, String>;

/// How many replicas a drained host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Those that are to leave.
    pub(super) ours: u32,
    /// Those in jobs of another scheduler.
    pub(super) attached: u32,
}

/// Who is on a host that is drained.
#[derive(Debug, Default)]
struct There {
    /// Not told to leave yet.
    left: Vec<ReplicaKey>,
    leaving: usize,
}

/// How many replicas of one host are stopped at a time, each of another service.
const MOVES_AT_ONCE: usize = 10;

/// How the reason begins of what has no place elsewhere.
pub(super) const NOWHERE: &str = "nowhere to go";

/// How many replicas that stay are named; the others are counted.
pub(super) const STAYS_NAMED: usize = 20;

impl Drains {
    pub(super) const fn wake(&mut self) {
        self.is_due = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.until.values().copied().min()
    }

    /// Notes whose time is up.
    pub(super) fn on_deadline(&mut self, now: Monotonic) {
        let due: Vec<HostId> = self
            .until
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(host, _)| *host)
            .collect();
        for host in due {
            self.until.remove(&host);
            self.overdue.insert(host);
            self.is_due = true;
        }
    }

    /// Takes up the drain of a host, or that it has none.
    pub(super) fn note(&mut self, host: HostId, drain: Option<&Drain>, now: crate::time::Now) {
        self.until.remove(&host);
        self.overdue.remove(&host);
        let Some(drain) = drain else {
            self.hosts.remove(&host);
            self.stays.remove(&host);
            return;
        };
        self.hosts.insert(host);
        match drain.until {
            Some(until) if until <= now.wall => {
                self.overdue.insert(host);
            }
            Some(until) => {
                let left = until.since(now.wall);
                self.until.insert(host, now.mono + left);
            }
            None => {}
        }
        self.is_due = true;
    }
}

impl Registry {
    /// Whether an operator takes the host out of service.
    pub(super) fn is_drained(&self, host: HostId) -> bool {
        self.drains.hosts.contains(&host)
    }

    /// Derives anew which hosts are drained, and until when.
    pub(super) fn take_up_drains(&mut self) {
        let before = std::mem::take(&mut self.drains);
        // What was told of them stands until it is found out anew.
        (self.drains.stays, self.drains.shown) = (before.stays, before.shown);
        for (id, host) in self.truth.known_hosts() {
            if host.drain.is_some() {
                self.drains.note(*id, host.drain.as_ref(), self.now);
            }
        }
        let hosts = &self.drains.hosts;
        self.drains.stays.retain(|host, _| hosts.contains(host));
    }

    /// Ends the move of a service's replica once that is ready elsewhere, or not wanted any more.
    pub(super) fn end_move(&mut self, service: ServiceId) {
        let moving = self.truth.services.find(&service).and_then(|it| it.moving);
        let Some(index) = moving else {
            return;
        };
        let replica = self.truth.replicas.find(&(service, index));
        if replica.is_none_or(has_arrived)
            && let Some(service) = self.truth.services.change(&service)
        {
            service.moving = None;
        }
    }

    /// Takes the next step of every drain.
    pub(super) fn move_drained(&mut self) {
        if !std::mem::take(&mut self.drains.is_due) || self.drains.is_empty() {
            return;
        }
        for (host, there) in self.on_drained_hosts() {
            let by = self
                .truth
                .hosts
                .find(&host)
                .and_then(|it| it.drain.as_ref());
            let Some(by) = by.map(|drain| drain.by.clone()) else {
                continue;
            };
            let mut stays = Stays::new();
            if self.drains.overdue.contains(&host) {
                for key in there.left {
                    self.order_stop(key, StopWhy::Drained, &by);
                }
            } else if self.pool_state(host) == HostState::Up {
                // Of one that is silent nothing is known, and its stops would wait for it.
                stays = self.step(host, &there, &by);
            }
            if self.drains.stays.get(&host).unwrap_or(&Stays::new()) != &stays {
                self.drains.stays.insert(host, stays);
                self.shown.hosts_news.insert(host);
            }
        }
    }

    /// Orders the stops that may come now; gives what stays, and why.
    fn step(&mut self, host: HostId, there: &There, by: &str) -> Stays {
        let mut stays = Stays::new();
        let (mut one_each, mut last): (Vec<ReplicaKey>, Vec<ReplicaKey>) = (Vec::new(), Vec::new());
        // The highest index of a service comes first, as in a roll.
        for key in there.left.iter().rev() {
            match self.keeps(*key) {
                Keeps::Nothing if one_each.last().is_some_and(|it| it.0 == key.0) => {}
                Keeps::Nothing => one_each.push(*key),
                Keeps::OnePerHost => last.push(*key),
                Keeps::For(why) => {
                    stays.insert(*key, why);
                }
            }
        }
        let mut room = MOVES_AT_ONCE.saturating_sub(there.leaving);
        let places = self.with_places(&one_each, Trial::Likely(room));
        let mut named = 0;
        let crowd = self.crowd();
        for key in &one_each {
            if room > 0 && places.found.contains(key) {
                room -= 1;
                self.order_stop(*key, StopWhy::Drained, by);
                if let Some(service) = self.truth.services.change(&key.0) {
                    service.moving = Some(key.1);
                }
            } else if places.nowhere.contains(key) {
                named += 1;
                let why = match named <= STAYS_NAMED {
                    true => self.why_nowhere(*key, &crowd),
                    false => NOWHERE.to_owned(),
                };
                stays.insert(*key, why);
            } else if let Some(before) = self.drains.stays.get(&host).and_then(|it| it.get(key))
                && before.starts_with(NOWHERE)
            {
                // It was not looked at, as enough are on their way: what was found stands.
                stays.insert(*key, before.clone());
            }
        }
        // Who serves the others of a host leaves last.
        if there.leaving == 0 && one_each.is_empty() && stays.is_empty() {
            for key in last {
                self.order_stop(key, StopWhy::Drained, by);
            }
        }
        stays
    }

    /// What keeps a replica on a host that is drained, before its place elsewhere is looked for.
    pub(super) fn keeps(&self, key: ReplicaKey) -> Keeps {
        let Some(service) = self.truth.services.find(&key.0) else {
            return Keeps::Nothing;
        };
        // It would follow with the newest profile.
        let profile = service.profile();
        if profile.replicas == Replicas::PerHost {
            return Keeps::OnePerHost;
        }
        if !profile.rerunnable {
            return Keeps::For(
                "its profile says rerunnable = false: it ends here by itself".into(),
            );
        }
        // Who was moved here and is not ready yet is in nobody's way but its own service's: it is moved on.
        if let Some(index) = service.moving
            && index != key.1
        {
            let moved = self.truth.replicas.find(&(key.0, index));
            let how = moved.map_or("is gone", how_far);
            return Keeps::For(format!(
                "{}/{index} was moved before it and {how}",
                service.name
            ));
        }
        match &service.roll {
            Some(roll) => Keeps::For(format!(
                "the {} by {} is under way",
                roll.kind.word(),
                roll.by
            )),
            None => Keeps::Nothing,
        }
    }

    /// Who is on each host that is drained, jobs of other schedulers apart.
    fn on_drained_hosts(&self) -> BTreeMap<HostId, There> {
        let mut all: BTreeMap<HostId, There> = BTreeMap::new();
        for host in &self.drains.hosts {
            all.entry(*host).or_default();
        }
        for (key, replica) in self.truth.replicas.iter() {
            if let Phase::Placed(placement) = &replica.phase
                && placement.attached.is_none()
                && let Some(there) = all.get_mut(&placement.host)
            {
                let ends = replica.status.as_ref();
                let ends = ends.is_some_and(|it| matches!(it.state, State::Final(_)));
                if placement.stop.is_some() || ends {
                    there.leaving += 1;
                } else {
                    there.left.push(*key);
                }
            }
        }
        all
    }

    /// Who is on one host and is to leave it, by service and index.
    pub(super) fn to_leave(&self, host: HostId) -> Vec<ReplicaKey> {
        let all = self.truth.replicas.iter();
        all.filter(|(_, it)| {
            matches!(&it.phase, Phase::Placed(at) if at.host == host && at.attached.is_none())
        })
        .map(|(key, _)| *key)
        .collect()
    }

    /// Counts who is on each drained host. Call it when everything is durable.
    pub(super) fn count_drained(&mut self) {
        if self.drains.is_empty() && self.drains.shown.is_empty() {
            return;
        }
        let mut left: BTreeMap<HostId, Left> = BTreeMap::new();
        for host in &self.drains.hosts {
            left.entry(*host).or_default();
        }
        for (_, replica) in self.truth.replicas.iter() {
            if let Phase::Placed(placement) = &replica.phase
                && let Some(left) = left.get_mut(&placement.host)
            {
                match placement.attached {
                    Some(_) => left.attached += 1,
                    None => left.ours += 1,
                }
            }
        }
        let before = std::mem::replace(&mut self.drains.shown, left);
        for host in before.keys().chain(self.drains.shown.keys()) {
            if before.get(host) != self.drains.shown.get(host) {
                self.shown.hosts_truth.insert(*host);
            }
        }
    }

    /// How many replicas a drained host has, as readers know it.
    pub(super) fn left_on(&self, host: HostId) -> Left {
        self.drains.shown.get(&host).copied().unwrap_or_default()
    }

    /// The drain of a host as readers know it.
    pub(super) fn drain_view(&self, host: HostId) -> Option<DrainView> {
        let drain = self.truth.hosts.durable(&host)?.drain.as_ref()?;
        let left = self.left_on(host);
        let stays = self.drains.stays.get(&host);
        let mut named: Vec<StayView> = stays
            .into_iter()
            .flatten()
            .filter_map(|((service, index), why)| {
                Some(StayView {
                    service: self.truth.services.durable(service)?.name.clone(),
                    replica: *index,
                    why: why.clone(),
                })
            })
            .collect();
        let all = named.len();
        named.truncate(STAYS_NAMED);
        Some(DrainView {
            by: drain.by.clone(),
            since: drain.since,
            until: drain.until,
            replicas: drain.replicas,
            left: left.ours,
            attached: left.attached,
            stays_more: u32::try_from(all - named.len()).unwrap_or(u32::MAX),
            stays: named,
        })
    }
}

/// What keeps a replica on a host that is drained.
pub(super) enum Keeps {
    /// It may go.
    Nothing,
    /// Its service runs one on each host: it ends last, and comes back with the host.
    OnePerHost,
    /// This.
    For(String),
}

/// Whether a moved replica serves again, or never will because nobody wants it to.
fn has_arrived(replica: &Replica) -> bool {
    match &replica.phase {
        Phase::Placed(placement) => {
            let status = replica.status.as_ref();
            placement.stop.is_none() && status.is_some_and(|it| it.ready && it.state == State::Up)
        }
        Phase::Ended(ended) => match ended.how {
            EndKind::Done | EndKind::Killed | EndKind::Stopped => true,
            // The others stay where they serve: whatever ended it may be waiting for them too.
            EndKind::Completed
            | EndKind::Failed
            | EndKind::GaveUp
            | EndKind::HostRebooted
            | EndKind::HostLost
            | EndKind::LeftHost
            | EndKind::PortConflict
            | EndKind::HostDrained
            | EndKind::HostShutdown => false,
        },
        Phase::Waiting(_) => false,
    }
}

/// How far a replica is that was moved and has not arrived.
fn how_far(replica: &Replica) -> &'static str {
    match &replica.phase {
        Phase::Placed(placement) if placement.stop.is_some() => "is stopping",
        Phase::Placed(_) => "is not ready elsewhere yet",
        Phase::Waiting(_) => "waits for a place",
        Phase::Ended(_) => "ended",
    }
}

/// When what is left is stopped, in words.
pub(super) fn spelled_deadline(until: WallClock, now: WallClock) -> String {
    match until.since(now) {
        left if left.is_zero() => "its deadline is over".to_owned(),
        left => format!(
            "what is left in {} is stopped then",
            Spelled(super::survey::whole_seconds(left))
        ),
    }
}
