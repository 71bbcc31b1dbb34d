//! P20: an agent that comes and goes throws no service out.

use portreeve::registry::Want;
use portreeve_agent::{Agent, StartError};
use portreeve_api::local::{Assignment, ProcessIdentity};

use crate::house::{House, until, until_gone, wanted};

#[tokio::test]
async fn the_next_agent_adopts_what_runs_and_starts_nothing() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let worker = house.worker(0).await;
    agent.stop().await;
    assert!(worker.is_alive());
    // Dropped without a word, as by a kill.
    drop(house.agent().await);
    let agent = house.agent().await;
    let reported = |heard: &crate::controller::Heard| {
        let full = heard
            .reports
            .iter()
            .filter(|report| report.full && !report.replicas.is_empty());
        full.count() >= 1
    };
    controller
        .until("the adopted replica is reported", reported)
        .await;
    until("the adopted worker is told what is wanted", || {
        std::fs::read_to_string(house.folder(0).path().join("told"))
            .ok()?
            .contains("want")
            .then_some(())
    })
    .await;
    assert!(worker.is_alive());
    assert_eq!(house.starts().len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn a_worker_is_recognised_by_more_than_its_number() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let worker = house.worker(0).await;
    agent.stop().await;
    crate::house::kill(&worker);
    // The number belongs to another process now: this one.
    let impostor = ProcessIdentity {
        start_ticks: 1,
        ..ProcessIdentity::of_self().unwrap()
    };
    std::fs::write(
        house.folder(0).worker(),
        serde_json::to_vec(&impostor).unwrap(),
    )
    .unwrap();
    let agent = house.agent().await;
    until("a dead worker of this boot is started again", || {
        (house.starts().len() == 2).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_dead_worker_is_started_again_without_a_controller() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let worker = house.worker(0).await;
    agent.stop().await;
    controller.stop().await;
    crate::house::kill(&worker);
    let agent = house.agent().await;
    until("another worker takes over", || {
        (house.starts().len() == 2).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn what_an_earlier_boot_left_is_not_adopted() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let worker = house.worker(0).await;
    agent.stop().await;
    crate::house::kill(&worker);
    let path = house.folder(0).assignment();
    let mut assignment: Assignment =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assignment.boot_id = "an earlier one".to_owned();
    std::fs::write(&path, serde_json::to_vec(&assignment).unwrap()).unwrap();
    controller.want(|set| set.replicas = vec![wanted(1, Want::Run)]);
    let agent = house.agent().await;
    house.worker(1).await;
    assert!(house.folder(0).ended().exists());
    assert_eq!(house.starts().len(), 2);
    agent.stop().await;
}

#[tokio::test]
async fn two_agents_never_share_a_state_folder() {
    let house = House::new();
    let first = house.agent().await;
    match Agent::start(house.config()).await {
        Err(StartError::InUse { state, pid }) => {
            assert_eq!((state, pid), (house.state(), Some(std::process::id())));
        }
        other => panic!("{other:?}"),
    }
    first.stop().await;
    house.agent().await.stop().await;
}

#[tokio::test]
async fn only_the_newest_of_the_ended_incarnations_keeps_its_logs() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    house.worker(0).await;
    for next in 1..3 {
        controller.want(|set| set.replicas = vec![wanted(next, Want::Run)]);
        house.worker(next).await;
    }
    until_gone(house.folder(0).path()).await;
    assert!(house.folder(1).ended().exists());
    agent.stop().await;
}
