//! Two agents where one is expected: of one network, which share its numbers, and of one name.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::world::{PORTREEVE, Running, USUAL, World, eventually, hello, kill, names_in};

/// An agent in the world's own network, with a state folder and a controller of its own.
fn agent(world: &World, name: &str, ports: &str) -> Vec<String> {
    let data = world.path(name).display().to_string();
    let controller = format!("unix:{}", world.path("nowhere.sock").display());
    let line = [
        "agent",
        "--host",
        name,
        "--data",
        &data,
        "--controller",
        &controller,
        "--ports",
        ports,
        "--single-host",
    ];
    line.map(str::to_owned).into()
}

fn start(world: &World, name: &str, ports: &str) -> Running {
    let line = agent(world, name, ports);
    let arguments: Vec<&str> = line.iter().map(String::as_str).collect();
    let running = world.start_alone(name, &arguments);
    let told = || running.output().contains("published address");
    assert!(eventually(told), "{}", running.output());
    running
}

/// Starts one that is refused, and gives what it says.
fn refused(world: &World, name: &str, ports: &str) -> String {
    let line = agent(world, name, ports);
    let arguments: Vec<&str> = line.iter().map(String::as_str).collect();
    let mut running = world.start_alone(name, &arguments);
    let code = running.code();
    assert_eq!(code, Some(1), "{}", running.output());
    running.output()
}

#[test]
fn a_second_agent_of_a_network_is_refused_with_the_split_unless_its_numbers_are_others() {
    // Neither folder, controller nor name is shared: only the numbers are.
    let Some(world) = World::new() else { return };
    let first = start(&world, "a", "20000-32767");
    let told = refused(&world, "b", "20000-32767");
    for word in [
        "agent a (process ",
        "gives numbers of 20000-32767",
        "--ports 20000-26383 there and --ports 26384-32767 here",
    ] {
        assert!(told.contains(word), "{word} is missing: {told}");
    }
    let third = start(&world, "c", "32768-33000");
    refused(&world, "b", "33000-33001");
    drop(third);
    // What is ended has no numbers, however it ended.
    kill(first.pid(), "KILL");
    drop(first);
    let second = start(&world, "b", "20000-32767");
    assert_eq!(second.end("TERM"), Some(0));
}

#[test]
fn of_agents_that_start_in_one_instant_those_with_numbers_of_their_own_stay_and_one_of_the_others()
{
    // As at the boot of a host: each waited for the other's answer, and both left.
    let Some(world) = World::new() else { return };
    for turn in 0..4 {
        let names = ["a", "b", "c"].map(|name| format!("{name}{turn}"));
        let start = |name: &str, ports: &str| {
            let line = agent(&world, name, ports);
            let arguments: Vec<&str> = line.iter().map(String::as_str).collect();
            world.start_alone(name, &arguments)
        };
        let ports = ["20000-20999", "20500-21999", "22000-22999"];
        let mut running: Vec<Running> = names
            .iter()
            .zip(ports)
            .map(|(name, ports)| start(name, ports))
            .collect();
        let apart = running.pop().unwrap();
        let stays = |one: &Running| one.output().contains("published address");
        let leaves = |one: &Running| one.output().contains("in this network gives numbers of");
        let settled = || {
            stays(&apart)
                && running.iter().all(|one| stays(one) || leaves(one))
                && running.iter().filter(|one| stays(one)).count() == 1
        };
        assert!(
            eventually(settled),
            "{:?} {}",
            running.iter().map(Running::output).collect::<Vec<_>>(),
            apart.output()
        );
    }
}

#[test]
fn a_stopped_agent_still_has_its_numbers() {
    let Some(world) = World::new() else { return };
    let first = start(&world, "a", "20000-32767");
    kill(first.pid(), "STOP");
    let told = refused(&world, "b", "20000-32767");
    let word = format!(
        "the agent of process {} in this network does not say",
        first.pid()
    );
    assert!(told.contains(&word), "{told}");
    kill(first.pid(), "CONT");
    refused(&world, "b", "20000-32767");
}

