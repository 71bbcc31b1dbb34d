//! What clients are told: listed is what was last heard to be ready, where it is placed, under its own numbers.
//!
//! Exactly that is allowed beyond it: a host that is silent within its grace keeps its endpoints, and what a replica told
//! a moment ago is shown within [`SHOWN_WITHIN`]. What never reached the controller cannot be known there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use portreeve::endpoints::{Endpoint, EndpointTable, Entry, Snapshot};
use portreeve::identity::{HostName, Run, ServiceName};
use portreeve::port_pool::PortGrant;
use portreeve::registry::ServiceView;
use portreeve::residency::ReplicaName;
use portreeve::time::Monotonic;

use super::super::wire::Word;
use super::{Verdict, broken};

/// What is not ready any more leaves the list so soon after it was told.
const SHOWN_WITHIN: Duration = Duration::from_millis(20);

/// What this controller was told, newest first by run and number.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    told: BTreeMap<ReplicaName, Told>,
    /// The newest that any controller was told: what comes after it and is older was long on its way.
    newest: BTreeMap<ReplicaName, (Run, u64)>,
    /// What has to have left the list by then.
    withdrawn: BTreeSet<(Monotonic, ReplicaName)>,
    /// Hosts that are given up, and when all of theirs has to have left the list.
    lost: BTreeMap<HostName, Monotonic>,
}

#[derive(Debug)]
struct Told {
    order: (Run, u64),
    ready: bool,
    at: Monotonic,
}

impl Listing {
    /// Another controller: what it was not told it may not know, since readiness is no truth.
    pub(crate) fn begin(&mut self) {
        *self = Self {
            newest: std::mem::take(&mut self.newest),
            ..Self::default()
        };
    }

    /// The store is an older one: what begins again counts anew, beyond what that store knows.
    pub(crate) fn set_back(&mut self) {
        *self = Self::default();
    }

    /// How readers see a host now.
    pub(crate) fn host(&mut self, now: Monotonic, host: &HostName, is_lost: bool) {
        if !is_lost {
            self.lost.remove(host);
        } else if !self.lost.contains_key(host) {
            self.lost.insert(host.clone(), now + SHOWN_WITHIN);
        }
    }

    /// Nothing of a host that is given up is listed. Cost: linear in what is listed, unless no host is.
    pub(crate) fn nothing_lost(&self, now: Monotonic, table: &EndpointTable) -> Verdict {
        if self.lost.values().all(|due| *due >= now) {
            return Ok(());
        }
        for handle in table.services() {
            let found = handle.read(|snapshot| {
                let mut listed = snapshot.listed();
                let is_late =
                    |it: &&Endpoint| self.lost.get(&it.host).is_some_and(|due| *due < now);
                listed.find(is_late).map(|it| (it.replica, it.host.clone()))
            });
            if let Some((replica, host)) = found {
                let text = format!(
                    "{}/{replica} is listed at {} ms, and {host} is lost",
                    handle.service(),
                    now.as_millis()
                );
                return broken("nothing lost is listed", text);
            }
        }
        Ok(())
    }

    /// A status reached the controller, and nobody looks at what it shows of it. False: a newer one did before.
    pub(crate) fn passed(&mut self, word: &Word) -> bool {
        self.knows(&word.name, (word.run, word.seq))
    }

    /// The controller knows a word of this number, such as from its store. False: it knows a newer one.
    pub(crate) fn knows(&mut self, name: &ReplicaName, number: (Run, u64)) -> bool {
        match self.newest.get_mut(name) {
            Some(newest) if number < *newest => return false,
            Some(newest) => *newest = number,
            None => {
                self.newest.insert(name.clone(), number);
            }
        }
        true
    }

    /// A status reached the controller.
    pub(crate) fn told(&mut self, now: Monotonic, word: &Word) {
        if !self.passed(word) {
            return;
        }
        let name = &word.name;
        let (order, ready) = ((word.run, word.seq), word.is_ready);
        if let Some(told) = self.told.get_mut(name) {
            if told.order >= order {
                return;
            }
            told.order = order;
            if told.ready != ready {
                (told.ready, told.at) = (ready, now);
            }
        } else {
            let at = now;
            self.told.insert(name.clone(), Told { order, ready, at });
        }
        if !ready {
            self.withdrawn.insert((now + SHOWN_WITHIN, name.clone()));
        }
    }

