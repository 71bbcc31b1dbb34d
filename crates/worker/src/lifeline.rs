//! Waits for the end of the process a replica's life hangs on.

use std::io;

use portreeve_api::local::ProcessIdentity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;

use crate::process;

/// Sends once when `process` is gone; at once if it is gone already. If it cannot be watched the receiver
/// never hears anything: unseen is not ended.
///
/// It takes a thread of its own, which sleeps: the event loop cannot wait for such a descriptor without
/// unsafe code, and only `dev` has a lifeline.
///
/// # Errors
///
/// The system's, if there is no thread to be had.
pub(crate) fn watch(process: ProcessIdentity, ended: oneshot::Sender<()>) -> io::Result<()> {
    std::thread::Builder::new()
        .name("lifeline".into())
        .stack_size(64 << 10)
        .spawn(move || match until_ended(&process) {
            Ok(()) => _ = ended.send(()),
            Err(cause) => {
                tracing::error!(
                    "the process this replica's life hangs on cannot be watched: {cause}"
                );
                // Dropped, the sender would count as the end.
                std::mem::forget(ended);
            }
        })?;
    Ok(())
}

/// Blocks until `process` is gone.
fn until_ended(process: &ProcessIdentity) -> io::Result<()> {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Ok(()) };
    let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(cause) => return Err(cause.into()),
    };
    // Looked at after it was pinned: the number may have been another's by then.
    while process::lives(process) {
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[tokio::test]
    async fn the_end_of_a_process_is_seen_and_an_earlier_end_too() {
        let mut child = Command::new("/bin/cat")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        let (sender, mut ended) = oneshot::channel();
        watch(identity.clone(), sender).unwrap();
        assert!(ended.try_recv().is_err());
        drop(child.stdin.take());
        // Not reaped yet: a zombie is no life to hang on.
        ended.await.unwrap();
        child.wait().unwrap();
        let (sender, ended) = oneshot::channel();
        watch(identity, sender).unwrap();
        ended.await.unwrap();
    }
}
