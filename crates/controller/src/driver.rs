//! The one task that owns the registry: it drains its queue, commits, then shows, answers and orders.
//!
//! Invariant: effects are performed in the order in which the registry gave them, and a view that an
//! answer speaks of is visible before the answer leaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portreeve::endpoints::EndpointTable;
use portreeve::identity::HostName;
use portreeve::registry::{
    Answer, Batch, BatchNumber, Effect, Input, Refusal, Registry, Store, StoreError, Stored,
    Ticket, View,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::clock;
use crate::desk::{Desks, Orders};
use crate::meters::Commits;
use crate::queue::{Fact, Question, Queue, Reply};
use crate::stop::Stop;
use crate::vital;

/// What the driver shows to readers, who never wait for it.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) table: EndpointTable,
    pub(crate) view: watch::Sender<Arc<View>>,
    /// The view's revision when a service last left it.
    pub(crate) removed: AtomicU64,
    /// Rises when a service is stale no more, after the view says so. No revision moves with it.
    pub(crate) synced: watch::Sender<u64>,
    /// The revision at which it last changed who may see a service, after the view says so.
    pub(crate) rights: watch::Sender<u64>,
    pub(crate) desks: Desks,
    /// Commits that were made durable.
    pub(crate) commits: AtomicU64,
    /// Whether the newest commit was accepted.
    pub(crate) writable: AtomicBool,
    /// Why the newest commit was refused, where it was.
    pub(crate) refused: Mutex<Option<String>>,
    pub(crate) commit_meters: Commits,
}

/// Owns the registry and the store.
pub(crate) struct Driver {
    registry: Registry,
    store: Option<Box<dyn Store>>,
    shown: Arc<Shown>,
    facts: mpsc::Receiver<Fact>,
    questions: mpsc::Receiver<Question>,
    done: mpsc::Receiver<Done>,
    report_done: mpsc::Sender<Done>,
    next_ticket: u64,
    tickets: BTreeMap<Ticket, oneshot::Sender<Result<Answer, Refusal>>>,
    /// Acknowledged when the batch that is with the store is durable.
    with_store: Vec<oneshot::Sender<Result<(), String>>>,
    /// Taken in after that batch left: acknowledged with the next one.
    behind: Vec<oneshot::Sender<Result<(), String>>>,
    /// Who waits for everything that is stored.
    reader: Option<oneshot::Sender<Result<Stored, StoreError>>>,
    /// A batch that waits for the store to be read.
    deferred: Option<Batch>,
    /// What was said last of a refused commit, and when.
    complained: Option<(Instant, String)>,
}

/// A store that came back.
struct Done {
    store: Box<dyn Store>,
    work: Work,
}

/// What it did.
enum Work {
    Committed(Committed),
    /// It was read and told.
    Read,
}

/// What became of a batch.
struct Committed {
    batch: BatchNumber,
    records: usize,
    took: Duration,
    result: Result<(), StoreError>,
}

impl Driver {
    /// How many facts one round takes in: one commit holds them all.
    const ROUND: usize = 256;
    /// How many commands may wait for a store that is slow: their askers may leave, they do not.
    const MOST_UNANSWERED: usize = 1024;
    /// How often the log says that the store refuses commits for one and the same reason.
    const COMPLAINS_EVERY: Duration = Duration::from_secs(60);
    /// How long a stopping controller waits for news that is not yet written.
    const LAST_NEWS: Duration = Duration::from_millis(1_100);

    pub(crate) fn new(registry: Registry, store: Box<dyn Store>) -> (Self, Arc<Shown>, Queue) {
        let removed = registry.removed();
        let table = EndpointTable::new(registry.epoch().to_owned(), registry.revision())
            .remembering(removed.complete_after, removed.services);
        let shown = Arc::new(Shown {
            table,
            view: watch::Sender::new(registry.view()),
            removed: AtomicU64::new(registry.view().revision),
            synced: watch::Sender::new(registry.view().synced),
            rights: watch::Sender::new(registry.view().rights),
            desks: Desks::default(),
            commits: AtomicU64::new(0),
            writable: AtomicBool::new(true),
            refused: Mutex::default(),
            commit_meters: Commits::default(),
        });
        let (queue, facts, questions) = Queue::new();
        let (report_done, done) = mpsc::channel(1);
        let driver = Self {
            registry,
            store: Some(store),
            shown: Arc::clone(&shown),
            facts,
            questions,
            done,
            report_done,
            next_ticket: 0,
            tickets: BTreeMap::new(),
            with_store: Vec::new(),
            behind: Vec::new(),
            reader: None,
            deferred: None,
            complained: None,
        };
        (driver, shown, queue)
    }

