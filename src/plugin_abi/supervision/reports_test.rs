//! Every number of the header: what C is told of each event, and that they are frozen.

use super::worker_test::{NO_EFFECT, Worker, event, try_new};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::{PrSupEffect, PrSupEvent};

/// Kind, run, and what a report says.
fn brief(effects: &[PrSupEffect]) -> Vec<(u32, u32, u32)> {
    let all = effects.iter();
    all.map(|effect| (effect.kind, effect.run, effect.report))
        .collect()
}

/// What a report says: its kind, reason, code, count, number, flags, ms.
type Said = (u32, u32, i32, u32, u32, u32, u64);

/// The only report among the effects.
fn said(effects: &[PrSupEffect]) -> Said {
    let reports: Vec<_> = effects.iter().filter(|e| e.kind == PR_SF_REPORT).collect();
    assert_eq!(reports.len(), 1, "{effects:?}");
    let e = reports[0];
    (e.report, e.reason, e.code, e.count, e.number, e.flags, e.ms)
}

#[test]
fn a_service_starts_answers_stops_and_ends() {
    let worker = Worker::new();
    assert_eq!(worker.next_deadline(), PR_NEVER);
    assert_eq!(
        brief(&worker.after(1_000, event(PR_SE_START, 0))),
        [(PR_SF_SPAWN, 1, 0)]
    );
    assert_eq!(brief(&worker.after(1_010, event(PR_SE_SPAWNED, 1))), []);
    assert_eq!(worker.next_deadline(), 1_010);
    let probe = worker.after_deadline(1_010);
    let expected = PrSupEffect {
        kind: PR_SF_PROBE,
        run: 1,
        probe_kind: PR_SK_READINESS,
        number: 1,
        ms: 3_000,
        ..NO_EFFECT
    };
    assert_eq!(format!("{probe:?}"), format!("{:?}", [expected]));
    let result = |probe, result| PrSupEvent {
        probe_kind: PR_SK_READINESS,
        probe,
        result,
        ..event(PR_SE_PROBE_RESULT, 1)
    };
    let ready = worker.after(1_020, result(1, PR_SO_OK));
    assert_eq!(brief(&ready), [(PR_SF_REPORT, 1, PR_SR_READY)]);
    // The same once more, and one of a run that never was: no effect at all.
    assert!(worker.after(1_021, result(1, PR_SO_FAIL)).is_empty());
    assert!(worker.after(1_021, event(PR_SE_GROUP_EMPTY, 7)).is_empty());
    let stopping = worker.after(2_000, event(PR_SE_STOP, 0));
    assert_eq!(said(&stopping), (PR_SR_NOTREADY, PR_SW_STOP, 0, 0, 0, 0, 0));
    assert_eq!(worker.next_deadline(), 4_000);
    assert_eq!(brief(&worker.after_deadline(4_000)), [(PR_SF_TERM, 1, 0)]);
    assert_eq!(
        brief(&worker.after(5_000, event(PR_SE_EXITED, 1))),
        [(PR_SF_KILL_GROUP, 1, 0)]
    );
    let ended = worker.after(5_001, event(PR_SE_GROUP_EMPTY, 1));
    assert_eq!(brief(&ended), [(PR_SF_REPORT, 1, PR_SR_STOPPED)]);
    assert_eq!(worker.next_deadline(), PR_NEVER);
    assert_eq!(worker.free(), PR_OK);
}

