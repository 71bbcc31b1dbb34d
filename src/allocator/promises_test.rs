//! What the allocator promises beside the cases: transactions, grants, hosts, waits, explanations.

use std::time::Duration;

use crate::identity::{HostId, ServiceId};
use crate::port::Protocol;
use crate::port_pool::{PortState, Side};

use super::testing::{
    ask, grant, granted, hosts, hosts_by, nginx_on, numbers, port, ranges, replica, seconds, whole,
};
use super::{
    AfterRelease, AllocatorConfig, Conflict, Export, GrantRecord, HostSet, HostSpec, HostState,
    Need, PutHostError, Removal, RemoveHostError, ReserveError,
};

const HOST: HostId = HostId(0);

#[test]
fn a_former_number_that_cannot_be_had_refuses_nothing() {
    let world = hosts(1, "20000-20002");
    grant(&world, 0, replica(1, 0, 0), "a=20001").unwrap();
    let former = granted("a=20001");
    let mut transaction = world.begin(seconds(0));
    let who = replica(2, 0, 1);
    let grant = transaction.reserve(HOST, who, &ask("a=any"), Some(&former));
    assert_eq!(numbers(&grant.unwrap()), "20000");
    // A preference that splits the only block is dropped.
    drop(transaction);
    let world = hosts(1, "20000-20003");
    let mut transaction = world.begin(seconds(0));
    let request = ask("a=any b=any:3");
    let grant = transaction.reserve(HOST, who, &request, Some(&former));
    assert_eq!(numbers(&grant.unwrap()), "20003 20000-20002");
}

#[test]
fn a_fixed_number_that_cools_is_given_to_its_own_service_at_once_and_to_others_in_time() {
    let world = hosts(1, "20000-32767");
    grant(&world, 0, replica(1, 0, 0), "a=9100").unwrap();
    world
        .confirm_release(replica(1, 0, 0), seconds(10), AfterRelease::Cool)
        .unwrap();
    let mut transaction = world.begin(seconds(28));
    let request = ask("a=9100");
    let other = transaction.explain(HOST, &Need::new(&request, replica(2, 0, 0).service));
    assert_eq!(other[0].to_string(), "port a: 9100/tcp is COOLING 42s");
    let own = transaction.reserve(HOST, replica(1, 7, 0), &ask("a=9100"), None);
    assert_eq!(numbers(&own.unwrap()), "9100");
    drop(transaction);
    assert_eq!(world.next_deadline(), Some(seconds(70)));
    assert!(
        !world.on_deadline(seconds(69)).is_empty(),
        "room by release"
    );
    assert!(world.on_deadline(seconds(69)).is_empty(), "told once");
    assert!(world.on_deadline(seconds(70)).contains(HOST));
    assert_eq!(world.next_deadline(), None);
    assert!(grant(&world, 0, replica(2, 0, 0), "a=9100").is_ok());
}

#[test]
fn records_of_unknown_hosts_and_of_two_hosts_are_told_not_dropped() {
    let world = hosts(2, "20000-20009");
    let record = |host, grant| GrantRecord {
        host: HostId(host),
        replica: replica(1, 0, 0),
        grant: granted(grant),
        releasing: true,
    };
    let conflicts = world.restore([record(7, "a=1"), record(0, "a=2"), record(1, "a=3")]);
    assert!(matches!(conflicts[0], Conflict::UnknownHost { .. }));
    assert!(matches!(conflicts[1], Conflict::TwoHosts { .. }));
    for (host, number) in [(0, 2), (1, 3)] {
        let state = world.port_state(HostId(host), Side::Tcp, port(number));
        assert!(matches!(state, PortState::Releasing { .. }), "{state:?}");
    }
    world
        .confirm_release(replica(1, 0, 0), seconds(0), AfterRelease::Free)
        .unwrap();
    assert_eq!(
        (world.ports(HOST), world.ports(HostId(1))),
        (vec![], vec![])
    );
}

