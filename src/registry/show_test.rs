//! What is shown when: windows, parts instead of wholes, what moves no revision.

use std::sync::Arc;
use std::time::Duration;

use crate::endpoints::{Change, Endpoint, EndpointState, EndpointTable, ServiceUpdate};
use crate::supervision::{Final, State};

use super::rig::{Rig, alice, config, facts, name, now, submission, web};
use super::windows::WITHDRAWN_WITHIN;
use super::{Allowance, Command, Config, Effect, HostFacts, Input, Limits, MemoryStore};

const WINDOW: Duration = Duration::from_millis(20);

/// A rig with this window and `web` on `n1`, quiet.
pub(super) fn gathering(coalesce: Duration, replicas: u32) -> Rig {
    let config = Config {
        coalesce,
        limits: Limits {
            user: Allowance::NO_LIMIT,
            ..Limits::default()
        },
        ..config()
    };
    let mut rig = Rig::at(MemoryStore::default(), now(0), config);
    rig.tell(Input::HostReport(HostFacts {
        dynamic: "20000-29999".parse().unwrap(),
        ..facts("n1")
    }));
    rig.submit(&web("web", replicas)).unwrap();
    rig.pass(Duration::from_secs(5));
    rig.effects.clear();
    rig
}

pub(super) fn turns(rig: &mut Rig, index: u32, ready: bool) {
    rig.status("web", index, |status| {
        (status.state, status.ready) = (State::Up, ready);
    });
}

/// The batches published since, each with its revision, and forgets them.
fn published(rig: &mut Rig) -> Vec<(u64, Vec<ServiceUpdate>)> {
    let effects = std::mem::take(&mut rig.effects).into_iter();
    let batches = effects.filter_map(|effect| match effect {
        Effect::Publish {
            revision, services, ..
        } => Some((revision, services)),
        _ => None,
    });
    batches.collect()
}

#[test]
fn the_first_change_after_quiet_is_shown_at_once_and_the_next_when_the_window_ends() {
    let mut rig = gathering(WINDOW, 3);
    turns(&mut rig, 0, true);
    assert_eq!(published(&mut rig).len(), 1);
    rig.pass(Duration::from_millis(5));
    turns(&mut rig, 1, true);
    turns(&mut rig, 2, true);
    assert_eq!(published(&mut rig).len(), 0);
    assert_eq!(rig.replica("web", 1).state, "starting", "views wait too");
    rig.pass(Duration::from_millis(14));
    assert_eq!(published(&mut rig).len(), 0);
    rig.pass(Duration::from_millis(1));
    let [(_, services)] = &published(&mut rig)[..] else {
        panic!("one batch at the end of the window")
    };
    let Change::Parts { upsert, remove } = &services[0].change else {
        panic!("{services:?}")
    };
    assert_eq!((upsert.len(), remove.len()), (2, 0));
    assert_eq!(rig.replica("web", 1).state, "ready");
}

// endpoints 26
#[test]
fn what_turns_back_within_a_window_ends_right_and_shows_nothing_of_it() {
    let mut rig = gathering(WINDOW, 2);
    turns(&mut rig, 0, true);
    turns(&mut rig, 1, true);
    rig.pass(WINDOW);
    let revision = rig.registry.revision();
    turns(&mut rig, 0, false);
    turns(&mut rig, 0, true);
    rig.pass(WINDOW);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    assert!(rig.registry.revision() > revision);
    // And wholly inside one.
    turns(&mut rig, 1, false);
    rig.pass(Duration::from_millis(1));
    published(&mut rig);
    turns(&mut rig, 0, false);
    turns(&mut rig, 0, true);
    turns(&mut rig, 1, true);
    rig.pass(WINDOW);
    assert_eq!(published(&mut rig).len(), 1);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    assert_eq!(rig.condition("web", 1), Some(EndpointState::Ready));
    assert_eq!(rig.registry.next_deadline().map(|_| ()), Some(()), "news");
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.registry.next_deadline(), None);
}

#[test]
fn a_withdrawal_waits_20_ms_at_most_in_a_window_of_a_second() {
    let mut rig = gathering(Duration::from_secs(1), 3);
    turns(&mut rig, 0, true);
    turns(&mut rig, 1, true);
    rig.pass(Duration::from_secs(1));
    published(&mut rig);
    turns(&mut rig, 2, true);
    rig.pass(Duration::from_millis(10));
    published(&mut rig);
    turns(&mut rig, 2, true);
    turns(&mut rig, 0, false);
    rig.pass(Duration::from_millis(10));
    // A later one does not put the first off.
    turns(&mut rig, 1, false);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    rig.pass(Duration::from_millis(10));
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
    assert_eq!(rig.condition("web", 1), Some(EndpointState::NotReady));
    assert_eq!(published(&mut rig).len(), 1);
    // To come back is no withdrawal.
    turns(&mut rig, 0, true);
    rig.pass(Duration::from_millis(970));
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
    rig.pass(Duration::from_millis(30));
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
}

