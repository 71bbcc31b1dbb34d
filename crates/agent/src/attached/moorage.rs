//! The attached replicas of this host: which job has which, what is wanted of it, and what became of it.
//!
//! A job is its process, by number, start time and boot. As long as that lives the replica is its own affair, connected
//! or not; once it is gone, whatever is left of the service is ended, and only then is the end told, which frees the
//! ports.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portreeve::registry::{Desired, ReplicaReport};
use portreeve::residency::{ReplicaName, Told, Want};
use portreeve::supervision::{State, Status};
use portreeve_api::Problem;
use portreeve_api::attach::FromAgent;
use portreeve_api::body::DesiredReplica;
use portreeve_api::containment::Containment;
use portreeve_api::local::{Assignment, ProcessIdentity};
use portreeve_api::service_manager::BackendKind;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{error, info, warn};

use super::ending::{slim, unknown_end};
use super::line::unavailable;
use super::listen::Job;
use super::message::{Channels, Message, Mooring, Reply};
use super::record::{Record, Records};
use super::remains::{self, Mark};
use super::wanted::Looked;
use crate::Config;
use crate::facts::Granted;
use crate::household::{Addresses, Worker, numbers};

/// How often what is waited for is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How many living replicas jobs of this host may have, and those of one account: each has a record, a watch and a
/// place in the host's full report.
const MAX_LIVING: usize = 2048;
const MAX_LIVING_OF_USER: usize = 512;

/// Owns the attached replicas of this host.
pub(crate) struct Moorage {
    pub(super) config: Arc<Config>,
    boot_id: String,
    pub(super) records: Records,
    pub(super) berths: BTreeMap<ReplicaName, Berth>,
    pub(super) wanted: BTreeMap<ReplicaName, DesiredReplica>,
    /// Wanted here, and no job claims them: since when.
    pub(super) unclaimed: BTreeMap<ReplicaName, Instant>,
    /// Ends of jobs, and of what they left.
    watches: JoinSet<(ReplicaName, ProcessIdentity, Gone)>,
    /// A look for what lives of unclaimed replicas; at most one.
    pub(super) looks: JoinSet<Vec<Looked>>,
    /// Looks for what killed jobs left, one at a time: each goes through every process.
    one_look: Arc<Semaphore>,
    pub(super) channels: Channels,
}

/// One of them.
pub(super) struct Berth {
    pub(super) record: Record,
    /// The way to the connected job.
    pub(super) orders: Option<mpsc::Sender<FromAgent>>,
    /// What it was told.
    pub(super) told: Option<Told>,
    /// What it was last told of addresses; `None`: what it knows is not known.
    pub(super) addresses: Option<Addresses>,
    /// What its worker shows the controller; `None`: not known.
    pub(super) token: Option<String>,
    pub(super) ended: Option<Instant>,
}

/// What is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// The job's process.
    Run,
    /// That and everything of its service.
    All,
}

impl Moorage {
    /// Reads the records back and watches the jobs that live.
    ///
    /// Call it inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// The system's, when the records cannot be listed.
    pub(crate) fn open(
        config: Arc<Config>,
        boot_id: String,
        channels: Channels,
    ) -> io::Result<Self> {
        let records = Records::below(&config.state)?;
        let found = records.read(&boot_id)?;
        let mut moorage = Self {
            config,
            boot_id,
            records,
            berths: BTreeMap::new(),
            wanted: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            watches: JoinSet::new(),
            looks: JoinSet::new(),
            one_look: Arc::new(Semaphore::new(1)),
            channels,
        };
        for (name, record) in found {
            let ended = record.has_ended().then(Instant::now);
            if ended.is_none() {
                info!("{name} is attached, run {}", record.run.pid);
            }
            let run = record.run.clone();
            let berth = Berth {
                record,
                orders: None,
                told: None,
                addresses: None,
                token: None,
                ended,
            };
            moorage.berths.insert(name.clone(), berth);
            moorage.watch(name, run);
        }
        moorage.tell_granted();
        Ok(moorage)
    }

