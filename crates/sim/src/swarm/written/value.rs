//! Spans, parts, texts and tables as a scenario spells them.

use std::ops::Range;
use std::time::Duration;

use portreeve::supervision::{ExitStatus, signal_name};
use portreeve::time::{Monotonic, Spelled};
use serde_json::Value;

use crate::cluster::spec::{DiskSpec, NetworkSpec};

/// `code = 1`, and so on: one field each.
pub(super) fn status_words(status: ExitStatus) -> Vec<String> {
    match status {
        ExitStatus::Code(code) => vec![format!("code = {code}")],
        ExitStatus::Signal { signal, core, oom } => {
            let name = signal_name(signal).unwrap_or("KILL");
            vec![
                format!("signal = \"{name}\""),
                format!("core = {core}"),
                format!("oom = {oom}"),
            ]
        }
        ExitStatus::Unknown => vec!["lost = true".to_owned()],
    }
}

pub(super) fn network(spec: &NetworkSpec) -> String {
    let (part, by) = spec.reordering;
    format!(
        "{{ delay = {}, loss = {}, duplication = {}, reordering = {{ part = {}, by = {} }} }}",
        spans(&spec.delay),
        percent(spec.loss),
        percent(spec.duplication),
        percent(part),
        span(by)
    )
}

pub(super) fn disk(spec: &DiskSpec) -> String {
    let (commit, refusal) = (spans(&spec.commit), percent(spec.refusal));
    format!("{{ commit = {commit}, refusal = {refusal} }}")
}

pub(super) fn since(at: Monotonic) -> String {
    span(at.since(Monotonic::default()))
}

pub(super) fn span(span: Duration) -> String {
    format!("\"{}\"", Spelled(span))
}

pub(super) fn spans(range: &Range<Duration>) -> String {
    format!("[{}, {}]", span(range.start), span(range.end))
}

pub(super) fn signed(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    format!(
        "\"{sign}{}\"",
        Spelled(Duration::from_millis(ms.unsigned_abs()))
    )
}

/// Millionths as `"0.0001%"`.
pub(super) fn percent(millionths: u32) -> String {
    format!("\"{}.{:04}%\"", millionths / 10_000, millionths % 10_000)
}

/// A text in quotes: JSON's are TOML's as well.
pub(super) fn text(text: &str) -> String {
    Value::from(text).to_string()
}

/// A value of JSON in TOML, on one line; `None`: there is none.
pub(super) fn toml(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Array(all) => {
            let all: Vec<_> = all.iter().filter_map(toml).collect();
            Some(format!("[{}]", all.join(", ")))
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter_map(|(key, value)| Some(format!("{} = {}", text(key), toml(value)?)));
            let fields: Vec<_> = fields.collect();
            Some(format!("{{ {} }}", fields.join(", ")))
        }
        plain => Some(plain.to_string()),
    }
}
