//! Why hosts do not fit, in the numbers of the header.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument covers a list of like calls"
)]

use std::ptr::{null, null_mut};

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

pub(crate) fn need(profile: u32) -> PrNeed {
    PrNeed {
        profile,
        replicas: 1,
        at_ms: 0,
    }
}

impl Caller {
    pub(crate) fn explain(&self, txn: PrTxn, need: PrNeed, host: u32) -> Vec<PrWhy> {
        let (mut causes, mut count) = (Vec::with_capacity(16), 0);
        // SAFETY: live locals, and room for 16.
        let code = unsafe {
            let at: *mut PrWhy = causes.as_mut_ptr();
            (self.api.explain)(txn, &raw const need, host, at, 16, &raw mut count)
        };
        assert_eq!(code, PR_OK, "{}", last_error());
        // SAFETY: the call wrote `count` elements, no more than there is room for.
        unsafe { causes.set_len(count as usize) };
        causes
    }

    pub(crate) fn summary<const N: usize>(
        &self,
        txn: PrTxn,
        need: PrNeed,
        cand: Option<u64>,
    ) -> [u32; N] {
        let mut hosts = [9; N];
        let n = u32::try_from(N).unwrap();
        let words = cand.as_ref().map_or(null(), std::ptr::from_ref);
        let nwords = u32::from(cand.is_some());
        // SAFETY: live locals, one word or none, and room for `n`.
        let code = unsafe {
            let at = hosts.as_mut_ptr();
            (self.api.explain_all)(txn, &raw const need, words, nwords, at, n)
        };
        assert_eq!(code, PR_OK, "{}", last_error());
        hosts
    }

    pub(crate) fn held(&self, txn: PrTxn, host: u32, cap: u32) -> Vec<PrHeld> {
        let (mut all, mut cursor) = (Vec::new(), 0);
        loop {
            let (mut piece, mut n) = (Vec::<PrHeld>::with_capacity(16), 0);
            // SAFETY: live locals, and room for at least `cap`.
            let code = unsafe {
                let at = piece.as_mut_ptr();
                (self.api.holders)(txn, host, &raw mut cursor, at, cap, &raw mut n)
            };
            assert_eq!(code, PR_OK, "{}", last_error());
            if n == 0 {
                return all;
            }
            assert!(n <= cap);
            // SAFETY: the call wrote `n` elements, no more than there is room for.
            unsafe { piece.set_len(n as usize) };
            all.append(&mut piece);
        }
    }
}

/// A host on which "any" finds 500 to 502, and 600 is never given.
fn small() -> PrHost {
    static DYNAMIC: [PrRange; 1] = [PrRange { lo: 500, hi: 502 }];
    static RESERVED: [PrRange; 1] = [PrRange { lo: 600, hi: 601 }];
    static FIXED: [PrRange; 1] = [PrRange { lo: 400, hi: 9000 }];
    PrHost {
        dynamic: DYNAMIC.as_ptr(),
        n_dynamic: 1,
        reserved: RESERVED.as_ptr(),
        n_reserved: 1,
        fixed: FIXED.as_ptr(),
        n_fixed: 1,
        ..host(0, "n1")
    }
}

