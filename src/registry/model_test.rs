//! Random lives of a small cluster against plain promises.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use crate::endpoints::EndpointState;
use crate::identity::HostName;
use crate::port::Port;
use crate::port_pool::{PortGrant, Side};
use crate::supervision::{Final, State};

use super::records::Phase;
use super::rig::{Rig, alice, caller, exit, facts, foreign, name, submission, web, with_port};
use super::{
    Attachment, Command, Effect, HostFacts, Input, Refusal, ReplicaReport, Store, Want, tables,
};

const HOSTS: [&str; 3] = ["n1", "n2", "n3"];
const SERVICES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Op {
    Submit {
        service: usize,
        replicas: u32,
        shape: usize,
        replace: bool,
    },
    Scale(usize, u32),
    Start(usize),
    Stop(usize),
    Restart(usize, Option<u32>),
    Kill(usize, u32),
    Delete(usize),
    /// A job of another scheduler on a host asks for ports, the n-th time or again.
    Attach {
        service: usize,
        host: usize,
        index: Option<u32>,
        shape: usize,
        key: u8,
    },
    Stranger(usize),
    /// The worker of the n-th living replica tells something.
    Tell(usize, usize),
    /// An old status arrives again.
    Replay(usize),
    Join(usize, bool),
    Boot(usize),
    Foreign(usize, u16),
    Pass(u64),
    FailNext(u32),
    /// From now on a batch stays with the store.
    Slow,
    /// The store answers.
    Land,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let service = 0..SERVICES.len();
    let index = 0..4_u32;
    prop_oneof![
        4 => (service.clone(), 0..4_u32, 0..4_usize, any::<bool>()).prop_map(|(service, replicas, shape, replace)| {
            Op::Submit { service, replicas, shape, replace }
        }),
        2 => (service.clone(), 0..4_u32).prop_map(|(a, b)| Op::Scale(a, b)),
        1 => service.clone().prop_map(Op::Start),
        1 => service.clone().prop_map(Op::Stop),
        1 => (service.clone(), proptest::option::of(index.clone())).prop_map(|(a, b)| Op::Restart(a, b)),
        1 => (service.clone(), index).prop_map(|(a, b)| Op::Kill(a, b)),
        1 => service.clone().prop_map(Op::Delete),
        4 => (service.clone(), 0..HOSTS.len(), proptest::option::of(0..4_u32), 0..4_usize, any::<u8>()).prop_map(
            |(service, host, index, shape, key)| Op::Attach { service, host, index, shape, key: key % 8 },
        ),
        1 => service.prop_map(Op::Stranger),
        12 => (0..16_usize, 0..8_usize).prop_map(|(a, b)| Op::Tell(a, b)),
        2 => (0..32_usize).prop_map(Op::Replay),
        3 => (0..HOSTS.len(), any::<bool>()).prop_map(|(a, b)| Op::Join(a, b)),
        1 => (0..HOSTS.len()).prop_map(Op::Boot),
        1 => (0..HOSTS.len(), 20000..20004_u16).prop_map(|(a, b)| Op::Foreign(a, b)),
        3 => (1..200_000_u64).prop_map(Op::Pass),
        2 => (1..3_u32).prop_map(Op::FailNext),
        2 => Just(Op::Slow),
        3 => Just(Op::Land),
        1 => Just(Op::Crash),
    ]
}

/// What really runs on the hosts: started by an order, gone with its end or a boot.
type Alive = BTreeMap<(String, u32, u32), (HostName, PortGrant)>;

struct World {
    rig: Rig,
    alive: Alive,
    boots: BTreeMap<usize, u32>,
    foreign: BTreeMap<usize, u16>,
    told: Vec<ReplicaReport>,
    last_revision: u64,
}

