//! One who follows a service, or all of them, at its own pace.

use std::ops::ControlFlow;

use parking_lot::Mutex;

use crate::endpoints::EndpointTable;
use crate::identity::ServiceName;
use crate::plugin_abi::border::eventfd::Eventfd;
use crate::plugin_abi::border::memory::Room;
use crate::plugin_abi::constants::{PR_MORE, PR_RESET};
use crate::plugin_abi::state::board::Member;
use crate::plugin_abi::types::PrChange;
use crate::plugin_abi::watch::bell::Bell;
use crate::plugin_abi::watch::feed::{Feed, Noted};

/// Holds a place in the feed, whatever happens: what it does not read in time it is not told, but to begin anew.
#[derive(Debug)]
pub(super) struct Watch {
    /// Which of all that were opened.
    pub(super) number: u64,
    /// Nothing: all.
    pub(super) service: Option<ServiceName>,
    pub(super) bell: Bell,
    /// Taken by those who read this watch only.
    reading: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    /// What is told already, from a snapshot.
    since: u64,
    /// Whatever stands before it was told or is not of interest.
    place: u64,
    /// How many rows of the note there were told.
    rows: u32,
    /// It has to begin anew.
    is_lost: bool,
}

/// What [`Watch::next`] told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) rows: u32,
    pub(super) flags: u32,
}

impl Watch {
    pub(super) fn new(
        number: u64,
        service: Option<ServiceName>,
        since: u64,
        eventfd: Eventfd,
    ) -> Self {
        Self {
            number,
            service,
            bell: Bell::new(eventfd),
            reading: Mutex::new(Reading {
                since,
                place: 0,
                rows: 0,
                is_lost: false,
            }),
        }
    }

    /// Finds its place, once it is told of changes: what came since the revision it begins with is unseen.
    pub(super) fn begin(&self, feed: &Feed, table: &EndpointTable<Member>) {
        let mut reading = self.reading.lock();
        let end = feed.end();
        let place = feed.notes.place_after(reading.since);
        reading.is_lost = feed.is_ahead(reading.since)
            || place.is_none() && !self.is_unchanged(table, reading.since);
        reading.place = place.unwrap_or(end).min(end);
        let mut is_unseen = reading.is_lost;
        feed.notes.look_from(reading.place, end, |_, noted| {
            is_unseen |= self.follows(noted);
            if is_unseen {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if is_unseen {
            self.bell.leave(reading.place);
        }
    }

    /// Tells what is unseen, as far as there is room for it. Nobody waits for this, and it waits for no writer.
    pub(super) fn next(&self, feed: &Feed, room: &Room<PrChange>, cap: u32) -> Told {
        let mut reading = self.reading.lock();
        let reading = &mut *reading;
        let mut told = Told { rows: 0, flags: 0 };
        // What is left, or lost, was told too: it is unseen.
        let Some(first) = self.bell.take() else {
            return told;
        };
        if first > reading.place {
            reading.place = first;
        }
        // Read before the notes: they reach at least so far.
        let end = feed.end();
        let stopped = if reading.is_lost {
            None
        } else {
            self.look(feed, end, reading, &mut told, room, cap)
        };
        let Some(stopped) = stopped else {
            *reading = Reading {
                since: 0,
                place: end,
                rows: 0,
                is_lost: false,
            };
            return Told {
                rows: 0,
                flags: PR_RESET,
            };
        };
        reading.place = stopped;
        if stopped < end {
            told.flags = PR_MORE;
            self.bell.leave(stopped);
        }
        told
    }

    /// Where it stopped because there is no more room; `None` if the place is forgotten.
    fn look(
        &self,
        feed: &Feed,
        end: u64,
        reading: &mut Reading,
        told: &mut Told,
        room: &Room<PrChange>,
        cap: u32,
    ) -> Option<u64> {
        let since = reading.since;
        feed.notes.look_from(reading.place, end, |revision, noted| {
            if revision > since && self.follows(noted) {
                for row in noted.rows(revision).skip(reading.rows as usize) {
                    if told.rows == cap {
                        return ControlFlow::Break(());
                    }
                    room.set(told.rows, row);
                    told.rows += 1;
                    reading.rows += 1;
                }
            }
            reading.rows = 0;
            ControlFlow::Continue(())
        })
    }

    fn follows(&self, noted: &Noted) -> bool {
        let service = self.service.as_ref();
        service.is_none_or(|service| service == noted.service())
    }

    /// Whether the service is as it was at that revision, however long ago that is.
    fn is_unchanged(&self, table: &EndpointTable<Member>, since: u64) -> bool {
        match &self.service {
            Some(service) => table
                .read(service, |snapshot| snapshot.mod_revision() <= since)
                .unwrap_or(false),
            None => table.revision() <= since,
        }
    }
}
