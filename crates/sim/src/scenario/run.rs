//! What the processes of a run do: `[[run]]`.

use std::time::Duration;

use portreeve::supervision::{ExitStatus, ProbeKind, ProbeOutcome, signal_name};

use super::read::{MOST_HELD, between};
use super::table::Table;
use super::{Answer, Binds, ProbeScript, RunScript};

pub(super) fn run(table: &Table<'_, '_>) -> RunScript {
    let mut script = RunScript {
        times: table.number("times", 1..=1_000_000).unwrap_or(1),
        spawn_takes: table.span("spawn_takes").unwrap_or_default(),
        spawn_error: table.word("spawn_error", &ERRORS),
        pre_exec: end(table, "pre_exec", "takes"),
        exit: end(table, "exit", "after"),
        hangs: table.span("hangs"),
        ..RunScript::default()
    };
    if table.flag("ignores_term") == Some(true) {
        script.on_term = None;
        if table.has("on_term") {
            table.wrong("on_term", "it ignores TERM", "leave one of them out");
        }
    } else if let Some(end) = end(table, "on_term", "takes") {
        script.on_term = Some(end);
    }
    script.killable = !table.flag("survives_kill").unwrap_or(false);
    if table.flag("leftover_stays") == Some(true) {
        script.leftover = None;
    } else if let Some(span) = table.span("leftover") {
        script.leftover = Some(span);
    }
    script.leftover_listens = table.flag("leftover_listens").unwrap_or(false);
    let binds = [
        ("granted", Binds::Granted),
        ("wrong", Binds::Beside(1)),
        ("never", Binds::Never),
    ];
    script.binds = table.word("binds", &binds).unwrap_or(Binds::Granted);
    script.binds_after = table.span("binds_after").unwrap_or_default();
    for inner in table.tables("probe", MOST_HELD) {
        script.probes.extend(probe(&inner));
        inner.end();
    }
    script
}

/// `{ after = "5s", code = 1 }`, `signal = "KILL"` or `lost = true` instead of the code.
pub(super) fn end(
    table: &Table<'_, '_>,
    key: &'static str,
    span: &'static str,
) -> Option<(Duration, ExitStatus)> {
    let table = table.table(key)?;
    let takes = table.span(span).unwrap_or_default();
    let status = status(&table);
    table.end();
    Some((takes, status))
}

/// How a process ends: `code`, `signal` with `core` and `oom`, or `lost`.
pub(super) fn status(table: &Table<'_, '_>) -> ExitStatus {
    let code = table.number::<i32>("code", 0..=255);
    let named = table.word("signal", &signals());
    let (core, oom) = (table.flag("core"), table.flag("oom"));
    let lost = table.flag("lost").unwrap_or(false);
    let said = [table.has("code"), table.has("signal"), lost];
    if said.iter().filter(|one| **one).count() > 1 {
        table.wrong(
            "code",
            "more than one end",
            "write one of code, signal and lost",
        );
    }
    if (core.is_some() || oom.is_some()) && named.is_none() {
        table.wrong(
            "core",
            "core and oom belong to a signal",
            "write signal too",
        );
    }
    match (code, named) {
        _ if lost => ExitStatus::Unknown,
        (_, Some(signal)) => ExitStatus::Signal {
            signal,
            core: core.unwrap_or(false),
            oom: oom.unwrap_or(false),
        },
        (code, None) => ExitStatus::Code(code.unwrap_or(0)),
    }
}

fn probe(table: &Table<'_, '_>) -> Option<ProbeScript> {
    let kinds = [
        ("startup", ProbeKind::Startup),
        ("liveness", ProbeKind::Liveness),
        ("readiness", ProbeKind::Readiness),
    ];
    let kind = table.word("kind", &kinds);
    let (from, to) = between(table);
    let takes = table.span("takes").unwrap_or_default();
    let answers = [
        ("ok", Answer::After(takes, ProbeOutcome::Ok)),
        ("fail", Answer::After(takes, ProbeOutcome::Fail)),
        (
            "inconclusive",
            Answer::After(takes, ProbeOutcome::Inconclusive),
        ),
        ("none", Answer::Never),
    ];
    let answer = table.word("answer", &answers);
    if !table.has("answer") {
        table.wrong(
            "answer",
            "missing",
            "write \"ok\", \"fail\", \"inconclusive\" or \"none\"",
        );
    }
    Some(ProbeScript {
        kind,
        from,
        to,
        answer: answer?,
    })
}

fn signals() -> Vec<(&'static str, i32)> {
    let named = |number| Some((signal_name(number)?, number));
    (1..=31).filter_map(named).collect()
}

/// The refusals that a start meets in practice.
const ERRORS: [(&str, i32); 8] = [
    ("ENOENT", 2),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EMFILE", 24),
    ("ETXTBSY", 26),
    ("ENOSPC", 28),
    ("EADDRINUSE", 98),
];
