//! What a driver does for the machine: starts, signals, kills and probes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use portreeve::identity::Run;
use portreeve::port::PortRanges;
use portreeve::supervision::{Effect, Event, ProbeKind, StartFailure};
use portreeve::time::{Monotonic, Now};
use portreeve_api::host_limits::Note;

use super::Driver;
use crate::checks::Checks;
use crate::conflict;
use crate::job::{self, Job};
use crate::probe::{self, ProbeReport, SourcePorts};
use crate::restart::Waiting;

impl Driver {
    pub(super) fn act(&mut self, now: Now, effect: Effect) {
        match effect {
            Effect::Spawn { run } => {
                self.progress.waiting = Some(Waiting::new(run, now.mono));
                self.start_waiting(now);
            }
            Effect::Term { run } => {
                let signal = self.assignment.desired.profile.stop_signal;
                self.backend.term(run, signal);
            }
            Effect::KillGroup { run } => {
                if self.progress.emptied < Some(run) {
                    self.backend.kill_group(run);
                }
            }
            Effect::Probe {
                run,
                kind,
                probe,
                timeout,
            } => {
                let until = Rc::new(Cell::new(now.mono + timeout));
                let task = self.probe(kind, timeout, until.clone());
                self.probing.start((run, kind, probe), timeout, until, task);
            }
            Effect::CancelProbe { kind, probe, .. } => self.probing.cancel(kind, probe),
            Effect::Report(report) => {
                let run = self.record.machine.run();
                tracing::info!("run {run}: {report}");
            }
        }
    }

    /// Starts the run that waits, once the limits of the host let it.
    pub(super) fn start_waiting(&mut self, now: Now) {
        let Some(waiting) = &mut self.progress.waiting else {
            return;
        };
        let run = waiting.run();
        if self.record.machine.is_stop_wanted() {
            // It would only be started to be stopped.
            let why = StartFailure::Prepare("it was stopped before it began".into());
            self.progress.own.push(Event::SpawnFailed { run, why });
            self.progress.waiting = None;
        } else if waiting.may_begin(now.mono, &self.limits) {
            self.progress.waiting = None;
            if let Err(event) = self.spawn(run) {
                self.progress.own.push(event);
            }
        }
    }

    /// Connections of ours begin neither in the pool of the host nor on a number of the replica.
    pub(super) fn look_at_sources(&mut self) {
        let own = self.assignment.desired.grant.ports.iter();
        let own = own.map(|granted| granted.numbers);
        let pool = self.assignment.pool.as_slice().iter().copied();
        self.progress.sources = SourcePorts::beside(&PortRanges::new(pool.chain(own)));
    }

    /// Starts a run, or says why not; first ends what is left of earlier ones, if there is something.
    fn spawn(&mut self, run: Run) -> Result<(), Event> {
        self.progress.news.new_run();
        self.look_at_sources();
        if !self.backend.clear(run) {
            return Ok(());
        }
        self.spawn_alone(run)
    }

    /// Starts a run beside which nothing of the replica lives.
    pub(super) fn spawn_alone(&mut self, run: Run) -> Result<(), Event> {
        job::remove_runs_before(&self.folder, run);
        if let Some(found) = conflict::before_start(&self.assignment.desired.grant) {
            return Err(found.event(run));
        }
        let prepared = self.read_job(run).and_then(|job| {
            let launch = job.launch(&self.assignment, &self.folder)?;
            Ok((job, launch))
        });
        let (job, launch) = prepared.map_err(|cause| Event::SpawnFailed {
            run,
            why: StartFailure::Prepare(cause.to_string()),
        })?;
        self.progress.job = Some(job);
        self.backend.spawn(launch);
        Ok(())
    }

    /// The probe of this kind, as a future that needs nothing of the driver.
    fn probe(
        &mut self,
        kind: ProbeKind,
        timeout: Duration,
        until: Rc<Cell<Monotonic>>,
    ) -> impl Future<Output = ProbeReport> + use<> {
        let address = self.record.host_address;
        if !self.record.address_seen {
            // Written with the next change; a worker that does not know looks again.
            self.record.address_seen = probe::is_here(address);
        }
        let root = self.backend.root();
        let leftovers = self.progress.leftovers.entry(kind).or_default();
        let checks = Checks {
            assignment: &self.assignment,
            job: self.progress.job.as_ref(),
            address,
            own_address: self.record.address_seen,
            port_addresses: &self.record.port_addresses,
            root: root.as_ref(),
            sources: &self.progress.sources,
            limits: &self.limits,
        };
        let target = checks.target(kind);
        let check = checks.check(kind, leftovers);
        let rules = &self.assignment.desired.profile.supervision;
        let timing = match kind {
            ProbeKind::Startup => rules.startup.as_ref(),
            ProbeKind::Liveness => rules.liveness.as_ref(),
            ProbeKind::Readiness => rules.readiness.as_ref(),
        };
        let patience = timing.map_or(timeout, |timing| timing.interval);
        let (limits, clock) = (self.limits.clone(), self.clock);
        async move {
            let check = match check {
                Ok(check) => check,
                // It is ours to make it ready, so it says nothing about the service.
                Err(text) => return ProbeReport::inconclusive(text),
            };
            // Until it begins.
            until.set(clock.now().mono + patience + timeout);
            let begins = || until.set(clock.now().mono + timeout);
            let report = probe::probe(check, target, timeout, patience, begins).await;
            if let Some(errno) = report.shortage {
                limits.note(Note::Shortage(errno));
            }
            report
        }
    }

    pub(super) fn read_job(&self, run: Run) -> Result<Job, job::PrepareError> {
        let addresses = (self.record.host_address, &self.record.port_addresses);
        Job::read(&self.assignment, &self.folder, run, addresses)
    }
}
