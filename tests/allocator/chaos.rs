//! Everything at once: threads that place, ask, wait, report, restore and move hosts about, without a
//! plan. Nothing may panic or stand still, and what is over in the end leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portreeve::allocator::{
    AfterRelease, Allocator, AllocatorConfig, CoolingRecord, GangMember, GrantRecord, HostSet,
    HostSpec, HostState, Need, Removal, SameNumbers, Suspended, Transaction,
};
use portreeve::identity::{HostId, ReplicaId, ServiceId};
use portreeve::port::{Port, PortRange, Protocol};
use portreeve::port_pool::{Foreign, PoolRanges, PortRequest, Side, Stranger};
use portreeve::time::Monotonic;

use crate::world::{Dice, any, fixed, hosts_of, range, replica, rounds};

const HOSTS: u32 = 6;
const FIRST: u16 = 20_000;
const LAST: u16 = FIRST + 30;

struct World {
    allocator: Allocator,
    suspended: Mutex<Vec<Suspended>>,
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a thread that stands still is left behind, which a scope would not"
)]
fn threads_that_do_everything_at_once_neither_panic_nor_stand_still() {
    let config = AllocatorConfig {
        cooling: Duration::from_millis(40),
        foreign_rest: Duration::from_millis(25),
        // So that numbers are watched although hosts are few.
        direct_below: 0,
        ..AllocatorConfig::default()
    };
    let world = Arc::new(World {
        allocator: hosts_of(HOSTS, FIRST, LAST, config),
        suspended: Mutex::default(),
    });
    let (done, all_done) = channel::<u64>();
    for thread in 1..=4 {
        let (world, done) = (Arc::clone(&world), done.clone());
        std::thread::spawn(move || {
            let mut dice = Dice::new(thread);
            for turn in 0..rounds(15_000) {
                world.act(turn, &mut dice);
            }
            done.send(thread).unwrap();
        });
    }
    drop(done);
    for _ in 0..4 {
        match all_done.recv_timeout(Duration::from_mins(4)) {
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => panic!("a thread stands still"),
            Err(RecvTimeoutError::Disconnected) => panic!("a thread panicked"),
        }
    }
    world.end();
}

impl World {
    fn act(&self, turn: u64, dice: &mut Dice) {
        let allocator = &self.allocator;
        let now = Monotonic::from_millis(turn);
        let (host, who) = (host(dice), someone(dice));
        match dice.below::<u32>(24) {
            0..9 => self.transact(now, dice),
            9..12 => {
                let _ = allocator.begin_release(who);
            }
            12..16 => {
                let after = [AfterRelease::Cool, AfterRelease::Free][dice.below::<usize>(2)];
                let _ = allocator.confirm_release(who, now, after);
            }
            16 => wait(allocator, who, now, dice),
            17 => imagine(allocator, who, host, now, dice),
            18 => report(allocator, host, now, dice),
            19 => restore(allocator, who, host, now, dice),
            20 => move_about(allocator, host, dice),
            21 => look(allocator, who, host, dice),
            22 => {
                allocator.on_deadline(now);
                allocator.compact();
            }
            _ if dice.one_in(10) => {
                let removal = [Removal::IfEmpty, Removal::Forced][dice.below::<usize>(2)];
                let _ = allocator.remove_host(host, removal);
            }
            _ => {
                let states = [HostState::Up, HostState::Drained, HostState::Lost];
                let state = states[dice.below::<usize>(3)];
                let _ = allocator.set_host_state(host, state);
                let _ = allocator.set_host_state(HostId(dice.below(6)), HostState::Up);
            }
        }
    }

