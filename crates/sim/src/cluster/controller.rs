//! The controller as a process: it starts, takes in what arrives, takes turns, stands still, and dies anywhere.
//!
//! What it decides and in which order that leaves is production's (`portreeve::commit`). Here is what a machine does to
//! it: the time a commit takes, a death after the third effect of a turn, a socket that refuses because nobody listens.

mod arrived;
mod life;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use portreeve::commit::{Rounds, Step};
use portreeve::endpoints::EndpointTable;
use portreeve::identity::ServiceName;
use portreeve::registry::{Answer, Batch, Command, Config, Refusal, Registry, StoreError, View};
use portreeve::rights::Caller;
use portreeve::time::{Monotonic, Now, WallClock};

use super::act::{ControllerAct, HostNo};
use super::chance::Chance;
use super::desks::Desks;
use super::sight::{Sight, Subject, What};
use super::spec::{DiskSpec, Spec};
use super::store::{Ended, VirtualStore};
use super::telling::Telling;
use super::wire::{Asker, Heard, Question, Reply};
use arrived::Arrived;

/// One order of a person: rises through the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PersonNo(pub(crate) u64);

/// What became of a person's order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Done(Answer),
    /// Nothing was changed.
    Refused(Refusal),
    /// Nobody listened: nothing was changed.
    Unreachable,
    /// The controller died meanwhile: it may be done or not.
    Lost,
}

/// What comes out of the controller.
#[derive(Debug)]
pub(crate) enum ControllerOut {
    Reply(Asker, Reply),
    Answered(PersonNo, Outcome),
    Saw(Sight),
    /// It stood still when this was said, and has listened to it now.
    TookIn(HostNo, Heard),
    /// The store took this, or refused.
    Wrote {
        batch: Batch,
        accepted: bool,
    },
}

impl ControllerOut {
    fn turns_away(&self, asker: &Asker) -> bool {
        let Self::Reply(to, reply) = self else {
            return false;
        };
        to == asker && matches!(reply, Reply::Refused { .. } | Reply::Unreachable)
    }
}

/// The controller's machine: the store that outlives it, and the process, if there is one.
#[derive(Debug)]
pub(crate) struct ControllerNode {
    config: Config,
    store: VirtualStore,
    process: Option<Box<Process>>,
    /// The supervisor starts it then: at the beginning, and where a start did not succeed.
    starts_again: Option<Monotonic>,
    starts: u64,
    /// The store holds a copy whose epoch no reader shall believe.
    begins_epoch: bool,
    /// The process dies after so many more effects.
    dies_after: Option<u32>,
    telling: Telling,
    chance: Chance,
}

/// One life of the controller.
#[derive(Debug)]
struct Process {
    rounds: Rounds<PersonNo, Asker>,
    table: EndpointTable,
    view: Arc<View>,
    desks: Desks,
    /// It listens: what must be durable at a start is.
    is_open: bool,
    is_halted: bool,
    /// What arrived while it stood still.
    inbox: VecDeque<Arrived>,
    /// Whether something was taken in since the last turn.
    took_in: bool,
}

/// The supervisor starts it again so long after a start that did not succeed.
const STARTS_AGAIN: Duration = Duration::from_secs(2);
/// As many connections wait for a process that stands still; further ones are lost.
const BACKLOG: usize = 65_536;

impl ControllerNode {
    /// It starts as soon as time begins.
    pub(crate) fn new(spec: &Spec, chance: &Chance) -> Self {
        Self {
            config: spec.config.clone(),
            store: VirtualStore::new(spec.disk.clone(), chance.split("disk")),
            process: None,
            starts_again: Some(Monotonic::default()),
            starts: 0,
            begins_epoch: spec.config.begin_epoch,
            dies_after: None,
            telling: Telling::new(spec),
            chance: chance.split("controller"),
        }
    }

    /// What it decides with; `None`: it is down.
    pub(crate) fn registry(&self) -> Option<&Registry> {
        self.process
            .as_ref()
            .map(|process| process.rounds.registry())
    }

    /// What readers see; `None`: it is down, or does not listen yet.
    pub(crate) fn view(&self) -> Option<&Arc<View>> {
        self.open().map(|process| &process.view)
    }

    /// What clients read; `None`: it is down, or does not listen yet.
    pub(crate) fn table(&self) -> Option<&EndpointTable> {
        self.open().map(|process| &process.table)
    }

