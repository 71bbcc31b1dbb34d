//! The order of choice, rule by rule.

use std::time::Duration;

use crate::identity::{Incarnation, ReplicaId, ServiceId};
use crate::port::Protocol;
use crate::time::Monotonic;

use super::testing::{ask, granted, numbers, port, ranges};
use super::{
    Ask, Awaited, Cause, Causes, Choice, Draw, FixedStatus, Foreign, Phase, PortPool, Side,
    UndoLog, Why,
};

const SERVICE: ServiceId = ServiceId(1);

fn fresh(dynamic: &str, draw: Draw) -> PortPool {
    PortPool::new(ranges(dynamic, "1024-65535", ""), draw)
}

fn who(index: u32) -> ReplicaId {
    ReplicaId {
        service: SERVICE,
        index,
        incarnation: Incarnation(0),
    }
}

/// What `request` would get; nothing is taken.
fn chosen(pool: &PortPool, request: &str) -> Result<String, Vec<Why>> {
    take(&mut pool.clone(), u32::MAX, request)
}

/// Takes `request` for replica `index`; the numbers in the order of the request.
fn take(pool: &mut PortPool, index: u32, request: &str) -> Result<String, Vec<Why>> {
    let request = ask(request);
    let nobody = Awaited::default();
    let ask = Ask {
        service: SERVICE,
        request: &request,
        former: None,
        awaited: [&nobody, &nobody],
        now: Monotonic::default(),
    };
    let (mut choice, mut why) = (Choice::default(), Vec::new());
    if !pool.choose(&ask, &mut choice, Causes::All(&mut why)) {
        return Err(why);
    }
    pool.take(who(index), &request, &choice, &mut UndoLog::default());
    Ok(numbers(&pool.grant(who(index)).unwrap()))
}

fn hold(pool: &mut PortPool, index: u32, grant: &str) {
    let clashes = pool.restore(who(index), &granted(grant), Phase::Held);
    assert_eq!(clashes, []);
}

#[test]
fn the_longest_block_chooses_first() {
    let mut pool = fresh("20000-20007", Draw::NextFit);
    hold(&mut pool, 0, "x=20004");
    assert_eq!(
        chosen(&pool, "a=any:3 b=any:4").unwrap(),
        "20005-20007 20000-20003"
    );
}

#[test]
fn blocks_choose_before_single_numbers() {
    let mut pool = fresh("20000-20004", Draw::NextFit);
    hold(&mut pool, 0, "x=20003");
    assert_eq!(chosen(&pool, "a=any b=any:3").unwrap(), "20004 20000-20002");
}

#[test]
fn what_needs_both_sides_chooses_before_what_needs_one() {
    let mut pool = fresh("20000-20005", Draw::NextFit);
    hold(&mut pool, 0, "x=20001/udp y=20002-20005/udp");
    assert_eq!(chosen(&pool, "a=any b=any/tcp+udp").unwrap(), "20001 20000");
    let mut blocks = fresh("20000-20005", Draw::NextFit);
    hold(&mut blocks, 0, "x=20003-20005/udp");
    assert_eq!(
        chosen(&blocks, "a=any:3 b=any:3/tcp+udp").unwrap(),
        "20003-20005 20000-20002"
    );
}

#[test]
fn the_narrowest_upper_bound_chooses_first() {
    let pool = fresh("20000-20002", Draw::NextFit);
    assert_eq!(
        chosen(&pool, "a=any b=any@20000-20001 c=any@1-20000").unwrap(),
        "20002 20001 20000"
    );
}

#[test]
fn next_fit_comes_round_and_a_block_may_reach_over_the_cursor() {
    let mut pool = fresh("20000-20005", Draw::NextFit);
    take(&mut pool, 0, "a=any:3").unwrap();
    pool.release(who(0), None);
    assert_eq!(chosen(&pool, "a=any").unwrap(), "20003");
    assert_eq!(chosen(&pool, "a=any:5").unwrap(), "20000-20004");
    take(&mut pool, 1, "a=any:3").unwrap();
    assert_eq!(chosen(&pool, "a=any").unwrap(), "20000");
}

