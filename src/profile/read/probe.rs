//! `[startup]`, `[liveness]` and `[readiness]`: when a probe runs, and how many results decide.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::profile::Probe;
use crate::supervision::{ProbeKind, ProbeTiming};
use crate::time::Spelled;

use super::form::ONE_FORM;
use super::ports::Ports;
use super::value::secs;
use super::{Field, Reader, Table};

pub(super) const KEYS: &[&str] = &[
    "http",
    "tcp",
    "command",
    "listening",
    "initial_delay",
    "interval",
    "timeout",
    "failure_threshold",
    "success_threshold",
];
pub(super) const STARTUP_KEYS: &[&str] = &[
    "http",
    "tcp",
    "command",
    "listening",
    "initial_delay",
    "interval",
    "timeout",
    "failure_threshold",
    "success_threshold",
    "within",
];

const DAY: Duration = secs(86_400);
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=DAY;
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=secs(3600);
const WITHIN: RangeInclusive<Duration> = secs(1)..=DAY;
const THRESHOLD: RangeInclusive<u32> = 1..=1_000_000;
/// A service that was killed sooner had no time to start.
const SHORTEST_START: Duration = secs(30);
const SHORTEST_COMMAND_INTERVAL: Duration = secs(5);

/// The three probes; a form and its timing stand together.
#[derive(Default)]
pub(super) struct Probes {
    pub(super) startup: Option<(Probe, ProbeTiming)>,
    pub(super) liveness: Option<(Probe, ProbeTiming)>,
    pub(super) readiness: Option<(Probe, ProbeTiming)>,
}

impl<'d> Reader<'d> {
    /// Every probe, with the defaults that depend on the others.
    pub(super) fn probes(
        &mut self,
        root: &Table<'d>,
        ports: &Ports<'d>,
        env_secret: &[String],
    ) -> Probes {
        let readiness = self.probe(root.field("readiness"), ProbeKind::Readiness, ports);
        let liveness = self.probe(root.field("liveness"), ProbeKind::Liveness, ports);
        let startup = self.probe(root.field("startup"), ProbeKind::Startup, ports);
        let written = [
            ("startup", &startup),
            ("liveness", &liveness),
            ("readiness", &readiness),
        ];
        for (name, probe) in written {
            if let (Some(field), Some((Some(Probe::Command(command)), _))) =
                (root.field(name), probe)
            {
                self.warn_of_secrets(&field, command, env_secret);
            }
        }
        let has_ports = !ports.names.is_empty();
        let readiness = match readiness {
            Some((form, timing)) => Some((form.unwrap_or(Probe::Listening), timing)),
            None if has_ports => Some((Probe::Listening, default_timing(ProbeKind::Readiness))),
            None => None,
        };
        // A probe without a form was refused above.
        let liveness = liveness.and_then(|(form, timing)| Some((form?, timing)));
        let startup = startup.map(|(form, timing)| {
            let other = readiness.as_ref().or(liveness.as_ref());
            let form = form.or_else(|| other.map(|(form, _)| form.clone()));
            (form, timing)
        });
        if let (Some(field), Some((None, _)), false) = (root.field("startup"), &startup, has_ports)
        {
            let problem = "what the probe does is not said";
            self.miss(&field.path, &field.path, field.at(), problem, ONE_FORM);
        }
        let startup = startup.map(|(form, timing)| (form.unwrap_or(Probe::Listening), timing));
        if let (Some(field), Some((_, timing)), None) =
            (root.field("liveness"), &liveness, &startup)
        {
            let killed_after = timing.interval.saturating_mul(timing.failure_threshold);
            let killed_after = timing.initial_delay.saturating_add(killed_after);
            if killed_after < SHORTEST_START {
                let text = format_args!(
                    "without a startup probe a service that is not up within {} is restarted; write [startup] with within = \"…\"",
                    Spelled(killed_after)
                );
                self.warn(&field, text);
            }
        }
        if let (Some(field), Some((Probe::Tcp { .. }, _))) = (root.field("liveness"), &liveness) {
            self.warn(
                &field,
                "a stopped process goes on accepting connections until its backlog is full, so a tcp probe notices a hang late; use http or command",
            );
        }
        Probes {
            startup,
            liveness,
            readiness,
        }
    }

