//! What a turn decided becomes what is to be done: written down, then told, then done.

use crate::identity::Run;
use crate::supervision::{Effect, Report, StartFailure};
use crate::time::{Monotonic, Now};

use super::happened::ProcessEvent;
use super::output::{Output, Surroundings};
use super::start::Waiting;
use super::turn::Attendance;

impl Attendance {
    /// Writes down, then tells, then does.
    pub(super) fn settle<A>(
        &mut self,
        now: Now,
        effects: Vec<Effect>,
        around: &mut impl Surroundings,
        out: &mut Vec<Output<A>>,
    ) {
        let about_probe =
            |effect: &Effect| matches!(effect, Effect::Probe { .. } | Effect::CancelProbe { .. });
        let reports = effects.iter().filter_map(|effect| match effect {
            Effect::Report(report) => Some(report.clone()),
            _ => None,
        });
        let reports: Vec<Report> = reports.collect();
        self.changed |= !effects.iter().all(about_probe);
        if self.record.machine.is_ready() {
            self.record.ready_run = Some(self.run());
        }
        self.changed |= self.record.note_failure(now, self.news.texts());
        let news = self.news.status(&self.record, now, !reports.is_empty());
        let is_news = news.is_some();
        if is_news {
            self.record.status = news;
        }
        if self.changed || is_news {
            self.work.writes += 1;
            out.push(Output::Write {
                status: self.record.status.is_some() && (is_news || self.write_again.is_some()),
            });
            self.changed = false;
            self.write_again = None;
        }
        if is_news {
            out.push(Output::Tell { reports });
        }
        for effect in effects {
            self.act(now.mono, effect, around, out);
        }
    }

    fn act<A>(
        &mut self,
        now: Monotonic,
        effect: Effect,
        around: &mut impl Surroundings,
        out: &mut Vec<Output<A>>,
    ) {
        match effect {
            Effect::Spawn { run } => {
                self.waiting = Some(Waiting::new(run, now));
                self.start_waiting(now, around, out);
            }
            Effect::Term { run } => out.push(Output::Term { run }),
            Effect::KillGroup { run } => {
                if self.emptied < Some(run) {
                    out.push(Output::KillGroup { run });
                }
            }
            Effect::Probe {
                run,
                kind,
                probe,
                timeout,
            } => {
                self.probing.begin(now, kind, probe, timeout);
                out.push(Output::Probe {
                    run,
                    kind,
                    probe,
                    timeout,
                });
            }
            Effect::CancelProbe { kind, probe, .. } => {
                if self.probing.cancel(kind, probe) {
                    out.push(Output::CancelProbe { kind, probe });
                }
            }
            Effect::Report(_) => {}
        }
    }

    /// Begins the run that waits, once the limits of the host let it.
    pub(super) fn start_waiting<A>(
        &mut self,
        now: Monotonic,
        around: &mut impl Surroundings,
        out: &mut Vec<Output<A>>,
    ) {
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        let run = waiting.run();
        if self.record.machine.is_stop_wanted() {
            self.waiting = None;
            self.give_up_start(run);
        } else if waiting.may_begin(now, around) {
            self.waiting = None;
            self.news.new_run();
            self.clearing = Some(run);
            out.push(Output::Clear { run });
        }
    }

    /// Starts a run beside which nothing of the replica lives.
    pub(super) fn spawn<A>(&mut self, run: Run, out: &mut Vec<Output<A>>) {
        if self.record.machine.is_stop_wanted() {
            self.give_up_start(run);
        } else {
            out.push(Output::Spawn { run });
        }
    }

    /// It would only be started to be stopped.
    fn give_up_start(&mut self, run: Run) {
        let why = StartFailure::Prepare("it was stopped before it began".into());
        self.own.push(ProcessEvent::SpawnFailed { run, why });
    }
}
