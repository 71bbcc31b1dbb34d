//! What a wrong caller gets: a code, and nothing changed.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument covers a list of like calls"
)]

use std::ptr::{null, null_mut};

use super::caller_test::*;
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::handle::Kind;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::pr_get_api;
use crate::plugin_abi::types::*;

#[test]
fn the_handshake_refuses_other_majors_and_unknown_wishes_and_says_what_we_speak() {
    // abi 1
    let refused = |host: PrHostinfo| {
        let (mut api, mut abi) = (null(), 0);
        // SAFETY: every pointer is to a live local.
        let code = unsafe { pr_get_api(&raw const host, &raw mut api, &raw mut abi) };
        assert!(api.is_null(), "the table was touched");
        (code, abi)
    };
    for abi in [0, 2, u32::MAX] {
        let host = PrHostinfo { abi, ..host_info() };
        assert_eq!(refused(host), (PR_EVERSION, PR_ABI));
    }
    let want_caps = PR_CAP_ENDPOINTS | 1 << 40;
    assert_eq!(
        refused(PrHostinfo {
            want_caps,
            ..host_info()
        }),
        (PR_EVERSION, PR_ABI)
    );
    // abi 7
    for size in [0, 3, 8, 15, u32::MAX] {
        assert_eq!(
            refused(PrHostinfo {
                size,
                ..host_info()
            }),
            (PR_EINVAL, 0)
        );
    }
    let mut api = null();
    // SAFETY: null is one of the things that may be passed.
    let code = unsafe { pr_get_api(null(), &raw mut api, null_mut()) };
    assert_eq!(code, PR_EINVAL);
    let host = host_info();
    // SAFETY: as above.
    let code = unsafe { pr_get_api(&raw const host, null_mut(), null_mut()) };
    assert_eq!(code, PR_EINVAL);
}

#[test]
fn the_table_is_one_and_the_same_for_every_thread() {
    // abi 2
    let first = std::ptr::from_ref(api()).addr();
    std::thread::scope(|scope| {
        let all = [(); 8].map(|()| scope.spawn(|| std::ptr::from_ref(api()).addr()));
        for thread in all {
            assert_eq!(thread.join().unwrap(), first);
        }
    });
    assert_eq!(api().size as usize, size_of::<PrApi>());
}

#[test]
fn a_longer_struct_is_read_if_its_tail_is_zero() {
    // abi 6
    #[repr(C)]
    struct Newer {
        known: PrConfig,
        tail: u64,
    }
    let create = |tail| {
        let mut newer = Newer {
            known: config(),
            tail,
        };
        newer.known.size = u32::try_from(size_of::<Newer>()).unwrap();
        let mut ctx = 0;
        let code = in_turn(|| {
            // SAFETY: the struct has the size it says.
            unsafe { (api().create)((&raw const newer).cast(), &raw mut ctx) }
        });
        (code, destroy(ctx))
    };
    assert_eq!(create(0), (PR_OK, PR_OK));
    assert_eq!(create(1), (PR_E2BIG, PR_ESTALE));
    assert!(last_error().contains("out of date"), "{}", last_error());
}

#[test]
fn wrong_sizes_flags_and_limits_make_no_context() {
    let refused = |config: PrConfig| {
        let mut ctx = 7;
        // SAFETY: every pointer is to a live local.
        let code = in_turn(|| unsafe { (api().create)(&raw const config, &raw mut ctx) });
        assert_eq!(ctx, 7, "an output was written on refusal");
        code
    };
    for size in [0, 3, u32::MAX] {
        assert_eq!(refused(PrConfig { size, ..config() }), PR_EINVAL);
    }
    // abi 8
    assert_eq!(
        refused(PrConfig {
            flags: 2,
            ..config()
        }),
        PR_EINVAL
    );
    let max_hosts = u32::MAX;
    assert_eq!(
        refused(PrConfig {
            max_hosts,
            ..config()
        }),
        PR_ELIMIT
    );
    for bad in ["1P", "A-B", "Ä", "a b"] {
        let env_prefix = text(bad);
        assert_eq!(
            refused(PrConfig {
                env_prefix,
                ..config()
            }),
            PR_EINVAL
        );
    }
}

