use std::collections::BTreeSet;

use http::{HeaderMap, HeaderValue, Method};
use portreeve::profile::Profile;
use portreeve::supervision::State;
use portreeve_api::paths;
use serde_json::Value;

use super::*;
use crate::rest::query::Query;
use crate::site::{FakeAgent, OWNER, STRANGER, Site, profile, put, request, status};
use crate::tests::watch::shown;
use crate::watch::asked::Format;

/// What a follower of `query` is told, event by event.
struct Told {
    follower: Follower,
}

impl Told {
    /// Its account is in these groups from now on.
    pub(super) fn joins(&mut self, groups: &[&str]) {
        let Caller {
            user, uid, rights, ..
        } = self.follower.caller.clone();
        let groups = groups.iter().map(ToString::to_string).collect();
        self.follower
            .is_now(&Caller::new(user, uid, groups, rights));
    }

    fn of(site: &Site, uid: u32, query: &str, last: Option<&str>) -> Self {
        let mut headers = HeaderMap::new();
        if let Some(last) = last {
            headers.insert("last-event-id", HeaderValue::from_str(last).unwrap());
        }
        let mut query = Query::of(query);
        let rights = if uid == 0 {
            Rights::ADMIN
        } else {
            Rights::USER
        };
        let caller = Caller::new(uid.to_string(), Some(uid), Vec::new(), rights);
        let namespace = caller.namespace().unwrap();
        let named = query.texts("service").into_iter();
        let named = named.map(|name| match name.parse() {
            Ok(name) => name,
            Err(_) => ServiceName::parse_in(&name, &namespace).unwrap(),
        });
        let asked = Asked {
            names: named.collect::<BTreeSet<_>>(),
            prefix: query.text("prefix").unwrap(),
            view: crate::rest::endpoints::view::EndpointsView::take(&mut query).unwrap(),
            delta: query.flag("delta").unwrap(),
            format: Format::Events,
            since: super::super::since::Since::take(&mut query, &headers).unwrap(),
        };
        query.end().unwrap();
        let app = &site.controller.app;
        Self {
            follower: Follower::new(app, asked, caller),
        }
    }

    /// Everything that it is owed now: `event service ready`, or `event` alone.
    fn now(&mut self, site: &Site) -> Vec<String> {
        let mut told = Vec::new();
        let mut newest = self.follower.position;
        while let Some(event) = self.follower.next(&site.controller.app) {
            let reset = matches!(event.kind, Kind::Reset(_));
            assert!(
                event.revision >= newest || reset,
                "{event:?} after {newest}"
            );
            newest = event.revision;
            let text = event.text(Format::Lines, "e").pieces().concat();
            let text: Value = serde_json::from_slice(&text).unwrap();
            let Some(name) = text["event"].as_str() else {
                told.push("bookmark".to_owned());
                continue;
            };
            let service = text["data"]["service"].as_str().unwrap_or_default();
            let label = service.split('.').next().unwrap();
            let ready = &text["data"]["ready"];
            let ready = if ready.is_null() {
                String::new()
            } else {
                format!(" {ready}")
            };
            told.push(format!("{name} {label}{ready}").trim().to_owned());
        }
        told
    }
}

async fn submit(site: &Site, uid: u32, toml: &str) {
    let path = format!("{}?replace=1", paths::service(&"web"));
    let label = Profile::from_toml(toml).unwrap().profile.name;
    let path = path.replace("/web", &format!("/{label}"));
    let seen = site.as_user(uid, put(&path, "application/toml", toml.to_owned()));
    let seen = seen.await;
    assert!(seen.status.is_success(), "{}", seen.text());
}

async fn act(site: &Site, uid: u32, method: Method, path: &str) {
    let seen = site.as_user(uid, request(method, path)).await;
    assert!(seen.status.is_success(), "{}", seen.text());
}

fn open(name: &str) -> String {
    format!("visibility = \"cluster\"\n{}", profile(name, 1))
}