    /// Whether it listens and does not stand still.
    pub(crate) fn is_up(&self) -> bool {
        self.open().is_some_and(|process| !process.is_halted)
    }

    /// Whether a batch is with the store.
    pub(crate) fn is_storing(&self) -> bool {
        self.store.next().is_some()
    }

    /// How often it was started.
    pub(crate) const fn starts(&self) -> u64 {
        self.starts
    }

    pub(crate) const fn store(&self) -> &VirtualStore {
        &self.store
    }

    pub(crate) const fn telling(&self) -> &Telling {
        &self.telling
    }

    fn open(&self) -> Option<&Process> {
        self.process.as_deref().filter(|process| process.is_open)
    }

    pub(crate) fn disk_becomes(&mut self, spec: DiskSpec) {
        self.store.become_like(spec);
    }

    /// Everything that is wrong is right again, and it runs.
    pub(crate) fn heal(&mut self, now: Now, out: &mut Vec<ControllerOut>) {
        self.store.heal();
        self.dies_after = None;
        self.act(now, &ControllerAct::Continued, out);
        self.act(now, &ControllerAct::Starts, out);
    }

    /// A question arrives; `sent` is what its sender's clock showed.
    pub(crate) fn ask(
        &mut self,
        now: Now,
        asker: Asker,
        question: Question,
        sent: WallClock,
        out: &mut Vec<ControllerOut>,
    ) {
        self.arrive(now, Arrived::Question(asker, question, sent), out);
    }

    /// A person orders something.
    pub(crate) fn person(
        &mut self,
        now: Now,
        person: PersonNo,
        by: Caller,
        command: Command,
        out: &mut Vec<ControllerOut>,
    ) {
        self.arrive(now, Arrived::Order(person, by, Box::new(command)), out);
    }

    fn arrive(&mut self, now: Now, arrived: Arrived, out: &mut Vec<ControllerOut>) {
        match self.process.as_mut().filter(|process| process.is_open) {
            None => out.push(arrived.refused_to_connect()),
            Some(process) if !process.is_halted => self.take_in(now, arrived, out),
            Some(process) if process.inbox.len() < BACKLOG => process.inbox.push_back(arrived),
            // What nobody accepts gets no answer.
            Some(_) => out.extend(arrived.unanswered()),
        }
    }

