//! Once warm, no call of class H allocates: each by its name, over cycles as a scheduler turns them.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ptr::{null, null_mut};

use allocation_counter::measure;

use super::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

/// More than are asked one by one, so that the sets of hosts are used as well.
const HOSTS: u32 = 300;
const WORDS: u32 = 8;
/// Few enough that hosts become full and numbers are taken from cooling.
const USED: u32 = 8;
const FIRST: u16 = 20_000;
const LAST: u16 = 20_399;
/// A number that a profile names. Nobody is given it for "any", so that it cools for one service alone: for each
/// more that it cools for at once, memory is taken once.
const FIXED: u16 = 8_081;
/// Far fewer than come and go, so that slots are used again.
const MOST_ALLOCS: u32 = 1_000;

/// A small generator: the same course every time.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(u64::from(end))).unwrap()
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What was counted of one function.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    calls: u64,
    refusals: u64,
    allocations: u64,
}

struct Scheduler {
    caller: Caller,
    dice: Dice,
    now: u64,
    /// How many milliseconds a cycle may take.
    pace: u64,
    next_job: u64,
    profiles: Vec<u32>,
    held: Vec<(PrAlloc, PrWant)>,
    /// Keys whose grant has ended, for those that come back.
    ended: Vec<PrWant>,
    counted: BTreeMap<&'static str, Counted>,
    grants: Vec<PrGrant>,
    ports: Vec<u16>,
    words: Vec<u64>,
    replicas: Vec<u16>,
    text: Vec<c_char>,
}

impl Scheduler {
    fn new() -> Self {
        let caller = Caller::with(&PrConfig {
            max_hosts: HOSTS,
            max_allocs: MOST_ALLOCS,
            cool_ms: 5_000,
            max_ports: 4_000,
            ..config()
        });
        let range = [PrRange {
            lo: FIRST,
            hi: LAST,
        }];
        let names: Vec<String> = (0..HOSTS).map(|host| format!("n{host}")).collect();
        let hosts: Vec<PrHost> = (0..)
            .zip(&names)
            .map(|(index, name)| PrHost {
                dynamic: range.as_ptr(),
                n_dynamic: 1,
                flags: index % 3,
                ..host(index, name)
            })
            .collect();
        assert_eq!(caller.put(&hosts), PR_OK, "{}", last_error());
        for host in 0..USED {
            assert_eq!(caller.address(host, 1, 7), PR_OK);
        }
        let udp = PrPort {
            proto: PR_UDP,
            ..any("udp")
        };
        let pair = PrPort {
            proto: PR_TCP_UDP,
            ..any("pair")
        };
        let block = PrPort {
            count: 6,
            env: text("BLOCK"),
            ..any("block")
        };
        let narrow = [PrRange {
            lo: 20_100,
            hi: 20_200,
        }];
        let narrowed = PrPort {
            within: narrow.as_ptr(),
            n_within: 1,
            ..any("narrow")
        };
        let many: Vec<String> = (0..12).map(|port| format!("p{port}")).collect();
        let many: Vec<PrPort> = many.iter().map(|name| any(name)).collect();
        let profiles = vec![
            caller.profile("web.alice", &[any("http"), any("admin")]),
            caller.profile("fix.alice", &[fixed("http", 8080), any("rpc")]),
            caller.profile("mix.alice", &[block, udp, pair, narrowed]),
            caller.profile("db.bob", &[any("sql")]),
            caller.profile("in.bob", &[fixed("low", FIXED), pair]),
            caller.profile("big.bob", &many),
            caller.profile("none.bob", &[]),
            caller.profile("six.bob", &many[..6]),
            caller.profile(
                "one.carol",
                &[PrPort {
                    proto: PR_TCP_UDP,
                    ..any("one")
                }],
            ),
        ];
        Self {
            caller,
            dice: Dice(0x9e37_79b9_7f4a_7c15),
            now: 1_000,
            pace: 15,
            next_job: 0,
            profiles,
            held: Vec::new(),
            ended: Vec::new(),
            counted: BTreeMap::new(),
            grants: vec![no_grant(); 8],
            ports: vec![0; 256],
            words: vec![0; WORDS as usize],
            replicas: vec![0; WORDS as usize * 64],
            text: vec![0; 4096],
        }
    }

    /// Makes one call and counts what it allocates.
    fn count<R: Copy + Into<i64>>(
        &mut self,
        name: &'static str,
        call: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let mut answer = None;
        let info = measure(|| answer = Some(call(self)));
        let answer = answer.unwrap();
        let counted = self.counted.entry(name).or_default();
        counted.calls += 1;
        counted.refusals += u64::from(answer.into() < 0);
        counted.allocations += info.count_total;
        answer
    }

