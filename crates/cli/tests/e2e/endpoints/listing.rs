//! Which replicas an answer lists, and how none, unknown and hidden are told apart.

use serde_json::json;

use super::{Scripted, flappy, get, make_sick, ports, resolved, revision, wait_listed};
use crate::daemons::{agent, controller};
use crate::users::{BIN, DAEMON, Site};
use crate::world::{World, eventually, kill};

#[test]
fn only_ready_replicas_are_listed_and_the_others_are_shown_on_wish_with_their_state() {
    // endpoints 22
    let Some(world) = World::new() else { return };
    let (_controller, _agent) = (controller(&world), agent(&world));
    let text = flappy(&world, "flap", 2).replace("exec sleep", "trap '' TERM; exec sleep")
        + "[stop]\ndrain = \"6s\"\ngrace = \"1h\"\n";
    world.ok(&["submit", &world.profile("flap.toml", &text)]);
    world.ok(&["wait", "flap", "--timeout", "60s"]);
    make_sick(&world, "flap", 1, true);
    wait_listed(&world, "flap", 1);
    let all = get(&world, "services/flap/endpoints?state=all").json();
    let of = |index: usize| all["endpoints"][index]["conditions"].clone();
    let ready = json!({"ready": true, "serving": true, "terminating": false});
    let sick = json!({"ready": false, "serving": false, "terminating": false});
    assert_eq!((of(0), of(1)), (ready, sick), "{all:#}");
    assert!(all["endpoints"][1]["reason"].is_string(), "{all:#}");
    let table = world.ok(&["endpoints", "flap", "--all"]);
    assert!(table.contains("not ready"), "{table}");
    // One that stops still answers for as long as its drain is, and is offered to nobody new.
    world.ok(&["kill", "flap/0"]);
    wait_listed(&world, "flap", 0);
    let turns = || world.ok(&["why", "flap/0", "-o", "json"]);
    let told = || turns().contains("a stop was ordered");
    assert!(eventually(told));
    let serving = || get(&world, "services/flap/endpoints?state=serving").json();
    let drains = serving();
    let leaving = json!({"ready": false, "serving": true, "terminating": true});
    assert_eq!(drains["endpoints"][0]["conditions"], leaving, "{drains:#}");
    assert_eq!(drains["endpoints"].as_array().unwrap().len(), 1);
    // It ignores the signal that follows, and is not counted on any more.
    let signalled = || serving()["endpoints"] == json!([]);
    assert!(eventually(signalled), "{:#}", serving());
    let all = get(&world, "services/flap/endpoints?state=all").json();
    let ended = json!({"ready": false, "serving": false, "terminating": true});
    assert_eq!(all["endpoints"][0]["conditions"], ended, "{all:#}");
}

#[test]
fn a_replica_that_ended_is_listed_no_more_and_its_neighbour_of_the_same_host_stays() {
    // endpoints 24, 28
    let Some(world) = World::new() else { return };
    let (_controller, _agent) = (controller(&world), agent(&world));
    let never = flappy(&world, "pair", 2) + "[restart]\npolicy = \"never\"\n";
    world.ok(&["submit", &world.profile("pair.toml", &never)]);
    world.ok(&["wait", "pair", "--timeout", "60s"]);
    let before = get(&world, "services/pair/endpoints").json();
    let addresses: Vec<_> = (0..2)
        .map(|nth| &before["endpoints"][nth]["address"])
        .collect();
    assert_eq!(addresses[0], addresses[1]);
    let numbers = ports(&before);
    assert_eq!(numbers.len(), 2);
    assert_ne!(numbers[0], numbers[1], "two entries of one address");
    let pid = world.replica("pair", 0)["pid"].as_i64().unwrap();
    kill(i32::try_from(pid).unwrap(), "KILL");
    wait_listed(&world, "pair", 1);
    let after = get(&world, "services/pair/endpoints").json();
    assert_eq!(after["endpoints"][0], before["endpoints"][1], "{after:#}");
    world.replica_when("pair", 0, "ended", |it| it["job_state"] == "EXIT");
    assert_eq!(resolved(&world, "pair").len(), 1);
}

