//! How the word that the host is being shut down goes from who says it to those who act on it.

use portreeve_api::attach::Closing;
use tokio::sync::{mpsc, watch};

use crate::household::Message;

/// Begins the shutdown of the host, and follows it. A copy is the same shutdown.
#[derive(Clone, Debug)]
pub(crate) struct Closer {
    pub(crate) household: mpsc::Sender<Message>,
    /// Whether it began.
    pub(crate) begun: watch::Sender<bool>,
    /// How far it is, as the household tells.
    pub(crate) progress: watch::Receiver<Option<Closing>>,
}

impl Closer {
    /// Begins it, if that was not done before.
    pub(crate) async fn begin(&self) {
        // First: the controller places nothing here any more, and what it orders meanwhile does not begin.
        self.begun
            .send_if_modified(|begun| !std::mem::replace(begun, true));
        // Fails only while the agent is being stopped.
        _ = self.household.send(Message::Close).await;
    }

    /// How far it is, with so many replicas inside jobs.
    pub(crate) fn now(&mut self, attached: usize) -> Option<Closing> {
        let now = *self.progress.borrow_and_update();
        now.map(|now| Closing { attached, ..now })
    }

    /// Waits for the next change; whether there can be one.
    pub(crate) async fn changed(&mut self) -> bool {
        self.progress.changed().await.is_ok()
    }
}
