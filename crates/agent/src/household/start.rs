//! Starting workers: for a new replica, and again for one whose worker died.

use std::net::IpAddr;

use nix::errno::Errno;
use portreeve::registry::Desired;
use portreeve::residency::ReplicaName;
use portreeve::residency::household::{Hindrance, Start};
use portreeve::supervision::StartFailure;
use portreeve_api::containment::{Containment, NotPossible};
use portreeve_api::local::{Assignment, JobUser, Tokens};
use portreeve_api::service_manager::BackendKind;
use tracing::{error, info, warn};

use super::hold::admit;
use super::worker::Worker;
use super::{Household, folder};
use crate::account::AccountError;
use crate::clock;
use crate::owner::{self, ClosedFolder};

impl Household {
    /// Prepares the folder and starts the worker.
    pub(super) async fn start(&mut self, start: Start<Assignment>) {
        let Start {
            name,
            order,
            tokens,
            host_address,
            again,
        } = start;
        let mut assignment = self.assignment(order, tokens, host_address);
        let begun = if again {
            self.start_again(&name, &mut assignment).await
        } else {
            self.start_first(&name, &mut assignment).await
        };
        match begun {
            Ok(worker) => {
                let pid = worker.pid;
                if again {
                    info!("worker {pid} takes {name} over");
                } else {
                    info!("{name} is started, worker {pid}");
                }
                self.watch(&name, worker);
                self.rules.started(clock::now(), &name, pid, assignment);
            }
            Err(why) => self.rules.not_started(clock::now(), &name, why),
        }
    }

    async fn start_first(
        &mut self,
        name: &ReplicaName,
        assignment: &mut Assignment,
    ) -> Result<Worker, Hindrance> {
        let never = |words| Hindrance::Failed(StartFailure::Prepare(words));
        match self.job_user(&assignment.desired).await {
            Ok(user) => assignment.user = user,
            Err(cause @ AccountError::Silent { .. }) => {
                warn!("{name} waits: {cause}");
                return Err(Hindrance::NotNow);
            }
            Err(cause) => return Err(never(cause.to_string())),
        }
        let held = self.containment(name, assignment.user.as_ref());
        assignment.containment = held.map_err(|cause| {
            never(format!(
                "its processes cannot be held together as told: {cause}"
            ))
        })?;
        let launched = self.launch(name, assignment).await;
        launched.map_err(|cause| Hindrance::Failed(cause.into()))
    }

    /// In the folder of a worker that died: its processes may run.
    async fn start_again(
        &mut self,
        name: &ReplicaName,
        assignment: &mut Assignment,
    ) -> Result<Worker, Hindrance> {
        if let Some(stood) = self.rules.assignment(name) {
            // Whatever new replicas get: what started its processes also knows how to end them.
            assignment.user.clone_from(&stood.user);
            assignment.backend = stood.backend;
            assignment.containment = stood.containment.clone();
        }
        match self.job_user(&assignment.desired).await {
            Ok(user) => assignment.user = user,
            // Its service may run on as the user that it had.
            Err(cause) if assignment.user.is_some() => warn!("{name}: {cause}"),
            Err(cause) => {
                error!("no worker can take {name} over: {cause}");
                return Err(Hindrance::NotNow);
            }
        }
        self.launch(name, assignment).await.map_err(|cause| {
            error!("no worker can take {name} over: {}", cause.words());
            Hindrance::Failed(cause.into())
        })
    }

    /// A job can see to it that no worker can work in its folder. What holds it does not ask the job.
    pub(super) async fn end_by_force(&mut self, name: &ReplicaName) {
        let stood = self.rules.assignment(name);
        let held = stood.map(|one| one.containment.clone());
        let ended = tokio::task::spawn_blocking(move || held?.end());
        let ended = ended.await.unwrap_or(Some(false));
        self.rules.forced(clock::now(), name, ended);
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

    async fn launch(&self, name: &ReplicaName, assignment: &Assignment) -> Result<Worker, Launch> {
        let place = self.folder_of(name);
        let program = self.config.worker_program.clone();
        let written = assignment.clone();
        let own = self.config.tls.own.clone();
        let launched = tokio::task::spawn_blocking(move || {
            if written.user.is_some() {
                owner::reach(place.path().parent().unwrap_or(place.path()))?;
            }
            folder::prepare(&place, &written).map_err(Launch::Prepare)?;
            let held = &written.containment;
            let owner = written.user.as_ref();
            let owner = owner.map(|user| (user.ids.uid, user.ids.gid));
            held.prepare(owner).map_err(Launch::Group)?;
            let worker = Worker::start(&program, &place, written.user.as_ref(), own.as_ref());
            let worker = worker.map_err(Launch::Start)?;
            admit(&worker, held);
            Ok::<_, Launch>(worker)
        });
        launched.await.expect("starting a worker does not panic")
    }

    fn assignment(&self, desired: Desired, tokens: Tokens, host_address: IpAddr) -> Assignment {
        Assignment {
            desired,
            host: self.config.host.clone(),
            host_address,
            // Of several hosts on one machine, each has a loopback address that a listener on another one does not serve.
            single_host: self.config.single_host && self.config.address.literal.is_none(),
            controller: Some(self.config.controller.clone()),
            further_controllers: self.config.further_controllers.clone(),
            tls: self.config.tls.clone(),
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

pub(super) fn words(why: &StartFailure) -> String {
    match why {
        StartFailure::Errno(_) | StartFailure::Exec { .. } => format!("the worker program: {why}"),
        StartFailure::Prepare(words) => words.clone(),
        StartFailure::PreExec(_) => why.to_string(),
    }
}