// endpoints 36
#[tokio::test]
async fn what_one_may_not_see_is_followed_like_what_is_not_there() {
    let site = Site::start().await;
    let (web, wob) = (format!("web.{OWNER}"), format!("wob.{OWNER}"));
    submit(&site, OWNER, &profile("web", 1)).await;
    for last in [None, Some("0"), Some("x.7")] {
        let mut hidden = Told::of(&site, STRANGER, &format!("service={web}"), last);
        let mut unknown = Told::of(&site, STRANGER, &format!("service={wob}"), last);
        let of_hidden: Vec<_> = hidden.now(&site);
        let of_unknown = unknown.now(&site);
        assert_eq!(
            of_hidden,
            of_unknown
                .iter()
                .map(|it| it.replace("wob", "web"))
                .collect::<Vec<_>>()
        );
    }
    let mut all = Told::of(&site, STRANGER, "prefix=", None);
    assert_eq!(all.now(&site), ["bookmark"]);
}

#[tokio::test]
async fn a_right_that_is_given_shows_a_service_and_one_that_is_taken_removes_it() {
    let site = Site::start().await;
    submit(&site, OWNER, &profile("web", 1)).await;
    let named = format!("service=web.{OWNER}");
    let mut watchers: Vec<_> = [named.as_str(), "prefix=", "prefix=we"]
        .into_iter()
        .map(|query| Told::of(&site, STRANGER, query, None))
        .collect();
    for watcher in &mut watchers {
        assert_eq!(watcher.now(&site), ["bookmark"]);
    }
    submit(&site, OWNER, &open("web")).await;
    for watcher in &mut watchers {
        assert_eq!(watcher.now(&site), ["endpoints web 0"]);
        assert!(watcher.now(&site).is_empty());
    }
    submit(&site, OWNER, &profile("web", 1)).await;
    for watcher in &mut watchers {
        assert_eq!(watcher.now(&site), ["removed web"]);
        assert!(watcher.now(&site).is_empty());
    }
}

#[tokio::test]
async fn a_right_that_changed_while_the_watcher_was_away_is_told_when_it_comes_back() {
    let site = Site::start().await;
    submit(&site, OWNER, &profile("web", 1)).await;
    let named = format!("service=web.{OWNER}");
    let came = |at: u64| format!("{}.{at}", site.controller.app.shown.table.epoch());
    let mut before = Told::of(&site, STRANGER, &named, None);
    before.now(&site);
    let left_at = before.follower.position();
    submit(&site, OWNER, &open("web")).await;
    let mut back = Told::of(&site, STRANGER, &named, Some(&came(left_at)));
    assert_eq!(back.now(&site), ["endpoints web 0", "bookmark"]);
    let left_at = back.follower.position();
    submit(&site, OWNER, &profile("web", 1)).await;
    let mut back = Told::of(&site, STRANGER, &named, Some(&came(left_at)));
    assert_eq!(back.now(&site), ["removed web", "bookmark"]);
    let mut all = Told::of(&site, STRANGER, "prefix=", Some(&came(left_at)));
    assert_eq!(all.now(&site), ["reset", "bookmark"]);
}

#[tokio::test]
async fn a_service_comes_goes_and_comes_again_under_its_name_and_under_a_prefix() {
    let site = Site::start().await;
    let mut watchers: Vec<_> = [format!("service=web.{OWNER}"), "prefix=web".to_owned()]
        .iter()
        .map(|query| Told::of(&site, OWNER, query, None))
        .collect();
    for round in 0..2 {
        submit(&site, OWNER, &profile("web", 1)).await;
        submit(&site, OWNER, &profile("other", 1)).await;
        let first = ["endpoints web 0", "bookmark"];
        for watcher in &mut watchers {
            let told = watcher.now(&site);
            assert_eq!(told, first[..told.len()], "round {round}");
            assert!(!told.is_empty());
        }
        act(
            &site,
            OWNER,
            Method::POST,
            &paths::service_part(&"web", "stop"),
        )
        .await;
        act(&site, OWNER, Method::DELETE, &paths::service(&"web")).await;
        for watcher in &mut watchers {
            let told = watcher.now(&site);
            assert_eq!(told.last().unwrap(), "removed web", "{told:?}");
        }
    }
}

