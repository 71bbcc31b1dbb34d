//! What an agent reports, asks and says to the controller.

use std::collections::BTreeMap;

use portreeve::registry::{HostFacts, ReplicaReport, ReportedAddress};
use portreeve::residency::uplink::{News, PATIENCE, POLL_PATIENCE};
use portreeve::residency::{Outgoing, ReplicaName};
use portreeve::time::Now;

use super::super::observing::Observed;
use super::super::{Host, HostOut};
use crate::cluster::wire::{Asker, Question, Who};

impl Host {
    /// Does what the uplink wants done.
    pub(super) fn send(
        &mut self,
        now: Now,
        outgoing: Vec<Outgoing<Observed, ReplicaReport>>,
        out: &mut Vec<HostOut>,
    ) {
        let mut outgoing = std::collections::VecDeque::from(outgoing);
        while let Some(one) = outgoing.pop_front() {
            if !matches!(one, Outgoing::News(_)) && self.dies_before_next(now.mono, out) {
                return;
            }
            self.send_one(now, one, out);
        }
    }

    fn send_one(
        &mut self,
        now: Now,
        one: Outgoing<Observed, ReplicaReport>,
        out: &mut Vec<HostOut>,
    ) {
        let host = self.host_name();
        match one {
            Outgoing::Gather => {
                if let Some(agent) = self.agent.as_mut() {
                    agent.household.gather();
                }
            }
            Outgoing::Report {
                no,
                seq,
                observed,
                replicas,
                full,
            } => {
                let closing = self
                    .agent
                    .as_ref()
                    .is_some_and(|agent| agent.uplink.is_closing());
                let mut facts = self.facts(observed, replicas, full, closing);
                facts.seq = Some(seq);
                self.tell(now, no, Question::Report(Box::new(facts)), out);
            }
            Outgoing::Lease { no, skew_ms } => {
                let agent = self.identity();
                let lease = Question::Lease {
                    host,
                    agent,
                    skew_ms,
                };
                self.tell(now, no, lease, out);
            }
            Outgoing::Shutdown { no } => {
                let agent = self.identity();
                self.tell(now, no, Question::Shutdown { host, agent }, out);
            }
            Outgoing::Wanted { no, since } => {
                let wanted = Question::Wanted {
                    host,
                    agent: self.identity(),
                    since,
                };
                if let Some(agent) = self.agent.as_mut() {
                    agent.polling = Some((no, now.mono + POLL_PATIENCE));
                }
                self.ask(no, wanted, out);
            }
            Outgoing::Acknowledged(names) => {
                if let Some(agent) = self.agent.as_mut() {
                    agent.household.reported(names);
                }
            }
            Outgoing::Contact { at, grace } => {
                if let Some(grace) = grace {
                    self.contact = Some(portreeve::attendance::Contact { at, grace });
                }
            }
            Outgoing::News(news) => {
                if let Some(words) = words(news) {
                    self.saw_agent(now.mono, words, out);
                }
            }
        }
    }

    fn tell(&mut self, now: Now, no: u64, question: Question, out: &mut Vec<HostOut>) {
        if let Some(agent) = self.agent.as_mut() {
            agent.telling = Some((no, now.mono + PATIENCE));
        }
        self.ask(no, question, out);
    }

    fn ask(&self, no: u64, question: Question, out: &mut Vec<HostOut>) {
        let asker = Asker {
            host: self.no,
            who: Who::Agent,
            life: self.agent_life,
            question: no,
        };
        out.push(HostOut::Ask(asker, question));
    }

    fn facts(
        &self,
        observed: Observed,
        replicas: BTreeMap<ReplicaName, ReplicaReport>,
        full: bool,
        shutting_down: bool,
    ) -> HostFacts {
        let spec = &self.spec.hosts[self.no];
        let address = observed.published;
        let addresses = address.map(|address| ReportedAddress {
            interface: "eth0".to_owned(),
            address,
            prefix: 8,
            default_route: true,
        });
        HostFacts {
            host: spec.name.clone(),
            boot_id: self.boot_id(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            agent: Some(self.identity()),
            seq: None,
            addresses: addresses.into_iter().collect(),
            unusable: Vec::new(),
            published: address,
            address_rule: "default route".to_owned(),
            dynamic: spec.dynamic.clone(),
            fixed: spec.fixed.clone(),
            reserved: spec.reserved.clone(),
            ephemeral: portreeve::port::PortRanges::default(),
            foreign: observed.foreign.as_ref().clone(),
            labels: spec.labels.clone(),
            owner: portreeve::registry::HostOwner::Controller,
            capabilities: Vec::new(),
            conditions: Vec::new(),
            shutting_down,
            replicas: replicas.into_values().collect(),
            full,
        }
    }
}

/// What an onlooker sees of it.
pub(super) const fn words(news: News) -> Option<&'static str> {
    match news {
        News::Joined => Some("joined"),
        News::Lost => Some("does not reach the controller"),
        News::Found(_) => Some("reaches the controller again"),
        News::NewController => Some("found another controller"),
        News::LeaseRefused => Some("was refused its lease"),
        News::ChangeRefused => Some("was refused a change"),
        News::ShutdownUntold => Some("could not tell of its shutdown"),
        News::Told | News::ShutdownRefused | News::ReportFirst | News::Skewed(_) => None,
    }
}
