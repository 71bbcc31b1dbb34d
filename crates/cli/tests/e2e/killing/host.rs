//! A host of which nothing runs: it speaks as an agent and its workers do, obeys at once, and flips readiness.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use portreeve::identity::HostName;
use portreeve::port_pool::Side;
use portreeve::registry::Want;
use portreeve::residency::ReplicaName;
use portreeve::supervision::{Final, State, Status};
use portreeve_api::body::{DesiredReplica, DesiredSet};
use portreeve_api::paths;

use super::Dice;
use crate::endpoints::scripted::{Put, facts, reported, sound, started};
use crate::endpoints::wire::{Place, Wire};

pub(super) struct Host {
    name: HostName,
    place: Place,
    wire: Option<Wire>,
    instance: String,
    lodgers: BTreeMap<ReplicaName, Lodger>,
    dice: Dice,
    /// How many statuses the controller took in.
    pub(super) told: u32,
}

struct Lodger {
    replica: DesiredReplica,
    status: Status,
    /// Whether the controller has the status.
    told: bool,
}

impl Lodger {
    fn lives(&self) -> bool {
        !matches!(self.status.state, State::Final(_))
    }
}

impl Host {
    pub(super) fn new(place: Place, name: &str, dice: Dice) -> Self {
        Self {
            name: name.parse().unwrap(),
            place,
            wire: None,
            instance: String::new(),
            lodgers: BTreeMap::new(),
            dice,
            told: 0,
        }
    }

    /// Does what is wanted now, and tells what is new. Fails while there is no controller.
    pub(super) fn obey(&mut self) -> io::Result<()> {
        let done = self.try_to_obey();
        if done.is_err() {
            self.wire = None;
        }
        done
    }

    /// Whether the controller knows everything.
    pub(super) fn is_quiet(&self) -> bool {
        self.lodgers.values().all(|it| it.told)
    }

    fn try_to_obey(&mut self) -> io::Result<()> {
        let path = paths::host_part(&self.name, "desired");
        let answer = self.wire()?.get(&path, &[])?;
        // A host that never reported has no orders.
        if answer.head.status == 404 || self.must_report(&answer.body)? {
            return self.report(&answer.body);
        }
        let set: DesiredSet = serde_json::from_slice(&sound(answer)?.body)?;
        let mut wanted = BTreeSet::new();
        for replica in set.replicas {
            wanted.insert(replica.desired.name());
            self.act(replica);
        }
        // What is told and not wanted any more may go.
        self.lodgers
            .retain(|name, it| wanted.contains(name) || it.lives() || !it.told);
        self.flip();
        self.tell()
    }

    fn must_report(&self, body: &[u8]) -> io::Result<bool> {
        let set: DesiredSet = serde_json::from_slice(body)?;
        Ok(set.report_first || set.instance != self.instance)
    }

    fn report(&mut self, orders: &[u8]) -> io::Result<()> {
        let mut facts = facts(&self.name, Some([127, 0, 0, 2].into()))?;
        for it in self.lodgers.values() {
            facts
                .replicas
                .push(reported(&self.name, &it.replica, &it.status));
        }
        let path = paths::host_part(&self.name, "report");
        Put::new(path, None, &facts)?.put(self.wire()?)?;
        sound(self.wire()?.answer()?)?;
        if let Ok(set) = serde_json::from_slice::<DesiredSet>(orders) {
            self.instance = set.instance;
        }
        Ok(())
    }

    fn act(&mut self, replica: DesiredReplica) {
        let desired = &replica.desired;
        let name = desired.name();
        let known = self.lodgers.get_mut(&name);
        match (desired.want, known) {
            (Want::Run, None) => {
                let last = desired.last_status.as_ref();
                if last.is_none_or(|it| !matches!(it.state, State::Final(_))) {
                    self.begin(name, replica);
                }
            }
            (Want::Stop, None) => {
                let status = Status {
                    state: State::Final(Final::Stopped),
                    ..started()
                };
                self.lodgers.insert(
                    name,
                    Lodger {
                        replica,
                        status,
                        told: false,
                    },
                );
            }
            (Want::Stop, Some(lodger)) if lodger.lives() => {
                lodger.status.seq += 1;
                lodger.status.ready = false;
                lodger.status.state = State::Final(Final::Stopped);
                lodger.told = false;
            }
            (Want::Forget, Some(lodger)) => {
                assert!(!lodger.lives(), "{name} runs and is to be forgotten");
                lodger.told = true;
            }
            (Want::Run | Want::Stop, Some(_)) | (Want::Forget, None) => {}
        }
    }

    /// Promise 1: what it is given, nobody here has.
    fn begin(&mut self, name: ReplicaName, replica: DesiredReplica) {
        let given = numbers(&replica);
        for (other, lodger) in self.lodgers.iter().filter(|(_, it)| it.lives()) {
            let taken = numbers(&lodger.replica);
            assert!(
                given.is_disjoint(&taken),
                "{name} is given what {other} has: {given:?}"
            );
            assert!(
                other.copy() != name.copy(),
                "{name} begins while {other} lives"
            );
        }
        let status = Status {
            ready: true,
            ..started()
        };
        self.lodgers.insert(
            name,
            Lodger {
                replica,
                status,
                told: false,
            },
        );
    }

    fn flip(&mut self) {
        let count = u32::try_from(self.lodgers.len()).unwrap_or(u32::MAX);
        let nth = self.dice.below(count.max(1));
        let mut living = self.lodgers.values_mut().filter(|it| it.lives());
        if let Some(lodger) = living.nth(nth as usize) {
            lodger.status.seq += 1;
            lodger.status.ready = !lodger.status.ready;
            lodger.told = false;
        }
    }

    fn tell(&mut self) -> io::Result<()> {
        let untold = self.lodgers.iter().filter(|(_, it)| !it.told);
        let untold: Vec<ReplicaName> = untold.map(|(name, _)| name.clone()).collect();
        for name in untold {
            let lodger = &self.lodgers[&name];
            let path = paths::status(&name.service, name.index, name.incarnation);
            let token = format!("Bearer {}", lodger.replica.tokens.worker);
            let put = Put::new(path, Some(token), &lodger.status)?;
            put.put(self.wire()?)?;
            let answer = self.wire()?.answer()?;
            // The end was kept and its answer died with the controller; the next one knows of a deletion, and of
            // the replica no more. A worker takes that for told, too.
            let is_forgotten = answer.head.status == 404 && !self.lodgers[&name].lives();
            if !is_forgotten {
                sound(answer)?;
            }
            self.told += 1;
            if let Some(lodger) = self.lodgers.get_mut(&name) {
                lodger.told = true;
            }
        }
        Ok(())
    }

    fn wire(&mut self) -> io::Result<&mut Wire> {
        if self.wire.is_none() {
            self.wire = Some(Wire::open(&self.place, Duration::from_secs(20))?);
        }
        self.wire
            .as_mut()
            .ok_or_else(|| io::Error::other("no wire"))
    }
}

fn numbers(replica: &DesiredReplica) -> BTreeSet<(Side, portreeve::port::Port)> {
    let ports = replica.desired.grant.ports.iter();
    ports
        .flat_map(|port| {
            Side::of(port.protocol)
                .flat_map(|side| port.numbers.iter().map(move |number| (side, number)))
        })
        .collect()
}
