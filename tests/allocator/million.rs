//! Random operations on some hundred hosts against a plain model: an array of numbers per host. A hundred thousand of
//! them, a million where `PORTREEVE_LONG` is set.
//!
//! The allocator answers through its index, its counters and its sets; the model knows nothing but what each number
//! carries, and decides by looking at all of them.
use std::collections::BTreeMap;
use std::num::NonZeroU16;

use portreeve::allocator::{
    AfterRelease, Allocator, HostSet, HostSpec, HostState, Need, ReleaseError, ReserveError,
};
use portreeve::identity::{HostId, ReplicaId, ServiceId};
use portreeve::port::{Port, PortRanges, Protocol};
use portreeve::port_pool::{
    Foreign, PoolRanges, PortGrant, PortRequest, PortState, Side, Want, WantedPort,
};
use portreeve::time::Monotonic;

use crate::world::{Dice, hosts, range, replica, rounds};

/// More than the allocator asks one by one.
const HOSTS: u32 = 300;
const LOW: u16 = 20_000;
const COUNT: usize = 16;
const COOLING_MS: u64 = 60_000;

/// What one number of one side carries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Number {
    holder: Option<(ReplicaId, Hold)>,
    cools: Option<(u64, ServiceId)>,
    foreign: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Hold {
    Tentative,
    Held,
    Releasing,
}

#[derive(Clone, Debug)]
struct Host {
    up: bool,
    /// Of the dynamic range, which ends here.
    dynamic: usize,
    reserved: Option<usize>,
    sides: [[Number; COUNT]; 2],
}

/// One port that is asked for; a request is a few of them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wish {
    Fixed(usize, Protocol),
    Any(Protocol),
    Block(usize),
}

struct Million {
    real: Allocator,
    hosts: Vec<Host>,
    now: u64,
    /// Where each replica holds what; its numbers are found in the hosts.
    held: BTreeMap<ReplicaId, HostId>,
    next_index: u32,
    dice: Dice,
    told: Told,
}

/// What has happened, so that a run that did nothing is seen.
#[derive(Debug, Default)]
struct Told {
    operations: u64,
    granted: u64,
    refused: u64,
    released: u64,
    rolled_back: u64,
    feasible: u64,
    from_cooling: u64,
}

fn port(place: usize) -> Port {
    Port::new(LOW + u16::try_from(place).unwrap()).unwrap()
}

const fn at(side: Side) -> usize {
    match side {
        Side::Tcp => 0,
        Side::Udp => 1,
    }
}

impl Host {
    fn is_reserved(&self, place: usize) -> bool {
        self.reserved == Some(place)
    }

    /// Whether nothing is in the way of `place` but cooling that `may_cool` allows.
    fn usable(&self, side: Side, place: usize, may_cool: impl Fn(ServiceId) -> bool) -> bool {
        let number = &self.sides[at(side)][place];
        number.holder.is_none()
            && !number.foreign
            && !self.is_reserved(place)
            && number.cools.is_none_or(|(_, service)| may_cool(service))
    }

    /// Whether the ask fits, for the kinds of asks that [`Million::wishes`] makes.
    fn fits(&self, wishes: &[Wish], service: ServiceId) -> bool {
        if !self.up {
            return false;
        }
        let named = |place: usize, side: Side| {
            wishes.iter().any(|wish| {
                matches!(wish, Wish::Fixed(named, protocol)
                    if *named == place && Side::of(*protocol).any(|taken| taken == side))
            })
        };
        let open = |protocol: Protocol| {
            (0..self.dynamic)
                .filter(|place| {
                    Side::of(protocol)
                        .all(|side| self.usable(side, *place, |_| true) && !named(*place, side))
                })
                .collect::<Vec<usize>>()
        };
        let fixed_fit = wishes.iter().all(|wish| match wish {
            Wish::Fixed(place, protocol) => Side::of(*protocol)
                .all(|side| self.usable(side, *place, |cools_for| cools_for == service)),
            _ => true,
        });
        let rest: Vec<&Wish> = wishes
            .iter()
            .filter(|wish| !matches!(wish, Wish::Fixed(..)))
            .collect();
        fixed_fit
            && match rest.first() {
                None => true,
                Some(Wish::Any(protocol)) => open(*protocol).len() >= rest.len(),
                Some(Wish::Block(size)) => open(Protocol::Tcp)
                    .windows(*size)
                    .any(|run| run[size - 1] - run[0] == size - 1),
                Some(Wish::Fixed(..)) => unreachable!("the fixed ones are left out"),
            }
    }

