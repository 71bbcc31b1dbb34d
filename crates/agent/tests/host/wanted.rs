//! Acting on what the controller wants.

use std::os::unix::fs::PermissionsExt;

use portreeve::profile::Profile;
use portreeve::registry::Want;
use portreeve::supervision::{Final, Reason, StartFailure, State};
use portreeve_agent::{Agent, Config};
use portreeve_api::local::Assignment;

use crate::house::{House, holding, kill, until, wanted};

#[tokio::test]
async fn a_wanted_replica_gets_its_folder_and_one_worker() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let worker = house.worker(0).await;

    let folder = house.folder(0);
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.path()), 0o700);
    assert_eq!(mode(&folder.assignment()), 0o600);
    let assignment: Assignment =
        serde_json::from_slice(&std::fs::read(folder.assignment()).unwrap()).unwrap();
    assert_eq!(assignment.tokens.worker, "secret");
    assert_eq!(assignment.host_address.to_string(), "127.0.0.1");
    assert_eq!(assignment.boot_id, worker.boot_id);
    // It is its own session: neither the end of the agent nor its terminal reaches it.
    let pid = rustix::process::Pid::from_raw(worker.pid.try_into().unwrap());
    assert_eq!(rustix::process::getsid(pid).unwrap(), pid.unwrap());

    // Wanted once more, with a change elsewhere: nothing is started again.
    controller.want(|set| set.replicas.push(wanted(7, Want::Forget)));
    controller.want(|set| {
        set.replicas.truncate(1);
        set.replicas[0].desired.restart_no = 1;
    });
    until("the restart is told", || {
        let told = std::fs::read_to_string(folder.path().join("told")).ok()?;
        told.contains("\"restart_no\":1").then_some(())
    })
    .await;
    assert_eq!(house.starts().len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn a_replica_that_is_no_longer_named_is_not_stopped() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let worker = house.worker(0).await;
    controller.want(|set| {
        set.replicas = vec![wanted(0, Want::Run)];
        set.replicas[0].desired.index = 1;
    });
    until("the other copy is started", || {
        (house.starts().len() == 2).then_some(())
    })
    .await;
    assert!(worker.is_alive());
    agent.stop().await;
}

#[tokio::test]
async fn a_replica_is_stopped_and_forgotten_and_keeps_its_logs() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let worker = house.worker(0).await;
    std::fs::write(house.folder(0).path().join("stdout.log"), "words").unwrap();
    controller.want(|set| set.replicas[0].desired.want = Want::Stop);
    until("it stopped", || {
        let status = std::fs::read_to_string(house.folder(0).status()).ok()?;
        status.contains("stopped").then_some(())
    })
    .await;
    assert!(worker.is_alive());
    controller.want(|set| set.replicas[0].desired.want = Want::Forget);
    until("it is forgotten", || {
        house.folder(0).ended().exists().then_some(())
    })
    .await;
    until("the worker is gone and no zombie is left", || {
        (!worker.is_alive()).then_some(())
    })
    .await;
    until("the secret is gone", || {
        (!house.folder(0).assignment().exists()).then_some(())
    })
    .await;
    assert_eq!(
        std::fs::read(house.folder(0).path().join("stdout.log")).unwrap(),
        b"words"
    );
    assert_eq!(house.starts().len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn an_older_incarnation_ends_before_the_newer_one_begins() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let old = house.worker(0).await;
    controller.want(|set| set.replicas = vec![wanted(1, Want::Run)]);
    house.worker(1).await;
    assert!(!old.is_alive());
    assert!(house.folder(0).ended().exists());
    // Its end was told by the agent, since the controller did not ask for it.
    let heard = controller.heard().clone();
    let told = heard.reports.iter().flat_map(|report| &report.replicas);
    let ends: Vec<_> = told
        .filter(|one| one.status.state == State::Final(Final::Stopped))
        .collect();
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].incarnation.0, 0);
    agent.stop().await;
}

