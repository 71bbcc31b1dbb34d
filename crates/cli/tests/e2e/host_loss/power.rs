//! Power loss and reboot.

use serde_json::Value;

use super::{cluster, events, living, replica, seen, snapshot, state, until_host_is, watch};
use crate::cluster::Cluster;
use crate::world::{USUAL, eventually, hello};

/// Waits until so many replicas are listed, none of them on this host.
fn until_listed_without(cluster: &Cluster, service: &str, listed: usize, host: &str) {
    let met = eventually(|| {
        let read = cluster.world.json(&["endpoints", service]);
        let all = read["endpoints"].as_array().unwrap();
        all.len() == listed && all.iter().all(|one| one["host"] != host)
    });
    assert!(met, "{:#}", cluster.world.json(&["service", service]));
}

// P19
#[test]
fn a_host_without_power_is_unconfirmed_then_leaves_in_one_revision_and_is_replaced_elsewhere() {
    let Some(mut cluster) = cluster(3) else {
        return;
    };
    cluster.submit("web", &hello("web", 3, "", USUAL));
    cluster.ready("web", "3");
    let lost = replica(&cluster, "web", 2)["host"].clone();
    let number: usize = lost.as_str().unwrap()[1..].parse().unwrap();
    let watch = watch(&cluster, "web");
    assert!(eventually(|| seen(&watch) == [3]), "{}", watch.output());
    let before = snapshot(&cluster, "web");
    cluster.power_off(number);
    until_host_is(&cluster, number, "suspect");
    // Still listed, in the same revision, and marked for those who ask for it.
    assert_eq!(snapshot(&cluster, "web"), before);
    let all = cluster.world.json(&["endpoints", "web", "--all"]);
    let all = all["endpoints"].as_array().unwrap();
    let unconfirmed = |one: &&Value| one["conditions"]["unconfirmed"] == true;
    let marked: Vec<_> = all.iter().filter(unconfirmed).collect();
    assert_eq!(marked.len(), 1, "{all:#?}");
    assert_eq!(marked[0]["host"], lost);
    // P21
    let shown = cluster.world.ok(&["service", "web"]);
    assert!(shown.contains("unknown since"), "{shown}");

    until_host_is(&cluster, number, "lost");
    until_listed_without(&cluster, "web", 3, lost.as_str().unwrap());
    // One revision took it out, one brought the new one.
    assert!(eventually(|| seen(&watch).len() == 3), "{}", watch.output());
    assert_eq!(seen(&watch), [3, 2, 3]);
    let told = events(&cluster, "web");
    assert!(told.contains("host lost, last contact"), "{told}");
    assert!(replica(&cluster, "web", 2)["incarnation"].as_u64() > Some(1));
    assert_eq!(living(&cluster).iter().sum::<usize>(), 3);
    assert_eq!(living(&cluster)[number - 1], 0);
}

// hosts 4: numbers of a lost host stay held until another boot id proves that nothing of it runs.
#[test]
fn a_number_of_a_lost_host_is_given_to_nobody_until_the_host_has_booted() {
    let Some(mut cluster) = cluster(2) else {
        return;
    };
    let fixed = |name: &str, host: &str| {
        let more = USUAL.replace("\"any\"", "18080");
        hello(
            name,
            1,
            "",
            &format!("{more}[placement]\nhosts = \"{host}\"\n"),
        )
    };
    let anywhere = USUAL.replace("\"any\"", "18080");
    cluster.submit(
        "web",
        &hello(
            "web",
            1,
            "",
            &format!("{anywhere}[placement]\nhosts = \"n[1-2]\"\n"),
        ),
    );
    cluster.ready("web", "1");
    let first = replica(&cluster, "web", 0)["host"].clone();
    let number: usize = first.as_str().unwrap()[1..].parse().unwrap();
    cluster.power_off(number);
    until_listed_without(&cluster, "web", 1, first.as_str().unwrap());
    // Who wants the number there waits, and the host says who has it.
    cluster.submit("late", &fixed("late", first.as_str().unwrap()));
    let ports = cluster
        .world
        .json(&["ports", first.as_str().unwrap()])
        .to_string();
    assert!(ports.contains("18080"), "{ports}");
    let late = replica(&cluster, "late", 0);
    assert_eq!(late["job_state"], "PEND", "{late:#}");

    // The same boot would have to say that nothing runs there; another one proves it.
    cluster.power_on(number, "11111111-2222-4333-8444-555555555555");
    cluster.ready("late", "1");
    assert_eq!(replica(&cluster, "late", 0)["host"], first);
    assert_eq!(state(&cluster, number), "up");
    assert_eq!(living(&cluster), [1, 1]);
}

