//! Everything a driver listens to, and what one wake-up drained from it.

use std::time::Duration;

use portreeve::supervision::Event;
use portreeve::time::Monotonic;
use tokio::sync::{mpsc, oneshot};

use crate::backend::BackendEvent;
use crate::clock::Clock;
use crate::orders::Order;
use crate::probing::ProbeEnd;

/// The ends of the channels that lead to a driver.
pub(crate) struct Sources {
    pub(crate) clock: Clock,
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) backend: mpsc::UnboundedReceiver<BackendEvent>,
    pub(crate) probes: mpsc::UnboundedReceiver<ProbeEnd>,
    /// Fires once, when the process ends that the replica's life hangs on; dropped when it has.
    pub(crate) lifeline: Option<oneshot::Receiver<()>>,
}

/// What happened in one instant, in the order in which it is handled.
#[derive(Default)]
pub(crate) struct Happened {
    pub(crate) lifeline_ended: bool,
    pub(crate) orders: Vec<Order>,
    pub(crate) backend: Vec<BackendEvent>,
    pub(crate) probes: Vec<ProbeEnd>,
}

impl Sources {
    /// Waits until something happens or `until` has come, then takes everything that is ready.
    ///
    /// With an `until` in the past it only takes what is ready.
    pub(crate) async fn next(&mut self, until: Option<Monotonic>) -> Happened {
        let mut happened = Happened::default();
        let wait = until.map(|until| until.since(self.clock.monotonic()));
        let lifeline = async {
            match &mut self.lifeline {
                Some(lifeline) => _ = lifeline.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(order) = self.orders.recv() => happened.orders.push(order),
            Some(event) = self.backend.recv() => happened.backend.push(event),
            Some(end) = self.probes.recv() => happened.probes.push(end),
            () = lifeline => happened.lifeline_ended = true,
            () = sleep(wait) => {}
        }
        if happened.lifeline_ended {
            self.lifeline = None;
        }
        // Tasks whose descriptors are ready run now, so that what they have is taken before deadlines fire.
        tokio::task::yield_now().await;
        let orders = std::iter::from_fn(|| self.orders.try_recv().ok());
        happened.orders.extend(orders);
        let backend = std::iter::from_fn(|| self.backend.try_recv().ok());
        happened.backend.extend(backend);
        let probes = std::iter::from_fn(|| self.probes.try_recv().ok());
        happened.probes.extend(probes);
        happened.backend.sort_by_key(rank);
        happened
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// The order inside one instant, which is the machine's.
fn rank(event: &BackendEvent) -> u8 {
    match event {
        BackendEvent::Adopted { .. } => Event::Start.rank(),
        BackendEvent::PreExecStarted { run } => Event::PreExecStarted { run: *run }.rank(),
        // A start that failed stands where one that succeeded does.
        BackendEvent::Spawned { run, .. }
        | BackendEvent::SpawnFailed { run, .. }
        | BackendEvent::Cleared { run } => Event::Spawned { run: *run }.rank(),
        BackendEvent::Exited { run, status } => Event::Exited {
            run: *run,
            status: *status,
        }
        .rank(),
        BackendEvent::GroupEmpty { run } => Event::GroupEmpty { run: *run }.rank(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::identity::Run;
    use portreeve::supervision::{ExitStatus, ProbeKind, ProbeNumber, ProbeOutcome};

    #[tokio::test]
    async fn one_wake_up_takes_everything_that_is_ready_in_the_order_of_one_instant() {
        // supervision 1.1
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
        let exited = BackendEvent::Exited { run, status };
        let empty = BackendEvent::GroupEmpty { run };
        let failed = BackendEvent::SpawnFailed {
            run,
            why: portreeve::supervision::StartFailure::Errno(2),
        };
        for event in [&empty, &exited, &failed] {
            backend.send(event.clone()).unwrap();
        }
        let happened = sources.next(Some(Monotonic::default())).await;
        assert_eq!(happened.backend, [failed, exited, empty]);
        assert_eq!(happened.probes.len(), 1);
        assert!(!happened.lifeline_ended);
    }
}
