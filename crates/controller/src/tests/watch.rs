//! Streams over the real listener: what watchers are told, in which order, and after which interruptions.

use std::time::Duration;

use http::Method;
use portreeve::registry::Answer;
use portreeve::supervision::State;
use portreeve_api::body::DesiredReplica;
use portreeve_api::paths;
use serde_json::Value;

use crate::site::{FakeAgent, OWNER, PATIENCE, STRANGER, Site, profile, put, request, status};

use self::watcher::{Told, Watcher};

mod watcher;

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

    /// The worker of this replica tells that it is ready, or not.
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

fn ready(told: &Told) -> u64 {
    told.data["ready"].as_u64().unwrap()
}

#[tokio::test]
async fn a_stream_begins_with_one_set_and_a_bookmark_and_then_tells_each_change() {
    let mut served = Served::start(2).await;
    served.flip(0, true).await;
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
    served.flip(1, true).await;
    let second = watcher.next().await;
    assert_eq!((second.event.as_str(), ready(&second)), ("endpoints", 2));
    assert_eq!(second.data["previous"], first.data["revision"]);
    assert!(second.revision() > bookmark.revision());
    served.flip(0, false).await;
    assert_eq!(ready(&watcher.next().await), 1);
}
