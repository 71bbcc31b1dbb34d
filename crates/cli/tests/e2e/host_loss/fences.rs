//! What a host ends by itself: cut off for too long, where the profile says so, and at its own shutdown.

use super::{cluster, events, living, replica, snapshot, until_host_is};
use crate::world::{Outcome, PORTREEVE, USUAL, eventually, hello};

// hosts 4: on_cut_off
#[test]
fn a_service_that_must_not_run_twice_ends_itself_on_a_host_that_is_cut_off() {
    let Some(cluster) = cluster(2) else { return };
    let stops = format!("on_cut_off = \"stop\"\n{USUAL}");
    let stopping = hello("web", 1, "", &stops);
    let keeping = hello("api", 1, "", USUAL);
    cluster.submit("web", &stopping);
    cluster.ready("web", "1");
    let host = replica(&cluster, "web", 0)["host"]
        .as_str()
        .unwrap()
        .to_owned();
    let number: usize = host[1..].parse().unwrap();
    cluster.submit(
        "api",
        &format!("{keeping}[placement]\nhosts = \"{host}\"\n"),
    );
    cluster.ready("api", "1");
    cluster.link_down(number);
    until_host_is(&cluster, number, "lost");
    // Nobody can tell it anything, and it ends; the other one goes on, as it does by default.
    let ended = eventually(|| living(&cluster)[number - 1] == 1);
    assert!(ended, "{:?}\n{}", living(&cluster), cluster.records(number));
    cluster.ready("web", "1");
    cluster.link_up(number);
    until_host_is(&cluster, number, "up");
    cluster.ready("api", "1");
    let met = eventually(|| living(&cluster) == [1, 1]);
    assert!(met, "{:?}", living(&cluster));
    assert_eq!(snapshot(&cluster, "web").1, 1);
}

// The cut is the controller's: what was ended is begun again, in place of ending for good.
#[test]
fn a_service_that_ended_because_its_controller_was_away_is_placed_again() {
    let Some(mut cluster) = cluster(1) else {
        return;
    };
    let stops = format!("on_cut_off = \"stop\"\n{USUAL}");
    cluster.submit("web", &hello("web", 1, "", &stops));
    cluster.ready("web", "1");
    cluster.kill_controller();
    let ended = eventually(|| living(&cluster) == [0]);
    assert!(ended, "{}", cluster.records(1));
    super::start_controller(&mut cluster);
    let again = cluster
        .world
        .replica_when("web", 0, "was ready again", |it| {
            it["ready"] == true && it["incarnation"].as_u64() > Some(1)
        });
    assert_eq!(again["restarts_total"], 0, "{again:#}");
    let told = events(&cluster, "web");
    assert!(told.contains("cut off from the controller"), "{told}");
    assert_eq!(living(&cluster), [1]);
}

// hosts 4: at shutdown the agent unpublishes, drains, stops and says so.
#[test]
fn a_host_that_is_shut_down_hands_its_services_over_and_a_mere_stop_of_its_agent_touches_nothing() {
    let Some(mut cluster) = cluster(2) else {
        return;
    };
    let socket = cluster.world.path("agent2.sock").display().to_string();
    cluster.start_agent(2, &["--socket", &socket]);
    cluster.wait_until_up(2);
    let pinned = format!("{USUAL}[placement]\nhosts = \"n2\"\n");
    cluster.submit("own", &hello("own", 1, "", &pinned));
    cluster.submit("web", &hello("web", 2, "", USUAL));
    cluster.ready("own", "1");
    cluster.ready("web", "2");
    let before = super::standing(&cluster, "web");
    cluster.kill_agent(2);
    cluster.start_agent(2, &["--socket", &socket]);
    cluster.wait_until_up(2);
    assert_eq!(super::standing(&cluster, "web"), before);
    assert_eq!(living(&cluster).iter().sum::<usize>(), 3);

    let mut command = cluster.world.command_in(cluster.network(2), PORTREEVE);
    command.args([
        "agent",
        "--shutdown",
        "--socket",
        &socket,
        "--timeout",
        "60s",
    ]);
    let outcome = Outcome::of(command.output().unwrap());
    assert_eq!(
        outcome.code,
        Some(0),
        "{outcome:?}\n{}",
        cluster.agent_log(2)
    );
    let done = "nothing that was placed here runs any more";
    assert!(outcome.stdout.contains(done), "{outcome:?}");
    assert_eq!(living(&cluster)[1], 0);
    let met = eventually(|| {
        let all = cluster.replicas("web");
        all.iter()
            .all(|it| it["host"] == "n1" && it["ready"] == true)
    });
    assert!(met, "{:#}", cluster.world.json(&["service", "web"]));
    for service in ["own", "web"] {
        let told = events(&cluster, service);
        assert!(told.contains("host shutting down"), "{told}");
    }
    let waits = replica(&cluster, "own", 0);
    assert_eq!(waits["job_state"], "PEND", "{waits:#}");

    // Up again, it is used again.
    cluster.start_agent(2, &["--socket", &socket]);
    cluster.ready("own", "1");
    assert_eq!(living(&cluster), [2, 1]);
}
