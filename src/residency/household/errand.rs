//! What the household wants done, and what may come of it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::assigned::Assigned;
use crate::port::PortName;
use crate::residency::{ReplicaName, Told};
use crate::supervision::{Leaving, StartFailure, Status};

/// Where clients are sent: the published address, and those of ports that name a network.
pub type Addresses = (IpAddr, BTreeMap<PortName, IpAddr>);

/// One thing to do. Those that name an answer are answered before anything else is done.
pub enum Errand<A: Assigned> {
    /// What lives here, or which numbers it holds, may have changed.
    Turn,
    /// Say each of these; [`super::Household::answered`] follows for each.
    Talk(Vec<(ReplicaName, Talk<A::Tokens>)>),
    /// Write the assignment down, then start a worker; [`super::Household::started`] or
    /// [`super::Household::not_started`] follows.
    Start(Box<Start<A>>),
    /// End the processes that its assignment holds together; [`super::Household::forced`] follows.
    EndByForce(ReplicaName),
    /// No worker of it ever said a word, and so many ended: [`super::Household::hopeless`] follows with the words for it.
    Hopeless(ReplicaName, u32),
    /// Write its status into its folder, made if it is missing. If it cannot be, it is known in memory only.
    StoreStatus(ReplicaName),
    /// Write its assignment down again. If it cannot be, it is known in memory only.
    WriteAssignment(ReplicaName),
    /// Mark its folder as ended, then clear it of all but its logs and its last status.
    MarkEnded(ReplicaName),
    /// Its folder is marked already: clear it.
    Clear(ReplicaName),
    /// Nothing of this assignment runs any more: what held its processes together can go.
    LetGo(Box<A>),
    /// Remove its folder with its logs.
    Remove(ReplicaName),
    /// Tell the controller of this end, since no worker does.
    Report(ReplicaName, Box<Status>),
    /// The newest of every replica that lives here, as it was asked for.
    Gathered(Vec<(ReplicaName, Status)>),
    /// For people.
    Word(ReplicaName, Word),
}

/// What a worker begins with.
pub struct Start<A: Assigned> {
    /// Which incarnation.
    pub name: ReplicaName,
    /// What is wanted of it.
    pub order: A::Order,
    /// What it proves itself with.
    pub tokens: A::Tokens,
    /// The published address of the host.
    pub host_address: IpAddr,
    /// Whether it takes over from a worker that died: its processes may run, held as its assignment says.
    pub again: bool,
}

/// One thing to say to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Talk<T> {
    /// What is wanted of it.
    Want(Told),
    /// That it should say how it is.
    Ask,
    /// The same, for a controller that wants to know everything. Whether it answers or not, what stands in its folder
    /// counts too if that is newer: see [`super::newer`].
    Newest,
    /// Where clients are sent.
    Address(Addresses),
    /// That the host ends it.
    Leave(Leaving),
    /// What the controller knows it by.
    Renew(T),
}

/// What a worker answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Its newest status.
    pub status: Option<Status>,
    /// Why it does not do as it is told.
    pub refused: Option<String>,
}

/// Why no worker could be started.
#[derive(Clone, Debug, PartialEq)]
pub enum Hindrance {
    /// Somebody who must be asked does not answer, or not well: tried again soon.
    NotNow,
    /// It cannot be started. Of a new replica it is the end; one that may run is tried again.
    Failed(StartFailure),
}

/// What the folder of a replica says after its worker ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Remains {
    /// It is gone.
    Nothing,
    /// It is marked as ended: its worker was told to let it go.
    Ended,
    /// It is there, with this status.
    Folder(Option<Status>),
}

/// What people may want to read in a log.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// The host ended with its boot, and it with it.
    Rebooted,
    /// It waits: the host publishes no address.
    NoAddress,
    /// It waits for an address of a network.
    Lacks(String),
    /// It does not begin: the host is being shut down.
    Closing,
    /// It cannot be started.
    NotStarted(StartFailure),
    /// Its worker, this process, is gone.
    WorkerGone(u32),
    /// No worker can take it over: its processes were ended by force.
    Forced,
    /// Its assignment is lost and nobody wants it: it is left alone.
    Lost,
    /// It is forgotten; its logs are kept.
    Forgotten,
    /// Its logs have been kept long enough.
    Expired,
}
