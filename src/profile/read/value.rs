//! Single values with their bounds.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::port::excerpt;
use crate::time::{Spelled, parse_duration};

use super::{Field, Reader, Value, nearest};

/// The longest text of a profile in bytes: the most that Linux takes as one argument or variable, less its NUL.
pub(super) const MAX_TEXT: usize = 131_071;

impl<'d> Reader<'d> {
    /// A text of at most `most` bytes without NUL; `allowed` says what it should be.
    pub(super) fn text(
        &mut self,
        field: &Field<'d>,
        most: usize,
        allowed: &str,
    ) -> Option<&'d str> {
        let Value::Text(text) = &field.node.value else {
            self.refuse_kind(field, allowed);
            return None;
        };
        if text.len() > most {
            let problem = format_args!("a text of {} bytes is too long", text.len());
            self.refuse(field, problem, &format!("write at most {most} bytes"));
        } else if text.contains('\0') {
            self.refuse(field, "the text contains a NUL character", "leave it out");
        } else {
            return Some(text);
        }
        None
    }

    /// A non-empty text without control characters, for words that are shown or sent in one line.
    pub(super) fn line(
        &mut self,
        field: &Field<'d>,
        most: usize,
        allowed: &str,
    ) -> Option<&'d str> {
        let text = self.text(field, most, allowed)?;
        if text.is_empty() || text.chars().any(char::is_control) {
            let problem = format_args!("{:?} is empty or has control characters", excerpt(text));
            self.refuse(field, problem, allowed);
            return None;
        }
        Some(text)
    }

    /// A text that a type's own parser reads.
    pub(super) fn parsed<T: std::str::FromStr>(
        &mut self,
        field: &Field<'d>,
        what: &str,
        allowed: &str,
    ) -> Option<T> {
        let text = self.text(field, MAX_TEXT, allowed)?;
        let parsed = text.parse().ok();
        if parsed.is_none() {
            let problem = format_args!("{:?} is not {what}", excerpt(text));
            self.refuse(field, problem, allowed);
        }
        parsed
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&mut self, field: &Field<'d>, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        let allowed = format!("write {}", choice(&names));
        let text = self.text(field, MAX_TEXT, &allowed)?;
        let word = words.iter().find(|(name, _)| *name == text);
        if word.is_none() {
            let meant = nearest(text, &names).map(|near| format!(", did you mean {near:?}?"));
            let problem = format!(
                "{:?} is not known{}",
                excerpt(text),
                meant.unwrap_or_default()
            );
            self.refuse(field, problem, &allowed);
        }
        word.map(|(_, value)| *value)
    }

    /// The word of an optional field, else the default.
    pub(super) fn word_or<T: Copy>(
        &mut self,
        field: Option<Field<'d>>,
        words: &[(&str, T)],
        default: T,
    ) -> T {
        field
            .and_then(|field| self.word(&field, words))
            .unwrap_or(default)
    }

    /// A whole number within bounds; `else_allowed` names other forms, such as `or "any"`.
    pub(super) fn number(
        &mut self,
        field: &Field<'d>,
        bounds: &RangeInclusive<u32>,
        else_allowed: &str,
    ) -> Option<u32> {
        let (low, high) = (bounds.start(), bounds.end());
        let allowed = format!("write a whole number from {low} to {high}{else_allowed}");
        match &field.node.value {
            Value::Integer(number) => {
                let inside = u32::try_from(*number).ok().filter(|n| bounds.contains(n));
                if inside.is_none() {
                    self.refuse(field, format_args!("{number} is out of bounds"), &allowed);
                }
                inside
            }
            _ => {
                self.refuse_kind(field, &allowed);
                None
            }
        }
    }

    /// The whole number of an optional field, else the default.
    pub(super) fn number_or(
        &mut self,
        field: Option<Field<'d>>,
        bounds: &RangeInclusive<u32>,
        default: u32,
    ) -> u32 {
        field
            .and_then(|field| self.number(&field, bounds, ""))
            .unwrap_or(default)
    }

    /// The truth value of an optional field, else the default.
    pub(super) fn flag_or(&mut self, field: Option<Field<'d>>, default: bool) -> bool {
        let Some(field) = field else { return default };
        match field.node.value {
            Value::Flag(flag) => flag,
            _ => {
                self.refuse_kind(&field, "write true or false");
                default
            }
        }
    }

    /// A time span within bounds.
    pub(super) fn span(
        &mut self,
        field: &Field<'d>,
        bounds: &RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let (low, high) = (Spelled(*bounds.start()), Spelled(*bounds.end()));
        let allowed =
            format!("write a time with its unit, such as \"10s\", from \"{low}\" to \"{high}\"");
        match &field.node.value {
            Value::Integer(number) => {
                self.refuse(field, format_args!("{number} has no unit"), &allowed);
                None
            }
            Value::Decimal(number) => {
                self.refuse(field, format_args!("{number} has no unit"), &allowed);
                None
            }
            _ => {
                let text = self.text(field, MAX_TEXT, &allowed)?;
                let span = parse_duration(text).ok();
                let inside = span.filter(|span| bounds.contains(span));
                match (span, inside) {
                    (None, _) => {
                        let shown = excerpt(text);
                        let unitless = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                        let problem = if unitless {
                            format!("{shown:?} has no unit")
                        } else {
                            format!("{shown:?} is not a time")
                        };
                        self.refuse(field, problem, &allowed);
                    }
                    (Some(span), None) => {
                        let span = Spelled(span);
                        self.refuse(field, format_args!("{span} is out of bounds"), &allowed);
                    }
                    _ => {}
                }
                inside
            }
        }
    }

    /// The time span of an optional field, else the default.
    pub(super) fn span_or(
        &mut self,
        field: Option<Field<'d>>,
        bounds: &RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        field
            .and_then(|field| self.span(&field, bounds))
            .unwrap_or(default)
    }

    /// A list of at most `most` items.
    pub(super) fn list(
        &mut self,
        field: &Field<'d>,
        most: usize,
        allowed: &str,
    ) -> Option<Vec<Field<'d>>> {
        let Value::List(items) = &field.node.value else {
            self.refuse_kind(field, allowed);
            return None;
        };
        if items.len() > most {
            let problem = format_args!("a list of {} is too long", items.len());
            self.refuse(field, problem, &format!("write at most {most}"));
            return None;
        }
        let items = items.iter().enumerate();
        Some(items.map(|item| field.item(item)).collect())
    }

    /// A path that means the same from every directory.
    pub(super) fn path(&mut self, field: &Field<'d>) -> Option<String> {
        const ALLOWED: &str = "write a path that begins with / or ~/";
        let path = self.line(field, 4095, ALLOWED)?;
        if !path.starts_with('/') && !path.starts_with("~/") {
            let problem = format_args!("{:?} depends on the directory", excerpt(path));
            self.refuse(field, problem, ALLOWED);
            return None;
        }
        Some(path.to_owned())
    }
}

/// `"a", "b" or "c"`.
pub(super) fn choice<T: fmt::Debug>(words: &[T]) -> String {
    let mut text = String::new();
    for (nth, word) in words.iter().enumerate() {
        if nth > 0 {
            text.push_str(if nth + 1 == words.len() { " or " } else { ", " });
        }
        text.push_str(&format!("{word:?}"));
    }
    text
}

/// Seconds, for tables of bounds.
pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
