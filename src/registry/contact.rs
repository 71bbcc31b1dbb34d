//! The silence of hosts: who was not heard of for a while is suspect, who was not for longer is lost.
//!
//! Silence alone frees no number and ends no replica. A *suspect* host keeps all it has: its endpoints stay listed,
//! said to be unconfirmed, and no revision moves. A *lost* one is given up: its endpoints leave at once, as news,
//! and what becomes of its replicas is decided as truth (`settle`); its numbers stay held (`stranded`).
//!
//! A start of the controller is no silence of hosts: each has its whole grace again, unless it was lost before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::allocator::HostState;
use crate::identity::HostId;
use crate::time::{Monotonic, Spelled, Utc, WallClock};

use super::machine::Registry;
use super::records::{Host, Lost, Phase};

/// When silence counts, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    suspect_after: Duration,
    host_grace: Duration,
    suspects: Suspects,
}

/// What becomes of the endpoints of a suspect host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Suspects {
    /// They stay listed, said to be unconfirmed.
    #[default]
    StayListed,
    /// They leave the lists at once, and come back with the next sign of life.
    AreWithdrawn,
}

impl Silence {
    /// A host is suspect after so long a silence, and lost after `host_grace`.
    ///
    /// # Errors
    ///
    /// [`SilenceError`], unless the first is above zero and below the second.
    pub fn new(
        suspect_after: Duration,
        host_grace: Duration,
        suspects: Suspects,
    ) -> Result<Self, SilenceError> {
        if suspect_after.is_zero() || suspect_after >= host_grace {
            return Err(SilenceError {
                suspect_after,
                host_grace,
            });
        }
        Ok(Self {
            suspect_after,
            host_grace,
            suspects,
        })
    }

    /// After how long a host is suspect.
    #[must_use]
    pub const fn suspect_after(&self) -> Duration {
        self.suspect_after
    }

    /// After how long a host is lost.
    #[must_use]
    pub const fn host_grace(&self) -> Duration {
        self.host_grace
    }

    /// What becomes of the endpoints of a suspect host.
    #[must_use]
    pub const fn suspects(&self) -> Suspects {
        self.suspects
    }
}

/// 20 s and 90 s; suspects stay listed.
impl Default for Silence {
    fn default() -> Self {
        Self {
            suspect_after: Duration::from_secs(20),
            host_grace: Duration::from_secs(90),
            suspects: Suspects::default(),
        }
    }
}

/// Spans of silence that make no sense together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a host cannot be suspect after {} of silence and lost after {}: the first must be above 0s and below the second",
    Spelled(*suspect_after),
    Spelled(*host_grace)
)]
pub struct SilenceError {
    /// After how long it would be suspect.
    pub suspect_after: Duration,
    /// After how long it would be lost.
    pub host_grace: Duration,
}

/// What the newest sign of life says of a host that is not lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Contact {
    /// It was heard of a moment ago.
    #[default]
    Fresh,
    /// It has been silent for a while.
    Suspect,
}

/// Which hosts are looked at when, and whose contact changed.
#[derive(Debug, Default)]
pub(super) struct Contacts {
    /// When each host that is not lost is next looked at. A sign of life moves nothing here: the look finds it.
    due: BTreeSet<(Monotonic, HostId)>,
    /// The same by host: each is looked at once.
    due_of: BTreeMap<HostId, Monotonic>,
    /// Hosts of which readers and decisions do not know yet that their contact changed.
    moved: BTreeSet<HostId>,
    /// Silence before it is forgiven: this controller itself was away then.
    forgiven: Monotonic,
}

/// Hosts that fall silent together, such as all of them behind one switch, are looked at together: what is placed on
/// them is found by one walk over all replicas.
const TICK_MS: u64 = 250;

impl Contacts {
    fn watch(&mut self, host: HostId, due: Monotonic) {
        let tick = due.as_millis().div_ceil(TICK_MS).saturating_mul(TICK_MS);
        let due = Monotonic::from_millis(tick);
        if let Some(before) = self.due_of.insert(host, due) {
            self.due.remove(&(before, host));
        }
        self.due.insert((due, host));
    }

