//! Sentences of the contract that are about several calls at once.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument covers a list of like calls"
)]

use super::caller_test::*;
use super::reports::waits_test::listener;
use super::watch::follower_test::is_readable;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

impl Caller {
    fn commit_no(&self, txn: PrTxn) -> u64 {
        let mut number = 0;
        // SAFETY: a live local.
        let code = unsafe { (self.api.commit)(txn, &raw mut number) };
        assert_eq!(code, PR_OK, "{}", last_error());
        number
    }

    /// A grant as a record, without its numbers.
    fn record(&self, id: PrAlloc) -> PrRec {
        // SAFETY: all zeros is a record.
        let mut record: PrRec = unsafe { std::mem::zeroed() };
        let (mut numbers, mut need) = ([0; 8], 0);
        let at = numbers.as_mut_ptr();
        // SAFETY: live locals, and room for 8.
        let code =
            unsafe { (self.api.grant_get)(self.ctx, id, &raw mut record, at, 8, &raw mut need) };
        assert_eq!(code, PR_OK, "{}", last_error());
        record
    }

    /// The jobs that fit, as pump found them.
    fn told(&self) -> Vec<u64> {
        let mut wants = [want(0, 0, 0, 0); 8];
        let (mut n, mut flags) = (0, 0);
        let at = wants.as_mut_ptr();
        // SAFETY: live locals, and room for 8.
        let code = unsafe { (self.api.wait_next)(self.ctx, at, 8, &raw mut n, &raw mut flags) };
        assert_eq!((code, flags), (PR_OK, 0));
        wants[..n as usize].iter().map(|want| want.job).collect()
    }

    /// Only these numbers are drawn on host 0.
    fn narrow(&self, lo: u16, hi: u16) {
        let range = PrRange { lo, hi };
        let host = PrHost {
            dynamic: &raw const range,
            n_dynamic: 1,
            ..host(0, "n1")
        };
        assert_eq!(self.put(&[host]), PR_OK);
    }
}

#[test]
fn a_watch_that_was_told_to_begin_anew_goes_on_with_what_comes_after() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    caller.pump(0);
    let mut seq = 0;
    let mut flip = || {
        seq += 1;
        let state = if seq % 2 == 0 {
            PR_E_READY
        } else {
            PR_E_SERVING
        };
        assert_eq!(caller.report(id, 1, seq, state), PR_OK);
        state
    };
    let behind = caller.try_watch(None, 0).unwrap();
    for _ in 0..16_384 + 300 {
        flip();
    }
    // One falls behind while it is open, the other asks to begin so.
    for (watch, fd) in [behind, caller.try_watch(None, PR_NEVER).unwrap()] {
        assert!(is_readable(fd));
        let (changes, flags) = caller.next(watch, 8).unwrap();
        assert_eq!((changes.len(), flags), (0, PR_RESET));
        assert!(!is_readable(fd));
        for _ in 0..3 {
            let state = flip();
            assert!(is_readable(fd));
            let (changes, flags) = caller.next(watch, 8).unwrap();
            assert_eq!((changes.len(), changes[0].ep.state, flags), (1, state, 0));
        }
        assert_eq!(caller.close(watch), PR_OK);
    }
}

#[test]
fn of_those_who_wait_for_alike_none_overtakes_an_older_one_that_does_not_fit_yet() {
    let caller = Caller::new();
    caller.narrow(20_000, 20_001);
    let pair = caller.profile("pair.alice", &[any("a"), any("b")]);
    let one = caller.profile("one.alice", &[any("a")]);
    let (first, _) = caller.hold(want(1, 0, one, 0));
    let (second, _) = caller.hold(want(2, 0, one, 0));
    assert_eq!(
        caller.wait(&[want(8, 0, pair, 0), want(9, 0, one, 0)]).0,
        PR_OK
    );
    caller.pump(0);
    assert!(caller.told().is_empty());
    // Room for the younger alone: nobody is told, so that the older one is not starved.
    assert_eq!(caller.release_confirm(first, 10), PR_OK);
    assert_eq!(caller.pump(10), 60_010);
    assert!(caller.told().is_empty());
    caller.pump(60_010);
    assert!(caller.told().is_empty());
    assert_eq!(caller.release_confirm(second, 60_020), PR_OK);
    caller.pump(60_020);
    caller.pump(120_020);
    assert_eq!(caller.told(), [8]);
}

