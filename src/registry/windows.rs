//! How long news of a service waits to be shown: the first after quiet not at all, what follows until its window ends.
//!
//! What is decided is shown when it is durable and opens a window too. Only states are held, no changes: whatever a
//! replica did within a window, its end shows how it stands then.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::identity::ServiceId;
use crate::time::Monotonic;

use super::touched::{Touch, Touched};

/// How long at most a replica that is not ready any more stays listed, whatever the window.
pub(super) const WITHDRAWN_WITHIN: Duration = Duration::from_millis(20);

/// News that waits for the end of a window.
#[derive(Debug, Default)]
pub(super) struct Windows {
    held: BTreeMap<ServiceId, Held>,
    /// The first end among `held`.
    next: Option<Monotonic>,
}

#[derive(Debug)]
struct Held {
    touch: Touch,
    due: Monotonic,
}

impl Windows {
    /// Holds news of a service until `due`, or until an earlier moment that was told before.
    pub(super) fn hold(&mut self, service: ServiceId, touch: Touch, due: Monotonic) {
        let due = match self.held.get_mut(&service) {
            Some(held) => {
                held.touch.join(touch);
                held.due = held.due.min(due);
                held.due
            }
            None => {
                self.held.insert(service, Held { touch, due });
                due
            }
        };
        self.next = Some(self.next.map_or(due, |next| next.min(due)));
    }

    pub(super) fn holds(&self, service: ServiceId) -> bool {
        self.held.contains_key(&service)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// What is held of the service, which is shown now.
    pub(super) fn take(&mut self, service: ServiceId) -> Option<Touch> {
        let held = self.held.remove(&service)?;
        if self.held.is_empty() {
            self.next = None;
        }
        Some(held.touch)
    }

    /// Adds everything whose window has ended to `shown`.
    pub(super) fn end(&mut self, now: Monotonic, shown: &mut Touched) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        let ended = self.held.extract_if(.., |_, held| held.due <= now);
        for (service, held) in ended {
            shown.add(service, held.touch);
        }
        self.next = self.held.values().map(|held| held.due).min();
    }

    /// When the first window ends. Nothing may be due then: its service may have been shown earlier.
    pub(super) const fn next_deadline(&self) -> Option<Monotonic> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    fn ended(windows: &mut Windows, ms: u64) -> Vec<ServiceId> {
        let mut shown = Touched::default();
        windows.end(at(ms), &mut shown);
        shown.services()
    }

    #[test]
    fn each_window_ends_in_its_own_time() {
        let mut windows = Windows::default();
        let [one, two, three] = [1, 2, 3].map(ServiceId);
        for (service, due) in [(two, 30), (one, 20), (three, 30)] {
            windows.hold(service, Touch::Whole, at(due));
        }
        assert_eq!(windows.next_deadline(), Some(at(20)));
        assert!(ended(&mut windows, 19).is_empty());
        assert_eq!(ended(&mut windows, 25), [one]);
        assert_eq!(windows.next_deadline(), Some(at(30)));
        windows.take(three);
        assert_eq!(ended(&mut windows, 30), [two]);
        assert_eq!(windows.next_deadline(), None);
    }

    #[test]
    fn later_news_neither_delays_what_is_held_nor_is_lost() {
        let mut windows = Windows::default();
        let service = ServiceId(1);
        let replica = |index| Touch::Replicas(BTreeSet::from([index]));
        windows.hold(service, replica(1), at(20));
        windows.hold(service, replica(2), at(500));
        assert_eq!(windows.next_deadline(), Some(at(20)));
        windows.hold(service, replica(3), at(10));
        assert_eq!(windows.next_deadline(), Some(at(10)));
        let all = Touch::Replicas(BTreeSet::from([1, 2, 3]));
        assert_eq!(windows.take(service), Some(all));
        assert!(windows.is_empty() && windows.next_deadline().is_none());
    }
}
