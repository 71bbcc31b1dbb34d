//! Random batches on the table and on a plain map: every reader must be told the same by both, and whoever
//! follows by changes must end with the list that the others read whole.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::endpoints::plain::{Plain, name, update};
use crate::endpoints::{Change, EndpointTable, Entry, Listing};

const SERVICES: [&str; 3] = ["a.x", "b.x", "c.y"];
/// More than two chunks of a list.
const KEYS: u32 = 150;

/// What the model knows of one service.
#[derive(Clone, Debug, Default)]
struct Known {
    desired: u32,
    /// With the revision of the last change.
    entries: BTreeMap<u32, (Plain, u64)>,
    changed: u64,
    ready: u64,
}

#[derive(Clone, Debug)]
struct Told {
    service: usize,
    desired: u32,
    change: Change<Plain>,
}

#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<Told>),
    Remove(usize),
    /// This follower catches up.
    Follow(usize),
}

fn entry() -> impl Strategy<Value = Plain> {
    // Few marks and ages, so that equal reports are common.
    (0..KEYS, 0..2u32, any::<bool>(), 0..2u8, 0..2u64).prop_map(
        |(key, incarnation, is_listed, age, mark)| Plain {
            key,
            incarnation,
            is_listed,
            age,
            mark,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = |most| prop::collection::vec(entry(), 0..most);
    let parts = (some(6), prop::collection::vec(0..KEYS, 0..3));
    let change = prop_oneof![
        1 => some(140).prop_map(Change::Whole),
        4 => parts.prop_map(|(upsert, remove)| Change::Parts { upsert, remove }),
    ];
    let told = (0..SERVICES.len(), 2..4u32, change);
    let told = told.prop_map(|(service, desired, change)| Told {
        service,
        desired,
        change,
    });
    let step = prop_oneof![
        6 => prop::collection::vec(told, 1..4).prop_map(Step::Publish),
        1 => (0..SERVICES.len()).prop_map(Step::Remove),
        4 => (0..SERVICES.len() * 2).prop_map(Step::Follow),
    ];
    prop::collection::vec(step, 1..60)
}

impl Known {
    /// Takes one entry in.
    fn put(&mut self, new: Plain, revision: u64) {
        let old = self.entries.get(&new.key).copied();
        let since = match old {
            Some((old, since)) if old.same_but_for_age(&new) => since,
            _ => {
                self.changed = revision;
                if new.is_listed || old.is_some_and(|(old, _)| old.is_listed) {
                    self.ready = revision;
                }
                revision
            }
        };
        self.entries.insert(new.key, (new, since));
    }

    fn remove(&mut self, key: u32, revision: u64) {
        if let Some((old, _)) = self.entries.remove(&key) {
            self.changed = revision;
            if old.is_listed {
                self.ready = revision;
            }
        }
    }

    fn take(&mut self, told: Told, revision: u64) {
        if self.desired != told.desired {
            (self.changed, self.ready) = (revision, revision);
            self.desired = told.desired;
        }
        let newest = |entries: Vec<Plain>| {
            let mut by_key = BTreeMap::<u32, Plain>::new();
            for entry in entries {
                let kept = by_key.entry(entry.key).or_insert(entry);
                if entry.incarnation >= kept.incarnation {
                    *kept = entry;
                }
            }
            by_key
        };
        match told.change {
            Change::Whole(entries) => {
                let entries = newest(entries);
                let gone: Vec<_> = self.entries.keys().copied().collect();
                for key in gone.iter().filter(|key| !entries.contains_key(key)) {
                    self.remove(*key, revision);
                }
                for entry in entries.into_values() {
                    self.put(entry, revision);
                }
            }
            Change::Parts { upsert, remove } => {
                let upsert = newest(upsert);
                // Removed and put again in one go: it was never gone.
                for key in remove.iter().filter(|key| !upsert.contains_key(key)) {
                    self.remove(*key, revision);
                }
                for entry in upsert.into_values() {
                    let known = self.entries.get(&entry.key);
                    let is_old = known.is_some_and(|(old, _)| entry.incarnation < old.incarnation);
                    if remove.contains(&entry.key) || !is_old {
                        self.put(entry, revision);
                    }
                }
            }
        }
    }
}

/// Knows one service through changes alone, and the whole list where there are none to have.
#[derive(Clone, Debug, Default)]
struct Follower {
    since: u64,
    has: BTreeMap<u32, (Plain, u64)>,
}

/// What a reader of this listing is told of a list, whatever the age.
fn told<'a>(
    entries: impl Iterator<Item = (&'a Plain, u64)>,
    listing: Listing,
) -> BTreeMap<u32, (Plain, u64)> {
    let is_told = |entry: &Plain| listing == Listing::All || entry.is_listed;
    let told = entries.filter(|(entry, _)| is_told(entry));
    told.map(|(entry, since)| (entry.key, (Plain { age: 0, ..*entry }, since)))
        .collect()
}

impl Follower {
    fn catch_up(&mut self, table: &EndpointTable<Plain>, service: &str, listing: Listing) {
        let revision = table.revision();
        let Some(handle) = table.service(&name(service)) else {
            *self = Self::default();
            return;
        };
        let snapshot = handle.snapshot();
        match snapshot.changes_since(self.since, listing) {
            Some(changes) => {
                for key in changes.remove {
                    // It may be one that came and went since: a reader with a version from between has it.
                    self.has.remove(&key);
                }
                self.has.extend(told(changes.upsert.into_iter(), listing));
            }
            None => self.has = told(snapshot.entries(), listing),
        }
        self.since = revision;
        assert_eq!(self.has, told(snapshot.entries(), listing));
    }
}

proptest! {
    #[test]
    fn readers_and_followers_are_told_what_a_plain_map_tells(steps in steps()) {
        let table = EndpointTable::<Plain>::new("4f1c".to_owned(), 10);
        let mut model: BTreeMap<&str, Known> = BTreeMap::new();
        let mut removed: Vec<(u64, &str)> = Vec::new();
        let mut followers = vec![Follower::default(); SERVICES.len() * 2];
        let (mut newest, mut newest_ready) = (10, 10);
        for (step, revision) in steps.into_iter().zip(11..) {
            match step {
                Step::Publish(batch) => {
                    for told in &batch {
                        let fresh = Known {
                            desired: told.desired,
                            changed: revision,
                            ready: revision,
                            ..Known::default()
                        };
                        let known = model.entry(SERVICES[told.service]).or_insert(fresh);
                        known.take(told.clone(), revision);
                    }
                    let updates = batch.into_iter().map(|told| {
                        let mut update = update(SERVICES[told.service], told.change);
                        update.desired = told.desired;
                        update
                    });
                    let moved = model.values().any(|known| known.changed == revision);
                    prop_assert_eq!(table.publish(revision, updates.collect(), &[]), moved);
                }
                Step::Remove(service) => {
                    let known = model.remove(SERVICES[service]).is_some();
                    let gone = [name(SERVICES[service])];
                    prop_assert_eq!(table.publish(revision, vec![], &gone), known);
                    if known {
                        removed.push((revision, SERVICES[service]));
                        (newest, newest_ready) = (revision, revision);
                    }
                }
                Step::Follow(which) => {
                    let listing = [Listing::Ready, Listing::All][which % 2];
                    followers[which].catch_up(&table, SERVICES[which / 2], listing);
                }
            }
            newest = model.values().map(|known| known.changed).chain([newest]).max().unwrap_or(0);
            let ready = model.values().map(|known| known.ready);
            newest_ready = ready.chain([newest_ready]).max().unwrap_or(0);
            prop_assert_eq!(table.revision(), newest);
            prop_assert_eq!(table.ready_revision(), newest_ready);
            let gone: Vec<_> = table.removed_since(10).unwrap();
            prop_assert!(gone.iter().map(|it| it.to_string()).eq(removed.iter().map(|(_, it)| *it)));
            for service in SERVICES {
                let Some(handle) = table.service(&name(service)) else {
                    prop_assert!(!model.contains_key(service));
                    continue;
                };
                let (snapshot, known) = (handle.snapshot(), &model[service]);
                prop_assert_eq!(snapshot.desired(), known.desired);
                prop_assert_eq!(snapshot.mod_revision(), known.changed);
                prop_assert_eq!(snapshot.ready_revision(), known.ready);
                prop_assert_eq!(handle.subscribe().number(), known.changed);
                prop_assert_eq!(handle.subscribe_ready().number(), known.ready);
                let entries = snapshot.entries().map(|(entry, since)| (*entry, since));
                prop_assert!(entries.eq(known.entries.values().copied()));
                let listed = known.entries.values().filter(|(entry, _)| entry.is_listed);
                prop_assert!(snapshot.listed().eq(listed.map(|(entry, _)| entry)));
                prop_assert_eq!(snapshot.listed().len(), snapshot.ready());
                for key in [0, 63, 64, 149, KEYS] {
                    let entry = snapshot.entry(&key).map(|(entry, since)| (*entry, since));
                    prop_assert_eq!(entry, known.entries.get(&key).copied());
                }
            }
            for since in [10, newest.saturating_sub(1).max(10)] {
                let recent = table.recent(since).unwrap();
                prop_assert_eq!(recent.revision, newest);
                for (service, known) in &model {
                    let told = recent.services.iter().any(|(_, it)| it.to_string() == *service);
                    prop_assert!(told || known.changed <= since);
                }
            }
        }
        for (which, follower) in followers.iter_mut().enumerate() {
            let listing = [Listing::Ready, Listing::All][which % 2];
            follower.catch_up(&table, SERVICES[which / 2], listing);
        }
    }
}
