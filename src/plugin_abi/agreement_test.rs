//! However it is asked who fits, the answer is the same, in random states of every kind.
// abi 17

use proptest::prelude::{Just, ProptestConfig, Strategy, any as random, prop_oneof, proptest};

use super::caller_test::*;
use super::control::network_test::{inside, network};
use super::reports::waits_test::listener;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

/// The last index has no host.
const HOSTS: u32 = 5;

/// What happens to the world between two cycles.
#[derive(Clone, Debug)]
enum Event {
    Hold(u8, u32),
    BeginRelease(u8),
    ConfirmRelease(u8),
    State(u32, u32),
    Foreign(u32, Vec<(u16, u16)>),
    Conflict(u8),
    Wait(u8, Option<u32>),
    Later(u64),
    Ranges(u32, u8),
    /// Whether the host has an address in the network that some ports are in.
    Addresses(u32, bool),
}

/// What is tried in a transaction before the question.
#[derive(Clone, Debug)]
enum Try {
    Reserve(u8, u32),
    Give(u8),
    Back,
}

#[derive(Clone, Debug)]
struct Question {
    what_if: bool,
    tries: Vec<Try>,
    profile: u8,
    replicas: u32,
    ahead_ms: u64,
    among: u64,
}

fn event() -> impl Strategy<Value = Event> {
    let host = || 0..HOSTS - 1;
    prop_oneof![
        8 => (random::<u8>(), host()).prop_map(|(kind, host)| Event::Hold(kind, host)),
        2 => random::<u8>().prop_map(Event::BeginRelease),
        4 => random::<u8>().prop_map(Event::ConfirmRelease),
        1 => (host(), 0u32..4).prop_map(|(host, state)| Event::State(host, state)),
        1 => (host(), proptest::collection::vec((498u16..512, 0u16..3), 0..3))
            .prop_map(|(host, list)| Event::Foreign(host, list)),
        1 => random::<u8>().prop_map(Event::Conflict),
        1 => (random::<u8>(), proptest::option::of(host())).prop_map(|(kind, host)| Event::Wait(kind, host)),
        2 => (0u64..4000).prop_map(Event::Later),
        1 => (host(), random::<u8>()).prop_map(|(host, ranges)| Event::Ranges(host, ranges)),
        1 => (host(), random::<bool>()).prop_map(|(host, both)| Event::Addresses(host, both)),
    ]
}

fn question() -> impl Strategy<Value = Question> {
    let one = prop_oneof![
        4 => (random::<u8>(), 0..HOSTS - 1).prop_map(|(kind, host)| Try::Reserve(kind, host)),
        3 => random::<u8>().prop_map(Try::Give),
        1 => Just(Try::Back),
    ];
    (
        random::<bool>(),
        proptest::collection::vec(one, 0..4),
        random::<u8>(),
        prop_oneof![3 => Just(1u32), 1 => Just(0u32), 2 => 2u32..6],
        prop_oneof![2 => Just(0u64), 1 => 1u64..6000],
        random::<u64>(),
    )
        .prop_map(
            |(what_if, tries, profile, replicas, ahead_ms, among)| Question {
                what_if,
                tries,
                profile,
                replicas,
                ahead_ms,
                among,
            },
        )
}

/// A scheduler with a few small hosts.
struct World {
    caller: Caller,
    profiles: Vec<Kind>,
    held: Vec<PrAlloc>,
    now: u64,
    next_job: u64,
    seq: u64,
}

struct Kind {
    id: u32,
    has_blocks: bool,
}

/// Hosts that offer a dozen numbers, so that they are soon short of them.
fn ranged(index: u32, ranges: u8) -> PrHost {
    static DYNAMIC: [PrRange; 2] = [PrRange { lo: 500, hi: 507 }, PrRange { lo: 509, hi: 511 }];
    static FIXED: [PrRange; 1] = [PrRange { lo: 499, hi: 508 }];
    static RESERVED: [PrRange; 1] = [PrRange { lo: 503, hi: 504 }];
    let name = ["n1", "n2", "n3", "n4"][index as usize];
    PrHost {
        dynamic: DYNAMIC.as_ptr(),
        n_dynamic: if ranges.is_multiple_of(3) { 1 } else { 2 },
        fixed: FIXED.as_ptr(),
        n_fixed: 1,
        reserved: RESERVED.as_ptr(),
        n_reserved: u32::from(ranges.is_multiple_of(4)),
        cool_ms: 2000 + 1000 * index,
        flags: u32::from(ranges.is_multiple_of(2)) * PR_HOST_LOWEST,
        ..host(index, name)
    }
}

