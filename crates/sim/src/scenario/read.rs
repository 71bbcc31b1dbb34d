//! From the text of a scenario to what it means.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portreeve::time::{Monotonic, WallClock};
use toml::de::DeTable;

use super::acts::{self, Usual};
use super::names::Names;
use super::replica_acts::{befalling, in_turn, outage, user};
use super::run::run;
use super::services::{self, Services};
use super::surroundings::{self, Hosts};
use super::table::{Notes, Problem, Table};
use super::workload::workload;
use super::{Alone, MAX_SCENARIO, RunScript, Scenario, ScenarioErrors, Scripts, Stranger};
use crate::claim::{Claim, Named};
use crate::cluster::act::{Act, PersonAct, Planned, ServiceNo};
use crate::cluster::spec::{DiskSpec, NetworkSpec, ServiceSpec, Spec};
use crate::expectation::{Expectation, Expectations};

/// The most replicas of one scenario, and the most tables or lines of one kind.
pub(super) const MOST_REPLICAS: u64 = 10_000;
const MOST_TABLES: usize = 10_000;
/// The most `[[run.probe]]` of one run and lines of `never`: each is held against everything that is seen.
pub(super) const MOST_HELD: usize = 1_000;
/// The most acts of one scenario.
const MOST_ACTS: usize = 1_000_000;
/// The most tables of all replicas together.
const MOST_TOGETHER: usize = 1_000_000;
const EVER: Duration = Duration::MAX;
/// What clocks show at the start: 2026-01-01 00:00 UTC.
pub(crate) const BEGIN: WallClock = WallClock::from_unix_millis(1_767_225_600_000);

pub(super) fn read(
    text: &str,
    mut load: impl FnMut(&str) -> Result<Vec<u8>, String>,
) -> Result<Scenario, ScenarioErrors> {
    if text.len() > MAX_SCENARIO {
        return Err(one(Problem {
            place: None,
            field: String::new(),
            problem: "the scenario is too long".to_owned(),
            allowed: format!("write at most {MAX_SCENARIO} bytes"),
        }));
    }
    let notes = Notes::new(text);
    let document = DeTable::parse(text).map_err(|error| {
        one(Problem {
            place: error.span().map(|span| notes.place(span.start)),
            field: String::new(),
            problem: format!("broken TOML: {}", error.message()),
            allowed: String::new(),
        })
    })?;
    let entries = document.get_ref();
    let root = Table::new(&notes, String::new(), entries, 0);
    let mut services = services::read(text, entries, &root, &notes, &mut load);
    let refused = services.refused.take();
    let scenario = scenario(&root, services);
    root.end();
    let mut problems = notes.into_problems();
    problems.sort_by_key(|problem| problem.place);
    match scenario {
        Some(scenario) if problems.is_empty() && refused.is_none() => Ok(scenario),
        _ => Err(ScenarioErrors {
            problems,
            profile: refused,
        }),
    }
}

fn one(problem: Problem) -> ScenarioErrors {
    ScenarioErrors {
        problems: vec![problem],
        profile: None,
    }
}

/// Everything but the services. Each part is read even where a profile is refused, so that all is told at once.
fn scenario(root: &Table<'_, '_>, services: Services) -> Option<Scenario> {
    let seed = root.number("seed", 0..=u64::MAX).unwrap_or(0);
    let until = root.span("until");
    if !root.has("until") {
        root.wrong(
            "until",
            "missing",
            "write how long to play, such as until = \"1m\"",
        );
    }
    let hosts = surroundings::hosts(root, &services);
    let names = names(root, &services, &hosts);
    let network = root.table("network").map(|table| {
        let read = surroundings::network(&table);
        table.end();
        read
    });
    let network = network.unwrap_or_default();
    let disk = root.table("disk").map(|table| {
        let read = surroundings::disk(&table);
        table.end();
        read
    });
    let disk = disk.unwrap_or_default();
    let config = surroundings::controller(root);
    let runs = runs(root, &names);
    let alone = alone(root, &names, &services);
    let mut acts = acts(root, &names, &services, &network, &disk);
    if services.all.len() == 1 {
        acts.extend(befalling(&alone, services.all[0].replicas));
        acts.sort_by_key(|planned| planned.at);
    }
    let mut workloads = Vec::new();
    for table in root.tables("workload", MOST_TABLES) {
        workloads.extend(workload(&table, &names, services.all.len(), until));
        table.end();
    }
    let expectations = Expectations {
        seen: lines(root, "expect", MOST_TABLES, &names, true),
        never: lines(root, "never", MOST_HELD, &names, false),
        complete: root.flag("complete").unwrap_or(false),
        holds: claims(root, &names, &services),
    };
    if services.incomplete {
        return None;
    }
    let specs = services.all.iter().enumerate();
    let specs = specs.map(|(place, service)| ServiceSpec {
        profile: Arc::clone(&service.profile),
        owner: service.owner.clone(),
        scripts: runs
            .get(&Some(place))
            .or_else(|| runs.get(&None))
            .cloned()
            .unwrap_or_default(),
    });
    let spec = Spec {
        seed,
        until: moment(until?),
        wall: BEGIN,
        config,
        hosts: hosts.all,
        services: specs.collect(),
        network,
        disk,
        acts,
        workloads,
    };
    Some(Scenario {
        spec: Arc::new(spec),
        expectations,
    })
}

fn names(root: &Table<'_, '_>, services: &Services, hosts: &Hosts) -> Names {
    let bound = services.all.iter().map(|one| u64::from(one.replicas)).max();
    let grows = root.has("at") || root.has("workload");
    let bound = bound.filter(|_| !grows).unwrap_or(MOST_REPLICAS);
    Names::new(services, hosts.by_name.clone(), hosts.incomplete, bound)
}

