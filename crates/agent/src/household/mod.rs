//! The replicas that live here: their folders, their workers, and the acting on what is wanted of them.
//!
//! One task owns it all, so that no two decisions about a replica can cross. What to do is decided by
//! [`portreeve::residency`]; here it is done, and what failed is tried again later.

mod clearing;
mod closing;
mod expiry;
mod folder;
mod keeping;
mod start;
mod talk;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use portreeve::port::{PortRange, Protocol};
use portreeve::profile::OnCutOff;
use portreeve::registry::{Desired, ReplicaReport};
use portreeve::residency::{self, Action, Life, ReplicaName, Resident, Residents, Told, WantedSet};
use portreeve::supervision::Status;
use portreeve_api::attach::Closing;
use portreeve_api::body::{DesiredReplica, DesiredSet};
use portreeve_api::containment::Ladder;
use portreeve_api::local::ReplicaFolder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::Config;
use crate::account::Accounts;
use crate::facts::{Granted, Observed};

use clearing::Clearing;
pub(crate) use folder::{open_through, parse_name, read_json, write_json};
pub(crate) use keeping::Addresses;
use keeping::Keeping;
pub(crate) use worker::Worker;

/// What other tasks say to the household.
#[derive(Debug)]
pub(crate) enum Message {
    /// What the controller wants of this host, whole.
    Wanted(Box<DesiredSet>),
    /// A controller wants to know everything: the newest status of every replica that lives here.
    Newest(oneshot::Sender<Vec<ReplicaReport>>),
    /// The controller acknowledged what was reported of these.
    Reported(Vec<ReplicaName>),
    /// The host is being shut down.
    Close,
}

/// Owns the replicas of this host.
pub(crate) struct Household {
    config: Arc<Config>,
    boot_id: String,
    ladder: Ladder,
    accounts: Accounts,
    clearing: Clearing,
    residents: Residents,
    keeping: BTreeMap<ReplicaName, Keeping>,
    wanted: Option<Wanted>,
    /// Ends on their way to the controller.
    reporting: BTreeSet<ReplicaName>,
    watches: JoinSet<(ReplicaName, u32)>,
    /// When something that could not be done is tried again.
    next_try: Option<Instant>,
    inbox: mpsc::Receiver<Message>,
    ends: mpsc::UnboundedSender<ReplicaReport>,
    granted: watch::Sender<Granted>,
    living: watch::Sender<usize>,
    heeding: watch::Sender<bool>,
    observed: watch::Receiver<Observed>,
    /// Whether the host is being shut down: nothing begins here any more.
    is_closing: bool,
    closing: watch::Sender<Option<Closing>>,
}

struct Wanted {
    set: WantedSet,
    replicas: BTreeMap<ReplicaName, DesiredReplica>,
}

/// Its ends of the channels to the other tasks.
pub(crate) struct Channels {
    pub(crate) inbox: mpsc::Receiver<Message>,
    pub(crate) ends: mpsc::UnboundedSender<ReplicaReport>,
    pub(crate) granted: watch::Sender<Granted>,
    /// How many replicas have, or may have, a process here.
    pub(crate) living: watch::Sender<usize>,
    /// Whether one of them ends when the controller does not hear of this host for long.
    pub(crate) heeding: watch::Sender<bool>,
    pub(crate) observed: watch::Receiver<Observed>,
    /// How far the shutdown of the host is; `None` while it is not being shut down.
    pub(crate) closing: watch::Sender<Option<Closing>>,
}

impl Household {
    /// Reads the folders back and adopts the workers that live. Starts nothing yet.
    ///
    /// # Errors
    ///
    /// The system's, when the folders cannot be listed.
    pub(crate) fn open(
        config: Arc<Config>,
        boot_id: String,
        ladder: Ladder,
        channels: Channels,
    ) -> io::Result<Self> {
        let found = folder::scan(&config.state, &boot_id)?;
        let clearing = Clearing::begin(&config.state)?;
        let mut household = Self {
            config,
            boot_id,
            ladder,
            accounts: Accounts::default(),
            clearing,
            residents: Residents::new(),
            keeping: BTreeMap::new(),
            wanted: None,
            reporting: BTreeSet::new(),
            watches: JoinSet::new(),
            next_try: None,
            inbox: channels.inbox,
            ends: channels.ends,
            granted: channels.granted,
            living: channels.living,
            heeding: channels.heeding,
            observed: channels.observed,
            is_closing: false,
            closing: channels.closing,
        };
        for found in found {
            household.take_in(found);
        }
        household.tell_living();
        Ok(household)
    }