#[test]
fn the_numbers_are_those_of_the_supervision_page_in_its_order() {
    // Frozen: a C program may have written them down. The order is that of the page's 1.1 and 1.4.
    let numbers: &[&[u32]] = &[
        &[
            PR_SE_START,
            PR_SE_STOP,
            PR_SE_USER_RESTART,
            PR_SE_SPAWNED,
            PR_SE_SPAWN_FAILED,
            PR_SE_PORT_CONFLICT,
            PR_SE_EXITED,
            PR_SE_GROUP_EMPTY,
            PR_SE_PROBE_RESULT,
            PR_SE_ADOPT,
            PR_SE_PRE_EXEC_STARTED,
        ],
        &[
            PR_SF_SPAWN,
            PR_SF_TERM,
            PR_SF_KILL_GROUP,
            PR_SF_PROBE,
            PR_SF_CANCEL_PROBE,
            PR_SF_REPORT,
        ],
        &[PR_SK_STARTUP, PR_SK_LIVENESS, PR_SK_READINESS],
        &[PR_SO_OK, PR_SO_FAIL, PR_SO_TIMEOUT, PR_SO_INCONCLUSIVE],
        &[
            PR_SR_READY,
            PR_SR_NOTREADY,
            PR_SR_BACKOFF,
            PR_SR_RESTARTED,
            PR_SR_GAVEUP,
            PR_SR_SUCCEEDED,
            PR_SR_FAILED,
            PR_SR_STOPPED,
            PR_SR_STUCK,
            PR_SR_PORT_CONFLICT,
        ],
        &[
            PR_SW_EXIT,
            PR_SW_SIGNAL,
            PR_SW_UNKNOWN,
            PR_SW_START_FAILED,
            PR_SW_PRE_EXEC,
            PR_SW_STARTUP,
            PR_SW_LIVENESS,
            PR_SW_PROBE,
            PR_SW_USER,
            PR_SW_STOP,
            PR_SW_STALE_RECORD,
        ],
    ];
    for list in numbers {
        let counted: Vec<_> = (1..).take(list.len()).collect();
        assert_eq!(*list, counted);
    }
}

/// A run that ended as `end` says, and what follows from the exit and the empty group.
fn ended(worker: &Worker, end: PrSupEvent) -> Vec<PrSupEffect> {
    worker.after(1_000, event(PR_SE_START, 0));
    if end.kind != PR_SE_SPAWN_FAILED {
        worker.after(1_000, event(PR_SE_SPAWNED, 1));
    }
    let mut all = worker.after(1_500, end);
    all.extend(worker.after(1_600, event(PR_SE_GROUP_EMPTY, 1)));
    all
}

#[test]
fn every_end_of_a_process_has_its_reason() {
    let end = |kind, code, flags| PrSupEvent {
        code,
        flags,
        ..event(kind, 1)
    };
    let (exited, failed) = (PR_SE_EXITED, PR_SE_SPAWN_FAILED);
    let killed = PR_SX_SIGNAL;
    let core = PR_SX_SIGNAL | PR_SX_CORE;
    let oom = PR_SX_SIGNAL | PR_SX_OOM;
    for (end, reason, code, flags) in [
        (end(exited, 3, 0), PR_SW_EXIT, 3, 0),
        (end(exited, 0, 0), PR_SW_EXIT, 0, 0),
        (end(exited, 15, killed), PR_SW_SIGNAL, 15, killed),
        (end(exited, 11, core), PR_SW_SIGNAL, 11, core),
        (end(exited, 9, oom), PR_SW_SIGNAL, 9, oom),
        (
            end(exited, 0, PR_SX_UNKNOWN),
            PR_SW_UNKNOWN,
            0,
            PR_SX_UNKNOWN,
        ),
        (end(failed, 2, 0), PR_SW_START_FAILED, 2, 0),
        (end(failed, 1, PR_SX_PRE_EXEC), PR_SW_PRE_EXEC, 1, 0),
        (end(failed, 9, PR_SX_PRE_EXEC | oom), PR_SW_PRE_EXEC, 9, oom),
    ] {
        let backoff = said(&ended(&Worker::new(), end));
        assert_eq!(backoff, (PR_SR_BACKOFF, reason, code, 0, 0, flags, 1_000));
    }
}

