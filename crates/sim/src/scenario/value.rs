//! What the words of a cluster are read from: lists of hosts, ranges of ports, parts of a whole, spans from and to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use portreeve::identity::HostName;
use portreeve::port::PortRanges;
use portreeve::profile::expand_hosts;
use portreeve::time::parse_duration;
use toml::de::DeValue;

use super::table::{LONGEST, Table};

/// The whole of which parts are told.
const WHOLE: u32 = 1_000_000;
/// The most labels of a host, and the longest text of one.
const MOST_LABELS: usize = 64;
const LONGEST_LABEL: usize = 256;

impl<'a> Table<'a, '_> {
    /// Hosts as Slurm writes them: `n[01-16],login1`.
    pub(super) fn host_names(&self, key: &'static str) -> Option<Vec<HostName>> {
        let text = self.text(key)?;
        match expand_hosts(text) {
            Ok(hosts) => Some(hosts),
            Err(cause) => {
                let allowed = "write a list such as \"n1\" or \"n[1-16],login1\"";
                self.wrong(key, cause, allowed);
                None
            }
        }
    }

    /// Ranges of ports, such as `20000-20099,8080`; an empty text is no port.
    pub(super) fn ports(&self, key: &'static str) -> Option<PortRanges> {
        let text = self.text(key)?;
        match PortRanges::try_from(text.to_owned()) {
            Ok(ranges) => Some(ranges),
            Err(cause) => {
                self.wrong(key, cause, "");
                None
            }
        }
    }

    /// A part such as `"1%"` or `"0.05%"`, in millionths.
    pub(super) fn part(&self, key: &'static str) -> Option<u32> {
        let text = self.text(key)?;
        let read = millionths(text).filter(|part| *part <= WHOLE);
        if read.is_none() {
            let problem = format!("{text:?} is no part");
            self.wrong(
                key,
                problem,
                "write \"0%\" to \"100%\", such as \"0.5%\", with at most four digits behind the point",
            );
        }
        read
    }

    /// One span, or the shortest and the longest: `"5ms"` or `["1ms", "20ms"]`.
    pub(super) fn spans(&self, key: &'static str) -> Option<Range<Duration>> {
        let allowed =
            "write one time such as \"5ms\", or the shortest and the longest: [\"1ms\", \"20ms\"]";
        if !self.is_list(key) {
            return self.span(key).map(|span| span..span);
        }
        let mut read = Vec::new();
        for (text, at) in self.texts(key, 2) {
            match parse_duration(text) {
                Ok(span) if span <= LONGEST => read.push(span),
                Ok(_) => self.note(at.start, key, format!("{text:?} is too long")),
                Err(cause) => self.note(at.start, key, cause),
            }
        }
        match read[..] {
            [from, to] if from <= to => Some(from..to),
            _ => {
                self.wrong(key, "not the shortest and the longest time", allowed);
                None
            }
        }
    }

    /// A span to either side, such as `"1h"` or `"-90s"`, in milliseconds.
    pub(super) fn signed_ms(&self, key: &'static str) -> Option<i64> {
        let text = self.text(key)?;
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text),
        };
        let span = self.span_of(key, rest, "a minus in front is allowed here")?;
        i64::try_from(span.as_millis()).ok().map(|ms| sign * ms)
    }

    /// Labels of a host: `{ rack = "a" }`.
    pub(super) fn labels(&self, key: &'static str) -> BTreeMap<String, String> {
        let Some(table) = self.table(key) else {
            return BTreeMap::new();
        };
        let mut labels = BTreeMap::new();
        for (name, value) in table.entries() {
            match value.get_ref() {
                DeValue::String(text)
                    if labels.len() < MOST_LABELS
                        && name.get_ref().len() <= LONGEST_LABEL
                        && text.len() <= LONGEST_LABEL =>
                {
                    labels.insert(name.get_ref().to_string(), text.to_string());
                }
                _ => {
                    let problem = "a label is a short text, and there are at most 64";
                    self.note(value.span().start, key, problem);
                }
            }
        }
        labels
    }

    /// The only text, or each of a list.
    pub(super) fn one_or_more(&self, key: &'static str, most: usize) -> Vec<&'a str> {
        if self.is_list(key) {
            let texts = self.texts(key, most).into_iter();
            return texts.map(|(text, _)| text).collect();
        }
        self.text(key).into_iter().collect()
    }
}

fn millionths(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%')?;
    let (whole, behind) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str, most| {
        let plain = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse::<u32>().ok()).flatten()
    };
    let whole = digits(whole, 3)?;
    let scale = 10_u32.pow(4_u32.checked_sub(u32::try_from(behind.len()).ok()?)?);
    Some(whole * 10_000 + digits(behind, 4)? * scale)
}

#[cfg(test)]
mod tests {
    use super::millionths;

    #[test]
    fn a_part_is_read_to_the_millionth_and_nothing_else_is_one() {
        let read = ["0%", "1%", "0.05%", "100%", "12.3456%"].map(millionths);
        assert_eq!(read, [0, 10_000, 500, 1_000_000, 123_456].map(Some));
        for wrong in [
            "", "%", "1", "1.%", ".5%", "-1%", "1.23456%", "1e2%", "1000%",
        ] {
            let read = millionths(wrong);
            assert!(
                read.is_none_or(|part| part > 1_000_000),
                "{wrong}: {read:?}"
            );
        }
    }
}