#[test]
fn another_agent_of_a_name_is_kept_out_and_the_same_one_is_let_in_again() {
    let Some(mut cluster) = Cluster::of(2) else {
        return;
    };
    cluster.submit(
        "web",
        &hello(
            "web",
            1,
            "",
            &format!("{USUAL}[placement]\nhosts = \"n1\"\n"),
        ),
    );
    cluster.ready("web", "1");
    let before = cluster.host(1);
    // The other host is given the name of the first by mistake.
    cluster.start_agent_through(2, &[], &["--host", "n1"], &["--ports", "30000-30010"]);
    let told = || cluster.agent_log(2).contains("host n1 has another agent");
    assert!(eventually(told), "{}", cluster.agent_log(2));
    assert!(
        cluster
            .agent_log(2)
            .contains("start this one with another --host")
    );
    let fields = ["address", "dynamic", "agent", "state", "addresses"];
    let now = cluster.host(1);
    for field in fields {
        assert_eq!(now[field], before[field], "{field}: {now:#}");
    }
    assert!(
        cluster
            .network(2)
            .processes()
            .iter()
            .all(|(_, line)| !line.contains("worker")),
        "what is wanted of the first was begun on the second"
    );
    // The first one is restarted: let in at once, nothing restarts.
    let replica = cluster.replicas("web")[0].clone();
    let seen = before["last_seen"].as_u64();
    cluster.start_agent(1, &["--ports", "20000-20999"]);
    let again = || {
        let host = cluster.host(1);
        host["last_seen"].as_u64() > seen && host["dynamic"] == "20000-20999"
    };
    assert!(eventually(again), "{}", cluster.agent_log(1));
    assert_eq!(cluster.replicas("web")[0], replica);
    assert!(!cluster.agent_log(1).contains("has another agent"));
}

#[test]
fn a_check_says_whether_an_agent_could_join_and_joins_nothing() {
    let Some(cluster) = Cluster::of(1) else {
        return;
    };
    let check = |more: &[&str]| -> (Option<i32>, Value) {
        let socket = cluster.world.path("way1.sock").display().to_string();
        let controller = if more.contains(&"--controller") {
            &[][..]
        } else {
            &["--controller", &socket]
        };
        let usual = ["agent", "--check", "-o", "json"];
        let output = cluster
            .world
            .command_in(cluster.network(1), PORTREEVE)
            .args([&usual, controller, more].concat())
            .output()
            .unwrap();
        let found = serde_json::from_slice(&output.stdout);
        (
            output.status.code(),
            found.unwrap_or_else(|cause| panic!("{cause}: {output:?}")),
        )
    };
    let of = |found: &Value, what: &str| -> Vec<(String, String)> {
        let all = found["findings"].as_array().unwrap().iter();
        let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
        let all = all.filter(|one| one["what"] == what);
        all.map(|one| (text(one, "verdict"), text(one, "words")))
            .collect()
    };
    // The agent that runs here finds itself.
    let data = cluster.world.path("n1").display().to_string();
    let (code, found) = check(&["--host", "n1", "--data", &data]);
    assert_eq!(
        (code, &found["ready"]),
        (Some(0), &true.into()),
        "{found:#}"
    );
    for (what, words) in [
        ("state", &*data),
        (
            "address",
            "10.99.0.1 (default: eth0 carries the default route)",
        ),
        ("neighbours", "this agent runs already"),
        ("controller", "answers, as "),
        ("name", "n1 is known to the controller as this host"),
        ("clock", "controller's"),
    ] {
        let all = of(&found, what);
        assert!(
            all.iter()
                .any(|(verdict, told)| verdict == "ok" && told.contains(words)),
            "{what}: {all:?}"
        );
    }
    // Another one has its numbers in its way, and a name that is taken.
    let other = cluster.world.path("other").display().to_string();
    let (code, found) = check(&["--host", "n1", "--data", &other, "--address", "nope0"]);
    assert_eq!((code, &found["ready"]), (Some(1), &false.into()));
    assert_eq!(of(&found, "address")[0].0, "not-ready");
    assert!(
        of(&found, "neighbours")[0]
            .1
            .contains("--ports 20000-26383 there")
    );
    assert!(
        of(&found, "name")[0]
            .1
            .contains("with another state folder")
    );
    assert!(
        !cluster.world.path("other").exists(),
        "a check wrote something"
    );
    // A state folder that can never be made.
    let plain = cluster.world.profile("plain", "no folder");
    let (code, found) = check(&["--host", "n1", "--data", &format!("{plain}/state")]);
    assert_eq!(code, Some(1));
    assert_eq!(
        of(&found, "state"),
        [(
            "not-ready".to_owned(),
            format!("{plain}: not a folder; name another folder with --data")
        )]
    );
    // Neither does it need a controller to say the rest.
    let (code, found) = check(&[
        "--host",
        "n2",
        "--data",
        &other,
        "--ports",
        "33000-34000",
        "--controller",
        "unix:/nowhere",
    ]);
    assert_eq!(code, Some(1));
    assert_eq!(of(&found, "controller")[0].0, "not-ready");
    assert_eq!(of(&found, "neighbours")[0].0, "ok");
    assert!(
        of(&found, "ports")
            .iter()
            .any(|(verdict, words)| verdict == "warning" && words.contains("ephemeral"))
    );
    let hosts = cluster.world.json(&["hosts"]);
    assert_eq!(hosts["hosts"].as_array().unwrap().len(), 1);
}

