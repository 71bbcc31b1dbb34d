//! What readers were shown, change by change, for those who follow: bounded, and read without a lock.
//!
//! One writer, under the board's lock: it says which revision begins, publishes, notes what differs, and only then
//! tells. A batch is told whole or not at all.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::endpoints::{EndpointTable, Journal};
use crate::identity::{ServiceId, ServiceName};
use crate::plugin_abi::constants::{PR_ANY, PR_CH_REMOVE, PR_CH_SERVICE_GONE, PR_CH_UPSERT};
use crate::plugin_abi::reading::resolve::rows;
use crate::plugin_abi::state::board::Member;
use crate::plugin_abi::state::register::Key;
use crate::plugin_abi::types::{PrChange, PrEndpoint};

/// The newest changes of all services of a context.
#[derive(Debug)]
pub(in crate::plugin_abi) struct Feed {
    pub(super) notes: Journal<Noted>,
    /// Before it everything is noted.
    end: AtomicU64,
    /// The newest revision that any reader can have seen.
    begun: AtomicU64,
}

/// One change of what is shown of one replica or service.
#[derive(Clone, Debug)]
pub(super) enum Noted {
    /// It is shown so from now on.
    Shown {
        now: Member,
        /// In the place of this one of an earlier or later placement.
        was: Option<Box<Was>>,
    },
    /// It is not shown any more.
    Left(Was),
    /// The service is not known any more.
    Gone { service: ServiceName, number: u32 },
}

/// What was shown of a replica, and since when.
pub(super) type Was = (Member, u64);

/// A service that is about to change.
#[derive(Debug)]
pub(in crate::plugin_abi) struct Touched {
    pub(in crate::plugin_abi) service: ServiceId,
    pub(in crate::plugin_abi) name: ServiceName,
    /// Whether it goes with this change.
    pub(in crate::plugin_abi) is_gone: bool,
    pub(in crate::plugin_abi) keys: Vec<Key>,
}

impl Feed {
    /// How many of the newest changes are kept at least.
    pub(in crate::plugin_abi) const KEPT: usize = 16_384;

    pub(super) fn new() -> Self {
        Self {
            notes: Journal::new(Self::KEPT, 0),
            end: AtomicU64::new(0),
            begun: AtomicU64::new(0),
        }
    }

    /// Where the next batch begins.
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Whether no reader of this context can have got that revision yet.
    pub(super) fn is_ahead(&self, revision: u64) -> bool {
        revision > self.begun.load(Ordering::Acquire)
    }

    /// Publishes at `revision` and notes what differs; `told` is called with the place of the first note of each
    /// service that changed. The writer alone. Whether anything changed.
    pub(super) fn follow(
        &self,
        table: &EndpointTable<Member>,
        revision: u64,
        touched: &[Touched],
        publish: impl FnOnce() -> bool,
        mut told: impl FnMut(&ServiceName, u64),
    ) -> bool {
        let before: Vec<_> = touched.iter().map(|one| one.shown(table)).collect();
        self.begun.store(revision, Ordering::Release);
        if !publish() {
            return false;
        }
        let mut firsts = Vec::new();
        for (one, before) in touched.iter().zip(before) {
            let first = self.notes.end();
            for (was, now) in before.into_iter().zip(one.shown(table)) {
                if let Some(noted) = Noted::of(was, now, revision) {
                    self.notes.note(revision, noted);
                }
            }
            if one.is_gone {
                let service = one.name.clone();
                let number = u32::try_from(one.service.0).unwrap_or(u32::MAX);
                self.notes.note(revision, Noted::Gone { service, number });
            }
            if self.notes.end() > first {
                firsts.push((&one.name, first));
            }
        }
        self.end.store(self.notes.end(), Ordering::Release);
        for (service, first) in firsts {
            told(service, first);
        }
        true
    }
}

impl Touched {
    /// What readers find under each key.
    fn shown(&self, table: &EndpointTable<Member>) -> Vec<Option<Was>> {
        let found = table.read(&self.name, |snapshot| {
            let shown = self.keys.iter().map(|key| snapshot.entry(key));
            shown
                .map(|shown| shown.map(|(member, since)| (member.clone(), since)))
                .collect()
        });
        found.unwrap_or_else(|| vec![None; self.keys.len()])
    }
}

impl Noted {
    /// `None` if nothing differs, or only the age of what is known.
    fn of(was: Option<Was>, now: Option<Was>, revision: u64) -> Option<Self> {
        match (was, now) {
            (None, None) => None,
            (Some(was), None) => Some(Self::Left(was)),
            (was, Some((now, since))) if since == revision => {
                let was = was.filter(|(was, _)| was.handle != now.handle);
                Some(Self::Shown {
                    was: was.map(Box::new),
                    now,
                })
            }
            (_, Some(_)) => None,
        }
    }

    pub(super) fn service(&self) -> &ServiceName {
        match self {
            Self::Shown { now: member, .. } | Self::Left((member, _)) => {
                &member.placed.0.profile.service
            }
            Self::Gone { service, .. } => service,
        }
    }

    /// As C reads it: what goes first, then what comes.
    pub(super) fn rows(&self, revision: u64) -> impl Iterator<Item = PrChange> {
        let (left, shown, gone) = match self {
            Self::Shown { now, was } => (was.as_deref(), Some(now), None),
            Self::Left(was) => (Some(was), None, None),
            Self::Gone { number, .. } => (None, None, Some(service_row(*number, revision))),
        };
        let change = move |kind| {
            move |ep| PrChange {
                ep,
                revision,
                kind,
                flags: 0,
            }
        };
        let left = left
            .into_iter()
            .flat_map(|(was, since)| rows(was, *since, None));
        let shown = shown
            .into_iter()
            .flat_map(move |now| rows(now, revision, None));
        left.map(change(PR_CH_REMOVE))
            .chain(shown.map(change(PR_CH_UPSERT)))
            .chain(gone.map(change(PR_CH_SERVICE_GONE)))
    }
}

/// A row that is about a service alone.
fn service_row(service: u32, revision: u64) -> PrEndpoint {
    PrEndpoint {
        id: 0,
        revision,
        ip: [0; 16],
        port: 0,
        count: 0,
        family: 0,
        proto: 0,
        state: 0,
        service,
        name: PR_ANY,
        replica: PR_ANY,
        host: PR_ANY,
    }
}
