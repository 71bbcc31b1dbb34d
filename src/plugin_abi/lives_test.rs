//! A scheduler that is killed anywhere, thousands of times: what its log says is what the next life holds.
//!
//! The log is written as `mini_scheduler.c` writes it: a start before the commit, a stop before
//! `release_begin`, an end before `release_confirm`. A life ends between any two steps of that, without a
//! word to the plugin. The truth is read from the log alone, and asserts itself that no number has two holders.

use std::collections::{BTreeMap, BTreeSet};

use super::caller_test::*;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::*;

const LIVES: u64 = 300;
const COOL_MS: u64 = 60_000;
const HOSTS: [&str; 4] = ["n0", "n1", "n2", "n3"];
const SERVICES: [&str; 3] = ["web.alice", "admin.bob", "dns.carol"];
/// The service and the number of numbers of each kind of job; see [`Life::profiles`].
const KINDS: [(usize, usize); 4] = [(0, 1), (1, 1), (0, 4), (2, 1)];

/// A small generator: the same course every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn pick(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(u64::from(end))).unwrap()
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Job and replica.
type Key = (u64, u32);
/// Host, `PR_TCP` or `PR_UDP`, number.
type Number = (usize, u32, u16);

/// Of everybody's truth: what is placed where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed {
    incarnation: u32,
    kind: usize,
    host: usize,
    numbers: Vec<u16>,
    stopping: bool,
}

impl Placed {
    fn sides(&self) -> impl Iterator<Item = Number> {
        let sides: &[u32] = if self.kind == 3 {
            &[PR_TCP, PR_UDP]
        } else {
            &[PR_TCP]
        };
        let numbers = self.numbers.iter();
        numbers.flat_map(|number| sides.iter().map(|side| (self.host, *side, *number)))
    }

    /// The first number and the length of each published port.
    fn ports(&self) -> Vec<(u16, u16)> {
        match (self.kind, self.numbers.as_slice()) {
            (2, [http, first, ..]) => vec![(*http, 1), (*first, 3)],
            (_, numbers) => numbers.iter().map(|number| (*number, 1)).collect(),
        }
    }
}

#[derive(Clone, Debug)]
enum Line {
    Start(Key, Placed),
    Stop(Key),
    End(Key, u64),
}

/// What a log says.
#[derive(Debug, Default)]
struct Truth {
    held: BTreeMap<Key, Placed>,
    rests: Vec<(Placed, u64)>,
    /// Until when a number rests, and for which service.
    cooling: BTreeMap<Number, (u64, usize)>,
    /// The newest incarnation of each key.
    newest: BTreeMap<Key, u32>,
}

impl Truth {
    fn of(log: &[Line]) -> Self {
        let mut truth = Self::default();
        log.iter().for_each(|line| truth.take(line));
        truth
    }

    fn take(&mut self, line: &Line) {
        match line {
            Line::Start(key, placed) => {
                for number in placed.sides() {
                    let holder = self
                        .held
                        .iter()
                        .find(|(_, held)| held.sides().any(|it| it == number));
                    assert!(
                        holder.is_none(),
                        "{number:?} has two holders: {key:?}, {holder:?}"
                    );
                    self.cooling.remove(&number);
                }
                let before = self.newest.insert(*key, placed.incarnation);
                assert!(before.is_none_or(|before| before < placed.incarnation));
                assert!(self.held.insert(*key, placed.clone()).is_none());
            }
            Line::Stop(key) => {
                if let Some(held) = self.held.get_mut(key) {
                    held.stopping = true;
                }
            }
            Line::End(key, at) => {
                let Some(placed) = self.held.remove(key) else {
                    return;
                };
                for number in placed.sides() {
                    let rests = (at + COOL_MS, KINDS[placed.kind].0);
                    self.cooling.insert(number, rests);
                }
                self.rests.push((placed, at + COOL_MS));
            }
        }
    }
}

/// What lasts from life to life: the log, the clock, and the workers, which know how their replicas are.
struct World {
    log: Vec<Line>,
    now: u64,
    dice: Dice,
    /// The run, the seq and the state that the worker of a replica told last.
    workers: BTreeMap<Key, (u32, u64, u32)>,
    /// What the scheduler wrote down of it, some time ago.
    noted: BTreeMap<Key, (u32, u64, u32)>,
    counts: Counts,
}

