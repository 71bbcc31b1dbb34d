//! A host gets a token of its own, keeps it, and gets another when that is not known any more.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use portreeve::registry::Want;
use portreeve_agent::{Config, TokenPlaces};

use crate::house::{House, until, wanted};

fn keep(path: &Path, token: &str) {
    fs::write(path, format!("{token}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// An agent that needs a token, and the files of its own and of the one that lets it join.
fn outside(house: &House) -> (Config, PathBuf, PathBuf) {
    let folder = house.state();
    fs::create_dir_all(&folder).unwrap();
    let (own, join) = (folder.join("host-token"), folder.join("join-token"));
    let config = Config {
        tokens: Some(TokenPlaces {
            host: own.clone(),
            join: Some(join.clone()),
        }),
        ..house.config()
    };
    (config, own, join)
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[tokio::test]
async fn a_host_joins_once_and_is_itself_after_a_restart_without_the_token_it_joined_by() {
    let house = House::new();
    let controller = house.controller("one");
    controller.want(|it| it.known = Some("nobody's".into()));
    let (config, own, join) = outside(&house);
    keep(&join, "prj1.x");
    let agent = house.agent_with(config.clone()).await;
    let heard = controller
        .until("a report", |it| !it.reports.is_empty())
        .await;
    let [(bearer, ask)] = &heard.joins[..] else {
        panic!("{:?}", heard.joins)
    };
    assert_eq!((bearer.as_str(), ask.host.as_str()), ("prj1.x", "n17"));
    assert!(!ask.replace && ask.machine_id.len() > 1, "{ask:?}");
    assert_eq!(text(&own).as_deref(), Some("prh1.1"));
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o600);
    agent.stop().await;

    fs::remove_file(&join).unwrap();
    let before = controller.heard().reports.len();
    let agent = house.agent_with(config).await;
    let heard = controller
        .until("another", |it| it.reports.len() > before)
        .await;
    assert_eq!(heard.joins.len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_lost_is_asked_for_again_as_the_same_machine() {
    let house = House::new();
    let controller = house.controller("one");
    controller.want(|it| (it.known, it.lost) = (Some("nobody's".into()), 1));
    let (config, own, join) = outside(&house);
    keep(&join, "prj1.x");
    let agent = house.agent_with(config).await;
    let heard = controller
        .until("a report", |it| !it.reports.is_empty())
        .await;
    assert_eq!(heard.joins.len(), 2);
    assert_eq!(heard.joins[0].1, heard.joins[1].1);
    assert_eq!(text(&own).as_deref(), Some("prh1.2"));
    agent.stop().await;
}

#[tokio::test]
async fn a_token_that_is_not_known_any_more_ends_nothing_and_the_host_joins_again() {
    let house = House::new();
    let controller = house.controller("one");
    let (config, own, join) = outside(&house);
    keep(&join, "prj1.x");
    let agent = house.agent_with(config).await;
    controller.want(|it| it.replicas = vec![wanted(1, Want::Run)]);
    let worker = house.worker(1).await;
    controller.want(|it| it.known = Some("nobody's".into()));
    let heard = controller
        .until("it joins again", |it| it.joins.len() == 2)
        .await;
    let reports = heard.reports.len();
    controller
        .until("it is heard", |it| {
            it.reports.len() > reports || it.leases > heard.leases
        })
        .await;
    assert_eq!(text(&own).as_deref(), Some("prh1.2"));
    assert!(worker.is_alive());
    agent.stop().await;
}

#[tokio::test]
async fn who_has_nothing_to_join_by_goes_on_with_the_token_that_somebody_puts_there() {
    let house = House::new();
    let controller = house.controller("one");
    let (config, own, _) = outside(&house);
    keep(&own, "prh1.old");
    controller.want(|it| it.known = Some("prh1.new".into()));
    let agent = house.agent_with(config).await;
    // Refused: nothing is heard until the file has another one.
    until("the agent has asked", || {
        controller.heard().reports.is_empty().then_some(())
    })
    .await;
    keep(&own, "prh1.new");
    let heard = controller
        .until("a report", |it| !it.reports.is_empty())
        .await;
    assert!(heard.joins.is_empty());
    agent.stop().await;
}

#[tokio::test]
async fn a_machine_takes_anothers_name_only_when_it_is_told_to() {
    let house = House::new();
    let controller = house.controller("one");
    let (config, own, join) = outside(&house);
    let refused = portreeve_agent::replace(&config).await.unwrap_err();
    assert!(
        refused.to_string().contains("token create --kind join"),
        "{refused}"
    );
    keep(&join, "prj1.x");
    assert_eq!(portreeve_agent::replace(&config).await.unwrap(), own);
    assert!(controller.heard().joins[0].1.replace);
    assert_eq!(text(&own).as_deref(), Some("prh1.1"));
}
