use parking_lot::{Condvar, Mutex};
use portreeve::commit::Told;
use portreeve::identity::{HostName, ServiceName};
use portreeve::profile::Profile;
use portreeve::registry::{self, Batch, Command, Input, MemoryStore, ReplicaReport, Submission};
use portreeve::rights::{Caller, Rights};
use portreeve::supervision::State;

use super::*;
use crate::queue::Unacknowledged;
use crate::site::{PATIENCE, facts, profile, status};
use crate::stop::StopSwitch;

/// What a store does with a batch, as the test says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Commits,
    Refuses,
    Hangs,
}

struct Moody {
    inner: MemoryStore,
    mood: Arc<(Mutex<Mood>, Condvar)>,
}

impl Store for Moody {
    fn load(&mut self) -> Result<Stored, StoreError> {
        self.inner.load()
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let (mood, changed) = &*self.mood;
        let mut mood = mood.lock();
        changed.wait_while(&mut mood, |mood| *mood == Mood::Hangs);
        self.inner.failing_commits = u32::from(*mood == Mood::Refuses);
        self.inner.commit(batch)
    }
}

struct Driven {
    mood: Arc<(Mutex<Mood>, Condvar)>,
    shown: Arc<Shown>,
    queue: Queue,
    switch: StopSwitch,
    task: tokio::task::JoinHandle<()>,
}

async fn driven() -> Driven {
    let mood = Arc::new((Mutex::new(Mood::Commits), Condvar::new()));
    // Everything is shown at once.
    let config = registry::Config {
        coalesce: Duration::ZERO,
        ..registry::Config::default()
    };
    let registry = Registry::load(config, &Stored::default(), "e".into(), clock::now()).unwrap();
    let store = Moody {
        inner: MemoryStore::default(),
        mood: Arc::clone(&mood),
    };
    let (mut driver, shown, queue) = Driver::new(registry, Box::new(store));
    driver.begin().await.unwrap();
    let (switch, stop) = StopSwitch::new();
    let task = vital::spawn("driver", driver.run(stop));
    Driven {
        mood,
        shown,
        queue,
        switch,
        task,
    }
}

fn submit(name: &str) -> (Caller, Command) {
    let by = Caller::new("alice".into(), Some(1000), Vec::new(), Rights::USER);
    let profile = Profile::from_toml(&profile(name, 1)).unwrap().profile;
    let submission = Submission {
        service: format!("{name}.alice").parse().unwrap(),
        profile,
        source: None,
        replace: false,
    };
    (by, Command::Submit(submission))
}

impl Driven {
    fn store(&self, mood: Mood) {
        *self.mood.0.lock() = mood;
        self.mood.1.notify_all();
    }

    /// Waits for a view that satisfies `enough`.
    async fn view(&self, enough: impl FnMut(&Arc<View>) -> bool) -> Arc<View> {
        let mut views = self.shown.view.subscribe();
        let seen = tokio::time::timeout(PATIENCE, views.wait_for(enough));
        Arc::clone(&*seen.await.unwrap().unwrap())
    }

    fn names(&self) -> Vec<String> {
        let view = self.shown.view.borrow();
        view.services.keys().map(ToString::to_string).collect()
    }
}

#[tokio::test]
async fn truth_is_answered_and_shown_only_when_it_is_durable() {
    let driven = driven().await;
    driven.store(Mood::Hangs);
    let (by, command) = submit("web");
    let mut answer = std::pin::pin!(driven.queue.command(by, command));
    let web = "web.alice".parse().unwrap();
    tokio::select! {
        biased;
        early = &mut answer => panic!("{early:?}"),
        // Asked behind it, and answered: so it was taken in.
        events = driven.queue.events(web) => assert_eq!(events, Some(Vec::new())),
    }
    assert!(driven.names().is_empty());
    driven.store(Mood::Commits);
    assert!(answer.await.unwrap().unwrap().changed);
    assert_eq!(driven.names(), ["web.alice"]);
}

