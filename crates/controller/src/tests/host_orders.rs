//! What operators order about hosts over REST, hosts in pages, and one replica.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use portreeve::identity::HostName;
use portreeve::registry::{Answer, HostFacts, HostView, ReplicaView};
use portreeve::supervision::{Final, State};
use portreeve_api::body::HostList;
use portreeve_api::paths;

use crate::site::{
    FakeAgent, OWNER, PATIENCE, STRANGER, Seen, Site, facts, profile, put, request, status,
};

async fn order(site: &Site, uid: u32, verb: &str, body: &str) -> Seen {
    let host: HostName = "n1".parse().unwrap();
    let mut order = put(
        &paths::host_part(&host, verb),
        "application/json",
        body.to_owned(),
    );
    *order.method_mut() = Method::POST;
    site.as_user(uid, order).await
}

fn own() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[tokio::test]
async fn a_drain_is_ordered_looked_at_and_ended() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 1)).await;
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    let up = status(1, State::Up, true);
    agent.tell(&set.replicas[0], &up).await;
    let drained: Answer = order(&site, own(), "drain", "").await.json();
    assert!(drained.changed && drained.service.is_none());
    assert_eq!(drained.subject(), "host n1");
    assert!(
        drained.notes[1].contains("has nowhere to go"),
        "{:?}",
        drained.notes
    );
    let shown: HostView = site.get(&paths::host(&agent.host)).await;
    let drain = shown.drain.unwrap();
    assert_eq!((shown.state.as_str(), drain.left), ("draining", 1));
    assert_eq!(drain.stays.len(), 1);
    // Who may not see the service is not told that it is there.
    let seen = site
        .as_user(STRANGER, request(Method::GET, &paths::host(&agent.host)))
        .await;
    let drain = seen.json::<HostView>().drain.unwrap();
    assert_eq!((drain.stays.len(), drain.stays_more), (0, 1));
    assert!(!seen.text().contains("web"), "{}", seen.text());
    let listed = site.as_user(STRANGER, request(Method::GET, &paths::hosts()));
    assert!(!listed.await.text().contains("web"));
    // The same after a start of the controller.
    let site = site.killed_and_started().await;
    let shown: HostView = site.get(&paths::host(&agent.host)).await;
    assert!(shown.drain.is_some());
    let agent = FakeAgent::join(&site).await;
    let now: Answer = order(&site, own(), "drain", r#"{"now": true}"#)
        .await
        .json();
    assert!(now.changed);
    let stopping = agent.desired_until(|set| {
        let mut all = set.replicas.iter();
        all.any(|it| it.desired.want == portreeve::registry::Want::Stop)
    });
    let set = stopping.await;
    let end = status(2, State::Final(Final::Stopped), false);
    agent.tell(&set.replicas[0], &end).await;
    let shown: HostView = site.get(&paths::host(&agent.host)).await;
    assert_eq!(shown.state, "drained");
    let ended: Answer = order(&site, own(), "undrain", "").await.json();
    assert!(ended.changed);
    let again: Answer = order(&site, own(), "undrain", "").await.json();
    assert!(!again.changed);
    // Its next incarnation comes back here, where else.
    let again = agent.desired_until(|set| {
        let mut all = set.replicas.iter();
        all.any(|it| it.desired.incarnation.0 == 1)
    });
    again.await;
}

