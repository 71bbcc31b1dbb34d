//! What a set of rules will do in time, before anything runs: waits, giving up, how soon a hang is noticed,
//! how much is said and what the probes cost.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config::{Config, GiveUp, ProbeTiming, RestartPolicy, Window};
use crate::time::Spelled;

/// What a probe does, as far as its cost goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeForm {
    /// One GET.
    Http,
    /// One connect.
    Tcp,
    /// A program.
    Command,
    /// A line for the shell.
    Shell,
    /// A look at so many listeners, without a connection.
    Listening {
        /// How many are looked up.
        ports: u32,
    },
}

impl ProbeForm {
    // Measured on a development machine, prober and probed together, processor time of one probe
    // (supervision.md, section 3, row "cost").
    const TCP: Duration = Duration::from_micros(23);
    const HTTP: Duration = Duration::from_micros(65);
    const COMMAND: Duration = Duration::from_micros(727);
    const SHELL: Duration = Duration::from_micros(783);
    const LISTENER: Duration = Duration::from_micros(10);

    /// The processor time of one probe on a machine like the one measured; what a command itself does is not in it.
    #[must_use]
    pub const fn cost(self) -> Duration {
        match self {
            Self::Http => Self::HTTP,
            Self::Tcp => Self::TCP,
            Self::Command => Self::COMMAND,
            Self::Shell => Self::SHELL,
            Self::Listening { ports } => Self::LISTENER.saturating_mul(ports),
        }
    }
}

/// The forms of the probes that a replica has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeForms {
    /// Of the liveness probe.
    pub liveness: Option<ProbeForm>,
    /// Of the readiness probe.
    pub readiness: Option<ProbeForm>,
}

/// A span of time from the best case to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// In the best case.
    #[serde(with = "spelled")]
    pub best: Duration,
    /// In the worst case.
    #[serde(with = "spelled")]
    pub worst: Duration,
}

/// What will happen in time under one set of rules. Times are those of the rules: what a process takes to start and
/// to end comes on top.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// The waits before the restarts in a row, each after jitter; the last one stays. Empty: nothing is restarted.
    pub waits: Vec<Between>,
    /// A run that was stable this long makes the waits begin anew.
    #[serde(with = "spelled")]
    pub reset_after: Duration,
    /// When it gives up; `None`: never.
    pub give_up: Option<GivesUp>,
    /// From a hang to the order to end the run; `None`: without a liveness probe a hang is not noticed.
    pub hang: Option<Between>,
    /// From a hang to the endpoint's end; `None`: without a readiness probe it stays until the run ends.
    pub not_ready: Option<Between>,
    /// From an exit to its notice: the kernel tells.
    pub exit: Between,
    /// The most automatic restarts granted in an hour, whatever the process does.
    pub restarts_per_hour: u32,
    /// The most reports to the controller in an hour; without a change there is none.
    pub reports_per_hour: u32,
    /// What the probes of a run that is up cost, in billionths of one processor.
    pub probe_cpu_ppb: u64,
    /// What an author may not expect, one sentence each.
    pub warnings: Vec<String>,
}

/// When a replica gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivesUp {
    /// After so many restarts inside the window.
    pub max_restarts: u32,
    /// How long a restart counts; `None`: for the whole incarnation.
    #[serde(with = "spelled_if_any")]
    pub window: Option<Duration>,
    /// From the first failure on, where every run ends at once; `None`: never, the window is too short.
    pub crashing: Option<Between>,
    /// From the first start on, where no start-up ever succeeds; `None`: never, or there is no startup probe.
    pub never_up: Option<Between>,
}

/// Reports of one restart: ready, not ready, the wait, restarted.
const REPORTS_PER_RESTART: u32 = 4;
const HOUR: Duration = Duration::from_secs(3600);

impl Forecast {
    /// What these rules will do. Cost: one step per restart of the give-up rule.
    #[must_use]
    pub fn of(config: &Config, forms: &ProbeForms) -> Self {
        let restarts_per_hour = restarts_per_hour(config);
        let flaps = config.readiness.as_ref().map_or(0, flaps_per_hour);
        let mut forecast = Self {
            waits: waits(config),
            reset_after: config.backoff.reset_after,
            give_up: config.give_up.as_ref().map(|rule| gives_up(config, rule)),
            hang: config.liveness.as_ref().map(notices_hang),
            not_ready: config.readiness.as_ref().map(notices_hang),
            exit: Between {
                best: Duration::ZERO,
                worst: Duration::ZERO,
            },
            restarts_per_hour,
            reports_per_hour: restarts_per_hour
                .saturating_mul(REPORTS_PER_RESTART)
                .saturating_add(flaps),
            probe_cpu_ppb: cpu(config.liveness.as_ref(), forms.liveness)
                .saturating_add(cpu(config.readiness.as_ref(), forms.readiness)),
            warnings: Vec::new(),
        };
        forecast.warn(config);
        forecast
    }