#[tokio::test]
async fn one_stream_over_many_tells_in_the_order_of_revisions_and_each_newest_state_once() {
    let site = Site::start().await;
    for name in ["a", "b", "c"] {
        submit(&site, OWNER, &profile(name, 1)).await;
    }
    submit(&site, OWNER, &profile("a", 2)).await;
    let mut watcher = Told::of(&site, OWNER, "prefix=&service=b", None);
    let told = watcher.now(&site);
    let expected = [
        "endpoints b 0",
        "endpoints c 0",
        "endpoints a 0",
        "bookmark",
    ];
    assert_eq!(told, expected);
    for replicas in 2..6 {
        submit(&site, OWNER, &profile("b", replicas)).await;
    }
    assert_eq!(
        watcher.now(&site),
        ["endpoints b 0"],
        "the states between are not owed"
    );
    assert!(watcher.now(&site).is_empty());
}

// endpoints 35
#[tokio::test]
async fn who_comes_back_gets_what_changed_or_a_reset_and_everything() {
    let site = Site::start().await;
    for name in ["a", "b"] {
        submit(&site, OWNER, &profile(name, 1)).await;
    }
    let epoch = site.controller.app.shown.table.epoch().to_owned();
    let query = "service=a&service=b";
    let mut first = Told::of(&site, OWNER, query, None);
    assert_eq!(first.now(&site).len(), 3);
    let left_at = first.follower.position();
    let at = |revision: u64| format!("{epoch}.{revision}");
    let came = |last: &str| Told::of(&site, OWNER, query, Some(last)).now(&site);
    assert_eq!(came(&at(left_at)), ["bookmark"]);
    submit(&site, OWNER, &profile("b", 2)).await;
    assert_eq!(came(&at(left_at)), ["endpoints b 0", "bookmark"]);
    let everything = ["reset", "endpoints a 0", "endpoints b 0", "bookmark"];
    assert_eq!(
        came(&at(u64::from(u32::MAX) << 20)),
        everything,
        "from the future"
    );
    assert_eq!(came(&format!("other.{left_at}")), everything);
    assert_eq!(came("nonsense"), everything);
    assert_eq!(came("0"), everything[1..]);
}

#[tokio::test]
async fn a_view_of_a_part_sleeps_through_what_happens_to_the_rest() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 2)).await;
    let set = agent.desired_until(|set| set.replicas.len() == 2).await;
    let web = set.replicas[0].desired.service.clone();
    let query = |more: &str| format!("service={web}{more}");
    let mut there = Told::of(&site, 0, &query("&host=n1"), None);
    let mut elsewhere = Told::of(&site, 0, &query("&host=n2"), None);
    let mut labelled = Told::of(&site, 0, &query("&label=a:b"), None);
    for watcher in [&mut there, &mut elsewhere, &mut labelled] {
        assert_eq!(watcher.now(&site), ["endpoints web 0", "bookmark"]);
    }
    for (seq, ready) in [(1, true), (2, false), (3, true)] {
        agent
            .tell(&set.replicas[0], &status(seq, State::Up, ready))
            .await;
        shown(&site, &web, set.replicas[0].desired.index, ready).await;
        assert_eq!(there.now(&site).len(), 1, "{ready}");
        assert!(elsewhere.now(&site).is_empty());
        assert!(labelled.now(&site).is_empty());
    }
}