#[test]
fn a_gang_is_all_or_nothing_and_a_rollback_tries_another_host() {
    let world = hosts(3, "20000-20001");
    grant(&world, 1, replica(9, 0, 0), "a=any:2").unwrap();
    let before = whole(&world);
    let mut transaction = world.begin(seconds(0));
    let request = ask("a=any:2");
    transaction
        .reserve(HOST, replica(1, 0, 0), &request, None)
        .unwrap();
    let mark = transaction.mark();
    let refused = transaction.reserve(HostId(1), replica(1, 1, 0), &request, None);
    assert!(matches!(refused, Err(ReserveError::Refused { .. })));
    transaction
        .reserve(HostId(2), replica(1, 1, 0), &request, None)
        .unwrap();
    let later = transaction.mark();
    transaction.rollback(mark).unwrap();
    assert!(
        transaction.rollback(later).is_err(),
        "later marks are stale"
    );
    assert!(transaction.rollback(mark).is_ok(), "this one stays");
    assert!(transaction.grant(replica(1, 1, 0)).is_none());
    assert!(transaction.allocator().grant(replica(1, 0, 0)).is_none());
    let suspended = transaction.suspend();
    assert!(world.ports(HOST).is_empty(), "no reader sees it");
    let resumed = world.resume(suspended);
    assert!(resumed.grant(replica(1, 0, 0)).is_some());
    drop(resumed);
    assert_eq!(whole(&world), before);
}

#[test]
fn a_grant_is_idempotent_and_incarnations_only_rise() {
    let world = hosts(2, "20000-32767");
    let (old, new) = (replica(1, 0, 3), replica(1, 0, 4));
    let first = grant(&world, 0, old, "a=any b=any:3").unwrap();
    let before = whole(&world);
    assert_eq!(grant(&world, 0, old, "a=any b=any:3").unwrap(), first);
    assert_eq!(whole(&world), before);
    let ask_as = |world: &super::Allocator, host, who, request: &str| {
        let mut transaction = world.begin(seconds(0));
        let answer = transaction.reserve(HostId(host), who, &ask(request), None);
        answer.unwrap_err()
    };
    let other = ReserveError::HoldsOther {
        replica: old,
        host: HOST,
    };
    assert_eq!(ask_as(&world, 1, old, "a=any b=any:3"), other);
    assert_eq!(ask_as(&world, 0, old, "a=any"), other);
    grant(&world, 1, new, "a=any b=any:3").unwrap();
    assert!(world.grant(old).is_some(), "the older stays held");
    let stale = ReserveError::Stale {
        replica: old,
        newest: new.incarnation,
    };
    assert_eq!(ask_as(&world, 0, old, "a=any b=any:3"), stale);
}

#[test]
fn any_leaves_numbers_alone_that_a_waiting_request_names() {
    let world = hosts(2, "20000-20001");
    let waits = replica(1, 0, 0);
    world.wait(waits, None, &ask("a=20000"));
    assert_eq!(
        grant(&world, 0, replica(2, 0, 0), "a=any").unwrap(),
        "20001"
    );
    let refused = grant(&world, 0, replica(3, 0, 0), "a=any").unwrap_err();
    assert!(
        refused.ends_with("port a: 20000/tcp is AWAITED"),
        "{refused}"
    );
    assert!(
        grant(&world, 1, replica(4, 0, 0), "a=20000").is_ok(),
        "a fixed request is no \"any\""
    );
    world.take_freed();
    assert!(grant(&world, 0, waits, "a=20000").is_ok());
    assert!(world.take_freed().contains(HostId(1)), "its wait is over");
    assert!(!world.stop_waiting(waits));
    world.wait(waits, Some(HostId(1)), &ask("a=20001"));
    assert!(grant(&world, 1, replica(3, 0, 0), "a=any").is_err());
    assert!(world.stop_waiting(waits));
    assert!(grant(&world, 1, replica(3, 0, 0), "a=any").is_ok());
}

