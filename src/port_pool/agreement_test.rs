//! Different questions to one pool agree with each other, in random states of every kind.

use proptest::prelude::*;

use crate::identity::{Incarnation, ReplicaId, ServiceId};
use crate::port::{PortRange, Protocol};
use crate::time::Monotonic;

use super::testing::{ask, granted, port, ranges};
use super::{
    Ask, Awaited, Causes, Choice, Draw, FixedStatus, Foreign, Phase, PortPool, PortRequest, Side,
    Stranger, UndoLog, Why,
};

/// Around the border of two words, so that runs cross it.
const LOW: u16 = 112;
const HIGH: u16 = 143;

#[derive(Clone, Debug)]
enum Op {
    Take(ReplicaId, PortRequest),
    Release(ReplicaId, Option<u64>),
    Foreign(Vec<(u16, Protocol)>),
    Refused(u16, Protocol, u64),
    Ranges(&'static str, &'static str),
    Restore(ReplicaId, u16, u16, Protocol),
    RestoreCooling(u16, u16, Protocol, u64, ServiceId),
    Later(u64),
    Compact,
    Flatten,
}

pub(super) fn replica() -> impl Strategy<Value = ReplicaId> {
    (0u64..3, 0u32..4).prop_map(|(service, index)| ReplicaId {
        service: ServiceId(service),
        index,
        incarnation: Incarnation(0),
    })
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        4 => Just(Protocol::Tcp),
        1 => Just(Protocol::Udp),
        2 => Just(Protocol::TcpUdp),
    ]
}

fn number() -> impl Strategy<Value = u16> {
    LOW - 2..=HIGH + 2
}

fn wanted() -> impl Strategy<Value = String> {
    let want = prop_oneof![
        2 => number().prop_map(|n| n.to_string()),
        5 => Just("any".to_owned()),
        3 => (2u16..7).prop_map(|n| format!("any:{n}")),
    ];
    let within = prop_oneof![
        4 => Just(String::new()),
        1 => (LOW..HIGH - 8).prop_map(|n| format!("@{n}-{}", n + 8)),
    ];
    (want, protocol(), within).prop_map(|(want, protocol, within)| {
        let within = if want.contains("any") {
            within
        } else {
            String::new()
        };
        format!("{want}/{protocol}{within}")
    })
}

pub(super) fn request() -> impl Strategy<Value = PortRequest> {
    proptest::collection::vec(wanted(), 1..5).prop_map(|wanted| {
        // A number that is fixed twice is left out, with its port.
        let mut kept: Vec<String> = Vec::new();
        for (name, want) in ('a'..).zip(wanted) {
            let number = want.split('/').next().unwrap_or_default().to_owned();
            let fixed = !number.starts_with("any");
            if !(fixed && kept.iter().any(|other| other.contains(&number))) {
                kept.push(format!("{name}={want}"));
            }
        }
        ask(&kept.join(" "))
    })
}

fn operation() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (replica(), request()).prop_map(|(who, request)| Op::Take(who, request)),
        5 => (replica(), proptest::option::of(1u64..9)).prop_map(|(who, cool)| Op::Release(who, cool)),
        1 => proptest::collection::vec((number(), protocol()), 0..3).prop_map(Op::Foreign),
        1 => (number(), protocol(), 1u64..9).prop_map(|(n, p, ms)| Op::Refused(n, p, ms)),
        1 => prop_oneof![
            Just(("112-143", "")), Just(("112-143", "120-121")), Just(("112-126,130-143", "")),
            Just(("118-135", "112")), Just(("112-143", "127-128")),
        ].prop_map(|(dynamic, reserved)| Op::Ranges(dynamic, reserved)),
        1 => (replica(), number(), 0u16..4, protocol())
            .prop_map(|(who, first, more, protocol)| Op::Restore(who, first, first + more, protocol)),
        1 => (number(), 0u16..6, protocol(), 1u64..9, (0u64..3).prop_map(ServiceId))
            .prop_map(|(first, more, protocol, ms, service)| {
                Op::RestoreCooling(first, first + more, protocol, ms, service)
            }),
        2 => (1u64..4).prop_map(Op::Later),
        1 => Just(Op::Compact),
        1 => Just(Op::Flatten),
    ]
}

