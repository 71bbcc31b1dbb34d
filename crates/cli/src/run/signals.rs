//! The signals by which a scheduler or a person ends the job.

use portreeve_worker::is_ignored;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// The signals by which a scheduler or a person ends the job.
pub(crate) struct Signals {
    term: Signal,
    interrupt: Signal,
    /// `None` under `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    const HANGUP: u8 = 1;
    pub(crate) const INTERRUPT: u8 = 2;
    pub(crate) const TERM: u8 = 15;

    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: match is_ignored(Self::HANGUP.into()) {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    /// The number of the next one.
    pub(crate) async fn next(&mut self) -> u8 {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => _ = hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.term.recv() => Self::TERM,
            _ = self.interrupt.recv() => Self::INTERRUPT,
            () = hangup => Self::HANGUP,
        }
    }
}
