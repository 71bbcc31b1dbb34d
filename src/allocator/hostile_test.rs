//! What a careless or very busy scheduler does: numbers at their limits, ends in the wrong order, what
//! belongs to another allocator, damaged records.

use std::time::Duration;

use crate::identity::{HostId, ServiceId};
use crate::port::Protocol;
use crate::port_pool::{PoolRanges, PortGrant};
use crate::time::Monotonic;

use super::testing::{
    ask, grant, granted, hosts, hosts_by, nginx_on, numbers, ranges, replica, seconds, whole,
};

use super::{
    AfterRelease, Allocator, AllocatorConfig, GrantRecord, HostSet, HostSpec, HostState, Need,
    PutHostError, ReleaseError, ReserveError,
};

const HOST: HostId = HostId(0);
const END: Monotonic = Monotonic::from_millis(u64::MAX);

fn put(world: &Allocator, reserved: &str) {
    let mut spec = HostSpec::new("n0".parse().unwrap());
    spec.ranges = ranges("100-110", "1-65535", reserved);
    world.put_host(HOST, spec).unwrap();
}

#[test]
fn a_number_that_is_reserved_for_a_while_stays_its_holders_whatever_is_compacted() {
    let world = hosts(1, "100-110");
    put(&world, "");
    let holder = replica(1, 0, 0);
    grant(&world, 0, holder, "a=100/udp").unwrap();
    world
        .set_foreign(HOST, &[nginx_on(101, Protocol::Udp)])
        .unwrap();
    put(&world, "100-101");
    world.compact();
    put(&world, "");
    for number in [100, 101] {
        let refused = grant(&world, 0, replica(2, number, 0), &format!("a={number}/udp"));
        assert!(refused.is_err(), "{number} was given twice");
    }
    assert_eq!(world.counts(HOST).free_udp, 9);
}

#[test]
fn who_waits_is_told_when_a_transaction_gives_back_what_stood_in_the_way() {
    let world = hosts(1, "20000-20000");
    let waiter = replica(2, 0, 0);
    let mut open = world.begin(seconds(0));
    open.reserve(HOST, replica(1, 0, 0), &ask("a=9100"), None)
        .unwrap();
    world.wait(waiter, None, &ask("a=9100"));
    assert_eq!(world.take_woken(seconds(0)), []);
    drop(open);
    assert_eq!(world.take_woken(seconds(0)), [waiter]);
    // It waits already, and new room is told while a transaction has it.
    let mut open = world.begin(seconds(0));
    let mark = open.mark();
    open.reserve(HOST, replica(1, 0, 0), &ask("a=9100"), None)
        .unwrap();
    world.set_host_state(HOST, HostState::Lost).unwrap();
    world.set_host_state(HOST, HostState::Up).unwrap();
    assert_eq!(world.take_woken(seconds(0)), []);
    open.rollback(mark).unwrap();
    assert_eq!(world.take_woken(seconds(0)), [waiter]);
}

#[test]
fn who_waits_for_any_is_told_when_another_waits_for_its_number_no_more() {
    let world = hosts(1, "20000-20000");
    for host in [None, Some(HOST)] {
        let (fixed, any) = (replica(1, 0, 0), replica(2, 0, 0));
        world.set_host_state(HOST, HostState::Drained).unwrap();
        world.wait(fixed, host, &ask("a=20000"));
        world.wait(any, None, &ask("a=any"));
        world.take_freed();
        world.wait(fixed, host, &ask("a=30000"));
        world.set_host_state(HOST, HostState::Lost).unwrap();
        assert!(world.take_freed().contains(HOST), "{host:?}");
        world.stop_waiting(fixed);
        world.stop_waiting(any);
    }
}

#[test]
fn what_is_waited_for_no_more_is_drawn_again_whatever_is_waited_for_instead() {
    let waiter = replica(1, 0, 0);
    for (host, request) in [(Some(HOST), "a=20001"), (None, "a=any")] {
        let world = hosts(1, "20000-20001");
        world.wait(waiter, None, &ask("a=20000"));
        let one = grant(&world, 0, replica(2, 0, 0), "a=any");
        assert_eq!(one.as_deref(), Ok("20001"));
        world.wait(waiter, host, &ask(request));
        let other = grant(&world, 0, replica(2, 1, 0), "a=any");
        assert_eq!(other.as_deref(), Ok("20000"), "{request}");
    }
}

