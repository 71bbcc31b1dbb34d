//! Streams over the real listener: what watchers are told, in which order, and after which interruptions.

use std::time::Duration;

use http::Method;
use portreeve::identity::ServiceName;
use portreeve::supervision::{Final, State};
use portreeve_api::body::DesiredReplica;
use portreeve_api::paths;
use serde_json::Value;

use crate::limits::Limits;
use crate::site::{FakeAgent, OWNER, PATIENCE, STRANGER, Site, profile, put, request, status};

use super::limits::{limits, listening};

use self::watcher::{Told, Watcher};

mod load;
mod poll;
pub(super) mod watcher;

/// A service of so many replicas, placed, and how its workers speak.
struct Served {
    site: Site,
    agent: FakeAgent,
    replicas: Vec<DesiredReplica>,
    seq: u64,
}

impl Served {
    async fn start(replicas: u32) -> Self {
        let site = Site::start().await;
        let agent = FakeAgent::join(&site).await;
        site.submit(&profile("web", replicas)).await;
        let wanted = replicas as usize;
        let set = agent
            .desired_until(|set| set.replicas.len() == wanted)
            .await;
        Self {
            site,
            agent,
            replicas: set.replicas,
            seq: 0,
        }
    }

    /// The worker of this replica tells that it is ready, or not, and it is shown.
    async fn show(&mut self, replica: usize, ready: bool) {
        self.flip(replica, ready).await;
        let index = self.replicas[replica].desired.index;
        let service = self.replicas[replica].desired.service.clone();
        shown(&self.site, &service, index, ready).await;
    }

    /// The worker of this replica tells that it is ready, or not: what follows within a moment is shown with it.
    async fn flip(&mut self, replica: usize, ready: bool) {
        self.seq += 1;
        let told = status(self.seq, State::Up, ready);
        self.agent.tell(&self.replicas[replica], &told).await;
    }

    fn path(&self) -> String {
        paths::service_part(&"web", "endpoints")
    }

    async fn watch(&self, path: &str) -> Watcher {
        Watcher::open(&self.site, path, "text/event-stream", None).await
    }
}

/// Waits until the table shows the replica ready, or not.
pub(crate) async fn shown(site: &Site, service: &ServiceName, index: u32, ready: bool) {
    let table = &site.controller.app.shown.table;
    let mut number = table.subscribe();
    let is_shown = || {
        table.read(service, |snapshot| {
            let entry = snapshot.entry(&index);
            entry.is_some_and(|(entry, _)| entry.state.is_listed() == ready)
        })
    };
    let waits = async {
        loop {
            number.mark_unchanged();
            if is_shown() == Some(true) {
                return;
            }
            number.changed().await;
        }
    };
    tokio::time::timeout(PATIENCE, waits)
        .await
        .expect("it is not shown");
}

fn ready(told: &Told) -> u64 {
    told.data["ready"].as_u64().unwrap()
}

#[tokio::test]
async fn a_stream_begins_with_one_set_and_a_bookmark_and_then_tells_each_change() {
    let mut served = Served::start(2).await;
    served.show(0, true).await;
    let mut watcher = served.watch(&served.path()).await;
    assert_eq!(watcher.header("content-type"), "text/event-stream");
    assert_eq!(watcher.header("x-accel-buffering"), "no");
    assert!(watcher.header("cache-control").contains("no-cache"));
    let first = watcher.next().await;
    assert_eq!((first.event.as_str(), ready(&first)), ("endpoints", 1));
    assert_eq!(first.data["previous"], Value::Null);
    let bookmark = watcher.next().await;
    assert_eq!(bookmark.event, "bookmark");
    assert!(bookmark.revision() >= first.revision());
    served.show(1, true).await;
    let second = watcher.next().await;
    assert_eq!((second.event.as_str(), ready(&second)), ("endpoints", 2));
    assert_eq!(second.data["previous"], first.data["revision"]);
    assert!(second.revision() > bookmark.revision());
    // What changes nothing that is shown is told to nobody.
    served.show(1, true).await;
    served.show(1, true).await;
    served.show(0, false).await;
    assert_eq!(ready(&watcher.next().await), 1);
}

#[tokio::test]
async fn lines_of_json_tell_the_same_as_events() {
    let mut served = Served::start(1).await;
    served.show(0, true).await;
    let path = served.path();
    let mut lines = Watcher::open(&served.site, &path, "application/x-ndjson", None).await;
    let mut events = served.watch(&path).await;
    assert_eq!(lines.header("content-type"), "application/x-ndjson");
    let first = events.next().await;
    assert_eq!(lines.next().await, first);
    assert_eq!(lines.next().await.event, events.next().await.event);
    served.show(0, false).await;
    assert_eq!(lines.next().await, events.next().await);
}

