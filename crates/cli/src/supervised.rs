//! What the service manager is told that started a daemon (`Type=notify` of systemd); where none did, nobody is.

use sd_notify::NotifyState;

/// It answers: who waits for it may go on.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// It ends in order.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(cause) = sd_notify::notify(state) {
        // It will take the daemon for one that does not start, and say so; here is why.
        tracing::warn!(%cause, "the service manager was not told");
    }
}