impl World {
    fn new(coalesce: Duration) -> Self {
        let config = super::Config {
            coalesce,
            ..super::rig::config()
        };
        Self {
            rig: Rig::at(super::MemoryStore::default(), super::rig::now(0), config),
            alive: Alive::new(),
            boots: BTreeMap::new(),
            foreign: BTreeMap::new(),
            told: Vec::new(),
            last_revision: 0,
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Submit {
                service,
                replicas,
                shape,
                replace,
            } => {
                let toml = shaped(SERVICES[service], replicas, shape);
                self.ask(submission(&toml, replace));
            }
            Op::Scale(service, replicas) => self.ask(Command::Scale {
                service: name(SERVICES[service]),
                replicas,
            }),
            Op::Start(service) => self.ask(Command::Start {
                service: name(SERVICES[service]),
            }),
            Op::Stop(service) => self.ask(Command::Stop {
                service: name(SERVICES[service]),
            }),
            Op::Restart(service, index) => self.ask(Command::Restart {
                service: name(SERVICES[service]),
                index,
            }),
            Op::Kill(service, index) => self.ask(Command::Kill {
                service: name(SERVICES[service]),
                index,
            }),
            Op::Delete(service) => self.ask(Command::Delete {
                service: name(SERVICES[service]),
            }),
            Op::Attach {
                service,
                host,
                index,
                shape,
                key,
            } => {
                let toml = shaped(SERVICES[service], 1, shape);
                let profile = super::rig::profile(&toml);
                self.ask(Command::Attach(Box::new(Attachment {
                    service: name(SERVICES[service]),
                    profile,
                    source: None,
                    host: HOSTS[host].parse().unwrap(),
                    index,
                    key: key.to_string(),
                    job: None,
                })));
            }
            Op::Stranger(_) if self.rig.slow => {}
            Op::Stranger(service) => {
                let before = self.rig.everything();
                let command = Command::Stop {
                    service: name(SERVICES[service]),
                };
                let refused = self.rig.ask_as(&caller("bob"), command);
                assert!(matches!(refused, Err(Refusal::NoSuchService { .. })));
                assert_eq!(self.rig.everything(), before);
            }
            Op::Tell(which, what) => self.tell(which, what),
            Op::Replay(which) => {
                if let Some(report) = self.told.get(which).cloned() {
                    self.rig.tell(Input::Status(report));
                }
            }
            Op::Join(host, full) => self.join(host, full),
            Op::Boot(host) => {
                *self.boots.entry(host).or_default() += 1;
                let at: HostName = HOSTS[host].parse().unwrap();
                self.alive.retain(|_, (host, _)| *host != at);
                self.join(host, true);
            }
            Op::Foreign(host, port) => {
                self.foreign.insert(host, port);
                self.join(host, false);
            }
            Op::Pass(ms) => self.rig.pass(Duration::from_millis(ms)),
            Op::FailNext(count) => self.rig.store.failing_commits = count,
            Op::Slow => self.rig.slow = true,
            Op::Land => self.land(),
            Op::Crash => {
                let rig = std::mem::replace(&mut self.rig, Rig::new());
                self.rig = rig.restart();
            }
        }
        self.start_what_is_ordered();
        self.check();
    }

    fn land(&mut self) {
        self.rig.slow = false;
        if self.rig.with_store.is_some() {
            self.rig.land();
        }
        self.rig.settle();
    }

    fn ask(&mut self, command: Command) {
        if self.rig.slow {
            self.rig.ask_later(&alice(), command);
            return self.rig.settle();
        }
        let before = self.rig.everything();
        let text = format!("{command:?}");
        if let Err(refusal) = self.rig.ask_as(&alice(), command) {
            let after = self.rig.everything();
            // What was decided anew after a refused batch, and the ceiling, are no work of the command.
            if self.rig.store.failing_commits == 0 && !matches!(refusal, Refusal::NotStored { .. })
            {
                assert_eq!(after, before, "{text}: {refusal}");
            }
        }
    }

