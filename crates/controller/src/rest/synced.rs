//! How old the controller's knowledge of the hosts is.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use portreeve::registry::View;

use crate::clock;

/// When the longest silent host was heard of, kept for a moment: a read must not look at thousands.
#[derive(Debug, Default)]
pub(crate) struct Synced(Mutex<Option<Oldest>>);

#[derive(Clone, Copy, Debug)]
struct Oldest {
    /// `None`: there is no host.
    unix_ms: Option<u64>,
    found: Instant,
}

impl Synced {
    /// Ages of so few are told to the moment.
    const FEW: usize = 64;
    /// What was found of more holds so long: their age is told too high by at most this.
    const KEPT: Duration = Duration::from_secs(1);

    /// For how many milliseconds the longest silent host has not been heard of; 0 without a host.
    ///
    /// Cost: a look at each host, of many once a second.
    pub(crate) fn of_all(&self, view: &View) -> u64 {
        let now = Instant::now();
        let many = view.hosts.len() > Self::FEW;
        let known = *self.0.lock();
        let known = known.filter(|known| many && now - known.found < Self::KEPT);
        let oldest = known.unwrap_or_else(|| {
            let heard = view.hosts.values().map(|host| host.last_seen);
            let unix_ms = heard.map(|at| at.as_unix_millis()).min();
            let found = Oldest {
                unix_ms,
                found: now,
            };
            *self.0.lock() = Some(found);
            found
        });
        let now = clock::wall().as_unix_millis();
        oldest.unix_ms.map_or(0, |at| now.saturating_sub(at))
    }
}
