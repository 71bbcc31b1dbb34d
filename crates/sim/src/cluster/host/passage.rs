//! What a turn of a worker made of a replica: from where, on what, to where. Coverage is made of it.

use portreeve::attendance::{Happened, Order, ProcessEvent};
use portreeve::residency::Want;
use portreeve::supervision::{ProbeKind, ProbeOutcome, State};

/// One turn.
#[derive(Clone, Debug)]
pub(crate) struct Passage {
    pub(crate) from: State,
    pub(crate) on: &'static str,
    pub(crate) to: State,
}

impl Passage {
    /// `None`: it went as always, and many turns a second do.
    pub(super) fn of(from: State, on: &'static str, to: State) -> Option<Self> {
        let as_always = from == to && matches!(on, TIME | "liveness ok" | "readiness ok");
        (!as_always).then_some(Self { from, on, to })
    }
}

/// Nothing happened but that a deadline came.
const TIME: &str = "time";
/// What of it did something cannot be told from outside.
const SEVERAL: &str = "several at once";

/// One word for all that happened in a turn.
pub(super) fn on<A>(happened: &Happened<A>) -> &'static str {
    let orders = happened.orders.iter().map(|(order, _)| ordered(order));
    let processes = happened.processes.iter().map(heard);
    let probes = happened
        .probes
        .iter()
        .map(|end| probed(end.kind, end.outcome));
    let mut all = orders.chain(processes).chain(probes);
    match (all.next(), all.next()) {
        (None, _) => TIME,
        (Some(one), None) => one,
        (Some(_), Some(_)) => SEVERAL,
    }
}

const fn ordered(order: &Order) -> &'static str {
    match order {
        Order::Want {
            want: Want::Run, ..
        } => "wanted",
        Order::Want {
            want: Want::Stop, ..
        } => "not wanted",
        Order::Want {
            want: Want::Forget, ..
        } => "forgotten",
        Order::Address { .. } => "address",
        Order::Hurry => "hurried",
        Order::Stop { .. } => "stopped by hand",
        Order::Leave { .. } => "left by its host",
        Order::Restart => "restarted by hand",
        Order::Tell => "asked",
    }
}

const fn heard(event: &ProcessEvent) -> &'static str {
    match event {
        ProcessEvent::PreExecStarted { .. } => "pre_exec begins",
        ProcessEvent::Spawned { .. } => "spawned",
        ProcessEvent::SpawnFailed { .. } => "not spawned",
        ProcessEvent::PortConflict { .. } => "stranger met",
        ProcessEvent::Cleared { .. } => "cleared",
        ProcessEvent::Exited { .. } => "exited",
        ProcessEvent::GroupEmpty { .. } => "group empty",
    }
}

const fn probed(kind: ProbeKind, outcome: ProbeOutcome) -> &'static str {
    use ProbeKind::{Liveness, Readiness, Startup};
    use ProbeOutcome::{Fail, Inconclusive, Ok, Timeout};
    match (kind, outcome) {
        (Startup, Ok) => "startup ok",
        (Startup, Fail) => "startup fails",
        (Startup, Timeout) => "startup hangs",
        (Startup, Inconclusive) => "startup unclear",
        (Liveness, Ok) => "liveness ok",
        (Liveness, Fail) => "liveness fails",
        (Liveness, Timeout) => "liveness hangs",
        (Liveness, Inconclusive) => "liveness unclear",
        (Readiness, Ok) => "readiness ok",
        (Readiness, Fail) => "readiness fails",
        (Readiness, Timeout) => "readiness hangs",
        (Readiness, Inconclusive) => "readiness unclear",
    }
}

/// Everything that can happen to a run in a virtual cluster. Nobody there says that a stop is not to be waited for: that
/// is a word of who runs a replica in a terminal, or in a job of another scheduler. And that a probe of what is up is
/// answered is told of no turn.
pub(crate) const EVENTS: &[&str] = &[
    TIME,
    "wanted",
    "not wanted",
    "forgotten",
    "address",
    "stopped by hand",
    "left by its host",
    "restarted by hand",
    "asked",
    "pre_exec begins",
    "spawned",
    "not spawned",
    "stranger met",
    "cleared",
    "exited",
    "group empty",
    "startup ok",
    "startup fails",
    "startup hangs",
    "startup unclear",
    "liveness fails",
    "liveness hangs",
    "liveness unclear",
    "readiness fails",
    "readiness hangs",
    "readiness unclear",
    SEVERAL,
];