    /// Shows what is stored, and makes durable what a start must have on disk first.
    ///
    /// Orders are derived here from stored state: whoever asks first finds them.
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        let mut effects = Vec::new();
        self.registry.flush(clock::now(), &mut effects);
        self.perform(effects);
        while self.store.is_none() {
            if let Some(done) = self.done.recv().await {
                let result = match &done.work {
                    Work::Committed(commit) => commit.result.clone(),
                    Work::Read => Ok(()),
                };
                self.came_back(done);
                result?;
            }
        }
        let hosts: Vec<_> = self.registry.view().hosts.keys().cloned().collect();
        for host in hosts {
            self.order(&host);
        }
        Ok(())
    }

    /// Runs until every [`Queue`] is gone or `stopping` says so, then leaves nothing unwritten.
    pub(crate) async fn run(mut self, mut stopping: Stop) {
        loop {
            let deadline = self.registry.next_deadline();
            let due = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep(deadline.since(clock::now().mono)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(done) = self.done.recv() => self.came_back(done),
                fact = self.facts.recv() => match fact {
                    Some(fact) => self.round(fact),
                    None => break,
                },
                Some(question) = self.questions.recv() => self.answer(question),
                () = due => self.on_deadline(),
                () = stopping.said() => break,
            }
        }
        self.end().await;
    }

    /// Answers what changes nothing. An asker may have left.
    fn answer(&mut self, question: Question) {
        match question {
            Question::Events { service, reply } => {
                let _ = reply.send(self.registry.events(&service));
            }
            Question::HostEvents { host, reply } => {
                let _ = reply.send(self.registry.host_events(&host));
            }
            Question::PortHistory {
                reader,
                host,
                asked,
                reply,
            } => {
                let _ = reply.send(self.registry.port_history(&reader, &host, &asked));
            }
            Question::Ports {
                reader,
                host,
                reply,
            } => {
                let _ = reply.send(self.registry.host_ports(clock::now(), &reader, &host));
            }
            // One at a time: the other is told so by the dropped reply.
            Question::Stored { reply } if self.reader.is_none() => {
                self.reader = Some(reply);
                self.read();
            }
            Question::Stored { .. } => {}
            Question::Explain { by, what, reply } => {
                let _ = reply.send(self.registry.explain(clock::now(), &by, &what));
            }
        }
    }

    fn round(&mut self, first: Fact) {
        let now = clock::now();
        let mut effects = Vec::new();
        let mut taken_in = Vec::new();
        let mut next = Some(first);
        let mut room = Self::ROUND;
        while let Some(fact) = next {
            let input = match fact {
                Fact::Command { reply, .. } if self.tickets.len() >= Self::MOST_UNANSWERED => {
                    // The asker may have left.
                    let _ = reply.send(Err(too_many()));
                    next = self.facts.try_recv().ok();
                    continue;
                }
                Fact::Command { by, command, reply } => {
                    let ticket = Ticket(self.next_ticket);
                    self.next_ticket += 1;
                    self.tickets.insert(ticket, reply);
                    Input::Command {
                        ticket,
                        by,
                        command,
                    }
                }
                Fact::Input { input, reply } => {
                    match reply {
                        Reply::TakenIn(reply) => taken_in.push(reply),
                        Reply::Durable(reply) => self.behind.push(reply),
                    }
                    input
                }
            };
            self.registry.handle(now, input, &mut effects);
            room -= 1;
            next = (room > 0).then(|| self.facts.try_recv().ok()).flatten();
        }
        self.registry.flush(now, &mut effects);
        self.perform(effects);
        acknowledge(taken_in, &Ok(()));
    }

    fn on_deadline(&mut self) {
        let now = clock::now();
        // A timer may fire a moment early; the registry then has nothing to do.
        let mut effects = Vec::new();
        self.registry.on_deadline(now, &mut effects);
        self.perform(effects);
    }

    /// Takes the store back.
    fn came_back(&mut self, done: Done) {
        self.store = Some(done.store);
        match done.work {
            Work::Committed(commit) => self.stored(&commit),
            Work::Read => match self.deferred.take() {
                Some(batch) => self.send(batch),
                None => self.perform(Vec::new()),
            },
        }
        self.read();
    }

    /// Tells the registry what became of its batch.
    fn stored(&mut self, commit: &Committed) {
        let mut effects = Vec::new();
        let outcome = match &commit.result {
            Ok(()) => {
                self.shown.commits.fetch_add(1, Ordering::Relaxed);
                let meters = &self.shown.commit_meters;
                meters.accepted(commit.took, commit.records);
                if !self.shown.writable.load(Ordering::Relaxed) {
                    tracing::info!("the store takes commits again");
                }
                self.registry.committed(commit.batch, &mut effects);
                Ok(())
            }
            Err(cause) => {
                let reason = cause.to_string();
                let meters = &self.shown.commit_meters;
                meters.refused.fetch_add(1, Ordering::Relaxed);
                self.complain(&reason);
                self.registry
                    .commit_failed(commit.batch, &reason, &mut effects);
                Err(reason)
            }
        };
        *self.shown.refused.lock() = outcome.clone().err();
        self.shown
            .writable
            .store(outcome.is_ok(), Ordering::Relaxed);
        let waited = std::mem::take(&mut self.with_store);
        self.registry.flush(clock::now(), &mut effects);
        self.perform(effects);
        acknowledge(waited, &outcome);
    }

    /// Says that a commit was refused: again after a while, or with other words. A full disk is asked each second, and
    /// may be the log's too.
    fn complain(&mut self, reason: &str) {
        let now = Instant::now();
        let said = self.complained.as_ref();
        if said.is_some_and(|(at, said)| said == reason && now < *at + Self::COMPLAINS_EVERY) {
            return;
        }
        tracing::error!(
            cause = reason,
            "a commit was refused; nothing of it was changed"
        );
        self.complained = Some((now, reason.to_owned()));
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        let mut answers = Vec::new();
        let mut orders = Vec::new();
        for effect in effects {
            match effect {
                Effect::Commit(batch) => self.commit(batch),
                Effect::Publish {
                    revision,
                    services,
                    removed,
                } => {
                    self.shown.table.publish(revision, services, &removed);
                }
                Effect::Answer { ticket, answer } => answers.push((ticket, answer)),
                Effect::Order { host } => orders.push(host),
            }
        }
        self.show();
        for (ticket, answer) in answers {
            if let Some(reply) = self.tickets.remove(&ticket) {
                // The asker may have left.
                let _ = reply.send(answer);
            }
        }
        for host in orders {
            self.order(&host);
        }
        if self.store.is_some() && !self.registry.is_undecided() {
            // Nothing is with the store or will be, so nothing of what was taken in needed it.
            acknowledge(std::mem::take(&mut self.behind), &Ok(()));
        }
    }

    fn show(&self) {
        let view = self.registry.view();
        if Arc::ptr_eq(&view, &self.shown.view.borrow()) {
            return;
        }
        let (synced, rights) = (view.synced, view.rights);
        self.shown
            .removed
            .fetch_max(view.removed, Ordering::Release);
        self.shown.view.send_if_modified(|shown| {
            // That a host was heard of again is shown, but nobody waits for it.
            let wakes = shown.revision != view.revision;
            *shown = view;
            wakes
        });
        move_to(&self.shown.synced, synced);
        move_to(&self.shown.rights, rights);
    }

    fn order(&self, host: &HostName) {
        if let Some((revision, report_first, replicas)) = self.registry.desired(host) {
            self.shown.desks.of(host).put(Orders {
                revision,
                report_first,
                replicas,
            });
        }
    }

    fn commit(&mut self, batch: Batch) {
        self.with_store.append(&mut self.behind);
        // Whoever waits to read comes first, or under load never.
        self.read();
        if self.store.is_some() {
            self.send(batch);
        } else {
            assert!(
                self.deferred.replace(batch).is_none(),
                "the registry gives one batch at a time"
            );
        }
    }

    fn send(&mut self, batch: Batch) {
        self.have_store(move |store| {
            let begun = Instant::now();
            let result = store.commit(&batch);
            Work::Committed(Committed {
                batch: batch.number,
                records: batch.writes.len(),
                took: begun.elapsed(),
                result,
            })
        });
    }

    /// Has the store read to who waits for that, once it is here.
    fn read(&mut self) {
        if self.store.is_some()
            && let Some(reader) = self.reader.take()
        {
            self.have_store(move |store| {
                // The asker may have left.
                let _ = reader.send(store.load());
                Work::Read
            });
        }
    }

    /// Has the store, which is here, do something on a thread of its own.
    fn have_store(&mut self, work: impl FnOnce(&mut dyn Store) -> Work + Send + 'static) {
        let mut store = self
            .store
            .take()
            .expect("who has the store do something sees that it is here");
        let report = self.report_done.clone();
        vital::spawn("store", async move {
            let done = vital::blocking("store", move || {
                let work = work(store.as_mut());
                Done { store, work }
            });
            // The driver that would hear of it may be gone.
            let _ = report.send(done.await).await;
        });
    }

    /// Takes in what was sent before the stop, writes it with the last news, and closes the store.
    async fn end(mut self) {
        self.facts.close();
        while let Some(fact) = self.facts.recv().await {
            self.round(fact);
        }
        let latest = Instant::now() + Self::LAST_NEWS;
        loop {
            if self.store.is_none() {
                match self.done.recv().await {
                    Some(done) => self.came_back(done),
                    None => return,
                }
                continue;
            }
            let Some(deadline) = self.registry.next_deadline() else {
                return;
            };
            let due = Instant::now() + deadline.since(clock::now().mono);
            if due > latest {
                return;
            }
            tokio::time::sleep_until(due).await;
            self.on_deadline();
        }
    }
}

/// Moves a number that others wait on; they sleep on if it is there already.
fn move_to(number: &watch::Sender<u64>, to: u64) {
    number.send_if_modified(|now| std::mem::replace(now, to) != to);
}

fn too_many() -> Refusal {
    Refusal::NotStored {
        reason: "it is slow, and as many changes as may wait for it do; ask again".to_owned(),
    }
}

fn acknowledge(waiting: Vec<oneshot::Sender<Result<(), String>>>, outcome: &Result<(), String>) {
    for reply in waiting {
        // The sender may have left; it sends again what it is not sure of.
        let _ = reply.send(outcome.clone());
    }
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod tests;
