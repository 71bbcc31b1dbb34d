//! The cases of the ports page that a pool and an allocator answer by themselves.

use crate::identity::HostId;
use crate::port::Protocol;
use crate::port_pool::{Cause, Foreign, PortState, Side, Stranger};

use super::testing::{ask, grant, granted, hosts, numbers, port, ranges, replica, seconds, whole};
use super::{
    AfterRelease, Conflict, GrantRecord, HostSet, HostSpec, HostState, PutHostError, ReleaseError,
    Removal, RemoveHostError, ReserveError,
};

const HOST: HostId = HostId(0);

fn nginx_on(number: u16, protocol: Protocol) -> Foreign {
    Foreign {
        port: port(number),
        protocol,
        pid: Some(811),
        comm: Some("nginx".to_owned()),
    }
}

#[test]
fn a_stranger_takes_its_side_of_the_number_and_no_other() {
    // ports 1
    let mut world = hosts(1, "20000-20000");
    world
        .set_foreign(HOST, &[nginx_on(20_000, Protocol::Tcp)])
        .unwrap();
    assert_eq!(
        grant(&mut world, 0, replica(1, 0, 0), "a=20000").unwrap_err(),
        "host number 0 does not fit: port a: 20000/tcp is FOREIGN pid 811 (nginx)"
    );
    assert!(grant(&mut world, 0, replica(1, 0, 0), "a=any").is_err());
    assert_eq!(
        grant(&mut world, 0, replica(1, 0, 0), "a=any/udp").unwrap(),
        "20000"
    );
}

#[test]
fn the_sides_are_apart_and_a_pair_names_both_holders() {
    // ports 2
    let mut world = hosts(1, "20000-32767");
    let (a, b) = (replica(1, 0, 0), replica(2, 0, 0));
    grant(&mut world, 0, a, "stats=8125/udp").unwrap();
    grant(&mut world, 0, b, "stats=8125/tcp").unwrap();
    let transaction = world.begin(seconds(0));
    let why = transaction.explain(HOST, &ask("stats=8125/tcp+udp"), replica(3, 0, 0).service);
    let causes: Vec<Cause> = why.into_iter().map(|why| why.cause).collect();
    assert_eq!(causes, [Cause::Held { by: b }, Cause::Held { by: a }]);
}

#[test]
fn the_last_two_free_numbers_are_found_and_a_third_is_refused() {
    // ports 4
    let mut world = hosts(1, "20000-20009");
    grant(&mut world, 0, replica(1, 0, 0), "a=any:8").unwrap();
    let before = whole(&world);
    let refused = grant(&mut world, 0, replica(2, 0, 0), "a=any b=any c=any").unwrap_err();
    assert!(
        refused.contains("port c (tcp): TOO FEW FREE (2 of 3)"),
        "{refused}"
    );
    assert_eq!(whole(&world), before);
    assert_eq!(
        grant(&mut world, 0, replica(2, 0, 0), "f=9100 a=any b=any").unwrap(),
        "9100 20008 20009"
    );
}

#[test]
fn a_range_of_one_number_gives_it_once() {
    // ports 5
    let mut world = hosts(1, "20000-20000");
    let before = whole(&world);
    assert!(grant(&mut world, 0, replica(1, 0, 0), "a=any b=any").is_err());
    assert_eq!(whole(&world), before);
    assert_eq!(
        grant(&mut world, 0, replica(1, 0, 0), "a=any").unwrap(),
        "20000"
    );
    assert!(grant(&mut world, 0, replica(2, 0, 0), "a=any").is_err());
}

#[test]
fn every_number_of_a_range_is_given_once_first_and_last_included() {
    // ports 6
    let mut world = hosts(1, "65520-65535");
    let mut given: Vec<u16> = (0..16)
        .map(|index| grant(&mut world, 0, replica(1, index, 0), "a=any").unwrap())
        .map(|number| number.parse().unwrap())
        .collect();
    given.sort_unstable();
    assert_eq!(given, (65_520..=65_535).collect::<Vec<_>>());
    assert!(grant(&mut world, 0, replica(1, 16, 0), "a=any").is_err());
}