    fn probe(
        &mut self,
        field: Option<Field<'d>>,
        kind: ProbeKind,
        ports: &Ports<'d>,
    ) -> Option<(Option<Probe>, ProbeTiming)> {
        let field = field?;
        let keys = match kind {
            ProbeKind::Startup => STARTUP_KEYS,
            ProbeKind::Liveness | ProbeKind::Readiness => KEYS,
        };
        let table = self.table(&field, keys)?;
        let form = self.form(&table, kind, ports);
        let timing = self.timing(&table, kind);
        if let Some(Probe::Command(_)) = form
            && timing.interval < SHORTEST_COMMAND_INTERVAL
        {
            let field = table.field("interval").unwrap_or(field);
            let text = format_args!(
                "a command every {} starts a process each time; {} or more is kind to the host",
                Spelled(timing.interval),
                Spelled(SHORTEST_COMMAND_INTERVAL)
            );
            self.warn(&field, text);
        }
        Some((form, timing))
    }

    fn timing(&mut self, table: &Table<'d>, kind: ProbeKind) -> ProbeTiming {
        let default = default_timing(kind);
        let ((interval, timeout, initial_delay), sound) = self.sound(|reader| {
            let interval = reader.span_or(table.field("interval"), &INTERVAL, default.interval);
            let timeout = default.timeout.min(interval);
            let timeout = reader.span_or(table.field("timeout"), &TIMEOUT, timeout);
            let delay = table.field("initial_delay");
            let delay = reader.span_or(delay, &(Duration::ZERO..=DAY), Duration::ZERO);
            (interval, timeout, delay)
        });
        let overlong = sound && !self.partial && timeout > interval;
        if overlong && let Some(field) = table.field("timeout") {
            let text = format_args!(
                "{} is longer than the interval of {}: the next probe starts when the one before has ended",
                Spelled(timeout),
                Spelled(interval)
            );
            self.warn(&field, text);
        }
        let threshold = table.field("failure_threshold");
        let mut failure_threshold =
            self.number_or(threshold.clone(), &THRESHOLD, default.failure_threshold);
        if let Some(field) = table.field("within").filter(|_| kind == ProbeKind::Startup)
            && let Some(within) = self.span(&field, &WITHIN)
        {
            if let Some(field) = threshold {
                let problem = "within says it already";
                self.refuse(&field, problem, "write within or failure_threshold");
            }
            if overlong {
                let problem = "within needs probes that end before the next one starts";
                self.refuse(&field, problem, "write a timeout of at most the interval");
            }
            if sound && !self.partial && within <= initial_delay {
                let delay = Spelled(initial_delay);
                let problem = format_args!("it is over before the first probe at {delay}");
                self.refuse(&field, problem, "write more than initial_delay");
            }
            // One more probe than fits, so that the deciding one never starts before `within`.
            let span = within.saturating_sub(initial_delay).as_millis();
            let probes = span.div_ceil(interval.as_millis().max(1)) + 1;
            failure_threshold = u32::try_from(probes).unwrap_or(u32::MAX);
        }
        let field = table.field("success_threshold");
        let success_threshold = self.number_or(field.clone(), &THRESHOLD, 1);
        if success_threshold > 1
            && kind != ProbeKind::Readiness
            && let Some(field) = field
        {
            let problem = format_args!("one success decides a {kind} probe");
            self.refuse(
                &field,
                problem,
                "write 1 or leave it out; readiness may ask for more",
            );
        }
        ProbeTiming {
            initial_delay,
            interval,
            timeout,
            failure_threshold,
            success_threshold,
        }
    }
}

fn default_timing(kind: ProbeKind) -> ProbeTiming {
    let interval = match kind {
        ProbeKind::Readiness => secs(5),
        ProbeKind::Startup | ProbeKind::Liveness => secs(10),
    };
    ProbeTiming {
        initial_delay: Duration::ZERO,
        interval,
        timeout: secs(3),
        failure_threshold: 3,
        success_threshold: 1,
    }
}

/// Whether a `listening` probe has anything to look at.
pub(super) fn listens(ports: &Ports<'_>) -> bool {
    let mut declared = ports.declared.iter();
    declared.any(|port| port.publish && port.protocol.has_tcp())
}