/// What runs do, by service and replica; under `None` for all that have nothing of their own.
type Runs = BTreeMap<Option<ServiceNo>, BTreeMap<Option<u32>, Arc<Scripts>>>;

fn runs(root: &Table<'_, '_>, names: &Names) -> Runs {
    let mut written = BTreeMap::<(Option<ServiceNo>, Option<u32>), Vec<RunScript>>::new();
    for table in root.tables("run", MOST_TABLES) {
        let replica = names.replica(&table);
        let of = names.services(&table, "service");
        let script = run(&table);
        match of {
            Some(services) => {
                for service in services {
                    let key = (Some(service), replica);
                    written.entry(key).or_default().push(script.clone());
                }
            }
            None => written.entry((None, replica)).or_default().push(script),
        }
        table.end();
    }
    let mut runs = Runs::new();
    for ((service, replica), scripts) in written {
        let scripts = Arc::new(Scripts::new(scripts));
        runs.entry(service).or_default().insert(replica, scripts);
    }
    runs
}

/// What happens to replicas wherever they are.
fn alone(root: &Table<'_, '_>, names: &Names, services: &Services) -> Alone {
    let mut users = Vec::new();
    for table in root.tables("user", MOST_TABLES) {
        users.extend(user(&table, names));
        table.end();
    }
    let mut outages = Vec::new();
    for table in root.tables("worker", MOST_TABLES) {
        outages.extend(outage(&table, names).map(|one| (table.at(), one)));
        table.end();
    }
    let outages = in_turn(root, outages);
    let mut strangers = Vec::new();
    for table in root.tables("stranger", MOST_TABLES) {
        let (from, to) = between(&table);
        strangers.push(Stranger {
            replica: names.replica(&table),
            from: moment(from),
            to: moment(to),
        });
        table.end();
    }
    let of_each = users.iter().filter(|one| one.replica.is_none()).count()
        + outages.iter().filter(|one| one.replica.is_none()).count()
        + strangers.iter().filter(|one| one.replica.is_none()).count();
    let count: usize = services.all.iter().map(|one| one.replicas as usize).sum();
    if of_each.saturating_mul(count) > MOST_TOGETHER {
        let problem = format!("{count} replicas with {of_each} tables for each of them");
        let allowed = format!(
            "write fewer [[user]], [[worker]] and [[stranger]], at most {MOST_TOGETHER} in all"
        );
        root.wrong("replicas", problem, &allowed);
    }
    Alone {
        users,
        outages,
        strangers,
    }
}

/// Everything that is planned, in order of time: what is submitted first, then what the scenario tells, in its order.
fn acts(
    root: &Table<'_, '_>,
    names: &Names,
    services: &Services,
    network: &NetworkSpec,
    disk: &DiskSpec,
) -> Vec<Planned> {
    let mut acts = Vec::new();
    for (place, service) in services.all.iter().enumerate() {
        acts.extend(service.submitted.map(|at| Planned {
            at,
            act: Act::Person(PersonAct::Submit(place)),
        }));
    }
    let usual = Usual {
        network,
        disk,
        services: &services.all,
    };
    for table in root.tables("at", MOST_TABLES) {
        acts::read_at(&table, names, &usual, &mut acts);
        table.end();
        if acts.len() > MOST_ACTS {
            let problem = format!("more than {MOST_ACTS} acts");
            root.wrong("at", problem, "write fewer, or a workload");
            acts.clear();
            break;
        }
    }
    acts.sort_by_key(|planned| planned.at);
    acts
}

fn lines(
    root: &Table<'_, '_>,
    key: &'static str,
    most: usize,
    names: &Names,
    timed: bool,
) -> Vec<Expectation> {
    let mut read = Vec::new();
    for (text, span) in root.texts(key, most) {
        match Expectation::parse(text, timed) {
            Ok(one) => match one.who().filter(|who| !names.knows(who)) {
                Some(who) => {
                    let problem = format!("{who:?} is no service, replica or host here");
                    root.note(span.start, key, problem);
                }
                None => {
                    let lacking = one.first_of_several();
                    if let Some(who) = lacking.filter(|who| names.has(who)) {
                        let problem = format!("no words begin with {who}; did you mean @{who}?");
                        root.note(span.start, key, problem);
                    } else if !timed && let Err(problem) = one.can_be_seen() {
                        // What is expected and never seen is told by the run; this would be kept by every run.
                        root.note(span.start, key, problem);
                    }
                    read.push(one);
                }
            },
            Err(problem) => root.note(span.start, key, problem),
        }
    }
    read
}

fn claims(root: &Table<'_, '_>, names: &Names, services: &Services) -> Vec<Claim> {
    let named = |name: &str| match name {
        "all" => Some(Named::All),
        _ => match names.service_no(name) {
            Some(place) => Some(Named::Service(services.all[place].name.clone())),
            None => names.host_called(name).map(Named::Host),
        },
    };
    let mut read = Vec::new();
    for (text, span) in root.texts("holds", MOST_HELD) {
        match Claim::parse(text, named) {
            Ok(claim) => read.push(claim),
            // Who is meant is not known where that could not be read.
            Err(_) if names.is_incomplete() => {}
            Err(problem) => root.note(span.start, "holds", problem),
        }
    }
    read
}

pub(super) fn between(table: &Table<'_, '_>) -> (Duration, Duration) {
    let from = table.span("from").unwrap_or_default();
    let to = table.span("to").unwrap_or(EVER);
    if from >= to {
        table.wrong("to", "it must be later than from", "");
    }
    (from, to)
}

pub(super) fn moment(span: Duration) -> Monotonic {
    Monotonic::default() + span
}
