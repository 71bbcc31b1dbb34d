//! A store that a controller left which had many replicas running.

use std::collections::BTreeMap;
use std::path::Path;

use portreeve::identity::Run;
use portreeve::profile::Profile;
use portreeve::registry::{
    Batch, BatchNumber, Command, Config, Effect, HostFacts, Input, Registry, ReplicaReport, Store,
    Stored, Submission, Ticket, Write, tables,
};
use portreeve::rights::{Caller, Rights};
use portreeve::supervision::{State, Status};
use portreeve::time::{Monotonic, Now, WallClock};
use portreeve_controller::RedbStore;

/// A registry on a store in memory, which is written to the disk at once in the end.
struct Life {
    registry: Registry,
    records: BTreeMap<(&'static str, String), Vec<u8>>,
    now: Now,
    tickets: u64,
}

impl Life {
    fn new() -> Self {
        let now = Now {
            mono: Monotonic::from_millis(1),
            wall: WallClock::from_unix_millis(1_790_000_000_000),
        };
        let registry = Registry::load(Config::default(), &Stored::default(), "bench".into(), now);
        Self {
            registry: registry.expect("nothing is stored"),
            records: BTreeMap::new(),
            now,
            tickets: 0,
        }
    }

    fn tell(&mut self, inputs: impl IntoIterator<Item = Input>) {
        let mut effects = Vec::new();
        for input in inputs {
            self.registry.handle(self.now, input, &mut effects);
        }
        self.registry.flush(self.now, &mut effects);
        loop {
            let mut next = Vec::new();
            for effect in effects.drain(..) {
                if let Effect::Commit(batch) = effect {
                    for write in batch.writes {
                        let key = (write.table, write.key);
                        match write.value {
                            Some(value) => self.records.insert(key, value),
                            None => self.records.remove(&key),
                        };
                    }
                    self.registry.committed(batch.number, &mut next);
                }
            }
            self.registry.flush(self.now, &mut next);
            let commits = |effect: &Effect| matches!(effect, Effect::Commit(_));
            if !next.iter().any(commits) {
                return;
            }
            effects = next;
        }
    }

    /// Lets the news be written.
    fn rest(&mut self) {
        for _ in 0..1000 {
            let Some(due) = self.registry.next_deadline() else {
                return;
            };
            let step = due.since(self.now.mono);
            if step.as_secs() >= 5 {
                return;
            }
            self.now.mono = self.now.mono + step;
            let mut effects = Vec::new();
            self.registry.on_deadline(self.now, &mut effects);
            let committed = effects.into_iter().filter_map(|effect| match effect {
                Effect::Commit(batch) => Some(batch),
                _ => None,
            });
            for batch in committed.collect::<Vec<_>>() {
                for write in &batch.writes {
                    let key = (write.table, write.key.clone());
                    match &write.value {
                        Some(value) => self.records.insert(key, value.clone()),
                        None => self.records.remove(&key),
                    };
                }
                self.registry.committed(batch.number, &mut Vec::new());
            }
            self.tell([]);
        }
    }

    fn command(&mut self, command: Command) -> Input {
        self.tickets += 1;
        Input::Command {
            ticket: Ticket(self.tickets),
            by: Caller::new("alice".into(), Some(1000), Vec::new(), Rights::ADMIN),
            command,
        }
    }
}

fn facts(n: usize) -> HostFacts {
    let text = serde_json::json!({
        "host": format!("n{n}"), "boot_id": "b", "agent_version": "0", "addresses": [],
        "published": format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256), "address_rule": "the bench's",
        "dynamic": "20000-20999", "fixed": "1024-65535", "reserved": "", "ephemeral": "32768-60999",
        "foreign": [], "labels": {}, "capabilities": [], "replicas": [], "full": true,
    });
    serde_json::from_value(text).expect("facts as an agent sends them")
}

fn up() -> Status {
    Status {
        run: Run(1),
        seq: 3,
        state: State::Up,
        ready: true,
        pid: Some(4711),
        ..Status::silent()
    }
}

