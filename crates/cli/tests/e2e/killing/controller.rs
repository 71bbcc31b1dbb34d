//! The controller killed under load: acknowledged is kept, nothing is doubled, and what runs never notices.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use serde_json::Value;

use super::host::Host;
use super::owners::{HOST, Jobs, Owner, Tally};
use super::{Asked, Dice, ask, doze, place, sized};
use crate::endpoints::wire::Place;
use crate::world::{Running, USUAL, World, eventually, hello};

/// What really runs, on a real host: it must not notice anything.
fn standing(world: &World) -> Vec<Value> {
    let mut all = Vec::new();
    for service in ["steady", "job"] {
        let shown = world.json(&["service", service]);
        let replicas = shown["replicas"].as_array().unwrap();
        let fields = [
            "pid",
            "run",
            "restarts",
            "incarnation",
            "host",
            "ports",
            "ready",
        ];
        all.extend(
            replicas
                .iter()
                .map(|it| fields.map(|field| it[field].clone()).into_iter().collect()),
        );
    }
    all
}

fn start(world: &World) -> Running {
    let data = world.path("controller").display().to_string();
    let run = world.path("run").display().to_string();
    let arguments = ["controller", "--single-host", "--cooling", "1s"];
    let places = ["--data", &data, "--run-dir", &run];
    world.start_alone("controller", &[&arguments[..], &places].concat())
}

/// The first answer of a new controller about what runs: everybody.
fn first_read(place: &Place) -> bool {
    match ask(place, "GET", "services/steady/endpoints", b"", "") {
        Asked::Answered(answer) => {
            assert_eq!(answer.head.status, 200, "{answer:?}");
            assert_eq!(answer.json()["ready"], 2, "{answer:?}");
            true
        }
        Asked::Unsent | Asked::InDoubt => false,
    }
}

/// Numbers with their holders, as the hosts tell them.
pub(super) fn held(place: &Place) -> BTreeSet<(u64, String)> {
    let mut held = BTreeSet::new();
    for host in json(place, "hosts")["hosts"].as_array().unwrap() {
        let name = host["host"].as_str().unwrap();
        let ports = json(place, &format!("hosts/{name}/ports"));
        for port in ports["ports"].as_array().unwrap() {
            if port["state"] == "held" || port["state"] == "releasing" {
                let holder = format!("{name} {}/{}", port["service"], port["replica"]);
                held.extend(numbers(&port["numbers"]).map(|it| (it, holder.clone())));
            }
        }
    }
    held
}

/// The same, as the replicas tell them. Nobody has what another has.
pub(super) fn owned(place: &Place) -> BTreeSet<(u64, String)> {
    let mut owned = BTreeSet::new();
    for service in json(place, "services?limit=1000")["services"]
        .as_array()
        .unwrap()
    {
        for replica in service["replicas"].as_array().unwrap() {
            let Some(host) = replica["host"]
                .as_str()
                .filter(|_| replica["job_state"] == "RUN")
            else {
                continue;
            };
            let holder = format!("{host} {}/{}", service["service"], replica["replica"]);
            for (_, port) in replica["ports"].as_object().unwrap() {
                for number in numbers(port) {
                    let is_new = owned.insert((number, holder.clone()));
                    assert!(is_new, "{number} twice at {holder}");
                }
            }
        }
    }
    owned
}

/// A number, or the first and the last of a block.
fn numbers(written: &Value) -> impl Iterator<Item = u64> + use<> {
    let one = written.as_u64();
    let end = |name: &str| one.or_else(|| written[name].as_u64());
    let (Some(first), Some(last)) = (end("first"), end("last")) else {
        panic!("{written} is no number and no block");
    };
    first..=last
}

pub(super) fn json(place: &Place, path: &str) -> Value {
    match ask(place, "GET", path, b"", "") {
        Asked::Answered(answer) if answer.head.status == 200 => answer.json(),
        Asked::Answered(answer) => panic!("{path}: {answer:?}"),
        Asked::Unsent | Asked::InDoubt => panic!("{path}: nobody answers"),
    }
}

/// Reads every few milliseconds. A success that does not hold everybody is a lie.
fn poll(place: &Place, ended: &AtomicBool, reads: &AtomicU32) {
    while !ended.load(Ordering::Relaxed) {
        let read = ask(place, "GET", "resolve/steady", b"", "");
        if let Asked::Answered(answer) = read {
            assert_eq!(answer.head.status, 200, "{answer:?}");
            assert_eq!(answer.text().lines().count(), 2, "{answer:?}");
            reads.fetch_add(1, Ordering::Relaxed);
        }
        doze(Duration::from_millis(7));
    }
}

/// Acts as long as somebody listens and the gate is open.
fn keep_busy(gate: &RwLock<()>, ended: &AtomicBool, mut act: impl FnMut() -> bool) {
    while !ended.load(Ordering::Relaxed) {
        let is_heard = {
            let _open = gate.read().unwrap();
            act()
        };
        doze(Duration::from_millis(if is_heard { 1 } else { 10 }));
    }
}

/// Ends the threads also when a check fails.
pub(super) struct EndsThem<'a>(pub(super) &'a AtomicBool);