// Whatever else is told of the service in the same round, such as why another replica of it has no place.
#[test]
fn a_withdrawal_among_other_news_of_the_service_waits_no_longer() {
    let mut rig = gathering(Duration::from_secs(1), 2);
    let id = rig.registry.names[&name("web")];
    turns(&mut rig, 0, true);
    rig.pass(Duration::from_secs(1));
    // Opens a window.
    turns(&mut rig, 1, true);
    rig.pass(Duration::from_millis(10));
    let report = rig.report("web", 0, |status| status.ready = false);
    rig.take(Input::Status(report));
    rig.registry.shown.news.insert(id);
    rig.settle();
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    rig.pass(WITHDRAWN_WITHIN);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
}

#[test]
fn a_look_at_a_whole_service_that_finds_nothing_new_moves_no_revision() {
    let mut rig = gathering(WINDOW, 2);
    turns(&mut rig, 0, true);
    rig.pass(Duration::from_secs(2));
    published(&mut rig);
    let id = rig.registry.names[&name("web")];
    let (revision, view) = (rig.registry.revision(), rig.registry.view());
    rig.registry.shown.news.insert(id);
    rig.settle();
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.registry.revision(), revision);
    assert!(Arc::ptr_eq(&view, &rig.registry.view()));
    assert!(published(&mut rig).is_empty());
}

#[test]
fn a_withdrawal_is_shown_while_a_batch_is_with_a_slow_store() {
    let mut rig = gathering(WINDOW, 2);
    turns(&mut rig, 0, true);
    rig.pass(WINDOW);
    rig.slow = true;
    rig.ask_later(&alice(), submission(&web("other", 1), false));
    rig.settle();
    turns(&mut rig, 1, true);
    turns(&mut rig, 0, false);
    rig.pass(WINDOW);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
}

#[test]
fn an_order_to_stop_is_shown_before_it_is_given_whatever_the_window_holds() {
    let mut rig = gathering(Duration::from_secs(1), 2);
    turns(&mut rig, 0, true);
    turns(&mut rig, 1, true);
    rig.effects.clear();
    let service = name("web");
    rig.ask(Command::Stop { service }).unwrap();
    let place = |wanted: fn(&Effect) -> bool| rig.effects.iter().position(wanted).unwrap();
    let shown = place(|it| matches!(it, Effect::Publish { .. }));
    assert!(shown < place(|it| matches!(it, Effect::Answer { .. })));
    assert!(shown < place(|it| matches!(it, Effect::Order { .. })));
    for index in 0..2 {
        // The news that was held came with it.
        assert_eq!(rig.condition("web", index), Some(EndpointState::Serving));
    }
    published(&mut rig);
    rig.pass(Duration::from_secs(1));
    assert!(published(&mut rig).is_empty(), "nothing was left behind");
}

// endpoints 22
#[test]
fn a_replica_that_drains_serves_for_as_long_as_its_worker_says() {
    let mut rig = gathering(WINDOW, 2);
    turns(&mut rig, 0, true);
    let service = name("web");
    rig.ask(Command::Stop { service }).unwrap();
    for (serving, shown) in [
        (true, EndpointState::Serving),
        (false, EndpointState::Terminating),
    ] {
        rig.pass(Duration::from_secs(1));
        rig.status("web", 0, |status| {
            (status.state, status.ready) = (State::Stopping, false);
            status.serving = serving;
        });
        assert_eq!(rig.condition("web", 0), Some(shown));
        assert_eq!(rig.condition("web", 1), Some(EndpointState::Terminating));
    }
}

#[test]
fn one_service_does_not_wait_for_the_window_of_another() {
    let mut rig = gathering(WINDOW, 1);
    rig.submit(&web("other", 1)).unwrap();
    rig.pass(Duration::from_secs(5));
    turns(&mut rig, 0, true);
    rig.pass(Duration::from_millis(5));
    rig.ready("other", 0);
    assert_eq!(rig.condition("other", 0), Some(EndpointState::Ready));
}