/// Fills `folder` with `services` services of `each` ready replicas on as many hosts; says how many replicas are placed.
pub(crate) fn fill(folder: &Path, services: usize, each: usize) -> usize {
    let mut life = Life::new();
    let hosts = services;
    life.tell((0..hosts).map(|n| Input::HostReport(facts(n))));
    for n in 0..services {
        let text = format!(
            "kind = \"service\"\nname = \"s{n}\"\nreplicas = {each}\ncommand = [\"serve\", \"--port\", \"${{port.http}}\"]\n\
             env = {{ MODEL = \"m{n}\" }}\n[ports]\nhttp = \"any\"\n[readiness]\nhttp = {{ path = \"/health\" }}\n"
        );
        let profile = Profile::from_toml(&text).expect("it is right").profile;
        let submit = life.command(Command::Submit(Submission {
            service: format!("s{n}.alice").parse().expect("a name"),
            profile,
            source: None,
            replace: false,
        }));
        life.tell([submit]);
    }
    let view = life.registry.view();
    let reports: Vec<_> = view
        .services
        .values()
        .flat_map(|service| {
            service
                .replicas
                .iter()
                .map(move |replica| (service, replica))
        })
        .filter_map(|(service, replica)| {
            Some(Input::Status(ReplicaReport {
                host: replica.host.clone()?,
                service: service.service.clone(),
                index: replica.replica,
                incarnation: replica.incarnation,
                service_id: None,
                grant: None,
                status: up(),
            }))
        })
        .collect();
    let placed = reports.len();
    life.tell(reports);
    life.rest();
    let writes = life.records.into_iter().map(|((table, key), value)| Write {
        table,
        key,
        value: Some(value),
    });
    commit_all(folder, &writes.collect::<Vec<_>>());
    placed
}

/// Adds the most that is kept of what is over: 1,000 events of each service, and 100,000 past placements; says how many
/// records.
pub(crate) fn fill_past(folder: &Path, services: usize) -> usize {
    let write = |table, key: String, record: serde_json::Value| Write {
        table,
        key,
        value: Some(
            serde_json::json!({ "format": 1, "record": record })
                .to_string()
                .into_bytes(),
        ),
    };
    let events = (1..=services).flat_map(|service| {
        (500..1_500).map(move |number| {
            let event = serde_json::json!({
                "at": 1_790_000_000_000_u64 + number, "replica": number % 100, "incarnation": 0, "host": "n7",
                "kind": "restarted", "text": format!("restart {number} after exit {}", number % 7),
            });
            (format!("{service:020}/{number:020}"), event)
        })
    });
    let tenures = (0..100_000).map(|n| {
        let (host, service) = (n % services, n % services + 1);
        let tenure = serde_json::json!({
            "host": format!("n{host}"), "service": format!("s{host}.alice"), "user": "alice", "uid": 1000,
            "grant": [{ "name": "http", "protocol": "tcp", "numbers": 20_000 + n % 1000 }],
            "from": 1_790_000_000_000_u64, "until": 1_790_000_009_000_u64, "how": "stopped by alice",
        });
        (format!("{host:010}/{service:020}/{:010}/{:010}", 500, n / services), tenure)
    });
    let mut writes = events
        .map(|(key, it)| write(tables::EVENTS, key, it))
        .collect::<Vec<_>>();
    writes.extend(tenures.map(|(key, it)| write(tables::PORT_HISTORY, key, it)));
    commit_all(folder, &writes);
    writes.len()
}

fn commit_all(folder: &Path, writes: &[Write]) {
    let mut store = RedbStore::open(folder).expect("a store");
    for (number, piece) in writes.chunks(50_000).enumerate() {
        let batch = Batch {
            number: BatchNumber(number as u64),
            writes: piece.to_vec(),
        };
        store.commit(&batch).expect("the disk takes it");
    }
}
