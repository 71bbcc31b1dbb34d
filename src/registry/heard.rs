//! When hosts were last heard of: told at every sign of life, shown to readers without a new version of anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::time::{Monotonic, Now, WallClock};

/// When one host was last heard of. Copies are of one host and tell the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard(Arc<AtomicI64>);

impl Heard {
    /// As the last run of the controller left it: by the other clock, since that one's monotonic clock says nothing.
    pub(super) fn stored(at: WallClock, now: Now) -> Self {
        let age = now
            .wall
            .as_unix_millis()
            .saturating_sub(at.as_unix_millis());
        Self(Arc::new(AtomicI64::new(
            signed(now.mono.as_millis()).saturating_sub(signed(age)),
        )))
    }

    pub(super) fn note(&self, now: Monotonic) {
        self.0.store(signed(now.as_millis()), Ordering::Relaxed);
    }

    fn at(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// When each of several hosts was last heard of.
#[derive(Clone, Debug, Default)]
pub(super) struct HeardOf(Arc<[Heard]>);

impl HeardOf {
    /// Since the first of them was heard of last; zero for none.
    pub(super) fn age(&self, now: Monotonic) -> Duration {
        let oldest = self.0.iter().map(Heard::at).min();
        let age = oldest.map_or(0, |at| signed(now.as_millis()).saturating_sub(at));
        Duration::from_millis(u64::try_from(age).unwrap_or(0))
    }
}

impl FromIterator<Heard> for HeardOf {
    fn from_iter<I: IntoIterator<Item = Heard>>(hosts: I) -> Self {
        Self(hosts.into_iter().collect())
    }
}

/// The age of what is known is no part of it: two views that differ in it alone show the same.
impl PartialEq for HeardOf {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_that_is_silent_for_longest_tells_the_age() {
        let at = Monotonic::from_millis;
        let [a, b] = [Heard::default(), Heard::default()];
        let both: HeardOf = [a.clone(), b.clone()].into_iter().collect();
        a.note(at(5_000));
        b.note(at(3_000));
        assert_eq!(both.age(at(6_000)), Duration::from_secs(3));
        b.note(at(6_000));
        assert_eq!(both.age(at(6_000)), Duration::from_secs(1));
        // A reader whose clock was read before the note.
        assert_eq!(both.age(at(4_000)), Duration::ZERO);
        assert_eq!(HeardOf::default().age(at(4_000)), Duration::ZERO);
    }

    #[test]
    fn what_an_earlier_run_heard_is_older_than_this_machine_may_be() {
        let now = Now {
            mono: Monotonic::from_millis(10),
            wall: WallClock::from_unix_millis(1_000_000),
        };
        let heard = Heard::stored(WallClock::from_unix_millis(400_000), now);
        let of: HeardOf = std::iter::once(heard).collect();
        assert_eq!(of.age(now.mono), Duration::from_secs(600));
        // A clock that was set back since tells nothing.
        let ahead = Heard::stored(WallClock::from_unix_millis(2_000_000), now);
        let of: HeardOf = std::iter::once(ahead).collect();
        assert_eq!(of.age(now.mono), Duration::ZERO);
    }
}
