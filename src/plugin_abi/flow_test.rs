//! What a right caller gets, from the restore phase to the release.

use std::ptr::{null, null_mut};

use super::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

#[test]
fn nothing_is_reserved_before_the_restore_phase_ends() {
    let caller = Caller::with(&PrConfig {
        flags: 0,
        ..config()
    });
    assert_eq!(caller.put(&[host(0, "n1")]), PR_OK);
    let web = caller.profile("web.alice", &[any("http")]);
    let txn = caller.begin(0);
    assert_eq!(caller.reserve(txn, want(1, 0, web, 0)).0, PR_EAGAIN);
    let mut conflicts = 9;
    let end = |conflicts| {
        // SAFETY: a live local.
        unsafe { (caller.api.restore_end)(caller.ctx, 0, 0, conflicts) }
    };
    assert_eq!(end(&raw mut conflicts), PR_EBUSY);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(end(&raw mut conflicts), PR_OK);
    assert_eq!(conflicts, 0);
    assert_eq!(end(&raw mut conflicts), PR_ESTATE);
    caller.hold(want(1, 0, web, 0));
}

#[test]
fn one_transaction_is_open_and_control_calls_keep_out_of_it() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let txn = caller.begin(0);
    assert_eq!(caller.try_begin(0, 0), Err(PR_EBUSY));
    assert_eq!(caller.put(&[host(2, "n3")]), PR_EBUSY);
    assert_eq!(caller.try_profile("db.alice", &[any("sql")]), Err(PR_EBUSY));
    assert_eq!(caller.reserve(txn, want(1, 0, web, 0)).0, PR_OK);
    assert_eq!(caller.commit(txn), PR_OK);
    assert_eq!(caller.put(&[host(2, "n3")]), PR_OK);
}

#[test]
fn too_little_room_takes_nothing_and_says_how_much_is_needed() {
    // abi 20
    let caller = Caller::new();
    let block = PrPort {
        count: 4,
        ..any("rpc")
    };
    let web = caller.profile("web.alice", &[any("http"), block]);
    let txn = caller.begin(0);
    let wanted = want(1, 0, web, 0);
    let (mut grant, mut ports, mut need) = (no_grant(), [0; 5], 0);
    let mut reserve = |cap| {
        // SAFETY: live locals, with room for at least `cap`.
        unsafe {
            let (grant, ports) = (&raw mut grant, ports.as_mut_ptr());
            (caller.api.reserve)(
                txn,
                0,
                &raw const wanted,
                1,
                grant,
                ports,
                cap,
                &raw mut need,
            )
        }
    };
    assert_eq!(reserve(4), PR_ENOSPC);
    assert_eq!(reserve(5), PR_OK);
    assert_eq!(need, 5);
    assert_eq!(grant.n_ports, 5);
    assert_eq!(ports[1..], [20_000, 20_001, 20_002, 20_003]);
    assert_eq!(ports[0], 20_004);
}

#[test]
fn the_same_key_gets_its_numbers_again_and_a_lower_incarnation_is_stale() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let (id, ports) = caller.hold(want(1, 0, web, 0));
    let txn = caller.begin(0);
    let (code, again, numbers) = caller.reserve(txn, want(1, 0, web, 1));
    assert_eq!(
        (code, again.rc, again.id, again.host),
        (PR_EEXIST, PR_EEXIST, id, 0)
    );
    assert_eq!(numbers, ports);
    let newer = PrWant {
        incarnation: 2,
        ..want(1, 0, web, 1)
    };
    let (code, second, _) = caller.reserve(txn, newer);
    assert_eq!((code, second.host), (PR_OK, 1));
    let older = PrWant {
        incarnation: 1,
        ..newer
    };
    assert_eq!(caller.reserve(txn, older).0, PR_ESTALE);
    assert_eq!(caller.commit(txn), PR_OK);
    let mut found = 0;
    let newest = PrWant {
        incarnation: PR_ANY,
        ..newer
    };
    // SAFETY: live locals.
    let code = unsafe { (caller.api.grant_find)(caller.ctx, &raw const newest, &raw mut found) };
    assert_eq!((code, found), (PR_OK, second.id));
}

