//! Whatever happens, and whoever follows at whatever pace: a silent watch has told all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};

use crate::plugin_abi::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;
use crate::plugin_abi::watch::follower_test::*;

const SERVICES: [&str; 3] = ["a.x", "b.x", "c.x"];

#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Drop(usize),
    Hold { profile: usize, host: u32 },
    Again { grant: usize, host: u32 },
    Begin(usize),
    Confirm(usize),
    Report { grant: usize, state: u32 },
    Address { host: u32, last: u8 },
    State { host: u32, state: u32 },
    Swap,
    Pump,
    Open { service: usize, since: u8 },
    Close(usize),
    Look { watch: usize, cap: u32 },
    Follow,
}

fn step() -> impl Strategy<Value = Step> {
    let any_of = 0..8_usize;
    prop_oneof![
        1 => (0..3_usize).prop_map(Step::Put),
        1 => any_of.clone().prop_map(Step::Drop),
        4 => (any_of.clone(), 0..2_u32).prop_map(|(profile, host)| Step::Hold { profile, host }),
        2 => (any_of.clone(), 0..2_u32).prop_map(|(grant, host)| Step::Again { grant, host }),
        2 => any_of.clone().prop_map(Step::Begin),
        2 => any_of.clone().prop_map(Step::Confirm),
        6 => (any_of.clone(), 0..=PR_E_TERMINATING)
            .prop_map(|(grant, state)| Step::Report { grant, state }),
        2 => (0..2_u32, 0..4_u8).prop_map(|(host, last)| Step::Address { host, last }),
        2 => (0..2_u32, 0..=PR_HOST_LOST).prop_map(|(host, state)| Step::State { host, state }),
        1 => Just(Step::Swap),
        4 => Just(Step::Pump),
        3 => (0..4_usize, 0..3_u8).prop_map(|(service, since)| Step::Open { service, since }),
        1 => any_of.clone().prop_map(Step::Close),
        6 => (any_of, 0..4_u32).prop_map(|(watch, cap)| Step::Look { watch, cap }),
        1 => Just(Step::Follow),
    ]
}

/// A scheduler that does as it is told, with those who follow it.
struct Play {
    caller: Caller,
    profiles: Vec<u32>,
    grants: Vec<(PrAlloc, PrWant)>,
    followers: Vec<Follower>,
    moment: u64,
    swapped: bool,
}

impl Play {
    fn new() -> Self {
        Self {
            caller: Caller::new(),
            profiles: Vec::new(),
            grants: Vec::new(),
            followers: Vec::new(),
            moment: 0,
            swapped: false,
        }
    }

    fn take(&mut self, step: &Step) {
        self.moment += 1;
        let (now, caller) = (self.moment, &self.caller);
        match *step {
            Step::Put(service) => {
                let ports = [any("http"), any("rpc")];
                let ports = &ports[..=service % 2];
                self.profiles
                    .extend(caller.try_profile(SERVICES[service], ports));
            }
            Step::Drop(at) => {
                if at < self.profiles.len() {
                    assert_eq!(caller.drop_profile(self.profiles.remove(at)), PR_OK);
                }
            }
            Step::Hold { profile, host } => {
                if let Some(profile) = self.profiles.get(profile) {
                    let want = want(now, 0, *profile, host);
                    self.reserve(want);
                }
            }
            Step::Again { grant, host } => {
                if let Some((_, want)) = self.grants.get(grant) {
                    let again = PrWant {
                        incarnation: u32::try_from(now).unwrap(),
                        host,
                        ..*want
                    };
                    self.reserve(again);
                }
            }
            Step::Begin(at) => {
                if let Some((id, _)) = self.grants.get(at) {
                    caller.release_begin(*id);
                }
            }
            Step::Confirm(at) => {
                if at < self.grants.len() {
                    let (id, _) = self.grants.remove(at);
                    assert_eq!(caller.release_confirm(id, now), PR_OK);
                }
            }
            Step::Report { grant, state } => {
                if let Some((id, _)) = self.grants.get(grant) {
                    caller.report(*id, 1, now, state);
                }
            }
            Step::Address { host, last } => {
                assert_eq!(caller.address(host, now, last), PR_OK);
            }
            Step::State { host, state } => {
                assert_eq!(caller.host_state(host, state), PR_OK);
            }
            Step::Swap => {
                self.swapped = !self.swapped;
                let names = if self.swapped {
                    ["n2", "n1"]
                } else {
                    ["n1", "n2"]
                };
                caller.put(&[host(0, names[0]), host(1, names[1])]);
            }
            Step::Pump => {
                caller.pump(now);
            }
            Step::Open { service, since } => self.open(SERVICES.get(service).copied(), since),
            Step::Close(at) => {
                if at < self.followers.len() {
                    let closed = self.followers.remove(at);
                    assert_eq!(caller.close(closed.id), PR_OK);
                }
            }
            Step::Look { watch, cap } => {
                if let Some(follower) = self.followers.get_mut(watch) {
                    follower.look(&self.caller, cap);
                }
            }
            Step::Follow => {
                for follower in &mut self.followers {
                    follower.follow(&self.caller, 3);
                }
            }
        }
        self.check();
    }

