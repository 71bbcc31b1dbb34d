//! The hot calls of a pool allocate nothing once warm, whatever comes and goes.
#![expect(clippy::unwrap_used, reason = "a panic fails the test, as it should")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::num::NonZeroU16;
use std::time::Duration;

use portreeve::identity::{Incarnation, ReplicaId, ServiceId};
use portreeve::port::{Port, Protocol};
use portreeve::port_pool::{
    Ask, Awaited, Causes, Choice, Draw, Phase, PoolRanges, PortPool, PortRequest, UndoLog, Want,
    WantedPort,
};
use portreeve::time::Monotonic;

/// The system's allocator, counting what each thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A generator that repeats: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn wanted(name: &str, protocol: Protocol, want: Want) -> WantedPort {
    WantedPort {
        name: name.parse().unwrap(),
        protocol,
        want,
        within: None,
    }
}

fn any(count: u16) -> Want {
    Want::Any {
        count: NonZeroU16::new(count).unwrap(),
    }
}

/// Requests of every kind: single numbers, many of them, fixed, blocks, pairs, narrowed ones.
fn requests() -> Vec<PortRequest> {
    use Protocol::{Tcp, TcpUdp, Udp};
    let fixed = |number| Want::Fixed(Port::new(number).unwrap());
    let mut narrowed = wanted("a", Tcp, any(1));
    narrowed.within = Some("21000-21999,30000-30100".parse().unwrap());
    let named = |names: &[&str], protocol, want| -> Vec<WantedPort> {
        let ports = names.iter().map(|name| wanted(name, protocol, want));
        ports.collect()
    };
    let lists = [
        named(&["a"], Tcp, any(1)),
        named(&["a", "b", "c", "d"], Tcp, any(1)),
        named(&["a", "b", "c", "d", "e", "f", "g"], Udp, any(1)),
        vec![
            wanted("a", Tcp, fixed(8080)),
            wanted("b", Tcp, any(1)),
            wanted("c", Tcp, any(1)),
        ],
        named(&["a"], TcpUdp, fixed(5353)),
        named(&["a", "b"], Tcp, any(6)),
        named(&["a"], TcpUdp, any(1)),
        vec![wanted("a", TcpUdp, any(3)), wanted("b", Udp, any(1))],
        vec![narrowed, wanted("b", Tcp, any(1))],
    ];
    lists
        .map(|list| PortRequest::new(list).unwrap())
        .into_iter()
        .collect()
}

/// One scheduler with one host.
struct World {
    pool: PortPool,
    choice: Choice,
    log: UndoLog,
    dice: Dice,
    holders: Vec<ReplicaId>,
    requests: Vec<PortRequest>,
    waiting: Awaited,
    nobody: Awaited,
    next: u32,
    now: Monotonic,
    turn: usize,
    counts: [u64; 3],
}

impl World {
    fn new() -> Self {
        let mut waiting = Awaited::default();
        let awaited = wanted("a", Protocol::Tcp, Want::Fixed(Port::new(20_100).unwrap()));
        waiting.add(&PortRequest::new(vec![awaited]).unwrap());
        let ranges = PoolRanges {
            dynamic: "20000-26999,30000-30100".parse().unwrap(),
            ..PoolRanges::default()
        };
        Self {
            pool: PortPool::new(ranges, Draw::NextFit),
            choice: Choice::default(),
            log: UndoLog::default(),
            dice: Dice(88_172_645_463_325_252),
            holders: Vec::with_capacity(10_000),
            requests: requests(),
            waiting,
            nobody: Awaited::default(),
            next: 0,
            now: Monotonic::default(),
            turn: 0,
            counts: [0; 3],
        }
    }

    /// Asks for one replica; then commits it, undoes it, or is refused. Gives back while more than
    /// `load` replicas hold numbers.
    fn cycle(&mut self, load: usize) {
        self.now = self.now + Duration::from_millis(self.dice.below(20));
        self.pool.end_due(self.now, &mut |_, _| {});
        let kind = usize::try_from(self.dice.below(self.requests.len() as u64)).unwrap();
        let request = &self.requests[kind];
        let who = ReplicaId {
            service: ServiceId(kind as u64),
            index: self.next,
            incarnation: Incarnation(0),
        };
        let ask = Ask {
            service: who.service,
            request,
            former: None,
            awaited: [&self.waiting, &self.nobody],
            now: self.now,
        };
        if self.pool.choose(&ask, &mut self.choice, Causes::Untold) {
            self.pool.take(who, request, &self.choice, &mut self.log);
            if self.dice.below(4) == 0 {
                self.pool.undo(&mut self.log);
                self.counts[1] += 1;
            } else {
                self.log.clear();
                self.pool.set_phase(who, Phase::Held);
                self.holders.push(who);
                self.next += 1;
                self.counts[0] += 1;
            }
        } else {
            self.counts[2] += 1;
        }
        while self.holders.len() > load {
            let at = usize::try_from(self.dice.below(self.holders.len() as u64)).unwrap();
            let gone = self.holders.swap_remove(at);
            self.pool.set_phase(gone, Phase::Releasing);
            let rest = Duration::from_millis(100 + self.dice.below(2) * 3_000);
            let cool = (self.dice.below(4) > 0).then_some(self.now + rest);
            assert!(self.pool.release(gone, cool).is_some());
        }
    }

    /// A load that swings between nothing and more than the host has.
    fn swing(&mut self, cycles: usize) {
        for _ in 0..cycles {
            self.turn = (self.turn + 1) % 16_000;
            let load = self.turn.min(16_000 - self.turn);
            self.cycle(load);
        }
    }
}

#[test]
fn hot_calls_of_a_pool_allocate_nothing_once_warm() {
    let mut world = World::new();
    world.swing(200_000);
    let (before, asked) = (world.counts, ASKED.get());
    world.swing(100_000);
    assert_eq!(ASKED.get() - asked, 0, "allocations");
    for (what, before, after) in [
        ("kept", before[0], world.counts[0]),
        ("undone", before[1], world.counts[1]),
        ("refused", before[2], world.counts[2]),
    ] {
        assert!(after - before > 1_000, "{what}: {}", after - before);
    }
}

#[test]
fn a_refusal_whose_first_cause_is_asked_allocates_nothing() {
    let mut world = World::new();
    world.swing(4_000);
    let requests = world.requests.clone();
    let mut told = 0;
    for turn in 0..2 {
        let asked = ASKED.get();
        for request in &requests {
            let ask = Ask {
                service: ServiceId(99),
                request,
                former: None,
                awaited: [&world.waiting, &world.nobody],
                now: world.now,
            };
            let mut first = None;
            let first_told = Causes::First(&mut first);
            if !world.pool.choose(&ask, &mut world.choice, first_told) {
                told += u32::from(first.is_some());
            }
        }
        assert!(turn == 0 || ASKED.get() == asked);
    }
    assert!(told > 0);
}
