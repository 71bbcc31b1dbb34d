//! Deleted services: so that a name never repeats an incarnation, and that a watcher hears that one is gone, also
//! after a restart.

use crate::identity::ServiceName;

use super::machine::Registry;
use super::records::Tombstone;
use super::truth::TombstoneKey;

/// The most deleted services that are remembered; the earliest go first.
const TOMBSTONES_KEPT: usize = 10_000;

/// Services that were deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Of what was deleted up to this revision, some may be forgotten.
    pub complete_after: u64,
    /// Each with the revision at which readers lost it, ascending. Where a crash left that unknown, one that is
    /// not below it.
    pub services: Vec<(u64, ServiceName)>,
}

impl Registry {
    /// The deleted services, of which some may be known again, as others: what an endpoint table begins with.
    #[must_use]
    pub fn removed(&self) -> Removed {
        let all = self.truth.tombstones.iter();
        let mut services: Vec<(u64, ServiceName)> = all
            .filter_map(|(TombstoneKey(name), it)| Some((it.revision?, name.clone())))
            .collect();
        services.sort();
        let earliest = self
            .truth
            .tombstones
            .iter()
            .filter_map(|(_, it)| it.revision);
        let is_full = self.truth.tombstones.len() >= TOMBSTONES_KEPT;
        Removed {
            complete_after: earliest.min().filter(|_| is_full).unwrap_or(0),
            services,
        }
    }

    /// Remembers the name of a service that is deleted.
    pub(super) fn bury(&mut self, name: &ServiceName, incarnation_floor: u32) {
        if self.truth.tombstones.len() >= TOMBSTONES_KEPT {
            let all = self.truth.tombstones.iter();
            let age = |it: &Tombstone| (it.revision.unwrap_or(u64::MAX), it.removed);
            let earliest = all.min_by_key(|(_, it)| age(it));
            if let Some(earliest) = earliest.map(|(key, _)| key.clone()) {
                self.truth.tombstones.remove(&earliest);
            }
        }
        self.truth.tombstones.insert(
            TombstoneKey(name.clone()),
            Tombstone {
                removed: self.now.wall,
                incarnation_floor,
                revision: None,
            },
        );
    }

    /// Readers have lost the service. News: known anew after a crash, only less exactly.
    pub(super) fn engrave(&mut self, name: &ServiceName, revision: u64) {
        let key = TombstoneKey(name.clone());
        self.truth
            .tombstones
            .note(&key, |it| it.revision = Some(revision));
    }

    /// Has those that a crash left without a revision be removed with this start, which is after it: a watcher may
    /// hear of one twice, but never not at all.
    pub(super) fn take_up_tombstones(&mut self) {
        let all = self.truth.tombstones.iter();
        let unknown = all.filter(|(_, it)| it.revision.is_none());
        let names: Vec<ServiceName> = unknown.map(|(key, _)| key.0.clone()).collect();
        for name in names {
            self.engrave(&name, self.shown.revision);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rig::{Rig, name, web};
    use super::*;
    use crate::registry::{Command, Config, Stored};
    use crate::time::{Now, WallClock};

    fn delete(rig: &mut Rig, service: &str) {
        let service = name(service);
        rig.ask(Command::Delete { service }).unwrap();
    }

    /// A service without a place, to be deleted.
    fn submit(rig: &mut Rig, service: &str) {
        rig.submit(&web(service, 0)).unwrap();
    }

    #[test]
    fn of_more_deleted_names_than_are_remembered_the_earliest_is_forgotten() {
        let (stored, now) = (Stored::default(), Now::default());
        let mut registry = Registry::load(Config::default(), &stored, "e".into(), now).unwrap();
        let name = |number: usize| -> ServiceName { format!("s{number}.alice").parse().unwrap() };
        for number in 0..=TOMBSTONES_KEPT {
            // The clock is set back on the way.
            let ms = if number < 5000 { 1_000_000 } else { 0 } + number as u64;
            registry.now.wall = WallClock::from_unix_millis(ms);
            registry.bury(&name(number), 1);
            registry.engrave(&name(number), 100 + number as u64);
            if number + 2 == TOMBSTONES_KEPT {
                assert_eq!(registry.removed().complete_after, 0);
            }
        }
        let remembered = |number| {
            let key = TombstoneKey(name(number));
            registry.truth.tombstones.find(&key).is_some()
        };
        assert_eq!(registry.truth.tombstones.len(), TOMBSTONES_KEPT);
        assert!(!remembered(0) && remembered(1) && remembered(TOMBSTONES_KEPT));
        let removed = registry.removed();
        assert_eq!(
            (removed.complete_after, removed.services.len()),
            (101, TOMBSTONES_KEPT)
        );
        assert!(removed.services.is_sorted());
    }

    // endpoints 35
    #[test]
    fn a_start_knows_what_was_deleted_before_it_and_when_readers_lost_it() {
        let mut rig = Rig::new();
        for service in ["kept", "gone", "again"] {
            submit(&mut rig, service);
        }
        let before = rig.registry.revision();
        delete(&mut rig, "gone");
        let lost = rig.registry.revision();
        delete(&mut rig, "again");
        let later = rig.registry.revision();
        // It may be one that a watcher may not see.
        submit(&mut rig, "again");
        assert!(lost > before);
        rig.pass(Duration::from_secs(2));
        let expected = Removed {
            complete_after: 0,
            services: vec![(lost, name("gone")), (later, name("again"))],
        };
        assert_eq!(rig.registry.removed(), expected);
        let rig = rig.restart();
        assert_eq!(rig.registry.removed(), expected);
        assert_eq!(rig.registry.view().removed, 0);
    }

    #[test]
    fn a_removal_whose_revision_was_not_written_counts_as_of_the_start() {
        let mut rig = Rig::new();
        submit(&mut rig, "gone");
        rig.pass(Duration::from_secs(2));
        delete(&mut rig, "gone");
        let lost = rig.registry.revision();
        // Within the second: the removal is durable, its revision is not.
        let rig = rig.restart();
        let removed = rig.registry.removed();
        assert_eq!(removed.services.len(), 1);
        let (revision, service) = &removed.services[0];
        assert_eq!(*service, name("gone"));
        assert!(*revision >= lost && *revision <= rig.registry.revision());
    }
}
