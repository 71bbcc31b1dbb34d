//! One virtual host: a machine with its boots, its disk and its ports; an agent, workers and processes on it.
//!
//! What agent and workers decide is production's (`residency`, `attendance`); what happens to them, and what
//! processes do, is scripted. Nothing on a host waits for anything of another host: what it says leaves as
//! [`HostOut`], what it hears comes by [`Host::reply`].

mod agenda;
mod ports;
mod process;
mod strangers;

use std::sync::Arc;

use portreeve::identity::Run;
use portreeve::port::{Port, Protocol};
use portreeve::residency::ReplicaName;
use portreeve::supervision::{Machine, Status};
use portreeve::time::{Monotonic, Now};

use super::act::{HostAct, HostNo};
use super::sight::Sight;
use super::spec::Spec;
use super::wire::{Asker, Question, Reply};

pub(crate) use ports::Bound;

/// Something that leaves a host.
#[derive(Clone, Debug)]
pub(crate) enum HostOut {
    /// A question to the controller, from an agent or a worker of the host.
    Ask(Asker, Question),
    /// An onlooker saw this.
    Saw(Sight),
}

/// A replica by its place among those that ever were on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(pub(crate) u32);

/// One host.
pub(crate) struct Host {
    no: HostNo,
    spec: Arc<Spec>,
}

impl Host {
    /// It is up, and its agent starts at `now`.
    pub(crate) fn new(no: HostNo, spec: &Arc<Spec>, seed: u64, now: Now) -> Self {
        _ = (seed, now);
        Self {
            no,
            spec: Arc::clone(spec),
        }
    }

    /// Something befalls it; `now` shows its own display clock. [`HostAct::CutOff`], [`HostAct::Rejoin`] and
    /// [`HostAct::ClockJumps`] are the caller's and change nothing here.
    pub(crate) fn act(&mut self, now: Now, act: &HostAct, out: &mut Vec<HostOut>) {
        _ = (now, act, out);
    }

    /// The answer to a question that it asked. One whose asker does not live any more is lost.
    pub(crate) fn reply(&mut self, now: Now, to: &Asker, reply: Reply, out: &mut Vec<HostOut>) {
        _ = (now, to, reply, out);
    }

    /// One thing that is due by `now`: of what is due at one moment, processes come before probes, and those before
    /// what agent and workers do by themselves.
    pub(crate) fn on_deadline(&mut self, now: Now, out: &mut Vec<HostOut>) {
        _ = (now, out);
    }

    /// When [`Host::on_deadline`] is due. Cost: constant.
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        None
    }

    /// Whether it is powered.
    pub(crate) fn is_up(&self) -> bool {
        true
    }

    /// Every living process of ours, by place.
    pub(crate) fn living(&self) -> impl Iterator<Item = Living<'_>> {
        std::iter::empty()
    }

    /// The numbers that somebody listens on who is not ours, each side by itself, ascending.
    pub(crate) fn strangers(&self) -> impl Iterator<Item = (Port, Protocol)> {
        std::iter::empty()
    }

    /// Every living worker, by place.
    pub(crate) fn workers(&self) -> impl Iterator<Item = Attended<'_>> {
        std::iter::empty()
    }
}

/// A living process of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Living<'a> {
    pub(crate) name: &'a ReplicaName,
    pub(crate) run: Run,
    pub(crate) part: Part,
    /// What it listens on. A script may say that this is not what was granted.
    pub(crate) bound: &'a [Bound],
}

/// Which of the processes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    /// Others of its group, after the end of the main process.
    Leftover,
}

/// A replica as its living worker sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attended<'a> {
    pub(crate) name: &'a ReplicaName,
    pub(crate) machine: &'a Machine,
    /// What it last told.
    pub(crate) told: Option<&'a Status>,
    pub(crate) is_halted: bool,
}
