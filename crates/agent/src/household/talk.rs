//! Speaking with the workers over their sockets, many at once.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use portreeve::registry::ReplicaReport;
use portreeve::residency::{Life, ReplicaName, Told};
use portreeve::supervision::{Leaving, Status};
use portreeve_api::local::{Tokens, WorkerAnswer, WorkerCommand};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use super::keeping::Addresses;
use super::{Household, folder, worker};

/// How many workers are spoken with at once: each takes two descriptors.
const AT_ONCE: usize = 64;
/// When a worker that did not answer is spoken to again; one that was just started has no socket yet.
const AGAIN: Duration = Duration::from_millis(500);
/// When a worker that refused is told again.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// One thing to say to a worker.
#[derive(Clone, Debug)]
pub(super) enum Talk {
    /// What is wanted of it.
    Want(Told),
    /// That it should say how it is.
    Ask,
    /// Where clients are sent.
    Address(Addresses),
    /// That the host ends it.
    Leave(Leaving),
    /// What the controller knows it by.
    Renew(Box<Tokens>),
}

impl Talk {
    fn command(&self) -> WorkerCommand {
        match self {
            Self::Want(told) => WorkerCommand::Want {
                want: told.want,
                restart_no: told.restart_no,
            },
            Self::Ask => WorkerCommand::Tell,
            Self::Leave(why) => WorkerCommand::Leave { why: *why },
            Self::Renew(tokens) => WorkerCommand::Renew {
                tokens: (**tokens).clone(),
            },
            Self::Address((address, ports)) => WorkerCommand::Address {
                address: *address,
                ports: ports.clone(),
            },
        }
    }
}

