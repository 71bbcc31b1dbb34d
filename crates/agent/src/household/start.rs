//! Starting workers: for a new replica, and again for one whose worker died.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use portreeve::identity::Run;
use portreeve::registry::Desired;
use portreeve::residency::{Life, ReplicaName, Resident, Told, Want};
use portreeve::supervision::{Failure, Final, Reason, StartFailure, State, Status};
use portreeve::time::WallClock;
use portreeve_api::containment::{Containment, NotPossible};
use portreeve_api::local::{Assignment, JobUser, Tokens};
use portreeve_api::service_manager::BackendKind;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::worker::Worker;
use crate::account::AccountError;
use crate::owner::{self, ClosedFolder};

use super::keeping::admit;
use super::{Household, Keeping, folder, told_of};

/// When a replica whose account cannot be looked up is tried again.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// When it is looked again whether what was killed is gone.
const AFTER_FORCE: Duration = Duration::from_millis(100);
/// A worker that ends this often in a row without a word will not say one.
const SILENT_ATTEMPTS: u32 = 5;

impl Household {
    /// Prepares the folder and starts the worker; whatever is in the way is the end of the incarnation, so
    /// that nothing waits for it. Says whether anything changed.
    pub(super) async fn start(&mut self, name: &ReplicaName) -> bool {
        let Some(wanted) = self
            .wanted
            .as_ref()
            .and_then(|wanted| wanted.replicas.get(name))
        else {
            return false;
        };
        let (desired, tokens) = (wanted.desired.clone(), wanted.tokens.clone());
        let Some(address) = self.observed.borrow().published else {
            // Woken when the host finds an address; until then the controller knows that there is none.
            warn!("{name} waits: this host publishes no address");
            return false;
        };
        let mut named = desired.profile.ports.iter();
        let lacking = named
            .find(|port| port.network.is_some() && !desired.addresses.contains_key(&port.name));
        if let Some((port, network)) = lacking.and_then(|it| Some((&it.name, it.network.as_ref()?)))
        {
            // Woken when the controller tells one; until then it knows that there is none.
            warn!("{name} waits: this host has no address in network {network} for port {port}");
            return false;
        }
        let mut assignment = self.assignment(desired, tokens, address);
        match self.job_user(&assignment.desired).await {
            Ok(user) => assignment.user = user,
            Err(cause @ AccountError::Silent { .. }) => {
                warn!("{name} waits: {cause}");
                self.later(Instant::now() + ASK_AGAIN);
                return false;
            }
            Err(cause) => {
                self.fail(name, StartFailure::Prepare(cause.to_string()));
                return true;
            }
        }
        match self.containment(name, assignment.user.as_ref()) {
            Ok(containment) => assignment.containment = containment,
            Err(cause) => {
                let words = format!("its processes cannot be held together as told: {cause}");
                self.fail(name, StartFailure::Prepare(words));
                return true;
            }
        }
        match self.launch(name, assignment).await {
            Ok(pid) => {
                info!("{name} is started, worker {pid}");
                true
            }
            Err(cause) => {
                self.fail(name, cause.into());
                true
            }
        }
    }

    /// Starts another worker in the folder of one that died. Its service may still run, so this is tried
    /// again for ever, unless no worker ever said a word.
    pub(super) async fn take_over(&mut self, name: &ReplicaName, told: Option<Told>) -> bool {
        let Some(keeping) = self.keeping.get(name) else {
            return false;
        };
        let silent = self
            .residents
            .get(name)
            .is_some_and(|one| one.status.is_none());
        let hopeless = keeping.attempts >= SILENT_ATTEMPTS;
        let to_end = told.is_some_and(|told| told.want != Want::Run);
        if hopeless && (silent || to_end) {
            // A job can see to it that no worker can work in its folder. What holds it does not ask the job.
            let held = keeping
                .assignment
                .as_ref()
                .map(|one| one.containment.clone());
            let ended = tokio::task::spawn_blocking(move || held?.end());
            match ended.await.unwrap_or(Some(false)) {
                Some(true) if !silent => {
                    warn!("no worker can take {name} over: its processes were ended by force");
                    self.conclude(name, Final::Stopped, None);
                    return true;
                }
                Some(false) => {
                    self.later(Instant::now() + AFTER_FORCE);
                    return false;
                }
                // Without a group nobody but a worker can know its processes.
                Some(true) | None => {}
            }
        }
        let Some(keeping) = self.keeping.get(name) else {
            return false;
        };
        if silent && hopeless {
            let log = folder::worker_log(&keeping.folder);
            let words = format!(
                "its worker ended {SILENT_ATTEMPTS} times before it could say a word; see {}",
                log.display()
            );
            self.fail(name, StartFailure::Prepare(words));
            return true;
        }
        if let Some(moment) = keeping
            .start_after
            .filter(|moment| *moment > Instant::now())
        {
            self.later(moment);
            return false;
        }
        let Some(mut assignment) = self.assignment_again(name, told) else {
            error!("{name} has lost its assignment and nobody wants it: it is left alone");
            return false;
        };
        match self.job_user(&assignment.desired).await {
            Ok(user) => assignment.user = user,
            // Its service may run on as the user that it had.
            Err(cause) if assignment.user.is_some() => warn!("{name}: {cause}"),
            Err(cause) => {
                error!("no worker can take {name} over: {cause}");
                self.later(Instant::now() + ASK_AGAIN);
                return false;
            }
        }
        match self.launch(name, assignment).await {
            Ok(pid) => {
                info!("worker {pid} takes {name} over");
                if let Some(keeping) = self.keeping.get_mut(name) {
                    // It goes by what its predecessor wrote down.
                    keeping.addresses = None;
                }
                true
            }
            Err(cause) => {
                error!("no worker can take {name} over: {}", cause.words());
                if let Some(keeping) = self.keeping.get_mut(name) {
                    let moment = keeping
                        .next_start()
                        .max(Instant::now() + Duration::from_secs(1));
                    keeping.start_after = Some(moment);
                    self.later(moment);
                }
                false
            }
        }
    }

