//! The steady state: probes go on, and nothing is told or written; a controller that was away changes nothing.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{Running, World, eventually, hello, kill, names_in, pause};

/// A controller and an agent as processes of their own, with the folders `c` and `a`.
pub(crate) struct Site {
    pub(crate) world: World,
    controller: Option<Running>,
    _agent: Running,
}

impl Site {
    pub(crate) fn new() -> Option<Self> {
        let world = World::new()?;
        let controller = Self::controller(&world);
        let (data, socket) = (world.path("a").display().to_string(), world.socket());
        let arguments = ["agent", "--host", "n1", "--single-host", "--data", &data];
        let agent = world.start(
            "agent",
            &[&arguments[..], &["--controller", &socket]].concat(),
        );
        Some(Self {
            world,
            controller: Some(controller),
            _agent: agent,
        })
    }

    /// Its port is in no pool, so that no host has news when it comes and goes.
    fn controller(world: &World) -> Running {
        let data = world.path("c").display().to_string();
        let run = world.path("run").display().to_string();
        let arguments = ["controller", "--single-host", "--data", &data];
        world.start(
            "controller",
            &[
                &arguments[..],
                &["--run-dir", &run, "--listen", "127.0.0.1:900"],
            ]
            .concat(),
        )
    }

    /// Replicas with a readiness and a liveness probe each 100 ms, all ready.
    fn probed(&self, replicas: u32) {
        let more = "[ports]\nhttp = \"any\"\n[readiness]\nhttp = { path = \"/\" }\ninterval = \"100ms\"\n\
                    [liveness]\ntcp = {}\ninterval = \"100ms\"\n";
        let text = hello("web", replicas, "", more);
        let profile = self.world.profile("web.toml", &text);
        self.world.ok(&["submit", &profile]);
        self.world.ok(&[
            "wait",
            "web",
            "--timeout",
            "60s",
            "--ready",
            &replicas.to_string(),
        ]);
    }

    fn counters(&self) -> Value {
        let socket = self.world.path("run/controller.sock").display().to_string();
        let url = "http://localhost/api/v1/counters";
        let text = self.world.curl(&["--unix-socket", &socket, url]);
        serde_json::from_str(&text).unwrap()
    }

    /// What all workers did since their start, summed.
    fn workers(&self) -> Workers {
        let replicas = self.world.path("a/agent/replicas");
        let mut all = Workers::default();
        for name in names_in(&replicas) {
            let mut stream = UnixStream::connect(replicas.join(name).join("worker.sock")).unwrap();
            stream.write_all(b"\"tell\"\n").unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            let answer: Value = serde_json::from_str(&line).unwrap();
            let count = |what: &str| answer["counters"][what].as_u64().unwrap();
            all.probes += count("probes");
            all.messages += count("messages");
            all.writes += count("writes");
        }
        all
    }

    /// How many probes all workers made.
    pub(crate) fn probes(&self) -> u64 {
        self.workers().probes
    }

    /// What the workers told and wrote, and what the controller heard and wrote.
    pub(crate) fn told(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let (workers, controller) = (self.workers(), self.counters());
        let heard = ["statuses", "reports", "commits"].map(|what| count(&controller, what));
        (workers.messages, workers.writes, heard)
    }

    /// Waits until nothing is told or written any more.
    pub(crate) fn settled(&self) {
        let (mut before, mut since) = (self.told(), Instant::now());
        let quiet = eventually(|| {
            let now = self.told();
            if now != before {
                (before, since) = (now, Instant::now());
            }
            since.elapsed() > SETTLED
        });
        assert!(quiet, "{before:?}");
    }

    /// What must not change of the replicas: processes, runs, restarts, ports.
    fn standing(&self) -> Vec<Value> {
        let service = self.world.json(&["service", "web"]);
        let replicas = service["replicas"].as_array().unwrap().iter();
        let kept = [
            "pid",
            "run",
            "restarts",
            "incarnation",
            "ports",
            "ready",
            "since",
        ];
        replicas
            .map(|replica| kept.iter().map(|name| replica[*name].clone()).collect())
            .collect()
    }

    fn endpoints(&self) -> Value {
        let mut endpoints = self.world.json(&["endpoints", "web"]);
        // A moment, and no part of the answer's truth.
        endpoints.as_object_mut().unwrap().remove("age_ms");
        endpoints
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Workers {
    probes: u64,
    messages: u64,
    writes: u64,
}

fn count(counters: &Value, what: &str) -> u64 {
    counters[what].as_u64().unwrap()
}

#[test]
fn a_thousand_probes_without_a_change_cause_no_message_and_no_write() {
    // Point 6
    let Some(site) = Site::new() else { return };
    site.probed(10);
    site.settled();
    let before = site.told();
    let target = site.probes() + 1_000;
    assert!(eventually(|| site.probes() >= target));
    assert_eq!(site.told(), before);
}

/// Until what the last change began is through: the agent looks at its listeners each 2 s and draws breath for half a
/// second before it reports them, and the controller gathers its news for a second before it writes them.
const SETTLED: Duration = Duration::from_secs(4);

#[test]
fn a_controller_that_was_away_finds_everything_as_it_was() {
    // P22, point 6: one full state after a reconnect, and no flap
    let Some(mut site) = Site::new() else { return };
    site.probed(4);
    let quiet = || site.workers().probes > 100;
    assert!(eventually(quiet));
    let (standing, endpoints) = (site.standing(), site.endpoints());
    let workers = site.workers();
    let pid = site.controller.as_ref().unwrap().pid();
    // Cut off: nobody answers, and nobody is refused.
    kill(pid, "STOP");
    let cut_off = Instant::now();
    while cut_off.elapsed() < Duration::from_secs(6) {
        pause();
    }
    kill(pid, "CONT");
    assert_eq!(site.standing(), standing);
    assert_eq!(site.endpoints(), endpoints);
    let heard = site.counters();
    assert_eq!(site.workers().messages, workers.messages);
    // And gone: the next one is told everything once, by the agent alone.
    drop(site.controller.take());
    site.controller = Some(Site::controller(&site.world));
    let reported = || {
        let now = site.counters();
        now["instance"] != heard["instance"] && count(&now, "reports") > 0
    };
    assert!(eventually(reported));
    let same = || site.standing() == standing;
    assert!(eventually(same), "{:#?}\n{standing:#?}", site.standing());
    let leases = count(&site.counters(), "leases");
    assert!(eventually(|| count(&site.counters(), "leases") > leases));
    let now = site.counters();
    assert_eq!(
        (count(&now, "reports"), count(&now, "statuses")),
        (1, 0),
        "{now}"
    );
    assert_eq!(site.workers().messages, workers.messages);
    assert_eq!(site.standing(), standing);
    let events = site.world.ok(&["events", "web"]);
    assert!(!events.contains("not ready"), "{events}");
}