    fn begin(&mut self) -> PrTxn {
        let mut txn = 0;
        let code = self.count("txn_begin", |it| {
            // SAFETY: a live local.
            unsafe { (it.caller.api.txn_begin)(it.caller.ctx, 0, it.now, &raw mut txn) }
        });
        assert_eq!(code, PR_OK);
        txn
    }

    fn feasible(&mut self, txn: PrTxn, profile: u32) {
        let need = PrNeed {
            profile,
            replicas: self.dice.pick(3),
            at_ms: 0,
        };
        let with_candidates = !self.dice.one_in(8);
        let with_most = self.dice.one_in(8);
        if with_candidates {
            self.words.fill(0);
            self.words[0] = 0xff;
        }
        self.count("feasible", |it| {
            let words = it.words.as_mut_ptr();
            let cand = if with_candidates {
                words.cast_const()
            } else {
                null()
            };
            let most = if with_most {
                it.replicas.as_mut_ptr()
            } else {
                null_mut()
            };
            // SAFETY: room for so many words, and for 64 numbers for each.
            unsafe { (it.caller.api.feasible)(txn, &raw const need, cand, words, most, WORDS) }
        });
    }

    fn want(&mut self) -> PrWant {
        let profile = self.dice.pick(u32::try_from(self.profiles.len()).unwrap());
        if self.dice.one_in(4)
            && let Some(back) = self.ended.pop()
        {
            return PrWant {
                incarnation: back.incarnation + 1,
                flags: PR_WANT_PREFER,
                ..back
            };
        }
        self.next_job += 1;
        let mut want = want(
            self.next_job / 3,
            self.dice.pick(4),
            self.profiles[profile as usize],
            0,
        );
        want.host = self.dice.pick(USED);
        want.incarnation = u32::try_from(self.next_job % 3).unwrap();
        want.step = self.dice.pick(2);
        match self.dice.below(40) {
            0 => want.host = 777,
            1 => want.profile = 99,
            2 => want.flags = 2,
            _ => {}
        }
        want
    }

    fn reserve(
        &mut self,
        txn: PrTxn,
        name: &'static str,
        flags: u32,
        wants: &[PrWant],
        cap: u32,
    ) -> i32 {
        let n = u32::try_from(wants.len()).unwrap();
        let mut need = 0;
        self.count(name, |it| {
            let (grants, ports) = (it.grants.as_mut_ptr(), it.ports.as_mut_ptr());
            let reserve = it.caller.api.reserve;
            // SAFETY: room for so many grants and numbers.
            unsafe {
                reserve(
                    txn,
                    flags,
                    wants.as_ptr(),
                    n,
                    grants,
                    ports,
                    cap,
                    &raw mut need,
                )
            }
        })
    }

    fn mark(&mut self, txn: PrTxn) -> u32 {
        let mut mark = 0;
        let code = self.count("mark", |it| {
            // SAFETY: a live local.
            unsafe { (it.caller.api.mark)(txn, &raw mut mark) }
        });
        assert_eq!(code, PR_OK);
        mark
    }

    fn rollback(&mut self, txn: PrTxn, mark: u32) {
        let code = self.count("rollback", |it| {
            // SAFETY: no pointer is passed.
            unsafe { (it.caller.api.rollback)(txn, mark) }
        });
        assert_eq!(code, PR_OK);
    }

    fn commit(&mut self, txn: PrTxn) {
        let mut number = 0;
        let code = self.count("commit", |it| {
            // SAFETY: a live local.
            unsafe { (it.caller.api.commit)(txn, &raw mut number) }
        });
        assert_eq!(code, PR_OK);
    }

    fn abort(&mut self, txn: PrTxn) {
        let code = self.count("abort_", |it| {
            // SAFETY: no pointer is passed.
            unsafe { (it.caller.api.abort_)(txn) }
        });
        assert_eq!(code, PR_OK);
    }

    fn look_at(&mut self, id: PrAlloc, want: PrWant) {
        let mut found = 0;
        let any_incarnation = PrWant {
            incarnation: PR_ANY,
            ..want
        };
        for key in [want, any_incarnation] {
            self.count("grant_find", |it| {
                // SAFETY: live locals.
                unsafe { (it.caller.api.grant_find)(it.caller.ctx, &raw const key, &raw mut found) }
            });
        }
        let (mut record, mut need) = (no_record(), 0);
        for cap in [0, 256] {
            self.count("grant_get", |it| {
                let (ctx, ports) = (it.caller.ctx, it.ports.as_mut_ptr());
                let get = it.caller.api.grant_get;
                // SAFETY: room for so many numbers.
                unsafe { get(ctx, id, &raw mut record, ports, cap, &raw mut need) }
            });
        }
        for cap in [0, 4096] {
            self.count("env", |it| {
                let (ctx, text) = (it.caller.ctx, it.text.as_mut_ptr());
                // SAFETY: room for so many bytes.
                unsafe { (it.caller.api.env)(ctx, id, 0, text, cap, &raw mut need) }
            });
        }
    }