    fn tell(&mut self, which: usize, what: usize) {
        let living: Vec<(String, u32, u32)> = self.alive.keys().cloned().collect();
        let Some(at) = living.get(which % living.len().max(1)) else {
            return;
        };
        let (service, index, incarnation) = at;
        let known = self.rig.registry.names.get(&name(service));
        let known = known.and_then(|id| self.rig.registry.truth.replicas.find(&(*id, *index)));
        let current = known.is_some_and(|it| {
            it.incarnation.0 == *incarnation && matches!(it.phase, Phase::Placed(_))
        });
        if !current {
            return;
        }
        let port = self.alive[at].1.ports.first().map(|it| it.numbers.first());
        let report = self.rig.report(service, *index, |status| {
            status.ready = false;
            match what {
                0..=2 => {
                    status.state = State::Up;
                    status.ready = true;
                    status.restart_no = 9;
                }
                3 => status.state = State::Up,
                4 => {
                    status.state = State::Backoff;
                    status.restarts += 1;
                }
                5 => status.state = State::Final(Final::Stopped),
                6 => {
                    status.state = State::Final(Final::GaveUp {
                        reason: exit(1),
                        count: 1,
                    });
                }
                _ => {
                    status.state = State::Final(match port {
                        Some(port) => Final::PortConflict {
                            port,
                            protocol: crate::port::Protocol::Tcp,
                            pid: None,
                            comm: None,
                        },
                        None => Final::Succeeded,
                    });
                }
            }
        });
        if matches!(report.status.state, State::Final(_)) {
            self.alive.remove(at);
        }
        self.told.push(report.clone());
        self.rig.tell(Input::Status(report));
    }

    fn join(&mut self, host: usize, full: bool) {
        let told = self.rig.facts(HOSTS[host]);
        let boot = self.boots.get(&host).copied().unwrap_or_default();
        let listeners = self.foreign.get(&host);
        self.rig.tell(Input::HostReport(HostFacts {
            boot_id: format!("boot-{boot}"),
            dynamic: "20000-20007".parse().unwrap(),
            foreign: listeners
                .map(|port| foreign(*port, 1, "nc"))
                .into_iter()
                .collect(),
            // After a boot nothing lives there.
            replicas: told
                .replicas
                .into_iter()
                .filter(|it| {
                    let key = (it.service.to_string(), it.index, it.incarnation.0);
                    self.alive.contains_key(&key)
                })
                .collect(),
            full,
            ..facts(HOSTS[host])
        }));
    }

    /// Every host does at once what it is wanted to.
    fn start_what_is_ordered(&mut self) {
        for host in HOSTS {
            let host: HostName = host.parse().unwrap();
            let Some((_, false, wanted)) = self.rig.registry.desired(&host) else {
                // Unknown, or to tell everything before it acts.
                continue;
            };
            for desired in wanted {
                let key = (
                    desired.service.to_string(),
                    desired.index,
                    desired.incarnation.0,
                );
                let ended = desired.last_status.as_ref();
                let ended = ended.is_some_and(|it| matches!(it.state, State::Final(_)));
                if desired.want == Want::Run && !ended {
                    let here = (host.clone(), desired.grant.clone());
                    self.alive.entry(key).or_insert(here);
                }
            }
        }
    }

    fn check(&mut self) {
        self.no_number_belongs_to_two();
        self.everything_told_is_shown_or_held();
        if self.rig.registry.shown.windows.is_empty() {
            self.only_ready_replicas_are_listed();
        }
        self.no_attached_replica_waits_or_moves();
        for effect in std::mem::take(&mut self.rig.effects) {
            if let Effect::Publish { revision, .. } = effect {
                assert!(revision > self.last_revision, "revisions only grow");
                assert!(revision < self.rig.registry.shown.ceiling);
                self.last_revision = revision;
            }
        }
    }

    fn no_number_belongs_to_two(&self) {
        let mut taken: BTreeMap<(HostName, Side, Port), &(String, u32, u32)> = BTreeMap::new();
        for (who, (host, grant)) in &self.alive {
            for port in &grant.ports {
                for (side, number) in Side::of(port.protocol)
                    .flat_map(|side| port.numbers.iter().map(move |number| (side, number)))
                {
                    let other = taken.insert((host.clone(), side, number), who);
                    assert_eq!(other, None, "{number} on {host} belongs to {who:?} too");
                }
            }
        }
    }

    fn no_attached_replica_waits_or_moves(&self) {
        let truth = &self.rig.registry.truth;
        for (key, replica) in truth.replicas.iter() {
            let service = truth.services.find(&key.0).unwrap();
            match &replica.phase {
                Phase::Waiting(_) => assert!(!service.attached, "{key:?} waits"),
                Phase::Placed(placement) => {
                    assert_eq!(placement.attached.is_some(), service.attached, "{key:?}");
                }
                Phase::Ended(_) => {}
            }
        }
    }

