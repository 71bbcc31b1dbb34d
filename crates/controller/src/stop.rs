//! The word to stop, which everything that waits also waits for.

use tokio::sync::watch;

/// Says stop; once said it stays said. Dropped, it says it too.
#[derive(Debug)]
pub(crate) struct StopSwitch(watch::Sender<bool>);

/// Hears stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl StopSwitch {
    pub(crate) fn new() -> (Self, Stop) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Stop(receiver))
    }

    pub(crate) fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// Whether it was said; a dropped switch is only heard by who waits.
    pub(crate) fn is_said(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it was said.
    pub(crate) async fn said(&mut self) {
        // The sender is gone: nobody could say it any more, so it counts as said.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}
