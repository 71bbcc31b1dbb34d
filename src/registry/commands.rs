//! What users ask for: checked whole before anything changes, so that refused means unchanged.

use crate::identity::ServiceName;
use crate::profile::Replicas;
use crate::rights::Caller;
use crate::supervision::State;

use super::attach::not_ours;
use super::machine::Registry;
use super::records::{Phase, Replica, Roll, RollKind, Service, StopWhy, Wish};
use super::truth::ReplicaKey;
use super::{Answer, Command, Refusal};

impl Registry {
    /// Does what is asked, or says why not; then nothing changed.
    pub(super) fn command(&mut self, by: &Caller, command: Command) -> Result<Answer, Refusal> {
        if !by.may_change() && !command.is_for_viewers() {
            return Err(Refusal::ViewersChangeNothing {
                user: by.user.clone(),
            });
        }
        match command {
            Command::Submit(submission) => self.submit(by, submission),
            Command::Scale { service, replicas } => self.scale(by, &service, replicas),
            Command::Start { service } => self.start(by, &service),
            Command::Stop { service } => self.stop(by, &service),
            Command::Restart { service, index } => self.restart(by, &service, index),
            Command::Kill { service, index } => self.kill(by, &service, index),
            Command::Attach(attachment) => self.attach(by, *attachment),
            Command::Delete { service } => self.delete(by, &service),
            Command::OnlyIf {
                precondition,
                command,
            } => {
                self.holds(by, &precondition, &command)?;
                self.command(by, *command)
            }
            Command::Host { host, verb } => self.host_command(by, &host, verb),
            Command::Token(order) => self.token_command(by, *order),
        }
    }

    fn scale(&mut self, by: &Caller, name: &ServiceName, replicas: u32) -> Result<Answer, Refusal> {
        let service = self.managed(by, name, "scale")?;
        not_ours(service, "start or end such jobs")?;
        let unfit = |reason: String| Refusal::Unfit {
            service: name.clone(),
            reason,
        };
        if service.profile().replicas == Replicas::PerHost {
            let reason = "it runs one replica on each eligible host; its profile says so";
            return Err(unfit(reason.to_owned()));
        }
        if replicas > Replicas::MOST {
            return Err(unfit(format!(
                "{replicas} replicas are asked for; at most {} are allowed",
                Replicas::MOST
            )));
        }
        if replicas > service.desired {
            self.fit_within_limits(by, name, service.profile(), replicas)?;
        }
        let (id, before, wish) = (service.id, service.desired, service.wish);
        let mut notes = vec![if before == replicas {
            format!("nothing to change: it has {} already", copies(replicas))
        } else {
            format!("scaled from {before} to {}", copies(replicas))
        }];
        notes.extend(self.room_notes(service, replicas));
        if wish == Wish::Stopped {
            notes.push(format!("it is stopped; `portreeve start {name}` runs it"));
        }
        if before == replicas {
            return Ok(answer(name, false, notes));
        }
        self.tell_service(
            id,
            "scaled",
            format!("scaled from {before} to {replicas} by {}", by.user),
        );
        self.resize(id, replicas, &by.user);
        Ok(answer(name, true, notes))
    }

    fn start(&mut self, by: &Caller, name: &ServiceName) -> Result<Answer, Refusal> {
        let service = self.managed(by, name, "start")?;
        not_ours(service, "start such a job again")?;
        let id = service.id;
        let changed = self.run_again(id, &by.user, |_| true);
        if !changed {
            let note = "nothing to change: every replica runs, or is about to";
            return Ok(answer(name, false, vec![note.to_owned()]));
        }
        self.tell_service(id, "started", format!("started by {}", by.user));
        Ok(answer(name, true, vec!["started".to_owned()]))
    }

    fn stop(&mut self, by: &Caller, name: &ServiceName) -> Result<Answer, Refusal> {
        let service = self.managed(by, name, "stop")?;
        let (id, wish) = (service.id, service.wish);
        let goes_on = |replica: &Replica| match &replica.phase {
            Phase::Waiting(_) => true,
            Phase::Placed(placement) => placement
                .stop
                .as_ref()
                .is_none_or(|order| !order.why.is_final()),
            Phase::Ended(_) => false,
        };
        let going = self.truth.replicas_of(id).filter(|(_, it)| goes_on(it));
        let going: Vec<u32> = going.map(|(index, _)| index).collect();
        if wish == Wish::Stopped && going.is_empty() {
            let note = "nothing to change: it is stopped already";
            return Ok(answer(name, false, vec![note.to_owned()]));
        }
        if let Some(service) = self.truth.services.change(&id) {
            service.wish = Wish::Stopped;
            service.roll = None;
        }
        self.tell_service(id, "stopped", format!("stopped by {}", by.user));
        let note = match u32::try_from(going.len()).unwrap_or(u32::MAX) {
            0 => "stopped".to_owned(),
            live => format!(
                "stopping {}; `portreeve wait {name} --gone` waits for the end",
                copies(live)
            ),
        };
        for index in going {
            self.halt((id, index), StopWhy::Stopped, &by.user);
        }
        Ok(answer(name, true, vec![note]))
    }