    fn release(&mut self, id: PrAlloc) {
        let (mut rc, now) = (0, self.now);
        if self.dice.one_in(2) {
            self.count("release_begin", |it| {
                let begin = it.caller.api.release_begin;
                // SAFETY: one live id, and room for its code.
                unsafe { begin(it.caller.ctx, &raw const id, 1, 0, &raw mut rc) }
            });
        }
        let flags = if self.dice.one_in(4) {
            PR_REL_NO_COOL
        } else {
            0
        };
        // The second time it is stale.
        for _ in 0..2 {
            self.count("release_confirm", |it| {
                let confirm = it.caller.api.release_confirm;
                // SAFETY: one live id, and room for its code.
                unsafe { confirm(it.caller.ctx, &raw const id, 1, flags, now, &raw mut rc) }
            });
        }
    }

    fn release_job(&mut self, job: u64, confirm: u32) -> u32 {
        let (mut done, now) = (0, self.now);
        let code = self.count("release_job", |it| {
            let release = it.caller.api.release_job;
            // SAFETY: a live local.
            unsafe { release(it.caller.ctx, job, PR_ANY, confirm, now, &raw mut done) }
        });
        assert_eq!(code, PR_OK);
        done
    }

    /// One cycle: who fits, tries, looks, commit or not; then releases, down to `target` grants.
    fn turn(&mut self, target: usize) {
        self.now += self.dice.below(self.pace);
        let txn = self.begin();
        let first = self.want();
        self.feasible(txn, first.profile);
        let mut taken = Vec::new();
        let mark = self.mark(txn);
        let code = self.reserve(txn, "reserve", 0, &[first], 256);
        if code == PR_OK {
            taken.push((self.grants[0].id, first));
            assert_eq!(self.reserve(txn, "reserve", 0, &[first], 256), PR_EEXIST);
        }
        if self.dice.one_in(6) {
            self.rollback(txn, mark);
            taken.clear();
        }
        if self.dice.one_in(3) {
            let wants = [self.want(), self.want(), self.want()];
            if self.reserve(txn, "reserve all", PR_RESERVE_ALL, &wants, 256) == PR_OK {
                let new = self
                    .grants
                    .iter()
                    .zip(wants)
                    .filter(|(grant, _)| grant.rc == PR_OK);
                taken.extend(new.map(|(grant, want)| (grant.id, want)));
            }
            let code = self.reserve(txn, "reserve", 0, &wants, 0);
            assert!(code <= PR_OK);
        }
        if self.dice.one_in(3) {
            let mut wants = [self.want(), self.want(), self.want()];
            let profile = self.profiles[self.dice.pick(4) as usize];
            for (host, want) in (0..).zip(&mut wants) {
                want.profile = profile;
                want.host = host * 2;
            }
            let flags = PR_RESERVE_ALL | PR_RESERVE_SAME;
            let code = self.reserve(txn, "reserve same", flags, &wants, 256);
            if code == PR_OK {
                let new = self
                    .grants
                    .iter()
                    .zip(wants)
                    .filter(|(grant, _)| grant.rc == PR_OK);
                taken.extend(new.map(|(grant, want)| (grant.id, want)));
            }
        }
        for (id, want) in &taken {
            if self.dice.one_in(3) {
                self.look_at(*id, *want);
            }
        }
        if self.dice.one_in(8) {
            self.abort(txn);
        } else {
            self.commit(txn);
            self.held.append(&mut taken);
        }
        while self.held.len() > target {
            let at = usize::try_from(self.dice.below(self.held.len() as u64)).unwrap();
            let (id, want) = self.held.swap_remove(at);
            if self.dice.one_in(16) {
                self.release_job(want.job, 0);
                self.release_job(want.job, 1);
                self.held.retain(|(_, other)| other.job != want.job);
                continue;
            }
            self.release(id);
            if self.dice.one_in(2) && self.ended.len() < 100 {
                self.ended.push(want);
            }
        }
    }

    /// Takes what the profile asks for on a host until nothing is left, `most` grants at most.
    fn fill(&mut self, host: u32, profile: u32, most: usize) -> Vec<(PrAlloc, PrWant)> {
        let txn = self.begin();
        let mut taken = Vec::new();
        while taken.len() < most {
            self.next_job += 1;
            let want = want(1_000_000 + self.next_job, 0, profile, host);
            if self.reserve(txn, "reserve", 0, &[want], 256) != PR_OK {
                break;
            }
            taken.push((self.grants[0].id, want));
        }
        self.commit(txn);
        taken
    }