#[tokio::test]
async fn a_worker_that_dies_is_started_again_in_the_same_folder() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let first = house.worker(0).await;
    kill(&first);
    until("another worker takes over", || {
        (house.starts().len() == 2).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_worker_program_that_cannot_be_executed_is_the_end_of_the_replica() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let config = Config {
        worker_program: "/nowhere/portreeve".into(),
        ..house.config()
    };
    let agent = Agent::start(config).await.unwrap();
    let end = State::Final(Final::Failed(Reason::StartFailed(StartFailure::Errno(2))));
    let heard = controller.until("the failed start", |heard| {
        let mut told = heard.reports.iter().flat_map(|report| &report.replicas);
        told.any(|one| one.status.state == end)
    });
    let heard = heard.await;
    assert!(!heard.reports.last().unwrap().full);
    controller.want(|set| set.replicas[0].desired.want = Want::Forget);
    until("it is forgotten", || {
        house.folder(0).ended().exists().then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn workers_that_never_say_a_word_are_given_up() {
    let house = House::new();
    let controller = house.controller("first");
    std::fs::create_dir(house.state()).unwrap();
    std::fs::write(house.state().join("workers-die"), "").unwrap();
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let gave_up = |heard: &crate::controller::Heard| {
        let mut told = heard.reports.iter().flat_map(|report| &report.replicas);
        told.any(|one| {
            matches!(
                &one.status.state,
                State::Final(Final::Failed(Reason::StartFailed(_)))
            )
        })
    };
    controller.until("it is given up", gave_up).await;
    assert_eq!(house.starts().len(), 5);
    agent.stop().await;
}

#[tokio::test]
async fn a_stop_before_the_beginning_is_told_as_an_end() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Stop)]);
    let agent = house.agent().await;
    let ended = |heard: &crate::controller::Heard| {
        let mut told = heard.reports.iter().flat_map(|report| &report.replicas);
        told.any(|one| one.status.state == State::Final(Final::Stopped))
    };
    controller.until("its end", ended).await;
    assert!(house.starts().is_empty());
    agent.stop().await;
}

#[tokio::test]
async fn readers_of_logs_get_their_piece_once() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    house.worker(0).await;
    std::fs::write(house.folder(0).path().join("stderr.log"), "0123456789").unwrap();
    controller.want(|set| {
        set.reads.push(portreeve_api::body::LogRead {
            incarnation: None,
            read: 42,
            service: "web.alice".parse().unwrap(),
            index: 0,
            stream: "stderr".to_owned(),
            offset: None,
            max: 4,
        });
    });
    let heard = controller
        .until("the piece", |heard| !heard.pieces.is_empty())
        .await;
    assert_eq!(heard.pieces, [(42, 6, b"6789".to_vec())]);
    agent.stop().await;
}

#[tokio::test]
async fn a_worker_is_told_another_address_of_its_port_and_nothing_else_is_done() {
    let house = House::new();
    let controller = house.controller("first");
    let at = |address: &str| [("http".parse().unwrap(), address.parse().unwrap())].into();
    controller.want(|set| {
        let mut one = holding(wanted(0, Want::Run), 20_000);
        one.desired.addresses = at("10.20.0.7");
        set.replicas = vec![one];
    });
    let agent = house.agent().await;
    house.worker(0).await;
    let told = || std::fs::read_to_string(house.folder(0).path().join("told")).ok();
    let tells = |what: &str| told()?.contains(what).then_some(());
    let assignment = std::fs::read(house.folder(0).assignment()).unwrap();
    let assignment: Assignment = serde_json::from_slice(&assignment).unwrap();
    assert_eq!(assignment.desired.addresses, at("10.20.0.7"));
    controller.want(|set| set.replicas[0].desired.addresses = at("10.20.0.9"));
    until("the new address is told", || tells("10.20.0.9")).await;
    let again = told().unwrap();
    // What it begins with stands in its assignment and needs no telling.
    assert!(!again.contains("10.20.0.7"), "{again}");
    // Without an address nothing is told, and an adopted worker hears once of what it may not know.
    controller.want(|set| set.replicas[0].desired.addresses.clear());
    agent.stop().await;
    controller.want(|set| set.replicas[0].desired.addresses = at("10.20.0.11"));
    let agent = house.agent().await;
    until("the adopted one is told", || tells("10.20.0.11")).await;
    assert_eq!(again.matches("10.20.0.9").count(), 1);
    assert_eq!(house.starts().len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn a_replica_whose_port_has_no_address_in_its_network_waits_until_there_is_one() {
    let house = House::new();
    let controller = house.controller("first");
    let profile = "kind = \"service\"\nname = \"web\"\ncommand = [\"true\"]\n\
                   [ports]\nhttp = { any = 1, network = \"data\" }\n";
    controller.want(|set| {
        let mut one = holding(wanted(0, Want::Run), 20_000);
        one.desired.profile = Profile::from_toml(profile).unwrap().profile.into();
        let mut other = wanted(1, Want::Run);
        other.desired.index = 1;
        set.replicas = vec![one, other];
    });
    let agent = house.agent().await;
    until("the other one is started", || {
        (house.starts().len() == 1).then_some(())
    })
    .await;
    assert!(!house.folder(0).path().exists());
    controller.want(|set| {
        set.replicas[0].desired.addresses =
            [("http".parse().unwrap(), "10.20.0.7".parse().unwrap())].into();
    });
    house.worker(0).await;
    agent.stop().await;
}
