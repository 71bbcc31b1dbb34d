//! `[restart]` and `[stop]`: which ends are followed by what, and whether the written rule can ever fire.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::port::excerpt;
use crate::supervision::{
    Backoff, ExitCause, GiveUp, ProbeTiming, RestartPolicy, StopRule, Then, Window, signal_name,
};
use crate::time::Spelled;

use super::value::secs;
use super::{Field, Reader, Table, Value};

pub(super) const KEYS: &[&str] = &[
    "policy",
    "backoff",
    "give_up",
    "success_exit",
    "no_restart_exit",
];
pub(super) const BACKOFF_KEYS: &[&str] = &["initial", "max", "jitter", "reset_after"];
pub(super) const GIVE_UP_KEYS: &[&str] =
    &["max_restarts", "window", "then", "rest", "max_requeues"];
pub(super) const STOP_KEYS: &[&str] = &["signal", "drain", "grace", "unkillable_after"];

const DAY: Duration = secs(86_400);
const BACKOFF: RangeInclusive<Duration> = Duration::from_millis(100)..=secs(3600);
const RESET_AFTER: RangeInclusive<Duration> = Duration::from_millis(100)..=secs(7 * 86_400);
const MAX_RESTARTS: RangeInclusive<u32> = 0..=10_000;
const WINDOW: RangeInclusive<Duration> = secs(1)..=secs(365 * 86_400);
const REST: RangeInclusive<Duration> = secs(1)..=secs(3600);
const DEFAULT_RESTARTS: u32 = 10;

/// The signal that asks a process to end.
const TERM: i32 = 15;

/// What `[restart]` says.
pub(super) struct Restart {
    pub(super) policy: RestartPolicy,
    pub(super) backoff: Backoff,
    pub(super) give_up: Option<GiveUp>,
    pub(super) success_exit: BTreeSet<ExitCause>,
    pub(super) no_restart_exit: BTreeSet<ExitCause>,
}

impl<'d> Reader<'d> {
    /// `[restart]`; the startup probe counts in the give-up window.
    pub(super) fn restart(
        &mut self,
        field: Option<Field<'d>>,
        startup: Option<&ProbeTiming>,
    ) -> Restart {
        let table = field.and_then(|field| self.table(&field, KEYS));
        let part = |name: &str| table.as_ref().and_then(|table| table.field(name));
        let words = [
            ("always", RestartPolicy::Always),
            ("on-failure", RestartPolicy::OnFailure),
            ("never", RestartPolicy::Never),
        ];
        let policy = self.word_or(part("policy"), &words, RestartPolicy::Always);
        let (backoff, sound) = self.sound(|reader| reader.backoff(part("backoff")));
        let give_up = self.give_up(part("give_up"), &backoff, startup, sound);
        let success_exit = match part("success_exit") {
            Some(field) => self.exits(&field),
            None => BTreeSet::from([ExitCause::Code(0)]),
        };
        let no_restart_exit = match part("no_restart_exit") {
            Some(field) => self.exits(&field),
            None => BTreeSet::new(),
        };
        Restart {
            policy,
            backoff,
            give_up,
            success_exit,
            no_restart_exit,
        }
    }

    fn backoff(&mut self, field: Option<Field<'d>>) -> Backoff {
        let table = (field.as_ref()).and_then(|field| self.table(field, BACKOFF_KEYS));
        let part = |name: &str| table.as_ref().and_then(|table| table.field(name));
        let ((initial, max), sound) = self.sound(|reader| {
            let initial = reader.span_or(part("initial"), &BACKOFF, secs(1));
            // An initial wait above the default maximum needs no second line to be allowed.
            let max = reader.span_or(part("max"), &BACKOFF, initial.max(secs(60)));
            (initial, max)
        });
        if sound
            && !self.partial
            && max < initial
            && let Some(field) = part("max")
        {
            let (max, initial) = (Spelled(max), Spelled(initial));
            let problem = format_args!("{max} is shorter than the initial wait of {initial}");
            self.refuse(&field, problem, "write at least the initial wait");
        }
        Backoff {
            initial,
            max,
            jitter_permille: part("jitter").map_or(100, |field| self.jitter(&field)),
            reset_after: self.span_or(part("reset_after"), &RESET_AFTER, max),
        }
    }

