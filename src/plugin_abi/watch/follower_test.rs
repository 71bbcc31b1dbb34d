//! A scheduler's own table, kept from what a watch tells; and the calls of readers, for tests.

use std::collections::BTreeMap;
use std::ptr::null_mut;

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

/// A watch as its scheduler keeps it.
#[derive(Debug)]
pub(in crate::plugin_abi) struct Follower {
    pub(in crate::plugin_abi) id: PrWatch,
    pub(in crate::plugin_abi) fd: i32,
    pub(in crate::plugin_abi) service: Option<&'static str>,
    /// By id and name of the port.
    pub(in crate::plugin_abi) table: BTreeMap<(PrAlloc, u32), Row>,
    pub(in crate::plugin_abi) resets: u32,
    pub(in crate::plugin_abi) newest: u64,
}

/// An endpoint without what watches do not tell: how old our knowledge is.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::plugin_abi) struct Row {
    pub(in crate::plugin_abi) service: u32,
    pub(in crate::plugin_abi) address: ([u8; 16], u16, u32),
    pub(in crate::plugin_abi) state: u32,
    pub(in crate::plugin_abi) host: u32,
    pub(in crate::plugin_abi) revision: u64,
}

pub(in crate::plugin_abi) fn row(ep: &PrEndpoint) -> ((PrAlloc, u32), Row) {
    let state = match ep.state {
        PR_E_UNCONFIRMED => PR_E_READY,
        told => told,
    };
    let row = Row {
        service: ep.service,
        address: (ep.ip, ep.port, ep.family),
        state,
        host: ep.host,
        revision: ep.revision,
    };
    ((ep.id, ep.name), row)
}

pub(in crate::plugin_abi) fn is_readable(fd: i32) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live element.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
}

pub(in crate::plugin_abi) fn named(service: Option<&str>) -> PrStr {
    service.map_or(ABSENT, text)
}

impl Caller {
    pub(in crate::plugin_abi) fn try_watch(
        &self,
        service: Option<&str>,
        since: u64,
    ) -> Result<(PrWatch, i32), i32> {
        let (mut id, mut fd) = (0, -1);
        // SAFETY: live locals.
        let code = unsafe {
            (self.api.watch_open)(self.ctx, named(service), since, &raw mut id, &raw mut fd)
        };
        if code == PR_OK {
            Ok((id, fd))
        } else {
            assert_eq!((id, fd), (0, -1));
            Err(code)
        }
    }

    pub(in crate::plugin_abi) fn watch(
        &self,
        service: Option<&'static str>,
        since: u64,
    ) -> Follower {
        let (id, fd) = self.try_watch(service, since).unwrap();
        Follower {
            id,
            fd,
            service,
            table: BTreeMap::new(),
            resets: 0,
            newest: 0,
        }
    }

    pub(in crate::plugin_abi) fn next(
        &self,
        id: PrWatch,
        cap: u32,
    ) -> Result<(Vec<PrChange>, u32), i32> {
        let mut changes = Vec::with_capacity(cap as usize);
        let (mut n, mut flags) = (u32::MAX, u32::MAX);
        let room = if cap == 0 {
            null_mut()
        } else {
            changes.as_mut_ptr()
        };
        // SAFETY: room for `cap` elements, and live locals.
        match unsafe { (self.api.watch_next)(id, room, cap, &raw mut n, &raw mut flags) } {
            PR_OK => {
                assert!(n <= cap);
                // SAFETY: the call wrote `n` elements.
                unsafe { changes.set_len(n as usize) };
                Ok((changes, flags))
            }
            code => Err(code),
        }
    }

    pub(in crate::plugin_abi) fn close(&self, id: PrWatch) -> i32 {
        // SAFETY: no pointer is passed.
        unsafe { (self.api.watch_close)(id) }
    }

    pub(in crate::plugin_abi) fn try_snap(
        &self,
        service: Option<&str>,
    ) -> Result<(PrSnap, u64, u32), i32> {
        let (mut id, mut revision, mut count) = (0, 0, 0);
        // SAFETY: live locals.
        let code = unsafe {
            (self.api.snap_open)(
                self.ctx,
                named(service),
                &raw mut id,
                &raw mut revision,
                &raw mut count,
            )
        };
        if code == PR_OK {
            Ok((id, revision, count))
        } else {
            Err(code)
        }
    }

    pub(in crate::plugin_abi) fn snap_read(
        &self,
        id: PrSnap,
        from: u32,
        cap: u32,
    ) -> Result<Vec<PrEndpoint>, i32> {
        let mut rows = Vec::with_capacity(cap as usize);
        let mut n = u32::MAX;
        let room = if cap == 0 {
            null_mut()
        } else {
            rows.as_mut_ptr()
        };
        // SAFETY: room for `cap` elements, and a live local.
        match unsafe { (self.api.snap_read)(id, from, room, cap, &raw mut n) } {
            PR_OK => {
                assert!(n <= cap);
                // SAFETY: the call wrote `n` elements.
                unsafe { rows.set_len(n as usize) };
                Ok(rows)
            }
            code => Err(code),
        }
    }