    fn take_in(&mut self, found: folder::Found) {
        let mut life = found.life;
        let mut keeping = Keeping::new(found.folder);
        if life == Life::Orphaned {
            let known = found.worker.as_ref();
            let known = known.and_then(|worker| Worker::recognise(worker, found.owner));
            if let Some(worker) = known.or_else(|| worker::search(&keeping.folder)) {
                info!("{} is adopted, worker {}", found.name, worker.pid);
                life = Life::Watched;
                keeping.watch(&found.name, worker, &mut self.watches);
            } else if found.assignment.is_none() && found.worker.is_none() && found.status.is_none()
            {
                // The assignment is written before anything starts: nothing ever did.
                return;
            }
        }
        if life == Life::Ended {
            // The agent may have ended before that was done.
            self.clearing.unkept(&keeping.folder);
        }
        if life == Life::Rebooted {
            info!("{} ended with the boot of this host", found.name);
        }
        let resident = Resident {
            life,
            told: None,
            restart_no: found
                .assignment
                .as_ref()
                .map_or(0, |one| one.desired.restart_no),
            status: found.status,
            reported: false,
        };
        keeping.assignment = found.assignment;
        self.keeping.insert(found.name.clone(), keeping);
        self.residents.insert(found.name, resident);
    }

    /// Acts for ever.
    pub(crate) async fn run(mut self) {
        loop {
            self.settle().await;
            let next_try = self.next_try;
            let pause = async {
                match next_try {
                    Some(moment) => tokio::time::sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                message = self.inbox.recv() => match message {
                    Some(message) => self.hear(message).await,
                    None => return,
                },
                Some(ended) = self.watches.join_next() => {
                    let (name, pid) = ended.expect("waiting for the end of a process does not panic");
                    self.worker_ended(&name, pid);
                }
                // Another address may be published now.
                changed = self.observed.changed() => if changed.is_err() { return },
                () = pause => {}
            }
        }
    }

    async fn hear(&mut self, message: Message) {
        match message {
            Message::Wanted(set) => {
                let replicas = set.replicas.into_iter();
                let replicas: BTreeMap<_, _> =
                    replicas.map(|one| (one.desired.name(), one)).collect();
                let told = replicas
                    .iter()
                    .map(|(name, one)| (name.clone(), told_of(&one.desired)));
                self.wanted = Some(Wanted {
                    set: told.collect(),
                    replicas,
                });
            }
            Message::Newest(answer) => {
                // What an earlier controller acknowledged says nothing about this one.
                self.reporting.clear();
                self.residents
                    .values_mut()
                    .for_each(|resident| resident.reported = false);
                let reports = self.newest().await;
                // The asker may have given up; it will ask again.
                _ = answer.send(reports);
            }
            Message::Close => self.close(),
            Message::Reported(names) => {
                for name in names {
                    self.reporting.remove(&name);
                    if let Some(resident) = self.residents.get_mut(&name) {
                        resident.reported = resident.is_final();
                    }
                }
            }
        }
    }

    /// Acts until nothing is left that can be done now.
    async fn settle(&mut self) {
        self.next_try = None;
        loop {
            self.tell_living();
            let mut changed = self.talk(self.token_news()).await;
            let wanted = self.wanted.as_ref().map(|wanted| &wanted.set);
            let actions = residency::difference(&self.residents, wanted);
            let mut talks = self.address_news();
            talks.extend(self.farewells());
            for action in actions {
                match action {
                    Action::Start { name } if self.is_closing => {
                        info!("{name} does not begin: this host is being shut down");
                    }
                    Action::Start { name } => changed |= self.start(&name).await,
                    Action::TakeOver { name, told } => changed |= self.take_over(&name, told).await,
                    Action::Tell { name, told } => talks.push((name, talk::Talk::Want(told))),
                    Action::Ask { name } => talks.push((name, talk::Talk::Ask)),
                    Action::Report { name } => self.report(&name),
                    Action::NeverBegun { name } => changed |= self.never_begun(&name),
                    Action::End { name } => changed |= self.end(&name),
                    Action::Remove { name } => changed |= self.remove(&name),
                }
            }
            changed |= self.talk(talks).await;
            self.expire();
            if !changed {
                return;
            }
        }
    }

    fn worker_ended(&mut self, name: &ReplicaName, pid: u32) {
        let (Some(resident), Some(keeping)) =
            (self.residents.get_mut(name), self.keeping.get_mut(name))
        else {
            return;
        };
        if keeping.worker != Some(pid) {
            return;
        }
        keeping.worker = None;
        keeping.start_after = Some(keeping.next_start());
        resident.told = None;
        if folder::has_ended(&keeping.folder) {
            // Dismissed, it has cleared the folder itself.
            self.clearing.unkept(&keeping.folder);
            resident.life = Life::Ended;
            keeping.let_go();
            info!("{name} is forgotten; its logs are kept");
            return;
        }
        if !keeping.folder.path().exists() {
            // The process that its life hung on is gone, and its service with it.
            self.residents.remove(name);
            if let Some(mut keeping) = self.keeping.remove(name) {
                keeping.let_go();
            }
            return;
        }
        resident.status = folder::status(&keeping.folder).or(resident.status.take());
        resident.life = Life::Orphaned;
        if !resident.is_final() {
            warn!("the worker {pid} of {name} is gone; another one takes over");
        }
    }

    fn report(&mut self, name: &ReplicaName) {
        let status = self
            .residents
            .get(name)
            .and_then(|resident| resident.status.clone());
        if let Some(status) = status
            && self.reporting.insert(name.clone())
        {
            // The receiver lives as long as the agent.
            _ = self.ends.send(self.report_of(name, status));
        }
    }

    fn report_of(&self, name: &ReplicaName, status: Status) -> ReplicaReport {
        ReplicaReport {
            host: self.config.host.clone(),
            service: name.service.clone(),
            index: name.index,
            incarnation: name.incarnation,
            service_id: None,
            grant: None,
            status,
        }
    }

    /// What a full report tells of it: also what it holds, for a controller that does not know it, and that it is there
    /// although its worker has not said a word.
    fn full_report_of(&self, name: &ReplicaName, resident: &Resident) -> ReplicaReport {
        let keeping = self.keeping.get(name);
        let assignment = keeping.and_then(|keeping| keeping.assignment.as_ref());
        let desired = assignment.map(|assignment| &assignment.desired);
        let status = resident.status.clone().unwrap_or_else(Status::silent);
        ReplicaReport {
            service_id: desired.map(|desired| desired.service_id),
            grant: desired.map(|desired| desired.grant.clone()),
            ..self.report_of(name, status)
        }
    }

    fn end(&mut self, name: &ReplicaName) -> bool {
        let Some(keeping) = self.keeping.get_mut(name) else {
            return false;
        };
        match folder::end(&keeping.folder) {
            Ok(()) => self.clearing.unkept(&keeping.folder),
            // An end in memory only: the folder is seen again after the next start of the agent.
            Err(cause) => error!("the folder of {name} cannot be marked as ended: {cause}"),
        }
        keeping.let_go();
        if let Some(resident) = self.residents.get_mut(name) {
            resident.life = Life::Ended;
        }
        info!("{name} is forgotten; its logs are kept");
        true
    }

    fn remove(&mut self, name: &ReplicaName) -> bool {
        if let Some(mut keeping) = self.keeping.remove(name) {
            keeping.let_go();
            let removed = folder::forget_assignment(&keeping.folder)
                .and_then(|()| self.clearing.whole(keeping.folder.path()));
            if let Err(cause) = removed {
                error!("the old logs of {name} cannot be removed: {cause}");
            }
        }
        self.residents.remove(name).is_some()
    }

    /// Tells the observer which listeners are no strangers, and who waits for the end how many live.
    fn tell_living(&self) {
        self.tell_closing();
        let living = self
            .residents
            .iter()
            .filter(|(_, one)| matches!(one.life, Life::Watched | Life::Orphaned));
        self.living.send_if_modified(|before| {
            let now = living.clone().count();
            std::mem::replace(before, now) != now
        });
        let here = living.filter_map(|(name, _)| {
            let assignment = self.keeping.get(name)?.assignment.as_ref()?;
            Some(&assignment.desired)
        });
        self.heeding.send_if_modified(|before| {
            let heeds = |desired: &Desired| desired.profile.on_cut_off == OnCutOff::Stop;
            let now = here.clone().any(heeds);
            std::mem::replace(before, now) != now
        });
        let here = here.map(|desired| &desired.grant);
        let wanted = self
            .wanted
            .iter()
            .flat_map(|wanted| wanted.replicas.values());
        let wanted = wanted.filter(|one| one.desired.want != residency::Want::Forget);
        let grants = here.chain(wanted.map(|one| &one.desired.grant));
        let granted: Granted = grants
            .flat_map(|grant| &grant.ports)
            .flat_map(numbers)
            .collect();
        self.granted.send_if_modified(|last| {
            let changed = *last != granted;
            *last = granted;
            changed
        });
    }

    fn folder_of(&self, name: &ReplicaName) -> ReplicaFolder {
        ReplicaFolder::of(
            &self.config.state,
            &name.service,
            name.index,
            name.incarnation,
        )
    }

    fn later(&mut self, moment: Instant) {
        self.next_try = Some(self.next_try.map_or(moment, |earlier| earlier.min(moment)));
    }
}

const fn told_of(desired: &Desired) -> Told {
    Told {
        want: desired.want,
        restart_no: desired.restart_no,
    }
}

/// Each number of a grant on each side.
pub(crate) fn numbers(
    port: &portreeve::port_pool::GrantedPort,
) -> impl Iterator<Item = (portreeve::port::Port, Protocol)> {
    let (numbers, protocol): (PortRange, Protocol) = (port.numbers, port.protocol);
    let sides = [
        (Protocol::Tcp, protocol.has_tcp()),
        (Protocol::Udp, protocol.has_udp()),
    ];
    let sides = sides.into_iter().filter(|(_, held)| *held);
    sides.flat_map(move |(side, _)| numbers.iter().map(move |number| (number, side)))
}
