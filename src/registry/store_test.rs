//! Durable before visible; a refused batch undoes itself; a start finds everything again.

use std::time::Duration;

use crate::endpoints::EndpointState;
use crate::supervision::Final;

use super::rig::{Rig, alice, exit, facts, name, submission, web, with_port};
use super::{
    Batch, Command, Effect, HostFacts, Input, LoadError, MemoryStore, Refusal, Store, Stored,
    Write, tables,
};

fn stop(service: &str) -> Command {
    Command::Stop {
        service: name(service),
    }
}

fn as_stored(writes: Vec<Write>) -> Stored {
    let mut store = MemoryStore::default();
    let number = super::BatchNumber(1);
    store.commit(&Batch { number, writes }).unwrap();
    store.load().unwrap()
}

#[test]
fn truth_is_shown_answered_and_ordered_only_when_it_is_durable() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.pass(Duration::from_secs(2));
    rig.slow = true;
    rig.effects.clear();
    let ticket = rig.ask_later(&alice(), submission(&web("web", 1), false));
    rig.settle();
    assert!(rig.with_store.is_some());
    assert!(rig.effects.is_empty(), "{:?}", rig.effects);
    assert!(rig.registry.view().services.is_empty());
    assert!(rig.orders("n1").is_empty());
    assert!(rig.ports("n1", &alice()).ports.is_empty());
    rig.land();
    assert!(rig.answers[&ticket].is_ok());
    // Published, answered and ordered, in this order; the placement came with the same batch.
    let [
        Effect::Publish { .. },
        Effect::Answer { .. },
        Effect::Order { .. },
    ] = &rig.effects[..]
    else {
        panic!("{:?}", rig.effects)
    };
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 run"]);
}

#[test]
fn endpoints_leave_before_the_stop_is_ordered() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig.effects.clear();
    rig.ask(stop("web")).unwrap();
    let place = |wanted: fn(&Effect) -> bool| rig.effects.iter().position(wanted).unwrap();
    let published = place(|it| matches!(it, Effect::Publish { .. }));
    let ordered = place(|it| matches!(it, Effect::Order { .. }));
    assert!(published < ordered);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Serving));
}

#[test]
fn news_is_shown_at_once_and_written_within_a_second() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.pass(Duration::from_secs(2));
    let commits = rig.commits;
    rig.ready("web", 0);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    assert_eq!(rig.commits, commits);
    rig.pass(Duration::from_millis(999));
    assert_eq!(rig.commits, commits);
    rig.pass(Duration::from_millis(1));
    assert_eq!(rig.commits, commits + 1);
    rig.pass(Duration::from_secs(3600));
    assert_eq!(rig.commits, commits + 1, "silence is the steady state");
}

#[test]
fn news_passes_while_a_batch_is_with_the_store() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.ready("web", 0);
    rig.slow = true;
    rig.ask_later(&alice(), stop("web"));
    rig.settle();
    rig.ready("web", 1);
    // Ready is news; that it shall stop is truth, and not yet durable.
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    assert_eq!(rig.condition("web", 1), Some(EndpointState::Ready));
    // A command waits for the batch, since that may still fail.
    let later = rig.ask_later(&alice(), stop("web"));
    assert!(!rig.answers.contains_key(&later));
    rig.land();
    assert_eq!(rig.condition("web", 1), Some(EndpointState::Serving));
    assert!(!rig.answers[&later].as_ref().unwrap().changed);
}

#[test]
fn a_thousand_equal_reports_have_no_effect() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.ready("web", 0);
    rig.ready("web", 1);
    rig.pass(Duration::from_secs(2));
    let same = rig.report("web", 0, |_| {});
    let known = rig.facts("n1");
    let mut status = known.replicas[0].clone();
    status.host = same.host;
    let (commits, revision) = (rig.commits, rig.registry.revision());
    rig.effects.clear();
    for _ in 0..1000 {
        rig.tell(Input::Status(status.clone()));
        rig.tell(Input::HostReport(known.clone()));
        rig.tell(Input::Lease {
            host: "n1".parse().unwrap(),
            skew_ms: None,
        });
    }
    assert!(rig.effects.is_empty(), "{:?}", rig.effects);
    assert_eq!((rig.commits, rig.registry.revision()), (commits, revision));
    assert_eq!(rig.registry.next_deadline(), None);
}

