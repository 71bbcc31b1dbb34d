//! What a worker writes down, so that the next one takes over without a restart.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use portreeve::identity::Run;
use portreeve::port::PortName;
use portreeve::supervision::{Failure, Final, Leaving, Machine, ProbeKind, Reason, State, Status};
use portreeve::time::{Monotonic, Now, WallClock};
use portreeve_api::local::{ProcessIdentity, ReplicaFolder};
use serde::{Deserialize, Serialize};

use crate::file::{self, Durability};
use crate::news::ProbeTexts;

/// Everything about one incarnation that outlives a worker, but not the machine it runs on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The boot in which it is true.
    pub(crate) boot_id: String,
    /// Where the replica stands.
    pub(crate) machine: Machine,
    /// Why the replica is not run at all, whatever the machine says.
    pub(crate) refused: Option<Reason>,
    /// The user's restart that was last acted on.
    pub(crate) restart_no: u64,
    /// This host's published address, as last told.
    pub(crate) host_address: IpAddr,
    /// Whether this host was seen to have it, at any time since.
    #[serde(default)]
    pub(crate) address_seen: bool,
    /// The addresses of ports that name a network, as last told.
    #[serde(default)]
    pub(crate) port_addresses: BTreeMap<PortName, IpAddr>,
    /// The main process of the living run.
    pub(crate) process: Option<ProcessIdentity>,
    /// The newest run that was ready once.
    pub(crate) ready_run: Option<Run>,
    /// The newest status that was told.
    pub(crate) status: Option<Status>,
    pub(crate) first_failure: Option<Failure>,
    pub(crate) last_failure: Option<Failure>,
    /// When the replica began, for people who read its record; the controller was heard of then at the latest.
    #[serde(default)]
    pub(crate) began: Option<Monotonic>,
    /// Why the host ends it by itself, if it does: what the machine calls a stop is told as this.
    #[serde(default)]
    pub(crate) leaving: Option<Leaving>,
}

impl Record {
    /// The record of an earlier worker of this folder, if there was one.
    ///
    /// # Errors
    ///
    /// The system's, or that it cannot be read; nothing may be started then, for a run may be living.
    pub(crate) fn read(folder: &ReplicaFolder) -> io::Result<Option<Self>> {
        file::read_json(&folder.machine())
    }

    /// Replaces the record in one step. It need not survive the machine: in another boot it is void.
    ///
    /// # Errors
    ///
    /// The system's; the earlier record is then still there.
    pub(crate) fn write(&self, folder: &ReplicaFolder) -> io::Result<()> {
        file::write_json(&folder.machine(), self, Durability::Written)
    }

    /// Whether nothing follows.
    pub(crate) fn is_final(&self) -> bool {
        self.refused.is_some() || self.machine.is_final()
    }

    /// Takes over what the machine newly calls a failure; whether there was one.
    pub(crate) fn note_failure(&mut self, now: Now, texts: &ProbeTexts) -> bool {
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
        self.first_failure.get_or_insert_with(|| failure.clone());
        self.last_failure = Some(failure);
        true
    }

    /// The status as it is now, with the number of the one that was told last.
    pub(crate) fn standing(&self, now: Now, texts: &ProbeTexts) -> Status {
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
            first_failure: self.first_failure.clone(),
            last_failure: self.last_failure.clone(),
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
