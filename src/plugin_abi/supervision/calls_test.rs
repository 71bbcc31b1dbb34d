//! What a wrong caller of the worker half gets: a code, and nothing changed.

use std::ptr::{null, null_mut};

use super::worker_test::{NO_EFFECT, PROFILE, Worker, event, try_load, try_new};
use crate::plugin_abi::caller_test::{api, last_error, size, text};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

#[test]
fn a_profile_is_refused_with_the_words_of_every_other_reader() {
    for (profile, words) in [
        ("", "profile_json: "),
        ("{", "profile_json: "),
        ("[]", "profile_json: "),
        (
            r#"{"name": "web", "command": ["serve"], "restrat": {}}"#,
            "restart",
        ),
        (
            r#"{"name": "web", "command": ["serve"], "restart": {"backoff": {"initial": "1ms"}}}"#,
            "restart.backoff.initial",
        ),
    ] {
        assert_eq!(try_new(profile).err(), Some(PR_EINVAL), "{profile}");
        let told = last_error();
        assert!(told.contains(words), "{words:?} not in {told:?}");
        assert_eq!(
            try_load(profile, &Worker::new().save()).err(),
            Some(PR_EINVAL)
        );
    }
    // No text at all, and one that is too long to be looked at.
    let mut sup = 0;
    for profile in [
        PrStr { p: null(), n: 1 },
        PrStr {
            p: "{".as_ptr().cast(),
            n: u64::MAX,
        },
        PrStr { p: null(), n: 0 },
    ] {
        // SAFETY: what is too long is not read.
        let code = unsafe { (api().sup_new)(profile, 0, &raw mut sup) };
        assert_eq!((code, sup), (PR_EINVAL, 0));
    }
}

#[test]
fn what_no_event_is_gets_a_code_and_changes_nothing() {
    let worker = Worker::new();
    worker.after(0, event(PR_SE_START, 0));
    let before = worker.save();
    let with = |kind, code, flags| PrSupEvent {
        code,
        flags,
        ..event(kind, 1)
    };
    let probe = |probe_kind, result| PrSupEvent {
        probe_kind,
        result,
        probe: 1,
        ..event(PR_SE_PROBE_RESULT, 1)
    };
    // abi 8, and numbers that name nothing
    let mut wrong = vec![
        event(0, 0),
        event(12, 0),
        event(u32::MAX, 0),
        with(PR_SE_EXITED, -1, 0),
        with(PR_SE_EXITED, 256, 0),
        with(PR_SE_EXITED, 0, PR_SX_SIGNAL),
        with(PR_SE_EXITED, 128, PR_SX_SIGNAL),
        with(PR_SE_EXITED, 9, PR_SX_SIGNAL | PR_SX_UNKNOWN),
        with(PR_SE_EXITED, 9, PR_SX_CORE),
        with(PR_SE_EXITED, 1, PR_SX_PRE_EXEC),
        with(PR_SE_SPAWN_FAILED, 0, 0),
        with(PR_SE_SPAWN_FAILED, -2, 0),
        with(PR_SE_SPAWN_FAILED, 4096, 0),
        with(PR_SE_SPAWN_FAILED, 9, PR_SX_SIGNAL),
        with(PR_SE_SPAWN_FAILED, 256, PR_SX_PRE_EXEC),
        with(PR_SE_PORT_CONFLICT, 0, PR_TCP),
        with(PR_SE_PORT_CONFLICT, 65_536, PR_TCP),
        with(PR_SE_PORT_CONFLICT, -1, PR_TCP),
        with(PR_SE_PORT_CONFLICT, 80, 0),
        with(PR_SE_PORT_CONFLICT, 80, 4),
        with(PR_SE_STOP, 0, PR_SX_STALE),
        probe(0, PR_SO_OK),
        probe(4, PR_SO_OK),
        probe(PR_SK_READINESS, 0),
        probe(PR_SK_READINESS, 5),
    ];
    for kind in 1..=PR_SE_PRE_EXEC_STARTED {
        wrong.push(with(kind, 1, 1 << 31));
    }
    for event in wrong {
        assert_eq!(worker.event(10, event), PR_EINVAL, "{event:?}");
    }
    // abi 6, 7: sizes. A longer event may have zeroes behind it, nothing else.
    for size in [0, 3, 36, 44, u32::MAX] {
        let event = PrSupEvent {
            size,
            ..event(PR_SE_SPAWNED, 1)
        };
        assert_eq!(worker.event(10, event), PR_EINVAL);
    }
    let longer = |tail| {
        let event = PrSupEvent {
            size: 48,
            ..event(PR_SE_GROUP_EMPTY, 9)
        };
        let longer: (PrSupEvent, u64) = (event, tail);
        // SAFETY: 48 readable bytes, as `size` says.
        unsafe { (api().sup_event)(worker.sup, 10, (&raw const longer).cast()) }
    };
    assert_eq!(longer(1 << 40), PR_E2BIG);
    assert_eq!(worker.save(), before, "a refusal changed something");
    assert_eq!(longer(0), PR_OK);
}

