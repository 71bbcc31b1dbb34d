//! What the word of an operator does: of a host that is gone, of what runs on one and is not known, of suspects.

use serde_json::Value;

use super::{cluster, living, patience, replica, snapshot, standing, until_host_is};
use crate::cluster::Cluster;
use crate::world::{Outcome, USUAL, eventually, hello};

/// The holder of a number on a host, if it is held: the line of `portreeve ports`.
fn holder(cluster: &Cluster, host: &str, number: u64) -> Option<Value> {
    let ports = cluster.world.json(&["ports", host]);
    let mut ports = ports["ports"].as_array().unwrap().iter();
    let held = |it: &&Value| {
        let numbers = &it["numbers"];
        let end = |name: &str| numbers.as_u64().or(numbers[name].as_u64()).unwrap();
        it["state"] == "held" && (end("first")..=end("last")).contains(&number)
    };
    ports.find(held).cloned()
}

// hosts 4: numbers stay held until … an operator says `portreeve host down NAME --fenced`.
#[test]
fn a_host_that_is_declared_down_is_lost_at_once_and_its_numbers_are_free_once_it_is_said_to_be_fenced()
 {
    // By the default grace: silence alone gives nobody up here.
    let Some(mut cluster) = Cluster::of(2) else {
        return;
    };
    let fixed = USUAL.replace("\"any\"", "18080");
    cluster.submit("web", &hello("web", 1, "", &fixed));
    cluster.ready("web", "1");
    let host = replica(&cluster, "web", 0)["host"].clone();
    let host = host.as_str().unwrap();
    let number: usize = host[1..].parse().unwrap();
    let down = |more: &[&str]| -> Outcome {
        let order = ["host", "down", host];
        cluster.world.run(&[&order, more].concat())
    };
    // Of a host that speaks nobody believes it.
    let refused = down(&["--fenced"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("cut its power"), "{refused:?}");
    assert_eq!(snapshot(&cluster, "web").1, 1);

    cluster.power_off(number);
    let down = |more: &[&str]| -> Outcome {
        let order = ["host", "down", host];
        cluster.world.run(&[&order, more].concat())
    };
    let told = down(&[]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(
        told.stderr.contains("--fenced` frees them")
            || told.stdout.contains("--fenced` frees them"),
        "{told:?}"
    );
    until_host_is(&cluster, number, "lost");
    cluster.ready("web", "1");
    assert_ne!(replica(&cluster, "web", 0)["host"], host);
    let held = holder(&cluster, host, 18080);
    assert!(held.is_some_and(|it| it["service"].is_string()));
    // It is said again, with what frees the numbers, once the host has been silent for long enough.
    let fenced = eventually(|| down(&["--fenced"]).code == Some(0));
    assert!(fenced, "{:?}", down(&["--fenced"]));
    assert_eq!(holder(&cluster, host, 18080), None);
    let again = cluster.world.json(&["host", "down", host, "--fenced"]);
    assert_eq!(again["changed"], false, "{again:#}");
    let events = cluster.world.ok(&["events", "--host", host]);
    assert!(events.contains("declared down and fenced by"), "{events}");
    assert_eq!(living(&cluster).iter().sum::<usize>(), 1);
}

fn number_of(cluster: &Cluster, service: &str) -> u64 {
    let ports = &replica(cluster, service, 0)["ports"];
    ports["http"].as_u64().unwrap()
}

// hosts 4: what the store does not know is shown as unknown, holds its numbers, and is adopted or fenced.
#[test]
fn what_a_controller_without_its_data_does_not_know_is_adopted_fenced_or_replaced_by_name() {
    let Some(mut cluster) = cluster(1) else {
        return;
    };
    let names = ["web", "old", "new"];
    for name in names {
        cluster.submit(name, &hello(name, 1, "", USUAL));
        cluster.ready(name, "1");
    }
    let before = standing(&cluster, "web");
    let numbers = names.map(|name| number_of(&cluster, name));
    cluster.kill_controller();
    let data = cluster.world.path("controller");
    std::fs::rename(&data, cluster.world.path("gone")).unwrap();
    super::start_controller(&mut cluster);
    cluster.wait_until_up(1);
    let host = || cluster.world.ok(&["host", "n1"]);
    let named = || names.iter().all(|it| host().contains(&format!("{it}.")));
    assert!(eventually(named), "{}", host());
    for number in numbers {
        assert!(holder(&cluster, "n1", number).is_some(), "{number} is free");
    }
    assert_eq!(living(&cluster), [3]);

    // Who does not know the service yet is told what to do first.
    let adopt = || cluster.world.run(&["host", "adopt", "n1", "web/0"]);
    let refused = adopt();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("submit it, adopt this"),
        "{refused:?}"
    );
    // A host that takes nothing leaves the place to the one that runs there.
    let order =
        |verb: &str, more: &[&str]| cluster.world.ok(&[&["host", verb, "n1"], more].concat());
    order("drain", &["--no-wait"]);
    cluster.submit("web", &hello("web", 1, "", USUAL));
    let adopted = adopt();
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    order("undrain", &[]);
    cluster.ready("web", "1");
    assert_eq!(standing(&cluster, "web"), before, "the very same one");

    order("fence", &["old/0"]);
    let alone = |expected: usize| eventually(|| living(&cluster) == [expected]);
    assert!(alone(2), "{:?}", living(&cluster));
    assert!(eventually(|| holder(&cluster, "n1", numbers[1]).is_none()));

    // Submitted again without that, the old copy ends before the new one begins, and its number is free.
    cluster.submit("new", &hello("new", 1, "", USUAL));
    cluster.ready("new", "1");
    assert_ne!(number_of(&cluster, "new"), numbers[2]);
    assert!(alone(2), "{:?}", living(&cluster));
    assert!(eventually(|| holder(&cluster, "n1", numbers[2]).is_none()));
    assert!(
        eventually(|| !host().contains("not known to")),
        "{}",
        host()
    );
    assert_eq!(standing(&cluster, "web"), before);
    // What was adopted is heard of, though it was begun under another controller.
    cluster.on(1, &format!("kill -KILL {}", before[0][3]));
    let restarted = |it: &Value| it["restarts"] == 1 && it["ready"] == true;
    cluster
        .world
        .replica_when("web", 0, "told of its restart", restarted);
}

// endpoints 32: withdrawn at once where the site says so.
#[test]
fn a_site_that_wants_it_has_suspects_leave_the_lists_at_once_and_come_back_as_they_were() {
    let long = (patience().0, std::time::Duration::from_secs(90));
    let Some(mut cluster) = Cluster::bare(1) else {
        return;
    };
    let arguments = super::forgiving(long);
    let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    arguments.push("--withdraw-suspect");
    cluster.start_controller(&arguments);
    cluster.start_agent(1, &[]);
    cluster.wait_until_up(1);
    cluster.submit("web", &hello("web", 2, "", USUAL));
    cluster.ready("web", "2");
    let before = standing(&cluster, "web");
    cluster.link_down(1);
    until_host_is(&cluster, 1, "suspect");
    assert!(eventually(|| snapshot(&cluster, "web").1 == 0));
    let why = cluster.world.run(&["why", "web/0"]);
    assert!(
        why.stderr.contains("host n1 is silent") || why.stdout.contains("host n1 is silent"),
        "{why:?}"
    );
    cluster.link_up(1);
    until_host_is(&cluster, 1, "up");
    assert!(eventually(|| snapshot(&cluster, "web").1 == 2));
    assert_eq!(standing(&cluster, "web"), before);
    assert_eq!(living(&cluster), [2]);
}
