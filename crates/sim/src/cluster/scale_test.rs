//! How cost grows with the size of a cluster: figures, run on demand.
#![expect(
    clippy::disallowed_methods,
    reason = "it is the real time that is told"
)]

use super::super::act::{PersonAct, Planned};
use super::super::spec::{HostSpec, NetworkSpec, Workload, WorkloadKind};
use super::tests::{MS, at, host, service, spec};
use super::*;

/// `hosts` hosts, ten replicas on each, services of a hundred, and 1 % of the services begun or ended anew each minute.
fn large(hosts: usize, minutes: u64) -> Spec {
    let replicas = hosts * 10;
    let of_each = 100;
    let services = replicas / of_each;
    let begun = Planned {
        at: at(10),
        act: Act::Heal,
    };
    let submit = |no| Planned {
        at: at(10),
        act: Act::Person(PersonAct::Submit(no)),
    };
    let host = |no: usize| HostSpec {
        dynamic: "20000-20099".parse().unwrap(),
        ..host(&format!("n{no}"))
    };
    let service = |no: usize| {
        let mut service = service("web", 100);
        // One each, so that nobody reaches a limit.
        service.owner.user = format!("user{no}");
        service
    };
    Spec {
        until: at(60 * minutes),
        hosts: (0..hosts).map(host).collect(),
        services: (0..services).map(service).collect(),
        acts: std::iter::once(begun)
            .chain((0..services).map(submit))
            .collect(),
        workloads: vec![Workload {
            within: at(60)..at(60 * minutes),
            per_minute: u32::try_from(services.div_ceil(100)).unwrap(),
            kind: WorkloadKind::Churn,
            services: 0..services,
        }],
        network: NetworkSpec {
            delay: MS..3 * MS,
            ..NetworkSpec::default()
        },
        ..spec(1)
    }
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|kb| kb.parse().ok()).unwrap_or_default()
}

/// `PORTREEVE_LONG=1`, and `HOSTS` and `MINUTES` where other sizes than the usual ones are wanted.
#[test]
fn growth_of_a_large_cluster() {
    if std::env::var_os("PORTREEVE_LONG").is_none() {
        return;
    }
    let number = |name: &str, usual: u64| {
        let set = std::env::var(name).ok();
        set.map_or(usual, |set| set.parse().unwrap())
    };
    let hosts = usize::try_from(number("HOSTS", 1_000)).unwrap();
    let minutes = number("MINUTES", 5);
    for factor in [1, 2, 4] {
        let hosts = hosts * factor;
        let before = resident_kb();
        let begun = std::time::Instant::now();
        let mut cluster = Cluster::new(Arc::new(large(hosts, minutes)));
        let mut told = 0;
        while cluster.step().is_some() {
            let minute = cluster.now().as_millis() / 60_000;
            if minute > told {
                told = minute;
                println!(
                    "  minute {minute}: {} steps, {} kB",
                    cluster.steps(),
                    resident_kb() - before
                );
            }
        }

        let took = u64::try_from(begun.elapsed().as_millis()).unwrap().max(1);
        let view = cluster.controller().view().unwrap();
        let ready: u32 = view.services.values().map(|service| service.ready).sum();
        println!("  {ready} ready");
        println!(
            "{hosts} hosts, {} replicas, {minutes} minutes: {} steps in {took} ms, {} steps/s, {} kB",
            hosts * 10,
            cluster.steps(),
            cluster.steps() * 1000 / took,
            resident_kb() - before,
        );
    }
}
