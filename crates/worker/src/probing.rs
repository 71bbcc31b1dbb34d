//! The probes in flight, and whether a stall of our own is to blame for a late one.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use portreeve::identity::Run;
use portreeve::supervision::{ProbeKind, ProbeNumber, ProbeOutcome, is_stall};
use portreeve::time::Monotonic;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::probe::ProbeReport;

/// At most one probe of each kind.
pub(crate) struct Probing {
    in_flight: BTreeMap<ProbeKind, InFlight>,
    results: mpsc::UnboundedSender<ProbeEnd>,
    /// What probes find in a test, in place of asking anybody.
    #[cfg(test)]
    pub(crate) script: Option<tests::Script>,
}

struct InFlight {
    probe: ProbeNumber,
    timeout: Duration,
    until: Rc<Cell<Monotonic>>,
    /// We were not running for a part of it.
    stalled: bool,
    task: AbortHandle,
}

/// How a probe ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeEnd {
    pub(crate) run: Run,
    pub(crate) kind: ProbeKind,
    pub(crate) probe: ProbeNumber,
    pub(crate) outcome: ProbeOutcome,
    /// What it found, for people.
    pub(crate) text: String,
}

impl Probing {
    pub(crate) fn new(results: mpsc::UnboundedSender<ProbeEnd>) -> Self {
        Self {
            in_flight: BTreeMap::new(),
            results,
            #[cfg(test)]
            script: None,
        }
    }

    /// Runs `probe`, whose result is sent when it has one and is expected at `until`, which the task may move.
    pub(crate) fn start(
        &mut self,
        (run, kind, probe): (Run, ProbeKind, ProbeNumber),
        timeout: Duration,
        until: Rc<Cell<Monotonic>>,
        task: impl Future<Output = ProbeReport> + 'static,
    ) {
        let results = self.results.clone();
        #[cfg(test)]
        let task = tests::scripted(self.script.clone(), (run, kind), timeout, task);
        let task = tokio::task::spawn_local(async move {
            let ProbeReport { outcome, text, .. } = task.await;
            // Nobody hears it when the worker ends.
            _ = results.send(ProbeEnd {
                run,
                kind,
                probe,
                outcome,
                text,
            });
        });
        let in_flight = InFlight {
            probe,
            timeout,
            until,
            stalled: false,
            task: task.abort_handle(),
        };
        if let Some(earlier) = self.in_flight.insert(kind, in_flight) {
            earlier.task.abort();
        }
    }

    /// Gives the probe up.
    pub(crate) fn cancel(&mut self, kind: ProbeKind, probe: ProbeNumber) {
        if self
            .in_flight
            .get(&kind)
            .is_some_and(|one| one.probe == probe)
            && let Some(one) = self.in_flight.remove(&kind)
        {
            one.task.abort();
        }
    }

    /// When the first probe in flight should have ended.
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        self.in_flight.values().map(|one| one.until.get()).min()
    }

    /// Notes that a wake-up planned for `planned` came at `now`.
    pub(crate) fn woke(&mut self, planned: Monotonic, now: Monotonic) {
        for one in self.in_flight.values_mut() {
            one.stalled |= is_stall(planned, now, one.timeout);
        }
    }

    /// The outcome as it counts: a timeout during a stall of ours says nothing about the service.
    pub(crate) fn ended(&mut self, end: &ProbeEnd) -> ProbeOutcome {
        let same = |one: &InFlight| one.probe == end.probe;
        if !self.in_flight.get(&end.kind).is_some_and(same) {
            return end.outcome;
        }
        match self.in_flight.remove(&end.kind) {
            Some(one) if one.stalled => end.outcome.after_stall(),
            _ => end.outcome,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::rc::Rc;

    /// What a probe of this kind in this run finds now, and after how long; `None`: it hangs.
    pub(crate) type Script = Rc<dyn Fn(Run, ProbeKind) -> Option<(Duration, ProbeOutcome)>>;

    /// A probe that does what the script says, if there is one.
    pub(super) async fn scripted(
        script: Option<Script>,
        (run, kind): (Run, ProbeKind),
        timeout: Duration,
        task: impl Future<Output = ProbeReport>,
    ) -> ProbeReport {
        let Some(script) = script else {
            return task.await;
        };
        let (takes, outcome) = script(run, kind).unwrap_or((timeout, ProbeOutcome::Timeout));
        tokio::time::sleep(takes).await;
        ProbeReport {
            outcome,
            text: String::new(),
            shortage: None,
        }
    }

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_millis(ms)
    }

    /// A liveness probe with this timeout, begun at 0 and never ending by itself.
    fn probing(timeout_ms: u64) -> (Probing, ProbeEnd) {
        let (results, _) = mpsc::unbounded_channel();
        let mut probing = Probing::new(results);
        let end = ProbeEnd {
            run: Run(1),
            kind: ProbeKind::Liveness,
            probe: ProbeNumber(1),
            outcome: ProbeOutcome::Timeout,
            text: String::new(),
        };
        let timeout = Duration::from_millis(timeout_ms);
        let name = (end.run, end.kind, end.probe);
        let until = Rc::new(Cell::new(at(timeout_ms)));
        probing.start(name, timeout, until, std::future::pending());
        (probing, end)
    }

    async fn outcome_after_waking(timeout_ms: u64, planned: u64, woke: u64) -> ProbeOutcome {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let (mut probing, end) = probing(timeout_ms);
                probing.woke(at(planned), at(woke));
                probing.ended(&end)
            })
            .await
    }

    #[tokio::test]
    async fn a_timeout_during_our_own_stall_says_nothing() {
        // supervision 1.3 rule 14
        use ProbeOutcome::{Inconclusive, Timeout};
        assert_eq!(outcome_after_waking(3_000, 3_000, 3_001).await, Timeout);
        assert_eq!(outcome_after_waking(3_000, 3_000, 6_000).await, Timeout);
        assert_eq!(
            outcome_after_waking(3_000, 3_000, 6_001).await,
            Inconclusive
        );
        // At most 5 s, however long the timeout.
        assert_eq!(
            outcome_after_waking(60_000, 1_000, 6_001).await,
            Inconclusive
        );
    }
}
