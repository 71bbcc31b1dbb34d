//! The worker inside a job of another scheduler: the job's own process, and nobody follows it.
//!
//! It drives a replica as any worker does, but hears what is wanted from whoever started it, passes the service's
//! output on, and ends with the replica as soon as the controller knows. Killed, it is not replaced: the shim ends the
//! service, and the host's agent sees to it that nothing is left.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context;
use portreeve::attendance::Ended;
use portreeve::registry::Want;
use portreeve::supervision::{ExitStatus, State, Status};
use portreeve_api::local::{Assignment, ReplicaFolder, WorkerCommand};
use portreeve_api::paths;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::LocalSet;

use crate::backend::ShimProgram;
use crate::limits::Limits;
use crate::orders::Order;
use crate::uplink;
use crate::worker::{Begun, Teller};

/// How long the end may take to be told to a controller that does not answer. The agent has it too.
const LAST_WORD: Duration = Duration::from_secs(10);

/// A place for a replica inside a job.
#[derive(Debug)]
pub struct Berth {
    /// A private, empty folder.
    pub folder: ReplicaFolder,
    /// What was granted.
    pub assignment: Assignment,
    /// What is wanted of it; that the sender is gone means nothing.
    pub orders: mpsc::Receiver<WorkerCommand>,
    /// Gets every newest status.
    pub newest: watch::Sender<Option<Status>>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The final status.
    pub status: Status,
    /// How the service's last run ended, where one began and it is known.
    pub exit: Option<ExitStatus>,
}

/// Supervises the replica until it ended, nothing of it is left and the controller knows, or could not be told for 10 s.
///
/// # Errors
///
/// The folder cannot be used; nothing was started.
pub async fn run_attached(berth: Berth) -> anyhow::Result<Outcome> {
    let shim = ShimProgram::current().context("the path of this program cannot be read")?;
    LocalSet::new().run_until(work(berth, shim)).await
}

async fn work(berth: Berth, shim: ShimProgram) -> anyhow::Result<Outcome> {
    let Berth {
        folder,
        assignment,
        orders: mut wanted,
        newest,
    } = berth;
    let desired = &assignment.desired;
    let client = assignment.client();
    let client = client.context("an attached replica needs a controller")?;
    let (token, shown) = watch::channel(assignment.tokens.worker.clone());
    let path = paths::status(&desired.service, desired.index, desired.incarnation);
    let sent = Arc::new(AtomicU64::new(0));
    let telling = uplink::tell(client, path, newest.subscribe(), shown, sent.clone());
    let telling = tokio::spawn(telling);
    let (mut told, last) = (newest.subscribe(), newest.subscribe());
    let (send_order, orders) = mpsc::channel::<Order>(16);
    let teller = Teller::Controller {
        newest,
        token,
        sent,
    };
    let begun = Begun::new(
        &folder,
        assignment,
        shim,
        orders,
        (teller, Limits::of_process()),
    )?;

    let forget = send_order.clone();
    let listening = tokio::spawn(async move {
        while let Some(command) = wanted.recv().await {
            // Nobody waits for the answer: every status is sent as it comes.
            let (reply, _) = oneshot::channel();
            if send_order.send((command, reply)).await.is_err() {
                return;
            }
        }
    });
    let ending = async {
        // Fails only when the driver is gone.
        if told.wait_for(is_end).await.is_err() {
            return;
        }
        _ = tokio::time::timeout(LAST_WORD, telling).await;
        let order = WorkerCommand::Want {
            want: Want::Forget,
            restart_no: 0,
        };
        let (reply, _) = oneshot::channel();
        _ = forget.send((order, reply)).await;
    };
    let (ended, ()) = tokio::join!(begun.run(), ending);
    listening.abort();
    let status = last.borrow().clone();
    let status = status.context("the replica ended without a word")?;
    let exit = match ended {
        Ended::Forgotten(exit) => exit,
        Ended::Over(_) | Ended::LifelineGone => None,
    };
    Ok(Outcome { status, exit })
}

fn is_end(status: &Option<Status>) -> bool {
    status
        .as_ref()
        .is_some_and(|status| matches!(status.state, State::Final(_)))
}