impl Drop for EndsThem<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A controller, a real host with what really runs, and the scripted host of everybody else.
struct Site {
    world: World,
    place: Place,
    controller: Option<Running>,
    _agent: Running,
    _job: Running,
    standing: Vec<Value>,
}

impl Site {
    fn new() -> Option<Self> {
        let world = World::new()?;
        let place = place(&world);
        let controller = start(&world);
        assert!(eventually(|| world.run(&["hosts"]).code == Some(0)));
        let (data, socket) = (world.path("host"), world.path("agent.sock"));
        let (data, socket) = (data.display().to_string(), socket.display().to_string());
        let agent = ["agent", "--host", "n1", "--single-host", "--data", &data];
        let places = ["--controller", &world.socket(), "--socket", &socket];
        let agent = world.start("agent", &[&agent[..], &places].concat());
        let here = format!("{USUAL}[placement]\nhosts = [\"n1\"]\n");
        let steady = world.profile("steady.toml", &hello("steady", 2, "", &here));
        world.ok(&["submit", &steady]);
        let agent_at = format!("PORTREEVE_AGENT={socket}");
        let run = ["run", "--name", "job", "--port", "http", "--set"];
        let what = ["readiness={ command = \"true\" }", "--", "sleep", "1000000"];
        let job = [&run[..], &what].concat();
        let job = world.start_through(world.network(), "job", &["env", &agent_at], &job);
        world.ok(&["wait", "steady", "--timeout", "60s"]);
        let is_ready = || world.run(&["wait", "job", "--timeout", "5s"]).code == Some(0);
        assert!(eventually(is_ready), "{}", job.output());
        // News is written with the next truth: what follows kills the controller at once.
        let quiet = "kind = \"service\"\nname = \"quiet\"\ncommand = \"exec sleep 1000000\"\n";
        world.ok(&["submit", &world.profile("quiet.toml", quiet)]);
        Some(Self {
            standing: standing(&world),
            place,
            controller: Some(controller),
            _agent: agent,
            _job: job,
            world,
        })
    }

    fn kill(&mut self) {
        assert_eq!(self.controller.take().unwrap().end("KILL"), None);
    }

    /// Starts it again; what it says first must be true already.
    fn start(&mut self) {
        let mut controller = start(&self.world);
        let answers = eventually(|| {
            controller.runs();
            first_read(&self.place)
        });
        assert!(answers, "{}", controller.output());
        self.controller = Some(controller);
    }

    fn numbers_agree(&self) {
        let (held, owned) = (held(&self.place), owned(&self.place));
        let leaked: Vec<_> = held.difference(&owned).collect();
        let free: Vec<_> = owned.difference(&held).collect();
        assert!(
            leaked.is_empty() && free.is_empty(),
            "leaked {leaked:?}, free {free:?}"
        );
    }
}

#[test]
fn a_controller_killed_at_random_instants_keeps_what_it_acknowledged_and_doubles_nothing() {
    // P14, P25; promises 1, 2 and 6
    let Some(mut site) = Site::new() else { return };
    let mut dice = Dice::of_this_run();
    let place = site.place.clone();
    let (gate, ended) = (RwLock::new(()), AtomicBool::new(false));
    let reads = AtomicU32::new(0);
    let owner = |number| Mutex::new(Owner::new(place.clone(), number, dice.split()));
    let owners: Vec<_> = (0..4).map(owner).collect();
    let jobs = |number| Mutex::new(Jobs::new(place.clone(), number));
    let jobs: Vec<_> = (0..2).map(jobs).collect();
    let host = Mutex::new(Host::new(place.clone(), HOST, dice.split()));
    let rounds = sized(40, 200);
    std::thread::scope(|scope| {
        let _ends = EndsThem(&ended);
        for owner in &owners {
            scope.spawn(|| keep_busy(&gate, &ended, || owner.lock().unwrap().act()));
        }
        for jobs in &jobs {
            scope.spawn(|| keep_busy(&gate, &ended, || jobs.lock().unwrap().act()));
        }
        scope.spawn(|| keep_busy(&gate, &ended, || host.lock().unwrap().obey().is_ok()));
        scope.spawn(|| poll(&place, &ended, &reads));
        for _ in 0..rounds {
            doze(Duration::from_millis(dice.below(300).into()));
            site.kill();
            site.start();
            let _closed = gate.write().unwrap();
            owners.iter().for_each(|it| it.lock().unwrap().look());
            jobs.iter().for_each(|it| it.lock().unwrap().look());
            site.numbers_agree();
        }
    });
    // Peace: the host does the last of what is wanted.
    let mut host = host.into_inner().unwrap();
    assert!(eventually(|| host.obey().is_ok() && host.is_quiet()));
    let mut tally = Tally::default();
    for owner in owners {
        let mut owner = owner.into_inner().unwrap();
        owner.look();
        tally.add(&owner.tally);
    }
    for jobs in jobs {
        let mut jobs = jobs.into_inner().unwrap();
        jobs.look();
        tally.add(&jobs.tally);
    }
    site.numbers_agree();
    assert_eq!(standing(&site.world), site.standing);
    eprintln!(
        "{rounds} kills of the controller; {} reads, {} statuses; {tally:#?}",
        reads.into_inner(),
        host.told
    );
    assert!(
        ["submit", "stop", "grant"]
            .iter()
            .all(|it| tally.acknowledged.contains_key(it))
    );
}