#[test]
fn no_host_has_room_that_is_not_there() {
    let world = hosts(1, "20000-20000");
    for host in [HostId(7), HostId(HostSet::MAX_HOSTS - 1), HostId(u32::MAX)] {
        world.wait(replica(1, 0, 0), Some(host), &ask("a=9100"));
        assert!(world.stop_waiting(replica(1, 0, 0)));
        assert!(world.take_freed().is_empty());
    }
}

#[test]
fn what_was_suspended_in_another_allocator_is_empty_here_and_leaves_nothing_behind() {
    let (ours, theirs) = (hosts(1, "20000-20001"), hosts(1, "20000-20001"));
    // Both await a number, each another one.
    ours.wait(replica(9, 0, 0), None, &ask("a=20000"));
    theirs.wait(replica(9, 0, 0), None, &ask("a=20001"));
    let one = ask("a=any");
    let mut transaction = theirs.begin(seconds(0));
    let taken = transaction.reserve(HOST, replica(1, 0, 0), &one, None);
    assert_eq!(numbers(&taken.unwrap()), "20000");
    let mut resumed = ours.resume(transaction.suspend());
    assert_eq!(resumed.grant(replica(1, 0, 0)), None);
    let taken = resumed.reserve(HOST, replica(1, 0, 0), &one, None);
    assert_eq!(numbers(&taken.unwrap()), "20001");
    let back = theirs.resume(resumed.suspend());
    drop(back);
    let mut what_if = theirs.what_if(seconds(0));
    what_if
        .reserve(HOST, replica(2, 0, 0), &ask("a=20001"), None)
        .unwrap();
    let mut what_if = ours.resume_what_if(what_if.suspend());
    let need = ask("a=9100");
    assert!(
        what_if
            .feasible(&Need::new(&need, replica(1, 0, 0).service), None)
            .contains(HOST)
    );
    assert_eq!(
        ours.stats().tentative,
        1,
        "what it took here and nobody ended"
    );
}

#[test]
fn a_record_that_names_a_number_thousands_of_times_is_told_once_for_each() {
    let world = hosts(1, "20000-20010");
    let port = granted("a=20000").ports.remove(0);
    let record = GrantRecord {
        host: HOST,
        replica: replica(1, 0, 0),
        grant: PortGrant {
            ports: vec![port; 3000],
        },
        releasing: false,
    };
    let conflicts = world.restore([record.clone()]);
    assert_eq!(conflicts.len(), 2999);
    world
        .confirm_release(record.replica, seconds(0), AfterRelease::Free)
        .unwrap();
    assert_eq!(world.counts(HOST).held, 0);
    assert_eq!(world.counts(HOST).free_tcp, 11);
}

#[test]
fn what_is_over_at_the_end_of_time_ends_there() {
    let config = AllocatorConfig {
        cooling: Duration::MAX,
        ..AllocatorConfig::default()
    };
    let world = hosts_by(config, 1, "20000-20000");
    grant(&world, 0, replica(1, 0, 0), "a=any b=9100").unwrap();
    world
        .confirm_release(replica(1, 0, 0), seconds(1), AfterRelease::Cool)
        .unwrap();
    assert!(grant(&world, 0, replica(2, 0, 0), "b=9100").is_err());
    assert!(world.on_deadline(END).contains(HOST));
    grant(&world, 0, replica(2, 0, 0), "b=9100").unwrap();
}

#[test]
fn a_release_is_begun_if_it_is_begun_anywhere() {
    let world = hosts(2, "20000-20010");
    let who = replica(1, 0, 0);
    let record = |host, releasing| GrantRecord {
        host: HostId(host),
        replica: who,
        grant: granted("a=20000"),
        releasing,
    };
    world.restore([record(0, true), record(1, false)]);
    assert_eq!(world.begin_release(who), Ok(()));
    let again = ReleaseError::AlreadyReleasing { replica: who };
    assert_eq!(world.begin_release(who), Err(again));
}

#[test]
fn releases_are_remembered_for_a_while_and_not_without_bound() {
    let world = hosts(1, "20000-20010");
    let mut spec = HostSpec::new("slow".parse().unwrap());
    spec.cooling = Some(Duration::MAX);
    world.put_host(HostId(1), spec).unwrap();
    let record = |host, index| GrantRecord {
        host: HostId(host),
        replica: replica(1, 0, index),
        grant: PortGrant::default(),
        releasing: false,
    };
    world.restore([record(1, 0)]);
    world
        .confirm_release(replica(1, 0, 0), seconds(0), AfterRelease::Cool)
        .unwrap();
    for index in 1..100_000u32 {
        world.restore([record(0, index)]);
        let now = seconds(100 * u64::from(index));
        world
            .confirm_release(replica(1, 0, index), now, AfterRelease::Cool)
            .unwrap();
    }
    assert!(world.placements.remembered(Monotonic::default()).len() < 50_000);
}