// endpoints 29
#[test]
fn reports_of_250_replicas_make_one_batch_per_window_and_never_a_torn_one() {
    let mut rig = gathering(WINDOW, 250);
    for index in 0..250 {
        let report = rig.report("web", index, |status| {
            (status.state, status.ready) = (State::Up, true);
        });
        rig.take(Input::Status(report));
    }
    rig.settle();
    let [(_, services)] = &published(&mut rig)[..] else {
        panic!("one batch")
    };
    assert!(matches!(&services[0].change, Change::Parts { upsert, .. } if upsert.len() == 250));
    // Told one by one over 25 windows.
    rig.pass(Duration::from_secs(1));
    for index in 0..250 {
        turns(&mut rig, index, false);
        rig.pass(Duration::from_millis(2));
    }
    rig.pass(WINDOW);
    let batches = published(&mut rig).len();
    assert!((25..=27).contains(&batches), "{batches}");
    let set = &rig.table[&name("web")].endpoints;
    assert!(set.iter().all(|it| it.state == EndpointState::NotReady));
}

// endpoints 30: whatever else the service has, a flip is told and shown as one part.
#[test]
fn one_flip_of_many_publishes_one_endpoint_and_copies_no_other_replica() {
    let mut rig = gathering(Duration::ZERO, 500);
    for index in 0..500 {
        turns(&mut rig, index, true);
    }
    let before = rig.registry.view();
    published(&mut rig);
    turns(&mut rig, 250, false);
    let [(_, services)] = &published(&mut rig)[..] else {
        panic!("one batch")
    };
    let Change::Parts { upsert, remove } = &services[0].change else {
        panic!("{services:?}")
    };
    assert_eq!((upsert.len(), upsert[0].replica), (1, 250));
    assert!(remove.is_empty());
    let after = rig.registry.view();
    let web = name("web");
    let (before, after) = (&before.services[&web], &after.services[&web]);
    assert_eq!((before.ready, after.ready), (500, 499));
    assert!(Arc::ptr_eq(&before.profile, &after.profile));
    let replicas = before.replicas.iter().zip(after.replicas.iter());
    let copied = replicas.filter(|(a, b)| !std::ptr::eq(*a, *b)).count();
    assert_eq!(copied, 1);
}

// endpoints 30: from what the host tells to what readers find.
#[test]
fn a_flip_costs_no_more_among_5000_than_among_50_all_the_way_to_the_table() {
    let spent = |replicas: u32| {
        let mut rig = gathering(Duration::ZERO, replicas);
        let table = EndpointTable::<Endpoint>::new("epoch".to_owned(), 0);
        let whole = rig.table[&name("web")].clone();
        table.publish(rig.registry.revision(), vec![whole.into()], &[]);
        let mut flip = |turn: u64| {
            let report = rig.report("web", 33, |status| {
                (status.state, status.ready) = (State::Up, turn.is_multiple_of(2));
            });
            // As the driver has it: it keeps the view that it made last until the next is there.
            let view = rig.registry.view();
            let mut out = Vec::new();
            rig.registry
                .handle(rig.now, Input::Status(report), &mut out);
            rig.registry.flush(rig.now, &mut out);
            drop(view);
            let shown = out.into_iter().filter_map(|effect| match effect {
                Effect::Publish {
                    revision, services, ..
                } => Some(table.publish(revision, services, &[])),
                _ => None,
            });
            assert!(shown.eq([true]), "turn {turn}");
        };
        // What is retired and remembered of the past fills up first.
        (0..100).for_each(&mut flip);
        let counted = allocation_counter::measure(|| (100..200).for_each(&mut flip));
        (counted.bytes_total, counted.count_total)
    };
    let (small, big) = (spent(50), spent(5_000));
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
fn membership_comes_as_parts_and_a_start_publishes_wholes() {
    let mut rig = gathering(Duration::ZERO, 3);
    let scale = |replicas| Command::Scale {
        service: name("web"),
        replicas,
    };
    rig.ask(scale(4)).unwrap();
    let [(_, services), ..] = &published(&mut rig)[..] else {
        panic!("one batch")
    };
    assert!(matches!(&services[0].change, Change::Parts { upsert, .. } if upsert.len() == 1));
    rig.ask(scale(3)).unwrap();
    rig.ends("web", 3, Final::Stopped);
    let batches = published(&mut rig);
    let (_, services) = batches.last().unwrap();
    assert!(matches!(&services[0].change, Change::Parts { remove, .. } if remove == &[3]));
    let mut rig = rig.restart();
    let [(_, services)] = &published(&mut rig)[..] else {
        panic!("one batch")
    };
    assert!(matches!(&services[0].change, Change::Whole(all) if all.len() == 3));
}

// endpoints 28
#[test]
fn of_two_replicas_on_one_host_only_the_one_that_fails_leaves_the_list() {
    let mut rig = gathering(WINDOW, 2);
    turns(&mut rig, 0, true);
    turns(&mut rig, 1, true);
    rig.pass(Duration::from_secs(1));
    let ports = |rig: &Rig| {
        let listed = rig.table[&name("web")].endpoints.iter();
        let listed = listed.filter(|it| it.state.is_listed());
        let ports = listed.map(|it| it.ports[0].numbers.first().number());
        ports.collect::<Vec<u16>>()
    };
    let [_, second] = ports(&rig)[..] else {
        panic!("both are listed")
    };
    published(&mut rig);
    rig.status("web", 0, |status| {
        (status.state, status.ready) = (State::Backoff, false);
    });
    assert_eq!(ports(&rig), [second]);
    let [(_, services)] = &published(&mut rig)[..] else {
        panic!("one batch")
    };
    assert!(
        matches!(&services[0].change, Change::Parts { upsert, remove }
        if upsert.len() == 1 && upsert[0].replica == 0 && remove.is_empty())
    );
}

// endpoints 33
#[test]
fn an_agent_that_starts_again_and_tells_the_same_moves_no_revision() {
    let mut rig = gathering(WINDOW, 2);
    turns(&mut rig, 0, true);
    turns(&mut rig, 1, true);
    rig.pass(Duration::from_secs(2));
    published(&mut rig);
    let (revision, commits) = (rig.registry.revision(), rig.commits);
    let told = rig.facts("n1");
    rig.pass(Duration::from_secs(20));
    rig.tell(Input::HostReport(told));
    rig.pass(Duration::from_secs(2));
    assert_eq!((rig.registry.revision(), rig.commits), (revision, commits));
    assert!(published(&mut rig).is_empty());
}

// endpoints 31
#[test]
fn what_no_answer_shows_moves_no_revision_and_publishes_nothing() {
    let mut rig = gathering(WINDOW, 1);
    turns(&mut rig, 0, true);
    rig.pass(Duration::from_secs(2));
    published(&mut rig);
    let (revision, view) = (rig.registry.revision(), rig.registry.view());
    // A newer status that says the same.
    for _ in 0..100 {
        turns(&mut rig, 0, true);
        rig.pass(Duration::from_millis(100));
    }
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.registry.revision(), revision);
    assert!(Arc::ptr_eq(&view, &rig.registry.view()));
    assert!(published(&mut rig).is_empty());
}