    /// The host's contact is another one.
    pub(super) fn moved(&mut self, host: HostId) {
        self.moved.insert(host);
    }

    /// The host is not known any more; a look at it finds that.
    pub(super) fn forget(&mut self, host: HostId) {
        self.moved.remove(&host);
    }

    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.due.first().map(|(due, _)| *due)
    }
}

impl Registry {
    /// From now on the silence of the host counts.
    pub(super) fn watch_contact(&mut self, id: HostId) {
        let Some((silence, life)) = self.config.silence.zip(self.lives.get_mut(&id)) else {
            return;
        };
        if !std::mem::replace(&mut life.is_watched, true) {
            self.contacts
                .watch(id, life.heard + silence.suspect_after());
        }
    }

    /// A suspect host was heard of: its next silence is noticed as soon as its first.
    pub(super) fn suspect_no_more(&mut self, id: HostId) {
        self.contacts.moved(id);
        let is_watched = self.lives.get(&id).is_some_and(|life| life.is_watched);
        if let Some(silence) = self.config.silence.filter(|_| is_watched) {
            self.contacts
                .watch(id, self.now.mono + silence.suspect_after());
        }
    }

    /// Finds out who has been silent for too long.
    pub(super) fn look_at_contacts(&mut self) {
        let now = self.now.mono;
        let Some(silence) = self.config.silence else {
            return;
        };
        let first = self.contacts.due.first();
        if first.is_some_and(|(due, _)| now.since(*due) >= silence.suspect_after() / 2) {
            // It was halted, or its machine was: signs of life may wait to be taken in.
            self.contacts.forgiven = now;
        }
        while let Some((due, id)) = self.contacts.due.first().copied()
            && due <= now
        {
            self.contacts.due.pop_first();
            self.contacts.due_of.remove(&id);
            // An operator's word about it counts from the moment at which it is on disk.
            let is_lost = self.shown_lost(id).is_some();
            let Some(life) = self.lives.get_mut(&id) else {
                continue;
            };
            let since = life.heard.max(self.contacts.forgiven);
            let silent = now.since(since);
            if is_lost || silent >= silence.host_grace() {
                // A lost host is watched again from its return on.
                life.is_watched = false;
                self.lose(id);
                continue;
            }
            let due = if life.contact == Contact::Suspect || silent >= silence.suspect_after() {
                if life.contact != Contact::Suspect {
                    life.contact = Contact::Suspect;
                    self.contacts.moved(id);
                }
                // Also where all hosts are suspect a halt of this controller is to be noticed.
                (since + silence.host_grace()).min(now + silence.suspect_after() / 2)
            } else {
                since + silence.suspect_after()
            };
            self.contacts.watch(id, due);
        }
    }

    /// Gives the host up. News, so that also a full disk keeps no endpoint of it listed, and none that is still to
    /// write an operator's word about it.
    fn lose(&mut self, id: HostId) {
        if self.shown_lost(id).is_some() {
            return;
        }
        let lost = self.loss(id, None);
        self.truth.hosts.note(&id, |host| {
            host.lost.get_or_insert_with(|| lost.clone());
        });
        let text = format!("given up after its silence: {}", lost.contact());
        self.relay_host(id, "lost", text);
        self.given_up(id);
    }

    /// What to note of a host that is lost as of now.
    pub(super) fn loss(&self, id: HostId, by: Option<String>) -> Lost {
        let life = self.lives.get(&id);
        let is_heard = life.is_some_and(|life| life.is_heard);
        Lost {
            at: self.now.wall,
            last_contact: self.last_contact(id),
            before: !is_heard,
            by,
            fenced: false,
        }
    }

    /// The host is lost: whatever it says counts only after it has told everything.
    pub(super) fn given_up(&mut self, id: HostId) {
        if let Some(life) = self.lives.get_mut(&id) {
            life.reported = false;
        }
        self.shown.stale.end_of(id);
        self.shown.orders.insert(id);
        self.contacts.moved(id);
    }

