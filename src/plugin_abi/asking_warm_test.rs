//! Questions, and what is tried in a what-if, allocate nothing once warm.

use std::collections::BTreeMap;
use std::ptr::{null, null_mut};

use allocation_counter::measure;

use super::caller_test::*;
use super::reports::waits_test::listener;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

/// Room for answers, as a scheduler keeps it.
struct Desk {
    caller: Caller,
    profiles: Vec<u32>,
    held: Vec<PrAlloc>,
    causes: Vec<PrWhy>,
    listed: Vec<PrHeld>,
    most: Vec<u16>,
    ports: Vec<u16>,
    words: [u64; WORDS as usize],
    reasons: [u32; 16],
    next_job: u64,
    /// How often each function allocated.
    counted: BTreeMap<&'static str, u64>,
}

const HOSTS: u32 = 300;
const WORDS: u32 = HOSTS.div_ceil(64);

/// Counts what one call allocates.
macro_rules! counted {
    ($desk:expr, $name:literal, $call:expr) => {{
        let mut code = None;
        let counted = measure(|| code = Some($call));
        *$desk.counted.entry($name).or_default() += counted.count_total;
        code.unwrap()
    }};
}

impl Desk {
    fn new() -> Self {
        static DYNAMIC: [PrRange; 1] = [PrRange { lo: 2000, hi: 2063 }];
        let caller = Caller::with(&PrConfig {
            max_hosts: HOSTS,
            max_allocs: 4000,
            max_ports: 60_000,
            ..config()
        });
        let names: Vec<String> = (0..HOSTS).map(|index| format!("n{index}")).collect();
        let hosts: Vec<PrHost> = (0..)
            .zip(&names)
            .map(|(index, name)| PrHost {
                dynamic: DYNAMIC.as_ptr(),
                n_dynamic: 1,
                ..host(index, name)
            })
            .collect();
        assert_eq!(caller.put(&hosts), PR_OK);
        let udp = |port| PrPort {
            proto: PR_UDP,
            ..port
        };
        let block = PrPort {
            count: 5,
            ..any("b")
        };
        let many = ["a", "b", "c", "d", "e", "f"].map(any);
        let profiles = [
            vec![any("a"), any("b")],
            vec![fixed("a", 8080), udp(any("b"))],
            vec![fixed("a", 8080), any("b")],
            vec![any("a"), block],
            many.to_vec(),
        ];
        let services = ["web.alice", "web.alice", "web.bob", "sim.bob", "mpi.bob"];
        let pairs = services.iter().zip(&profiles);
        let profiles = pairs.map(|(service, ports)| caller.profile(service, ports));
        let mut desk = Self {
            profiles: profiles.collect(),
            caller,
            held: Vec::new(),
            causes: Vec::with_capacity(32),
            listed: Vec::with_capacity(256),
            most: vec![0; WORDS as usize * 64],
            ports: vec![0; 64],
            words: [0; WORDS as usize],
            reasons: [0; 16],
            next_job: 1,
            counted: BTreeMap::new(),
        };
        for host in 0..16 {
            for kind in [0, 1, 3, 4, 0] {
                let wanted = desk.next_want(kind, host);
                let id = desk.caller.hold(wanted).0;
                desk.held.push(id);
            }
        }
        let list = [listener(2040, 2043, PR_TCP), listener(9000, 9000, PR_UDP)];
        assert_eq!(desk.caller.foreign(3, 1, &list), PR_OK);
        assert_eq!(desk.caller.host_state(20, PR_HOST_DRAINED), PR_OK);
        let wanted = desk.next_want(1, PR_ANY);
        assert_eq!(desk.caller.wait(&[wanted]).0, PR_OK);
        let here = desk.next_want(2, 5);
        assert_eq!(desk.caller.wait(&[here]).0, PR_OK);
        // Some rest, for as long as the test asks about later moments.
        for at in [70, 41, 17, 2] {
            let id = desk.held.swap_remove(at);
            assert_eq!(desk.caller.release_confirm(id, 1), PR_OK);
        }
        desk.caller.pump(1);
        desk
    }

    fn next_want(&mut self, kind: usize, host: u32) -> PrWant {
        self.next_job += 1;
        want(self.next_job, 0, self.profiles[kind], host)
    }

    fn begin(&mut self, flags: u32) -> PrTxn {
        let (api, mut txn) = (self.caller.api, 0);
        let ctx = self.caller.ctx;
        // SAFETY: a live local.
        let code = counted!(self, "txn_begin", unsafe {
            (api.txn_begin)(ctx, flags, 2, &raw mut txn)
        });
        assert_eq!(code, PR_OK);
        txn
    }

    fn abort(&mut self, txn: PrTxn) {
        let api = self.caller.api;
        // SAFETY: no pointer is passed.
        let code = counted!(self, "abort_", unsafe { (api.abort_)(txn) });
        assert_eq!(code, PR_OK);
    }

