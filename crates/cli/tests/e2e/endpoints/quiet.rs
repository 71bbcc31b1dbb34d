//! What no client hears of, because nothing that they are told of has changed.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::wire::{Answer, Wire};
use super::{flappy, make_sick, place, resolved, revision, wait_listed};
use crate::daemons::{agent, controller};
use crate::steady::Site;
use crate::world::{World, eventually, kill};

/// A client that sleeps until there is news of a service.
struct Sleeper(Receiver<Answer>);

impl Sleeper {
    fn new(world: &World, service: &str, state: &str) -> Self {
        let since = revision(world, service, state);
        let path =
            format!("/api/v1/services/{service}/endpoints?state={state}&revision={since}&wait=5m");
        let mut wire = Wire::open(&place(world), Duration::from_secs(400)).unwrap();
        let (told, answer) = channel();
        // Ends with the controller at the latest.
        std::thread::spawn(move || wire.get(&path, &[]).map(|answer| told.send(answer)));
        Self(answer)
    }

    fn sleeps(&self) -> bool {
        self.0.try_recv().is_err()
    }

    fn wakes(&self) -> Answer {
        self.0.recv_timeout(Duration::from_secs(60)).unwrap()
    }
}

#[test]
fn a_thousand_checks_that_print_something_new_send_no_report_and_wake_nobody() {
    // P23, endpoints 31: ten replicas, a hundred checks of each and more.
    let Some(site) = Site::new() else { return };
    let text = flappy(&site.world, "noisy", 10).replace("! test", "date +%N; ! test");
    site.world
        .ok(&["submit", &site.world.profile("noisy.toml", &text)]);
    site.world.ok(&["wait", "noisy", "--timeout", "60s"]);
    site.settled();
    let told = || {
        let revisions = ["ready", "all"].map(|state| revision(&site.world, "noisy", state));
        (site.told(), revisions)
    };
    let before = told();
    let sleepers = ["ready", "all"].map(|state| Sleeper::new(&site.world, "noisy", state));
    let target = site.probes() + 1_000;
    assert!(eventually(|| site.probes() >= target));
    assert_eq!(told(), before);
    for sleeper in &sleepers {
        assert!(sleeper.sleeps());
    }
    // And they do hear what is news.
    make_sick(&site.world, "noisy", 3, true);
    for sleeper in sleepers {
        assert_eq!(sleeper.wakes().json()["ready"], 9);
    }
}

#[test]
fn an_agent_that_is_silent_or_begins_anew_changes_nothing_that_clients_are_told() {
    // endpoints 33, and of 32 that silence delists nothing; its `unconfirmed` comes with the loss of hosts.
    let Some(world) = World::new() else { return };
    let _controller = controller(&world);
    let mut running = agent(&world);
    world.ok(&[
        "submit",
        &world.profile("flap.toml", &flappy(&world, "flap", 3)),
    ]);
    world.ok(&["wait", "flap", "--timeout", "60s"]);
    let (before, lines) = (revision(&world, "flap", "all"), resolved(&world, "flap"));
    let standing = || {
        (0..3)
            .map(|nth| world.replica("flap", nth)["pid"].clone())
            .collect::<Vec<_>>()
    };
    let pids = standing();
    let sleeper = Sleeper::new(&world, "flap", "all");
    for _ in 0..3 {
        kill(running.pid(), "KILL");
        running = agent(&world);
        let up = || world.json(&["hosts"])["hosts"][0]["state"] == "up";
        assert!(eventually(up));
        assert_eq!(resolved(&world, "flap"), lines);
    }
    kill(running.pid(), "STOP");
    let silent = Instant::now();
    let mut reads = 0;
    eventually(|| {
        assert_eq!(resolved(&world, "flap"), lines);
        reads += 1;
        silent.elapsed() > Duration::from_secs(3)
    });
    kill(running.pid(), "CONT");
    assert!(reads > 10);
    assert_eq!(revision(&world, "flap", "all"), before);
    assert_eq!(standing(), pids);
    assert!(sleeper.sleeps());
    make_sick(&world, "flap", 0, true);
    assert_eq!(sleeper.wakes().json()["ready"], 2);
    wait_listed(&world, "flap", 2);
}