#[test]
fn every_report_says_what_it_is_about() {
    let profile = |more: &str| {
        let restart = r#""policy": "on-failure", "backoff": {"jitter": 0}, "no_restart_exit": [4]"#;
        format!(
            r#"{{"name": "web", "command": ["serve"], "ports": {{"http": "any"}}, "readiness": {{"tcp": {{}}}},
            "restart": {{{restart}{more}}}}}"#
        )
    };
    let exit = |code| PrSupEvent {
        code,
        ..event(PR_SE_EXITED, 1)
    };
    let worker = try_new(&profile("")).unwrap();
    let succeeded = (PR_SR_SUCCEEDED, 0, 0, 0, 0, 0, 0);
    assert_eq!(said(&ended(&worker, exit(0))), succeeded);
    let worker = try_new(&profile("")).unwrap();
    let failed = (PR_SR_FAILED, PR_SW_EXIT, 4, 0, 0, 0, 0);
    assert_eq!(said(&ended(&worker, exit(4))), failed);
    let never = r#", "give_up": {"max_restarts": 0, "window": "lifetime"}"#;
    let worker = try_new(&profile(never)).unwrap();
    let gave_up = (PR_SR_GAVEUP, PR_SW_EXIT, 1, 0, 0, 0, 0);
    assert_eq!(said(&ended(&worker, exit(1))), gave_up);
    // Told to rest and to be placed again: how long, and how often at most.
    let again = r#", "give_up": {"max_restarts": 0, "window": "lifetime", "then": "requeue", "rest": "90s", "max_requeues": 3}"#;
    let worker = try_new(&profile(again)).unwrap();
    let gave_up = (PR_SR_GAVEUP, PR_SW_EXIT, 1, 0, 3, 0, 90_000);
    assert_eq!(said(&ended(&worker, exit(1))), gave_up);
    // A stranger has a port.
    let conflict = PrSupEvent {
        code: 20_007,
        flags: PR_UDP,
        ..event(PR_SE_PORT_CONFLICT, 1)
    };
    let taken = (PR_SR_PORT_CONFLICT, 0, 20_007, 0, 0, PR_UDP, 0);
    assert_eq!(said(&ended(&Worker::new(), conflict)), taken);
    // A restart of ours, then one of the user's.
    let worker = Worker::new();
    ended(&worker, exit(1));
    let spawn = worker.after_deadline(2_500);
    assert_eq!(brief(&spawn), [(PR_SF_SPAWN, 2, 0)]);
    let restarted = said(&worker.after(2_501, event(PR_SE_SPAWNED, 2)));
    assert_eq!(restarted, (PR_SR_RESTARTED, PR_SW_EXIT, 1, 1, 0, 0, 0));
    worker.after(3_000, event(PR_SE_USER_RESTART, 0));
    worker.after_deadline(5_000);
    worker.after(5_001, event(PR_SE_EXITED, 2));
    let spawn = worker.after(5_002, event(PR_SE_GROUP_EMPTY, 2));
    assert_eq!(brief(&spawn), [(PR_SF_SPAWN, 3, 0)]);
    let restarted = said(&worker.after(5_003, event(PR_SE_SPAWNED, 3)));
    assert_eq!(restarted, (PR_SR_RESTARTED, PR_SW_USER, 0, 1, 1, 0, 0));
    // Nothing is left to wait for but what cannot be killed.
    worker.after(6_000, event(PR_SE_EXITED, 3));
    let stuck = said(&worker.after_deadline(66_000));
    assert_eq!(stuck, (PR_SR_STUCK, 0, 0, 0, 0, 0, 0));
}

