//! Long polls over the real listener.

use std::time::{Duration, Instant};

use http::Method;
use portreeve_api::body::Endpoints;
use portreeve_api::{Client, paths};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Served;
use crate::site::{PATIENCE, Site, problem_of, profile, request};

async fn poll(client: &Client, path: &str, query: &str) -> Endpoints {
    let path = format!("{path}?{query}");
    client.get(&path, 2 * PATIENCE).await.unwrap()
}

/// What any of the paths that can be held tells, and at which revision.
async fn revision_of(client: &Client, path: &str, query: &str) -> u64 {
    let told: Value = client
        .get(&format!("{path}?{query}"), 2 * PATIENCE)
        .await
        .unwrap();
    told["revision"].as_u64().unwrap()
}

/// What a number of JSON carries exactly.
const GREATEST: u64 = (1 << 53) - 1;

// E10
#[tokio::test]
async fn every_revision_is_held_answered_or_refused_and_never_forgotten() {
    let mut served = Served::start(1).await;
    served.show(0, true).await;
    let client = served.site.client();
    let holding = [served.path(), paths::service(&"web"), paths::services()];
    for path in &holding {
        let current = revision_of(&client, path, "").await;
        for at_once in [
            "wait=60s".into(),
            "revision=0&wait=60s".into(),
            "revision=1&wait=60s".into(),
            format!("revision={}&wait=60s", current + 1_000_000),
            format!("revision={GREATEST}&wait=60s"),
        ] {
            let begun = Instant::now();
            let told = revision_of(&client, path, &at_once).await;
            assert_eq!(told, current, "{path}?{at_once}");
            assert!(
                begun.elapsed() < Duration::from_secs(50),
                "{path}?{at_once} was held"
            );
        }
        let held = format!("revision={current}&wait=1s");
        let begun = Instant::now();
        let told = revision_of(&client, path, &held).await;
        assert_eq!(told, current, "{path}?{held}");
        assert!(
            begun.elapsed() >= Duration::from_millis(930),
            "{path}?{held}"
        );
    }
    let path = served.path();
    let current = revision_of(&client, &path, "").await;
    let foreign = format!("revision={current}&epoch=other&wait=60s");
    let begun = Instant::now();
    assert_eq!(revision_of(&client, &path, &foreign).await, current);
    assert!(
        begun.elapsed() < Duration::from_secs(50),
        "{foreign} was held"
    );
    let beyond = (GREATEST + 1).to_string();
    for bad in [
        "abc",
        "",
        "-1",
        &beyond,
        "9223372036854775808",
        "18446744073709551616",
    ] {
        for path in &holding {
            let asked = request(Method::GET, &format!("{path}?revision={bad}"));
            let seen = served.site.as_user(0, asked).await;
            assert_eq!(seen.status.as_u16(), 400, "{path} {bad}");
            assert_eq!(seen.problem().more["parameter"], "revision");
        }
    }
}

/// How late a sleeper of this process is woken at most, until `ended`: a busy machine is not the controller's doing.
async fn latest(mut ended: oneshot::Receiver<()>) -> Duration {
    const STEP: Duration = Duration::from_millis(5);
    let mut latest = Duration::ZERO;
    while ended.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
        let begun = Instant::now();
        tokio::time::sleep(STEP).await;
        latest = latest.max(begun.elapsed().saturating_sub(STEP));
    }
    latest
}

// E14
#[tokio::test]
async fn two_hundred_that_ask_together_are_answered_in_time_and_not_together() {
    let served = Served::start(1).await;
    let path = served.path();
    let since = poll(&served.site.client(), &path, "").await.revision;
    let (end, ended) = oneshot::channel();
    let machine = tokio::spawn(latest(ended));
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let (client, path) = (served.site.client(), path.clone());
            tokio::spawn(async move {
                let begun = Instant::now();
                let told = poll(&client, &path, &format!("revision={since}&wait=10s")).await;
                assert_eq!(told.revision, since);
                (begun.elapsed(), Instant::now())
            })
        })
        .collect();
    let mut answers = Vec::new();
    for asking in asking {
        answers.push(asking.await.unwrap());
    }
    end.send(()).unwrap();
    let late = machine.await.unwrap();
    let held = answers.iter().map(|(held, _)| *held);
    let (least, most) = (held.clone().min().unwrap(), held.max().unwrap());
    assert!(least >= Duration::from_millis(9_300), "{least:?}");
    // Where nobody gets to run in time, neither does whoever answers.
    let is_busy = late > Duration::from_millis(20);
    assert!(
        is_busy || most <= Duration::from_secs(10),
        "{most:?} {late:?}"
    );
    let moments = answers.iter().map(|(_, moment)| *moment);
    let spread = moments.clone().max().unwrap() - moments.min().unwrap();
    assert!(spread >= Duration::from_millis(500), "{spread:?}");
}

