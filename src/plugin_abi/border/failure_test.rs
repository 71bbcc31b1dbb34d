//! What a person reads who asks `last_error`: what was refused, its value, and what can stand there.

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::pr_get_api;
use crate::plugin_abi::types::*;

#[track_caller]
fn said(words: &str) {
    assert_eq!(last_error(), words);
}

#[test]
fn a_handshake_that_fails_says_whether_it_was_the_version_or_a_capability() {
    let greet = |host: PrHostinfo| {
        let mut api = std::ptr::null();
        // SAFETY: every pointer is to a live local, or null where that is allowed.
        unsafe { pr_get_api(&raw const host, &raw mut api, std::ptr::null_mut()) }
    };
    let later = PrHostinfo {
        abi: 7,
        ..host_info()
    };
    assert_eq!(greet(later), PR_EVERSION);
    said("the versions or capabilities do not fit: this plugin speaks 1, the program 7");
    let greedy = PrHostinfo {
        want_caps: PR_CAP_ENDPOINTS | 0x60,
        ..host_info()
    };
    assert_eq!(greet(greedy), PR_EVERSION);
    said("the versions or capabilities do not fit: this plugin lacks the capabilities 0x60");
}

#[test]
fn one_bad_host_among_many_is_found_by_its_place() {
    let caller = Caller::new();
    let reversed = [PrRange { lo: 5, hi: 2 }];
    let bad = PrHost {
        dynamic: reversed.as_ptr(),
        n_dynamic: 1,
        ..host(3, "n3")
    };
    assert_eq!(caller.put(&[host(2, "n2"), bad]), PR_EINVAL);
    said(
        "an argument is malformed: hosts[1]: host.dynamic: 5-2 is no range: the lower number first, both 1 to 65535",
    );
    let nameless = PrHost {
        name: text(""),
        ..host(2, "")
    };
    assert_eq!(caller.put(&[nameless]), PR_EINVAL);
    said("an argument is malformed: hosts[0]: host.name is absent");
    let both = PrHost {
        flags: PR_HOST_LOWEST | PR_HOST_RANDOM,
        ..host(2, "n2")
    };
    assert_eq!(caller.put(&[both]), PR_EINVAL);
    said(
        "an argument is malformed: hosts[0]: host.flags: PR_HOST_LOWEST and PR_HOST_RANDOM exclude each other",
    );
}

#[test]
fn who_forgot_a_size_is_told_to_write_it() {
    let mut ctx = 0;
    let forgotten = PrConfig {
        size: 0,
        ..config()
    };
    // SAFETY: every pointer is to a live local.
    let code = in_turn(|| unsafe { (api().create)(&raw const forgotten, &raw mut ctx) });
    assert_eq!(code, PR_EINVAL);
    said("an argument is malformed: config has size 0: write its sizeof, 80 to 4096");
}

#[test]
fn a_number_that_cannot_stand_there_is_told_with_those_that_can() {
    let caller = Caller::new();
    let of_no_protocol = PrPort {
        proto: 0,
        ..any("rpc")
    };
    let ports = [any("http"), of_no_protocol];
    assert_eq!(caller.try_profile("web.alice", &ports), Err(PR_EINVAL));
    said(
        "an argument is malformed: ports[1]: proto: 0, where PR_TCP, PR_UDP or PR_TCP_UDP can stand",
    );
    assert_eq!(caller.try_begin(0x40, 1000), Err(PR_EINVAL));
    said("an argument is malformed: flags: 0x40 has a bit that is unknown here");
}

#[test]
fn an_id_is_told_as_it_was_written_and_0_as_nothing() {
    let caller = Caller::new();
    assert_eq!(caller.commit(0), PR_ESTALE);
    said("the id, mark or report is out of date: the id is 0, which is nothing's");
    assert_eq!(caller.commit(0x7000_0000_0000_0001), PR_ESTALE);
    said("the id, mark or report is out of date: an id of another kind: 0x7000000000000001");
}

#[test]
fn a_buffer_that_is_too_small_is_told_with_what_is_needed() {
    let caller = Caller::new();
    let mut need = 0;
    // SAFETY: no room is written where there is none; `need` is a live local.
    let code = unsafe { (api().dump)(caller.ctx, std::ptr::null_mut(), 0, &raw mut need) };
    assert_eq!(code, PR_ENOSPC);
    said(&format!(
        "the buffer is too small: it has room for 0, and {need} are needed"
    ));
}

#[test]
fn a_host_that_does_not_fit_is_told_with_its_first_reason() {
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[fixed("http", 8080)]);
    caller.hold(want(1, 0, web, 0));
    let txn = caller.begin(1000);
    let (code, _, _) = caller.reserve(txn, want(2, 0, web, 0));
    assert_eq!(code, PR_ENOPORT);
    said("the host cannot give these ports: host 0: HELD");
    assert_eq!(caller.abort(txn), PR_OK);
}
