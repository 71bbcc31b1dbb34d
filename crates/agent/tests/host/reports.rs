//! What the controller hears of a host: everything once, then changes, then only the lease.

use std::net::TcpListener;
use std::time::Duration;

use portreeve::port::{Port, PortRange, PortRanges};
use portreeve::registry::Want;
use portreeve::supervision::State;
use portreeve_agent::{Agent, Config};

use crate::controller::Heard;
use crate::house::{House, holding, wanted};

#[tokio::test]
async fn a_host_joins_with_everything_and_then_keeps_its_lease_in_silence() {
    let house = House::new();
    let controller = house.controller("first");
    let agent = house.agent().await;
    let heard = controller
        .until("three leases", |heard| heard.leases == 3)
        .await;
    assert_eq!(heard.reports.len(), 1);
    let facts = &heard.reports[0];
    assert!(facts.full);
    assert_eq!(facts.host.as_str(), "n17");
    assert_eq!(facts.published, Some("127.0.0.1".parse().unwrap()));
    assert_eq!(facts.address_rule, "single host: loopback");
    assert!(facts.capabilities.contains(&"pidfd".to_owned()));
    assert!(!facts.ephemeral.is_empty());
    // Why each other address is none, and who tells all this: the same one at every lease.
    let loopback = |address: &str| {
        let addresses = facts.addresses.iter();
        addresses
            .clone()
            .any(|one| one.address.to_string() == address)
    };
    assert!(loopback("127.0.0.1"));
    let identity = facts.agent.clone().unwrap();
    assert_eq!(identity.boot_id, facts.boot_id);
    assert!(
        heard
            .asks
            .iter()
            .all(|ask| ask.agent.as_ref() == Some(&identity))
    );
    agent.stop().await;

    // Started again on the same folder it is the same agent, and its reports are newer ones.
    let first = heard.reports[0].seq.unwrap();
    let agent = house.agent().await;
    let heard = controller
        .until("the second join", |heard| heard.reports.len() == 2)
        .await;
    assert_eq!(heard.reports[1].agent.as_ref(), Some(&identity));
    assert!(heard.reports[1].seq.unwrap() > first);
    agent.stop().await;
}

#[tokio::test]
async fn the_skew_to_the_controllers_clock_is_told_with_the_lease() {
    let house = House::new();
    let controller = house.controller("first");
    controller.want(|set| set.behind = Duration::from_secs(10));
    let agent = house.agent().await;
    let heard = controller
        .until("a second lease", |heard| heard.asks.len() >= 2)
        .await;
    assert_eq!(heard.asks[0].skew_ms, None);
    let skew = heard.asks[1].skew_ms.unwrap();
    assert!((9_000..11_000).contains(&skew), "{skew}");
    agent.stop().await;
}

