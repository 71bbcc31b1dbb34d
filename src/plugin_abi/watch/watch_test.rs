//! What a watch promises, and what the descriptors do, called as C would.

use std::ptr::null_mut;

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;
use crate::plugin_abi::watch::feed::Feed;
use crate::plugin_abi::watch::follower_test::*;

/// Another one each time.
fn flipped(seq: u64) -> u32 {
    if seq.is_multiple_of(2) {
        PR_E_READY
    } else {
        PR_E_NOT_READY
    }
}

fn kinds(changes: &[PrChange]) -> Vec<(u32, PrAlloc, u32)> {
    let told = changes.iter();
    told.map(|change| (change.kind, change.ep.id, change.ep.state))
        .collect()
}

#[test]
fn a_watch_tells_each_change_of_its_service_once_and_in_order() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let other = caller.profile("db.alice", &[any("sql")]);
    caller.address(0, 1, 1);
    let (_, since) = all_of(&caller, "web.alice").unwrap();
    let (watch, fd) = caller.try_watch(Some("web.alice"), since).unwrap();
    assert!(!is_readable(fd));
    let (id, ports) = caller.hold(want(1, 0, web, 0));
    caller.hold(want(2, 0, other, 0));
    // A hot call shows nothing to readers yet.
    assert!(!is_readable(fd));
    caller.pump(0);
    assert!(is_readable(fd));
    assert_eq!(caller.report(id, 1, 1, PR_E_READY), PR_OK);
    let (changes, flags) = caller.next(watch, 8).unwrap();
    assert_eq!(flags, 0);
    let expected = [
        (PR_CH_UPSERT, id, PR_E_NOT_READY),
        (PR_CH_UPSERT, id, PR_E_READY),
    ];
    assert_eq!(kinds(&changes), expected);
    assert_eq!(changes[1].ep.port, ports[0]);
    assert_eq!(changes[1].ep.revision, changes[1].revision);
    assert_eq!(all_of(&caller, "web.alice").unwrap().1, changes[1].revision);
    assert!(!is_readable(fd));
    // A change of another service, and a report that changes nothing, are not told.
    assert_eq!(caller.report(id, 1, 2, PR_E_READY), PR_OK);
    caller.hold(want(3, 0, other, 0));
    caller.pump(0);
    assert!(!is_readable(fd));
    // The end: out in two steps.
    assert_eq!(caller.release_begin(id), PR_OK);
    caller.pump(1);
    assert_eq!(caller.release_confirm(id, 2), PR_OK);
    caller.pump(2);
    let (changes, flags) = caller.next(watch, 8).unwrap();
    let expected = [
        (PR_CH_UPSERT, id, PR_E_TERMINATING),
        (PR_CH_REMOVE, id, PR_E_TERMINATING),
    ];
    assert_eq!((kinds(&changes).as_slice(), flags), (&expected[..], 0));
    assert_eq!(caller.close(watch), PR_OK);
    // abi 11
    assert_eq!(caller.close(watch), PR_ESTALE);
    assert_eq!(caller.next(watch, 8).unwrap_err(), PR_ESTALE);
}