#[test]
fn every_cause_comes_with_its_port_and_its_values() {
    // abi 18
    let caller = Caller::new();
    assert_eq!(caller.put(&[small()]), PR_OK);
    let mine = caller.profile("web.alice", &[fixed("http", 8080)]);
    let (held, _) = caller.hold(want(1, 7, mine, 0));
    let theirs = caller.profile("web.bob", &[any("a"), fixed("b", 8080)]);
    let reserved = caller.profile("r.bob", &[fixed("a", 600)]);
    let outside = caller.profile("o.bob", &[fixed("a", 9999)]);
    let block = PrPort {
        count: 4,
        proto: PR_UDP,
        ..any("rpc")
    };
    let block = caller.profile("b.bob", &[block]);
    let four = caller.profile("f.bob", &[any("a"), any("b"), any("c"), any("d")]);
    let one = |txn, profile| {
        let causes = caller.explain(txn, need(profile), 0);
        assert_eq!(causes.len(), 1, "{causes:?}");
        causes[0]
    };
    let txn = caller.begin(0);
    assert!(caller.explain(txn, need(mine), 1).is_empty());
    let why = one(txn, theirs);
    assert_eq!((why.reason, why.holder, why.item), (PR_R_HELD, held, 1));
    assert_eq!((why.port, why.proto, why.zero), (8080, PR_TCP, 0));
    assert_eq!(one(txn, reserved).reason, PR_R_RESERVED);
    assert_eq!(one(txn, outside).reason, PR_R_NOT_IN_POOL);
    let why = one(txn, block);
    assert_eq!(
        (why.reason, why.want, why.proto),
        (PR_R_NO_BLOCK, 4, PR_UDP)
    );
    assert_eq!((why.port, why.holder), (0, 0));
    let few = caller.explain(txn, need(four), 0);
    assert!(!few.is_empty());
    assert_eq!(
        (few[0].reason, few[0].have, few[0].want),
        (PR_R_TOO_FEW, 3, 4)
    );
    let nowhere = caller.explain(txn, need(mine), 77);
    assert_eq!(
        (nowhere[0].reason, nowhere[0].item),
        (PR_R_UNKNOWN_HOST, PR_ANY)
    );
    assert_eq!(caller.commit(txn), PR_OK);
    assert_eq!(caller.release_begin(held), PR_OK);
    let txn = caller.begin(0);
    let why = one(txn, theirs);
    assert_eq!((why.reason, why.holder), (PR_R_RELEASING, held));
    assert_eq!(caller.commit(txn), PR_OK);
    assert_eq!(caller.release_confirm(held, 1000), PR_OK);
    let txn = caller.begin(2000);
    let why = one(txn, theirs);
    assert_eq!((why.reason, why.retry_ms), (PR_R_COOLING, 59_000));
    // A later moment is asked about in the same way.
    let later = PrNeed {
        at_ms: 61_000,
        ..need(theirs)
    };
    assert!(caller.explain(txn, later, 0).is_empty());
    assert_eq!(caller.commit(txn), PR_OK);
    assert_eq!(caller.host_state(0, PR_HOST_LOST), PR_OK);
    let txn = caller.begin(2000);
    let causes = caller.explain(txn, need(theirs), 0);
    let reasons: Vec<u32> = causes.iter().map(|why| why.reason).collect();
    assert_eq!(reasons, [PR_R_LOST, PR_R_COOLING]);
    assert_eq!((causes[0].item, causes[0].proto), (PR_ANY, 0));
}

#[test]
fn reasons_are_summed_over_hosts_and_what_has_no_entry_goes_to_the_last() {
    let caller = Caller::new();
    assert_eq!(caller.put(&[host(5, "n6")]), PR_OK);
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    caller.hold(want(1, 0, web, 0));
    assert_eq!(caller.host_state(1, PR_HOST_DRAINED), PR_OK);
    let txn = caller.begin(0);
    let all: [u32; 16] = caller.summary(txn, need(web), None);
    let mut expected = [0; 16];
    expected[PR_R_HELD as usize] = 1;
    expected[PR_R_DRAINED as usize] = 1;
    assert_eq!(all, expected);
    assert_eq!(caller.summary::<3>(txn, need(web), None), [0, 1, 1]);
    assert_eq!(caller.summary::<1>(txn, need(web), None), [2]);
    assert_eq!(caller.summary::<0>(txn, need(web), None), [0; 0]);
    assert_eq!(caller.summary::<2>(txn, need(web), Some(1)), [0, 1]);
    // A gap among the hosts is unknown; what is past the last one is not asked about.
    expected[PR_R_UNKNOWN_HOST as usize] = 3;
    assert_eq!(
        caller.summary::<16>(txn, need(web), Some(u64::MAX)),
        expected
    );
    // In a what-if it is as if it were so.
    assert_eq!(caller.abort(txn), PR_OK);
    let txn = caller.try_begin(PR_TXN_WHATIF, 0).unwrap();
    assert_eq!(caller.reserve(txn, want(2, 0, web, 5)).0, PR_OK);
    assert_eq!(caller.summary::<2>(txn, need(web), None), [0, 3]);
}

