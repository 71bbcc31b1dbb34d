//! What people read.

use std::ffi::c_char;
use std::ptr::null_mut;

use crate::plugin_abi::border::entry::Class;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::state::contexts;
use crate::plugin_abi::types::*;

impl Caller {
    fn dump(&self) -> String {
        let mut need = 0;
        // SAFETY: no buffer, and a live local.
        let code = unsafe { (self.api.dump)(self.ctx, null_mut(), 0, &raw mut need) };
        assert_eq!(code, PR_ENOSPC);
        let mut buffer = vec![0x55_u8; need as usize];
        let at = buffer.as_mut_ptr().cast::<c_char>();
        // SAFETY: a live buffer of the length said, and a live local.
        let code = unsafe { (self.api.dump)(self.ctx, at, need, &raw mut need) };
        assert_eq!(code, PR_OK, "{}", last_error());
        assert_eq!(buffer.pop(), Some(0));
        assert!(!buffer.contains(&0));
        String::from_utf8(buffer).unwrap()
    }
}

/// Each of these is a line of the text, or the beginning of one.
fn has(text: &str, lines: &[&str]) {
    for expected in lines {
        let found = text.lines().any(|line| line.starts_with(expected));
        assert!(found, "{expected:?} not in:\n{text}");
    }
}

fn at_work() -> Caller {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http"), fixed("admin", 8080)]);
    caller.hold(want(1, 0, web, 0));
    let (id, _) = caller.hold(want(2, 0, web, 1));
    assert_eq!(caller.report(id, 3, 1, PR_E_READY), PR_OK);
    assert_eq!(caller.release_begin(id), PR_OK);
    let waiting = want(3, 0, web, PR_ANY);
    // SAFETY: one live element.
    let code = unsafe { (caller.api.wait_put)(caller.ctx, &raw const waiting, 1, null_mut()) };
    assert_eq!(code, PR_OK);
    caller.pump(1000);
    caller
}

#[test]
fn a_dump_tells_hosts_profiles_grants_and_waits() {
    let caller = at_work();
    has(
        &caller.dump(),
        &[
            "time: 1000 ms; nothing is due",
            "limits: 256 hosts, 100 grants, 10 profiles, 4096 waits, 1000 numbers in a transaction; variables begin with PORTREEVE_",
            "counts: 2 hosts, 2 grants, 1 waits, 0 snapshots, 0 watches, 0 of them reset; 4 of 25536 numbers in grants, 0 cool",
            "calls: 2 commits, 0 aborts, 0 busy, 0 stale, 0 queued; about ",
            "  0 n1: up, 12768 numbers for any, free 12767 tcp 12768 udp, 2 held, 0 cool",
            "  0 web.alice: http=any/tcp admin=8080/tcp",
            "  job 1 step 0 replica 0 incarnation 0 of profile 0 on host 0: 8080 20000; held, run 0 said not ready, 0 restarts",
            "  job 2 step 0 replica 0 incarnation 0 of profile 0 on host 1: 8080 20000; releasing, run 3 said ready, 0 restarts",
            "  job 3 step 0 replica 0 incarnation 0 of profile 0 for any host",
        ],
    );
    let txn = caller.begin(2000);
    assert!(caller.dump().contains("sound; a transaction is open\n"));
    assert_eq!(caller.abort(txn), PR_OK);
    assert!(caller.dump().contains("sound; no transaction is open\n"));
}

#[test]
fn a_long_dump_is_cut_and_says_how_much_is_left() {
    let mut config = config();
    config.max_hosts = 2000;
    let caller = Caller::with(&config);
    let names: Vec<String> = (0..1007).map(|index| format!("n{index}")).collect();
    let hosts: Vec<_> = (0..).zip(&names).map(|(at, name)| host(at, name)).collect();
    assert_eq!(caller.put(&hosts), PR_OK);
    let text = caller.dump();
    has(&text, &["hosts: 1007", "  999 n999: up", "  … and 7 more"]);
    assert!(!text.contains("n1000"));
}

#[test]
fn a_poisoned_context_is_still_told_and_counted() {
    let caller = at_work();
    let handle = Handle::read(caller.ctx, Kind::Context).unwrap();
    let found = contexts::find(handle).unwrap();
    found.context().unwrap().poison("caught", Class::Hot);
    assert_eq!(caller.try_begin(0, 0), Err(PR_EPOISON));
    let text = caller.dump();
    assert!(text.contains(": poisoned: destroy it, create and restore;"));
    has(&text, &["counts: 2 hosts, 2 grants", "  job 2 step 0"]);
}

#[test]
fn the_memory_of_a_context_is_counted_by_its_maxima_its_hosts_and_its_grants() {
    let bytes = |caller: &Caller| {
        // SAFETY: all zeros are stats without room.
        let mut stats: PrStats = unsafe { std::mem::zeroed() };
        stats.size = size(&stats);
        // SAFETY: live stats of the size that they say.
        let code = unsafe { (caller.api.stats)(caller.ctx, &raw mut stats) };
        assert_eq!(code, PR_OK);
        stats.bytes
    };
    let mut large = config();
    large.max_allocs = 10_000;
    let (small, large) = (Caller::with(&config()), Caller::with(&large));
    let empty = bytes(&small);
    // A slot for each grant that there may be, taken at the start.
    let slots = bytes(&large) - empty;
    assert!((9900 * 64..9900 * 1024).contains(&slots), "{slots}");
    assert_eq!(small.put(&[host(0, "n1"), host(1, "n2")]), PR_OK);
    let hosts = bytes(&small);
    assert!((empty + 256..empty + 64 * 1024).contains(&hosts), "{hosts}");
    let web = small.profile("web.alice", &[any("http")]);
    for job in 0..50 {
        small.hold(want(job, 0, web, 0));
    }
    small.pump(0);
    assert!(bytes(&small) > hosts);
}

#[test]
fn those_who_only_look_neither_wait_for_a_call_at_work_nor_keep_one_from_its_work() {
    // Once `dump` held what decides while it wrote, so that a scheduler's txn_begin was refused for it.
    let caller = at_work();
    let handle = Handle::read(caller.ctx, Kind::Context).unwrap();
    let found = contexts::find(handle).unwrap();
    let at_work = found.context().unwrap().hot().unwrap();
    let held = "  job 1 step 0 replica 0 incarnation 0 of profile 0 on host 0: 8080 20000; held";
    has(&caller.dump(), &["counts: 2 hosts, 2 grants", held]);
    assert!(caller.dump().contains("sound; no transaction is open\n"));
    assert_eq!(caller.listed("web.alice"), 0);
    // SAFETY: all zeros are stats without room.
    let mut stats: PrStats = unsafe { std::mem::zeroed() };
    stats.size = size(&stats);
    // SAFETY: live stats of the size that they say.
    let code = unsafe { (caller.api.stats)(caller.ctx, &raw mut stats) };
    assert_eq!((code, stats.allocs), (PR_OK, 2));
    let (mut told, mut flags) = (9, 9);
    let (ctx, next) = (caller.ctx, caller.api.wait_next);
    // SAFETY: no room is asked for, and live locals.
    let code = unsafe { next(ctx, null_mut(), 0, &raw mut told, &raw mut flags) };
    assert_eq!((code, told), (PR_OK, 0));
    drop(at_work);
    let txn = caller.begin(2000);
    assert_eq!(caller.abort(txn), PR_OK);
}
