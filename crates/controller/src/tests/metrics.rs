//! `/metrics`: well formed in both formats, true, and no more than the asker may know.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use http::{Method, Request, StatusCode};
use portreeve::supervision::State;

use crate::site::{FakeAgent, OWNER, STRANGER, Site, profile, put, request, status};

/// Samples by name and labels, as written. Holds the text against the format on its way.
fn read(text: &str, open: bool) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut family = "";
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(
                open && lines.peek().is_none(),
                "only at the end of OpenMetrics"
            );
            return samples;
        }
        if let Some(comment) = line.strip_prefix("# ") {
            let (what, rest) = comment.split_once(' ').unwrap();
            let (name, words) = rest.split_once(' ').unwrap();
            match what {
                "HELP" => {
                    assert!(helped.insert(name), "{name} is told twice");
                    assert!(words.len() > 10, "{line}");
                }
                "TYPE" => {
                    assert!(kinds.insert(name, words).is_none(), "{name} is told twice");
                    assert!(helped.contains(name), "{name} has no help");
                    assert!(is_name(name), "{name}");
                    family = name;
                }
                other => panic!("{other}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
            None => (series, ""),
        };
        assert!(is_name(name), "{line}");
        let suffix = name
            .strip_prefix(family)
            .unwrap_or_else(|| panic!("{line} in {family}"));
        match (kinds[family], open) {
            ("counter", true) => assert_eq!(suffix, "_total", "{line}"),
            ("counter", false) => assert!(suffix.is_empty() && name.ends_with("_total"), "{line}"),
            ("gauge", _) => assert_eq!(suffix, "", "{line}"),
            ("histogram", _) => {
                assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}");
            }
            other => panic!("{other:?}: {line}"),
        }
        let mut rest = labels;
        while !rest.is_empty() {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label), "{line}");
            let (value, after) = after.split_once('"').unwrap();
            assert!(!value.contains(['\\', '\n']), "{line}");
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        assert!(
            samples.insert(series.to_owned(), value).is_none(),
            "{series} twice"
        );
    }
    assert!(!open, "OpenMetrics ends with its mark");
    samples
}

fn is_name(name: &str) -> bool {
    let first = |it: char| it.is_ascii_lowercase() || it == '_';
    name.starts_with(first) && name.chars().all(|it| first(it) || it.is_ascii_digit())
}