fn kinds(caller: &Caller) -> Vec<Kind> {
    static LOW: [PrRange; 1] = [PrRange { lo: 500, hi: 502 }];
    let proto = |port, proto| PrPort { proto, ..port };
    let block = |port, count| PrPort { count, ..port };
    let low = |port| PrPort {
        within: LOW.as_ptr(),
        n_within: 1,
        ..port
    };
    let lists = [
        vec![any("a")],
        vec![any("a"), any("b"), any("c")],
        vec![fixed("a", 501)],
        vec![fixed("a", 505), any("b")],
        vec![proto(any("a"), PR_UDP)],
        vec![proto(any("a"), PR_TCP_UDP), any("b")],
        vec![proto(fixed("a", 502), PR_TCP_UDP), proto(any("b"), PR_UDP)],
        vec![low(any("a")), any("b")],
        vec![block(any("a"), 3)],
        vec![fixed("a", 510), fixed("b", 503)],
        vec![block(any("a"), 2), low(any("b")), fixed("c", 500)],
        vec![any("a"), inside("b", "ib")],
        Vec::new(),
    ];
    // Two services, so that what cools for one is not free for the other.
    let services = ["web.alice", "web.bob"];
    let each = (0..).zip(&lists).flat_map(|(place, ports)| {
        let twice = services.iter().take(if place < 4 { 2 } else { 1 });
        twice.map(move |service| (*service, ports))
    });
    each.map(|(service, ports)| Kind {
        id: caller.profile(service, ports),
        has_blocks: ports.iter().any(|port| port.count > 1),
    })
    .collect()
}

impl World {
    fn new() -> Self {
        let caller = Caller::with(&PrConfig {
            max_allocs: 1000,
            max_profiles: 32,
            foreign_rest_ms: 3000,
            ..config()
        });
        let hosts = [0, 1, 2, 3].map(|index| ranged(index, 1));
        assert_eq!(caller.put(&hosts), PR_OK);
        assert_eq!(caller.networks(&[network("ib", [10, 2, 0, 0], 16)]), PR_OK);
        Self {
            profiles: kinds(&caller),
            caller,
            held: Vec::new(),
            now: 1,
            next_job: 1,
            seq: 1,
        }
    }

    fn kind(&self, kind: u8) -> &Kind {
        &self.profiles[usize::from(kind) % self.profiles.len()]
    }

    fn one(&self, which: u8) -> Option<usize> {
        let many = self.held.len();
        (many > 0).then(|| usize::from(which) % many)
    }

