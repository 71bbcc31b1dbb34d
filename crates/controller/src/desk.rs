//! What each host's agent is to be told: its wanted set, and log pieces that readers wait for.
//!
//! A desk holds state, not messages: an agent that comes late finds the newest set. Only log reads are
//! handed out once, since their readers do not wait long.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portreeve::identity::HostName;
use portreeve::registry::Desired;
use portreeve_api::body::LogRead;
use tokio::sync::watch;

/// The desks of all hosts, by name.
#[derive(Debug, Default)]
pub(crate) struct Desks(Mutex<BTreeMap<HostName, Arc<Desk>>>);

/// One host's desk.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    state: Mutex<State>,
    /// Rung whenever there may be something new.
    bell: watch::Sender<()>,
}

/// A host's wanted set at one revision.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) revision: u64,
    pub(crate) report_first: bool,
    pub(crate) replicas: Vec<Desired>,
}

/// What an agent gets.
#[derive(Debug)]
pub(crate) struct Handout {
    /// `None`: the host is unknown until it reports.
    pub(crate) orders: Option<Arc<Orders>>,
    pub(crate) reads: Vec<LogRead>,
}

#[derive(Debug, Default)]
struct State {
    orders: Option<Arc<Orders>>,
    reads: Vec<LogRead>,
    /// Whether an agent asked since this controller started: its first question is answered at once, so
    /// that it learns of the new instance even if the revision is the one it has.
    asked: bool,
}

impl Desks {
    /// The desk of a host; made if there is none.
    pub(crate) fn of(&self, host: &HostName) -> Arc<Desk> {
        Arc::clone(self.0.lock().entry(host.clone()).or_default())
    }

    /// The host that was told of this incarnation, whatever is wanted of it there.
    ///
    /// Cost: a look through the wanted sets of all hosts.
    pub(crate) fn host_told_of(&self, wanted: impl Fn(&Desired) -> bool) -> Option<HostName> {
        let desks = self.0.lock();
        let found = desks.iter().find(|(_, desk)| {
            let orders = desk.state.lock().orders.clone();
            orders.is_some_and(|orders| orders.replicas.iter().any(&wanted))
        });
        found.map(|(host, _)| host.clone())
    }
}

impl Desk {
    /// The most log reads that wait for one host.
    pub(crate) const MAX_READS: usize = 64;

    /// Puts a new wanted set up and wakes the agent.
    pub(crate) fn put(&self, orders: Orders) {
        self.state.lock().orders = Some(Arc::new(orders));
        self.bell.send_replace(());
    }

    /// Puts a log read up and wakes the agent; false if too many wait already.
    pub(crate) fn ask(&self, read: LogRead) -> bool {
        let mut state = self.state.lock();
        if state.reads.len() >= Self::MAX_READS {
            return false;
        }
        state.reads.push(read);
        drop(state);
        self.bell.send_replace(());
        true
    }

    /// Forgets a log read whose reader left before the agent came.
    pub(crate) fn forget(&self, read: u64) {
        self.state
            .lock()
            .reads
            .retain(|waiting| waiting.read != read);
    }

    /// Subscribe before [`Desk::take`], so that nothing is missed in between.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// What is new for an agent that has the set of revision `since`; `None`: nothing.
    pub(crate) fn take(&self, since: Option<u64>) -> Option<Handout> {
        let mut state = self.state.lock();
        let first = !std::mem::replace(&mut state.asked, true);
        let known = state.orders.as_ref().map(|orders| orders.revision);
        let nothing_new = since.is_some() && since == known.or(Some(0));
        if nothing_new && !first && state.reads.is_empty() {
            return None;
        }
        Some(Handout {
            orders: state.orders.clone(),
            reads: std::mem::take(&mut state.reads),
        })
    }

    /// The whole set, new or not.
    pub(crate) fn take_all(&self) -> Handout {
        let mut state = self.state.lock();
        Handout {
            orders: state.orders.clone(),
            reads: std::mem::take(&mut state.reads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(revision: u64) -> Orders {
        Orders {
            revision,
            report_first: false,
            replicas: Vec::new(),
        }
    }

    fn read(number: u64) -> LogRead {
        LogRead {
            read: number,
            service: "web.alice".parse().unwrap(),
            index: 0,
            stream: "stdout".into(),
            offset: None,
            incarnation: None,
            max: 10,
        }
    }

    #[test]
    fn an_agent_is_told_what_it_does_not_have_and_else_waits() {
        let desk = Desk::default();
        desk.put(orders(5));
        assert!(
            desk.take(Some(5)).is_some(),
            "the first question tells the instance"
        );
        assert!(desk.take(Some(5)).is_none());
        assert!(desk.take(Some(4)).is_some());
        assert!(
            desk.take(Some(9)).is_some(),
            "a foreign number is answered at once"
        );
        assert!(desk.take(None).is_some());
        let bell = desk.subscribe();
        desk.put(orders(6));
        assert!(bell.has_changed().unwrap());
        assert_eq!(desk.take(Some(5)).unwrap().orders.unwrap().revision, 6);
    }

    #[test]
    fn a_log_read_is_handed_out_once_and_never_without_bound() {
        let desk = Desk::default();
        let bell = desk.subscribe();
        assert!(desk.ask(read(1)));
        assert!(bell.has_changed().unwrap());
        assert_eq!(desk.take(Some(0)).unwrap().reads.len(), 1);
        assert!(desk.take(Some(0)).is_none());
        for number in 0..Desk::MAX_READS as u64 {
            assert!(desk.ask(read(number)));
        }
        assert!(!desk.ask(read(99)));
        desk.forget(3);
        assert!(desk.ask(read(99)));
    }
}
