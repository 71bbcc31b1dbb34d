//! What a snapshot promises, called as C would.

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;
use crate::plugin_abi::watch::follower_test::*;

#[test]
fn a_snapshot_stays_as_it_was_and_is_read_in_pieces_from_anywhere() {
    let caller = Caller::new();
    let hidden = PrPort {
        flags: PR_PORT_UNPUBLISHED,
        ..any("admin")
    };
    let web = caller.profile("web.alice", &[any("http"), hidden, any("rpc")]);
    let none = caller.profile("none.alice", &[hidden]);
    for replica in 0..9 {
        caller.hold(want(1, replica, web, 0));
        caller.hold(want(2, replica, none, 0));
    }
    caller.pump(0);
    assert_eq!(
        caller.try_snap(Some("nobody.alice")).unwrap_err(),
        PR_ENOENT
    );
    assert_eq!(caller.try_snap(Some("no name")).unwrap_err(), PR_EINVAL);
    let (whole, revision) = all_of(&caller, "web.alice").unwrap();
    let (one, at, count) = caller.try_snap(Some("web.alice")).unwrap();
    let (all, of_all, count_all) = caller.try_snap(None).unwrap();
    assert_eq!((at, count, of_all, count_all), (revision, 18, revision, 18));
    // It changes, and the snapshots do not.
    caller.address(0, 1, 1);
    for (replica, ep) in whole.iter().enumerate() {
        caller.report(ep.id, 1, replica as u64 + 1, PR_E_READY);
    }
    let as_read = |rows: &[PrEndpoint]| rows.iter().map(row).collect::<Vec<_>>();
    for snap in [one, all] {
        for cap in 1..20 {
            for from in [0, 17, 3, 4, 18, 19, u32::MAX, 0] {
                let piece = caller.snap_read(snap, from, cap).unwrap();
                let expected = whole.iter().skip(from as usize).take(cap as usize);
                let expected: Vec<_> = expected.copied().collect();
                assert_eq!(as_read(&piece), as_read(&expected), "{cap} from {from}");
            }
        }
        assert_eq!(caller.snap_read(snap, 17, 0).unwrap_err(), PR_ENOSPC);
        assert!(caller.snap_read(snap, 18, 0).unwrap().is_empty());
    }
    assert_eq!(caller.stats().snaps, 2);
    // abi 11
    assert_eq!(caller.snap_close(one), PR_OK);
    assert_eq!(caller.snap_close(one), PR_ESTALE);
    assert_eq!(caller.snap_read(one, 0, 1).unwrap_err(), PR_ESTALE);
    assert_eq!(caller.stats().snaps, 1);
    // abi 10
    assert_eq!(caller.snap_close(0), PR_ESTALE);
    assert_eq!(caller.snap_close(caller.ctx), PR_ESTALE);
    assert_eq!(caller.close(all), PR_ESTALE);
    assert_eq!(caller.next(all, 1).unwrap_err(), PR_ESTALE);
    assert_eq!(caller.snap_close(all), PR_OK);
    assert_eq!(caller.stats().snaps, 0);
}

#[test]
fn more_snapshots_or_watches_than_may_be_are_refused_and_nothing_is_made() {
    let caller = Caller::with(&PrConfig {
        max_watches: 2,
        ..config()
    });
    caller.put(&[host(0, "n1")]);
    caller.profile("web.alice", &[any("http")]);
    let watches = [0, 1].map(|_| caller.try_watch(None, 0).unwrap());
    assert_eq!(caller.try_watch(None, 0).unwrap_err(), PR_ELIMIT);
    assert_eq!(
        caller.try_watch(Some("web.alice"), 0).unwrap_err(),
        PR_ELIMIT
    );
    assert_eq!(caller.stats().watches, 2);
    assert_eq!(caller.close(watches[0].0), PR_OK);
    assert!(caller.try_watch(None, 0).is_ok());
    let snaps: Vec<_> = (0..1024)
        .map(|_| caller.try_snap(None).unwrap().0)
        .collect();
    assert_eq!(caller.try_snap(None).unwrap_err(), PR_ELIMIT);
    assert_eq!(caller.stats().snaps, 1024);
    assert_eq!(caller.snap_close(snaps[500]), PR_OK);
    assert!(caller.try_snap(None).is_ok());
}
