//! The stall guard: a pause of the supervisor itself (SIGSTOP, a suspended machine, starvation) never costs
//! the service its life.

use std::time::Duration;

use super::vocabulary::ProbeOutcome;
use crate::time::Monotonic;

/// A wake-up later than planned by more than this, or than the probe's timeout, is a stall.
pub const LONGEST_STALL: Duration = Duration::from_secs(5);

/// Whether a driver that planned to wake at `planned` and woke at `woke` missed too much to judge a probe
/// in flight that has this timeout.
#[must_use]
pub fn is_stall(planned: Monotonic, woke: Monotonic, timeout: Duration) -> bool {
    woke.since(planned) > timeout.min(LONGEST_STALL)
}

impl ProbeOutcome {
    /// The outcome as it counts after a stall of ours: a timeout then says nothing about the service.
    #[must_use]
    pub const fn after_stall(self) -> Self {
        match self {
            Self::Timeout => Self::Inconclusive,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(planned: u64, woke: u64, timeout_ms: u64) -> bool {
        let at = Monotonic::from_millis;
        is_stall(at(planned), at(woke), Duration::from_millis(timeout_ms))
    }

    #[test]
    fn a_wake_up_is_a_stall_beyond_the_timeout_or_five_seconds() {
        // supervision 1.3 rule 14
        assert!(!late(3_000, 3_001, 3_000));
        assert!(!late(3_000, 6_000, 3_000));
        assert!(late(3_000, 6_001, 3_000));
        assert!(late(1_000, 6_001, 60_000));
        assert!(!late(6_000, 1_000, 0));
    }
}
