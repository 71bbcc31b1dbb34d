//! One word for everything that a run can reach.

use portreeve::endpoints::EndpointState;
use portreeve::registry::{DrainPace, HostVerb, Refusal};
use portreeve::supervision::{Final, Report, State};

use super::super::act::{Act, ControllerAct, HostAct, PersonAct};
use super::super::wire::Heard;

pub(super) const fn act(act: &Act) -> &'static str {
    match act {
        Act::Person(act) => person(act),
        Act::Host(_, act) | Act::HostOf(_, act) => befalls(act),
        Act::Controller(act) => controller(act),
        Act::Network(_) => "network changes",
        Act::Disk(_) => "disk changes",
        Act::Heal => "heal",
    }
}

const fn person(act: &PersonAct) -> &'static str {
    match act {
        PersonAct::Submit(_) => "submit",
        PersonAct::Replace(..) => "replace",
        PersonAct::Scale(..) => "scale",
        PersonAct::Start(_) => "start",
        PersonAct::Stop(_) => "stop",
        PersonAct::Restart(_, None) => "restart all",
        PersonAct::Restart(_, Some(_)) => "restart one",
        PersonAct::Kill(..) => "kill",
        PersonAct::Delete(_) => "delete",
        PersonAct::Host(_, verb) => match verb {
            HostVerb::Drain { pace } => match pace {
                DrainPace::OneByOne => "drain one by one",
                DrainPace::Within(_) => "drain within",
                DrainPace::AtOnce => "drain at once",
            },
            HostVerb::Undrain => "undrain",
            HostVerb::Down { fenced: false } => "down",
            HostVerb::Down { fenced: true } => "down fenced",
            HostVerb::Remove => "remove host",
            HostVerb::Adopt { .. } => "adopt",
            HostVerb::Fence { .. } => "fence",
        },
    }
}

const fn befalls(act: &HostAct) -> &'static str {
    match act {
        HostAct::PowerLoss => "power loss",
        HostAct::Boot => "boot",
        HostAct::Shutdown => "shutdown",
        HostAct::CutOff {
            from_host: true,
            to_host: true,
        } => "cut off",
        HostAct::CutOff {
            from_host: true, ..
        } => "not heard",
        HostAct::CutOff { .. } => "hears nothing",
        HostAct::Rejoin => "rejoin",
        HostAct::AgentKilled => "agent killed",
        HostAct::AgentHalted => "agent halted",
        HostAct::AgentContinued => "agent continued",
        HostAct::AgentStarts => "agent starts",
        HostAct::WorkerKilled(_) => "worker killed",
        HostAct::NextWorkerBegins(..) => "worker begins late",
        HostAct::WorkerHalted(_) => "worker halted",
        HostAct::WorkerContinued(_) => "worker continued",
        HostAct::AgentDiesAfter(_) => "agent dies in a turn",
        HostAct::WorkerDiesAfter(..) => "worker dies in a turn",
        HostAct::ProcessEnds(..) => "process ends",
        HostAct::WorkerStop(..) => "stopped by hand",
        HostAct::WorkerRestart(_) => "restarted by hand",
        HostAct::DiskFull(true) => "host disk full",
        HostAct::DiskFull(false) => "host disk has room",
        HostAct::StrangerTakes(_) => "stranger takes",
        HostAct::StrangerLeaves(_) => "stranger leaves",
        HostAct::ClockJumps(_) => "host clock jumps",
        HostAct::AddressBecomes(_) => "address changes",
        HostAct::Heals => "host heals",
    }
}

const fn controller(act: &ControllerAct) -> &'static str {
    match act {
        ControllerAct::Killed => "controller killed",
        ControllerAct::Starts => "controller starts",
        ControllerAct::Halted => "controller halted",
        ControllerAct::Continued => "controller continued",
        ControllerAct::DiesAfter(_) => "controller dies in a turn",
        ControllerAct::DiskFull(true) => "disk full",
        ControllerAct::DiskFull(false) => "disk has room",
        ControllerAct::DiesInCommit { written: true } => "dies in a commit that is written",
        ControllerAct::DiesInCommit { written: false } => "dies in a commit that is not written",
        ControllerAct::ClockJumps(_) => "controller clock jumps",
        ControllerAct::Backup => "backup",
        ControllerAct::Restore => "restore",
    }
}

pub(super) const ACTS: &[&str] = &[
    "submit",
    "replace",
    "scale",
    "start",
    "stop",
    "restart all",
    "restart one",
    "kill",
    "delete",
    "drain one by one",
    "drain within",
    "drain at once",
    "undrain",
    "down",
    "down fenced",
    "remove host",
    "adopt",
    "fence",
    "power loss",
    "boot",
    "shutdown",
    "cut off",
    "not heard",
    "hears nothing",
    "rejoin",
    "agent killed",
    "agent halted",
    "agent continued",
    "agent starts",
    "worker killed",
    "worker halted",
    "worker continued",
    "agent dies in a turn",
    "worker dies in a turn",
    "process ends",
    "stopped by hand",
    "restarted by hand",
    "host disk full",
    "host disk has room",
    "stranger takes",
    "stranger leaves",
    "host clock jumps",
    "address changes",
    "controller killed",
    "controller starts",
    "controller halted",
    "controller continued",
    "controller dies in a turn",
    "disk full",
    "disk has room",
    "dies in a commit that is written",
    "dies in a commit that is not written",
    "controller clock jumps",
    "backup",
    "restore",
    "network changes",
    "disk changes",
    "heal",
];