#[test]
fn host_numbers_at_and_beyond_the_limit_are_refused_everywhere() {
    let config = AllocatorConfig {
        max_hosts: u32::MAX,
        ..AllocatorConfig::default()
    };
    let world = Allocator::new(config);
    let before = whole(&world);
    for host in [HostSet::MAX_HOSTS, u32::MAX].map(HostId) {
        let spec = HostSpec {
            ranges: PoolRanges::default(),
            ..HostSpec::new("far".parse().unwrap())
        };
        let refused = world.put_host(host, spec);
        assert!(matches!(refused, Err(PutHostError::BeyondLimit { .. })));
        assert!(world.set_host_state(host, HostState::Up).is_err());
        assert!(world.set_foreign(host, &[]).is_err());
        assert!(grant(&world, host.0, replica(1, 0, 0), "a=any").is_err());
        let mut open = world.begin(seconds(0));
        let (one, candidates) = (ask("a=any"), [host].into_iter().collect());
        let need = Need::new(&one, replica(1, 0, 0).service);
        assert!(open.feasible(&need, Some(&candidates)).is_empty());
        assert_eq!(open.max_replicas(&need, host, u32::MAX), 0);
        assert_eq!(open.explain(host, &need).len(), 1);
    }
    assert_eq!(whole(&world), before);
}

#[test]
fn a_what_if_keeps_what_it_saw_of_a_replica_that_is_gone_since() {
    let world = hosts(1, "20000-20005");
    let (open, held, tried) = (replica(1, 0, 0), replica(2, 0, 0), replica(3, 0, 0));
    let one = ask("a=any");
    grant(&world, 0, held, "a=any").unwrap();
    let mut transaction = world.begin(seconds(0));
    transaction.reserve(HOST, open, &one, None).unwrap();
    let mut what_if = world.what_if(seconds(0));
    what_if.reserve(HOST, tried, &one, None).unwrap();
    drop(transaction);
    world
        .confirm_release(held, seconds(0), AfterRelease::Free)
        .unwrap();
    for (who, number) in [(held, "20000"), (open, "20001")] {
        let same = what_if.reserve(HOST, who, &one, None).unwrap();
        assert_eq!(numbers(&same), number, "as it was seen");
        let other = what_if.reserve(HOST, who, &ask("b=any"), None);
        assert!(matches!(other, Err(ReserveError::HoldsOther { .. })));
    }
}

#[test]
fn who_is_being_placed_holds_nobody_up_who_waits() {
    let world = hosts(1, "20000-20001");
    let holders = [replica(1, 0, 0), replica(1, 1, 0)];
    for holder in holders {
        grant(&world, 0, holder, "a=any").unwrap();
    }
    let (first, second, has) = (replica(2, 0, 0), replica(3, 0, 0), replica(1, 1, 0));
    for waiter in [has, first, second] {
        world.wait(waiter, None, &ask("a=any"));
    }
    world
        .confirm_release(holders[0], seconds(0), AfterRelease::Free)
        .unwrap();
    assert_eq!(
        world.take_woken(seconds(0)),
        [has, first],
        "asked again it is answered"
    );
    let mut transaction = world.begin(seconds(0));
    transaction
        .reserve(HOST, first, &ask("a=any"), None)
        .unwrap();
    world
        .confirm_release(holders[1], seconds(0), AfterRelease::Free)
        .unwrap();
    world.stop_waiting(has);
    assert_eq!(world.take_woken(seconds(0)), [second]);
}

#[test]
fn services_that_are_long_gone_take_no_room_with_the_numbers_they_had() {
    let config = AllocatorConfig {
        direct_below: 0,
        ..AllocatorConfig::default()
    };
    let world = hosts_by(config, 40, "20000-20005");
    let fixed = ask("a=9100");
    let asks = |service| {
        let mut transaction = world.begin(seconds(0));
        transaction
            .feasible(&Need::new(&fixed, ServiceId(service)), None)
            .len()
    };
    assert_eq!(asks(7), 40);
    for host in 0..40 {
        let who = replica(u64::from(host), 0, 0);
        grant(&world, host, who, "a=9100").unwrap();
        world
            .confirm_release(who, seconds(u64::from(host)), AfterRelease::Cool)
            .unwrap();
    }
    assert_eq!((asks(7), asks(99), world.watches.kept()), (1, 0, 40));
    world.on_deadline(seconds(98));
    world.compact();
    assert_eq!((asks(39), asks(99), world.watches.kept()), (40, 39, 1));
}
