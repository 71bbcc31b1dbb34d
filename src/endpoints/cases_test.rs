//! The cases of the endpoint table, as far as the table decides them.

use std::sync::Arc;

use crate::endpoints::plain::{self, Plain, name};
use crate::endpoints::{EndpointTable, Listing, Snapshot};

/// One service of plain entries, the first `replicas` of them ready.
fn plain_table(replicas: u32) -> EndpointTable<Plain> {
    let table = EndpointTable::new("4f1c".to_owned(), 10);
    let all = (0..replicas).map(|key| Plain::ready(key, 0));
    table.publish(11, vec![plain::whole("web.alice", all.collect())], &[]);
    table
}

#[test]
fn the_older_incarnation_is_ignored_whatever_the_order() {
    // endpoints 27
    let table = plain_table(1);
    let of = |incarnation, mark| Plain {
        incarnation,
        ..Plain::ready(0, mark)
    };
    let put = |revision, entry| {
        table.publish(
            revision,
            vec![plain::parts("web.alice", vec![entry], vec![])],
            &[],
        )
    };
    assert!(put(12, of(4, 1)));
    assert!(!put(13, of(3, 2)));
    assert_eq!(
        table.read(&name("web.alice"), |it| it.entry(&0).unwrap().0.mark),
        Some(1)
    );
    assert_eq!(table.revision(), 12);
    // The same incarnation again is newer news; and what was taken away first may come back as it is.
    assert!(put(14, of(4, 3)));
    let again = plain::parts("web.alice", vec![of(0, 5)], vec![0]);
    assert!(table.publish(15, vec![again], &[]));
    assert_eq!(
        table.read(&name("web.alice"), |it| it.entry(&0).unwrap().0.mark),
        Some(5)
    );
}

#[test]
fn ready_not_ready_ready_in_one_batch_ends_right_and_in_one_version() {
    // endpoints 26
    let table = plain_table(2);
    let web = table.service(&name("web.alice")).unwrap();
    let flips = [Plain::not_ready(1, 1), Plain::ready(1, 2)];
    let updates = flips.map(|entry| plain::parts("web.alice", vec![entry], vec![]));
    assert!(table.publish(12, updates.to_vec(), &[]));
    let snapshot = web.snapshot();
    assert_eq!((snapshot.ready(), snapshot.mod_revision()), (2, 12));
    assert_eq!(snapshot.entry(&1), Some((&Plain::ready(1, 2), 12)));
    let changes = snapshot.changes_since(11, Listing::Ready).unwrap();
    assert_eq!(changes.upsert, [(&Plain::ready(1, 2), 12)]);
    // Back to where it was: a change that ended in none may be told, and is told right.
    let flips = [Plain::not_ready(1, 2), Plain::ready(1, 2)];
    let updates = flips.map(|entry| plain::parts("web.alice", vec![entry], vec![]));
    table.publish(13, updates.to_vec(), &[]);
    assert_eq!(web.snapshot().ready(), 2);
}

#[test]
fn of_two_replicas_of_a_host_only_the_failed_one_goes() {
    // endpoints 28: an entry is told by its replica, never by its address.
    let table = plain_table(2);
    let web = table.service(&name("web.alice")).unwrap();
    let gone = plain::parts("web.alice", vec![], vec![0]);
    assert!(table.publish(12, vec![gone], &[]));
    let snapshot = web.snapshot();
    let left: Vec<_> = snapshot.listed().map(|it| it.key).collect();
    assert_eq!(left, [1]);
    let changes = snapshot.changes_since(11, Listing::Ready).unwrap();
    assert_eq!((changes.upsert.len(), changes.remove), (0, vec![0]));
}

#[test]
fn a_batch_of_250_is_one_swap_and_one_wake() {
    // endpoints 29
    let table = plain_table(0);
    let web = table.service(&name("web.alice")).unwrap();
    let mut sleeper = web.subscribe();
    let all = (0..250).map(|key| plain::parts("web.alice", vec![Plain::ready(key, 1)], vec![]));
    let before = web.snapshot();
    assert!(table.publish(12, all.collect(), &[]));
    assert_eq!((before.ready(), web.snapshot().ready()), (0, 250));
    let mut polled = || {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        sleeper.poll_changed(&mut context)
    };
    assert_eq!(polled(), std::task::Poll::Ready(12));
    assert!(polled().is_pending());
}

