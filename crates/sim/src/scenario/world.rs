//! What is done to the cluster and when: `[[at]]`, each one act in a word, with whom it befalls.

use std::net::IpAddr;

use portreeve::identity::Incarnation;
use portreeve::port::{Port, Protocol};
use portreeve::registry::{DrainPace, HostReplica, HostVerb};

use super::names::Names;
use super::read::moment;
use super::run::status;
use super::services::Declared;
use super::surroundings::{disk, network};
use super::table::Table;
use crate::cluster::act::{Act, ControllerAct, HostAct, PersonAct, Planned, StrangerPort, Whom};
use crate::cluster::spec::{DiskSpec, NetworkSpec};

/// How often one table may be repeated.
const MOST_TIMES: u64 = 100_000;

/// What there is before anything is done, to which a time that is over returns.
pub(super) struct Usual<'s> {
    pub(super) network: &'s NetworkSpec,
    pub(super) disk: &'s DiskSpec,
    pub(super) services: &'s [Declared],
}

/// The acts of one table, each with its time.
pub(super) fn acts(
    table: &Table<'_, '_>,
    names: &Names,
    usual: &Usual<'_>,
    planned: &mut Vec<Planned>,
) {
    let time = table.span("time");
    if !table.has("time") {
        table.wrong("time", "missing", "write when, such as time = \"2m\"");
    }
    let times = table.number("times", 1..=MOST_TIMES).unwrap_or(1);
    let every = table.span("every");
    if (times > 1) != every.is_some() {
        table.wrong(
            "every",
            "every and times belong together",
            "write both or none",
        );
    }
    let lasts = table.span("lasts");
    let Some(kind) = table.word("act", &KINDS) else {
        if !table.has("act") {
            table.wrong(
                "act",
                "missing",
                "write what happens, such as act = \"power-loss\"",
            );
        }
        // It is known only with the act what else may stand here.
        table.forgive();
        return;
    };
    let begun = table.problems();
    let acts = read(table, kind, names, usual);
    if lasts.is_some() && acts.iter().any(|act| act.end.is_none()) {
        let problem = "this act has no end that follows by itself";
        table.wrong("lasts", problem, "leave it out");
        return;
    }
    let Some(time) = time.filter(|_| table.problems() == begun) else {
        return;
    };
    let mut at = moment(time);
    for turn in 0..times {
        for act in &acts {
            let generation = u32::try_from(turn).unwrap_or(u32::MAX);
            planned.push(Planned {
                at,
                act: nth(&act.begin, generation),
            });
            if let (Some(lasts), Some(end)) = (lasts, &act.end) {
                planned.push(Planned {
                    at: at + lasts,
                    act: end.clone(),
                });
            }
        }
        at = at + every.unwrap_or_default();
    }
}

/// Each turn of a replacement is another one.
fn nth(act: &Act, turn: u32) -> Act {
    match act {
        Act::Person(PersonAct::Replace(service, first)) => {
            Act::Person(PersonAct::Replace(*service, first.saturating_add(turn)))
        }
        other => other.clone(),
    }
}

/// An act, and what undoes it.
struct Lasting {
    begin: Act,
    end: Option<Act>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Submit,
    Replace,
    Scale,
    Start,
    Stop,
    Restart,
    Kill,
    Delete,
    Drain,
    Undrain,
    Down,
    Remove,
    Adopt,
    Fence,
    PowerLoss,
    Boot,
    Shutdown,
    CutOff,
    Rejoin,
    KillAgent,
    HaltAgent,
    ContinueAgent,
    StartAgent,
    KillWorker,
    HaltWorker,
    ContinueWorker,
    ProcessEnds,
    StopByHand,
    RestartByHand,
    DiskFull,
    DiskFree,
    StrangerTakes,
    StrangerLeaves,
    ClockJump,
    Address,
    KillController,
    StartController,
    HaltController,
    ContinueController,
    ControllerDiskFull,
    ControllerDiskFree,
    ControllerClockJump,
    Backup,
    Restore,
    Network,
    Disk,
    Heal,
}