#[tokio::test]
async fn a_refused_commit_changes_nothing_and_says_so() {
    let driven = driven().await;
    driven.store(Mood::Refuses);
    let (by, command) = submit("web");
    let refused = driven.queue.command(by, command).await.unwrap();
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Refusal::NotStored { .. }), "{refused}");
    assert!(driven.names().is_empty());
    assert!(!driven.shown.writable.load(Ordering::Relaxed));
    // It heals by itself.
    driven.store(Mood::Commits);
    let (by, command) = submit("web");
    let answer = driven.queue.command(by, command).await.unwrap();
    assert!(answer.unwrap().changed);
    assert!(driven.shown.writable.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_stop_writes_what_was_asked_before_it() {
    let driven = driven().await;
    driven.store(Mood::Hangs);
    let (by, command) = submit("web");
    let mut asked = std::pin::pin!(driven.queue.command(by, command));
    let web = "web.alice".parse().unwrap();
    tokio::select! {
        biased;
        early = &mut asked => panic!("{early:?}"),
        _ = driven.queue.events(web) => {}
    }
    driven.switch.stop();
    driven.store(Mood::Commits);
    assert!(asked.await.unwrap().unwrap().changed);
    driven.task.await.unwrap();
    let lease = Input::Lease {
        host: "n1".parse().unwrap(),
        skew_ms: None,
    };
    let late = driven.queue.tell(Told::news(lease)).await;
    assert_eq!(late, Err(Unacknowledged::Stopping));
}

/// A placed replica of `web.alice` on `n1`, and a status of it.
async fn placed(driven: &Driven) -> impl Fn(u64, State) -> Input {
    let n1: HostName = "n1".parse().unwrap();
    let joined = Input::HostReport(facts(&n1));
    driven.queue.tell(Told::news(joined)).await.unwrap();
    let (by, command) = submit("web");
    driven.queue.command(by, command).await.unwrap().unwrap();
    let web: ServiceName = "web.alice".parse().unwrap();
    let is_placed = |view: &Arc<View>| {
        let web = view.services.get(&web);
        web.is_some_and(|web| web.replicas[0].host.is_some())
    };
    let view = driven.view(is_placed).await;
    let incarnation = view.services[&web].replicas[0].incarnation;
    move |seq, state| {
        Input::Status(ReplicaReport {
            host: n1.clone(),
            service: web.clone(),
            index: 0,
            incarnation,
            service_id: None,
            grant: None,
            status: status(seq, state, false),
        })
    }
}

#[tokio::test]
async fn a_sign_of_life_wakes_nobody_who_waits_for_a_change() {
    let driven = driven().await;
    let n1: HostName = "n1".parse().unwrap();
    let joined = Input::HostReport(facts(&n1));
    driven.queue.tell(Told::news(joined)).await.unwrap();
    driven.view(|view| view.hosts.contains_key(&n1)).await;
    let mut views = driven.shown.view.subscribe();
    let seen = views.borrow_and_update().hosts[&n1].last_seen;
    while driven.shown.view.borrow().hosts[&n1].last_seen == seen {
        let lease = Input::Lease {
            host: n1.clone(),
            skew_ms: None,
        };
        driven.queue.tell(Told::news(lease)).await.unwrap();
    }
    assert!(!views.has_changed().unwrap());
}

#[tokio::test]
async fn who_may_see_a_service_rings_its_own_bell_and_no_other_change_does() {
    let driven = driven().await;
    let mut rights = driven.shown.rights.subscribe();
    let of_web = placed(&driven).await;
    driven
        .queue
        .tell(Told::news(of_web(2, State::Up)))
        .await
        .unwrap();
    assert!(!rights.has_changed().unwrap());
    let (by, Command::Submit(mut submission)) = submit("web") else {
        unreachable!("it is a submission")
    };
    submission.profile.visibility = portreeve::identity::Visibility::Cluster;
    submission.replace = true;
    let command = Command::Submit(submission);
    driven.queue.command(by, command).await.unwrap().unwrap();
    let moved = tokio::time::timeout(PATIENCE, rights.changed());
    moved.await.unwrap().unwrap();
    assert_eq!(*rights.borrow(), driven.shown.view.borrow().rights);
}

#[tokio::test]
async fn a_store_that_refused_is_asked_again_by_itself_until_it_takes_commits() {
    let driven = driven().await;
    driven.store(Mood::Refuses);
    let (by, command) = submit("web");
    assert!(driven.queue.command(by, command).await.unwrap().is_err());
    let refused = || driven.shown.commit_meters.refused.load(Ordering::Relaxed);
    let begun = Instant::now();
    while refused() < 2 {
        assert!(begun.elapsed() < PATIENCE, "it is never asked again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(driven.shown.refused.lock().is_some());
    driven.store(Mood::Commits);
    while !driven.shown.writable.load(Ordering::Relaxed) {
        assert!(begun.elapsed() < PATIENCE, "it never heals");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(driven.shown.refused.lock().is_none());
}
