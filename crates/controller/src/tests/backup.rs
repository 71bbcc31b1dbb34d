//! A backup of a running controller, and the controller that begins on it.

use http::{Method, StatusCode};
use portreeve::supervision::State;
use portreeve_api::body::ServiceList;
use portreeve_api::paths;

use crate::site::{FakeAgent, STRANGER, Site, config, profile, request, status};
use crate::{Controller, Former, check_backup, restore};

async fn backup(site: &Site, with_secrets: bool) -> Vec<u8> {
    let own = nix::unistd::geteuid().as_raw();
    let seen = site
        .as_user(own, request(Method::GET, &paths::backup(with_secrets)))
        .await;
    assert_eq!(seen.status, StatusCode::OK, "{}", seen.text());
    seen.body
}

#[tokio::test]
async fn a_backup_is_for_admins_alone() {
    let site = Site::start().await;
    let seen = site
        .as_user(STRANGER, request(Method::GET, &paths::backup(true)))
        .await;
    assert_eq!(seen.status, StatusCode::FORBIDDEN);
    assert_eq!(seen.problem().code, "not_allowed");
}

// controller.md section 2: a restore starts a new epoch.
#[tokio::test]
async fn a_restored_backup_is_what_was_and_a_line_of_its_own_above_what_readers_saw() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 2)).await;
    let set = agent.desired_until(|set| set.replicas.len() == 2).await;
    agent
        .tell(&set.replicas[0], &status(1, State::Up, true))
        .await;
    site.commits_at_rest().await;
    let bytes = backup(&site, true).await;
    let head = check_backup(&bytes[..]).unwrap();
    assert!(head.secrets && head.commits > 0);
    assert!(
        !check_backup(&backup(&site, false).await[..])
            .unwrap()
            .secrets
    );
    // It goes on, and what comes now is lost with the disk.
    site.submit(&profile("later", 1)).await;
    let before: ServiceList = site.get(&paths::services()).await;
    let epoch = site.controller.app.shown.table.epoch().to_owned();
    let Site { folder, controller } = site;
    controller.stop().await;
    let data = config(&folder).data;
    std::fs::remove_dir_all(&data).unwrap();
    let done = restore(&data, &bytes[..], Former::Refuse).unwrap();
    assert!(!done.new_secret);
    let controller = Controller::start(config(&folder)).await.unwrap();
    let site = Site { folder, controller };
    let after: ServiceList = site.get(&paths::services()).await;
    let names: Vec<_> = after
        .services
        .iter()
        .map(|it| it.service.to_string())
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(after.revision > before.revision);
    assert_ne!(site.controller.app.shown.table.epoch(), epoch);
    // The worker of then is believed still: the secret came with it.
    let agent = FakeAgent::join(&site).await;
    agent
        .tell(&set.replicas[0], &status(2, State::Up, true))
        .await;
    let web = site.service("web").await;
    assert_eq!(web.ready, 1);
    // Only that start.
    let epoch = site.controller.app.shown.table.epoch().to_owned();
    let site = site.killed_and_started().await;
    assert_eq!(site.controller.app.shown.table.epoch(), epoch);
}

#[tokio::test]
async fn backups_under_load_are_each_of_one_moment_and_hold_nothing_up() {
    let site = Site::start().await;
    let _agent = FakeAgent::join(&site).await;
    let submits = async {
        for n in 0..30 {
            site.submit(&profile(&format!("s{n}"), 1)).await;
        }
    };
    let backups = async {
        let mut last = 0;
        for _ in 0..8 {
            let head = check_backup(&backup(&site, false).await[..]).unwrap();
            assert!(head.commits >= last);
            last = head.commits;
        }
    };
    tokio::join!(submits, backups);
    let list: ServiceList = site.get(&paths::services()).await;
    assert_eq!(list.services.len(), 30);
}