    /// A look at the whole of a service finds nothing that looks at single replicas missed.
    fn everything_told_is_shown_or_held(&self) {
        let registry = &self.rig.registry;
        let shown = &registry.shown;
        if !shown.has_revisions() || !shown.windows.is_empty() {
            return;
        }
        assert!(shown.news.is_empty());
        let services = registry.truth.services.iter();
        // What a refused batch would have shown is looked at with the next one.
        for (id, service) in services.filter(|(id, _)| !shown.truth.contains(**id)) {
            let look = registry.look(*id, &super::touched::Touch::Whole);
            assert!(!look.is_change(), "{}", service.name);
        }
    }

    fn only_ready_replicas_are_listed(&self) {
        let truth = &self.rig.registry.truth;
        let mut listed = BTreeSet::new();
        for (service, set) in &self.rig.table {
            let id = self.rig.registry.view().services[service].id;
            for endpoint in &set.endpoints {
                let replica = truth.replicas.durable(&(id, endpoint.replica)).unwrap();
                assert_eq!(replica.incarnation, endpoint.incarnation);
                if endpoint.state == EndpointState::Ready {
                    let status = replica.status.as_ref().unwrap();
                    assert!(status.ready && status.state == State::Up);
                    assert!(endpoint.address.is_some());
                    listed.insert((service.clone(), endpoint.replica));
                }
            }
        }
        for (service, view) in &self.rig.registry.view().services {
            for replica in &view.replicas {
                let is_listed = listed.contains(&(service.clone(), replica.replica));
                assert_eq!(replica.ready, is_listed, "{service} {replica:?}");
            }
        }
    }

    /// After a while of peace, a start on the store finds what runs.
    fn rests_as_stored(mut self) {
        self.rig.store.failing_commits = 0;
        self.land();
        self.rig.pass(Duration::from_secs(2));
        // A rest that ended just now is news, written a moment later.
        while self.rig.registry.truth.has_news() {
            self.rig.pass(Duration::from_secs(1));
        }
        let stored = self.rig.store.load().unwrap();
        let mut running: BTreeMap<&str, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
        for write in self.rig.everything() {
            let table = running.entry(write.table).or_default();
            table.insert(write.key, write.value.unwrap());
        }
        for table in tables::ALL {
            let empty = BTreeMap::new();
            let on_disk = stored.tables.get(table).unwrap_or(&empty);
            assert_eq!(on_disk, running.get(table).unwrap_or(&empty), "{table}");
        }
        let before = self.rig.table.clone();
        let services = self.rig.registry.view().services.clone();
        let rig = self.rig.restart();
        assert_eq!(rig.table, before);
        for (name, service) in &rig.registry.view().services {
            for (after, before) in service.replicas.iter().zip(&services[name].replicas) {
                // Why one waits is found anew.
                let after = super::ReplicaView {
                    reason: before.reason.clone(),
                    reasons: before.reasons.clone(),
                    reason_sums: before.reason_sums.clone(),
                    waits: before.waits.clone(),
                    state: before.state.clone(),
                    ..after.clone()
                };
                assert_eq!(after, *before);
            }
        }
    }
}

fn shaped(service: &str, replicas: u32, shape: usize) -> String {
    match shape {
        0 => web(service, replicas),
        1 => with_port(service, replicas, "20001"),
        2 => with_port(service, replicas, "{ any = 3, protocol = \"tcp+udp\" }"),
        _ => format!(
            "{}[restart]\ngive_up = {{ max_restarts = 1, then = \"requeue\", rest = \"1m\" }}\n",
            web(service, replicas)
        ),
    }
}

proptest! {
    #[test]
    fn any_life_of_a_cluster_keeps_the_promises(
        ops in proptest::collection::vec(op(), 1..80),
        coalesce in prop::sample::select(vec![0_u64, 20, 1000]),
    ) {
        let mut world = World::new(Duration::from_millis(coalesce));
        for op in ops {
            world.run(op);
        }
        world.rests_as_stored();
    }
}
