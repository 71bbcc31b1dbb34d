//! One scenario, played on virtual time and by real processes on real hosts: what workers report is the same, in the
//! same order.
//!
//! The virtual side is `portreeve sim`. On the real side stand a controller and two hosts with networks of their own; the
//! jobs are a program that follows the same `[[run]]` tables ([player.py](player.py)), and this test does what the
//! `[[at]]` tables say. Times are short enough to be waited for, and not compared: only reports and their order are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use portreeve::port::{Port, Protocol};
use portreeve::supervision::record::Entry;
use portreeve::supervision::{Final, Report};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::world::{PORTREEVE, Running, World, eventually, kill, names_in};

const SCENARIO: &str = include_str!("scenario.toml");
const PLAYER: &str = include_str!("player.py");

/// The second in which a scenario submits its services.
const SUBMITTED: u64 = 5;

/// What happens, at which second after its service was submitted, and how long it lasts.
const ACTS: [(u64, &str, Act); 5] = [
    (6, "drained", Act::Stop),
    (6, "deaf", Act::Stop),
    (4, "orphan", Act::KillWorker),
    (4, "robbed", Act::StrangerTakes { lasts: 9 }),
    (4, "cut", Act::CutOff { lasts: 8 }),
];

#[derive(Clone, Copy)]
enum Act {
    Stop,
    KillWorker,
    StrangerTakes {
        lasts: u64,
    },
    /// The host of the service, and everything else on it.
    CutOff {
        lasts: u64,
    },
}

impl Act {
    /// The act as a table of the scenario.
    fn table(self, at: u64, service: &str) -> String {
        let whom = format!("service = \"{service}\"\nreplica = 0");
        let what = match self {
            Self::Stop => format!("act = \"stop\"\nservice = \"{service}\""),
            Self::KillWorker => format!("act = \"kill-worker\"\n{whom}"),
            Self::StrangerTakes { lasts } => {
                format!("act = \"stranger-takes\"\n{whom}\nlasts = \"{lasts}s\"")
            }
            Self::CutOff { lasts } => format!("act = \"cut-off\"\n{whom}\nlasts = \"{lasts}s\""),
        };
        let at = SUBMITTED + at;
        format!("\n[[at]]\ntime = \"{at}s\"\n{what}\n")
    }
}

/// What the workers of each service reported, by incarnation.
type Reports = BTreeMap<String, Vec<String>>;

#[test]
fn the_same_scenario_gives_the_same_reports_on_virtual_time_and_by_real_processes() {
    let Some(cluster) = Cluster::of(2) else {
        return;
    };
    let acts: String = ACTS
        .iter()
        .map(|(at, service, act)| act.table(*at, service))
        .collect();
    let scenario = cluster
        .world
        .profile("alike.toml", &format!("{SCENARIO}{acts}"));
    let foretold = foretold(&cluster.world, &scenario);
    assert!(foretold.len() >= 10, "{foretold:#?}");

    let mut real = Real::new(cluster, &scenario);
    real.play();
    let seen = || real.reports();
    let all = eventually(|| {
        let seen = seen();
        let said = |(name, told): (&String, &Vec<String>)| {
            seen.get(name).is_some_and(|own| own.len() >= told.len())
        };
        foretold.iter().all(said)
    });
    // What nobody foretold would come within a wait of a backoff.
    let begun = Instant::now();
    eventually(|| begun.elapsed() >= Duration::from_secs(2));
    let seen = seen();
    assert!(
        all && seen == foretold,
        "foretold {foretold:#?}\nseen {seen:#?}\n{}{}",
        real.cluster.records(1),
        real.cluster.records(2)
    );
}

/// What `portreeve sim` says of the scenario.
fn foretold(world: &World, scenario: &str) -> Reports {
    let lines = world.ok(&["sim", scenario, "--timeline", "-o", "json"]);
    let mut reports = Reports::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Some(report) = line["detail"].get("report") else {
            continue;
        };
        let (service, _) = line["service"].as_str().unwrap().split_once('.').unwrap();
        let incarnation = &line["incarnation"];
        let report = serde_json::from_value(report.clone()).unwrap();
        let told = reports.entry(format!("{service} {incarnation}"));
        told.or_default().push(words(report));
    }
    reports
}

/// The report without what differs from one play to the next: which number, and who took it.
fn words(report: Report) -> String {
    let report = match report {
        Report::Final(Final::PortConflict { .. }) => Report::Final(Final::PortConflict {
            port: Port::MAX,
            protocol: Protocol::Tcp,
            pid: None,
            comm: None,
        }),
        report => report,
    };
    report.to_string()
}