#[test]
fn a_refusal_names_its_reason_and_a_gang_is_all_or_nothing() {
    // abi 18
    let caller = Caller::new();
    let fix = caller.profile("fix.alice", &[fixed("http", 8080)]);
    let any_port = caller.profile("any.alice", &[any("http")]);
    caller.hold(want(1, 0, fix, 1));
    let txn = caller.begin(0);
    let gang = [
        want(2, 0, any_port, 0),
        want(2, 1, fix, 1),
        want(2, 2, fix, 0),
    ];
    let (code, grants, _) = caller.reserve_all(txn, PR_RESERVE_ALL, &gang);
    assert_eq!(code, PR_ENOPORT);
    let told: Vec<_> = grants
        .iter()
        .map(|grant| (grant.rc, grant.reason, grant.id))
        .collect();
    assert_eq!(
        told,
        [
            (PR_EAGAIN, 0, 0),
            (PR_ENOPORT, PR_R_HELD, 0),
            (PR_EAGAIN, 0, 0)
        ]
    );
    // What was given back is the next to be given.
    let (code, grant, ports) = caller.reserve(txn, want(3, 0, any_port, 0));
    assert_eq!((code, ports), (PR_OK, vec![20_000]));
    assert_ne!(grant.id, 0);
    let (code, grant, _) = caller.reserve(txn, want(4, 0, fix, 77));
    assert_eq!((code, grant.reason), (PR_ENOENT, PR_R_UNKNOWN_HOST));
    assert_eq!(caller.reserve(txn, want(4, 0, 99, 0)).0, PR_ENOENT);
}

#[test]
fn a_gang_with_the_same_numbers_gets_one_number_that_is_free_on_all_its_hosts() {
    const SAME: u32 = PR_RESERVE_ALL | PR_RESERVE_SAME;
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let block = PrPort {
        count: 3,
        ..any("rpc")
    };
    let both = caller.profile("mpi.alice", &[any("http"), block]);
    // Numbers 20000 and 20001 go on the first host, 20002 on the second.
    let txn = caller.begin(0);
    for job in 1..=2 {
        caller.reserve(txn, want(job, 0, web, 0));
    }
    for job in 3..=5 {
        caller.reserve(txn, want(job, 0, web, 1));
    }
    assert_eq!(caller.commit(txn), PR_OK);
    let txn = caller.begin(0);
    let gang = [want(9, 0, both, 0), want(9, 1, both, 1)];
    let (code, grants, ports) = caller.reserve_all(txn, SAME, &gang);
    assert_eq!(code, PR_OK, "{}", last_error());
    assert_eq!(ports[..4], ports[4..]);
    assert_eq!((grants[1].host, grants[1].port_off), (1, 4));
    // The same again is the same; with a newcomer it is no gang any more, and nothing is taken.
    let (code, again, same) = caller.reserve_all(txn, SAME, &gang);
    assert_eq!((code, same), (PR_OK, ports));
    assert_eq!(again[0].rc, PR_EEXIST);
    let mixed = [want(8, 0, both, 0), gang[1]];
    let (code, grants, _) = caller.reserve_all(txn, SAME, &mixed);
    assert_eq!(code, PR_EEXIST);
    let told = |grants: &[PrGrant]| grants.iter().map(|grant| grant.rc).collect::<Vec<_>>();
    assert_eq!(told(&grants), [PR_EAGAIN, PR_EEXIST]);
    assert_eq!(caller.commit(txn), PR_OK);
    let mut found = 0;
    // SAFETY: live locals.
    let code = unsafe { (caller.api.grant_find)(caller.ctx, &raw const mixed[0], &raw mut found) };
    assert_eq!(code, PR_ENOENT);
}

