//! Names the rule and the boundary behind each turn of a record.

use std::time::Duration;

use serde::Serialize;

use super::replay::{ReplayError, Step, play};
use super::{Entry, What};
use crate::identity::Run;
use crate::supervision::config::{Config, ProbeTiming, RestartPolicy, Window};
use crate::supervision::machine::Machine;
use crate::supervision::status::{Final, State};
use crate::supervision::vocabulary::{
    Effect, Event, ExitCause, ExitStatus, ProbeKind, ProbeOutcome, Reason, Report,
};
use crate::time::{Monotonic, Spelled, WallClock};

/// One turn, and the rule that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Because {
    /// Milliseconds since the replica began.
    pub at_ms: u64,
    /// The same moment for people.
    pub wall: WallClock,
    /// The newest start then.
    pub run: Run,
    /// The rule: `ready`, `readiness`, `startup`, `liveness`, `exit`, `start-failed`, `backoff`, `restart`, `gave-up`,
    /// `kill`, `stuck`, `stop`, `user`, `final`, `port-conflict`, `stale-record`.
    pub rule: &'static str,
    /// The field of the profile whose value was reached, with that value; absent where no number decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundary: Option<String>,
    /// The whole, in a sentence.
    pub sentence: String,
}

/// Every turn of a record, oldest first; the last one is why the replica stands where it stands.
///
/// # Errors
///
/// [`ReplayError`]: the record cannot be played.
pub fn why(text: &str) -> Result<Vec<Because>, ReplayError> {
    let mut story = Story::default();
    play(text, |step| story.take(step))?;
    Ok(story.turns)
}

/// What is kept while a record is played.
#[derive(Default)]
struct Story {
    began: Monotonic,
    wall: WallClock,
    wall_at: Monotonic,
    /// The first of the failures in a row of each kind, and what it said.
    failing: [Option<(Monotonic, Option<String>)>; 3],
    turns: Vec<Because>,
}