#[test]
fn fifty_replicas_over_two_hosts_get_disjoint_sets_together() {
    // ports 7
    let mut world = hosts(2, "20000-20099");
    let mut transaction = world.begin(seconds(0));
    for index in 0..50 {
        transaction
            .reserve(
                HostId(index % 2),
                replica(1, index, 0),
                &ask("a=any b=any:3"),
                None,
            )
            .unwrap();
    }
    assert_eq!(transaction.commit(), 50);
    for host in 0..2 {
        let listed = world.ports(HostId(host));
        let mut taken: Vec<_> = listed.iter().flat_map(|l| l.numbers.iter()).collect();
        taken.dedup();
        assert_eq!(taken.len(), 100, "25 replicas with 4 numbers each");
    }
}

#[test]
fn a_refused_claim_names_the_holder_and_its_release_touches_nothing() {
    // ports 9
    let mut world = hosts(1, "20000-32767");
    let (a, b) = (replica(1, 2, 0), replica(2, 0, 0));
    grant(&mut world, 0, a, "a=9100").unwrap();
    let refused = world
        .begin(seconds(0))
        .reserve(HOST, b, &ask("a=9100"), None)
        .unwrap_err();
    let ReserveError::Refused { why, .. } = refused else {
        panic!("{refused} is no refusal");
    };
    assert_eq!(why[0].cause.holder(), Some(a));
    let before = whole(&world);
    let answer = world.confirm_release(b, seconds(0), AfterRelease::Cool);
    assert_eq!(answer, Err(ReleaseError::NotHeld { replica: b }));
    assert_eq!(whole(&world), before);
    assert!(world.grant(a).is_some());
}

#[test]
fn outside_taken_and_full_are_three_different_codes() {
    // ports 10
    let mut world = hosts(1, "20000-20000");
    grant(&mut world, 0, replica(1, 0, 0), "a=any b=9100").unwrap();
    let transaction = world.begin(seconds(0));
    let code = |text| {
        transaction.explain(HOST, &ask(text), replica(2, 0, 0).service)[0]
            .cause
            .code()
            .as_str()
    };
    assert_eq!(code("a=80"), "NOT IN POOL");
    assert_eq!(code("a=9100"), "HELD");
    assert_eq!(code("a=any"), "TOO FEW FREE");
    assert_eq!(code("a=any@1-1023"), "NOT IN POOL");
}

#[test]
fn each_release_that_cannot_be_has_its_own_answer_and_no_effect() {
    // ports 10
    let mut world = hosts(1, "20000-32767");
    let (old, new, stranger) = (replica(1, 0, 0), replica(1, 0, 1), replica(9, 0, 0));
    grant(&mut world, 0, old, "a=any").unwrap();
    world.begin_release(old).unwrap();
    assert_eq!(
        world.begin_release(old),
        Err(ReleaseError::AlreadyReleasing { replica: old })
    );
    world
        .confirm_release(old, seconds(1), AfterRelease::Cool)
        .unwrap();
    let again = |world: &mut super::Allocator, who, s| {
        let before = whole(world);
        let answer = world.confirm_release(who, seconds(s), AfterRelease::Cool);
        assert_eq!(whole(world), before);
        answer.unwrap_err()
    };
    assert_eq!(
        again(&mut world, old, 1),
        ReleaseError::AlreadyReleased { replica: old }
    );
    assert_eq!(
        again(&mut world, stranger, 1),
        ReleaseError::NotHeld { replica: stranger }
    );
    grant(&mut world, 0, new, "a=any").unwrap();
    let newest = new.incarnation;
    assert_eq!(
        again(&mut world, old, 1),
        ReleaseError::OldIncarnation {
            replica: old,
            newest
        }
    );
    assert!(world.grant(new).is_some());
}

#[test]
fn records_of_another_range_are_held_until_released() {
    // ports 11
    let mut world = hosts(1, "20000-20009");
    let who = replica(1, 0, 0);
    let record = GrantRecord {
        host: HOST,
        replica: who,
        grant: granted("a=80 b=40000-40003 c=20000"),
        releasing: false,
    };
    assert_eq!(world.restore([record.clone()]), []);
    assert_eq!(world.counts(HOST).held, 6);
    assert_eq!(world.counts(HOST).free_tcp, 9);
    assert_eq!(world.restore([record]), [], "the same record again");
    assert_eq!(world.counts(HOST).held, 6);
    world
        .confirm_release(who, seconds(0), AfterRelease::Free)
        .unwrap();
    assert_eq!(world.ports(HOST), []);
    assert_eq!(world.counts(HOST).free_tcp, 10);
}

