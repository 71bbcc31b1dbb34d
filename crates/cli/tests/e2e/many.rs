//! Many at once: every number has one holder, and everybody binds at the first try.

use std::collections::BTreeSet;
use std::process::Stdio;

use crate::world::{World, eventually};

#[test]
fn many_replicas_of_many_services_bind_at_their_first_try() {
    // P02: 64 replicas of 8 services with 3 ports each, submitted at the same time.
    let Some(world) = World::new() else { return };
    let quiet = world.profile(
        "quiet.toml",
        "kind = \"service\"\nname = \"quiet\"\ncommand = \"exec sleep 1000000\"\n",
    );
    let _dev = world.dev(&[&quiet]);
    let submitters: Vec<_> = (0..8)
        .map(|number| {
            let text = format!(
                "kind = \"service\"\nname = \"engine-{number}\"\nreplicas = 8\n\
                 command = \"portreeve hello --port ${{port.b}} & portreeve hello --port ${{port.c}} & exec portreeve hello --port ${{port.a}}\"\n\
                 [ports]\na = \"any\"\nb = \"any\"\nc = \"any\"\n[restart]\nbackoff = {{ initial = \"500ms\", max = \"1s\" }}\n"
            );
            let profile = world.profile(&format!("engine-{number}.toml"), &text);
            world.portreeve(&["submit", &profile]).stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut submitter in submitters {
        assert!(submitter.wait().unwrap().success());
    }
    for number in 0..8 {
        world.ok(&["wait", &format!("engine-{number}"), "--timeout", "120s"]);
    }
    let mut numbers = BTreeSet::new();
    for number in 0..8 {
        let service = world.json(&["service", &format!("engine-{number}")]);
        for replica in service["replicas"].as_array().unwrap() {
            assert_eq!(replica["restarts"], 0, "{replica:#}");
            assert_eq!(
                replica["incarnation"], service["replicas"][0]["incarnation"],
                "{replica:#}"
            );
            for port in replica["ports"].as_object().unwrap().values() {
                let port = port.as_u64().unwrap();
                assert!(numbers.insert(port), "{port} has two holders");
            }
        }
    }
    assert_eq!(numbers.len(), 192);
    assert!(
        eventually(|| numbers.iter().all(|port| world.listens(*port))),
        "not every number has a listener"
    );
}
