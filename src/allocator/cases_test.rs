//! The cases of the ports page that a pool and an allocator answer by themselves.

use crate::identity::HostId;
use crate::port::Protocol;
use crate::port_pool::{Cause, PortState, Side, Stranger};

use super::testing::{
    ask, grant, granted, hosts, nginx_on, numbers, port, replica, seconds, whole,
};
use super::{AfterRelease, Conflict, GrantRecord, Need, ReleaseError, ReserveError};

const HOST: HostId = HostId(0);

#[test]
fn a_stranger_takes_its_side_of_the_number_and_no_other() {
    // ports 1
    let world = hosts(1, "20000-20000");
    world
        .set_foreign(HOST, &[nginx_on(20_000, Protocol::Tcp)])
        .unwrap();
    assert_eq!(
        grant(&world, 0, replica(1, 0, 0), "a=20000").unwrap_err(),
        "host number 0 does not fit: port a: 20000/tcp is FOREIGN pid 811 (nginx)"
    );
    assert!(grant(&world, 0, replica(1, 0, 0), "a=any").is_err());
    assert_eq!(
        grant(&world, 0, replica(1, 0, 0), "a=any/udp").unwrap(),
        "20000"
    );
}

#[test]
fn the_sides_are_apart_and_a_pair_names_both_holders() {
    // ports 2
    let world = hosts(1, "20000-32767");
    let (a, b) = (replica(1, 0, 0), replica(2, 0, 0));
    grant(&world, 0, a, "stats=8125/udp").unwrap();
    grant(&world, 0, b, "stats=8125/tcp").unwrap();
    let transaction = world.begin(seconds(0));
    let pair = ask("stats=8125/tcp+udp");
    let why = transaction.explain(HOST, &Need::new(&pair, replica(3, 0, 0).service));
    let causes: Vec<Cause> = why.into_iter().map(|why| why.cause).collect();
    assert_eq!(causes, [Cause::Held { by: b }, Cause::Held { by: a }]);
}

#[test]
fn the_last_two_free_numbers_are_found_and_a_third_is_refused() {
    // ports 4
    let world = hosts(1, "20000-20009");
    grant(&world, 0, replica(1, 0, 0), "a=any:8").unwrap();
    let before = whole(&world);
    let refused = grant(&world, 0, replica(2, 0, 0), "a=any b=any c=any").unwrap_err();
    assert!(
        refused.contains("port c (tcp): TOO FEW FREE (2 of 3)"),
        "{refused}"
    );
    assert_eq!(whole(&world), before);
    assert_eq!(
        grant(&world, 0, replica(2, 0, 0), "f=9100 a=any b=any").unwrap(),
        "9100 20008 20009"
    );
}

#[test]
fn a_range_of_one_number_gives_it_once() {
    // ports 5
    let world = hosts(1, "20000-20000");
    let before = whole(&world);
    assert!(grant(&world, 0, replica(1, 0, 0), "a=any b=any").is_err());
    assert_eq!(whole(&world), before);
    assert_eq!(
        grant(&world, 0, replica(1, 0, 0), "a=any").unwrap(),
        "20000"
    );
    assert!(grant(&world, 0, replica(2, 0, 0), "a=any").is_err());
}

#[test]
fn every_number_of_a_range_is_given_once_first_and_last_included() {
    // ports 6
    let world = hosts(1, "65520-65535");
    let mut given: Vec<u16> = (0..16)
        .map(|index| grant(&world, 0, replica(1, index, 0), "a=any").unwrap())
        .map(|number| number.parse().unwrap())
        .collect();
    given.sort_unstable();
    assert_eq!(given, (65_520..=65_535).collect::<Vec<_>>());
    assert!(grant(&world, 0, replica(1, 16, 0), "a=any").is_err());
}

#[test]
fn fifty_replicas_over_two_hosts_get_disjoint_sets_together() {
    // ports 7
    let world = hosts(2, "20000-20099");
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
    let world = hosts(1, "20000-32767");
    let (a, b) = (replica(1, 2, 0), replica(2, 0, 0));
    grant(&world, 0, a, "a=9100").unwrap();
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
    let world = hosts(1, "20000-20000");
    grant(&world, 0, replica(1, 0, 0), "a=any b=9100").unwrap();
    let transaction = world.begin(seconds(0));
    let code = |text| {
        let request = ask(text);
        let need = Need::new(&request, replica(2, 0, 0).service);
        transaction.explain(HOST, &need)[0].cause.code().as_str()
    };
    assert_eq!(code("a=80"), "NOT IN POOL");
    assert_eq!(code("a=9100"), "HELD");
    assert_eq!(code("a=any"), "TOO FEW FREE");
    assert_eq!(code("a=any@1-1023"), "NOT IN POOL");
}