    fn jitter(&mut self, field: &Field<'d>) -> u16 {
        let allowed = "write a share from 0 to 1 in steps of 0.001, such as 0.1";
        let share = match field.node.value {
            Value::Decimal(share) => share,
            Value::Integer(0) => 0.0,
            Value::Integer(1) => 1.0,
            Value::Integer(number) => {
                self.refuse(field, format_args!("{number} is out of bounds"), allowed);
                return 0;
            }
            _ => {
                self.refuse_kind(field, allowed);
                return 0;
            }
        };
        let thousandths = (share * 1000.0).round();
        let permille = (0..=1000).find(|n| f64::from(*n) == thousandths);
        match permille {
            Some(permille) if (share * 1000.0 - thousandths).abs() < 1e-6 => permille,
            _ => {
                self.refuse(field, format_args!("{share} is out of bounds"), allowed);
                0
            }
        }
    }

    fn give_up(
        &mut self,
        field: Option<Field<'d>>,
        backoff: &Backoff,
        startup: Option<&ProbeTiming>,
        backoff_sound: bool,
    ) -> Option<GiveUp> {
        let by_rule = |max_restarts| GiveUp {
            max_restarts,
            window: Window::Span(GiveUp::unwritten_window(max_restarts, backoff, startup)),
            then: Then::Exit,
        };
        let Some(field) = field else {
            return Some(by_rule(DEFAULT_RESTARTS));
        };
        if matches!(&field.node.value, Value::Text(text) if text == "never") {
            return None;
        }
        if !matches!(field.node.value, Value::Table(_)) {
            let allowed =
                "write \"never\", or a table such as { max_restarts = 5, window = \"10m\" }";
            self.refuse_kind(&field, allowed);
            return None;
        }
        let table = self.table(&field, GIVE_UP_KEYS)?;
        let (mut give_up, sound) = self.sound(|reader| {
            let restarts = table.field("max_restarts");
            let restarts = reader.number_or(restarts, &MAX_RESTARTS, DEFAULT_RESTARTS);
            let mut give_up = by_rule(restarts);
            if let Some(window) = table.field("window") {
                give_up.window = reader.window(&window).unwrap_or(give_up.window);
            }
            give_up
        });
        give_up.then = self.then(&table);
        if sound
            && backoff_sound
            && !self.partial
            && let (Some(field), Window::Span(window)) = (table.field("window"), give_up.window)
        {
            self.reachable(&field, &give_up, window, backoff, startup);
        }
        Some(give_up)
    }

    fn window(&mut self, field: &Field<'d>) -> Option<Window> {
        if matches!(&field.node.value, Value::Text(text) if text == "lifetime") {
            return Some(Window::Lifetime);
        }
        self.span(field, &WINDOW).map(Window::Span)
    }

    fn then(&mut self, table: &Table<'d>) -> Then {
        let words = [("exit", false), ("requeue", true)];
        let requeue = self.word_or(table.field("then"), &words, false);
        let rest = table.field("rest");
        let max_requeues = table.field("max_requeues");
        if requeue {
            return Then::Requeue {
                rest: self.span_or(rest, &REST, secs(60)),
                max_requeues: self.number_or(max_requeues, &(0..=1000), 5),
            };
        }
        if self.partial && table.field("then").is_none() {
            // Another layer may say that it is requeued; the bounds hold all the same.
            rest.and_then(|field| self.span(&field, &REST));
            max_requeues.and_then(|field| self.number(&field, &(0..=1000), ""));
            return Then::Exit;
        }
        for field in [rest, max_requeues].into_iter().flatten() {
            let problem = "it says how to requeue, but nothing is requeued";
            self.refuse(
                &field,
                problem,
                "write then = \"requeue\" beside it, or leave it out",
            );
        }
        Then::Exit
    }