#[test]
fn a_replica_that_prefers_its_former_numbers_gets_them_while_they_rest_for_it() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http"), any("rpc")]);
    let other = caller.profile("web.bob", &[any("http")]);
    let at = |incarnation, flags| PrWant {
        incarnation,
        flags,
        ..want(1, 0, web, 0)
    };
    let (id, former) = caller.hold(at(0, 0));
    assert_eq!(caller.release_confirm(id, 100), PR_OK);
    let tried = |want, now| {
        let txn = caller.begin(now);
        let (code, _, ports) = caller.reserve(txn, want);
        assert_eq!((code, caller.abort(txn)), (PR_OK, PR_OK));
        ports
    };
    assert_eq!(tried(at(1, PR_WANT_PREFER), 100), former);
    // Only who asks for it, on that host, as that replica.
    assert_ne!(tried(at(1, 0), 100), former);
    let elsewhere = PrWant {
        flags: PR_WANT_PREFER,
        ..want(1, 1, web, 0)
    };
    assert_ne!(tried(elsewhere, 100), former);
    // What somebody else has by then is no reason to refuse.
    caller.pump(200_000);
    let taken = caller.profile("fix.bob", &[fixed("http", former[0])]);
    let txn = caller.begin(200_000);
    assert_eq!(caller.reserve(txn, want(7, 0, taken, 0)).0, PR_OK);
    let (code, _, ports) = caller.reserve(txn, at(1, PR_WANT_PREFER));
    assert_eq!(code, PR_OK);
    assert!(!ports.contains(&former[0]), "{ports:?}");
    assert_eq!(caller.reserve(txn, want(8, 0, other, 0)).0, PR_OK);
    assert_eq!(caller.commit(txn), PR_OK);
}

#[test]
fn the_number_of_a_commit_counts_those_that_changed_something() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let empty = || caller.commit_no(caller.begin(0));
    assert_eq!(empty(), 0);
    caller.hold(want(1, 0, web, 0));
    assert_eq!((empty(), empty()), (1, 1));
    // The same key again changes nothing, nor does what was given back.
    let txn = caller.begin(0);
    assert_eq!(caller.reserve(txn, want(1, 0, web, 0)).0, PR_EEXIST);
    let mut mark = 0;
    // SAFETY: a live local, then no pointer.
    let back = unsafe {
        assert_eq!((caller.api.mark)(txn, &raw mut mark), PR_OK);
        assert_eq!(caller.reserve(txn, want(2, 0, web, 0)).0, PR_OK);
        (caller.api.rollback)(txn, mark)
    };
    assert_eq!(back, PR_OK);
    assert_eq!(caller.commit_no(txn), 1);
    let txn = caller.begin(0);
    assert_eq!(caller.reserve(txn, want(3, 0, web, 0)).0, PR_OK);
    assert_eq!(caller.abort(txn), PR_OK);
    caller.hold(want(4, 0, web, 0));
    assert_eq!(empty(), 2);
    assert_eq!(caller.stats().commits, 2);
}

#[test]
fn everything_about_a_grant_follows_its_host_to_another_index() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    caller.address(0, 7, 1);
    caller.address(1, 3, 2);
    assert_eq!(caller.put(&[host(0, "n2"), host(9, "n1")]), PR_OK);
    assert_eq!(caller.record(id).who.host, 9);
    // The order of reports and the address moved along.
    assert_eq!(caller.address(9, 7, 3), PR_ESTALE);
    assert_eq!(caller.address(0, 4, 2), PR_OK);
    let env = caller.env(id);
    assert!(
        env.contains(&"PORTREEVE_ADDR_HTTP=10.0.0.1:8080".to_owned()),
        "{env:?}"
    );
    let txn = caller.begin(0);
    let (code, again, _) = caller.reserve(txn, want(1, 0, web, 0));
    assert_eq!((code, again.id, again.host), (PR_EEXIST, id, 9));
    // Nobody stands at the index that it left.
    let (code, grant, _) = caller.reserve(txn, want(2, 0, web, 1));
    assert_eq!((code, grant.reason), (PR_ENOENT, PR_R_UNKNOWN_HOST));
    assert_eq!(caller.abort(txn), PR_OK);
}