    fn next_want(&mut self, kind: u8, host: u32) -> PrWant {
        self.next_job += 1;
        want(self.next_job, 0, self.kind(kind).id, host)
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Hold(kind, host) => {
                let wanted = self.next_want(*kind, *host);
                let txn = self.caller.begin(self.now);
                let (code, grant, _) = self.caller.reserve(txn, wanted);
                assert_eq!(self.caller.commit(txn), PR_OK);
                if code == PR_OK {
                    self.held.push(grant.id);
                }
            }
            Event::BeginRelease(which) => {
                if let Some(at) = self.one(*which) {
                    self.caller.release_begin(self.held[at]);
                }
            }
            Event::ConfirmRelease(which) => {
                if let Some(at) = self.one(*which) {
                    let id = self.held.swap_remove(at);
                    assert_eq!(self.caller.release_confirm(id, self.now), PR_OK);
                }
            }
            Event::State(host, state) => {
                assert_eq!(self.caller.host_state(*host, *state), PR_OK);
            }
            Event::Foreign(host, list) => {
                self.seq += 1;
                let list: Vec<PrForeign> = list
                    .iter()
                    .map(|(lo, more)| listener(*lo, lo + more, PR_TCP + u32::from(*more)))
                    .collect();
                assert_eq!(self.caller.foreign(*host, self.seq, &list), PR_OK);
            }
            Event::Conflict(which) => {
                if let Some(at) = self.one(*which) {
                    let (api, ctx) = (self.caller.api, self.caller.ctx);
                    // SAFETY: no pointer is passed. It may not hold the number.
                    unsafe { (api.report_conflict)(ctx, self.held[at], 501, PR_TCP, 7) };
                }
            }
            Event::Wait(kind, host) => {
                let wanted = self.next_want(*kind, host.unwrap_or(PR_ANY));
                assert_eq!(self.caller.wait(&[wanted]).0, PR_OK);
            }
            Event::Later(ms) => {
                self.now += ms;
                self.caller.pump(self.now);
            }
            Event::Ranges(host, ranges) => {
                assert_eq!(self.caller.put(&[ranged(*host, *ranges)]), PR_OK);
            }
            Event::Addresses(host, both) => {
                self.seq += 1;
                let list = [([10, 1, 0, 7], 0), ([10, 2, 0, 7], 0)];
                let list = if *both { &list[..] } else { &list[..1] };
                assert_eq!(self.caller.addresses(*host, self.seq, list), PR_OK);
            }
        }
    }

    /// Opens a transaction, tries a few things in it, and asks.
    fn ask(&mut self, question: &Question) {
        let flags = u32::from(question.what_if) * PR_TXN_WHATIF;
        let txn = self.caller.try_begin(flags, self.now).unwrap();
        let mark = self.mark(txn);
        for attempt in &question.tries {
            match attempt {
                Try::Reserve(kind, host) => {
                    let wanted = self.next_want(*kind, *host);
                    self.caller.reserve(txn, wanted);
                }
                Try::Give(which) if question.what_if => {
                    if let Some(at) = self.one(*which) {
                        self.caller.give(txn, &[self.held[at]]);
                    }
                }
                Try::Give(_) => {}
                Try::Back => self.back(txn, mark),
            }
        }
        self.compare(txn, question);
        assert_eq!(self.caller.abort(txn), PR_OK);
    }

    fn compare(&mut self, txn: PrTxn, question: &Question) {
        let need = PrNeed {
            profile: self.kind(question.profile).id,
            replicas: question.replicas,
            at_ms: match question.ahead_ms {
                0 => 0,
                ahead => self.now + ahead,
            },
        };
        let (fitting, most) = self.feasible(txn, need, u64::MAX);
        assert_eq!(
            self.feasible(txn, need, question.among).0,
            fitting & question.among
        );
        let mut firsts = [0_u32; 16];
        for host in 0..HOSTS {
            let causes = self.caller.explain(txn, need, host);
            let fits = fitting >> host & 1 == 1;
            assert_eq!(causes.is_empty(), fits, "host {host}: {causes:?}");
            assert_eq!(most[host as usize] > 0, fits);
            if let Some(first) = causes.first() {
                firsts[first.reason as usize] += 1;
            }
        }
        firsts[PR_R_UNKNOWN_HOST as usize] -= 1;
        assert_eq!(self.caller.summary::<16>(txn, need, None), firsts);
        if need.at_ms == 0 {
            for host in 0..HOSTS {
                self.hold_to(txn, question, host, u32::from(most[host as usize]));
            }
            assert_eq!(self.feasible(txn, need, u64::MAX).0, fitting);
        }
    }

    /// As many replicas are reserved one after the other as was said, and then taken back.
    fn hold_to(&mut self, txn: PrTxn, question: &Question, host: u32, most: u32) {
        // A request for nothing always fits.
        let limit = 20;
        let mark = self.mark(txn);
        let before = self.caller.held(txn, host.min(HOSTS - 2), 16);
        let mut taken = 0;
        let refused = loop {
            if taken == limit {
                break None;
            }
            let wanted = self.next_want(question.profile, host);
            match self.caller.reserve(txn, wanted) {
                (PR_OK, ..) => taken += 1,
                (code, grant, _) => break Some((code, grant.reason)),
            }
        };
        // Of several that are asked for at once it may be that fewer than one after the other are said to fit.
        let least = most.min(limit);
        let all_at_once = question.replicas.max(1);
        if most >= all_at_once {
            assert!(taken >= least, "{taken} of {least}");
        }
        if !self.kind(question.profile).has_blocks && most > 0 {
            assert_eq!(taken, least);
        }
        if most == 0 && all_at_once == 1 {
            assert_eq!(taken, 0);
        }
        if let (0, Some((code, reason))) = (taken, refused) {
            let need = PrNeed {
                profile: self.kind(question.profile).id,
                replicas: 1,
                at_ms: 0,
            };
            let first = self.caller.explain(txn, need, host)[0].reason;
            let expected = if reason == PR_R_UNKNOWN_HOST {
                PR_ENOENT
            } else {
                PR_ENOPORT
            };
            assert_eq!((code, reason), (expected, first));
        }
        let after = self.caller.held(txn, host.min(HOSTS - 2), 16);
        assert_eq!(plain(&before), plain(&after), "what it took is not shown");
        self.back(txn, mark);
    }

    /// Which of the hosts fit, and how many replicas on each.
    fn feasible(&self, txn: PrTxn, need: PrNeed, among: u64) -> (u64, [u16; 64]) {
        let (mut word, mut most) = (among, [9; 64]);
        // SAFETY: live locals, one word that is read and written, and 64 numbers.
        let count = unsafe {
            let (at, most) = (&raw mut word, most.as_mut_ptr());
            (self.caller.api.feasible)(txn, &raw const need, at, at, most, 1)
        };
        assert_eq!(count, i64::from(word.count_ones()), "{}", last_error());
        (word, most)
    }

    fn mark(&self, txn: PrTxn) -> u32 {
        let mut mark = 0;
        // SAFETY: a live local.
        let code = unsafe { (self.caller.api.mark)(txn, &raw mut mark) };
        assert_eq!(code, PR_OK);
        mark
    }

    fn back(&self, txn: PrTxn, mark: u32) {
        // SAFETY: no pointer is passed.
        let code = unsafe { (self.caller.api.rollback)(txn, mark) };
        assert_eq!(code, PR_OK);
    }
}

fn plain(held: &[PrHeld]) -> Vec<impl PartialEq + std::fmt::Debug> {
    let numbers = |it: &PrHeld| (it.lo, it.hi, it.proto);
    let told = |it: &PrHeld| (it.id, it.replica, it.state, it.left_ms, it.pid);
    held.iter().map(|it| (numbers(it), told(it))).collect()
}

/// 40 states for each case: 10,000 in all with `PROPTEST_CASES=1000`.
fn cases() -> u32 {
    ProptestConfig::default().cases.div_ceil(4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn who_fits_has_no_cause_against_it_and_who_has_none_is_given_numbers(
        steps in proptest::collection::vec((event(), question()), 40..41)
    ) {
        let mut world = World::new();
        for (event, question) in &steps {
            world.happen(event);
            world.ask(question);
        }
    }
}