    pub(in crate::plugin_abi) fn snap_close(&self, id: PrSnap) -> i32 {
        // SAFETY: no pointer is passed.
        unsafe { (self.api.snap_close)(id) }
    }

    /// Every row of a service, or of all, in pieces of `cap`, and the revision.
    pub(in crate::plugin_abi) fn snapshot(
        &self,
        service: Option<&str>,
        cap: u32,
    ) -> Option<(Vec<PrEndpoint>, u64)> {
        let (id, revision, count) = match self.try_snap(service) {
            Err(PR_ENOENT) => return None,
            opened => opened.unwrap(),
        };
        let mut all = Vec::new();
        loop {
            let from = u32::try_from(all.len()).unwrap();
            let piece = self.snap_read(id, from, cap).unwrap();
            if piece.is_empty() {
                break;
            }
            all.extend(piece);
        }
        assert_eq!(all.len(), count as usize);
        assert_eq!(self.snap_close(id), PR_OK);
        Some((all, revision))
    }

    pub(in crate::plugin_abi) fn drop_profile(&self, id: u32) -> i32 {
        // SAFETY: no pointer is passed.
        unsafe { (self.api.profile_drop)(self.ctx, id) }
    }

    pub(in crate::plugin_abi) fn stats(&self) -> PrStats {
        // SAFETY: all zero is a value.
        let mut stats: PrStats = unsafe { std::mem::zeroed() };
        stats.size = size(&stats);
        // SAFETY: a live local of the size it says.
        let code = unsafe { (self.api.stats)(self.ctx, &raw mut stats) };
        assert_eq!(code, PR_OK);
        stats
    }
}

impl Follower {
    /// One look; whether there may be more.
    pub(in crate::plugin_abi) fn look(&mut self, caller: &Caller, cap: u32) -> bool {
        let (changes, flags) = caller.next(self.id, cap).unwrap();
        if flags & PR_RESET != 0 {
            assert!(changes.is_empty());
            self.resets += 1;
            self.newest = 0;
            self.fill(caller);
        }
        for change in changes {
            assert!(change.revision >= self.newest, "told out of order");
            self.newest = change.revision;
            let (key, row) = row(&change.ep);
            match change.kind {
                PR_CH_UPSERT => {
                    self.table.insert(key, row);
                }
                PR_CH_REMOVE => {
                    self.table.remove(&key);
                }
                PR_CH_SERVICE_GONE => {
                    let gone = row.service;
                    assert!(self.table.values().all(|row| row.service != gone));
                }
                kind => panic!("{kind} is no kind"),
            }
        }
        if flags & PR_MORE != 0 {
            assert!(is_readable(self.fd), "more, and silent");
        }
        flags & PR_MORE != 0
    }

    pub(in crate::plugin_abi) fn fill(&mut self, caller: &Caller) {
        self.table.clear();
        if let Some((rows, _)) = caller.snapshot(self.service, 2) {
            self.table.extend(rows.iter().map(row));
        }
    }

    /// Looks until it is silent.
    pub(in crate::plugin_abi) fn follow(&mut self, caller: &Caller, cap: u32) {
        while is_readable(self.fd) {
            self.look(caller, cap);
        }
    }

    /// What everybody sees now.
    pub(in crate::plugin_abi) fn check(&self, caller: &Caller, services: &[&'static str]) {
        let mut seen = BTreeMap::new();
        let services = services.iter().filter(|name| {
            let only = self.service;
            only.is_none_or(|only| only == **name)
        });
        for service in services {
            if let Some((rows, _)) = all_of(caller, service) {
                seen.extend(rows.iter().map(row));
            }
        }
        assert_eq!(self.table, seen, "of {:?}", self.service);
    }
}

pub(in crate::plugin_abi) fn all_of(
    caller: &Caller,
    service: &str,
) -> Option<(Vec<PrEndpoint>, u64)> {
    const MOST: u32 = 1024;
    let (mut need, mut revision) = (0, 0);
    let mut rows: Vec<PrEndpoint> = Vec::with_capacity(MOST as usize);
    // SAFETY: every pointer is to live memory of the length said.
    let code = unsafe {
        (caller.api.resolve)(
            caller.ctx,
            text(service),
            ABSENT,
            PR_RESOLVE_ALL,
            rows.as_mut_ptr(),
            MOST,
            &raw mut need,
            &raw mut revision,
        )
    };
    match code {
        PR_OK => {
            // SAFETY: the call wrote `need` elements, no more than there is room for.
            unsafe { rows.set_len(need as usize) };
            Some((rows, revision))
        }
        PR_ENOENT => None,
        code => panic!("{code}: {}", last_error()),
    }
}