    fn restart(
        &mut self,
        by: &Caller,
        name: &ServiceName,
        index: Option<u32>,
    ) -> Result<Answer, Refusal> {
        let service = self.managed(by, name, "restart")?;
        let (id, rolling) = (service.id, service.roll.clone());
        let unfit = |reason: String| Refusal::Unfit {
            service: name.clone(),
            reason,
        };
        if let Some(index) = index {
            let replica = self.replica(name, (id, index))?;
            if !runs(replica) {
                return Err(unfit(format!(
                    "replica {index} does not run; `portreeve start {name}` starts what ended"
                )));
            }
            self.restart_in_place((id, index), &by.user);
            let note = format!("restarting replica {index} in place");
            return Ok(answer(name, true, vec![note]));
        }
        if let Some(roll) = rolling {
            return Err(unfit(format!(
                "the {} by {} is under way with {} to go; wait for it, or restart one replica",
                roll.kind.word(),
                roll.by,
                copies(roll.left()),
            )));
        }
        let remaining = self.truth.replicas_of(id).filter(|(_, it)| runs(it));
        let remaining: std::collections::BTreeSet<u32> =
            remaining.map(|(index, _)| index).collect();
        if remaining.is_empty() {
            return Err(unfit(format!(
                "no replica runs; `portreeve start {name}` starts what ended"
            )));
        }
        let count = u32::try_from(remaining.len()).unwrap_or(u32::MAX);
        let order = order_of(count);
        let mut notes = vec![format!("restarting {} in place{order}", copies(count))];
        notes.extend(gap_note(remaining.len()));
        let text = format!("restart of {} ordered by {}", copies(count), by.user);
        self.tell_service(id, "restart", text);
        self.begin_roll(
            id,
            Roll {
                kind: RollKind::Restart,
                by: by.user.clone(),
                current: None,
                remaining,
            },
        );
        Ok(answer(name, true, notes))
    }

    fn kill(&mut self, by: &Caller, name: &ServiceName, index: u32) -> Result<Answer, Refusal> {
        let id = self.managed(by, name, "kill")?.id;
        let replica = self.replica(name, (id, index))?;
        let changed = match &replica.phase {
            Phase::Ended(_) => false,
            Phase::Waiting(_) => true,
            Phase::Placed(placement) => placement
                .stop
                .as_ref()
                .is_none_or(|order| order.why != StopWhy::Killed),
        };
        if !changed {
            let note = format!("nothing to change: replica {index} is ended already");
            return Ok(answer(name, false, vec![note]));
        }
        self.spare(id, index);
        self.halt((id, index), StopWhy::Killed, &by.user);
        let after = if self.is_attached(id) {
            "its job ends with it".to_owned()
        } else {
            format!("`portreeve start {name}` runs it again")
        };
        let note = format!("stopping replica {index}; {after}");
        Ok(answer(name, true, vec![note]))
    }

    fn delete(&mut self, by: &Caller, name: &ServiceName) -> Result<Answer, Refusal> {
        let service = self.managed(by, name, "delete")?;
        let id = service.id;
        let lives = |replica: &Replica| !matches!(replica.phase, Phase::Ended(_));
        let live = self.truth.replicas_of(id).filter(|(_, it)| lives(it));
        let live = u32::try_from(live.count()).unwrap_or(u32::MAX);
        if live > 0 {
            return Err(Refusal::StillRunning {
                service: name.clone(),
                live,
            });
        }
        self.forget_service(id);
        Ok(answer(name, true, vec!["deleted".to_owned()]))
    }

    /// The service, if the asker may manage it. What may not be seen is answered like what does not exist.
    pub(super) fn managed(
        &self,
        by: &Caller,
        name: &ServiceName,
        action: &'static str,
    ) -> Result<&Service, Refusal> {
        let service = self
            .names
            .get(name)
            .and_then(|id| self.truth.services.find(id));
        let owner = |service: &Service| service.owner.user.clone();
        let service = service
            .filter(|it| by.may_see(it.holding()))
            .ok_or_else(|| Refusal::NoSuchService {
                service: name.clone(),
            })?;
        if by.may_manage(service.holding()) {
            Ok(service)
        } else {
            Err(Refusal::NotAllowed {
                user: by.user.clone(),
                action,
                service: name.clone(),
                owner: owner(service),
            })
        }
    }

    fn replica(&self, name: &ServiceName, key: ReplicaKey) -> Result<&Replica, Refusal> {
        self.truth
            .replicas
            .find(&key)
            .ok_or_else(|| Refusal::NoSuchReplica {
                service: name.clone(),
                index: key.1,
            })
    }
}

/// Whether it has a process, or is about to, and was not told to end.
pub(super) fn runs(replica: &Replica) -> bool {
    let ended = |replica: &Replica| {
        let state = replica.status.as_ref().map(|status| &status.state);
        matches!(state, Some(State::Final(_)))
    };
    matches!(&replica.phase, Phase::Placed(placement) if placement.stop.is_none())
        && !ended(replica)
}

/// What a roll over so many replicas means for clients.
pub(super) fn gap_note(replicas: usize) -> Vec<String> {
    let note = "with one replica nothing is listed until it is ready again";
    (replicas == 1)
        .then(|| note.to_owned())
        .into_iter()
        .collect()
}

/// In which order a roll takes so many replicas.
pub(super) const fn order_of(replicas: u32) -> &'static str {
    match replicas {
        1 => "",
        _ => ", one after the other, the highest first",
    }
}

/// `1 replica`, `3 replicas`.
pub(super) fn copies(count: u32) -> String {
    let word = if count == 1 { "replica" } else { "replicas" };
    format!("{count} {word}")
}

pub(super) fn answer(service: &ServiceName, changed: bool, notes: Vec<String>) -> Answer {
    Answer {
        service: Some(service.clone()),
        host: None,
        changed,
        notes,
        granted: None,
    }
}