#[test]
fn an_effect_goes_into_as_much_room_as_there_is_and_is_not_lost_to_a_refusal() {
    // abi 5, 7
    let worker = Worker::new();
    worker.event(0, event(PR_SE_START, 0));
    for size in [0, 4, 12, u32::MAX] {
        let mut effect = PrSupEffect { size, ..NO_EFFECT };
        // SAFETY: a live effect.
        let code = unsafe { (api().sup_next_effect)(worker.sup, &raw mut effect) };
        assert_eq!((code, effect.kind), (PR_EINVAL, 0));
    }
    // SAFETY: null is one of the things that may be passed.
    let code = unsafe { (api().sup_next_effect)(worker.sup, null_mut()) };
    assert_eq!(code, PR_EINVAL);
    let mut effect = PrSupEffect {
        size: 16,
        number: 77,
        ..NO_EFFECT
    };
    // SAFETY: a live effect.
    let code = unsafe { (api().sup_next_effect)(worker.sup, &raw mut effect) };
    let read = (effect.size, effect.kind, effect.run, effect.number);
    assert_eq!((code, read), (1, (size(&NO_EFFECT), PR_SF_SPAWN, 1, 77)));
}

#[test]
fn a_clock_that_falls_stands_still() {
    let worker = Worker::new();
    worker.after(10_000, event(PR_SE_START, 0));
    worker.after(1, event(PR_SE_SPAWNED, 1));
    assert_eq!(worker.next_deadline(), 10_000);
    assert_eq!(worker.after_deadline(0).len(), 1);
    // The end of time is a moment too.
    for kind in [
        PR_SE_STOP,
        PR_SE_USER_RESTART,
        PR_SE_EXITED,
        PR_SE_GROUP_EMPTY,
    ] {
        worker.after(u64::MAX, event(kind, 1));
        worker.after_deadline(u64::MAX);
    }
    assert_eq!(worker.next_deadline(), PR_NEVER);
}

#[test]
fn who_takes_no_effects_is_told_and_loses_none() {
    let worker = Worker::new();
    worker.event(0, event(PR_SE_START, 0));
    worker.event(0, event(PR_SE_SPAWNED, 1));
    worker.event(0, event(PR_SE_EXITED, 1));
    let mut told = 0;
    let adopt = event(PR_SE_ADOPT, 0);
    while worker.event(0, adopt) == PR_OK {
        told += 1;
        assert!(told < 1_000, "without bound");
    }
    assert_eq!(worker.event(0, adopt), PR_EAGAIN);
    assert_eq!(worker.deadline(1 << 40), PR_EAGAIN);
    // A spawn, a kill, a report, and one more kill for each adoption.
    assert_eq!(worker.effects().len(), 3 + told);
    assert_eq!(worker.event(0, adopt), PR_OK);
}

#[test]
fn every_call_refuses_an_id_of_nothing_and_a_null() {
    // abi 9, 10, 11, 12
    let api = api();
    let worker = Worker::new();
    let (mut need, mut ms) = (0, 0);
    let start = event(PR_SE_START, 0);
    let call = |sup: PrSup| {
        let (mut need, mut ms, mut effect) = (0, 0, NO_EFFECT);
        [
            // SAFETY: no room is said, and a live local.
            unsafe { (api.sup_save)(sup, null_mut(), 0, &raw mut need) },
            // SAFETY: a live event.
            unsafe { (api.sup_event)(sup, 0, &raw const start) },
            // SAFETY: no pointer is passed.
            unsafe { (api.sup_deadline)(sup, 0) },
            // SAFETY: a live local.
            unsafe { (api.sup_next_deadline)(sup, &raw mut ms) },
            // SAFETY: a live local.
            unsafe { (api.sup_next_effect)(sup, &raw mut effect) },
            // SAFETY: no pointer is passed.
            unsafe { (api.sup_free)(sup) },
        ]
    };
    let ended = Worker::new();
    assert_eq!(ended.free(), PR_OK);
    let kind = 15 << 60;
    let later = worker.sup + 1;
    let others = [
        0,
        1,
        u64::MAX,
        1 << 60,
        worker.sup | kind,
        worker.sup ^ (1 << 52),
    ];
    for sup in others
        .into_iter()
        .chain([ended.sup, later, worker.sup | 0xff_ffff << 28])
    {
        assert_eq!(call(sup), [PR_ESTALE; 6], "{sup:#x}");
    }
    let sup = worker.sup;
    let refused = [
        // SAFETY: null is one of the things that may be passed.
        unsafe { (api.sup_save)(sup, null_mut(), 1, &raw mut need) },
        // SAFETY: as above.
        unsafe { (api.sup_save)(sup, null_mut(), 0, null_mut()) },
        // SAFETY: as above.
        unsafe { (api.sup_event)(sup, 0, null()) },
        // SAFETY: as above.
        unsafe { (api.sup_next_deadline)(sup, null_mut()) },
        // SAFETY: as above.
        unsafe { (api.sup_new)(text(PROFILE), 0, null_mut()) },
        // SAFETY: as above.
        unsafe { (api.sup_load)(text(PROFILE), null(), 1, &raw mut ms) },
        // SAFETY: as above.
        unsafe { (api.sup_load)(text(PROFILE), null(), 0, &raw mut ms) },
        // SAFETY: as above.
        unsafe { (api.sup_load)(text(PROFILE), PROFILE.as_ptr().cast(), 9, null_mut()) },
    ];
    assert_eq!(refused, [PR_EINVAL; 8]);
    // abi 14: what is too long is not read.
    // SAFETY: nothing is read, by the contract under test.
    let code = unsafe { (api.sup_load)(text(PROFILE), 8 as *const _, u64::MAX, &raw mut ms) };
    assert_eq!(code, PR_ELIMIT);
    assert_eq!(call(sup)[5], PR_OK);
    assert_eq!(call(sup), [PR_ESTALE; 6]);
}
