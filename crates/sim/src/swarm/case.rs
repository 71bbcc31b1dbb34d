//! What one seed makes: a cluster, its services, and all that happens to them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use portreeve::port::{Port, PortRange, PortRanges};
use portreeve::registry::{Allowance, Config, Limits, Silence, Suspects};
use portreeve::rights::{Caller, Rights};
use portreeve::time::Monotonic;

use super::draw::Draw;
use super::faults::{self, Field};
use super::mix::Mix;
use super::profiles::{Habits, profile};
use super::scripts::scripts;
use crate::cluster::act::{Act, PersonAct, Planned};
use crate::cluster::check::Settling;
use crate::cluster::spec::{
    DiskSpec, HostSpec, NetworkSpec, ServiceSpec, Spec, Workload, WorkloadKind,
};
use crate::scenario::{BEGIN, FIRST_UID};

/// Faults begin after it, so that something is there to break.
const CALM: Duration = Duration::from_secs(20);
/// How long nothing is to happen once everything has come to rest.
const REST: Duration = Duration::from_secs(60);

impl Spec {
    /// The run of this seed: sizes, services, settings, faults and chance all follow from it.
    ///
    /// It begins with a submit of most services, then comes a storm of what the seed's own mix of faults holds, then
    /// everything is well again for long enough to come to rest.
    pub(crate) fn of_seed(seed: u64) -> Self {
        let mut draw = Draw::new(seed, "sizes");
        let host_count = match draw.within(0..=19) {
            0 => 40,
            1..=3 => 8,
            4..=7 => 1,
            _ => draw.count(2..=5),
        };
        let service_count = draw.one_of(&[1, 1, 2, 2, 3, 4, 5, 8]);
        let most_replicas = draw.one_of(&[1, 2, 3, 3, 6]);
        let pool = draw.one_of(&[2, 4, 6, 10, 20, 200]);
        let dynamic = 30_000..=30_000 + pool - 1;
        let mut fixed = 8_000..=8_000 + draw.one_of(&[0, 1, 3]);
        if Draw::new(seed, "meeting numbers").once_in(5) {
            // Who asks for a number meets who takes any.
            let last = (fixed.end() - fixed.start()).min(pool - 1);
            fixed = *dynamic.start()..=dynamic.start() + last;
        }
        let storm = draw.one_of(&[120, 180, 300, 600, 900]);
        let storm =
            Monotonic::default() + CALM..Monotonic::default() + CALM + Duration::from_secs(storm);

        let config = config(seed);
        let habits = Habits {
            hosts: host_count,
            fixed: fixed.clone(),
            dynamic: dynamic.clone(),
            most_replicas,
        };
        let mut services: Vec<_> = (0..service_count)
            .map(|no| service(seed, no, &habits))
            .collect();
        give_uids(&mut services);
        let hosts: Vec<_> = (1..=host_count)
            .map(|no| host(seed, no, &dynamic, &fixed))
            .collect();

        let numbers: Vec<_> = dynamic.take(3).chain(fixed).collect();
        let numbers: Vec<_> = numbers.into_iter().filter_map(port).collect();
        let silence = config.silence.unwrap_or_default();
        let telling = [
            silence.suspect_after(),
            silence.host_grace(),
            silence.host_grace(),
            config.cooling,
            Duration::from_secs(1),
            Duration::from_secs(30),
        ];
        let names: Vec<_> = services.iter().map(ServiceSpec::name).collect();
        let mut acts = faults::acts(
            seed,
            &Mix::of_seed(seed),
            &Field {
                hosts: hosts.len(),
                services: services.len(),
                names: &names,
                most_replicas,
                storm: storm.clone(),
                telling: &telling,
                numbers: &numbers,
            },
        );
        acts.extend(submits(seed, services.len(), &storm.end));
        acts.push(Planned {
            at: storm.end,
            act: Act::Heal,
        });
        // Of one moment in the order they were drawn.
        acts.sort_by_key(|planned| planned.at);

        let (network, disk) = qualities(seed);
        let mut spec = Self {
            seed,
            until: storm.end,
            wall: BEGIN,
            config,
            hosts,
            services,
            network,
            disk,
            acts,
            workloads: workloads(seed, service_count, most_replicas, &storm),
        };
        spec.until = storm.end + tail(&spec);
        spec
    }
}

/// How long everything is well at the end: as long as it may take to come to rest, and a while of rest.
fn tail(spec: &Spec) -> Duration {
    Settling::of(spec).total() + REST
}

fn config(seed: u64) -> Config {
    let mut draw = Draw::new(seed, "config");
    let suspect_after = draw.span(4_000..=20_000);
    let host_grace = suspect_after + draw.span(10_000..=70_000);
    let suspects = draw.one_of(&[
        Suspects::StayListed,
        Suspects::StayListed,
        Suspects::AreWithdrawn,
    ]);
    let silence = Silence::new(suspect_after, host_grace, suspects).unwrap_or_default();
    let most = if draw.once_in(6) {
        Allowance {
            ports_per_host: draw.count(1..=4),
            ports: draw.count(1..=8),
            replicas: draw.count(1..=8),
            services: draw.count(1..=3),
        }
    } else {
        Allowance::NO_LIMIT
    };
    Config {
        cooling: draw.span(0..=60_000),
        foreign_rest: draw.span(1_000..=60_000),
        news_delay: draw.span(50..=1_000),
        coalesce: draw.one_of(&[
            Duration::ZERO,
            Duration::from_millis(20),
            Duration::from_millis(1_000),
        ]),
        stale_for: Some(host_grace),
        limits: Limits {
            user: most,
            group: most,
            ..Limits::default()
        },
        silence: Some(silence),
        ..Config::default()
    }
}

