//! What a daemon is told while it runs: by signals, and by its file, which it looks at again when told to.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::ConfigFile;
use crate::exit::Failure;
use crate::output;

/// The signals that a daemon hears. Made first of all, so that none that comes early kills it unprepared.
pub(crate) struct Told {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a daemon was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// SIGTERM or Ctrl-C.
    Stop,
    /// SIGHUP.
    Reload,
}

impl Told {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next word since [`Told::listen`], for a daemon that nobody has at a terminal.
    pub(crate) async fn next(&mut self) -> Word {
        tokio::select! {
            _ = self.term.recv() => Word::Stop,
            _ = self.interrupt.recv() => Word::Stop,
            _ = self.hangup.recv() => Word::Reload,
        }
    }

    /// Returns at the first SIGTERM, Ctrl-C or hang-up since [`Told::listen`]: that of a terminal that is closed.
    pub(crate) async fn stop(&mut self) {
        let _ = self.next().await;
    }
}

/// Says which settings of the file hold only after a restart, if there are such.
pub(super) fn look_again_at(file: Option<&ConfigFile>) {
    let Some(file) = file else {
        return;
    };
    let path = file.path().display();
    match file.changed() {
        Ok(keys) if keys.is_empty() => {}
        Ok(keys) => {
            let keys = keys.join(", ");
            tracing::warn!(%path, "these settings changed in the file and hold after a restart: {keys}");
        }
        Err(cause) => {
            tracing::error!(%cause, "the file cannot be used as it is now; what was read at the start holds");
        }
    }
}

/// What a check says of the file, on standard output.
pub(super) fn say_checked(file: Option<&ConfigFile>) -> Result<(), Failure> {
    let words = match file {
        Some(file) => format!(
            "{}: {} settings, all fine\n",
            file.path().display(),
            file.len()
        ),
        None => "no configuration file; the options are fine\n".to_owned(),
    };
    output::print(&words)
}