    /// Ends grants one millisecond after the other.
    fn end(&mut self, grants: impl IntoIterator<Item = (PrAlloc, PrWant)>, flags: u32) {
        for (id, _) in grants {
            self.now += 1;
            let (mut rc, now) = (0, self.now);
            let confirm = self.caller.api.release_confirm;
            // SAFETY: one live id, and room for its code.
            let code =
                unsafe { confirm(self.caller.ctx, &raw const id, 1, flags, now, &raw mut rc) };
            assert_eq!(code, PR_OK, "{}", last_error());
        }
    }

    /// A cycle in which nothing is asked, later.
    fn later(&mut self, ms: u64) {
        self.now += ms;
        let txn = self.begin();
        self.commit(txn);
    }

    /// Each host has the greatest number of grants that can be, of numbers that cool, and of runs of free and of
    /// cooling ones; and each
    /// slot had the most ports.
    fn make_warm(&mut self) {
        const LONG: u64 = 10_000;
        let last = *self.profiles.last().unwrap();
        for host in 0..USED {
            let all = self.fill(host, last, usize::MAX);
            assert_eq!(all.len(), usize::from(LAST - FIRST) + 1);
            self.end(all, 0);
            self.later(LONG);
            let all = self.fill(host, last, usize::MAX);
            self.end(all.iter().step_by(2).copied(), PR_REL_NO_COOL);
            self.later(1);
            self.end(all.iter().skip(1).step_by(2).copied(), 0);
            self.later(LONG);
        }
        let with_many = [self.profiles[5], self.profiles[7]];
        for profile in with_many {
            for _ in 0..6 {
                let mut all = Vec::new();
                for host in 0..USED {
                    all.extend(self.fill(host, profile, 33));
                }
                assert_eq!(all.len(), 33 * USED as usize);
                self.end(all, PR_REL_NO_COOL);
                self.later(1);
            }
        }
    }

    /// What is not hot: readers are told, a host's state changes.
    fn rest(&mut self) {
        self.caller.pump(self.now);
        if self.dice.one_in(20) {
            let host = self.dice.pick(USED);
            let state = if self.dice.one_in(5) {
                PR_HOST_DRAINED
            } else {
                PR_HOST_UP
            };
            assert_eq!(self.caller.host_state(host, state), PR_OK);
        }
    }

    /// A load that rises to `peak` grants and falls; readers are told now and then, at times not for long.
    fn turns(&mut self, turns: u64, peak: u64) {
        for turn in 0..turns {
            let phase = turn % (2 * peak);
            let height = phase.min(2 * peak - phase);
            self.turn(usize::try_from(height).unwrap());
            if turn % 2_000 > 600 && self.dice.one_in(3) {
                self.rest();
            }
        }
    }
}

fn no_record() -> PrRec {
    PrRec {
        who: want(0, 0, 0, 0),
        id: 0,
        seq: 0,
        n_ports: 0,
        port_off: 0,
        state: 0,
        cool_left_ms: 0,
        ready: 0,
        run: 0,
        restarts: 0,
        flags: 0,
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how many cycles the test counts is the caller's choice"
)]
fn a_warm_cycle_allocates_nothing_in_any_hot_call() {
    let mut scheduler = Scheduler::new();
    // Makes this thread warm.
    last_error();
    // The room that one cycle needs for itself.
    scheduler.turns(600, 250);
    scheduler.turn(0);
    scheduler.later(10_000);
    scheduler.make_warm();
    scheduler.counted.clear();
    let turns = if std::env::var_os("PORTREEVE_LONG").is_some() {
        1_000_000
    } else if cfg!(debug_assertions) {
        3_000
    } else {
        100_000
    };
    // Any load, and any course of the clock: numbers cool for long and many at once, or hardly at all.
    for (pace, peak) in [
        (40, 250),
        (1, 300),
        (15, 120),
        (400, 250),
        (5_000, 30),
        (3, 300),
    ] {
        scheduler.pace = pace;
        scheduler.turns(turns / 6, peak);
    }
    let names = [
        "abort_",
        "commit",
        "env",
        "feasible",
        "grant_find",
        "grant_get",
        "mark",
        "release_begin",
        "release_confirm",
        "release_job",
        "reserve",
        "reserve all",
        "reserve same",
        "rollback",
        "txn_begin",
    ];
    for name in names {
        let counted = scheduler.counted.get(name).copied().unwrap_or_default();
        assert!(counted.calls > turns / 50, "{name}: {counted:?}");
    }
    let refused = ["reserve", "reserve all", "reserve same", "release_confirm"];
    for name in refused {
        assert!(scheduler.counted[name].refusals > turns / 50, "{name}");
    }
    let allocating = scheduler
        .counted
        .iter()
        .filter(|(_, it)| it.allocations > 0);
    let allocating: Vec<_> = allocating.collect();
    assert!(allocating.is_empty(), "{allocating:?}");
}