#[test]
fn a_gang_with_the_same_numbers_is_refused_whole_and_leaves_no_trace() {
    const SAME: u32 = PR_RESERVE_ALL | PR_RESERVE_SAME;
    let caller = Caller::new();
    let lows = [PrRange { lo: 500, hi: 500 }];
    let highs = [PrRange { lo: 600, hi: 600 }];
    let hosts = [
        PrHost {
            dynamic: lows.as_ptr(),
            n_dynamic: 1,
            ..host(2, "n3")
        },
        PrHost {
            dynamic: highs.as_ptr(),
            n_dynamic: 1,
            ..host(3, "n4")
        },
        PrHost {
            state: PR_HOST_DRAINED,
            ..host(4, "n5")
        },
    ];
    assert_eq!(caller.put(&hosts), PR_OK);
    let web = caller.profile("web.alice", &[any("http")]);
    let other = caller.profile("other.alice", &[any("http")]);
    let txn = caller.begin(0);
    let refused = |gang: [PrWant; 2]| {
        let (code, grants, _) = caller.reserve_all(txn, SAME, &gang);
        assert!(grants.iter().all(|grant| grant.id == 0));
        let told = |at: usize| (grants[at].rc, grants[at].reason);
        (code, told(0), told(1))
    };
    let here = want(1, 0, web, 0);
    let aside = (PR_EAGAIN, PR_R_NONE);
    assert_eq!(
        refused([here, want(1, 1, web, 4)]),
        (PR_ENOPORT, aside, (PR_ENOPORT, PR_R_DRAINED))
    );
    assert_eq!(
        refused([here, want(1, 1, web, 77)]),
        (PR_ENOENT, aside, (PR_ENOENT, PR_R_UNKNOWN_HOST))
    );
    assert_eq!(
        refused([here, want(1, 1, other, 1)]),
        (PR_EINVAL, aside, (PR_EINVAL, PR_R_NONE))
    );
    assert_eq!(
        refused([here, want(1, 1, web, 0)]),
        (PR_EINVAL, aside, (PR_EINVAL, PR_R_NONE))
    );
    assert_eq!(
        refused([here, PrWant { host: 1, ..here }]),
        (PR_EINVAL, aside, (PR_EINVAL, PR_R_NONE))
    );
    let (code, first, second) = refused([want(1, 0, web, 2), want(1, 1, web, 3)]);
    assert_eq!(
        (code, first.0, second.0),
        (PR_ENOPORT, PR_ENOPORT, PR_ENOPORT)
    );
    assert_ne!(first.1, PR_R_NONE);
    let (code, _, ports) = caller.reserve(txn, here);
    assert_eq!((code, ports), (PR_OK, vec![20_000]));
    assert_eq!(
        caller.reserve_all(txn, PR_RESERVE_SAME, &[here]).0,
        PR_EINVAL
    );
}

#[test]
fn a_need_may_ask_about_a_later_moment() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let other = caller.profile("web.bob", &[fixed("http", 8080)]);
    for host in [0, 1] {
        let (id, _) = caller.hold(want(1, host, web, host));
        assert_eq!(caller.release_confirm(id, 1000), PR_OK);
    }
    let txn = caller.begin(1000);
    let ask = |at_ms| {
        let need = PrNeed {
            profile: other,
            replicas: 1,
            at_ms,
        };
        let (mut word, mut most) = (0, [9_u16; 64]);
        let count = {
            let most = most.as_mut_ptr();
            // SAFETY: one word, and room for 64 numbers.
            unsafe { (caller.api.feasible)(txn, &raw const need, null(), &raw mut word, most, 1) }
        };
        (count, word, most[0])
    };
    assert_eq!(ask(0), (0, 0, 0));
    assert_eq!(ask(60_999), (0, 0, 0));
    assert_eq!(ask(61_000), (2, 3, 1));
    assert_eq!(caller.reserve(txn, want(2, 0, other, 0)).0, PR_ENOPORT);
}

#[test]
fn the_replicas_that_fit_are_counted_exactly_without_blocks() {
    let caller = Caller::new();
    let within = [PrRange {
        lo: 20_000,
        hi: 20_039,
    }];
    let narrow = PrPort {
        within: within.as_ptr(),
        n_within: 1,
        ..any("a")
    };
    let block = PrPort {
        count: 4,
        ..any("b")
    };
    let narrow = caller.profile("narrow.alice", &[narrow]);
    let blocks = caller.profile("block.alice", &[block]);
    let txn = caller.begin(0);
    let most = |profile, replicas| {
        let need = PrNeed {
            profile,
            replicas,
            at_ms: 0,
        };
        let (mut word, mut most) = (0, [0_u16; 64]);
        let at = most.as_mut_ptr();
        // SAFETY: one word, and room for 64 numbers.
        let count =
            unsafe { (caller.api.feasible)(txn, &raw const need, null(), &raw mut word, at, 1) };
        (count, most[0])
    };
    assert_eq!(most(narrow, 0), (2, 40));
    assert_eq!(most(narrow, 40), (2, 40));
    assert_eq!(most(narrow, 41), (0, 0));
    let (count, at_least) = most(blocks, 1);
    assert_eq!(count, 2);
    assert!((1..=3192).contains(&at_least), "{at_least}");
    // Not less than what was asked for.
    assert_eq!(most(blocks, 300), (2, 300));
}