#[test]
fn each_release_that_cannot_be_has_its_own_answer_and_no_effect() {
    // ports 10
    let world = hosts(1, "20000-32767");
    let (old, new, stranger) = (replica(1, 0, 0), replica(1, 0, 1), replica(9, 0, 0));
    grant(&world, 0, old, "a=any").unwrap();
    world.begin_release(old).unwrap();
    assert_eq!(
        world.begin_release(old),
        Err(ReleaseError::AlreadyReleasing { replica: old })
    );
    world
        .confirm_release(old, seconds(1), AfterRelease::Cool)
        .unwrap();
    let again = |world: &super::Allocator, who, s| {
        let before = whole(world);
        let answer = world.confirm_release(who, seconds(s), AfterRelease::Cool);
        assert_eq!(whole(world), before);
        answer.unwrap_err()
    };
    assert_eq!(
        again(&world, old, 1),
        ReleaseError::AlreadyReleased { replica: old }
    );
    assert_eq!(
        again(&world, stranger, 1),
        ReleaseError::NotHeld { replica: stranger }
    );
    grant(&world, 0, new, "a=any").unwrap();
    let newest = new.incarnation;
    assert_eq!(
        again(&world, old, 1),
        ReleaseError::OldIncarnation {
            replica: old,
            newest
        }
    );
    assert!(world.grant(new).is_some());
}

#[test]
fn a_record_restored_after_its_release_and_released_again_is_remembered_from_then_on() {
    let world = hosts(1, "20000-32767");
    let who = replica(1, 0, 0);
    let record = || GrantRecord {
        host: HostId(0),
        replica: who,
        grant: granted("a=20000"),
        releasing: false,
    };
    for second in [0, 40] {
        assert_eq!(world.restore([record()]), []);
        world
            .confirm_release(who, seconds(second), AfterRelease::Cool)
            .unwrap();
    }
    // A minute after the first release, and less than one after the second.
    let again = world.confirm_release(who, seconds(61), AfterRelease::Cool);
    let replica = who;
    assert_eq!(again, Err(ReleaseError::AlreadyReleased { replica }));
}

#[test]
fn a_replica_that_asks_for_another_range_is_not_answered_with_its_old_numbers() {
    let world = hosts(1, "20000-32767");
    let who = replica(1, 0, 0);
    grant(&world, 0, who, "a=any@20000-20009").unwrap();
    let mut transaction = world.begin(seconds(0));
    let mut ask_again = |request| transaction.reserve(HostId(0), who, &ask(request), None);
    assert!(ask_again("a=any@20000-20001").is_ok());
    let other = ask_again("a=any@30000-30009");
    assert!(
        matches!(other, Err(ReserveError::HoldsOther { .. })),
        "{other:?}"
    );
}

#[test]
fn records_of_another_range_are_held_until_released() {
    // ports 11
    let world = hosts(1, "20000-20009");
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
    let world = hosts(1, "31000-31000");
    let refused = grant(&world, 0, replica(1, 0, 0), "x=any a=31000").unwrap_err();
    assert!(
        refused.contains("port x (tcp): TOO FEW FREE (0 of 1)"),
        "{refused}"
    );
    let world = hosts(1, "30999-31001");
    assert_eq!(
        grant(&world, 0, replica(1, 0, 0), "x=any y=any a=31000").unwrap(),
        "30999 31001 31000"
    );
}

