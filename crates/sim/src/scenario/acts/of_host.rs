//! Acts that befall a host, or somebody on it.

use std::net::IpAddr;

use portreeve::port::{Port, Protocol};

use super::super::names::Names;
use super::super::run::status;
use super::super::table::Table;
use super::{Kind, Lasting, jump};
use crate::cluster::act::{Act, HostAct, StrangerPort, Whom};

/// What befalls a host, by its name or by a replica that is there.
pub(super) fn of_host(table: &Table<'_, '_>, kind: Kind, names: &Names) -> Vec<Lasting> {
    let of_replica = table.has("replica") || table.has("service");
    let needs_replica = matches!(
        kind,
        Kind::KillWorker
            | Kind::HaltWorker
            | Kind::ContinueWorker
            | Kind::ProcessEnds
            | Kind::StopByHand
            | Kind::RestartByHand
    );
    let whom = (of_replica || needs_replica)
        .then(|| names.whom(table))
        .flatten();
    let hosts = names.hosts(table);
    if !table.has("host") && !of_replica && !needs_replica {
        let allowed = "write which host, such as host = \"n1\", or a replica that is there: service and replica";
        table.wrong("host", "missing", allowed);
    }
    if table.has("host")
        && of_replica
        && !matches!(kind, Kind::StrangerTakes | Kind::StrangerLeaves)
    {
        let allowed = "write host, or service and replica: the host is then where that is";
        table.wrong("host", "there is also a replica", allowed);
    }
    let Some((begin, end)) = host_act(table, kind, whom) else {
        return Vec::new();
    };
    let on = |host: usize| Lasting {
        begin: Act::Host(host, begin.clone()),
        end: end.clone().map(|end| Act::Host(host, end)),
    };
    if hosts.is_empty()
        && let Some(whom) = whom
    {
        return vec![Lasting {
            begin: Act::HostOf(whom, begin),
            end: end.map(|end| Act::HostOf(whom, end)),
        }];
    }
    hosts.into_iter().map(on).collect()
}

fn host_act(
    table: &Table<'_, '_>,
    kind: Kind,
    whom: Option<Whom>,
) -> Option<(HostAct, Option<HostAct>)> {
    let after = |key| table.number::<u32>(key, 0..=1_000);
    Some(match kind {
        Kind::PowerLoss => (HostAct::PowerLoss, Some(HostAct::Boot)),
        Kind::Boot => (HostAct::Boot, None),
        Kind::Shutdown => (HostAct::Shutdown, Some(HostAct::Boot)),
        Kind::CutOff => {
            let ways = [
                ("both", (true, true)),
                ("from-host", (true, false)),
                ("to-host", (false, true)),
            ];
            let way = table.word("direction", &ways).unwrap_or((true, true));
            let (from_host, to_host) = way;
            (
                HostAct::CutOff { from_host, to_host },
                Some(HostAct::Rejoin),
            )
        }
        Kind::Rejoin => (HostAct::Rejoin, None),
        Kind::KillAgent => {
            let begin = match after("after_effects") {
                Some(count) => HostAct::AgentDiesAfter(count),
                None => HostAct::AgentKilled,
            };
            (begin, Some(HostAct::AgentStarts))
        }
        Kind::HaltAgent => (HostAct::AgentHalted, Some(HostAct::AgentContinued)),
        Kind::ContinueAgent => (HostAct::AgentContinued, None),
        Kind::StartAgent => (HostAct::AgentStarts, None),
        Kind::KillWorker => match after("after_effects") {
            Some(count) => (HostAct::WorkerDiesAfter(whom?, count), None),
            None => (HostAct::WorkerKilled(whom?), None),
        },
        Kind::HaltWorker => (
            HostAct::WorkerHalted(whom?),
            Some(HostAct::WorkerContinued(whom?)),
        ),
        Kind::ContinueWorker => (HostAct::WorkerContinued(whom?), None),
        Kind::ProcessEnds => (HostAct::ProcessEnds(whom?, status(table)), None),
        Kind::StopByHand => (HostAct::WorkerStop(whom?, table.span("grace")), None),
        Kind::RestartByHand => (HostAct::WorkerRestart(whom?), None),
        Kind::DiskFull => (HostAct::DiskFull(true), Some(HostAct::DiskFull(false))),
        Kind::DiskFree => (HostAct::DiskFull(false), None),
        Kind::StrangerTakes | Kind::StrangerLeaves => {
            let port = match whom {
                Some(whom) => StrangerPort::Of(whom),
                None => number(table)?,
            };
            if kind == Kind::StrangerTakes {
                (
                    HostAct::StrangerTakes(port),
                    Some(HostAct::StrangerLeaves(port)),
                )
            } else {
                (HostAct::StrangerLeaves(port), None)
            }
        }
        Kind::ClockJump => {
            let by = jump(table)?;
            (HostAct::ClockJumps(by), Some(HostAct::ClockJumps(-by)))
        }
        Kind::Address => (HostAct::AddressBecomes(address(table)?), None),
        _ => return None,
    })
}

/// `8080` or `8080/udp`.
fn number(table: &Table<'_, '_>) -> Option<StrangerPort> {
    let allowed = "write a number such as port = \"8080\" or \"8080/udp\", or a replica whose first port it is";
    let Some(text) = table.text("port") else {
        if !table.has("port") {
            table.wrong("port", "missing", allowed);
        }
        return None;
    };
    let (port, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    match (port.parse::<Port>(), protocol.parse::<Protocol>()) {
        (Ok(port), Ok(protocol)) => Some(StrangerPort::Number(port, protocol)),
        _ => {
            table.wrong("port", format!("{text:?} is no number of a port"), allowed);
            None
        }
    }
}

/// `None`: it is not known; `Some(None)`: there is none.
fn address(table: &Table<'_, '_>) -> Option<Option<IpAddr>> {
    let allowed = "write an address such as becomes = \"10.9.0.1\", or \"none\"";
    match table.text("becomes") {
        Some("none") => Some(None),
        Some(text) => match text.parse() {
            Ok(address) => Some(Some(address)),
            Err(_) => {
                table.wrong("becomes", format!("{text:?} is no address"), allowed);
                None
            }
        },
        None => {
            if !table.has("becomes") {
                table.wrong("becomes", "missing", allowed);
            }
            None
        }
    }
}
