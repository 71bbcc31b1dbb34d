//! Everything a driver listens to, and what one wake-up drained from it.

use std::time::Duration;

use portreeve::attendance::{ProbeEnd, ProcessEvent};
use portreeve::time::Monotonic;
use tokio::sync::{mpsc, oneshot};

use crate::backend::BackendEvent;
use crate::clock::Clock;
use crate::orders::Order;

/// The ends of the channels that lead to a driver.
pub(crate) struct Sources {
    pub(crate) clock: Clock,
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) backend: mpsc::UnboundedReceiver<BackendEvent>,
    pub(crate) probes: mpsc::UnboundedReceiver<ProbeEnd>,
    /// Fires once, when the process ends that the replica's life hangs on; dropped when it has.
    pub(crate) lifeline: Option<oneshot::Receiver<()>>,
}

/// What one wake-up found.
#[derive(Default)]
pub(crate) struct Woken {
    pub(crate) lifeline_ended: bool,
    pub(crate) orders: Vec<Order>,
    pub(crate) processes: Vec<ProcessEvent>,
    pub(crate) probes: Vec<ProbeEnd>,
}

impl Sources {
    /// Waits until something happens or `until` has come, then takes everything that is ready.
    ///
    /// With an `until` in the past it only takes what is ready.
    pub(crate) async fn next(&mut self, until: Option<Monotonic>) -> Woken {
        let mut woken = Woken::default();
        let mut events = Vec::new();
        let wait = until.map(|until| until.since(self.clock.monotonic()));
        let lifeline = async {
            match &mut self.lifeline {
                Some(lifeline) => _ = lifeline.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(order) = self.orders.recv() => woken.orders.push(order),
            Some(event) = self.backend.recv() => events.push(event),
            Some(end) = self.probes.recv() => woken.probes.push(end),
            () = lifeline => woken.lifeline_ended = true,
            () = sleep(wait) => {}
        }
        if woken.lifeline_ended {
            self.lifeline = None;
        }
        // Tasks whose descriptors are ready run now, so that what they have is taken before deadlines fire.
        tokio::task::yield_now().await;
        let orders = std::iter::from_fn(|| self.orders.try_recv().ok());
        woken.orders.extend(orders);
        let backend = std::iter::from_fn(|| self.backend.try_recv().ok());
        events.extend(backend);
        let probes = std::iter::from_fn(|| self.probes.try_recv().ok());
        woken.probes.extend(probes);
        woken.processes = events.into_iter().filter_map(of_process).collect();
        woken
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// A run is adopted before the first turn, and never after.
fn of_process(event: BackendEvent) -> Option<ProcessEvent> {
    match event {
        BackendEvent::Adopted { .. } => None,
        BackendEvent::Process(event) => Some(event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::identity::Run;
    use portreeve::supervision::{ExitStatus, ProbeKind, ProbeNumber, ProbeOutcome};

    #[tokio::test]
    async fn one_wake_up_takes_everything_that_is_ready() {
        let (_orders, orders) = mpsc::channel(1);
        let (backend, events) = mpsc::unbounded_channel();
        let (results, probes) = mpsc::unbounded_channel();
        let mut sources = Sources {
            clock: Clock::Host,
            orders,
            backend: events,
            probes,
            lifeline: None,
        };
        let run = Run(1);
        let status = ExitStatus::Code(1);
        results
            .send(ProbeEnd {
                run,
                kind: ProbeKind::Liveness,
                probe: ProbeNumber(3),
                outcome: ProbeOutcome::Fail,
                text: String::new(),
            })
            .unwrap();
        let exited = ProcessEvent::Exited { run, status };
        let empty = ProcessEvent::GroupEmpty { run };
        let failed = ProcessEvent::SpawnFailed {
            run,
            why: portreeve::supervision::StartFailure::Errno(2),
        };
        for event in [&empty, &exited, &failed] {
            backend.send(event.clone().into()).unwrap();
        }
        let woken = sources.next(Some(Monotonic::default())).await;
        assert_eq!(woken.processes, [empty, exited, failed]);
        assert_eq!(woken.probes.len(), 1);
        assert!(!woken.lifeline_ended);
    }
}
