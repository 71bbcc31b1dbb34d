//! Taking up stored records: at a start, and after a batch that never became durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::identity::{HostId, Incarnation};
use crate::time::Now;

use super::LoadError;
use super::heard::Heard;
use super::hosts::HostLife;
use super::machine::Registry;
use super::records::{Meta, Phase, Replica, Service};
use super::spread::Spread;
use super::tables;
use super::truth::MetaKey;

/// How many revisions one durable ceiling allows.
pub(super) const CEILING_STEP: u64 = 1 << 20;

/// Where every number line ends: beyond it, readers that keep numbers as JavaScript does lose some.
const LAST_REVISION: u64 = 1 << 53;

/// How far the clock alone may take the line. A clock that says the year 2208 leaves more numbers than are ever
/// counted.
const LAST_BY_CLOCK: u64 = LAST_REVISION - (1 << 50);

/// By how much another epoch begins above what store and clock say: each start takes the line a second further, so that
/// one that is not known here any more may have run ahead of the clock, and readers without epochs believe only in
/// numbers that rise. An hour of a start each second.
const AHEAD_OF_THE_CLOCK: u64 = 1 << 32;

/// How many incarnations of each replica are left out where an epoch begins on a copy of the store and the clock says
/// nothing: the copy may not know of so many that were given since.
const INCARNATIONS_SKIPPED: u32 = 1000;

/// The last incarnation that the clock alone may lead to, in 2072: one that is set wrong leaves more than are ever
/// given.
const LAST_INCARNATION_BY_CLOCK: u32 = 3 << 30;

impl Registry {
    /// Derives everything that is not stored.
    pub(super) fn take_up(&mut self, epoch: String) -> Result<(), LoadError> {
        self.check()?;
        let known = self.truth.meta.find(&MetaKey);
        let is_used_up = |meta: &Meta| meta.ceiling > LAST_REVISION - 2 * CEILING_STEP;
        let begun = match known {
            None => Some(Meta {
                epoch,
                ceiling: 0,
                next_service: 1,
                rights: 0,
                incarnation_base: 0,
            }),
            Some(meta) if is_used_up(meta) => Some(Meta {
                epoch,
                ceiling: 0,
                ..meta.clone()
            }),
            Some(meta) if self.config.begin_epoch => Some(Meta {
                incarnation_base: first_incarnation(meta.incarnation_base, &epoch, self.now),
                epoch,
                ..meta.clone()
            }),
            Some(_) => None,
        };
        // The first epoch of a store follows none.
        let follows = known.is_some() && begun.is_some();
        if let Some(meta) = begun {
            // As news, so that a refused first batch does not take it back.
            self.truth.meta.note_whole(MetaKey, meta);
        }
        self.shown.revision = first_revision(self.meta().ceiling, self.now);
        if follows {
            self.shown.revision += AHEAD_OF_THE_CLOCK;
        }
        self.shown.last_order = self.shown.revision;
        let rights = self.meta().rights;
        Arc::make_mut(&mut self.shown.view).rights = rights;
        self.take_up_tokens();
        self.drop_old_names();
        for (id, host) in self.truth.known_hosts() {
            self.host_names.insert(host.name().clone(), *id);
            let life = HostLife {
                last_seen: host.reported_at,
                heard_at: Heard::stored(host.reported_at, self.now),
                // A start of ours is no silence of theirs.
                heard: self.now.mono,
                orders: self.shown.last_order,
                ..HostLife::default()
            };
            self.lives.insert(*id, life);
        }
        let hosts: Vec<HostId> = self.lives.keys().copied().collect();
        for host in hosts {
            self.watch_contact(host);
        }
        if follows && self.config.begin_epoch {
            self.skip_incarnations();
        }
        self.take_up_tombstones();
        self.take_up_claims();
        self.take_up_stale();
        self.event_logs.index_all(&self.truth.events);
        self.host_logs.index_all(&self.truth.host_events);
        self.take_up_history();
        self.take_up_retention();
        let rests: Vec<_> = self
            .truth
            .replicas
            .iter()
            .filter_map(|(key, replica)| match &replica.phase {
                Phase::Waiting(waiting) => Some((*key, waiting.rest?)),
                _ => None,
            })
            .collect();
        for (key, rest) in rests {
            self.waits.rest(key, Some(self.now.mono + rest));
        }
        let all: Vec<_> = self.truth.services.iter().map(|(id, _)| *id).collect();
        self.shown.truth.extend(all);
        let hosts: Vec<_> = self.truth.known_hosts().map(|(id, _)| *id).collect();
        self.shown.hosts_truth.extend(hosts);
        self.rebuild();
        Ok(())
    }

