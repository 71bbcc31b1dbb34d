//! A small entry for tests of the table.

use crate::endpoints::{Change, Entry, ServiceUpdate};
use crate::identity::{Incarnation, ServiceName};

/// An entry that is a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) key: u32,
    pub(super) incarnation: u32,
    pub(super) is_listed: bool,
    /// How old our knowledge is.
    pub(super) age: u8,
    /// Whatever else there is to tell.
    pub(super) mark: u64,
}

impl Plain {
    pub(super) const fn ready(key: u32, mark: u64) -> Self {
        Self {
            key,
            incarnation: 0,
            is_listed: true,
            age: 0,
            mark,
        }
    }

    pub(super) const fn not_ready(key: u32, mark: u64) -> Self {
        Self {
            is_listed: false,
            ..Self::ready(key, mark)
        }
    }
}

impl Entry for Plain {
    type Key = u32;
    type Kept = Self;

    fn keep(self) -> Self {
        self
    }

    fn of(kept: &Self) -> &Self {
        kept
    }

    fn key(&self) -> u32 {
        self.key
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation)
    }

    fn is_listed(&self) -> bool {
        self.is_listed
    }

    fn same_but_for_age(&self, other: &Self) -> bool {
        *self
            == Self {
                age: self.age,
                ..*other
            }
    }
}

pub(super) fn name(text: &str) -> ServiceName {
    text.parse().unwrap()
}

pub(super) fn update(service: &str, change: Change<Plain>) -> ServiceUpdate<Plain> {
    ServiceUpdate {
        service: name(service),
        desired: 2,
        change,
    }
}

pub(super) fn whole(service: &str, entries: Vec<Plain>) -> ServiceUpdate<Plain> {
    update(service, Change::Whole(entries))
}

pub(super) fn parts(service: &str, upsert: Vec<Plain>, remove: Vec<u32>) -> ServiceUpdate<Plain> {
    update(service, Change::Parts { upsert, remove })
}