#[test]
fn any_never_answers_with_a_number_that_the_same_request_fixes() {
    // ports 13
    let mut world = hosts(1, "31000-31000");
    let refused = grant(&mut world, 0, replica(1, 0, 0), "x=any a=31000").unwrap_err();
    assert!(
        refused.contains("port x (tcp): TOO FEW FREE (0 of 1)"),
        "{refused}"
    );
    let mut world = hosts(1, "30999-31001");
    assert_eq!(
        grant(&mut world, 0, replica(1, 0, 0), "x=any y=any a=31000").unwrap(),
        "30999 31001 31000"
    );
}

#[test]
fn a_number_just_released_is_not_given_to_others_while_others_are_free() {
    // ports 16, P15
    let mut world = hosts(1, "20000-20002");
    let (first, second) = (replica(1, 0, 0), replica(2, 0, 0));
    assert_eq!(grant(&mut world, 0, first, "a=any").unwrap(), "20000");
    world
        .confirm_release(first, seconds(1), AfterRelease::Cool)
        .unwrap();
    for (index, number) in [(0, "20001"), (1, "20002")] {
        let who = replica(2, index, 0);
        assert_eq!(grant(&mut world, 0, who, "a=any").unwrap(), number);
    }
    world
        .confirm_release(second, seconds(2), AfterRelease::Cool)
        .unwrap();
    // The replica that comes back prefers its former number, though an older one cools too.
    let former = granted("a=20001");
    let back = replica(2, 0, 1);
    let mut transaction = world.begin(seconds(3));
    let grant = transaction.reserve(HOST, back, &ask("a=any"), Some(&former));
    assert_eq!(numbers(&grant.unwrap()), "20001");
}

#[test]
fn a_former_number_that_cannot_be_had_refuses_nothing() {
    let mut world = hosts(1, "20000-20002");
    grant(&mut world, 0, replica(1, 0, 0), "a=20001").unwrap();
    let former = granted("a=20001");
    let mut transaction = world.begin(seconds(0));
    let who = replica(2, 0, 1);
    let grant = transaction.reserve(HOST, who, &ask("a=any"), Some(&former));
    assert_eq!(numbers(&grant.unwrap()), "20000");
    // A preference that splits the only block is dropped.
    drop(transaction);
    let mut world = hosts(1, "20000-20003");
    let mut transaction = world.begin(seconds(0));
    let request = ask("a=any b=any:3");
    let grant = transaction.reserve(HOST, who, &request, Some(&former));
    assert_eq!(numbers(&grant.unwrap()), "20003 20000-20002");
}

#[test]
fn cooling_numbers_are_given_oldest_first_rather_than_refused() {
    // ports 17
    let mut world = hosts(1, "20000-20003");
    for index in 0..4 {
        grant(&mut world, 0, replica(1, index, 0), "a=any").unwrap();
    }
    for (at, index) in [(1, 2), (2, 0), (3, 3), (4, 1)] {
        world
            .confirm_release(replica(1, index, 0), seconds(at), AfterRelease::Cool)
            .unwrap();
    }
    let mut transaction = world.begin(seconds(5));
    for (index, number) in [(0, "20002"), (1, "20000"), (2, "20003"), (3, "20001")] {
        let grant = transaction.reserve(HOST, replica(2, index, 0), &ask("a=any"), None);
        assert_eq!(numbers(&grant.unwrap()), number);
    }
}

#[test]
fn a_fixed_number_that_cools_is_given_to_its_own_service_at_once_and_to_others_in_time() {
    let mut world = hosts(1, "20000-32767");
    grant(&mut world, 0, replica(1, 0, 0), "a=9100").unwrap();
    world
        .confirm_release(replica(1, 0, 0), seconds(10), AfterRelease::Cool)
        .unwrap();
    let mut transaction = world.begin(seconds(28));
    let other = transaction.explain(HOST, &ask("a=9100"), replica(2, 0, 0).service);
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
    assert!(grant(&mut world, 0, replica(2, 0, 0), "a=9100").is_ok());
}

