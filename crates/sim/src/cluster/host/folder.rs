//! What is on a host's disk of one replica.

use portreeve::attendance::Record;
use portreeve::identity::Run;
use portreeve::supervision::Status;
use portreeve::time::Monotonic;

/// The folder of one incarnation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folder {
    /// What its workers wrote down.
    record: Written,
    /// The last status that an agent wrote down for it, since no worker does.
    concluded: Option<Box<Status>>,
    /// The newest run of which something was told that could not be written down.
    unwritten: Option<Run>,
    /// It ended, and the record could not be written any more.
    is_over: bool,
    /// Marked as ended since then: only logs are kept.
    ended: Option<Monotonic>,
}

/// What a worker wrote down. The copy of what it has in its hands anyway is made only where both may come to differ.
#[derive(Clone, Debug, Default)]
enum Written {
    #[default]
    Nothing,
    /// The record of the living worker, as it is.
    AsLive,
    Own(Box<Record>),
}

impl Folder {
    /// The worker wrote down what it has.
    pub(crate) fn write(&mut self) {
        self.record = Written::AsLive;
        self.unwritten = None;
    }

    /// The worker could not write down what it has: names alone say so, for which there is room on a full disk.
    pub(crate) fn not_written(&mut self, live: &Record) {
        self.unwritten = self.unwritten.max(Some(live.machine().run()));
        if live.is_final() {
            self.mark_over();
        }
    }

    /// The newest run of which something was told that could not be written down.
    pub(crate) const fn unwritten(&self) -> Option<Run> {
        self.unwritten
    }

    /// What has ended is marked so.
    pub(crate) const fn mark_over(&mut self) {
        self.is_over = true;
    }

    /// The record of one that has not begun, or what was found of it, as it is true.
    pub(crate) fn truth(&self, record: Record) -> Record {
        if self.is_over { record.over() } else { record }
    }

    /// What the worker has may change from here on without being written.
    pub(crate) fn freeze(&mut self, live: &Record) {
        if matches!(self.record, Written::AsLive) {
            self.record = Written::Own(Box::new(live.clone()));
        }
    }

    /// What the next worker finds, after the end of one that had `live`.
    pub(crate) fn record(&self) -> Option<&Record> {
        match &self.record {
            Written::Own(record) => Some(record),
            Written::Nothing | Written::AsLive => None,
        }
    }

    /// The newest status on disk; `live` is what a living worker has.
    pub(crate) fn status<'a>(&'a self, live: Option<&'a Record>) -> Option<&'a Status> {
        let written = match &self.record {
            Written::Own(record) => Some(&**record),
            Written::AsLive => live,
            Written::Nothing => None,
        };
        let told = written.and_then(Record::status);
        self.concluded.as_deref().or(told)
    }

    /// An agent writes down the end of it.
    pub(crate) fn conclude(&mut self, status: Status) {
        self.concluded = Some(Box::new(status));
    }

    /// Only logs and the last status are kept.
    pub(crate) fn end(&mut self, now: Monotonic) {
        let last = self.status(None).cloned();
        self.record = Written::Nothing;
        self.concluded = last.map(Box::new);
        self.ended = Some(now);
    }

    /// Whether only logs are kept.
    pub(crate) const fn is_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Since when, if so.
    pub(crate) fn ended_at(&self) -> Monotonic {
        self.ended.unwrap_or_default()
    }

    /// What was written and not synced is gone with the power.
    pub(crate) fn lose_unsynced(&mut self) {
        self.is_over = false;
        self.unwritten = None;
        self.record = Written::Nothing;
    }
}
