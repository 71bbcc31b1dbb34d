//! The machine of one incarnation: which event leads from where to where, and what is to be done then.
//!
//! A driver samples the clock once per wake-up, hands over every event that is ready in the order of
//! [`Event`]'s documentation, then calls [`Machine::on_deadline`]. Events of an earlier run or probe have
//! no effect at all, so a driver need not filter them.

mod beginning;
mod end;
mod probing;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config::{Config, ProbeTiming};
use super::decision::{self, Budget};
use super::phase::{By, Cause, Deadline, Next, Phase, PreExec, Respawn, Step};
use super::status::{Final, State};
use super::vocabulary::{Effect, Event, ExitStatus, ProbeKind, ProbeNumber, Reason, Report};
use crate::identity::Run;
use crate::time::Monotonic;
use end::End;

/// Supervises one incarnation of one replica: events and deadlines in, effects out.
///
/// Its serde form is the whole state: a machine read back behaves as the one written, within one boot
/// (its moments are of that boot's monotonic clock). A result of a probe allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Shared by all machines of one profile.
    config: Arc<Config>,
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
    pub fn new(config: impl Into<Arc<Config>>, seed: u64) -> Self {
        Self {
            config: config.into(),
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

    const fn is_serving(&self) -> bool {
        matches!(
            self.phase,
            Phase::Stopping {
                step: Step::Draining { serving: true, .. },
                ..
            }
        )
    }

    /// Whether nothing follows.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self.phase, Phase::Final(_))
    }

    /// Whether an exit of `run` now may be due to a port that somebody took after its start: nobody asked
    /// for it, and the run was never ready. A driver then looks for a stranger, and hands over
    /// [`Event::PortConflict`] in place of the exit where it finds one.
    #[must_use]
    pub fn suspects_stranger(&self, run: Run, was_ready: bool) -> bool {
        let unexpected = matches!(self.state(), State::Starting | State::Startup | State::Up);
        run == self.run && unexpected && !was_ready
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

    /// The newest probe of this kind in this run and whether it is in flight, where the kind is probed now.
    pub(in crate::supervision) fn newest_probe(
        &self,
        kind: ProbeKind,
    ) -> Option<(ProbeNumber, bool)> {
        let track = match (&self.phase, kind) {
            (Phase::Startup { probe }, ProbeKind::Startup) => Some(probe),
            (Phase::Up(up), ProbeKind::Liveness) => up.liveness.as_ref(),
            (Phase::Up(up), ProbeKind::Readiness) => up.readiness.as_ref(),
            _ => None,
        };
        track.map(|track| (track.newest(), track.in_flight().is_some()))
    }

    /// When the next deadline is due, if nothing but probes begin then.
    pub(in crate::supervision) fn next_probe(&self) -> Option<Monotonic> {
        let first = self.next_deadline()?;
        let mut due = self.phase.deadlines().filter(|(at, _)| *at == first);
        due.all(|(_, deadline)| matches!(deadline, Deadline::Probe(_)))
            .then_some(first)
    }

    /// What of the past decides about the next restart.
    pub(in crate::supervision) const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The rules it follows.
    #[must_use]
    pub fn config(&self) -> &Config {
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
            serving: self.is_serving(),
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
}

/// Part of `span`, below it, as `random` decides.
fn fraction(span: Duration, random: u64) -> Duration {
    let whole = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let ms = (u128::from(whole) * u128::from(random)) >> 64;
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
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
    /// Whether it drains: not ready since it was told to end, and not signalled yet.
    pub serving: bool,
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
