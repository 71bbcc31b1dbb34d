//! The replicas that live here: their folders, their workers, and the acting on what is wanted of them.
//!
//! One task owns it all, so that no two decisions about a replica can cross. What to do, and when again if it failed, is
//! decided by [`portreeve::residency::Household`]; here it is done.

mod clearing;
mod folder;
mod hold;
mod renewal;
mod start;
mod talk;
mod worker;

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portreeve::port::{PortRange, Protocol};
use portreeve::profile::OnCutOff;
use portreeve::registry::ReplicaReport;
use portreeve::residency::household::{Found, Remains, Word};
use portreeve::residency::{self, Assigned, Errand, Life, ReplicaName};
use portreeve::supervision::StartFailure;
use portreeve_api::attach::Closing;
use portreeve_api::body::DesiredSet;
use portreeve_api::containment::Ladder;
use portreeve_api::local::{Assignment, ReplicaFolder};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::Config;
use crate::account::Accounts;
use crate::clock;
use crate::facts::{Granted, Observed};

use clearing::Clearing;
pub(crate) use folder::{open_through, parse_name, read_json, write_json};
pub(crate) use renewal::Renewal;
pub(crate) use residency::household::Addresses;
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
    rules: residency::Household<Assignment>,
    /// Who asked for everything, in this order.
    askers: VecDeque<oneshot::Sender<Vec<ReplicaReport>>>,
    watches: JoinSet<(ReplicaName, u32)>,
    inbox: mpsc::Receiver<Message>,
    ends: mpsc::UnboundedSender<ReplicaReport>,
    granted: watch::Sender<Granted>,
    living: watch::Sender<usize>,
    heeding: watch::Sender<bool>,
    observed: watch::Receiver<Observed>,
    closing: watch::Sender<Option<Closing>>,
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
            rules: residency::Household::new(config.keep_logs),
            config,
            boot_id,
            ladder,
            accounts: Accounts::default(),
            clearing,
            askers: VecDeque::new(),
            watches: JoinSet::new(),
            inbox: channels.inbox,
            ends: channels.ends,
            granted: channels.granted,
            living: channels.living,
            heeding: channels.heeding,
            observed: channels.observed,
            closing: channels.closing,
        };
        for found in found {
            household.take_in(found);
        }
        household.tell_living();
        Ok(household)
    }

    fn take_in(&mut self, found: folder::Found) {
        let name = found.name;
        let mut worker = None;
        if found.life == Life::Orphaned {
            let known = found.worker.as_ref();
            let known = known.and_then(|worker| Worker::recognise(worker, found.owner));
            worker = known.or_else(|| worker::search(&found.folder));
        }
        let pid = worker.as_ref().map(|worker| worker.pid);
        if let Some(worker) = worker {
            info!("{name} is adopted, worker {}", worker.pid);
            self.watch(&name, worker);
        }
        let ended_ago = match found.life {
            Life::Ended => ended_ago(&found.folder),
            _ => Duration::ZERO,
        };
        let found = Found {
            name,
            life: found.life,
            assignment: found.assignment,
            status: found.status,
            worker: pid,
            had_worker: found.worker.is_some(),
            ended_ago,
        };
        self.rules.take_in(clock::now(), found);
    }

    /// Acts for ever.
    pub(crate) async fn run(mut self) {
        let published = self.observed.borrow_and_update().published;
        self.rules.published(published);
        loop {
            while let Some(errand) = self.rules.next(clock::now()) {
                self.run_errand(errand).await;
            }
            let deadline = self.rules.next_deadline();
            tokio::select! {
                message = self.inbox.recv() => match message {
                    Some(message) => self.hear(message),
                    None => return,
                },
                Some(ended) = self.watches.join_next() => {
                    let (name, pid) = ended.expect("waiting for the end of a process does not panic");
                    let remains = remains_of(&self.folder_of(&name));
                    self.rules.worker_ended(name, pid, remains);
                }
                changed = self.observed.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let published = self.observed.borrow_and_update().published;
                    self.rules.published(published);
                }
                () = clock::reached(deadline) => {}
            }
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Wanted(set) => {
                let orders = set.replicas.into_iter();
                let orders = orders.map(|one| (one.desired.name(), (one.desired, one.tokens)));
                self.rules.wanted(orders.collect());
            }
            Message::Newest(asker) => {
                self.askers.push_back(asker);
                self.rules.gather();
            }
            Message::Close => {
                if self.rules.closing().is_none() {
                    info!("this host is being shut down: its replicas are ended");
                }
                self.rules.close();
            }
            Message::Reported(names) => self.rules.reported(names),
        }
    }

    async fn run_errand(&mut self, errand: Errand<Assignment>) {
        match errand {
            Errand::Turn => self.tell_living(),
            Errand::Talk(talks) => self.talk(talks).await,
            Errand::Start(start) => self.start(*start).await,
            Errand::EndByForce(name) => self.end_by_force(&name).await,
            Errand::Hopeless(name, workers) => {
                let log = folder::worker_log(&self.folder_of(&name));
                let words = format!(
                    "its worker ended {workers} times before it could say a word; see {}",
                    log.display()
                );
                let why = StartFailure::Prepare(words);
                self.rules.hopeless(clock::now(), &name, why);
            }
            Errand::StoreStatus(name) => self.store_status(&name),
            Errand::WriteAssignment(name) => self.write_assignment(&name),
            Errand::MarkEnded(name) => {
                let folder = self.folder_of(&name);
                match folder::end(&folder) {
                    Ok(()) => self.clearing.unkept(&folder),
                    // An end in memory only: the folder is seen again after the next start of the agent.
                    Err(cause) => {
                        error!("the folder of {name} cannot be marked as ended: {cause}");
                    }
                }
            }
            Errand::Clear(name) => self.clearing.unkept(&self.folder_of(&name)),
            Errand::LetGo(assignment) => hold::remove_soon(assignment.containment),
            Errand::Remove(name) => {
                let folder = self.folder_of(&name);
                let removed = folder::forget_assignment(&folder)
                    .and_then(|()| self.clearing.whole(folder.path()));
                if let Err(cause) = removed {
                    error!("the old logs of {name} cannot be removed: {cause}");
                }
            }
            Errand::Report(name, status) => {
                let report = ReplicaReport::of(self.config.host.clone(), &name, *status);
                // The receiver lives as long as the agent.
                _ = self.ends.send(report);
            }
            Errand::Gathered(all) => {
                let all = all.into_iter().map(|(name, status)| {
                    let order = self.rules.assignment(&name).map(Assigned::order);
                    ReplicaReport::of(self.config.host.clone(), &name, status).with_order(order)
                });
                let all = all.collect();
                if let Some(asker) = self.askers.pop_front() {
                    // The asker may have given up; it will ask again.
                    _ = asker.send(all);
                }
            }
            Errand::Word(name, word) => say(&name, word),
        }
    }

    fn store_status(&self, name: &ReplicaName) {
        let folder = self.folder_of(name);
        if let Some(status) = self.rules.status(name)
            && let Err(cause) = folder::store_status(&folder, status)
        {
            error!("the end of {name} is known in memory only: {cause}");
        }
    }

    fn write_assignment(&self, name: &ReplicaName) {
        if let Some(assignment) = self.rules.assignment(name)
            && let Err(cause) = folder::prepare(&self.folder_of(name), assignment)
        {
            error!("the assignment of {name} cannot be written: {cause}");
        }
    }

    /// Tells the observer which listeners are no strangers, and who waits for the end how many live.
    fn tell_living(&self) {
        if let Some((running, untold)) = self.rules.closing() {
            let now = Closing {
                running,
                untold,
                ..Closing::default()
            };
            self.closing.send_if_modified(|before| {
                let changed = *before != Some(now);
                *before = Some(now);
                changed
            });
        }
        let living = self.rules.living();
        self.living.send_if_modified(|before| {
            let now = living.clone().count();
            std::mem::replace(before, now) != now
        });
        self.heeding.send_if_modified(|before| {
            let mut here = living.filter_map(|(name, _)| self.rules.assignment(name));
            let now = here.any(|one| one.desired.profile.on_cut_off == OnCutOff::Stop);
            std::mem::replace(before, now) != now
        });
        let granted: Granted = self
            .rules
            .held()
            .flat_map(|order| &order.grant.ports)
            .flat_map(numbers)
            .collect();
        self.granted.send_if_modified(|last| {
            let changed = *last != granted;
            *last = granted;
            changed
        });
    }

    fn watch(&mut self, name: &ReplicaName, worker: Worker) {
        let (name, pid) = (name.clone(), worker.pid);
        self.watches.spawn(async move {
            if let Err(cause) = worker.ended().await {
                error!("the worker {pid} of {name} cannot be waited for: {cause}");
            }
            (name, pid)
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
}

fn remains_of(folder: &ReplicaFolder) -> Remains {
    if folder::has_ended(folder) {
        Remains::Ended
    } else if folder.path().exists() {
        Remains::Folder(folder::status(folder))
    } else {
        Remains::Nothing
    }
}

/// How long ago it was marked as ended.
fn ended_ago(folder: &ReplicaFolder) -> Duration {
    let ended = fs::symlink_metadata(folder.ended());
    let ended = ended.and_then(|about| about.modified()).ok();
    // The clock may have been set back since.
    let since = ended.and_then(|ended| SystemTime::now().duration_since(ended).ok());
    since.unwrap_or_default()
}

fn say(name: &ReplicaName, word: Word) {
    match word {
        Word::Rebooted => info!("{name} ended with the boot of this host"),
        Word::NoAddress => warn!("{name} waits: this host publishes no address"),
        Word::Lacks(what) => warn!("{name} waits: this host has no {what}"),
        Word::Closing => info!("{name} does not begin: this host is being shut down"),
        Word::NotStarted(why) => error!("{name} cannot be started: {}", start::words(&why)),
        Word::WorkerGone(pid) => {
            warn!("the worker {pid} of {name} is gone; another one takes over");
        }
        Word::Forced => {
            warn!("no worker can take {name} over: its processes were ended by force");
        }
        Word::Lost => {
            error!("{name} has lost its assignment and nobody wants it: it is left alone");
        }
        Word::Forgotten => info!("{name} is forgotten; its logs are kept"),
        Word::Expired => info!("the logs of {name} have been kept long enough"),
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
