//! What clients are told of a service, and when: real daemons and a real wire.

mod away;
mod follower;
mod listing;
mod quiet;
mod restored;
mod reuse;
#[expect(dead_code, reason = "the bench of the whole server shares it")]
pub(crate) mod scripted;
mod shell;
mod streams;
#[expect(dead_code, reason = "the bench of the whole server shares it")]
pub(crate) mod wire;

use serde_json::Value;

use crate::daemons::controller;
use crate::world::{Running, World, eventually};
use scripted::ScriptedHost;
use wire::{Answer, Place, Wire};

/// Full figures instead of quick ones.
fn is_long() -> bool {
    std::env::var_os("PORTREEVE_LONG").is_some()
}

/// A service that listens nowhere and is ready while there is no file `sick-NAME-REPLICA`: quick to flip, by a real
/// worker. Ten failures make it so: on a busy machine one check alone may be late.
fn flappy(world: &World, name: &str, replicas: u32) -> String {
    let folder = world.path("").display().to_string();
    format!(
        "kind = \"service\"\nname = \"{name}\"\nreplicas = {replicas}\ncommand = \"exec sleep 1000000\"\n\
         [ports]\nhttp = \"any\"\n[readiness]\nfailure_threshold = 10\ninterval = \"100ms\"\n\
         command = [\"sh\", \"-c\", \"! test -e {folder}/sick-{name}-$$PORTREEVE_REPLICA\"]\n"
    )
}

/// Makes a replica of a [`flappy`] service not ready, or ready again.
fn make_sick(world: &World, name: &str, replica: usize, sick: bool) {
    let file = world.path(&format!("sick-{name}-{replica}"));
    if sick {
        std::fs::write(file, "").unwrap();
    } else {
        std::fs::remove_file(file).unwrap();
    }
}

/// Where the controller of a world answers.
fn place(world: &World) -> Place {
    Place::Unix(world.path("run/controller.sock"))
}

/// One answer of the controller on a connection of its own.
fn get(world: &World, path: &str) -> Answer {
    let patience = std::time::Duration::from_secs(60);
    let mut wire = Wire::open(&place(world), patience).unwrap();
    wire.get(&format!("/api/v1/{path}"), &[]).unwrap()
}

/// The listed `host:port` lines.
fn resolved(world: &World, service: &str) -> Vec<String> {
    let answer = get(world, &format!("resolve/{service}"));
    assert_eq!(answer.head.status, 200, "{answer:?}");
    answer.text().lines().map(str::to_owned).collect()
}

/// What moves when clients are told something.
fn revision(world: &World, service: &str, state: &str) -> u64 {
    let answer = get(
        world,
        &format!("services/{service}/endpoints?state={state}"),
    );
    answer.json()["revision"].as_u64().unwrap()
}

/// A controller and one scripted host with a service of so many replicas, none of them ready.
struct Scripted {
    host: ScriptedHost,
    controller: Option<Running>,
    world: World,
}

impl Scripted {
    fn new(service: &str, replicas: u32) -> Option<Self> {
        let world = World::new()?;
        let controller = controller(&world);
        let host = ScriptedHost::join(&place(&world), "n1").unwrap();
        let mut scripted = Self {
            host,
            controller: Some(controller),
            world,
        };
        scripted.submit(service, replicas);
        Some(scripted)
    }

    fn submit(&mut self, service: &str, replicas: u32) {
        let text = format!(
            "kind = \"service\"\nname = \"{service}\"\nreplicas = {replicas}\ncommand = [\"sleep\", \"9\"]\n\
             [ports]\nhttp = \"any\"\n"
        );
        let file = self.world.profile(&format!("{service}.toml"), &text);
        self.world.ok(&["submit", &file]);
        let count = self.host.len() + usize::try_from(replicas).unwrap();
        self.host.start(count).unwrap();
    }

    fn tell(&mut self, nth: usize, ready: bool) {
        self.host.tell(nth, ready).unwrap();
    }

    fn flip(&mut self, nth: usize) {
        self.tell(nth, !self.host.is_ready(nth));
    }

    /// The controller is killed, and another one takes up its data; the host tells it everything.
    fn restart_controller(&mut self) {
        drop(self.controller.take());
        self.controller = Some(controller(&self.world));
        self.host.report().unwrap();
    }
}

/// The numbers of a listed set, in the order in which they stand.
fn ports(endpoints: &Value) -> Vec<u64> {
    let all = endpoints["endpoints"].as_array().unwrap().iter();
    all.map(|one| one["ports"][0]["port"].as_u64().unwrap())
        .collect()
}

/// Waits until so many are listed.
fn wait_listed(world: &World, service: &str, count: usize) {
    let met = eventually(|| resolved(world, service).len() == count);
    assert!(met, "{count} never listed: {:?}", resolved(world, service));
}
