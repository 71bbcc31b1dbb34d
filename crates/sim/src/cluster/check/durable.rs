//! Durable before visible: an own copy of what the store took, held against what readers see and what hosts run.

use std::collections::{BTreeMap, BTreeSet};

use portreeve::identity::{HostId, HostName, Incarnation, Run, ServiceName};
use portreeve::registry::{ServiceView, Stored, Write, tables};
use portreeve::residency::ReplicaName;
use portreeve::supervision::State;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::wire::{Asker, Heard};
use super::{Verdict, broken};

/// What the store holds of services and replicas.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    /// By the key of the service.
    services: BTreeMap<String, Service>,
    names: BTreeMap<ServiceName, String>,
    replicas: BTreeMap<String, BTreeMap<u32, Replica>>,
    /// Every incarnation that ever was placed on disk.
    placed: BTreeSet<ReplicaName>,
    /// Incarnations that readers saw ended, by the keys of their services.
    ended: BTreeSet<(String, u32, Incarnation)>,
    /// By their keys, hosts that an operator takes out of service.
    drained: BTreeSet<String>,
    /// The ends that questions told which were not acknowledged yet.
    told: BTreeMap<Asker, Vec<ReplicaName>>,
    /// The disk was set back: whoever ended may be placed on it again.
    is_set_back: bool,
}

/// A service, as far as readers see it exactly so.
#[derive(Debug, Deserialize)]
struct Service {
    name: ServiceName,
    desired: u32,
    wish: String,
}

/// A replica, as far as readers see it exactly so.
#[derive(Debug, Deserialize)]
struct Replica {
    incarnation: Incarnation,
    phase: Phase,
    status: Option<Newest>,
}

