//! Tasks whose panic ends the process.
//!
//! A controller that lost one of its tasks would answer from a state that nobody keeps true. Started
//! again, it reads the truth from its store; so a restart is the safer answer to a bug of ours.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::task::JoinHandle;

/// Runs `task`; a panic in it ends the process.
pub(crate) fn spawn(
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    tokio::spawn(guarded(name, task))
}

/// `task`, but a panic in it ends the process.
pub(crate) async fn guarded<T>(name: &'static str, task: impl Future<Output = T>) -> T {
    let mut task = std::pin::pin!(task);
    std::future::poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
        polled.unwrap_or_else(|_| end(name))
    })
    .await
}

/// Runs `work` where it may block; a panic in it ends the process.
pub(crate) async fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let done = tokio::task::spawn_blocking(move || {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| end(name))
    });
    match done.await {
        Ok(value) => value,
        // The runtime is being torn down: nothing waits for us any more.
        Err(_) => std::future::pending().await,
    }
}

/// What panicked has said why on standard error.
fn end(name: &'static str) -> ! {
    tracing::error!(task = name, "a task panicked; the controller ends");
    std::process::abort();
}