    /// Looks for what should have left the list by `now`.
    pub(crate) fn due(&mut self, now: Monotonic, table: &EndpointTable) -> Verdict {
        while let Some((due, _)) = self.withdrawn.first()
            && *due < now
        {
            let Some((due, name)) = self.withdrawn.pop_first() else {
                break;
            };
            let is_ready = self.told.get(&name).is_some_and(|told| told.ready);
            let is_listed = table.read(&name.service, |snapshot| {
                let entry = snapshot.entry(&name.index);
                entry.is_some_and(|(it, _)| it.incarnation == name.incarnation && it.is_listed())
            });
            if is_listed == Some(true) && !is_ready {
                let text = format!("{name} was to leave the list by {} ms", due.as_millis());
                return broken("listed is ready", text);
            }
        }
        Ok(())
    }

    /// One service as it is shown at `now`.
    pub(crate) fn check(
        &self,
        now: Monotonic,
        snapshot: &Snapshot,
        view: Option<&ServiceView>,
        grant: &dyn Fn(&ReplicaName) -> Option<PortGrant>,
    ) -> Verdict {
        for endpoint in snapshot.listed() {
            let name = ReplicaName {
                service: snapshot.service().clone(),
                index: endpoint.replica,
                incarnation: endpoint.incarnation,
            };
            let replica = view.and_then(|it| it.replicas.of(endpoint.replica));
            let Some(replica) = replica.filter(|it| it.incarnation == endpoint.incarnation) else {
                return broken(
                    "listed is placed",
                    format!("{name} is listed and not known"),
                );
            };
            if !replica.ready {
                let text = format!("{name} is listed and shown as {}", replica.state);
                return broken("listed is ready", text);
            }
            if replica.host.as_ref() != Some(&endpoint.host) {
                let text = format!(
                    "{name} is listed on {} and placed on {:?}",
                    endpoint.host, replica.host
                );
                return broken("listed is placed", text);
            }
            if endpoint.address.is_none() || replica.address != endpoint.address {
                let text = format!(
                    "{name} is listed at {:?}, and {} publishes {:?}",
                    endpoint.address, endpoint.host, replica.address
                );
                return broken("listed at the published address", text);
            }
            ports_are_granted(&name, endpoint, grant(&name).as_ref())?;
            if let Some(told) = self.told.get(&name)
                && !told.ready
                && now.since(told.at) > SHOWN_WITHIN
            {
                let text = format!(
                    "{name} is listed at {} ms and told at {} ms that it is not ready",
                    now.as_millis(),
                    told.at.as_millis()
                );
                return broken("listed is ready", text);
            }
        }
        Ok(())
    }

    /// Forgets who is not named any more.
    pub(crate) fn keep(&mut self, is_known: impl Fn(&ReplicaName) -> bool) {
        self.told.retain(|name, _| is_known(name));
        self.newest.retain(|name, _| is_known(name));
    }
}

fn ports_are_granted(
    name: &ReplicaName,
    endpoint: &Endpoint,
    grant: Option<&PortGrant>,
) -> Verdict {
    for port in &endpoint.ports {
        let granted = grant.and_then(|it| it.port(&port.name));
        let is_granted =
            granted.is_some_and(|it| it.numbers == port.numbers && it.protocol == port.protocol);
        if !is_granted {
            let text = format!(
                "{name} is listed with {} {}/{}, and granted is {granted:?}",
                port.name, port.numbers, port.protocol
            );
            return broken("listed under its own numbers", text);
        }
    }
    Ok(())
}