    fn state(&self, side: Side, place: usize) -> PortState {
        let number = &self.sides[at(side)][place];
        match (number.holder, number.cools) {
            (Some((by, Hold::Releasing)), _) => PortState::Releasing { by },
            (Some((by, Hold::Held)), _) => PortState::Held { by },
            (Some((_, Hold::Tentative)), _) => unreachable!("no transaction is open here"),
            (None, Some((until, service))) => PortState::Cooling {
                until: Monotonic::from_millis(until),
                service,
            },
            (None, None) if number.foreign => PortState::Foreign(Default::default()),
            (None, None) if self.is_reserved(place) => PortState::Reserved,
            (None, None) => PortState::Free,
        }
    }
}

impl Million {
    fn new(seed: u64) -> Self {
        let dynamic = COUNT - 3;
        let last = port(dynamic - 1).number();
        let host = Host {
            up: true,
            dynamic,
            reserved: None,
            sides: [[Number::default(); COUNT]; 2],
        };
        Self {
            real: hosts(HOSTS, LOW, last),
            hosts: vec![host; HOSTS as usize],
            now: 0,
            held: BTreeMap::new(),
            next_index: 0,
            dice: Dice::new(seed),
            told: Told::default(),
        }
    }

    fn host(&mut self) -> HostId {
        // Half of it on few hosts, which are full, rest and refuse most of the time.
        let hosts = if self.dice.one_in(2) { 12 } else { HOSTS };
        HostId(self.dice.below(hosts.into()))
    }

    fn place(&mut self) -> usize {
        self.dice.below(COUNT as u64)
    }

    fn protocol(&mut self) -> Protocol {
        match self.dice.below::<u64>(6) {
            0 => Protocol::Udp,
            1 => Protocol::TcpUdp,
            _ => Protocol::Tcp,
        }
    }

    /// A few fixed numbers, then ports of one other kind.
    fn wishes(&mut self) -> Vec<Wish> {
        let mut wishes: Vec<Wish> = Vec::new();
        for _ in 0..self.dice.below::<usize>(3) {
            let (place, protocol) = (self.place(), self.protocol());
            let twice = |wish: &Wish| matches!(wish, Wish::Fixed(named, _) if *named == place);
            if !wishes.iter().any(twice) {
                wishes.push(Wish::Fixed(place, protocol));
            }
        }
        let count: usize = self.dice.below(5);
        if count > 1 && self.dice.one_in(3) {
            wishes.push(Wish::Block(count));
        } else {
            let protocol = self.protocol();
            wishes.extend((0..count).map(|_| Wish::Any(protocol)));
        }
        wishes
    }

    fn step(&mut self) {
        self.told.operations += 1;
        match self.dice.below::<u64>(100) {
            0..55 => self.transact(),
            55..85 => self.release(),
            85..91 => self.later(),
            91..94 => self.strangers(),
            94..96 => self.change_ranges(),
            96..98 => self.change_state(),
            _ => self.whole_feasibility(),
        }
    }