#[tokio::test]
async fn a_name_that_is_not_there_is_held_for_and_its_going_is_told() {
    let site = Site::start().await;
    let (client, path) = (site.client(), paths::service_part(&"web", "endpoints"));
    let unknown = client.get::<Endpoints>(&path, PATIENCE).await;
    assert_eq!(
        problem_of(unknown).status,
        404,
        "without a revision it is told at once"
    );
    let web = profile("web", 1);
    let (appeared, _) = tokio::join!(
        poll(&client, &path, "revision=7&wait=5m"),
        site.submit(&web)
    );
    assert_eq!(appeared.desired, 1);
    let stop = paths::service_part(&"web", "stop");
    site.as_user(0, request(Method::POST, &stop)).await;
    let stopped = poll(&client, &path, "").await;
    let held = format!("{path}?revision={}&wait=5m", stopped.revision);
    let (gone, deleted) = tokio::join!(
        client.get::<Endpoints>(&held, PATIENCE),
        site.as_user(0, request(Method::DELETE, &paths::service(&"web"))),
    );
    assert!(deleted.status.is_success());
    assert_eq!(problem_of(gone).status, 404);
    // Known to be gone, its asker is held again.
    let begun = Instant::now();
    let gone = client
        .get::<Endpoints>(&held.replace("5m", "1s"), PATIENCE)
        .await;
    assert_eq!(problem_of(gone).status, 404);
    assert!(begun.elapsed() >= Duration::from_millis(930));
}

#[tokio::test]
async fn a_poll_of_a_part_sleeps_through_what_happens_to_the_rest() {
    let mut served = Served::start(2).await;
    served.show(0, true).await;
    let (client, path) = (served.site.client(), served.path());
    let of_host = |host: &str, revision: u64| format!("host={host}&revision={revision}&wait=2s");
    let now = poll(&client, &path, "").await.revision;
    let (on_n1, on_n2) = (of_host("n1", now), of_host("n2", now));
    let begun = Instant::now();
    let (there, elsewhere, ()) = tokio::join!(
        poll(&client, &path, &on_n1),
        poll(&client, &path, &on_n2),
        served.flip(1, true),
    );
    assert_eq!((there.endpoints.len(), elsewhere.endpoints.len()), (2, 0));
    assert!(there.revision > now);
    assert!(
        begun.elapsed() >= Duration::from_millis(1_870),
        "it was woken for nothing"
    );
}

// E11
#[tokio::test]
async fn who_asks_with_the_same_revision_again_and_again_is_held_each_time() {
    let served = Served::start(1).await;
    let path = served.path();
    let since = poll(&served.site.client(), &path, "").await.revision;
    // A wait below the least one is no way to ask faster.
    let asking = ["1s", "10ms", "1ms"].into_iter().cycle().take(25);
    let asking: Vec<_> = asking
        .map(|wait| {
            let (client, path) = (served.site.client(), path.clone());
            tokio::spawn(async move {
                for _ in 0..4 {
                    let begun = Instant::now();
                    let query = format!("revision={since}&wait={wait}");
                    assert_eq!(poll(&client, &path, &query).await.revision, since);
                    assert!(begun.elapsed() >= Duration::from_millis(930), "{wait}");
                }
            })
        })
        .collect();
    for asking in asking {
        asking.await.unwrap();
    }
}

// E11
#[tokio::test]
async fn who_asks_in_a_circle_is_answered_more_slowly_and_never_refused() {
    let served = Served::start(1).await;
    let asked = format!(
        "GET {}?revision=1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        served.path()
    );
    let mut connection = super::watcher::connect(&served.site).await;
    let begun = Instant::now();
    for _ in 0..9 {
        let answer = super::watcher::exchange(&mut connection, &asked).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // Four at once, and then ten a second.
    assert!(
        begun.elapsed() >= Duration::from_millis(490),
        "{:?}",
        begun.elapsed()
    );
}
