//! The machine of one incarnation: which event leads from where to where, and what is to be done then.
//!
//! A driver samples the clock once per wake-up, hands over every event that is ready in the order of
//! [`Event`]'s documentation, then calls [`Machine::on_deadline`]. Events of an earlier run or probe have
//! no effect at all, so a driver need not filter them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config::{Config, ProbeTiming};
use super::decision::{self, Budget, WindowFull};
use super::phase::{By, Cause, Deadline, Next, Phase, PreExec, Respawn, Step, Up};
use super::status::{Final, State};
use super::track::{Track, Verdict};
use super::vocabulary::{
    Effect, Event, ExitStatus, ProbeKind, ProbeNumber, ProbeOutcome, Reason, Report, StartFailure,
};
use crate::identity::Run;
use crate::time::Monotonic;

/// Supervises one incarnation of one replica: events and deadlines in, effects out.
///
/// Its serde form is the whole state: a machine read back behaves as the one written, within one boot
/// (its moments are of that boot's monotonic clock). A result of a probe allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    config: Config,
    seed: u64,
    run: Run,
    phase: Phase,
    ready: bool,
    not_ready: Option<Reason>,
    /// The shortest grace a stop asked for; once set, nothing is started any more.
    stop: Option<Duration>,
    /// The user asked for a restart that the next start answers.
    user_restart: bool,
    budget: Budget,
    restarts: u32,
    user_restarts: u32,
    first_failure: Option<RunFailure>,
    last_failure: Option<RunFailure>,
}

