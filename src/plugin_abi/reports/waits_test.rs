//! Who waits, strangers, and what ends with its host, its job or its profile.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument covers a list of like calls"
)]

use std::ptr::{null, null_mut};

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

impl Caller {
    pub(crate) fn wait(&self, wants: &[PrWant]) -> (i32, Vec<i32>) {
        let mut codes = vec![9; wants.len()];
        let n = u32::try_from(wants.len()).unwrap();
        // SAFETY: live arrays of the length said.
        let code = unsafe { (self.api.wait_put)(self.ctx, wants.as_ptr(), n, codes.as_mut_ptr()) };
        (code, codes)
    }

    fn wait_drop(&self, want: PrWant) -> i32 {
        // SAFETY: one live element.
        unsafe { (self.api.wait_drop)(self.ctx, &raw const want, 1, null_mut()) }
    }

    /// The jobs that are told, and the flags.
    fn woken(&self, cap: u32) -> (Vec<u64>, u32) {
        let mut wants = vec![want(0, 0, 0, 0); cap as usize];
        let (mut n, mut flags) = (9, 9);
        // SAFETY: live locals, and room for `cap`.
        let code = unsafe {
            let at = wants.as_mut_ptr();
            (self.api.wait_next)(self.ctx, at, cap, &raw mut n, &raw mut flags)
        };
        assert_eq!(code, PR_OK, "{}", last_error());
        wants.truncate(n as usize);
        (wants.iter().map(|want| want.job).collect(), flags)
    }

    pub(crate) fn foreign(&self, host: u32, seq: u64, list: &[PrForeign]) -> i32 {
        let n = u32::try_from(list.len()).unwrap();
        // SAFETY: a live array of the length said.
        unsafe { (self.api.report_foreign)(self.ctx, host, seq, list.as_ptr(), n) }
    }

    /// What a reserve on a host would be answered.
    fn tried(&self, now_ms: u64, want: PrWant) -> (i32, u32) {
        let txn = self.begin(now_ms);
        let (code, grant, _) = self.reserve(txn, want);
        assert_eq!(self.abort(txn), PR_OK);
        (code, grant.reason)
    }
}

pub(crate) fn listener(lo: u16, hi: u16, proto: u32) -> PrForeign {
    let mut comm = [0; 16];
    for (to, from) in comm.iter_mut().zip(b"nginx") {
        *to = from.cast_signed();
    }
    PrForeign {
        lo,
        hi,
        proto,
        pid: 811,
        flags: 0,
        comm,
    }
}

#[test]
fn who_waits_longest_is_told_when_there_is_room_and_a_commit_ends_its_wait() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    caller.hold(want(1, 1, web, 1));
    let (older, younger) = (want(9, 0, web, 0), want(2, 0, web, PR_ANY));
    let third = want(3, 0, web, 0);
    assert_eq!(
        caller.wait(&[older, younger, third]),
        (PR_OK, vec![PR_OK; 3])
    );
    caller.pump(0);
    assert_eq!(caller.woken(4), (vec![], 0));
    assert_eq!(caller.release_confirm(id, 10), PR_OK);
    caller.pump(10);
    // One free number wakes one.
    assert_eq!(caller.woken(0), (vec![], PR_MORE));
    assert_eq!(caller.woken(4), (vec![9], 0));
    caller.pump(10);
    assert_eq!(caller.woken(4), (vec![], 0));
    let (id, _) = caller.hold(older);
    assert_eq!(caller.wait_drop(older), PR_ENOENT);
    assert_eq!(caller.wait(&[older]).0, PR_EEXIST);
    caller.pump(10);
    assert_eq!(caller.woken(4), (vec![], 0));
    assert_eq!(caller.wait_drop(younger), PR_OK);
    assert_eq!(caller.release_confirm(id, 20), PR_OK);
    caller.pump(20);
    assert_eq!(caller.woken(4), (vec![3], 0));
    assert_eq!(caller.wait_drop(third), PR_OK);
}

