//! The daemon as a whole: started, stopped, and what may be in its way.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use portreeve_api::Client;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

use crate::attached::{self, Moorage, Socket, SocketError};
use crate::config::{Config, SocketPlace};
use crate::facts::{self, Granted, Observer};
use crate::household::{Channels, Household};
use crate::lock::{LockError, StateLock};
use crate::orders::{Orders, Reads};
use crate::uplink::{Joined, Uplink};

/// Messages on their way to the household; a sender waits when there are more.
const INBOX: usize = 64;

/// A running agent. Dropped, it ends as by [`Agent::stop`], without waiting for its tasks.
#[derive(Debug)]
pub struct Agent {
    tasks: JoinSet<&'static str>,
    living: watch::Receiver<usize>,
    lock: StateLock,
}

impl Agent {
    /// Adopts what runs in the state folder and starts the tasks. Returns before the controller has been
    /// reached: it may be away, and services go on without it.
    ///
    /// Call it inside a tokio runtime with IO and time.
    ///
    /// # Errors
    ///
    /// [`StartError`]; no worker was started or told anything.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let config = Arc::new(config);
        let opened = {
            let config = config.clone();
            tokio::task::spawn_blocking(move || open_state(&config))
        };
        let (lock, boot_id) = opened.await.expect("opening the state does not panic")?;

        let (living, living_seen) = watch::channel(0);
        let (granted, granted_seen) = watch::channel(Granted::new());
        let (observed, observed_seen) = watch::channel(facts::Observed::default());
        let (to_household, inbox) = mpsc::channel(INBOX);
        let (ends, ends_seen) = mpsc::unbounded_channel();
        let ends_of_attached = ends.clone();
        let channels = Channels {
            inbox,
            ends,
            granted,
            living,
            observed: observed_seen.clone(),
        };
        let household = Household::open(config.clone(), boot_id.clone(), channels)
            .map_err(|cause| StartError::state(&config, cause))?;
        let socket = match &config.socket {
            None => None,
            Some(SocketPlace::At(path)) => Some(Socket::take(path).map_err(StartError::Socket)?),
            Some(SocketPlace::Usual(path)) => Socket::take(path)
                .inspect_err(|cause| warn!("`portreeve run` cannot be used here: {cause}"))
                .ok(),
        };
        let (to_moorage, moorage_inbox) = mpsc::channel(INBOX);
        let (attached_granted, attached_seen) = watch::channel(Granted::new());
        let channels = attached::Channels {
            inbox: moorage_inbox,
            ends: ends_of_attached,
            granted: attached_granted,
            observed: observed_seen.clone(),
        };
        let moorage = Moorage::open(config.clone(), boot_id.clone(), channels)
            .map_err(|cause| StartError::state(&config, cause))?;
        let (all_granted, all_granted_seen) = watch::channel(Granted::new());
        let mut both = Both {
            own: granted_seen,
            attached: attached_seen,
            all: all_granted,
        };
        both.join();
        let mut observer = Observer::new(config.clone(), all_granted_seen);
        // After the household: what its replicas listen on is not foreign.
        observed.send_replace(observer.look());

        let (joined, joined_seen) = watch::channel(Joined::default());
        let rejoin = Arc::new(Notify::new());
        let client = Client::new(config.controller.clone());
        let uplink = Uplink {
            config: config.clone(),
            boot_id,
            capabilities: facts::capabilities(),
            client: client.clone(),
            observed: observed_seen,
            household: to_household.clone(),
            moorage: to_moorage.clone(),
            ends: ends_seen,
            rejoin: rejoin.clone(),
            joined,
        };
        let serving = socket.map(|socket| {
            attached::serve(socket, config.clone(), client.clone(), to_moorage.clone())
        });
        let orders = Orders {
            config,
            client,
            joined: joined_seen,
            rejoin,
            household: to_household,
            moorage: to_moorage,
            reads: Reads::default(),
            unfit: 0,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async {
            observer.run(observed).await;
            "facts"
        });
        tasks.spawn(async {
            household.run().await;
            "household"
        });
        tasks.spawn(async {
            moorage.run().await;
            "moorage"
        });
        tasks.spawn(async {
            both.run().await;
            "grants"
        });
        if let Some(serving) = serving {
            tasks.spawn(async {
                serving.await;
                "socket"
            });
        }
        tasks.spawn(async {
            uplink.run().await;
            "uplink"
        });
        tasks.spawn(async {
            orders.run().await;
            "orders"
        });
        Ok(Self {
            tasks,
            living: living_seen,
            lock,
        })
    }

    /// Returns only if a task of the agent ended by itself, which is a bug: the daemon should then end,
    /// with these words, and be started again. No service is touched.
    pub async fn broken(&mut self) -> String {
        match self.tasks.join_next().await {
            Some(Ok(task)) => format!("the agent's {task} ended by itself"),
            Some(Err(cause)) => format!("a task of the agent broke: {cause}"),
            None => "the agent has no task".to_owned(),
        }
    }

    /// Returns when no replica has a worker or a process here any more.
    pub async fn empty(&mut self) {
        // An error says that the household ended, which `broken` tells.
        _ = self.living.wait_for(|living| *living == 0).await;
    }

    /// Stops the agent. No service and no worker is touched; the next agent adopts them.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        drop(self.lock);
    }
}

/// The numbers that replicas of both kinds hold here.
struct Both {
    own: watch::Receiver<Granted>,
    attached: watch::Receiver<Granted>,
    all: watch::Sender<Granted>,
}

impl Both {
    fn join(&mut self) {
        let own = self.own.borrow_and_update();
        let all: Granted = own
            .union(&self.attached.borrow_and_update())
            .copied()
            .collect();
        drop(own);
        self.all.send_if_modified(|last| {
            let changed = *last != all;
            *last = all;
            changed
        });
    }

    async fn run(mut self) {
        loop {
            let changed = tokio::select! {
                changed = self.own.changed() => changed,
                changed = self.attached.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            self.join();
        }
    }
}

fn open_state(config: &Config) -> Result<(StateLock, String), StartError> {
    use std::os::unix::fs::DirBuilderExt;
    let at = |cause| StartError::state(config, cause);
    let mut folder = std::fs::DirBuilder::new();
    folder
        .recursive(true)
        .mode(0o700)
        .create(&config.state)
        .map_err(at)?;
    let lock = StateLock::take(&config.state).map_err(|cause| match cause {
        LockError::Held(pid) => StartError::InUse {
            state: config.state.clone(),
            pid,
        },
        LockError::Io(cause) => at(cause),
    })?;
    let boot_id = facts::boot_id().map_err(StartError::Boot)?;
    Ok((lock, boot_id))
}

/// Why an agent does not start. Nothing was started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another agent has the state folder.
    #[error(
        "{} is in use by another agent{}; stop that one or name another folder with --data",
        state.display(),
        pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
    )]
    InUse {
        /// The folder.
        state: PathBuf,
        /// The other agent's process, where it is known.
        pid: Option<u32>,
    },
    /// The state folder cannot be used.
    #[error("the state folder {}: {cause}", state.display())]
    State {
        /// The folder.
        state: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// The socket for jobs cannot be made.
    #[error(transparent)]
    Socket(SocketError),
    /// The kernel does not say which boot this is, without which no process can be recognised.
    #[error("/proc/sys/kernel/random/boot_id: {0}; mount /proc")]
    Boot(io::Error),
}

impl StartError {
    fn state(config: &Config, cause: io::Error) -> Self {
        Self::State {
            state: config.state.clone(),
            cause,
        }
    }
}
