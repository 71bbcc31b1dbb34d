//! What the agent keeps of a resident beside what residency decides on.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use portreeve::port::PortName;
use portreeve::residency::ReplicaName;
use portreeve_api::containment::Containment;
use portreeve_api::local::{Assignment, ReplicaFolder};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, warn};

use super::worker::Worker;

/// Where clients are sent: the published address, and those of ports that name a network.
pub(crate) type Addresses = (IpAddr, BTreeMap<PortName, IpAddr>);

/// What only the agent needs to know of a resident.
pub(super) struct Keeping {
    pub(super) folder: ReplicaFolder,
    pub(super) assignment: Option<Assignment>,
    /// The process of its worker.
    pub(super) worker: Option<u32>,
    /// What its worker is known to know of addresses: one that was adopted, or took over from another, may have been
    /// told of several since its assignment was written.
    pub(super) addresses: Option<Addresses>,
    /// Workers started for it in a row that soon ended.
    pub(super) attempts: u32,
    pub(super) started: Option<Instant>,
    pub(super) start_after: Option<Instant>,
    pub(super) talk_after: Option<Instant>,
    /// When its worker, which refused them, is told its tokens again: until then it is told everything else.
    pub(super) renew_after: Option<Instant>,
    /// Its worker knows that the host is being shut down, and asks nobody whether it may end.
    pub(super) is_leaving: bool,
    /// When its logs have been kept long enough, once it ended.
    pub(super) expires: Option<Instant>,
}

impl Keeping {
    /// A worker that lived this long was started well.
    const SETTLED: Duration = Duration::from_secs(60);
    /// The longest wait before a worker is started again.
    const LONGEST: Duration = Duration::from_secs(60);

    pub(super) fn new(folder: ReplicaFolder) -> Self {
        Self {
            folder,
            assignment: None,
            worker: None,
            addresses: None,
            attempts: 0,
            started: None,
            start_after: None,
            talk_after: None,
            renew_after: None,
            is_leaving: false,
            expires: None,
        }
    }

    pub(super) fn watch(
        &mut self,
        name: &ReplicaName,
        worker: Worker,
        watches: &mut JoinSet<(ReplicaName, u32)>,
    ) {
        let (name, pid) = (name.clone(), worker.pid);
        self.worker = Some(pid);
        self.started = Some(Instant::now());
        self.talk_after = None;
        self.is_leaving = false;
        watches.spawn(async move {
            if let Err(cause) = worker.ended().await {
                error!("the worker {pid} of {name} cannot be waited for: {cause}");
            }
            (name, pid)
        });
    }

    /// When the next worker may start: at once the first time, then after twice the wait each time.
    pub(super) fn next_start(&mut self) -> Instant {
        let now = Instant::now();
        let settled = self
            .started
            .is_some_and(|started| now - started >= Self::SETTLED);
        self.attempts = if settled {
            0
        } else {
            self.attempts.saturating_add(1)
        };
        let wait = match self.attempts {
            0 => Duration::ZERO,
            some => Duration::from_millis(100).saturating_mul(1 << some.min(16)),
        };
        now + wait.min(Self::LONGEST)
    }

    /// Forgets what was assigned: nothing of it runs any more, and its control group is removed.
    pub(super) fn let_go(&mut self) {
        if let Some(assignment) = self.assignment.take() {
            remove_soon(assignment.containment);
        }
    }
}

/// Moves a worker that we have just started, and not waited for, to where it belongs; the right to do so may be ours
/// alone. Never one that a folder names: the group is the job's user's, who may kill whatever is in it. A worker that
/// an agent started and could not move any more ends by itself, and another is started.
pub(super) fn admit(worker: &Worker, held: &Containment) {
    if let Err(cause) = held.admit_worker(worker.pid) {
        warn!(
            "the worker {} stays in our own control group: {cause}",
            worker.pid
        );
    }
}

/// Removes a control group whose last process may end only now; one that does not is killed.
fn remove_soon(held: Containment) {
    /// A group is busy for about a millisecond after its end; one that is not empty by then is swept at our next start.
    const TRIES: usize = 50;
    const PAUSE: Duration = Duration::from_millis(20);
    if held.remove() {
        return;
    }
    tokio::spawn(async move {
        for _ in 0..TRIES {
            tokio::time::sleep(PAUSE).await;
            let again = held.clone();
            let removed = tokio::task::spawn_blocking(move || {
                // Nobody watches it any more and its numbers are free: what claimed to have ended and goes on, or
                // was hidden in a group of its own, ends here.
                _ = again.end();
                again.remove()
            });
            if removed.await.unwrap_or(false) {
                return;
            }
        }
        let group = held.group.unwrap_or_default();
        warn!(
            "the control group {} is not empty and stays",
            group.display()
        );
    });
}
