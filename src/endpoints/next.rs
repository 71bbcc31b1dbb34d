//! How one version of a service follows from another.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::endpoints::leaves::{Detail, Leaves};
use crate::endpoints::log::{Log, Logged, Shown};
use crate::endpoints::snapshot::Body;
use crate::endpoints::{Change, Entry, Snapshot};
use crate::identity::ServiceName;

impl<E: Entry> Snapshot<E> {
    /// The first version of a service.
    pub(super) fn first(
        service: Arc<ServiceName>,
        desired: u32,
        change: Change<E>,
        revision: u64,
    ) -> Self {
        let entries = match change {
            Change::Whole(entries) => entries,
            Change::Parts { upsert, .. } => upsert,
        };
        let details = in_order(entries).into_iter();
        let details: Vec<_> = details.map(|entry| detail(entry, revision)).collect();
        Self {
            service,
            desired,
            mod_revision: revision,
            ready_revision: revision,
            removed: false,
            keys: keys(&details),
            leaves: Leaves::new(&details),
            log: Log::new(revision),
            body: Body::default(),
        }
    }

    /// The version after this one, or `None` if nothing that is told differs from this one.
    ///
    /// Between ready and unconfirmed only the age of our knowledge differs: the version is replaced,
    /// but keeps its numbers, so that a silent host wakes nobody.
    pub(super) fn next(&self, desired: u32, change: Change<E>, revision: u64) -> Option<Self> {
        let plan = match change {
            Change::Whole(entries) => self.plan_whole(in_order(entries)),
            Change::Parts { upsert, remove } => self.plan_parts(in_order(upsert), remove),
        };
        let desires = desired != self.desired;
        if plan.is_empty() && !desires {
            return None;
        }
        let (mut changed, mut ready) = (desires, desires);
        let mut logged = SmallVec::<[_; 1]>::new();
        let mut log = |key: E::Key, was: Shown, is: Shown| {
            changed = true;
            ready |= was == Shown::Listed || is == Shown::Listed;
            logged.push(Logged { revision, key, was });
        };
        let mut leaves = self.leaves.clone();
        for (place, entry) in plan.replace {
            let old = self.leaves.at(place);
            let before = E::of(&old.entry);
            let since = if before.same_but_for_age(&entry) {
                old.revision
            } else {
                log(entry.key(), Shown::of(before), Shown::of(&entry));
                revision
            };
            leaves.replace(place, detail(entry, since));
        }
        let mut keys = Arc::clone(&self.keys);
        if !plan.remove.is_empty() || !plan.add.is_empty() {
            for place in &plan.remove {
                let was = Shown::of(E::of(&self.leaves.at(*place).entry));
                log(self.keys[*place].clone(), was, Shown::Absent);
            }
            for entry in &plan.add {
                log(entry.key(), Shown::Absent, Shown::of(entry));
            }
            let details = merged(&leaves, &plan.remove, plan.add, revision);
            keys = self::keys(&details);
            leaves = Leaves::new(&details);
        }
        Some(Self {
            service: Arc::clone(&self.service),
            desired,
            mod_revision: if changed { revision } else { self.mod_revision },
            // How many replicas there shall be stands in the default answer too.
            ready_revision: if ready { revision } else { self.ready_revision },
            removed: false,
            keys,
            leaves,
            log: if logged.is_empty() {
                self.log.clone()
            } else {
                self.log.with(&logged)
            },
            body: Body::default(),
        })
    }

    /// What a kept handle finds once the service is gone.
    pub(super) fn tombstone(&self, revision: u64) -> Self {
        Self {
            removed: true,
            ..Self::first(
                Arc::clone(&self.service),
                0,
                Change::Whole(Vec::new()),
                revision,
            )
        }
    }

    fn plan_parts(&self, upsert: Vec<E>, remove: Vec<E::Key>) -> Plan<E> {
        let known = remove.iter().filter_map(|key| self.place(key).ok());
        let mut plan = Plan {
            remove: known.collect(),
            ..Plan::default()
        };
        plan.remove.sort_unstable();
        plan.remove.dedup();
        let mut again = Vec::new();
        for entry in upsert {
            let Ok(place) = self.place(&entry.key()) else {
                plan.add.push(entry);
                continue;
            };
            // Removed and put again in one go: it was never gone.
            let is_again = plan.remove.binary_search(&place).is_ok();
            if is_again {
                again.push(place);
            }
            let known = E::of(&self.leaves.at(place).entry);
            let is_old = !is_again && entry.incarnation() < known.incarnation();
            if !is_old && *known != entry {
                plan.replace.push((place, entry));
            }
        }
        // All at once: one by one would move the rest of the list for each. Both are in order.
        let mut again = again.into_iter().peekable();
        plan.remove
            .retain(|place| again.next_if_eq(place).is_none());
        plan
    }

    fn plan_whole(&self, entries: Vec<E>) -> Plan<E> {
        let mut plan = Plan::default();
        let mut places = 0..self.keys.len();
        let mut known = places.next();
        for entry in entries {
            let key = entry.key();
            while let Some(place) = known.filter(|place| self.keys[*place] < key) {
                plan.remove.push(place);
                known = places.next();
            }
            match known.filter(|place| self.keys[*place] == key) {
                Some(place) => {
                    if *E::of(&self.leaves.at(place).entry) != entry {
                        plan.replace.push((place, entry));
                    }
                    known = places.next();
                }
                None => plan.add.push(entry),
            }
        }
        plan.remove.extend(known.into_iter().chain(places));
        plan
    }
}

/// What differs from the version before; every list is in order and no key stands in two of them.
struct Plan<E> {
    replace: SmallVec<[(usize, E); 1]>,
    remove: Vec<usize>,
    add: Vec<E>,
}

impl<E> Plan<E> {
    fn is_empty(&self) -> bool {
        self.replace.is_empty() && self.remove.is_empty() && self.add.is_empty()
    }
}

impl<E> Default for Plan<E> {
    fn default() -> Self {
        Self {
            replace: SmallVec::new(),
            remove: Vec::new(),
            add: Vec::new(),
        }
    }
}

/// By key, one each; of two the higher incarnation, of equal ones the later.
fn in_order<E: Entry>(mut entries: Vec<E>) -> Vec<E> {
    if !entries.is_sorted_by(|a, b| a.key() < b.key()) {
        entries.reverse();
        entries.sort_by_key(|entry| (entry.key(), Reverse(entry.incarnation())));
        entries.dedup_by_key(|entry| entry.key());
    }
    entries
}

fn merged<E: Entry>(
    leaves: &Leaves<E>,
    remove: &[usize],
    add: Vec<E>,
    revision: u64,
) -> Vec<Detail<E>> {
    let mut details = Vec::with_capacity(leaves.len() + add.len() - remove.len());
    let mut remove = remove.iter().peekable();
    let mut add = add.into_iter().peekable();
    for place in 0..leaves.len() {
        if remove.next_if(|gone| **gone == place).is_some() {
            continue;
        }
        let kept = leaves.at(place);
        let key = E::of(&kept.entry).key();
        while let Some(new) = add.next_if(|new| new.key().cmp(&key) == Ordering::Less) {
            details.push(detail(new, revision));
        }
        details.push(kept.clone());
    }
    details.extend(add.map(|new| detail(new, revision)));
    details
}

fn detail<E: Entry>(entry: E, revision: u64) -> Detail<E> {
    Detail {
        entry: entry.keep(),
        revision,
    }
}

fn keys<E: Entry>(details: &[Detail<E>]) -> Arc<[E::Key]> {
    details
        .iter()
        .map(|detail| E::of(&detail.entry).key())
        .collect()
}
