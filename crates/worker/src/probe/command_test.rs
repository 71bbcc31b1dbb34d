//! Real programs: how they end is what counts, and nothing of them outlives the check.

use std::time::{Duration, Instant};

use portreeve::supervision::{ProbeKind, ProbeOutcome};

use super::{CommandCheck, Leftovers};
use crate::limits::Limits;
use crate::probe::{Check, ProbeReport, ProbeTarget, SourcePorts, probe};
use crate::process;

fn shell(line: &str, mark: &str) -> CommandCheck {
    let path = std::env::var("PATH").unwrap();
    CommandCheck {
        argv: ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
        env: vec![
            ("PATH".into(), path.into()),
            ("CHECKED".into(), mark.into()),
        ],
        working_dir: "/".into(),
        leftovers: Leftovers::default(),
        limits: Limits::of_process(),
        group: None,
    }
}

async fn run(check: CommandCheck, timeout: Duration) -> ProbeReport {
    patiently(check, timeout, LONG).await
}

async fn patiently(check: CommandCheck, timeout: Duration, patience: Duration) -> ProbeReport {
    probe(Check::Command(check), nobody(), timeout, patience, || ()).await
}

fn nobody() -> ProbeTarget {
    ProbeTarget {
        kind: ProbeKind::Liveness,
        ports: Vec::new(),
        address: [127, 0, 0, 1].into(),
        own_address: true,
        single_host: true,
        anywhere: false,
        root: None,
        sources: SourcePorts::default(),
    }
}

/// A value by which the processes of one test are found.
fn own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn living(mark: &str) -> usize {
    process::with_variables(&[("CHECKED".into(), mark.into())])
        .unwrap()
        .len()
}

