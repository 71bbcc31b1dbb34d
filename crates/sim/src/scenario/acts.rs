//! What is done to the cluster and when: `[[at]]`, each one act in a word, with whom it befalls.

mod of_controller;
mod of_host;

use portreeve::identity::Incarnation;
use portreeve::registry::{DrainPace, HostReplica, HostVerb};

use super::names::Names;
use super::read::moment;
use super::services::Declared;
use super::surroundings::{disk, network};
use super::table::Table;
use crate::cluster::act::{Act, PersonAct, Planned};
use crate::cluster::spec::{DiskSpec, NetworkSpec};
use of_controller::of_controller;
use of_host::of_host;

/// How often one table may be repeated.
const MOST_TIMES: u64 = 100_000;

/// What there is before anything is done, to which a time that is over returns.
pub(super) struct Usual<'s> {
    pub(super) network: &'s NetworkSpec,
    pub(super) disk: &'s DiskSpec,
    pub(super) services: &'s [Declared],
}

/// The acts of one table, each with its time.
pub(super) fn read_at(
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

fn jump(table: &Table<'_, '_>) -> Option<i64> {
    if !table.has("by") {
        table.wrong("by", "missing", "write how far, such as by = \"-1h\"");
    }
    table.signed_ms("by")
}
