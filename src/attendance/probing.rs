//! The probes in flight, and whether a stall of our own is to blame for a late one.

use std::time::Duration;

use crate::supervision::{ProbeKind, ProbeNumber, ProbeOutcome, is_stall};
use crate::time::Monotonic;

/// At most one probe of each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Probing([Option<InFlight>; 3]);

#[derive(Clone, Copy, Debug)]
struct InFlight {
    probe: ProbeNumber,
    timeout: Duration,
    until: Monotonic,
    /// We were not running for a part of it.
    stalled: bool,
}

impl Probing {
    /// A probe begins; an earlier one of its kind is forgotten.
    pub(super) fn begin(
        &mut self,
        now: Monotonic,
        kind: ProbeKind,
        probe: ProbeNumber,
        timeout: Duration,
    ) {
        self.0[kind as usize] = Some(InFlight {
            probe,
            timeout,
            until: now + timeout,
            stalled: false,
        });
    }

    /// Its end is expected then, for it waits for something, or waits no longer.
    pub(super) fn expect(&mut self, kind: ProbeKind, probe: ProbeNumber, until: Monotonic) {
        if let Some(one) = self.named(kind, probe) {
            one.until = until;
        }
    }

    /// Forgets it; whether it was in flight.
    pub(super) fn cancel(&mut self, kind: ProbeKind, probe: ProbeNumber) -> bool {
        let is_there = self.named(kind, probe).is_some();
        if is_there {
            self.0[kind as usize] = None;
        }
        is_there
    }

    /// When the first probe in flight should have ended.
    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.0.iter().flatten().map(|one| one.until).min()
    }

    /// Notes that a wake-up planned for `planned` came at `now`.
    pub(super) fn woke(&mut self, planned: Monotonic, now: Monotonic) {
        for one in self.0.iter_mut().flatten() {
            one.stalled |= is_stall(planned, now, one.timeout);
        }
    }

    /// The outcome as it counts: a timeout during a stall of ours says nothing about the service.
    pub(super) fn ended(
        &mut self,
        kind: ProbeKind,
        probe: ProbeNumber,
        outcome: ProbeOutcome,
    ) -> ProbeOutcome {
        let stalled = self.named(kind, probe).map(|one| one.stalled);
        if stalled.is_some() {
            self.0[kind as usize] = None;
        }
        if stalled == Some(true) {
            outcome.after_stall()
        } else {
            outcome
        }
    }

    fn named(&mut self, kind: ProbeKind, probe: ProbeNumber) -> Option<&mut InFlight> {
        let one = self.0[kind as usize].as_mut();
        one.filter(|one| one.probe == probe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProbeOutcome::{Inconclusive, Timeout};

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    fn outcome_after_waking(timeout_ms: u64, planned: u64, woke: u64) -> ProbeOutcome {
        let mut probing = Probing::default();
        let (kind, probe) = (ProbeKind::Liveness, ProbeNumber(1));
        probing.begin(at(0), kind, probe, Duration::from_millis(timeout_ms));
        probing.woke(at(planned), at(woke));
        probing.ended(kind, probe, Timeout)
    }

    #[test]
    fn a_timeout_during_our_own_stall_says_nothing() {
        // supervision 1.3 rule 14
        assert_eq!(outcome_after_waking(3_000, 3_000, 3_001), Timeout);
        assert_eq!(outcome_after_waking(3_000, 3_000, 6_000), Timeout);
        assert_eq!(outcome_after_waking(3_000, 3_000, 6_001), Inconclusive);
        // At most 5 s, however long the timeout.
        assert_eq!(outcome_after_waking(60_000, 1_000, 6_001), Inconclusive);
    }

    #[test]
    fn a_stall_of_an_earlier_probe_excuses_no_later_one() {
        let mut probing = Probing::default();
        let (kind, timeout) = (ProbeKind::Liveness, Duration::from_secs(3));
        probing.begin(at(0), kind, ProbeNumber(1), timeout);
        probing.woke(at(0), at(60_000));
        assert!(probing.cancel(kind, ProbeNumber(1)));
        probing.begin(at(60_000), kind, ProbeNumber(2), timeout);
        // The end of the one that was given up comes nevertheless.
        assert_eq!(probing.ended(kind, ProbeNumber(1), Timeout), Timeout);
        assert_eq!(probing.next_deadline(), Some(at(63_000)));
        assert_eq!(probing.ended(kind, ProbeNumber(2), Timeout), Timeout);
        assert_eq!(probing.next_deadline(), None);
    }
}