#[test]
fn a_lease_moves_only_when_the_host_was_last_seen() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.pass(Duration::from_secs(5));
    let before = rig.registry.view();
    rig.tell(Input::Lease {
        host: "n1".parse().unwrap(),
        skew_ms: None,
    });
    let host = "n1".parse().unwrap();
    let after = rig.registry.view();
    assert!(after.hosts[&host].last_seen > before.hosts[&host].last_seen);
    assert_eq!(after.revision, before.revision);
}

#[test]
fn a_refused_batch_leaves_everything_as_it_was_and_says_so() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(2));
    let before = rig.everything();
    let view = rig.registry.view();
    for command in [
        stop("web"),
        submission(&web("db", 3), false),
        submission(&web("web", 5), true),
        Command::Scale {
            service: name("web"),
            replicas: 0,
        },
        Command::Restart {
            service: name("web"),
            index: None,
        },
        Command::Kill {
            service: name("web"),
            index: 1,
        },
    ] {
        rig.store.failing_commits = 1;
        let text = format!("{command:?}");
        let refused = rig.ask(command).unwrap_err();
        assert!(matches!(refused, Refusal::NotStored { .. }), "{text}");
        assert_eq!(rig.everything(), before, "{text}");
        assert_eq!(rig.registry.view().services, view.services, "{text}");
        assert_eq!(rig.orders("n1"), ["web.alice 0 0 run", "web.alice 1 0 run"]);
    }
    // It heals by itself.
    assert!(rig.ask(stop("web")).unwrap().changed);
}

#[test]
fn an_end_that_could_not_be_stored_is_decided_again() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("web", 1, "8080")).unwrap();
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(2));
    rig.store.failing_commits = 3;
    rig.ends("web", 0, Final::Failed(exit(1)));
    // The news is out: nobody is sent there. The end is not: its ports stay held.
    assert_eq!(rig.condition("web", 0), Some(EndpointState::NotReady));
    assert_eq!(rig.replica("web", 0).job_state, "RUN");
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 run"]);
    rig.submit(&with_port("next", 1, "8080")).unwrap_err();
    rig.pass(Duration::from_secs(3));
    assert_eq!(rig.store.failing_commits, 0);
    assert_eq!(rig.replica("web", 0).job_state, "EXIT");
    assert_eq!(rig.orders("n1"), ["web.alice 0 0 forget"]);
    assert_eq!(rig.kinds("web").last().unwrap(), "failed");
}

#[test]
fn news_told_on_a_full_disk_is_written_later() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.pass(Duration::from_secs(2));
    rig.store.failing_commits = 2;
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(5));
    assert_eq!(rig.store.failing_commits, 0);
    let rig = rig.restart();
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
}

#[test]
fn a_start_finds_the_same_endpoints_ports_and_counts() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 2)).unwrap();
    rig.ready("web", 0);
    rig.status("web", 0, |status| status.restarts = 4);
    rig.ask(Command::Kill {
        service: name("web"),
        index: 1,
    })
    .unwrap();
    rig.pass(Duration::from_secs(2));
    let (table, revision, epoch) = (
        rig.table.clone(),
        rig.registry.revision(),
        rig.registry.epoch().to_owned(),
    );
    let services = rig.registry.view().services.clone();
    let orders = rig.orders("n1");
    let mut rig = rig.restart();
    assert_eq!(rig.table, table);
    assert_eq!(rig.orders("n1"), orders);
    assert_eq!(rig.registry.epoch(), epoch);
    assert!(rig.registry.revision() > revision);
    let view = rig.registry.view();
    for (name, before) in &services {
        let after = &view.services[name];
        assert_eq!(after.replicas, before.replicas);
        assert_eq!(after.profile, before.profile);
        assert!(after.revision > before.revision);
    }
    let host = &view.hosts[&"n1".parse().unwrap()];
    assert_eq!(host.state, "not reported");
    // The host tells the same: nothing is new but that it did.
    rig.effects.clear();
    rig.join("n1");
    assert!(
        !rig.effects
            .iter()
            .any(|it| matches!(it, Effect::Publish { .. }))
    );
    assert_eq!(
        rig.registry.view().hosts[&"n1".parse().unwrap()].state,
        "up"
    );
}

