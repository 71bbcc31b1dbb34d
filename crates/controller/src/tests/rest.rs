//! What all reads have in common: forms, tags, headers, heads, packing; and the reads of endpoints in full.

use http::{Method, StatusCode};
use portreeve::supervision::State;
use portreeve_api::body::{Endpoints, HostView, ServiceList};
use portreeve_api::paths;

use crate::site::{FakeAgent, OWNER, STRANGER, Seen, Site, profile, put, request, status};

fn own() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// A read with these headers, as the controller's own account.
async fn read(site: &Site, path: &str, headers: &[(&'static str, &str)]) -> Seen {
    ask(site, Method::GET, path, headers).await
}

async fn ask(site: &Site, method: Method, path: &str, headers: &[(&'static str, &str)]) -> Seen {
    let mut asked = request(method, path);
    for (name, value) in headers {
        asked.headers_mut().append(*name, value.parse().unwrap());
    }
    site.as_user(own(), asked).await
}

/// A service `web` with this many replicas, of which the first `ready` are ready.
async fn running(site: &Site, replicas: u32, ready: usize) -> FakeAgent {
    let agent = FakeAgent::join(site).await;
    let toml = format!(
        "labels = {{ model = \"m1\" }}\n{}",
        profile("web", replicas)
    );
    site.submit(&toml).await;
    let set = agent
        .desired_until(|set| set.replicas.len() == replicas as usize)
        .await;
    for replica in &set.replicas[..ready] {
        agent.tell(replica, &status(1, State::Up, true)).await;
    }
    // What follows within a moment is shown together, so not all of it at once.
    let mut path = endpoints();
    loop {
        let seen: Endpoints = site.get(&path).await;
        if seen.ready as usize == ready {
            return agent;
        }
        path = format!("{}?revision={}", endpoints(), seen.revision);
    }
}

fn endpoints() -> String {
    paths::service_part(&"web", "endpoints")
}

#[tokio::test]
async fn an_endpoint_is_told_in_full() {
    let site = Site::start().await;
    let _agent = running(&site, 2, 1).await;
    let seen = read(&site, &endpoints(), &[]).await;
    let body: serde_json::Value = seen.json();
    let table = &site.controller.app.shown.table;
    assert_eq!(body["epoch"], table.epoch());
    assert_eq!((&body["desired"], &body["ready"]), (&2.into(), &1.into()));
    assert_eq!(body["port_filter"], serde_json::Value::Null);
    assert_eq!(body["stale"], false);
    let endpoint = &body["endpoints"][0];
    assert_eq!(endpoint["replica"], 0);
    assert_eq!(endpoint["host"], "n1");
    assert_eq!(endpoint["address"], "127.0.0.1");
    assert_eq!(endpoint["ports"][0]["name"], "http");
    assert_eq!(endpoint["ports"][0]["protocol"], "TCP");
    let conditions = serde_json::json!({"ready": true, "serving": true, "terminating": false});
    assert_eq!(endpoint["conditions"], conditions);
    assert!(endpoint["ready_since"].as_str().unwrap().ends_with('Z'));
    assert_eq!(endpoint["weight"], 100);
    assert_eq!(endpoint["labels"]["model"], "m1");
    assert_eq!(endpoint["revision"], body["revision"]);
    // The last member, so that what a reader streams through comes after what tells of it.
    assert!(seen.text().trim_end().ends_with("]}"));
    assert_eq!(body["endpoints"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn filters_narrow_what_is_listed() {
    let site = Site::start().await;
    let _agent = running(&site, 2, 2).await;
    let count = async |filter: &str| {
        let path = format!("{}?{filter}", endpoints());
        let body: Endpoints = read(&site, &path, &[]).await.json();
        assert_eq!(
            body.ready, 2,
            "of the service, whatever the filter: {filter}"
        );
        body.endpoints.len()
    };
    assert_eq!(count("").await, 2);
    assert_eq!(count("host=n1&port=http&state=serving").await, 2);
    assert_eq!(count("host=n2").await, 0);
    assert_eq!(count("label=model:m1").await, 2);
    assert_eq!(count("label=model:m1&label=gpu:yes").await, 0);
    for wrong in [
        "label=model",
        "label=:m1",
        "label=model:m1&label=model:m2",
        "host=-",
        "host=n1&host=n2",
        "port=A",
        "state=red",
        "statee=ready",
        "revision=abc",
        "revision=-1",
        "revision=18446744073709551616",
        "wait=5",
    ] {
        let seen = read(&site, &format!("{}?{wrong}", endpoints()), &[]).await;
        assert_eq!(seen.status, StatusCode::BAD_REQUEST, "{wrong}");
        let problem = seen.problem();
        assert_eq!(problem.code, "bad_parameter");
        assert_eq!(problem.more["parameter"], wrong.split('=').next().unwrap());
    }
    let unknown = read(&site, &format!("{}?port=internal", endpoints()), &[]).await;
    assert_eq!(unknown.problem().code, "port_not_found");
}

#[tokio::test]
async fn a_tag_names_form_and_view_and_only_a_match_saves_the_body() {
    let site = Site::start().await;
    let agent = running(&site, 1, 1).await;
    let tag = async |query: &str, accept: &str| {
        let seen = read(
            &site,
            &format!("{}{query}", endpoints()),
            &[("accept", accept)],
        )
        .await;
        seen.headers
            .get("etag")
            .map(|tag| tag.to_str().unwrap().to_owned())
    };
    let plain = tag("", "*/*").await.unwrap();
    let seen = read(&site, &endpoints(), &[]).await;
    let body: Endpoints = seen.json();
    assert_eq!(
        plain,
        format!("\"{}-{}-json-all\"", body.epoch, body.revision)
    );
    assert_eq!(seen.headers["cache-control"], "private, no-cache");
    let vary = "Accept, Accept-Encoding, Authorization";
    assert_eq!(seen.headers["vary"], vary);
    let tags = [
        plain.clone(),
        tag("", "text/plain").await.unwrap(),
        tag("?port=http", "*/*").await.unwrap(),
        tag("?host=n1", "*/*").await.unwrap(),
        tag("?host=n2", "*/*").await.unwrap(),
        tag("?host=n1&port=http", "*/*").await.unwrap(),
        tag("?label=model:m1", "*/*").await.unwrap(),
        tag("?state=serving", "*/*").await.unwrap(),
    ];
    for (nth, one) in tags.iter().enumerate() {
        assert!(!tags[..nth].contains(one), "{tags:?}");
    }
    assert_eq!(
        tag("?state=all", "*/*").await,
        None,
        "it also shows what moves no revision"
    );
    let asked = async |given: &str| {
        let seen = read(&site, &endpoints(), &[("if-none-match", given)]).await;
        // A cache looks for what it keeps by the very tag of a 304.
        let weak = format!("W/{plain}");
        let told = if given.contains(&weak) { &weak } else { &plain };
        assert_eq!(seen.headers["etag"], *told);
        assert_eq!(seen.headers["vary"], vary);
        assert_eq!(
            seen.status == StatusCode::NOT_MODIFIED,
            seen.body.is_empty()
        );
        seen.status
    };
    assert_eq!(asked(&plain).await, StatusCode::NOT_MODIFIED);
    assert_eq!(
        asked(&format!("\"x\", W/{plain}")).await,
        StatusCode::NOT_MODIFIED
    );
    assert_eq!(
        asked("\"\"").await,
        StatusCode::OK,
        "curl's first --etag-compare"
    );
    assert_eq!(asked(&tags[1]).await, StatusCode::OK, "the text's tag");
    // Of another reader the same revision is another answer.
    let open = format!("visibility = \"cluster\"\n{}", profile("open", 1));
    let mine = put(&paths::service(&"open"), "application/toml", open);
    assert_eq!(site.as_user(OWNER, mine).await.status, StatusCode::OK);
    let path = paths::service_part(&format!("open.{OWNER}"), "endpoints");
    let of = async |uid: u32| {
        site.as_user(uid, request(Method::GET, &path)).await.headers["etag"].clone()
    };
    assert_ne!(of(STRANGER).await, of(own()).await);
    // A change of what is listed is another one.
    let set = agent.desired(None).await;
    let web =
        |it: &&portreeve_api::body::DesiredReplica| it.desired.service.label().as_str() == "web";
    let replica = set.replicas.iter().find(web).unwrap();
    agent.tell(replica, &status(2, State::Backoff, false)).await;
    let changed = format!("?revision={}", body.revision);
    assert_ne!(tag(&changed, "*/*").await.unwrap(), plain);
}

#[tokio::test]
async fn every_read_tells_revision_epoch_and_the_age_of_what_is_known() {
    let site = Site::start().await;
    let _agent = running(&site, 1, 1).await;
    let app = &site.controller.app;
    for path in [
        endpoints(),
        paths::resolve(&"web", None),
        paths::services(),
        paths::service(&"web"),
        paths::hosts(),
        paths::host(&"n1".parse().unwrap()),
        paths::host_part(&"n1".parse().unwrap(), "ports"),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let seen = ask(&site, method.clone(), &path, &[]).await;
            assert_eq!(seen.status, StatusCode::OK, "{method} {path}");
            let number =
                |name: &str| -> u64 { seen.headers[name].to_str().unwrap().parse().unwrap() };
            assert!(
                number("portreeve-revision")
                    <= app
                        .shown
                        .table
                        .revision()
                        .max(app.shown.view.borrow().revision)
            );
            assert!(number("portreeve-revision") > 0, "{path}");
            assert!(number("portreeve-synced") < 60_000, "{path}");
            assert_eq!(seen.headers["portreeve-epoch"], app.shown.table.epoch());
            assert!(
                seen.headers["portreeve-request"]
                    .to_str()
                    .unwrap()
                    .starts_with("req-")
            );
            let vary = seen.headers["vary"].to_str().unwrap();
            assert!(
                vary.starts_with("Accept, ") && vary.ends_with("Authorization"),
                "{vary}"
            );
        }
    }
    let one = read(&site, &paths::services(), &[]).await;
    let two = read(&site, &paths::services(), &[]).await;
    assert_ne!(
        one.headers["portreeve-request"],
        two.headers["portreeve-request"]
    );
}

#[tokio::test]
async fn a_head_is_the_same_without_the_body() {
    let site = Site::start().await;
    let _agent = running(&site, 1, 1).await;
    for path in [endpoints(), paths::resolve(&"web", None), paths::services()] {
        let whole = read(&site, &path, &[]).await;
        let head = ask(&site, Method::HEAD, &path, &[]).await;
        assert_eq!(head.status, StatusCode::OK);
        assert!(head.body.is_empty());
        assert_eq!(
            head.headers["content-length"],
            whole.body.len().to_string(),
            "{path}"
        );
        assert_eq!(head.headers.get("etag"), whole.headers.get("etag"));
        assert_eq!(head.headers["content-type"], whole.headers["content-type"]);
    }
    let refused = ask(&site, Method::HEAD, &paths::service(&"none"), &[]).await;
    assert_eq!(
        (refused.status, refused.body.len()),
        (StatusCode::NOT_FOUND, 0)
    );
    let refused = ask(&site, Method::HEAD, &paths::check(), &[]).await;
    assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn what_cannot_be_given_is_not_acceptable() {
    let site = Site::start().await;
    let _agent = running(&site, 1, 1).await;
    for (path, accept) in [
        (endpoints(), "text/html"),
        (paths::services(), "image/png"),
        (paths::resolve(&"web", None), "application/json"),
    ] {
        let seen = read(&site, &path, &[("accept", accept)]).await;
        assert_eq!(seen.status, StatusCode::NOT_ACCEPTABLE, "{path}");
        assert_eq!(seen.problem().code, "not_acceptable");
    }
    let text = read(&site, &endpoints(), &[("accept", "text/plain")]).await;
    assert!(text.text().starts_with("127.0.0.1:"));
    assert_eq!(text.headers["content-type"], "text/plain; charset=utf-8");
    // What is for a stream alone is not called unknown.
    for query in ["?delta=1", "?since=1"] {
        let seen = read(&site, &format!("{}{query}", endpoints()), &[]).await;
        assert_eq!(seen.problem().code, "bad_parameter");
        assert!(seen.problem().detail.contains("text/event-stream"));
    }
    let json = read(&site, &endpoints(), &[("accept", "text/plain;q=0.5, */*")]).await;
    assert_eq!(json.headers["content-type"], "application/json");
}

#[tokio::test]
async fn a_long_answer_is_packed_for_those_who_take_it() {
    use std::io::Read;
    let site = Site::start().await;
    let _agent = running(&site, 20, 20).await;
    let gzip = &[("accept-encoding", "gzip")];
    let plain = read(&site, &endpoints(), &[]).await;
    assert!(plain.body.len() > 1024);
    assert!(!plain.headers.contains_key("content-encoding"));
    assert_eq!(
        plain.headers["vary"],
        "Accept, Accept-Encoding, Authorization"
    );
    let packed = read(&site, &endpoints(), gzip).await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    assert_eq!(packed.headers["vary"], plain.headers["vary"]);
    assert!(packed.body.len() * 3 < plain.body.len());
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*packed.body)
        .read_to_end(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, plain.body);
    // Other bytes than the strong tag names; its holder still need not fetch them again.
    let tag = plain.headers["etag"].to_str().unwrap();
    assert_eq!(packed.headers["etag"], format!("W/{tag}"));
    let weak = format!("W/{tag}");
    let known = read(
        &site,
        &endpoints(),
        &[("accept-encoding", "gzip"), ("if-none-match", &weak)],
    )
    .await;
    assert_eq!(known.status, StatusCode::NOT_MODIFIED);
    for name in ["etag", "vary", "cache-control"] {
        assert_eq!(known.headers[name], packed.headers[name], "{name}");
    }
    let head = ask(&site, Method::HEAD, &endpoints(), gzip).await;
    assert_eq!(
        head.headers["content-length"],
        packed.body.len().to_string()
    );
    let short = read(&site, &paths::resolve(&"web", None), gzip).await;
    assert!(short.body.len() <= 1024 && !short.headers.contains_key("content-encoding"));
}

#[tokio::test]
async fn resolve_picks_one_by_chance_or_by_seed() {
    let site = Site::start().await;
    let _agent = running(&site, 8, 8).await;
    let resolve = async |query: &str| {
        let seen = read(
            &site,
            &format!("{}{query}", paths::resolve(&"web", Some("http"))),
            &[],
        )
        .await;
        assert_eq!(seen.status, StatusCode::OK, "{query}");
        seen.text().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = resolve("").await;
    assert_eq!(all.len(), 8);
    let one = resolve("?pick=one").await;
    assert_eq!(one.len(), 1);
    assert!(all.contains(&one[0]));
    let mut chosen = std::collections::BTreeSet::new();
    for nth in 0..64 {
        let first = resolve(&format!("?pick=one&seed=client-{nth}")).await;
        assert_eq!(
            first,
            resolve(&format!("?seed=client-{nth}&pick=one")).await
        );
        let ordered = resolve(&format!("?seed=client-{nth}")).await;
        assert_eq!(ordered[0], first[0], "its favourite comes first");
        let mut sorted = ordered.clone();
        sorted.sort();
        assert_eq!(sorted, all, "and the others follow");
        chosen.insert(first[0].clone());
    }
    assert!(chosen.len() >= 6, "seeds spread: {chosen:?}");
    let long = format!("{}?seed={}", paths::resolve(&"web", None), "x".repeat(257));
    assert_eq!(
        read(&site, &long, &[]).await.status,
        StatusCode::BAD_REQUEST
    );
}

// endpoints 34: empty, stale and unknown are told apart.
#[tokio::test]
async fn empty_stale_and_unknown_are_three_answers() {
    let site = Site::start().await;
    let _agent = running(&site, 1, 0).await;
    let empty = read(&site, &endpoints(), &[]).await;
    let body: Endpoints = empty.json();
    assert_eq!(
        (body.endpoints.len(), body.desired, body.stale),
        (0, 1, false)
    );
    let unknown = read(&site, &paths::service_part(&"wob", "endpoints"), &[]).await;
    assert_eq!(unknown.problem().code, "service_not_found");
    let site = site.killed_and_started().await;
    let stale = read(&site, &endpoints(), &[]).await;
    assert!(stale.json::<Endpoints>().stale);
    assert_eq!(stale.headers["portreeve-stale"], "true");
    assert!(
        stale.headers["etag"]
            .to_str()
            .unwrap()
            .ends_with("-stale\"")
    );
    let host: HostView = site.get(&paths::host(&"n1".parse().unwrap())).await;
    assert_eq!(host.state, "not reported");
    FakeAgent::join(&site).await;
    let fresh = read(&site, &endpoints(), &[]).await;
    assert!(!fresh.json::<Endpoints>().stale);
    assert!(!fresh.headers.contains_key("portreeve-stale"));
    assert_ne!(fresh.headers["etag"], stale.headers["etag"]);
}

/// All names of a list, page by page, and how many pages there were.
async fn every_page(site: &Site, uid: u32, first: &str) -> (Vec<String>, usize) {
    let mut names = Vec::new();
    let mut path = first.to_owned();
    for pages in 1..100 {
        let seen = site.as_user(uid, request(Method::GET, &path)).await;
        assert_eq!(seen.status, StatusCode::OK, "{path}: {}", seen.text());
        let link = seen.headers.get("link").map(|link| link.to_str().unwrap());
        let list: ServiceList = seen.json();
        names.extend(
            list.services
                .iter()
                .map(|it| it.service.label().to_string()),
        );
        let Some(cursor) = list.next_cursor else {
            assert_eq!(link, None);
            return (names, pages);
        };
        let link = link.unwrap();
        assert!(
            link.ends_with("; rel=\"next\"") && link.contains(&cursor),
            "{link}"
        );
        path = link[1..link.find('>').unwrap()].to_owned();
    }
    panic!("no end");
}

#[tokio::test]
async fn a_list_in_pages_shows_one_moment() {
    let site = Site::start().await;
    let mut all = Vec::new();
    for nth in 0..7 {
        let name = format!("s{nth}");
        site.submit(&profile(&name, 1)).await;
        all.push(name);
    }
    let list = paths::services();
    assert_eq!(every_page(&site, own(), &list).await, (all.clone(), 1));
    for limit in [1, 2, 3, 6, 7, 8] {
        let first = format!("{list}?limit={limit}");
        let pages = all.len().div_ceil(limit);
        assert_eq!(
            every_page(&site, own(), &first).await,
            (all.clone(), pages),
            "{limit}"
        );
    }
    assert_eq!(
        every_page(&site, own(), &format!("{list}?limit=1&prefix=s6"))
            .await
            .0,
        ["s6"]
    );
    // What comes between two pages is not in them.
    let first: ServiceList = site.get(&format!("{list}?limit=3")).await;
    let cursor = first.next_cursor.unwrap();
    site.submit(&profile("s3a", 1)).await;
    let stop = paths::service_part(&"s5", "stop");
    site.as_user(own(), request(Method::POST, &stop)).await;
    let gone = site
        .as_user(own(), request(Method::DELETE, &paths::service(&"s5")))
        .await;
    assert_eq!(gone.status, StatusCode::OK);
    let next: ServiceList = site.get(&format!("{list}?cursor={cursor}")).await;
    assert_eq!((next.revision, next.next_cursor), (first.revision, None));
    let names: Vec<_> = next
        .services
        .iter()
        .map(|it| it.service.label().to_string())
        .collect();
    assert_eq!(names, all[3..]);
    let now: ServiceList = site.get(&list).await;
    assert!(now.revision > first.revision && now.services.len() == 7);
}

#[tokio::test]
async fn a_cursor_is_its_users_and_its_lists_and_ends() {
    let site = Site::start().await;
    for name in ["a", "b", "c"] {
        let open = format!(
            "visibility = \"cluster\"\nlabels = {{ tier = \"x\" }}\n{}",
            profile(name, 1)
        );
        let mine = put(&paths::service(&name), "application/toml", open);
        assert_eq!(site.as_user(OWNER, mine).await.status, StatusCode::OK);
    }
    let list = paths::services();
    let labelled = format!("{list}?limit=1&label=tier:x");
    assert_eq!(
        every_page(&site, STRANGER, &labelled).await.0,
        ["a", "b", "c"]
    );
    assert_eq!(
        every_page(&site, STRANGER, &format!("{list}?label=tier:y"))
            .await
            .0
            .len(),
        0
    );
    let as_stranger =
        async |path: String| site.as_user(STRANGER, request(Method::GET, &path)).await;
    let first: ServiceList = as_stranger(labelled.clone()).await.json();
    let cursor = first.next_cursor.unwrap();
    let anothers = read(&site, &format!("{list}?cursor={cursor}"), &[]).await;
    assert_eq!(
        (anothers.status, anothers.problem().code.as_str()),
        (StatusCode::GONE, "cursor_expired")
    );
    for wrong in [
        format!("cursor={cursor}&prefix=a"),
        format!("cursor={cursor}&label=tier:x"),
        format!("cursor={cursor}&revision=1"),
        "cursor=x".to_owned(),
        format!("cursor={cursor}0"),
        "limit=0".to_owned(),
        "limit=1001".to_owned(),
        "limit=-1".to_owned(),
    ] {
        let seen = as_stranger(format!("{list}?{wrong}")).await;
        assert_eq!(
            (seen.status, seen.problem().code.as_str()),
            (StatusCode::BAD_REQUEST, "bad_parameter"),
            "{wrong}"
        );
    }
    // A right that is lost between two pages ends with the next one.
    let closed = put(
        &format!("{}?replace=1", paths::service(&"b")),
        "application/toml",
        profile("b", 1),
    );
    assert_eq!(site.as_user(OWNER, closed).await.status, StatusCode::OK);
    let next: ServiceList = as_stranger(format!("{list}?cursor={cursor}")).await.json();
    let names: Vec<_> = next
        .services
        .iter()
        .map(|it| it.service.label().as_str())
        .collect();
    assert_eq!(names, ["c"]);
    // The next start knows no moment of the former one.
    let site = site.killed_and_started().await;
    let seen = site
        .as_user(
            STRANGER,
            request(Method::GET, &format!("{list}?cursor={cursor}")),
        )
        .await;
    assert_eq!(seen.problem().code, "cursor_expired");
}