#[test]
fn who_says_late_that_it_waits_is_told_what_came_free_before() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    caller.pump(0);
    assert_eq!(
        caller
            .wait(&[want(1, 0, web, PR_ANY), want(2, 0, web, 1)])
            .0,
        PR_OK
    );
    caller.pump(0);
    assert_eq!(caller.woken(1), (vec![1], PR_MORE));
    // Who is told later and waits no more is not told.
    assert_eq!(caller.wait_drop(want(2, 0, web, 1)), PR_OK);
    assert_eq!(caller.woken(1), (vec![], 0));
}

#[test]
fn the_numbers_of_who_waits_are_left_alone_by_any_and_a_rollback_keeps_its_wait() {
    let caller = Caller::new();
    let low = caller.profile("low.alice", &[fixed("http", 20_000)]);
    let web = caller.profile("web.alice", &[any("http")]);
    let waiting = want(1, 0, low, PR_ANY);
    let txn = caller.begin(0);
    assert_eq!(caller.wait(&[waiting]).0, PR_OK);
    // In effect from the next one on.
    assert_eq!(caller.reserve(txn, want(2, 0, web, 0)).2, [20_000]);
    assert_eq!(caller.abort(txn), PR_OK);
    let txn = caller.begin(0);
    assert_eq!(caller.reserve(txn, want(2, 0, web, 0)).2, [20_001]);
    let here = PrWant { host: 0, ..waiting };
    assert_eq!(caller.reserve(txn, here).2, [20_000]);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.wait_drop(waiting), PR_OK);
    let txn = caller.begin(0);
    assert_eq!(caller.reserve(txn, want(2, 0, web, 0)).2, [20_000]);
    assert_eq!(caller.abort(txn), PR_OK);
}

#[test]
fn waits_are_bounded_and_wrong_ones_refused() {
    let caller = Caller::with(&PrConfig {
        max_waits: 2,
        ..config()
    });
    assert_eq!(caller.put(&[host(0, "n1")]), PR_OK);
    let web = caller.profile("web.alice", &[any("http")]);
    let flagged = PrWant {
        flags: 2,
        ..want(1, 0, web, 0)
    };
    assert_eq!(
        caller.wait(&[want(1, 0, 99, 0), want(1, 0, web, 77)]),
        (PR_ENOENT, vec![PR_ENOENT; 2])
    );
    assert_eq!(caller.wait(&[flagged]).0, PR_EINVAL);
    assert_eq!(
        caller.wait(&[want(1, 0, web, 0), want(2, 0, web, 0)]).0,
        PR_OK
    );
    assert_eq!(caller.wait(&[want(3, 0, web, 0)]).0, PR_ELIMIT);
    assert_eq!(caller.wait(&[want(2, 0, web, PR_ANY)]).0, PR_OK);
    assert_eq!(caller.wait(&[flagged; 3]).0, PR_ELIMIT);
    // SAFETY: null, and no element or no room.
    let codes = unsafe {
        let (api, ctx) = (caller.api, caller.ctx);
        let (mut n, mut flags) = (0, 0);
        [
            (api.wait_put)(ctx, null(), 1, null_mut()),
            (api.wait_put)(ctx, null(), 0, null_mut()),
            (api.wait_drop)(ctx, null(), 1, null_mut()),
            (api.wait_next)(ctx, null_mut(), 1, &raw mut n, &raw mut flags),
            (api.wait_next)(ctx, null_mut(), 0, null_mut(), &raw mut flags),
            (api.wait_next)(ctx, null_mut(), 0, &raw mut n, null_mut()),
        ]
    };
    let wrong = PR_EINVAL;
    assert_eq!(codes, [wrong, PR_OK, wrong, wrong, wrong, wrong]);
}

