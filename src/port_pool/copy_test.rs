//! What is tried on a copy can be taken back, and the next copy is written over it.

use allocation_counter::measure;
use proptest::prelude::*;

use crate::identity::ReplicaId;
use crate::time::Monotonic;

use super::agreement_test::{World, replica, request, world};
use super::testing::ask;
use super::{Causes, Choice, Listing, Phase, PortPool, PortRequest, UndoLog};

/// What a what-if tries.
#[derive(Clone, Debug)]
enum Try {
    Take(ReplicaId, PortRequest),
    Give(ReplicaId, Option<u64>),
}

fn tries() -> impl Strategy<Value = Vec<Try>> {
    let one = prop_oneof![
        (replica(), request()).prop_map(|(who, request)| Try::Take(who, request)),
        (replica(), proptest::option::of(1u64..9)).prop_map(|(who, cool)| Try::Give(who, cool)),
    ];
    proptest::collection::vec(one, 0..12)
}

/// Tries one thing; whether anything came of it.
fn attempt(world: &mut World, what: &Try, log: &mut UndoLog) -> bool {
    match what {
        Try::Take(who, request) => world.take(*who, request, log),
        Try::Give(who, cool) => {
            let until = cool.map(|ms| Monotonic::from_millis(world.now + ms));
            world.pool.give_back(*who, until, log).is_some()
        }
    }
}

proptest! {
    #[test]
    fn what_was_taken_and_given_is_taken_back_step_by_step(world in world(), tries in tries()) {
        let mut world = world;
        let mut log = UndoLog::default();
        let mut before = vec![(world.pool.clone(), world.pool.free_bytes())];
        for what in &tries {
            if attempt(&mut world, what, &mut log) {
                before.push((world.pool.clone(), world.pool.free_bytes()));
            }
        }
        prop_assert_eq!(log.len() + 1, before.len());
        while let Some((pool, free)) = before.pop() {
            prop_assert_eq!(&world.pool, &pool);
            prop_assert_eq!(world.pool.free_bytes(), free);
            world.pool.assert_consistent();
            prop_assert_eq!(world.pool.undo(&mut log).is_some(), !before.is_empty());
        }
    }

    #[test]
    fn what_was_given_leaves_what_a_release_would(world in world(), who in replica(), cool in proptest::option::of(1u64..9)) {
        let (mut given, mut released) = (world.clone(), world);
        let until = cool.map(|ms| Monotonic::from_millis(given.now + ms));
        let count = given.pool.give_back(who, until, &mut UndoLog::default());
        prop_assert_eq!(count, released.pool.release(who, until));
        prop_assert_eq!(given.pool.has_holders(), released.pool.has_holders());
        prop_assert_eq!(given.pool, released.pool);
    }

    #[test]
    fn a_list_shows_nothing_of_what_a_transaction_took(world in world(), takes in proptest::collection::vec((replica(), request()), 1..6)) {
        let before = world.pool.listed();
        let mut world = world;
        let mut log = UndoLog::default();
        for (who, request) in &takes {
            world.take(*who, request, &mut log);
        }
        let mut listing = Listing::default();
        world.pool.list(&mut listing, &log, |_| true);
        prop_assert_eq!(listing.entries, before);
    }

    #[test]
    fn a_copy_over_another_pool_is_the_same_pool(
        worlds in proptest::collection::vec(world(), 2..5), request in request(), tries in tries(), who in replica()
    ) {
        let mut copy = PortPool::default();
        let mut log = UndoLog::default();
        for mut world in worlds {
            copy.clone_from(&world.pool);
            prop_assert_eq!(&copy, &world.pool);
            copy.assert_consistent();
            prop_assert_eq!(copy.listed(), world.pool.listed());
            // Both answer alike, and go on alike.
            let mut twin = world.clone();
            twin.pool = copy;
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let fits = |world: &World, why| {
                let ask = world.ask(who.service.0, &request);
                world.pool.choose(&ask, &mut Choice::default(), Causes::All(why))
            };
            prop_assert_eq!(fits(&twin, &mut ours), fits(&world, &mut theirs));
            prop_assert_eq!(ours, theirs);
            for what in &tries {
                let done = attempt(&mut twin, what, &mut log);
                prop_assert_eq!(attempt(&mut world, what, &mut UndoLog::default()), done);
            }
            prop_assert_eq!(&twin.pool, &world.pool);
            copy = twin.pool;
        }
    }
}

#[test]
fn what_is_tried_on_a_warm_copy_allocates_nothing() {
    let mut world = World::of_few_numbers();
    let mut log = UndoLog::default();
    let requests = [
        ask("a=any b=any/udp"),
        ask("a=any c=any/tcp+udp d=130"),
        ask("a=any b=any c=any d=any e=any f=any:2"),
    ];
    let held: Vec<ReplicaId> = (0..3).map(World::someone).collect();
    for (who, request) in held.iter().zip(&requests) {
        assert!(world.take(*who, request, &mut log));
        world.pool.set_phase(*who, Phase::Held);
    }
    let late = requests.clone();
    let mut room = World::of_few_numbers();
    let (mut choice, mut log) = (Choice::default(), UndoLog::default());
    let mut turn = || {
        room.pool.clone_from(&world.pool);
        for who in &held {
            let until = Some(Monotonic::from_millis(9));
            assert!(room.pool.give_back(*who, until, &mut log).is_some());
        }
        for (who, request) in (10..).map(World::someone).zip(&late) {
            let ask = world.ask(who.service.0, request);
            assert!(room.pool.choose(&ask, &mut choice, Causes::Untold));
            room.pool.take(who, request, &choice, &mut log);
        }
        while room.pool.undo(&mut log).is_some() {}
    };
    turn();
    turn();
    let counted = measure(|| (0..100).for_each(|_| turn()));
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert_eq!(room.pool, world.pool);
}
