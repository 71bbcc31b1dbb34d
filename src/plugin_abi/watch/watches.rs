//! Every open watch of a context, by id and by what it is about.
//!
//! Two locks, never held at once, so that no reader waits for the writer: `open` is taken by those who call, `listed`
//! also by who publishes, for the look at a few watches at a time and never while a descriptor is written.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::identity::ServiceName;
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind, Slots};
use crate::plugin_abi::constants::PR_ESTALE;
use crate::plugin_abi::watch::watcher::Watch;

#[derive(Debug)]
pub(super) struct Watches {
    /// Nothing after the end of the context.
    open: Mutex<Option<Slots<Arc<Watch>>>>,
    listed: Mutex<Listed>,
    opened: AtomicU64,
    most: u32,
    pub(super) resets: AtomicU64,
}

/// By what they are about, nothing for all services, and by when they were opened.
type Listed = BTreeMap<Option<ServiceName>, BTreeMap<u64, Arc<Watch>>>;

impl Watches {
    pub(super) fn new(context: Handle, most: u32) -> Result<Self, Failure> {
        Ok(Self {
            open: Mutex::new(Some(Slots::new(Kind::Watch, context, most)?)),
            listed: Mutex::default(),
            opened: AtomicU64::new(0),
            most,
            resets: AtomicU64::new(0),
        })
    }

    pub(super) fn count(&self) -> u64 {
        let listed = self.listed.lock();
        listed.values().map(|some| some.len() as u64).sum()
    }

    /// Keeps a watch, which is told of changes before it looks for its place in the feed: what is published meanwhile
    /// is either found or told.
    ///
    /// # Errors
    ///
    /// `PR_ELIMIT` if as many are open as may be; `PR_ESTALE` if the context has ended.
    pub(super) fn add(
        &self,
        watch: impl FnOnce(u64) -> Watch,
        begin: impl FnOnce(&Watch),
    ) -> Result<Handle, Failure> {
        let watch = Arc::new(watch(self.opened.fetch_add(1, Ordering::Relaxed)));
        self.list(&watch);
        begin(&watch);
        let kept = self.keep(&watch);
        if kept.is_err() {
            self.unlist(&watch);
        }
        kept
    }

    fn keep(&self, watch: &Arc<Watch>) -> Result<Handle, Failure> {
        let mut open = self.open.lock();
        let slots = open.as_mut().ok_or(ended())?;
        let most = u64::from(self.most);
        let full = Failure::limit("watches", most + 1, most);
        slots.insert(Arc::clone(watch)).map_err(|_| full)
    }

    fn list(&self, watch: &Arc<Watch>) {
        let mut listed = self.listed.lock();
        let same = listed.entry(watch.service.clone()).or_default();
        same.insert(watch.number, Arc::clone(watch));
    }

    fn unlist(&self, watch: &Watch) {
        let mut listed = self.listed.lock();
        if let Some(same) = listed.get_mut(&watch.service) {
            same.remove(&watch.number);
            if same.is_empty() {
                listed.remove(&watch.service);
            }
        }
    }

    pub(super) fn get(&self, handle: Handle) -> Result<Arc<Watch>, Failure> {
        let open = self.open.lock();
        let found = open.as_ref().and_then(|slots| slots.get(handle)).cloned();
        found.ok_or_else(|| handle.stale())
    }

    /// Its descriptor closes here, or with the last call that is at it just now.
    pub(super) fn remove(&self, handle: Handle) -> Result<(), Failure> {
        let removed = {
            let mut open = self.open.lock();
            open.as_mut().and_then(|slots| slots.remove(handle))
        };
        self.unlist(&*removed.ok_or_else(|| handle.stale())?);
        Ok(())
    }

    /// Tells who follows this service, or those who follow all.
    pub(super) fn tell(&self, service: Option<&ServiceName>, place: u64) {
        const AT_ONCE: usize = 64;
        let service = service.cloned();
        let mut last = None;
        loop {
            let some: SmallVec<[Arc<Watch>; AT_ONCE]> = {
                let listed = self.listed.lock();
                let Some(same) = listed.get(&service) else {
                    return;
                };
                let from = last.map_or(Bound::Unbounded, Bound::Excluded);
                let next = same.range((from, Bound::Unbounded)).take(AT_ONCE);
                next.map(|(_, watch)| Arc::clone(watch)).collect()
            };
            for watch in &some {
                watch.bell.tell(place);
            }
            match some.last() {
                Some(watch) if some.len() == AT_ONCE => last = Some(watch.number),
                _ => return,
            }
        }
    }

    /// Ends all; each descriptor is readable once more, then closed. The highest generation of any of their ids.
    pub(super) fn end(&self) -> u32 {
        let slots = self.open.lock().take();
        let listed = std::mem::take(&mut *self.listed.lock());
        for watch in listed.values().flat_map(BTreeMap::values) {
            watch.bell.tell(0);
        }
        slots.map_or(0, |slots| slots.highest_generation())
    }

    pub(super) fn note_reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }
}

pub(in crate::plugin_abi) const fn ended() -> Failure {
    Failure::said(PR_ESTALE, "the context has ended")
}