#[test]
fn only_a_host_that_is_up_takes_new_grants_and_none_loses_what_it_holds() {
    let world = hosts(1, "20000-32767");
    let who = replica(1, 0, 0);
    grant(&world, 0, who, "a=any").unwrap();
    for (state, word) in [
        (HostState::Drained, "HOST DRAINED"),
        (HostState::Suspect, "HOST SUSPECT"),
        (HostState::Lost, "HOST LOST"),
        (HostState::NotReported, "HOST NOT REPORTED"),
    ] {
        world.set_host_state(HOST, state).unwrap();
        let refused = grant(&world, 0, replica(2, 0, 0), "a=any").unwrap_err();
        assert!(refused.ends_with(word), "{refused}");
        assert!(world.grant(who).is_some());
        let request = ask("a=any");
        let need = Need::new(&request, who.service);
        let fits = world.begin(seconds(0)).feasible(&need, None);
        assert!(fits.is_empty());
    }
    let refused = grant(&world, 5, replica(2, 0, 0), "a=any").unwrap_err();
    assert!(refused.ends_with("UNKNOWN HOST"), "{refused}");
}

#[test]
fn pending_reasons_are_summed_over_hosts() {
    let world = hosts(4, "20000-32767");
    grant(&world, 0, replica(1, 0, 0), "a=9100").unwrap();
    grant(&world, 1, replica(1, 1, 0), "a=9100").unwrap();
    world.set_host_state(HostId(2), HostState::Drained).unwrap();
    let mut transaction = world.begin(seconds(0));
    let (request, service) = (ask("a=9100"), replica(2, 0, 0).service);
    let need = Need::new(&request, service);
    let sum = transaction.explain_all(&need, None);
    assert_eq!(sum.to_string(), "1 of 4 hosts fit: 2 HELD, 1 HOST DRAINED");
    let some: HostSet = [HOST, HostId(3), HostId(99)].into_iter().collect();
    let fitting = transaction.feasible(&need, Some(&some));
    assert_eq!(fitting.iter().collect::<Vec<_>>(), [HostId(3)]);
    let sum = transaction.explain_all(&need, Some(&some));
    assert_eq!((sum.fitting, sum.asked()), (1, 3));
}

#[test]
fn ranges_change_without_touching_holders() {
    // P04
    let world = hosts(1, "20000-20004");
    for index in 0..5 {
        grant(&world, 0, replica(1, index, 0), "a=any").unwrap();
    }
    assert!(grant(&world, 0, replica(1, 5, 0), "a=any").is_err());
    world.take_freed();
    let mut spec = HostSpec::new("n0".parse().unwrap());
    spec.ranges = ranges("20000-20005", "1024-65535", "20000,20006");
    world.put_host(HOST, spec).unwrap();
    assert!(world.take_freed().contains(HOST));
    assert_eq!(
        grant(&world, 0, replica(1, 5, 0), "a=any").unwrap(),
        "20005"
    );
    let state = world.port_state(HOST, Side::Tcp, port(20_000));
    assert!(matches!(state, PortState::Held { .. }), "{state:?}");
    world
        .confirm_release(replica(1, 0, 0), seconds(0), AfterRelease::Free)
        .unwrap();
    let state = world.port_state(HOST, Side::Udp, port(20_000));
    assert_eq!(state, PortState::Reserved);
    assert!(grant(&world, 0, replica(2, 0, 0), "a=any").is_err());
    let refused = grant(&world, 0, replica(2, 0, 0), "a=20006/udp").unwrap_err();
    assert!(refused.ends_with("RESERVED"), "{refused}");
}