    fn reserve(&mut self, want: PrWant) {
        let txn = self.caller.begin(self.moment);
        let (code, grant, _) = self.caller.reserve(txn, want);
        if code == PR_OK {
            assert_eq!(self.caller.commit(txn), PR_OK);
            self.grants.push((grant.id, want));
        } else {
            assert_eq!(self.caller.abort(txn), PR_OK);
        }
    }

    fn open(&mut self, service: Option<&'static str>, since: u8) {
        let caller = &self.caller;
        let mut from = [0, 0, PR_NEVER][usize::from(since)];
        let mut table = BTreeMap::new();
        if since == 1 {
            // As every reader shall: a snapshot, then on from there.
            if let Some((rows, at)) = caller.snapshot(service, 3) {
                table.extend(rows.iter().map(row));
                from = at;
            }
        }
        let mut follower = caller.watch(service, from);
        follower.table = table;
        self.followers.push(follower);
    }

    /// Who is silent knows all.
    fn check(&self) {
        for follower in &self.followers {
            if !is_readable(follower.fd) {
                follower.check(&self.caller, &SERVICES);
            }
        }
        let open = self.followers.len() as u64;
        assert_eq!(self.caller.stats().watches, open);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn who_is_silent_has_what_resolve_shows(steps in vec(step(), 1..150)) {
        let mut play = Play::new();
        for step in &steps {
            play.take(step);
        }
        for follower in &mut play.followers {
            follower.follow(&play.caller, 1);
        }
        play.check();
    }
}

#[test]
fn readers_follow_while_the_writer_writes() {
    const ROUNDS: u64 = 300;
    let caller = Caller::new();
    let profiles = [
        caller.profile("a.x", &[any("http")]),
        caller.profile("b.x", &[any("http"), any("rpc")]),
    ];
    caller.address(0, 1, 1);
    let is_through = AtomicBool::new(false);
    let follow = &|service, cap| {
        let mut follower = caller.watch(service, PR_NEVER);
        loop {
            let is_last = is_through.load(Ordering::Acquire);
            follower.follow(&caller, cap);
            if is_last {
                break;
            }
            // One that comes and goes meanwhile.
            let passing = caller.watch(service, 0);
            caller.close(passing.id);
        }
        follower.check(&caller, &SERVICES);
    };
    std::thread::scope(|scope| {
        let _through = Through(&is_through);
        for (cap, service) in (1..).zip([None, Some("a.x"), Some("b.x"), None]) {
            scope.spawn(move || follow(service, cap));
        }
        for (round, profile) in (0..ROUNDS).zip(profiles.iter().cycle()) {
            let (id, _) = caller.hold(want(round, 0, *profile, 0));
            caller.report(id, 1, 1, PR_E_READY);
            if round % 5 != 0 {
                assert_eq!(caller.release_confirm(id, 0), PR_OK);
            }
            caller.pump(0);
        }
    });
}

/// Lets the readers end, also when the writer fails.
struct Through<'a>(&'a AtomicBool);

impl Drop for Through<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