#[test]
fn a_number_just_released_is_not_given_to_others_while_others_are_free() {
    // ports 16, P15
    let world = hosts(1, "20000-20002");
    let (first, second) = (replica(1, 0, 0), replica(2, 0, 0));
    assert_eq!(grant(&world, 0, first, "a=any").unwrap(), "20000");
    world
        .confirm_release(first, seconds(1), AfterRelease::Cool)
        .unwrap();
    for (index, number) in [(0, "20001"), (1, "20002")] {
        let who = replica(2, index, 0);
        assert_eq!(grant(&world, 0, who, "a=any").unwrap(), number);
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
fn cooling_numbers_are_given_oldest_first_rather_than_refused() {
    // ports 17
    let world = hosts(1, "20000-20003");
    for index in 0..4 {
        grant(&world, 0, replica(1, index, 0), "a=any").unwrap();
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
fn after_a_refused_bind_the_number_rests_and_another_is_given() {
    // ports 18
    let world = hosts(1, "20000-20001");
    let (first, next) = (replica(1, 0, 0), replica(1, 0, 1));
    assert_eq!(grant(&world, 0, first, "a=any").unwrap(), "20000");
    let stranger = Stranger::default();
    world
        .report_conflict(HOST, port(20_000), Protocol::Tcp, &stranger, seconds(1))
        .unwrap();
    let state = world.port_state(HOST, Side::Tcp, port(20_000));
    assert_eq!(state, PortState::Held { by: first }, "held is shown first");
    world
        .confirm_release(first, seconds(2), AfterRelease::Free)
        .unwrap();
    assert_eq!(grant(&world, 0, next, "a=any").unwrap(), "20001");
    assert!(grant(&world, 0, replica(2, 0, 0), "a=any").is_err());
    world.take_freed();
    // The rest is over, or a report says earlier that the stranger left.
    assert!(world.on_deadline(seconds(61)).contains(HOST));
    assert!(grant(&world, 0, replica(2, 0, 0), "a=any").is_ok());
    world
        .report_conflict(HOST, port(9100), Protocol::Tcp, &stranger, seconds(62))
        .unwrap();
    let listening = [nginx_on(9100, Protocol::Tcp)];
    world.set_foreign(HOST, &listening).unwrap();
    world.set_foreign(HOST, &[]).unwrap();
    assert!(world.take_freed().contains(HOST));
    assert!(grant(&world, 0, replica(3, 0, 0), "a=9100").is_ok());
}

#[test]
fn what_was_committed_comes_back_and_what_was_not_is_free() {
    // ports 20
    let world = hosts(1, "20000-32767");
    let (acknowledged, lost) = (replica(1, 0, 0), replica(2, 0, 0));
    grant(&world, 0, acknowledged, "a=any b=9100").unwrap();
    let mut transaction = world.begin(seconds(0));
    transaction
        .reserve(HOST, lost, &ask("a=9200"), None)
        .unwrap();
    let suspended = transaction.suspend();
    let export = world.export();
    drop(world.resume(suspended));
    let again = hosts(1, "20000-32767");
    assert_eq!(again.restore(export.grants), []);
    assert_eq!(again.grant(acknowledged), world.grant(acknowledged));
    assert_eq!(again.grant(lost), None);
    assert!(grant(&again, 0, replica(3, 0, 0), "a=9200").is_ok());
}

#[test]
fn a_fragmented_set_has_no_block_until_a_release_joins_one() {
    // ports 22, P11
    let world = hosts(1, "20000-20399");
    for index in 0..100 {
        let number = 20_003 + 4 * index;
        let fixed = format!("a={number}");
        grant(&world, 0, replica(1, index, 0), &fixed).unwrap();
    }
    let refused = grant(&world, 0, replica(2, 0, 0), "rpc=any:4").unwrap_err();
    assert!(
        refused.contains("port rpc (tcp): NO BLOCK OF 4"),
        "{refused}"
    );
    assert!(grant(&world, 0, replica(2, 1, 0), "rpc=any:3").is_ok());
    world
        .confirm_release(replica(1, 10, 0), seconds(0), AfterRelease::Cool)
        .unwrap();
    // The joining number cools: better than a refusal.
    assert_eq!(
        grant(&world, 0, replica(2, 0, 0), "rpc=any:4").unwrap(),
        "20040-20043"
    );
}

#[test]
fn a_pair_takes_the_only_number_free_on_both_sides_and_frees_both() {
    // ports 23
    let world = hosts(1, "20000-20099");
    for number in 20_000..20_100 {
        let side = if number % 2 == 0 { "udp" } else { "tcp" };
        if number != 20_050 {
            let fixed = format!("a={number}/{side}");
            grant(&world, 0, replica(1, number, 0), &fixed).unwrap();
        }
    }
    let who = replica(2, 0, 0);
    assert_eq!(grant(&world, 0, who, "dns=any/tcp+udp").unwrap(), "20050");
    let refused = grant(&world, 0, replica(3, 0, 0), "dns=any/tcp+udp").unwrap_err();
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
    let world = hosts(1, "20000-20009");
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
    assert_eq!(grant(&world, 0, replica(3, 0, 0), "").unwrap(), "");
    assert!(grant(&world, 0, replica(4, 0, 0), "a=any:8").is_ok());
    // The number is free only when both let go.
    for (who, held) in [(a, true), (b, false)] {
        world
            .confirm_release(who, seconds(0), AfterRelease::Free)
            .unwrap();
        let state = world.port_state(HOST, Side::Tcp, port(20_001));
        assert_eq!(state != PortState::Free, held);
    }
}
