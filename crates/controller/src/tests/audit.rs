//! The audit log: what is in it, what is not, and that nobody waits for it.

use std::path::PathBuf;

use http::Method;
use serde_json::Value;

use crate::site::{FakeAgent, PATIENCE, STRANGER, Site, config, profile, put, request};
use crate::{AuditPlace, Controller};
use portreeve_api::paths;

async fn audited() -> (Site, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let mut config = config(&folder);
    config.audit = Some(AuditPlace::File(path.clone()));
    let controller = Controller::start(config).await.unwrap();
    (Site { folder, controller }, path)
}

/// The lines, once there are so many.
async fn lines(path: &PathBuf, many: usize) -> Vec<Value> {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        if lines.len() >= many {
            return lines;
        }
        assert!(std::time::Instant::now() < deadline, "{text}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_change_and_a_refusal_are_told_with_who_what_and_from_where() {
    let (site, path) = audited().await;
    let toml = profile("web", 1);
    let web = paths::service(&"web");
    let submitted = site.as_user(0, put(&web, "application/toml", toml)).await;
    assert!(submitted.status.is_success());
    // Reading is neither.
    site.as_user(0, request(Method::GET, &web)).await;
    let stop = paths::service_part(&"web.root", "stop");
    let hidden = site.as_user(STRANGER, request(Method::POST, &stop)).await;
    assert_eq!(hidden.status, 404);
    let report = paths::host_part(&"n1".parse().unwrap(), "lease");
    let lease = put(&report, "application/json", "{}");
    let (mut parts, body) = lease.into_parts();
    parts.method = Method::POST;
    let lease = http::Request::from_parts(parts, body);
    let refused = site.as_user(STRANGER, lease).await;
    assert_eq!(refused.status, 403);
    let told = lines(&path, 3).await;
    assert_eq!(told.len(), 3, "{told:?}");
    let [change, hidden, refused] = &told[..] else {
        unreachable!("three lines")
    };
    assert_eq!(change["event"], "change");
    assert_eq!(
        (&change["user"], &change["method"]),
        (&"root".into(), &"unix socket".into())
    );
    assert_eq!(change["call"], "PUT");
    assert_eq!(change["route"], "/api/v1/services/{service}");
    assert_eq!(change["path"], "/api/v1/services/web");
    assert_eq!(
        change["from"],
        serde_json::json!({"via": "unix socket", "uid": 0})
    );
    assert_eq!(
        change["request"],
        submitted.headers["portreeve-request"].to_str().unwrap()
    );
    assert!(change["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        (&hidden["event"], &hidden["status"]),
        (&"refusal".into(), &404.into())
    );
    assert_eq!(hidden["code"], "service_not_found");
    assert_eq!(hidden["user"], STRANGER.to_string());
    assert_eq!(
        (&refused["status"], &refused["code"]),
        (&403.into(), &"not_allowed".into())
    );
}

#[tokio::test]
async fn what_hosts_tell_all_the_time_is_no_change_and_no_secret_is_written() {
    let (site, path) = audited().await;
    let agent = FakeAgent::join(&site).await;
    let secret = "[env]\nKEY = \"MARKER-env\"\n";
    site.submit(&format!("{}{secret}", profile("web", 1))).await;
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    let told = crate::site::status(1, portreeve::supervision::State::Starting, false);
    agent.tell(&set.replicas[0], &told).await;
    agent.report(&agent.facts()).await;
    let stop = paths::service_part(&"web", "stop");
    for (query, header) in [
        ("?token=MARKER-query", "Bearer MARKER-bearer"),
        ("?x=prt1.0.MARKER-value", "Basic MARKER-basic"),
        ("", "Bearer prt1.00.MARKER-token"),
    ] {
        let mut asked = request(Method::POST, &format!("{stop}{query}"));
        let headers = asked.headers_mut();
        headers.insert("authorization", header.parse().unwrap());
        headers.insert("cookie", "MARKER-cookie".parse().unwrap());
        let refused = site.as_user(0, asked).await;
        assert_eq!(refused.status, 401);
    }
    // The submit and three refusals, and nothing of the host.
    let told = lines(&path, 4).await;
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[1]["user"].is_null(), "nobody was known: {}", told[1]);
    assert_eq!(told[1]["query"], "token=...");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("MARKER"), "{text}");
    for worker in [&set.replicas[0].tokens.worker, &set.replicas[0].tokens.job] {
        assert!(!text.contains(worker.as_str()), "{text}");
    }
}

#[tokio::test]
async fn a_file_that_was_moved_is_made_anew_by_a_reload_and_a_full_disk_holds_nobody_up() {
    let (site, path) = audited().await;
    site.submit(&profile("web", 1)).await;
    lines(&path, 1).await;
    let moved = site.folder.path().join("moved.log");
    std::fs::rename(&path, &moved).unwrap();
    site.controller.reload().await;
    let deadline = std::time::Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(std::time::Instant::now() < deadline, "it is not made anew");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    site.submit(&profile("more", 1)).await;
    lines(&path, 1).await;
    assert_eq!(lines(&moved, 1).await.len(), 1);
    site.controller.stop().await;

    let folder = tempfile::tempdir().unwrap();
    let mut full = config(&folder);
    full.audit = Some(AuditPlace::File("/dev/full".into()));
    let controller = Controller::start(full).await.unwrap();
    let site = Site { folder, controller };
    site.submit(&profile("web", 1)).await;
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let metrics = site.as_user(0, request(Method::GET, "/metrics")).await;
        if metrics
            .text()
            .contains("portreeve_audit_lost_lines_total 1.0\n")
        {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{}", metrics.text());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn who_is_refused_all_the_time_does_not_push_out_what_others_did() {
    // Parts of 50 MB are kept: a loop of bad tokens from any account had the lines of everybody else gone in minutes.
    let (site, path) = audited().await;
    for _ in 0..300 {
        let mut asked = request(Method::GET, &paths::whoami());
        let value = "Bearer prt1.none".parse().unwrap();
        asked.headers_mut().insert("authorization", value);
        assert_eq!(site.as_user(STRANGER, asked).await.status, 401);
    }
    site.submit(&profile("web", 1)).await;
    let lines = lines(&path, 201).await;
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert!((200..260).contains(&of("refusal")), "{}", of("refusal"));
    assert_eq!(of("change"), 1);
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("\"event\":\"lost\"") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the gap is not told");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