    /// Leaves out what was given between the copy that is taken up and now: hosts may run it. As news, like the epoch.
    fn skip_incarnations(&mut self) {
        let (now, epoch) = (self.now, self.meta().epoch.clone());
        let all: Vec<_> = self.truth.services.iter().map(|(id, _)| *id).collect();
        for id in all {
            let given = self.truth.replicas_of(id);
            // One that waits may have got its place since the copy was made.
            let next = given.map(|(index, it)| match it.phase {
                Phase::Waiting(_) => (it.incarnation.0, Some(index)),
                _ => (it.incarnation.0.saturating_add(1), None),
            });
            let next: Vec<(u32, Option<u32>)> = next.collect();
            let lowest = next.iter().map(|(next, _)| *next).min();
            let highest = next.iter().map(|(next, _)| *next).max();
            let floor = self.truth.services.find(&id);
            let floor = floor.map_or(0, |service| service.incarnation_floor);
            let first = first_incarnation(floor.max(highest.unwrap_or(0)), &epoch, now);
            self.truth.services.note(&id, |service| {
                service.incarnation_floor = first;
                service.skip(lowest.unwrap_or(floor), first);
                service.skip_anew(floor, first);
            });
            for index in next.iter().filter_map(|(_, waits)| *waits) {
                let becomes = |it: &mut Replica| it.incarnation = Incarnation(first);
                self.truth.replicas.note(&(id, index), becomes);
            }
        }
        let names: Vec<_> = self
            .truth
            .tombstones
            .iter()
            .map(|(key, _)| key.clone())
            .collect();
        for name in names {
            self.truth.tombstones.note(&name, |it| {
                it.incarnation_floor = first_incarnation(it.incarnation_floor, &epoch, now);
            });
        }
    }

    /// Derives anew what follows from the records, and has everything looked at again.
    pub(super) fn rebuild(&mut self) {
        self.names = self
            .truth
            .services
            .iter()
            .map(|(id, service)| (service.name.clone(), *id))
            .collect();
        self.fill_pools();
        self.spread = Spread::of(&self.truth);
        self.take_up_drains();
        let replicas = &self.truth.replicas;
        self.waits.keep(|key| {
            let replica = replicas.find(key);
            replica.is_some_and(|it| !matches!(it.phase, Phase::Ended(_)))
        });
        self.attention = self.truth.services.iter().map(|(id, _)| *id).collect();
        self.look_at_all_stranded();
        self.tell_what_was_seen();
        self.waits.wake();
    }

    /// The counters, which exist from the first start on.
    pub(super) fn meta(&self) -> &Meta {
        self.truth
            .meta
            .find(&MetaKey)
            .expect("`take_up` adds the counters and nothing removes them")
    }

    /// Whether the ceiling comes near. Half a step is left then, so that a full disk hides no news for long.
    pub(super) fn needs_ceiling(&self) -> bool {
        self.meta().ceiling < self.shown.revision + CEILING_STEP / 2
    }

    /// Has the next batch raise the ceiling, if it comes near.
    pub(super) fn raise_ceiling(&mut self) {
        let ceiling = self.shown.revision + CEILING_STEP;
        if self.needs_ceiling()
            && let Some(meta) = self.truth.meta.change(&MetaKey)
        {
            meta.ceiling = ceiling;
        }
    }

    /// Has the batch say that it changes who may see a service, if it does: its revision is not known yet, but stays
    /// below the ceiling. Without that, a watcher from before a crash would keep what it may not see any more.
    pub(super) fn tell_rights(&mut self) {
        let sees_otherwise = |before: Option<&Service>, now: Option<&Service>| {
            before.zip(now).is_some_and(|(before, now)| {
                before.owner.user != now.owner.user
                    || before.owner.groups != now.owner.groups
                    || before.profile().visibility != now.profile().visibility
            })
        };
        let mut changed = self.truth.services.undurable();
        if changed.any(|(_, before, now)| sees_otherwise(before, now))
            && let Some(meta) = self.truth.meta.change(&MetaKey)
        {
            meta.rights = meta.ceiling;
        }
    }