// endpoints 27
#[test]
fn the_highest_incarnation_run_and_number_win_whatever_the_order() {
    let reports = |rig: &mut Rig| {
        let mut all = Vec::new();
        for (run, seq, ready) in [(1, 7, true), (1, 6, false), (2, 1, false), (2, 2, true)] {
            let report = rig.report("web", 0, |status| {
                status.run = crate::identity::Run(run);
                (status.seq, status.state, status.ready) = (seq, State::Up, ready);
            });
            all.push(report);
        }
        all
    };
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]];
    for order in orders {
        let mut rig = gathering(Duration::ZERO, 1);
        let all = reports(&mut rig);
        for at in order {
            rig.tell(Input::Status(all[at].clone()));
        }
        assert_eq!(rig.replica("web", 0).run.0, 2, "{order:?}");
        assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
        // Each of them once more, and one of an incarnation that is not placed.
        rig.pass(Duration::from_secs(2));
        let (revision, commits) = (rig.registry.revision(), rig.commits);
        published(&mut rig);
        for report in &all {
            rig.tell(Input::Status(report.clone()));
            let mut stranger = report.clone();
            stranger.incarnation.0 += 3;
            stranger.status.seq = 100;
            stranger.status.ready = false;
            rig.tell(Input::Status(stranger));
        }
        assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
        assert!(published(&mut rig).is_empty());
        rig.pass(Duration::from_secs(2));
        // The unknown incarnation is warned of with its host, which is no change of the service.
        let view = &rig.registry.view().services[&name("web")];
        assert!(view.revision <= revision, "{order:?}");
        assert_eq!(rig.commits, commits);
    }
}

#[test]
fn rights_move_when_who_may_see_a_service_changes_and_not_otherwise() {
    let mut rig = gathering(Duration::ZERO, 1);
    let rights = |rig: &Rig| rig.registry.view().rights;
    let before = rights(&rig);
    turns(&mut rig, 0, true);
    rig.submit(&web("other", 1)).unwrap();
    rig.replace(&web("other", 2)).unwrap();
    assert_eq!(rights(&rig), before);
    let shared = format!("visibility = \"cluster\"\n{}", web("other", 2));
    rig.replace(&shared).unwrap();
    assert!(rights(&rig) > before);
    // A start knows it, exactly or, killed within the second, not below it.
    let (shown, store) = (rights(&rig), rig.store.clone());
    let killed = Rig::at(store, now(0), config());
    assert!(rights(&killed) >= shown && rights(&killed) <= killed.registry.revision());
    rig.pass(Duration::from_secs(2));
    assert_eq!(rights(&rig.restart()), shown);
}