    fn take_in(&mut self, now: Now, arrived: Arrived, out: &mut Vec<ControllerOut>) {
        if self.process.as_ref().is_some_and(|it| it.rounds.is_full()) {
            self.flush(now, out);
        }
        let Some(process) = &mut self.process else {
            return out.push(arrived.broken());
        };
        match arrived {
            Arrived::Question(asker, question, sent) => {
                let Process {
                    rounds,
                    view,
                    desks,
                    took_in,
                    ..
                } = process.as_mut();
                if let Some((asker, told)) = desks.hear(now, asker, question, sent, view, out) {
                    rounds.tell(now, told, asker);
                    *took_in = true;
                }
            }
            Arrived::Order(person, by, command) => {
                let mut steps = Vec::new();
                let rounds = &mut process.rounds;
                rounds.command(now, by, *command, person, &mut steps);
                process.took_in = true;
                self.perform(now, steps, out);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        let Some(process) = &self.process else {
            return self.starts_again;
        };
        if process.is_halted {
            return None;
        }
        let all = [
            process.took_in.then_some(Monotonic::default()),
            process.desks.next_deadline(),
            self.store.next(),
            process.rounds.next_deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// One turn: whatever is due first.
    pub(crate) fn on_deadline(&mut self, now: Now, out: &mut Vec<ControllerOut>) {
        let Some(process) = &mut self.process else {
            if self.starts_again.is_some_and(|at| at <= now.mono) {
                self.start(now, out);
            }
            return;
        };
        if process.is_halted {
            return;
        }
        if let Some(ended) = self.store.end(now.mono) {
            self.stored(now, ended, out);
        } else if process.took_in {
            self.flush(now, out);
        } else if process
            .desks
            .next_deadline()
            .is_some_and(|at| at <= now.mono)
        {
            process.desks.end_holds(now.mono, out);
        } else {
            let mut steps = Vec::new();
            process.rounds.on_deadline(now, &mut steps);
            self.perform(now, steps, out);
        }
    }

    fn stored(&mut self, now: Now, ended: Ended, out: &mut Vec<ControllerOut>) {
        let (batch, result) = match ended {
            Ended::Died { written } => {
                let how = ["died in a commit", "died in a commit that is written"];
                return self.die(now, how[usize::from(written)], out);
            }
            Ended::Told { batch, result } => (batch, result),
        };
        let Some(process) = &mut self.process else {
            return;
        };
        let refusal = result.as_ref().err().filter(|_| !process.is_open);
        let refusal = refusal.map(StoreError::to_string);
        let mut steps = Vec::new();
        if refusal.is_none() {
            process.rounds.stored(now, &result, &mut steps);
        }
        let accepted = result.is_ok();
        if accepted {
            self.telling.committed(now, &batch, out);
        }
        out.push(ControllerOut::Wrote { batch, accepted });
        if let Some(cause) = refusal {
            // Nothing listens yet: it ends, and its supervisor tries again.
            self.starts_again = Some(now.mono + STARTS_AGAIN);
            return self.die(now, &format!("cannot start: {cause}"), out);
        }
        self.perform(now, steps, out);
    }

    fn flush(&mut self, now: Now, out: &mut Vec<ControllerOut>) {
        let mut steps = Vec::new();
        if let Some(process) = &mut self.process {
            process.took_in = false;
            process.rounds.flush(now, &mut steps);
        }
        self.perform(now, steps, out);
    }

    /// Does what a turn gave, in its order, as far as it lives.
    fn perform(
        &mut self,
        now: Now,
        steps: Vec<Step<PersonNo, Asker>>,
        out: &mut Vec<ControllerOut>,
    ) {
        let mut listed = Vec::new();
        let mut steps = steps.into_iter();
        for step in steps.by_ref() {
            if self.dies_here() {
                // Whom it would have told now hears of it by the broken connection.
                out.extend([step].into_iter().chain(steps).filter_map(broken));
                self.die(now, "died in the middle of a turn", out);
                return;
            }
            self.do_one(now, step, &mut listed, out);
        }
        let Some(process) = &mut self.process else {
            return;
        };
        for (revision, service) in listed {
            self.telling
                .listed(now, &process.view, revision, service, out);
        }
        if !process.is_open && process.rounds.has_begun() {
            process.is_open = true;
            self.begins_epoch = false;
            saw(now, "listens", out);
        }
    }

    fn do_one(
        &mut self,
        now: Now,
        step: Step<PersonNo, Asker>,
        listed: &mut Vec<(u64, ServiceName)>,
        out: &mut Vec<ControllerOut>,
    ) {
        let Some(process) = &mut self.process else {
            return;
        };
        match step {
            Step::Commit(batch) => self.store.begin(now.mono, batch),
            Step::Read => unreachable!("nobody asks for what is stored: a backup is a copy here"),
            Step::Publish {
                revision,
                services,
                removed,
            } => {
                let names = services.iter().map(|it| it.service.clone());
                listed.extend(names.map(|name| (revision, name)));
                process.table.publish(revision, services, &removed);
            }
            Step::Show(view) => process.view = view,
            Step::Answer { to, answer } => {
                let outcome = answer.map_or_else(Outcome::Refused, Outcome::Done);
                out.push(ControllerOut::Answered(to, outcome));
            }
            Step::Order { host, orders } => process.desks.put_up(&host, orders, out),
            Step::Acknowledge { to, outcome } => {
                let reply = match outcome {
                    Ok(()) => process.desks.acknowledgement(now.wall),
                    Err(_) => Reply::Refused {
                        status: 503,
                        reason: "not_stored".to_owned(),
                    },
                };
                out.push(ControllerOut::Reply(to, reply));
            }
        }
    }
}

/// What becomes of one who was to be told by this step.
fn broken(step: Step<PersonNo, Asker>) -> Option<ControllerOut> {
    match step {
        Step::Answer { to, .. } => Some(ControllerOut::Answered(to, Outcome::Lost)),
        Step::Acknowledge { to, .. } => Some(ControllerOut::Reply(to, Reply::Unreachable)),
        Step::Commit(_)
        | Step::Read
        | Step::Publish { .. }
        | Step::Show(_)
        | Step::Order { .. } => None,
    }
}

fn saw(now: Now, what: &str, out: &mut Vec<ControllerOut>) {
    out.push(ControllerOut::Saw(Sight {
        at: now.mono,
        of: Subject::Controller,
        what: What::Befell(what.to_owned()),
    }));
}
