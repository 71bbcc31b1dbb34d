//! One worker from its folder to its end.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use portreeve::attendance::{Attendance, Ended, Manner, Record, Standing};
use portreeve::profile::OnCutOff;
use portreeve::supervision::{Machine, Report, Status};
use portreeve_api::local::{Assignment, Ids, ProcessIdentity, ReplicaFolder};
use portreeve_api::{paths, tls};
use rustix::fs::FlockOperation;
use tokio::sync::{mpsc, oneshot, watch};

use crate::account;
use crate::alone::StatusLines;
use crate::backend::{Mark, ShimBackend, ShimProgram};
use crate::clock::{self, Clock};
use crate::containment;
use crate::driver::{Driver, Inside};
use crate::file::{self, Durability};
use crate::inherited;
use crate::journal::Journal;
use crate::lifeline;
use crate::limits::Limits;
use crate::logs;
use crate::orders::{self, Order};
use crate::probing::Probing;
use crate::sources::Sources;
use crate::uplink;

/// Supervises the replica in `folder` until it ended and the controller knows, or until the process ended
/// that its life hangs on. With `user` it first becomes that account for good; call it before a second
/// thread is made.
///
/// # Errors
///
/// It cannot become the user, the folder cannot be used, another worker has it, or an earlier worker's
/// record cannot be read. Nothing was started and a living service was left alone.
pub fn run(folder: ReplicaFolder, user: Option<&Ids>) -> anyhow::Result<()> {
    if let Some(ids) = user {
        // The user could not read its key, and must not.
        if let Some(cause) = tls::keep_own().err() {
            tracing::warn!(%cause, "the controller is shown no certificate");
        }
        account::become_user(ids)?;
    }
    let program = ShimProgram::current().context("the path of this program cannot be read")?;
    run_with(folder, program)
}

/// The same with another program as shim.
///
/// # Errors
///
/// See [`run`].
pub fn run_with(folder: ReplicaFolder, shim: ShimProgram) -> anyhow::Result<()> {
    run_on_one_thread(work(folder, shim))
}

