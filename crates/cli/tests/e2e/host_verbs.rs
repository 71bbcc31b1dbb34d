//! Hosts that operators take out of service, put back, take down and forget.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::world::{Running, USUAL, World, eventually, hello};

/// Resolves before each of 50 requests a second, until there is a file `enough`; then writes what it saw.
const CLIENT: &str = r#"
import json, os, random, socket, sys, time
seen = {"requests": 0, "none": 0, "failed": [], "places": {}}
def ask(to, text):
    s = socket.socket(socket.AF_UNIX if isinstance(to, str) else socket.AF_INET)
    s.settimeout(10)
    with s:
        s.connect(to)
        s.sendall(text.encode())
        answer = b""
        while data := s.recv(65536): answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]: raise OSError(f"{head!r}")
    return body
at = time.monotonic()
while not os.path.exists("enough"):
    at = max(at + 0.02, time.monotonic() - 1)
    time.sleep(max(0, at - time.monotonic()))
    text = ask(sys.argv[1], "GET /api/v1/resolve/web HTTP/1.0\r\nHost: x\r\n\r\n").decode()
    places = [(a, int(p)) for a, p in (line.rsplit(":", 1) for line in text.split())]
    if not places:
        seen["none"] += 1
        continue
    to = random.choice(places)
    asked = time.monotonic()
    try:
        ask(to, "GET / HTTP/1.0\r\nHost: x\r\nConnection: close\r\n\r\n")
        seen["places"][to[0]] = seen["places"].get(to[0], 0) + 1
    except OSError as cause:
        # One that this very client began later than the drain lasts is no evidence: it stood still itself.
        if time.monotonic() - asked < 0.9: seen["failed"].append((to, repr(cause)))
    seen["requests"] += 1
    if seen["requests"] == 25: open("begun", "w").close()
with open("seen.new", "w") as file: json.dump(seen, file)
os.rename("seen.new", "seen")
"#;

/// A client in the home network.
struct Client(Running);

impl Client {
    fn start(world: &World) -> Self {
        let file = world.profile("client.py", CLIENT);
        let mut python = world.command("python3");
        python.current_dir(world.path(""));
        let socket = world.path("run/controller.sock").display().to_string();
        let client = Self(world.start_by(python, "client", &[&file, &socket]));
        assert!(
            eventually(|| world.path("begun").exists()),
            "{}",
            client.0.output()
        );
        client
    }

    fn end(mut self, world: &World) -> Value {
        std::fs::write(world.path("enough"), "").unwrap();
        assert_eq!(self.0.code(), Some(0), "{}", self.0.output());
        serde_json::from_slice(&std::fs::read(world.path("seen")).unwrap()).unwrap()
    }
}

/// A service whose replicas answer for a second more once they are not listed any more.
fn drained(name: &str, replicas: u32, more: &str) -> String {
    let text = format!("{USUAL}[stop]\ndrain = \"1s\"\n{more}");
    hello(name, replicas, "", &text)
}

fn pinned(name: &str, host: &str) -> String {
    let more = format!("{USUAL}[placement]\nhosts = \"{host}\"\n");
    hello(name, 1, "", &more)
}

#[test]
fn a_drain_moves_a_service_under_a_client_that_is_never_refused() {
    let Some(cluster) = Cluster::of(3) else {
        return;
    };
    let world = &cluster.world;
    cluster.submit("web", &drained("web", 3, ""));
    cluster.ready("web", "3");
    assert_eq!(cluster.hosts_of("web").len(), 3);
    let client = Client::start(world);
    // Two hosts after each other: at the end all three replicas are on the third.
    for host in ["n1", "n2"] {
        let text = world.ok(&["host", "drain", host, "--timeout", "60s"]);
        assert!(
            text.starts_with(&format!("host {host}: draining: ")),
            "{text}"
        );
        assert!(text.ends_with(&format!("host {host}: drained\n")), "{text}");
        let view = world.json(&["host", host]);
        assert_eq!(
            (&view["state"], &view["drain"]["left"]),
            (&"drained".into(), &0.into())
        );
        world.ok(&["wait", "web", "--timeout", "60s"]);
    }
    assert_eq!(cluster.hosts_of("web"), ["n3", "n3", "n3"]);
    let seen = client.end(world);
    assert_eq!(seen["failed"], serde_json::json!([]), "{seen:#}");
    assert_eq!(seen["none"], 0, "{seen:#}");
    assert!(seen["places"]["10.99.0.3"].as_u64() > Some(0), "{seen:#}");
    // Nothing was charged, and every move is told.
    for replica in cluster.replicas("web") {
        assert_eq!(replica["restarts_total"], 0, "{replica:#}");
    }
    let events = world.json(&["events", "web"]).to_string();
    assert!(events.contains("host n1 is drained by"), "{events}");
    // Back in service it takes what comes new; what moved stays.
    let text = world.ok(&["host", "undrain", "n1"]);
    assert!(text.starts_with("host n1: in service again"), "{text}");
    world.ok(&["scale", "web", "4"]);
    cluster.ready("web", "4");
    assert_eq!(cluster.hosts_of("web"), ["n3", "n3", "n3", "n1"]);
    let again = world.ok(&["host", "undrain", "n1"]);
    assert_eq!(again, "host n1: nothing to change: it is not drained\n");
}