#[test]
fn of_a_lost_host_endpoints_are_out_and_numbers_stay_held() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    caller.address(0, 1, 1);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    assert_eq!(caller.report(id, 1, 1, PR_E_READY), PR_OK);
    assert_eq!(caller.listed("web.alice"), 1);
    let refused = |expected| {
        let txn = caller.begin(0);
        let (code, grant, _) = caller.reserve(txn, want(2, 0, web, 0));
        assert_eq!((code, grant.reason), (PR_ENOPORT, expected));
        assert_eq!(caller.abort(txn), PR_OK);
    };
    assert_eq!(caller.host_state(0, PR_HOST_LOST), PR_OK);
    assert_eq!(caller.listed("web.alice"), 0);
    refused(PR_R_LOST);
    caller.pump(1_000_000);
    assert_eq!(caller.record(id).state, PR_P_HELD);
    assert_eq!(caller.stats().ports_used, 1);
    // It comes back, and nothing was lost.
    assert_eq!(caller.host_state(0, PR_HOST_UP), PR_OK);
    assert_eq!(caller.listed("web.alice"), 1);
    refused(PR_R_HELD);
}

#[test]
fn reports_that_repeat_themselves_while_a_transaction_is_open_do_not_pile_up() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    let txn = caller.begin(0);
    let one = want(2, 0, web, 0);
    let round = |seq: u64| {
        let state = [PR_HOST_LOST, PR_HOST_DRAINED][usize::from(seq.is_multiple_of(2))];
        assert_eq!(caller.host_state(0, state), PR_OK);
        let lo = 9000 + u16::try_from(seq % 50).unwrap();
        assert_eq!(
            caller.foreign(1, seq, &[listener(lo, lo + 9, PR_TCP)]),
            PR_OK
        );
        // SAFETY: no pointer is passed.
        let code = unsafe { (caller.api.report_conflict)(caller.ctx, id, 8080, PR_TCP, 7) };
        assert_eq!(code, PR_OK);
        assert_eq!(caller.wait(&[one, one]).0, PR_OK);
        if seq.is_multiple_of(3) {
            // SAFETY: one live element, and no codes.
            let code = unsafe {
                let codes = std::ptr::null_mut();
                (caller.api.wait_drop)(caller.ctx, &raw const one, 1, codes)
            };
            assert_eq!(code, PR_OK);
        }
    };
    for seq in 1..=2000 {
        round(seq);
        assert!(
            caller.stats().queued <= 4,
            "{seq}: {}",
            caller.stats().queued
        );
    }
    assert_eq!(caller.abort(txn), PR_OK);
    // The last of each counts: a host drained, the numbers of the last list, one who waits.
    let txn = caller.begin(0);
    assert_eq!(caller.stats().queued, 0);
    assert_eq!(caller.stats().waits, 1);
    let (code, grant, _) = caller.reserve(txn, want(3, 0, web, 0));
    assert_eq!((code, grant.reason), (PR_ENOPORT, PR_R_DRAINED));
    assert_eq!(caller.abort(txn), PR_OK);
    for (number, reason) in [(9000, PR_R_FOREIGN), (9010, PR_R_NONE), (9049, PR_R_NONE)] {
        let fix = caller.profile("fix.alice", &[fixed("x", number)]);
        let txn = caller.begin(0);
        assert_eq!(
            caller.reserve(txn, want(4, 0, fix, 1)).1.reason,
            reason,
            "{number}"
        );
        assert_eq!(caller.abort(txn), PR_OK);
    }
}