#[test]
fn a_failed_probe_says_how_often_in_a_row() {
    let worker = try_new(
        r#"{"name": "web", "command": ["serve"], "ports": {"http": "any"},
        "startup": {"tcp": {}, "interval": "1s", "failure_threshold": 2},
        "liveness": {"tcp": {}, "interval": "1s", "failure_threshold": 1},
        "readiness": {"tcp": {}, "interval": "1s", "failure_threshold": 1}}"#,
    )
    .unwrap();
    let result = |run, probe_kind, probe, result| PrSupEvent {
        probe_kind,
        probe,
        result,
        ..event(PR_SE_PROBE_RESULT, run)
    };
    worker.after(0, event(PR_SE_START, 0));
    worker.after(0, event(PR_SE_SPAWNED, 1));
    for (now, probe) in [(0, 1), (1_000, 2)] {
        let asked = worker.after_deadline(now);
        let kinds: Vec<_> = asked
            .iter()
            .map(|e| (e.kind, e.probe_kind, e.number))
            .collect();
        assert_eq!(kinds, [(PR_SF_PROBE, PR_SK_STARTUP, probe)]);
        worker.event(now, result(1, PR_SK_STARTUP, probe, PR_SO_TIMEOUT));
    }
    assert_eq!(brief(&worker.effects()), [(PR_SF_TERM, 1, 0)]);
    let backoff = said(&worker.after(1_100, event(PR_SE_EXITED, 1)));
    worker.after(1_100, event(PR_SE_GROUP_EMPTY, 1));
    assert_eq!((backoff.1, backoff.2), (PR_SW_STARTUP, 2));
    worker.after_deadline(3_000);
    worker.after(3_000, event(PR_SE_SPAWNED, 2));
    worker.after_deadline(3_000);
    worker.after(3_000, result(2, PR_SK_STARTUP, 1, PR_SO_OK));
    let asked = worker.after_deadline(3_000);
    let kinds: Vec<_> = asked.iter().map(|e| e.probe_kind).collect();
    assert_eq!(kinds, [PR_SK_LIVENESS, PR_SK_READINESS]);
    worker.after(3_000, result(2, PR_SK_READINESS, 1, PR_SO_OK));
    // An outcome that says nothing changes nothing.
    worker.after(3_000, result(2, PR_SK_LIVENESS, 1, PR_SO_INCONCLUSIVE));
    worker.after_deadline(4_000);
    let failed = said(&worker.after(4_000, result(2, PR_SK_READINESS, 2, PR_SO_FAIL)));
    assert_eq!(failed, (PR_SR_NOTREADY, PR_SW_PROBE, 1, 0, 0, 0, 0));
    worker.after_deadline(5_000);
    let ready = worker.after(5_000, result(2, PR_SK_READINESS, 3, PR_SO_OK));
    assert_eq!(brief(&ready), [(PR_SF_REPORT, 2, PR_SR_READY)]);
    // A liveness failure gives the readiness probe in flight up, and takes readiness back first.
    worker.after_deadline(6_000);
    let stopped = worker.after(6_000, result(2, PR_SK_LIVENESS, 2, PR_SO_FAIL));
    let kinds: Vec<_> = stopped
        .iter()
        .map(|e| (e.kind, e.probe_kind, e.reason))
        .collect();
    assert_eq!(
        kinds,
        [
            (PR_SF_REPORT, 0, PR_SW_LIVENESS),
            (PR_SF_CANCEL_PROBE, PR_SK_READINESS, 0),
            (PR_SF_TERM, 0, 0)
        ]
    );
}

#[test]
fn a_grace_or_a_spread_of_nothing_is_asked_for_by_a_flag() {
    let running = || {
        let worker = Worker::new();
        worker.after(0, event(PR_SE_START, 0));
        worker.after(0, event(PR_SE_SPAWNED, 1));
        worker
    };
    // The profile's grace is 10 s, its drain 2 s.
    for (ms, flags, grace) in [(0, 0, 10_000), (5_000, 0, 5_000), (0, PR_SX_EXACT, 0)] {
        let worker = running();
        let stop = PrSupEvent {
            ms,
            flags,
            ..event(PR_SE_STOP, 0)
        };
        worker.after(1_000, stop);
        let mut done = worker.after_deadline(3_000);
        if grace > 0 {
            assert!(worker.after_deadline(3_000 + grace - 1).is_empty());
            done.extend(worker.after_deadline(3_000 + grace));
        }
        assert_eq!(brief(&done), [(PR_SF_TERM, 1, 0), (PR_SF_KILL_GROUP, 1, 0)]);
    }
    let adopt = |ms, flags| PrSupEvent {
        ms,
        flags,
        ..event(PR_SE_ADOPT, 0)
    };
    let worker = running();
    assert!(worker.after(1_000, adopt(0, PR_SX_EXACT)).is_empty());
    assert_eq!(worker.next_deadline(), 1_000);
    assert!(worker.after(1_000, adopt(700, PR_SX_STALE)).is_empty());
    assert_eq!(worker.next_deadline(), 1_700);
    assert!(worker.after(1_000, adopt(0, 0)).is_empty());
    assert!((1_000..6_000).contains(&worker.next_deadline()));
}
