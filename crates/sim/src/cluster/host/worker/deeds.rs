//! Does what a worker wants done.

use std::time::Duration;

use portreeve::attendance::{Output, ProbeEnd, ProcessEvent};
use portreeve::identity::Run;
use portreeve::port::PortName;
use portreeve::supervision::{Report, StartFailure};
use portreeve::time::{Monotonic, Now};

use super::super::agenda::Actor;
use super::super::ports::Holder;
use super::super::probes::Target;
use super::super::replica::{Attended, Replica};
use super::super::{Due, Host, HostOut, Place};
use super::By;
use super::around::stranger_on;
use crate::cluster::sight::What;

impl Host {
    /// Does what the worker wants done, in its order, until it dies if that is what befalls it.
    pub(super) fn carry_out(&mut self, now: Now, place: Place, out: &mut Vec<HostOut>) {
        let mut outputs = std::mem::take(&mut self.outputs);
        let dies_after = self
            .worker_mut(place)
            .and_then(|worker| worker.dies_after.take());
        let mut done = 0;
        for output in outputs.drain(..) {
            if dies_after == Some(done) {
                break;
            }
            done += 1;
            self.carry_out_one(now, place, output, out);
        }
        self.outputs = outputs;
        if let Some(after) = dies_after {
            if done == 0 && after > 0 {
                // It did nothing in this turn.
                if let Some(worker) = self.worker_mut(place) {
                    worker.dies_after = Some(after);
                }
                return self.wake_worker(now.mono, place);
            }
            return self.worker_dies(now, place, "killed in a turn", out);
        }
        let Some(worker) = self.worker_mut(place) else {
            return;
        };
        if worker
            .attendance
            .as_ref()
            .is_some_and(|one| one.ended().is_some())
        {
            return self.worker_ends(now, place);
        }
        self.tell_controller(now, place, out);
        self.wake_worker(now.mono, place);
    }

    fn carry_out_one(
        &mut self,
        now: Now,
        place: Place,
        output: Output<By>,
        out: &mut Vec<HostOut>,
    ) {
        let is_disk_full = self.is_disk_full;
        let replica = self.replicas.get_mut(&place);
        let Some(Attended {
            desired,
            folder,
            processes,
            attendance,
            telling,
            life,
            ..
        }) = replica.and_then(Replica::attended)
        else {
            return;
        };
        match output {
            Output::Write { .. } if is_disk_full => {
                folder.not_written(attendance.record());
                attendance.not_written(now.mono);
            }
            Output::Write { .. } => folder.write(),
            Output::Tell { reports } => {
                telling.news();
                let run = attendance.run();
                self.saw_reports(now.mono, place, run, reports, out);
            }
            Output::Clear { run } => {
                let rest = self.with_processes(place, |processes, ground| {
                    processes.clear(now.mono, run, ground)
                });
                match rest.flatten() {
                    None => self.tell_worker(now.mono, place, ProcessEvent::Cleared { run }),
                    Some(gone) => self.cleared(now.mono, place, run, gone),
                }
            }
            Output::Spawn { run } => self.spawn(now, place, run),
            Output::Term { run } => {
                self.with_processes(place, |processes, ground| {
                    processes.term(now.mono, run, ground);
                });
                self.saw(now.mono, place, run, What::Term, out);
            }
            Output::KillGroup { run } => {
                let killed = self.with_processes(place, |processes, ground| {
                    processes.kill_group(now.mono, run, ground)
                });
                if killed == Some(true) {
                    self.saw(now.mono, place, run, What::Kill, out);
                }
            }
            Output::Probe {
                run,
                kind,
                probe,
                timeout,
            } => {
                let target = Target {
                    place,
                    profile: &desired.profile,
                    grant: &desired.grant,
                    listeners: &self.listeners,
                    processes,
                };
                let (takes, outcome, text) = target.probe(now.mono, kind, timeout);
                let end = ProbeEnd {
                    run,
                    kind,
                    probe,
                    outcome,
                    text,
                };
                let due = Due::Probed(life, Box::new(end));
                self.agenda
                    .put(now.mono + takes, Actor::Worker(place), PROBES, due);
            }
            // What comes of it nevertheless counts for nothing.
            Output::CancelProbe { .. } => {}
            Output::Answer { to, refused } => {
                if let By::Agent { life, talk } = to {
                    let status = attendance.status().cloned();
                    self.worker_answers(now.mono, life, talk, status, refused);
                }
            }
        }
    }

    /// Starts a run, if nobody listens on its numbers.
    fn spawn(&mut self, now: Now, place: Place, run: Run) {
        let Some(replica) = self.replicas.get_mut(&place) else {
            return;
        };
        let Some(desired) = replica.assigned.as_ref().map(|one| &one.desired) else {
            return;
        };
        let stands_before = replica
            .whom
            .is_some_and(|whom| self.strangers.stands_before(whom));
        let nobody = |_: &PortName, _: Holder| false;
        if let Some(stranger) = stranger_on(desired, &self.listeners, nobody, stands_before) {
            let conflict = ProcessEvent::PortConflict { run, stranger };
            return self.tell_worker(now.mono, place, conflict);
        }
        self.pids += 1;
        let pid = self.pids;
        self.with_processes(place, |processes, ground| {
            processes.spawn(now.mono, run, pid, ground);
        });
    }

    /// What is left of earlier runs is gone then, if ever: one that stays is a start that failed.
    fn cleared(&mut self, now: Monotonic, place: Place, run: Run, gone: Option<Monotonic>) {
        let patience = now + PATIENCE_WITH_LEFTOVERS;
        match gone.filter(|gone| *gone <= patience) {
            Some(gone) => self.tell_worker(gone, place, ProcessEvent::Cleared { run }),
            None => {
                let words = "processes of an earlier run cannot be ended".to_owned();
                let why = StartFailure::Prepare(words);
                let failed = ProcessEvent::SpawnFailed { run, why };
                self.tell_worker(patience, place, failed);
            }
        }
    }

    fn saw_reports(
        &self,
        at: Monotonic,
        place: Place,
        run: Run,
        reports: Vec<Report>,
        out: &mut Vec<HostOut>,
    ) {
        for report in reports {
            self.saw(at, place, run, What::Report(report), out);
        }
    }
}

/// The place of probes' ends among the events of one instant, and of what is no event of the machine.
const PROBES: u8 = 4;

/// How long what is left of earlier runs may take to end.
const PATIENCE_WITH_LEFTOVERS: Duration = Duration::from_secs(10);