fn host(
    seed: u64,
    no: u32,
    dynamic: &RangeInclusive<u64>,
    fixed: &RangeInclusive<u64>,
) -> HostSpec {
    let mut draw = Draw::new(seed, &format!("host {no}"));
    let mut labels = BTreeMap::new();
    if draw.once_in(2) {
        let zone = draw.one_of(&["a", "b"]);
        labels.insert("zone".to_owned(), zone.to_owned());
    }
    let reserved = if draw.once_in(6) {
        let number = draw.within(dynamic.clone());
        ranges(number, number)
    } else {
        PortRanges::default()
    };
    HostSpec {
        name: format!("n{no}").parse().expect("a letter and a number"),
        dynamic: ranges(*dynamic.start(), *dynamic.end()),
        fixed: if draw.once_in(8) {
            PortRanges::default()
        } else {
            ranges(*fixed.start(), *fixed.end())
        },
        reserved,
        labels,
    }
}

fn service(seed: u64, no: usize, habits: &Habits) -> ServiceSpec {
    let mut draw = Draw::new(seed, &format!("service {no}"));
    let (_, profile) = profile(&mut draw, no, habits);
    let mut by_replica = BTreeMap::new();
    by_replica.insert(None, Arc::new(scripts(&mut draw)));
    if draw.once_in(3) {
        let index = draw.count(0..=habits.most_replicas);
        by_replica.insert(Some(index), Arc::new(scripts(&mut draw)));
    }
    let user = draw.one_of(&["alice", "alice", "bob"]);
    ServiceSpec {
        profile: Arc::new(profile),
        owner: Caller::new(user.to_owned(), None, Vec::new(), Rights::USER),
        scripts: by_replica,
    }
}

/// Each account has its own, in the order in which they come, as in a scenario.
fn give_uids(services: &mut [ServiceSpec]) {
    let mut uids = BTreeMap::new();
    for service in services {
        let next = FIRST_UID.saturating_add(u32::try_from(uids.len()).unwrap_or(0));
        let user = service.owner.user.clone();
        service.owner.uid = Some(*uids.entry(user).or_insert(next));
    }
}

/// Most services at the beginning, some in the midst of it, few never.
fn submits(seed: u64, services: usize, end: &Monotonic) -> Vec<Planned> {
    let mut draw = Draw::new(seed, "submits");
    let mut acts = Vec::new();
    for service in 0..services {
        let last = u64::try_from(end.since(Monotonic::default()).as_millis()).unwrap_or(0);
        let at = match draw.within(0..=9) {
            0..=5 => draw.span(0..=10_000),
            6 => Duration::ZERO,
            7 | 8 => draw.span(0..=last),
            _ => continue,
        };
        acts.push(Planned {
            at: Monotonic::default() + at,
            act: Act::Person(PersonAct::Submit(service)),
        });
    }
    acts
}

fn qualities(seed: u64) -> (NetworkSpec, DiskSpec) {
    let mut draw = Draw::new(seed, "qualities");
    let (mut network, disk) = (faults::network(&mut draw), faults::disk(&mut draw));
    let mut late = Draw::new(seed, "late messages");
    if late.once_in(6) {
        // What was given up and told anew arrives after all.
        network.reordering = (late.one_of(&[20_000, 200_000]), Duration::from_secs(40));
    }
    (network, disk)
}

fn workloads(
    seed: u64,
    services: usize,
    most: u32,
    storm: &std::ops::Range<Monotonic>,
) -> Vec<Workload> {
    let mut draw = Draw::new(seed, "workloads");
    let mut workloads = Vec::new();
    for _ in 0..draw.one_of(&[0, 0, 1, 1, 2]) {
        workloads.push(Workload {
            within: storm.clone(),
            per_minute: draw.count(1..=6),
            kind: draw.one_of(&[
                WorkloadKind::Churn,
                WorkloadKind::Scale { most },
                WorkloadKind::Restart,
                WorkloadKind::Replace,
                WorkloadKind::Crash,
            ]),
            services: 0..services,
        });
    }
    workloads
}

fn ranges(from: u64, to: u64) -> PortRanges {
    let range = port(from)
        .zip(port(to))
        .and_then(|(from, to)| PortRange::new(from, to));
    PortRanges::new(range)
}

fn port(number: u64) -> Option<Port> {
    u16::try_from(number).ok().and_then(Port::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_run_each_time_and_another_one_than_its_neighbour() {
        let text = |seed| format!("{:?}", Spec::of_seed(seed));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn every_run_ends_well_and_in_bounded_time() {
        for seed in 0..500 {
            let spec = Spec::of_seed(seed);
            assert!(spec.acts.is_sorted_by_key(|planned| planned.at));
            let heal = spec.acts.last().unwrap();
            assert!(matches!(heal.act, Act::Heal), "{:?}", heal.act);
            assert!(spec.until > heal.at);
            assert!(spec.until.as_millis() < 4 * 60 * 60_000);
        }
    }
}
