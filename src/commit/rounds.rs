//! The rounds of the one task that owns the registry: what is taken in together, and in which order its effects leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::endpoints::EndpointTable;
use crate::identity::HostName;
use crate::registry::{
    Batch, BatchNumber, Command, Effect, Explain, FitView, HostPorts, Input, Refusal, Registry,
    StoreError, Ticket, View,
};
use crate::rights::Caller;
use crate::time::{Monotonic, Now};

use super::{Orders, Step, Told};

/// Owns the registry and keeps apart what its store has, what waits for that, and who waits for what.
///
/// The driver's round: [`Rounds::command`] and [`Rounds::tell`] for everything that waits, until [`Rounds::is_full`];
/// then [`Rounds::flush`]. What the store did is told by [`Rounds::stored`] and [`Rounds::was_read`], and
/// [`Rounds::on_deadline`] is called when it is time. Every call returns at once and hands out what is to be done; a
/// driver that dies before it did all of it is as one that died before the call, but for what it did.
///
/// `C` is who gives a command, `T` who tells something: whatever finds them again.
#[derive(Debug)]
pub struct Rounds<C, T> {
    registry: Registry,
    store: StoreWork,
    has_begun: bool,
    /// Facts of the open round.
    taken: usize,
    next_ticket: u64,
    /// Who waits for an answer.
    tickets: BTreeMap<Ticket, C>,
    /// Acknowledged when the open round ends.
    taken_in: Vec<T>,
    /// Acknowledged when the batch that is with the store is durable.
    with_store: Vec<T>,
    /// Taken in after that batch left: acknowledged with the next one.
    behind: Vec<T>,
    /// Somebody waits for everything that is stored.
    is_asked_for: bool,
    /// A batch that waits for the store to be read.
    deferred: Option<Batch>,
    /// Of the open round.
    effects: Vec<Effect>,
    /// What readers see.
    shown: Arc<View>,
}

/// What the store is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreWork {
    Rests,
    Commits(BatchNumber),
    IsRead,
}

/// How the last news of a stopping controller is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastNews {
    /// The store is at work: wait for it.
    WithStore,
    /// Call [`Rounds::on_deadline`] then.
    Due(Monotonic),
    /// Nothing is left that is worth waiting for.
    Written,
}

impl<C, T> Rounds<C, T> {
    /// How many facts one round takes in: one commit holds them all.
    pub const ROUND: usize = 256;
    /// How many commands may wait for a store that is slow: their askers may leave, they do not.
    pub const MOST_UNANSWERED: usize = 1024;
    /// How long a stopping controller waits for news that is not yet written.
    pub const LAST_NEWS: Duration = Duration::from_millis(1_100);

