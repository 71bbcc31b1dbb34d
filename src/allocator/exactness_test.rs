//! The quick answers against the plain one: a set of feasible hosts is what asking each host says, in
//! states that random operations make; a what-if is what really happens, and leaves no trace.

use std::time::Duration;

use proptest::prelude::*;

use crate::identity::{HostId, ReplicaId, ServiceId};
use crate::port::{PortRange, Protocol};
use crate::port_pool::{Foreign, PortGrant, PortRequest, Stranger};
use crate::time::Monotonic;

use super::model::{HIGH, LOW};
use super::model_test::{block, foreign, protocol, recorded, replica_id, request};
use super::testing::{hosts_by, port, ranges, replica, whole};
use super::{
    AfterRelease, Allocator, AllocatorConfig, CoolingRecord, GrantRecord, HostSet, HostSpec,
    HostState, Need, Removal, Suspended,
};

const HOSTS: u32 = 5;
/// Who asks and is no other replica.
const ASKER: u32 = 1_000;

#[derive(Clone, Debug)]
enum Op {
    Reserve(HostId, ReplicaId, PortRequest),
    /// The same in a transaction that stays open: one of two.
    Try(usize, HostId, ReplicaId, PortRequest),
    End(usize, bool),
    BeginRelease(ReplicaId),
    ConfirmRelease(ReplicaId, AfterRelease),
    Foreign(HostId, Vec<(u16, Protocol)>),
    Conflict(HostId, u16, Protocol),
    Ranges(HostId, &'static str, &'static str, &'static str),
    State(HostId, bool),
    Swap(HostId, HostId),
    Remove(HostId),
    Wait(ReplicaId, Option<HostId>, PortRequest),
    StopWaiting(ReplicaId),
    Later(u64),
    Restore(HostId, ReplicaId, PortGrant, bool),
    RestoreCooling(HostId, (u16, u16), Protocol, u64, u64),
    Ask(Question),
    Compact,
}

#[derive(Clone, Debug)]
struct Question {
    request: PortRequest,
    service: ServiceId,
    replicas: u32,
    later: Option<u64>,
    candidates: Option<Vec<u32>>,
}

impl Question {
    fn need(&self, now: u64) -> Need<'_> {
        Need {
            request: &self.request,
            service: self.service,
            replicas: self.replicas,
            at: self.later.map(|ms| Monotonic::from_millis(now + ms)),
        }
    }

    fn candidates(&self) -> Option<HostSet> {
        let hosts = self.candidates.as_ref()?.iter();
        Some(hosts.copied().map(HostId).collect())
    }
}

fn host_id() -> impl Strategy<Value = HostId> {
    (0..HOSTS).prop_map(HostId)
}

fn question() -> impl Strategy<Value = Question> {
    let later = proptest::option::weighted(0.3, 1u64..90_000);
    let candidates = proptest::option::weighted(0.3, proptest::collection::vec(0..HOSTS + 2, 0..6));
    let replicas = prop_oneof![4 => Just(1), 1 => 0u32..6];
    (request(), 0u64..3, replicas, later, candidates).prop_map(
        |(request, service, replicas, later, candidates)| Question {
            request,
            service: ServiceId(service),
            replicas,
            later,
            candidates,
        },
    )
}