    /// Notes that it ended before it began here.
    pub(super) fn never_begun(&mut self, name: &ReplicaName) -> bool {
        self.conclude(name, Final::Stopped, None);
        true
    }

    /// How a new replica is held. A unit of a service manager is a hold of its own.
    fn containment(
        &self,
        name: &ReplicaName,
        user: Option<&JobUser>,
    ) -> Result<Containment, NotPossible> {
        if self.config.backend != BackendKind::Process {
            return Ok(Containment::default());
        }
        let replica = format!("{}~{}~{}", name.service, name.index, name.incarnation);
        let privileged = user.is_none_or(|user| user.ids.uid == 0);
        self.ladder.containment(&replica, privileged)
    }

    async fn job_user(&mut self, desired: &Desired) -> Result<Option<JobUser>, AccountError> {
        self.accounts.job_user(&desired.user, desired.uid).await
    }

    async fn launch(&mut self, name: &ReplicaName, assignment: Assignment) -> Result<u32, Launch> {
        let folder = self.folder_of(name);
        let program = self.config.worker_program.clone();
        let told = told_of(&assignment.desired);
        let addresses = (
            assignment.host_address,
            assignment.desired.addresses.clone(),
        );
        let (place, written) = (folder.clone(), assignment.clone());
        let launched = tokio::task::spawn_blocking(move || {
            if written.user.is_some() {
                owner::reach(place.path().parent().unwrap_or(place.path()))?;
            }
            folder::prepare(&place, &written).map_err(Launch::Prepare)?;
            let held = &written.containment;
            let owner = written.user.as_ref();
            let owner = owner.map(|user| (user.ids.uid, user.ids.gid));
            held.prepare(owner).map_err(Launch::Group)?;
            let worker = Worker::start(&program, &place, written.user.as_ref());
            let worker = worker.map_err(Launch::Start)?;
            admit(&worker, held);
            Ok::<_, Launch>(worker)
        });
        let worker = launched.await.expect("starting a worker does not panic")?;
        let pid = worker.pid;
        let keeping = self
            .keeping
            .entry(name.clone())
            .or_insert_with(|| Keeping::new(folder));
        // One that takes over goes by what an earlier worker was told, which may be something else.
        let is_first = keeping.assignment.replace(assignment).is_none();
        keeping.addresses = is_first.then_some(addresses);
        keeping.watch(name, worker, &mut self.watches);
        let resident = self.residents.entry(name.clone()).or_insert(Resident {
            life: Life::Watched,
            told: None,
            restart_no: told.restart_no,
            status: None,
            reported: false,
        });
        resident.life = Life::Watched;
        resident.told = Some(told);
        Ok(pid)
    }

    fn fail(&mut self, name: &ReplicaName, why: StartFailure) {
        error!("{name} cannot be started: {}", words(&why));
        let reason = Reason::StartFailed(why);
        self.conclude(name, Final::Failed(reason.clone()), Some(reason));
    }

