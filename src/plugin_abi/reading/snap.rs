//! One version of a service, or one of each, kept for reading in pieces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::endpoints::{EndpointTable, Snapshot};
use crate::identity::ServiceName;
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind, Slots};
use crate::plugin_abi::border::memory::{Output, Room};
use crate::plugin_abi::constants::PR_OK;
use crate::plugin_abi::reading::resolve::{read_service, rows, unknown};
use crate::plugin_abi::state::board::Member;
use crate::plugin_abi::types::{PrCtx, PrEndpoint, PrSnap, PrStr};
use crate::plugin_abi::watch::ended;

/// See `snap_open` in the header.
pub(crate) unsafe extern "C" fn snap_open(
    ctx: PrCtx,
    service: PrStr,
    snap: *mut PrSnap,
    revision: *mut u64,
    count: *mut u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Read, |context, _| {
        // SAFETY: by C's promise readable during the call.
        let service = unsafe { read_service(service) }?;
        // SAFETY: by C's promise null, or writable.
        let snap = unsafe { Output::new(snap, "snap") }?;
        // SAFETY: by C's promise null, or writable.
        let revision = unsafe { Output::new(revision, "revision") }?;
        // SAFETY: by C's promise null, or writable.
        let count = unsafe { Output::new(count, "count") }?;
        let (kept, at) = match service {
            Some(service) => Snap::of_one(context.table(), &service)?,
            None => Snap::of_all(context.table()),
        };
        let rows = kept.rows;
        snap.set(context.snaps().add(kept)?.id());
        revision.set(at);
        count.set(rows);
        Ok(PR_OK)
    })
}

/// See `snap_read` in the header.
pub(crate) unsafe extern "C" fn snap_read(
    snap: PrSnap,
    from: u32,
    endpoints: *mut PrEndpoint,
    cap: u32,
    n: *mut u32,
) -> i32 {
    inside(snap, Kind::Snap, Class::Read, |context, handle| {
        // SAFETY: by C's promise null, or room for `cap` elements.
        let room = unsafe { Room::new(endpoints, cap, "endpoints") }?;
        // SAFETY: by C's promise null, or writable.
        let n = unsafe { Output::new(n, "n") }?;
        let kept = context.snaps().get(handle)?;
        if cap == 0 && from < kept.rows {
            let left = u64::from(kept.rows - from);
            return Err(Failure::room(left, 0));
        }
        n.set(kept.read(from, &room, cap));
        Ok(PR_OK)
    })
}

/// See `snap_close` in the header.
pub(crate) unsafe extern "C" fn snap_close(snap: PrSnap) -> i32 {
    inside(snap, Kind::Snap, Class::Read, |context, handle| {
        context.snaps().remove(handle)?;
        Ok(PR_OK)
    })
}

/// A version of each service that is read.
#[derive(Debug)]
struct Snap {
    services: Vec<Arc<Snapshot<Member>>>,
    rows: u32,
    /// Where the last piece ended: who reads on from there pays for what is read alone.
    piece: Mutex<Point>,
}

/// A row, found by counting.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    service: usize,
    member: usize,
    /// How many rows stand before that member's.
    row: u32,
}

impl Snap {
    /// With the revision up to which it holds every change of the service, and none after.
    fn of_one(
        table: &EndpointTable<Member>,
        service: &ServiceName,
    ) -> Result<(Self, u64), Failure> {
        // Before the snapshot, which then is at least as new.
        let revision = table.revision();
        let found = table.service(service).map(|found| found.snapshot());
        let found = found.filter(|found| !found.is_removed());
        let snapshot = found.ok_or_else(|| unknown(service))?;
        let revision = revision.max(snapshot.mod_revision());
        Ok((Self::new(vec![snapshot]), revision))
    }

    /// With the revision up to which it holds every change; of a service that changes meanwhile also later ones.
    fn of_all(table: &EndpointTable<Member>) -> (Self, u64) {
        const TRIES: u32 = 4;
        let mut tries = 1;
        loop {
            let revision = table.revision();
            let services = table.services().into_iter();
            let services: Vec<_> = services.map(|found| found.snapshot()).collect();
            let is_exact = services.iter().all(|it| it.mod_revision() <= revision);
            if is_exact || tries == TRIES {
                return (Self::new(services), revision);
            }
            tries += 1;
        }
    }

    fn new(services: Vec<Arc<Snapshot<Member>>>) -> Self {
        let members = services.iter().flat_map(|service| service.entries());
        let rows: usize = members
            .map(|(member, since)| rows(member, since, None).count())
            .sum();
        Self {
            services,
            rows: u32::try_from(rows).unwrap_or(u32::MAX),
            piece: Mutex::default(),
        }
    }

    /// Writes up to `cap` rows from `from` on; how many.
    fn read(&self, from: u32, room: &Room<PrEndpoint>, cap: u32) -> u32 {
        if cap == 0 || from >= self.rows {
            return 0;
        }
        let mut at = *self.piece.lock();
        if from < at.row {
            at = Point::default();
        }
        let mut written = 0;
        while written < cap
            && let Some(service) = self.services.get(at.service)
        {
            let Some((member, since)) = service.entry_at(at.member) else {
                at.service += 1;
                at.member = 0;
                continue;
            };
            let wanted = from + written - at.row;
            let mut passed = 0;
            for row in rows(member, since, None) {
                if passed >= wanted && written < cap {
                    room.set(written, row);
                    written += 1;
                }
                passed += 1;
            }
            if from + written >= at.row + passed {
                at.row += passed;
                at.member += 1;
            }
        }
        *self.piece.lock() = at;
        written
    }
}

/// The versions that are kept for readers of a context.
#[derive(Debug)]
pub(crate) struct Snaps {
    /// Nothing after the end of the context. Taken by those who call, never by who publishes.
    open: Mutex<Option<Slots<Arc<Snap>>>>,
    count: AtomicU64,
}

impl Snaps {
    /// How many may be kept at once: each holds on to what it shows.
    const MOST: u32 = 1024;

    pub(crate) fn new(context: Handle) -> Result<Self, Failure> {
        Ok(Self {
            open: Mutex::new(Some(Slots::new(Kind::Snap, context, Self::MOST)?)),
            count: AtomicU64::new(0),
        })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn add(&self, snap: Snap) -> Result<Handle, Failure> {
        let mut open = self.open.lock();
        let slots = open.as_mut().ok_or(ended())?;
        let most = u64::from(Self::MOST);
        let full = Failure::limit("snapshots", most + 1, most);
        let handle = slots.insert(Arc::new(snap)).map_err(|_| full)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(handle)
    }

    fn get(&self, handle: Handle) -> Result<Arc<Snap>, Failure> {
        let open = self.open.lock();
        let found = open.as_ref().and_then(|slots| slots.get(handle)).cloned();
        found.ok_or_else(|| handle.stale())
    }

    fn remove(&self, handle: Handle) -> Result<(), Failure> {
        // Freed after the lock: it may be the last that holds a large version.
        let removed = self
            .open
            .lock()
            .as_mut()
            .and_then(|slots| slots.remove(handle));
        removed.ok_or_else(|| handle.stale())?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Lets all go. The highest generation of any of their ids.
    pub(crate) fn end(&self) -> u32 {
        let slots = self.open.lock().take();
        slots.map_or(0, |slots| slots.highest_generation())
    }
}
