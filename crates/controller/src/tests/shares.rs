//! What one user may hold and how often it may ask, as the site says.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use portreeve::registry::ServiceView;
use portreeve_api::paths;

use crate::site::{
    FakeAgent, OWNER, PATIENCE, STRANGER, Seen, Site, config, profile, put, request,
};
use crate::{Config, Controller, StartError};

/// A controller with this file of limits and this rate.
async fn site(limits: Option<&str>, requests_per_second: Option<u32>) -> Site {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    if let Some(text) = limits {
        std::fs::write(&path, text).unwrap();
    }
    let config = Config {
        limits: limits.map(|_| path),
        requests_per_second,
        ..config(&folder)
    };
    let controller = Controller::start(config).await.unwrap();
    Site { folder, controller }
}

async fn submit(site: &Site, name: &str, replicas: u32) -> Seen {
    let path = paths::service(&name);
    let request = put(&path, "application/toml", profile(name, replicas));
    site.as_user(OWNER, request).await
}

async fn shown(site: &Site, name: &str) -> ServiceView {
    let path = paths::service(&name);
    site.as_user(OWNER, request(Method::GET, &path))
        .await
        .json()
}

async fn until(site: &Site, name: &str, holds: impl Fn(&ServiceView) -> bool) {
    let begun = Instant::now();
    loop {
        let view = shown(site, name).await;
        if holds(&view) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{view:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_file_of_limits_holds_and_a_change_of_it_wakes_who_waits() {
    let site = site(Some("[user.default]\nports = 2\n"), None).await;
    let _agent = FakeAgent::join(&site).await;
    // Each has two ports.
    assert_eq!(submit(&site, "web", 1).await.status, StatusCode::OK);
    assert_eq!(submit(&site, "more", 1).await.status, StatusCode::OK);
    let waits = format!("1 replica waits: LIMIT: {OWNER} holds 2 of 2 ports");
    until(&site, "more", |it| it.waits_for.as_ref() == Some(&waits)).await;
    let refused = submit(&site, "large", 2).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let problem = refused.problem();
    assert_eq!(problem.code, "beyond_limit");
    assert_eq!(
        (&problem.more["most"], &problem.more["asks"]),
        (&2.into(), &4.into())
    );
    assert_eq!(problem.more["whose"], OWNER.to_string());
    let file = site.folder.path().join("limits.toml");
    std::fs::write(&file, "[user.default]\nports = two\n").unwrap();
    // Nothing tells that a broken file was read; what follows holds whether or not it was.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(shown(&site, "more").await.waits_for.as_ref(), Some(&waits));
    std::fs::write(&file, format!("[user.{OWNER}]\nports = 4\n")).unwrap();
    until(&site, "more", |it| it.waits_for.is_none()).await;
    let of_another = put(
        &paths::service(&"web"),
        "application/toml",
        profile("web", 1),
    );
    let seen = site.as_user(STRANGER, of_another).await;
    assert_eq!(seen.status, StatusCode::OK);
}

#[tokio::test]
async fn a_controller_does_not_start_with_a_file_of_limits_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let start = |text: Option<&str>| {
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let config = Config {
            limits: Some(path.clone()),
            ..config(&folder)
        };
        async { Controller::start(config).await.unwrap_err() }
    };
    let missing = start(None).await;
    assert!(matches!(missing, StartError::SiteFile(_)), "{missing}");
    let wrong = start(Some("[user.default]\nports = 1\nport = 2\n[grup]\n")).await;
    let lines: Vec<String> = wrong.to_string().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 2, "{wrong}");
    assert!(
        lines[0].contains("limits.toml:3:1: \"port\" is none of"),
        "{wrong}"
    );
    assert!(
        lines[1].contains("limits.toml:4:2: \"grup\" is none of"),
        "{wrong}"
    );
}

#[tokio::test]
async fn who_asks_without_a_pause_is_told_to_wait_and_nobody_else() {
    let site = site(None, Some(1)).await;
    let ask = |uid: u32| site.as_user(uid, request(Method::GET, "/api/v1/services"));
    let mut passed = 0;
    let refused = loop {
        let seen = ask(OWNER).await;
        if seen.status != StatusCode::OK {
            break seen;
        }
        passed += 1;
        assert!(passed < 1_000, "never refused");
    };
    assert!(passed >= 5, "a burst passes: {passed}");
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.problem().code, "too_many_requests");
    assert_eq!(ask(STRANGER).await.status, StatusCode::OK);
    for _ in 0..20 {
        assert_eq!(ask(0).await.status, StatusCode::OK, "agents run as root");
    }
    // Whoever only wants to know whether it lives needs no budget.
    let alive = site.as_user(OWNER, request(Method::GET, "/healthz")).await;
    assert_eq!(alive.status, StatusCode::OK);
}
