//! What probes decide: up, ready, not ready, or the end of the run.

use super::super::config::{Config, ProbeTiming};
use super::super::phase::{Cause, Phase};
use super::super::track::{Track, Verdict};
use super::super::vocabulary::{Effect, ProbeKind, ProbeNumber, ProbeOutcome, Reason, Report};
use super::Machine;
use std::time::Duration;

use crate::time::Monotonic;

impl Machine {
    pub(super) fn begin_probe(&mut self, now: Monotonic, kind: ProbeKind, out: &mut Vec<Effect>) {
        let Some((track, timing)) = probing(&mut self.phase, &self.config, kind) else {
            return self.forget_probe(now, kind);
        };
        out.push(Effect::Probe {
            run: self.run,
            kind,
            probe: track.begin(now, timing.interval),
            timeout: timing.timeout,
        });
    }

    /// Drops a probe that the rules do not have: only a state that was damaged while it was written down holds one,
    /// and its deadline must not stay due for ever.
    fn forget_probe(&mut self, now: Monotonic, kind: ProbeKind) {
        match (&mut self.phase, kind) {
            (Phase::Up(up), ProbeKind::Liveness) => up.liveness = None,
            (Phase::Up(up), ProbeKind::Readiness) => up.readiness = None,
            (Phase::Startup { .. }, _) => self.enter_up(now),
            _ => {}
        }
    }

    pub(super) fn probe_ended(
        &mut self,
        now: Monotonic,
        kind: ProbeKind,
        probe: ProbeNumber,
        outcome: ProbeOutcome,
        out: &mut Vec<Effect>,
    ) {
        let Some((track, timing)) = probing(&mut self.phase, &self.config, kind) else {
            return;
        };
        if track.in_flight() != Some(probe) {
            return;
        }
        match (kind, track.ended(now, outcome, timing)) {
            (_, Verdict::Open) | (ProbeKind::Liveness, Verdict::Good) => {}
            (ProbeKind::Startup, Verdict::Good) => self.enter_up(now),
            (ProbeKind::Startup, Verdict::Bad { failures }) => {
                self.begin_killing(now, Cause::Startup { failures }, out);
            }
            (ProbeKind::Liveness, Verdict::Bad { failures }) => {
                self.begin_killing(now, Cause::Liveness { failures }, out);
            }
            (ProbeKind::Readiness, Verdict::Good) => self.set_ready(now, out),
            (ProbeKind::Readiness, Verdict::Bad { failures }) => {
                self.set_not_ready(Reason::Probe { failures }, out);
            }
        }
    }

    pub(super) fn begin_killing(&mut self, now: Monotonic, cause: Cause, out: &mut Vec<Effect>) {
        let grace = self.config.stop.grace;
        self.begin_stopping(now, cause, Duration::ZERO, grace, out);
    }

    pub(super) fn set_ready(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        let Phase::Up(up) = &mut self.phase else {
            return;
        };
        up.ready_at = None;
        up.stable_since.get_or_insert(now);
        if !self.ready {
            self.ready = true;
            self.not_ready = None;
            out.push(Effect::Report(Report::Ready));
        }
    }

    pub(super) fn set_not_ready(&mut self, reason: Reason, out: &mut Vec<Effect>) {
        if self.ready {
            self.ready = false;
            self.not_ready = Some(reason.clone());
            out.push(Effect::Report(Report::NotReady(reason)));
        }
    }
}

/// The probe of this kind, where this phase runs it.
fn probing<'a>(
    phase: &'a mut Phase,
    config: &'a Config,
    kind: ProbeKind,
) -> Option<(&'a mut Track, &'a ProbeTiming)> {
    match (phase, kind) {
        (Phase::Startup { probe }, ProbeKind::Startup) => Some((probe, config.startup.as_ref()?)),
        (Phase::Up(up), ProbeKind::Liveness) => {
            Some((up.liveness.as_mut()?, config.liveness.as_ref()?))
        }
        (Phase::Up(up), ProbeKind::Readiness) => {
            Some((up.readiness.as_mut()?, config.readiness.as_ref()?))
        }
        _ => None,
    }
}