#[test]
fn a_ready_replica_without_an_address_is_not_listed_until_its_host_has_one() {
    // endpoints 24
    let Some(mut site) = Scripted::new("web", 1) else {
        return;
    };
    site.host.publish(None);
    site.host.report().unwrap();
    site.tell(0, true);
    let all = || get(&site.world, "services/web/endpoints?state=all").json();
    assert!(eventually(|| all()["endpoints"][0]["address"].is_null()));
    let all = all();
    assert_eq!(all["endpoints"].as_array().unwrap().len(), 1, "{all:#}");
    assert!(all["endpoints"][0]["address"].is_null(), "{all:#}");
    assert_eq!(resolved(&site.world, "web"), Vec::<String>::new());
    site.host.publish(Some("127.0.0.1".parse().unwrap()));
    site.host.report().unwrap();
    wait_listed(&site.world, "web", 1);
}

#[test]
fn a_service_with_none_ready_and_an_unknown_one_differ_in_answer_and_exit_code() {
    // endpoints 34
    let Some(site) = Scripted::new("idle", 2) else {
        return;
    };
    let world = &site.world;
    let none = get(world, "services/idle/endpoints");
    assert_eq!(
        (none.head.status, &none.json()["desired"]),
        (200, &json!(2))
    );
    assert_eq!(none.json()["endpoints"], json!([]));
    let lines = get(world, "resolve/idle");
    assert_eq!((lines.head.status, lines.text()), (200, ""));
    for path in ["services/nothing/endpoints", "resolve/nothing"] {
        let unknown = get(world, path);
        assert_eq!(unknown.head.status, 404, "{path}");
        assert_eq!(unknown.json()["code"], "service_not_found", "{path}");
    }
    for (name, code) in [("idle", 3), ("nothing", 4)] {
        for form in ["lines", "url", "env"] {
            let outcome = world.run(&["endpoints", name, "-o", form]);
            assert_eq!(
                (outcome.code, outcome.stdout.as_str()),
                (Some(code), ""),
                "{name} {form}: {outcome:?}"
            );
        }
    }
}

#[test]
fn a_service_that_one_may_not_see_is_answered_like_one_that_is_not_there() {
    // endpoints 36
    let Some(site) = Site::new() else { return };
    let socket = site.world.path("run/controller.sock").display().to_string();
    let ask = |path: &str| {
        let url = format!("http://localhost/api/v1/{path}");
        let seen = site.as_user(BIN, "curl", &["-s", "-i", "--unix-socket", &socket, &url]);
        assert_eq!(seen.code, Some(0), "{seen:?}");
        // What is new in each answer, whatever it says.
        let varies = ["date:", "x-request-id:", "portreeve-request"];
        let lines = seen.stdout.lines().filter(|line| {
            let line = line.to_ascii_lowercase();
            !varies.iter().any(|name| line.starts_with(name))
        });
        let text: Vec<&str> = lines.collect();
        let text = text.join("\n");
        match text.find("\"instance\":\"") {
            Some(at) => {
                let after = &text[at + 12..];
                let end = after.find('"').unwrap();
                format!("{}{}", &text[..at], &after[end..])
            }
            None => text,
        }
    };
    let paths = [
        "services/secret.daemon/endpoints",
        "services/secret.daemon/endpoints?state=all",
        "services/secret.daemon/endpoints?port=http",
        "resolve/secret.daemon",
        "resolve/secret.daemon/http",
        "services/secret.daemon",
    ];
    let unknown = paths.map(ask);
    for answer in &unknown {
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    site.submit(
        DAEMON,
        "secret",
        "exec sleep 1000000",
        "[ports]\nhttp = { any = 1 }\n[readiness]\ncommand = [\"true\"]\n",
    );
    let shown = || revision(&site.world, "secret.daemon", "ready") > 0;
    assert!(eventually(shown));
    assert_eq!(paths.map(ask), unknown);
    for form in ["lines", "json"] {
        let outcome = site.as_user(
            BIN,
            &site.program.display().to_string(),
            &["endpoints", "secret.daemon", "-o", form],
        );
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(4), ""),
            "{outcome:?}"
        );
    }
}
