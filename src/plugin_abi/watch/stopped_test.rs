//! A writer that is stopped in the middle of anything holds up no reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::endpoints::stepping;
use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

/// Everything that a reader may call. It must not end the context that it borrows.
fn read_all(ctx: PrCtx, known: PrWatch) {
    let caller = std::mem::ManuallyDrop::new(Caller { api: api(), ctx });
    let (rows, _) = caller.snapshot(None, 2).unwrap();
    assert!(!rows.is_empty());
    assert!(caller.snapshot(Some("a.x"), 2).is_some());
    assert!(caller.resolve("a.x", PR_RESOLVE_ALL).is_ok());
    let mut own = caller.watch(None, PR_NEVER);
    own.follow(&caller, 1);
    assert_eq!(caller.close(own.id), PR_OK);
    caller.next(known, 1).unwrap();
    caller.stats();
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a reader that waits for ever must not keep the test from ending"
)]
fn readers_go_on_wherever_the_writer_is_stopped() {
    let caller = Caller::new();
    let profiles = ["a.x", "b.x"].map(|name| caller.profile(name, &[any("http")]));
    let grants = profiles.map(|profile| caller.hold(want(u64::from(profile), 0, profile, 0)).0);
    caller.pump(0);
    let mut follower = caller.watch(None, 0);
    let (ctx, known) = (caller.ctx, follower.id);
    let stops = Arc::new(AtomicU32::new(0));
    let stopped = Arc::clone(&stops);
    let at_step = move || {
        stopped.fetch_add(1, Ordering::Relaxed);
        let (done, is_done) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            read_all(ctx, known);
            done.send(()).unwrap();
        });
        let ended = is_done.recv_timeout(Duration::from_secs(30));
        assert_ne!(
            ended,
            Err(mpsc::RecvTimeoutError::Timeout),
            "a reader waits"
        );
        reader.join().unwrap();
    };
    stepping(at_step, || {
        caller.address(0, 1, 9);
        for (seq, id) in (1..).zip(grants) {
            assert_eq!(caller.report(id, 1, seq, PR_E_READY), PR_OK);
        }
        assert_eq!(caller.drop_profile(profiles[1]), PR_OK);
        assert_eq!(caller.release_confirm(grants[1], 5), PR_OK);
        caller.pump(5);
    });
    assert!(stops.load(Ordering::Relaxed) > 10, "it was never stopped");
    // The reader on the way took what was told then; the rest is told now.
    follower.fill(&caller);
    follower.follow(&caller, 8);
    follower.check(&caller, &["a.x", "b.x"]);
}
