//! A driver for tests: one registry, a store in memory, a clock that only tests move.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::endpoints::{Change, Endpoint, EndpointState, ServiceEndpoints, ServiceUpdate};
use crate::identity::{HostName, Incarnation, Run, ServiceName};
use crate::port_pool::Foreign;
use crate::profile::Profile;
use crate::rights::{Caller, Rights};
use crate::supervision::{ExitStatus, Failure, Final, Reason, State, Status};
use crate::time::{Monotonic, Now, WallClock};

use super::records::Phase;
use super::{
    Answer, Command, Config, Desired, Effect, EventView, HostFacts, HostOwner, Input, MemoryStore,
    Refusal, Registry, ReplicaReport, ReplicaView, Store, Submission, Ticket, Want,
};

/// 2023-11-14, in milliseconds.
const START: u64 = 1_700_000_000_000;

pub(crate) struct Rig {
    pub(crate) registry: Registry,
    pub(super) store: MemoryStore,
    pub(super) now: Now,
    /// Every effect but commits, in order.
    pub(super) effects: Vec<Effect>,
    pub(super) answers: BTreeMap<u64, Result<Answer, Refusal>>,
    /// What was published, as a table would hold it.
    pub(super) table: BTreeMap<ServiceName, ServiceEndpoints>,
    pub(super) commits: u32,
    tickets: u64,
    seq: u64,
    /// Commits stay with the store until [`Rig::land`].
    pub(super) slow: bool,
    pub(super) with_store: Option<super::Batch>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::on(MemoryStore::default())
    }

    /// A start on what the store holds.
    pub(super) fn on(store: MemoryStore) -> Self {
        Self::at(store, now(0), config())
    }

    pub(super) fn at(mut store: MemoryStore, now: Now, config: Config) -> Self {
        let stored = store.load().unwrap();
        let registry = Registry::load(config, &stored, "epoch".into(), now).unwrap();
        let mut rig = Self {
            registry,
            store,
            now,
            effects: Vec::new(),
            answers: BTreeMap::new(),
            table: BTreeMap::new(),
            commits: 0,
            tickets: 0,
            seq: 0,
            slow: false,
            with_store: None,
        };
        rig.settle();
        rig
    }

    /// The controller dies and starts again, one second later.
    pub(super) fn restart(self) -> Self {
        let config = self.registry.config.clone();
        let later = Now {
            mono: Monotonic::from_millis(5),
            wall: WallClock::from_unix_millis(self.now.wall.as_unix_millis() + 1000),
        };
        Self::at(self.store, later, config)
    }

    pub(super) fn pass(&mut self, span: Duration) {
        let until = self.now.mono + span;
        while let Some(due) = self.registry.next_deadline().filter(|due| *due <= until) {
            let step = due.since(self.now.mono);
            self.advance(step);
            let mut out = Vec::new();
            self.registry.on_deadline(self.now, &mut out);
            self.perform(out);
            self.settle();
        }
        let rest = until.since(self.now.mono);
        self.advance(rest);
    }

    fn advance(&mut self, span: Duration) {
        let ms = u64::try_from(span.as_millis()).unwrap();
        self.now.mono = self.now.mono + span;
        self.now.wall = WallClock::from_unix_millis(self.now.wall.as_unix_millis() + ms);
    }

    /// Takes in one input, without ending the round.
    pub(super) fn take(&mut self, input: Input) {
        let mut out = Vec::new();
        self.registry.handle(self.now, input, &mut out);
        self.perform(out);
    }

    pub(super) fn tell(&mut self, input: Input) {
        self.take(input);
        self.settle();
    }

    /// Ends the round, and the rounds that follow from its commits.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            let mut out = Vec::new();
            self.registry.flush(self.now, &mut out);
            if out.is_empty() {
                return;
            }
            self.perform(out);
            if self.slow {
                return;
            }
        }
        panic!("the registry never comes to rest");
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match &effect {
                Effect::Commit(batch) => {
                    assert!(self.with_store.is_none(), "one batch at a time");
                    self.with_store = Some(batch.clone());
                    if !self.slow {
                        self.land();
                    }
                    continue;
                }
                Effect::Answer { ticket, answer } => {
                    let twice = self.answers.insert(ticket.0, answer.clone());
                    assert_eq!(twice, None, "answered twice");
                }
                Effect::Publish {
                    services, removed, ..
                } => {
                    for name in removed {
                        self.table.remove(name);
                    }
                    for update in services {
                        apply(&mut self.table, update);
                    }
                }
                Effect::Order { .. } => {}
            }
            self.effects.push(effect);
        }
    }

    /// The store answers.
    pub(super) fn land(&mut self) {
        let batch = self.with_store.take().unwrap();
        let mut out = Vec::new();
        match self.store.commit(&batch) {
            Ok(()) => {
                self.commits += 1;
                self.registry.committed(batch.number, &mut out);
            }
            Err(error) => self
                .registry
                .commit_failed(batch.number, &error.to_string(), &mut out),
        }
        self.perform(out);
    }

    pub(super) fn ask_as(&mut self, by: &Caller, command: Command) -> Result<Answer, Refusal> {
        let ticket = self.ask_later(by, command);
        self.settle();
        self.answers.remove(&ticket).expect("answered")
    }

    /// Asks, and ends no round.
    pub(super) fn ask_later(&mut self, by: &Caller, command: Command) -> u64 {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.take(Input::Command {
            ticket,
            by: by.clone(),
            command,
        });
        self.tickets
    }

    pub(super) fn ask(&mut self, command: Command) -> Result<Answer, Refusal> {
        self.ask_as(&alice(), command)
    }

    pub(crate) fn submit(&mut self, toml: &str) -> Result<Answer, Refusal> {
        self.ask(submission(toml, false))
    }

    pub(super) fn replace(&mut self, toml: &str) -> Result<Answer, Refusal> {
        self.ask(submission(toml, true))
    }

    /// The host joins, or tells everything again, with what it runs.
    pub(crate) fn join(&mut self, host: &str) {
        let facts = self.facts(host);
        self.tell(Input::HostReport(facts));
    }

    /// A full report of a host with the newest status of what is placed there.
    pub(super) fn facts(&self, host: &str) -> HostFacts {
        let name: HostName = host.parse().unwrap();
        let id = self.registry.host_names.get(&name);
        let replicas = self
            .registry
            .truth
            .replicas
            .iter()
            .filter_map(|(key, replica)| {
                let service = self.registry.truth.services.find(&key.0)?;
                let Phase::Placed(placement) = &replica.phase else {
                    return None;
                };
                (Some(&placement.host) == id).then(|| ReplicaReport {
                    host: name.clone(),
                    service: service.name.clone(),
                    index: key.1,
                    incarnation: replica.incarnation,
                    service_id: Some(service.id),
                    grant: Some(placement.grant.clone()),
                    status: replica.status.clone().unwrap_or_else(Status::silent),
                })
            })
            .collect();
        let known = id.and_then(|id| self.registry.truth.hosts.find(id));
        match known {
            Some(known) => HostFacts {
                replicas,
                full: true,
                ..known.facts.clone()
            },
            None => facts(host),
        }
    }

    /// The worker of a placed replica tells its next status.
    pub(super) fn status(&mut self, service: &str, index: u32, change: impl FnOnce(&mut Status)) {
        let report = self.report(service, index, change);
        self.tell(Input::Status(report));
    }

    pub(super) fn report(
        &mut self,
        service: &str,
        index: u32,
        change: impl FnOnce(&mut Status),
    ) -> ReplicaReport {
        let service = name(service);
        let id = self.registry.names[&service];
        let replica = self.registry.truth.replicas.find(&(id, index)).unwrap();
        let Phase::Placed(placement) = &replica.phase else {
            panic!("{service} {index} is not placed: {replica:?}")
        };
        let mut status = replica.status.clone().unwrap_or_else(starting);
        self.seq += 1;
        status.seq = status.seq.max(self.seq) + 1;
        change(&mut status);
        ReplicaReport {
            host: self.registry.host_name(placement.host),
            service,
            index,
            incarnation: replica.incarnation,
            service_id: None,
            grant: None,
            status,
        }
    }

    pub(super) fn ready(&mut self, service: &str, index: u32) {
        let restart_no = self.wanted_restart(service, index);
        self.status(service, index, |status| {
            status.restart_no = restart_no;
            status.ready = true;
            status.state = State::Up;
        });
    }

    fn wanted_restart(&self, service: &str, index: u32) -> u64 {
        let id = self.registry.names[&name(service)];
        let replica = self.registry.truth.replicas.find(&(id, index)).unwrap();
        replica.restart_no
    }

    pub(super) fn ends(&mut self, service: &str, index: u32, end: Final) {
        self.status(service, index, |status| {
            status.ready = false;
            status.state = State::Final(end);
        });
    }

    pub(super) fn replica(&self, service: &str, index: u32) -> ReplicaView {
        let view = self.registry.view();
        let service = &view.services[&name(service)];
        let mut replicas = service.replicas.iter();
        replicas.find(|it| it.replica == index).unwrap().clone()
    }

    pub(super) fn states(&self, service: &str) -> Vec<String> {
        let view = self.registry.view();
        let replicas = view.services[&name(service)].replicas.iter();
        replicas.map(|it| it.state.clone()).collect()
    }

    pub(super) fn endpoint(&self, service: &str, index: u32) -> Option<Endpoint> {
        let endpoints = &self.table.get(&name(service))?.endpoints;
        endpoints.iter().find(|it| it.replica == index).cloned()
    }

    pub(super) fn condition(&self, service: &str, index: u32) -> Option<EndpointState> {
        Some(self.endpoint(service, index)?.state)
    }

    /// The ports of a host as the reader sees them now.
    pub(super) fn ports(&mut self, host: &str, reader: &Caller) -> super::HostPorts {
        let host = host.parse().unwrap();
        self.registry.host_ports(self.now, reader, &host).unwrap()
    }

    /// `service index incarnation want` of all that a host shall do.
    pub(super) fn orders(&self, host: &str) -> Vec<String> {
        let host = host.parse().unwrap();
        let (_, _, wanted) = self.registry.desired(&host).unwrap();
        wanted.iter().map(shown).collect()
    }

    pub(super) fn events(&self, service: &str) -> Vec<EventView> {
        self.registry.events(&name(service))
    }

    pub(super) fn kinds(&self, service: &str) -> Vec<String> {
        self.events(service).into_iter().map(|it| it.kind).collect()
    }

    /// A table of the store, to be damaged.
    pub(super) fn store_table(&mut self, table: &str) -> &mut BTreeMap<String, Vec<u8>> {
        self.store.stored_mut().tables.get_mut(table).unwrap()
    }

    /// Everything stored as it would be after a commit of all there is.
    pub(super) fn everything(&self) -> Vec<super::Write> {
        self.registry.truth.all_writes()
    }
}