#[tokio::test]
async fn a_group_that_is_joined_or_left_shows_and_hides_its_services() {
    let site = Site::start().await;
    let chem = format!("visibility = [\"group:chem\"]\n{}", profile("web", 1));
    submit(&site, OWNER, &chem).await;
    let mut watcher = Told::of(&site, STRANGER, &format!("service=web.{OWNER}"), None);
    assert_eq!(watcher.now(&site), ["bookmark"]);
    watcher.joins(&["chem"]);
    assert_eq!(watcher.now(&site), ["endpoints web 0"]);
    watcher.joins(&["chem"]);
    assert!(watcher.now(&site).is_empty());
    watcher.joins(&[]);
    assert_eq!(watcher.now(&site), ["removed web"]);
}

// endpoints 30 and 35
#[tokio::test]
async fn changes_alone_make_the_set_that_a_watcher_of_whole_sets_has() {
    const REPLICAS: usize = 20;
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 20)).await;
    let set = agent
        .desired_until(|set| set.replicas.len() == REPLICAS)
        .await;
    let web = set.replicas[0].desired.service.clone();
    for (round, state) in (0..).zip(["ready", "serving", "all"]) {
        let query = |more: &str| format!("service={web}&state={state}{more}");
        let mut delta = Told::of(&site, 0, &query("&delta=1"), None);
        let mut has: BTreeMap<u64, Value> = BTreeMap::new();
        let mut told = Vec::new();
        for seq in round * 60 + 1..=round * 60 + 60_u64 {
            let replica = usize::try_from(seq * 7).unwrap() % REPLICAS;
            let up = status(seq, State::Up, seq % 3 != 0);
            // Some of the states between are not told, and some of the reports change nothing.
            let _ = agent.try_tell(&set.replicas[replica], &up).await;
            if seq % 4 == 0 {
                shown(&site, &web, set.replicas[replica].desired.index, up.ready).await;
                while let Some(event) = delta.follower.next(&site.controller.app) {
                    let text = event.text(Format::Lines, "e").pieces().concat();
                    let bytes = event
                        .text(Format::Events, &"e".repeat(16))
                        .pieces()
                        .concat();
                    let event: Value = serde_json::from_slice(&text).unwrap();
                    let count = |name: &str| event["data"][name].as_array().map_or(0, Vec::len);
                    // Whatever the size of the service.
                    match (count("upsert"), count("remove")) {
                        (0, 1) => assert!(bytes.len() <= 300, "{event}"),
                        (1, 0) => assert!(bytes.len() <= 560, "{event}"),
                        _ => {}
                    }
                    apply(&mut has, &event);
                    told.push(event["event"].as_str().unwrap_or("bookmark").to_owned());
                }
                let mut whole = Told::of(&site, 0, &query(""), None);
                let event = whole.follower.next(&site.controller.app).unwrap();
                let text = event.text(Format::Lines, "e").pieces().concat();
                let whole: Value = serde_json::from_slice(&text).unwrap();
                let all: Vec<_> = has.values().cloned().collect();
                assert_eq!(
                    Value::from(all),
                    whole["data"]["endpoints"],
                    "{state} {seq}"
                );
            }
        }
        assert_eq!(
            told.iter().filter(|name| *name == "endpoints").count(),
            1,
            "{told:?}"
        );
        assert!(
            told.iter().filter(|name| *name == "changes").count() > 5,
            "{told:?}"
        );
    }
}

fn apply(has: &mut BTreeMap<u64, Value>, event: &Value) {
    let data = &event["data"];
    let list = |name: &str| data[name].as_array().cloned().unwrap_or_default();
    let index = |endpoint: &Value| endpoint["replica"].as_u64().unwrap();
    match event["event"].as_str() {
        Some("endpoints") => {
            *has = list("endpoints")
                .into_iter()
                .map(|it| (index(&it), it))
                .collect();
        }
        Some("changes") => {
            for endpoint in list("upsert") {
                has.insert(index(&endpoint), endpoint);
            }
            for replica in list("remove") {
                has.remove(&replica.as_u64().unwrap());
            }
        }
        _ => {}
    }
}

#[path = "resume_test.rs"]
mod resume;
