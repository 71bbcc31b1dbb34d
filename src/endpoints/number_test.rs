use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use super::*;

/// Counts how often it was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn woken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll(sleeper: &mut Watcher, count: &Arc<Count>) -> Poll<u64> {
    let waker = Waker::from(Arc::clone(count));
    sleeper.poll_changed(&mut Context::from_waker(&waker))
}

fn beds(number: &Number) -> usize {
    number
        .asleep
        .hold(|asleep| asleep.beds.iter().flatten().count())
}

#[test]
fn ten_thousand_sleepers_are_woken_once_each_for_any_number_of_moves() {
    const SLEEPERS: usize = 10_000;
    let number = Number::new(1);
    let count = Arc::new(Count::default());
    let mut sleepers: Vec<_> = (0..SLEEPERS).map(|_| number.subscribe()).collect();
    for sleeper in &mut sleepers {
        assert!(poll(sleeper, &count).is_pending());
    }
    for value in 2..10 {
        number.move_to(value);
    }
    assert_eq!(count.woken(), SLEEPERS);
    for sleeper in &mut sleepers {
        assert_eq!(poll(sleeper, &count), Poll::Ready(9));
        assert!(poll(sleeper, &count).is_pending());
    }
    number.move_to(10);
    assert_eq!(count.woken(), 2 * SLEEPERS);
}

#[test]
fn who_comes_late_finds_the_number_that_moved_while_nobody_slept() {
    let number = Number::new(1);
    number.move_to(2);
    let mut sleeper = number.subscribe();
    assert_eq!((sleeper.number(), sleeper.has_changed()), (2, false));
    assert!(poll(&mut sleeper, &Arc::default()).is_pending());
}

#[test]
fn a_sleeper_polled_again_is_woken_through_its_newest_waker_alone() {
    let number = Number::new(1);
    let mut sleeper = number.subscribe();
    let (old, new) = (Arc::new(Count::default()), Arc::new(Count::default()));
    assert!(poll(&mut sleeper, &old).is_pending());
    assert!(poll(&mut sleeper, &new).is_pending());
    assert_eq!(beds(&number), 1);
    number.move_to(2);
    assert_eq!((old.woken(), new.woken()), (0, 1));
}

#[test]
fn who_leaves_early_leaves_nothing_behind() {
    let number = Number::new(1);
    let count = Arc::new(Count::default());
    // Long polls that end by time, on a service that never changes.
    for _ in 0..1_000 {
        let mut sleeper = number.subscribe();
        assert!(poll(&mut sleeper, &count).is_pending());
    }
    assert_eq!(beds(&number), 0);
    assert_eq!(number.asleep.hold(|asleep| asleep.beds.len()), 1);
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn a_bed_of_an_earlier_night_is_somebody_elses_by_now() {
    let number = Number::new(1);
    let (mut first, mut second) = (number.subscribe(), number.subscribe());
    let (old, new) = (Arc::new(Count::default()), Arc::new(Count::default()));
    assert!(poll(&mut first, &old).is_pending());
    number.move_to(2);
    second.mark_unchanged();
    assert!(poll(&mut second, &new).is_pending());
    // The first never looked again; that it leaves must not take the other's waker.
    drop(first);
    number.move_to(3);
    assert_eq!((old.woken(), new.woken()), (1, 1));
}

#[test]
fn a_copy_of_a_sleeper_sleeps_on_its_own() {
    let number = Number::new(1);
    let mut one = number.subscribe();
    let count = Arc::new(Count::default());
    assert!(poll(&mut one, &count).is_pending());
    let mut copy = one.clone();
    drop(one);
    assert!(poll(&mut copy, &count).is_pending());
    number.move_to(2);
    assert_eq!(count.woken(), 1);
}