    /// Gives an incarnation without a worker its last status; reporting it follows.
    fn conclude(&mut self, name: &ReplicaName, end: Final, reason: Option<Reason>) {
        let wanted = self
            .wanted
            .as_ref()
            .and_then(|wanted| wanted.replicas.get(name));
        let here = self
            .residents
            .get(name)
            .and_then(|resident| resident.status.clone());
        let before = here.or_else(|| wanted?.desired.last_status.clone());
        let restart_no = wanted.map_or(0, |wanted| wanted.desired.restart_no);
        let run = before.as_ref().map_or(Run(0), |status| status.run);
        let failure = reason.map(|reason| Failure {
            reason,
            exit: None,
            run,
            at: now(),
            probe_output: None,
        });
        let first = before
            .as_ref()
            .and_then(|status| status.first_failure.clone());
        let last = before
            .as_ref()
            .and_then(|status| status.last_failure.clone());
        let status = Status {
            run,
            seq: before
                .as_ref()
                .map_or(1, |status| status.seq.saturating_add(1)),
            state: State::Final(end),
            ready: false,
            serving: false,
            not_ready_reason: None,
            restarts: before.as_ref().map_or(0, |status| status.restarts),
            user_restarts: before.as_ref().map_or(0, |status| status.user_restarts),
            restart_no: before.as_ref().map_or(0, |status| status.restart_no),
            pid: None,
            first_failure: first.or_else(|| failure.clone()),
            last_failure: failure.or(last),
            next_start: None,
        };
        let folder = self.folder_of(name);
        if let Err(cause) = folder::store_status(&folder, &status) {
            error!("the end of {name} is known in memory only: {cause}");
        }
        self.keeping
            .entry(name.clone())
            .or_insert_with(|| Keeping::new(folder));
        let resident = Resident {
            life: Life::Orphaned,
            told: None,
            restart_no,
            status: Some(status),
            reported: false,
        };
        self.residents.insert(name.clone(), resident);
    }

    fn assignment(&self, desired: Desired, tokens: Tokens, host_address: IpAddr) -> Assignment {
        Assignment {
            desired,
            host: self.config.host.clone(),
            host_address,
            // Of several hosts on one machine, each has a loopback address that a listener on another one does not serve.
            single_host: self.config.single_host && self.config.address.literal.is_none(),
            controller: Some(self.config.controller.clone()),
            tokens,
            boot_id: self.boot_id.clone(),
            lifeline: self.config.lifeline.clone(),
            prefix: self.config.prefix.clone(),
            user: None,
            containment: Containment::default(),
            backend: self.config.backend,
            logs: self.config.logs,
            pool: self.config.dynamic.clone(),
        }
    }

    /// What a worker that takes over is given: what stood there, with what is wanted now.
    fn assignment_again(&self, name: &ReplicaName, told: Option<Told>) -> Option<Assignment> {
        let stood = self
            .keeping
            .get(name)
            .and_then(|keeping| keeping.assignment.as_ref());
        let wanted = self
            .wanted
            .as_ref()
            .and_then(|wanted| wanted.replicas.get(name));
        // An incarnation keeps its ports and its profile. Of one that was replaced, the controller may know
        // no more than the name.
        let mut desired = match (stood, wanted) {
            (Some(stood), _) => stood.desired.clone(),
            (None, Some(wanted)) => wanted.desired.clone(),
            (None, None) => return None,
        };
        let tokens = match (wanted, stood) {
            (Some(wanted), _) => wanted.tokens.clone(),
            (None, stood) => stood?.tokens.clone(),
        };
        if let Some(told) = told {
            desired.want = told.want;
            desired.restart_no = told.restart_no.max(desired.restart_no);
        }
        if let Some(wanted) = wanted {
            desired.addresses.extend(wanted.desired.addresses.clone());
        }
        let published = self.observed.borrow().published;
        let address = published.or_else(|| Some(stood?.host_address))?;
        let mut assignment = self.assignment(desired, tokens, address);
        assignment.user = stood.and_then(|stood| stood.user.clone());
        if let Some(stood) = stood {
            // Whatever new replicas get: what started its processes also knows how to end them.
            assignment.backend = stood.backend;
            assignment.containment = stood.containment.clone();
        }
        Some(assignment)
    }
}

/// Why there is no worker.
#[derive(Debug)]
enum Launch {
    Closed(ClosedFolder),
    Prepare(std::io::Error),
    Group(std::io::Error),
    Start(Errno),
}

impl Launch {
    fn words(&self) -> String {
        match self {
            Self::Closed(cause) => cause.to_string(),
            Self::Prepare(cause) => format!("its folder cannot be prepared: {cause}"),
            Self::Group(cause) => format!("its control group cannot be made: {cause}"),
            Self::Start(errno) => format!("the worker program cannot be executed: {errno}"),
        }
    }
}

impl From<ClosedFolder> for Launch {
    fn from(cause: ClosedFolder) -> Self {
        Self::Closed(cause)
    }
}

impl From<Launch> for StartFailure {
    fn from(launch: Launch) -> Self {
        match launch {
            Launch::Closed(_) | Launch::Prepare(_) | Launch::Group(_) => {
                Self::Prepare(launch.words())
            }
            Launch::Start(errno) => Self::Errno(errno as i32),
        }
    }
}

fn words(why: &StartFailure) -> String {
    match why {
        StartFailure::Errno(_) | StartFailure::Exec { .. } => format!("the worker program: {why}"),
        StartFailure::Prepare(words) => words.clone(),
        StartFailure::PreExec(_) => why.to_string(),
    }
}

fn now() -> WallClock {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    WallClock::from_unix_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
