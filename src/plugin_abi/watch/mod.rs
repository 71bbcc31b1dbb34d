//! Following endpoints: a descriptor to poll, and what changed since the last look.
//!
//! Invariant: while a watch's descriptor is silent, who applied everything that it told has what `resolve` shows. A
//! slow watch costs its place in the feed and nothing more; what the feed has forgotten it reads anew, from a snapshot.

pub(in crate::plugin_abi) mod bell;
mod feed;
#[cfg(test)]
mod follow_test;
#[cfg(test)]
pub(in crate::plugin_abi) mod follower_test;
#[cfg(test)]
#[cfg(loom)]
mod loom_test;
#[cfg(test)]
#[cfg(not(loom))]
mod stopped_test;
#[cfg(test)]
mod watch_test;
mod watcher;
mod watches;

use std::sync::atomic::Ordering;

use crate::endpoints::EndpointTable;
use crate::identity::ServiceName;
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::eventfd::Eventfd;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::border::memory::{Output, Room};
use crate::plugin_abi::constants::{PR_OK, PR_RESET};
use crate::plugin_abi::reading::resolve::read_service;
use crate::plugin_abi::state::board::Member;
use crate::plugin_abi::types::{PrChange, PrCtx, PrStr, PrWatch};

use feed::Feed;
pub(in crate::plugin_abi) use feed::Touched;
use watcher::Watch;
use watches::Watches;
pub(in crate::plugin_abi) use watches::ended;

/// Those who follow a context's endpoints, and what they follow.
#[derive(Debug)]
pub(in crate::plugin_abi) struct Followers {
    feed: Feed,
    watches: Watches,
}

impl Followers {
    /// Room for `most` watches, taken now.
    pub(in crate::plugin_abi) fn new(context: Handle, most: u32) -> Result<Self, Failure> {
        Ok(Self {
            feed: Feed::new(),
            watches: Watches::new(context, most)?,
        })
    }

    /// Publishes at `revision` and tells who follows what differs. The writer alone. Whether anything changed.
    pub(in crate::plugin_abi) fn publish(
        &self,
        table: &EndpointTable<Member>,
        revision: u64,
        touched: &[Touched],
        publish: impl FnOnce() -> bool,
    ) -> bool {
        let mut first = None;
        let changed = self
            .feed
            .follow(table, revision, touched, publish, |service, place| {
                first = first.or(Some(place));
                self.watches.tell(Some(service), place);
            });
        if let Some(first) = first {
            self.watches.tell(None, first);
        }
        changed
    }

    /// How many watches are open, and how often one had to begin anew.
    pub(in crate::plugin_abi) fn counts(&self) -> (u64, u64) {
        let resets = self.watches.resets.load(Ordering::Relaxed);
        (self.watches.count(), resets)
    }

    /// Ends all watches. The highest generation of any of their ids.
    pub(in crate::plugin_abi) fn end(&self) -> u32 {
        self.watches.end()
    }

    fn open(
        &self,
        service: Option<ServiceName>,
        since: u64,
        table: &EndpointTable<Member>,
    ) -> Result<(Handle, i32), Failure> {
        let eventfd = Eventfd::new()?;
        let fd = eventfd.number();
        let handle = self.watches.add(
            |number| Watch::new(number, service, since, eventfd),
            |watch| watch.begin(&self.feed, table),
        )?;
        Ok((handle, fd))
    }
}

/// See `watch_open` in the header.
pub(super) unsafe extern "C" fn watch_open(
    ctx: PrCtx,
    service: PrStr,
    since: u64,
    watch: *mut PrWatch,
    fd: *mut i32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Read, |context, _| {
        // SAFETY: by C's promise readable during the call.
        let service = unsafe { read_service(service) }?;
        // SAFETY: by C's promise null, or writable.
        let watch = unsafe { Output::new(watch, "watch") }?;
        // SAFETY: by C's promise null, or writable.
        let fd = unsafe { Output::new(fd, "fd") }?;
        let followers = context.followers();
        let (handle, number) = followers.open(service, since, context.table())?;
        watch.set(handle.id());
        fd.set(number);
        Ok(PR_OK)
    })
}

/// See `watch_next` in the header.
pub(super) unsafe extern "C" fn watch_next(
    watch: PrWatch,
    changes: *mut PrChange,
    cap: u32,
    n: *mut u32,
    flags: *mut u32,
) -> i32 {
    inside(watch, Kind::Watch, Class::Read, |context, handle| {
        // SAFETY: by C's promise null, or room for `cap` elements.
        let room = unsafe { Room::new(changes, cap, "changes") }?;
        // SAFETY: by C's promise null, or writable.
        let n = unsafe { Output::new(n, "n") }?;
        // SAFETY: by C's promise null, or writable.
        let flags = unsafe { Output::new(flags, "flags") }?;
        let followers = context.followers();
        let watch = followers.watches.get(handle)?;
        let told = watch.next(&followers.feed, &room, cap);
        if told.flags & PR_RESET != 0 {
            followers.watches.note_reset();
        }
        n.set(told.rows);
        flags.set(told.flags);
        Ok(PR_OK)
    })
}

/// See `watch_close` in the header.
pub(super) unsafe extern "C" fn watch_close(watch: PrWatch) -> i32 {
    inside(watch, Kind::Watch, Class::Read, |context, handle| {
        context.followers().watches.remove(handle)?;
        Ok(PR_OK)
    })
}
