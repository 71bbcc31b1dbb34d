//! Random operations against the plain model of [`super::model`].

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::identity::{HostId, ReplicaId, ServiceId};
use crate::port::{PortRange, Protocol};
use crate::port_pool::{Foreign, PortGrant, PortRequest, PortState, Side, Stranger};
use crate::time::Monotonic;

use super::model::{HIGH, LOW, Model, ModelHost};
use super::testing::{ask, granted, hosts, port, ranges, replica, whole};
use super::{
    AfterRelease, Allocator, CoolingRecord, GrantRecord, HostSpec, HostState, Need, ReserveError,
};

const HOSTS: u32 = 2;

#[derive(Clone, Debug)]
enum Op {
    Transact(Vec<Try>, bool),
    BeginRelease(ReplicaId),
    ConfirmRelease(ReplicaId, AfterRelease),
    Foreign(HostId, Vec<(u16, Protocol)>),
    Conflict(HostId, u16, Protocol),
    Ranges(HostId, &'static str, &'static str),
    State(HostId, bool),
    Wait(ReplicaId, Option<HostId>, PortRequest),
    StopWaiting(ReplicaId),
    Later(u64),
    Restore(HostId, ReplicaId, PortGrant, bool),
    RestoreCooling(HostId, u16, u16, Protocol, u64),
}

#[derive(Clone, Debug)]
enum Try {
    Reserve(HostId, ReplicaId, PortRequest, Option<PortGrant>),
    Mark,
    Rollback(usize),
}

pub(super) fn host_id() -> impl Strategy<Value = HostId> {
    (0..HOSTS).prop_map(HostId)
}

pub(super) fn replica_id() -> impl Strategy<Value = ReplicaId> {
    (0u64..3, 0u32..3, 0u32..2)
        .prop_map(|(service, index, incarnation)| replica(service, index, incarnation))
}

pub(super) fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        4 => Just(Protocol::Tcp),
        1 => Just(Protocol::Udp),
        2 => Just(Protocol::TcpUdp),
    ]
}

pub(super) fn request() -> impl Strategy<Value = PortRequest> {
    let want = prop_oneof![
        3 => (LOW - 2..=HIGH).prop_map(|n| n.to_string()),
        5 => Just("any".to_owned()),
        3 => (2u16..5).prop_map(|n| format!("any:{n}")),
        // Large ones empty the pool, so that what cools is needed.
        1 => (6u16..12).prop_map(|n| format!("any:{n}")),
    ];
    let within = prop_oneof![
        3 => Just(""),
        1 => Just("@100-107"),
        1 => Just("@104-105,110-119"),
        1 => Just("@1-50"),
    ];
    let wanted = (want, protocol(), within);
    proptest::collection::vec(wanted, 0..5).prop_map(|wanted| {
        let mut text = String::new();
        let mut fixed = BTreeSet::new();
        for (place, (want, protocol, within)) in wanted.iter().enumerate() {
            let any = want.starts_with("any");
            if any || fixed.insert(want) {
                let within = if any { within } else { "" };
                text += &format!("p{place}={want}/{protocol}{within} ");
            }
        }
        ask(&text)
    })
}

pub(super) fn block() -> impl Strategy<Value = (u16, u16)> {
    (LOW..=HIGH - 2, 0u16..3).prop_map(|(first, more)| (first, first + more))
}

pub(super) fn recorded() -> impl Strategy<Value = PortGrant> {
    proptest::collection::vec((block(), protocol()), 1..3).prop_map(|ports| {
        let mut text = String::new();
        for (place, ((first, last), protocol)) in ports.iter().enumerate() {
            text += &format!("r{place}={first}-{last}/{protocol} ");
        }
        granted(&text)
    })
}