#[tokio::test]
async fn orders_about_hosts_are_for_admins_and_are_read_strictly() {
    let site = Site::start().await;
    let _agent = FakeAgent::join(&site).await;
    for verb in ["drain", "undrain", "down", "remove", "fence"] {
        let seen = order(&site, STRANGER, verb, "").await;
        assert_eq!(
            (seen.status, seen.problem().code.as_str()),
            (StatusCode::FORBIDDEN, "not_allowed"),
            "{verb}"
        );
    }
    let adopt = r#"{"service": "web.alice", "replica": 0}"#;
    let seen = order(&site, STRANGER, "adopt", adopt).await;
    assert_eq!(seen.status, StatusCode::FORBIDDEN);
    for (verb, body) in [
        ("drain", r#"{"deadline": "1"}"#),
        ("drain", r#"{"deadline": "367d"}"#),
        ("drain", r#"{"deadline": "1h", "now": true}"#),
        ("drain", r#"{"deadlin": "1h"}"#),
        ("drain", "1"),
        ("down", r#"{"fenced": 1}"#),
        ("adopt", ""),
        ("adopt", "null"),
        ("adopt", r#"{"service": "web.alice"}"#),
        ("fence", "{}"),
        ("fence", r#"{"service": "web.alice", "replica": -1}"#),
    ] {
        let seen = order(&site, own(), verb, body).await;
        assert_eq!(
            (seen.status, seen.problem().code.as_str()),
            (StatusCode::BAD_REQUEST, "bad_body"),
            "{verb} {body}"
        );
    }
    let seen = order(
        &site,
        own(),
        "fence",
        r#"{"service": "WEB.alice", "replica": 0}"#,
    )
    .await;
    assert_eq!(seen.problem().code, "bad_name");
    let path = paths::host_part(&"n9".parse().unwrap(), "drain");
    let seen = site.as_user(own(), request(Method::POST, &path)).await;
    assert_eq!(
        (seen.status, seen.problem().code.as_str()),
        (StatusCode::NOT_FOUND, "host_not_found")
    );
    let up = order(&site, own(), "remove", "").await;
    assert_eq!(
        (up.status, up.problem().code.as_str()),
        (StatusCode::CONFLICT, "host_unfit")
    );
    let untouched: HostView = site.get(&paths::host(&"n1".parse().unwrap())).await;
    assert_eq!((untouched.state.as_str(), untouched.drain), ("up", None));
}

async fn join(site: &Site, name: &str, rack: &str) {
    let host: HostName = name.parse().unwrap();
    let labels = BTreeMap::from([("rack".to_owned(), rack.to_owned())]);
    let facts = HostFacts {
        labels,
        ..facts(&host)
    };
    let path = paths::host_part(&host, "report");
    let told = site
        .client()
        .call::<portreeve_api::body::Lease>(Method::PUT, &path, &facts, PATIENCE)
        .await;
    told.unwrap();
}

/// All names of a list, page by page, and how many pages there were.
async fn every_page(site: &Site, first: &str) -> (Vec<String>, usize) {
    let mut names = Vec::new();
    let mut path = first.to_owned();
    for pages in 1..100 {
        let seen = site.as_user(OWNER, request(Method::GET, &path)).await;
        assert_eq!(seen.status, StatusCode::OK, "{path}: {}", seen.text());
        let list: HostList = seen.json();
        names.extend(list.hosts.iter().map(|it| it.host.to_string()));
        let Some(cursor) = list.next_cursor else {
            assert!(!seen.headers.contains_key("link"));
            return (names, pages);
        };
        let link = seen.headers["link"].to_str().unwrap();
        assert!(link.contains(&cursor), "{link}");
        path = link[1..link.find('>').unwrap()].to_owned();
    }
    panic!("no end");
}

#[tokio::test]
async fn hosts_come_in_pages_of_one_moment_and_by_label() {
    let site = Site::start().await;
    for nth in 0..5 {
        let rack = if nth < 3 { "a" } else { "b" };
        join(&site, &format!("n{nth}"), rack).await;
    }
    let list = paths::hosts();
    let all: Vec<String> = (0..5).map(|nth| format!("n{nth}")).collect();
    assert_eq!(every_page(&site, &list).await, (all.clone(), 1));
    for limit in [1, 2, 4, 5] {
        let pages = 5_usize.div_ceil(limit);
        let first = format!("{list}?limit={limit}");
        assert_eq!(every_page(&site, &first).await, (all.clone(), pages));
    }
    let labelled = format!("{list}?label=rack:b&limit=1");
    assert_eq!(every_page(&site, &labelled).await, (all[3..].to_vec(), 2));
    assert!(
        every_page(&site, &format!("{list}?label=rack:c"))
            .await
            .0
            .is_empty()
    );
    // What comes between two pages is not in them.
    let first = site.as_user(OWNER, request(Method::GET, &format!("{list}?limit=3")));
    let cursor = first.await.json::<HostList>().next_cursor.unwrap();
    join(&site, "n3a", "a").await;
    let next = format!("{list}?cursor={cursor}");
    assert_eq!(every_page(&site, &next).await.0, all[3..]);
    for wrong in [
        format!("{next}&label=rack:a"),
        format!("{list}?cursor=x"),
        format!("{list}?limit=0"),
        format!("{list}?prefix=n"),
    ] {
        let seen = site.as_user(OWNER, request(Method::GET, &wrong)).await;
        assert_eq!(seen.problem().code, "bad_parameter", "{wrong}");
    }
    let anothers = site.as_user(STRANGER, request(Method::GET, &next)).await;
    assert_eq!(anothers.problem().code, "cursor_expired");
}

#[tokio::test]
async fn one_replica_is_shown_as_in_its_service() {
    let site = Site::start().await;
    let _agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 2)).await;
    let whole = site.service("web").await;
    let one: ReplicaView = site.get(&paths::replica(&"web", 1)).await;
    assert_eq!(Some(&one), whole.replicas.of(1));
    let ask = async |uid, path: String| site.as_user(uid, request(Method::GET, &path)).await;
    let none = ask(own(), paths::replica(&"web", 2)).await;
    assert_eq!(
        (none.status, none.problem().code.as_str()),
        (StatusCode::NOT_FOUND, "replica_not_found")
    );
    let name = whole.service.to_string();
    let hidden = ask(STRANGER, paths::replica(&name, 1)).await;
    assert_eq!(hidden.problem().code, "service_not_found");
}
