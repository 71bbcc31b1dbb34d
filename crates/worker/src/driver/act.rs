//! What a driver does for its attendance: writes, tells, starts, signals, kills and probes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use portreeve::attendance::{Output, ProcessEvent};
use portreeve::identity::Run;
use portreeve::port::PortRanges;
use portreeve::supervision::{ProbeKind, StartFailure};
use portreeve::time::{Monotonic, Now};
use portreeve_api::host_limits::Note;
use portreeve_api::local::{WorkerAnswer, WorkerCounters};

use super::{Driver, Reply};
use crate::checks::Checks;
use crate::conflict;
use crate::file::{self, Durability};
use crate::job::{self, Job};
use crate::probe::{self, ProbeReport, SourcePorts};
use crate::unwritten;

impl Driver {
    pub(super) fn act(&mut self, now: Now, output: Output<Reply>) {
        match output {
            Output::Write { status } => self.write_down(now, status),
            Output::Tell { reports } => {
                let run = self.attendance.run();
                for report in &reports {
                    tracing::info!("run {run}: {report}");
                }
                let status = self.attendance.status().cloned();
                self.teller.tell(status, reports.into_iter());
            }
            Output::Clear { run } => {
                self.look_at_sources();
                if self.backend.clear(run) {
                    self.inside.found.push(ProcessEvent::Cleared { run });
                }
            }
            Output::Spawn { run } => {
                if let Err(event) = self.spawn(run) {
                    self.inside.found.push(event);
                }
            }
            Output::Term { run } => {
                let signal = self.assignment.desired.profile.stop_signal;
                self.backend.term(run, signal);
            }
            Output::KillGroup { run } => self.backend.kill_group(run),
            Output::Probe {
                run,
                kind,
                probe,
                timeout,
            } => {
                let until = Rc::new(Cell::new(now.mono + timeout));
                let task = self.probe(kind, timeout, until.clone());
                self.probing.start((run, kind, probe), timeout, until, task);
            }
            Output::CancelProbe { kind, probe } => self.probing.cancel(kind, probe),
            Output::Answer { to, refused } => self.answer(to, refused),
        }
    }

    pub(super) fn write_down(&mut self, now: Now, with_status: bool) {
        let record = self.attendance.record();
        let status = record.status().filter(|_| with_status);
        // It need not survive the machine: in another boot it is void.
        let written = file::write_json(&self.folder.machine(), record, Durability::Written);
        let written = written.and_then(|()| match status {
            Some(status) => file::write_json(&self.folder.status(), status, Durability::Written),
            None => Ok(()),
        });
        if written.is_ok()
            && let Some(noted) = self.inside.unwritten.take()
        {
            unwritten::forget(&self.folder, noted);
        }
        if let Err(cause) = written {
            tracing::error!("where the replica stands cannot be written down: {cause}");
            let run = self.attendance.run();
            match unwritten::note(&self.folder, self.inside.unwritten, run) {
                Ok(()) => self.inside.unwritten = self.inside.unwritten.max(Some(run)),
                Err(cause) => tracing::error!("run {run} cannot even be noted: {cause}"),
            }
            // The next worker would take it for one that is to run.
            if self.attendance.record().is_final()
                && let Err(cause) = file::mark(&self.folder.over())
            {
                tracing::error!("that it ended cannot even be marked: {cause}");
            }
            self.attendance.not_written(now.mono);
        }
    }

    fn answer(&self, reply: Reply, refused: Option<String>) {
        let work = self.attendance.work();
        // An agent that went away meanwhile asks again.
        _ = reply.to.send(WorkerAnswer {
            status: self.attendance.status().cloned(),
            refused: reply.refused.or(refused),
            counters: WorkerCounters {
                probes: work.probes,
                messages: self.teller.messages(),
                writes: work.writes,
            },
        });
    }

    /// Connections of ours begin neither in the pool of the host nor on a number of the replica.
    pub(super) fn look_at_sources(&mut self) {
        let own = self.assignment.desired.grant.ports.iter();
        let own = own.map(|granted| granted.numbers);
        let pool = self.assignment.pool.as_slice().iter().copied();
        self.inside.sources = SourcePorts::beside(&PortRanges::new(pool.chain(own)));
    }

    /// Starts a run beside which nothing of the replica lives, or says why not.
    fn spawn(&mut self, run: Run) -> Result<(), ProcessEvent> {
        job::remove_runs_before(&self.folder, run);
        if let Some(stranger) = conflict::before_start(&self.assignment.desired.grant) {
            return Err(ProcessEvent::PortConflict { run, stranger });
        }
        let prepared = self.read_job(run).and_then(|job| {
            let launch = job.launch(&self.assignment, &self.folder)?;
            Ok((job, launch))
        });
        let (job, launch) = prepared.map_err(|cause| ProcessEvent::SpawnFailed {
            run,
            why: StartFailure::Prepare(cause.to_string()),
        })?;
        self.inside.job = Some(job);
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
        let address = self.attendance.record().host_address();
        if !self.attendance.record().is_address_seen() && probe::is_here(address) {
            self.attendance.saw_address();
        }
        let record = self.attendance.record();
        let root = self.backend.root();
        let leftovers = self.inside.leftovers.entry(kind).or_default();
        let checks = Checks {
            assignment: &self.assignment,
            job: self.inside.job.as_ref(),
            address,
            own_address: record.is_address_seen(),
            port_addresses: record.port_addresses(),
            root: root.as_ref(),
            sources: &self.inside.sources,
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
        let record = self.attendance.record();
        let addresses = (record.host_address(), record.port_addresses());
        Job::read(&self.assignment, &self.folder, run, addresses)
    }
}
