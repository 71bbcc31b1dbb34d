//! Who is told when there is room.

use crate::identity::{HostId, ReplicaId};

use super::testing::{ask, grant, hosts, replica, seconds};
use super::{AfterRelease, Allocator, HostState};

fn waits(world: &Allocator, who: ReplicaId, request: &str) {
    world.wait(who, None, &ask(request));
}

fn release(world: &Allocator, who: ReplicaId, at: u64) {
    world
        .confirm_release(who, seconds(at), AfterRelease::Free)
        .unwrap();
}

#[test]
fn one_free_number_wakes_the_one_that_waits_longest_for_it() {
    let world = hosts(1, "20000-20000");
    let holder = replica(1, 0, 0);
    grant(&world, 0, holder, "a=9100").unwrap();
    // By number the younger one would come first.
    let (older, younger) = (replica(9, 0, 0), replica(2, 0, 0));
    waits(&world, older, "a=9100");
    waits(&world, younger, "a=9100");
    assert_eq!(world.take_woken(seconds(0)), [], "no new room");
    release(&world, holder, 1);
    assert_eq!(world.take_woken(seconds(1)), [older]);
    assert_eq!(world.take_woken(seconds(1)), [], "told once");
    assert_eq!(world.stats().tentative, 0, "it reserves nothing");
    grant(&world, 0, older, "a=9100").unwrap();
    assert_eq!(world.take_woken(seconds(1)), [], "it is taken again");
    release(&world, older, 2);
    assert_eq!(world.take_woken(seconds(2)), [younger]);
}

#[test]
fn who_waits_for_alike_is_not_overtaken_and_others_are_not_held_up() {
    let world = hosts(1, "20000-20003");
    let holder = replica(1, 0, 0);
    grant(&world, 0, holder, "a=any:4 b=9100").unwrap();
    let (large, small, fixed) = (replica(2, 0, 0), replica(3, 0, 0), replica(4, 0, 0));
    waits(&world, large, "a=any:5");
    waits(&world, small, "a=any");
    waits(&world, fixed, "a=9100");
    release(&world, holder, 1);
    assert_eq!(
        world.take_woken(seconds(1)),
        [fixed],
        "the small one would overtake the large one"
    );
    world.stop_waiting(large);
    // Room by cooling, by a host that comes into service, by a number that nobody waits for any more.
    world.set_host_state(HostId(0), HostState::Drained).unwrap();
    world.set_host_state(HostId(0), HostState::Up).unwrap();
    assert_eq!(world.take_woken(seconds(1)), [small, fixed]);
}

#[test]
fn as_many_are_woken_as_there_is_room_for() {
    let world = hosts(2, "20000-20002");
    for host in 0..2 {
        grant(&world, host, replica(1, host, 0), "a=any:3").unwrap();
    }
    for index in 0..9 {
        waits(&world, replica(2, index, 0), "a=any:2");
    }
    world.wait(replica(3, 0, 0), Some(HostId(1)), &ask("a=any"));
    release(&world, replica(1, 0, 0), 1);
    release(&world, replica(1, 1, 0), 1);
    let woken = world.take_woken(seconds(1));
    assert_eq!(
        woken,
        [replica(2, 0, 0), replica(2, 1, 0), replica(3, 0, 0)]
    );
}

#[test]
fn asking_again_for_the_same_keeps_the_place_and_for_another_begins_anew() {
    let world = hosts(1, "20000-20000");
    let holder = replica(1, 0, 0);
    grant(&world, 0, holder, "a=any").unwrap();
    let (first, second) = (replica(2, 0, 0), replica(3, 0, 0));
    waits(&world, first, "a=any");
    waits(&world, second, "a=any");
    waits(&world, first, "a=any");
    release(&world, holder, 1);
    assert_eq!(world.take_woken(seconds(1)), [first]);
    waits(&world, first, "b=any");
    world.set_host_state(HostId(0), HostState::Lost).unwrap();
    world.set_host_state(HostId(0), HostState::Up).unwrap();
    assert_eq!(world.take_woken(seconds(1)), [second]);
    assert_eq!(world.stats().waiting, 2);
}