#[tokio::test]
async fn a_name_that_is_not_there_is_waited_for() {
    let site = Site::start().await;
    let path = paths::service_part(&"web", "endpoints");
    let mut one = Watcher::open(&site, &path, "text/event-stream", None).await;
    let mut all = Watcher::open(&site, "/api/v1/watch", "*/*", None).await;
    for watcher in [&mut one, &mut all] {
        assert_eq!(watcher.status(), "200");
        assert_eq!(watcher.next().await.event, "bookmark");
    }
    site.submit(&profile("web", 1)).await;
    for watcher in [&mut one, &mut all] {
        let told = watcher.next().await;
        assert_eq!(
            (told.event.as_str(), &told.data["desired"]),
            ("endpoints", &1.into())
        );
    }
}

#[tokio::test]
async fn who_asks_for_the_head_gets_no_stream() {
    let served = Served::start(1).await;
    let mut asked = request(Method::HEAD, &served.path());
    let accept = "text/event-stream".parse().unwrap();
    asked.headers_mut().insert("accept", accept);
    let seen = served.site.as_user(0, asked).await;
    assert_eq!(seen.headers["content-type"], "text/event-stream");
    assert!(seen.headers.contains_key("portreeve-revision") && seen.body.is_empty());
}

#[tokio::test]
async fn wrong_questions_of_watchers_are_refused_before_anything_streams() {
    let site = Site::start().await;
    let many = (0..300).map(|number| format!("service=s{number}&"));
    let many = many.collect::<String>();
    for (path, accept, status) in [
        ("watch?since=abc", "*/*", 400),
        ("watch?since=1.18446744073709551616", "*/*", 400),
        ("watch?revision=4", "*/*", 400),
        ("watch?service=A%20B", "*/*", 400),
        ("watch?delta=perhaps", "*/*", 400),
        ("watch?state=some", "*/*", 400),
        (&format!("watch?{many}"), "*/*", 400),
        ("watch", "application/json", 406),
        ("services/web/endpoints?wait=1s", "text/event-stream", 400),
    ] {
        let mut asked = request(Method::GET, &format!("/api/v1/{path}"));
        asked
            .headers_mut()
            .insert("accept", accept.parse().unwrap());
        let seen = site.as_user(0, asked).await;
        assert_eq!(seen.status.as_u16(), status, "{path} {accept}");
        seen.problem();
    }
}

#[tokio::test]
async fn a_stop_says_bye_with_a_time_to_come_back_and_so_does_age() {
    let served = Served::start(1).await;
    let limits = Limits {
        stream_age: Duration::from_millis(50)..Duration::from_millis(60),
        ..limits()
    };
    let (address, _switch) = listening(&served.site, limits).await;
    let mut aged = Watcher::open_at(&address, &served.path(), None).await;
    let mut stopped = served.watch(&served.path()).await;
    for watcher in [&mut aged, &mut stopped] {
        assert_eq!(watcher.next().await.event, "endpoints");
        assert_eq!(watcher.next().await.event, "bookmark");
    }
    let bye = aged.next().await;
    assert_eq!(
        (bye.event.as_str(), &bye.data["reason"]),
        ("bye", &"age".into())
    );
    assert_eq!(aged.try_next().await, None);
    let (bye, ()) = tokio::join!(stopped.next(), served.site.controller.stop());
    assert_eq!(bye.data["reason"], "stopping");
    let retry = bye.data["retry_ms"].as_u64().unwrap();
    assert!((1_000..=10_000).contains(&retry), "{retry}");
    assert_eq!(stopped.try_next().await, None);
}

#[tokio::test]
async fn a_quiet_stream_tells_that_it_lives_and_where_it_is() {
    let served = Served::start(1).await;
    let limits = Limits {
        heartbeat: Duration::from_millis(20),
        ..limits()
    };
    let (address, _switch) = listening(&served.site, limits).await;
    let mut watcher = Watcher::open_at(&address, &served.path(), None).await;
    watcher.next().await;
    let bookmark = watcher.next().await.revision();
    let mut heartbeats = Vec::new();
    while heartbeats.len() < 3 {
        let line = watcher.line().await.unwrap();
        if let Some(revision) = line.strip_prefix(": hb ") {
            heartbeats.push(revision.parse::<u64>().unwrap());
        }
    }
    assert!(heartbeats.iter().all(|revision| *revision >= bookmark));
}