/// A pool with its time, after anything that can happen to one.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) pool: PortPool,
    pub(super) now: u64,
    waiting: Awaited,
    here: Awaited,
}

impl World {
    fn new(draw: Draw) -> Self {
        Self {
            pool: PortPool::new(ranges("112-143", "100-150", ""), draw),
            now: 0,
            waiting: Awaited::default(),
            here: Awaited::default(),
        }
    }

    /// Nothing has happened yet.
    pub(super) fn of_few_numbers() -> Self {
        Self::new(Draw::NextFit)
    }

    pub(super) fn someone(index: u32) -> ReplicaId {
        ReplicaId {
            service: ServiceId(1),
            index,
            incarnation: Incarnation(0),
        }
    }

    pub(super) fn ask<'a>(&'a self, service: u64, request: &'a PortRequest) -> Ask<'a> {
        Ask {
            service: ServiceId(service),
            request,
            former: None,
            awaited: [&self.waiting, &self.here],
            now: Monotonic::from_millis(self.now),
        }
    }

    fn fits(&self, service: u64, request: &PortRequest) -> bool {
        let mut choice = Choice::default();
        let ask = self.ask(service, request);
        self.pool.choose(&ask, &mut choice, Causes::Untold)
    }

    /// Takes, if it fits and `who` holds nothing yet.
    pub(super) fn take(
        &mut self,
        who: ReplicaId,
        request: &PortRequest,
        log: &mut UndoLog,
    ) -> bool {
        let mut choice = Choice::default();
        let ask = self.ask(who.service.0, request);
        let fits =
            self.pool.phase(who).is_none() && self.pool.choose(&ask, &mut choice, Causes::Untold);
        if fits {
            self.pool.take(who, request, &choice, log);
        }
        fits
    }

    fn apply(&mut self, op: Op) {
        let until = |ms| Monotonic::from_millis(self.now + ms);
        match op {
            Op::Take(who, request) => {
                if self.take(who, &request, &mut UndoLog::default()) {
                    self.pool.set_phase(who, Phase::Held);
                }
            }
            Op::Release(who, cool) => {
                self.pool.release(who, cool.map(until));
            }
            Op::Foreign(list) => {
                let foreign = |(number, protocol)| Foreign {
                    port: port(number),
                    protocol,
                    pid: None,
                    comm: None,
                };
                let list: Vec<Foreign> = list.into_iter().map(foreign).collect();
                self.pool.set_foreign(&list, &mut |_, _| {});
            }
            Op::Refused(number, protocol, ms) => {
                let stranger = Stranger::default();
                self.pool
                    .refuse_bind(port(number), protocol, until(ms), &stranger);
            }
            Op::Ranges(dynamic, reserved) => {
                let draw = self.pool.draw;
                self.pool
                    .set_ranges(ranges(dynamic, "100-150", reserved), draw);
            }
            Op::Restore(who, first, last, protocol) => {
                let grant = granted(&format!("x={first}-{last}/{protocol}"));
                self.pool.restore(who, &grant, Phase::Held);
            }
            Op::RestoreCooling(first, last, protocol, ms, service) => {
                let numbers = PortRange::new(port(first), port(last)).unwrap();
                self.pool
                    .restore_cooling(numbers, protocol, until(ms), service);
            }
            Op::Later(ms) => {
                self.now += ms;
                self.pool
                    .end_due(Monotonic::from_millis(self.now), &mut |_, _| {});
            }
            Op::Compact => self.pool.compact(),
            Op::Flatten => self.pool.flatten(),
        }
    }
}

fn draw() -> impl Strategy<Value = Draw> {
    prop_oneof![
        3 => Just(Draw::NextFit),
        1 => Just(Draw::Lowest),
        1 => Just(Draw::Random { seed: 7 }),
    ]
}