    fn transact(&self, now: Monotonic, dice: &mut Dice) {
        let suspended = || self.suspended.lock().unwrap().pop();
        let mut transaction = match dice.one_in(2).then(suspended).flatten() {
            Some(suspended) => self.allocator.resume(suspended),
            None => self.allocator.begin(now),
        };
        let mark = transaction.mark();
        for _ in 0..dice.below::<u32>(4) {
            place(&mut transaction, dice);
        }
        if dice.one_in(3) {
            transaction.rollback(mark).unwrap();
        }
        match dice.below::<u32>(3) {
            0 => drop(transaction),
            1 => {
                transaction.commit();
            }
            _ => self.suspended.lock().unwrap().push(transaction.suspend()),
        }
    }

    /// Ends everything, after which nothing is left.
    fn end(&self) {
        let allocator = &self.allocator;
        for suspended in self.suspended.lock().unwrap().drain(..) {
            drop(allocator.resume(suspended));
        }
        assert_eq!(allocator.stats().tentative, 0);
        for record in allocator.export().grants {
            let _ =
                allocator.confirm_release(record.replica, Monotonic::default(), AfterRelease::Cool);
        }
        for id in (0..HOSTS + 2).map(HostId) {
            let _ = allocator.set_foreign(id, &[]);
            let _ = allocator.set_host_state(id, HostState::Up);
        }
        for service in 1..4 {
            for index in 0..12 {
                for incarnation in 0..2 {
                    allocator.stop_waiting(replica(service, index, incarnation));
                }
            }
        }
        allocator.on_deadline(Monotonic::from_millis(u64::MAX - 1));
        assert_eq!(allocator.export(), Default::default());
        assert_eq!(allocator.next_deadline(), None);
        let stats = allocator.stats();
        assert_eq!(
            (stats.grants, stats.waiting, stats.hosts_resting),
            (0, 0, 0)
        );
        let known: HostSet = allocator.hosts().into_iter().map(|it| it.0).collect();
        let mut transaction = allocator.begin(Monotonic::default());
        for id in known.iter() {
            let counts = allocator.counts(id);
            assert_eq!((counts.free_both, counts.held), (counts.dynamic, 0));
        }
        for number in FIRST..=LAST {
            let request = fixed(number);
            let need = Need::new(&request, ServiceId(1));
            assert_eq!(transaction.feasible(&need, None), known, "{number}");
        }
    }
}

fn host(dice: &mut Dice) -> HostId {
    HostId(dice.below(u64::from(HOSTS) + 2))
}

fn someone(dice: &mut Dice) -> ReplicaId {
    replica(1 + dice.below::<u64>(3), dice.below(12), dice.below(2))
}

fn request(dice: &mut Dice) -> PortRequest {
    match dice.below::<u16>(6) {
        0 | 1 => fixed(FIRST + dice.below::<u16>(30)),
        count => any(usize::from(count - 1)),
    }
}

fn place(transaction: &mut Transaction<'_>, dice: &mut Dice) {
    let asked = request(dice);
    let (host, who) = (host(dice), someone(dice));
    let need = Need {
        replicas: dice.below(3),
        ..Need::new(&asked, who.service)
    };
    if dice.one_in(3) {
        let others: Vec<(HostId, ReplicaId)> =
            (0..3).map(|_| (self::host(dice), someone(dice))).collect();
        let members = others.iter().map(|(host, replica)| GangMember {
            host: *host,
            replica: *replica,
            request: &asked,
            former: None,
        });
        let members: Vec<GangMember<'_>> = members.collect();
        let same = [SameNumbers::No, SameNumbers::Yes][dice.below::<usize>(2)];
        let _ = transaction.reserve_gang(&members, same);
        return;
    }
    let hosts = transaction.feasible(&need, None);
    let host = hosts.iter().next().unwrap_or(host);
    let former = transaction.allocator().grant(who).map(|(_, grant)| grant);
    if let Err(refused) = transaction.reserve(host, who, &asked, former.as_ref()) {
        assert!(!refused.to_string().is_empty());
    }
    transaction.max_replicas(&need, host, u32::MAX);
    let _ = transaction.explain_all(&need, None);
}

