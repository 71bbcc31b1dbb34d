//! How a probe of a virtual replica ends: whether somebody listens is looked at, everything else is scripted.

use std::time::Duration;

use portreeve::port::{PortName, PortRange, Protocol};
use portreeve::port_pool::PortGrant;
use portreeve::profile::{DeclaredPort, ListenerOwner, Probe, Profile};
use portreeve::supervision::{ProbeKind, ProbeOutcome};
use portreeve::time::{Monotonic, Spelled};

use super::Place;
use super::ports::{Holder, Listeners};
use super::process::Processes;
use crate::scenario::Answer;

/// Whom a probe asks.
pub(crate) struct Target<'a> {
    pub(crate) place: Place,
    pub(crate) profile: &'a Profile,
    pub(crate) grant: &'a PortGrant,
    pub(crate) listeners: &'a Listeners,
    pub(crate) processes: &'a Processes,
}

impl Target<'_> {
    /// How long the probe takes that begins now, and what it finds, with words for people.
    pub(crate) fn probe(
        &self,
        now: Monotonic,
        kind: ProbeKind,
        timeout: Duration,
    ) -> (Duration, ProbeOutcome, String) {
        let probe = match kind {
            ProbeKind::Startup => self.profile.startup.as_ref(),
            ProbeKind::Liveness => self.profile.liveness.as_ref(),
            ProbeKind::Readiness => self.profile.readiness.as_ref(),
        };
        let missing = match probe {
            Some(Probe::Tcp { port, .. }) => self.nobody_at(port),
            Some(Probe::Http(http)) => self.nobody_at(&http.port),
            Some(Probe::Listening) => {
                let mut published = self.profile.ports.iter();
                published.find_map(|port| {
                    let asked = port.publish && port.protocol.has_tcp();
                    asked.then(|| self.nobody_at(&port.name)).flatten()
                })
            }
            Some(Probe::Command(_)) | None => None,
        };
        if let Some(words) = missing {
            return (Duration::ZERO, ProbeOutcome::Fail, words);
        }
        let by_process = matches!(probe, Some(Probe::Http(_) | Probe::Command(_)));
        match self.processes.answer(now, kind, by_process) {
            Answer::After(takes, outcome) if takes < timeout => {
                let words = match outcome {
                    ProbeOutcome::Ok => String::new(),
                    _ => "as its script says".to_owned(),
                };
                (takes, outcome, words)
            }
            Answer::After(..) | Answer::Never => {
                let words = format!("no answer within {}", Spelled(timeout));
                (timeout, ProbeOutcome::Timeout, words)
            }
        }
    }

    /// Why nobody of ours can be asked there, if so.
    fn nobody_at(&self, name: &PortName) -> Option<String> {
        let granted = self.grant.port(name)?;
        if !granted.protocol.has_tcp() {
            return None;
        }
        let declared = self.profile.ports.iter().find(|port| port.name == *name);
        let owner = declared.map_or(ListenerOwner::Run, |port: &DeclaredPort| port.owner);
        let first = granted.numbers.first();
        match self.listeners.of(Protocol::Tcp, first) {
            Some(holder) if counts(holder, owner, self.place) => None,
            Some(_) => Some(format!("somebody else listens on {first}")),
            None => Some(format!("nobody listens on {first}")),
        }
    }
}

/// Whether this listener counts as the replica's own.
pub(crate) fn counts(holder: Holder, owner: ListenerOwner, place: Place) -> bool {
    match (holder, owner) {
        (Holder::Process(of, _), ListenerOwner::Run) => of == place,
        // All of ours run as one user here, and strangers as another.
        (Holder::Process(..), ListenerOwner::User) | (_, ListenerOwner::Any) => true,
        (Holder::Stranger, _) => false,
    }
}

/// Who listens on a granted number without being the replica's own: the number, its side, and who.
pub(crate) fn others<'a>(
    grant: &'a PortGrant,
    listeners: &'a Listeners,
    own: impl Fn(&PortName, Holder) -> bool + 'a,
) -> Option<(portreeve::port::Port, Protocol)> {
    grant.ports.iter().find_map(|granted| {
        let numbers: PortRange = granted.numbers;
        super::ports::sides(granted.protocol).find_map(|side| {
            let mut found = listeners.within(side, numbers);
            let other = found.find(|(_, holder)| !own(&granted.name, *holder));
            other.map(|(number, _)| (number, side))
        })
    })
}
