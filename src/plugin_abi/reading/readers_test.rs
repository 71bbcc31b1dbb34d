//! What readers are told of grants, reports and releases, also while those go on.

use std::ptr::null_mut;

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

#[test]
fn only_ready_replicas_with_an_address_are_listed() {
    let caller = Caller::new();
    assert_eq!(caller.resolve("web.alice", 0).unwrap_err(), PR_ENOENT);
    let hidden = PrPort {
        flags: PR_PORT_UNPUBLISHED,
        ..any("admin")
    };
    let web = caller.profile("web.alice", &[any("http"), hidden]);
    assert_eq!(caller.listed("web.alice"), 0);
    let (id, ports) = caller.hold(want(1, 5, web, 0));
    assert_eq!(caller.report(id, 1, 1, PR_E_READY), PR_OK);
    assert_eq!(caller.listed("web.alice"), 0);
    assert_eq!(caller.address(0, 1, 9), PR_OK);
    let (all, revision) = caller.resolve("web.alice", 0).unwrap();
    assert_eq!(all.len(), 1);
    let one = all[0];
    assert_eq!(
        (one.id, one.port, one.count, one.proto),
        (id, ports[0], 1, PR_TCP)
    );
    assert_eq!(
        (one.replica, one.host, one.state, one.family),
        (5, 0, PR_E_READY, 4)
    );
    assert_eq!(one.ip[..4], [10, 0, 0, 9]);
    // Equal or older reports change nothing.
    assert_eq!(caller.report(id, 1, 1, PR_E_NOT_READY), PR_ESTALE);
    assert_eq!(caller.report(id, 0, 7, PR_E_NOT_READY), PR_ESTALE);
    assert_eq!(caller.address(0, 1, 10), PR_ESTALE);
    assert_eq!(caller.report(id, 1, 2, PR_E_READY), PR_OK);
    assert_eq!(caller.resolve("web.alice", 0).unwrap().1, revision);
    // A silent host leaves it listed, a lost one does not.
    assert_eq!(caller.host_state(0, PR_HOST_SUSPECT), PR_OK);
    let (all, same) = caller.resolve("web.alice", 0).unwrap();
    assert_eq!((all[0].state, same), (PR_E_UNCONFIRMED, revision));
    assert_eq!(caller.host_state(0, PR_HOST_LOST), PR_OK);
    assert_eq!(caller.listed("web.alice"), 0);
    assert_eq!(caller.host_state(0, PR_HOST_UP), PR_OK);
    assert_eq!(caller.listed("web.alice"), 1);
    // Its stop is ordered: out at the next report, shown to who asks for all.
    assert_eq!(caller.release_begin(id), PR_OK);
    caller.pump(10);
    assert_eq!(caller.listed("web.alice"), 0);
    let (all, _) = caller.resolve("web.alice", PR_RESOLVE_ALL).unwrap();
    assert_eq!(all[0].state, PR_E_TERMINATING);
    assert_eq!(caller.release_confirm(id, 20), PR_OK);
    assert_eq!(caller.report(id, 2, 1, PR_E_READY), PR_ESTALE);
    assert_eq!(
        caller.resolve("web.alice", PR_RESOLVE_ALL).unwrap().0.len(),
        0
    );
}

#[test]
fn a_report_before_the_commit_is_refused() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let txn = caller.begin(0);
    let (_, grant, _) = caller.reserve(txn, want(1, 0, web, 0));
    assert_eq!(caller.report(grant.id, 1, 1, PR_E_READY), PR_ESTATE);
    assert_eq!(caller.release_begin(grant.id), PR_ESTATE);
    assert_eq!(caller.commit(txn), PR_OK);
    assert_eq!(caller.report(grant.id, 1, 1, PR_E_READY), PR_OK);
}

#[test]
fn two_jobs_of_one_service_with_the_same_replica_number_are_two_endpoints() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    caller.address(0, 1, 1);
    for job in [8, 7] {
        let (id, _) = caller.hold(want(job, 0, web, 0));
        assert_eq!(caller.report(id, 1, 1, PR_E_READY), PR_OK);
    }
    assert_eq!(caller.listed("web.alice"), 2);
}

#[test]
fn reading_one_port_by_name_leaves_the_others_out() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http"), any("metrics")]);
    caller.address(0, 1, 1);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    caller.report(id, 1, 1, PR_E_READY);
    assert_eq!(caller.listed("web.alice"), 2);
    let (mut need, mut revision) = (0, 0);
    let count = |port: &str, need| {
        // SAFETY: live locals, and no room.
        unsafe {
            let (service, port) = (text("web.alice"), text(port));
            let revision = &raw mut revision;
            (caller.api.resolve)(caller.ctx, service, port, 0, null_mut(), 0, need, revision)
        }
    };
    let mut count = count;
    assert_eq!((count("metrics", &raw mut need), need), (PR_ENOSPC, 1));
    assert_eq!((count("nothing", &raw mut need), need), (PR_OK, 0));
}