fn operation() -> impl Strategy<Value = Op> {
    let after = prop_oneof![Just(AfterRelease::Cool), Just(AfterRelease::Free)];
    let listeners = proptest::collection::vec((LOW..=HIGH, protocol()), 0..3);
    let dynamic = prop_oneof![Just("100-115"), Just("100-119"), Just("104-105,110-123")];
    let fixed = prop_oneof![3 => Just("99-130"), 1 => Just("105-112")];
    let reserved = prop_oneof![Just(""), Just("103"), Just("101,112-114")];
    let wish = || proptest::option::of(host_id());
    prop_oneof![
        12 => (host_id(), replica_id(), request()).prop_map(|(h, w, r)| Op::Reserve(h, w, r)),
        6 => (0usize..2, host_id(), replica_id(), request())
            .prop_map(|(t, h, w, r)| Op::Try(t, h, w, r)),
        2 => (0usize..2, any::<bool>()).prop_map(|(t, commit)| Op::End(t, commit)),
        2 => replica_id().prop_map(Op::BeginRelease),
        8 => (replica_id(), after).prop_map(|(who, after)| Op::ConfirmRelease(who, after)),
        2 => (host_id(), listeners).prop_map(|(host, list)| Op::Foreign(host, list)),
        2 => (host_id(), LOW..=HIGH, protocol()).prop_map(|(h, n, p)| Op::Conflict(h, n, p)),
        2 => (host_id(), dynamic, fixed, reserved)
            .prop_map(|(h, d, f, r)| Op::Ranges(h, d, f, r)),
        2 => (host_id(), prop::bool::weighted(0.7)).prop_map(|(h, up)| Op::State(h, up)),
        1 => (host_id(), host_id()).prop_map(|(a, b)| Op::Swap(a, b)),
        1 => host_id().prop_map(Op::Remove),
        3 => (replica_id(), wish(), request()).prop_map(|(w, h, r)| Op::Wait(w, h, r)),
        1 => replica_id().prop_map(Op::StopWaiting),
        3 => (1u64..50_000).prop_map(Op::Later),
        2 => (host_id(), replica_id(), recorded(), any::<bool>())
            .prop_map(|(h, w, grant, releasing)| Op::Restore(h, w, grant, releasing)),
        2 => (host_id(), block(), protocol(), 1u64..90_000, 0u64..3)
            .prop_map(|(h, numbers, p, left, s)| Op::RestoreCooling(h, numbers, p, left, s)),
        6 => question().prop_map(Op::Ask),
        1 => Just(Op::Compact),
    ]
}

/// An allocator under random operations.
struct Scene {
    allocator: Allocator,
    now: u64,
    open: [Option<Suspended>; 2],
}

impl Scene {
    fn new(direct_below: u32) -> Self {
        let config = AllocatorConfig {
            direct_below,
            ..AllocatorConfig::default()
        };
        let allocator = hosts_by(config, 0, "");
        let mut scene = Self {
            allocator,
            now: 0,
            open: [None, None],
        };
        for id in 0..HOSTS {
            scene.put(HostId(id), "100-115", "99-130", "");
        }
        scene
    }

    fn put(&mut self, host: HostId, dynamic: &str, fixed: &str, reserved: &str) {
        let name = self.allocator.host_name(host);
        let name = name.unwrap_or_else(|| {
            // One that no host has, also after hosts changed places.
            let taken = self.allocator.hosts();
            let mut names = (0..).map(|n| format!("n{n}").parse().unwrap());
            names
                .find(|name| taken.iter().all(|(_, other, _)| other != name))
                .unwrap()
        });
        let mut spec = HostSpec::new(name);
        spec.ranges = ranges(dynamic, fixed, reserved);
        self.allocator.put_host(host, spec).unwrap();
        self.allocator.set_host_state(host, HostState::Up).unwrap();
    }

