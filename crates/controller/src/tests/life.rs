//! Start, stop, kill, and who is in the way.

use std::time::Duration;

use portreeve::registry::{Silence, Suspects};
use portreeve_api::body::{ServiceList, WhoAmI};
use portreeve_api::{Client, Target, paths};

use crate::site::{FakeAgent, PATIENCE, Site, config, profile};
use crate::{Controller, StartError};

#[tokio::test]
async fn a_killed_controller_comes_back_with_the_same_truth_and_a_higher_revision() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 2)).await;
    let set = agent.desired_until(|set| set.replicas.len() == 2).await;
    let before: ServiceList = site.get(&paths::services()).await;
    let site = site.killed_and_started().await;
    let after: ServiceList = site.get(&paths::services()).await;
    assert!(after.revision > before.revision);
    assert_eq!(after.services.len(), 1);
    assert_eq!(after.services[0].service, before.services[0].service);
    // Before its full report the host gets no new grant; then it finds the same orders.
    assert!(agent.desired(Some(set.revision)).await.report_first);
    agent.report(&agent.facts()).await;
    let again = agent.desired_until(|set| set.replicas.len() == 2).await;
    assert_ne!(again.instance, set.instance);
    for (was, is) in set.replicas.iter().zip(&again.replicas) {
        assert_eq!(was.desired.grant, is.desired.grant);
        assert_eq!(was.tokens, is.tokens);
    }
}

#[tokio::test]
async fn a_second_controller_is_told_who_is_in_the_way() {
    let site = Site::start().await;
    let own = Some(std::process::id());
    let refused = Controller::start(config(&site.folder)).await.unwrap_err();
    assert!(
        matches!(refused, StartError::DataInUse { pid, .. } if pid == own),
        "{refused}"
    );
    let mut elsewhere = config(&site.folder);
    elsewhere.data = site.folder.path().join("other");
    let refused = Controller::start(elsewhere.clone()).await.unwrap_err();
    assert!(
        matches!(refused, StartError::SocketInUse { pid, .. } if pid == own),
        "{refused}"
    );
    elsewhere.socket = site.folder.path().join("run/other.sock");
    elsewhere.listen = vec![site.tcp().parse().unwrap()];
    let refused = Controller::start(elsewhere.clone()).await.unwrap_err();
    assert!(
        matches!(refused, StartError::AddressInUse { .. }),
        "{refused}"
    );
    assert!(!elsewhere.socket.exists());
    elsewhere.listen = vec!["0.0.0.0:0".parse().unwrap()];
    let refused = Controller::start(elsewhere).await.unwrap_err();
    assert!(
        matches!(refused, StartError::NotLoopback { .. }),
        "{refused}"
    );
    site.get::<ServiceList>(&paths::services()).await;
}

#[tokio::test]
async fn a_stop_answers_held_questions_and_leaves_no_socket() {
    let site = Site::start().await;
    let list: ServiceList = site.get(&paths::services()).await;
    let path = format!("{}?revision={}&wait=5m", paths::services(), list.revision);
    let client = site.client();
    let held = tokio::spawn(async move { client.get::<ServiceList>(&path, PATIENCE).await });
    // The question is under way once its connection is; the answer tells either way.
    while !held.is_finished() && site.controller.app.shown.view.receiver_count() < 1 {
        tokio::task::yield_now().await;
    }
    site.controller.stop().await;
    assert!(held.await.unwrap().is_ok());
    assert_eq!(
        std::fs::read_dir(site.folder.path().join("run"))
            .unwrap()
            .count(),
        0
    );
    let again = Controller::start(config(&site.folder)).await.unwrap();
    again.stop().await;
}

#[tokio::test]
async fn the_kernel_says_who_asks() {
    let site = Site::start().await;
    let own = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .unwrap()
        .unwrap();
    let me: WhoAmI = site.get(&paths::whoami()).await;
    assert_eq!(
        (me.user, me.method.as_str(), me.admin),
        (own.name.clone(), "unix socket", true)
    );
    let client = Client::new(Target::Tcp(site.tcp()));
    let me: WhoAmI = client.get(&paths::whoami(), PATIENCE).await.unwrap();
    assert_eq!(
        (me.user, me.method.as_str(), me.admin),
        (own.name, "loopback peer", true)
    );
}

#[tokio::test]
async fn an_idle_controller_writes_nothing() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    agent.report(&agent.facts()).await;
    let before = site.commits_at_rest().await;
    for _ in 0..5 {
        agent.report(&agent.facts()).await;
    }
    assert_eq!(site.commits_at_rest().await, before);
}

// P22: a grace that a mere restart of an agent would exceed.
#[tokio::test]
async fn a_grace_that_a_restart_of_agents_would_exceed_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let seconds = Duration::from_secs;
    let silence = |suspect, grace| Silence::new(suspect, grace, Suspects::default()).unwrap();
    let mut config = config(&folder);
    config.silence = silence(seconds(20), seconds(25));
    let refused = Controller::start(config.clone()).await.unwrap_err();
    assert!(
        matches!(refused, StartError::GraceTooShort { host_grace, .. } if host_grace == seconds(25)),
        "{refused}"
    );
    assert!(!config.data.exists());
    // Hosts that give signs of life more often are forgiven less.
    config.silence = silence(seconds(2), seconds(6));
    Controller::start(config).await.unwrap().stop().await;
}
