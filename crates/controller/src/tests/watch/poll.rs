//! Long polls over the real listener.

use std::time::{Duration, Instant};

use http::Method;
use portreeve_api::body::Endpoints;
use portreeve_api::{Client, paths};

use super::Served;
use crate::site::{PATIENCE, Site, problem_of, profile, request};

async fn poll(client: &Client, path: &str, query: &str) -> Endpoints {
    let path = format!("{path}?{query}");
    client.get(&path, 2 * PATIENCE).await.unwrap()
}

// E10
#[tokio::test]
async fn every_revision_is_held_answered_or_refused_and_never_forgotten() {
    let mut served = Served::start(1).await;
    served.show(0, true).await;
    let (client, path) = (served.site.client(), served.path());
    let current = poll(&client, &path, "").await.revision;
    for at_once in [
        "".into(),
        "revision=0".into(),
        "revision=1".into(),
        format!("revision={}", current + 1_000_000),
    ] {
        let begun = Instant::now();
        let query = format!("{at_once}&wait=60s");
        let query = query.trim_start_matches('&');
        let query = if at_once.is_empty() { "" } else { query };
        assert_eq!(
            poll(&client, &path, query).await.revision,
            current,
            "{at_once}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(50),
            "{at_once} was held"
        );
    }
    let foreign = format!("revision={current}&epoch=other&wait=60s");
    assert_eq!(poll(&client, &path, &foreign).await.revision, current);
    let held = format!("revision={current}&wait=1s");
    let begun = Instant::now();
    assert_eq!(poll(&client, &path, &held).await.revision, current);
    assert!(begun.elapsed() >= Duration::from_millis(930));
    for bad in [
        "abc",
        "",
        "-1",
        "9223372036854775808",
        "18446744073709551616",
    ] {
        for route in ["services/web/endpoints", "services/web", "services"] {
            let asked = request(Method::GET, &format!("/api/v1/{route}?revision={bad}"));
            let seen = served.site.as_user(0, asked).await;
            assert_eq!(seen.status.as_u16(), 400, "{route} {bad}");
            assert_eq!(seen.problem().more["parameter"], "revision");
        }
    }
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