#[test]
fn numbers_of_strangers_are_given_to_nobody_until_a_newer_list_leaves_them_out() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let asked = want(1, 0, web, 0);
    let list = [listener(8000, 8090, PR_TCP), listener(53, 53, PR_UDP)];
    assert_eq!(caller.foreign(0, 1, &list), PR_OK);
    assert_eq!(caller.tried(0, asked), (PR_ENOPORT, PR_R_FOREIGN));
    assert_eq!(caller.tried(0, want(1, 0, web, 1)).0, PR_OK);
    assert_eq!(caller.foreign(0, 1, &[]), PR_ESTALE);
    assert_eq!(caller.foreign(77, 1, &[]), PR_ENOENT);
    let refused = |list: &[PrForeign], code| assert_eq!(caller.foreign(0, 2, list), code);
    refused(&[listener(9, 8, PR_TCP)], PR_EINVAL);
    refused(&[listener(0, 8, PR_TCP)], PR_EINVAL);
    refused(&[listener(1, 8, 0)], PR_EINVAL);
    refused(&[listener(1, u16::MAX, PR_TCP); 3], PR_ELIMIT);
    let flagged = PrForeign {
        flags: 1,
        ..listener(1, 2, PR_TCP)
    };
    refused(&[flagged], PR_EINVAL);
    assert_eq!(caller.tried(0, asked), (PR_ENOPORT, PR_R_FOREIGN));
    // A list that comes during a transaction is seen by the next one.
    let txn = caller.begin(0);
    assert_eq!(caller.foreign(0, 2, &[]), PR_OK);
    assert_eq!(caller.reserve(txn, asked).0, PR_ENOPORT);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.tried(0, asked).0, PR_OK);
}

#[test]
fn a_refused_bind_makes_a_number_foreign_for_a_while() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let fix = caller.profile("fix.bob", &[fixed("http", 20_000)]);
    let (id, ports) = caller.hold(want(1, 0, web, 0));
    assert_eq!(ports, [20_000]);
    let conflict = |id, port, proto| {
        // SAFETY: no pointer is passed.
        unsafe { (caller.api.report_conflict)(caller.ctx, id, port, proto, 811) }
    };
    for (port, proto) in [
        (20_001, PR_TCP),
        (20_000, PR_UDP),
        (20_000, PR_TCP_UDP),
        (0, PR_TCP),
    ] {
        assert_eq!(conflict(id, port, proto), PR_ENOENT, "{port} {proto}");
    }
    assert_eq!(conflict(id, 20_000, 0), PR_EINVAL);
    assert_eq!(conflict(0, 20_000, PR_TCP), PR_ESTALE);
    let txn = caller.begin(1000);
    let (_, open, _) = caller.reserve(txn, want(2, 0, web, 0));
    assert_eq!(conflict(open.id, 20_001, PR_TCP), PR_ESTATE);
    assert_eq!(conflict(id, 20_000, PR_TCP), PR_OK);
    assert_eq!(caller.abort(txn), PR_OK);
    // SAFETY: one live id.
    let code = unsafe {
        let ids = &raw const id;
        (caller.api.release_confirm)(caller.ctx, ids, 1, PR_REL_NO_COOL, 1000, null_mut())
    };
    assert_eq!(code, PR_OK);
    assert_eq!(
        caller.tried(1000, want(3, 0, fix, 0)),
        (PR_ENOPORT, PR_R_FOREIGN)
    );
    assert_eq!(
        caller.tried(60_999, want(3, 0, fix, 0)),
        (PR_ENOPORT, PR_R_FOREIGN)
    );
    assert_eq!(caller.tried(61_000, want(3, 0, fix, 0)).0, PR_OK);
}