#[test]
fn a_flip_copies_no_more_among_5000_than_among_50() {
    // endpoints 30
    let copied = |replicas: u32| {
        let table = plain_table(replicas);
        let mut revision = 11;
        let mut flip = |key: u32, mark| {
            revision += 1;
            let entry = Plain::not_ready(key, mark);
            table.publish(
                revision,
                vec![plain::parts("web.alice", vec![entry], vec![])],
                &[],
            );
        };
        // The log and the ring of retired versions fill up first.
        (0..200).for_each(|mark| flip(7, mark));
        let counted = allocation_counter::measure(|| (0..100).for_each(|mark| flip(33, mark)));
        (counted.bytes_total, counted.count_total)
    };
    let (small, big) = (copied(50), copied(5_000));
    assert!(
        big.0 <= 2 * small.0,
        "{} bytes among 50, {} among 5,000",
        small.0,
        big.0
    );
    assert!(
        big.1 <= 2 * small.1,
        "{} pieces among 50, {} among 5,000",
        small.1,
        big.1
    );
}

#[test]
fn a_reader_never_frees_a_big_version() {
    let table = plain_table(5_000);
    let web = table.service(&name("web.alice")).unwrap();
    let held = web.snapshot();
    for mark in 1..=4 {
        let entry = Plain::ready(3, mark);
        table.publish(
            11 + mark,
            vec![plain::parts("web.alice", vec![entry], vec![])],
            &[],
        );
    }
    assert_eq!(Arc::strong_count(&held), 2);
    let freed = allocation_counter::measure(|| drop(held));
    assert_eq!(freed.bytes_current, 0, "{freed:?}");
}

#[test]
fn of_a_removed_service_a_kept_handle_holds_no_old_version() {
    let table = plain_table(5_000);
    let web = table.service(&name("web.alice")).unwrap();
    let before = Arc::downgrade(&web.snapshot());
    let entry = Plain::ready(3, 1);
    table.publish(
        12,
        vec![plain::parts("web.alice", vec![entry], vec![])],
        &[],
    );
    assert!(before.upgrade().is_some());
    table.publish(13, Vec::new(), &[name("web.alice")]);
    assert!(before.upgrade().is_none());
    assert!(web.read(Snapshot::is_removed));
}

#[test]
fn what_is_removed_goes_whatever_the_same_batch_says_of_it() {
    let table = plain_table(1);
    let said = |service| plain::parts(service, vec![Plain::ready(7, 7)], vec![]);
    let updates = vec![said("web.alice"), said("new.alice")];
    let web = table.service(&name("web.alice")).unwrap();
    table.publish(12, updates, &[name("web.alice"), name("new.alice")]);
    assert!(web.read(|it| it.is_removed() && it.entries().len() == 0));
    assert!(table.services().is_empty());
    let told = |recent: Vec<(u64, Arc<_>)>| recent.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!(told(table.recent(11).unwrap().services), [12]);
    assert_eq!(
        table.removed_since(11),
        Some(vec![Arc::new(name("web.alice"))])
    );
    // Nothing was known of it: nothing is told.
    assert!(!table.publish(13, vec![said("new.alice")], &[name("new.alice")]));
    assert_eq!(table.revision(), 12);
}

#[test]
fn a_late_follower_is_told_the_difference_as_far_as_the_log_reaches() {
    let table = plain_table(500);
    let web = table.service(&name("web.alice")).unwrap();
    for revision in 12..=100 {
        let key = u32::try_from(revision).unwrap() * 3;
        let parts = match revision % 3 {
            0 => plain::parts("web.alice", vec![], vec![key]),
            1 => plain::parts("web.alice", vec![Plain::not_ready(key, 1)], vec![]),
            _ => plain::parts("web.alice", vec![Plain::ready(key, 1)], vec![]),
        };
        table.publish(revision, vec![parts], &[]);
    }
    let snapshot = web.snapshot();
    // As many changes again as are promised are forgotten by then, by the page.
    assert!(snapshot.changes_since(11, Listing::All).is_none());
    let all = snapshot.changes_since(100 - 64, Listing::All).unwrap();
    assert_eq!((all.upsert.len(), all.remove.len()), (43, 21));
    let ready = snapshot.changes_since(100 - 64, Listing::Ready).unwrap();
    assert_eq!(ready.upsert.len() + ready.remove.len(), 64);
    assert!(
        snapshot
            .changes_since(100, Listing::All)
            .unwrap()
            .is_empty()
    );
    assert!(
        snapshot
            .changes_since(u64::MAX, Listing::All)
            .unwrap()
            .is_empty()
    );
    // From before the service: the whole set.
    assert!(snapshot.changes_since(10, Listing::All).is_none());
}