#[test]
fn a_name_that_nobody_knows_is_waited_for_and_goes_with_its_last_profile_and_replica() {
    let caller = Caller::new();
    let mut one = caller.watch(Some("web.alice"), 0);
    let mut all = caller.watch(None, 0);
    assert!(!is_readable(one.fd));
    let web = caller.profile("web.alice", &[any("http")]);
    let again = caller.profile("web.alice", &[any("http"), any("admin")]);
    // A service without replicas has nothing to tell.
    assert!(!is_readable(one.fd));
    let (id, _) = caller.hold(want(1, 0, web, 0));
    caller.pump(0);
    one.follow(&caller, 1);
    all.follow(&caller, 1);
    assert_eq!((one.table.len(), all.table.len()), (1, 1));
    assert_eq!(caller.drop_profile(web), PR_OK);
    assert_eq!(caller.drop_profile(again), PR_OK);
    assert!(!is_readable(one.fd) && !is_readable(all.fd));
    assert_eq!(caller.listed("web.alice"), 0);
    assert_eq!(caller.release_confirm(id, 5), PR_OK);
    caller.pump(5);
    assert_eq!(caller.resolve("web.alice", 0).unwrap_err(), PR_ENOENT);
    assert_eq!(caller.try_snap(Some("web.alice")).unwrap_err(), PR_ENOENT);
    for follower in [&one, &all] {
        let (changes, flags) = caller.next(follower.id, 8).unwrap();
        let told: Vec<_> = changes.iter().map(|change| change.kind).collect();
        assert_eq!(
            (told.as_slice(), flags),
            (&[PR_CH_REMOVE, PR_CH_SERVICE_GONE][..], 0)
        );
        let gone = changes[1];
        assert_eq!(gone.ep.service, changes[0].ep.service);
        assert_eq!(
            (gone.ep.id, gone.ep.name, gone.ep.replica),
            (0, PR_ANY, PR_ANY)
        );
        assert_eq!(gone.revision, changes[0].revision);
    }
    // A service of that name later is followed too, under the number it had.
    let web = caller.profile("web.alice", &[any("http")]);
    caller.hold(want(2, 0, web, 0));
    caller.pump(6);
    let (changes, _) = caller.next(one.id, 8).unwrap();
    assert_eq!((changes.len(), changes[0].kind), (1, PR_CH_UPSERT));
    assert_eq!(changes[0].ep.service, 0);
    // Without a replica it goes at once.
    let idle = caller.profile("idle.alice", &[any("http")]);
    assert_eq!(caller.drop_profile(idle), PR_OK);
    assert_eq!(caller.resolve("idle.alice", 0).unwrap_err(), PR_ENOENT);
}

#[test]
fn a_newer_placement_takes_the_place_of_an_older_one_and_gives_it_back() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http"), any("admin")]);
    let mut all = caller.watch(None, 0);
    let older = want(1, 0, web, 0);
    let (first, _) = caller.hold(older);
    let newer = PrWant {
        incarnation: 1,
        host: 1,
        ..older
    };
    let (second, _) = caller.hold(newer);
    caller.pump(0);
    all.follow(&caller, 8);
    all.check(&caller, &["web.alice"]);
    assert!(all.table.keys().all(|(id, _)| *id == second));
    assert_eq!(caller.release_confirm(second, 1), PR_OK);
    caller.pump(1);
    let (changes, _) = caller.next(all.id, 8).unwrap();
    let told: Vec<_> = changes.iter().map(|it| (it.kind, it.ep.id)).collect();
    let expected = [
        (PR_CH_REMOVE, second),
        (PR_CH_REMOVE, second),
        (PR_CH_UPSERT, first),
        (PR_CH_UPSERT, first),
    ];
    assert_eq!(told, expected);
}

#[test]
fn rows_come_in_pieces_of_any_size_and_more_leaves_the_descriptor_readable() {
    let caller = Caller::new();
    let names: Vec<_> = (0..5).map(|at| format!("p{at}")).collect();
    let ports: Vec<_> = names.iter().map(|name| any(name)).collect();
    let web = caller.profile("web.alice", &ports);
    for replica in 0..7 {
        caller.hold(want(1, replica, web, 0));
    }
    caller.pump(0);
    for cap in [1, 2, 3, 34, 35, 36] {
        let mut one = caller.watch(None, 0);
        let mut rows = 0;
        while is_readable(one.fd) {
            let before = one.table.len();
            let more = one.look(&caller, cap);
            rows += one.table.len() - before;
            assert_eq!(more, rows < 35, "{rows} by {cap}");
        }
        assert_eq!(rows, 35);
        one.check(&caller, &["web.alice"]);
        caller.close(one.id);
    }
    // No room at all: nothing is lost.
    let mut one = caller.watch(None, 0);
    assert_eq!(caller.next(one.id, 0).unwrap().1, PR_MORE);
    assert!(is_readable(one.fd));
    one.follow(&caller, 4);
    one.check(&caller, &["web.alice"]);
    let read = caller.next(one.id, 0).unwrap();
    assert_eq!((read.0.len(), read.1), (0, 0));
}

