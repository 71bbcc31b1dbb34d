//! One incarnation on a host: its folder, its processes, its worker.

use std::net::IpAddr;
use std::sync::Arc;

use portreeve::attendance::{Attendance, Order, Telling};
use portreeve::registry::Desired;
use portreeve::residency::{Assigned, ReplicaName};
use portreeve::time::Monotonic;

use super::Due;
use super::folder::Folder;
use super::process::Processes;
use super::worker::Worker;
use crate::cluster::act::Whom;

/// Everything of one incarnation that is on the host.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) name: ReplicaName,
    /// The place of its service in the spec; `None`: the spec has none of this name.
    pub(crate) whom: Option<Whom>,
    /// What stands in its folder; `None`: nothing was ever started here.
    pub(crate) assigned: Option<Assignment>,
    pub(crate) folder: Folder,
    pub(crate) processes: Processes,
    pub(crate) worker: Option<Box<Worker>>,
    /// Counts its workers.
    pub(crate) life: u64,
    /// Its next worker begins no earlier than then.
    pub(crate) begins: Monotonic,
    /// What people ordered while there was no worker to hear it.
    pub(crate) by_hand: Vec<Order>,
    /// What its worker will find when it goes on.
    pub(crate) waiting: Vec<Due>,
}

/// What a worker is given. There are no tokens: who asks is who it says.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) desired: Arc<Desired>,
    pub(crate) address: IpAddr,
    /// In which boot it was written.
    pub(crate) boot: u32,
}

impl Assigned for Assignment {
    type Order = Arc<Desired>;
    type Tokens = ();

    fn order(&self) -> &Arc<Desired> {
        &self.desired
    }

    fn order_mut(&mut self) -> &mut Arc<Desired> {
        &mut self.desired
    }

    fn tokens(&self) -> &() {
        &()
    }

    fn set_tokens(&mut self, (): ()) {}

    fn host_address(&self) -> IpAddr {
        self.address
    }
}

impl Replica {
    pub(crate) fn new(name: ReplicaName, whom: Option<Whom>, processes: Processes) -> Self {
        Self {
            name,
            whom,
            assigned: None,
            folder: Folder::default(),
            processes,
            worker: None,
            life: 0,
            begins: Monotonic::default(),
            by_hand: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// `None`: it has no worker, or one that has not begun yet.
    pub(crate) fn attended(&mut self) -> Option<Attended<'_>> {
        let worker = self.worker.as_deref_mut()?;
        Some(Attended {
            name: &self.name,
            whom: self.whom,
            desired: &self.assigned.as_ref()?.desired,
            folder: &mut self.folder,
            processes: &mut self.processes,
            life: worker.life,
            dies_soon: worker.dies_after.is_some(),
            attendance: worker.attendance.as_deref_mut()?,
            telling: &mut worker.telling,
        })
    }
}

/// A replica whose worker has begun, in its parts: what a turn of the worker needs of it.
pub(crate) struct Attended<'a> {
    pub(crate) name: &'a ReplicaName,
    pub(crate) whom: Option<Whom>,
    pub(crate) desired: &'a Arc<Desired>,
    pub(crate) folder: &'a mut Folder,
    pub(crate) processes: &'a mut Processes,
    pub(crate) attendance: &'a mut Attendance,
    pub(crate) telling: &'a mut Telling,
    /// Which of its workers it is.
    pub(crate) life: u64,
    /// The worker dies in the middle of a turn.
    pub(crate) dies_soon: bool,
}