    fn apply(&mut self, op: &Op) {
        let at = Monotonic::from_millis(self.now);
        let all = &self.allocator;
        match op.clone() {
            Op::Reserve(host, who, request) => {
                let mut transaction = all.begin(at);
                let _ = transaction.reserve(host, who, &request, None);
                transaction.commit();
            }
            Op::Try(place, host, who, request) => {
                let open = self.open[place].take();
                let mut transaction = match open {
                    Some(open) => all.resume(open),
                    None => all.begin(at),
                };
                let _ = transaction.reserve(host, who, &request, None);
                self.open[place] = Some(transaction.suspend());
            }
            Op::End(place, commit) => {
                if let Some(open) = self.open[place].take() {
                    let transaction = all.resume(open);
                    if commit {
                        transaction.commit();
                    }
                }
            }
            Op::BeginRelease(who) => {
                let _ = all.begin_release(who);
            }
            Op::ConfirmRelease(who, after) => {
                let _ = all.confirm_release(who, at, after);
            }
            Op::Foreign(host, list) => {
                let list: Vec<Foreign> = list.iter().map(|(n, p)| foreign(*n, *p)).collect();
                let _ = all.set_foreign(host, &list);
            }
            Op::Conflict(host, number, protocol) => {
                let stranger = Stranger::default();
                let _ = all.report_conflict(host, port(number), protocol, &stranger, at);
            }
            Op::Ranges(host, dynamic, fixed, reserved) => {
                self.put(host, dynamic, fixed, reserved);
            }
            Op::State(host, up) => {
                let state = if up { HostState::Up } else { HostState::Lost };
                let _ = all.set_host_state(host, state);
            }
            Op::Swap(a, b) => {
                let named = |host: HostId| Some((host, all.host_name(host)?));
                if let (Some((_, first)), Some((_, second)), true) = (named(a), named(b), a != b) {
                    let spec = |host, name| HostSpec {
                        ranges: all.ranges(host).unwrap(),
                        ..HostSpec::new(name)
                    };
                    let _ = all.put_hosts(vec![(b, spec(a, first)), (a, spec(b, second))]);
                }
            }
            Op::Remove(host) => {
                let _ = all.remove_host(host, Removal::IfEmpty);
            }
            Op::Wait(who, host, request) => all.wait(who, host, &request),
            Op::StopWaiting(who) => {
                all.stop_waiting(who);
            }
            Op::Later(ms) => {
                self.now += ms;
                all.on_deadline(Monotonic::from_millis(self.now));
            }
            Op::Restore(host, replica, grant, releasing) => {
                all.restore([GrantRecord {
                    host,
                    replica,
                    grant,
                    releasing,
                }]);
            }
            Op::RestoreCooling(host, (first, last), protocol, left, service) => {
                let record = CoolingRecord {
                    host,
                    protocol,
                    numbers: PortRange::new(port(first), port(last)).unwrap(),
                    service: ServiceId(service),
                    left: Duration::from_millis(left),
                };
                all.restore_cooling([record], at);
            }
            Op::Ask(question) => {
                let mut transaction = all.begin(at);
                let candidates = question.candidates();
                let need = question.need(self.now);
                let _ = transaction.feasible(&need, candidates.as_ref());
            }
            Op::Compact => all.compact(),
        }
    }

    fn after(ops: &[Op], direct_below: u32) -> Self {
        Self::new(direct_below).then(ops)
    }

    /// The same with every number watched from the beginning, so that each operation has to keep the
    /// sets in step.
    fn watching(ops: &[Op]) -> Self {
        let scene = Self::new(0);
        for (request, service) in fixed_asks() {
            let mut transaction = scene.allocator.begin(Monotonic::default());
            let _ = transaction.feasible(&Need::new(&request, service), None);
        }
        scene.then(ops)
    }

    fn then(self, ops: &[Op]) -> Self {
        let mut scene = self;
        for op in ops {
            scene.apply(op);
        }
        scene
    }

    /// How many replicas the host takes one after the other: reserved, and given back.
    fn taken(&self, at: Monotonic, host: HostId, question: &Question, most: u32) -> u32 {
        let mut transaction = self.allocator.begin(at);
        let asker = |place| replica(question.service.0, ASKER + place, 0);
        (0..most)
            .take_while(|place| {
                let who = asker(*place);
                transaction
                    .reserve(host, who, &question.request, None)
                    .is_ok()
            })
            .count()
            .try_into()
            .unwrap()
    }

    /// The answer by asking each host, at the moment that is asked about.
    fn asked(&self, question: &Question) -> Vec<u32> {
        let later = question.later.unwrap_or(0);
        let at = Monotonic::from_millis(self.now + later);
        let replicas = question.replicas.max(1);
        let candidates = question.candidates();
        (0..HOSTS + 2)
            .filter(|host| {
                let host = HostId(*host);
                candidates.as_ref().is_none_or(|set| set.contains(host))
                    && self.taken(at, host, question, replicas) == replicas
            })
            .collect()
    }
}

/// Every number asked for as fixed, on each side, by each service.
fn fixed_asks() -> impl Iterator<Item = (PortRequest, ServiceId)> {
    let sides = ["tcp", "udp"].into_iter();
    let numbers = sides.flat_map(|side| (LOW..=HIGH).map(move |number| (side, number)));
    numbers.flat_map(|(side, number)| {
        let request = super::testing::ask(&format!("a={number}/{side}"));
        (0..3).map(move |service| (request.clone(), ServiceId(service)))
    })
}