impl Household {
    /// Workers that do not know yet where clients are sent.
    pub(super) fn address_news(&self) -> Vec<(ReplicaName, Talk)> {
        let Some(address) = self.observed.borrow().published else {
            return Vec::new();
        };
        let wanted = self.wanted.as_ref().map(|wanted| &wanted.replicas);
        let watched = self
            .residents
            .iter()
            .filter(|(_, one)| one.life == Life::Watched);
        let unaware = watched.filter_map(|(name, _)| {
            let known = self.keeping.get(name)?.addresses.as_ref();
            let told = wanted.and_then(|wanted| wanted.get(name));
            let nothing = BTreeMap::new();
            let ports = told.map_or(&nothing, |one| &one.desired.addresses);
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

    /// Workers that the controller knows by other tokens: it was set up anew, or the replica is another service's now.
    /// Told before anything else, so that an end that follows is heard.
    pub(super) fn token_news(&self) -> Vec<(ReplicaName, Talk)> {
        let now = Instant::now();
        let wanted = self.wanted.as_ref().map(|wanted| wanted.replicas.iter());
        let news = wanted.into_iter().flatten().filter_map(|(name, one)| {
            let is_watched = self.residents.get(name)?.life == Life::Watched;
            let keeping = self.keeping.get(name)?;
            let known = keeping.assignment.as_ref()?;
            let is_due = keeping.renew_after.is_none_or(|after| after <= now);
            let is_news = is_watched && is_due && known.tokens != one.tokens;
            is_news.then(|| (name.clone(), Talk::Renew(Box::new(one.tokens.clone()))))
        });
        news.collect()
    }

    /// Says all of it; says whether anything changed.
    pub(super) async fn talk(&mut self, talks: Vec<(ReplicaName, Talk)>) -> bool {
        let now = Instant::now();
        let mut due = Vec::new();
        for (name, talk) in talks {
            let after = self
                .keeping
                .get(&name)
                .and_then(|keeping| keeping.talk_after);
            match after.filter(|after| *after > now) {
                Some(after) => self.later(after),
                None => due.push((name, talk)),
            }
        }
        let mut changed = false;
        for (name, talk, answer) in self.say(due).await {
            changed |= self.answered(&name, talk, answer);
        }
        changed
    }

    fn answered(
        &mut self,
        name: &ReplicaName,
        talk: Talk,
        answer: io::Result<WorkerAnswer>,
    ) -> bool {
        let (Some(resident), Some(keeping)) =
            (self.residents.get_mut(name), self.keeping.get_mut(name))
        else {
            return false;
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(cause) => {
                debug!("the worker of {name} does not answer: {cause}");
                let again = Instant::now() + AGAIN;
                keeping.talk_after = Some(again);
                self.later(again);
                return false;
            }
        };
        let was_final = resident.is_final();
        resident.status = newer(resident.status.take(), answer.status);
        let has_ended = resident.is_final() && !was_final;
        if let Some(refusal) = answer.refused {
            warn!("the worker of {name} refuses {talk:?}: {refusal}");
            let again = Instant::now() + AFTER_REFUSAL;
            let wait = match talk {
                Talk::Renew(_) => &mut keeping.renew_after,
                _ => &mut keeping.talk_after,
            };
            *wait = Some(again);
            self.later(again);
            return has_ended;
        }
        match talk {
            Talk::Ask => {
                if !has_ended {
                    let again = Instant::now() + AGAIN;
                    keeping.talk_after = Some(again);
                    self.later(again);
                }
                has_ended
            }
            Talk::Address(address) => {
                keeping.addresses = Some(address);
                true
            }
            Talk::Leave(_) => {
                keeping.is_leaving = true;
                true
            }
            Talk::Renew(tokens) => {
                if let Some(assignment) = &mut keeping.assignment {
                    assignment.tokens = *tokens;
                    if let Err(cause) = folder::prepare(&keeping.folder, assignment) {
                        error!("the assignment of {name} cannot be written: {cause}");
                    }
                }
                true
            }
            Talk::Want(told) => {
                resident.told = Some(told);
                // A worker that takes over while no controller answers begins from what is written there.
                if let Some(assignment) = &mut keeping.assignment
                    && (assignment.desired.want, assignment.desired.restart_no)
                        != (told.want, told.restart_no)
                {
                    assignment.desired.want = told.want;
                    assignment.desired.restart_no = told.restart_no;
                    resident.restart_no = told.restart_no;
                    if let Err(cause) = folder::prepare(&keeping.folder, assignment) {
                        error!("the assignment of {name} cannot be written: {cause}");
                    }
                }
                true
            }
        }
    }

    /// The newest status of every replica that lives here, as its worker tells it, else as it stands on disk.
    pub(super) async fn newest(&mut self) -> Vec<ReplicaReport> {
        let watched = self
            .residents
            .iter()
            .filter(|(_, one)| one.life == Life::Watched);
        let questions = watched.map(|(name, _)| (name.clone(), Talk::Ask)).collect();
        for (name, _, answer) in self.say(questions).await {
            let told = answer.ok().and_then(|answer| answer.status);
            let keeping = self.keeping.get(&name);
            let stored = keeping.and_then(|keeping| folder::status(&keeping.folder));
            if let Some(resident) = self.residents.get_mut(&name) {
                resident.status = newer(newer(resident.status.take(), stored), told);
            }
        }
        let living = self.residents.iter();
        let living = living.filter(|(_, one)| matches!(one.life, Life::Watched | Life::Orphaned));
        living
            .map(|(name, resident)| self.full_report_of(name, resident))
            .collect()
    }

    async fn say(
        &self,
        talks: Vec<(ReplicaName, Talk)>,
    ) -> Vec<(ReplicaName, Talk, io::Result<WorkerAnswer>)> {
        let mut answers = Vec::with_capacity(talks.len());
        let mut running = JoinSet::new();
        for (name, talk) in talks {
            while running.len() >= AT_ONCE {
                answers.extend(running.join_next().await);
            }
            let folder = self.folder_of(&name);
            running.spawn(async move {
                let answer = worker::tell(&folder, &talk.command()).await;
                (name, talk, answer)
            });
        }
        while let Some(answer) = running.join_next().await {
            answers.push(answer);
        }
        let spoken = answers.into_iter();
        spoken
            .map(|answer| answer.expect("speaking with a worker does not panic"))
            .collect()
    }
}

/// The one with the higher `(run, seq)`.
fn newer(known: Option<Status>, told: Option<Status>) -> Option<Status> {
    let place = |status: &Status| (status.run, status.seq);
    match (known, told) {
        (Some(known), Some(told)) if place(&known) > place(&told) => Some(known),
        (known, told) => told.or(known),
    }
}
