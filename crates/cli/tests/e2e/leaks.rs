//! No number survives its owner, and none is free while somebody listens on it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::daemons::{agent, controller};
use crate::world::{Running, World, eventually};

const SERVICES: [&str; 4] = ["one", "two", "three", "four"];

/// Who holds which number.
type Held = BTreeSet<(u64, String)>;

/// What the host says is held, by whom.
fn held(world: &World) -> Held {
    let host = world.ok(&["hosts"]);
    let name = host.split_whitespace().next().unwrap_or_default();
    let ports = world.json(&["ports", name]);
    let entries = ports["ports"].as_array().unwrap().iter();
    entries
        .filter(|it| it["state"] == "held" || it["state"] == "releasing")
        .map(|it| {
            let holder = format!("{}/{}", it["service"].as_str().unwrap(), it["replica"]);
            (it["numbers"].as_u64().unwrap(), holder)
        })
        .collect()
}

/// What the replicas say they have.
fn owned(world: &World) -> Held {
    let services = world.json(&["services"]);
    let mut owned = BTreeSet::new();
    for service in services["services"].as_array().unwrap() {
        for replica in service["replicas"].as_array().unwrap() {
            let holder = format!(
                "{}/{}",
                service["service"].as_str().unwrap(),
                replica["replica"]
            );
            let ports = replica["ports"].as_object().into_iter().flatten();
            owned.extend(ports.filter_map(|(_, it)| Some((it.as_u64()?, holder.clone()))));
        }
    }
    owned
}

/// Which numbers of the pool somebody listens on.
fn listening(world: &World) -> BTreeSet<u64> {
    (20_000..20_100)
        .filter(|port| world.listens(*port))
        .collect()
}

/// Begins a few orders and lets them run on their own.
fn order(world: &World, round: usize) -> Vec<std::process::Child> {
    let name = |place: usize| SERVICES[(round + place) % SERVICES.len()];
    let replicas = (3 + round % 3).to_string();
    let replica = format!("{}/1", name(1));
    let orders: [&[&str]; 5] = [
        &["scale", name(0), &replicas],
        &["kill", &replica],
        &["restart", name(2)],
        &["stop", name(3)],
        &["start", name(3)],
    ];
    let quiet = |arguments: &&[&str]| {
        let mut command = world.portreeve(arguments);
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    orders.iter().map(quiet).collect()
}

#[test]
fn a_controller_killed_among_orders_leaks_no_number_and_frees_none_in_use() {
    // P14, ports 20
    let Some(world) = World::new() else { return };
    let long = std::env::var_os("PORTREEVE_LONG").is_some();
    // Once for each number of answers before the end.
    let rounds = if long { 100 } else { 5 };
    let mut running: Running = controller(&world);
    let _agent = agent(&world);
    for name in SERVICES {
        let text = format!(
            "kind = \"service\"\nname = \"{name}\"\nreplicas = 4\n\
             command = [\"portreeve\", \"hello\", \"--port\", \"${{port.http}}\"]\n[ports]\nhttp = \"any\"\n"
        );
        world.ok(&["submit", &world.profile(&format!("{name}.toml"), &text)]);
    }
    for round in 0..rounds {
        let mut orders = order(&world, round);
        // So many answers come before the end: each round ends elsewhere.
        let (answered, cut_off) = orders.split_at_mut(round % 5);
        for it in answered {
            it.wait().unwrap();
        }
        running.end("KILL");
        running = controller(&world);
        for it in cut_off {
            it.wait().unwrap();
        }
        let mut last = (Held::new(), Held::new(), BTreeSet::new());
        let agree = eventually(|| {
            last = (held(&world), owned(&world), listening(&world));
            let numbers: BTreeSet<u64> = last.0.iter().map(|(number, _)| *number).collect();
            last.0 == last.1 && last.2.is_subset(&numbers)
        });
        assert!(agree, "round {round}: held, owned, listening: {last:?}");
    }
    for name in SERVICES {
        world.run(&["stop", name]);
    }
    let all_free = eventually(|| held(&world).is_empty());
    assert!(all_free, "{:?}", held(&world));
    let services: Value = world.json(&["services"]);
    assert_eq!(
        services["services"].as_array().unwrap().len(),
        SERVICES.len()
    );
}
