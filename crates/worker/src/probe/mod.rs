//! The probe runners: one check of one form, with its timeout inside, and what it found in words.
//!
//! A check never speaks to anybody but the replica: no redirect is followed, no proxy variable read, no name
//! resolved. Dropping its future ends it and everything it started.

mod address;
mod body;
mod command;
mod http;
mod listening;
pub(crate) mod owner;
mod source;
mod tcp;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use portreeve::port::{Port, PortName, PortRange};
use portreeve::profile::ListenerOwner;
use portreeve::supervision::{ProbeKind, ProbeOutcome, is_stall};

use crate::clock;

pub use crate::limits::Limits;
use address::Way;

pub(crate) use address::is_here;
pub use command::{CommandCheck, Leftovers};
pub use http::HttpCheck;
#[cfg(fuzzing)]
pub(crate) use http::read_answer;
pub use owner::Root;
pub use source::SourcePorts;

/// What to check, with every reference filled in.
#[derive(Clone, Debug)]
pub enum Check {
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
pub struct ProbeTarget {
    /// For which purpose: readiness asks where clients ask, the others where the service listens.
    pub kind: ProbeKind,
    /// The replica's TCP ports.
    pub ports: Vec<TargetPort>,
    /// Where clients are sent, but for ports that have an address of their own.
    pub address: IpAddr,
    /// Whether that has been an address of this host; one that another machine forwards to us never is.
    pub own_address: bool,
    /// Whether loopback listeners are as good as published ones.
    pub single_host: bool,
    /// Whether a listener on any address of this host will do.
    pub anywhere: bool,
    /// Where everything of the run lives.
    pub root: Option<Root>,
    /// Where connections to it begin.
    pub sources: SourcePorts,
}

/// One TCP port of the replica.
#[derive(Clone, Debug)]
pub struct TargetPort {
    /// Its number, or those of its block.
    pub numbers: PortRange,
    /// Where clients of it are sent, if not where those of the others are; with its name in the profile.
    pub own: Option<(PortName, IpAddr)>,
    /// Whether clients are told of it.
    pub publish: bool,
    /// Whose listener counts.
    pub owner: ListenerOwner,
}

impl ProbeTarget {
    /// The port this number belongs to.
    fn port(&self, number: Port) -> Option<&TargetPort> {
        let has =
            |port: &&TargetPort| port.numbers.first() <= number && number <= port.numbers.last();
        self.ports.iter().find(has)
    }

    /// Where clients of this number are sent.
    fn address_of(&self, number: Port) -> IpAddr {
        let own = self.port(number).and_then(|port| port.own.as_ref());
        own.map_or(self.address, |(_, address)| *address)
    }

    /// Whether a listener on loopback only will do for this number.
    fn accepts_loopback(&self, number: Port) -> bool {
        self.single_host || self.port(number).is_some_and(|port| !port.publish)
    }

    /// Whether this host has lost the address, if clients are sent to it. Whoever answers there now is another host,
    /// and nobody's silence there is the service's.
    fn has_lost(&self, address: IpAddr) -> bool {
        let mut networks = self.ports.iter().filter_map(|port| port.own.as_ref());
        let is_ours = address == self.address || networks.any(|(_, own)| *own == address);
        self.own_address && is_ours && !is_here(address)
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// What the machine counts.
    pub outcome: ProbeOutcome,
    /// What was found, for people; at most about 4 KiB.
    pub text: String,
    /// What this host had no room for, as the system's error number: no process, descriptor, memory or source port.
    pub shortage: Option<i32>,
}

impl ProbeReport {
    fn ok(text: impl Into<String>) -> Self {
        Self {
            outcome: ProbeOutcome::Ok,
            text: text.into(),
            shortage: None,
        }
    }

    fn fail(text: impl Into<String>) -> Self {
        Self {
            outcome: ProbeOutcome::Fail,
            text: text.into(),
            shortage: None,
        }
    }

    fn timeout(timeout: Duration) -> Self {
        Self {
            outcome: ProbeOutcome::Timeout,
            text: format!("no answer within {}", portreeve::time::Spelled(timeout)),
            shortage: None,
        }
    }

    /// Nobody can be asked at the published address, which is this host's no more.
    fn lost(address: IpAddr) -> Self {
        Self::inconclusive(format!("{address} is no address of this host any more"))
    }

    /// It says nothing about the service, for this reason.
    pub(crate) fn inconclusive(text: impl Into<String>) -> Self {
        Self {
            outcome: ProbeOutcome::Inconclusive,
            text: text.into(),
            shortage: None,
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
                shortage: errno,
                ..Self::inconclusive(text)
            }
        } else {
            Self::fail(text)
        }
    }
}

/// Runs one check of `target` that takes at most `timeout`, once it may begin: what an earlier one left is gone, and
/// the limits of the host leave room. Neither may take longer than `patience`. `begins` is called when it begins.
pub async fn probe(
    check: Check,
    target: ProbeTarget,
    timeout: Duration,
    patience: Duration,
    begins: impl FnOnce(),
) -> ProbeReport {
    let _place = match &check {
        Check::Command(check) => match command::turn(check, patience).await {
            Ok(place) => Some(place),
            Err(report) => return report,
        },
        _ => None,
    };
    begins();
    let way = match &check {
        Check::Http(check) => Some(Way::of(check.port, check.host, &target)),
        Check::Tcp { port, host } => Some(Way::of(*port, *host, &target)),
        Check::Command(_) | Check::Listening => None,
    };
    let lost = || {
        let to = way.as_ref()?.to.ip();
        target.has_lost(to).then(|| ProbeReport::lost(to))
    };
    if let Some(report) = lost() {
        return report;
    }
    let report = within(timeout, async {
        match (&check, &way) {
            (Check::Http(check), Some(way)) => http::check(check, way, &target).await,
            (Check::Tcp { .. }, Some(way)) => tcp::check(way, &target).await,
            (Check::Command(check), _) => command::check(check).await,
            _ => listening::check(&target).await,
        }
    })
    .await;
    match report.outcome {
        // It may have gone while we asked.
        ProbeOutcome::Fail | ProbeOutcome::Timeout => lost().unwrap_or(report),
        _ => report,
    }
}

/// What `checked` finds within `timeout`.
async fn within(timeout: Duration, checked: impl Future<Output = ProbeReport>) -> ProbeReport {
    let begun = clock::monotonic();
    match tokio::time::timeout(timeout, checked).await {
        Ok(report) => report,
        // We were not running for a part of it, so it says nothing.
        Err(_) if is_stall(begun + timeout, clock::monotonic(), timeout) => {
            ProbeReport::inconclusive(format!(
                "{}, but this worker itself stood still",
                ProbeReport::timeout(timeout).text
            ))
        }
        Err(_) => ProbeReport::timeout(timeout),
    }
}

#[cfg(test)]
mod binds_test;
#[cfg(test)]
mod connecting_test;
#[cfg(test)]
mod own_address_test;
