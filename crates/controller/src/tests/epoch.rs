//! Number lines over starts: what a watcher from before one may believe, and what tells a copy from a restart.

use std::path::Path;

use http::Method;
use portreeve::supervision::State;
use portreeve_api::body::Endpoints;
use portreeve_api::paths;

use crate::site::{FakeAgent, PATIENCE, Site, config, profile, status};
use crate::{Config, Controller};

fn epoch(site: &Site) -> String {
    site.controller.app.shown.table.epoch().to_owned()
}

fn revision(site: &Site) -> u64 {
    site.controller.app.shown.table.revision()
}

async fn started(site: Site, change: impl FnOnce(&mut Config)) -> Site {
    let Site { folder, controller } = site;
    controller.stop().await;
    let mut config = config(&folder);
    change(&mut config);
    let controller = Controller::start(config).await.unwrap();
    Site { folder, controller }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test]
async fn restarts_and_kills_stay_on_one_line_and_a_wish_begins_another() {
    let mut site = Site::start().await;
    site.submit(&profile("web", 1)).await;
    let (first, mut last) = (epoch(&site), revision(&site));
    for _ in 0..3 {
        site = site.killed_and_started().await;
        assert_eq!(epoch(&site), first);
        assert!(revision(&site) > last);
        last = revision(&site);
        site = started(site, |_| {}).await;
        assert_eq!(epoch(&site), first);
        assert!(revision(&site) > last);
        last = revision(&site);
    }
    let site = started(site, |config| config.new_epoch = true).await;
    let second = epoch(&site);
    assert_ne!(second, first);
    assert!(revision(&site) > last);
    // Only that start: the next one goes on with it.
    let site = started(site, |_| {}).await;
    assert_eq!(epoch(&site), second);
}

// endpoints.md section 6, 13: a restored backup is another epoch, at no lower a number.
#[tokio::test]
async fn a_copied_or_restored_data_directory_begins_an_epoch_of_its_own() {
    let site = Site::start().await;
    site.submit(&profile("web", 1)).await;
    let Site { folder, controller } = site;
    controller.stop().await;
    let data = config(&folder).data;
    let backup = folder.path().join("backup");
    copy(&data, &backup);
    let controller = Controller::start(config(&folder)).await.unwrap();
    let site = Site { folder, controller };
    let first = epoch(&site);
    site.submit(&profile("later", 1)).await;
    let last = revision(&site);
    // A clone beside it.
    let cloned = started(site, |config| config.data.clone_from(&backup)).await;
    let clone = epoch(&cloned);
    assert_ne!(clone, first);
    assert!(revision(&cloned) > last);
    // Back to the original: it is what it was.
    let site = started(cloned, |_| {}).await;
    assert_eq!(epoch(&site), first);
    let last = revision(&site);
    // The backup in its place.
    let Site { folder, controller } = site;
    controller.stop().await;
    std::fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    let controller = Controller::start(config(&folder)).await.unwrap();
    let restored = Site { folder, controller };
    assert!(![first, clone].contains(&epoch(&restored)));
    assert!(revision(&restored) > last);
    let path = paths::service(&"later");
    assert!(
        restored
            .client()
            .get::<Endpoints>(&path, PATIENCE)
            .await
            .is_err()
    );
}

// endpoints 35
#[tokio::test]
async fn a_watcher_from_before_a_restart_can_be_told_of_what_was_removed() {
    let site = Site::start().await;
    site.submit(&profile("web", 0)).await;
    let since = revision(&site);
    let path = paths::service(&"web");
    let client = site.client();
    let deleted = client.call::<portreeve::registry::Answer>(Method::DELETE, &path, &(), PATIENCE);
    deleted.await.unwrap();
    let gone = revision(&site);
    let site = site.killed_and_started().await;
    let table = &site.controller.app.shown.table;
    let removed = table.removed_since(since).unwrap();
    assert_eq!(removed.len(), 1);
    assert_eq!(removed[0].label().as_str(), "web");
    assert!(table.removed_since(revision(&site)).unwrap().is_empty());
    assert!(gone > since);
}

#[tokio::test]
async fn what_is_stale_after_a_start_ends_with_the_hosts_report_and_rings_a_bell_but_moves_no_number()
 {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 1)).await;
    let set = agent.desired_until(|set| set.replicas.len() == 1).await;
    agent
        .tell(&set.replicas[0], &status(1, State::Up, true))
        .await;
    site.commits_at_rest().await;
    let site = site.killed_and_started().await;
    let shown = &site.controller.app.shown;
    let name = set.replicas[0].desired.service.clone();
    let is_stale = || shown.view.borrow().is_stale(&name);
    assert!(is_stale());
    let listed = shown.table.read(&name, |seen| seen.listed().len());
    assert_eq!(listed, Some(1), "no empty set meanwhile");
    let mut synced = shown.synced.subscribe();
    let numbers = shown
        .table
        .read(&name, |seen| (seen.mod_revision(), seen.ready_revision()));
    let mut facts = agent.facts();
    facts.replicas = vec![portreeve::registry::ReplicaReport {
        host: facts.host.clone(),
        service: name.clone(),
        index: 0,
        incarnation: set.replicas[0].desired.incarnation,
        service_id: None,
        grant: None,
        status: status(1, State::Up, true),
    }];
    FakeAgent::named(&site, "n1").report(&facts).await;
    let ended = tokio::time::timeout(PATIENCE, synced.changed());
    ended.await.unwrap().unwrap();
    assert!(!is_stale());
    let after = shown
        .table
        .read(&name, |seen| (seen.mod_revision(), seen.ready_revision()));
    assert_eq!(after, numbers);
}