fn listed(hosts: &HostSet) -> Vec<u32> {
    hosts.iter().map(|host| host.0).collect()
}

proptest! {
    #[test]
    fn feasible_hosts_are_those_that_say_so_when_asked(
        ops in proptest::collection::vec(operation(), 1..70),
        questions in proptest::collection::vec(question(), 1..6),
    ) {
        let scene = Scene::watching(&ops);
        let mut transaction = scene.allocator.begin(Monotonic::from_millis(scene.now));
        for (request, service) in fixed_asks() {
            let need = Need::new(&request, service);
            let fitting = transaction.feasible(&need, None);
            let expected = (0..HOSTS)
                .filter(|host| transaction.explain_first(HostId(*host), &need).is_none());
            prop_assert_eq!(listed(&fitting), expected.collect::<Vec<_>>(), "{:?}", request);
        }
        drop(transaction);
        for question in questions {
            // The same again, as asking about later moves time on.
            let twin = Scene::after(&ops, u32::MAX);
            let expected = twin.asked(&question);
            let (need, candidates) = (question.need(scene.now), question.candidates());
            let before = whole(&scene.allocator);
            let mut transaction = scene.allocator.begin(Monotonic::from_millis(scene.now));
            let fitting = transaction.feasible(&need, candidates.as_ref());
            prop_assert_eq!(listed(&fitting), expected.clone(), "{:?}", question);
            for host in 0..HOSTS + 2 {
                let candidate = candidates.as_ref().is_none_or(|set| set.contains(HostId(host)));
                if !candidate {
                    continue;
                }
                let why = transaction.explain(HostId(host), &need);
                prop_assert_eq!(why.is_empty(), expected.contains(&host), "{:?}: {:?}", question, why);
                let first = transaction.explain_first(HostId(host), &need);
                prop_assert_eq!(first.as_ref(), why.first());
            }
            let sum = transaction.explain_all(&need, candidates.as_ref());
            prop_assert_eq!(sum.fitting as usize, expected.len());
            drop(transaction);
            prop_assert_eq!(whole(&scene.allocator), before);
        }
    }

    #[test]
    fn as_many_replicas_fit_as_can_be_reserved_one_after_the_other(
        ops in proptest::collection::vec(operation(), 1..50),
        question in question(),
    ) {
        let most = 30;
        let scene = Scene::after(&ops, 0);
        let twin = Scene::after(&ops, 0);
        let at = Monotonic::from_millis(scene.now);
        let later = Monotonic::from_millis(scene.now + question.later.unwrap_or(0));
        let mut transaction = scene.allocator.begin(at);
        for host in (0..HOSTS + 2).map(HostId) {
            let told = transaction.max_replicas(&question.need(scene.now), host, most);
            let taken = twin.taken(later, host, &question, most);
            if question.request.has_blocks() {
                prop_assert!(told <= taken && (told > 0) == (taken > 0), "{told} of {taken}");
            } else {
                prop_assert_eq!(told, taken, "{:?} on {}", question, host);
            }
        }
    }

    #[test]
    fn a_what_if_says_what_happens_and_nothing_happens(
        ops in proptest::collection::vec(operation(), 1..50),
        given in replica_id(),
        placed in (host_id(), replica_id(), request()),
        question in question(),
    ) {
        let scene = Scene::after(&ops, 0);
        let twin = Scene::after(&ops, u32::MAX);
        let at = Monotonic::from_millis(scene.now);
        let before = whole(&scene.allocator);
        let mut world = scene.allocator.what_if(at);
        let mark = world.mark();
        let need = question.need(scene.now);
        let candidates = question.candidates();
        let untouched = world.feasible(&need, candidates.as_ref());

        let gave = world.give(given);
        let ended = twin.allocator.confirm_release(given, at, AfterRelease::Cool);
        prop_assert_eq!(gave, ended.map(|_| ()));
        let (host, who, request) = &placed;
        let told = world.reserve(*host, *who, request, None);
        let mut transaction = twin.allocator.begin(at);
        let real = transaction.reserve(*host, *who, request, None);
        let agree = match (&told, &real) {
            (Ok(told), Ok(real)) => told == real,
            (told, real) => told.is_err() == real.is_err(),
        };
        prop_assert!(agree, "{:?}, but really {:?}", told, real);

        // Not committed: that would end the wait of who was placed.
        let fitting = world.feasible(&need, candidates.as_ref());
        prop_assert_eq!(listed(&fitting), twin.asked(&question));
        drop(transaction);
        prop_assert_eq!(whole(&scene.allocator), before);
        world.rollback(mark).unwrap();
        prop_assert_eq!(world.feasible(&need, candidates.as_ref()), untouched);
    }

    #[test]
    fn what_is_exported_restored_and_exported_again_is_equal(
        ops in proptest::collection::vec(operation(), 1..60),
    ) {
        let scene = Scene::after(&ops, 0);
        let export = scene.allocator.export();
        let again = Scene::new(0);
        again.allocator.on_deadline(Monotonic::from_millis(scene.now));
        for (id, _, _) in again.allocator.hosts() {
            again.allocator.remove_host(id, Removal::IfEmpty).unwrap();
        }
        for (id, name, _) in scene.allocator.hosts() {
            let mut spec = HostSpec::new(name);
            spec.ranges = scene.allocator.ranges(id).unwrap();
            again.allocator.put_host(id, spec).unwrap();
        }
        again.allocator.restore(export.grants.clone());
        let at = Monotonic::from_millis(scene.now);
        prop_assert_eq!(again.allocator.restore_cooling(export.cooling.clone(), at), []);
        prop_assert_eq!(again.allocator.export(), export);
    }
}