    /// Rounds of a registry that was just loaded.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self {
            shown: registry.view(),
            registry,
            store: StoreWork::Rests,
            has_begun: false,
            taken: 0,
            next_ticket: 0,
            tickets: BTreeMap::new(),
            taken_in: Vec::new(),
            with_store: Vec::new(),
            behind: Vec::new(),
            is_asked_for: false,
            deferred: None,
            effects: Vec::new(),
        }
    }

    /// The table that readers of endpoints begin with; every [`Step::Publish`] goes into it.
    #[must_use]
    pub fn table(&self) -> EndpointTable {
        let removed = self.registry.removed();
        EndpointTable::new(self.registry.epoch().to_owned(), self.registry.revision())
            .remembering(removed.complete_after, removed.services)
    }

    /// Makes durable what a start must have on disk first. Listen to nobody before [`Rounds::has_begun`]; if a commit
    /// is refused before, the start is.
    pub fn begin(&mut self, now: Now, out: &mut Vec<Step<C, T>>) {
        self.flush(now, out);
        self.order_all(out);
    }

    /// Whether what is stored is shown and ordered, so that who asks first finds it.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Takes in a command of `by`, which the registry checks. One is refused at once if too many wait for the store.
    pub fn command(
        &mut self,
        now: Now,
        by: Caller,
        command: Command,
        from: C,
        out: &mut Vec<Step<C, T>>,
    ) {
        if self.tickets.len() >= Self::MOST_UNANSWERED {
            let answer = Err(too_many());
            out.push(Step::Answer { to: from, answer });
            return;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.tickets.insert(ticket, from);
        let input = Input::Command {
            ticket,
            by,
            command,
        };
        self.take_in(now, input);
    }

    /// Takes in what `from` tells, who is acknowledged once it is shown, or, if it is truth, once what it changed is
    /// durable.
    pub fn tell(&mut self, now: Now, told: Told, from: T) {
        let waiting = if told.is_truth {
            &mut self.behind
        } else {
            &mut self.taken_in
        };
        waiting.push(from);
        self.take_in(now, told.input);
    }

    /// Whether the round has to end before more is taken in.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.taken >= Self::ROUND
    }

    /// Ends the round.
    pub fn flush(&mut self, now: Now, out: &mut Vec<Step<C, T>>) {
        self.taken = 0;
        self.registry.flush(now, &mut self.effects);
        self.perform(out);
        let taken_in = std::mem::take(&mut self.taken_in);
        acknowledge(taken_in, &Ok(()), out);
    }

    /// The store has done [`Step::Commit`], or refused it.
    pub fn stored(&mut self, now: Now, result: &Result<(), StoreError>, out: &mut Vec<Step<C, T>>) {
        let StoreWork::Commits(batch) = self.store else {
            return;
        };
        self.store = StoreWork::Rests;
        let outcome = match result {
            Ok(()) => {
                self.registry.committed(batch, &mut self.effects);
                Ok(())
            }
            Err(cause) => {
                let reason = cause.to_string();
                self.registry
                    .commit_failed(batch, &reason, &mut self.effects);
                Err(reason)
            }
        };
        // Taken before the flush: what leaves with the next batch is not done with this one.
        let waited = std::mem::take(&mut self.with_store);
        self.registry.flush(now, &mut self.effects);
        self.perform(out);
        acknowledge(waited, &outcome, out);
        if outcome.is_ok() {
            self.order_all(out);
        }
        self.read_if_asked(out);
    }

    /// Somebody wants everything that is stored, of one moment: [`Step::Read`] follows when it is their turn. False
    /// if somebody waits already.
    pub fn ask_for_stored(&mut self, out: &mut Vec<Step<C, T>>) -> bool {
        if self.is_asked_for {
            return false;
        }
        self.is_asked_for = true;
        self.read_if_asked(out);
        true
    }

    /// The store has done [`Step::Read`].
    pub fn was_read(&mut self, out: &mut Vec<Step<C, T>>) {
        if self.store != StoreWork::IsRead {
            return;
        }
        self.store = StoreWork::Rests;
        match self.deferred.take() {
            Some(batch) => self.send(batch, out),
            None => self.perform(out),
        }
        self.read_if_asked(out);
    }

    /// When [`Rounds::on_deadline`] is to be called, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.registry.next_deadline()
    }

    /// Does what is due. A timer may fire a moment early; then there is nothing to do.
    pub fn on_deadline(&mut self, now: Now, out: &mut Vec<Step<C, T>>) {
        self.registry.on_deadline(now, &mut self.effects);
        self.perform(out);
    }

    /// What a controller has to wait for that is stopping since `since`, and takes nothing in any more.
    #[must_use]
    pub fn last_news(&self, since: Monotonic) -> LastNews {
        if self.store != StoreWork::Rests {
            return LastNews::WithStore;
        }
        match self.registry.next_deadline() {
            Some(due) if due <= since + Self::LAST_NEWS => LastNews::Due(due),
            _ => LastNews::Written,
        }
    }

    /// Of a driver that dies, whoever waits for a word of it: those with commands, and those who told something.
    #[must_use]
    pub fn break_off(self) -> (Vec<C>, Vec<T>) {
        let told = [self.taken_in, self.with_store, self.behind];
        let commands = self.tickets.into_values();
        (commands.collect(), told.into_iter().flatten().collect())
    }

    /// The registry, for questions that change nothing.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// [`Registry::host_ports`].
    pub fn host_ports(&mut self, now: Now, reader: &Caller, host: &HostName) -> Option<HostPorts> {
        self.registry.host_ports(now, reader, host)
    }

    /// [`Registry::explain`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn explain(&mut self, now: Now, by: &Caller, what: &Explain) -> Result<FitView, Refusal> {
        self.registry.explain(now, by, what)
    }

    fn take_in(&mut self, now: Now, input: Input) {
        self.taken += 1;
        self.registry.handle(now, input, &mut self.effects);
    }

    /// Puts what the registry gave in the order in which it leaves.
    fn perform(&mut self, out: &mut Vec<Step<C, T>>) {
        let mut answers = Vec::new();
        let mut ordered = Vec::new();
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Commit(batch) => self.commit(batch, out),
                Effect::Publish {
                    revision,
                    services,
                    removed,
                } => out.push(Step::Publish {
                    revision,
                    services,
                    removed,
                }),
                Effect::Answer { ticket, answer } => answers.push((ticket, answer)),
                Effect::Order { host } => ordered.push(host),
            }
        }
        self.show(out);
        for (ticket, answer) in answers {
            if let Some(to) = self.tickets.remove(&ticket) {
                out.push(Step::Answer { to, answer });
            }
        }
        for host in ordered {
            self.order(host, out);
        }
        if self.store != StoreWork::Rests {
            return;
        }
        if !self.registry.is_undecided() {
            // Nothing is with the store or will be, so nothing of what was taken in needed it.
            let behind = std::mem::take(&mut self.behind);
            acknowledge(behind, &Ok(()), out);
        }
    }

    /// Orders what is stored, once that is durable: nobody was told of it since this start.
    fn order_all(&mut self, out: &mut Vec<Step<C, T>>) {
        if self.has_begun || self.store != StoreWork::Rests {
            return;
        }
        self.has_begun = true;
        let hosts: Vec<_> = self.shown.hosts.keys().cloned().collect();
        for host in hosts {
            self.order(host, out);
        }
    }

    fn show(&mut self, out: &mut Vec<Step<C, T>>) {
        let view = self.registry.view();
        if !Arc::ptr_eq(&view, &self.shown) {
            self.shown = Arc::clone(&view);
            out.push(Step::Show(view));
        }
    }

    fn order(&self, host: HostName, out: &mut Vec<Step<C, T>>) {
        let orders = match self.registry.desired(&host) {
            Some((revision, report_first, replicas)) => Orders {
                revision,
                report_first,
                replicas: replicas.into(),
            },
            None => Orders::of_unknown(),
        };
        let orders = Arc::new(orders);
        out.push(Step::Order { host, orders });
    }

    fn commit(&mut self, batch: Batch, out: &mut Vec<Step<C, T>>) {
        self.with_store.append(&mut self.behind);
        // Whoever waits to read comes first, or under load never.
        self.read_if_asked(out);
        if self.store == StoreWork::Rests {
            self.send(batch, out);
        } else {
            assert!(
                self.deferred.replace(batch).is_none(),
                "the registry gives one batch at a time"
            );
        }
    }

    fn send(&mut self, batch: Batch, out: &mut Vec<Step<C, T>>) {
        self.store = StoreWork::Commits(batch.number);
        out.push(Step::Commit(batch));
    }

    /// Has the store read to who waits for that, once it rests.
    fn read_if_asked(&mut self, out: &mut Vec<Step<C, T>>) {
        if self.store == StoreWork::Rests && std::mem::take(&mut self.is_asked_for) {
            self.store = StoreWork::IsRead;
            out.push(Step::Read);
        }
    }
}

fn acknowledge<C, T>(waiting: Vec<T>, outcome: &Result<(), String>, out: &mut Vec<Step<C, T>>) {
    let acknowledged = waiting.into_iter().map(|to| Step::Acknowledge {
        to,
        outcome: outcome.clone(),
    });
    out.extend(acknowledged);
}

fn too_many() -> Refusal {
    Refusal::NotStored {
        reason: "it is slow, and as many changes as may wait for it do; ask again".to_owned(),
    }
}

#[cfg(test)]
#[path = "rounds_test.rs"]
mod tests;
