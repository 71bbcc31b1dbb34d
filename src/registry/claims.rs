//! The addresses at which a host is published: of several machines that claim one, one is published there.
//!
//! Else clients of one host's services would reach another's. Who was there first stays; a machine that has been
//! silent for a while makes way, so that a host may be given another name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::identity::HostId;

use super::machine::Registry;
use super::records::Phase;

/// How long a host keeps its address against others after its last sign of life: four leases.
const KEPT_FOR: Duration = Duration::from_secs(20);

/// Which hosts say that an address is theirs.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_address: BTreeMap<IpAddr, BTreeSet<HostId>>,
    of_host: BTreeMap<HostId, BTreeSet<IpAddr>>,
}

impl Claims {
    /// Notes what a host claims now in place of what it claimed before.
    pub(super) fn note(&mut self, host: HostId, mut now: BTreeSet<IpAddr>) {
        // Each machine has a loopback of its own; only `single_host` lets one through to here.
        now.retain(|address| !address.is_loopback());
        let before = self.of_host.remove(&host).unwrap_or_default();
        for address in before.difference(&now) {
            if let Some(hosts) = self.by_address.get_mut(address) {
                hosts.remove(&host);
                if hosts.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
        for address in &now {
            self.by_address.entry(*address).or_default().insert(host);
        }
        if !now.is_empty() {
            self.of_host.insert(host, now);
        }
    }
}

impl Registry {
    /// The address at which clients are sent to the host; `None` too where another host is published there.
    pub(super) fn published(&self, id: HostId) -> Option<IpAddr> {
        let host = self.truth.hosts.find(&id)?;
        let life = self.lives.get(&id);
        let is_double = |address: &IpAddr| life.is_some_and(|it| it.doubles.contains_key(address));
        host.facts.published.filter(|address| !is_double(address))
    }

    /// Takes up what the stored hosts claim.
    pub(super) fn take_up_claims(&mut self) {
        let stored = self.truth.known_hosts();
        let stored: Vec<_> = stored.map(|(id, host)| (*id, host.facts.clone())).collect();
        for (id, facts) in stored {
            // One after the other, so that the first of several has it.
            self.claim_addresses(id, &facts);
            self.settle_address(id);
        }
    }

    /// Finds out anew whether another host is published at an address of this one, which was just heard of, and tells
    /// whom it concerns.
    pub(super) fn settle_address(&mut self, id: HostId) {
        let claimed = self.claims.of_host.get(&id).into_iter().flatten();
        let doubles: BTreeMap<IpAddr, HostId> = claimed
            .filter_map(|address| Some((*address, self.published_there(id, *address)?)))
            .collect();
        self.make_way(id, &doubles);
        self.doubles_become(id, doubles);
    }

    /// Whoever else is published where the host is from now on was silent for long: not so any more, or clients of what
    /// is still listed there would reach this one.
    fn make_way(&mut self, id: HostId, doubles: &BTreeMap<IpAddr, HostId>) {
        let claimed = self.claims.of_host.get(&id).into_iter().flatten();
        let taken = claimed.filter(|address| !doubles.contains_key(address));
        let others = taken.flat_map(|address| {
            let others = self.published_others(id, *address);
            others.map(|other| (other, *address))
        });
        let others: Vec<(HostId, IpAddr)> = others.collect();
        for (other, address) in others {
            let doubles = self.lives.get(&other).map(|life| life.doubles.clone());
            let mut doubles = doubles.unwrap_or_default();
            doubles.insert(address, id);
            self.doubles_become(other, doubles);
        }
    }

    fn doubles_become(&mut self, id: HostId, doubles: BTreeMap<IpAddr, HostId>) {
        let Some(life) = self.lives.get_mut(&id) else {
            return;
        };
        if life.doubles != doubles {
            life.doubles = doubles;
            if !life.networks.is_empty() {
                self.shown.orders.insert(id);
            }
            self.address_moved(id);
        }
    }

    /// The other machine that is published at an address that this host claims, and not silent.
    fn published_there(&self, id: HostId, address: IpAddr) -> Option<HostId> {
        let mut others = self.published_others(id, address);
        others.find(|other| {
            let life = self.lives.get(other);
            life.is_some_and(|life| self.now.mono.since(life.heard) < KEPT_FOR)
        })
    }

    /// The other machines that are published at an address that this host claims.
    fn published_others(&self, id: HostId, address: IpAddr) -> impl Iterator<Item = HostId> {
        let host = self.truth.hosts.find(&id);
        let claimants = self.claims.by_address.get(&address).into_iter().flatten();
        claimants.copied().filter(move |other| {
            // Agents of one machine may share its address: their numbers are disjoint.
            let elsewhere = host.zip(self.truth.hosts.find(other));
            let elsewhere =
                elsewhere.is_some_and(|(one, other)| one.facts.boot_id != other.facts.boot_id);
            let life = self.lives.get(other);
            let is_there = life.is_some_and(|life| !life.doubles.contains_key(&address));
            *other != id && elsewhere && is_there
        })
    }

    /// The host is published elsewhere, or not any more: tells everybody whom it concerns.
    pub(super) fn address_moved(&mut self, id: HostId) {
        self.shown.hosts_news.insert(id);
        // An address may be what somebody waits for.
        self.waits.wake();
        let all = self.truth.replicas.iter();
        let here = all.filter(|(_, it)| matches!(&it.phase, Phase::Placed(at) if at.host == id));
        for (key, _) in here {
            self.shown.news.insert_replica(*key);
            self.attention.insert(key.0);
        }
        let moved_away = self.still_shown_on(|host| host == id);
        for key in moved_away.copied().collect::<Vec<_>>() {
            self.shown.news.insert_replica(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Rig, facts, web};
    use super::super::{HostFacts, Input};
    use super::*;
    use crate::supervision::State;

    fn claims(host: &str, last: u8) -> HostFacts {
        HostFacts {
            published: Some([10, 0, 0, last].into()),
            boot_id: format!("boot of {host}"),
            ..facts(host)
        }
    }

    fn lease(host: &str) -> Input {
        Input::Lease {
            host: host.parse().unwrap(),
            skew_ms: None,
        }
    }

    fn shown(rig: &Rig, host: &str) -> (Option<IpAddr>, Vec<String>) {
        let view = rig.registry.view();
        let host = &view.hosts[&host.parse().unwrap()];
        (host.address, host.warnings.clone())
    }

    fn there(last: u8) -> Option<IpAddr> {
        Some([10, 0, 0, last].into())
    }

    #[test]
    fn an_address_that_two_hosts_claim_is_published_once_and_the_other_is_named() {
        let mut rig = Rig::new();
        rig.tell(Input::HostReport(claims("n1", 7)));
        rig.submit(&web("web", 1)).unwrap();
        rig.status("web", 0, |status| {
            (status.state, status.ready) = (State::Up, true);
        });
        rig.tell(Input::HostReport(claims("n2", 7)));
        assert_eq!(shown(&rig, "n1"), (there(7), Vec::new()));
        let (address, warnings) = shown(&rig, "n2");
        assert_eq!(address, None);
        assert!(
            warnings[0].starts_with("10.0.0.7 is published as the address of n1 already"),
            "{warnings:?}"
        );
        assert_eq!(rig.endpoint("web", 0).unwrap().address, there(7));
        // Given another one it is published at once.
        rig.tell(Input::HostReport(claims("n2", 8)));
        assert_eq!(shown(&rig, "n2"), (there(8), Vec::new()));
        // The first one takes what is the second's now: all of it leaves the lists.
        rig.tell(Input::HostReport(claims("n1", 8)));
        assert_eq!(shown(&rig, "n1").0, None);
        assert_eq!(rig.states("web"), ["not ready"]);
        assert_eq!(shown(&rig, "n2").0, there(8));
        // And comes back to it with the next sign of life after the second has moved.
        rig.tell(Input::HostReport(claims("n2", 9)));
        rig.tell(lease("n1"));
        assert_eq!(shown(&rig, "n1").0, there(8));
        assert_eq!(rig.states("web"), ["ready"]);
    }

    #[test]
    fn a_silent_machine_makes_way_for_its_new_name_and_a_restart_changes_nothing() {
        let mut rig = Rig::new();
        rig.tell(Input::HostReport(claims("old", 7)));
        rig.tell(Input::HostReport(claims("new", 7)));
        assert_eq!(shown(&rig, "new").0, None);
        // What hosts say of themselves is written within a second.
        rig.pass(Duration::from_secs(1));
        let mut rig = rig.restart();
        assert_eq!(
            (shown(&rig, "old").0, shown(&rig, "new").0),
            (there(7), None)
        );
        rig.tell(Input::HostReport(claims("new", 7)));
        assert_eq!(shown(&rig, "new").0, None);
        rig.pass(KEPT_FOR);
        rig.tell(lease("new"));
        assert_eq!(shown(&rig, "new").0, there(7));
        // It is there now, so the old name stays without.
        rig.tell(Input::HostReport(claims("old", 7)));
        assert_eq!(
            (shown(&rig, "old").0, shown(&rig, "new").0),
            (None, there(7))
        );
    }

    /// A machine that was silent for 20 s, and not yet for its grace, kept its endpoints while another one was published
    /// at its address: clients of the first were sent to the second.
    #[test]
    fn a_machine_whose_address_another_one_takes_over_is_listed_there_no_more() {
        let mut rig = Rig::new();
        rig.tell(Input::HostReport(claims("n1", 7)));
        rig.submit(&web("web", 1)).unwrap();
        rig.status("web", 0, |status| {
            (status.state, status.ready) = (State::Up, true);
        });
        rig.pass(KEPT_FOR);
        assert_eq!(rig.endpoint("web", 0).unwrap().address, there(7));
        rig.tell(Input::HostReport(claims("n2", 7)));
        rig.pass(Duration::from_millis(20));
        assert_eq!(shown(&rig, "n2").0, there(7));
        let (address, warnings) = shown(&rig, "n1");
        assert_eq!(address, None);
        assert!(warnings[0].contains("as the address of n2"), "{warnings:?}");
        assert_eq!(rig.states("web"), ["not ready"]);
        // The first one may have it again when the second moves or is silent.
        rig.tell(Input::HostReport(claims("n2", 8)));
        rig.tell(lease("n1"));
        assert_eq!(shown(&rig, "n1").0, there(7));
        assert_eq!(rig.states("web"), ["ready"]);
    }

    #[test]
    fn agents_of_one_machine_share_its_address() {
        let mut rig = Rig::new();
        for host in ["a", "b"] {
            let shared = HostFacts {
                boot_id: "one".into(),
                ..claims(host, 7)
            };
            rig.tell(Input::HostReport(shared));
        }
        assert_eq!(
            (shown(&rig, "a").0, shown(&rig, "b").0),
            (there(7), there(7))
        );
    }
}
