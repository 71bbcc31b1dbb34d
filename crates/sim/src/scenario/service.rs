//! The profile inside a scenario: the lines of `[service]`, at the places they stand.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// What the lines of `[service]` say.
pub(super) struct ServiceText {
    /// The text with everything blanked out that is not of `[service]`, and its headers as a profile has them, so
    /// that whatever the profile's reader says of a place is true of the scenario.
    pub(super) profile: String,
    /// Where a key of the service stands that is under no such header, as in `service = { .. }`.
    pub(super) elsewhere: Option<usize>,
}

pub(super) fn service_text(
    text: &str,
    document: &DeTable<'_>,
    service: &DeTable<'_>,
) -> ServiceText {
    let mut values = Vec::new();
    collect(document, &mut values);
    // No two overlap.
    values.sort_by_key(|span| span.start);
    let mut profile = String::new();
    let mut kept = Vec::new();
    let mut inside = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begun = values.partition_point(|span| span.start < at);
        let within = begun.checked_sub(1).is_some_and(|one| at < values[one].end);
        let header = header(line).filter(|_| !within);
        let path = header.map(str::trim_start);
        if let Some(path) = path {
            inside = path == "service" || path.starts_with("service.");
        }
        match line.find("service.") {
            Some(found) if inside && path.is_some_and(|path| path != "service") => {
                let brackets = |letter| if letter == '[' { '[' } else { ' ' };
                profile.extend(line[..found].chars().map(brackets));
                profile.push_str("        ");
                profile.push_str(&line[found + "service.".len()..]);
            }
            _ if inside && path.is_none() => profile.push_str(line),
            // Nothing is told of a place in here, and a long scenario is no long profile.
            _ => profile.push('\n'),
        }
        if inside {
            kept.push(at..at + line.len());
        }
        at += line.len();
    }
    let is_kept = |at: usize| {
        let begun = kept.partition_point(|line: &Range<usize>| line.start <= at);
        begun.checked_sub(1).is_some_and(|one| at < kept[one].end)
    };
    let mut keys = Vec::new();
    collect_keys(service, &mut keys);
    ServiceText {
        profile,
        elsewhere: keys.into_iter().filter(|at| !is_kept(*at)).min(),
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
        let read = service_text(text, document, service);
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
