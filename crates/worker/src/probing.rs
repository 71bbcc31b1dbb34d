//! The probes in flight, as tasks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use portreeve::attendance::{Attendance, ProbeEnd};
use portreeve::identity::Run;
use portreeve::supervision::{ProbeKind, ProbeNumber};
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
    until: Rc<Cell<Monotonic>>,
    task: AbortHandle,
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
        #[cfg_attr(not(test), expect(unused_variables, reason = "only a script asks"))]
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
            until,
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

    /// Tells when each probe in flight should end: one that waits for its turn, or begins after a wait, moves that.
    pub(crate) fn plan(&self, attendance: &mut Attendance) {
        for (kind, one) in &self.in_flight {
            attendance.expect_probe(*kind, one.probe, one.until.get());
        }
    }

    /// Forgets a probe that ended.
    pub(crate) fn ended(&mut self, end: &ProbeEnd) {
        let in_flight = self.in_flight.get(&end.kind);
        if in_flight.is_some_and(|one| one.probe == end.probe) {
            self.in_flight.remove(&end.kind);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use portreeve::supervision::ProbeOutcome;

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
}