    /// Refuses records that contradict each other in a way that no later rule could mend.
    fn check(&self) -> Result<(), LoadError> {
        let damaged = |table: &str, key: String, reason: String| LoadError::Damaged {
            table: table.to_owned(),
            key,
            reason,
        };
        for (id, service) in self.truth.services.iter() {
            if !service.profiles.contains_key(&service.generation) {
                let reason = "it has no profile".to_owned();
                return Err(damaged(tables::SERVICES, id.to_string(), reason));
            }
        }
        let mut names = BTreeMap::new();
        for (id, service) in self.truth.services.iter() {
            if let Some(twin) = names.insert(&service.name, id) {
                let reason = format!("it has the name of service {twin}: {}", service.name);
                return Err(damaged(tables::SERVICES, id.to_string(), reason));
            }
        }
        for ((service, index), replica) in self.truth.replicas.iter() {
            let key = format!("{service}/{index}");
            if self.truth.services.find(service).is_none() {
                let reason = "its service is not stored".to_owned();
                return Err(damaged(tables::REPLICAS, key, reason));
            }
            if let Phase::Placed(placement) = &replica.phase
                && self.truth.hosts.find(&placement.host).is_none()
            {
                let reason = format!("its host number {} is not stored", placement.host);
                return Err(damaged(tables::REPLICAS, key, reason));
            }
        }
        for (at, stranded) in self.truth.stranded.iter() {
            if self.truth.hosts.find(&at.host).is_none() {
                let key = format!("{}/{}", stranded.name, at.replica.index);
                let reason = format!("its host number {} is not stored", at.host);
                return Err(damaged(tables::STRANDED, key, reason));
            }
        }
        Ok(())
    }
}

/// Above every revision ever shown, and of the present second where that is higher: so that also after a restore,
/// which sets the ceiling back, numbers go on rising.
fn first_revision(ceiling: u64, now: Now) -> u64 {
    let seconds = now.wall.as_unix_millis() / 1000;
    let by_clock = seconds.checked_mul(1 << 20);
    ceiling.max(by_clock.filter(|it| *it <= LAST_BY_CLOCK).unwrap_or(0))
}

/// Where incarnations go on above those that a copy of the store knows: at the present second. One backup may be
/// restored several times, and what was given after each of these is not known here: no copy of a service is placed
/// once a second for long, so that a later restore begins above all that the one before gave.
///
/// Where the clock is behind what is known, nothing says how often it was restored since: two restores go on at the
/// same number by chance only, as their `epoch` is random.
fn first_incarnation(known: u32, epoch: &str, now: Now) -> u32 {
    let seconds = now.wall.as_unix_millis() / 1000;
    let by_clock = u32::try_from(seconds).ok();
    let by_chance = || {
        let skipped = INCARNATIONS_SKIPPED.saturating_add(spread(epoch));
        known.saturating_add(skipped)
    };
    by_clock
        .filter(|it| *it > known && *it <= LAST_INCARNATION_BY_CLOCK)
        .unwrap_or_else(by_chance)
}

/// A number below 2^20 that is another one for another text (FNV-1a).
fn spread(text: &str) -> u32 {
    let mixed = text.bytes().fold(0x811c_9dc5_u32, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (mixed >> 20) ^ (mixed & 0xf_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Monotonic, WallClock};

    #[test]
    fn incarnations_go_on_at_the_second_of_a_restore_or_above_a_gap_where_the_clock_is_wrong() {
        let first_in = |epoch, known, seconds: u64| {
            let wall = WallClock::from_unix_millis(seconds * 1000);
            let mono = Monotonic::from_millis(0);
            first_incarnation(known, epoch, Now { mono, wall })
        };
        let first = |known, seconds| first_in("e1", known, seconds);
        assert_eq!(first(7, 1_700_000_000), 1_700_000_000);
        assert_eq!(first(1_700_000_020, 1_700_003_600), 1_700_003_600);
        // Behind, the same second, the year 2100, and one that no clock of ours says.
        let gaps = [
            (1_700_003_600, 1_700_000_000),
            (1_700_003_600, 1_700_003_600),
            (7, 4_102_444_800),
            (7, 1 << 40),
        ];
        for (known, seconds) in gaps {
            let (one, other) = (first(known, seconds), first_in("e2", known, seconds));
            assert_ne!(one, other);
            assert!((known + 1_000..known + 1_000 + (1 << 20)).contains(&one));
        }
    }

    #[test]
    fn the_first_revision_is_by_the_clock_as_far_as_that_can_be_true() {
        let at = |ms| Now {
            mono: Monotonic::from_millis(0),
            wall: WallClock::from_unix_millis(ms),
        };
        assert_eq!(first_revision(0, at(0)), 0);
        assert_eq!(first_revision(7, at(1_000)), 1 << 20);
        assert_eq!(first_revision(1 << 40, at(1_000)), 1 << 40);
        // The year 2200, the year 2300, and what a broken clock says.
        assert!(first_revision(7, at(7_258_118_400_000)) > 7);
        assert_eq!(first_revision(7, at(10_413_792_000_000)), 7);
        assert_eq!(first_revision(7, at(u64::MAX)), 7);
    }
}
