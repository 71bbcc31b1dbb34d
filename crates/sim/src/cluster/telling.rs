//! What an onlooker is told of the controller's decisions: from what it wrote down, and from what it published.

use std::collections::BTreeMap;
use std::sync::Arc;

use portreeve::identity::{HostName, Incarnation, Run, ServiceName};
use portreeve::registry::{Batch, EventView, View, tables};
use portreeve::time::Now;
use serde::Deserialize;

use super::act::HostNo;
use super::controller::ControllerOut;
use super::sight::{Sight, Subject, What};
use super::spec::Spec;

/// Who is who in what is written.
#[derive(Debug)]
pub(crate) struct Telling {
    hosts: Arc<BTreeMap<HostName, HostNo>>,
    services_by_key: BTreeMap<String, ServiceName>,
    hosts_by_key: BTreeMap<String, HostName>,
}

/// The form of every record in the store.
#[derive(Deserialize)]
struct Stored<T> {
    record: T,
}

#[derive(Deserialize)]
struct ServiceRecord {
    name: ServiceName,
}

#[derive(Deserialize)]
struct HostRecord {
    facts: HostTold,
}

#[derive(Deserialize)]
struct HostTold {
    host: HostName,
}

/// What the worker's machine said is seen there, when it says it.
const SEEN_ON_THE_HOST: [&str; 5] = ["failed", "not-ready", "ready", "restarted", "stuck"];

impl Telling {
    pub(crate) fn new(spec: &Spec) -> Self {
        let hosts = spec.hosts.iter().enumerate();
        let hosts = hosts.map(|(no, host)| (host.name.clone(), no));
        Self {
            hosts: Arc::new(hosts.collect()),
            services_by_key: BTreeMap::new(),
            hosts_by_key: BTreeMap::new(),
        }
    }

    /// The place of a host in the spec.
    pub(crate) fn host_no(&self, name: &HostName) -> Option<HostNo> {
        self.hosts.get(name).copied()
    }

    /// A batch became durable.
    pub(crate) fn committed(&mut self, now: Now, batch: &Batch, out: &mut Vec<ControllerOut>) {
        for write in &batch.writes {
            let Some(value) = &write.value else { continue };
            match write.table {
                tables::SERVICES if !self.services_by_key.contains_key(&write.key) => {
                    if let Some(ServiceRecord { name }) = record(value) {
                        self.services_by_key.insert(write.key.clone(), name);
                    }
                }
                tables::HOSTS if !self.hosts_by_key.contains_key(&write.key) => {
                    if let Some(HostRecord { facts }) = record(value) {
                        self.hosts_by_key.insert(write.key.clone(), facts.host);
                    }
                }
                _ => {}
            }
        }
        for write in &batch.writes {
            let of_host = write.table == tables::HOST_EVENTS;
            let (Some(value), true) = (&write.value, of_host || write.table == tables::EVENTS)
            else {
                continue;
            };
            let of = write.key.split_once('/').map_or("", |(of, _)| of);
            let Some(event) = record::<EventView>(value) else {
                continue;
            };
            if SEEN_ON_THE_HOST.contains(&event.kind.as_str()) {
                continue;
            }
            let subject = if of_host {
                self.host_subject(of)
            } else {
                self.service_subject(of, &event)
            };
            let Some(of) = subject else { continue };
            // Where the sentence begins with the word, it is not said twice.
            let text = if event.text.starts_with(&event.kind) {
                event.text
            } else {
                format!("{}: {}", event.kind, event.text)
            };
            let what = if event.kind == "placed" {
                What::Place(text)
            } else {
                What::Befell(text)
            };
            out.push(ControllerOut::Saw(Sight {
                at: now.mono,
                of,
                what,
            }));
        }
    }

    /// The endpoints of a service were published.
    #[expect(clippy::unused_self, reason = "told with the rest")]
    pub(crate) fn listed(
        &self,
        now: Now,
        view: &View,
        revision: u64,
        service: ServiceName,
        out: &mut Vec<ControllerOut>,
    ) {
        let (listed, desired) = view
            .services
            .get(&service)
            .map_or((0, 0), |it| (it.ready, it.desired));
        out.push(ControllerOut::Saw(Sight {
            at: now.mono,
            of: Subject::Service(service),
            what: What::Listed {
                revision,
                listed,
                desired,
            },
        }));
    }

    fn host_subject(&self, key: &str) -> Option<Subject> {
        let name = self.hosts_by_key.get(key)?;
        Some(Subject::Host(self.host_no(name)?))
    }

    fn service_subject(&self, key: &str, event: &EventView) -> Option<Subject> {
        let service = self.services_by_key.get(key)?.clone();
        let host = event.host.as_ref().and_then(|host| self.host_no(host));
        Some(match (event.replica, host) {
            (Some(index), Some(host)) => Subject::Replica {
                service,
                index,
                incarnation: event.incarnation.unwrap_or(Incarnation(0)),
                run: Run::default(),
                host,
            },
            _ => Subject::Service(service),
        })
    }
}

fn record<T: serde::de::DeserializeOwned>(value: &[u8]) -> Option<T> {
    let stored: Stored<T> = serde_json::from_slice(value).ok()?;
    Some(stored.record)
}