fn attempt() -> impl Strategy<Value = Try> {
    let former = proptest::option::weighted(
        0.3,
        (block(), protocol()).prop_map(|((first, last), protocol)| {
            granted(&format!("p0={first}-{last}/{protocol} p1={last}"))
        }),
    );
    prop_oneof![
        6 => (host_id(), replica_id(), request(), former)
            .prop_map(|(host, who, ask, former)| Try::Reserve(host, who, ask, former)),
        1 => Just(Try::Mark),
        1 => (0usize..3).prop_map(Try::Rollback),
    ]
}

fn operation() -> impl Strategy<Value = Op> {
    let after = prop_oneof![Just(AfterRelease::Cool), Just(AfterRelease::Free)];
    let foreign = proptest::collection::vec((LOW..=HIGH, protocol()), 0..3);
    let span = prop_oneof![Just("100-115"), Just("100-119"), Just("104-105,110-123")];
    let reserved = prop_oneof![Just(""), Just("103"), Just("101,112-114")];
    let strangers = || proptest::option::of(host_id());
    prop_oneof![
        12 => (proptest::collection::vec(attempt(), 1..5), prop::bool::weighted(0.8))
            .prop_map(|(tries, commit)| Op::Transact(tries, commit)),
        2 => replica_id().prop_map(Op::BeginRelease),
        8 => (replica_id(), after).prop_map(|(who, after)| Op::ConfirmRelease(who, after)),
        2 => (host_id(), foreign).prop_map(|(host, list)| Op::Foreign(host, list)),
        1 => (host_id(), LOW..=HIGH, protocol()).prop_map(|(h, n, p)| Op::Conflict(h, n, p)),
        3 => (host_id(), span, reserved).prop_map(|(h, d, r)| Op::Ranges(h, d, r)),
        1 => (host_id(), prop::bool::weighted(0.8)).prop_map(|(h, up)| Op::State(h, up)),
        1 => (replica_id(), strangers(), request()).prop_map(|(w, h, r)| Op::Wait(w, h, r)),
        1 => replica_id().prop_map(Op::StopWaiting),
        3 => (1u64..50_000).prop_map(Op::Later),
        1 => (host_id(), replica_id(), recorded(), any::<bool>())
            .prop_map(|(h, who, grant, releasing)| Op::Restore(h, who, grant, releasing)),
        1 => (host_id(), block(), protocol(), 1u64..90_000)
            .prop_map(|(h, (first, last), p, left)| Op::RestoreCooling(h, first, last, p, left)),
    ]
}

struct Pair {
    real: Allocator,
    model: Model,
}

impl Pair {
    fn new() -> Self {
        let real = hosts(HOSTS, "100-115");
        let ranges = ranges("100-115", "99-130", "");
        for id in 0..HOSTS {
            let mut spec = HostSpec::new(format!("n{id}").parse().unwrap());
            spec.ranges = ranges.clone();
            real.put_host(HostId(id), spec).unwrap();
        }
        let host = || ModelHost {
            up: true,
            ranges: ranges.clone(),
            numbers: BTreeMap::new(),
        };
        let model = Model {
            now: 0,
            hosts: (0..HOSTS).map(|_| host()).collect(),
            granted: BTreeSet::new(),
            waiting: BTreeMap::new(),
        };
        Self { real, model }
    }

    fn now(&self) -> Monotonic {
        Monotonic::from_millis(self.model.now)
    }

