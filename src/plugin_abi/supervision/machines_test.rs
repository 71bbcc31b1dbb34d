//! Ids of machines: never the same twice, one thread at a time, a defect is the end of one machine only.

use std::collections::BTreeSet;
use std::sync::Barrier;

use super::machines;
use super::worker_test::{PROFILE, Worker, event, try_load};
use crate::plugin_abi::caller_test::last_error;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::types::PrSupEvent;

#[test]
fn two_threads_in_one_machine_are_one_and_a_refusal() {
    let worker = Worker::new();
    let (inside, outside) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let code = machines::on(worker.sup, |_| {
                inside.wait();
                outside.wait();
                Ok(PR_OK)
            });
            assert_eq!(code, PR_OK);
        });
        inside.wait();
        assert_eq!(worker.event(0, event(PR_SE_START, 0)), PR_EBUSY);
        assert_eq!(worker.free(), PR_EBUSY);
        outside.wait();
    });
    assert_eq!(worker.after(0, event(PR_SE_START, 0)).len(), 1);
}

#[test]
fn a_caught_panic_is_the_end_of_its_machine_and_of_no_other() {
    let (broken, sound) = (Worker::new(), Worker::new());
    broken.after(5, event(PR_SE_START, 0));
    let state = broken.save();
    let code = machines::on(broken.sup, |_| panic!("a defect"));
    assert_eq!(code, PR_EPOISON);
    assert!(last_error().contains("a defect"), "{}", last_error());
    assert_eq!(broken.deadline(0), PR_EPOISON);
    assert_eq!(broken.event(5, event(PR_SE_STOP, 0)), PR_EPOISON);
    assert_eq!(sound.deadline(0), PR_OK);
    assert_eq!(broken.free(), PR_OK);
    assert_eq!(broken.deadline(0), PR_ESTALE);
    assert!(try_load(PROFILE, &state).is_ok());
}

#[test]
fn a_probe_and_its_result_allocate_nothing() {
    let worker = Worker::new();
    worker.after(0, event(PR_SE_START, 0));
    worker.after(0, event(PR_SE_SPAWNED, 1));
    let mut now = 0;
    let mut round = |result| {
        now += 5_000;
        assert_eq!(worker.deadline(now), PR_OK);
        let probe = worker.next_effect().unwrap();
        let result = PrSupEvent {
            probe_kind: probe.probe_kind,
            probe: probe.number,
            result,
            ..event(PR_SE_PROBE_RESULT, 1)
        };
        assert_eq!(worker.event(now, result), PR_OK);
        // An old one, which has no effect.
        assert_eq!(worker.event(now, result), PR_OK);
        while worker.next_effect().is_some() {}
        worker.next_deadline();
    };
    round(PR_SO_OK);
    let counted = allocation_counter::measure(|| {
        for turn in 0..1_000 {
            round(if turn % 3 == 0 {
                PR_SO_OK
            } else {
                PR_SO_TIMEOUT
            });
        }
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_reused_slot_never_answers_to_an_old_id() {
    // abi 13
    let first = Worker::new();
    assert_eq!(first.free(), PR_OK);
    let mut ids = BTreeSet::from([first.sup]);
    for _ in 0..300 {
        let worker = Worker::new();
        assert!(ids.insert(worker.sup), "an id was given twice");
        assert_eq!(first.deadline(0), PR_ESTALE);
        assert_eq!(worker.free(), PR_OK);
        assert_eq!(worker.free(), PR_ESTALE);
    }
}

#[test]
fn machines_are_made_and_ended_from_many_threads_at_once() {
    let made: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let ids = (0..100).map(|round| {
                        let worker = Worker::new();
                        assert_eq!(worker.after(round, event(PR_SE_START, 0)).len(), 1);
                        worker.sup
                    });
                    ids.collect()
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    });
    let ids: BTreeSet<_> = made.iter().flatten().collect();
    assert_eq!(ids.len(), 400, "an id was given twice");
}

#[test]
fn a_forked_child_is_told_that_the_machine_is_its_parents() {
    let worker = Worker::new();
    // SAFETY: the child makes one call that takes no lock and allocates nothing, then ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = worker.deadline(0);
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(code != PR_EFORK)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(worker.deadline(0), PR_OK);
}
