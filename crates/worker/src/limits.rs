//! How many probes by a command a worker may run, and when it may start its service again: by the limits that all workers of the host share, or by the
//! same limits for this process alone where there is no agent.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use portreeve::attendance::{Contact, Token};
use portreeve::residency::Pace;
use portreeve::time::Monotonic;
use portreeve_api::host_limits::{HostLimits, MOST_COMMAND_PROBES, Note};
use tokio::time::Instant;

/// The limits as one worker sees them. A copy is the same limits.
#[derive(Clone, Debug)]
pub struct Limits(Rc<Inside>);

#[derive(Debug)]
struct Inside {
    page: Option<HostLimits>,
    /// The places that probes of this process hold, one bit each.
    places: Cell<u64>,
    /// The bucket where there is no page.
    pace: RefCell<Pace>,
}

/// A place among the probes of the host that run at once; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    limits: Limits,
    number: u32,
}

impl Limits {
    /// Those of the host, if the agent handed them on; else this process's own.
    pub(crate) fn of_host() -> Self {
        Self::of(HostLimits::inherited())
    }

    /// This process's own.
    #[must_use]
    pub fn of_process() -> Self {
        Self::of(None)
    }

    fn of(page: Option<HostLimits>) -> Self {
        Self(Rc::new(Inside {
            page,
            places: Cell::new(0),
            pace: RefCell::default(),
        }))
    }

    /// Whether all workers of the host share them.
    pub(crate) fn are_shared(&self) -> bool {
        self.0.page.is_some()
    }

    /// When the controller last heard of this host, if an agent notes that.
    pub(crate) fn contact(&self) -> Option<Contact> {
        self.0.page.as_ref()?.contact()
    }

    /// Those of this page.
    #[cfg(test)]
    pub(crate) fn on(page: HostLimits) -> Self {
        Self::of(Some(page))
    }

    /// Takes the token of a service that is started again.
    pub(crate) fn restart(&self, now: Monotonic) -> Token {
        match self.pace(|pace| pace.restart(now)) {
            Some(wait) => Token::After(wait),
            None => Token::Busy,
        }
    }

    /// Waits for a place for a probe; `None` if there was none within `patience`.
    pub(crate) async fn probe(&self, patience: Duration) -> Option<Place> {
        let until = Instant::now() + patience;
        loop {
            if let Some(place) = self.take_place() {
                return Some(place);
            }
            // So that many who wait do not all come at once.
            let spread = SPREAD * (random() % 1000) / 1000;
            let next = Instant::now() + PLACE_AGAIN + spread;
            if next >= until {
                tokio::time::sleep_until(until).await;
                self.note(Note::Late);
                return None;
            }
            tokio::time::sleep_until(next).await;
        }
    }

    fn take_place(&self) -> Option<Place> {
        let own = self.0.places.get();
        let shared = self
            .0
            .page
            .as_ref()
            .map(|page| page.take_place(own, random()));
        let number = match shared {
            Some(Ok(number)) => number?,
            // A page that cannot be used limits nobody but by what this process has.
            Some(Err(_)) | None => {
                (0..MOST_COMMAND_PROBES).find(|place| own & (1 << place) == 0)?
            }
        };
        self.0.places.set(own | 1 << number);
        Some(Place {
            limits: self.clone(),
            number,
        })
    }

    /// Lets `take` change the bucket; `None` while another worker does.
    fn pace<T>(&self, mut take: impl FnMut(&mut Pace) -> T) -> Option<T> {
        match self.0.page.as_ref().map(|page| page.pace(&mut take)) {
            Some(Ok(taken)) => taken,
            Some(Err(_)) | None => Some(take(&mut self.0.pace.borrow_mut())),
        }
    }

    /// Tells the agent what happened to a probe, for the warnings of the host.
    pub(crate) fn note(&self, note: Note) {
        if let Some(page) = &self.0.page {
            page.note(note);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let inside = &self.limits.0;
        inside.places.set(inside.places.get() & !(1 << self.number));
        if let Some(page) = &inside.page {
            page.give_back(self.number);
        }
    }
}

/// Good enough to spread tries; nothing secret hangs on it.
fn random() -> u32 {
    getrandom::u32().unwrap_or_else(|_| std::process::id())
}

/// Added to each wait of a probe, by chance, at most.
const SPREAD: Duration = Duration::from_millis(250);
/// How long until a probe looks for a place again.
const PLACE_AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[tokio::test(start_paused = true)]
    async fn a_worker_of_its_own_runs_so_many_probes_at_once_and_no_more() {
        let limits = Limits::of_process();
        let mut held = Vec::new();
        let patience = Duration::from_secs(20);
        let begun = Instant::now();
        while held.len() < 64 {
            held.push(limits.probe(patience).await.unwrap());
        }
        // None of them waited, and none of them holds up a restart.
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(
            limits.restart(clock::monotonic()),
            Token::After(Duration::ZERO)
        );
        let begun = Instant::now();
        assert!(limits.probe(patience).await.is_none());
        assert_eq!(begun.elapsed(), patience);
        held.pop();
        assert!(limits.probe(patience).await.is_some());
        drop(held);
        assert_eq!(limits.0.places.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_restarts_holds_up_no_probe() {
        let limits = Limits::of_process();
        let now = clock::monotonic();
        for _ in 0..500 {
            limits.restart(now);
        }
        let begun = Instant::now();
        assert!(limits.probe(Duration::from_secs(5)).await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(!limits.are_shared());
    }

    #[test]
    fn restarts_beyond_the_burst_are_told_how_long_to_wait() {
        let limits = Limits::of_process();
        let now = Monotonic::from_millis(1_000_000);
        let waits: Vec<_> = (0..60).map(|_| limits.restart(now)).collect();
        assert_eq!(waits[0], Token::After(Duration::ZERO));
        assert_eq!(waits[59], Token::After(Duration::from_millis(950)));
    }
}
