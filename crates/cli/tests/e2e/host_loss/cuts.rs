//! Cuts: the host and its services live, and only nobody hears of them.

use super::{
    cluster, cluster_that_forgives, events, last, living, patience, replica, seen, snapshot,
    standing, start_controller, until_host_is, watch, written,
};
use crate::world::{USUAL, eventually, hello};

// P22
#[test]
fn a_cut_shorter_than_the_grace_changes_nothing_at_all() {
    let long = (patience().0, std::time::Duration::from_secs(90));
    let Some(cluster) = cluster_that_forgives(2, long) else {
        return;
    };
    cluster.submit("web", &hello("web", 2, "", USUAL));
    cluster.ready("web", "2");
    let watch = watch(&cluster, "web");
    assert!(eventually(|| seen(&watch) == [2]), "{}", watch.output());
    let before = (
        snapshot(&cluster, "web"),
        standing(&cluster, "web"),
        events(&cluster, "web"),
    );
    for _ in 0..2 {
        cluster.link_down(1);
        until_host_is(&cluster, 1, "suspect");
        cluster.link_up(1);
        until_host_is(&cluster, 1, "up");
    }
    last(patience().0);
    let after = (
        snapshot(&cluster, "web"),
        standing(&cluster, "web"),
        events(&cluster, "web"),
    );
    assert_eq!(after, before);
    assert_eq!(seen(&watch), [2], "{}", watch.output());
    assert_eq!(living(&cluster).iter().sum::<usize>(), 2);
}

// P22, the other way round; P19; hosts 4
#[test]
fn a_host_that_comes_back_after_its_replica_was_replaced_ends_the_old_one_and_gives_its_number_back()
 {
    let Some(cluster) = cluster(2) else { return };
    cluster.submit("web", &hello("web", 1, "", USUAL));
    cluster.ready("web", "1");
    let first = replica(&cluster, "web", 0);
    let host = first["host"].as_str().unwrap().to_owned();
    let number: usize = host[1..].parse().unwrap();
    cluster.link_down(number);
    until_host_is(&cluster, number, "lost");
    let elsewhere = |it: &serde_json::Value| it["ready"] == true && it["host"] != host.as_str();
    let second = cluster
        .world
        .replica_when("web", 0, "was ready elsewhere", elsewhere);
    assert!(second["incarnation"].as_u64() > first["incarnation"].as_u64());
    // The old one runs on, and nobody has told it anything.
    assert_eq!(living(&cluster), [1, 1]);
    let held = |cluster: &crate::cluster::Cluster| {
        let ports = cluster.world.json(&["ports", &host]);
        let ports = ports["ports"].as_array().unwrap();
        ports.iter().any(|it| it["state"] == "held")
    };
    assert!(held(&cluster));
    let before = snapshot(&cluster, "web");

    cluster.link_up(number);
    let mut expected = [1, 1];
    expected[number - 1] = 0;
    let fenced = eventually(|| living(&cluster) == expected);
    assert!(fenced, "{:?}: {:#}", living(&cluster), cluster.host(number));
    until_host_is(&cluster, number, "up");
    let freed = eventually(|| !held(&cluster));
    assert!(freed, "{:#}", cluster.world.json(&["ports", &host]));
    // The new one was not touched.
    assert_eq!(snapshot(&cluster, "web"), before);
    assert_eq!(replica(&cluster, "web", 0)["pid"], second["pid"]);
}

// hosts 4: a return before there was another place.
#[test]
fn a_host_that_comes_back_before_its_replica_found_another_place_runs_it_once() {
    let Some(cluster) = cluster(2) else { return };
    let pinned = format!("{USUAL}[placement]\nhosts = \"n1\"\n");
    cluster.submit("web", &hello("web", 1, "", &pinned));
    cluster.ready("web", "1");
    cluster.link_down(1);
    until_host_is(&cluster, 1, "lost");
    let waits = cluster
        .world
        .replica_when("web", 0, "waited", |it| it["job_state"] == "PEND");
    assert!(
        waits["reason"]
            .as_str()
            .is_some_and(|it| it.contains("host n1 lost")),
        "{waits:#}"
    );
    let why = cluster.world.run(&["why", "web/0"]);
    assert!(why.stdout.contains("host n1 lost, last contact"), "{why:?}");
    assert_eq!(snapshot(&cluster, "web").1, 0);
    cluster.link_up(1);
    cluster.ready("web", "1");
    let alone = eventually(|| living(&cluster) == [1, 0]);
    assert!(alone, "{:?}", living(&cluster));
    last(patience().0);
    assert_eq!(living(&cluster), [1, 0]);
    assert_eq!(snapshot(&cluster, "web").1, 1);
}

// hosts 4: a controller never concludes loss from its own absence.
#[test]
fn a_controller_that_was_away_for_longer_than_the_grace_gives_up_no_host() {
    let Some(mut cluster) = cluster(2) else {
        return;
    };
    cluster.submit("web", &hello("web", 2, "", USUAL));
    cluster.ready("web", "2");
    let before = standing(&cluster, "web");
    written();
    cluster.kill_controller();
    last(patience().1 + patience().0);
    start_controller(&mut cluster);
    // Served at once, from what is stored.
    let served = snapshot(&cluster, "web");
    assert_eq!(served.1, 2);
    cluster.wait_until_up(2);
    last(patience().0);
    assert_eq!(snapshot(&cluster, "web"), served);
    assert_eq!(standing(&cluster, "web"), before);
    let told = events(&cluster, "web");
    assert!(!told.contains("lost"), "{told}");
    assert_eq!(living(&cluster).iter().sum::<usize>(), 2);
}

// A host that is cut off while the controller is away has its whole grace again, and is then given up.
#[test]
fn a_host_that_vanished_while_the_controller_was_away_is_given_up_after_a_whole_grace() {
    let Some(mut cluster) = cluster(2) else {
        return;
    };
    cluster.submit("web", &hello("web", 2, "", USUAL));
    cluster.ready("web", "2");
    written();
    cluster.kill_controller();
    cluster.power_off(2);
    last(patience().1);
    start_controller(&mut cluster);
    assert_eq!(snapshot(&cluster, "web").1, 2);
    until_host_is(&cluster, 2, "lost");
    let met = eventually(|| {
        let all = cluster.replicas("web");
        all.iter()
            .all(|it| it["host"] == "n1" && it["ready"] == true)
    });
    assert!(met, "{:#}", cluster.world.json(&["service", "web"]));
    assert_eq!(living(&cluster), [2, 0]);
}
