//! From the text of a scenario to what it means.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portreeve::profile::{Checked, Profile, ProfileErrors, Replicas};
use portreeve::supervision::{ExitStatus, ProbeKind, ProbeOutcome, signal_name};
use portreeve::time::Monotonic;
use toml::de::DeTable;

use super::table::{Notes, Problem, Table};
use super::{
    Act, Answer, MAX_SCENARIO, Outage, OutageKind, ProbeScript, RunScript, Scenario,
    ScenarioErrors, Scripts, Stranger, UserAct,
};
use crate::expectation::Expectation;
use crate::scenario::service::service_text;

/// The most replicas of one scenario, and the most tables or lines of one kind.
const MOST_REPLICAS: u64 = 10_000;
const MOST_TABLES: usize = 10_000;
/// The most `[[run.probe]]` of one run and lines of `never`: each is held against everything that is seen.
const MOST_HELD: usize = 1_000;
/// The most tables of all replicas together.
const MOST_TOGETHER: usize = 1_000_000;
const EVER: Duration = Duration::MAX;

pub(super) fn read(
    text: &str,
    load: impl FnOnce(&str) -> Result<Vec<u8>, String>,
) -> Result<Scenario, ScenarioErrors> {
    if text.len() > MAX_SCENARIO {
        return Err(one(Problem {
            place: None,
            field: String::new(),
            problem: "the scenario is too long".to_owned(),
            allowed: format!("write at most {MAX_SCENARIO} bytes"),
        }));
    }
    let notes = Notes::new(text);
    let document = DeTable::parse(text).map_err(|error| {
        one(Problem {
            place: error.span().map(|span| notes.place(span.start)),
            field: String::new(),
            problem: format!("broken TOML: {}", error.message()),
            allowed: String::new(),
        })
    })?;
    let entries = document.get_ref();
    let root = Table::new(&notes, String::new(), entries, 0);
    let named = root.text("profile");
    let own = root.table("service");
    let (profile, errors) = match (named, own) {
        (Some(_), Some(own)) => {
            notes.note(
                own.at(),
                "service",
                "there is also profile =",
                "write one of them",
            );
            (None, None)
        }
        (Some(path), None) => match load(path) {
            Ok(bytes) => match Profile::from_toml_bytes(&bytes) {
                Ok(checked) => (Some(checked.profile), None),
                Err(errors) => (None, Some((path.to_owned(), errors))),
            },
            Err(cause) => {
                root.wrong("profile", format!("{path}: {cause}"), "");
                (None, None)
            }
        },
        (None, Some(own)) => match profile_of(text, entries, &own, &notes) {
            None => (None, None),
            Some(Ok(checked)) => (Some(checked.profile), None),
            Some(Err(errors)) => {
                // What is missing stands where the profile begins.
                let (nowhere, begin) = (notes.place(0), notes.place(own.at()));
                for error in errors.as_slice() {
                    let place = error.place.filter(|place| *place != nowhere);
                    notes.add(
                        0,
                        Problem {
                            place: Some(place.unwrap_or(begin)),
                            field: match error.field.as_str() {
                                "" => "service".to_owned(),
                                field => format!("service.{field}"),
                            },
                            problem: error.problem.clone(),
                            allowed: error.allowed.clone(),
                        },
                    );
                }
                (None, None)
            }
        },
        (None, None) => {
            let allowed = "write a profile under [service], or profile = \"FILE\"";
            notes.note(0, "service", "there is no service", allowed);
            (None, None)
        }
    };
    let scenario = scenario(&root, profile);
    root.end();
    let mut problems = notes.into_problems();
    problems.sort_by_key(|problem| problem.place);
    match scenario {
        Some(scenario) if problems.is_empty() && errors.is_none() => Ok(scenario),
        _ => Err(ScenarioErrors {
            problems,
            profile: errors,
        }),
    }
}