/// A turn before it has its time.
type Turn = (&'static str, Option<String>, String);

impl Story {
    fn take(&mut self, step: &Step<'_>) {
        match &step.entry.what {
            What::State(start) => {
                (self.began, self.wall, self.wall_at) = (start.began, start.wall, step.entry.at);
                return;
            }
            What::Event(Event::ProbeResult { kind, outcome, .. }) => {
                self.note_result(*kind, *outcome, step.entry);
            }
            What::Event(Event::Spawned { .. } | Event::Adopt { .. }) => {
                self.failing = Default::default();
            }
            What::Event(_) | What::Deadlines | What::Probes { .. } => {}
        }
        let Some(before) = step.before else {
            return;
        };
        self.note_probe_kill(step, before);
        for effect in step.effects {
            let turn = match effect {
                Effect::Report(report) => self.report(step, before, report),
                Effect::KillGroup { .. } if matches!(step.entry.what, What::Deadlines) => {
                    let grace = Spelled(before.config().stop.grace);
                    let sentence = format!(
                        "kill: the stop signal was not followed by an end within the grace (at most {grace})"
                    );
                    Some(("kill", Some(format!("stop.grace = {grace}")), sentence))
                }
                _ => None,
            };
            self.turns.extend(turn.map(|turn| self.at(step, turn)));
        }
    }

    fn at(&self, step: &Step<'_>, (rule, boundary, sentence): Turn) -> Because {
        let at = step.entry.at;
        let since = millis(at.since(self.wall_at));
        let wall = self.wall.as_unix_millis().saturating_add(since);
        // A probe's words and a stranger's name are others' texts; none of them may move a reader's cursor.
        let sentence = sentence.replace(char::is_control, " ");
        Because {
            at_ms: millis(at.since(self.began)),
            wall: WallClock::from_unix_millis(wall),
            run: step.after.run(),
            rule,
            boundary,
            sentence,
        }
    }

    fn note_result(&mut self, kind: ProbeKind, outcome: ProbeOutcome, entry: &Entry) {
        let failing = &mut self.failing[kind as usize];
        match outcome {
            ProbeOutcome::Ok => *failing = None,
            ProbeOutcome::Fail | ProbeOutcome::Timeout => {
                let (_, said) = failing.get_or_insert((entry.at, None));
                if entry.text.is_some() {
                    said.clone_from(&entry.text);
                }
            }
            ProbeOutcome::Inconclusive => {}
        }
    }

    /// A startup or liveness probe that ended the run, whether it was ready or not.
    fn note_probe_kill(&mut self, step: &Step<'_>, before: &Machine) {
        let What::Event(Event::ProbeResult { kind, .. }) = &step.entry.what else {
            return;
        };
        let ends = before.state() != State::Stopping && step.after.state() == State::Stopping;
        let timing = match kind {
            ProbeKind::Startup => before.config().startup.as_ref(),
            ProbeKind::Liveness => before.config().liveness.as_ref(),
            ProbeKind::Readiness => None,
        };
        if let (true, Some(timing)) = (ends, timing) {
            let word = match kind {
                ProbeKind::Startup => "startup",
                _ => "liveness",
            };
            let (boundary, sentence) = self.threshold(word, *kind, timing, step.entry.at);
            let turn = self.at(step, (word, Some(boundary), sentence));
            self.turns.push(turn);
        }
    }

    /// The failures in a row that reached a threshold.
    fn threshold(
        &self,
        word: &str,
        kind: ProbeKind,
        timing: &ProbeTiming,
        at: Monotonic,
    ) -> (String, String) {
        let threshold = timing.failure_threshold;
        let (first, said) = match &self.failing[kind as usize] {
            Some((first, said)) => (*first, said.as_deref()),
            None => (at, None),
        };
        let mut sentence = format!(
            "{word}: {threshold} consecutive {} (failure_threshold {threshold}) at {}",
            if threshold == 1 {
                "failure"
            } else {
                "failures"
            },
            self.seconds(at)
        );
        if first < at {
            sentence.push_str(&format!(", first at {}", self.seconds(first)));
        }
        if let Some(said) = said {
            sentence.push_str(&format!(": {}", said.trim()));
        }
        (format!("{kind}.failure_threshold = {threshold}"), sentence)
    }

    fn report(&self, step: &Step<'_>, before: &Machine, report: &Report) -> Option<Turn> {
        let config = before.config();
        let at = step.entry.at;
        let turn = match report {
            Report::Ready => match &config.readiness {
                Some(timing) => {
                    let n = timing.success_threshold;
                    let boundary = format!("readiness.success_threshold = {n}");
                    let sentence = format!(
                        "ready: success_threshold {n} reached at {}",
                        self.seconds(at)
                    );
                    ("ready", Some(boundary), sentence)
                }
                None => {
                    let min_up = Spelled(config.min_up);
                    let sentence = format!("ready: up for min_up {min_up} at {}", self.seconds(at));
                    ("ready", Some(format!("min_up = {min_up}")), sentence)
                }
            },
            Report::NotReady(reason) => return self.not_ready(config, at, reason),
            Report::Backoff { reason, delay } => self.backoff(step, before, reason, *delay),
            Report::Restarted { count, reason, .. } => match reason {
                Reason::User => (
                    "user",
                    None,
                    "restarted: ordered by the user, not charged".to_owned(),
                ),
                _ => {
                    let sentence = format!(
                        "restarted: restart {count}, its wait was over and the run before was gone"
                    );
                    ("restart", None, sentence)
                }
            },
            Report::Stuck => {
                let span = Spelled(config.stop.unkillable_after);
                let sentence = format!(
                    "stuck: processes are left {span} after the kill (unkillable_after {span}); ports stay held"
                );
                (
                    "stuck",
                    Some(format!("stop.unkillable_after = {span}")),
                    sentence,
                )
            }
            Report::Final(end) => self.end(config, before, end),
        };
        Some(turn)
    }

    fn not_ready(&self, config: &Config, at: Monotonic, reason: &Reason) -> Option<Turn> {
        let turn = match reason {
            Reason::Probe { .. } => {
                let timing = config.readiness.as_ref()?;
                let kind = ProbeKind::Readiness;
                let (boundary, sentence) = self.threshold("not ready", kind, timing, at);
                ("readiness", Some(boundary), sentence)
            }
            // Told with the result that ended the run.
            Reason::Startup { .. } | Reason::Liveness { .. } => return None,
            Reason::User => ("user", None, "not ready: a restart was ordered".to_owned()),
            Reason::Stop => ("stop", None, "not ready: a stop was ordered".to_owned()),
            Reason::StaleRecord => {
                let sentence = "not ready: nobody watched it for more than 90 s; it is ready again at the next success";
                ("stale-record", None, sentence.to_owned())
            }
            Reason::Exit(_) | Reason::StartFailed(_) => {
                let sentence =
                    format!("not ready: the run ended at {}: {reason}", self.seconds(at));
                ("exit", None, sentence)
            }
        };
        Some(turn)
    }

    fn backoff(&self, step: &Step<'_>, before: &Machine, reason: &Reason, delay: Duration) -> Turn {
        let rule = &before.config().backoff;
        let in_a_row = step.after.budget().in_a_row();
        let (initial, max) = (Spelled(rule.initial), Spelled(rule.max));
        let mut sentence = format!(
            "backoff: restart {in_a_row} in a row, delay {} = min({max}, {initial}·2^{})",
            Spelled(delay),
            in_a_row.saturating_sub(1)
        );
        if rule.jitter_permille > 0 {
            let percent = f64::from(rule.jitter_permille) / 10.0;
            sentence.push_str(&format!(" less up to {percent} % jitter"));
        }
        if in_a_row == 1 && before.budget().in_a_row() > 0 {
            let reset = Spelled(rule.reset_after);
            sentence.push_str(&format!(
                "; begun again: stable for reset_after {reset} or more"
            ));
        }
        sentence.push_str(&format!("; {reason}"));
        let boundary = format!("restart.backoff = {{ initial = {initial}, max = {max} }}");
        ("backoff", Some(boundary), sentence)
    }

    fn end(&self, config: &Config, before: &Machine, end: &Final) -> Turn {
        match end {
            Final::GaveUp { reason, .. } => self.gave_up(config, before, reason),
            Final::Stopped | Final::Left(_) => (
                "stop",
                None,
                "stopped: ordered, and the last process is gone".to_owned(),
            ),
            Final::Succeeded => {
                let policy = policy(config.restart);
                let sentence = format!(
                    "succeeded: an end in success_exit is not restarted under policy {policy}"
                );
                (
                    "final",
                    Some(format!("restart.policy = {policy}")),
                    sentence,
                )
            }
            Final::Failed(reason) => {
                let named = match reason {
                    Reason::Exit(ExitStatus::Code(code)) => Some(ExitCause::Code(*code)),
                    Reason::Exit(ExitStatus::Signal { signal, .. }) => {
                        Some(ExitCause::Signal(*signal))
                    }
                    _ => None,
                };
                if named.is_some_and(|cause| config.no_restart_exit.contains(&cause)) {
                    let sentence = format!("failed: {reason} is in no_restart_exit");
                    return (
                        "final",
                        Some("restart.no_restart_exit".to_owned()),
                        sentence,
                    );
                }
                let policy = policy(config.restart);
                let sentence = format!("failed: {reason}, and policy {policy} restarts nothing");
                (
                    "final",
                    Some(format!("restart.policy = {policy}")),
                    sentence,
                )
            }
            Final::PortConflict { .. } => {
                let sentence = format!(
                    "{end}; another start here could only fail, so it is placed anew and not charged"
                );
                ("port-conflict", None, sentence)
            }
        }
    }

    fn gave_up(&self, config: &Config, before: &Machine, reason: &Reason) -> Turn {
        let granted: Vec<_> = before.budget().granted().collect();
        let Some(rule) = &config.give_up else {
            return ("gave-up", None, format!("gave up: {reason}"));
        };
        let window = match rule.window {
            Window::Span(span) => format!("within window {}", Spelled(span)),
            Window::Lifetime => "in this placement".to_owned(),
        };
        let most = rule.max_restarts;
        let mut sentence = format!("gave up: {} failure {window}", ordinal(granted.len() + 1));
        if granted.is_empty() {
            sentence.push_str(" (no restart is allowed)");
        } else {
            /// The newest are the telling ones.
            const SHOWN: usize = 10;
            let skipped = granted.len().saturating_sub(SHOWN);
            let times: Vec<_> = granted[skipped..]
                .iter()
                .map(|at| self.bare_seconds(*at))
                .collect();
            let dots = if skipped > 0 { "…, " } else { "" };
            let count = granted.len();
            let restarts = if count == 1 { "restart" } else { "restarts" };
            sentence.push_str(&format!(
                " ({count} {restarts} granted at {dots}{} s)",
                times.join(", ")
            ));
        }
        sentence.push_str(&format!("; {reason}"));
        (
            "gave-up",
            Some(format!("restart.give_up.max_restarts = {most}")),
            sentence,
        )
    }

    fn seconds(&self, at: Monotonic) -> String {
        format!("{} s", self.bare_seconds(at))
    }

    /// Since the replica began, in tenths.
    fn bare_seconds(&self, at: Monotonic) -> String {
        let tenths = millis(at.since(self.began)).saturating_add(50) / 100;
        format!("{}.{}", tenths / 10, tenths % 10)
    }
}

const fn policy(policy: RestartPolicy) -> &'static str {
    match policy {
        RestartPolicy::Always => "always",
        RestartPolicy::OnFailure => "on-failure",
        RestartPolicy::Never => "never",
    }
}

fn ordinal(number: usize) -> String {
    let end = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
