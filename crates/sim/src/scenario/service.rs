//! The profiles inside a scenario: the lines of `[service]`, or of each `[[service]]`, at the places they stand.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Which lines of a scenario are of which service.
pub(super) struct ServiceLines<'t> {
    text: &'t str,
    lines: Vec<Line>,
}

struct Line {
    at: Range<usize>,
    /// By its place among the services.
    of: Option<usize>,
    is_header: bool,
    /// `[service]` or `[[service]]` itself.
    begins: bool,
}

/// What the lines of one service say.
pub(super) struct ServiceText {
    /// The text with everything blanked out that is not of the service, and its headers as a profile has them, so
    /// that whatever the profile's reader says of a place is true of the scenario.
    pub(super) profile: String,
    /// Where a key of the service stands that is under no such header, as in `service = { .. }`.
    pub(super) elsewhere: Option<usize>,
}

/// What stands in place of a part of the text, which is at least as long.
pub(super) struct Instead {
    pub(super) of: Range<usize>,
    pub(super) text: String,
}

impl<'t> ServiceLines<'t> {
    /// Cost: one look at each line.
    pub(super) fn new(text: &'t str, document: &DeTable<'_>) -> Self {
        let mut values = Vec::new();
        collect(document, &mut values);
        // No two overlap.
        values.sort_by_key(|span| span.start);
        let many = document.get("service");
        let many = many.is_some_and(|value| matches!(value.get_ref(), DeValue::Array(_)));
        let mut lines = Vec::new();
        let mut begun = 0_usize;
        let mut inside = false;
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let first = values.partition_point(|span| span.start < at);
            let within = first.checked_sub(1).is_some_and(|one| at < values[one].end);
            let path = header(line).filter(|_| !within).map(str::trim_start);
            if let Some(path) = path {
                inside = path == "service" || path.starts_with("service.");
                begun += usize::from(many && path == "service");
            }
            lines.push(Line {
                at: at..at + line.len(),
                of: inside.then(|| begun.saturating_sub(1)),
                is_header: path.is_some(),
                begins: path == Some("service"),
            });
            at += line.len();
        }
        Self { text, lines }
    }

    /// The text of the service at this place, whose table it is, with a few parts replaced. Cost: one look at each line.
    pub(super) fn of(
        &self,
        which: usize,
        service: &DeTable<'_>,
        instead: &[Instead],
    ) -> ServiceText {
        let mut profile = String::new();
        for line in &self.lines {
            let text = &self.text[line.at.clone()];
            let own = line.of == Some(which);
            match text.find("service.") {
                Some(found) if own && line.is_header && !line.begins => {
                    let brackets = |letter| if letter == '[' { '[' } else { ' ' };
                    profile.extend(text[..found].chars().map(brackets));
                    profile.push_str("        ");
                    profile.push_str(&text[found + "service.".len()..]);
                }
                _ if own && !line.is_header => replaced(text, line.at.start, instead, &mut profile),
                // Nothing is told of a place in here, and a long scenario is no long profile.
                _ => profile.push('\n'),
            }
        }
        let is_kept = |at: usize| {
            let begun = self.lines.partition_point(|line| line.at.start <= at);
            begun
                .checked_sub(1)
                .is_some_and(|one| self.lines[one].of == Some(which))
        };
        let mut keys = Vec::new();
        collect_keys(service, &mut keys);
        ServiceText {
            profile,
            elsewhere: keys.into_iter().filter(|at| !is_kept(*at)).min(),
        }
    }
}

/// A line that begins at `at`, with what stands instead of parts of it, filled up with blanks.
fn replaced(line: &str, at: usize, instead: &[Instead], out: &mut String) {
    let mut rest = 0;
    while rest < line.len() {
        let place = at + rest;
        let Some(one) = instead.iter().find(|one| one.of.contains(&place)) else {
            let next = instead.iter().map(|one| one.of.start);
            let next = next.filter(|start| *start > place).min();
            let end = next.map_or(line.len(), |next| (next - at).min(line.len()));
            out.push_str(&line[rest..end]);
            rest = end;
            continue;
        };
        let end = (one.of.end - at).min(line.len());
        if place == one.of.start {
            out.push_str(&one.text);
        }
        let written = if place == one.of.start {
            one.text.len()
        } else {
            0
        };
        let left = line[rest..end].chars().skip(written);
        out.extend(left.map(|letter| if letter == '\n' { '\n' } else { ' ' }));
        rest = end;
    }
}

/// The name in `[name]`; the rest of the line is a comment.
fn header(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('[')?;
    let rest = rest.strip_prefix('[').unwrap_or(rest);
    Some(rest.split_once(']')?.0.trim_end())
}

/// Where values stand that may reach over several lines.
fn collect(table: &DeTable<'_>, spans: &mut Vec<Range<usize>>) {
    for value in table.iter().map(|(_, value)| value) {
        match value.get_ref() {
            DeValue::String(_) => spans.push(value.span()),
            DeValue::Table(inner) => collect(inner, spans),
            DeValue::Array(items) => {
                let mut tables = false;
                for item in items {
                    if let DeValue::Table(inner) = item.get_ref() {
                        tables = true;
                        collect(inner, spans);
                    }
                }
                if !tables {
                    spans.push(value.span());
                }
            }
            _ => {}
        }
    }
}

/// Where the keys of a table and of the tables in it stand.
fn collect_keys(table: &DeTable<'_>, keys: &mut Vec<usize>) {
    for (key, value) in table {
        keys.push(key.span().start);
        if let DeValue::Table(inner) = value.get_ref() {
            collect_keys(inner, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_service_keep_their_places_and_all_others_are_blank() {
        let text = "until = \"1s\"\n[service]\nname = \"web\"\nenv = { A = \"\"\"\n[run]\n\"\"\" }\n\
                    [service.restart] # often\npolicy = \"never\"\n[[run]]\nruns = 2\n";
        let document = DeTable::parse(text).unwrap();
        let document = document.get_ref();
        let DeValue::Table(service) = document["service"].get_ref() else {
            unreachable!("it is one");
        };
        let read = ServiceLines::new(text, document).of(0, service, &[]);
        assert_eq!(read.elsewhere, None);
        let lines: Vec<_> = read.profile.lines().collect();
        assert_eq!(
            lines,
            [
                "",
                "",
                "name = \"web\"",
                "env = { A = \"\"\"",
                "[run]",
                "\"\"\" }",
                "[        restart] # often",
                "policy = \"never\"",
                "",
                ""
            ]
        );
    }
}