#[test]
fn hosts_change_places_with_their_holders_and_go_only_when_empty() {
    let world = hosts(2, "20000-32767");
    let who = replica(1, 0, 0);
    grant(&world, 0, who, "a=9100").unwrap();
    let spec = |name: &str| HostSpec::new(name.parse().unwrap());
    let before = whole(&world);
    assert!(matches!(
        world.put_host(HOST, spec("new")),
        Err(PutHostError::Occupied { .. })
    ));
    assert!(matches!(
        world.put_host(HostId(u32::MAX), spec("new")),
        Err(PutHostError::BeyondLimit { .. })
    ));
    assert!(matches!(
        world.put_hosts(vec![(HostId(3), spec("n0")), (HostId(4), spec("n0"))]),
        Err(PutHostError::Twice { .. })
    ));
    assert!(matches!(
        world.remove_host(HOST, Removal::IfEmpty),
        Err(RemoveHostError::Holders { holders: 1, .. })
    ));
    assert_eq!(whole(&world), before);
    world
        .put_hosts(vec![(HOST, spec("n1")), (HostId(1), spec("n0"))])
        .unwrap();
    assert_eq!(world.grant(who).map(|(host, _)| host), Some(HostId(1)));
    assert_eq!(world.host_id(&"n0".parse().unwrap()), Some(HostId(1)));
    assert_eq!(world.host_state(HostId(1)), Some(HostState::Up));
    assert_eq!(world.remove_host(HostId(1), Removal::Forced), Ok(vec![who]));
    assert_eq!(world.grant(who), None);
    assert!(world.remove_host(HOST, Removal::IfEmpty).is_ok());
    assert_eq!(world.hosts().len(), 0);
}

#[test]
fn a_listing_joins_sides_and_neighbours_of_one_state() {
    let world = hosts(1, "20000-32767");
    let mut spec = HostSpec::new("n0".parse().unwrap());
    spec.ranges.reserved = "1-3".parse().unwrap();
    world.put_host(HOST, spec).unwrap();
    let who = replica(1, 0, 0);
    grant(&world, 0, who, "a=9100/tcp+udp b=any:3").unwrap();
    world
        .set_foreign(HOST, &[nginx_on(9000, Protocol::Udp)])
        .unwrap();
    let listed: Vec<String> = world
        .ports(HOST)
        .iter()
        .map(|l| format!("{}/{} {:?}", l.numbers, l.protocol, l.state))
        .collect();
    assert_eq!(listed.len(), 4, "{listed:?}");
    for (entry, start) in listed.iter().zip([
        "1-3/tcp+udp Reserved",
        "9000/udp Foreign",
        "9100/tcp+udp Held",
        "20000-20002/tcp Held",
    ]) {
        assert!(entry.starts_with(start), "{entry} is not {start}");
    }
}

#[test]
fn a_host_that_comes_into_service_has_room_for_those_who_wait_once() {
    let world = hosts(1, "20000-20009");
    for away in [HostState::Drained, HostState::Suspect, HostState::Lost] {
        world.set_host_state(HOST, away).unwrap();
        assert!(world.take_freed().is_empty(), "{away:?} is no room");
        world.set_host_state(HOST, HostState::Up).unwrap();
        assert!(world.take_freed().contains(HOST), "after {away:?}");
        world.set_host_state(HOST, HostState::Up).unwrap();
        assert!(world.take_freed().is_empty(), "it was told of");
    }
}

#[test]
fn what_an_open_transaction_took_is_shown_to_nobody() {
    let world = hosts(1, "20000-20001");
    let mut transaction = world.begin(seconds(0));
    transaction
        .reserve(HostId(0), replica(1, 0, 0), &ask("a=20000/tcp+udp"), None)
        .unwrap();
    for side in Side::BOTH {
        let state = world.port_state(HostId(0), side, port(20000));
        assert_eq!(state, PortState::Free);
    }
    assert_eq!(world.ports(HostId(0)), []);
    assert_eq!(world.export(), Export::default());
    assert_eq!(world.grant(replica(1, 0, 0)), None);
}