/// The profile under `[service]`; `None`: it is written in another form, which is told.
fn profile_of(
    text: &str,
    document: &DeTable<'_>,
    service: &Table<'_, '_>,
    notes: &Notes<'_>,
) -> Option<Result<Checked, ProfileErrors>> {
    let read = service_text(text, document, service.entries());
    if let Some(at) = read.elsewhere {
        let allowed = "write lines such as [service] and [service.restart], without blanks and quotes, and the fields below";
        notes.note(
            at,
            "service",
            "this is not read as part of the profile",
            allowed,
        );
        return None;
    }
    Some(Profile::from_toml(&read.profile))
}

fn one(problem: Problem) -> ScenarioErrors {
    ScenarioErrors {
        problems: vec![problem],
        profile: None,
    }
}

/// Everything but the service. Each part is read even where the profile is refused, so that all is told at once.
fn scenario(root: &Table<'_, '_>, profile: Option<Profile>) -> Option<Scenario> {
    let written = root.number("replicas", 1..=MOST_REPLICAS);
    let seed = root.number("seed", 0..=u64::MAX).unwrap_or(0);
    let until = root.span("until");
    if !root.has("until") {
        root.wrong(
            "until",
            "missing",
            "write how long to play, such as until = \"1m\"",
        );
    }
    let replicas = written.or_else(|| match profile.as_ref()?.replicas {
        Replicas::Count(count) => Some(count.clamp(1, 10_000)),
        Replicas::PerHost => Some(1),
    });
    let bound = replicas.map(u64::from);
    let mut runs = BTreeMap::new();
    for table in root.tables("run", MOST_TABLES) {
        let replica = replica(&table, bound);
        runs.entry(replica)
            .or_insert_with(Vec::new)
            .push(run(&table));
        table.end();
    }
    let mut users = Vec::new();
    for table in root.tables("user", MOST_TABLES) {
        users.extend(user(&table, bound));
        table.end();
    }
    let mut outages = Vec::new();
    for table in root.tables("worker", MOST_TABLES) {
        outages.extend(outage(&table, bound).map(|one| (table.at(), one)));
        table.end();
    }
    let outages = in_turn(root, outages);
    let mut strangers = Vec::new();
    for table in root.tables("stranger", MOST_TABLES) {
        let (from, to) = between(&table);
        strangers.push(Stranger {
            replica: replica(&table, bound),
            from: moment(from),
            to: moment(to),
        });
        table.end();
    }
    let of_each = users.iter().filter(|one| one.replica.is_none()).count()
        + outages.iter().filter(|one| one.replica.is_none()).count()
        + strangers.iter().filter(|one| one.replica.is_none()).count();
    if let Some(count) = replicas
        && of_each.saturating_mul(count as usize) > MOST_TOGETHER
    {
        let problem = format!("{count} replicas with {of_each} tables for each of them");
        let allowed = format!(
            "write fewer [[user]], [[worker]] and [[stranger]], at most {MOST_TOGETHER} in all"
        );
        root.wrong("replicas", problem, &allowed);
    }
    let runs = runs.into_iter();
    Some(Scenario {
        expected: expectations(root, "expect", MOST_TABLES, true),
        never: expectations(root, "never", MOST_HELD, false),
        complete: root.flag("complete").unwrap_or(false),
        profile: profile?,
        replicas: replicas?,
        seed,
        until: moment(until?),
        runs: runs
            .map(|(replica, scripts)| (replica, Arc::new(Scripts::new(scripts))))
            .collect(),
        users,
        outages,
        strangers,
    })
}

fn expectations(
    root: &Table<'_, '_>,
    key: &'static str,
    most: usize,
    timed: bool,
) -> Vec<Expectation> {
    let mut read = Vec::new();
    for (text, span) in root.texts(key, most) {
        match Expectation::parse(text, timed) {
            Ok(one) => read.push(one),
            Err(problem) => root.note(span.start, key, problem),
        }
    }
    read
}

fn replica(table: &Table<'_, '_>, replicas: Option<u64>) -> Option<u32> {
    table.number("replica", 0..=replicas.unwrap_or(MOST_REPLICAS) - 1)
}

fn run(table: &Table<'_, '_>) -> RunScript {
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
    for inner in table.tables("probe", MOST_HELD) {
        script.probes.extend(probe(&inner));
        inner.end();
    }
    script
}