#[test]
fn the_numbers_of_a_host_are_listed_in_pieces_with_their_state() {
    let caller = Caller::new();
    assert_eq!(caller.put(&[small()]), PR_OK);
    let web = caller.profile("web.alice", &[any("http")]);
    let dns = PrPort {
        proto: PR_TCP_UDP,
        ..fixed("dns", 5353)
    };
    let dns = caller.profile("dns.alice", &[dns]);
    let (first, _) = caller.hold(want(1, 3, web, 0));
    let (second, _) = caller.hold(want(2, 4, dns, 0));
    let (third, _) = caller.hold(want(3, 5, web, 0));
    assert_eq!(caller.release_confirm(first, 1000), PR_OK);
    assert_eq!(caller.release_begin(third), PR_OK);
    let txn = caller.begin(2000);
    assert_eq!(caller.reserve(txn, want(4, 6, web, 0)).0, PR_OK);
    for cap in [1, 2, 16] {
        let all = caller.held(txn, 0, cap);
        let told: Vec<_> = all
            .iter()
            .map(|it| {
                (
                    it.lo, it.hi, it.proto, it.state, it.id, it.replica, it.left_ms,
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                (500, 500, PR_TCP, PR_P_COOLING, 0, PR_ANY, 59_000),
                (501, 501, PR_TCP, PR_P_RELEASING, third, 5, 0),
                (600, 601, PR_TCP_UDP, PR_P_RESERVED, 0, PR_ANY, 0),
                (5353, 5353, PR_TCP_UDP, PR_P_HELD, second, 4, 0),
            ]
        );
    }
    assert!(caller.held(txn, 1, 1).is_empty());
}

#[test]
fn wrong_questions_are_refused_and_write_nothing() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    caller.hold(want(1, 0, web, 0));
    let txn = caller.begin(0);
    let (known, unknown) = (need(web), need(99));
    let (mut count, mut cursor, mut n, mut word) = (7, 0, 7, [1_u64]);
    let mut hosts = [9; 2];
    let api = caller.api;
    // SAFETY: null, or live locals of the length said; beyond the limit nothing is read.
    let codes = unsafe {
        let (known, unknown) = (&raw const known, &raw const unknown);
        let (count, cursor, n) = (&raw mut count, &raw mut cursor, &raw mut n);
        let (words, hosts) = (word.as_mut_ptr(), hosts.as_mut_ptr());
        [
            (api.explain)(txn, null(), 0, null_mut(), 0, count),
            (api.explain)(txn, known, 0, null_mut(), 1, count),
            (api.explain)(txn, known, 0, null_mut(), 0, null_mut()),
            (api.explain)(txn, unknown, 0, null_mut(), 0, count),
            (api.explain)(txn + 1, known, 0, null_mut(), 0, count),
            (api.explain_all)(txn, null(), null(), 0, hosts, 2),
            (api.explain_all)(txn, known, null(), 0, null_mut(), 2),
            (api.explain_all)(txn, unknown, null(), 0, hosts, 2),
            (api.explain_all)(txn, known, words, u32::MAX, hosts, 2),
            (api.explain_all)(txn, known, null(), u32::MAX, hosts, 2),
            (api.explain_all)(txn, known, null(), 0, hosts, u32::MAX),
            (api.holders)(txn, 0, null_mut(), null_mut(), 0, n),
            (api.holders)(txn, 0, cursor, null_mut(), 1, n),
            (api.holders)(txn, 0, cursor, null_mut(), 0, null_mut()),
            (api.holders)(txn, 0, cursor, null_mut(), 0, n),
            (api.holders)(txn, 77, cursor, null_mut(), 0, n),
        ]
    };
    assert_eq!(
        codes,
        [
            PR_EINVAL, PR_EINVAL, PR_EINVAL, PR_ENOENT, PR_ESTALE, PR_EINVAL, PR_EINVAL, PR_ENOENT,
            PR_ELIMIT, PR_ELIMIT, PR_ELIMIT, PR_EINVAL, PR_EINVAL, PR_EINVAL, PR_ENOSPC, PR_ENOENT,
        ]
    );
    assert_eq!((count, cursor, n, hosts), (7, 0, 7, [9; 2]));
    // Only how much is needed is told where the room is too small.
    // SAFETY: live locals, and no room.
    let code = unsafe {
        let count = &raw mut count;
        (api.explain)(txn, &raw const known, 0, null_mut(), 0, count)
    };
    assert_eq!((code, count), (PR_ENOSPC, 1));
}