/// Everything is shown at once, as most tests are about what, not when.
pub(crate) fn config() -> Config {
    Config {
        coalesce: Duration::ZERO,
        // A test that is not about silence lets hours pass without a lease.
        silence: None,
        ..Config::default()
    }
}

/// What a table does with an update.
fn apply(table: &mut BTreeMap<ServiceName, ServiceEndpoints>, update: &ServiceUpdate) {
    let set = table
        .entry(update.service.clone())
        .or_insert_with(|| ServiceEndpoints {
            service: update.service.clone(),
            desired: 0,
            endpoints: Vec::new(),
        });
    set.desired = update.desired;
    match &update.change {
        Change::Whole(all) => set.endpoints.clone_from(all),
        Change::Parts { upsert, remove } => {
            let stays = |it: &Endpoint| {
                !remove.contains(&it.replica) && upsert.iter().all(|new| new.replica != it.replica)
            };
            set.endpoints.retain(stays);
            set.endpoints.extend(upsert.iter().cloned());
            set.endpoints.sort_by_key(|it| it.replica);
        }
    }
}

fn shown(desired: &Desired) -> String {
    let want = match desired.want {
        Want::Run => "run",
        Want::Stop => "stop",
        Want::Forget => "forget",
    };
    let Desired {
        service,
        index,
        incarnation,
        ..
    } = desired;
    format!("{service} {index} {incarnation} {want}")
}

