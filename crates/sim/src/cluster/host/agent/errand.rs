//! What an agent does about the replicas of its host, one thing after another, and what it talks of with their workers.

use std::time::Duration;

use portreeve::attendance::Order;
use portreeve::registry::ReplicaReport;
use portreeve::residency::ReplicaName;
use portreeve::residency::household::{Answer, Errand, Hindrance, Remains, Start, Talk, newer};
use portreeve::supervision::{StartFailure, Status};
use portreeve::time::{Monotonic, Now};

use super::super::agenda::Actor;
use super::super::replica::Assignment;
use super::super::worker::By;
use super::super::{Due, Host, HostOut, Place};
use super::{PATIENCE_WITH_WORKERS, number};

impl Host {
    pub(super) fn run_errand(
        &mut self,
        now: Now,
        errand: Errand<Assignment>,
        out: &mut Vec<HostOut>,
    ) {
        match errand {
            // Other numbers may be ours now.
            Errand::Turn => self.numbers_changed(now.mono),
            Errand::Talk(talks) => {
                for (name, talk) in talks {
                    self.talk(now.mono, name, talk);
                }
            }
            Errand::Start(start) => self.agent_starts_worker(now, *start),
            Errand::EndByForce(name) => {
                let ended = self.end_by_force(now, &name, out);
                if let Some(agent) = self.agent.as_mut() {
                    agent.household.forced(now, &name, Some(ended));
                }
            }
            Errand::Hopeless(name, times) => {
                let words = format!("its worker ended {times} times before it could say a word");
                if let Some(agent) = self.agent.as_mut() {
                    let why = StartFailure::Prepare(words);
                    agent.household.hopeless(now, &name, why);
                }
            }
            Errand::StoreStatus(name) => {
                let status = self.agent.as_ref();
                let status = status
                    .and_then(|agent| agent.household.status(&name))
                    .cloned();
                let place = self.place_of(&name);
                if let Some(status) = status
                    && let Some(replica) = self.replicas.get_mut(&place)
                {
                    if self.is_disk_full {
                        replica.folder.mark_over();
                    } else {
                        replica.folder.conclude(status);
                    }
                }
            }
            Errand::WriteAssignment(name) => {
                let assigned = self.agent.as_ref();
                let assigned = assigned.and_then(|agent| agent.household.assignment(&name));
                let assigned = assigned.cloned().filter(|_| !self.is_disk_full);
                if let Some(assigned) = assigned
                    && let Some(replica) = self.replica_mut(&name)
                {
                    replica.assigned = Some(assigned);
                }
            }
            Errand::MarkEnded(name) => {
                // The mark is a name alone, which needs no room.
                if let Some(replica) = self.replica_mut(&name) {
                    replica.folder.end(now.mono);
                }
            }
            Errand::Clear(_) => {}
            Errand::LetGo(assignment) => {
                let desired = &assignment.desired;
                let name = ReplicaName {
                    service: desired.service.clone(),
                    index: desired.index,
                    incarnation: desired.incarnation,
                };
                self.end_by_force(now, &name, out);
            }
            Errand::Remove(name) => self.remove(&name),
            Errand::Report(name, status) => {
                let report = ReplicaReport::of(self.host_name(), &name, *status);
                let mut outgoing = Vec::new();
                if let Some(agent) = self.agent.as_mut() {
                    agent.uplink.ended(now, name, report, &mut outgoing);
                }
                self.send(now, outgoing, out);
            }
            Errand::Gathered(statuses) => self.agent_gathered(now, statuses, out),
            Errand::Word(..) => {}
        }
    }

    pub(super) fn agent_gathered(
        &mut self,
        now: Now,
        statuses: Vec<(ReplicaName, Status)>,
        out: &mut Vec<HostOut>,
    ) {
        let host = self.host_name();
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        let household = &agent.household;
        let reports = statuses.into_iter().map(|(name, status)| {
            let order = household.assignment(&name).map(|one| &*one.desired);
            let report = ReplicaReport::of(host.clone(), &name, status).with_order(order);
            (name, report)
        });
        let reports = reports.collect();
        let mut outgoing = Vec::new();
        agent.uplink.gathered(now, reports, &mut outgoing);
        self.send(now, outgoing, out);
    }

