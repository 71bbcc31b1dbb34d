//! Why a replica waits, in one sentence summed over the hosts: which port, which host, who has it.

use crate::identity::{HostId, HostName, ServiceId};
use crate::port::PortRanges;
use crate::port_pool::{Cause, PortRequest, PortState, Side, Stranger, Why, WhyPort};
use crate::profile::Profile;
use crate::time::Spelled;

use super::machine::Registry;

/// How many hosts are named before the rest is counted.
const HOSTS_NAMED: usize = 3;

impl Registry {
    /// Why none of the hosts takes the request.
    pub(super) fn why_pending(
        &mut self,
        service: ServiceId,
        profile: &Profile,
        request: &PortRequest,
        candidates: &[HostId],
    ) -> String {
        if !self.lives.values().any(|life| life.reported) {
            return "no host has reported yet; a host does once its agent runs".to_owned();
        }
        let eligible: Vec<(HostName, HostId)> = self
            .eligible_hosts(profile)
            .into_iter()
            .map(|host| (host.name().clone(), host.id))
            .collect();
        if eligible.is_empty() {
            return "no host matches the profile's placement".to_owned();
        }
        let mut hosts = eligible;
        hosts.sort();
        let more = hosts.len().saturating_sub(HOSTS_NAMED);
        let mut sentences: Vec<String> = Vec::new();
        for (name, host) in hosts.into_iter().take(HOSTS_NAMED) {
            sentences.push(if candidates.contains(&host) {
                self.why_not_here(service, request, &name, host)
            } else if !self.has_reported(host) {
                format!("host {name} has not reported since the controller started")
            } else if self.has_address(host) {
                format!("host {name} has a replica of the service already")
            } else {
                format!("host {name} has no address to publish; `portreeve host {name}` says why")
            });
        }
        if more > 0 {
            sentences.push(format!("{more} more hosts do not fit either"));
        }
        sentences.join("; ")
    }

    fn has_address(&self, host: HostId) -> bool {
        let host = self.truth.hosts.find(&host);
        host.is_some_and(|host| host.facts.published.is_some())
    }

    fn why_not_here(
        &mut self,
        service: ServiceId,
        request: &PortRequest,
        name: &HostName,
        host: HostId,
    ) -> String {
        let whys = self.pools.explain(self.now.mono, host, request, service);
        match whys.first() {
            Some(why) => self.sentence(service, request, name, host, why),
            // It fits by itself: the host has a replica of a per-host service, or a waiting one came first.
            None => format!("host {name} has a replica of the service already"),
        }
    }

    /// One cause as a sentence that names port, host and holder.
    fn sentence(
        &self,
        asker: ServiceId,
        request: &PortRequest,
        name: &HostName,
        host: HostId,
        why: &Why,
    ) -> String {
        let Some(port) = &why.port else {
            return format!("host {name}: {}", why.cause.code().as_str().to_lowercase());
        };
        let at = match port.number {
            Some(number) => format!("port {number}/{} on host {name}", port.protocol),
            None => format!("port {} ({}) on host {name}", port.name, port.protocol),
        };
        match &why.cause {
            Cause::Held { by } => format!(
                "{at} is held by {}",
                self.holder(asker, by.service, by.index)
            ),
            Cause::Releasing { by } => format!(
                "{at} is held by {} until that has stopped",
                self.holder(asker, by.service, by.index)
            ),
            Cause::Cooling { left } => {
                let seconds = std::time::Duration::from_secs(left.as_secs().max(1));
                format!("{at} was just freed and rests {}", Spelled(seconds))
            }
            Cause::Reserved => format!("{at} is reserved by the site"),
            Cause::Foreign(stranger) => {
                format!(
                    "{at} is in use by a process outside portreeve{}",
                    process(stranger)
                )
            }
            Cause::NotInPool => format!("{at} is outside the host's port ranges"),
            Cause::Awaited => format!("{at} is left to a replica that waits for it"),
            Cause::TooFew { have, want } => self.too_few(request, name, host, port, *have, *want),
            Cause::NoBlock { size } => {
                let range = self.drawn_from(request, host, port);
                format!("no {size} consecutive free ports in {range} on host {name}")
            }
            other => format!("{at}: {}", other.code().as_str().to_lowercase()),
        }
    }

    fn too_few(
        &self,
        request: &PortRequest,
        name: &HostName,
        host: HostId,
        port: &WhyPort,
        have: u32,
        want: u32,
    ) -> String {
        let range = self.drawn_from(request, host, port);
        let all = range.count();
        let side = if port.protocol.has_tcp() {
            Side::Tcp
        } else {
            Side::Udp
        };
        let held = range
            .iter()
            .filter(|number| {
                let state = self.pools.state(host, side, *number);
                matches!(state, PortState::Held { .. } | PortState::Releasing { .. })
            })
            .count();
        if want == 1 {
            format!("no free port in {range} on host {name} ({held} of {all} held)")
        } else {
            format!(
                "too few free ports in {range} on host {name}: {want} are asked for, {have} are free"
            )
        }
    }

    /// The numbers that an "any" of the request may take on the host.
    fn drawn_from(&self, request: &PortRequest, host: HostId, port: &WhyPort) -> PortRanges {
        let dynamic = self
            .truth
            .hosts
            .find(&host)
            .map(|host| host.facts.dynamic.clone())
            .unwrap_or_default();
        let within = request
            .as_slice()
            .iter()
            .find(|wanted| wanted.name == port.name)
            .and_then(|wanted| wanted.within.clone());
        match within {
            Some(within) => dynamic.intersection(&within),
            None => dynamic,
        }
    }

    /// The holder's name, if the owner of the asking service may know it.
    fn holder(&self, asker: ServiceId, holder: ServiceId, index: u32) -> String {
        let asker = self.truth.services.find(&asker);
        let holder = self.truth.services.find(&holder);
        match asker.zip(holder) {
            Some((asker, holder))
                if asker
                    .owner
                    .may_see(&holder.owner.user, &holder.profile().visibility) =>
            {
                format!("{} replica {index}", holder.name)
            }
            _ => "a service of another user".to_owned(),
        }
    }
}

/// The process, as far as it could be read.
pub(super) fn process(stranger: &Stranger) -> String {
    match (stranger.pid, &stranger.comm) {
        (Some(pid), Some(comm)) => format!(" (pid {pid}, {comm})"),
        (Some(pid), None) => format!(" (pid {pid})"),
        (None, Some(comm)) => format!(" ({comm})"),
        (None, None) => String::new(),
    }
}