#[test]
fn a_watch_that_begins_too_early_or_in_another_life_is_told_to_begin_anew() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let quiet = caller.profile("quiet.alice", &[any("http")]);
    caller.hold(want(9, 0, quiet, 0));
    let (id, _) = caller.hold(want(1, 0, web, 0));
    caller.pump(0);
    let (_, early) = caller.snapshot(None, 8).unwrap();
    let mut slow = caller.watch(None, early);
    let mut slow_web = caller.watch(Some("web.alice"), early);
    let mut slow_quiet = caller.watch(Some("quiet.alice"), early);
    let mut seq = 0;
    let mut flap = || {
        seq += 1;
        let state = flipped(seq);
        assert_eq!(caller.report(id, 1, seq, state), PR_OK);
    };
    for _ in 0..Feed::KEPT {
        flap();
    }
    // What is kept is told whole, however much it is.
    let mut fast = caller.watch(None, early);
    assert!(!is_readable(slow_quiet.fd));
    for _ in 0..200 {
        flap();
    }
    fast.follow(&caller, 100);
    assert_eq!(fast.resets, 1);
    for follower in [&mut slow, &mut slow_web] {
        assert!(is_readable(follower.fd));
        follower.follow(&caller, 100);
        assert_eq!(follower.resets, 1);
        follower.check(&caller, &["web.alice", "quiet.alice"]);
        assert!(!is_readable(follower.fd));
    }
    // Whose service rests has missed nothing, and neither has who begins so late with such a one.
    slow_quiet.fill(&caller);
    caller.host_state(0, PR_HOST_LOST);
    caller.host_state(0, PR_HOST_UP);
    slow_quiet.follow(&caller, 1);
    assert_eq!(slow_quiet.resets, 0);
    slow_quiet.check(&caller, &["quiet.alice"]);
    // Too early, and from a number line that is not ours.
    let now = caller.snapshot(None, 8).unwrap().1;
    for since in [0, early, now + 1, PR_NEVER] {
        let mut late = caller.watch(None, since);
        assert!(is_readable(late.fd), "since {since}");
        late.follow(&caller, 8);
        assert_eq!(late.resets, 1, "since {since}");
        late.check(&caller, &["web.alice", "quiet.alice"]);
        caller.close(late.id);
    }
    let mut present = caller.watch(None, now);
    assert!(!is_readable(present.fd));
    flap();
    present.follow(&caller, 8);
    assert_eq!((present.resets, present.table.len()), (0, 1));
    assert_eq!(caller.stats().watch_resets, 7);
}

#[test]
fn a_service_that_rests_is_followed_from_however_long_ago() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let quiet = caller.profile("quiet.alice", &[any("http")]);
    caller.hold(want(9, 0, quiet, 0));
    let (id, _) = caller.hold(want(1, 0, web, 0));
    caller.pump(0);
    let (_, at) = caller.snapshot(Some("quiet.alice"), 8).unwrap();
    for seq in 0..=Feed::KEPT as u64 + 200 {
        let state = flipped(seq);
        assert_eq!(caller.report(id, 1, seq, state), PR_OK);
    }
    let mut one = caller.watch(Some("quiet.alice"), at);
    assert!(!is_readable(one.fd));
    one.fill(&caller);
    caller.address(0, 1, 7);
    one.follow(&caller, 8);
    assert_eq!(one.resets, 0);
    one.check(&caller, &["quiet.alice"]);
}