#[test]
fn feasible_hosts_are_those_that_reserve_accepts() {
    // abi 16, 19
    let caller = Caller::new();
    let fix = caller.profile("fix.alice", &[fixed("http", 8080)]);
    let pair = caller.profile("pair.alice", &[any("a"), any("b")]);
    caller.hold(want(1, 0, fix, 1));
    let txn = caller.begin(0);
    let ask = |profile, replicas, words: &mut [u64; 2], most: *mut u16| {
        let need = PrNeed {
            profile,
            replicas,
            at_ms: 0,
        };
        let words = words.as_mut_ptr();
        // SAFETY: two words, which are read before they are written; `most` has room for 128.
        unsafe { (caller.api.feasible)(txn, &raw const need, words, words, most, 2) }
    };
    let mut words = [u64::MAX; 2];
    let mut most = [7_u16; 128];
    assert_eq!(ask(fix, 0, &mut words, most.as_mut_ptr()), 1);
    assert_eq!(words, [1, 0]);
    assert_eq!((most[0], most[1]), (1, 0));
    let mut words = [u64::MAX; 2];
    assert_eq!(ask(fix, 2, &mut words, null_mut()), 0);
    let mut words = [2, 0];
    assert_eq!(ask(pair, 6384, &mut words, most.as_mut_ptr()), 1);
    assert_eq!(most[1], 6384);
    assert_eq!(ask(pair, 6385, &mut words, null_mut()), 0);
    assert_eq!(ask(99, 1, &mut words, null_mut()), i64::from(PR_ENOENT));
    // Asking left no trace.
    let (_, _, ports) = caller.reserve(txn, want(2, 0, pair, 1));
    assert_eq!(ports, [20_000, 20_001]);
}

#[test]
fn rollback_gives_back_without_a_trace() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let txn = caller.begin(0);
    let (mut first, mut second) = (0, 0);
    // SAFETY: live locals.
    let set = |mark| unsafe { (caller.api.mark)(txn, mark) };
    // SAFETY: no pointer is passed.
    let back = |mark| unsafe { (caller.api.rollback)(txn, mark) };
    assert_eq!(set(&raw mut first), PR_OK);
    let (_, one, ports) = caller.reserve(txn, want(1, 0, web, 0));
    assert_eq!(set(&raw mut second), PR_OK);
    assert_eq!(back(first), PR_OK);
    assert_eq!(back(second), PR_ESTALE);
    assert_eq!(back(first), PR_OK);
    assert_eq!(caller.release_begin(one.id), PR_ESTALE);
    let (code, again, same) = caller.reserve(txn, want(1, 0, web, 0));
    assert_eq!((code, same), (PR_OK, ports));
    assert_ne!(again.id, one.id);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.release_begin(again.id), PR_ESTALE);
}

#[test]
fn one_transaction_takes_so_many_numbers_at_most_and_a_rollback_makes_room_again() {
    let caller = Caller::with(&PrConfig {
        max_ports: 2,
        ..config()
    });
    assert_eq!(caller.put(&[host(0, "n1")]), PR_OK);
    let web = caller.profile("web.alice", &[any("http")]);
    let txn = caller.begin(0);
    let take = |job| caller.reserve(txn, want(job, 0, web, 0)).0;
    let mut mark = 0;
    assert_eq!(take(1), PR_OK);
    // SAFETY: a live local.
    assert_eq!(unsafe { (caller.api.mark)(txn, &raw mut mark) }, PR_OK);
    assert_eq!((take(2), take(3)), (PR_OK, PR_ELIMIT));
    // SAFETY: no pointer is passed.
    assert_eq!(unsafe { (caller.api.rollback)(txn, mark) }, PR_OK);
    assert_eq!((take(3), take(4)), (PR_OK, PR_ELIMIT));
    assert_eq!(caller.commit(txn), PR_OK);
    // The next one counts by itself.
    let txn = caller.begin(0);
    assert_eq!(caller.reserve(txn, want(4, 0, web, 0)).0, PR_OK);
}

#[test]
fn a_what_if_is_never_committed() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let txn = caller.try_begin(PR_TXN_WHATIF, 0).unwrap();
    assert_eq!(caller.reserve(txn, want(1, 0, web, 0)).0, PR_OK);
    assert_eq!(caller.commit(txn), PR_ESTATE);
    assert_eq!(caller.abort(txn), PR_OK);
}

