//! The daemon as a whole: started, stopped, and what may be in its way.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portreeve::registry::AgentIdentity;
use portreeve_api::containment::{Choice, Ladder, NotPossible};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

use crate::attached::{self, Moorage};
use crate::config::{Config, SocketPlace};
use crate::contact::ContactPage;
use crate::facts::{self, Granted, Observer};
use crate::household::{Channels, Household, open_through};
use crate::identity;
use crate::lock::{LockError, StateLock};
use crate::membership::{Membership, Standing};
use crate::neighbours::{AnnounceError, Presence, SharedNumbers};
use crate::relay;
use crate::shutdown::Closer;
use crate::socket::{Socket, SocketError};
use crate::uplink::{self, Uplink};

/// Messages on their way to the household; a sender waits when there are more.
const INBOX: usize = 64;

/// A running agent. Dropped, it ends as by [`Agent::stop`], without waiting for its tasks.
#[derive(Debug)]
pub struct Agent {
    tasks: JoinSet<&'static str>,
    living: watch::Receiver<usize>,
    standing: watch::Receiver<Standing>,
    presence: Presence,
    lock: StateLock,
    ladder: Ladder,
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
        let opened = opened.await.expect("opening the state does not panic")?;
        let Opened {
            lock,
            identity,
            presence,
            ladder,
        } = opened;
        let boot_id = identity.boot_id.clone();
        _ = ladder.sweep();

