//! What the processes of a seed's services do.

use std::time::Duration;

use portreeve::supervision::{ExitStatus, ProbeKind, ProbeOutcome};

use super::draw::Draw;
use crate::scenario::{Answer, Binds, ProbeScript, RunScript, Scripts};

/// Scripts of one service: a few runs of any kind, then one that mostly is sound, so that most services come to rest.
pub(super) fn scripts(draw: &mut Draw) -> Scripts {
    let mut runs = Vec::new();
    for _ in 0..draw.one_of(&[0, 0, 1, 2, 3, 5]) {
        let times = draw.one_of(&[1, 1, 1, 2, 4]);
        runs.push(RunScript { times, ..run(draw) });
    }
    runs.push(if draw.once_in(8) {
        run(draw)
    } else {
        RunScript {
            on_term: sound_stop(draw),
            ..RunScript::default()
        }
    });
    Scripts::new(runs)
}

fn run(draw: &mut Draw) -> RunScript {
    let mut script = RunScript::default();
    if draw.once_in(6) {
        script.spawn_takes = draw.span(100..=3_000);
    }
    if draw.once_in(12) {
        script.spawn_error = Some(draw.one_of(&[2, 11, 13, 28]));
    }
    if draw.once_in(4) {
        let takes = draw.span(0..=5_000);
        let code = draw.one_of(&[0, 0, 1]);
        script.pre_exec = Some((takes, ExitStatus::Code(code)));
    }
    if draw.once_in(2) {
        let after = match draw.within(0..=3) {
            0 => Duration::ZERO,
            1 => draw.span(0..=2_000),
            _ => draw.span(2_000..=120_000),
        };
        script.exit = Some((after, end(draw)));
    }
    script.on_term = match draw.within(0..=5) {
        0 => None,
        1 => Some((draw.span(100..=15_000), end(draw))),
        _ => sound_stop(draw),
    };
    script.killable = !draw.once_in(25);
    script.leftover = match draw.within(0..=9) {
        0 => Some(draw.span(100..=20_000)),
        // Only the kill ends it.
        1 if script.killable => Some(Duration::from_secs(3_600)),
        _ => Some(Duration::ZERO),
    };
    script.leftover_listens = draw.once_in(3);
    script.binds = match draw.within(0..=9) {
        0 => Binds::Never,
        1 => Binds::Beside(1),
        _ => Binds::Granted,
    };
    if draw.once_in(4) {
        script.binds_after = draw.span(0..=20_000);
    }
    if draw.once_in(6) {
        script.hangs = Some(draw.span(0..=60_000));
    }
    for _ in 0..draw.one_of(&[0, 0, 0, 1, 2]) {
        script.probes.push(probe(draw));
    }
    script
}

/// It ends at the stop signal, soon.
fn sound_stop(draw: &mut Draw) -> Option<(Duration, ExitStatus)> {
    let term = ExitStatus::Signal {
        signal: 15,
        core: false,
        oom: false,
    };
    let takes = match draw.within(0..=2) {
        0 => draw.span(0..=3_000),
        _ => Duration::ZERO,
    };
    Some((takes, term))
}

fn end(draw: &mut Draw) -> ExitStatus {
    match draw.within(0..=5) {
        0 => ExitStatus::Code(0),
        1 => ExitStatus::Code(draw.one_of(&[3, 78])),
        2 => ExitStatus::Signal {
            signal: draw.one_of(&[6, 9, 11]),
            core: false,
            oom: false,
        },
        3 if draw.once_in(3) => ExitStatus::Unknown,
        _ => ExitStatus::Code(1),
    }
}

fn probe(draw: &mut Draw) -> ProbeScript {
    let from = draw.span(0..=60_000);
    let lasts = draw.span(1_000..=60_000);
    let takes = draw.span(0..=2_000);
    ProbeScript {
        kind: draw.one_of(&[
            None,
            Some(ProbeKind::Startup),
            Some(ProbeKind::Liveness),
            Some(ProbeKind::Readiness),
        ]),
        from,
        to: from + lasts,
        answer: draw.one_of(&[
            Answer::After(takes, ProbeOutcome::Ok),
            Answer::After(takes, ProbeOutcome::Fail),
            Answer::After(takes, ProbeOutcome::Fail),
            Answer::After(takes, ProbeOutcome::Inconclusive),
            Answer::Never,
        ]),
    }
}
