//! What was: events since a moment, of a replica, of a host; who had which port.

use http::{Method, StatusCode};
use portreeve::supervision::{Final, State};
use portreeve_api::body::{EventList, PortHistory};
use portreeve_api::paths;

use crate::site::{FakeAgent, OWNER, STRANGER, Site, profile, put, request, status};

/// Of `web`, submitted by root, after its only replica was stopped.
async fn stopped() -> (Site, FakeAgent) {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 1)).await;
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    agent
        .tell(&set.replicas[0], &status(1, State::Up, true))
        .await;
    let stop = request(Method::POST, &paths::service_part(&"web", "stop"));
    site.as_user(0, stop).await;
    let set =
        agent.desired_until(|set| set.replicas[0].desired.want == portreeve::registry::Want::Stop);
    let set = set.await;
    let ended = status(2, State::Final(Final::Stopped), false);
    agent.tell(&set.replicas[0], &ended).await;
    (site, agent)
}

#[tokio::test]
async fn events_are_asked_for_by_moment_number_and_replica_and_say_where() {
    let (site, _agent) = stopped().await;
    let path = paths::service_part(&"web", "events");
    let all: EventList = site.get(&path).await;
    let kinds: Vec<_> = all.events.iter().map(|it| it.kind.as_str()).collect();
    let expected = [
        "submitted",
        "placed",
        "ready",
        "stopped",
        "stopping",
        "stopped",
    ];
    assert_eq!(kinds, expected);
    let placed = &all.events[1];
    assert_eq!(placed.host.as_ref().unwrap().as_str(), "n1");
    let newest: EventList = site.get(&format!("{path}?limit=2")).await;
    assert_eq!((&newest.events[..], newest.left_out), (&all.events[4..], 4));
    let of: EventList = site.get(&format!("{path}?replica=0")).await;
    assert_eq!(of.events.len(), 4);
    for since in ["-1h".to_owned(), placed.at.as_unix_millis().to_string()] {
        let since: EventList = site.get(&format!("{path}?since={since}")).await;
        assert!(since.events.contains(placed));
    }
    let later: EventList = site
        .get(&format!("{path}?since=2099-01-01T00:00:00%2B01:00"))
        .await;
    assert!(later.events.is_empty());
    for bad in [
        "since=yesterday",
        "limit=0",
        "limit=2000",
        "replica=x",
        "since=",
        "more=1",
    ] {
        let seen = site
            .as_user(0, request(Method::GET, &format!("{path}?{bad}")))
            .await;
        assert_eq!(seen.status, StatusCode::BAD_REQUEST, "{bad}");
        assert_eq!(seen.problem().code, "bad_parameter", "{bad}");
    }
}

#[tokio::test]
async fn a_host_s_events_are_for_everybody_and_an_unknown_host_has_none() {
    let (site, _agent) = stopped().await;
    let path = "/api/v1/hosts/n1/events";
    let seen = site.as_user(STRANGER, request(Method::GET, path)).await;
    let events: EventList = seen.json();
    assert_eq!(events.events[0].kind, "joined");
    let unknown = request(Method::GET, "/api/v1/hosts/n9/events");
    let unknown = site.as_user(STRANGER, unknown).await;
    assert_eq!(unknown.problem().code, "host_not_found");
}

#[tokio::test]
async fn who_had_a_port_is_told_to_who_may_see_it_and_is_somebody_to_others() {
    let (site, _agent) = stopped().await;
    let mine = put(
        &paths::service(&format!("mine.{OWNER}")),
        "application/toml",
        profile("mine", 1),
    );
    assert!(site.as_user(OWNER, mine).await.status.is_success());
    let path = "/api/v1/hosts/n1/ports/history";
    let history: PortHistory = site.get(path).await;
    let names = |history: &PortHistory| -> Vec<Option<String>> {
        let tenures = history.tenures.iter();
        tenures
            .map(|it| it.service.as_ref().map(ToString::to_string))
            .collect()
    };
    let web = history.tenures[0].clone();
    assert_eq!(web.service.as_ref().unwrap().to_string(), "web.root");
    assert!(web.until.is_some());
    assert_eq!(web.how.as_deref(), Some("stopped by root"));
    assert_eq!(history.tenures.len(), 4);
    let seen = site.as_user(STRANGER, request(Method::GET, path)).await;
    assert_eq!(names(&seen.json()), [None, None, None, None]);
    assert!(!seen.text().contains("root"), "{}", seen.text());
    let seen = site.as_user(OWNER, request(Method::GET, path)).await;
    assert_eq!(names(&seen.json()).iter().flatten().count(), 2);
    // By number and moment.
    let number = web.numbers.first();
    let at = web.from.as_unix_millis();
    let one: PortHistory = site.get(&format!("{path}?port={number}&at={at}")).await;
    assert_eq!(one.tenures, [web]);
    let none: PortHistory = site.get(&format!("{path}?port={number}&at=-1h")).await;
    assert!(none.tenures.is_empty());
    for bad in [
        "port=0",
        "port=70000",
        "at=1&since=2",
        "at=-2h&since=-2h",
        "at=x",
    ] {
        let seen = site
            .as_user(0, request(Method::GET, &format!("{path}?{bad}")))
            .await;
        assert_eq!(seen.status, StatusCode::BAD_REQUEST, "{bad}");
    }
    let unknown = request(Method::GET, "/api/v1/hosts/n9/ports/history");
    assert_eq!(site.as_user(0, unknown).await.status, StatusCode::NOT_FOUND);
    // It outlives the service and the controller.
    let gone = request(Method::DELETE, &paths::service(&"web"));
    assert!(site.as_user(0, gone).await.status.is_success());
    let site = site.killed_and_started().await;
    let again: PortHistory = site.get(path).await;
    assert_eq!(again.tenures, history.tenures);
}