impl Machine {
    /// A machine that has not begun. `seed` decides jitter and spread, nothing else.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            seed,
            run: Run::default(),
            phase: Phase::Idle,
            ready: false,
            not_ready: None,
            stop: None,
            user_restart: false,
            budget: Budget::default(),
            restarts: 0,
            user_restarts: 0,
            first_failure: None,
            last_failure: None,
        }
    }

    /// Takes one event and appends what is to be done, in this order.
    ///
    /// Inside one instant the order is: commands, then `Spawned`, `SpawnFailed` and `PortConflict`, then
    /// `Exited`, then `GroupEmpty`, then `ProbeResult`.
    pub fn handle(&mut self, now: Monotonic, event: Event, out: &mut Vec<Effect>) {
        if event.run().is_some_and(|run| run != self.run) {
            return;
        }
        match event {
            Event::Start => {
                if matches!(self.phase, Phase::Idle) {
                    self.spawn(None, out);
                }
            }
            Event::Stop { grace } => {
                self.stop(now, grace.unwrap_or(self.config.stop.grace), out);
            }
            Event::UserRestart => self.user_restart(now, out),
            Event::PreExecStarted { .. } => self.pre_exec_started(now, out),
            Event::Spawned { .. } => self.spawned(now, out),
            Event::SpawnFailed { why, .. } => {
                if matches!(self.phase, Phase::Starting { .. }) {
                    self.attempted(out);
                    self.ended(now, End::NotStarted(why), out);
                }
            }
            Event::PortConflict {
                port,
                protocol,
                pid,
                comm,
                ..
            } => {
                if self.runs() {
                    let conflict = Final::PortConflict {
                        port,
                        protocol,
                        pid,
                        comm,
                    };
                    self.ended(now, End::Conflict(conflict), out);
                }
            }
            Event::Exited { status, .. } => {
                if self.runs() {
                    // An exit may be seen before the spawn; it proves the spawn.
                    self.attempted(out);
                    self.ended(now, End::Exited(status), out);
                }
            }
            Event::GroupEmpty { .. } => self.group_empty(now, out),
            Event::ProbeResult {
                kind,
                probe,
                outcome,
                ..
            } => self.probe_ended(now, kind, probe, outcome, out),
            Event::Adopt { spread, stale } => self.adopt(now, spread, stale, out),
        }
    }

    /// Does everything that is due at `now` or earlier.
    pub fn on_deadline(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        // Each round ends a wait, begins a probe or leaves the phase for one without a due deadline.
        while let Some(deadline) = self.first_due(now) {
            match deadline {
                Deadline::Kill => self.kill(now, out),
                Deadline::Drain => self.drained(now, out),
                Deadline::Unkillable => self.stuck(out),
                Deadline::Probe(kind) => self.begin_probe(now, kind, out),
                Deadline::MinUp => self.set_ready(now, out),
                Deadline::Backoff => self.backoff_over(out),
            }
        }
    }

    /// When [`Machine::on_deadline`] is to be called next, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.phase.deadlines().map(|(at, _)| at).min()
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.phase.state()
    }

    /// The newest start.
    #[must_use]
    pub const fn run(&self) -> Run {
        self.run
    }

    /// Whether clients may be sent to it.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether nothing follows.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self.phase, Phase::Final(_))
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub const fn is_stop_wanted(&self) -> bool {
        self.stop.is_some()
    }

    /// Automatic restarts so far; rises when the next run is attempted.
    #[must_use]
    pub const fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Restarts by the user so far.
    #[must_use]
    pub const fn user_restarts(&self) -> u32 {
        self.user_restarts
    }

    /// The rules it follows.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What a status tells of it, without what only a driver knows.
    #[must_use]
    pub fn standing(&self) -> Standing<'_> {
        let next_start = match &self.phase {
            Phase::Backoff(respawn)
            | Phase::Reaping {
                next: Next::Respawn(respawn),
                ..
            } => Some(respawn.at),
            _ => None,
        };
        Standing {
            run: self.run,
            state: self.state(),
            ready: self.ready,
            not_ready: self.not_ready.as_ref(),
            restarts: self.restarts,
            user_restarts: self.user_restarts,
            next_start,
            first_failure: self.first_failure.as_ref(),
            last_failure: self.last_failure.as_ref(),
        }
    }

    // Commands.

    fn stop(&mut self, now: Monotonic, grace: Duration, out: &mut Vec<Effect>) {
        if self.is_final() {
            return;
        }
        self.stop = Some(self.stop.map_or(grace, |earlier| earlier.min(grace)));
        match &mut self.phase {
            Phase::Idle | Phase::Backoff(_) => self.finish(Final::Stopped, out),
            Phase::Starting { pre_exec, .. } => match pre_exec {
                PreExec::Absent => {}
                PreExec::Running => self.signal_pre_exec(now, grace, out),
                PreExec::Signalled { kill_at } => {
                    *kill_at = kill_at.map(|at| at.min(now + grace));
                }
            },
            Phase::Startup { .. } | Phase::Up(_) => {
                self.begin_stopping(now, Cause::Stop, self.config.stop.drain, grace, out);
            }
            Phase::Stopping { step, .. } => match step {
                Step::Draining { grace: earlier, .. } => *earlier = grace.min(*earlier),
                Step::Signalled { kill_at } => *kill_at = (now + grace).min(*kill_at),
                Step::Killed { .. } => {}
            },
            Phase::Reaping { next, .. } | Phase::StuckGroup { next } => {
                *next = Next::End(Final::Stopped);
            }
            Phase::StuckProcess { .. } | Phase::Final(_) => {}
        }
    }

    fn user_restart(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        if self.stop.is_some() {
            return;
        }
        let respawn = Respawn {
            at: now,
            reason: Reason::User,
            by: By::User,
        };
        match &mut self.phase {
            Phase::Idle | Phase::Final(_) => {}
            Phase::Startup { .. } | Phase::Up(_) => {
                let rule = &self.config.stop;
                let (drain, grace) = (rule.drain, rule.grace);
                self.begin_stopping(now, Cause::User, drain, grace, out);
            }
            Phase::Starting { .. } | Phase::Stopping { .. } | Phase::StuckProcess { .. } => {
                self.user_restart = true;
            }
            Phase::Backoff(_) => {
                self.budget.reset_backoff();
                self.spawn(Some(respawn), out);
            }
            Phase::Reaping { next, .. } | Phase::StuckGroup { next } => {
                // Its ports belong to somebody else now; another start could only fail.
                if !matches!(next, Next::End(Final::PortConflict { .. })) {
                    *next = Next::Respawn(respawn);
                    self.budget.reset_backoff();
                }
            }
        }
    }

    fn adopt(
        &mut self,
        now: Monotonic,
        spread: Option<Duration>,
        stale: bool,
        out: &mut Vec<Effect>,
    ) {
        let salt = u64::from(self.run.0);
        let seed = self.seed;
        let first = |timing: &ProbeTiming, kind: ProbeKind| {
            let draw = decision::mix(seed ^ SPREAD, salt * 4 + kind as u64);
            now + spread.unwrap_or_else(|| fraction(timing.interval, draw))
        };
        match &mut self.phase {
            Phase::Startup { probe } => {
                if let Some(timing) = &self.config.startup {
                    probe.adopt(first(timing, ProbeKind::Startup));
                }
            }
            Phase::Up(up) => {
                if let (Some(track), Some(timing)) = (&mut up.liveness, &self.config.liveness) {
                    track.adopt(first(timing, ProbeKind::Liveness));
                }
                let doubted = stale && self.ready;
                if let (Some(track), Some(timing)) = (&mut up.readiness, &self.config.readiness) {
                    track.adopt(first(timing, ProbeKind::Readiness));
                    if doubted {
                        track.trust_next_success(timing);
                    }
                } else if doubted {
                    up.ready_at = Some(now + self.config.min_up);
                }
                if doubted {
                    self.set_not_ready(Reason::StaleRecord, out);
                }
            }
            // The kill may never have been done, or its answer may be lost; to repeat it is harmless.
            Phase::Stopping {
                step: Step::Killed { .. },
                ..
            }
            | Phase::Reaping { .. }
            | Phase::StuckProcess { .. }
            | Phase::StuckGroup { .. } => out.push(Effect::KillGroup { run: self.run }),
            Phase::Idle
            | Phase::Starting { .. }
            | Phase::Stopping { .. }
            | Phase::Backoff(_)
            | Phase::Final(_) => {}
        }
    }

    // The life of a run.

    fn spawn(&mut self, replaces: Option<Respawn>, out: &mut Vec<Effect>) {
        self.run = self.run.next();
        self.phase = Phase::Starting {
            replaces,
            pre_exec: PreExec::Absent,
        };
        out.push(Effect::Spawn { run: self.run });
    }

    fn pre_exec_started(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        let Phase::Starting { pre_exec, .. } = &mut self.phase else {
            return;
        };
        if *pre_exec == PreExec::Absent {
            *pre_exec = PreExec::Running;
            if let Some(grace) = self.stop {
                self.signal_pre_exec(now, grace, out);
            }
        }
    }

    fn signal_pre_exec(&mut self, now: Monotonic, grace: Duration, out: &mut Vec<Effect>) {
        if let Phase::Starting { pre_exec, .. } = &mut self.phase {
            *pre_exec = PreExec::Signalled {
                kill_at: Some(now + grace),
            };
            out.push(Effect::Term { run: self.run });
        }
    }

    fn spawned(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        if !matches!(self.phase, Phase::Starting { .. }) {
            return;
        }
        self.attempted(out);
        if let Some(grace) = self.stop {
            // Nobody was ever sent to it, so there is nothing to drain.
            self.begin_stopping(now, Cause::Stop, Duration::ZERO, grace, out);
        } else if let Some(timing) = &self.config.startup {
            self.phase = Phase::Startup {
                probe: Track::new(now + timing.initial_delay),
            };
        } else {
            self.enter_up(now);
        }
    }

    /// Counts and reports the restart that was attempted just now, if this start is one.
    fn attempted(&mut self, out: &mut Vec<Effect>) {
        let Phase::Starting { replaces, .. } = &mut self.phase else {
            return;
        };
        let Some(respawn) = replaces.take() else {
            return;
        };
        match respawn.by {
            By::Policy => self.restarts = self.restarts.saturating_add(1),
            By::User => self.user_restarts = self.user_restarts.saturating_add(1),
        }
        out.push(Effect::Report(Report::Restarted {
            count: self.restarts,
            reason: respawn.reason,
            user_restarts: self.user_restarts,
        }));
    }

    fn enter_up(&mut self, now: Monotonic) {
        // This run began after the user asked; an end in a week must not pass for the user's.
        self.user_restart = false;
        let track = |timing: &ProbeTiming| Track::new(now + timing.initial_delay);
        let readiness = self.config.readiness.as_ref().map(track);
        let unprobed = readiness.is_none();
        self.phase = Phase::Up(Up {
            liveness: self.config.liveness.as_ref().map(track),
            readiness,
            ready_at: unprobed.then(|| now + self.config.min_up),
            stable_since: unprobed.then_some(now),
        });
    }

    fn begin_stopping(
        &mut self,
        now: Monotonic,
        cause: Cause,
        drain: Duration,
        grace: Duration,
        out: &mut Vec<Effect>,
    ) {
        self.leave_up(cause.reason(), out);
        let step = if drain.is_zero() {
            out.push(Effect::Term { run: self.run });
            Step::Signalled {
                kill_at: now + grace,
            }
        } else {
            Step::Draining {
                until: now + drain,
                grace,
            }
        };
        self.phase = Phase::Stopping {
            cause,
            step,
            stable_since: self.stable_since(),
        };
    }

    /// Not ready first, then no probe any more: before anything else is said or done.
    fn leave_up(&mut self, reason: Reason, out: &mut Vec<Effect>) {
        self.set_not_ready(reason, out);
        let run = self.run;
        let mut cancel = |kind, track: Option<&Track>| {
            if let Some(probe) = track.and_then(Track::in_flight) {
                out.push(Effect::CancelProbe { run, kind, probe });
            }
        };
        match &self.phase {
            Phase::Startup { probe } => cancel(ProbeKind::Startup, Some(probe)),
            Phase::Up(up) => {
                cancel(ProbeKind::Liveness, up.liveness.as_ref());
                cancel(ProbeKind::Readiness, up.readiness.as_ref());
            }
            _ => {}
        }
    }

    fn ended(&mut self, now: Monotonic, end: End, out: &mut Vec<Effect>) {
        let cause = match self.phase {
            Phase::Stopping { cause, .. } | Phase::StuckProcess { cause, .. } => Some(cause),
            _ => None,
        };
        let (reason, status) = match (&end, cause) {
            (End::Exited(status), Some(cause)) => (cause.reason(), Some(*status)),
            (End::Exited(status), None) => (Reason::Exit(*status), Some(*status)),
            (End::NotStarted(why), _) => (Reason::StartFailed(why.clone()), None),
            // Whatever status there was went with the conflict.
            (End::Conflict(_), cause) => {
                let reason = cause.map_or(Reason::Exit(ExitStatus::Unknown), Cause::reason);
                (reason, None)
            }
        };
        let stable = self
            .stable_since()
            .is_some_and(|since| now.since(since) >= self.config.backoff.reset_after);
        self.leave_up(reason.clone(), out);
        out.push(Effect::KillGroup { run: self.run });
        let next = match end {
            _ if self.stop.is_some() => Next::End(Final::Stopped),
            End::Conflict(conflict) => Next::End(conflict),
            End::Exited(_) | End::NotStarted(_) => {
                let own_end = if cause.is_none() { status } else { None };
                self.note_failure(now, &reason, own_end, status);
                self.decide(
                    now,
                    reason,
                    own_end,
                    stable,
                    cause == Some(Cause::User),
                    out,
                )
            }
        };
        self.phase = Phase::Reaping {
            stuck_at: now + self.config.stop.unkillable_after,
            next,
        };
    }

    fn note_failure(
        &mut self,
        now: Monotonic,
        reason: &Reason,
        own_end: Option<ExitStatus>,
        exit: Option<ExitStatus>,
    ) {
        let success = own_end.is_some_and(|status| decision::is_success(status, &self.config));
        if success || matches!(reason, Reason::User | Reason::Stop) {
            return;
        }
        let failure = RunFailure {
            run: self.run,
            reason: reason.clone(),
            exit,
            at: now,
        };
        if self.first_failure.is_none() {
            self.first_failure = Some(failure.clone());
        }
        self.last_failure = Some(failure);
    }

    fn decide(
        &mut self,
        now: Monotonic,
        reason: Reason,
        own_end: Option<ExitStatus>,
        stable: bool,
        users: bool,
        out: &mut Vec<Effect>,
    ) -> Next {
        if users || self.user_restart {
            self.user_restart = false;
            self.budget.reset_backoff();
            return Next::Respawn(Respawn {
                at: now,
                reason: Reason::User,
                by: By::User,
            });
        }
        if own_end.is_some_and(|status| decision::forbids_restart(status, &self.config)) {
            return Next::End(Final::Failed(reason));
        }
        let success = own_end.is_some_and(|status| decision::is_success(status, &self.config));
        if !decision::policy_restarts(self.config.restart, success) {
            return Next::End(if success {
                Final::Succeeded
            } else {
                Final::Failed(reason)
            });
        }
        if stable {
            self.budget.reset_backoff();
        }
        match self.budget.grant(now, &self.config, self.seed, self.run) {
            Ok(delay) => {
                out.push(Effect::Report(Report::Backoff {
                    reason: reason.clone(),
                    delay,
                }));
                Next::Respawn(Respawn {
                    at: now + delay,
                    reason,
                    by: By::Policy,
                })
            }
            Err(WindowFull) => Next::End(Final::GaveUp {
                reason,
                count: self.restarts,
            }),
        }
    }

    fn group_empty(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        let (Phase::Reaping { next, .. } | Phase::StuckGroup { next }) = &self.phase else {
            return;
        };
        match next.clone() {
            Next::End(end) => self.finish(end, out),
            Next::Respawn(respawn) if respawn.at <= now => self.spawn(Some(respawn), out),
            Next::Respawn(respawn) => self.phase = Phase::Backoff(respawn),
        }
    }

    fn finish(&mut self, end: Final, out: &mut Vec<Effect>) {
        out.push(Effect::Report(Report::Final(end.clone())));
        self.phase = Phase::Final(end);
    }

    // Probes and readiness.

    fn begin_probe(&mut self, now: Monotonic, kind: ProbeKind, out: &mut Vec<Effect>) {
        let Some((track, timing)) = probing(&mut self.phase, &self.config, kind) else {
            return;
        };
        out.push(Effect::Probe {
            run: self.run,
            kind,
            probe: track.begin(now, timing.interval),
            timeout: timing.timeout,
        });
    }

    fn probe_ended(
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

    fn begin_killing(&mut self, now: Monotonic, cause: Cause, out: &mut Vec<Effect>) {
        let grace = self.config.stop.grace;
        self.begin_stopping(now, cause, Duration::ZERO, grace, out);
    }

    fn set_ready(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
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

    fn set_not_ready(&mut self, reason: Reason, out: &mut Vec<Effect>) {
        if self.ready {
            self.ready = false;
            self.not_ready = Some(reason.clone());
            out.push(Effect::Report(Report::NotReady(reason)));
        }
    }

    // Deadlines.

    fn first_due(&self, now: Monotonic) -> Option<Deadline> {
        self.phase
            .deadlines()
            .find(|(at, _)| *at <= now)
            .map(|(_, deadline)| deadline)
    }

    fn kill(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Starting {
                pre_exec: PreExec::Signalled { kill_at },
                ..
            } => *kill_at = None,
            Phase::Stopping { step, .. } => {
                *step = Step::Killed {
                    stuck_at: now + self.config.stop.unkillable_after,
                };
            }
            _ => return,
        }
        out.push(Effect::KillGroup { run: self.run });
    }

    fn drained(&mut self, now: Monotonic, out: &mut Vec<Effect>) {
        if let Phase::Stopping { step, .. } = &mut self.phase
            && let Step::Draining { grace, .. } = *step
        {
            *step = Step::Signalled {
                kill_at: now + grace,
            };
            out.push(Effect::Term { run: self.run });
        }
    }

    /// Leaves for a phase without a deadline: only the end of the processes leads out of it.
    fn stuck(&mut self, out: &mut Vec<Effect>) {
        self.phase = match &self.phase {
            Phase::Reaping { next, .. } => Phase::StuckGroup { next: next.clone() },
            Phase::Stopping {
                cause,
                stable_since,
                ..
            } => Phase::StuckProcess {
                cause: *cause,
                stable_since: *stable_since,
            },
            _ => return,
        };
        out.push(Effect::Report(Report::Stuck));
    }

    fn backoff_over(&mut self, out: &mut Vec<Effect>) {
        if let Phase::Backoff(respawn) = &self.phase {
            let respawn = respawn.clone();
            self.spawn(Some(respawn), out);
        }
    }

    // Questions.

    /// Whether the process of the newest run may exist and its end is awaited.
    const fn runs(&self) -> bool {
        match self.phase {
            Phase::Starting { .. }
            | Phase::Startup { .. }
            | Phase::Up(_)
            | Phase::Stopping { .. }
            | Phase::StuckProcess { .. } => true,
            Phase::Idle
            | Phase::Reaping { .. }
            | Phase::StuckGroup { .. }
            | Phase::Backoff(_)
            | Phase::Final(_) => false,
        }
    }

    fn stable_since(&self) -> Option<Monotonic> {
        match &self.phase {
            Phase::Up(up) => up.stable_since,
            Phase::Stopping { stable_since, .. } | Phase::StuckProcess { stable_since, .. } => {
                *stable_since
            }
            _ => None,
        }
    }

    #[cfg(test)]
    pub(super) fn granted_in_window(&self) -> usize {
        self.budget.granted()
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

/// Part of `span`, below it, as `random` decides.
fn fraction(span: Duration, random: u64) -> Duration {
    let ms = (span.as_millis() * u128::from(random)) >> 64;
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}

/// How a run ended, or was found to have no chance.
enum End {
    Exited(ExitStatus),
    NotStarted(StartFailure),
    Conflict(Final),
}

/// What a status tells of a machine; the driver adds `seq`, `pid`, wall times and probe output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing<'a> {
    /// The newest start.
    pub run: Run,
    /// Where it stands.
    pub state: State,
    /// Whether clients may be sent here.
    pub ready: bool,
    /// Why it is not ready any more; `None` while ready and before the first readiness.
    pub not_ready: Option<&'a Reason>,
    /// Automatic restarts of this incarnation.
    pub restarts: u32,
    /// Restarts by the user in this incarnation.
    pub user_restarts: u32,
    /// When the next run begins at the earliest, where one is decided.
    pub next_start: Option<Monotonic>,
    /// The first failure of this incarnation.
    pub first_failure: Option<&'a RunFailure>,
    /// The newest failure of this incarnation; its `run` and `at` tell a driver that it is new.
    pub last_failure: Option<&'a RunFailure>,
}

/// One run's failure, without the wall time and probe output that a driver adds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    /// In which run.
    pub run: Run,
    /// The class and its detail.
    pub reason: Reason,
    /// How the process ended, where one did.
    pub exit: Option<ExitStatus>,
    /// When.
    pub at: Monotonic,
}

/// Keeps the draws of the spread apart from those of the jitter.
const SPREAD: u64 = 0x7370_7265_6164_0000;

#[cfg(test)]
#[path = "machine_test.rs"]
mod machine_test;
