//! What workers are told, and what their answers mean.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Household;
use super::assigned::{Assigned, Order};
use super::errand::{Answer, Errand, Talk};
use crate::residency::{Life, ReplicaName};
use crate::supervision::Status;
use crate::time::{Monotonic, Now};

/// When a worker that did not answer is spoken to again; one that was just started has no socket yet.
const AGAIN: Duration = Duration::from_millis(500);
/// When a worker that refused is told again.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);

impl<A: Assigned> Household<A> {
    /// What a worker answered to what it was told; `None`: nothing, or nothing in time.
    pub fn answered(
        &mut self,
        now: Now,
        name: &ReplicaName,
        talk: Talk<A::Tokens>,
        answer: Option<Answer>,
    ) {
        self.awaited = self.awaited.saturating_sub(1);
        let (Some(resident), Some(keeping)) =
            (self.residents.get_mut(name), self.keeping.get_mut(name))
        else {
            return;
        };
        if talk == Talk::Newest {
            let told = answer.and_then(|answer| answer.status);
            resident.status = newer(resident.status.take(), told);
            return;
        }
        let Some(answer) = answer else {
            let again = now.mono + AGAIN;
            keeping.talk_after = Some(again);
            return self.later(again);
        };
        let was_final = resident.is_final();
        resident.status = newer(resident.status.take(), answer.status);
        let has_ended = resident.is_final() && !was_final;
        self.changed |= has_ended;
        if answer.refused.is_some() {
            let again = now.mono + AFTER_REFUSAL;
            let wait = match talk {
                Talk::Renew(_) => &mut keeping.renew_after,
                _ => &mut keeping.talk_after,
            };
            *wait = Some(again);
            return self.later(again);
        }
        match talk {
            Talk::Ask | Talk::Newest => {
                if !has_ended {
                    let again = now.mono + AGAIN;
                    keeping.talk_after = Some(again);
                    self.later(again);
                }
                return;
            }
            Talk::Address(address) => keeping.addresses = Some(address),
            Talk::Leave(_) => keeping.is_leaving = true,
            Talk::Renew(tokens) => {
                if let Some(assignment) = &mut keeping.assignment {
                    assignment.set_tokens(tokens);
                    let write = Errand::WriteAssignment(name.clone());
                    self.out.push_back(write);
                }
            }
            Talk::Want(told) => {
                resident.told = Some(told);
                // A worker that takes over while no controller answers begins from what is written there.
                if let Some(assignment) = &mut keeping.assignment
                    && assignment.order().told() != told
                {
                    assignment.order_mut().set_told(told);
                    resident.restart_no = told.restart_no;
                    let write = Errand::WriteAssignment(name.clone());
                    self.out.push_back(write);
                }
            }
        }
        self.changed = true;
    }

    /// Workers that do not know yet where clients are sent.
    pub(super) fn address_news(&self) -> Vec<(ReplicaName, Talk<A::Tokens>)> {
        let Some(address) = self.published else {
            return Vec::new();
        };
        let wanted = self.wanted.as_ref();
        let nothing = BTreeMap::new();
        let unaware = self.watched().filter_map(|(name, _)| {
            let known = self.keeping.get(name)?.addresses.as_ref();
            let told = wanted.and_then(|wanted| wanted.get(name));
            let ports = told.map_or(&nothing, |(order, _)| order.addresses());
            // A port that is left out keeps what was told of it.
            let is_known = known.is_some_and(|(host, of_ports)| {
                *host == address
                    && ports
                        .iter()
                        .all(|(port, at)| of_ports.get(port) == Some(at))
            });
            if is_known {
                return None;
            }
            let mut all = known.map_or_else(BTreeMap::new, |(_, of_ports)| of_ports.clone());
            all.extend(ports.clone());
            Some((name.clone(), Talk::Address((address, all))))
        });
        unaware.collect()
    }

    /// Workers that the controller knows by other tokens: it was set up anew, or the replica is another service's now. One
    /// that refused them is told later.
    pub(super) fn token_news(&mut self, now: Monotonic) -> Vec<(ReplicaName, Talk<A::Tokens>)> {
        let (mut news, mut refused) = (Vec::new(), None);
        for (name, (_, tokens)) in self.wanted.iter().flatten() {
            let resident = self.residents.get(name);
            let is_watched = resident.is_some_and(|one| one.life == Life::Watched);
            let Some(keeping) = self.keeping.get(name).filter(|_| is_watched) else {
                continue;
            };
            let known = keeping.assignment.as_ref().map(|one| one.tokens());
            if known.is_none_or(|known| known == tokens) {
                continue;
            }
            match keeping.renew_after.filter(|after| *after > now) {
                Some(after) => refused = refused.into_iter().chain([after]).min(),
                None => news.push((name.clone(), Talk::Renew(tokens.clone()))),
            }
        }
        // Whatever else happens meanwhile.
        if let Some(after) = refused {
            self.later(after);
        }
        news
    }

    /// Has it said, but not to those who are not to be spoken to yet.
    pub(super) fn talk(&mut self, now: Now, talks: Vec<(ReplicaName, Talk<A::Tokens>)>) {
        let mut due = Vec::new();
        for (name, talk) in talks {
            let keeping = self.keeping.get(&name);
            let after = keeping.and_then(|keeping| keeping.talk_after);
            match after.filter(|after| *after > now.mono) {
                Some(after) => self.later(after),
                None => due.push((name, talk)),
            }
        }
        if !due.is_empty() {
            self.out.push_back(Errand::Talk(due));
        }
    }
}

/// The later word of one incarnation; the one that was told now where both have one number.
#[must_use]
pub fn newer(known: Option<Status>, told: Option<Status>) -> Option<Status> {
    match (known, told) {
        (Some(known), Some(told)) if known.number() != told.number() && !told.outdates(&known) => {
            Some(known)
        }
        (known, told) => told.or(known),
    }
}