    fn ask(&mut self, txn: PrTxn, turn: u32) {
        let api = self.caller.api;
        let need = PrNeed {
            profile: self.profiles[turn as usize % 5],
            replicas: turn % 3,
            at_ms: u64::from(turn % 2) * 70_000,
        };
        let mut count = 0;
        for host in [turn % 16, 3, 5, 20, HOSTS + 1] {
            // SAFETY: live locals, and room for 32.
            let code = counted!(self, "explain", unsafe {
                let at = self.causes.as_mut_ptr();
                (api.explain)(txn, &raw const need, host, at, 32, &raw mut count)
            });
            assert_eq!(code, PR_OK);
        }
        self.words = [u64::MAX; WORDS as usize];
        for words in [null(), self.words.as_ptr()] {
            // SAFETY: live arrays of the lengths said, or null for all hosts.
            let code = counted!(self, "explain_all", unsafe {
                let reasons = self.reasons.as_mut_ptr();
                (api.explain_all)(txn, &raw const need, words, WORDS, reasons, 16)
            });
            assert_eq!(code, PR_OK);
        }
        let (mut cursor, mut n) = (0, 1);
        while n > 0 {
            // SAFETY: live locals, and room for 4.
            let code = counted!(self, "holders", unsafe {
                let at = self.listed.as_mut_ptr();
                (api.holders)(txn, turn % 16, &raw mut cursor, at, 4, &raw mut n)
            });
            assert_eq!(code, PR_OK);
        }
        // SAFETY: live arrays of the lengths said.
        let fitting = counted!(self, "feasible", unsafe {
            let (words, most) = (self.words.as_mut_ptr(), self.most.as_mut_ptr());
            (api.feasible)(txn, &raw const need, words, words, most, WORDS)
        });
        assert!(fitting >= 0);
    }

    fn imagine(&mut self, txn: PrTxn, turn: u32) {
        let api = self.caller.api;
        let mut mark = 0;
        // SAFETY: a live local.
        let code = counted!(self, "mark", unsafe { (api.mark)(txn, &raw mut mark) });
        assert_eq!(code, PR_OK);
        let first = turn as usize % (self.held.len() - 3);
        let given = [0, 1, 2].map(|more| self.held[first + more]);
        let mut codes = [9; 3];
        // SAFETY: live arrays of the length said.
        let code = counted!(self, "give", unsafe {
            (api.give)(txn, given.as_ptr(), 3, codes.as_mut_ptr())
        });
        assert_eq!(code, PR_OK);
        for host in [turn % 16, (turn + 5) % 16] {
            let wanted = self.next_want(turn as usize % 5, host);
            let (mut grant, mut need) = (no_grant(), 0);
            // SAFETY: live locals, and room for 64 numbers.
            counted!(self, "reserve", unsafe {
                let (grant, ports) = (&raw mut grant, self.ports.as_mut_ptr());
                (api.reserve)(
                    txn,
                    0,
                    &raw const wanted,
                    1,
                    grant,
                    ports,
                    64,
                    &raw mut need,
                )
            });
        }
        let gang = [turn % 16, (turn + 7) % 16].map(|host| self.next_want(0, host));
        for flags in [PR_RESERVE_ALL, PR_RESERVE_ALL | PR_RESERVE_SAME] {
            let (mut grants, mut need) = ([no_grant(); 2], 0);
            // SAFETY: live arrays of the length said, and room for 64 numbers.
            counted!(self, "reserve of a gang", unsafe {
                let (grants, ports) = (grants.as_mut_ptr(), self.ports.as_mut_ptr());
                (api.reserve)(
                    txn,
                    flags,
                    gang.as_ptr(),
                    2,
                    grants,
                    ports,
                    64,
                    &raw mut need,
                )
            });
        }
        if turn.is_multiple_of(3) {
            // SAFETY: no pointer is passed.
            let code = counted!(self, "rollback", unsafe { (api.rollback)(txn, mark) });
            assert_eq!(code, PR_OK);
        }
    }

    fn turn(&mut self, turn: u32) {
        let txn = self.begin(PR_TXN_WHATIF);
        self.imagine(txn, turn);
        self.ask(txn, turn);
        self.imagine(txn, turn + 40);
        self.abort(txn);
        let txn = self.begin(0);
        self.ask(txn, turn);
        self.abort(txn);
    }
}

#[test]
fn a_warm_question_allocates_nothing_nor_does_what_is_tried() {
    let mut desk = Desk::new();
    let mut need = 0;
    // SAFETY: no room is needed to be told how much would be.
    unsafe { (desk.caller.api.last_error)(null_mut(), 0, &raw mut need) };
    (0..60).for_each(|turn| desk.turn(turn));
    desk.counted.clear();
    (0..60).for_each(|turn| desk.turn(turn));
    let counted: Vec<_> = desk.counted.iter().filter(|(_, many)| **many > 0).collect();
    assert!(counted.is_empty(), "{counted:?}");
}
