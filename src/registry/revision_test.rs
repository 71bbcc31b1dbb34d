//! Revisions only rise, below what is durable, on a line whose name tells restarts from copies.

use std::time::Duration;

use crate::endpoints::EndpointState;
use crate::supervision::State;
use crate::time::{Monotonic, Now, WallClock};

use super::rig::{Rig, web};
use super::{Effect, Store, tables};

#[test]
fn revisions_stay_below_the_durable_ceiling_and_above_every_former_one() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let ceiling = rig.registry.shown.ceiling;
    assert!(rig.registry.revision() < ceiling);
    // As if a million revisions had passed.
    rig.registry.shown.revision = ceiling - 2;
    rig.store.failing_commits = 1;
    rig.ready("web", 0);
    assert!(rig.registry.revision() < ceiling);
    rig.pass(Duration::from_secs(2));
    assert!(rig.registry.shown.ceiling > ceiling);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
    let last = rig.registry.revision();
    let rig = rig.restart();
    assert!(rig.registry.revision() > last);
}

/// A start on what `rig` left, at another time of the clock for people.
fn started_at(rig: Rig, wall: u64) -> Rig {
    let at = Now {
        mono: Monotonic::from_millis(5),
        wall: WallClock::from_unix_millis(wall),
    };
    Rig::at(rig.store, at, rig.registry.config)
}

// endpoints.md 3.3
#[test]
fn revisions_never_go_back_whatever_the_clock_says_at_a_start() {
    const YEAR: u64 = 365 * 86_400_000;
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    let wall = rig.now.wall.as_unix_millis();
    let mut last = rig.registry.revision();
    for clock in [wall - YEAR, 0, wall, u64::MAX / 2, wall + YEAR, wall - YEAR] {
        rig = started_at(rig, clock);
        rig.join("n1");
        rig.effects.clear();
        rig.ready("web", 0);
        rig.status("web", 0, |status| status.restarts += 1);
        let before = last;
        for effect in &rig.effects {
            if let Effect::Publish { revision, .. } = effect {
                assert!(*revision > last, "{revision} after {last} at {clock}");
                assert!(*revision < 1 << 53);
                last = *revision;
            }
        }
        assert!(last > before, "something was published");
        assert_eq!(rig.registry.epoch(), "epoch");
        rig.pass(Duration::from_secs(2));
    }
}

// endpoints.md 3.3: no number passes a ceiling that is not on disk, and what waits for one is not lost.
#[test]
fn on_a_full_disk_revisions_stop_below_the_ceiling_and_go_on_after_it() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.pass(Duration::from_secs(2));
    let ceiling = rig.registry.shown.ceiling;
    rig.registry.shown.revision = ceiling - 4;
    rig.store.failing_commits = 30;
    for run in 0..20 {
        rig.status("web", 0, |status| {
            (status.state, status.ready) = (State::Up, run % 2 == 0);
        });
        rig.pass(Duration::from_secs(1));
        assert!(rig.registry.revision() < ceiling);
        assert_eq!(rig.registry.epoch(), "epoch");
    }
    // Killed now, a start is above everything that was shown.
    let mut left = rig.store.clone();
    left.failing_commits = 0;
    let shown = rig.registry.revision();
    let started = Rig::at(left, super::rig::now(0), rig.registry.config.clone());
    assert!(started.registry.revision() > shown);
    rig.ready("web", 0);
    rig.pass(Duration::from_secs(60));
    assert_eq!(rig.store.failing_commits, 0);
    assert!(rig.registry.revision() > ceiling - 4);
    assert!(rig.registry.shown.ceiling > ceiling);
    assert_eq!(rig.condition("web", 0), Some(EndpointState::Ready));
}

#[test]
fn a_line_that_is_used_up_is_followed_by_another_epoch() {
    let mut rig = Rig::new();
    rig.pass(Duration::from_secs(2));
    let ceiling = format!("\"ceiling\":{}", rig.registry.shown.ceiling);
    let meta = rig.store_table(tables::META).values_mut().next().unwrap();
    let text = String::from_utf8(meta.clone()).unwrap();
    assert!(text.contains(&ceiling), "{text}");
    *meta = text
        .replace(&ceiling, &format!("\"ceiling\":{}", 1_u64 << 53))
        .into_bytes();
    let stored = rig.store.load().unwrap();
    let config = rig.registry.config.clone();
    let again = super::Registry::load(config, &stored, "other".into(), rig.now).unwrap();
    assert_eq!(again.epoch(), "other");
    assert!(again.revision() < 1 << 53);
}

// endpoints 35: section 6 entry 13
#[test]
fn a_restored_store_begins_another_epoch_that_a_refused_batch_does_not_take_back() {
    let mut rig = Rig::new();
    rig.join("n1");
    rig.submit(&web("web", 1)).unwrap();
    rig.pass(Duration::from_secs(2));
    let backup = rig.store.clone();
    for _ in 0..10 {
        rig.status("web", 0, |status| status.restarts += 1);
    }
    let shown = rig.registry.revision();
    let (mut store, later) = (backup, rig.now);
    let stored = store.load().unwrap();
    let config = super::Config {
        begin_epoch: true,
        ..super::rig::config()
    };
    let mut restored = super::Registry::load(config, &stored, "other".into(), later).unwrap();
    assert_eq!(restored.epoch(), "other");
    assert!(
        restored.revision() > shown,
        "also Consul's clients see no lower number"
    );
    let mut out = Vec::new();
    restored.flush(later, &mut out);
    let [Effect::Commit(refused)] = &out[..] else {
        panic!("{out:?}")
    };
    restored.commit_failed(refused.number, "full", &mut Vec::new());
    assert_eq!(restored.epoch(), "other");
    // Once it is durable, an ordinary start keeps it.
    store.commit(refused).unwrap();
    let stored = store.load().unwrap();
    let config = super::rig::config();
    let again = super::Registry::load(config, &stored, "third".into(), later).unwrap();
    assert_eq!(again.epoch(), "other");
}

#[test]
fn the_epoch_given_is_used_once() {
    let rig = Rig::new();
    assert_eq!(rig.registry.epoch(), "epoch");
    let mut store = rig.store;
    let stored = store.load().unwrap();
    let config = super::Config::default();
    let again = super::Registry::load(config, &stored, "other".into(), rig.now).unwrap();
    assert_eq!(again.epoch(), "epoch");
}
