//! What may leave only after a batch, and when the next batch is due.

use std::collections::BTreeSet;

use crate::identity::HostId;
use crate::time::Monotonic;

use super::machine::Registry;
use super::{Answer, Batch, BatchNumber, Effect, Refusal, Ticket};

/// Answers and orders on hold, and the batch that is with the store.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// For the next batch.
    open: Held,
    /// The batch with the store, and what waits for it.
    sent: Option<(BatchNumber, Held)>,
    last: BatchNumber,
    /// News waits for a batch until then.
    news_due: Option<Monotonic>,
    /// After a refused batch: nothing is decided before, commands apart.
    resting_until: Option<Monotonic>,
}

/// What waits for one batch.
#[derive(Debug, Default)]
pub(super) struct Held {
    answers: Vec<(Ticket, Result<Answer, Refusal>)>,
    /// Hosts whose wanted set changes with it.
    pub(super) orders: BTreeSet<HostId>,
}

impl Held {
    /// The answers, once the batch is durable.
    pub(super) fn answers(&self) -> impl Iterator<Item = Effect> {
        self.answers.iter().map(|(ticket, answer)| Effect::Answer {
            ticket: *ticket,
            answer: answer.clone(),
        })
    }

    /// The answers if it never will be. Refusals too: they may rest on what is undone.
    pub(super) fn refusals(&self, reason: &str) -> impl Iterator<Item = Effect> {
        self.answers.iter().map(move |(ticket, _)| Effect::Answer {
            ticket: *ticket,
            answer: Err(Refusal::NotStored {
                reason: reason.to_owned(),
            }),
        })
    }
}

impl Outbox {
    /// Whether a batch is with the store.
    pub(super) const fn is_busy(&self) -> bool {
        self.sent.is_some()
    }

    /// Whether a refused batch still rests.
    pub(super) fn is_resting(&self, now: Monotonic) -> bool {
        self.resting_until.is_some_and(|until| now < until)
    }

    /// Decides nothing before `until`; the store is asked again then, or by the next command.
    pub(super) const fn rest(&mut self, until: Monotonic) {
        self.resting_until = Some(until);
    }

    /// The store writes again.
    pub(super) const fn end_rest(&mut self) {
        self.resting_until = None;
    }

    pub(super) fn hold(&mut self, ticket: Ticket, answer: Result<Answer, Refusal>) {
        self.open.answers.push((ticket, answer));
    }

    /// The wanted set of `host` changes with the next batch.
    pub(super) fn order(&mut self, host: HostId) {
        self.open.orders.insert(host);
    }

    /// What waited for `batch`, if that is the one with the store.
    pub(super) fn landed(&mut self, batch: BatchNumber) -> Option<Held> {
        let (_, held) = self.sent.take_if(|(number, _)| *number == batch)?;
        Some(held)
    }

    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        match (self.news_due, self.resting_until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl Registry {
    /// Emits the open batch if truth waits for it, or news has waited long enough.
    pub(super) fn commit_if_due(&mut self, out: &mut Vec<Effect>) {
        if self.outbox.is_busy() {
            return;
        }
        let now = self.now.mono;
        self.outbox.resting_until.take_if(|until| *until <= now);
        if self.truth.has_news() {
            let due = now + self.config.news_delay;
            self.outbox.news_due.get_or_insert(due);
        }
        let news_is_due = self.outbox.news_due.is_some_and(|due| due <= now);
        let ceiling_is_due = self.needs_ceiling() && !self.outbox.is_resting(now);
        if !self.truth.is_changed() && !news_is_due && !ceiling_is_due {
            return;
        }
        self.raise_ceiling();
        self.tell_rights();
        self.outbox.news_due = None;
        self.outbox.last.0 += 1;
        let number = self.outbox.last;
        self.outbox.sent = Some((number, std::mem::take(&mut self.outbox.open)));
        let writes = self.truth.take_writes();
        out.push(Effect::Commit(Batch { number, writes }));
    }
}
