//! The desks of all hosts, with the bells that wake their agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portreeve::commit::{self, Handout, Orders, Speaker};
use portreeve::identity::HostName;
use portreeve_api::body::LogRead;
use tokio::sync::watch;

/// The desks of all hosts, by name.
#[derive(Debug, Default)]
pub(crate) struct Desks(Mutex<BTreeMap<HostName, Arc<Desk>>>);

/// One host's desk.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    state: Mutex<commit::Desk<LogRead>>,
    /// Rung whenever there may be something new.
    bell: watch::Sender<()>,
}

impl Desks {
    /// The desk of a host; made if there is none.
    pub(crate) fn of(&self, host: &HostName) -> Arc<Desk> {
        Arc::clone(self.0.lock().entry(host.clone()).or_default())
    }

    /// The host that was told of this incarnation, whatever is wanted of it there.
    ///
    /// Cost: a look through the wanted sets of all hosts.
    pub(crate) fn told_of(&self, speaker: &Speaker) -> Option<HostName> {
        let desks = self.0.lock();
        let mut desks = desks.iter();
        let found = desks.find(|(_, desk)| desk.state.lock().was_told_of(speaker));
        found.map(|(host, _)| host.clone())
    }
}

impl Desk {
    /// Puts a new wanted set up and wakes the agent.
    pub(crate) fn put(&self, orders: Arc<Orders>) {
        self.state.lock().put(orders);
        self.bell.send_replace(());
    }

    /// Puts a log read up and wakes the agent; false if too many wait already.
    pub(crate) fn ask(&self, read: LogRead) -> bool {
        let is_taken = self.state.lock().ask(read);
        if is_taken {
            self.bell.send_replace(());
        }
        is_taken
    }

    /// Forgets a log read whose reader left before the agent came.
    pub(crate) fn forget(&self, read: u64) {
        self.state.lock().retain(|waiting| waiting.read != read);
    }

    /// Subscribe before [`Desk::take`], so that nothing is missed in between.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// What is new for an agent that has the set of revision `since`; `None`: nothing.
    pub(crate) fn take(&self, since: Option<u64>) -> Option<Handout<LogRead>> {
        self.state.lock().take(since)
    }

    /// The whole set, new or not.
    pub(crate) fn take_all(&self) -> Handout<LogRead> {
        self.state.lock().take_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_set_and_a_log_read_ring_the_bell() {
        let desk = Desk::default();
        let mut bell = desk.subscribe();
        desk.put(Arc::new(Orders {
            revision: 5,
            report_first: false,
            replicas: Arc::default(),
        }));
        assert!(bell.has_changed().unwrap());
        bell.mark_unchanged();
        let read = LogRead {
            read: 1,
            service: "web.alice".parse().unwrap(),
            index: 0,
            stream: "stdout".into(),
            offset: None,
            incarnation: None,
            max: 10,
        };
        assert!(desk.ask(read));
        assert!(bell.has_changed().unwrap());
        assert_eq!(desk.take(Some(5)).unwrap().errands.len(), 1);
    }
}