    /// The host, which was lost, told everything.
    pub(super) fn found_again(&mut self, id: HostId) {
        if let Some(lost) = self.lost(id) {
            let away = self.now.wall.as_unix_millis();
            let away = away.saturating_sub(lost.last_contact.as_unix_millis());
            let away = Spelled(Duration::from_secs(away / 1000));
            let text = format!("it is back after {away} and told everything");
            self.relay_host(id, "back", text);
            self.truth.hosts.note(&id, |host| host.lost = None);
            self.contacts.moved(id);
        }
    }

    /// Has everything that depends on the contact of hosts looked at again, where it changed.
    pub(super) fn follow_contacts(&mut self) {
        if self.contacts.moved.is_empty() {
            return;
        }
        let moved = std::mem::take(&mut self.contacts.moved);
        let mut lost = BTreeSet::new();
        for id in &moved {
            self.pools.set_state(*id, self.pool_state(*id));
            self.shown.hosts_news.insert(*id);
            if self.lost(*id).is_some() {
                lost.insert(*id);
            }
        }
        // A suspect host gives no room to anybody, so nobody is asked again because of it.
        if moved.iter().any(|id| self.takes_grants(*id)) || !lost.is_empty() {
            self.waits.wake();
        }
        for (key, replica) in self.truth.replicas.iter() {
            let Phase::Placed(placement) = &replica.phase else {
                continue;
            };
            if moved.contains(&placement.host) {
                self.shown.news.insert_replica(*key);
                if lost.contains(&placement.host) {
                    self.attention.insert(key.0);
                }
            }
        }
        let moved_away = self.still_shown_on(|host| moved.contains(&host));
        for key in moved_away.copied().collect::<Vec<_>>() {
            self.shown.news.insert_replica(key);
        }
    }

    /// Whether the host is given up, for decisions.
    pub(super) fn lost(&self, id: HostId) -> Option<&Lost> {
        self.truth
            .hosts
            .find(&id)
            .and_then(|host| host.lost.as_ref())
    }

    /// The same for readers: as far as it is on disk or news.
    pub(super) fn shown_lost(&self, id: HostId) -> Option<&Lost> {
        let host: &Host = self.truth.hosts.durable(&id)?;
        host.lost.as_ref()
    }

    /// Since when nothing is known of what runs on the host, if it is suspect.
    pub(super) fn unknown_since(&self, id: HostId) -> Option<WallClock> {
        let life = self.lives.get(&id)?;
        let is_suspect = life.contact == Contact::Suspect && self.shown_lost(id).is_none();
        is_suspect.then(|| self.last_contact(id))
    }

    /// The host's last sign of life; the start of this controller, where it was before that.
    fn last_contact(&self, id: HostId) -> WallClock {
        let heard = self.lives.get(&id).map_or(self.now.mono, |it| it.heard);
        self.now.wall.before(self.now.mono.since(heard))
    }

    /// Whether the host takes something new now.
    pub(super) fn takes_grants(&self, id: HostId) -> bool {
        self.pool_state(id) == HostState::Up
    }

    /// What the pools are to know of the host.
    pub(super) fn pool_state(&self, id: HostId) -> HostState {
        let life = self.lives.get(&id);
        if self.lost(id).is_some() {
            HostState::Lost
        } else if life.is_none_or(|life| !life.reported || life.hides_unknown) {
            HostState::NotReported
        } else if life.is_some_and(|life| life.contact == Contact::Suspect) {
            HostState::Suspect
        } else {
            HostState::Up
        }
    }
}

impl Lost {
    /// `last contact 2026-01-31T10:00:00Z`.
    pub(super) fn contact(&self) -> String {
        let before = if self.before { "before " } else { "" };
        format!("last contact {before}{}", Utc(self.last_contact))
    }

    /// Why what was there is not listed: `host lost, last contact 2026-01-31T10:00:00Z`.
    pub(super) fn reason(&self) -> String {
        match &self.by {
            None => format!("host lost, {}", self.contact()),
            Some(by) => format!("host lost, declared down by {by}; {}", self.contact()),
        }
    }

    /// The same of a host by name.
    pub(super) fn of(&self, host: &impl std::fmt::Display) -> String {
        match &self.by {
            None => format!("host {host} lost, {}", self.contact()),
            Some(by) => format!("host {host} declared down by {by}, {}", self.contact()),
        }
    }
}
