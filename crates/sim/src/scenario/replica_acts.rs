//! What happens to the replicas of a service wherever they are: `[[user]]` at the worker itself, `[[worker]]` and
//! `[[stranger]]`.

use std::collections::BTreeMap;
use std::time::Duration;

use portreeve::time::Monotonic;

use super::names::Names;
use super::read::moment;
use super::table::Table;
use super::{Act, Alone, Outage, OutageKind, UserAct};
use crate::cluster::act::{self as cluster, HostAct, Planned, StrangerPort, Whom};

pub(super) fn user(table: &Table<'_, '_>, names: &Names) -> Option<UserAct> {
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
        replica: names.replica(table),
        at: moment(at?),
        act: act?,
    })
}

pub(super) fn outage(table: &Table<'_, '_>, names: &Names) -> Option<Outage> {
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
    let replica = names.replica(table);
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
pub(super) fn in_turn(root: &Table<'_, '_>, mut outages: Vec<(usize, Outage)>) -> Vec<Outage> {
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

/// The same as acts of the only service, which has so many replicas.
pub(super) fn befalling(alone: &Alone, replicas: u32) -> Vec<Planned> {
    let mut acts = Vec::new();
    let each = |replica: Option<u32>| {
        let indices = replica.map_or(0..replicas, |index| index..index + 1);
        indices.map(|index| Whom { service: 0, index })
    };
    let mut put = |at, whom, act| {
        acts.push(Planned {
            at,
            act: cluster::Act::HostOf(whom, act),
        });
    };
    for user in &alone.users {
        for whom in each(user.replica) {
            let act = match user.act {
                Act::Stop { grace } => HostAct::WorkerStop(whom, grace),
                Act::Restart => HostAct::WorkerRestart(whom),
            };
            put(user.at, whom, act);
        }
    }
    for outage in &alone.outages {
        for whom in each(outage.replica) {
            match outage.kind {
                OutageKind::Killed => {
                    // Its agent starts another one soon, which takes until then to begin.
                    let begins = HostAct::NextWorkerBegins(whom, outage.to);
                    put(outage.from, whom, begins);
                    put(outage.from, whom, HostAct::WorkerKilled(whom));
                }
                OutageKind::Stopped => {
                    put(outage.from, whom, HostAct::WorkerHalted(whom));
                    put(outage.to, whom, HostAct::WorkerContinued(whom));
                }
            }
        }
    }
    for stranger in &alone.strangers {
        for whom in each(stranger.replica) {
            let port = StrangerPort::Of(whom);
            put(stranger.from, whom, HostAct::StrangerTakes(port));
            if stranger.to < moment(Duration::MAX) {
                put(stranger.to, whom, HostAct::StrangerLeaves(port));
            }
        }
    }
    acts
}