#[test]
fn a_host_tells_what_happened_while_the_controller_was_down() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(2));
    let report = rig.report("web", 0, |status| {
        status.restarts = 2;
        status.run = status.run.next();
    });
    let mut rig = rig.restart();
    rig.tell(Input::HostReport(HostFacts {
        replicas: vec![report],
        ..facts("n1")
    }));
    assert_eq!(rig.replica("web", 0).restarts, 2);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
}

#[test]
fn a_start_on_a_full_disk_shows_nothing_until_it_heals() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    for mut store in [MemoryStore::default(), rig.store] {
        store.failing_commits = 2;
        let had = store
            .clone()
            .load()
            .unwrap()
            .tables
            .contains_key("services");
        let mut rig = Rig::on(store);
        rig.join("n1");
        assert!(rig.effects.is_empty(), "{:?}", rig.effects);
        rig.pass(Duration::from_secs(2));
        assert_eq!(rig.store.failing_commits, 0);
        assert_eq!(!rig.table.is_empty(), had);
        assert_eq!(rig.registry.view().hosts.len(), 1);
        assert_eq!(rig.orders("n1").len(), usize::from(had));
    }
}

#[test]
fn damaged_and_newer_records_are_named() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let stored = as_stored(rig.everything());
    let load = |stored: &Stored| {
        super::Registry::load(super::Config::default(), stored, "e".into(), rig.now).map(|_| ())
    };
    load(&stored).unwrap();
    for table in tables::ALL {
        let mut damaged = stored.clone();
        let Some(records) = damaged.tables.get_mut(table) else {
            let empty = [
                tables::COOLING,
                tables::STRANDED,
                tables::PORT_HISTORY,
                tables::TOKENS,
            ];
            assert!(
                empty.contains(&table),
                "{table}: every other one has records here"
            );
            continue;
        };
        let key = records.keys().next().unwrap().clone();
        records.insert(key.clone(), b"{\"format\":1,\"record\":{}}".to_vec());
        let refused = load(&damaged).unwrap_err();
        assert!(
            matches!(&refused, LoadError::Damaged { table: t, key: k, .. } if t == table && *k == key),
            "{refused}"
        );
        let mut newer = stored.clone();
        let records = newer.tables.get_mut(table).unwrap();
        records.insert(key, b"{\"format\":2,\"record\":{}}".to_vec());
        let refused = load(&newer).unwrap_err();
        assert!(
            matches!(
                refused,
                LoadError::Newer {
                    found: 2,
                    known: 1,
                    ..
                }
            ),
            "{refused}"
        );
    }
    let mut orphan = stored.clone();
    orphan.tables.remove(tables::SERVICES);
    assert!(matches!(load(&orphan), Err(LoadError::Damaged { .. })));
    let mut homeless = stored;
    homeless.tables.remove(tables::HOSTS);
    assert!(matches!(load(&homeless), Err(LoadError::Damaged { .. })));
}

#[test]
fn events_are_bounded() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    for number in 0..600 {
        rig.ready("web", 0);
        rig.status("web", 0, |status| {
            // Each for another reason, or they would be one.
            status.not_ready_reason = Some(format!("answer {number}"));
            status.ready = false;
        });
    }
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.events("web").len(), 1000);
    assert_eq!(rig.restart().events("web").len(), 1000);
}

#[test]
fn contradicting_grants_are_kept_and_shown() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&with_port("a", 1, "8080")).unwrap();
    rig.submit(&with_port("b", 1, "9090")).unwrap();
    rig.pass(Duration::from_secs(2));
    // What no run of ours writes, but a damaged or doctored store may hold.
    for record in rig.store_table(tables::REPLICAS).values_mut() {
        let text = String::from_utf8(record.clone()).unwrap();
        *record = text.replace("9090", "8080").into_bytes();
    }
    let mut rig = rig.restart();
    assert_eq!(
        rig.registry.view().hosts[&"n1".parse().unwrap()].warnings,
        [
            "8080/tcp is recorded for a.alice replica 0 and b.alice replica 0; both keep it until both end"
        ]
    );
    rig.join("n1");
    assert_eq!(rig.states("a"), ["starting"]);
    assert_eq!(rig.states("b"), ["starting"]);
}