#[test]
fn a_record_is_flagged_as_long_as_it_shares_a_number() {
    let caller = Caller::with(&PrConfig {
        flags: 0,
        ..config()
    });
    assert_eq!(caller.put(&[host(0, "n1")]), PR_OK);
    let web = caller.profile("web.alice", &[fixed("http", 8080), any("rpc")]);
    // SAFETY: all zeros is a record.
    let blank: PrRec = unsafe { std::mem::zeroed() };
    let record = |job, port_off| PrRec {
        who: want(job, 0, web, 0),
        n_ports: 2,
        port_off,
        state: PR_P_HELD,
        ..blank
    };
    let records = [record(1, 0), record(2, 1), record(3, 3), record(4, 5)];
    // Job 2 says that its http is 20000, which is the rpc of job 1; job 3 shares 8080 with job 1.
    let ports: [u16; 7] = [8080, 20_000, 8081, 8080, 30_000, 8082, 30_001];
    let mut grants = [no_grant(); 4];
    let mut conflicts = 0;
    // SAFETY: live arrays of the lengths said.
    unsafe {
        let (records, ports) = (records.as_ptr(), ports.as_ptr());
        let code = (caller.api.restore_put)(caller.ctx, records, 4, ports, 7, grants.as_mut_ptr());
        assert_eq!(code, PR_OK, "{}", last_error());
        assert_eq!(
            (caller.api.restore_end)(caller.ctx, 0, 0, &raw mut conflicts),
            PR_OK
        );
    }
    assert_eq!(conflicts, 3);
    let flags = |of: &[usize]| -> Vec<u32> {
        let flagged = of.iter().map(|at| caller.record(grants[*at].id).flags);
        flagged.collect()
    };
    assert_eq!(flags(&[0, 1, 2, 3]), [1, 1, 1, 0]);
    // Job 2 ends: 1 and 3 share 8080 still. Then 1 does, and 3 is alone.
    assert_eq!(caller.release_confirm(grants[1].id, 10), PR_OK);
    caller.pump(10);
    assert_eq!(flags(&[0, 2]), [1, 1]);
    assert_eq!(caller.release_confirm(grants[0].id, 20), PR_OK);
    caller.pump(20);
    assert_eq!(flags(&[2, 3]), [0, 0]);
    // What it shared is its own, and nobody else's.
    let bob = caller.profile("web.bob", &[fixed("http", 8080)]);
    let txn = caller.begin(20);
    assert_eq!(caller.reserve(txn, want(9, 0, bob, 0)).1.reason, PR_R_HELD);
    assert_eq!(caller.abort(txn), PR_OK);
}

#[test]
fn one_refusal_in_a_batch_stops_nobody_else() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let (first, _) = caller.hold(want(1, 0, web, 0));
    let (second, _) = caller.hold(want(2, 0, web, 0));
    caller.pump(0);
    let ids = [0, first, 77, second];
    let expected = [PR_ESTALE, PR_OK, PR_ESTALE, PR_OK];
    let mut rc = [9; 4];
    // SAFETY: live arrays of four.
    let code =
        unsafe { (caller.api.release_begin)(caller.ctx, ids.as_ptr(), 4, 0, rc.as_mut_ptr()) };
    assert_eq!((code, rc), (PR_ESTALE, expected));
    let reports = ids.map(|id| PrReady {
        id,
        seq: 1,
        run: 1,
        state: PR_E_SERVING,
        reason: 0,
        restarts: 0,
    });
    let mut rc = [9; 4];
    // SAFETY: live arrays of four.
    let code =
        unsafe { (caller.api.report_ready)(caller.ctx, reports.as_ptr(), 4, rc.as_mut_ptr()) };
    assert_eq!((code, rc), (PR_ESTALE, expected));
    let txn = caller.try_begin(PR_TXN_WHATIF, 0).unwrap();
    let mut rc = [9; 4];
    // SAFETY: live arrays of four.
    let code = unsafe { (caller.api.give)(txn, ids.as_ptr(), 4, rc.as_mut_ptr()) };
    assert_eq!((code, rc), (PR_ESTALE, expected));
    assert_eq!(caller.abort(txn), PR_OK);
    let waits = [
        want(9, 0, 99, 0),
        want(9, 0, web, 0),
        want(1, 0, web, 0),
        want(8, 0, web, 1),
    ];
    let expected = [PR_ENOENT, PR_OK, PR_EEXIST, PR_OK];
    assert_eq!(caller.wait(&waits), (PR_ENOENT, expected.to_vec()));
    let mut rc = [9; 4];
    // SAFETY: live arrays of four.
    let code =
        unsafe { (caller.api.release_confirm)(caller.ctx, ids.as_ptr(), 4, 0, 5, rc.as_mut_ptr()) };
    assert_eq!(
        (code, rc),
        (PR_ESTALE, [PR_ESTALE, PR_OK, PR_ESTALE, PR_OK])
    );
    let wants = [
        want(1, 0, 99, 0),
        want(5, 0, web, 0),
        want(5, 1, web, 7),
        want(6, 0, web, 1),
    ];
    let txn = caller.begin(10);
    let (code, grants, _) = caller.reserve_all(txn, 0, &wants);
    let rc: Vec<i32> = grants.iter().map(|grant| grant.rc).collect();
    assert_eq!(
        (code, rc),
        (PR_ENOENT, vec![PR_ENOENT, PR_OK, PR_ENOENT, PR_OK])
    );
    assert_eq!(caller.commit(txn), PR_OK);
}

