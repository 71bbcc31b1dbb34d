//! Absences that are nobody's end: a halted controller, a suspended host, a cable that comes and goes.

use super::{cluster, events, last, living, patience, replica, standing, state, until_host_is};
use crate::world::{USUAL, eventually, hello};

// hosts 4: never from its own absence; of the machine it runs on too.
#[test]
fn a_controller_that_is_halted_for_longer_than_the_grace_gives_up_no_host() {
    let Some(cluster) = cluster(2) else { return };
    cluster.submit("web", &hello("web", 2, "", USUAL));
    cluster.ready("web", "2");
    let before = standing(&cluster, "web");
    cluster.signal_controller("STOP");
    last(patience().1 + patience().0);
    cluster.signal_controller("CONT");
    cluster.wait_until_up(2);
    last(patience().1 + patience().0);
    assert_eq!(standing(&cluster, "web"), before);
    let told = events(&cluster, "web");
    assert!(!told.contains("lost"), "{told}");
    assert_eq!(living(&cluster).iter().sum::<usize>(), 2);
}

// A machine that sleeps for longer than the grace is lost, and fenced when it wakes.
#[test]
fn an_agent_that_is_halted_for_longer_than_the_grace_is_fenced_when_it_goes_on() {
    let Some(cluster) = cluster(2) else { return };
    cluster.submit("web", &hello("web", 1, "", USUAL));
    cluster.ready("web", "1");
    let host = cluster.hosts_of("web")[0].clone();
    let number: usize = host[1..].parse().unwrap();
    cluster.signal_agent(number, "STOP");
    until_host_is(&cluster, number, "lost");
    let elsewhere = |it: &serde_json::Value| it["ready"] == true && it["host"] != host.as_str();
    let second = cluster
        .world
        .replica_when("web", 0, "was ready elsewhere", elsewhere);
    assert_eq!(living(&cluster), [1, 1]);
    cluster.signal_agent(number, "CONT");
    let mut expected = [1, 1];
    expected[number - 1] = 0;
    let fenced = eventually(|| living(&cluster) == expected);
    assert!(fenced, "{:?}: {:#}", living(&cluster), cluster.host(number));
    until_host_is(&cluster, number, "up");
    assert_eq!(replica(&cluster, "web", 0)["pid"], second["pid"]);
}

#[test]
fn a_cable_that_comes_and_goes_at_every_stage_leaves_one_of_each_in_the_end() {
    let Some(cluster) = cluster(2) else { return };
    cluster.submit("web", &hello("web", 2, "", USUAL));
    cluster.ready("web", "2");
    // At once again too, before it could tell what runs there.
    for (stage, is_heard) in [
        ("up", false),
        ("suspect", true),
        ("lost", false),
        ("lost", true),
    ] {
        cluster.link_down(1);
        until_host_is(&cluster, 1, stage);
        cluster.link_up(1);
        if is_heard {
            until_host_is(&cluster, 1, "up");
        }
    }
    cluster.ready("web", "2");
    let placed = |host: &str| {
        cluster
            .hosts_of("web")
            .iter()
            .filter(|it| *it == host)
            .count()
    };
    let one_each = eventually(|| living(&cluster) == [placed("n1"), placed("n2")]);
    assert!(one_each, "{:?}: {:#}", living(&cluster), cluster.host(1));
    let held = |host: &str| {
        let ports = cluster.world.json(&["ports", host]);
        let ports = ports["ports"].as_array().unwrap().clone();
        ports.iter().filter(|it| it["state"] == "held").count()
    };
    for host in ["n1", "n2"] {
        let freed = eventually(|| held(host) == placed(host));
        assert!(freed, "{host}: {:#}", cluster.world.json(&["ports", host]));
    }
}

// The word of an operator who erred: what lives there keeps its number from others until its end.
#[test]
fn a_host_that_was_wrongly_declared_fenced_is_back_without_two_of_anything() {
    let Some(cluster) = cluster(2) else { return };
    cluster.submit("web", &hello("web", 1, "", USUAL));
    cluster.ready("web", "1");
    let host = cluster.hosts_of("web")[0].clone();
    let number: usize = host[1..].parse().unwrap();
    let early = cluster.world.run(&["host", "down", &host, "--fenced"]);
    assert!(early.stderr.contains("heard of"), "{early:?}");
    cluster.link_down(number);
    until_host_is(&cluster, number, "suspect");
    let done = cluster.world.ok(&["host", "down", &host, "--fenced"]);
    assert!(done.contains("its numbers are free"), "{done}");
    assert_eq!(state(&cluster, number), "lost");
    cluster.ready("web", "1");
    assert_ne!(cluster.hosts_of("web")[0], host);
    cluster.link_up(number);
    let mut expected = [1, 1];
    expected[number - 1] = 0;
    let fenced = eventually(|| living(&cluster) == expected);
    assert!(fenced, "{:?}: {:#}", living(&cluster), cluster.host(number));
    until_host_is(&cluster, number, "up");
}