/// The real hosts, and what is to be done to them.
struct Real {
    cluster: Cluster,
    /// When each service was submitted.
    submitted: BTreeMap<String, Instant>,
    strangers: Vec<Running>,
}

impl Real {
    /// Submits every service of the scenario, with the player in place of its command.
    fn new(cluster: Cluster, scenario: &str) -> Self {
        let player = cluster.world.profile("player.py", PLAYER);
        let play = format!("command = \"exec python3 {player} {scenario} ");
        let mut submitted = BTreeMap::new();
        let (services, _) = SCENARIO.split_once("[[run]]").unwrap();
        for service in services.split("[[service]]").skip(1) {
            let text = service
                .replace("[service.", "[")
                .replace("command = \"play ", &play);
            let (_, name) = text.split_once("name = \"").unwrap();
            let (name, _) = name.split_once('"').unwrap();
            submitted.insert(name.to_owned(), Instant::now());
            cluster.submit(name, &text);
        }
        Self {
            cluster,
            submitted,
            strangers: Vec::new(),
        }
    }

    /// Lets everything happen in its time.
    fn play(&mut self) {
        let mut due: Vec<(Instant, &str, Act, bool)> = Vec::new();
        for (at, service, act) in ACTS {
            let at = self.submitted[service] + Duration::from_secs(at);
            due.push((at, service, act, true));
            if let Act::StrangerTakes { lasts } | Act::CutOff { lasts } = act {
                due.push((at + Duration::from_secs(lasts), service, act, false));
            }
        }
        due.sort_by_key(|(at, ..)| *at);
        for (at, service, act, begins) in due {
            eventually(|| Instant::now() >= at);
            self.act(service, act, begins);
        }
    }

    fn act(&mut self, service: &str, act: Act, begins: bool) {
        match act {
            Act::Stop => _ = self.cluster.world.ok(&["stop", service]),
            Act::KillWorker => self.kill_worker(service),
            Act::StrangerTakes { .. } if begins => {
                let port = self.replica(service)["ports"]["http"].to_string();
                let code = "import socket, sys, time\ns = socket.socket()\n\
                    s.bind(('0.0.0.0', int(sys.argv[1])))\ns.listen()\ntime.sleep(1000)";
                let network = self.cluster.network(self.host(service));
                let mut command = self.cluster.world.command_in(network, "python3");
                command.args(["-c", code, &port]);
                let stranger = self.cluster.world.start_other(command, "stranger");
                let listens = eventually(|| network.listens(port.parse().unwrap()));
                assert!(listens, "{}", stranger.output());
                self.strangers.push(stranger);
            }
            Act::StrangerTakes { .. } => self.strangers.clear(),
            Act::CutOff { .. } => {
                let number = self.host(service);
                if begins {
                    self.cluster.link_down(number);
                } else {
                    self.cluster.link_up(number);
                }
            }
        }
    }

    fn kill_worker(&self, service: &str) {
        let folder = format!("{service}.");
        let network = self.cluster.network(self.host(service));
        let processes = network.processes();
        let worker = processes.iter().find(|(_, line)| {
            line.starts_with(PORTREEVE) && line.contains(" worker ") && line.contains(&folder)
        });
        let (pid, _) = worker.unwrap_or_else(|| panic!("{processes:?}"));
        kill(*pid, "KILL");
    }

    fn replica(&self, service: &str) -> Value {
        self.cluster.world.replica(service, 0)
    }

    /// The number of the host on which the replica is.
    fn host(&self, service: &str) -> usize {
        let replica = self.replica(service);
        let name = replica["host"]
            .as_str()
            .unwrap_or_else(|| panic!("{replica:#}"));
        name[1..].parse().unwrap()
    }

    /// What the workers wrote down.
    fn reports(&self) -> Reports {
        let mut reports = Reports::new();
        for number in 1..=2 {
            let folder = self
                .cluster
                .world
                .path(&format!("n{number}/agent/replicas"));
            for name in names_in(&folder) {
                let Some((service, incarnation)) = name.split_once(".root~0~") else {
                    continue;
                };
                let text = std::fs::read_to_string(folder.join(&name).join("supervision.jsonl"));
                let text = text.unwrap_or_default();
                let entries = text
                    .lines()
                    .filter_map(|line| serde_json::from_str::<Entry>(line).ok());
                let told: Vec<_> = entries.flat_map(|entry| entry.reports).map(words).collect();
                if !told.is_empty() {
                    reports.insert(format!("{service} {incarnation}"), told);
                }
            }
        }
        reports
    }
}
