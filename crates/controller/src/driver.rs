//! The one task that owns the truth: it drains its queue into [`Rounds`] and does what they say, in their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portreeve::commit::{LastNews, Rounds, Step};
use portreeve::endpoints::EndpointTable;
use portreeve::registry::{Answer, Refusal, Registry, Store, StoreError, Stored, View};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::clock;
use crate::desk::Desks;
use crate::meters::Commits;
use crate::queue::{Fact, Question, Queue};
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
    /// Rises when a token is made, renewed or revoked, after the view says so, and when other rights are bound.
    pub(crate) access: watch::Sender<u64>,
    pub(crate) desks: Desks,
    /// Commits that were made durable.
    pub(crate) commits: AtomicU64,
    /// Whether the newest commit was accepted.
    pub(crate) writable: AtomicBool,
    /// Why the newest commit was refused, where it was.
    pub(crate) refused: Mutex<Option<String>>,
    pub(crate) commit_meters: Commits,
}

/// Drives [`Rounds`] and owns the store.
pub(crate) struct Driver {
    rounds: Rounds<Asker, Teller>,
    /// `None` while it does something on a thread of its own.
    store: Option<Box<dyn Store>>,
    shown: Arc<Shown>,
    facts: mpsc::Receiver<Fact>,
    questions: mpsc::Receiver<Question>,
    done: mpsc::Receiver<Done>,
    report_done: mpsc::Sender<Done>,
    /// Who waits for everything that is stored.
    reader: Option<oneshot::Sender<Result<Stored, StoreError>>>,
    /// What was said last of a refused commit, and when.
    complained: Option<(Instant, String)>,
}

/// Who waits for an answer to a command, and who for word that what it told was taken in. Both may have left; who tells
/// something tells again what it is not sure of.
type Asker = oneshot::Sender<Result<Answer, Refusal>>;
type Teller = oneshot::Sender<Result<(), String>>;

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
    records: usize,
    took: Duration,
    result: Result<(), StoreError>,
}

impl Driver {
    /// How often the log says that the store refuses commits for one and the same reason.
    const COMPLAINS_EVERY: Duration = Duration::from_secs(60);

    pub(crate) fn new(registry: Registry, store: Box<dyn Store>) -> (Self, Arc<Shown>, Queue) {
        let rounds = Rounds::new(registry);
        let view = rounds.registry().view();
        let shown = Arc::new(Shown {
            table: rounds.table(),
            removed: AtomicU64::new(view.revision),
            synced: watch::Sender::new(view.synced),
            rights: watch::Sender::new(view.rights),
            access: watch::Sender::new(0),
            view: watch::Sender::new(view),
            desks: Desks::default(),
            commits: AtomicU64::new(0),
            writable: AtomicBool::new(true),
            refused: Mutex::default(),
            commit_meters: Commits::default(),
        });
        let (queue, facts, questions) = Queue::new();
        let (report_done, done) = mpsc::channel(1);
        let driver = Self {
            rounds,
            store: Some(store),
            shown: Arc::clone(&shown),
            facts,
            questions,
            done,
            report_done,
            reader: None,
            complained: None,
        };
        (driver, shown, queue)
    }