pub(crate) fn now(ms: u64) -> Now {
    Now {
        mono: Monotonic::from_millis(ms),
        wall: WallClock::from_unix_millis(START + ms),
    }
}

pub(crate) fn name(text: &str) -> ServiceName {
    ServiceName::parse_in(text, &"alice".parse().unwrap()).unwrap()
}

pub(crate) fn alice() -> Caller {
    caller("alice")
}

pub(super) fn caller(user: &str) -> Caller {
    Caller::new(user.into(), Some(1000), vec!["chem".into()], Rights::USER)
}

pub(super) fn profile(toml: &str) -> Profile {
    let text = format!("kind = \"service\"\n{toml}");
    match Profile::from_toml(&text) {
        Ok(checked) => checked.profile,
        Err(errors) => panic!("{errors}: {text}"),
    }
}

/// A service of this name and number of replicas, with one port `http`.
pub(crate) fn web(name: &str, replicas: u32) -> String {
    with_port(name, replicas, "\"any\"")
}

pub(super) fn with_port(name: &str, replicas: u32, port: &str) -> String {
    format!(
        "name = \"{name}\"\nreplicas = {replicas}\ncommand = [\"serve\"]\n[ports]\nhttp = {port}\n"
    )
}

pub(crate) fn submission(toml: &str, replace: bool) -> Command {
    let profile = profile(toml);
    Command::Submit(Submission {
        service: name(profile.name.as_str()),
        profile,
        source: None,
        replace,
    })
}