/// `{ after = "5s", code = 1 }`, `signal = "KILL"` or `lost = true` instead of the code.
fn end(
    table: &Table<'_, '_>,
    key: &'static str,
    span: &'static str,
) -> Option<(Duration, ExitStatus)> {
    let table = table.table(key)?;
    let takes = table.span(span).unwrap_or_default();
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
    let status = match (code, named) {
        _ if lost => ExitStatus::Unknown,
        (_, Some(signal)) => ExitStatus::Signal {
            signal,
            core: core.unwrap_or(false),
            oom: oom.unwrap_or(false),
        },
        (code, None) => ExitStatus::Code(code.unwrap_or(0)),
    };
    table.end();
    Some((takes, status))
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

fn user(table: &Table<'_, '_>, replicas: Option<u64>) -> Option<UserAct> {
    let at = table.span("at");
    if !table.has("at") {
        table.wrong("at", "missing", "write when, such as at = \"20s\"");
    }
    let grace = table.span("grace");
    let acts = [("stop", Act::Stop { grace }), ("restart", Act::Restart)];
    let act = table.word("act", &acts);
    if !table.has("act") {
        table.wrong("act", "missing", "write \"stop\" or \"restart\"");
    }
    if act == Some(Act::Restart) && table.has("grace") {
        table.wrong("grace", "a restart has none of its own", "leave it out");
    }
    Some(UserAct {
        replica: replica(table, replicas),
        at: moment(at?),
        act: act?,
    })
}

fn outage(table: &Table<'_, '_>, replicas: Option<u64>) -> Option<Outage> {
    let kinds = [
        ("killed", "back", OutageKind::Killed),
        ("stopped", "continued", OutageKind::Stopped),
    ];
    let mut found = None;
    for (begin, end, kind) in kinds {
        let (from, to) = (table.span(begin), table.span(end));
        match (from, to) {
            (Some(_), None) => table.wrong(end, "missing", "write when it is there again"),
            (None, Some(_)) => table.wrong(begin, "missing", "write when it begins"),
            (Some(from), Some(to)) if from >= to => {
                table.wrong(end, "it must be later than the beginning", "");
            }
            (Some(_), Some(_)) if found.is_some() => {
                table.wrong(
                    begin,
                    "one thing at a time",
                    "write a table [[worker]] for each",
                );
            }
            (Some(from), Some(to)) => found = Some((from, to, kind)),
            (None, None) => {}
        }
    }
    let replica = replica(table, replicas);
    if !["killed", "back", "stopped", "continued"]
        .iter()
        .any(|key| table.has(key))
    {
        table.wrong(
            "killed",
            "missing",
            "write killed and back, or stopped and continued",
        );
    }
    let (from, to, kind) = found?;
    Some(Outage {
        replica,
        from: moment(from),
        to: moment(to),
        kind,
    })
}

/// The times without a worker, in order. One that begins while another lasts is told.
fn in_turn(root: &Table<'_, '_>, mut outages: Vec<(usize, Outage)>) -> Vec<Outage> {
    outages.sort_by_key(|(_, outage)| outage.from);
    // Until when a worker is away: of every replica, of some replica, of this replica.
    let (mut every, mut some) = (Monotonic::default(), Monotonic::default());
    let mut own = BTreeMap::<u32, Monotonic>::new();
    for (at, outage) in &outages {
        let away_until = match outage.replica {
            None => some,
            Some(replica) => own.get(&replica).copied().unwrap_or_default().max(every),
        };
        if outage.from < away_until {
            root.note(*at, "worker", "the worker is away already when it begins");
        }
        some = some.max(outage.to);
        match outage.replica {
            None => every = every.max(outage.to),
            Some(replica) => _ = own.insert(replica, outage.to),
        }
    }
    outages.into_iter().map(|(_, outage)| outage).collect()
}

fn between(table: &Table<'_, '_>) -> (Duration, Duration) {
    let from = table.span("from").unwrap_or_default();
    let to = table.span("to").unwrap_or(EVER);
    if from >= to {
        table.wrong("to", "it must be later than from", "");
    }
    (from, to)
}

fn moment(span: Duration) -> Monotonic {
    Monotonic::default() + span
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