    /// Refuses a written rule that could never fire: the backoff alone spreads the restarts wider than its window.
    fn reachable(
        &mut self,
        field: &Field<'d>,
        give_up: &GiveUp,
        window: Duration,
        backoff: &Backoff,
        startup: Option<&ProbeTiming>,
    ) {
        let restarts = give_up.max_restarts;
        let delays = backoff.waits_of(restarts);
        let shortest = backoff.shortest(delays);
        let window_text = Spelled(window);
        if restarts > 0 && shortest >= window {
            let problem = format!(
                "{restarts} restarts in {window_text} can never happen: their waits {} add up to {}{}",
                first_delays(restarts, backoff),
                Spelled(delays),
                if shortest < delays {
                    format!(", at least {} after jitter", Spelled(shortest))
                } else {
                    String::new()
                }
            );
            let by_rule = Spelled(GiveUp::unwritten_window(restarts, backoff, startup));
            let allowed = format!(
                "write a window above {}, or leave it out (it is then {by_rule})",
                Spelled(shortest)
            );
            self.refuse(field, problem, &allowed);
            return;
        }
        let startups = startup.map_or(Duration::ZERO, ProbeTiming::span);
        let startups = startups.saturating_mul(restarts);
        if !startups.is_zero() && startups.saturating_add(delays) >= window {
            let problem = format_args!(
                "start-ups that time out never reach the rule: {restarts} of them take {} and their waits {}, not less than the window of {window_text}",
                Spelled(startups),
                Spelled(delays)
            );
            self.warn(field, problem);
        }
    }

    /// A list of exit codes and signal names.
    fn exits(&mut self, field: &Field<'d>) -> BTreeSet<ExitCause> {
        const ALLOWED: &str = "write codes from 0 to 255 and signal names, such as [0, \"TERM\"]";
        let mut exits = BTreeSet::new();
        for item in self.list(field, 256, ALLOWED).unwrap_or_default() {
            match &item.node.value {
                Value::Integer(code) => match u8::try_from(*code) {
                    Ok(code) => {
                        exits.insert(ExitCause::Code(code.into()));
                    }
                    Err(_) => {
                        self.refuse(&item, format_args!("{code} is no exit code"), ALLOWED);
                    }
                },
                Value::Text(_) => {
                    exits.extend(self.signal(&item).map(ExitCause::Signal));
                }
                _ => self.refuse_kind(&item, ALLOWED),
            }
        }
        exits
    }

    fn signal(&mut self, field: &Field<'d>) -> Option<i32> {
        const ALLOWED: &str = "write a signal's name, such as \"TERM\", \"INT\" or \"QUIT\"";
        let name = self.text(field, 64, ALLOWED)?;
        let number = signal_number(name);
        if number.is_none() {
            let problem = format_args!("{:?} is no signal", excerpt(name));
            self.refuse(field, problem, ALLOWED);
        }
        number
    }

    /// `[stop]`: the rule and the signal's number.
    pub(super) fn stop(&mut self, field: Option<Field<'d>>) -> (StopRule, i32) {
        let table = field.and_then(|field| self.table(&field, STOP_KEYS));
        let part = |name: &str| table.as_ref().and_then(|table| table.field(name));
        let signal = part("signal").and_then(|field| self.signal(&field));
        let upto_a_day = Duration::ZERO..=DAY;
        let rule = StopRule {
            drain: self.span_or(part("drain"), &upto_a_day, Duration::ZERO),
            grace: self.span_or(part("grace"), &upto_a_day, secs(10)),
            unkillable_after: self.span_or(part("unkillable_after"), &(secs(1)..=DAY), secs(60)),
        };
        (rule, signal.unwrap_or(TERM))
    }
}

/// The number of a signal's name, with or without `SIG`.
fn signal_number(name: &str) -> Option<i32> {
    let bare = name.strip_prefix("SIG").unwrap_or(name);
    (1..=31).find(|number| signal_name(*number) == Some(bare))
}

/// `1s + 2s + 4s + …`, for the arithmetic of a refusal.
fn first_delays(restarts: u32, backoff: &Backoff) -> String {
    const SHOWN: u32 = 6;
    let shown = (0..restarts.min(SHOWN)).map(|in_a_row| backoff.wait(in_a_row));
    let mut text: Vec<_> = shown.map(|delay| Spelled(delay).to_string()).collect();
    if restarts > SHOWN {
        text.push("…".to_owned());
    }
    text.join(" + ")
}
