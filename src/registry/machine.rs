//! The registry itself: what the driver calls, and the order in which things leave it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::allocator::Conflict;
use crate::host_addr::Networks;
use crate::identity::{HostId, HostName, ServiceId, ServiceName};
use crate::time::{Monotonic, Now};

use super::claims::Claims;
use super::contact::{Contacts, Silence};
use super::drain::Drains;
use super::event_log::EventLogs;
use super::hosts::HostLife;
use super::limits::Limits;
use super::outbox::Outbox;
use super::placement::Waits;
use super::pools::Pools;
use super::port_history::Archive;
use super::residents::Residents;
use super::retention::Retention;
use super::show::Shown;
use super::spread::Spread;
use super::truth::{MetaKey, Truth};
use super::{BatchNumber, Effect, Input, Stored, View};

/// Site settings of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long a freed number rests before somebody else gets it.
    pub cooling: Duration,
    /// How long a number rests on which a stranger was met at a start.
    pub foreign_rest: Duration,
    /// The networks that ports may name.
    pub networks: Networks,
    /// How long news may wait for a commit, and how long refused truth waits before it is decided again.
    pub news_delay: Duration,
    /// How long changes of a service's readiness are gathered before they are shown, unless the service was quiet
    /// for as long; one that is not ready any more is shown within 20 ms. Zero shows each at once.
    pub coalesce: Duration,
    /// How long after a start what is stored of a host that does not report is called stale; `None`: until it
    /// reports.
    pub stale_for: Option<Duration>,
    /// How much users and groups may hold.
    pub limits: Limits,
    /// When the silence of a host counts; `None`: never.
    pub silence: Option<Silence>,
    /// Whether a new number line begins although the store holds one: it is a restored backup or a clone, of which
    /// readers may know more, or other, than it does.
    pub begin_epoch: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cooling: Duration::from_secs(60),
            foreign_rest: Duration::from_secs(60),
            networks: Networks::default(),
            news_delay: Duration::from_secs(1),
            coalesce: Duration::from_millis(20),
            stale_for: None,
            limits: Limits::default(),
            silence: Some(Silence::default()),
            begin_epoch: false,
        }
    }
}

/// Services, replicas and hosts. One owner; every call returns at once.
///
/// The driver's round: [`Registry::handle`] for everything that waits, then [`Registry::flush`], which settles,
/// places, publishes news and emits at most one [`Effect::Commit`]; then the store; then
/// [`Registry::committed`] or [`Registry::commit_failed`], and [`Registry::flush`] again. While a batch is
/// with the store, `handle` and `flush` may be called: news passes, everything else waits inside.
#[derive(Debug)]
pub struct Registry {
    pub(super) config: Config,
    /// The newest moment the driver told.
    pub(super) now: Now,
    pub(super) truth: Truth,
    /// Who is placed where on disk.
    pub(super) residents: Residents,
    /// Who is placed where and who waits, as decisions see it.
    pub(super) spread: Spread,
    pub(super) pools: Pools,
    /// Service ids by name, as in `truth`.
    pub(super) names: BTreeMap<ServiceName, ServiceId>,
    /// Host ids by name, as in `truth`.
    pub(super) host_names: BTreeMap<HostName, HostId>,
    /// What is known of each host since this start.
    pub(super) lives: BTreeMap<HostId, HostLife>,
    /// Which hosts say that an address is theirs.
    pub(super) claims: Claims,
    /// Hosts that told of replicas that nobody here knows.
    pub(super) with_unknown: BTreeSet<HostId>,
    /// How many replicas were met that nobody here knows.
    pub(super) unknown_numbers: u64,
    /// What follows from the events of each service.
    pub(super) event_logs: EventLogs<ServiceId>,
    /// What follows from the events of each host.
    pub(super) host_logs: EventLogs<HostId>,
    /// What follows from the history of ports.
    pub(super) archive: Archive,
    /// When it is next looked for what was kept long enough.
    pub(super) retention: Retention,
    /// When hosts are looked at that say nothing.
    pub(super) contacts: Contacts,
    /// Hosts on which something may be stranded no more.
    pub(super) stranded_due: BTreeSet<HostId>,
    /// Services whose replicas or roll may have a next step.
    pub(super) attention: BTreeSet<ServiceId>,
    /// What waiting replicas wait for.
    pub(super) waits: Waits,
    /// Hosts that are taken out of service.
    pub(super) drains: Drains,
    pub(super) outbox: Outbox,
    pub(super) shown: Shown,
    /// Stored grants that contradict each other; all are kept, and shown with their hosts.
    pub(super) conflicts: Vec<Conflict>,
    /// Inputs about truth that came while a batch was with the store.
    pub(super) deferred: VecDeque<Input>,
}