#[test]
fn after_a_refused_bind_the_number_rests_and_another_is_given() {
    // ports 18
    let mut world = hosts(1, "20000-20001");
    let (first, next) = (replica(1, 0, 0), replica(1, 0, 1));
    assert_eq!(grant(&mut world, 0, first, "a=any").unwrap(), "20000");
    let stranger = Stranger::default();
    world
        .report_conflict(HOST, port(20_000), Protocol::Tcp, &stranger, seconds(1))
        .unwrap();
    let state = world.port_state(HOST, Side::Tcp, port(20_000));
    assert_eq!(state, PortState::Held { by: first }, "held is shown first");
    world
        .confirm_release(first, seconds(2), AfterRelease::Free)
        .unwrap();
    assert_eq!(grant(&mut world, 0, next, "a=any").unwrap(), "20001");
    assert!(grant(&mut world, 0, replica(2, 0, 0), "a=any").is_err());
    world.take_freed();
    // The rest is over, or a report says earlier that the stranger left.
    assert!(world.on_deadline(seconds(61)).contains(HOST));
    assert!(grant(&mut world, 0, replica(2, 0, 0), "a=any").is_ok());
    world
        .report_conflict(HOST, port(9100), Protocol::Tcp, &stranger, seconds(62))
        .unwrap();
    let listening = [nginx_on(9100, Protocol::Tcp)];
    world.set_foreign(HOST, &listening).unwrap();
    world.set_foreign(HOST, &[]).unwrap();
    assert!(world.take_freed().contains(HOST));
    assert!(grant(&mut world, 0, replica(3, 0, 0), "a=9100").is_ok());
}

#[test]
fn what_was_committed_comes_back_and_what_was_not_is_free() {
    // ports 20
    let mut world = hosts(1, "20000-32767");
    let (acknowledged, lost) = (replica(1, 0, 0), replica(2, 0, 0));
    grant(&mut world, 0, acknowledged, "a=any b=9100").unwrap();
    let mut transaction = world.begin(seconds(0));
    transaction
        .reserve(HOST, lost, &ask("a=9200"), None)
        .unwrap();
    transaction.suspend();
    let export = world.export();
    let mut again = hosts(1, "20000-32767");
    assert_eq!(again.restore(export.grants), []);
    assert_eq!(again.grant(acknowledged), world.grant(acknowledged));
    assert_eq!(again.grant(lost), None);
    assert!(grant(&mut again, 0, replica(3, 0, 0), "a=9200").is_ok());
}

#[test]
fn a_fragmented_set_has_no_block_until_a_release_joins_one() {
    // ports 22, P11
    let mut world = hosts(1, "20000-20399");
    for index in 0..100 {
        let number = 20_003 + 4 * index;
        let fixed = format!("a={number}");
        grant(&mut world, 0, replica(1, index, 0), &fixed).unwrap();
    }
    let refused = grant(&mut world, 0, replica(2, 0, 0), "rpc=any:4").unwrap_err();
    assert!(
        refused.contains("port rpc (tcp): NO BLOCK OF 4"),
        "{refused}"
    );
    assert!(grant(&mut world, 0, replica(2, 1, 0), "rpc=any:3").is_ok());
    world
        .confirm_release(replica(1, 10, 0), seconds(0), AfterRelease::Cool)
        .unwrap();
    // The joining number cools: better than a refusal.
    assert_eq!(
        grant(&mut world, 0, replica(2, 0, 0), "rpc=any:4").unwrap(),
        "20040-20043"
    );
}

#[test]
fn a_pair_takes_the_only_number_free_on_both_sides_and_frees_both() {
    // ports 23
    let mut world = hosts(1, "20000-20099");
    for number in 20_000..20_100 {
        let side = if number % 2 == 0 { "udp" } else { "tcp" };
        if number != 20_050 {
            let fixed = format!("a={number}/{side}");
            grant(&mut world, 0, replica(1, number, 0), &fixed).unwrap();
        }
    }
    let who = replica(2, 0, 0);
    assert_eq!(
        grant(&mut world, 0, who, "dns=any/tcp+udp").unwrap(),
        "20050"
    );
    let refused = grant(&mut world, 0, replica(3, 0, 0), "dns=any/tcp+udp").unwrap_err();
    assert!(refused.contains("TOO FEW FREE (0 of 1)"), "{refused}");
    world
        .confirm_release(who, seconds(0), AfterRelease::Free)
        .unwrap();
    for side in Side::BOTH {
        let state = world.port_state(HOST, side, port(20_050));
        assert_eq!(state, PortState::Free);
    }
}