async fn until(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "it did not happen"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_exit_decides_and_output_is_told() {
    // probes 48
    for (line, outcome, text) in [
        ("echo fine", ProbeOutcome::Ok, "exit 0: fine"),
        ("echo no >&2; exit 1", ProbeOutcome::Fail, "exit 1: no"),
        ("kill -9 $$", ProbeOutcome::Fail, "signal 9 (KILL)"),
        (
            "exit 126",
            ProbeOutcome::Fail,
            "exit 126 (the command cannot be executed)",
        ),
        (
            "exit 127",
            ProbeOutcome::Fail,
            "exit 127 (the command was not found)",
        ),
        ("test -z \"$(cat)\"", ProbeOutcome::Ok, "exit 0"),
    ] {
        let report = run(shell(line, &own("exit")), LONG).await;
        assert_eq!((report.outcome, report.text.as_str()), (outcome, text));
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_fails() {
    // probes 48
    let mut missing = shell("", "");
    missing.argv = vec!["/nonexistent/program".into()];
    let report = run(missing, LONG).await;
    assert_eq!(report.outcome, ProbeOutcome::Fail);
    assert!(
        report.text.ends_with("no such file or directory (ENOENT)"),
        "{}",
        report.text
    );
    let mut forbidden = shell("", "");
    forbidden.argv = vec!["/etc/passwd".into()];
    let report = run(forbidden, LONG).await;
    assert_eq!(report.outcome, ProbeOutcome::Fail);
    assert!(
        report.text.ends_with("permission denied (EACCES)"),
        "{}",
        report.text
    );
}

#[tokio::test]
async fn nothing_of_a_check_outlives_its_timeout() {
    // probes 48: one that ignores TERM, one in a session of its own, one whose parent is gone
    let mark = own("timeout");
    let line =
        "trap '' TERM; sleep 600 & setsid sleep 600 & (setsid sh -c 'sleep 600; :' &) ; wait; wait";
    let check = shell(line, &mark);
    let timeout = Duration::from_millis(400);
    let begun = Instant::now();
    let leftovers = check.leftovers.clone();
    let seen = std::cell::Cell::new(0);
    let watch = async {
        loop {
            seen.set(living(&mark).max(seen.get()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let report = tokio::select! {
        report = run(check, timeout) => report,
        () = watch => unreachable!("it watches for ever"),
    };
    assert_eq!(report.outcome, ProbeOutcome::Timeout);
    assert!(seen.get() >= 4, "only {} processes were seen", seen.get());
    let left = begun.elapsed();
    assert!(left < Duration::from_secs(5), "{left:?}");
    until(|| living(&mark) == 0).await;
    until(|| !leftovers.any()).await;
}

#[tokio::test]
async fn a_check_given_up_ends_with_everything_it_started() {
    let mark = own("dropped");
    let check = shell("sleep 600 & setsid sleep 600", &mark);
    let begun = async { until(|| living(&mark) >= 3).await };
    tokio::select! {
        _ = run(check, LONG) => panic!("it ended by itself"),
        () = begun => {}
    }
    until(|| living(&mark) == 0).await;
}

#[tokio::test]
async fn a_child_left_behind_neither_delays_the_result_nor_lives_on() {
    let mark = own("left");
    let begun = Instant::now();
    let report = run(shell("setsid sleep 600 & exit 0", &mark), LONG).await;
    assert_eq!(report.outcome, ProbeOutcome::Ok);
    assert!(begun.elapsed() < Duration::from_secs(5));
    until(|| living(&mark) == 0).await;
}

#[tokio::test]
async fn sleepers_that_a_check_leaves_with_nothing_of_its_pipes_do_not_live_on() {
    // D8 probe that leaves sleepers: in its group, in a session of their own, and of a parent that is gone.
    let mark = own("sleepers");
    let quiet = "</dev/null >/dev/null 2>&1";
    let line = format!(
        "sleep 600 {quiet} & setsid sleep 600 {quiet} & (setsid sh -c 'sleep 600 & sleep 600; :' {quiet} &) ; exit 0"
    );
    for _ in 0..3 {
        let check = shell(&line, &mark);
        let report = run(check, LONG).await;
        assert_eq!(report.outcome, ProbeOutcome::Ok, "{}", report.text);
        until(|| living(&mark) == 0).await;
    }
}

#[tokio::test]
async fn a_hundred_checks_that_hang_leave_nothing_and_never_overlap() {
    // P29, with 60 ms for a second: one that does as it is told, one that ignores TERM, one that left the group.
    let mark = own("rounds");
    let lines = [
        "sleep 10000",
        "trap '' TERM; sleep 10000; sleep 10000",
        "setsid sh -c 'sleep 10000; :'",
        "(setsid sleep 10000 </dev/null >/dev/null 2>&1 &); exec sleep 10000",
    ];
    let timeout = Duration::from_millis(60);
    let leftovers = Leftovers::default();
    let mut timeouts = 0;
    for round in 0..100 {
        let mut check = shell(lines[round % lines.len()], &mark);
        check.leftovers = leftovers.clone();
        let target = nobody();
        let begun = std::cell::Cell::new(None);
        let begins = || {
            assert_eq!(
                living(&mark),
                0,
                "round {round} began beside an earlier one"
            );
            begun.set(Some(Instant::now()));
        };
        let report = probe(Check::Command(check), target, timeout, LONG, begins).await;
        match report.outcome {
            ProbeOutcome::Timeout => timeouts += 1,
            // On a busy machine we ourselves may not run for so long.
            ProbeOutcome::Inconclusive => {}
            other => panic!("{other:?}: {}", report.text),
        }
        let took = begun.get().unwrap().elapsed();
        assert!(took >= timeout && took < Duration::from_secs(5), "{took:?}");
    }
    assert!(timeouts >= 50, "only {timeouts} of 100 failed by timeout");
    until(|| living(&mark) == 0).await;
}

#[tokio::test]
async fn a_check_that_this_host_has_no_room_for_says_nothing() {
    for errno in [11, 12, 23, 24] {
        let cause = std::io::Error::from_raw_os_error(errno);
        let report = ProbeReport::of_refusal("/bin/true", &cause);
        assert_eq!(
            report.outcome,
            ProbeOutcome::Inconclusive,
            "{}",
            report.text
        );
        assert_eq!(report.shortage, Some(errno));
    }
    let limits = Limits::of_process();
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(limits.probe(LONG).await.unwrap());
    }
    let mut check = shell("exit 0", "waits");
    check.limits = limits;
    // All places are taken.
    let report = patiently(check.clone(), LONG, Duration::from_millis(1)).await;
    assert_eq!(
        report.outcome,
        ProbeOutcome::Inconclusive,
        "{}",
        report.text
    );
    assert!(
        report.text.contains("at most 64 checks by a command"),
        "{}",
        report.text
    );
    held.pop();
    assert_eq!(run(check, LONG).await.outcome, ProbeOutcome::Ok);
}

#[tokio::test]
async fn a_check_that_writes_much_is_drained_and_cut() {
    // probes 49, D8 100 MB of probe output; the whole GB of the case in the long tests.
    let bytes: u64 = match std::env::var_os("PORTREEVE_LONG") {
        Some(_) => 1_000_000_000,
        None => 100_000_000,
    };
    let line = format!("head -c {bytes} /dev/zero | tr '\\0' x; exit 3");
    let report = run(shell(&line, "much"), LONG).await;
    assert_eq!(report.outcome, ProbeOutcome::Fail);
    assert!(report.text.starts_with("exit 3: xxx"));
    assert!(report.text.len() <= 4096 + 20, "{}", report.text.len());
}

#[tokio::test]
async fn the_next_check_waits_until_the_last_one_is_gone() {
    let mark = own("next");
    let mut sleeper = std::process::Command::new("/bin/sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let check = shell("exit 0", &mark);
    check
        .leftovers
        .add(vec![process::Stat::read(sleeper.id()).unwrap()]);
    // One failure for each interval that it is still there, and nothing was started.
    let report = patiently(check.clone(), LONG, Duration::from_millis(100)).await;
    assert_eq!(report.outcome, ProbeOutcome::Fail);
    let words = format!("do not end (pid {})", sleeper.id());
    assert!(report.text.ends_with(&words), "{}", report.text);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(run(check, LONG).await.outcome, ProbeOutcome::Ok);
}