impl Registry {
    /// Takes up what is stored. `epoch` names a new number line, used if the store holds none, if that one is used
    /// up, or by [`Config::begin_epoch`].
    ///
    /// The first [`Registry::flush`] emits a commit, and only its [`Registry::committed`] publishes the stored
    /// endpoints: open no listener before.
    ///
    /// # Errors
    ///
    /// [`LoadError`] names the record.
    pub fn load(
        config: Config,
        stored: &Stored,
        epoch: String,
        now: Now,
    ) -> Result<Self, LoadError> {
        let truth = Truth::load(stored)?;
        let mut registry = Self {
            pools: Pools::new(&config),
            config,
            now,
            residents: Residents::of(&truth.replicas),
            // `take_up` counts what there is.
            spread: Spread::default(),
            truth,
            names: BTreeMap::new(),
            host_names: BTreeMap::new(),
            lives: BTreeMap::new(),
            claims: Claims::default(),
            with_unknown: BTreeSet::new(),
            unknown_numbers: 0,
            event_logs: EventLogs::default(),
            host_logs: EventLogs::default(),
            archive: Archive::default(),
            retention: Retention::default(),
            contacts: Contacts::default(),
            stranded_due: BTreeSet::new(),
            attention: BTreeSet::new(),
            waits: Waits::default(),
            drains: Drains::default(),
            outbox: Outbox::default(),
            shown: Shown::default(),
            conflicts: Vec::new(),
            deferred: VecDeque::new(),
        };
        registry.take_up(epoch)?;
        Ok(registry)
    }

