//! The probe runners: one check of one form, with its timeout inside, and what it found in words.
//!
//! A check never speaks to anybody but the replica: no redirect is followed, no proxy variable read, no name
//! resolved. Dropping its future ends it and everything it started.

mod address;
mod command;
mod http;
mod listening;
pub(crate) mod owner;
mod tcp;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use portreeve::port::{Port, PortRange};
use portreeve::profile::ListenerOwner;
use portreeve::supervision::{ProbeKind, ProbeOutcome};

pub(crate) use command::{CommandCheck, Leftovers};
pub(crate) use http::HttpCheck;

/// What to check, with every reference filled in.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// One GET.
    Http(HttpCheck),
    /// One connect.
    Tcp {
        /// The number.
        port: Port,
        /// A literal address instead of the replica's.
        host: Option<IpAddr>,
    },
    /// A program whose exit code decides.
    Command(CommandCheck),
    /// No connection: every published TCP port has a listener of the replica.
    Listening,
}

/// Whom to check.
#[derive(Clone, Debug)]
pub(crate) struct ProbeTarget {
    /// For which purpose: readiness asks where clients ask, the others where the service listens.
    pub(crate) kind: ProbeKind,
    /// The replica's TCP ports.
    pub(crate) ports: Vec<TargetPort>,
    /// Where clients are sent.
    pub(crate) address: IpAddr,
    /// Whether loopback listeners are as good as published ones.
    pub(crate) single_host: bool,
    /// Where everything of the run lives.
    pub(crate) root: Option<owner::Root>,
}

/// One TCP port of the replica.
#[derive(Clone, Debug)]
pub(crate) struct TargetPort {
    pub(crate) numbers: PortRange,
    /// Whether clients are told of it.
    pub(crate) publish: bool,
    /// Whose listener counts.
    pub(crate) owner: ListenerOwner,
}

impl ProbeTarget {
    /// The port this number belongs to.
    fn port(&self, number: Port) -> Option<&TargetPort> {
        let has =
            |port: &&TargetPort| port.numbers.first() <= number && number <= port.numbers.last();
        self.ports.iter().find(has)
    }

    /// Whether a listener on loopback only will do for this number.
    fn accepts_loopback(&self, number: Port) -> bool {
        self.single_host || self.port(number).is_some_and(|port| !port.publish)
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeReport {
    /// What the machine counts.
    pub(crate) outcome: ProbeOutcome,
    /// What was found, for people; at most about 4 KiB.
    pub(crate) text: String,
}

impl ProbeReport {
    fn ok(text: impl Into<String>) -> Self {
        Self {
            outcome: ProbeOutcome::Ok,
            text: text.into(),
        }
    }

    fn fail(text: impl Into<String>) -> Self {
        Self {
            outcome: ProbeOutcome::Fail,
            text: text.into(),
        }
    }

    fn timeout(timeout: Duration) -> Self {
        Self {
            outcome: ProbeOutcome::Timeout,
            text: format!("no answer within {}", portreeve::time::Spelled(timeout)),
        }
    }

    /// A refusal by this host that says nothing about the service, or a failure of the service.
    fn of_refusal(what: &str, cause: &io::Error) -> Self {
        use nix::errno::Errno;
        let ours = [
            Errno::EAGAIN,
            Errno::ENOMEM,
            Errno::EMFILE,
            Errno::ENFILE,
            Errno::ENOBUFS,
            // Out of source ports.
            Errno::EADDRNOTAVAIL,
        ];
        let errno = cause.raw_os_error();
        let words = match errno {
            Some(errno) => portreeve::supervision::StartFailure::Errno(errno).to_string(),
            None => cause.to_string(),
        };
        let text = format!("{what}: {words}");
        if ours.iter().any(|own| errno == Some(*own as i32)) {
            Self {
                outcome: ProbeOutcome::Inconclusive,
                text,
            }
        } else {
            Self::fail(text)
        }
    }
}

/// Runs one check of `target` that takes at most `timeout`.
pub(crate) async fn probe(check: Check, target: ProbeTarget, timeout: Duration) -> ProbeReport {
    let checked = async {
        match &check {
            Check::Http(check) => http::check(check, &target).await,
            Check::Tcp { port, host } => tcp::check(*port, *host, &target).await,
            Check::Command(check) => command::check(check).await,
            Check::Listening => listening::check(&target).await,
        }
    };
    match tokio::time::timeout(timeout, checked).await {
        Ok(report) => report,
        Err(_) => ProbeReport::timeout(timeout),
    }
}

#[cfg(test)]
mod connecting_test;