    fn warn(&mut self, config: &Config) {
        let mut warn = |text: &str| self.warnings.push(text.to_owned());
        if config.liveness.is_none() {
            warn("without a liveness probe a run that hangs is never restarted");
        }
        match (&self.give_up, config.restart) {
            (_, RestartPolicy::Never) => {}
            (None, _) => warn("it never gives up: a service that cannot run is restarted for ever"),
            (Some(rule), _) => {
                if rule.crashing.is_none() {
                    warn("crashes never reach the give-up rule: its window is too short");
                }
                if config.startup.is_some() && rule.never_up.is_none() {
                    warn(
                        "start-ups that time out never reach the give-up rule: its window is too short",
                    );
                }
            }
        }
    }
}

/// The waits up to the longest, which then stays.
fn waits(config: &Config) -> Vec<Between> {
    let backoff = &config.backoff;
    let mut waits = Vec::new();
    let restarts = match (config.restart, &config.give_up) {
        (RestartPolicy::Never, _) => 0,
        (_, Some(rule)) => rule.max_restarts,
        (_, None) => u32::MAX,
    };
    for in_a_row in 0..restarts {
        let worst = backoff.wait(in_a_row);
        waits.push(Between {
            best: backoff.shortest(worst),
            worst,
        });
        if worst >= backoff.max {
            break;
        }
    }
    waits
}

fn gives_up(config: &Config, rule: &GiveUp) -> GivesUp {
    let longest = config.backoff.waits_of(rule.max_restarts);
    let waits = Between {
        best: config.backoff.shortest(longest),
        worst: longest,
    };
    let window = match rule.window {
        Window::Span(span) => Some(span),
        Window::Lifetime => None,
    };
    // The first restart that counts must still be inside when one more is asked for.
    let reaches =
        |age: Duration| window.is_none_or(|window| age < window) || rule.max_restarts == 0;
    let crashing = reaches(waits.best).then_some(waits);
    let never_up = config.startup.as_ref().and_then(|timing| {
        let run = startup_fails(timing);
        let runs = |run: Duration, count: u32| run.saturating_mul(count);
        let age = runs(run.best, rule.max_restarts).saturating_add(waits.best);
        let all = rule.max_restarts.saturating_add(1);
        reaches(age).then(|| Between {
            best: runs(run.best, all).saturating_add(waits.best),
            worst: runs(run.worst, all).saturating_add(waits.worst),
        })
    });
    GivesUp {
        max_restarts: rule.max_restarts,
        window,
        crashing,
        never_up,
    }
}

/// From the spawn to the order to end a start-up that never succeeds: probes that fail at once, or that hang.
fn startup_fails(timing: &ProbeTiming) -> Between {
    let more = timing.failure_threshold.saturating_sub(1);
    let after = |pace: Duration, last: Duration| {
        let probes = pace.saturating_mul(more).saturating_add(last);
        timing.initial_delay.saturating_add(probes)
    };
    Between {
        best: after(timing.interval, Duration::ZERO),
        worst: after(timing.slowest_pace(), timing.timeout),
    }
}

/// From a hang to the verdict: the hang begins just before a probe, or just after one.
fn notices_hang(timing: &ProbeTiming) -> Between {
    let more = timing.failure_threshold.saturating_sub(1);
    let probes = timing.slowest_pace().saturating_mul(more);
    let best = probes.saturating_add(timing.timeout);
    Between {
        best,
        worst: best.saturating_add(timing.interval),
    }
}

/// No pattern of long and short runs is granted more: the give-up window bounds it, and so do the waits.
///
/// The waits: the worst pattern repeats a stable run and the quick ones after it; its rate bounds every longer span,
/// and one burst on top, which takes no longer than a stable run, bounds what the edges of an hour cut off.
fn restarts_per_hour(config: &Config) -> u32 {
    if config.restart == RestartPolicy::Never {
        return 0;
    }
    let backoff = &config.backoff;
    let hour = HOUR.as_millis();
    let stable = backoff.reset_after.as_millis();
    let at_rate = |restarts: u32, within: u128| {
        let most = u128::from(restarts) * (hour + stable) / within.max(1) + 1;
        u32::try_from(most).unwrap_or(u32::MAX)
    };
    let after_stable = |quick: u32| {
        let waits = backoff.shortest(backoff.waits_of(quick));
        at_rate(quick, stable + waits.as_millis())
    };
    // Never stable, always at the longest wait.
    let crashing = at_rate(1, backoff.shortest(backoff.max).as_millis());
    let longest = waits_until_longest(config);
    let by_waits = (1..=longest).map(after_stable).max().unwrap_or(0);
    let by_rule = config
        .give_up
        .as_ref()
        .map_or(u32::MAX, |rule| match rule.window {
            Window::Lifetime => rule.max_restarts,
            Window::Span(span) => {
                let windows = hour.div_ceil(span.as_millis().max(1));
                let windows = u32::try_from(windows).unwrap_or(u32::MAX);
                rule.max_restarts.saturating_mul(windows)
            }
        });
    by_waits.max(crashing).min(by_rule)
}