    fn apply(&mut self, op: Op) {
        let now = self.now();
        match op {
            Op::Transact(tries, commit) => self.transact(tries, commit),
            Op::BeginRelease(who) => {
                let released = self.real.begin_release(who);
                if released.is_ok() {
                    let numbers = self
                        .model
                        .hosts
                        .iter_mut()
                        .flat_map(|h| h.numbers.values_mut());
                    for holder in numbers.flat_map(|layers| &mut layers.holders) {
                        holder.1 |= holder.0 == who;
                    }
                }
            }
            Op::ConfirmRelease(who, after) => {
                let before = whole(&self.real);
                match self.real.confirm_release(who, now, after) {
                    Ok(_) => self.model.release(who, after),
                    Err(_) => {
                        assert!(!self.model.holds(who), "{who:?} could not release");
                        assert_eq!(whole(&self.real), before);
                    }
                }
            }
            Op::Foreign(host, list) => {
                let list: Vec<Foreign> = list.iter().map(|(n, p)| foreign(*n, *p)).collect();
                self.real.set_foreign(host, &list).unwrap();
                let model = &mut self.model.hosts[host.0 as usize];
                for number in LOW..=HIGH {
                    for side in Side::BOTH {
                        let listed = list.iter().any(|f| {
                            f.port == port(number) && Side::of(f.protocol).any(|s| s == side)
                        });
                        let layers = model.layers(side, number);
                        if layers.reported && !listed {
                            layers.rests_until = None;
                        }
                        layers.reported = listed;
                    }
                }
            }
            Op::Conflict(host, number, protocol) => {
                let stranger = Stranger::default();
                self.real
                    .report_conflict(host, port(number), protocol, &stranger, now)
                    .unwrap();
                let until = self.model.now + 60_000;
                for side in Side::of(protocol) {
                    let model = &mut self.model.hosts[host.0 as usize];
                    model.layers(side, number).rests_until = Some(until);
                }
            }
            Op::Ranges(host, dynamic, reserved) => {
                let ranges = ranges(dynamic, "99-130", reserved);
                let mut spec = HostSpec::new(format!("n{host}").parse().unwrap());
                spec.ranges = ranges.clone();
                self.real.put_host(host, spec).unwrap();
                self.model.hosts[host.0 as usize].ranges = ranges;
            }
            Op::State(host, up) => {
                let state = if up {
                    HostState::Up
                } else {
                    HostState::Suspect
                };
                self.real.set_host_state(host, state).unwrap();
                self.model.hosts[host.0 as usize].up = up;
            }
            Op::Wait(who, host, request) => {
                self.real.wait(who, host, &request);
                self.model.waiting.insert(who, (host, request));
            }
            Op::StopWaiting(who) => {
                let waited = self.real.stop_waiting(who);
                assert_eq!(waited, self.model.waiting.remove(&who).is_some());
            }
            Op::Later(ms) => {
                self.model.advance(self.model.now + ms);
                let now = self.now();
                self.real.on_deadline(now);
                assert!(self.real.next_deadline().is_none_or(|next| next > now));
            }
            Op::Restore(host, who, grant, releasing) => {
                // The model knows one record per replica and host.
                if !self.model.holds(who) {
                    self.model.hold(host, who, &grant, releasing);
                    self.real.restore([GrantRecord {
                        host,
                        replica: who,
                        grant,
                        releasing,
                    }]);
                }
            }
            Op::RestoreCooling(host, first, last, protocol, left) => {
                let numbers = PortRange::new(port(first), port(last)).unwrap();
                let record = CoolingRecord {
                    host,
                    protocol,
                    numbers,
                    service: ServiceId(1),
                    left: std::time::Duration::from_millis(left),
                };
                assert_eq!(self.real.restore_cooling([record], now), []);
                let until = self.model.now + left;
                for (side, number) in Side::of(protocol)
                    .flat_map(|side| (first..=last).map(move |number| (side, number)))
                {
                    let layers = self.model.hosts[host.0 as usize].layers(side, number);
                    if layers.holders.is_empty() {
                        layers.cooling = Some((until, ServiceId(1)));
                    }
                }
            }
        }
    }