#[test]
fn null_is_refused_for_each_pointer() {
    // abi 9
    let caller = Caller::new();
    let (api, ctx) = (caller.api, caller.ctx);
    let web = caller.profile("web.alice", &[any("http")]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    let txn = caller.begin(0);
    let mut one = 0;
    let mut long = 0;
    let need = PrNeed {
        profile: web,
        replicas: 1,
        at_ms: 0,
    };
    let wanted = want(2, 0, web, 0);
    let mut grant = no_grant();
    let mut port = 0;
    // SAFETY: null, or a live local of the length said.
    let codes = unsafe {
        [
            (api.create)(null(), &raw mut long),
            (api.create)(&raw const *Box::new(config()), null_mut()),
            (api.txn_begin)(ctx, 0, 0, null_mut()),
            (api.restore_end)(ctx, 0, 0, null_mut()),
            (api.reserve)(
                txn,
                0,
                null(),
                1,
                &raw mut grant,
                &raw mut port,
                1,
                &raw mut one,
            ),
            (api.reserve)(
                txn,
                0,
                &raw const wanted,
                1,
                null_mut(),
                &raw mut port,
                1,
                &raw mut one,
            ),
            (api.reserve)(
                txn,
                0,
                &raw const wanted,
                1,
                &raw mut grant,
                null_mut(),
                1,
                &raw mut one,
            ),
            (api.reserve)(
                txn,
                0,
                &raw const wanted,
                1,
                &raw mut grant,
                &raw mut port,
                1,
                null_mut(),
            ),
            (api.mark)(txn, null_mut()),
            (api.commit)(txn, null_mut()),
            (api.release_begin)(ctx, null(), 1, 0, null_mut()),
            (api.release_confirm)(ctx, null(), 1, 0, 0, null_mut()),
            (api.grant_find)(ctx, null(), &raw mut long),
            (api.grant_find)(ctx, &raw const wanted, null_mut()),
            (api.env)(ctx, id, 0, null_mut(), 1, &raw mut one),
            (api.env)(ctx, id, 0, null_mut(), 0, null_mut()),
            (api.pump)(ctx, 0, null_mut()),
            (api.report_addr)(ctx, 0, 1, null(), 1),
            (api.report_ready)(ctx, null(), 1, null_mut()),
            (api.resolve)(
                ctx,
                ABSENT,
                ABSENT,
                0,
                null_mut(),
                0,
                &raw mut one,
                &raw mut long,
            ),
            (api.resolve)(
                ctx,
                text("web.alice"),
                ABSENT,
                0,
                null_mut(),
                1,
                &raw mut one,
                &raw mut long,
            ),
            (api.resolve)(
                ctx,
                text("web.alice"),
                ABSENT,
                0,
                null_mut(),
                0,
                null_mut(),
                &raw mut long,
            ),
            (api.resolve)(
                ctx,
                text("web.alice"),
                ABSENT,
                0,
                null_mut(),
                0,
                &raw mut one,
                null_mut(),
            ),
            (api.last_error)(null_mut(), 1, &raw mut one),
            (api.last_error)(null_mut(), 0, null_mut()),
        ]
    };
    assert_eq!(codes, [PR_EINVAL; 25]);
    // SAFETY: null, or a live local of the length said.
    let sets = unsafe {
        [
            (api.feasible)(txn, null(), null(), &raw mut long, null_mut(), 1),
            (api.feasible)(txn, &raw const need, null(), null_mut(), null_mut(), 1),
        ]
    };
    assert_eq!(sets, [i64::from(PR_EINVAL); 2]);
    // SAFETY: nothing is read of an array of no element.
    let nothing = unsafe {
        [
            (api.reserve)(txn, 0, null(), 0, null_mut(), null_mut(), 0, &raw mut one),
            (api.release_begin)(ctx, null(), 0, 0, null_mut()),
            (api.report_ready)(ctx, null(), 0, null_mut()),
        ]
    };
    assert_eq!(nothing, [PR_OK; 3]);
    assert_eq!(caller.abort(txn), PR_OK);
    // SAFETY: null, and no element.
    let (one_null, none) = unsafe {
        (
            (api.host_put)(ctx, null(), 1),
            (api.host_put)(ctx, null(), 0),
        )
    };
    assert_eq!((one_null, none), (PR_EINVAL, PR_OK));
}

#[test]
fn a_stale_or_foreign_id_is_never_followed() {
    // abi 10, 11, 12
    let caller = Caller::new();
    let other = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let (id, _) = caller.hold(want(1, 0, web, 0));
    for wrong in [0, 1, u64::MAX, 0x3000_0000_0000_0001, caller.ctx, other.ctx] {
        assert_eq!(caller.release_begin(wrong), PR_ESTALE, "{wrong:#x}");
        assert_eq!(caller.commit(wrong), PR_ESTALE, "{wrong:#x}");
    }
    assert_eq!(other.release_begin(id), PR_ESTALE);
    let txn = caller.begin(0);
    assert_eq!(caller.abort(txn), PR_OK);
    assert_eq!(caller.abort(txn), PR_ESTALE);
    assert_eq!(caller.commit(txn), PR_ESTALE);
    let later = caller.begin(0);
    assert_eq!(caller.commit(txn), PR_ESTALE);
    assert_eq!(caller.commit(later), PR_OK);
    let codes = [destroy(caller.ctx), destroy(caller.ctx)];
    assert_eq!(codes, [PR_OK, PR_ESTALE]);
    assert_eq!(caller.try_begin(0, 0), Err(PR_ESTALE));
    assert_eq!(caller.release_begin(id), PR_ESTALE);
    assert_eq!(caller.resolve("web.alice", 0).unwrap_err(), PR_ESTALE);
    // A new context in the same place gives out none of the old ids.
    let next = Caller::new();
    let web = next.profile("web.alice", &[any("http")]);
    let (newer, _) = next.hold(want(1, 0, web, 0));
    assert_ne!((next.ctx, newer), (caller.ctx, id));
    assert_eq!(next.release_begin(id), PR_ESTALE);
}

#[test]
fn a_count_beyond_the_limit_is_refused_before_anything_is_read() {
    // abi 14
    let caller = Caller::new();
    let web = caller.profile("web.alice", &[any("http")]);
    let txn = caller.begin(0);
    let wanted = want(1, 0, web, 0);
    let (mut need, mut grant) = (0, no_grant());
    let api = caller.api;
    // SAFETY: the count is beyond the limit, so that nothing is read.
    let code = unsafe {
        (api.reserve)(
            txn,
            0,
            &raw const wanted,
            u32::MAX,
            &raw mut grant,
            null_mut(),
            0,
            &raw mut need,
        )
    };
    assert_eq!(code, PR_ELIMIT);
    // SAFETY: as above.
    let code =
        unsafe { (api.release_begin)(caller.ctx, &raw const grant.id, u32::MAX, 0, null_mut()) };
    assert_eq!(code, PR_ELIMIT);
    let asked = PrNeed {
        profile: web,
        replicas: 0,
        at_ms: 0,
    };
    let mut word = 0;
    // SAFETY: as above.
    let code = unsafe {
        (api.feasible)(
            txn,
            &raw const asked,
            null(),
            &raw mut word,
            null_mut(),
            u32::MAX,
        )
    };
    assert_eq!(code, i64::from(PR_ELIMIT));
}

#[test]
fn a_malformed_profile_is_refused_with_its_reason() {
    // abi 19
    let caller = Caller::new();
    let refused = |ports: &[PrPort], code, word: &str| {
        assert_eq!(caller.try_profile("web.alice", ports), Err(code));
        assert!(last_error().contains(word), "{word}: {}", last_error());
    };
    refused(&[any("http"), any("http")], PR_EINVAL, "http");
    refused(&[fixed("a", 80), fixed("b", 80)], PR_EINVAL, "both fix 80");
    refused(&[any("HTTP")], PR_EINVAL, "port.name");
    refused(
        &[PrPort {
            proto: 0,
            ..any("a")
        }],
        PR_EINVAL,
        "proto",
    );
    refused(
        &[PrPort {
            flags: 2,
            ..any("a")
        }],
        PR_EINVAL,
        "flags",
    );
    refused(
        &[PrPort {
            count: 2,
            ..fixed("a", 80)
        }],
        PR_EINVAL,
        "block",
    );
    refused(
        &[PrPort {
            count: 257,
            ..any("a")
        }],
        PR_ELIMIT,
        "257",
    );
    refused(
        &[PrPort {
            network: text("ib"),
            ..any("a")
        }],
        PR_ENOENT,
        "ib is not known",
    );
    refused(
        &[PrPort {
            env: text("PORTREEVE_X"),
            ..any("a")
        }],
        PR_EINVAL,
        "PORTREEVE_",
    );
    let reversed = [PrRange { lo: 3, hi: 1 }];
    let within = reversed.as_ptr();
    refused(
        &[PrPort {
            within,
            n_within: 1,
            ..any("a")
        }],
        PR_EINVAL,
        "within",
    );
    refused(
        &[PrPort {
            within: null(),
            n_within: 1,
            ..any("a")
        }],
        PR_EINVAL,
        "within",
    );
    assert_eq!(
        caller.try_profile("no-namespace", &[any("a")]),
        Err(PR_EINVAL)
    );
    assert_eq!(caller.try_profile("web.alice", &[]), Ok(0));
}

/// Keeps level, code and length of the last line in `ud`.
unsafe extern "C" fn keep_line(
    ud: *mut std::ffi::c_void,
    level: i32,
    code: i32,
    _: *const std::ffi::c_char,
    n: u64,
) {
    // SAFETY: `ud` is a live local of the test.
    unsafe { ud.cast::<(i32, i32, u64)>().write((level, code, n)) };
}

#[test]
fn a_call_that_outlives_its_context_tells_the_log_no_more() {
    let mut logged = (0, 0, 0_u64);
    let caller = Caller::with(&PrConfig {
        ud: (&raw mut logged).cast(),
        log: Some(keep_line),
        ..config()
    });
    let code: i32 = inside(caller.ctx, Kind::Context, Class::Report, |context, _| {
        context.log(6, PR_OK, "before");
        assert_eq!(destroy(caller.ctx), PR_OK);
        context.log(6, PR_OK, "afterwards");
        Ok(PR_OK)
    });
    assert_eq!(code, PR_OK);
    assert_eq!(logged, (6, PR_OK, 6));
}

#[test]
fn a_caught_panic_poisons_its_context_and_no_other() {
    let mut logged = (0, 0, 0_u64);
    let poisoned = Caller::with(&PrConfig {
        ud: (&raw mut logged).cast(),
        log: Some(keep_line),
        ..config()
    });
    let sound = Caller::new();
    let code: i32 = inside(poisoned.ctx, Kind::Context, Class::Report, |_, _| {
        panic!("a defect")
    });
    assert_eq!(code, PR_EPOISON);
    assert!(last_error().contains("a defect"), "{}", last_error());
    assert_eq!((logged.0, logged.1), (3, PR_EPOISON));
    assert!(logged.2 > 0);
    assert_eq!(poisoned.try_begin(0, 0), Err(PR_EPOISON));
    assert!(sound.try_begin(0, 0).is_ok());
    let mut stats = [0_u64; 17];
    stats[0] = 136;
    // SAFETY: the struct has the size it says.
    let code = unsafe { (poisoned.api.stats)(poisoned.ctx, stats.as_mut_ptr().cast()) };
    assert_eq!(code, PR_OK);
    assert_eq!(destroy(poisoned.ctx), PR_OK);
}

#[test]
fn a_forked_child_is_told_that_the_context_is_its_parents() {
    let caller = Caller::new();
    let mut txn = 0;
    // SAFETY: the child makes one call that takes no lock and allocates nothing, then ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: `txn` is a live local.
        let code = unsafe { (caller.api.txn_begin)(caller.ctx, 0, 0, &raw mut txn) };
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(code != PR_EFORK)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(caller.try_begin(0, 0).is_ok(), "{}", last_error());
}

#[test]
fn every_code_and_reason_has_words() {
    let words = |at: *const std::ffi::c_char| {
        // SAFETY: static text with a NUL.
        let text = unsafe { std::ffi::CStr::from_ptr(at) };
        text.to_str().unwrap().to_owned()
    };
    let api = api();
    for (name, value) in CONSTANTS {
        // SAFETY: any number may be asked.
        let (code, reason) = unsafe {
            (
                words((api.strerror_)(i32::try_from(*value).unwrap_or(1))),
                words((api.reason_)(u32::try_from(*value).unwrap_or(99))),
            )
        };
        if name.starts_with("PR_E") && *value < 0 {
            assert_ne!(code, "an unknown code", "{name}");
        }
        if name.starts_with("PR_R_") {
            assert_ne!(reason, "UNKNOWN REASON", "{name}");
        }
    }
}