        let (living, living_seen) = watch::channel(0);
        let (heeding, heeding_seen) = watch::channel(false);
        let (closing, progress) = watch::channel(None);
        let (begun, closing_seen) = watch::channel(false);
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
            heeding,
            observed: observed_seen.clone(),
            closing,
        };
        let household = Household::open(config.clone(), boot_id.clone(), ladder.clone(), channels)
            .map_err(|cause| StartError::state(&config, cause))?;
        let socket = take(
            config.socket.as_ref(),
            "`portreeve run` cannot be used here",
        )?;
        let relaying = take(config.relay.as_ref(), "nobody here is asked for")?;
        let (to_moorage, moorage_inbox) = mpsc::channel(INBOX);
        let (attached_granted, attached_seen) = watch::channel(Granted::new());
        let channels = attached::Channels {
            inbox: moorage_inbox,
            ends: ends_of_attached,
            granted: attached_granted,
            observed: observed_seen.clone(),
        };
        let moorage = Moorage::open(config.clone(), boot_id, channels)
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
        let looked = tokio::task::spawn_blocking(move || {
            let seen = observer.look();
            (observer, seen)
        });
        let (observer, seen) = looked.await.expect("looking at the host does not panic");
        observed.send_replace(seen);

        let client = config.client();
        let (membership, standing, refusals) = Membership::new(&config, &identity, client.clone());
        let capabilities = facts::capabilities(&ladder, config.backend);
        let channels = uplink::Channels {
            contact: ContactPage::of(&config.state, heeding_seen),
            observed: observed_seen,
            household: to_household.clone(),
            moorage: to_moorage.clone(),
            ends: ends_seen,
            closing: closing_seen,
            refusals: refusals.clone(),
        };
        let uplink = Uplink::new(
            config.clone(),
            identity,
            capabilities,
            client.clone(),
            channels,
        );
        let relaying = relaying.map(|socket| {
            let host = config.host.clone();
            relay::serve(socket, host, client.clone(), refusals)
        });
        let serving = socket.map(|socket| {
            let closer = Closer {
                household: to_household,
                begun,
                progress,
            };
            attached::serve(socket, config, client, to_moorage, closer)
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(async {
            observer.run(observed).await;
            "look at the host"
        });
        tasks.spawn(async {
            household.run().await;
            "care of its replicas"
        });
        tasks.spawn(async {
            moorage.run().await;
            "care of replicas inside jobs"
        });
        tasks.spawn(async {
            both.run().await;
            "count of held ports"
        });
        if let Some(serving) = serving {
            tasks.spawn(async {
                serving.await;
                "socket for jobs"
            });
        }
        if let Some(relaying) = relaying {
            tasks.spawn(async {
                relaying.await;
                "socket for people"
            });
        }
        if let Some(membership) = membership {
            tasks.spawn(async {
                membership.run().await;
                "membership"
            });
        }
        let mut member = standing.clone();
        tasks.spawn(async move {
            // Before that nothing it says would be heard. An error says that the agent is being stopped.
            if member.wait_for(|it| *it == Standing::Member).await.is_ok() {
                uplink.run().await;
            }
            "line to the controller"
        });
        Ok(Self {
            tasks,
            living: living_seen,
            standing,
            presence,
            lock,
            ladder,
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

    /// Returns once this host has joined or cannot without somebody's help, which the log asks for, and at the latest
    /// after `within`: the controller may be away.
    pub fn joined(&self, within: Duration) -> impl Future<Output = ()> + Send + use<> {
        let mut standing = self.standing.clone();
        async move {
            let known = standing.wait_for(|it| *it != Standing::Asking);
            // What is missing is told by the log and by `broken`.
            _ = tokio::time::timeout(within, known).await;
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
        _ = self.ladder.sweep();
        drop(self.presence);
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

/// Takes the socket of this place; `without`: what it means that a usual one cannot be had.
fn take(place: Option<&SocketPlace>, without: &str) -> Result<Option<Socket>, StartError> {
    match place {
        None => Ok(None),
        Some(SocketPlace::At(path)) => Socket::take(path).map(Some).map_err(StartError::Socket),
        Some(SocketPlace::Usual(path)) => Ok(Socket::take(path)
            .inspect_err(|cause| warn!("{without}: {cause}"))
            .ok()),
    }
}

/// Who the agent of this state folder is, also while none runs.
///
/// # Errors
///
/// The system's.
pub(crate) fn identity_of(config: &Config) -> io::Result<AgentIdentity> {
    make_state(&config.state)?;
    identity::of(&config.state, &facts::boot_id()?)
}

/// What an agent has of its own before anything else of it is there.
struct Opened {
    lock: StateLock,
    identity: AgentIdentity,
    presence: Presence,
    ladder: Ladder,
}

/// Makes the state folder and those above it that are missing. As root it lets users through to what is theirs.
fn make_state(state: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    /// A folder of this name above the state is ours too; the controller may have made it for itself.
    const OURS: &str = "portreeve";
    let root = nix::unistd::geteuid().is_root();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(if root { 0o711 } else { 0o700 })
        .create(state)?;
    open_through(state)?;
    match state.parent() {
        Some(parent) if parent.file_name().is_some_and(|name| name == OURS) => open_through(parent),
        _ => Ok(()),
    }
}

fn open_state(config: &Config) -> Result<Opened, StartError> {
    let at = |cause| StartError::state(config, cause);
    make_state(&config.state).map_err(at)?;
    let lock = StateLock::take(&config.state).map_err(|cause| match cause {
        LockError::Held(pid) => StartError::InUse {
            state: config.state.clone(),
            pid,
        },
        LockError::Io(cause) => at(cause),
    })?;
    let boot_id = facts::boot_id().map_err(StartError::Boot)?;
    let identity = identity::of(&config.state, &boot_id).map_err(at)?;
    let presence = Presence::announce(config, &identity.folder).map_err(|cause| match cause {
        AnnounceError::Shared(shared) => StartError::Shared(shared),
        AnnounceError::Io(cause) => StartError::Network(cause),
    })?;
    let ladder = Ladder::climb(config.containment, &config.state).map_err(|cause| {
        StartError::Containment {
            choice: config.containment,
            cause,
        }
    })?;
    Ok(Opened {
        lock,
        identity,
        presence,
        ladder,
    })
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
    #[error("the state folder {} cannot be used: {cause}; name another with --data", state.display())]
    State {
        /// The folder.
        state: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
    /// Processes cannot be held together as the configuration says.
    #[error(
        "containment {choice} is not possible: {cause}; or take another by --containment, auto for the best there is"
    )]
    Containment {
        /// What the configuration says.
        choice: Choice,
        /// What is in the way.
        cause: NotPossible,
    },
    /// Another agent of this network gives some of its numbers.
    #[error(transparent)]
    Shared(SharedNumbers),
    /// This agent cannot be made known to others of its network, with which it may share numbers.
    #[error("a socket for other agents of this network: {0}")]
    Network(io::Error),
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