    /// Says something to a worker. One that has not begun has no ear yet.
    pub(super) fn talk(&mut self, now: Monotonic, name: ReplicaName, talk: Talk<()>) {
        let place = self.names.get(&name).copied();
        let worker = place.and_then(|place| self.replicas.get(&place)?.worker.as_ref());
        let hears = worker.is_some_and(|worker| worker.attendance.is_some());
        let stands_still = worker.is_some_and(|worker| worker.halted.is_some());
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        agent.talked += 1;
        let (life, number) = (agent.life, agent.talked);
        let order = order_of(&talk);
        agent.talks.insert(number, (place, name, talk));
        if let Some(place) = place.filter(|_| hears) {
            let by = By::Agent { life, talk: number };
            self.order(now, place, order, by);
        }
        if !hears || stands_still {
            let patience = if hears {
                PATIENCE_WITH_WORKERS
            } else {
                Duration::ZERO
            };
            let due = Due::Answered(life, number, None);
            self.agenda.put(now + patience, Actor::Agent, 0, due);
        }
    }

    /// The worker of this place stands still or is gone: it does not answer any more.
    pub(crate) fn talks_fail(&mut self, at: Monotonic, place: Place) {
        let Some(agent) = self.agent.as_ref() else {
            return;
        };
        for (number, _) in agent
            .talks
            .iter()
            .filter(|(_, (of, ..))| *of == Some(place))
        {
            let due = Due::Answered(agent.life, *number, None);
            self.agenda.put(at, Actor::Agent, 0, due);
        }
    }

    pub(super) fn agent_is_answered(&mut self, now: Now, talk: u64, answer: Option<Answer>) {
        let Some(agent) = self.agent.as_mut() else {
            return;
        };
        let Some((place, name, talk)) = agent.talks.remove(&talk) else {
            return;
        };
        let mut answer = answer;
        if talk == Talk::Newest
            && let Some(replica) = place.and_then(|place| self.replicas.get(&place))
        {
            let record = replica.worker.as_ref().and_then(|worker| worker.record());
            let stored = replica.folder.status(record).cloned();
            let told = answer.take().and_then(|answer| answer.status);
            answer = Some(Answer {
                status: newer(stored, told),
                refused: None,
            });
        }
        agent.household.answered(now, &name, talk, answer);
    }

    /// A worker has ended.
    pub(super) fn agent_buries(&mut self, place: Place, life: u64) {
        let (Some(agent), Some(replica)) = (self.agent.as_mut(), self.replicas.get(&place)) else {
            return;
        };
        let remains = if replica.folder.is_ended() {
            Remains::Ended
        } else {
            let live = replica.worker.as_ref().and_then(|worker| worker.record());
            Remains::Folder(replica.folder.status(live).cloned())
        };
        let name = replica.name.clone();
        agent.household.worker_ended(name, number(life), remains);
    }

    /// Writes the assignment down and starts a worker.
    pub(super) fn agent_starts_worker(&mut self, now: Now, start: Start<Assignment>) {
        let Start {
            name,
            order,
            host_address,
            ..
        } = start;
        if self.is_disk_full {
            let words = "its folder cannot be prepared: ENOSPC, no space left on device";
            let why = Hindrance::Failed(StartFailure::Prepare(words.to_owned()));
            if let Some(agent) = self.agent.as_mut() {
                agent.household.not_started(now, &name, why);
            }
            return;
        }
        let assignment = Assignment {
            desired: order,
            address: host_address,
            boot: self.boot,
        };
        let place = self.place_of(&name);
        self.assign(place, assignment.clone());
        let life = self.start_worker(now.mono, place);
        if let Some(agent) = self.agent.as_mut() {
            agent
                .household
                .started(now, &name, number(life), assignment);
        }
    }

    /// Whatever lives of a replica is killed; whether nothing is left of it.
    pub(super) fn end_by_force(
        &mut self,
        now: Now,
        name: &ReplicaName,
        out: &mut Vec<HostOut>,
    ) -> bool {
        let Some(place) = self.names.get(name).copied() else {
            return true;
        };
        if self
            .replicas
            .get(&place)
            .is_some_and(|one| one.worker.is_some())
        {
            self.worker_dies(now, place, "killed by the agent", out);
        }
        self.end_processes(now.mono, place)
    }
}

fn order_of(talk: &Talk<()>) -> Order {
    match talk {
        Talk::Want(told) => Order::Want {
            want: told.want,
            restart_no: told.restart_no,
        },
        Talk::Ask | Talk::Newest | Talk::Renew(()) => Order::Tell,
        Talk::Address((address, ports)) => Order::Address {
            address: *address,
            ports: ports.clone(),
        },
        Talk::Leave(why) => Order::Leave { why: *why },
    }
}
