//! A host of one test: its folder, its controller's socket, and what a controller wants there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use portreeve::identity::{Incarnation, ServiceId};
use portreeve::port::{Port, PortRange, PortRanges, Protocol};
use portreeve::port_pool::{GrantedPort, PortGrant};
use portreeve::profile::Profile;
use portreeve::registry::{Desired, Want};
use portreeve_agent::{Agent, Config, StartError};
use portreeve_api::Target;
use portreeve_api::body::DesiredReplica;
use portreeve_api::containment::{Choice, Rung};
use portreeve_api::local::{ProcessIdentity, ReplicaFolder, Tokens};

use crate::controller::{Controller, PATIENCE};
use crate::worker;

pub(crate) struct House {
    place: tempfile::TempDir,
}

impl House {
    pub(crate) fn new() -> Self {
        Self {
            place: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.place.path().join("state")
    }

    pub(crate) fn controller(&self, instance: &str) -> Controller {
        Controller::start(&self.socket(), instance)
    }

    fn socket(&self) -> PathBuf {
        self.place.path().join("controller.sock")
    }

    /// An agent whose pools hold no number, so that other processes of this machine do not matter.
    pub(crate) fn config(&self) -> Config {
        Config {
            host: "n17".parse().unwrap(),
            state: self.state(),
            controller: Target::Unix(self.socket()),
            single_host: true,
            dynamic: PortRanges::default(),
            fixed: PortRanges::default(),
            worker_program: worker::program(self.place.path()),
            // These workers are played, and hold nothing.
            containment: Choice::Only(Rung::ProcessTree),
            ..Config::default()
        }
    }

    /// Starts an agent. A child that another test of this process is just starting may hold a copy of the lock
    /// of the one before until it runs its program: that is waited for.
    pub(crate) async fn agent(&self) -> Agent {
        self.agent_with(self.config()).await
    }

    /// The same told something else.
    pub(crate) async fn agent_with(&self, config: Config) -> Agent {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match Agent::start(config.clone()).await {
                Err(StartError::InUse { .. }) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                started => return started.unwrap(),
            }
        }
    }

    pub(crate) fn folder(&self, incarnation: u32) -> ReplicaFolder {
        let service = "web.alice".parse().unwrap();
        ReplicaFolder::of(&self.state(), &service, 0, Incarnation(incarnation))
    }

    pub(crate) fn starts(&self) -> Vec<String> {
        worker::starts(&self.state())
    }

    /// The worker of an incarnation, once it has said who it is.
    pub(crate) async fn worker(&self, incarnation: u32) -> ProcessIdentity {
        let path = self.folder(incarnation).worker();
        until("a worker says who it is", || {
            serde_json::from_slice(&std::fs::read(&path).ok()?).ok()
        })
        .await
    }
}

/// One wanted incarnation of `web.alice/0`.
pub(crate) fn wanted(incarnation: u32, want: Want) -> DesiredReplica {
    let profile = "kind = \"service\"\nname = \"web\"\ncommand = [\"true\"]\n";
    let checked = Profile::from_toml(profile);
    DesiredReplica {
        desired: Desired {
            service: "web.alice".parse().unwrap(),
            service_id: ServiceId(1),
            index: 0,
            incarnation: Incarnation(incarnation),
            want,
            restart_no: 0,
            addresses: std::collections::BTreeMap::new(),
            grant: PortGrant::default(),
            profile: checked
                .unwrap_or_else(|errors| panic!("{errors}"))
                .profile
                .into(),
            user: "alice".to_owned(),
            uid: rustix::process::geteuid().as_raw(),
            last_status: None,
            attached: false,
        },
        tokens: Tokens {
            worker: "secret".to_owned(),
            job: "job".to_owned(),
        },
    }
}

/// The same holding this number.
pub(crate) fn holding(mut wanted: DesiredReplica, port: u16) -> DesiredReplica {
    wanted.desired.grant.ports.push(GrantedPort {
        name: "http".parse().unwrap(),
        protocol: Protocol::Tcp,
        numbers: PortRange::single(Port::new(port).unwrap()),
    });
    wanted
}

/// Waits until `found` finds something.
pub(crate) async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = found() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(found) => found,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

pub(crate) async fn until_gone(path: &Path) {
    until(&format!("{} is gone", path.display()), || {
        (!path.exists()).then_some(())
    })
    .await;
}

/// Kills a process that a test has started, as the kernel kills: without a word.
pub(crate) fn kill(process: &ProcessIdentity) {
    assert!(process.is_alive());
    let pid = rustix::process::Pid::from_raw(process.pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Halts a process that a test has started; killed, it ends all the same.
pub(crate) fn stop(process: &ProcessIdentity) {
    let pid = rustix::process::Pid::from_raw(process.pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
}