    /// Shows and orders what is stored, and makes durable what a start must have on disk first.
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        let mut steps = Vec::new();
        self.rounds.begin(clock::now(), &mut steps);
        self.perform(steps);
        while !self.rounds.has_begun() {
            if let Some(done) = self.done.recv().await {
                let result = match &done.work {
                    Work::Committed(commit) => commit.result.clone(),
                    Work::Read => Ok(()),
                };
                self.came_back(done);
                result?;
            }
        }
        Ok(())
    }

    /// Runs until every [`Queue`] is gone or `stopping` says so, then leaves nothing unwritten.
    pub(crate) async fn run(mut self, mut stopping: Stop) {
        loop {
            let deadline = self.rounds.next_deadline();
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
        let registry = self.rounds.registry();
        match question {
            Question::Events { service, reply } => {
                let _ = reply.send(registry.events(&service));
            }
            Question::HostEvents { host, reply } => {
                let _ = reply.send(registry.host_events(&host));
            }
            Question::PortHistory {
                reader,
                host,
                asked,
                reply,
            } => {
                let _ = reply.send(registry.port_history(&reader, &host, &asked));
            }
            Question::Ports {
                reader,
                host,
                reply,
            } => {
                let _ = reply.send(self.rounds.host_ports(clock::now(), &reader, &host));
            }
            Question::Stored { reply } => {
                let mut steps = Vec::new();
                // One at a time: the other is told so by the dropped reply.
                if self.rounds.ask_for_stored(&mut steps) {
                    self.reader = Some(reply);
                }
                self.perform(steps);
            }
            Question::Explain { by, what, reply } => {
                let _ = reply.send(self.rounds.explain(clock::now(), &by, &what));
            }
        }
    }

    fn round(&mut self, first: Fact) {
        let now = clock::now();
        let mut steps = Vec::new();
        let mut next = Some(first);
        while let Some(fact) = next {
            match fact {
                Fact::Command { by, command, reply } => {
                    self.rounds.command(now, by, command, reply, &mut steps);
                }
                Fact::Told { told, reply } => self.rounds.tell(now, told, reply),
            }
            next = (!self.rounds.is_full())
                .then(|| self.facts.try_recv().ok())
                .flatten();
        }
        self.rounds.flush(now, &mut steps);
        self.perform(steps);
    }

    fn on_deadline(&mut self) {
        let mut steps = Vec::new();
        self.rounds.on_deadline(clock::now(), &mut steps);
        self.perform(steps);
    }

    /// Takes the store back.
    fn came_back(&mut self, done: Done) {
        self.store = Some(done.store);
        let mut steps = Vec::new();
        match done.work {
            Work::Committed(commit) => {
                self.note(&commit);
                self.rounds.stored(clock::now(), &commit.result, &mut steps);
            }
            Work::Read => self.rounds.was_read(&mut steps),
        }
        self.perform(steps);
    }

    /// Counts what became of a commit, and says it where that is news.
    fn note(&mut self, commit: &Committed) {
        let meters = &self.shown.commit_meters;
        let refused = match &commit.result {
            Ok(()) => {
                self.shown.commits.fetch_add(1, Ordering::Relaxed);
                meters.accepted(commit.took, commit.records);
                if !self.shown.writable.load(Ordering::Relaxed) {
                    tracing::info!("the store takes commits again");
                }
                None
            }
            Err(cause) => {
                meters.refused.fetch_add(1, Ordering::Relaxed);
                let reason = cause.to_string();
                self.complain(&reason);
                Some(reason)
            }
        };
        self.shown
            .writable
            .store(refused.is_none(), Ordering::Relaxed);
        *self.shown.refused.lock() = refused;
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

    fn perform(&mut self, steps: Vec<Step<Asker, Teller>>) {
        for step in steps {
            match step {
                Step::Commit(batch) => self.have_store(move |store| {
                    let begun = Instant::now();
                    let result = store.commit(&batch);
                    Work::Committed(Committed {
                        records: batch.writes.len(),
                        took: begun.elapsed(),
                        result,
                    })
                }),
                Step::Read => {
                    let reader = self.reader.take();
                    self.have_store(move |store| {
                        // The asker may have left.
                        let _ = reader.map(|reader| reader.send(store.load()));
                        Work::Read
                    });
                }
                Step::Publish {
                    revision,
                    services,
                    removed,
                } => {
                    self.shown.table.publish(revision, services, &removed);
                }
                Step::Show(view) => self.shown.show(view),
                Step::Answer { to, answer } => drop(to.send(answer)),
                Step::Order { host, orders } => self.shown.desks.of(&host).put(orders),
                Step::Acknowledge { to, outcome } => drop(to.send(outcome)),
            }
        }
    }

    /// Has the store, which is here, do something on a thread of its own.
    fn have_store(&mut self, work: impl FnOnce(&mut dyn Store) -> Work + Send + 'static) {
        let mut store = self
            .store
            .take()
            .expect("the next thing is asked of it only when it came back");
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
        let since = clock::now().mono;
        loop {
            match self.rounds.last_news(since) {
                LastNews::WithStore => match self.done.recv().await {
                    Some(done) => self.came_back(done),
                    None => return,
                },
                LastNews::Due(at) => {
                    tokio::time::sleep(at.since(clock::now().mono)).await;
                    self.on_deadline();
                }
                LastNews::Written => return,
            }
        }
    }
}

impl Shown {
    fn show(&self, view: Arc<View>) {
        let (synced, rights, access) = (view.synced, view.rights, view.access);
        let mut other_tokens = false;
        self.removed.fetch_max(view.removed, Ordering::Release);
        self.view.send_if_modified(|shown| {
            // That a host was heard of again is shown, but nobody waits for it.
            let wakes = shown.revision != view.revision;
            other_tokens = shown.access != access;
            *shown = view;
            wakes
        });
        move_to(&self.synced, synced);
        move_to(&self.rights, rights);
        if other_tokens {
            self.access.send_modify(|number| *number += 1);
        }
    }
}

/// Moves a number that others wait on; they sleep on if it is there already.
fn move_to(number: &watch::Sender<u64>, to: u64) {
    number.send_if_modified(|now| std::mem::replace(now, to) != to);
}

#[cfg(test)]
#[path = "driver_test.rs"]
mod tests;
