//! What a worker writes down, so that the next one takes over without a restart.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::identity::Run;
use crate::port::PortName;
use crate::supervision::{
    ExitStatus, Failure, Final, Leaving, Machine, ProbeKind, Reason, StartFailure, State, Status,
};
use crate::time::{Monotonic, Now, WallClock};

use super::happened::MainProcess;
use super::news::ProbeTexts;

/// Everything about one incarnation that outlives a worker, but not the machine it runs on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The boot in which it is true.
    pub(super) boot_id: String,
    /// Where the replica stands.
    pub(super) machine: Machine,
    /// Why the replica is not run at all, whatever the machine says.
    pub(super) refused: Option<Reason>,
    /// The user's restart that was last acted on.
    pub(super) restart_no: u64,
    /// This host's published address, as last told.
    pub(super) host_address: IpAddr,
    /// Whether this host was seen to have it, at any time since.
    #[serde(default)]
    pub(super) address_seen: bool,
    /// The addresses of ports that name a network, as last told.
    #[serde(default)]
    pub(super) port_addresses: BTreeMap<PortName, IpAddr>,
    /// The main process of the living run.
    pub(super) process: Option<MainProcess>,
    /// The newest run that was ready once.
    pub(super) ready_run: Option<Run>,
    /// The newest status that was told.
    pub(super) status: Option<Status>,
    pub(super) first_failure: Option<Box<Failure>>,
    pub(super) last_failure: Option<Box<Failure>>,
    /// When the replica began, for people who read its record; the controller was heard of then at the latest.
    #[serde(default)]
    pub(super) began: Option<Monotonic>,
    /// Why the host ends it by itself, if it does: what the machine calls a stop is told as this.
    #[serde(default)]
    pub(super) leaving: Option<Leaving>,
}

/// Where a new incarnation stands, as whoever assigned it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing<'a> {
    /// The user as whom it is to run: number and name.
    pub user: (u32, &'a str),
    /// The user as whom its worker runs.
    pub worker_uid: u32,
    /// The boot in which it was assigned.
    pub assigned_in: &'a str,
    /// The boot of this host.
    pub boot_id: &'a str,
    /// The restart by the user that its assignment carries.
    pub restart_no: u64,
    /// This host's published address.
    pub host_address: IpAddr,
    /// The addresses of ports that name a network.
    pub port_addresses: BTreeMap<PortName, IpAddr>,
}

impl Record {
    /// The record of an incarnation that has not begun. `machine` is new too.
    #[must_use]
    pub fn new(machine: Machine, standing: Standing<'_>) -> Self {
        Self {
            boot_id: standing.boot_id.to_owned(),
            machine,
            refused: refusal(&standing),
            restart_no: standing.restart_no,
            host_address: standing.host_address,
            address_seen: false,
            port_addresses: standing.port_addresses,
            process: None,
            ready_run: None,
            status: None,
            first_failure: None,
            last_failure: None,
            began: None,
            leaving: None,
        }
    }

    /// The record as it is true in this boot: what ran in another one is lost, and only the controller may place it again.
    #[must_use]
    pub fn in_boot(self, boot_id: &str) -> Self {
        if self.boot_id == boot_id {
            self
        } else {
            self.over()
        }
    }

    /// The record as it is true of an incarnation that ended after it was written, which nobody could write down: how is
    /// not known, and nothing of it may begin.
    #[must_use]
    pub fn over(mut self) -> Self {
        if !self.is_final() {
            self.refused = Some(Reason::Exit(ExitStatus::Unknown));
            self.process = None;
        }
        self
    }

    /// Where the replica stands.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The newest status that was told; `None` before the first.
    #[must_use]
    pub const fn status(&self) -> Option<&Status> {
        self.status.as_ref()
    }

    /// This host's published address, as last told.
    #[must_use]
    pub const fn host_address(&self) -> IpAddr {
        self.host_address
    }

    /// The addresses of ports that name a network, as last told.
    #[must_use]
    pub const fn port_addresses(&self) -> &BTreeMap<PortName, IpAddr> {
        &self.port_addresses
    }

    /// Whether this host was seen to have the published address, at any time since that was told.
    #[must_use]
    pub const fn is_address_seen(&self) -> bool {
        self.address_seen
    }

    /// Why the host ends the replica by itself, if it does.
    #[must_use]
    pub const fn leaving(&self) -> Option<Leaving> {
        self.leaving
    }

    /// When the replica began; the controller was heard of then at the latest.
    #[must_use]
    pub fn began(&self) -> Monotonic {
        self.began.unwrap_or_default()
    }

