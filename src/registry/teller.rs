//! Causes in words: for one reader, who may not see every holder, at one moment.

use std::time::Duration;

use crate::host_addr::Prefix;
use crate::identity::HostName;
use crate::port::PortRanges;
use crate::port_pool::{Cause, Stranger};
use crate::rights::Caller;
use crate::time::{Monotonic, Spelled};

use super::reasons::{HolderView, ReasonView};
use super::survey::{Holder, Obstacle, Obstruction, Surveyed, whole_seconds};

/// Tells causes to one reader at one moment.
pub(super) struct Teller<'a> {
    pub(super) reader: &'a Caller,
    pub(super) now: Monotonic,
}

impl Teller<'_> {
    pub(super) fn reasons<'a>(&'a self, at: &'a Surveyed) -> impl Iterator<Item = ReasonView> + 'a {
        at.against.iter().map(|it| self.reason(&at.host, it))
    }

    fn reason(&self, host: &HostName, it: &Obstacle) -> ReasonView {
        let code = it.code();
        let mut view = ReasonView {
            host: host.clone(),
            code: code.word().to_owned(),
            code_number: code.number(),
            port: it.port.as_ref().map(|port| port.name.clone()),
            number: it.port.as_ref().and_then(|port| port.number),
            protocol: it.port.as_ref().map(|port| port.protocol),
            holder: self.seen(it).map(|holder| HolderView {
                service: holder.service.clone(),
                replica: holder.index,
            }),
            left_s: it.until.map(|until| self.left(until).as_secs()),
            pid: None,
            comm: None,
            have: None,
            want: None,
            range: it.offer.as_ref().map(|offer| offer.range.clone()),
            network: None,
            sentence: self.sentence(host, &[it]),
        };
        match &it.cause {
            Obstruction::NotInNetwork { network, .. } => view.network = Some(network.clone()),
            Obstruction::Allocator(Cause::Foreign(stranger)) => {
                view.pid = stranger.pid;
                view.comm = stranger.comm.as_ref().map(ToString::to_string);
            }
            Obstruction::Allocator(Cause::TooFew { have, want }) => {
                (view.have, view.want) = (Some(*have), Some(*want));
            }
            Obstruction::Allocator(Cause::NoBlock { size }) => view.want = Some((*size).into()),
            _ => {}
        }
        view
    }

    /// Everything against one host, equal causes of several ports in one sentence.
    pub(super) fn host(&self, at: &Surveyed) -> String {
        let mut groups: Vec<Vec<&Obstacle>> = Vec::new();
        for it in &at.against {
            let is_alike = |group: &&mut Vec<&Obstacle>| self.are_alike(group[0], it);
            match groups.iter_mut().find(is_alike) {
                Some(group) => group.push(it),
                None => groups.push(vec![it]),
            }
        }
        if groups.is_empty() {
            return format!("host {} fits now", at.host);
        }
        let mut sentences: Vec<String> = groups
            .iter()
            .map(|group| self.sentence(&at.host, group))
            .collect();
        if at.left_out > 0 {
            sentences.push(format!("and {} more on host {}", at.left_out, at.host));
        }
        sentences.join("; ")
    }

    /// Whether two causes differ in nothing but the number.
    fn are_alike(&self, one: &Obstacle, other: &Obstacle) -> bool {
        let numbered = |it: &Obstacle| it.port.as_ref().is_some_and(|port| port.number.is_some());
        numbered(one)
            && numbered(other)
            && one.code() == other.code()
            && self.predicate(one, false) == self.predicate(other, false)
    }

    /// One cause of one or several ports of a host, in words.
    fn sentence(&self, host: &HostName, group: &[&Obstacle]) -> String {
        let it = group[0];
        let cause = match &it.cause {
            Obstruction::Allocator(cause) => cause,
            Obstruction::OnePerHost => {
                return format!("host {host} has a replica of the service already");
            }
            Obstruction::OtherOwner => {
                return format!(
                    "host {host} belongs to another scheduler's plugin, which gives its ports"
                );
            }
            Obstruction::ShutsDown => return format!("host {host} is shutting down"),
            Obstruction::Limit(limit) => return format!("LIMIT: {limit}"),
            Obstruction::NotInNetwork { network, prefixes } => {
                let port = it.port.as_ref().map_or("", |port| port.name.as_str());
                return match prefixes {
                    Some(prefixes) => format!(
                        "host {host} has no address in network {network} ({}) for port {port}; \
                         `portreeve host {host}` shows those it has",
                        Prefix::alternatives(prefixes)
                    ),
                    None => format!(
                        "host {host} has no address for port {port}: the controller has no network {network} any more"
                    ),
                };
            }
        };
        let Some(port) = &it.port else {
            return about_host(host, cause);
        };
        let nothing = PortRanges::default();
        let range = it.offer.as_ref().map_or(&nothing, |offer| &offer.range);
        match cause {
            Cause::TooFew { want: 1, .. } => {
                let taken = it.offer.as_ref().and_then(|offer| offer.taken);
                let taken = taken.map_or_else(String::new, |taken| {
                    let held = format!("{} of {} held", taken.held, range.count());
                    match taken.left {
                        0 => format!(" ({held})"),
                        left => format!(" ({held}, {left} left to other ports)"),
                    }
                });
                return format!("no free port in {range} on host {host}{taken}");
            }
            Cause::TooFew { have, want } => {
                return format!(
                    "too few free ports in {range} on host {host}: {want} are asked for, {have} are free"
                );
            }
            Cause::NoBlock { size } => {
                return format!("no {size} consecutive free ports in {range} on host {host}");
            }
            _ => {}
        }
        let subjects: Vec<String> = group.iter().filter_map(|it| subject(it)).collect();
        match &subjects[..] {
            [] => format!(
                "port {} ({}) on host {host} {}",
                port.name,
                port.protocol,
                self.predicate(it, false)
            ),
            [only] => format!("port {only} on host {host} {}", self.predicate(it, false)),
            [others @ .., last] => format!(
                "ports {} and {last} on host {host} {}",
                others.join(", "),
                self.predicate(it, true)
            ),
        }
    }

    /// What is said of a port, or of several.
    fn predicate(&self, it: &Obstacle, plural: bool) -> String {
        let be = if plural { "are" } else { "is" };
        let Obstruction::Allocator(cause) = &it.cause else {
            return String::new();
        };
        match cause {
            Cause::Held { .. } => format!("{be} held by {}", self.holder(it)),
            Cause::Releasing { .. } => {
                format!("{be} held by {} until that has stopped", self.holder(it))
            }
            Cause::Cooling { left } => {
                let left = it.until.map_or(*left, |until| self.left(until));
                let (was, rest) = if plural {
                    ("were", "rest")
                } else {
                    ("was", "rests")
                };
                format!("{was} just freed and {rest} {}", Spelled(left))
            }
            Cause::Reserved => format!("{be} reserved by the site"),
            Cause::Foreign(stranger) => format!(
                "{be} in use by a process outside portreeve{}",
                process(stranger)
            ),
            Cause::NotInPool => {
                let offer = it.offer.as_ref();
                let range = offer.map_or_else(String::new, |offer| format!(" {}", offer.range));
                match offer.and_then(|offer| offer.narrowed.as_ref()) {
                    Some(narrowed) => format!(
                        "may only be in {narrowed}, outside the host's dynamic range{range}"
                    ),
                    None => format!("{be} outside the host's port ranges{range}"),
                }
            }
            Cause::Awaited => format!("{be} left to a replica that waits for it"),
            other => format!(": {}", other.code().as_str().to_lowercase()),
        }
    }

    /// `8888/tcp HELD by web.alice/0 on n1`.
    pub(super) fn short(&self, host: &HostName, it: &Obstacle) -> String {
        let word = it.code().word();
        let Some(port) = &it.port else {
            return format!("{word} on {host}");
        };
        let subject = subject(it).unwrap_or_else(|| port.name.to_string());
        let detail = match &it.cause {
            Obstruction::Allocator(Cause::Held { .. } | Cause::Releasing { .. }) => self
                .seen(it)
                .map(|holder| format!(" by {}/{}", holder.service, holder.index)),
            Obstruction::Allocator(Cause::Cooling { .. }) => it
                .until
                .map(|until| format!(" {}", Spelled(self.left(until)))),
            Obstruction::Allocator(Cause::Foreign(stranger)) => Some(stranger.to_string()),
            Obstruction::Allocator(Cause::TooFew { have, want }) => {
                Some(format!(" ({have} of {want})"))
            }
            Obstruction::Allocator(Cause::NoBlock { size }) => Some(format!(" OF {size}")),
            Obstruction::NotInNetwork { network, .. } => Some(format!(" in network {network}")),
            _ => None,
        };
        format!("{subject} {word}{} on {host}", detail.unwrap_or_default())
    }

    /// The holder, if the reader may know it.
    fn seen<'a>(&self, it: &'a Obstacle) -> Option<&'a Holder> {
        let holder = it.holder.as_ref();
        holder.filter(|holder| self.reader.may_see(holder.holding()))
    }

    fn holder(&self, it: &Obstacle) -> String {
        match self.seen(it) {
            Some(holder) => format!("{} replica {}", holder.service, holder.index),
            None if it.holder.is_some() => "a service of another user".to_owned(),
            None => "another service".to_owned(),
        }
    }

    /// Whole seconds, rounded up: people read it, and 0 s would say that it is over.
    fn left(&self, until: Monotonic) -> Duration {
        whole_seconds(until.since(self.now)).max(Duration::from_secs(1))
    }
}

fn about_host(host: &HostName, cause: &Cause) -> String {
    match cause {
        Cause::HostNotReported => {
            format!("host {host} has not reported since the controller started")
        }
        Cause::NoAddress => {
            format!("host {host} has no address to publish; `portreeve host {host}` says why")
        }
        Cause::HostDrained => format!("host {host} is drained"),
        Cause::HostSuspect => format!("host {host} was not heard of for a while"),
        Cause::HostLost => format!("host {host} is lost"),
        other => format!("host {host}: {}", other.code().as_str().to_lowercase()),
    }
}

/// `8888/tcp`, where the cause is about a number.
fn subject(it: &Obstacle) -> Option<String> {
    let port = it.port.as_ref()?;
    let number = port.number?;
    Some(format!("{number}/{}", port.protocol))
}

/// ` (pid 811, nginx)`, as far as the process could be read.
fn process(stranger: &Stranger) -> String {
    match (stranger.pid, &stranger.comm) {
        (Some(pid), Some(comm)) => format!(" (pid {pid}, {comm})"),
        (Some(pid), None) => format!(" (pid {pid})"),
        (None, Some(comm)) => format!(" ({comm})"),
        (None, None) => String::new(),
    }
}