/// Every word of `act`.
const KINDS: [(&str, Kind); 47] = [
    ("submit", Kind::Submit),
    ("replace", Kind::Replace),
    ("scale", Kind::Scale),
    ("start", Kind::Start),
    ("stop", Kind::Stop),
    ("restart", Kind::Restart),
    ("kill", Kind::Kill),
    ("delete", Kind::Delete),
    ("drain", Kind::Drain),
    ("undrain", Kind::Undrain),
    ("down", Kind::Down),
    ("remove", Kind::Remove),
    ("adopt", Kind::Adopt),
    ("fence", Kind::Fence),
    ("power-loss", Kind::PowerLoss),
    ("boot", Kind::Boot),
    ("shutdown", Kind::Shutdown),
    ("cut-off", Kind::CutOff),
    ("rejoin", Kind::Rejoin),
    ("kill-agent", Kind::KillAgent),
    ("halt-agent", Kind::HaltAgent),
    ("continue-agent", Kind::ContinueAgent),
    ("start-agent", Kind::StartAgent),
    ("kill-worker", Kind::KillWorker),
    ("halt-worker", Kind::HaltWorker),
    ("continue-worker", Kind::ContinueWorker),
    ("process-ends", Kind::ProcessEnds),
    ("stop-by-hand", Kind::StopByHand),
    ("restart-by-hand", Kind::RestartByHand),
    ("disk-full", Kind::DiskFull),
    ("disk-free", Kind::DiskFree),
    ("stranger-takes", Kind::StrangerTakes),
    ("stranger-leaves", Kind::StrangerLeaves),
    ("clock-jump", Kind::ClockJump),
    ("address", Kind::Address),
    ("kill-controller", Kind::KillController),
    ("start-controller", Kind::StartController),
    ("halt-controller", Kind::HaltController),
    ("continue-controller", Kind::ContinueController),
    ("controller-disk-full", Kind::ControllerDiskFull),
    ("controller-disk-free", Kind::ControllerDiskFree),
    ("controller-clock-jump", Kind::ControllerClockJump),
    ("backup", Kind::Backup),
    ("restore", Kind::Restore),
    ("network", Kind::Network),
    ("disk", Kind::Disk),
    ("heal", Kind::Heal),
];

fn read(table: &Table<'_, '_>, kind: Kind, names: &Names, usual: &Usual<'_>) -> Vec<Lasting> {
    match kind {
        Kind::Submit
        | Kind::Replace
        | Kind::Scale
        | Kind::Start
        | Kind::Stop
        | Kind::Restart
        | Kind::Kill
        | Kind::Delete => of_services(table, kind, names, usual),
        Kind::Drain | Kind::Undrain | Kind::Down | Kind::Remove | Kind::Adopt | Kind::Fence => {
            of_operator(table, kind, names, usual)
        }
        Kind::KillController
        | Kind::StartController
        | Kind::HaltController
        | Kind::ContinueController
        | Kind::ControllerDiskFull
        | Kind::ControllerDiskFree
        | Kind::ControllerClockJump
        | Kind::Backup
        | Kind::Restore => of_controller(table, kind).into_iter().collect(),
        Kind::Network => {
            let to = table.table("network").map(|inner| {
                let read = network(&inner);
                inner.end();
                read
            });
            if !table.has("network") {
                let allowed = "write network = { delay = \"100ms\", loss = \"5%\" }";
                table.wrong("network", "missing", allowed);
            }
            let end = Some(Act::Network(usual.network.clone()));
            let begin = to.map(Act::Network);
            begin
                .map(|begin| Lasting { begin, end })
                .into_iter()
                .collect()
        }
        Kind::Disk => {
            let to = table.table("disk").map(|inner| {
                let read = disk(&inner);
                inner.end();
                read
            });
            if !table.has("disk") {
                let allowed = "write disk = { commit = \"2s\", refusal = \"10%\" }";
                table.wrong("disk", "missing", allowed);
            }
            let end = Some(Act::Disk(usual.disk.clone()));
            let begin = to.map(Act::Disk);
            begin
                .map(|begin| Lasting { begin, end })
                .into_iter()
                .collect()
        }
        Kind::Heal => vec![Lasting {
            begin: Act::Heal,
            end: None,
        }],
        _ => of_host(table, kind, names),
    }
}

fn of_services(
    table: &Table<'_, '_>,
    kind: Kind,
    names: &Names,
    usual: &Usual<'_>,
) -> Vec<Lasting> {
    let replica = matches!(kind, Kind::Restart | Kind::Kill).then(|| names.replica(table));
    let replica = replica.flatten();
    let count = (kind == Kind::Scale).then(|| {
        if !table.has("replicas") {
            table.wrong("replicas", "missing", "write to how many");
        }
        table.number("replicas", 0..=100_000).unwrap_or(0)
    });
    let first = (kind == Kind::Replace).then(|| table.number("generation", 1..=1_000_000));
    if kind == Kind::Kill && !table.has("replica") {
        table.wrong("replica", "missing", "write which, such as replica = 0");
    }
    let services = match names.services(table, "service") {
        Some(services) => services,
        None => names.service(table).into_iter().collect(),
    };
    let of = |service| {
        let (begin, end) = match kind {
            Kind::Submit => (PersonAct::Submit(service), Some(PersonAct::Delete(service))),
            Kind::Replace => (
                PersonAct::Replace(service, first.flatten().unwrap_or(1)),
                None,
            ),
            Kind::Scale => {
                let before = usual.services.get(service).map(|one| one.replicas);
                let back = before.map(|before| PersonAct::Scale(service, before));
                (PersonAct::Scale(service, count.unwrap_or(0)), back)
            }
            Kind::Start => (PersonAct::Start(service), Some(PersonAct::Stop(service))),
            Kind::Stop => (PersonAct::Stop(service), Some(PersonAct::Start(service))),
            Kind::Restart => (PersonAct::Restart(service, replica), None),
            Kind::Kill => (PersonAct::Kill(service, replica.unwrap_or(0)), None),
            _ => (PersonAct::Delete(service), Some(PersonAct::Submit(service))),
        };
        Lasting {
            begin: Act::Person(begin),
            end: end.map(Act::Person),
        }
    };
    services.into_iter().map(of).collect()
}

