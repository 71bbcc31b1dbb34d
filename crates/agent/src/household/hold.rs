//! The control groups that hold processes of replicas together.

use std::time::Duration;

use portreeve_api::containment::Containment;
use tracing::warn;

use super::worker::Worker;

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
pub(super) fn remove_soon(held: Containment) {
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