#[test]
fn numbers_that_a_record_says_rest_are_their_services_first() {
    let caller = Caller::with(&PrConfig {
        flags: 0,
        ..config()
    });
    assert_eq!(caller.put(&[host(0, "n1")]), PR_OK);
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let bob = caller.profile("web.bob", &[fixed("http", 8080)]);
    // SAFETY: all zeros is a record.
    let blank: PrRec = unsafe { std::mem::zeroed() };
    let record = PrRec {
        who: want(1, 0, web, 0),
        n_ports: 1,
        state: PR_P_COOLING,
        cool_left_ms: 5000,
        ..blank
    };
    let (port, mut grant, mut conflicts) = (8080, no_grant(), 9);
    // SAFETY: live locals, one of each.
    unsafe {
        let (record, port) = (&raw const record, &raw const port);
        let put = (caller.api.restore_put)(caller.ctx, record, 1, port, 1, &raw mut grant);
        assert_eq!((put, grant.rc, grant.id), (PR_OK, PR_OK, 0));
        let end = (caller.api.restore_end)(caller.ctx, 0, 1000, &raw mut conflicts);
        assert_eq!((end, conflicts), (PR_OK, 0));
        // It ends once.
        assert_eq!(
            (caller.api.restore_end)(caller.ctx, 0, 1000, &raw mut conflicts),
            PR_ESTATE
        );
        let put = (caller.api.restore_put)(caller.ctx, record, 1, port, 1, &raw mut grant);
        assert_eq!(put, PR_ESTATE);
    }
    let tried = |profile, now| {
        let txn = caller.begin(now);
        let (_, grant, _) = caller.reserve(txn, want(2, 0, profile, 0));
        assert_eq!(caller.abort(txn), PR_OK);
        (grant.rc, grant.reason, grant.retry_ms)
    };
    assert_eq!(tried(bob, 2000), (PR_ENOPORT, PR_R_COOLING, 4000));
    assert_eq!(tried(web, 2000), (PR_OK, 0, 0));
    assert_eq!(tried(bob, 6000), (PR_OK, 0, 0));
}

#[test]
fn who_waits_for_the_same_again_keeps_its_place_and_for_something_else_goes_behind() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let other = caller.profile("web.bob", &[fixed("http", 8080)]);
    let (mut id, _) = caller.hold(want(1, 0, web, 0));
    let all = [want(5, 0, web, 0), want(6, 0, web, 0), want(7, 0, web, 0)];
    assert_eq!(caller.wait(&all).0, PR_OK);
    caller.pump(0);
    // Both before and after a pump.
    assert_eq!(caller.wait(&all[..1]).0, PR_OK);
    caller.pump(0);
    let mut expected = vec![5, 7, 6];
    assert_eq!(caller.wait(&[want(6, 0, other, 0)]).0, PR_OK);
    while !expected.is_empty() {
        assert_eq!(caller.release_confirm(id, 10), PR_OK);
        caller.pump(caller.pump(10).min(1_000_000));
        let told = caller.told();
        assert_eq!(told, expected[..1]);
        let profile = if told == [6] { other } else { web };
        let txn = caller.begin(0);
        let (code, grant, _) = caller.reserve(txn, want(told[0], 0, profile, 0));
        assert_eq!((code, caller.commit(txn)), (PR_OK, PR_OK));
        id = grant.id;
        expected.remove(0);
    }
}