/// How many restarts in a row there are until the longest wait is reached: at most 16 for any profile.
fn waits_until_longest(config: &Config) -> u32 {
    let reached =
        (0..u32::BITS).find(|in_a_row| config.backoff.wait(*in_a_row) >= config.backoff.max);
    reached.unwrap_or(u32::BITS) + 1
}

/// Reports of a readiness probe that turns as soon as it may: two for each time there and back.
fn flaps_per_hour(timing: &ProbeTiming) -> u32 {
    let results = timing
        .failure_threshold
        .saturating_add(timing.success_threshold);
    let there_and_back = timing.interval.saturating_mul(results);
    let times = HOUR.as_millis().div_ceil(there_and_back.as_millis().max(1));
    u32::try_from(2 * times).unwrap_or(u32::MAX)
}

fn cpu(timing: Option<&ProbeTiming>, form: Option<ProbeForm>) -> u64 {
    let (Some(timing), Some(form)) = (timing, form) else {
        return 0;
    };
    let share = form.cost().as_nanos() * 1_000_000_000 / timing.interval.as_nanos().max(1);
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.best == self.worst {
            return Spelled(self.worst).fmt(f);
        }
        write!(f, "{} to {}", Spelled(self.best), Spelled(self.worst))
    }
}

/// One line a fact, for people.
impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.waits.is_empty() {
            writeln!(f, "restarts: none")?;
        } else {
            f.write_str("waits before a restart: ")?;
            for (nth, wait) in self.waits.iter().enumerate() {
                let comma = if nth > 0 { ", " } else { "" };
                write!(f, "{comma}{wait}")?;
            }
            let reset = Spelled(self.reset_after);
            writeln!(
                f,
                ", and so on; they begin anew after a run that was stable for {reset}"
            )?;
        }
        match &self.give_up {
            None => writeln!(f, "gives up: never")?,
            Some(rule) => writeln!(f, "gives up: {rule}")?,
        }
        let ends = "without a liveness probe it is not noticed";
        noticed(f, "hang, until it is ended", self.hang, ends)?;
        let stays = "without a readiness probe it stays until the run ends";
        noticed(f, "hang, until its endpoint goes", self.not_ready, stays)?;
        writeln!(f, "exit, until it is noticed: at once")?;
        writeln!(
            f,
            "reports at worst: {} an hour, with {} restarts; none without a change",
            self.reports_per_hour, self.restarts_per_hour
        )?;
        let (whole, part) = (
            self.probe_cpu_ppb / 10_000_000,
            self.probe_cpu_ppb % 10_000_000,
        );
        write!(
            f,
            "probes of a replica that is up: {whole}.{:05} % of a processor",
            part / 100
        )?;
        for warning in &self.warnings {
            write!(f, "\nwarning: {warning}")?;
        }
        Ok(())
    }
}

fn noticed(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    when: Option<Between>,
    otherwise: &str,
) -> fmt::Result {
    match when {
        Some(when) => writeln!(f, "{what}: {when}"),
        None => writeln!(f, "{what}: {otherwise}"),
    }
}

impl fmt::Display for GivesUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_restarts {
            0 => f.write_str("at the first failure"),
            1 => f.write_str("at the failure after 1 restart"),
            restarts => write!(f, "at the failure after {restarts} restarts"),
        }?;
        match self.window {
            _ if self.max_restarts == 0 => {}
            Some(window) => write!(f, " within {}", Spelled(window))?,
            None => f.write_str(" in one placement")?,
        }
        if let Some(crashing) = self.crashing.filter(|_| self.max_restarts > 0) {
            write!(
                f,
                "; where every run fails at once, {crashing} after the first failure"
            )?;
        }
        if let Some(never_up) = self.never_up {
            write!(
                f,
                "; where no start-up succeeds, {never_up} after the first start"
            )?;
        }
        Ok(())
    }
}

/// A time as a profile writes it: `"1m30s"`.
mod spelled {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::time::{Spelled, parse_duration};

    pub(super) fn serialize<S: Serializer>(
        span: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Spelled(*span))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_duration(&text).map_err(serde::de::Error::custom)
    }
}

/// The same where there may be none.
mod spelled_if_any {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Span(#[serde(with = "super::spelled")] Duration);

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(
        span: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        span.map(Span).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let span = Option::<Span>::deserialize(deserializer)?;
        Ok(span.map(|Span(span)| span))
    }
}

#[cfg(test)]
#[path = "forecast_test.rs"]
mod tests;