#[test]
fn the_counters_say_what_there_is_and_what_happened() {
    let caller = Caller::new();
    let stats = || {
        // SAFETY: all zeros are counters.
        let mut stats: PrStats = unsafe { std::mem::zeroed() };
        stats.size = size(&stats);
        // SAFETY: the struct has the size it says.
        let code = unsafe { (caller.api.stats)(caller.ctx, &raw mut stats) };
        assert_eq!(code, PR_OK, "{}", last_error());
        stats
    };
    let web = caller.profile("web.alice", &[any("http"), any("rpc")]);
    let before = stats();
    assert_eq!((before.hosts, before.allocs, before.ports_used), (2, 0, 0));
    assert_eq!(before.ports_total, 2 * 12_768);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    let (other, _) = caller.hold(want(2, 0, web, 1));
    let txn = caller.begin(0);
    assert_eq!(caller.try_begin(0, 0), Err(PR_EBUSY));
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.abort(txn), PR_ESTALE);
    let txn = caller.try_begin(PR_TXN_WHATIF, 0).unwrap();
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.release_confirm(id, 10), PR_OK);
    let queued = stats();
    assert_eq!(
        (queued.queued, queued.ports_cooling, queued.allocs),
        (1, 0, 2)
    );
    caller.pump(10);
    let after = stats();
    assert_eq!((after.queued, after.ports_cooling, after.allocs), (0, 2, 1));
    assert_eq!((after.ports_used, after.commits, after.aborts), (2, 2, 1));
    assert_eq!((after.busy, after.stale, after.poisoned), (1, 1, 0));
    assert_eq!(caller.release_begin(other), PR_OK);
}

#[test]
fn counters_fill_as_much_as_the_caller_has_room_for() {
    let caller = Caller::new();
    let mut room = [u64::MAX; 32];
    let mut get = |size: u64| {
        room.fill(0);
        room[0] = size;
        room[31] = u64::from(size == 256);
        // SAFETY: at least `size` bytes, or a size that is refused before more is read.
        let code = unsafe { (caller.api.stats)(caller.ctx, room.as_mut_ptr().cast()) };
        let sizes = room[0] & u64::from(u32::MAX);
        (
            code,
            sizes,
            room[1],
            room[2..].iter().all(|word| *word == 0),
        )
    };
    let ours = size_of::<PrStats>() as u64;
    for wrong in [0, 4, 12, 4104] {
        assert_eq!(get(wrong).0, PR_EINVAL, "{wrong}");
    }
    assert_eq!(get(8), (PR_OK, ours, 0, true));
    assert_eq!(get(16), (PR_OK, ours, 2, true));
    assert_eq!(get(248).0, PR_OK);
    assert_eq!(get(256), (PR_E2BIG, 256, 0, false));
    // SAFETY: null is one of the things that may be passed.
    let code = unsafe { (caller.api.stats)(caller.ctx, null_mut()) };
    assert_eq!(code, PR_EINVAL);
}