/// A host of this name that runs nothing yet.
pub(crate) fn facts(host: &str) -> HostFacts {
    let last = host.bytes().last().unwrap_or_default();
    HostFacts {
        host: host.parse().unwrap(),
        boot_id: "boot-1".into(),
        agent_version: "0.1.0".into(),
        agent: None,
        seq: None,
        addresses: Vec::new(),
        unusable: Vec::new(),
        published: Some([10, 0, 0, last].into()),
        address_rule: "default route".into(),
        dynamic: "20000-20099".parse().unwrap(),
        fixed: "1024-65535".parse().unwrap(),
        reserved: crate::port::PortRanges::default(),
        ephemeral: "32768-60999".parse().unwrap(),
        foreign: Vec::new(),
        labels: BTreeMap::new(),
        capabilities: vec!["pidfd".into()],
        conditions: Vec::new(),
        owner: HostOwner::default(),
        shutting_down: false,
        replicas: Vec::new(),
        full: true,
    }
}

pub(super) fn foreign(port: u16, pid: u32, comm: &str) -> Foreign {
    Foreign {
        port: port.try_into().unwrap(),
        protocol: crate::port::Protocol::Tcp,
        pid: Some(pid),
        comm: Some(comm.into()),
    }
}

pub(crate) fn starting() -> Status {
    Status {
        run: Run(1),
        state: State::Starting,
        pid: Some(4711),
        ..Status::silent()
    }
}

pub(crate) fn exit(code: i32) -> Reason {
    Reason::Exit(ExitStatus::Code(code))
}

pub(crate) fn failure(reason: Reason, run: u32) -> Failure {
    Failure {
        reason,
        exit: None,
        run: Run(run),
        at: WallClock::from_unix_millis(START),
        probe_output: None,
    }
}

pub(super) const fn incarnation(number: u32) -> Incarnation {
    Incarnation(number)
}
