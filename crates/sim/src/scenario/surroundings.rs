//! What a cluster stands on: `[[host]]`, `[network]`, `[disk]` and the settings of `[controller]`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portreeve::identity::HostName;
use portreeve::port::PortRanges;
use portreeve::registry::{Allowance, Config, Limits, Silence, Suspects};

use super::services::Services;
use super::table::Table;
use crate::cluster::act::HostNo;
use crate::cluster::spec::{DiskSpec, HostSpec, NetworkSpec};

/// The most hosts of one scenario, and the most tables of them.
const MOST_HOSTS: usize = 100_000;
const MOST_TABLES: usize = 1_000;
/// What an agent offers that is told nothing else.
const DYNAMIC: &str = "20000-32767";
const FIXED: &str = "1024-65535";

/// The hosts, by name too, and whether all could be read.
pub(super) struct Hosts {
    pub(super) all: Vec<HostSpec>,
    pub(super) by_name: BTreeMap<HostName, HostNo>,
    pub(super) incomplete: bool,
}

pub(super) fn hosts(root: &Table<'_, '_>, services: &Services) -> Hosts {
    let mut hosts = Hosts {
        all: Vec::new(),
        by_name: BTreeMap::new(),
        incomplete: false,
    };
    if !root.has("host") {
        hosts.put_ideal(services);
        return hosts;
    }
    for table in root.tables("host", MOST_TABLES) {
        let names = table.host_names("name");
        if !table.has("name") {
            table.wrong(
                "name",
                "missing",
                "write name = \"n1\" or name = \"n[1-16]\"",
            );
        }
        let dynamic = table.ports("ports");
        let fixed = table.ports("fixed_ports");
        let reserved = table.ports("reserved_ports");
        let labels = table.labels("labels");
        hosts.incomplete |= names.is_none();
        for name in names.unwrap_or_default() {
            if hosts.all.len() >= MOST_HOSTS {
                table.wrong("name", format!("more than {MOST_HOSTS} hosts"), "");
                break;
            }
            let host = HostSpec {
                name,
                dynamic: dynamic.clone().unwrap_or_else(|| ranges(DYNAMIC)),
                fixed: fixed.clone().unwrap_or_else(|| ranges(FIXED)),
                reserved: reserved.clone().unwrap_or_default(),
                labels: labels.clone(),
            };
            if hosts.by_name.contains_key(&host.name) {
                let problem = format!("{} is there twice", host.name);
                table.wrong("name", problem, "write each host once");
                hosts.incomplete = true;
                break;
            }
            hosts.put(host);
        }
        table.end();
    }
    hosts
}

impl Hosts {
    /// A host for each replica, with whatever the services ask of it: who writes of no host wants none in the way.
    fn put_ideal(&mut self, services: &Services) {
        let count: u32 = services.all.iter().map(|one| one.replicas).sum();
        let mut names = BTreeSet::new();
        let mut labels = BTreeMap::new();
        for service in &services.all {
            names.extend(service.profile.placement.hosts.iter().cloned());
            labels.extend(service.profile.placement.labels.clone());
        }
        let mut number = 0_u32;
        while names.len() < count.max(1) as usize {
            number += 1;
            let name = format!("n{number}").parse();
            names.insert(name.expect("a letter and a number name a host"));
        }
        for name in names {
            self.put(HostSpec {
                name,
                dynamic: ranges(DYNAMIC),
                fixed: ranges(FIXED),
                reserved: PortRanges::default(),
                labels: labels.clone(),
            });
        }
    }

    fn put(&mut self, host: HostSpec) {
        self.by_name.insert(host.name.clone(), self.all.len());
        self.all.push(host);
    }
}

/// A network as a table tells of it; what it does not tell of is ideal.
pub(super) fn network(table: &Table<'_, '_>) -> NetworkSpec {
    let ideal = NetworkSpec::default();
    let reordering = table.table("reordering").map(|inner| {
        let read = (
            inner.part("part").unwrap_or_default(),
            inner.span("by").unwrap_or(Duration::from_millis(100)),
        );
        inner.end();
        read
    });
    NetworkSpec {
        delay: table.spans("delay").unwrap_or(ideal.delay),
        loss: table.part("loss").unwrap_or_default(),
        duplication: table.part("duplication").unwrap_or_default(),
        reordering: reordering.unwrap_or(ideal.reordering),
    }
}

/// The controller's disk as a table tells of it; what it does not tell of is ideal.
pub(super) fn disk(table: &Table<'_, '_>) -> DiskSpec {
    DiskSpec {
        commit: table.spans("commit").unwrap_or(DiskSpec::default().commit),
        refusal: table.part("refusal").unwrap_or_default(),
    }
}

/// The controller's settings; those it is not told are what `portreeve controller` takes.
pub(super) fn controller(root: &Table<'_, '_>) -> Config {
    let mut config = Config::default();
    let table = root.table("controller");
    let span = |key| table.as_ref().and_then(|table| table.span(key));
    let set = |place: &mut Duration, key| {
        if let Some(span) = span(key) {
            *place = span;
        }
    };
    set(&mut config.cooling, "cooling");
    set(&mut config.foreign_rest, "foreign_rest");
    set(&mut config.news_delay, "news_delay");
    set(&mut config.coalesce, "coalesce");
    let usual = Silence::default();
    let suspect_after = span("suspect_after").unwrap_or(usual.suspect_after());
    let host_grace = span("host_grace").unwrap_or(usual.host_grace());
    let withdraw = table
        .as_ref()
        .and_then(|table| table.flag("withdraw_suspect"));
    let suspects = match withdraw {
        Some(true) => Suspects::AreWithdrawn,
        _ => Suspects::StayListed,
    };
    let silence = Silence::new(suspect_after, host_grace, suspects);
    if let (Err(cause), Some(table)) = (&silence, &table) {
        table.wrong("suspect_after", cause, "");
    }
    // Who writes of no host and no controller tries a rule on a host that is always there.
    config.silence = silence.ok().filter(|_| root.has("host") || table.is_some());
    config.stale_for = Some(host_grace);
    // A limit is a site's wish; who tries a policy here has none unless it is written.
    config.limits = Limits {
        user: Allowance::NO_LIMIT,
        group: Allowance::NO_LIMIT,
        ..Limits::default()
    };
    if let Some(table) = table {
        if let Some(limits) = table.table("limits") {
            let number = |key| limits.number(key, 0..=u64::from(u32::MAX));
            let all = Allowance {
                ports_per_host: number("ports_per_host").unwrap_or(Allowance::UNLIMITED),
                ports: number("ports").unwrap_or(Allowance::UNLIMITED),
                replicas: number("replicas").unwrap_or(Allowance::UNLIMITED),
                services: number("services").unwrap_or(Allowance::UNLIMITED),
            };
            (config.limits.user, config.limits.group) = (all, all);
            limits.end();
        }
        table.end();
    }
    config
}

fn ranges(text: &str) -> PortRanges {
    text.parse().expect("the default ranges are ranges")
}