pub(super) const fn heard(heard: &Heard) -> &'static str {
    match heard {
        Heard::Report { is_full: true, .. } => "full report",
        Heard::Report { .. } => "report",
        Heard::Lease => "lease",
        Heard::Shutdown => "shutdown",
        Heard::Wanted => "wanted",
        Heard::Status(_) => "status",
    }
}

pub(super) const QUESTIONS: &[&str] = &[
    "report",
    "full report",
    "lease",
    "shutdown",
    "wanted",
    "status",
];

pub(super) const MESSAGES: &[&str] = &["arrived", "lost", "cut off", "doubled", "held back"];

pub(super) const fn report(report: &Report) -> &'static str {
    match report {
        Report::Ready => "ready",
        Report::NotReady(_) => "not ready",
        Report::Backoff { .. } => "backoff",
        Report::Restarted { .. } => "restarted",
        Report::Stuck => "stuck",
        Report::Final(end) => ended(end),
    }
}

const fn ended(end: &Final) -> &'static str {
    match end {
        Final::Succeeded => "succeeded",
        Final::Failed(_) => "failed",
        Final::Stopped => "stopped",
        Final::Left(_) => "left",
        Final::GaveUp { .. } => "gave up",
        Final::PortConflict { .. } => "port conflict",
    }
}

/// What machines tell. That a run left its host is told by who stopped it, in the status.
pub(super) const REPORTS: &[&str] = &[
    "ready",
    "not ready",
    "backoff",
    "restarted",
    "stuck",
    "succeeded",
    "failed",
    "stopped",
    "gave up",
    "port conflict",
];

pub(super) const fn state(state: &State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Starting => "starting",
        State::Startup => "startup",
        State::Up => "up",
        State::Stopping => "stopping",
        State::Reaping => "reaping",
        State::Backoff => "backoff",
        State::Stuck => "stuck",
        State::Final(end) => ended(end),
    }
}

pub(super) const STATES: &[&str] = &[
    "idle",
    "starting",
    "startup",
    "up",
    "stopping",
    "reaping",
    "backoff",
    "stuck",
    "succeeded",
    "failed",
    "stopped",
    "gave up",
    "port conflict",
];

pub(super) const fn endpoint(state: EndpointState) -> &'static str {
    match state {
        EndpointState::NotReady => "not ready",
        EndpointState::Ready => "ready",
        EndpointState::Serving => "serving",
        EndpointState::Unconfirmed => "unconfirmed",
        EndpointState::Terminating => "terminating",
    }
}

pub(super) const ENDPOINTS: &[&str] = &[
    "ready",
    "not ready",
    "serving",
    "unconfirmed",
    "terminating",
];

/// One of these, or that it is none of them.
fn one_of(all: &[&'static str], word: &str) -> &'static str {
    let known = all.iter().find(|known| **known == word);
    known.copied().unwrap_or("another")
}

pub(super) fn host(state: &str) -> &'static str {
    one_of(HOSTS, state)
}

pub(super) const HOSTS: &[&str] = &[
    "not known",
    "up",
    "not reported",
    "draining",
    "drained",
    "shutting down",
    "suspect",
    "lost",
];

pub(super) fn replica(state: &str) -> &'static str {
    one_of(REPLICAS, state)
}

pub(super) const REPLICAS: &[&str] = &[
    "pending",
    "resting",
    "port conflict",
    "starting",
    "ready",
    "not ready",
    "backoff",
    "stopping",
    "stuck",
    "unknown",
    "host lost",
    "completed",
    "failed",
    "gave up",
    "stopped",
    "killed",
    "host rebooted",
    "stopped by its host",
    "host drained",
    "host shut down",
];

pub(super) fn cause(code: &str) -> &'static str {
    one_of(CAUSES, code)
}

pub(super) const CAUSES: &[&str] = &[
    "HELD",
    "RELEASING",
    "COOLING",
    "RESERVED",
    "FOREIGN",
    "AWAITED",
    "NOT IN POOL",
    "TOO FEW FREE",
    "NO BLOCK",
    "HOST DRAINED",
    "HOST SUSPECT",
    "HOST LOST",
    "HOST NOT REPORTED",
    "NO ADDRESS",
    "ONE PER HOST",
    "LIMIT",
];

pub(super) const fn refusal(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NoSuchService { .. } => "no such service",
        Refusal::NoSuchReplica { .. } => "no such replica",
        Refusal::NotAllowed { .. } => "not allowed",
        Refusal::Differs { .. } => "differs",
        Refusal::StillRunning { .. } => "still running",
        Refusal::Taken { .. } => "taken",
        Refusal::NoRoom { .. } => "no room",
        Refusal::Unfit { .. } => "unfit",
        Refusal::NoSuchHost { .. } => "no such host",
        Refusal::OperatorsOnly { .. } => "operators only",
        Refusal::HostUnfit { .. } => "host unfit",
        Refusal::BeyondLimit { .. } => "beyond limit",
        Refusal::Changed { .. } => "changed",
        Refusal::NotStored { .. } => "not stored",
        _ => "another",
    }
}

pub(super) const REFUSALS: &[&str] = &[
    "no such service",
    "no such replica",
    "differs",
    "still running",
    "unfit",
    "no such host",
    "host unfit",
    "beyond limit",
    "not stored",
];

pub(super) const LOOKS: &[&str] = &[
    "orders to stop",
    "reports of machines",
    "what was acknowledged",
    "lives of copies",
    "pools with taken numbers",
    "numbers of what lives",
    "numbers that rest",
    "lists with endpoints",
    "tables that readers follow",
    "services on disk",
    "services as acknowledged",
    "hosts that are given up",
    "everybody who waits",
    "refusals",
    "clusters that settled",
    "silences",
];
