//! Stands in for a host until there is one: it joins, gives signs of life, and tells that whatever is wanted runs at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portreeve::identity::{Run, ServiceId};
use portreeve::registry::{AgentIdentity, HostFacts, HostOwner};
use portreeve::residency::{ReplicaName, Want};
use portreeve::supervision::{Final, State, Status};
use portreeve::time::{Monotonic, Now};

use super::act::{HostAct, HostNo};
use super::host::HostOut;
use super::spec::Spec;
use super::wire::{Asker, Question, Reply, Who};

pub(crate) struct Host {
    no: HostNo,
    spec: Arc<Spec>,
    life: u64,
    questions: u64,
    is_up: bool,
    polls: bool,
    has_joined: bool,
    revision: Option<u64>,
    next: Monotonic,
    replicas: BTreeMap<ReplicaName, (ServiceId, Status)>,
}

const PERIOD: Duration = Duration::from_secs(5);

impl Host {
    pub(crate) fn living(&self) -> impl Iterator<Item = super::host::Living<'_>> {
        std::iter::empty()
    }

    pub(crate) fn new(no: HostNo, spec: &Arc<Spec>, _seed: u64, now: Now) -> Self {
        Self {
            no,
            spec: Arc::clone(spec),
            life: 1,
            questions: 0,
            is_up: true,
            polls: false,
            has_joined: false,
            revision: None,
            next: now.mono,
            replicas: BTreeMap::new(),
        }
    }

    pub(crate) fn act(&mut self, now: Now, act: &HostAct, _out: &mut Vec<HostOut>) {
        match act {
            HostAct::PowerLoss => {
                self.is_up = false;
                self.replicas.clear();
            }
            HostAct::Boot | HostAct::Heals if !self.is_up => {
                self.is_up = true;
                self.life += 1;
                (self.polls, self.has_joined, self.revision) = (false, false, None);
                self.next = now.mono;
            }
            _ => {}
        }
    }

    pub(crate) fn reply(&mut self, now: Now, to: &Asker, reply: Reply, out: &mut Vec<HostOut>) {
        if !self.is_up || to.life != self.life {
            return;
        }
        match reply {
            Reply::Wanted(wanted) => {
                self.revision = Some(wanted.revision);
                self.polls = false;
                if wanted.report_first {
                    self.has_joined = false;
                }
                let mut changed = !self.has_joined;
                for desired in wanted.replicas.iter() {
                    let name = desired.name();
                    let known = self.replicas.get(&name).map(|(_, status)| status.seq);
                    let state = match desired.want {
                        Want::Run if known.is_none() => State::Up,
                        Want::Stop if known != Some(2) => State::Final(Final::Stopped),
                        Want::Forget => {
                            self.replicas.remove(&name);
                            continue;
                        }
                        Want::Run | Want::Stop => continue,
                    };
                    changed = true;
                    let status = Status {
                        run: Run(1),
                        seq: if state == State::Up { 1 } else { 2 },
                        ready: state == State::Up,
                        state,
                        ..Status::silent()
                    };
                    self.replicas.insert(name, (desired.service_id, status));
                }
                if changed {
                    self.report(out);
                }
                self.poll(out);
            }
            Reply::Unreachable => {
                self.polls = false;
                self.next = self.next.min(now.mono + PERIOD / 5);
            }
            Reply::Lease(_) | Reply::Refused { .. } => {}
        }
    }

    pub(crate) fn on_deadline(&mut self, now: Now, out: &mut Vec<HostOut>) {
        self.next = now.mono + PERIOD;
        if !self.is_up {
            return;
        }
        if !self.has_joined {
            self.report(out);
        }
        let host = self.spec.hosts[self.no].name.clone();
        let agent = self.agent();
        self.ask(
            Question::Lease {
                host,
                agent,
                skew_ms: None,
            },
            out,
        );
        self.poll(out);
    }

    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        self.is_up.then_some(self.next)
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.is_up
    }

    #[expect(clippy::unused_self, reason = "it has none")]
    pub(crate) fn workers(&self) -> impl Iterator<Item = super::host::Attended<'_>> {
        std::iter::empty()
    }

    fn agent(&self) -> AgentIdentity {
        AgentIdentity {
            machine: format!("m{}", self.no),
            boot_id: format!("b{}", self.life),
            folder: "f".to_owned(),
        }
    }

    fn ask(&mut self, question: Question, out: &mut Vec<HostOut>) {
        self.questions += 1;
        let asker = Asker {
            host: self.no,
            who: Who::Agent,
            life: self.life,
            question: self.questions,
        };
        out.push(HostOut::Ask(asker, question));
    }

    fn poll(&mut self, out: &mut Vec<HostOut>) {
        if !std::mem::replace(&mut self.polls, true) {
            let host = self.spec.hosts[self.no].name.clone();
            let agent = self.agent();
            let since = self.revision;
            self.ask(Question::Wanted { host, agent, since }, out);
        }
    }

    fn report(&mut self, out: &mut Vec<HostOut>) {
        self.has_joined = true;
        let spec = &self.spec.hosts[self.no];
        let host = spec.name.clone();
        let replicas =
            self.replicas
                .iter()
                .map(|(name, (id, status))| portreeve::registry::ReplicaReport {
                    host: host.clone(),
                    service: name.service.clone(),
                    index: name.index,
                    incarnation: name.incarnation,
                    service_id: Some(*id),
                    grant: None,
                    status: status.clone(),
                });
        let facts = HostFacts {
            replicas: replicas.collect(),
            boot_id: format!("b{}", self.life),
            agent_version: "0.1.0".to_owned(),
            agent: Some(self.agent()),
            addresses: Vec::new(),
            unusable: Vec::new(),
            published: Some(std::net::Ipv4Addr::new(10, 0, 0, 1).into()),
            address_rule: "default".to_owned(),
            dynamic: spec.dynamic.clone(),
            fixed: spec.fixed.clone(),
            reserved: spec.reserved.clone(),
            ephemeral: portreeve::port::PortRanges::default(),
            foreign: Vec::new(),
            labels: spec.labels.clone(),
            owner: HostOwner::default(),
            capabilities: Vec::new(),
            conditions: Vec::new(),
            shutting_down: false,
            full: true,
            host,
        };
        self.ask(Question::Report(Box::new(facts)), out);
    }
}
