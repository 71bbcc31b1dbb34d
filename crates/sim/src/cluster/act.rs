//! What can be done to a virtual cluster from outside: by people, by the machines it stands on, by chance.

use std::time::Duration;

use portreeve::port::{Port, Protocol};
use portreeve::registry::HostVerb;
use portreeve::supervision::ExitStatus;
use portreeve::time::Monotonic;

use super::spec::{DiskSpec, NetworkSpec};

/// One act at its time.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) at: Monotonic,
    pub(crate) act: Act,
}

/// A host by its place in the spec.
pub(crate) type HostNo = usize;
/// A service by its place in the spec.
pub(crate) type ServiceNo = usize;

/// One act.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A person's order to the controller.
    Person(PersonAct),
    /// Something that befalls a host.
    Host(HostNo, HostAct),
    /// The same to whichever host this replica is placed on then, by the controller's newest view, else where a worker
    /// of it still lives; nothing where it is nowhere. A scenario knows replicas, but not where they will be.
    /// What ends something ([`HostAct::is_an_end`]) goes to where the newest act of this kind for the replica went.
    HostOf(Whom, HostAct),
    /// Something that befalls the controller or its store.
    Controller(ControllerAct),
    /// From now on the network is this.
    Network(NetworkSpec),
    /// From now on the controller's disk is this.
    Disk(DiskSpec),
    /// Everything that is wrong is right again: network, disks, clocks, partitions, strangers; whatever is down starts.
    Heal,
}

/// A person's order to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PersonAct {
    Submit(ServiceNo),
    /// Submit it with `generation` in its environment: another profile.
    Replace(ServiceNo, u32),
    Scale(ServiceNo, u32),
    Start(ServiceNo),
    Stop(ServiceNo),
    Restart(ServiceNo, Option<u32>),
    Kill(ServiceNo, u32),
    Delete(ServiceNo),
    Host(HostNo, HostVerb),
}

impl PersonAct {
    /// The service that it is about; `None`: it is about a host.
    pub(crate) const fn service(&self) -> Option<ServiceNo> {
        match self {
            Self::Submit(no)
            | Self::Replace(no, _)
            | Self::Scale(no, _)
            | Self::Start(no)
            | Self::Stop(no)
            | Self::Restart(no, _)
            | Self::Kill(no, _)
            | Self::Delete(no) => Some(*no),
            Self::Host(..) => None,
        }
    }
}

/// Something that befalls a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostAct {
    /// The power goes: everything on it is gone at once; what was not synced may be.
    PowerLoss,
    /// It boots, if it is down; with another boot id.
    Boot,
    /// It is shut down in order, then off.
    Shutdown,
    /// Messages in these directions are lost until it is heard and hears again.
    CutOff {
        from_host: bool,
        to_host: bool,
    },
    /// No direction is cut off any more.
    Rejoin,
    AgentKilled,
    /// It stands still and goes on, with everything else on the host.
    AgentHalted,
    AgentContinued,
    /// The supervisor starts it again, if it is not running.
    AgentStarts,
    WorkerKilled(Whom),
    /// The next worker of it that starts begins no earlier than then.
    NextWorkerBegins(Whom, Monotonic),
    WorkerHalted(Whom),
    WorkerContinued(Whom),
    /// Agent or worker dies in the middle of its next turn, after it did this many of the things it would do.
    AgentDiesAfter(u32),
    WorkerDiesAfter(Whom, u32),
    /// The main process ends by itself.
    ProcessEnds(Whom, ExitStatus),
    /// By hand, at the worker's own socket.
    WorkerStop(Whom, Option<Duration>),
    WorkerRestart(Whom),
    /// Nothing can be written there any more, or again.
    DiskFull(bool),
    /// Somebody who is not ours listens on this number.
    StrangerTakes(StrangerPort),
    StrangerLeaves(StrangerPort),
    /// Its display clock jumps by this many milliseconds.
    ClockJumps(i64),
    /// Its address is another one from now on; `None`: it has none.
    AddressBecomes(Option<std::net::IpAddr>),
    /// Everything that is wrong with it is right again: it boots if it is down, its disk has room, strangers leave, whatever
    /// stands still goes on, what waits to die in its next turn does not, and its agent starts if it is not running.
    Heals,
}

impl HostAct {
    /// Whether it ends what another act began.
    pub(crate) const fn is_an_end(&self) -> bool {
        matches!(
            self,
            Self::Boot
                | Self::Rejoin
                | Self::AgentContinued
                | Self::AgentStarts
                | Self::WorkerContinued(_)
                | Self::DiskFull(false)
                | Self::StrangerLeaves(_)
        )
    }
}

/// A replica of a service on the host, in the incarnation that lives there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Whom {
    pub(crate) service: ServiceNo,
    pub(crate) index: u32,
}

/// Which number a stranger takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StrangerPort {
    Number(Port, Protocol),
    /// The first granted port of a replica.
    Of(Whom),
}

/// Something that befalls the controller or its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControllerAct {
    Killed,
    /// Its supervisor starts it again, if it is not running.
    Starts,
    /// It stands still; the world goes on.
    Halted,
    Continued,
    /// It dies in the middle of a turn, after it did this many of the things it would do.
    DiesAfter(u32),
    /// Every write is refused until it is not full any more.
    DiskFull(bool),
    /// A commit is written, but the process dies before it hears of it; or is not, the same way.
    DiesInCommit {
        written: bool,
    },
    ClockJumps(i64),
    /// A copy of the store is put aside.
    Backup,
    /// It is stopped, started on the copy that was put aside, with a new epoch.
    Restore,
}