fn wait(allocator: &Allocator, who: ReplicaId, now: Monotonic, dice: &mut Dice) {
    let wanted = dice.one_in(2).then(|| host(dice));
    allocator.wait(who, wanted, &request(dice));
    if dice.one_in(3) {
        allocator.stop_waiting(someone(dice));
    }
    allocator.take_woken(now);
}

fn imagine(allocator: &Allocator, who: ReplicaId, host: HostId, now: Monotonic, dice: &mut Dice) {
    let mut what_if = allocator.what_if(now);
    let mark = what_if.mark();
    for _ in 0..4 {
        let asked = request(dice);
        let _ = what_if.give(someone(dice));
        let _ = what_if.reserve(host, who, &asked, None);
        let _ = what_if.reserve(self::host(dice), someone(dice), &asked, None);
        let need = Need {
            at: Some(now + Duration::from_millis(dice.below(80))),
            ..Need::new(&asked, who.service)
        };
        let _ = what_if.feasible(&need, None);
        let _ = what_if.explain_all(&need, None);
    }
    let mut what_if = allocator.resume_what_if(what_if.suspend());
    what_if.rollback(mark).unwrap();
}

fn report(allocator: &Allocator, host: HostId, now: Monotonic, dice: &mut Dice) {
    let port = Port::new(FIRST + dice.below::<u16>(30)).unwrap();
    if dice.one_in(2) {
        let stranger = Stranger::default();
        let _ = allocator.report_conflict(host, port, Protocol::TcpUdp, &stranger, now);
        return;
    }
    let foreign = Foreign {
        port,
        protocol: Protocol::Udp,
        pid: None,
        comm: None,
    };
    let list = [foreign];
    let _ = allocator.set_foreign(host, &list[..dice.below::<usize>(2)]);
}

fn restore(allocator: &Allocator, who: ReplicaId, host: HostId, now: Monotonic, dice: &mut Dice) {
    let exported = allocator.export().grants;
    if let Some(record) = exported.into_iter().next() {
        // As it is, or as another's.
        let replica = if dice.one_in(2) { who } else { record.replica };
        allocator.restore([GrantRecord { replica, ..record }]);
    }
    let first = Port::new(FIRST + dice.below::<u16>(30)).unwrap();
    let record = CoolingRecord {
        host,
        protocol: Protocol::Tcp,
        numbers: PortRange::single(first),
        service: who.service,
        left: Duration::from_millis(dice.below(100)),
    };
    allocator.restore_cooling([record], now);
}

fn move_about(allocator: &Allocator, host: HostId, dice: &mut Dice) {
    let spec = |id: u32| {
        let mut spec = HostSpec::new(format!("n{id}").parse().unwrap());
        let dynamic = range(FIRST, LAST);
        spec.ranges = PoolRanges {
            dynamic,
            ..PoolRanges::default()
        };
        spec
    };
    let mut one = spec(host.0);
    if dice.one_in(4) {
        one.ranges.reserved = range(FIRST, FIRST + 3);
    }
    let other = self::host(dice);
    let _ = allocator.put_host(host, one);
    // They change places, wherever they are.
    let names: BTreeMap<HostId, HostSpec> = [(host, spec(other.0)), (other, spec(host.0))].into();
    let _ = allocator.put_hosts(names.into_iter().collect());
    for id in [host, other] {
        if let Some(name) = allocator.host_name(id) {
            let mut spec = spec(0);
            spec.name = name;
            let _ = allocator.put_host(id, spec);
        }
    }
}

fn look(allocator: &Allocator, who: ReplicaId, host: HostId, dice: &mut Dice) {
    let _ = allocator.grant(who);
    let _ = allocator.phase(who);
    let _ = allocator.newest(who.service, who.index);
    let _ = allocator.ports(host);
    let port = Port::new(FIRST + dice.below::<u16>(30)).unwrap();
    let _ = allocator.port_state(host, Side::Udp, port);
    let _ = allocator.stats();
    allocator.take_freed();
    let _ = allocator.next_deadline();
}
