//! Several transactions at once, in turn and on several threads.

use crate::identity::HostId;

use super::testing::{ask, grant, granted, hosts, numbers, replica, seconds, whole};
use super::{
    AfterRelease, Allocator, AllocatorConfig, Conflict, GrantRecord, HostSpec, PutHostError,
    ReleaseError, Removal, RemoveHostError, ReserveError, Transaction,
};

const HOST: HostId = HostId(0);

#[test]
fn an_allocator_is_shared_between_threads() {
    const fn is_shared<T: Send + Sync>() {}
    const fn is_sent<T: Send>() {}
    is_shared::<Allocator>();
    is_sent::<Transaction<'_>>();
}

#[test]
fn what_one_open_transaction_took_is_taken_for_the_others() {
    let world = hosts(1, "20000-20001");
    let before = whole(&world);
    let (mut a, mut b) = (world.begin(seconds(0)), world.begin(seconds(0)));
    let one = ask("a=any");
    let mine = |t: &mut Transaction<'_>, who| t.reserve(HOST, who, &one, None);
    assert_eq!(numbers(&mine(&mut a, replica(1, 0, 0)).unwrap()), "20000");
    assert_eq!(numbers(&mine(&mut b, replica(2, 0, 0)).unwrap()), "20001");
    assert!(mine(&mut a, replica(1, 1, 0)).is_err());
    assert!(a.grant(replica(2, 0, 0)).is_none(), "not its own");
    assert!(world.ports(HOST).is_empty(), "seen by no reader");
    drop(b);
    assert_eq!(numbers(&mine(&mut a, replica(1, 1, 0)).unwrap()), "20001");
    drop(a);
    assert_eq!(whole(&world), before);
}

#[test]
fn a_replica_is_placed_by_one_transaction_at_a_time() {
    let world = hosts(2, "20000-20009");
    let (who, newer) = (replica(1, 0, 0), replica(1, 0, 1));
    let request = ask("a=any");
    let mut a = world.begin(seconds(0));
    a.reserve(HOST, newer, &request, None).unwrap();
    let mut b = world.begin(seconds(0));
    let before = whole(&world);
    for asked in [who, newer] {
        for host in [HOST, HostId(1)] {
            let busy = b.reserve(host, asked, &request, None).unwrap_err();
            assert_eq!(busy, ReserveError::BeingPlaced { replica: asked });
        }
    }
    let mut taken = Vec::new();
    let busy = b.reserve_into(HOST, newer, &request, None, &mut taken);
    assert!(matches!(busy, Err(ReserveError::BeingPlaced { .. })));
    let not_held = ReleaseError::NotHeld { replica: newer };
    assert_eq!(world.begin_release(newer), Err(not_held));
    let record = GrantRecord {
        host: HOST,
        replica: newer,
        grant: granted("a=20005"),
        releasing: false,
    };
    let conflicts = world.restore([record.clone()]);
    assert_eq!(conflicts, [Conflict::BeingPlaced { record }]);
    assert_eq!((whole(&world), taken), (before, vec![]));
    a.commit();
    let stale = b.reserve(HOST, who, &request, None).unwrap_err();
    assert!(matches!(stale, ReserveError::Stale { .. }), "{stale}");
    assert!(
        b.reserve(HOST, newer, &request, None).is_ok(),
        "its own by now"
    );
}

#[test]
fn a_refusal_that_works_out_no_causes_says_which_port_found_none() {
    let world = hosts(1, "20000-20000");
    grant(&world, 0, replica(1, 0, 0), "a=9100").unwrap();
    let mut transaction = world.begin(seconds(0));
    let mut taken = Vec::new();
    let mut refusal = |host, request: &str| {
        let refused = transaction.reserve_into(
            HostId(host),
            replica(2, 0, 0),
            &ask(request),
            None,
            &mut taken,
        );
        refused.map_err(|refused| refused.to_string())
    };
    let refused = |text: &str| Err(text.to_owned());
    assert_eq!(
        refusal(0, "x=any b=9100"),
        refused("host number 0 does not fit: no number for port b")
    );
    assert_eq!(refusal(8, "x=any"), refused("host number 8 does not fit"));
    assert_eq!(refusal(0, "x=any y=9200/tcp+udp z=9300"), Ok(()));
    let all: Vec<String> = taken.iter().map(ToString::to_string).collect();
    assert_eq!(all, ["20000", "9200", "9300"]);
}

#[test]
fn a_host_stays_where_it_is_while_a_transaction_took_ports_there() {
    let world = hosts(2, "20000-20009");
    let spec = |name: &str| HostSpec::new(name.parse().unwrap());
    let mut transaction = world.begin(seconds(0));
    transaction
        .reserve(HOST, replica(1, 0, 0), &ask("a=any"), None)
        .unwrap();
    let suspended = transaction.suspend();
    let before = whole(&world);
    let swap = || vec![(HOST, spec("n1")), (HostId(1), spec("n0"))];
    let name = || "n0".parse().unwrap();
    let in_transaction = PutHostError::InTransaction { name: name() };
    assert_eq!(world.put_hosts(swap()), Err(in_transaction));
    let in_transaction = RemoveHostError::InTransaction { name: name() };
    assert_eq!(
        world.remove_host(HOST, Removal::Forced),
        Err(in_transaction)
    );
    assert_eq!(whole(&world), before);
    // Its ranges may change, and the transaction goes on.
    world.put_host(HOST, spec("n0")).unwrap();
    assert_eq!(world.resume(suspended).commit(), 1);
    world.put_hosts(swap()).unwrap();
    assert_eq!(world.grant(replica(1, 0, 0)).unwrap().0, HostId(1));
}