/// Runs the whole worker, which has one thread.
pub(crate) fn run_on_one_thread<T>(
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    inherited::unblock_signals();
    inherited::close_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no event loop")?;
    {
        let _within = runtime.enter();
        inherited::hear_ignored_signals();
    }
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

async fn work(folder: ReplicaFolder, shim: ShimProgram) -> anyhow::Result<()> {
    let folder = ReplicaFolder::at(std::path::absolute(folder.path())?);
    // Held until the end; the kernel gives it up when this process ends, however it ends.
    let _lock = lock(&folder)?;
    let assignment: Assignment = file::read_json(&folder.assignment())
        .context("assignment.json cannot be read")?
        .ok_or_else(|| WorkerError::NoAssignment {
            path: folder.assignment(),
        })?;
    if let Err(cause) = containment::settle_worker(&assignment.containment).await {
        let words = "the worker is not in the control group of its replica";
        if !folder.machine().exists() {
            // Nothing runs yet, and nothing could be started: the agent starts a worker anew, and moves it.
            return Err(cause).context(words);
        }
        // What runs goes on under it; what is to be started is refused.
        tracing::error!("{words}: {cause}");
    }
    let (newest, told) = watch::channel(None);
    let (token, shown) = watch::channel(assignment.tokens.worker.clone());
    let sent = Arc::new(AtomicU64::new(0));
    if let Some(client) = assignment.client() {
        let desired = &assignment.desired;
        tokio::spawn(uplink::tell(
            client,
            paths::status(&desired.service, desired.index, desired.incarnation),
            told,
            shown,
            sent.clone(),
        ));
    }
    let held = assignment.containment.clone();
    let orders = mpsc::channel(16);
    let teller = Teller::Controller {
        newest,
        token,
        sent,
    };
    let limits = Limits::of_host();
    match supervise(folder.clone(), assignment, shim, (teller, limits), orders).await? {
        // The folder is the agent's, who keeps the logs.
        Ended::Forgotten(_) | Ended::Over(_) => Ok(()),
        Ended::LifelineGone => {
            containment::leave_for_good(&held);
            portreeve_api::removal::remove_folder(folder.path())
                .with_context(|| format!("{} cannot be removed", folder.path().display()))
        }
    }
}

/// Who hears what happens.
pub(crate) enum Teller {
    /// The controller, which is told the newest status until it has it.
    Controller {
        /// What its messages are made of.
        newest: watch::Sender<Option<Status>>,
        /// What it is shown with them.
        token: watch::Sender<String>,
        /// How many were sent.
        sent: Arc<AtomicU64>,
    },
    /// The scheduler that started this worker. There is nobody who would say that it may end, so it ends with
    /// its replica.
    Lines(StatusLines),
    /// A test, which hears each report.
    #[cfg(test)]
    Test(mpsc::UnboundedSender<Report>),
}

impl Teller {
    /// Tells the newest status, and what was reported with it.
    pub(crate) fn tell(&self, status: Option<Status>, reports: impl Iterator<Item = Report>) {
        match self {
            Self::Controller { newest, .. } => _ = newest.send_replace(status),
            Self::Lines(lines) => lines.tell(status, reports),
            #[cfg(test)]
            Self::Test(heard) => reports.for_each(|report| heard.send(report).unwrap()),
        }
    }

    /// From now on the controller is shown this token.
    pub(crate) fn renew(&self, worker: &str) {
        if let Self::Controller { token, .. } = self {
            _ = token.send_replace(worker.to_owned());
        }
    }

    /// Whether the worker ends when its replica has.
    pub(crate) const fn ends_with_replica(&self) -> bool {
        !matches!(self, Self::Controller { .. })
    }

    /// How many messages the controller was sent.
    pub(crate) fn messages(&self) -> u64 {
        match self {
            Self::Controller { sent, .. } => sent.load(Ordering::Relaxed),
            _ => 0,
        }
    }
}

/// Supervises what is assigned in a folder of which the caller holds the lock; keeps its output within bounds and takes
/// orders over its socket.
pub(crate) async fn supervise(
    folder: ReplicaFolder,
    assignment: Assignment,
    shim: ShimProgram,
    (teller, limits): (Teller, Limits),
    (send_order, orders): (mpsc::Sender<Order>, mpsc::Receiver<Order>),
) -> anyhow::Result<Ended> {
    let listener = orders::listen(&folder).context("worker.sock cannot be made")?;
    let bounds = assignment.logs;
    let begun = Begun::new(&folder, assignment, shim, orders, (teller, limits))?;
    let serving = tokio::spawn(orders::serve(listener, send_order));
    tokio::spawn(logs::keep(folder, bounds));
    let ended = begun.run().await;
    // Whoever said that it may end is answered first.
    serving.await.context("the socket's task is lost")?;
    Ok(ended)
}

/// A driver that is ready to be driven.
pub(crate) struct Begun {
    driver: Driver,
    sources: Sources,
}

impl Begun {
    /// Reads what an earlier worker of the folder left, and says in it who the worker is now.
    pub(crate) fn new(
        folder: &ReplicaFolder,
        assignment: Assignment,
        shim: ShimProgram,
        orders: mpsc::Receiver<Order>,
        (teller, limits): (Teller, Limits),
    ) -> anyhow::Result<Self> {
        let me = ProcessIdentity::of_self().context("/proc cannot be read")?;
        // Nothing may be started without it, for a run may be living.
        let record: Option<Record> =
            file::read_json(&folder.machine()).context("machine.json cannot be read")?;
        let record = match record {
            Some(record) => record.in_boot(&me.boot_id),
            None => new_record(&assignment, &me.boot_id)?,
        };
        let is_over = folder.over().exists();
        let record = if is_over { record.over() } else { record };
        file::write(
            &folder.token(),
            assignment.tokens.job.as_bytes(),
            Durability::Written,
        )
        .context("the token file cannot be written")?;
        file::write_json(&folder.worker(), &me, Durability::Written)
            .context("worker.json cannot be written")?;
        let (send_event, backend) = mpsc::unbounded_channel();
        let (send_probe, probes) = mpsc::unbounded_channel();
        let lifeline = match assignment.lifeline.clone() {
            Some(process) => {
                let (ended, lifeline) = oneshot::channel();
                lifeline::watch(process, ended).context("no thread for the lifeline")?;
                Some(lifeline)
            }
            None => None,
        };
        let mark = Mark {
            prefix: assignment.prefix.clone(),
            token_file: folder.token().to_string_lossy().into_owned(),
        };
        let stops = assignment.desired.profile.on_cut_off == OnCutOff::Stop;
        let manner = Manner {
            ends_cut_off: stops && limits.are_shared(),
            ends_with_replica: teller.ends_with_replica(),
            hands_over: limits.are_shared(),
        };
        let clock = Clock::Host;
        let processes = ShimBackend::new(
            assignment.backend,
            shim,
            folder.clone(),
            mark,
            assignment.containment.clone(),
            send_event,
        );
        Ok(Self {
            driver: Driver {
                clock,
                journal: Journal::new(folder.clone()),
                backend: Box::new(processes),
                probing: Probing::new(send_probe),
                limits,
                teller,
                inside: Inside::default(),
                folder: folder.clone(),
                assignment,
                attendance: Attendance::new(clock::monotonic(), record, manner),
            },
            sources: Sources {
                clock,
                orders,
                backend,
                probes,
                lifeline,
            },
        })
    }

    /// Drives until nothing is left to do.
    pub(crate) async fn run(self) -> Ended {
        self.driver.run(self.sources).await
    }
}

/// Why a worker does not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The agent did not prepare the folder.
    #[error("{} does not exist: the agent prepares it before it starts a worker", path.display())]
    NoAssignment {
        /// Where it should be.
        path: PathBuf,
    },
    /// Another worker supervises the replica.
    #[error("another worker{} has {}", pid.map_or(String::new(), |pid| format!(" (pid {pid})")), path.display())]
    Taken {
        /// The replica's folder.
        path: PathBuf,
        /// The other worker, where known.
        pid: Option<u32>,
    },
}

/// Makes this the one worker of the folder.
pub(crate) fn lock(folder: &ReplicaFolder) -> anyhow::Result<File> {
    let path = folder.path().join("worker.lock");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("{}", path.display()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let other = file::read_json::<ProcessIdentity>(&folder.worker());
            Err(WorkerError::Taken {
                path: folder.path().to_owned(),
                pid: other.ok().flatten().map(|other| other.pid),
            }
            .into())
        }
        Err(cause) => Err(cause).with_context(|| format!("{}", path.display())),
    }
}

pub(crate) fn new_record(assignment: &Assignment, boot_id: &str) -> anyhow::Result<Record> {
    let seed = getrandom::u64().context("no random numbers")?;
    let desired = &assignment.desired;
    let standing = Standing {
        user: (desired.uid, &desired.user),
        worker_uid: rustix::process::geteuid().as_raw(),
        assigned_in: &assignment.boot_id,
        boot_id,
        restart_no: desired.restart_no,
        host_address: assignment.host_address,
        port_addresses: desired.addresses.clone(),
    };
    let machine = Machine::new(desired.profile.supervision.clone(), seed);
    Ok(Record::new(machine, standing))
}