    /// Whether nothing follows.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.refused.is_some() || self.machine.is_final()
    }

    /// Takes over what the machine newly calls a failure; whether there was one.
    pub(super) fn note_failure(&mut self, now: Now, texts: &ProbeTexts) -> bool {
        let standing = self.machine.standing();
        let Some(newest) = standing.last_failure else {
            return false;
        };
        let at = now.wall.before(now.mono.since(newest.at));
        let kind = deciding_probe(&newest.reason);
        let known = self.last_failure.as_ref();
        // A run fails once; its time is no name, for the wall clock may have been set meanwhile.
        if known.is_some_and(|known| known.run == newest.run) {
            return false;
        }
        let failure = Failure {
            reason: newest.reason.clone(),
            exit: newest.exit,
            run: newest.run,
            at,
            probe_output: kind.and_then(|kind| texts.get(kind).map(str::to_owned)),
        };
        let failure = Box::new(failure);
        self.first_failure.get_or_insert_with(|| failure.clone());
        self.last_failure = Some(failure);
        true
    }

    /// The status as it is now, with the number of the one that was told last.
    pub(super) fn status_now(&self, now: Now, texts: &ProbeTexts) -> Status {
        let standing = self.machine.standing();
        let state = match &self.refused {
            Some(reason) => State::Final(Final::Failed(reason.clone())),
            None => match (standing.state, self.leaving) {
                (State::Final(Final::Stopped), Some(why)) => State::Final(Final::Left(why)),
                (state, _) => state,
            },
        };
        let next_start = match (&state, standing.next_start) {
            (State::Backoff | State::Reaping, Some(at)) => Some(WallClock::from_unix_millis(
                now.wall.as_unix_millis() + millis(at.since(now.mono)),
            )),
            _ => None,
        };
        let lives = !matches!(state, State::Backoff | State::Idle | State::Final(_));
        Status {
            run: standing.run,
            seq: self.status.as_ref().map_or(0, |told| told.seq),
            ready: standing.ready,
            serving: standing.serving,
            not_ready_reason: self.not_ready_reason(&state, texts),
            restarts: standing.restarts,
            user_restarts: standing.user_restarts,
            restart_no: self.restart_no,
            pid: self.process.as_ref().filter(|_| lives).map(|one| one.pid),
            first_failure: self.first_failure.as_deref().cloned(),
            last_failure: self.last_failure.as_deref().cloned(),
            next_start,
            state,
        }
    }

    /// Why clients are not sent here, in words.
    fn not_ready_reason(&self, state: &State, texts: &ProbeTexts) -> Option<String> {
        if self.machine.is_ready() {
            return None;
        }
        let config = self.machine.config();
        let said = |kind: ProbeKind| texts.get(kind).map(str::to_owned);
        match state {
            // That it waits for its startup probe is what the state says.
            State::Startup => said(ProbeKind::Startup),
            // What this run's probe found says more than why the run before ended.
            State::Up => said(ProbeKind::Readiness).or_else(|| {
                Some(match self.machine.standing().not_ready {
                    Some(reason) => reason.to_string(),
                    None if config.readiness.is_some() => "waits for its readiness probe".into(),
                    None => "has not run long enough".into(),
                })
            }),
            State::Final(end) => Some(end.to_string()),
            State::Idle | State::Starting => None,
            State::Stopping | State::Reaping | State::Backoff | State::Stuck => {
                if let Some(why) = self.leaving {
                    return Some(why.to_string());
                }
                let left = self.machine.standing().not_ready.map(ToString::to_string);
                let failed = self.last_failure.as_ref().map(|one| one.reason.to_string());
                left.or(failed)
            }
        }
    }
}

/// Why a replica is not run here at all.
fn refusal(standing: &Standing<'_>) -> Option<Reason> {
    let ((wanted, user), ours) = (standing.user, standing.worker_uid);
    if wanted != ours {
        return Some(Reason::StartFailed(StartFailure::Prepare(format!(
            "it is to run as {user} (uid {wanted}) and its worker runs as uid {ours}; \
             only an agent that runs as root can run jobs of other users"
        ))));
    }
    // What ran before the reboot is lost, and only the controller may place it again.
    (standing.assigned_in != standing.boot_id).then_some(Reason::Exit(ExitStatus::Unknown))
}

/// Whose threshold this is.
const fn deciding_probe(reason: &Reason) -> Option<ProbeKind> {
    match reason {
        Reason::Startup { .. } => Some(ProbeKind::Startup),
        Reason::Liveness { .. } => Some(ProbeKind::Liveness),
        Reason::Probe { .. } => Some(ProbeKind::Readiness),
        _ => None,
    }
}

fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