#[test]
fn ports_are_given_back_in_two_steps_and_rest() {
    let caller = Caller::new();
    let mine = caller.profile("web.alice", &[fixed("http", 8080)]);
    let theirs = caller.profile("web.bob", &[fixed("http", 8080)]);
    let (id, _) = caller.hold(want(1, 0, mine, 0));
    let refused = |now| {
        let txn = caller.begin(now);
        let (code, grant, _) = caller.reserve(txn, want(2, 0, theirs, 0));
        assert_eq!(caller.abort(txn), PR_OK);
        (code, grant.reason, grant.retry_ms)
    };
    assert_eq!(refused(0), (PR_ENOPORT, PR_R_HELD, 0));
    assert_eq!(caller.release_begin(id), PR_OK);
    assert_eq!(caller.release_begin(id), PR_ESTATE);
    assert_eq!(refused(10), (PR_ENOPORT, PR_R_RELEASING, 0));
    assert_eq!(caller.release_confirm(id, 1000), PR_OK);
    assert_eq!(caller.release_confirm(id, 1000), PR_ESTALE);
    assert_eq!(caller.release_begin(id), PR_ESTALE);
    assert_eq!(refused(2000), (PR_ENOPORT, PR_R_COOLING, 59_000));
    assert_eq!(caller.pump(2000), 61_000);
    // An earlier moment counts as the latest one told.
    assert_eq!(refused(0), (PR_ENOPORT, PR_R_COOLING, 59_000));
    assert_eq!(refused(61_000), (PR_OK, 0, 0));
    assert_eq!(caller.pump(61_000), PR_NEVER);
}

#[test]
fn what_was_never_used_is_free_at_once() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    // SAFETY: one live id.
    let code = unsafe {
        let ids = &raw const id;
        (caller.api.release_confirm)(caller.ctx, ids, 1, PR_REL_NO_COOL, 5, null_mut())
    };
    assert_eq!(code, PR_OK);
    let other = caller.profile("web.bob", &[fixed("http", 8080)]);
    caller.hold(want(2, 0, other, 0));
}

#[test]
fn a_release_during_a_transaction_takes_effect_with_the_next() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    let txn = caller.begin(0);
    std::thread::scope(|scope| {
        let released = scope.spawn(|| caller.release_confirm(id, 5));
        assert_eq!(released.join().unwrap(), PR_OK);
    });
    let (code, grant, _) = caller.reserve(txn, want(1, 0, web, 0));
    assert_eq!((code, grant.reason), (PR_EAGAIN, PR_R_RELEASING));
    assert_eq!(caller.commit(txn), PR_OK);
    // It cools for the same service, which gets it at once.
    caller.hold(want(1, 0, web, 0));
}

#[test]
fn a_job_sees_its_names_under_the_contexts_prefix() {
    // P41
    let caller = Caller::with(&PrConfig {
        env_prefix: text("XCE_"),
        ..config()
    });
    caller.put(&[host(0, "n1")]);
    let block = PrPort {
        count: 2,
        env: text("RPC"),
        ..any("rpc-all")
    };
    let web = caller.profile("web.alice", &[any("http"), block]);
    let one = caller.profile("one.alice", &[fixed("http", 8080)]);
    let (id, _) = caller.hold(PrWant {
        incarnation: 3,
        ..want(1, 4, web, 0)
    });
    let before = caller.env(id);
    assert!(!before.iter().any(|v| v.contains("ADDR")), "{before:?}");
    caller.address(0, 1, 7);
    assert_eq!(
        caller.env(id),
        [
            "RPC=20000",
            "XCE_ADDR_HTTP=10.0.0.7:20002",
            "XCE_ADDR_RPC_ALL=10.0.0.7:20000",
            "XCE_HOST=n1",
            "XCE_HOST_ADDR=10.0.0.7",
            "XCE_INCARNATION=3",
            "XCE_NAMESPACE=alice",
            "XCE_PORT_HTTP=20002",
            "XCE_PORT_RPC_ALL=20000",
            "XCE_PORT_RPC_ALL_COUNT=2",
            "XCE_PORT_RPC_ALL_LAST=20001",
            "XCE_REPLICA=4",
            "XCE_SERVICE=web",
        ]
    );
    let (id, _) = caller.hold(want(2, 0, one, 0));
    assert!(caller.env(id).contains(&"PORT=8080".to_owned()));
}

