//! hosts 4: at the shutdown of its host an agent ends what was placed there; a mere stop of it touches nothing.

use portreeve::registry::Want;
use portreeve::supervision::{Final, Leaving, State};
use portreeve_api::attach::{Closing, FromAgent, Opening};

use crate::attached::{Job, agent, socket};
use crate::house::{House, until, wanted};

/// Hears of the shutdown until this is said.
async fn until_said(asker: &mut Job, fits: impl Fn(Closing) -> bool) -> Closing {
    loop {
        match asker.hear().await {
            Some(FromAgent::Closing(now)) if fits(now) => return now,
            Some(FromAgent::Closing(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_shutdown_is_told_first_then_ends_every_replica_and_waits_until_the_controller_knows() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = agent(&house).await;
    let worker = house.worker(0).await;
    let mut asker = Job::open(&socket(&house), &Opening::Shutdown).await;
    let now = until_said(&mut asker, |now| now.running == 0).await;
    assert_eq!((now.untold, now.attached), (1, 0));
    controller
        .until("the shutdown", |heard| heard.shutdowns >= 1)
        .await;
    let status = std::fs::read(house.folder(0).status()).unwrap();
    let status: portreeve::supervision::Status = serde_json::from_slice(&status).unwrap();
    assert_eq!(
        status.state,
        State::Final(Final::Left(Leaving::Shutdown)),
        "the reason is the host's"
    );
    // What the controller places here all the same does not begin.
    controller.want(|set| set.replicas = vec![wanted(0, Want::Forget), wanted(1, Want::Run)]);
    until_said(&mut asker, |now| now.is_done()).await;
    assert!(asker.hear().await.is_none(), "it hangs up when it is done");
    assert!(!worker.is_alive());
    assert_eq!(house.starts().len(), 1);

    // A new controller is told again, with the full report.
    let said = controller.heard().shutdowns;
    controller.want(|set| set.instance = "second".to_owned());
    controller
        .until("the shutdown again", |heard| heard.shutdowns > said)
        .await;
    agent.stop().await;

    // The next agent of the host begins afresh.
    let said = controller.heard().shutdowns;
    let agent = crate::attached::agent(&house).await;
    house.worker(1).await;
    assert_eq!(controller.heard().shutdowns, said);
    agent.stop().await;
}

#[tokio::test]
async fn a_shutdown_ends_what_is_here_also_without_a_controller() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = agent(&house).await;
    house.worker(0).await;
    controller.stop().await;
    let mut asker = Job::open(&socket(&house), &Opening::Shutdown).await;
    let now = until_said(&mut asker, |now| now.running == 0).await;
    assert_eq!(now.untold, 1, "the end waits for a controller");
    drop(asker);
    until("the end is on disk", || {
        let status = std::fs::read_to_string(house.folder(0).status()).ok()?;
        status.contains("shutdown").then_some(())
    })
    .await;
    agent.stop().await;
}