pub(super) fn world() -> impl Strategy<Value = World> {
    let waiting = proptest::collection::vec((number(), any::<bool>()), 0..3);
    let ops = proptest::collection::vec(operation(), 0..25);
    (draw(), ops, waiting).prop_map(|(draw, ops, waiting)| {
        let mut world = World::new(draw);
        for op in ops {
            world.apply(op);
        }
        for (number, anywhere) in waiting {
            let request = ask(&format!("w={number}/tcp"));
            let awaited = if anywhere {
                &mut world.waiting
            } else {
                &mut world.here
            };
            awaited.add(&request);
        }
        world
    })
}

proptest! {
    #[test]
    fn so_many_replicas_fit_as_can_be_taken_one_after_the_other(
        world in world(), request in request(), most in 0u32..12
    ) {
        let mut choice = Choice::default();
        let told = world.pool.fits_times(&world.ask(9, &request), &mut choice, most);
        let mut world = world;
        let mut log = UndoLog::default();
        let next = |index| ReplicaId {
            service: ServiceId(9),
            index,
            incarnation: Incarnation(0),
        };
        let taken = (0..most).take_while(|index| world.take(next(*index), &request, &mut log));
        prop_assert_eq!(u32::try_from(taken.count()).unwrap(), told);
    }

    #[test]
    fn the_status_of_a_number_says_who_gets_it(world in world(), protocol in protocol()) {
        let mut counted = 0;
        for n in LOW - 3..=HIGH + 3 {
            let dynamic = ask(&format!("a=any/{protocol}@{n}"));
            counted += u32::from(world.fits(0, &dynamic));
            for side in Side::BOTH {
                let fixed = ask(&format!("a={n}/{}", side.protocol()));
                let gets: Vec<bool> = (0..4).map(|service| world.fits(service, &fixed)).collect();
                let expected: Vec<bool> = (0..4)
                    .map(|service| match world.pool.fixed_status(side, port(n)) {
                        FixedStatus::Free => true,
                        FixedStatus::CoolsFor(only) => only == ServiceId(service),
                        FixedStatus::Busy => false,
                    })
                    .collect();
                prop_assert_eq!(gets, expected, "{} {:?}", n, side);
            }
        }
        let awaited = [&world.waiting, &world.here];
        prop_assert_eq!(world.pool.usable_count(protocol, awaited), counted);
    }

    #[test]
    fn the_first_cause_is_the_first_of_all_and_there_is_one_where_it_does_not_fit(
        world in world(), request in request()
    ) {
        let ask = world.ask(1, &request);
        let mut choice = Choice::default();
        let mut all: Vec<Why> = Vec::new();
        let fits = world.pool.choose(&ask, &mut choice, Causes::All(&mut all));
        prop_assert_eq!(fits, all.is_empty());
        let mut first = None;
        prop_assert_eq!(world.pool.choose(&ask, &mut choice, Causes::First(&mut first)), fits);
        prop_assert_eq!(first.as_ref(), all.first());
        let mut code = None;
        prop_assert_eq!(world.pool.choose(&ask, &mut choice, Causes::Code(&mut code)), fits);
        prop_assert_eq!(code, all.first().map(|why| why.cause.code()));
        prop_assert_eq!(world.pool.choose(&ask, &mut choice, Causes::Untold), fits);
        if let Some(why) = first {
            let failed = choice.failed().map(|place| &request.as_slice()[place].name);
            prop_assert_eq!(failed, why.port.as_ref().map(|port| &port.name));
        }
    }

    #[test]
    fn the_form_of_its_sets_changes_no_answer(world in world(), request in request()) {
        let mut flat = world.clone();
        flat.pool.flatten();
        prop_assert_eq!(&flat.pool, &world.pool);
        let answer = |world: &World| {
            let (mut choice, mut all) = (Choice::default(), Vec::new());
            let ask = world.ask(1, &request);
            let fits = world.pool.choose(&ask, &mut choice, Causes::All(&mut all));
            (fits, fits.then(|| choice.spans().to_vec()), choice.cursor, all)
        };
        prop_assert_eq!(answer(&flat), answer(&world));
        prop_assert_eq!(flat.pool.listed(), world.pool.listed());
    }

    #[test]
    fn the_same_numbers_are_found_where_each_host_alone_could_give_them(
        worlds in proptest::collection::vec(world(), 1..4), want in wanted()
    ) {
        let request = ask(&format!("a={want}"));
        let pools: Vec<_> = worlds.iter().map(|w| (&w.pool, w.ask(1, &request))).collect();
        let mut choice = Choice::default();
        let fits = PortPool::choose_same(&pools, &mut choice, Causes::Untold);
        let mut all = Vec::new();
        let again = PortPool::choose_same(&pools, &mut Choice::default(), Causes::All(&mut all));
        prop_assert_eq!((again, all.is_empty()), (fits, fits));
        // Whether each host gives exactly these numbers when they alone are asked for.
        let port = &request.as_slice()[0];
        let (protocol, count) = (port.protocol, port.count().get());
        let gives = |first: u16| {
            let within = format!("a=any:{count}/{protocol}@{first}-{}", first + count - 1);
            let only = if want.starts_with("any") {
                ask(&within)
            } else {
                request.clone()
            };
            worlds.iter().all(|world| world.fits(1, &only))
        };
        let may_begin = |first: &u16| {
            let last = super::Port::new(first + count - 1).unwrap();
            let first = super::Port::new(*first).unwrap();
            port.within.as_ref().is_none_or(|w| w.contains(first) && w.contains(last))
        };
        let exists = (LOW..=HIGH).filter(may_begin).any(gives);
        prop_assert_eq!(fits, exists);
        if fits {
            let span = choice.spans()[0];
            prop_assert!(gives(span.first), "{:?}", span);
            prop_assert_eq!(span.count(), u32::from(count));
        }
    }

    #[test]
    fn a_take_that_is_undone_leaves_everything_as_it_was(
        world in world(), requests in proptest::collection::vec(request(), 1..6)
    ) {
        let before = world.pool.clone();
        let mut world = world;
        let mut log = UndoLog::default();
        for (index, request) in (50..).zip(requests) {
            let who = ReplicaId { service: ServiceId(1), index, incarnation: Incarnation(0) };
            world.take(who, &request, &mut log);
        }
        while world.pool.undo(&mut log).is_some() {}
        prop_assert_eq!(world.pool.free_bytes(), before.free_bytes());
        prop_assert_eq!(world.pool, before);
    }

    #[test]
    fn undoing_one_of_two_open_logs_takes_back_its_numbers_and_no_others(
        world in world(),
        steps in proptest::collection::vec((any::<bool>(), request()), 1..8),
        between in proptest::collection::vec(operation(), 0..4),
    ) {
        let (mut undone, mut kept) = (UndoLog::default(), UndoLog::default());
        let mut both = world;
        let mut left = Vec::new();
        for (index, (keeps, request)) in (50..).zip(&steps) {
            let who = ReplicaId { service: ServiceId(1), index, incarnation: Incarnation(0) };
            let log = if *keeps { &mut kept } else { &mut undone };
            if both.take(who, request, log) && *keeps {
                left.push(who);
            }
        }
        for op in between {
            both.apply(op);
        }
        let mut model = both.pool.clone();
        let mut gone = Vec::new();
        while let Some(who) = both.pool.undo(&mut undone) {
            gone.push(who);
        }
        for who in &left {
            prop_assert_eq!(both.pool.grant(*who), model.grant(*who));
        }
        // As if they had been released, but that what was taken from cooling cools again.
        for who in gone {
            model.release(who, None);
        }
        for side in Side::BOTH {
            for n in LOW - 3..=HIGH + 3 {
                let (now, freed) = (both.pool.state(side, port(n)), model.state(side, port(n)));
                let cools_again = matches!(now, super::PortState::Cooling { .. })
                    && !matches!(freed, super::PortState::Held { .. } | super::PortState::Releasing { .. });
                prop_assert!(now == freed || cools_again, "{} {:?}: {:?} {:?}", n, side, now, freed);
            }
        }
        both.pool.assert_consistent();
    }

    #[test]
    fn sets_and_counters_say_what_the_layers_say_after_every_step(
        draw in draw(), ops in proptest::collection::vec(operation(), 1..40)
    ) {
        let mut world = World::new(draw);
        for op in ops {
            world.apply(op);
            world.pool.assert_consistent();
        }
    }
}