// hosts 4
#[test]
fn a_reboot_within_the_grace_takes_the_endpoints_out_at_once_and_uses_the_same_host_and_numbers() {
    let Some(mut cluster) = cluster(1) else {
        return;
    };
    cluster.submit("web", &hello("web", 2, "", USUAL));
    cluster.ready("web", "2");
    let ports = |cluster: &Cluster| -> Vec<Value> {
        let all = cluster.replicas("web");
        all.iter().map(|one| one["ports"].clone()).collect()
    };
    let before = ports(&cluster);
    cluster.power_off(1);
    cluster.power_on(1, "22222222-2222-4333-8444-555555555555");
    let again = |one: &Value| one["incarnation"].as_u64() > Some(1) && one["ready"] == true;
    let met = eventually(|| cluster.replicas("web").iter().all(again));
    assert!(met, "{:#}", cluster.world.json(&["service", "web"]));
    assert_eq!(ports(&cluster), before);
    let told = events(&cluster, "web");
    assert!(told.contains("host n1 rebooted"), "{told}");
    let charged = cluster.replicas("web");
    assert!(charged.iter().all(|one| one["restarts_total"] == 0));
    assert_eq!(living(&cluster), [2]);
}

// hosts 4: rerunnable = false
#[test]
fn what_must_not_run_twice_ends_with_its_host_and_says_so() {
    let Some(mut cluster) = cluster(2) else {
        return;
    };
    let once = format!("rerunnable = false\n{USUAL}");
    cluster.submit("once", &hello("once", 1, "", &once));
    cluster.ready("once", "1");
    let host = replica(&cluster, "once", 0)["host"].clone();
    let number: usize = host.as_str().unwrap()[1..].parse().unwrap();
    cluster.power_off(number);
    let ended = cluster
        .world
        .replica_when("once", 0, "ended", |it| it["job_state"] == "EXIT");
    let reason = ended["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("host lost"), "{ended:#}");
    assert_eq!(living(&cluster), [0, 0]);
}

// P39
#[test]
fn one_fixed_number_runs_on_two_hosts_also_after_one_of_them_moved_by_host_loss() {
    let Some(mut cluster) = cluster(3) else {
        return;
    };
    let fixed = |name: &str, hosts: &str| {
        let more = USUAL.replace("\"any\"", "18443");
        hello(
            name,
            1,
            "",
            &format!("{more}[placement]\nhosts = \"{hosts}\"\n"),
        )
    };
    cluster.submit("b", &fixed("b", "n2"));
    cluster.submit("a", &fixed("a", "n[1,3]"));
    cluster.ready("a", "1");
    cluster.ready("b", "1");
    let first = replica(&cluster, "a", 0)["host"].clone();
    let number: usize = first.as_str().unwrap()[1..].parse().unwrap();
    let other = if number == 1 { "n3" } else { "n1" };
    cluster.power_off(number);
    until_listed_without(&cluster, "a", 1, first.as_str().unwrap());
    let moved = replica(&cluster, "a", 0);
    assert_eq!(
        (&moved["host"], &moved["ports"]["http"]),
        (&other.into(), &18443.into()),
        "{moved:#}"
    );
    let stayed = replica(&cluster, "b", 0);
    assert_eq!(
        (&stayed["host"], &stayed["ready"]),
        (&"n2".into(), &true.into())
    );
    assert_eq!(stayed["incarnation"], 1, "{stayed:#}");
    assert_eq!(living(&cluster).iter().sum::<usize>(), 2);
}