#[tokio::test]
async fn a_controller_that_comes_later_is_joined() {
    let house = House::new();
    let agent = house.agent().await;
    let controller = house.controller("late");
    controller
        .until("the join", |heard| heard.leases == 1)
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn a_new_controller_is_told_everything_once_and_nothing_restarts() {
    let house = House::new();
    let first = house.controller("first");
    first.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    let agent = house.agent().await;
    let worker = house.worker(0).await;
    first.stop().await;

    let second = house.controller("second");
    // It wants a report before it says anything, and has not loaded what it wants yet.
    second.want(|set| set.report_first = true);
    let heard = second.until("the full report", |heard| {
        heard.reports.iter().any(|report| report.full)
    });
    let heard = heard.await;
    assert_eq!(heard.reports.len(), 1);
    let replicas = &heard.reports[0].replicas;
    assert_eq!(replicas.len(), 1);
    assert_eq!(replicas[0].status.state, State::Up);
    second.want(|set| set.replicas = vec![wanted(0, Want::Run)]);
    second.until("a lease", |heard| heard.leases >= 2).await;
    assert_eq!(second.heard().reports.len(), 1);
    assert!(worker.is_alive());
    assert_eq!(house.starts().len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn strangers_are_reported_when_they_come_and_when_they_go_and_never_in_between() {
    // P08, P13
    let house = House::new();
    let controller = house.controller("first");
    let reserved = TcpListener::bind("127.0.0.1:0").unwrap();
    let number = reserved.local_addr().unwrap().port();
    drop(reserved);
    let config = Config {
        fixed: PortRanges::new([PortRange::single(Port::new(number).unwrap())]),
        ..house.config()
    };
    let agent = Agent::start(config).await.unwrap();
    controller
        .until("the join", |heard| heard.leases >= 1)
        .await;

    // Loopback counts: a later bind to the wildcard address would fail.
    let stranger = TcpListener::bind(("127.0.0.1", number)).unwrap();
    let came = |heard: &Heard| {
        heard
            .reports
            .last()
            .is_some_and(|report| report.foreign.len() == 1)
    };
    let heard = controller.until("the stranger", came).await;
    let told = heard.reports.last().unwrap();
    assert_eq!(told.foreign[0].port.number(), number);
    assert_eq!(told.foreign[0].pid, Some(std::process::id()));
    assert!(!told.full && told.replicas.is_empty());

    // Granted to a replica here it is no stranger's any more: whoever listens there, the worker looks.
    controller.want(|set| set.replicas = vec![holding(wanted(0, Want::Run), number)]);
    let went = |heard: &Heard| heard.reports.len() == 3;
    let heard = controller.until("no stranger", went).await;
    assert!(heard.reports[2].foreign.is_empty());
    drop(stranger);
    let leases = heard.leases;
    let heard = controller
        .until("two leases", |heard| heard.leases >= leases + 2)
        .await;
    assert_eq!(heard.reports.len(), 3);
    agent.stop().await;
}

// hosts 4: what the store of a restored controller does not know must keep its numbers.
#[tokio::test]
async fn a_full_report_says_what_each_replica_holds() {
    let house = House::new();
    let controller = house.controller("first");
    let replica = holding(wanted(0, Want::Run), 20_123);
    let grant = replica.desired.grant.clone();
    controller.want(|set| set.replicas = vec![replica]);
    let agent = house.agent().await;
    house.worker(0).await;
    agent.stop().await;
    let agent = house.agent().await;
    let heard = controller
        .until("the replica in a full report", |heard| {
            heard.reports.iter().any(|it| !it.replicas.is_empty())
        })
        .await;
    let facts = heard.reports.iter().find(|it| !it.replicas.is_empty());
    let told = &facts.unwrap().replicas[0];
    assert_eq!(told.grant.as_ref(), Some(&grant));
    assert_eq!(told.service_id.map(|id| id.0), Some(1));
    agent.stop().await;
}

// A full report frees the numbers of what it leaves out.
#[tokio::test]
async fn a_full_report_names_also_a_replica_whose_worker_has_not_said_a_word() {
    let house = House::new();
    let controller = house.controller("first");
    let replica = holding(wanted(0, Want::Run), 20_124);
    let grant = replica.desired.grant.clone();
    controller.want(|set| set.replicas = vec![replica]);
    let agent = house.agent().await;
    let worker = house.worker(0).await;
    agent.stop().await;
    // It does not answer, and what it wrote is gone.
    crate::house::stop(&worker);
    _ = std::fs::remove_file(house.folder(0).status());
    let agent = house.agent().await;
    let heard = controller
        .until("the silent replica in a full report", |heard| {
            heard.reports.iter().any(|it| !it.replicas.is_empty())
        })
        .await;
    let facts = heard.reports.iter().find(|it| !it.replicas.is_empty());
    let told = &facts.unwrap().replicas[0];
    assert!(told.status.is_silent(), "{told:?}");
    assert_eq!(told.grant.as_ref(), Some(&grant));
    agent.stop().await;
    crate::house::kill(&worker);
}