#[test]
fn two_records_of_one_number_are_both_kept_and_told() {
    // ports 24
    let mut world = hosts(1, "20000-20009");
    let (a, b) = (replica(1, 0, 0), replica(2, 0, 0));
    let record = |replica, grant| GrantRecord {
        host: HOST,
        replica,
        grant: granted(grant),
        releasing: false,
    };
    let conflicts = world.restore([record(a, "x=20000-20001"), record(b, "y=20001")]);
    let expected = Conflict::Shared {
        host: HOST,
        numbers: granted("y=20001").ports[0].numbers,
        protocol: Protocol::Tcp,
        first: a,
        second: b,
    };
    assert_eq!(conflicts, [expected]);
    assert!(world.grant(a).is_some() && world.grant(b).is_some());
    // Others are placed as ever.
    assert_eq!(grant(&mut world, 0, replica(3, 0, 0), "").unwrap(), "");
    assert!(grant(&mut world, 0, replica(4, 0, 0), "a=any:8").is_ok());
    // The number is free only when both let go.
    for (who, held) in [(a, true), (b, false)] {
        world
            .confirm_release(who, seconds(0), AfterRelease::Free)
            .unwrap();
        let state = world.port_state(HOST, Side::Tcp, port(20_001));
        assert_eq!(state != PortState::Free, held);
    }
}

#[test]
fn records_of_unknown_hosts_and_of_two_hosts_are_told_not_dropped() {
    let mut world = hosts(2, "20000-20009");
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
    let mut world = hosts(3, "20000-20001");
    grant(&mut world, 1, replica(9, 0, 0), "a=any:2").unwrap();
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
    transaction.suspend();
    assert!(world.ports(HOST).is_empty(), "no reader sees it");
    assert!(world.resume().unwrap().grant(replica(1, 0, 0)).is_some());
    assert!(!world.is_open(), "dropped, it is aborted");
    assert_eq!(whole(&world), before);
}

#[test]
fn a_grant_is_idempotent_and_incarnations_only_rise() {
    let mut world = hosts(2, "20000-32767");
    let (old, new) = (replica(1, 0, 3), replica(1, 0, 4));
    let first = grant(&mut world, 0, old, "a=any b=any:3").unwrap();
    let before = whole(&world);
    assert_eq!(grant(&mut world, 0, old, "a=any b=any:3").unwrap(), first);
    assert_eq!(whole(&world), before);
    let ask_as = |world: &mut super::Allocator, host, who, request: &str| {
        let mut transaction = world.begin(seconds(0));
        let answer = transaction.reserve(HostId(host), who, &ask(request), None);
        answer.unwrap_err()
    };
    let other = ReserveError::HoldsOther {
        replica: old,
        host: HOST,
    };
    assert_eq!(ask_as(&mut world, 1, old, "a=any b=any:3"), other);
    assert_eq!(ask_as(&mut world, 0, old, "a=any"), other);
    grant(&mut world, 1, new, "a=any b=any:3").unwrap();
    assert!(world.grant(old).is_some(), "the older stays held");
    let stale = ReserveError::Stale {
        replica: old,
        newest: new.incarnation,
    };
    assert_eq!(ask_as(&mut world, 0, old, "a=any b=any:3"), stale);
}

#[test]
fn any_leaves_numbers_alone_that_a_waiting_request_names() {
    let mut world = hosts(2, "20000-20001");
    let waits = replica(1, 0, 0);
    world.wait(waits, None, &ask("a=20000"));
    assert_eq!(
        grant(&mut world, 0, replica(2, 0, 0), "a=any").unwrap(),
        "20001"
    );
    let refused = grant(&mut world, 0, replica(3, 0, 0), "a=any").unwrap_err();
    assert!(
        refused.ends_with("port a: 20000/tcp is AWAITED"),
        "{refused}"
    );
    assert!(
        grant(&mut world, 1, replica(4, 0, 0), "a=20000").is_ok(),
        "a fixed request is no \"any\""
    );
    world.take_freed();
    assert!(grant(&mut world, 0, waits, "a=20000").is_ok());
    assert!(world.take_freed().contains(HostId(1)), "its wait is over");
    assert!(!world.stop_waiting(waits));
    world.wait(waits, Some(HostId(1)), &ask("a=20001"));
    assert!(grant(&mut world, 1, replica(3, 0, 0), "a=any").is_err());
    assert!(world.stop_waiting(waits));
    assert!(grant(&mut world, 1, replica(3, 0, 0), "a=any").is_ok());
}