#[test]
fn lowest_draws_the_same_number_again_and_random_repeats_with_its_seed() {
    let mut lowest = fresh("20000-20999", Draw::Lowest);
    take(&mut lowest, 0, "a=any").unwrap();
    lowest.release(who(0), None);
    assert_eq!(chosen(&lowest, "a=any").unwrap(), "20000");
    let drawn = |seed| {
        let mut pool = fresh("20000-20999", Draw::Random { seed });
        let draw = |index| take(&mut pool, index, "a=any").unwrap();
        (0..8).map(draw).collect::<Vec<_>>()
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    let mut rising = drawn(1);
    rising.sort();
    assert_ne!(drawn(1), rising, "it jumps");
}

#[test]
fn free_numbers_come_before_cooling_ones_and_the_lowest_cooling_run_is_taken() {
    let mut pool = fresh("20000-20005", Draw::NextFit);
    take(&mut pool, 0, "a=any:3/tcp+udp").unwrap();
    pool.release(who(0), Some(Monotonic::from_millis(9)));
    assert_eq!(chosen(&pool, "a=any:3/tcp+udp").unwrap(), "20003-20005");
    hold(&mut pool, 1, "x=20005/udp");
    assert_eq!(chosen(&pool, "a=any:3/tcp+udp").unwrap(), "20000-20002");
    assert_eq!(chosen(&pool, "a=any/tcp+udp").unwrap(), "20003");
    assert_eq!(chosen(&pool, "a=any@20000-20002").unwrap(), "20000");
}

#[test]
fn a_cooling_number_that_is_foreign_or_reserved_too_is_not_given() {
    let mut pool = fresh("20000-20001", Draw::NextFit);
    take(&mut pool, 0, "a=any:2").unwrap();
    pool.release(who(0), Some(Monotonic::from_millis(9)));
    let listener = Foreign {
        port: port(20_000),
        protocol: Protocol::Tcp,
        pid: None,
        comm: None,
    };
    pool.set_foreign(&[listener], &mut |_, _| {});
    pool.set_ranges(ranges("20000-20001", "1024-65535", "20001"), Draw::NextFit);
    for request in ["a=any", "a=20000", "a=20001"] {
        assert!(chosen(&pool, request).is_err(), "{request} was given");
    }
    pool.set_foreign(&[], &mut |_, _| {});
    assert_eq!(chosen(&pool, "a=20000").unwrap(), "20000");
}

#[test]
fn every_cause_against_a_request_is_told_once() {
    let mut pool = fresh("20000-20003", Draw::NextFit);
    hold(&mut pool, 7, "x=9100/tcp+udp y=20001");
    let why = chosen(
        &pool,
        "a=80 b=9100/tcp+udp c=any:4 d=any@20001 e=any@20001 f=any@1-1000",
    )
    .unwrap_err();
    let told: Vec<String> = why.iter().map(Why::to_string).collect();
    assert_eq!(
        told,
        [
            "port a: 80/tcp is NOT IN POOL",
            "port b: 9100/tcp is HELD by another service",
            "port b: 9100/udp is HELD by another service",
            "port c (tcp): NO BLOCK OF 4",
            "port f (tcp): NOT IN POOL",
            "port d (tcp): TOO FEW FREE (0 of 2)",
        ]
    );
    assert_eq!(why[1].cause, Cause::Held { by: who(7) });
}

#[test]
fn the_udp_side_costs_nothing_until_it_is_used() {
    let mut pool = fresh("20000-20003", Draw::NextFit);
    take(&mut pool, 0, "a=any:2").unwrap();
    assert!(pool.udp.is_none());
    assert_eq!(pool.free_count(Protocol::Udp), 4);
    assert_eq!(pool.free_count(Protocol::TcpUdp), 2);
    take(&mut pool, 1, "a=20003/udp").unwrap();
    assert_eq!(pool.free_count(Protocol::Udp), 3);
    assert_eq!(pool.free_count(Protocol::TcpUdp), 1);
    assert_eq!(pool.free_count(Protocol::Tcp), 2);
}

#[test]
fn the_last_port_of_all_can_be_held_cooled_and_given_again() {
    let mut pool = fresh("65534-65535", Draw::NextFit);
    assert_eq!(take(&mut pool, 0, "a=any:2").unwrap(), "65534-65535");
    let until = Monotonic::default() + Duration::from_secs(60);
    pool.release(who(0), Some(until));
    assert_eq!(pool.next_deadline(), Some(until));
    assert!(pool.end_due(until, &mut |_, _| {}));
    assert_eq!(pool.state(Side::Tcp, port(65_535)), super::PortState::Free);
    assert_eq!(chosen(&pool, "a=any:2").unwrap(), "65534-65535");
}

#[test]
fn too_few_numbers_are_refused_and_nothing_is_taken() {
    // ports 5, 12
    let mut pool = fresh("20000-20000", Draw::NextFit);
    let before = pool.clone();
    assert!(take(&mut pool, 0, "a=any b=any").is_err());
    assert_eq!(pool, before);
    assert_eq!(take(&mut pool, 0, "a=any").unwrap(), "20000");
    let mut pool = fresh("20000-20004", Draw::NextFit);
    hold(&mut pool, 0, "x=20000-20002");
    let before = pool.clone();
    let why = take(&mut pool, 1, "a=any b=any c=any").unwrap_err();
    assert_eq!(why[0].cause, Cause::TooFew { have: 2, want: 3 });
    assert_eq!(pool, before);
}

#[test]
fn a_block_is_found_as_well_between_scattered_numbers_as_beside_one_block() {
    // ports 15: the same words are looked at, whatever they hold; none is looked at twice.
    let ninety_percent = |held: &dyn Fn(u16) -> bool| {
        let mut pool = fresh("20000-29999", Draw::NextFit);
        let held = (20_000..30_000u16).filter(|number| held(*number));
        for (index, number) in (0..).zip(held) {
            hold(&mut pool, index, &format!("x={number}"));
        }
        pool
    };
    let block = ninety_percent(&|number| number < 29_000);
    let scattered = ninety_percent(&|number| number % 10 != 7);
    for pool in [&block, &scattered] {
        assert_eq!(pool.free_count(Protocol::Tcp), 1_000);
    }
    assert_eq!(chosen(&block, "a=any").unwrap(), "29000");
    assert_eq!(chosen(&scattered, "a=any").unwrap(), "20007");
    let why = chosen(&scattered, "a=any:2").unwrap_err();
    assert_eq!(why[0].cause, Cause::NoBlock { size: 2 });
}

#[test]
fn a_fragmented_set_has_no_block_until_a_release_joins_one() {
    // ports 22
    let mut pool = fresh("20000-20399", Draw::NextFit);
    for index in 0..100 {
        hold(&mut pool, index, &format!("x={}", 20_003 + 4 * index));
    }
    let why = chosen(&pool, "a=any:4").unwrap_err();
    assert_eq!(why[0].cause, Cause::NoBlock { size: 4 });
    assert_eq!(chosen(&pool, "a=any:3").unwrap(), "20000-20002");
    pool.release(who(10), None);
    assert_eq!(chosen(&pool, "a=any:4").unwrap(), "20040-20043");
    assert_eq!(chosen(&pool, "a=any:7").unwrap(), "20040-20046");
}

#[test]
fn a_block_may_be_longer_than_a_word_and_reach_over_several() {
    let mut pool = fresh("20000-20999", Draw::NextFit);
    hold(&mut pool, 0, "x=20100 y=20500");
    assert_eq!(chosen(&pool, "a=any:256").unwrap(), "20101-20356");
    hold(&mut pool, 1, "x=20356");
    assert_eq!(chosen(&pool, "a=any:256").unwrap(), "20501-20756");
    assert_eq!(
        chosen(&pool, "a=any:100 b=any:156").unwrap(),
        "20357-20456 20101-20256"
    );
}

#[test]
fn a_pair_takes_the_only_number_free_on_both_sides_and_frees_both() {
    // ports 23
    let mut pool = fresh("20000-20999", Draw::NextFit);
    for (index, number) in (0..).zip(20_000..21_000u16).filter(|(_, n)| *n != 20_500) {
        let side = if number % 2 == 0 { "udp" } else { "tcp" };
        hold(&mut pool, index, &format!("x={number}/{side}"));
    }
    assert_eq!(pool.free_count(Protocol::TcpUdp), 1);
    assert_eq!(take(&mut pool, 5_000, "a=any/tcp+udp").unwrap(), "20500");
    assert!(chosen(&pool, "a=any/tcp+udp").is_err());
    pool.release(who(5_000), None);
    assert_eq!(pool.free_count(Protocol::TcpUdp), 1);
}

#[test]
fn the_same_number_on_several_hosts_is_one_that_each_can_give() {
    let mut pools = [(); 3].map(|()| fresh("20000-20009", Draw::NextFit));
    hold(&mut pools[0], 0, "x=20000-20003");
    hold(&mut pools[1], 0, "x=20005");
    hold(&mut pools[2], 0, "x=20006-20007 y=20009");
    let request = ask("a=any b=9100");
    let nobody = Awaited::default();
    let ask = Ask {
        service: SERVICE,
        request: &request,
        former: None,
        awaited: [&nobody, &nobody],
        now: Monotonic::default(),
    };
    let mut choice = Choice::default();
    let mut taken = |pools: &mut [PortPool; 3], index| -> Result<Vec<String>, Why> {
        let asked = [0, 1, 2].map(|at: usize| (&pools[at], ask));
        let mut first = None;
        if !PortPool::choose_same(&asked, &mut choice, Causes::First(&mut first)) {
            return Err(first.unwrap());
        }
        let mut log = UndoLog::default();
        let each = pools.iter_mut().map(|pool| {
            pool.take(who(index), &request, &choice, &mut log);
            numbers(&pool.grant(who(index)).unwrap())
        });
        Ok(each.collect())
    };
    assert_eq!(taken(&mut pools, 1).unwrap(), ["20004 9100"; 3]);
    let why = taken(&mut pools, 2).unwrap_err();
    assert_eq!(why.cause, Cause::Held { by: who(1) });
    for pool in &mut pools {
        pool.release(who(1), Some(Monotonic::from_millis(9)));
    }
    assert_eq!(taken(&mut pools, 3).unwrap(), ["20008 9100"; 3]);
    for pool in &mut pools {
        pool.release(who(3), None);
    }
    hold(&mut pools[0], 4, "x=20008");
    // Nothing is free on all of them, and one number cools.
    assert_eq!(taken(&mut pools, 5).unwrap(), ["20004 9100"; 3]);
    let before = pools.clone();
    for pool in &mut pools {
        pool.release(who(5), None);
        hold(pool, 6, "x=20004");
    }
    let why = taken(&mut pools, 7).unwrap_err();
    assert_eq!(why.cause, Cause::TooFew { have: 0, want: 1 });
    assert_ne!(pools, before);
}

#[test]
fn a_fixed_number_that_cools_goes_to_its_service_at_once_and_to_others_later() {
    let mut pool = fresh("20000-20009", Draw::NextFit);
    take(&mut pool, 0, "a=9100").unwrap();
    pool.release(who(0), Some(Monotonic::from_millis(9_000)));
    let status = |pool: &PortPool| pool.fixed_status(Side::Tcp, port(9_100));
    assert_eq!(status(&pool), FixedStatus::CoolsFor(SERVICE));
    assert_eq!(chosen(&pool, "a=9100").unwrap(), "9100");
    let request = ask("a=9100");
    let nobody = Awaited::default();
    let ask = Ask {
        service: ServiceId(2),
        request: &request,
        former: None,
        awaited: [&nobody, &nobody],
        now: Monotonic::from_millis(1_000),
    };
    let mut first = None;
    assert!(!pool.choose(&ask, &mut Choice::default(), Causes::First(&mut first)));
    let left = Duration::from_secs(8);
    assert_eq!(first.unwrap().cause, Cause::Cooling { left });
    let mut changed = Vec::new();
    pool.end_due(Monotonic::from_millis(9_000), &mut |side, numbers| {
        changed.push((side, numbers.to_string()));
    });
    assert_eq!(changed, [(Side::Tcp, "9100".to_owned())]);
    assert_eq!(status(&pool), FixedStatus::Free);
}