    /// Acts for ever.
    pub(crate) async fn run(mut self) {
        // Not a rest between two messages: those may come for ever.
        let mut looks = tokio::time::interval(LOOK_AGAIN);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let waits =
                !self.unclaimed.is_empty() || self.berths.values().any(|it| it.ended.is_some());
            tokio::select! {
                message = self.channels.inbox.recv() => match message {
                    Some(message) => self.hear(message),
                    None => return,
                },
                Some(gone) = self.watches.join_next() => {
                    let (name, run, gone) = gone.expect("waiting for the end of a process does not panic");
                    self.gone(name, &run, gone);
                }
                changed = self.channels.observed.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.tell_address();
                }
                Some(looked) = self.looks.join_next() => {
                    self.looked(looked.expect("looking for processes does not panic"));
                }
                _ = looks.tick(), if waits => self.look(),
            }
            self.tell_granted();
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Wanted(replicas) => {
                let named = replicas.into_iter().map(|it| (it.desired.name(), it));
                self.wanted = named.collect();
                self.follow_wanted();
            }
            Message::Newest(answer) => {
                let reports = self.berths.iter();
                let reports = reports.map(|(name, berth)| self.full_report_of(name, berth));
                // The asker may have given up; it will ask again.
                _ = answer.send(reports.collect());
            }
            Message::Living(answer) => {
                let living = self.berths.values().filter(|it| it.ended.is_none());
                // The asker may be gone.
                _ = answer.send(living.count());
            }
            // The asker may be gone.
            Message::Room { uid, reply } => _ = reply.send(self.has_room(uid)),
            Message::Moor(mooring) => {
                let (reply, moored) = self.moor(*mooring);
                _ = reply.send(moored);
            }
            Message::Back {
                name,
                job,
                folder,
                token,
                status,
                orders,
                reply,
            } => {
                let known = self.back(&name, &job, folder, &token, orders);
                if known {
                    // It may have changed while there was no agent.
                    self.tell_address();
                }
                if let (true, Some(status)) = (known, status) {
                    self.told(&name, *status);
                }
                _ = reply.send(known);
            }
            Message::Told { name, status } => self.told(&name, *status),
        }
    }

    /// Whether jobs of this account may have one more replica here.
    fn has_room(&self, uid: u32) -> Result<(), Box<Problem>> {
        let living = self.berths.values().filter(|it| it.ended.is_none());
        let (mut all, mut own) = (0, 0);
        for berth in living {
            all += 1;
            own += usize::from(berth.record.uid == uid);
        }
        if all < MAX_LIVING && own < MAX_LIVING_OF_USER {
            return Ok(());
        }
        Err(unavailable(
            "too_many_replicas",
            format!(
                "jobs of this host have {all} replicas and yours {own} of them; {MAX_LIVING} and {MAX_LIVING_OF_USER} are the most"
            ),
        ))
    }

    /// Gives the job what was granted to it, once that is written down.
    fn moor(&mut self, mooring: Mooring) -> (Reply, Result<Box<Assignment>, Box<Problem>>) {
        let Mooring {
            replica,
            job,
            folder,
            orders,
            reply,
        } = mooring;
        let name = replica.desired.name();
        // The answer to the same ask before was lost.
        if let Some(berth) = self.berths.get_mut(&name) {
            if berth.record.run != job.run || berth.ended.is_some() {
                let detail = format!("{name} is another process's, or has just ended; ask again");
                return (reply, Err(unavailable(Problem::REPLICA_UNKNOWN, detail)));
            }
            berth.orders = Some(orders);
            berth.told = None;
            berth.addresses = None;
            berth.token = Some(replica.tokens.worker.clone());
            self.tell(&name);
            self.tell_address();
            return (reply, Ok(Box::new(self.assignment(replica))));
        }
        let record = Record {
            desired: replica.desired.clone(),
            run: job.run.clone(),
            uid: job.uid,
            folder,
            status: None,
        };
        if let Err(cause) = self.records.write(&name, &record) {
            error!("{name} cannot be written down: {cause}");
            // Its job is told, and the controller when nobody has claimed it for a while.
            let detail = format!("the agent cannot write down what was granted: {cause}");
            return (reply, Err(unavailable("not_recorded", detail)));
        }
        let assignment = self.assignment(replica);
        let known = (
            assignment.host_address,
            assignment.desired.addresses.clone(),
        );
        let token = assignment.tokens.worker.clone();
        self.insert((name, record), (Some(known), token), orders);
        (reply, Ok(Box::new(assignment)))
    }

    /// Whether the job that came back has the replica.
    fn back(
        &mut self,
        name: &ReplicaName,
        job: &Job,
        folder: PathBuf,
        token: &str,
        orders: mpsc::Sender<FromAgent>,
    ) -> bool {
        if let Some(berth) = self.berths.get_mut(name) {
            if berth.record.run != job.run || berth.ended.is_some() {
                return false;
            }
            info!("{name} is back");
            berth.orders = Some(orders);
            berth.told = None;
            berth.addresses = None;
            berth.token = Some(token.to_owned());
            self.tell(name);
            self.tell_address();
            return true;
        }
        // The records are lost: what the controller wants here says who may have it.
        let wanted = self.wanted.get(name);
        let Some(wanted) =
            wanted.filter(|it| it.tokens.worker == token && it.desired.uid == job.uid)
        else {
            return false;
        };
        let record = Record {
            desired: wanted.desired.clone(),
            run: job.run.clone(),
            uid: job.uid,
            folder,
            status: None,
        };
        if let Err(cause) = self.records.write(name, &record) {
            error!("{name} cannot be written down: {cause}");
            return false;
        }
        info!("{name} is claimed by its job");
        let known = (None, token.to_owned());
        self.insert((name.clone(), record), known, orders);
        self.tell_address();
        true
    }

    fn insert(
        &mut self,
        (name, record): (ReplicaName, Record),
        (addresses, token): (Option<Addresses>, String),
        orders: mpsc::Sender<FromAgent>,
    ) {
        let run = record.run.clone();
        let berth = Berth {
            record,
            orders: Some(orders),
            told: None,
            addresses,
            token: Some(token),
            ended: None,
        };
        self.unclaimed.remove(&name);
        self.berths.insert(name.clone(), berth);
        self.tell(&name);
        self.watch(name, run);
    }

    /// Keeps a status if it is newer.
    fn told(&mut self, name: &ReplicaName, status: Status) {
        let Some(berth) = self.berths.get_mut(name).filter(|it| it.ended.is_none()) else {
            return;
        };
        let place = |status: &Status| (status.run, status.seq);
        let known = berth.record.status.as_ref();
        if known.is_some_and(|known| place(known) >= place(&status)) {
            return;
        }
        let Some(status) = slim(status) else {
            warn!("{name}: its job tells a status that no worker writes; it is left out");
            return;
        };
        let is_end = matches!(status.state, State::Final(_));
        berth.record.status = Some(status);
        // The rest is told again by a job that comes back.
        if is_end && let Err(cause) = self.records.write(name, &berth.record) {
            error!("the end of {name} is known in memory only: {cause}");
        }
        if is_end {
            // Nothing of it lives any more, though its process may: after a stranger's port it asks anew.
            self.conclude(name);
        }
    }

    fn watch(&mut self, name: ReplicaName, run: ProcessIdentity) {
        self.watches.spawn(async move {
            match Worker::living(&run, |_| true) {
                Some(living) => {
                    if let Err(cause) = living.ended().await {
                        error!("the job of {name} cannot be waited for: {cause}");
                    }
                }
                // Gone, or gone unseen for want of descriptors, which a look tells apart.
                None => {
                    while run.is_alive() && !is_dead(&run) {
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                }
            }
            (name, run, Gone::Run)
        });
    }

    fn gone(&mut self, name: ReplicaName, run: &ProcessIdentity, gone: Gone) {
        let Some(berth) = self
            .berths
            .get_mut(&name)
            .filter(|it| it.record.run == *run)
        else {
            return;
        };
        berth.orders = None;
        if berth.ended.is_some() {
            return;
        }
        if gone == Gone::Run && !berth.record.has_ended() {
            info!("the job of {name} is gone without a last word");
            let mark = Mark::of(
                &name,
                &self.config.prefix,
                berth.record.uid,
                &berth.record.folder,
            );
            let (run, one_look) = (run.clone(), self.one_look.clone());
            self.watches.spawn(async move {
                remains::end(&name, mark, one_look).await;
                (name, run, Gone::All)
            });
            return;
        }
        self.conclude(&name);
    }

    /// Notes and tells the end of a replica of which nothing lives any more.
    fn conclude(&mut self, name: &ReplicaName) {
        let Some(berth) = self.berths.get_mut(name) else {
            return;
        };
        berth.ended = Some(Instant::now());
        if !berth.record.has_ended() {
            berth.record.status = Some(unknown_end(berth.record.status.as_ref()));
            if let Err(cause) = self.records.write(name, &berth.record) {
                error!("the end of {name} is known in memory only: {cause}");
            }
        }
        if let Some(status) = berth.record.status.clone() {
            info!("{name} has ended");
            // The receiver lives as long as the agent.
            _ = self.channels.ends.send(self.report_of(name, status));
        }
    }

    pub(super) fn report_of(&self, name: &ReplicaName, status: Status) -> ReplicaReport {
        ReplicaReport::of(self.config.host.clone(), name, status)
    }

    /// What a full report tells of it: also what it holds, for a controller that does not know it, and that it is there
    /// although its job has not told a status yet.
    fn full_report_of(&self, name: &ReplicaName, berth: &Berth) -> ReplicaReport {
        let record = &berth.record;
        let status = record.status.clone().unwrap_or_else(Status::silent);
        self.report_of(name, status)
            .with_order(Some(&record.desired))
    }

    /// Tells the observer which listeners are no strangers.
    fn tell_granted(&self) {
        let here = self.berths.values().filter(|it| it.ended.is_none());
        let here = here.map(|berth| &berth.record.desired);
        let wanted = self.wanted.values().map(|it| &it.desired);
        let wanted = wanted.filter(|desired| desired.want != Want::Forget);
        let granted: Granted = here
            .chain(wanted)
            .flat_map(|desired: &Desired| &desired.grant.ports)
            .flat_map(numbers)
            .collect();
        self.channels.granted.send_if_modified(|last| {
            let changed = *last != granted;
            *last = granted;
            changed
        });
    }

    fn assignment(&self, replica: DesiredReplica) -> Assignment {
        let published = self.channels.observed.borrow().published;
        Assignment {
            desired: replica.desired,
            host: self.config.host.clone(),
            // A host without an address is granted only what is not published.
            host_address: published.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            single_host: self.config.single_host && self.config.address.literal.is_none(),
            controller: Some(self.config.controller.clone()),
            further_controllers: self.config.further_controllers.clone(),
            tls: self.config.tls.clone(),
            tokens: replica.tokens,
            boot_id: self.boot_id.clone(),
            lifeline: self.config.lifeline.clone(),
            prefix: self.config.prefix.clone(),
            user: None,
            // The job's processes stay in the groups of its scheduler, which counts and ends them there.
            containment: Containment::default(),
            backend: BackendKind::Process,
            logs: self.config.logs,
            pool: self.config.dynamic.clone(),
        }
    }
}

/// Whether the process only waits to be reaped.
fn is_dead(process: &ProcessIdentity) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid));
    let stat = stat.as_deref().ok().and_then(|stat| stat.rsplit_once(')'));
    stat.is_some_and(|(_, fields)| fields.trim_start().starts_with(['Z', 'X']))
}