#[test]
fn a_transaction_resumed_in_another_allocator_is_empty_there() {
    let (world, other) = (hosts(1, "20000-20009"), hosts(1, "20000-20009"));
    let who = replica(1, 0, 0);
    grant(&other, 0, who, "a=any").unwrap();
    let before = whole(&other);
    let mut transaction = world.begin(seconds(0));
    transaction.reserve(HOST, who, &ask("a=any"), None).unwrap();
    assert_eq!(other.resume(transaction.suspend()).commit(), 0);
    let mut transaction = world.begin(seconds(0));
    let who = replica(2, 0, 0);
    transaction.reserve(HOST, who, &ask("a=any"), None).unwrap();
    drop(other.resume(transaction.suspend()));
    let nothing = Allocator::new(AllocatorConfig::default());
    let mut transaction = world.begin(seconds(0));
    let who = replica(3, 0, 0);
    transaction.reserve(HOST, who, &ask("a=any"), None).unwrap();
    drop(nothing.resume(transaction.suspend()));
    assert_eq!(whole(&other), before);
}

#[test]
fn rest_that_is_over_while_a_transaction_is_open_does_not_come_back_with_its_end() {
    // A random run met it: the number that the transaction gave back rested until a moment that had
    // passed, and no deadline was left that would have ended it before the next cycle.
    let world = hosts(1, "20000-20009");
    let (before, own) = (replica(1, 0, 0), replica(1, 1, 0));
    grant(&world, 0, before, "a=9100").unwrap();
    world
        .confirm_release(before, seconds(0), AfterRelease::Cool)
        .unwrap();
    let mut transaction = world.begin(seconds(1));
    transaction
        .reserve(HOST, own, &ask("a=9100"), None)
        .unwrap();
    world.on_deadline(seconds(60));
    drop(transaction);
    assert_eq!(world.ports(HOST), []);
    assert!(world.take_freed().contains(HOST));
}

#[test]
fn a_mark_is_good_in_its_own_transaction_only() {
    let world = hosts(1, "20000-20009");
    let mut first = world.begin(seconds(0));
    let mark = first.mark();
    let mut second = world.begin(seconds(0));
    second.mark();
    assert!(second.rollback(mark).is_err());
    drop(first);
    // The next one works with what the first one used.
    let mut third = world.begin(seconds(0));
    third.mark();
    assert!(third.rollback(mark).is_err());
}

#[test]
fn of_two_threads_that_want_the_last_number_one_gets_it() {
    // ports 7
    for round in 0..200 {
        let world = hosts(1, "20000-20000");
        let won = |service| -> bool {
            let mut transaction = world.begin(seconds(round));
            let who = replica(service, 0, 0);
            let taken = transaction.reserve(HOST, who, &ask("a=any"), None).is_ok();
            transaction.commit();
            taken
        };
        let (a, b) = std::thread::scope(|scope| {
            let other = scope.spawn(|| won(1));
            (won(2), other.join().unwrap())
        });
        assert!(a != b, "round {round}: {a} {b}");
    }
}

#[test]
fn threads_that_place_release_and_ask_leave_nothing_behind() {
    const HOSTS: u32 = 4;
    let world = hosts(HOSTS, "20000-20031");
    let work = |service: u64| {
        for step in 0..400_u32 {
            let request = ask(if step % 3 == 0 {
                "a=9100 b=any"
            } else {
                "a=any:3 b=any/udp"
            });
            let who = replica(service, step % 7, step / 7);
            let mut transaction = world.begin(seconds(0));
            let fitting = transaction.feasible(&super::Need::new(&request, who.service), None);
            let first = fitting.iter().next().unwrap_or(HostId(step % HOSTS));
            let mark = transaction.mark();
            if transaction.reserve(first, who, &request, None).is_ok() && step % 5 == 0 {
                transaction.rollback(mark).unwrap();
            }
            transaction.commit();
            if let Some((host, grant)) = world.grant(who) {
                assert!(grant.count() > 0);
                world.begin_release(who).unwrap();
                let ended = world.confirm_release(who, seconds(0), AfterRelease::Free);
                assert_eq!(ended, Ok(host));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(1));
        scope.spawn(|| work(2));
        work(3);
    });
    let held = |host| world.ports(HostId(host));
    assert!((0..HOSTS).map(held).all(|ports| ports.is_empty()));
    let stats = world.stats();
    assert_eq!((stats.grants, stats.tentative), (0, 0));
}