    fn transact(&mut self) {
        let now = Monotonic::from_millis(self.now);
        let mut open: Vec<(ReplicaId, HostId)> = Vec::new();
        let tries: Vec<(HostId, Vec<Wish>)> = (0..=self.dice.below::<usize>(3))
            .map(|_| (self.host(), self.wishes()))
            .collect();
        let before: BTreeMap<HostId, Host> = tries
            .iter()
            .map(|(host, _)| (*host, self.hosts[host.0 as usize].clone()))
            .collect();
        let (commit, roll_back) = (!self.dice.one_in(5), self.dice.one_in(6));
        let service = self.dice.below(4);
        let mut transaction = self.real.begin(now);
        let mark = transaction.mark();
        for (host, wishes) in &tries {
            let who = replica(service, self.next_index, 0);
            self.next_index += 1;
            let there = &mut self.hosts[host.0 as usize];
            let fits = there.fits(wishes, who.service);
            match transaction.reserve(*host, who, &request(wishes), None) {
                Ok(grant) => {
                    assert!(fits, "{wishes:?} was granted on {there:?}");
                    self.told.granted += 1;
                    self.told.from_cooling += u64::from(take(there, who, wishes, &grant));
                    open.push((who, *host));
                }
                Err(ReserveError::Refused { .. }) => {
                    assert!(!fits, "{wishes:?} was refused on {there:?}");
                    self.told.refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        if roll_back {
            transaction.rollback(mark).unwrap();
            self.told.rolled_back += 1;
        }
        if commit {
            transaction.commit();
        } else {
            drop(transaction);
        }
        if roll_back || !commit {
            for (_, host) in &open {
                self.hosts[host.0 as usize] = before[host].clone();
            }
        } else {
            for (who, host) in &open {
                hold(&mut self.hosts[host.0 as usize], *who, Hold::Held);
            }
            self.held.extend(open);
        }
        for (host, _) in &tries {
            self.agree(*host);
        }
    }

    fn release(&mut self) {
        let now = Monotonic::from_millis(self.now);
        let nth: usize = self.dice.below(self.held.len().max(1) as u64);
        let chosen = self.held.iter().nth(nth);
        let Some((who, host)) = chosen.map(|(who, host)| (*who, *host)) else {
            return;
        };
        if self.dice.one_in(4) {
            let again = self.real.begin_release(who).is_err();
            let there = &mut self.hosts[host.0 as usize];
            let releasing = |number: &Number| number.holder == Some((who, Hold::Releasing));
            let was = there.sides.iter().flatten().any(releasing);
            // A grant of no number has no place to be seen in.
            assert!(again == was || !there.sides.iter().flatten().any(|n| holds(n, who)));
            hold(there, who, Hold::Releasing);
            return;
        }
        let after = if self.dice.one_in(3) {
            AfterRelease::Free
        } else {
            AfterRelease::Cool
        };
        self.real.confirm_release(who, now, after).unwrap();
        self.told.released += 1;
        self.held.remove(&who);
        let until = self.now + COOLING_MS;
        for number in self.hosts[host.0 as usize].sides.iter_mut().flatten() {
            if holds(number, who) {
                number.holder = None;
                let cools = after == AfterRelease::Cool;
                number.cools = cools.then_some((until, who.service));
            }
        }
        let again = self.real.confirm_release(who, now, after);
        assert!(
            matches!(
                again,
                Err(ReleaseError::AlreadyReleased { .. } | ReleaseError::NotHeld { .. })
            ),
            "{again:?}"
        );
        self.agree(host);
    }

    fn later(&mut self) {
        self.now += self.dice.below::<u64>(30_000);
        let now = self.now;
        let numbers = self.hosts.iter_mut().flat_map(|host| &mut host.sides);
        for number in numbers.flatten() {
            number.cools = number.cools.filter(|(until, _)| *until > now);
        }
        self.real.on_deadline(Monotonic::from_millis(now));
    }

    fn strangers(&mut self) {
        let host = self.host();
        let listed: Vec<(usize, Protocol)> = (0..self.dice.below::<usize>(3))
            .map(|_| (self.place(), self.protocol()))
            .collect();
        let list: Vec<Foreign> = listed
            .iter()
            .map(|(place, protocol)| Foreign {
                port: port(*place),
                protocol: *protocol,
                pid: None,
                comm: None,
            })
            .collect();
        self.real.set_foreign(host, &list).unwrap();
        for side in Side::BOTH {
            for place in 0..COUNT {
                let here = |(named, protocol): &(usize, Protocol)| {
                    *named == place && Side::of(*protocol).any(|taken| taken == side)
                };
                let number = &mut self.hosts[host.0 as usize].sides[at(side)][place];
                number.foreign = listed.iter().any(here);
            }
        }
        self.agree(host);
    }

    fn change_ranges(&mut self) {
        let host = self.host();
        let dynamic = 8 + self.dice.below::<usize>(6);
        let reserved = self.dice.one_in(2).then(|| self.place());
        let mut spec = HostSpec::new(format!("n{}", host.0).parse().unwrap());
        spec.ranges = PoolRanges {
            dynamic: range(LOW, port(dynamic - 1).number()),
            reserved: reserved.map_or_else(PortRanges::default, |place| {
                range(port(place).number(), port(place).number())
            }),
            ..PoolRanges::default()
        };
        self.real.put_host(host, spec).unwrap();
        let there = &mut self.hosts[host.0 as usize];
        (there.dynamic, there.reserved) = (dynamic, reserved);
        self.agree(host);
    }

    fn change_state(&mut self) {
        let (host, up) = (self.host(), !self.dice.one_in(3));
        let state = if up {
            HostState::Up
        } else {
            HostState::Drained
        };
        self.real.set_host_state(host, state).unwrap();
        self.hosts[host.0 as usize].up = up;
    }

    /// Bulk feasibility is what the model says of each host.
    fn whole_feasibility(&mut self) {
        self.told.feasible += 1;
        let (wishes, service) = (self.wishes(), ServiceId(self.dice.below(4)));
        let expected: HostSet = (0..)
            .map(HostId)
            .zip(&self.hosts)
            .filter(|(_, host)| host.fits(&wishes, service))
            .map(|(id, _)| id)
            .collect();
        let asked = request(&wishes);
        let need = Need::new(&asked, service);
        let mut transaction = self.real.begin(Monotonic::from_millis(self.now));
        let found = transaction.feasible(&need, None);
        assert_eq!(found, expected, "{wishes:?} for {service:?}");
        let host = HostId(u32::try_from(self.told.feasible).unwrap() % HOSTS);
        let why = transaction.explain_first(host, &need);
        assert_eq!(why.is_none(), expected.contains(host), "{why:?}");
    }

    /// Each number of the host is shown as the model has it.
    fn agree(&self, host: HostId) {
        let there = &self.hosts[host.0 as usize];
        let mut free = [0, 0];
        for side in Side::BOTH {
            for place in 0..COUNT {
                let expected = there.state(side, place);
                let shown = self.real.port_state(host, side, port(place));
                assert_eq!(shown, expected, "{:?} {side:?} on {host}", port(place));
                let counted = place < there.dynamic && expected == PortState::Free;
                free[at(side)] += u32::from(counted);
            }
        }
        let counts = self.real.counts(host);
        assert_eq!([counts.free_tcp, counts.free_udp], free, "on {host}");
    }
}

fn holds(number: &Number, who: ReplicaId) -> bool {
    number.holder.is_some_and(|(by, _)| by == who)
}

fn hold(host: &mut Host, who: ReplicaId, how: Hold) {
    for number in host.sides.iter_mut().flatten() {
        if holds(number, who) {
            number.holder = Some((who, how));
        }
    }
}

/// Writes the grant into the model, after a look that it may stand there. Whether it took what cooled.
fn take(host: &mut Host, who: ReplicaId, wishes: &[Wish], grant: &PortGrant) -> bool {
    let mut from_cooling = false;
    assert_eq!(wishes.len(), grant.ports.len());
    for (wish, granted) in wishes.iter().zip(&grant.ports) {
        let (count, protocol) = match wish {
            Wish::Fixed(_, protocol) | Wish::Any(protocol) => (1, *protocol),
            Wish::Block(size) => (*size, Protocol::Tcp),
        };
        assert_eq!(granted.protocol, protocol);
        assert_eq!(granted.numbers.count() as usize, count);
        for number in granted.numbers.iter() {
            let place = usize::from(number.number() - LOW);
            match wish {
                Wish::Fixed(named, _) => assert_eq!(place, *named),
                _ => assert!(place < host.dynamic, "{number} is outside the range"),
            }
            for side in Side::of(protocol) {
                assert!(host.usable(side, place, |_| true), "{number} is not free");
                let number = &mut host.sides[at(side)][place];
                from_cooling |= number.cools.take().is_some();
                number.holder = Some((who, Hold::Tentative));
            }
        }
    }
    from_cooling
}

fn request(wishes: &[Wish]) -> PortRequest {
    let wanted = wishes.iter().enumerate().map(|(place, wish)| {
        let (want, protocol) = match wish {
            Wish::Fixed(named, protocol) => (Want::Fixed(port(*named)), *protocol),
            Wish::Any(protocol) => (any_of(1), *protocol),
            Wish::Block(size) => (any_of(*size), Protocol::Tcp),
        };
        WantedPort {
            name: format!("p{place}").parse().unwrap(),
            protocol,
            want,
            within: None,
        }
    });
    PortRequest::new(wanted.collect()).unwrap()
}

fn any_of(count: usize) -> Want {
    Want::Any {
        count: NonZeroU16::new(u16::try_from(count).unwrap()).unwrap(),
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    let seed = 7;
    let mut million = Million::new(seed);
    for _ in 0..rounds(100_000) {
        million.step();
    }
    for host in (0..HOSTS).map(HostId) {
        million.agree(host);
    }
    let told = &million.told;
    println!("seed {seed}: {told:?}");
    let little = [
        told.granted,
        told.refused,
        told.released,
        told.rolled_back,
        told.feasible,
        told.from_cooling,
    ]
    .into_iter()
    .min();
    assert!(little > Some(500), "something hardly happened: {told:?}");
}
