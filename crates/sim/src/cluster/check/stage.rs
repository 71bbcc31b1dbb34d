//! A registry that a test drives by hand, with its store and its table, to be looked at and lied about.

use std::collections::BTreeMap;

use portreeve::endpoints::EndpointTable;
use portreeve::identity::{HostName, ServiceName};
use portreeve::port::PortRanges;
use portreeve::port_pool::PortGrant;
use portreeve::profile::Profile;
use portreeve::registry::{
    Answer, Command, Config, Effect, HostFacts, HostOwner, Input, MemoryStore, Refusal, Registry,
    ReplicaReport, Store, Stored, Submission, Ticket, Want,
};
use portreeve::residency::ReplicaName;
use portreeve::rights::{Caller, Rights};
use portreeve::supervision::{State, Status};
use portreeve::time::{Monotonic, Now, WallClock};

use super::numbers::Placed;

pub(super) struct Stage {
    pub(super) registry: Registry,
    pub(super) table: EndpointTable,
    pub(super) now: Now,
    pub(super) batches: u64,
    store: MemoryStore,
    answers: BTreeMap<u64, Result<Answer, Refusal>>,
    tickets: u64,
}

impl Stage {
    /// With a host `n1` that offers these numbers.
    pub(super) fn new(dynamic: &str) -> Self {
        let mut store = MemoryStore::default();
        let now = Now {
            mono: Monotonic::from_millis(0),
            wall: WallClock::from_unix_millis(1_700_000_000_000),
        };
        let config = Config {
            coalesce: std::time::Duration::ZERO,
            silence: None,
            ..Config::default()
        };
        let stored = store.load().unwrap();
        let registry = Registry::load(config, &stored, "epoch".into(), now).unwrap();
        let mut stage = Self {
            table: EndpointTable::new("epoch".to_owned(), registry.revision()),
            registry,
            now,
            batches: 0,
            store,
            answers: BTreeMap::new(),
            tickets: 0,
        };
        stage.settle();
        stage.tell(Input::HostReport(facts("n1", dynamic)));
        stage
    }

    pub(super) fn pass(&mut self, ms: u64) {
        let until = self.now.mono.as_millis() + ms;
        while let Some(due) = self.registry.next_deadline()
            && due.as_millis() <= until
        {
            self.set(due.as_millis());
            let mut out = Vec::new();
            self.registry.on_deadline(self.now, &mut out);
            self.perform(out);
            self.settle();
        }
        self.set(until);
    }

    fn set(&mut self, ms: u64) {
        self.now.mono = Monotonic::from_millis(ms);
        self.now.wall = WallClock::from_unix_millis(1_700_000_000_000 + ms);
    }

    pub(super) fn tell(&mut self, input: Input) {
        let mut out = Vec::new();
        self.registry.handle(self.now, input, &mut out);
        self.perform(out);
        self.settle();
    }

    pub(super) fn ask(&mut self, command: Command) -> Result<Answer, Refusal> {
        self.tickets += 1;
        self.tell(Input::Command {
            ticket: Ticket(self.tickets),
            by: alice(),
            command,
        });
        self.answers.remove(&self.tickets).unwrap()
    }

    pub(super) fn submit(&mut self, name: &str, rest: &str) -> ServiceName {
        let profile = profile(name, rest);
        let service = ServiceName::parse_in(name, &"alice".parse().unwrap()).unwrap();
        let submission = Submission {
            service: service.clone(),
            profile,
            source: None,
            replace: true,
        };
        self.ask(Command::Submit(submission)).unwrap();
        service
    }

    /// A placed replica tells where it stands.
    pub(super) fn becomes(&mut self, name: &ReplicaName, seq: u64, state: State) {
        let mut status = Status::silent();
        status.run = portreeve::identity::Run(1);
        status.seq = seq;
        status.ready = state == State::Up;
        status.state = state;
        self.tell(Input::Status(ReplicaReport::of(host(), name, status)));
    }

    pub(super) fn placed(&self) -> Vec<Placed> {
        let host = host();
        let all = self.registry.placed_audit(&host);
        all.map(|it| Placed {
            name: it.name,
            id: it.id,
            grant: PortGrant::clone(it.grant),
            is_stopping: it.want == Want::Stop,
        })
        .collect()
    }

    pub(super) const fn stored(&self) -> &Stored {
        self.store.stored()
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            let mut out = Vec::new();
            self.registry.flush(self.now, &mut out);
            if out.is_empty() {
                return;
            }
            self.perform(out);
        }
        panic!("the registry never comes to rest");
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Commit(batch) => {
                    self.batches += 1;
                    self.store.commit(&batch).unwrap();
                    let mut out = Vec::new();
                    self.registry.committed(batch.number, &mut out);
                    self.perform(out);
                }
                Effect::Answer { ticket, answer } => {
                    self.answers.insert(ticket.0, answer);
                }
                Effect::Publish {
                    revision,
                    services,
                    removed,
                } => {
                    self.table.publish(revision, services, &removed);
                }
                Effect::Order { .. } => {}
            }
        }
    }
}

pub(super) fn host() -> HostName {
    "n1".parse().unwrap()
}

pub(super) fn profile(name: &str, rest: &str) -> Profile {
    let text = format!("kind = \"service\"\nname = \"{name}\"\ncommand = [\"serve\"]\n{rest}");
    match Profile::from_toml(&text) {
        Ok(checked) => checked.profile,
        Err(errors) => panic!("{errors}: {text}"),
    }
}

pub(super) fn alice() -> Caller {
    Caller::new("alice".into(), Some(1000), Vec::new(), Rights::USER)
}

fn facts(host: &str, dynamic: &str) -> HostFacts {
    HostFacts {
        host: host.parse().unwrap(),
        boot_id: "boot-1".into(),
        agent_version: "0.1.0".into(),
        agent: None,
        seq: None,
        addresses: Vec::new(),
        unusable: Vec::new(),
        published: Some([10, 0, 0, 1].into()),
        address_rule: "default route".into(),
        dynamic: dynamic.parse().unwrap(),
        fixed: "1024-65535".parse().unwrap(),
        reserved: PortRanges::default(),
        ephemeral: "32768-60999".parse().unwrap(),
        foreign: Vec::new(),
        labels: BTreeMap::new(),
        capabilities: Vec::new(),
        conditions: Vec::new(),
        owner: HostOwner::default(),
        shutting_down: false,
        replicas: Vec::new(),
        full: true,
    }
}