    fn transact(&mut self, tries: Vec<Try>, commit: bool) {
        let (before, model_before) = (whole(&self.real), self.model.clone());
        let now = self.now();
        let model = &mut self.model;
        let mut transaction = self.real.begin(now);
        let mut taken: Vec<(HostId, ReplicaId, PortGrant)> = Vec::new();
        let mut marks = Vec::new();
        for attempt in tries {
            match attempt {
                Try::Mark => marks.push((transaction.mark(), taken.len(), model.clone())),
                Try::Rollback(place) => {
                    if let Some((mark, length, earlier)) = marks.get(place).cloned() {
                        transaction.rollback(mark).unwrap();
                        marks.truncate(place + 1);
                        taken.truncate(length);
                        *model = earlier;
                    }
                }
                Try::Reserve(host, who, request, former) => {
                    let service = who.service;
                    let fits = transaction
                        .feasible(&Need::new(&request, service), None)
                        .contains(host);
                    let must = model.must_fit(host, service, &request);
                    assert!(must.is_none_or(|must| must == fits), "{request:?}: {fits}");
                    let why = transaction.explain(host, &Need::new(&request, service));
                    assert_eq!(why.is_empty(), fits, "{why:?}");
                    let held = transaction.grant(who).map(|(_, grant)| grant);
                    match (
                        transaction.reserve(host, who, &request, former.as_ref()),
                        held,
                    ) {
                        (Ok(grant), Some(held)) => assert_eq!(grant, held),
                        (Ok(grant), None) => {
                            assert!(former.is_some() || fits);
                            model.check_grant(host, service, &request, &grant);
                            if former.is_none() {
                                model.check_oldest_first(host, service, &request, &grant);
                            }
                            model.hold(host, who, &grant, false);
                            taken.push((host, who, grant));
                        }
                        (Err(ReserveError::Refused { why: told, .. }), None) => {
                            assert!(!fits);
                            assert_eq!(why, told);
                        }
                        (Err(ReserveError::HoldsOther { .. }), Some(_)) => {}
                        (Err(ReserveError::Stale { newest, .. }), _) => {
                            let newer = ReplicaId {
                                incarnation: newest,
                                ..who
                            };
                            assert!(newer > who && model.holds(newer));
                        }
                        (other, held) => panic!("{other:?} although it held {held:?}"),
                    }
                }
            }
        }
        if commit {
            assert_eq!(transaction.commit(), taken.len());
            for (host, who, grant) in &taken {
                assert_eq!(self.real.grant(*who), Some((*host, grant.clone())));
                self.model.waiting.remove(who);
            }
        } else {
            drop(transaction);
            assert_eq!(whole(&self.real), before);
            self.model = model_before;
        }
    }

    fn agree(&self) {
        for (id, model) in (0..).map(HostId).zip(&self.model.hosts) {
            let counts = self.real.counts(id);
            let mut free = [0, 0];
            let listed = self.real.ports(id);
            for number in LOW - 3..=HIGH + 3 {
                for (side, free) in Side::BOTH.into_iter().zip(&mut free) {
                    let expected = model.state(side, number);
                    let shown = self.real.port_state(id, side, port(number));
                    assert_eq!(shown, expected, "{number} {side:?} on {id}");
                    let is_listed = listed.iter().any(|entry| {
                        entry.numbers.contains(port(number))
                            && entry.state == expected
                            && Side::of(entry.protocol).any(|taken| taken == side)
                    });
                    assert_eq!(is_listed, expected != PortState::Free);
                    let dynamic = model.ranges.dynamic.contains(port(number));
                    *free += u32::from(dynamic && expected == PortState::Free);
                }
            }
            assert_eq!([counts.free_tcp, counts.free_udp], free, "on {id}");
        }
    }

    /// What is exported, restored and exported again is equal.
    fn survives(&self) {
        let export = self.real.export();
        let again = Pair::new().real;
        again.restore(export.grants.clone());
        let now = Monotonic::from_millis(self.model.now);
        assert_eq!(again.restore_cooling(export.cooling.clone(), now), []);
        assert_eq!(again.export(), export);
    }
}

pub(super) fn foreign(number: u16, protocol: Protocol) -> Foreign {
    Foreign {
        port: port(number),
        protocol,
        pid: None,
        comm: None,
    }
}

proptest! {
    #[test]
    fn no_number_is_held_twice_or_lost_and_a_refusal_changes_nothing(
        ops in proptest::collection::vec(operation(), 1..60)
    ) {
        let mut pair = Pair::new();
        for op in ops {
            pair.apply(op);
            pair.agree();
        }
        pair.survives();
    }
}