/// What is told to stop left the list with the order.
pub(crate) fn not_listed(table: &EndpointTable, name: &ReplicaName) -> Verdict {
    let is_listed = table.read(&name.service, |snapshot| {
        let entry = snapshot.entry(&name.index);
        entry.is_some_and(|(it, _)| it.incarnation == name.incarnation && it.is_listed())
    });
    if is_listed == Some(true) {
        return broken(
            "what stops is not listed",
            format!("{name} is told to stop and is listed"),
        );
    }
    Ok(())
}

/// No two listed endpoints of all services are the same place. Cost: linear in all of them.
pub(crate) fn apart(table: &EndpointTable) -> Verdict {
    let mut places: BTreeMap<(IpAddr, bool, u16), (ServiceName, u32)> = BTreeMap::new();
    for handle in table.services() {
        let taken = handle.read(|snapshot| {
            let all = snapshot.listed().flat_map(|it| {
                let ports = it
                    .ports
                    .iter()
                    .filter_map(|port| Some((it.address_of(port)?, port)));
                ports.map(|(address, port)| (it.replica, address, port.numbers, port.protocol))
            });
            all.collect::<Vec<_>>()
        });
        for (replica, address, numbers, protocol) in taken {
            let sides = [(protocol.has_tcp(), true), (protocol.has_udp(), false)];
            for (_, tcp) in sides.into_iter().filter(|(is_on, _)| *is_on) {
                for port in numbers.iter() {
                    let whose = (handle.service().clone(), replica);
                    let other = places.insert((address, tcp, port.number()), whose.clone());
                    if let Some(other) = other.filter(|other| *other != whose) {
                        let text =
                            format!("{address} {port} is listed for {other:?} and {whose:?}");
                        return broken("one listed at a place", text);
                    }
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portreeve::endpoints::{Change, ServiceUpdate};
    use portreeve::supervision::State;

    use super::super::stage::Stage;
    use super::*;

    /// A service whose only replica is ready and listed.
    struct World {
        stage: Stage,
        name: ReplicaName,
        grant: PortGrant,
        listing: Listing,
    }

    impl World {
        fn new() -> Self {
            let mut stage = Stage::new("20000-20009");
            stage.submit("web", "[ports]\nhttp = \"any\"\n");
            let placed = stage.placed().remove(0);
            stage.becomes(&placed.name, 1, State::Up);
            let mut world = Self {
                stage,
                name: placed.name,
                grant: placed.grant,
                listing: Listing::default(),
            };
            world.told(1, State::Up);
            world
        }

        fn told(&mut self, seq: u64, state: State) {
            let word = Word {
                name: self.name.clone(),
                run: Run(1),
                seq,
                is_ready: state == State::Up,
                has_ended: false,
            };
            self.listing.told(self.stage.now.mono, &word);
        }

        fn check(&self) -> Result<(), &'static str> {
            let view = self.stage.registry.view();
            let service = view.services.get(&self.name.service);
            let grant = |_: &ReplicaName| Some(self.grant.clone());
            let found = self.stage.table.read(&self.name.service, |snapshot| {
                let service = service.map(AsRef::as_ref);
                (self.listing).check(self.stage.now.mono, snapshot, service, &grant)
            });
            found.unwrap().map_err(|it| it.invariant)
        }

        /// The table lies.
        fn publish(&self, change: impl FnOnce(&mut Endpoint)) {
            let service = self.name.service.clone();
            let listed = self.stage.table.read(&service, |it| {
                let mut all = it.listed();
                all.next().cloned()
            });
            let mut listed = listed.unwrap().unwrap();
            change(&mut listed);
            let update = ServiceUpdate {
                service,
                desired: 1,
                change: Change::Whole(vec![listed]),
            };
            let revision = self.stage.table.revision() + 1;
            self.stage.table.publish(revision, vec![update], &[]);
        }
    }

    #[test]
    fn what_is_ready_where_it_is_placed_may_be_listed() {
        let world = World::new();
        assert_eq!(world.check(), Ok(()));
        assert_eq!(apart(&world.stage.table), Ok(()));
    }

    #[test]
    fn another_incarnation_host_address_or_number_is_found() {
        let world = World::new();
        world.publish(|it| it.incarnation.0 += 1);
        assert_eq!(world.check(), Err("listed is placed"));
        let world = World::new();
        world.publish(|it| it.host = "n2".parse().unwrap());
        assert_eq!(world.check(), Err("listed is placed"));
        let world = World::new();
        world.publish(|it| it.address = Some([10, 0, 0, 9].into()));
        assert_eq!(world.check(), Err("listed at the published address"));
        let mut world = World::new();
        world.grant.ports.clear();
        assert_eq!(world.check(), Err("listed under its own numbers"));
    }

    #[test]
    fn what_told_that_it_is_not_ready_has_a_moment_to_leave_the_list() {
        let mut world = World::new();
        world.stage.pass(1000);
        // It reached the controller, which does nothing about it.
        world.told(2, State::Backoff);
        assert_eq!(world.check(), Ok(()));
        world.stage.pass(20);
        let due = |world: &mut World| {
            let found = world.listing.due(world.stage.now.mono, &world.stage.table);
            found.map_err(|it| it.invariant)
        };
        assert_eq!(due(&mut world), Ok(()));
        world.stage.pass(1);
        assert_eq!(due(&mut world), Err("listed is ready"));
        assert_eq!(world.check(), Err("listed is ready"));
        // An older word changes nothing.
        world.told(1, State::Up);
        assert_eq!(world.check(), Err("listed is ready"));
        world.told(3, State::Up);
        assert_eq!(world.check(), Ok(()));
        // Also where another controller begins, of which it is not known what it knows.
        world.listing.begin();
        world.told(2, State::Backoff);
        world.stage.pass(100);
        assert_eq!(due(&mut world), Ok(()));
        assert_eq!(world.check(), Ok(()));
    }

    /// The story: a controller stood still while a replica told that it is ready, took that in, and died. The word was lost
    /// on its host's full disk, whose next one is older than what the next controller found stored.
    #[test]
    fn what_is_older_than_what_a_controller_took_in_as_it_went_on_withdraws_nothing() {
        let mut world = World::new();
        let word = |seq, state| Word {
            name: world.name.clone(),
            run: Run(1),
            seq,
            is_ready: state == State::Up,
            has_ended: false,
        };
        let taken_in = word(3, State::Up);
        assert!(world.listing.passed(&taken_in));
        assert!(!world.listing.passed(&word(2, State::Up)));
        world.listing.begin();
        world.told(2, State::Backoff);
        world.stage.pass(100);
        let due = world.listing.due(world.stage.now.mono, &world.stage.table);
        assert_eq!(due, Ok(()));
        assert_eq!(world.check(), Ok(()));
    }

    #[test]
    fn what_stops_or_is_lost_and_stays_listed_is_found() {
        let mut world = World::new();
        let found = not_listed(&world.stage.table, &world.name).unwrap_err();
        assert_eq!(found.invariant, "what stops is not listed");
        let host: HostName = "n1".parse().unwrap();
        let at = Monotonic::from_millis;
        world.listing.host(at(1000), &host, true);
        assert_eq!(
            world.listing.nothing_lost(at(1020), &world.stage.table),
            Ok(())
        );
        let found = world.listing.nothing_lost(at(1021), &world.stage.table);
        assert_eq!(found.unwrap_err().invariant, "nothing lost is listed");
        world.listing.host(at(1030), &host, false);
        assert_eq!(
            world.listing.nothing_lost(at(1040), &world.stage.table),
            Ok(())
        );
    }

    #[test]
    fn one_place_listed_for_two_is_found() {
        let world = World::new();
        world.publish(|_| {});
        let other = ServiceUpdate {
            service: "other.alice".parse().unwrap(),
            desired: 1,
            change: Change::Whole(vec![Endpoint {
                labels: Arc::default(),
                ..world
                    .stage
                    .table
                    .read(&world.name.service, |it| it.listed().next().cloned())
                    .unwrap()
                    .unwrap()
            }]),
        };
        let revision = world.stage.table.revision() + 1;
        world.stage.table.publish(revision, vec![other], &[]);
        let found = apart(&world.stage.table).unwrap_err();
        assert_eq!(found.invariant, "one listed at a place");
    }
}