async fn metrics(site: &Site, uid: u32) -> BTreeMap<String, f64> {
    let seen = site.as_user(uid, request(Method::GET, "/metrics")).await;
    assert_eq!(seen.status, StatusCode::OK);
    assert_eq!(
        seen.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    read(seen.text(), false)
}

/// A service that runs on the fake agent's host, and one that waits.
async fn with_services(site: &Site) -> FakeAgent {
    let agent = FakeAgent::join(site).await;
    site.submit(&profile("web", 2)).await;
    let set = agent.desired_until(|set| set.replicas.len() == 2).await;
    agent
        .tell(&set.replicas[0], &status(1, State::Up, true))
        .await;
    let fixed = "kind = \"service\"\nname = \"nb\"\nreplicas = 2\ncommand = [\"x\"]\n[ports]\nhttp = 8888\n";
    site.submit(fixed).await;
    agent
}

#[tokio::test]
async fn the_figures_are_those_of_the_lists() {
    let site = Site::start().await;
    let _agent = with_services(&site).await;
    let told = metrics(&site, 0).await;
    for (series, value) in [
        ("portreeve_services{state=\"running\"}", 2.0),
        ("portreeve_replicas{state=\"ready\"}", 1.0),
        ("portreeve_replicas{state=\"starting\"}", 2.0),
        ("portreeve_replicas{state=\"pending\"}", 1.0),
        ("portreeve_waiting_replicas{cause=\"HELD\"}", 1.0),
        ("portreeve_hosts{state=\"up\"}", 1.0),
        ("portreeve_ports{state=\"held\"}", 5.0),
        ("portreeve_ports{state=\"dynamic\"}", 100.0),
        ("portreeve_store_writable", 1.0),
        ("portreeve_heard_total{kind=\"status\"}", 1.0),
        ("portreeve_refused_commits_total", 0.0),
        ("portreeve_stale_services", 0.0),
        ("portreeve_view_info{scope=\"all\"}", 1.0),
        ("portreeve_polls", 0.0),
    ] {
        assert_eq!(told.get(series), Some(&value), "{series}: {told:#?}");
    }
    let commits = told["portreeve_commits_total"];
    assert!(commits >= 2.0 && commits <= site.controller.commits() as f64);
    assert_eq!(told["portreeve_commit_seconds_count"], commits);
    assert_eq!(
        told["portreeve_commit_records_bucket{le=\"+Inf\"}"],
        commits
    );
    for series in [
        "portreeve_revision",
        "portreeve_store_bytes",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
    ] {
        assert!(told[series] > 0.0, "{series}");
    }
    let silence = told["portreeve_longest_host_silence_seconds"];
    assert!((0.0..60.0).contains(&silence), "{silence}");
}

#[tokio::test]
async fn requests_and_refusals_are_counted_by_route_and_code() {
    let site = Site::start().await;
    for path in ["/api/v1/services/a", "/api/v1/services/b"] {
        site.as_user(0, request(Method::GET, path)).await;
    }
    site.as_user(0, request(Method::GET, "/nowhere/at/all"))
        .await;
    let told = metrics(&site, 0).await;
    let missing = "portreeve_requests_total{route=\"/api/v1/services/{service}\",method=\"GET\",status=\"404\"}";
    assert_eq!(told.get(missing), Some(&2.0), "{told:#?}");
    let nowhere = "portreeve_requests_total{route=\"none\",method=\"GET\",status=\"404\"}";
    assert_eq!(told.get(nowhere), Some(&1.0));
    let refused = "portreeve_refusals_total{code=\"service_not_found\"}";
    assert_eq!(told.get(refused), Some(&2.0));
}

#[tokio::test]
async fn who_does_not_see_a_service_does_not_see_it_counted() {
    let site = Site::start().await;
    let _agent = with_services(&site).await;
    let own = put(
        &portreeve_api::paths::service(&"own"),
        "application/toml",
        profile("own", 1),
    );
    assert_eq!(site.as_user(OWNER, own).await.status, StatusCode::OK);
    let told = metrics(&site, OWNER).await;
    assert_eq!(told["portreeve_services{state=\"running\"}"], 1.0);
    assert_eq!(told["portreeve_view_info{scope=\"own\"}"], 1.0);
    let told = metrics(&site, STRANGER).await;
    assert!(!told.keys().any(|it| it.starts_with("portreeve_services{")));
    assert!(!told.keys().any(|it| it.starts_with("portreeve_replicas{")));
    let others = [
        "portreeve_requests",
        "portreeve_refusals",
        "portreeve_connections",
    ];
    for series in others {
        assert!(!told.keys().any(|it| it.starts_with(series)), "{series}");
    }
    // Hosts, their numbers in sum, and the process are for all.
    assert_eq!(told["portreeve_hosts{state=\"up\"}"], 1.0);
    assert!(told["process_resident_memory_bytes"] > 0.0);
}

#[tokio::test]
async fn who_asks_for_openmetrics_gets_it() {
    let site = Site::start().await;
    let _agent = with_services(&site).await;
    // What Prometheus sends.
    let accept = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                  text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    let asked = Request::builder().uri("/metrics").header("accept", accept);
    let seen = site.as_user(0, asked.body(Body::empty()).unwrap()).await;
    assert_eq!(
        seen.headers["content-type"],
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let told = read(seen.text(), true);
    assert_eq!(told["portreeve_hosts{state=\"up\"}"], 1.0);
    let asked = Request::builder()
        .uri("/metrics")
        .header("accept", "text/html");
    let seen = site.as_user(0, asked.body(Body::empty()).unwrap()).await;
    assert_eq!(seen.status, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn every_metric_is_on_its_page_and_the_page_names_no_other() {
    let site = Site::start().await;
    let _agent = with_services(&site).await;
    site.as_user(0, request(Method::GET, "/nowhere")).await;
    let seen = site.as_user(0, request(Method::GET, "/metrics")).await;
    let told = seen.text().lines();
    let told: BTreeSet<_> = told
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: BTreeSet<_> = rows
        .filter_map(|row| row.split(['`', '{']).next())
        .collect();
    assert_eq!(told, rows);
}

#[test]
fn the_shipped_alerts_and_the_dashboard_ask_for_figures_that_there_are() {
    let page = include_str!("../../../../docs/metrics.md");
    let rules = include_str!("../../../../packaging/prometheus/portreeve.rules.yml");
    let dashboard = include_str!("../../../../packaging/grafana/portreeve.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let asked = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let asked = asked.map(|target| target["expr"].as_str().unwrap());
    let asked = asked.chain(rules.lines().filter_map(|line| line.split("expr: ").nth(1)));
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut figures = 0;
    for expression in asked {
        let words = expression.split(|letter| !is_word(letter));
        for figure in words.filter(|it| it.starts_with("portreeve_") || it.starts_with("process_"))
        {
            let figure = figure.trim_end_matches("_bucket");
            let row = format!("| `{figure}");
            let is_there = page.lines().any(|line| {
                let rest = line.strip_prefix(&row);
                rest.is_some_and(|rest| rest.starts_with(['`', '{']))
            });
            assert!(is_there, "{figure} of {expression}");
            figures += 1;
        }
    }
    assert!(figures > 20, "{figures}");
    let named = rules
        .lines()
        .filter_map(|line| line.split("alert: ").nth(1));
    for alert in named {
        assert!(page.contains(&format!("| {alert} |")), "{alert}");
    }
}