#[test]
fn one_rendering_of_a_version_is_shared_and_the_next_version_has_its_own() {
    let table = plain_table(3);
    let web = table.service(&name("web.alice")).unwrap();
    let render = |of: &Snapshot<Plain>| Arc::from(of.mod_revision().to_string().as_bytes());
    let first = web.snapshot().rendered(render);
    let again = web
        .snapshot()
        .rendered(|_| unreachable!("it is rendered already"));
    assert!(Arc::ptr_eq(&first, &again));
    table.publish(
        12,
        vec![plain::parts(
            "web.alice",
            vec![Plain::not_ready(0, 1)],
            vec![],
        )],
        &[],
    );
    assert_eq!(*web.snapshot().rendered(render), *b"12");
}

#[test]
fn no_reader_waits_for_one_that_renders() {
    let table = plain_table(3);
    let snapshot = table.service(&name("web.alice")).unwrap().snapshot();
    let outer = snapshot.rendered(|of| {
        // Another reader while this one is at it.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| of.rendered(|_| Arc::from(*b"other")));
            assert_eq!(*other.join().unwrap(), *b"other");
        });
        Arc::from(*b"outer")
    });
    assert_eq!(*outer, *b"outer");
    assert_eq!(*snapshot.rendered(|_| unreachable!()), *b"other");
}

#[test]
fn removed_services_are_remembered_over_a_restart_and_forgotten_when_told() {
    let table = plain_table(1);
    assert_eq!(table.removed_since(9), None);
    assert_eq!(table.removed_since(10).unwrap().len(), 0);
    table.publish(12, vec![], &[name("web.alice")]);
    let names = |table: &EndpointTable<Plain>, since| {
        let removed = table.removed_since(since)?;
        Some(removed.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(names(&table, 11), Some(vec!["web.alice".to_owned()]));
    assert_eq!(names(&table, 12), Some(vec![]));
    let later = EndpointTable::<Plain>::new("4f1c".to_owned(), 2_000)
        .remembering(5, [(12, name("web.alice")), (15, name("db.bob"))]);
    assert_eq!(names(&later, 12), Some(vec!["db.bob".to_owned()]));
    assert_eq!(names(&later, 4), None);
    for revision in 2_001..2_200 {
        let service = format!("s{revision}.x");
        later.publish(revision, vec![plain::whole(&service, vec![])], &[]);
        later.publish(revision, vec![], &[name(&service)]);
    }
    later.forget_removed(2_150);
    assert_eq!(names(&later, 12), None);
    assert_eq!(names(&later, 2_150).map(|it| it.len()), Some(49));
}

#[test]
fn what_changed_lately_is_told_until_too_much_did() {
    let table = plain_table(1);
    let most = EndpointTable::<Plain>::MOST_RECENT as u64;
    assert!(table.recent(9).is_none());
    let flip = |revision| {
        let entry = Plain::ready(0, revision);
        table.publish(
            revision,
            vec![plain::parts("web.alice", vec![entry], vec![])],
            &[],
        );
    };
    (12..12 + most).for_each(flip);
    let told = table.recent(11).unwrap();
    assert_eq!(
        (told.revision, told.services.len() as u64),
        (11 + most, most)
    );
    (12 + most..12 + 3 * most).for_each(flip);
    assert!(table.recent(11).is_none());
    assert_eq!(table.recent(11 + 3 * most).unwrap().services.len(), 0);
}

#[test]
fn a_kept_reader_finds_what_appears_and_misses_what_went() {
    let table = plain_table(1);
    let mut reader = table.reader();
    assert_eq!(reader.read(&name("web.alice"), Snapshot::ready), Some(1));
    assert_eq!(reader.read(&name("db.bob"), Snapshot::ready), None);
    let appears = plain::whole("db.bob", vec![Plain::ready(0, 0)]);
    table.publish(12, vec![appears], &[name("web.alice")]);
    assert_eq!(reader.read(&name("db.bob"), Snapshot::ready), Some(1));
    assert_eq!(reader.read(&name("web.alice"), Snapshot::ready), None);
}

#[test]
fn what_no_answer_shows_is_no_change() {
    // endpoints 25, 31
    let table = plain_table(100);
    let web = table.service(&name("web.alice")).unwrap();
    let before = web.snapshot();
    let same = plain::parts("web.alice", vec![Plain::ready(5, 0)], vec![400]);
    assert!(!table.publish(12, vec![same], &[name("no.body")]));
    assert!(Arc::ptr_eq(&before, &web.snapshot()));
    let older = Plain {
        age: 9,
        ..Plain::ready(5, 0)
    };
    let aged = plain::parts("web.alice", vec![older], vec![]);
    assert!(!table.publish(12, vec![aged], &[]));
    assert_eq!(web.snapshot().entry(&5), Some((&older, 11)));
    assert_eq!(table.recent(11).unwrap().services.len(), 0);
    assert!(
        web.snapshot()
            .changes_since(11, Listing::All)
            .unwrap()
            .is_empty()
    );
}