    /// Takes in one thing that happened. Answers that need nothing durable leave at once, all else with
    /// [`Registry::flush`] and [`Registry::committed`].
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        self.now = now;
        match input {
            told if self.is_being_removed(&told) => self.deferred.push_back(told),
            Input::Lease { host, skew_ms } => self.lease(&host, skew_ms),
            Input::Status(report) => self.status(report),
            Input::HostReport(facts) => self.host_report(facts),
            Input::HostShutdown { host } => self.host_shutdown(&host),
            Input::Limits(limits) => self.set_limits(*limits),
            // A command decides on truth; while a batch may still fail, that is not settled.
            command @ Input::Command { .. } if self.outbox.is_busy() => {
                self.deferred.push_back(command);
            }
            Input::Command {
                ticket,
                by,
                command,
            } => {
                let answer = self.command(&by, command);
                if self.truth.is_changed() {
                    self.outbox.hold(ticket, answer);
                } else {
                    out.push(Effect::Answer { ticket, answer });
                }
            }
        }
    }

    /// Ends a round of [`Registry::handle`] calls: settles ends, rolls and places, publishes news, and emits at
    /// most one [`Effect::Commit`], always last. Emits nothing when nothing happened.
    pub fn flush(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.now = now;
        self.follow_contacts();
        if !self.outbox.is_busy() && !self.outbox.is_resting(now.mono) {
            self.settle_stranded();
            if !self.attention.is_empty() || self.waits.is_due() {
                self.drains.wake();
            }
            for service in std::mem::take(&mut self.attention) {
                self.settle(service);
                self.end_move(service);
                self.roll(service);
            }
            self.move_drained();
            self.place();
        }
        self.show_news(out);
        self.commit_if_due(out);
    }

    /// The batch is durable: publishes, answers and orders what waited for it, and takes in what waited for it.
    pub fn committed(&mut self, batch: BatchNumber, out: &mut Vec<Effect>) {
        let Some(sent) = self.outbox.landed(batch) else {
            return;
        };
        self.residents.follow(&self.truth.replicas);
        self.spread.follow(&self.truth.replicas);
        self.truth.commit();
        self.outbox.end_rest();
        self.shown.ceiling = self.meta().ceiling;
        self.forget_removed(out);
        self.count_drained();
        self.show_truth(out);
        self.show_tokens();
        out.extend(sent.answers());
        self.send_orders(sent.orders, out);
        self.take_deferred(out);
    }

    /// The batch is not durable: truth is as before it, its askers are told so, and news stays. What the
    /// registry decided by itself is decided again after [`Config::news_delay`], or with the next command.
    pub fn commit_failed(&mut self, batch: BatchNumber, reason: &str, out: &mut Vec<Effect>) {
        let Some(sent) = self.outbox.landed(batch) else {
            return;
        };
        if self.truth.is_changed() {
            let logs = self.open_logs();
            // What they may begin again.
            let kept: Vec<HostId> = self.gives_up_on().collect();
            self.shown.orders.extend(kept);
            self.truth.revert();
            self.reopen_logs(logs);
            // Nobody may ask for anything for long, and who waits for the store to write again is to hear of it.
            self.truth.meta.note(&MetaKey, |_| {});
            self.rebuild();
        } else {
            // Only news was refused: it stays told, and is written with the next batch.
            self.truth.revert();
        }
        self.outbox.rest(self.now.mono + self.config.news_delay);
        out.extend(sent.refusals(reason));
        self.take_deferred(out);
    }

    /// Whether a decision waits until the store may be asked again: what follows from the inputs so far is then
    /// not durable, although no batch is with the store.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        !self.attention.is_empty() || !self.stranded_due.is_empty()
    }

    /// When [`Registry::on_deadline`] is to be called, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        // Without a number left below the ceiling, the batch that raises it is waited for.
        let shows = self.shown.has_revisions().then(|| {
            let stale = self.shown.stale.next_deadline();
            let window = self.shown.windows.next_deadline();
            stale.into_iter().chain(window).min()
        });
        let decides = (!self.outbox.is_busy()).then(|| {
            let all = [
                self.pools.next_deadline(),
                self.waits.next_deadline(),
                self.drains.next_deadline(),
                self.outbox.next_deadline(),
                self.retention.next_deadline(),
            ];
            all.into_iter().flatten().min()
        });
        let contacts = self.contacts.next_deadline();
        let all = [shows.flatten(), decides.flatten(), contacts];
        all.into_iter().flatten().min()
    }

    /// Does what is due at `now`, then flushes.
    pub fn on_deadline(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.now = now;
        self.look_at_contacts();
        if self.shown.has_revisions() {
            self.shown.stale.on_deadline(now.mono);
        }
        if !self.outbox.is_busy() {
            self.end_rests();
            self.drains.on_deadline(now.mono);
            self.end_retention();
        }
        self.flush(now, out);
    }

    /// What readers see: durable truth and the newest news. The same `Arc` as long as nothing changed.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.shown.view)
    }

    /// The life of the revision line: another one after a restore, so that no number of the old is believed.
    #[must_use]
    pub fn epoch(&self) -> &str {
        &self.meta().epoch
    }

    /// The newest revision given.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.shown.revision
    }

    fn take_deferred(&mut self, out: &mut Vec<Effect>) {
        for input in std::mem::take(&mut self.deferred) {
            self.handle(self.now, input, out);
        }
    }
}

/// Why stored records could not be taken up. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A record cannot be read, or contradicts another.
    #[error("record {key:?} of table {table} is damaged: {reason}; restore a backup")]
    Damaged {
        /// Its table.
        table: String,
        /// Its key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer version wrote it.
    #[error(
        "record {key:?} of table {table} has format {found}, this version reads up to {known}; \
         use the newer portreeve"
    )]
    Newer {
        /// Its table.
        table: String,
        /// Its key.
        key: String,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
}