#[test]
fn a_host_is_removed_when_nothing_is_held_there_or_with_what_is_held() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    caller.address(0, 1, 1);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    caller.report(id, 1, 1, PR_E_READY);
    assert_eq!(caller.listed("web.alice"), 1);
    // SAFETY: no pointer is passed.
    let remove = |host, flags| unsafe { (caller.api.host_remove)(caller.ctx, host, flags) };
    assert_eq!(remove(77, 0), PR_ENOENT);
    assert_eq!(remove(0, 2), PR_EINVAL);
    assert_eq!(remove(0, 0), PR_EBUSY);
    let txn = caller.begin(0);
    assert_eq!(remove(1, 0), PR_EBUSY);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(remove(1, 0), PR_OK);
    assert_eq!(remove(1, 0), PR_ENOENT);
    assert_eq!(caller.release_begin(id), PR_OK);
    assert_eq!(remove(0, PR_REMOVE_FORCE), PR_OK);
    assert_eq!(caller.release_confirm(id, 10), PR_ESTALE);
    assert_eq!(caller.listed("web.alice"), 0);
    assert_eq!(caller.host_state(0, PR_HOST_UP), PR_ENOENT);
    caller.pump(10);
    assert_eq!(caller.put(&[host(0, "n1")]), PR_OK);
    assert_eq!(caller.hold(want(1, 0, web, 0)).1, [20_000]);
}

#[test]
fn a_job_is_released_whole_or_by_step() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let step = |step, replica| PrWant {
        step,
        ..want(5, replica, web, 0)
    };
    let ids = [step(0, 0), step(0, 1), step(3, 0), want(6, 0, web, 0)].map(|it| caller.hold(it).0);
    let release = |step, confirm| {
        let mut done = 9;
        // SAFETY: a live local.
        let code = unsafe {
            let done = &raw mut done;
            (caller.api.release_job)(caller.ctx, 5, step, confirm, 10, done)
        };
        (code, done)
    };
    assert_eq!(release(0, 0), (PR_OK, 2));
    assert_eq!(release(0, 0), (PR_OK, 0));
    assert_eq!(release(PR_ANY, 0), (PR_OK, 1));
    assert_eq!(release(PR_ANY, 2), (PR_EINVAL, 9));
    let txn = caller.begin(10);
    assert_eq!(caller.reserve(txn, step(4, 0)).0, PR_OK);
    assert_eq!(release(PR_ANY, 1), (PR_OK, 3));
    assert_eq!(caller.commit(txn), PR_OK);
    assert_eq!(release(PR_ANY, 1), (PR_OK, 1));
    assert_eq!(caller.release_begin(ids[0]), PR_ESTALE);
    assert_eq!(caller.release_begin(ids[3]), PR_OK);
}

#[test]
fn a_dropped_profile_takes_no_new_asks_and_keeps_its_grants() {
    let caller = Caller::with(&PrConfig {
        max_profiles: 1,
        ..config()
    });
    assert_eq!(caller.put(&[host(0, "n1")]), PR_OK);
    let web = caller.profile("web.alice", &[any("http")]);
    assert_eq!(
        caller.try_profile("db.alice", &[any("sql")]),
        Err(PR_ELIMIT)
    );
    let (id, ports) = caller.hold(want(1, 0, web, 0));
    // SAFETY: no pointer is passed.
    let drop_it = |id| unsafe { (caller.api.profile_drop)(caller.ctx, id) };
    assert_eq!(drop_it(99), PR_ENOENT);
    let txn = caller.begin(0);
    assert_eq!(drop_it(web), PR_EBUSY);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(drop_it(web), PR_OK);
    assert_eq!(drop_it(web), PR_ENOENT);
    assert_eq!(caller.tried(0, want(2, 0, web, 0)).0, PR_ENOENT);
    assert_eq!(caller.wait(&[want(2, 0, web, 0)]).0, PR_ENOENT);
    let txn = caller.begin(0);
    let (code, again, same) = caller.reserve(txn, want(1, 0, web, 0));
    assert_eq!((code, again.id, &same), (PR_EEXIST, id, &ports));
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.env(id).len(), 7);
    assert_eq!(ports, [20_000]);
    let next = caller.profile("db.alice", &[any("sql")]);
    assert_ne!(next, web);
    assert_eq!(caller.release_confirm(id, 10), PR_OK);
}