#[test]
fn at_the_end_of_a_context_its_ids_are_stale_and_its_descriptors_closed() {
    let caller = Caller::new();
    caller.profile("web.alice", &[any("http")]);
    let (watch, fd) = caller.try_watch(None, 0).unwrap();
    let (snap, ..) = caller.try_snap(None).unwrap();
    // Another one of the same, which stays open, tells whether the first became readable: it shares what is written.
    // SAFETY: no pointer is passed.
    let shared = unsafe { libc::dup(fd) };
    let mut wait = -1;
    // SAFETY: a live local.
    let code = unsafe { (caller.api.wait_fd)(caller.ctx, &raw mut wait) };
    assert_eq!(code, PR_OK);
    // SAFETY: as above.
    let shared_wait = unsafe { libc::dup(wait) };
    assert!(!is_readable(shared) && !is_readable(shared_wait));
    assert_eq!(destroy(caller.ctx), PR_OK);
    assert!(is_readable(shared) && is_readable(shared_wait));
    for own in [shared, shared_wait] {
        // SAFETY: made above, and not used any more.
        unsafe { libc::close(own) };
    }
    // abi 12
    assert_eq!(caller.next(watch, 1).unwrap_err(), PR_ESTALE);
    assert_eq!(caller.close(watch), PR_ESTALE);
    assert_eq!(caller.snap_read(snap, 0, 1).unwrap_err(), PR_ESTALE);
    assert_eq!(caller.snap_close(snap), PR_ESTALE);
    assert_eq!(caller.try_watch(None, 0).unwrap_err(), PR_ESTALE);
    // A later context in its place gives none of these ids again.
    let later = Caller::new();
    let (newer, _) = later.try_watch(None, 0).unwrap();
    assert_ne!(newer, watch);
    assert_eq!(later.next(watch, 1).unwrap_err(), PR_ESTALE);
}

#[test]
fn the_wait_descriptor_is_readable_while_somebody_who_fits_is_not_told() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 20000)]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    let waiting = [want(2, 0, web, 0), want(3, 0, web, PR_ANY)];
    let put = |wants: &[PrWant]| {
        let n = u32::try_from(wants.len()).unwrap();
        // SAFETY: `n` live elements.
        unsafe { (caller.api.wait_put)(caller.ctx, wants.as_ptr(), n, null_mut()) }
    };
    let next = |cap: u32| {
        let mut told = [want(0, 0, 0, 0); 4];
        let (mut n, mut flags) = (0, 0);
        // SAFETY: room for 4, and live locals.
        let code = unsafe {
            (caller.api.wait_next)(
                caller.ctx,
                told.as_mut_ptr(),
                cap,
                &raw mut n,
                &raw mut flags,
            )
        };
        assert_eq!(code, PR_OK);
        (n, flags)
    };
    let mut fd = -1;
    // SAFETY: a live local.
    let ask = |fd: &mut i32| unsafe { (caller.api.wait_fd)(caller.ctx, fd) };
    assert_eq!(put(&waiting[1..]), PR_OK);
    caller.pump(0);
    // Found before there was a descriptor.
    assert_eq!(ask(&mut fd), PR_OK);
    assert!(is_readable(fd));
    let mut same = -1;
    assert_eq!(ask(&mut same), PR_OK);
    assert_eq!(same, fd);
    assert_eq!(next(0), (0, PR_MORE));
    assert!(is_readable(fd));
    assert_eq!(next(4), (1, 0));
    assert!(!is_readable(fd));
    assert_eq!(put(&waiting[..1]), PR_OK);
    caller.pump(1);
    // Somebody new waits, in vain; who fitted and did not ask is told again.
    assert!(is_readable(fd));
    assert_eq!(next(4), (1, 0));
    caller.pump(2);
    assert!(!is_readable(fd));
    // Both numbers are free: two to tell, in pieces.
    assert_eq!(caller.release_confirm(id, 3), PR_OK);
    caller.pump(70_000);
    assert!(is_readable(fd));
    let (first, flags) = next(1);
    assert_eq!(first, 1);
    assert_eq!(is_readable(fd), flags == PR_MORE);
    while is_readable(fd) {
        next(1);
    }
    assert_eq!(next(4), (0, 0));
}
