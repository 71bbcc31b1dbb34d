//! What one host is to be told: its wanted set, and what else waits for its agent.

use std::sync::Arc;
use std::time::Duration;

use crate::registry::Desired;

use super::Speaker;

/// A host's wanted set at one revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Orders {
    /// Its number; another set has a higher one.
    pub revision: u64,
    /// Whether the host must tell everything before it begins anything of this.
    pub report_first: bool,
    /// What is wanted, by service and index.
    pub replicas: Arc<[Desired]>,
}

impl Orders {
    /// Of a host that is not known, or not any more: the number is that of a desk on which nothing was put up.
    pub(super) fn of_unknown() -> Self {
        Self {
            revision: 0,
            report_first: true,
            replicas: Arc::default(),
        }
    }
}

/// One host's desk. It holds state, not messages: an agent that comes late finds the newest set. Only errands (`E`,
/// such as reads of a log) are handed out once, since who waits for them does not wait long.
#[derive(Debug)]
pub struct Desk<E> {
    orders: Option<Arc<Orders>>,
    errands: Vec<E>,
    /// Whether an agent asked since this controller started: its first question is answered at once, so that it
    /// learns of the new instance even if the revision is the one it has.
    asked: bool,
}

/// What an agent gets.
#[derive(Clone, Debug)]
pub struct Handout<E> {
    orders: Option<Arc<Orders>>,
    /// What is handed out once.
    pub errands: Vec<E>,
}

impl<E> Default for Desk<E> {
    fn default() -> Self {
        Self {
            orders: None,
            errands: Vec::new(),
            asked: false,
        }
    }
}

impl<E> Desk<E> {
    /// The most errands that wait for one host.
    pub const MOST_ERRANDS: usize = 64;
    /// An agent's question that finds nothing new is held at most so long.
    pub const HOLD: Duration = Duration::from_secs(30);

    /// Puts a new wanted set up: the agent is to be woken.
    pub fn put(&mut self, orders: Arc<Orders>) {
        self.orders = Some(orders);
    }

    /// Puts an errand up: the agent is to be woken. False if too many wait already.
    pub fn ask(&mut self, errand: E) -> bool {
        if self.errands.len() >= Self::MOST_ERRANDS {
            return false;
        }
        self.errands.push(errand);
        true
    }

    /// Keeps only the errands that somebody still waits for.
    pub fn retain(&mut self, is_awaited: impl FnMut(&E) -> bool) {
        self.errands.retain(is_awaited);
    }

    /// What is new for an agent that has the set of revision `since`; `None`: nothing, so that its question is held.
    pub fn take(&mut self, since: Option<u64>) -> Option<Handout<E>> {
        let first = !std::mem::replace(&mut self.asked, true);
        let known = self.orders.as_ref().map(|orders| orders.revision);
        let nothing_new = since.is_some() && since == known.or(Some(0));
        if nothing_new && !first && self.errands.is_empty() {
            return None;
        }
        Some(self.take_all())
    }

    /// The whole set, new or not: the answer to a question that was held long enough.
    pub fn take_all(&mut self) -> Handout<E> {
        Handout {
            orders: self.orders.clone(),
            errands: std::mem::take(&mut self.errands),
        }
    }

    /// Whether the host was told of this incarnation, whatever is wanted of it there.
    ///
    /// Cost: a look at all that is wanted of the host.
    #[must_use]
    pub fn was_told_of(&self, speaker: &Speaker) -> bool {
        let name = &speaker.name;
        let mut replicas = self.orders.iter().flat_map(|orders| orders.replicas.iter());
        replicas.any(|desired| {
            (desired.service_id, desired.index, desired.incarnation)
                == (speaker.service_id, name.index, name.incarnation)
                && desired.service == name.service
        })
    }
}

impl<E> Handout<E> {
    /// The revision of the set; 0 for a host that is unknown until it reports.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.orders.as_ref().map_or(0, |orders| orders.revision)
    }

    /// Whether the host must tell everything before it begins anything of the set.
    #[must_use]
    pub fn report_first(&self) -> bool {
        self.orders
            .as_ref()
            .is_none_or(|orders| orders.report_first)
    }

    /// What is wanted, by service and index.
    #[must_use]
    pub fn replicas(&self) -> &[Desired] {
        self.orders.as_ref().map_or(&[], |orders| &orders.replicas)
    }

    /// The same, shared for as long as somebody keeps it.
    #[must_use]
    pub fn shared_replicas(&self) -> Arc<[Desired]> {
        let orders = self.orders.as_ref();
        orders.map_or_else(Arc::default, |orders| Arc::clone(&orders.replicas))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(revision: u64) -> Arc<Orders> {
        Arc::new(Orders {
            revision,
            report_first: false,
            replicas: Arc::default(),
        })
    }

    #[test]
    fn an_agent_is_told_what_it_does_not_have_and_else_waits() {
        let mut desk: Desk<u64> = Desk::default();
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
        desk.put(orders(6));
        assert_eq!(desk.take(Some(5)).unwrap().revision(), 6);
    }

    #[test]
    fn a_host_that_never_reported_is_told_to() {
        let mut desk: Desk<u64> = Desk::default();
        let handout = desk.take(Some(0)).unwrap();
        assert!(handout.report_first());
        assert_eq!((handout.revision(), handout.replicas().len()), (0, 0));
        assert!(desk.take(Some(0)).is_none(), "and then waits");
        assert!(desk.take_all().report_first());
    }

    #[test]
    fn an_errand_is_handed_out_once_and_never_without_bound() {
        let mut desk = Desk::default();
        assert!(desk.ask(1));
        assert_eq!(desk.take(Some(0)).unwrap().errands, [1]);
        assert!(desk.take(Some(0)).is_none());
        for number in 0..Desk::<usize>::MOST_ERRANDS {
            assert!(desk.ask(number));
        }
        assert!(!desk.ask(99));
        desk.retain(|number| *number != 3);
        assert!(desk.ask(99));
    }
}