#[test]
fn numbers_asked_for_long_ago_are_watched_no_more_and_answered_all_the_same() {
    let config = AllocatorConfig {
        direct_below: 0,
        ..AllocatorConfig::default()
    };
    let world = hosts_by(config, 3, "20000-20999");
    let who = replica(1, 0, 0);
    let mut held = Vec::new();
    for round in 0..2 {
        for number in 2_000..2_700_u16 {
            let request = super::testing::ask(&format!("a={number}"));
            let mut transaction = world.begin(Monotonic::default());
            let need = Need::new(&request, who.service);
            let fitting = transaction.feasible(&need, None);
            let expected: &[u32] = if held.contains(&number) {
                &[0, 2]
            } else {
                &[0, 1, 2]
            };
            assert_eq!(listed(&fitting), expected, "{number} in round {round}");
            if number % 3 == 0 && round == 0 {
                let index = u32::from(number);
                let holder = replica(2, index, 0);
                transaction
                    .reserve(HostId(1), holder, &request, None)
                    .unwrap();
                transaction.commit();
                held.push(number);
            }
        }
        assert_eq!(world.stats().watched, 512);
    }
}

#[test]
fn numbers_that_are_free_but_left_alone_are_not_counted_as_room() {
    let config = AllocatorConfig {
        direct_below: 0,
        ..AllocatorConfig::default()
    };
    let fitting = |world: &Allocator, request: &str| {
        let request = super::testing::ask(request);
        let mut transaction = world.begin(Monotonic::default());
        listed(&transaction.feasible(&Need::new(&request, ServiceId(1)), None))
    };
    let all_fixed = super::testing::ask("a=20000 b=20001 c=20002 d=20003");
    // As many as make a host roomy, here and at the wider bound.
    for range in ["20000-20003", "20000-20008"] {
        let world = hosts_by(config, 2, range);
        let many = if range == "20000-20003" { 1 } else { 6 };
        let any: Vec<String> = (0..many).map(|n| format!("x{n}=any")).collect();
        let any = any.join(" ");
        assert_eq!(fitting(&world, &any), [0, 1]);
        let waits = replica(9, 0, 0);
        world.wait(waits, Some(HostId(1)), &all_fixed);
        assert_eq!(fitting(&world, &any), [0], "{range}");
        world.wait(waits, None, &all_fixed);
        assert!(fitting(&world, &any).is_empty(), "{range}");
        world.stop_waiting(waits);
        let beside = format!("{any} a=20000 b=20001 c=20002 d=20003");
        assert!(
            fitting(&world, &beside).is_empty(),
            "its own numbers, {range}"
        );
    }
}