#[test]
fn what_is_being_released_is_exported_as_such() {
    let world = hosts(1, "20000-20001");
    grant(&world, 0, replica(1, 0, 0), "a=any").unwrap();
    world.begin_release(replica(1, 0, 0)).unwrap();
    let releasing: Vec<bool> = world
        .export()
        .grants
        .iter()
        .map(|it| it.releasing)
        .collect();
    assert_eq!(releasing, [true]);
}

#[test]
fn numbers_rest_as_long_as_their_host_says_wherever_it_stands_by_then() {
    let world = hosts(2, "20000-20001");
    let spec = |name: &str| {
        let mut spec = HostSpec::new(name.parse().unwrap());
        spec.ranges = ranges("20000-20001", "1024-65535", "");
        spec.cooling = Some(Duration::from_secs(7));
        spec
    };
    world.put_host(HostId(0), spec("n0")).unwrap();
    for (who, host) in [(replica(1, 0, 0), 0), (replica(1, 1, 0), 1)] {
        grant(&world, host, who, "a=9100").unwrap();
        world
            .confirm_release(who, seconds(1), AfterRelease::Cool)
            .unwrap();
    }
    assert_eq!(world.next_deadline(), Some(seconds(8)));
    let places = vec![(HostId(1), spec("n0")), (HostId(5), spec("n1"))];
    world.put_hosts(places).unwrap();
    world.on_deadline(seconds(7));
    let rests = |host| {
        let state = world.port_state(HostId(host), Side::Tcp, port(9100));
        matches!(state, PortState::Cooling { .. })
    };
    assert!(rests(1) && rests(5));
    assert!(world.on_deadline(seconds(8)).contains(HostId(1)));
    assert!(!rests(1) && rests(5));
    assert!(world.on_deadline(seconds(61)).contains(HostId(5)));
    assert!(!rests(5));
}

#[test]
fn a_question_about_later_sees_what_rests_as_it_will_be_by_then() {
    let config = AllocatorConfig {
        // By the sets of watched numbers, and host by host.
        direct_below: 0,
        ..AllocatorConfig::default()
    };
    for config in [config, AllocatorConfig::default()] {
        let world = hosts_by(config, 3, "20000-20001");
        for host in 0..2 {
            let who = replica(1, host, 0);
            grant(&world, host, who, "a=9100").unwrap();
            world
                .confirm_release(who, seconds(u64::from(host)), AfterRelease::Cool)
                .unwrap();
        }
        let fixed = ask("a=9100");
        let at = |s| Need {
            at: Some(seconds(s)),
            ..Need::new(&fixed, ServiceId(2))
        };
        let mut transaction = world.begin(seconds(1));
        for (s, hosts) in [(59, &[2][..]), (60, &[0, 2]), (61, &[0, 1, 2])] {
            let found = transaction.feasible(&at(s), None);
            let found: Vec<u32> = found.iter().map(|host| host.0).collect();
            assert_eq!(found, hosts, "at {s} s");
        }
        assert_eq!(transaction.max_replicas(&at(60), HostId(0), 9), 1);
        assert_eq!(transaction.explain(HostId(0), &at(60)), []);
        assert!(transaction.explain_first(HostId(1), &at(60)).is_some());
    }
}

#[test]
fn what_was_given_in_a_what_if_is_held_again_once_it_is_taken_back() {
    let world = hosts(1, "20000-20000");
    let holder = replica(1, 0, 0);
    grant(&world, 0, holder, "a=any").unwrap();
    let one = ask("a=any");
    let need = Need::new(&one, ServiceId(2));
    let mut what_if = world.what_if(seconds(0));
    let mark = what_if.mark();
    for _ in 0..2 {
        assert!(what_if.feasible(&need, None).is_empty());
        what_if.give(holder).unwrap();
        assert!(what_if.give(holder).is_err(), "given already");
        let taken = what_if.reserve(HOST, replica(2, 0, 0), &one, None);
        assert_eq!(numbers(&taken.unwrap()), "20000");
        what_if.rollback(mark).unwrap();
    }
}