#[test]
fn in_a_gang_a_key_that_has_its_numbers_is_no_failure_and_the_same_are_the_same() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let wants = [want(1, 0, web, 0), want(1, 1, web, 1)];
    let (id, ports) = caller.hold(wants[0]);
    let (other, _) = caller.hold(want(2, 0, web, 1));
    let txn = caller.begin(0);
    let (code, grants, numbers) = caller.reserve_all(txn, PR_RESERVE_ALL, &wants);
    assert_eq!(code, PR_OK);
    assert_eq!((grants[0].rc, grants[0].id), (PR_EEXIST, id));
    assert_eq!((grants[1].rc, numbers[0]), (PR_OK, ports[0]));
    assert_ne!(numbers[0], numbers[1]);
    assert_eq!(caller.commit(txn), PR_OK);
    // All have theirs, and they differ: not what was asked for. Nothing is taken.
    let txn = caller.begin(0);
    let both = PR_RESERVE_ALL | PR_RESERVE_SAME;
    assert_eq!(caller.reserve_all(txn, both, &wants).0, PR_EEXIST);
    assert_eq!(caller.reserve_all(txn, PR_RESERVE_ALL, &wants).0, PR_OK);
    let used = caller.stats().ports_used;
    let again = [want(3, 0, web, 0), want(3, 1, web, 1)];
    let (code, _, numbers) = caller.reserve_all(txn, both, &again);
    assert_eq!((code, numbers[0]), (PR_OK, numbers[1]));
    // All have theirs, and they are the same: what was asked for.
    let (code, grants, known) = caller.reserve_all(txn, both, &again);
    assert_eq!((code, known), (PR_OK, numbers));
    assert!(grants.iter().all(|grant| grant.rc == PR_EEXIST));
    assert_eq!(caller.stats().ports_used, used + 2);
    assert_eq!(caller.commit(txn), PR_OK);
    assert_eq!(caller.release_begin(other), PR_OK);
}

#[test]
fn what_is_queued_stays_so_while_a_transaction_is_open_and_rests_from_when_it_was_said() {
    let caller = Caller::with(&PrConfig {
        foreign_rest_ms: 5000,
        ..config()
    });
    assert_eq!(caller.put(&[host(0, "n1")]), PR_OK);
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    let txn = caller.begin(70_000);
    // SAFETY: no pointer is passed.
    let code = unsafe { (caller.api.report_conflict)(caller.ctx, id, 8080, PR_TCP, 0) };
    assert_eq!(code, PR_OK);
    assert_eq!(caller.release_confirm(id, 70_000), PR_OK);
    assert_eq!(caller.host_state(0, PR_HOST_DRAINED), PR_OK);
    assert_eq!(caller.stats().queued, 3);
    // It publishes, and leaves the view of the transaction as it is.
    caller.pump(71_000);
    assert_eq!(caller.stats().queued, 3);
    assert_eq!(
        caller.resolve("web.alice", PR_RESOLVE_ALL).unwrap().0.len(),
        0
    );
    let other = caller.answered(txn, web);
    assert_eq!(other, (PR_EAGAIN, PR_R_RELEASING));
    assert_eq!(caller.abort(txn), PR_OK);
    caller.pump(71_000);
    assert_eq!(caller.stats().queued, 0);
    assert_eq!(caller.host_state(0, PR_HOST_UP), PR_OK);
    // Foreign for 5 s from when it was said, though the own service might have what rests for it.
    let tried = |now| {
        let txn = caller.begin(now);
        let told = caller.answered(txn, web);
        assert_eq!(caller.abort(txn), PR_OK);
        told
    };
    assert_eq!(tried(74_999), (PR_ENOPORT, PR_R_FOREIGN));
    assert_eq!(tried(76_000), (PR_OK, PR_R_NONE));
}

#[test]
fn what_was_confirmed_stands_in_no_control_calls_way() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let held = |host| caller.hold(want(1, host, web, host)).0;
    // SAFETY: no pointer is passed.
    let remove = |host| unsafe { (caller.api.host_remove)(caller.ctx, host, 0) };
    let (one, two) = (held(0), held(1));
    assert_eq!(
        (remove(0), caller.put(&[host(1, "n3")])),
        (PR_EBUSY, PR_EBUSY)
    );
    // Neither a begin nor a pump between.
    assert_eq!(caller.release_confirm(one, 10), PR_OK);
    assert_eq!(remove(0), PR_OK);
    assert_eq!(caller.release_confirm(two, 10), PR_OK);
    assert_eq!(caller.put(&[host(1, "n3")]), PR_OK);
    // What cools is told as cooling, by the same rule.
    let three = held(1);
    assert_eq!(caller.release_confirm(three, 20), PR_OK);
    let (records, _) = caller.export_all(8, 256);
    let told: Vec<_> = records
        .iter()
        .map(|it| (it.state, it.cool_left_ms))
        .collect();
    assert_eq!(told, [(PR_P_COOLING, 60_000)]);
}

impl Caller {
    /// What job 1 is answered on the first host.
    fn answered(&self, txn: PrTxn, profile: u32) -> (i32, u32) {
        let (code, grant, _) = self.reserve(txn, want(1, 0, profile, 0));
        (code, grant.reason)
    }
}