#[test]
fn reports_releases_and_readers_run_beside_the_cycle() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    const ROUNDS: u64 = 300;
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    caller.address(0, 1, 1);
    let done = AtomicBool::new(false);
    let (to_report, reported) = mpsc::channel::<PrAlloc>();
    let (to_release, released) = mpsc::channel::<PrAlloc>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in reported {
                assert_eq!(
                    caller.report(id, 1, 1, PR_E_READY),
                    PR_OK,
                    "{}",
                    last_error()
                );
                to_release.send(id).unwrap();
            }
            drop(to_release);
        });
        scope.spawn(|| {
            for id in released {
                assert_eq!(caller.release_begin(id), PR_OK, "{}", last_error());
                assert_eq!(caller.release_confirm(id, 0), PR_OK, "{}", last_error());
            }
        });
        scope.spawn(|| {
            let mut newest = 0;
            while !done.load(Ordering::Acquire) {
                // More than 16 at once are possible; then only the count is told.
                match caller.resolve("web.alice", 0) {
                    Ok((_, revision)) => {
                        assert!(revision >= newest, "{revision} after {newest}");
                        newest = revision;
                    }
                    Err(code) => assert_eq!(code, PR_ENOSPC),
                }
            }
        });
        for job in 1..=ROUNDS {
            // Full, until the releasing thread has caught up: the next cycle frees what it confirmed.
            loop {
                let txn = caller.begin(0);
                let (code, grant, _) = caller.reserve(txn, want(job, 0, web, 0));
                assert_eq!(caller.commit(txn), PR_OK);
                caller.pump(0);
                if code == PR_OK {
                    to_report.send(grant.id).unwrap();
                    break;
                }
                assert_eq!(code, PR_ELIMIT, "{}", last_error());
                std::thread::yield_now();
            }
        }
        drop(to_report);
        done.store(true, Ordering::Release);
    });
    caller.pump(0);
    assert_eq!(
        caller.resolve("web.alice", PR_RESOLVE_ALL).unwrap().0.len(),
        0
    );
    assert_eq!(caller.pump(60_000), PR_NEVER);
}

#[test]
fn of_two_placements_of_a_replica_the_older_is_shown_when_the_newer_has_ended() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    caller.address(0, 1, 1);
    caller.address(1, 1, 2);
    let (older, _) = caller.hold(want(1, 0, web, 0));
    let (newer, _) = caller.hold(PrWant {
        incarnation: 1,
        ..want(1, 0, web, 1)
    });
    for id in [newer, older] {
        assert_eq!(caller.report(id, 1, 1, PR_E_READY), PR_OK);
    }
    let shown = |caller: &Caller| -> Vec<PrAlloc> {
        let (all, _) = caller.resolve("web.alice", 0).unwrap();
        all.iter().map(|endpoint| endpoint.id).collect()
    };
    assert_eq!(shown(&caller), [newer]);
    assert_eq!(caller.release_begin(newer), PR_OK);
    assert_eq!(caller.release_confirm(newer, 0), PR_OK);
    caller.pump(0);
    assert_eq!(shown(&caller), [older]);
    assert_eq!(caller.release_begin(older), PR_OK);
    assert_eq!(caller.release_confirm(older, 0), PR_OK);
    caller.pump(0);
    assert!(shown(&caller).is_empty());
}

// endpoints 30
#[test]
fn a_report_of_one_copies_no_more_among_5000_than_among_50() {
    let copied = |replicas: u32| {
        let caller = Caller::with(&PrConfig {
            max_allocs: 6_000,
            max_ports: 6_000,
            ..config()
        });
        assert_eq!(caller.put(&[host(0, "n1")]), PR_OK);
        caller.address(0, 1, 1);
        let web = caller.profile("web.alice", &[any("http")]);
        let all = (0..replicas).map(|replica| caller.hold(want(1, replica, web, 0)).0);
        let all: Vec<PrAlloc> = all.collect();
        for id in &all {
            assert_eq!(caller.report(*id, 1, 1, PR_E_READY), PR_OK);
        }
        let counted = allocation_counter::measure(|| {
            for run in 2..102 {
                let state = [PR_E_READY, PR_E_NOT_READY][run as usize % 2];
                assert_eq!(caller.report(all[33], run, 1, state), PR_OK);
            }
        });
        (counted.bytes_total, counted.count_total)
    };
    let (small, big) = (copied(50), copied(5_000));
    assert!(
        big.0 <= 2 * small.0,
        "{} bytes among 50, {} among 5,000",
        small.0,
        big.0
    );
    assert!(
        big.1 <= 2 * small.1,
        "{} pieces among 50, {} among 5,000",
        small.1,
        big.1
    );
}