/// What was last told of it, as far as it matters whether it ended, and what is older.
#[derive(Debug, Deserialize)]
struct Newest {
    run: Run,
    seq: u64,
    state: State,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    Waiting(serde::de::IgnoredAny),
    Placed(Place),
    Ended(serde::de::IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct Place {
    host: HostId,
    attached: Option<serde::de::IgnoredAny>,
}

/// A host, as far as it matters whether it is given up or taken out of service.
#[derive(Debug, Deserialize)]
struct Host {
    facts: Facts,
    lost: Option<serde::de::IgnoredAny>,
    drain: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Facts {
    host: HostName,
}

/// Hosts that are given up on disk.
pub(crate) fn lost_hosts(stored: &Stored) -> impl Iterator<Item = HostName> {
    let hosts = stored.tables.get(tables::HOSTS).into_iter().flatten();
    let hosts = hosts.filter_map(|(_, value)| record::<Host>(value));
    hosts.filter(|it| it.lost.is_some()).map(|it| it.facts.host)
}

/// The form of every record.
#[derive(Deserialize)]
struct Record<T> {
    record: T,
}

impl Durable {
    /// A controller takes up what is there; nobody may have heard of the last of it. Returns which incarnations have a
    /// place on it that had none any more: it was set back, and they begin anew.
    pub(crate) fn begin(&mut self, stored: &Stored) -> Vec<ReplicaName> {
        let before = std::mem::take(self);
        self.placed.clone_from(&before.placed);
        self.ended.clone_from(&before.ended);
        self.is_set_back = before.is_set_back;
        for table in [tables::HOSTS, tables::SERVICES, tables::REPLICAS] {
            for (key, value) in stored.tables.get(table).into_iter().flatten() {
                self.put(table, key, Some(value));
            }
        }
        let again = before.placed.iter();
        let again = again.filter(|name| self.is_placed(name) && !before.is_placed(name));
        again.cloned().collect()
    }

    /// The number of the newest word of each replica that is on disk. Cost: linear in replicas.
    pub(crate) fn newest_words(&self) -> impl Iterator<Item = (ReplicaName, (Run, u64))> {
        self.replicas.iter().flat_map(|(service, replicas)| {
            let service = self.services.get(service).map(|it| &it.name);
            let told = replicas.iter().filter_map(move |(index, replica)| {
                let status = replica.status.as_ref()?;
                let name = ReplicaName {
                    service: service?.clone(),
                    index: *index,
                    incarnation: replica.incarnation,
                };
                Some((name, (status.run, status.seq)))
            });
            told.collect::<Vec<_>>()
        })
    }

    /// The store took these.
    pub(crate) fn took(&mut self, writes: &[Write]) -> Verdict {
        let of = |table: &'static str| writes.iter().filter(move |it| it.table == table);
        // A drain that was ordered with a placement may have come after it.
        let drained_before = self.drained.clone();
        // Services first: a replica is named after its own.
        for table in [tables::HOSTS, tables::SERVICES] {
            for write in of(table) {
                self.put(table, &write.key, write.value.as_deref());
            }
        }
        for write in of(tables::REPLICAS) {
            let begins = self.put(tables::REPLICAS, &write.key, write.value.as_deref());
            if let Some((name, host)) = begins
                && drained_before.contains(&host)
                && self.drained.contains(&host)
            {
                let text = format!("{name} is placed on host {host}, which is drained");
                return broken("nothing begins on a drained host", text);
            }
        }
        Ok(())
    }

    /// Returns which incarnation is placed, and on which host, where it was not before.
    fn put(
        &mut self,
        table: &str,
        key: &str,
        value: Option<&[u8]>,
    ) -> Option<(ReplicaName, String)> {
        if table == tables::HOSTS {
            let host = value.and_then(record::<Host>);
            if host.is_some_and(|it| it.drain.is_some()) {
                self.drained.insert(key.to_owned());
            } else {
                self.drained.remove(key);
            }
            return None;
        }
        if table == tables::SERVICES {
            if let Some(before) = self.services.remove(key)
                && self.names.get(&before.name).is_some_and(|it| it == key)
            {
                self.names.remove(&before.name);
            }
            if let Some(service) = value.and_then(record::<Service>) {
                self.names.insert(service.name.clone(), key.to_owned());
                self.services.insert(key.to_owned(), service);
            }
            return None;
        }
        let (service, index) = key.split_once('/')?;
        let index = index.parse().ok()?;
        let replicas = self.replicas.entry(service.to_owned()).or_default();
        let Some(replica) = value.and_then(record::<Replica>) else {
            replicas.remove(&index);
            return None;
        };
        let mut begins = None;
        if let (Phase::Placed(place), Some(of)) = (&replica.phase, self.services.get(service)) {
            let name = ReplicaName {
                service: of.name.clone(),
                index,
                incarnation: replica.incarnation,
            };
            // The job of another scheduler is where that put it.
            if self.placed.insert(name.clone()) && place.attached.is_none() {
                begins = Some((name, format!("{:010}", place.host.0)));
            }
        }
        replicas.insert(index, replica);
        begins
    }

    /// Readers see exactly this of a service.
    pub(crate) fn check(&mut self, seen: &ServiceView) -> Verdict {
        let name = &seen.service;
        let Some(key) = self.names.get(name) else {
            return broken(
                "durable before visible",
                format!("{name} is seen and not on disk"),
            );
        };
        let Some(service) = self.services.get(key) else {
            return Ok(());
        };
        let is_stopped = service.wish == "stopped";
        if seen.desired != service.desired || is_stopped != (seen.state == "stopped") {
            let text = format!(
                "{name} is seen {} with {} wanted; on disk it is {} with {}",
                seen.state, seen.desired, service.wish, service.desired
            );
            return broken("durable before visible", text);
        }
        let none = BTreeMap::new();
        let replicas = self.replicas.get(key).unwrap_or(&none);
        for replica in &seen.replicas {
            let on_disk = replicas.get(&replica.replica);
            let is_same = on_disk.is_some_and(|it| {
                it.incarnation == replica.incarnation
                    && match it.phase {
                        Phase::Waiting(_) => replica.job_state == "PEND",
                        Phase::Placed(_) => replica.job_state == "RUN",
                        Phase::Ended(_) => matches!(replica.job_state.as_str(), "DONE" | "EXIT"),
                    }
            });
            if !is_same {
                let text = format!(
                    "{name}/{} is seen {} {} as incarnation {}; on disk it is {on_disk:?}",
                    replica.replica, replica.job_state, replica.state, replica.incarnation
                );
                return broken("durable before visible", text);
            }
        }
        if seen.replicas.len() != replicas.len() {
            let text = format!(
                "{name} is seen with {} replicas; on disk it has {}",
                seen.replicas.len(),
                replicas.len()
            );
            return broken("durable before visible", text);
        }
        for replica in &seen.replicas {
            let incarnation = (key.clone(), replica.replica, replica.incarnation);
            match replica.job_state.as_str() {
                "DONE" | "EXIT" => {
                    self.ended.insert(incarnation);
                }
                "RUN" if self.ended.contains(&incarnation) => {
                    let (index, of) = (replica.replica, replica.incarnation);
                    let text = format!("{name}/{index} (incarnation {of}) ended, and runs again");
                    return broken("what ended stays ended", text);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the disk says that this incarnation has a place.
    pub(crate) fn is_placed(&self, name: &ReplicaName) -> bool {
        let on_disk = self.on_disk(name);
        on_disk.is_some_and(|it| matches!(it.phase, Phase::Placed(_)))
    }

    /// Everybody who has a place on disk.
    pub(crate) fn all_placed(&self) -> impl Iterator<Item = ReplicaName> {
        let all = self.replicas.iter().filter_map(|(key, replicas)| {
            let service = self.services.get(key)?;
            Some(
                replicas
                    .iter()
                    .map(move |(index, it)| (service, *index, it)),
            )
        });
        let placed = all
            .flatten()
            .filter(|(.., it)| matches!(it.phase, Phase::Placed(_)));
        placed.map(|(service, index, it)| ReplicaName {
            service: service.name.clone(),
            index,
            incarnation: it.incarnation,
        })
    }

    /// What the disk has of this incarnation.
    fn on_disk(&self, name: &ReplicaName) -> Option<&Replica> {
        let replicas = self.replicas.get(self.names.get(&name.service)?)?;
        let on_disk = replicas.get(&name.index)?;
        (on_disk.incarnation == name.incarnation).then_some(on_disk)
    }

    /// The disk is set back to an older state.
    pub(crate) fn set_back(&mut self) {
        self.is_set_back = true;
        self.ended.clear();
    }

    /// The controller hears a question.
    pub(crate) fn heard(&mut self, asker: &Asker, heard: &Heard) {
        let words = match heard {
            Heard::Status(word) => std::slice::from_ref(word),
            Heard::Report { told, .. } => told,
            Heard::Lease | Heard::Shutdown | Heard::Wanted => &[],
        };
        let ends = words.iter().filter(|word| word.has_ended);
        let ends: Vec<ReplicaName> = ends.map(|word| word.name.clone()).collect();
        if !ends.is_empty() {
            self.told.insert(asker.clone(), ends);
        }
    }

    /// The controller acknowledges a question: nobody tells those ends again, so the disk has to have them.
    pub(crate) fn acknowledged(&mut self, asker: &Asker) -> Verdict {
        for name in self.told.remove(asker).unwrap_or_default() {
            let key = self.names.get(&name.service);
            let replicas = key.and_then(|key| self.replicas.get(key));
            let replica = replicas.and_then(|it| it.get(&name.index));
            // What was last told of it may be on disk before what follows from that.
            let is_told = |it: &Replica| {
                let newest = it.status.as_ref();
                newest.is_some_and(|it| matches!(it.state, State::Final(_)))
            };
            let runs_on = replica.is_some_and(|it| {
                let is_placed = matches!(it.phase, Phase::Placed(_));
                it.incarnation == name.incarnation && is_placed && !is_told(it)
            });
            if runs_on && !self.is_set_back {
                let text = format!("the end of {name} is acknowledged and not on disk");
                return broken("durable before acknowledged", text);
            }
        }
        Ok(())
    }

    /// What begins was placed on disk before.
    pub(crate) fn check_begun(&self, name: &ReplicaName) -> Verdict {
        if self.placed.contains(name) {
            return Ok(());
        }
        broken(
            "durable before ordered",
            format!("{name} begins and was never on disk"),
        )
    }
}

fn record<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    let read: Result<Record<T>, _> = serde_json::from_slice(value);
    read.ok().map(|it| it.record)
}

#[cfg(test)]
mod tests {
    use portreeve::registry::Command;
    use portreeve::supervision::Final;

    use super::super::super::wire::{Who, Word};
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn what_is_seen_and_not_on_disk_is_found() {
        let mut stage = Stage::new("20000-20009");
        let name = stage.submit("web", "replicas = 2\n[ports]\nhttp = \"any\"\n");
        let mut durable = Durable::default();
        durable.begin(stage.stored());
        let look = |durable: &mut Durable, stage: &Stage| {
            let view = stage.registry.view();
            let found = durable.check(view.services.get(&name).unwrap());
            found.map_err(|it| it.invariant)
        };
        assert_eq!(look(&mut durable, &stage), Ok(()));
        let placed = stage.placed()[0].name.clone();
        assert_eq!(durable.check_begun(&placed), Ok(()));
        let never = ReplicaName {
            incarnation: Incarnation(99),
            ..placed
        };
        let found = durable.check_begun(&never).unwrap_err();
        assert_eq!(found.invariant, "durable before ordered");
        let scale = Command::Scale {
            service: name.clone(),
            replicas: 3,
        };
        stage.ask(scale).unwrap();
        // As if the batch were still on its way.
        assert_eq!(look(&mut durable, &stage), Err("durable before visible"));
        durable.begin(stage.stored());
        assert_eq!(look(&mut durable, &stage), Ok(()));
        let kill = Command::Kill {
            service: name.clone(),
            index: 1,
        };
        stage.ask(kill).unwrap();
        durable.begin(stage.stored());
        assert_eq!(look(&mut durable, &stage), Ok(()));
        assert_eq!(
            look(&mut Durable::default(), &stage),
            Err("durable before visible")
        );
    }

    #[test]
    fn what_ended_and_runs_again_is_found() {
        let mut stage = Stage::new("20000-20009");
        let name = stage.submit("web", "[ports]\nhttp = \"any\"\n");
        let placed = stage.placed()[0].name.clone();
        let mut durable = Durable::default();
        durable.begin(stage.stored());
        let running = stage.registry.view();
        let running = running.services.get(&name).unwrap();
        assert_eq!(durable.check(running), Ok(()));
        let on_disk = stage.stored().clone();
        stage.becomes(&placed, 1, State::Final(Final::Stopped));
        durable.begin(stage.stored());
        let view = stage.registry.view();
        assert_eq!(durable.check(view.services.get(&name).unwrap()), Ok(()));
        // As if the disk had forgotten it.
        durable.begin(&on_disk);
        let found = durable.check(running).unwrap_err();
        assert_eq!(found.invariant, "what ended stays ended");
        durable.set_back();
        assert_eq!(durable.check(running), Ok(()));
    }

    #[test]
    fn an_end_that_is_acknowledged_and_not_on_disk_is_found() {
        let mut stage = Stage::new("20000-20009");
        stage.submit("web", "[restart]\npolicy = \"never\"\n");
        let mut durable = Durable::default();
        durable.begin(stage.stored());
        let name = stage.placed()[0].name.clone();
        let asker = Asker {
            host: 0,
            who: Who::Agent,
            life: 1,
            question: 1,
        };
        let told = |has_ended| Heard::Report {
            number: None,
            is_full: true,
            told: vec![Word {
                name: name.clone(),
                run: Run(1),
                seq: 2,
                is_ready: false,
                has_ended,
            }],
        };
        durable.heard(&asker, &told(false));
        assert_eq!(durable.acknowledged(&asker), Ok(()));
        durable.heard(&asker, &told(true));
        let found = durable.acknowledged(&asker).unwrap_err();
        assert_eq!(found.invariant, "durable before acknowledged");
        stage.becomes(&name, 2, State::Final(Final::Succeeded));
        durable.begin(stage.stored());
        durable.heard(&asker, &told(true));
        assert_eq!(durable.acknowledged(&asker), Ok(()));
    }
}