/// So that the test can tell that it tested something.
#[derive(Debug, Default)]
struct Counts {
    killed: u32,
    starts: u32,
    refused: u32,
    restored: u32,
    rested: u32,
    compared: u32,
}

/// The process is gone: nothing after this line is done.
struct Killed;

/// One process of the scheduler.
struct Life<'a> {
    world: &'a mut World,
    truth: Truth,
    caller: Caller,
    /// Where each host stands in this life; none of those that are not there.
    places: [Option<u32>; HOSTS.len()],
    /// The id of each kind in this life.
    profiles: [u32; KINDS.len()],
    ids: BTreeMap<Key, PrAlloc>,
    /// What readers should see of a replica.
    seen: BTreeMap<Key, u32>,
    open: Option<PrTxn>,
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how many lives the test tries is the caller's choice"
)]
fn what_a_scheduler_logged_is_held_and_nothing_else_wherever_it_is_killed() {
    let lives = if std::env::var_os("PORTREEVE_LONG").is_some() {
        10_000
    } else {
        LIVES
    };
    let mut counts = Counts::default();
    for world in 1..=lives / 20 {
        let mut world = World {
            log: Vec::new(),
            now: 1,
            dice: Dice(world.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            workers: BTreeMap::new(),
            noted: BTreeMap::new(),
            counts: std::mem::take(&mut counts),
        };
        for _ in 0..20 {
            let mut life = Life::begin(&mut world);
            let killed = life.live().is_err();
            // The process is gone with its memory; what was open in it with it.
            drop(life);
            world.counts.killed += u32::from(killed);
            world.now += world.dice.below(40_000);
        }
        counts = world.counts;
    }
    // It came to everything, and was killed often.
    let few = u32::try_from(lives / 4).unwrap();
    assert!(counts.killed > few && counts.restored > few, "{counts:?}");
    assert!(counts.starts > few && counts.refused > 10, "{counts:?}");
    assert!(counts.rested > few && counts.compared > few, "{counts:?}");
}

impl<'a> Life<'a> {
    /// The start, up to the end of the restore phase and the first comparison.
    fn begin(world: &'a mut World) -> Self {
        let truth = Truth::of(&world.log);
        let caller = Caller::with(&PrConfig {
            flags: 0,
            max_hosts: 8,
            max_allocs: 64,
            ..config()
        });
        let mut life = Self {
            world,
            truth,
            caller,
            places: [None; HOSTS.len()],
            profiles: [0; KINDS.len()],
            ids: BTreeMap::new(),
            seen: BTreeMap::new(),
            open: None,
        };
        life.put_hosts();
        life.put_profiles();
        life.restore();
        for place in life.places.into_iter().flatten() {
            let last = u8::try_from(place).unwrap();
            assert_eq!(life.caller.address(place, 1, last), PR_OK);
        }
        life.compare();
        life
    }

    /// Hosts are renumbered, pools are other ones, and a host that holds nothing may be gone.
    fn put_hosts(&mut self) {
        let mut free: Vec<u32> = (0..8).collect();
        for (host, place) in self.places.iter_mut().enumerate() {
            let needed = self.truth.held.values().any(|held| held.host == host);
            if !needed && self.world.dice.one_in(4) {
                continue;
            }
            let at = self.world.dice.pick(u32::try_from(free.len()).unwrap());
            *place = Some(free.swap_remove(at as usize));
        }
        let lo = 20_000 + u16::try_from(self.world.dice.below(3)).unwrap() * 6;
        let pool = PrRange { lo, hi: lo + 15 };
        let there = HOSTS.iter().zip(self.places);
        let hosts: Vec<PrHost> = there
            .filter_map(|(name, place)| {
                Some(PrHost {
                    dynamic: &raw const pool,
                    n_dynamic: 1,
                    ..host(place?, name)
                })
            })
            .collect();
        if !hosts.is_empty() {
            assert_eq!(self.caller.put(&hosts), PR_OK, "{}", last_error());
        }
    }

    /// Kinds are declared in another order, and have other ids.
    fn put_profiles(&mut self) {
        let first = usize::try_from(self.world.dice.below(4)).unwrap();
        for kind in (0..4).map(|at| (at + first) % 4) {
            let block = PrPort {
                count: 3,
                ..any("rpc")
            };
            let both = PrPort {
                proto: PR_TCP_UDP,
                ..fixed("dns", 5353)
            };
            let ports = match kind {
                0 => vec![any("http")],
                1 => vec![fixed("console", 8080)],
                2 => vec![any("http"), block],
                _ => vec![both],
            };
            let service = SERVICES[KINDS[kind].0];
            self.profiles[kind] = self.caller.profile(service, &ports);
        }
    }

    fn record(&self, key: Key, placed: &Placed) -> Option<PrRec> {
        let host = self.places[placed.host]?;
        Some(PrRec {
            who: PrWant {
                incarnation: placed.incarnation,
                ..want(key.0, key.1, self.profiles[placed.kind], host)
            },
            id: 0,
            seq: 0,
            n_ports: u32::try_from(placed.numbers.len()).unwrap(),
            port_off: 0,
            state: if placed.stopping {
                PR_P_RELEASING
            } else {
                PR_P_HELD
            },
            cool_left_ms: 0,
            ready: PR_E_NOT_READY,
            run: 0,
            restarts: 0,
            flags: 0,
        })
    }

    /// What the log says, in any order and in pieces.
    fn restore(&mut self) {
        let mut records = Vec::new();
        for (key, placed) in &self.truth.held {
            let (run, seq, ready) = self.world.noted.get(key).copied().unwrap_or_default();
            let record = self.record(*key, placed).unwrap();
            let seen = match ready {
                _ if placed.stopping => PR_E_TERMINATING,
                PR_E_READY => PR_E_UNCONFIRMED,
                other => other,
            };
            self.seen.insert(*key, seen);
            let record = PrRec {
                run,
                seq,
                ready,
                ..record
            };
            records.push((Some(*key), record, placed.numbers.clone()));
        }
        for (placed, until) in &self.truth.rests {
            let left = until.saturating_sub(self.world.now);
            let Some(record) = self.record((0, 0), placed).filter(|_| left > 0) else {
                continue;
            };
            let record = PrRec {
                state: PR_P_COOLING,
                cool_left_ms: u32::try_from(left).unwrap(),
                ..record
            };
            records.push((None, record, placed.numbers.clone()));
        }
        // Shuffled.
        for at in (1..records.len()).rev() {
            let other = self.world.dice.pick(u32::try_from(at + 1).unwrap());
            records.swap(at, other as usize);
        }
        while !records.is_empty() {
            let n = 1 + self.world.dice.pick(u32::try_from(records.len()).unwrap());
            let piece: Vec<_> = records.drain(..n as usize).collect();
            self.put(piece);
        }
        let mut conflicts = 1;
        // SAFETY: one live local.
        let code = unsafe {
            (self.caller.api.restore_end)(self.caller.ctx, 0, self.world.now, &raw mut conflicts)
        };
        assert_eq!((code, conflicts), (PR_OK, 0));
    }

    fn put(&mut self, mut piece: Vec<(Option<Key>, PrRec, Vec<u16>)>) {
        let mut ports = Vec::new();
        for (_, record, numbers) in &mut piece {
            record.port_off = u32::try_from(ports.len()).unwrap();
            ports.append(numbers);
        }
        let records: Vec<PrRec> = piece.iter().map(|(_, record, _)| *record).collect();
        let mut grants = vec![no_grant(); records.len()];
        // SAFETY: live arrays of the lengths said.
        let code = unsafe {
            (self.caller.api.restore_put)(
                self.caller.ctx,
                records.as_ptr(),
                u32::try_from(records.len()).unwrap(),
                ports.as_ptr(),
                u32::try_from(ports.len()).unwrap(),
                grants.as_mut_ptr(),
            )
        };
        assert_eq!(code, PR_OK, "{}", last_error());
        for ((key, ..), grant) in piece.iter().zip(grants) {
            self.world.counts.restored += u32::from(key.is_some());
            self.world.counts.rested += u32::from(key.is_none());
            if let Some(key) = key {
                self.ids.insert(*key, grant.id);
            }
        }
    }

    /// One moment of a crash.
    fn point(&mut self) -> Result<(), Killed> {
        if self.world.dice.one_in(24) {
            return Err(Killed);
        }
        Ok(())
    }

    /// Written and synced.
    fn log(&mut self, line: Line) {
        self.truth.take(&line);
        self.world.log.push(line);
    }

    fn live(&mut self) -> Result<(), Killed> {
        for _ in 0..self.world.dice.below(20) {
            self.world.now += self.world.dice.below(5_000);
            self.point()?;
            match self.world.dice.below(6) {
                0 | 1 => self.cycle()?,
                2 => self.release()?,
                3 => self.export_meanwhile()?,
                4 => self.compare(),
                _ => self.report(),
            }
        }
        self.compare();
        Ok(())
    }

    /// A cycle: reserve, log and sync, commit.
    fn cycle(&mut self) -> Result<(), Killed> {
        let txn = self.caller.begin(self.world.now);
        self.open = Some(txn);
        self.point()?;
        if self.world.dice.one_in(3) {
            self.turn_back(txn);
        }
        // What is released from here on takes effect later: its numbers are not for this cycle.
        let mut later = BTreeSet::new();
        if self.world.dice.one_in(3) {
            let before: BTreeSet<Number> =
                self.truth.held.values().flat_map(Placed::sides).collect();
            self.release()?;
            let after: BTreeSet<Number> =
                self.truth.held.values().flat_map(Placed::sides).collect();
            later = before.difference(&after).copied().collect();
        }
        let mut taken = Vec::new();
        for _ in 0..1 + self.world.dice.below(4) {
            taken.extend(self.reserve(txn, &later));
        }
        self.point()?;
        if self.world.dice.one_in(5) {
            // The sync has failed: nothing was promised.
            assert_eq!(self.caller.abort(txn), PR_OK);
            self.open = None;
            return Ok(());
        }
        for (key, placed, id) in taken {
            self.log(Line::Start(key, placed));
            self.ids.insert(key, id);
            self.seen.insert(key, PR_E_NOT_READY);
            self.world.workers.remove(&key);
            self.world.noted.remove(&key);
            self.world.counts.starts += 1;
            self.point()?;
        }
        assert_eq!(self.caller.commit(txn), PR_OK);
        self.open = None;
        self.point()
    }

    /// Asks for one replica, new, known or long replaced.
    fn ask(&mut self) -> Option<(Key, Placed)> {
        let dice = &mut self.world.dice;
        let key = (1 + dice.below(8), dice.pick(3));
        let host = usize::try_from(dice.below(4)).unwrap();
        let kind = usize::try_from(dice.below(4)).unwrap();
        self.places[host]?;
        let newest = self.truth.newest.get(&key);
        let placed = Placed {
            incarnation: newest.map_or(0, |newest| newest + 1),
            kind,
            host,
            numbers: Vec::new(),
            stopping: false,
        };
        Some((key, placed))
    }

    fn try_reserve(&self, txn: PrTxn, key: Key, placed: &Placed) -> (i32, PrGrant, Vec<u16>) {
        let host = self.places[placed.host].unwrap();
        let want = PrWant {
            incarnation: placed.incarnation,
            ..want(key.0, key.1, self.profiles[placed.kind], host)
        };
        self.caller.reserve(txn, want)
    }

    fn reserve(&mut self, txn: PrTxn, later: &BTreeSet<Number>) -> Option<(Key, Placed, PrAlloc)> {
        let (key, mut placed) = self.ask()?;
        if let Some(held) = self.truth.held.get(&key).cloned() {
            // It is asked for once more, as after a lost answer; or by somebody who has slept.
            let (code, grant, numbers) = self.try_reserve(txn, key, &held);
            assert_eq!(code, PR_EEXIST);
            assert_eq!((grant.id, numbers), (self.ids[&key], held.numbers.clone()));
            if held.incarnation > 0 {
                let slept = Placed {
                    incarnation: held.incarnation - 1,
                    ..held
                };
                assert_eq!(self.try_reserve(txn, key, &slept).0, PR_ESTALE);
            }
            return None;
        }
        let (code, grant, numbers) = self.try_reserve(txn, key, &placed);
        if code != PR_OK {
            // Another one of this cycle has the key, or there is no room.
            assert!(code == PR_ENOPORT || code == PR_EEXIST, "{}", last_error());
            self.world.counts.refused += 1;
            return None;
        }
        placed.numbers = numbers;
        for number in placed.sides() {
            assert!(!later.contains(&number), "{number:?} is given too early");
        }
        Some((key, placed, grant.id))
    }

    /// Takes something and goes back.
    fn turn_back(&mut self, txn: PrTxn) {
        let mut mark = 0;
        // SAFETY: `mark` is a live local.
        assert_eq!(unsafe { (self.caller.api.mark)(txn, &raw mut mark) }, PR_OK);
        for _ in 0..3 {
            self.reserve(txn, &BTreeSet::new());
        }
        // SAFETY: no pointer is passed.
        assert_eq!(unsafe { (self.caller.api.rollback)(txn, mark) }, PR_OK);
    }

    /// Orders the stop of one, and perhaps knows of its end.
    fn release(&mut self) -> Result<(), Killed> {
        let held: Vec<Key> = self.truth.held.keys().copied().collect();
        if held.is_empty() {
            return Ok(());
        }
        let at = self.world.dice.pick(u32::try_from(held.len()).unwrap());
        let key = held[at as usize];
        let id = self.ids[&key];
        if !self.truth.held[&key].stopping && self.world.dice.one_in(2) {
            self.log(Line::Stop(key));
            self.seen.insert(key, PR_E_TERMINATING);
            self.point()?;
            assert_eq!(self.caller.release_begin(id), PR_OK);
            assert_eq!(self.caller.release_begin(id), PR_ESTATE);
            self.point()?;
        }
        if self.world.dice.one_in(2) {
            self.log(Line::End(key, self.world.now));
            self.ids.remove(&key);
            self.seen.remove(&key);
            self.point()?;
            assert_eq!(self.caller.release_confirm(id, self.world.now), PR_OK);
            assert_eq!(self.caller.release_confirm(id, self.world.now), PR_ESTALE);
            self.point()?;
        }
        Ok(())
    }

    /// Workers say how their replicas are; some of it arrives late.
    fn report(&mut self) {
        for (key, placed) in &self.truth.held {
            let (run, seq, _) = self.world.workers.get(key).copied().unwrap_or_default();
            let (run, seq) = if self.world.dice.one_in(4) {
                (run + 1, seq + 1)
            } else {
                (run, seq + 1)
            };
            let state = [PR_E_NOT_READY, PR_E_READY][usize::from(self.world.dice.one_in(2))];
            let id = self.ids[key];
            assert_eq!(self.caller.report(id, run, seq, state), PR_OK);
            let late = self.caller.report(id, run, seq, PR_E_READY);
            assert_eq!(late, PR_ESTALE);
            self.world.workers.insert(*key, (run, seq, state));
            if !placed.stopping {
                self.seen.insert(*key, state);
            }
            if self.world.dice.one_in(2) {
                self.world.noted.insert(*key, (run, seq, state));
            }
        }
    }

    /// In pieces, while the rest goes on: what stays is told once, with its numbers.
    fn export_meanwhile(&mut self) -> Result<(), Killed> {
        let before: BTreeSet<PrAlloc> = self.ids.values().copied().collect();
        let (mut cursor, mut told) = (0, Vec::new());
        loop {
            let cap = 1 + self.world.dice.pick(4);
            let (code, records, _) = self.caller.export_piece(&mut cursor, cap, 256);
            assert_eq!(code, PR_OK);
            if records.is_empty() {
                break;
            }
            told.extend(records.iter().map(|record| record.id).filter(|id| *id != 0));
            self.point()?;
            match self.world.dice.below(4) {
                0 => self.release()?,
                1 => self.cycle()?,
                _ => {}
            }
        }
        for (key, id) in self.ids.iter().filter(|(_, id)| before.contains(id)) {
            let times = told.iter().filter(|told| *told == id).count();
            assert_eq!(times, 1, "{key:?}");
        }
        Ok(())
    }

    /// Everything that can be asked says what the log says.
    fn compare(&mut self) {
        let now = self.world.now;
        self.world.counts.compared += 1;
        self.caller.pump(now);
        self.truth.cooling.retain(|_, (until, _)| *until > now);
        self.compare_export();
        self.compare_readers();
        for (key, placed) in &self.truth.held {
            let mut id = 0;
            let key_of = PrWant {
                incarnation: placed.incarnation,
                ..want(key.0, key.1, 0, 0)
            };
            // SAFETY: both are live locals.
            let code = unsafe {
                (self.caller.api.grant_find)(self.caller.ctx, &raw const key_of, &raw mut id)
            };
            assert_eq!((code, id), (PR_OK, self.ids[key]));
        }
    }

    fn compare_export(&self) {
        let (records, ports) = self.caller.export_all(3, 300);
        let (mut held, mut cooling) = (BTreeMap::new(), BTreeMap::new());
        for record in records {
            let host = self
                .places
                .iter()
                .position(|at| *at == Some(record.who.host));
            let host = host.unwrap();
            let numbers = &ports[record.port_off as usize..][..record.n_ports as usize];
            assert_eq!(record.flags & PR_REC_CONFLICT, 0);
            let kind = self
                .profiles
                .iter()
                .position(|id| *id == record.who.profile);
            if record.state == PR_P_COOLING {
                let service = KINDS[kind.unwrap()].0;
                let until = self.world.now + u64::from(record.cool_left_ms);
                for (side, flag) in [(PR_TCP, PR_REC_TCP), (PR_UDP, PR_REC_UDP)] {
                    for number in numbers.iter().filter(|_| record.flags & flag != 0) {
                        let before = cooling.insert((host, side, *number), (until, service));
                        assert_eq!(before, None);
                    }
                }
                continue;
            }
            let placed = Placed {
                incarnation: record.who.incarnation,
                kind: kind.unwrap(),
                host,
                numbers: numbers.to_vec(),
                stopping: record.state == PR_P_RELEASING,
            };
            let key = (record.who.job, record.who.replica);
            assert_eq!(record.id, self.ids[&key]);
            assert_eq!(held.insert(key, placed), None);
        }
        assert_eq!(held, self.truth.held);
        let rests = self.truth.cooling.iter();
        let rests = rests.filter(|((host, ..), _)| self.places[*host].is_some());
        let rests: BTreeMap<_, _> = rests.map(|(number, rest)| (*number, *rest)).collect();
        assert_eq!(cooling, rests);
    }

    /// Clients are sent to every held number and to no other.
    fn compare_readers(&self) {
        for (service, name) in SERVICES.iter().enumerate() {
            let mut expected = BTreeSet::new();
            for (key, placed) in &self.truth.held {
                if KINDS[placed.kind].0 == service {
                    let address = u8::try_from(self.places[placed.host].unwrap()).unwrap();
                    for (port, count) in placed.ports() {
                        expected.insert((self.ids[key], port, count, address, self.seen[key]));
                    }
                }
            }
            let told = self.caller.resolved(name);
            let told = told
                .iter()
                .map(|it| (it.id, it.port, it.count, it.ip[3], it.state));
            assert_eq!(told.collect::<BTreeSet<_>>(), expected, "{name}");
        }
    }
}

impl Caller {
    /// Everything of a service, of any state.
    fn resolved(&self, service: &str) -> Vec<PrEndpoint> {
        let (mut need, mut revision) = (0, 0);
        let mut endpoints: Vec<PrEndpoint> = Vec::with_capacity(200);
        // SAFETY: live locals, and room for as many as is said.
        let code = unsafe {
            (self.api.resolve)(
                self.ctx,
                text(service),
                ABSENT,
                PR_RESOLVE_ALL,
                endpoints.as_mut_ptr(),
                200,
                &raw mut need,
                &raw mut revision,
            )
        };
        assert_eq!(code, PR_OK, "{}", last_error());
        // SAFETY: the call wrote `need` elements, no more than there is room for.
        unsafe { endpoints.set_len(need as usize) };
        endpoints
    }
}
