//! Who is meant: services, replicas and hosts by the names that a scenario gives them.

use std::collections::BTreeMap;

use portreeve::identity::HostName;
use portreeve::profile::expand_hosts;

use super::services::Services;
use super::table::Table;
use crate::cluster::act::{HostNo, ServiceNo, Whom};

/// The names of one scenario.
pub(super) struct Names {
    /// By label where that is unique, and by full name.
    services: BTreeMap<String, Option<ServiceNo>>,
    hosts: BTreeMap<HostName, HostNo>,
    /// How many replicas a service may have: none is named beyond.
    bound: u64,
    /// The only service, which need not be named.
    only: Option<ServiceNo>,
    /// Whether nothing is said of names that are not there: something else could not be read.
    incomplete: bool,
}

impl Names {
    pub(super) fn new(
        services: &Services,
        hosts: BTreeMap<HostName, HostNo>,
        hosts_incomplete: bool,
        bound: u64,
    ) -> Self {
        let mut known = BTreeMap::new();
        for (place, service) in services.all.iter().enumerate() {
            known.insert(service.name.to_string(), Some(place));
            known
                .entry(service.name.label().to_string())
                .and_modify(|only| *only = None)
                .or_insert(Some(place));
        }
        Self {
            services: known,
            hosts,
            bound,
            only: (services.all.len() == 1).then_some(0),
            incomplete: services.incomplete || hosts_incomplete,
        }
    }

    /// The service under `service`; the only one there is need not be named.
    pub(super) fn service(&self, table: &Table<'_, '_>) -> Option<ServiceNo> {
        match table.text("service") {
            Some(name) => self.service_called(table, name),
            None if table.has("service") => None,
            None => {
                if self.only.is_none() && !self.incomplete {
                    table.wrong("service", "missing", "write which service");
                }
                self.only
            }
        }
    }

    /// The services under `key`, a name, a list such as `job[1-100]`, or several; `None`: nothing is written.
    pub(super) fn services(
        &self,
        table: &Table<'_, '_>,
        key: &'static str,
    ) -> Option<Vec<ServiceNo>> {
        let texts = table.one_or_more(key, super::services::MOST_SERVICES);
        if !table.has(key) {
            return None;
        }
        let mut found = Vec::new();
        for text in texts {
            if !text.contains('[') {
                found.extend(self.service_called_at(table, key, text));
                continue;
            }
            match expand_hosts(text) {
                Ok(names) => {
                    let names = names.iter().map(HostName::as_str);
                    found.extend(names.filter_map(|one| self.service_called_at(table, key, one)));
                }
                Err(cause) => table.wrong(key, cause, "write a list such as \"job[1-100]\""),
            }
        }
        Some(found)
    }

    fn service_called(&self, table: &Table<'_, '_>, name: &str) -> Option<ServiceNo> {
        self.service_called_at(table, "service", name)
    }

    fn service_called_at(
        &self,
        table: &Table<'_, '_>,
        key: &'static str,
        name: &str,
    ) -> Option<ServiceNo> {
        match self.services.get(name) {
            Some(Some(place)) => Some(*place),
            Some(None) => {
                let allowed = "write the whole name, such as \"web.alice\"";
                table.wrong(key, format!("there are several {name}"), allowed);
                None
            }
            None => {
                if !self.incomplete {
                    let known = self.services.keys().take(8).cloned().collect::<Vec<_>>();
                    let allowed = format!("there are: {}", known.join(", "));
                    table.wrong(key, format!("{name:?} is no service here"), &allowed);
                }
                None
            }
        }
    }

    /// The replica under `replica`, a number.
    pub(super) fn replica(&self, table: &Table<'_, '_>) -> Option<u32> {
        table.number("replica", 0..=self.bound.max(1) - 1)
    }

    /// One replica of one service.
    pub(super) fn whom(&self, table: &Table<'_, '_>) -> Option<Whom> {
        let service = self.service(table);
        let index = self.replica(table);
        if !table.has("replica") {
            table.wrong("replica", "missing", "write which, such as replica = 0");
        }
        Some(Whom {
            service: service?,
            index: index?,
        })
    }

    /// The hosts under `host`.
    pub(super) fn hosts(&self, table: &Table<'_, '_>) -> Vec<HostNo> {
        let names = table.host_names("host").unwrap_or_default();
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            match self.hosts.get(&name) {
                Some(place) => found.push(*place),
                None if self.incomplete => {}
                None => {
                    let allowed = "write the name of a host of [[host]]";
                    table.wrong("host", format!("{name} is no host here"), allowed);
                    return Vec::new();
                }
            }
        }
        found
    }

    /// The only service that is called so.
    pub(super) fn service_no(&self, name: &str) -> Option<ServiceNo> {
        self.services.get(name).copied().flatten()
    }

    /// The host that is called so.
    pub(super) fn host_called(&self, name: &str) -> Option<HostName> {
        let name = name.parse().ok()?;
        self.hosts.contains_key(&name).then_some(name)
    }

    /// Whether names may be missing.
    pub(super) const fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Whether somebody is called so: `web`, `web.alice`, `n1`, `controller`, or one of these with `/0` behind.
    pub(super) fn knows(&self, who: &str) -> bool {
        self.incomplete || self.has(who)
    }

    /// The same, where nothing is granted to names that may be missing.
    pub(super) fn has(&self, who: &str) -> bool {
        let service = who.split_once('/').map_or(who, |(service, _)| service);
        who == "controller"
            || self.services.contains_key(service)
            || who
                .parse::<HostName>()
                .is_ok_and(|host| self.hosts.contains_key(&host))
    }
}