#[test]
fn one_machine_is_three_hosts_and_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let text = hello("web", 3, "--bind \\\"${host.address}\\\"", USUAL);
    let profile = world.profile("web.toml", &text);
    let dev = world.dev(&["--hosts", "3", &profile]);
    world.ok(&["wait", "web", "--ready", "3", "--timeout", "60s"]);
    let hosts = world.json(&["hosts"]);
    let of = |field: &str| -> Vec<Value> {
        let hosts = hosts["hosts"].as_array().unwrap().iter();
        hosts.map(|host| host[field].clone()).collect()
    };
    assert_eq!(of("host"), ["dev-1", "dev-2", "dev-3"]);
    assert_eq!(of("address"), ["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    assert_eq!(of("dynamic"), ["20000-24255", "24256-28511", "28512-32767"]);
    let mut placed: Vec<_> = (0..3).map(|index| world.replica("web", index)).collect();
    placed.sort_by_key(|replica| replica["host"].to_string());
    for (number, replica) in (1..).zip(&placed) {
        assert_eq!(replica["host"], format!("dev-{number}"));
        assert_eq!(replica["address"], format!("127.0.0.{number}"));
        let port = replica["ports"]["http"].as_u64().unwrap();
        world.curl(&[&format!("http://127.0.0.{number}:{port}/")]);
    }
    // One fixed number on all addresses is there once, since the hosts share one network.
    let fixed = USUAL.replace("\"any\"", "8080");
    world.ok(&[
        "submit",
        &world.profile("fixed.toml", &hello("fixed", 2, "", &fixed)),
    ]);
    world.ok(&["wait", "fixed", "--ready", "1", "--timeout", "60s"]);
    let waits = |replica: &Value| {
        let reasons = replica["reasons"].as_array();
        reasons.is_some_and(|all| all.iter().any(|reason| reason["code"] == "FOREIGN"))
    };
    let met = eventually(|| (0..2).any(|index| waits(&world.replica("fixed", index))));
    assert!(met, "{:#}", world.json(&["service", "fixed"]));

    assert_eq!(dev.end("TERM"), Some(0));
    assert!(world.processes().is_empty(), "{:?}", world.processes());
    let left = names_in(&world.path(""));
    assert!(
        !left.iter().any(|name| name.starts_with("portreeve-dev-")),
        "{left:?}"
    );
    assert!(
        names_in(&world.path("run"))
            .iter()
            .all(|name| !name.ends_with(".sock"))
    );
    let refused = world.run(&["dev", "--hosts", "3", "--ports", "20000-20001", &profile]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let refused = world.run(&["dev", "--hosts", "17", &profile]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}