fn of_operator(
    table: &Table<'_, '_>,
    kind: Kind,
    names: &Names,
    usual: &Usual<'_>,
) -> Vec<Lasting> {
    if !table.has("host") {
        table.wrong("host", "missing", "write which, such as host = \"n1\"");
    }
    let verb = match kind {
        Kind::Drain => {
            let within = table.span("within");
            let at_once = table.flag("at_once").unwrap_or(false);
            if within.is_some() && at_once {
                table.wrong("within", "it is at once", "leave one of them out");
            }
            let pace = match within {
                _ if at_once => DrainPace::AtOnce,
                Some(within) => DrainPace::Within(within),
                None => DrainPace::OneByOne,
            };
            Some(HostVerb::Drain { pace })
        }
        Kind::Undrain => Some(HostVerb::Undrain),
        Kind::Down => Some(HostVerb::Down {
            fenced: table.flag("fenced").unwrap_or(false),
        }),
        Kind::Remove => Some(HostVerb::Remove),
        Kind::Adopt => told_replica(table, names, usual).map(|replica| HostVerb::Adopt { replica }),
        _ => Some(HostVerb::Fence {
            replica: (table.has("replica") || table.has("service"))
                .then(|| told_replica(table, names, usual))
                .flatten(),
        }),
    };
    let end = match kind {
        Kind::Drain => Some(HostVerb::Undrain),
        _ => None,
    };
    let of = |host| {
        Some(Lasting {
            begin: Act::Person(PersonAct::Host(host, verb.clone()?)),
            end: end
                .clone()
                .map(|end| Act::Person(PersonAct::Host(host, end))),
        })
    };
    names.hosts(table).into_iter().filter_map(of).collect()
}

fn told_replica(table: &Table<'_, '_>, names: &Names, usual: &Usual<'_>) -> Option<HostReplica> {
    let whom = names.whom(table);
    let incarnation = table.number("incarnation", 1..=u64::from(u32::MAX));
    let whom = whom?;
    Some(HostReplica {
        service: usual.services.get(whom.service)?.name.clone(),
        index: whom.index,
        incarnation: incarnation.map(Incarnation),
    })
}

/// What befalls a host, by its name or by a replica that is there.
fn of_host(table: &Table<'_, '_>, kind: Kind, names: &Names) -> Vec<Lasting> {
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

fn of_controller(table: &Table<'_, '_>, kind: Kind) -> Option<Lasting> {
    let (begin, end) = match kind {
        Kind::KillController => {
            let after = table.number("after_effects", 0..=1_000_u64);
            let ways = [("written", true), ("lost", false)];
            let commit = table.word("in_commit", &ways);
            if after.is_some() && commit.is_some() {
                table.wrong(
                    "in_commit",
                    "there is also after_effects",
                    "write one of them",
                );
            }
            let begin = match (after, commit) {
                (_, Some(written)) => ControllerAct::DiesInCommit { written },
                (Some(count), None) => ControllerAct::DiesAfter(count),
                (None, None) => ControllerAct::Killed,
            };
            (begin, Some(ControllerAct::Starts))
        }
        Kind::StartController => (ControllerAct::Starts, None),
        Kind::HaltController => (ControllerAct::Halted, Some(ControllerAct::Continued)),
        Kind::ContinueController => (ControllerAct::Continued, None),
        Kind::ControllerDiskFull => (
            ControllerAct::DiskFull(true),
            Some(ControllerAct::DiskFull(false)),
        ),
        Kind::ControllerDiskFree => (ControllerAct::DiskFull(false), None),
        Kind::ControllerClockJump => {
            let by = jump(table)?;
            (
                ControllerAct::ClockJumps(by),
                Some(ControllerAct::ClockJumps(-by)),
            )
        }
        Kind::Backup => (ControllerAct::Backup, None),
        _ => (ControllerAct::Restore, None),
    };
    Some(Lasting {
        begin: Act::Controller(begin),
        end: end.map(Act::Controller),
    })
}

fn jump(table: &Table<'_, '_>) -> Option<i64> {
    if !table.has("by") {
        table.wrong("by", "missing", "write how far, such as by = \"-1h\"");
    }
    table.signed_ms("by")
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