#[test]
fn a_host_is_its_name_and_moves_with_its_holders() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    caller.address(0, 1, 1);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    caller.report(id, 1, 1, PR_E_READY);
    // Another name on an index with holders is refused, and the list before it has no effect.
    assert_eq!(caller.put(&[host(5, "n9"), host(0, "n3")]), PR_EBUSY);
    assert_eq!(caller.host_state(5, PR_HOST_UP), PR_ENOENT);
    // The two change places.
    assert_eq!(caller.put(&[host(0, "n2"), host(1, "n1")]), PR_OK);
    let (all, _) = caller.resolve("web.alice", 0).unwrap();
    assert_eq!((all[0].id, all[0].host), (id, 1));
    let txn = caller.begin(0);
    assert_eq!(caller.reserve(txn, want(2, 0, web, 0)).0, PR_OK);
    assert_eq!(caller.reserve(txn, want(3, 0, web, 1)).0, PR_ENOPORT);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.put(&[host(256, "n7")]), PR_ELIMIT);
}

#[test]
fn records_come_back_under_new_ids_and_conflicts_are_kept_and_counted() {
    let first = Caller::new();
    let web = first.profile(
        "web.alice",
        &[
            any("http"),
            PrPort {
                count: 2,
                ..any("rpc")
            },
        ],
    );
    let (id, ports) = first.hold(want(1, 0, web, 0));
    first.report(id, 2, 9, PR_E_READY);
    // SAFETY: all zeros is a record.
    let mut record: PrRec = unsafe { std::mem::zeroed() };
    let (mut numbers, mut need) = ([0; 3], 0);
    let mut get = |cap| {
        let numbers = numbers.as_mut_ptr();
        // SAFETY: live locals with room for at least `cap`.
        unsafe {
            (first.api.grant_get)(first.ctx, id, &raw mut record, numbers, cap, &raw mut need)
        }
    };
    assert_eq!(get(2), PR_ENOSPC);
    assert_eq!(get(3), PR_OK);
    assert_eq!(numbers.to_vec(), ports);
    assert_eq!((record.run, record.seq, record.ready), (2, 9, PR_E_READY));

    let again = Caller::with(&PrConfig {
        flags: 0,
        ..config()
    });
    again.put(&[host(0, "n1")]);
    again.address(0, 1, 1);
    again.profile(
        "web.alice",
        &[
            any("http"),
            PrPort {
                count: 2,
                ..any("rpc")
            },
        ],
    );
    let mut twin = record;
    twin.who.job = 2;
    let lost = PrRec {
        who: PrWant {
            host: 3,
            ..record.who
        },
        ..record
    };
    let records = [record, twin, lost];
    let mut grants = [no_grant(); 3];
    // SAFETY: live arrays of the lengths said.
    let code = unsafe {
        let (records, numbers) = (records.as_ptr(), numbers.as_ptr());
        (again.api.restore_put)(again.ctx, records, 3, numbers, 3, grants.as_mut_ptr())
    };
    assert_eq!(code, PR_ENOENT);
    assert_eq!(grants.map(|grant| grant.rc), [PR_OK, PR_OK, PR_ENOENT]);
    let mut conflicts = 0;
    // SAFETY: a live local.
    let code = unsafe { (again.api.restore_end)(again.ctx, 0, 5000, &raw mut conflicts) };
    assert_eq!((code, conflicts), (PR_OK, 2));
    let (all, _) = again.resolve("web.alice", 0).unwrap();
    assert_eq!(
        all.iter().filter(|e| e.state == PR_E_UNCONFIRMED).count(),
        4
    );
    // What was said before the record, and arrives late, is not; a replica that says again what it said last is believed.
    let report = |run, seq, state| again.report(grants[0].id, run, seq, state);
    assert_eq!(report(2, 8, PR_E_NOT_READY), PR_ESTALE);
    assert_eq!(report(1, 10, PR_E_NOT_READY), PR_ESTALE);
    assert_eq!(report(2, 9, PR_E_READY), PR_OK);
    assert_eq!(report(2, 9, PR_E_NOT_READY), PR_ESTALE);
    let txn = again.begin(5000);
    assert_eq!(again.reserve(txn, want(1, 0, web, 0)).0, PR_EEXIST);
    assert_eq!(again.commit(txn), PR_OK);
    assert_eq!(again.release_confirm(grants[1].id, 6000), PR_OK);
    again.pump(6000);
    assert_eq!(again.release_begin(grants[0].id), PR_OK);
}