#[tokio::test]
async fn a_stream_that_a_token_opened_ends_with_the_tokens_job() {
    let served = Served::start(1).await;
    let limits = Limits {
        heartbeat: Duration::from_millis(50),
        ..limits()
    };
    let (address, _switch) = listening(&served.site, limits).await;
    let token = served.replicas[0].tokens.job.clone();
    let mut watcher = Watcher::open_with(&address, &served.path(), &token).await;
    assert_eq!(watcher.next().await.event, "endpoints");
    assert_eq!(watcher.next().await.event, "bookmark");
    let stop = paths::service_part(&"web", "stop");
    served.site.as_user(0, request(Method::POST, &stop)).await;
    let ended = status(1, State::Final(Final::Stopped), false);
    served.agent.tell(&served.replicas[0], &ended).await;
    let delete = request(Method::DELETE, &paths::service(&"web"));
    let deleted = served.site.as_user(0, delete).await;
    assert!(deleted.status.is_success(), "{}", deleted.text());
    let mut told = Vec::new();
    while let Some(event) = watcher.try_next().await {
        told.push(event);
    }
    let last = told.pop().unwrap();
    assert_eq!(
        (last.event.as_str(), &last.data["reason"]),
        ("bye", &"token".into())
    );
}

#[tokio::test]
async fn a_stream_is_woken_by_a_right_that_is_given_and_by_one_that_is_taken() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let submit = async |uid: u32, name: &str, more: &str| {
        let toml = format!("{more}{}", profile(name, 1));
        let path = format!("{}?replace=1", paths::service(&name));
        let seen = site
            .as_user(uid, put(&path, "application/toml", toml))
            .await;
        assert!(seen.status.is_success(), "{}", seen.text());
    };
    submit(OWNER, "mine", "").await;
    submit(STRANGER, "theirs", "").await;
    let set = agent.desired_until(|set| set.replicas.len() == 2).await;
    let mut replicas = set.replicas.iter();
    let mine = replicas.find(|it| it.desired.service.label().as_str() == "mine");
    // A job sees what its owner sees, who is no admin.
    let token = &mine.unwrap().tokens.job;
    let address = site.tcp();
    let theirs = format!("theirs.{STRANGER}");
    let one = paths::service_part(&theirs, "endpoints");
    let mut one = Watcher::open_with(&address, &one, token).await;
    let mut all = Watcher::open_with(&address, "/api/v1/watch?prefix=theirs", token).await;
    for watcher in [&mut one, &mut all] {
        assert_eq!(watcher.next().await.event, "bookmark");
    }
    for (more, event) in [("visibility = \"cluster\"\n", "endpoints"), ("", "removed")] {
        submit(STRANGER, "theirs", more).await;
        for watcher in [&mut one, &mut all] {
            let told = watcher.next().await;
            assert_eq!(
                (told.event.as_str(), &told.data["service"]),
                (event, &theirs.clone().into())
            );
        }
    }
}

// E12
#[tokio::test]
async fn after_a_restart_a_stream_goes_on_without_an_empty_set_between() {
    let mut served = Served::start(2).await;
    served.show(0, true).await;
    served.show(1, true).await;
    served.site.commits_at_rest().await;
    let path = served.path();
    let mut watcher = served.watch(&path).await;
    let first = watcher.next().await;
    assert_eq!(ready(&first), 2);
    let bookmark = watcher.next().await;
    let site = served.site.killed_and_started().await;
    assert_eq!(
        watcher.try_next().await,
        None,
        "the end of the stream is told"
    );
    let mut back = Watcher::open(&site, &path, "text/event-stream", Some(&bookmark.id)).await;
    let again = back.next().await;
    assert_eq!((again.event.as_str(), ready(&again)), ("endpoints", 2));
    assert!(again.revision() > bookmark.revision());
    assert_eq!(again.data["stale"], true);
    let caught_up = back.next().await;
    assert_eq!(
        (caught_up.event.as_str(), &caught_up.data["stale"]),
        ("bookmark", &true.into())
    );
    // The host speaks: what was stored is confirmed, and nothing else is told.
    served.agent.report(&served.agent.facts()).await;
    loop {
        let told = back.next().await;
        assert!(
            told.event == "bookmark" || told.event == "endpoints",
            "{told:?}"
        );
        if told.event == "bookmark" && told.data.get("stale").is_none() {
            break;
        }
    }
}