#[test]
fn what_has_nowhere_to_go_is_named_and_stays_until_the_deadline() {
    let Some(cluster) = Cluster::of(2) else {
        return;
    };
    let world = &cluster.world;
    cluster.submit("here", &pinned("here", "n1"));
    cluster.ready("here", "1");
    let pid = world.replica("here", 0)["pid"].clone();
    let late = world.run(&["host", "drain", "n1", "--timeout", "1s"]);
    assert_eq!(late.code, Some(7), "{late:?}");
    assert!(
        late.stdout
            .contains("/0 has nowhere to go: host n1 is drained"),
        "{late:?}"
    );
    assert!(
        late.stderr
            .contains("1 of 1 left after 1s; the drain goes on"),
        "{late:?}"
    );
    let shown = world.ok(&["host", "n1"]);
    assert!(
        shown.contains("/0 stays: nowhere to go: HOST DRAINED on n1"),
        "{shown}"
    );
    let listed = world.ok(&["hosts"]);
    assert!(listed.contains("n1\tdraining\t"), "{listed}");
    assert!(
        listed.lines().next().unwrap().ends_with("\t1 of 1 left"),
        "{listed}"
    );
    assert_eq!(world.replica("here", 0)["pid"], pid, "it was left alone");
    // A controller that is killed meanwhile goes on with it.
    let mut cluster = cluster;
    cluster.start_controller(&[]);
    let world = &cluster.world;
    assert!(eventually(|| world.run(&["hosts"]).code == Some(0)));
    world.ok(&[
        "host",
        "drain",
        "n1",
        "--deadline",
        "1s",
        "--timeout",
        "60s",
    ]);
    world.replica_when("here", 0, "waits", |it| it["job_state"] == "PEND");
    let why = world.replica("here", 0)["reason"].clone();
    let why = why.as_str().unwrap();
    assert!(
        why.starts_with("host n1 is drained (host n1 is drained by"),
        "{why}"
    );
    world.ok(&["host", "undrain", "n1"]);
    cluster.ready("here", "1");
}

#[test]
fn now_stops_everything_and_it_follows_elsewhere() {
    let Some(cluster) = Cluster::of(2) else {
        return;
    };
    let world = &cluster.world;
    cluster.submit("web", &drained("web", 2, ""));
    cluster.ready("web", "2");
    let answer = world.json(&["host", "drain", "n2", "--now", "--no-wait"]);
    assert_eq!(
        (&answer["host"], &answer["changed"]),
        (&"n2".into(), &true.into())
    );
    assert!(answer.get("service").is_none(), "{answer:#}");
    let view = world.json(&["host", "drain", "n2", "--timeout", "60s"]);
    assert_eq!(view["state"], "drained", "{view:#}");
    cluster.ready("web", "2");
    assert_eq!(cluster.hosts_of("web"), ["n1", "n1"]);
}

#[test]
fn a_host_that_is_gone_is_removed_and_new_when_it_comes_back() {
    let Some(mut cluster) = Cluster::of(2) else {
        return;
    };
    let up = cluster.world.run(&["host", "remove", "n2"]);
    assert_eq!(up.code, Some(1), "{up:?}");
    assert!(up.stderr.contains("stop its agent first"), "{up:?}");
    let unknown = cluster.world.run(&["host", "remove", "n9"]);
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    cluster.kill_agent(2);
    let removed = eventually(|| cluster.world.run(&["host", "remove", "n2"]).code == Some(0));
    assert!(
        removed,
        "{:?}",
        cluster.world.run(&["host", "remove", "n2"])
    );
    let names = |cluster: &Cluster| {
        let list = cluster.world.json(&["hosts"]);
        let hosts = list["hosts"].as_array().unwrap().iter();
        hosts
            .map(|it| it["host"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&cluster), ["n1"]);
    cluster.start_controller(&[]);
    assert!(eventually(|| cluster.world.run(&["hosts"]).code == Some(0)));
    assert_eq!(names(&cluster), ["n1"]);
    cluster.start_agent(2, &[]);
    cluster.wait_until_up(2);
    cluster.submit("web", &pinned("web", "n2"));
    cluster.ready("web", "1");
}

#[test]
fn a_host_that_is_called_like_an_order_is_shown_all_the_same() {
    let Some(mut cluster) = Cluster::bare(1) else {
        return;
    };
    cluster.start_agent_through(1, &[], &["--host", "drain"], &[]);
    cluster.wait_until_up(1);
    let shown = cluster.world.ok(&["host", "show", "drain"]);
    assert!(shown.starts_with("drain: up"), "{shown}");
    cluster
        .world
        .ok(&["host", "drain", "drain", "--timeout", "60s"]);
    cluster.world.ok(&["host", "undrain", "drain"]);
}