#[test]
fn only_a_host_that_is_up_takes_new_grants_and_none_loses_what_it_holds() {
    let mut world = hosts(1, "20000-32767");
    let who = replica(1, 0, 0);
    grant(&mut world, 0, who, "a=any").unwrap();
    for (state, word) in [
        (HostState::Drained, "HOST DRAINED"),
        (HostState::Suspect, "HOST SUSPECT"),
        (HostState::Lost, "HOST LOST"),
        (HostState::NotReported, "HOST NOT REPORTED"),
    ] {
        world.set_host_state(HOST, state).unwrap();
        let refused = grant(&mut world, 0, replica(2, 0, 0), "a=any").unwrap_err();
        assert!(refused.ends_with(word), "{refused}");
        assert!(world.grant(who).is_some());
        let fits = world
            .begin(seconds(0))
            .feasible(&ask("a=any"), who.service, None);
        assert!(fits.is_empty());
    }
    let refused = grant(&mut world, 5, replica(2, 0, 0), "a=any").unwrap_err();
    assert!(refused.ends_with("UNKNOWN HOST"), "{refused}");
}

#[test]
fn pending_reasons_are_summed_over_hosts() {
    let mut world = hosts(4, "20000-32767");
    grant(&mut world, 0, replica(1, 0, 0), "a=9100").unwrap();
    grant(&mut world, 1, replica(1, 1, 0), "a=9100").unwrap();
    world.set_host_state(HostId(2), HostState::Drained).unwrap();
    let mut transaction = world.begin(seconds(0));
    let (request, service) = (ask("a=9100"), replica(2, 0, 0).service);
    let sum = transaction.explain_all(&request, service, None);
    assert_eq!(sum.to_string(), "1 of 4 hosts fit: 2 HELD, 1 HOST DRAINED");
    let some: HostSet = [HOST, HostId(3), HostId(99)].into_iter().collect();
    let fitting = transaction.feasible(&request, service, Some(&some));
    assert_eq!(fitting.iter().collect::<Vec<_>>(), [HostId(3)]);
    let sum = transaction.explain_all(&request, service, Some(&some));
    assert_eq!((sum.fitting, sum.asked()), (1, 3));
}

#[test]
fn ranges_change_without_touching_holders() {
    // P04
    let mut world = hosts(1, "20000-20004");
    for index in 0..5 {
        grant(&mut world, 0, replica(1, index, 0), "a=any").unwrap();
    }
    assert!(grant(&mut world, 0, replica(1, 5, 0), "a=any").is_err());
    world.take_freed();
    let mut spec = HostSpec::new("n0".parse().unwrap());
    spec.ranges = ranges("20000-20005", "1024-65535", "20000,20006");
    world.put_host(HOST, spec).unwrap();
    assert!(world.take_freed().contains(HOST));
    assert_eq!(
        grant(&mut world, 0, replica(1, 5, 0), "a=any").unwrap(),
        "20005"
    );
    let state = world.port_state(HOST, Side::Tcp, port(20_000));
    assert!(matches!(state, PortState::Held { .. }), "{state:?}");
    world
        .confirm_release(replica(1, 0, 0), seconds(0), AfterRelease::Free)
        .unwrap();
    let state = world.port_state(HOST, Side::Udp, port(20_000));
    assert_eq!(state, PortState::Reserved);
    assert!(grant(&mut world, 0, replica(2, 0, 0), "a=any").is_err());
    let refused = grant(&mut world, 0, replica(2, 0, 0), "a=20006/udp").unwrap_err();
    assert!(refused.ends_with("RESERVED"), "{refused}");
}

#[test]
fn hosts_change_places_with_their_holders_and_go_only_when_empty() {
    let mut world = hosts(2, "20000-32767");
    let who = replica(1, 0, 0);
    grant(&mut world, 0, who, "a=9100").unwrap();
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
    assert_eq!(world.hosts().count(), 0);
}

#[test]
fn a_listing_joins_sides_and_neighbours_of_one_state() {
    let mut world = hosts(1, "20000-32767");
    let mut spec = HostSpec::new("n0".parse().unwrap());
    spec.ranges.reserved = "1-3".parse().unwrap();
    world.put_host(HOST, spec).unwrap();
    let who = replica(1, 0, 0);
    grant(&mut world, 0, who, "a=9100/tcp+udp b=any:3").unwrap();
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
