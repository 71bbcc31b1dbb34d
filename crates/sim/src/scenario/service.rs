//! The profile inside a scenario: the lines of `[service]`, at the places they stand.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// The text with everything blanked out that is not of `[service]`, and its headers as a profile has them, so
/// that whatever the profile's reader says of a place is true of the scenario.
pub(super) fn profile_text(text: &str, document: &DeTable<'_>) -> String {
    let mut values = Vec::new();
    collect(document, &mut values);
    let mut blanked = String::with_capacity(text.len());
    let mut inside = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let within = values.iter().any(|span| span.start < at && at < span.end);
        let header = header(line).filter(|_| !within);
        match header {
            Some(name) => {
                let path = name.trim_start();
                inside = path == "service" || path.starts_with("service.");
                match line.find("service.") {
                    Some(found) if inside && path != "service" => {
                        blanked.push_str(&blank(&line[..found]).replacen(' ', "[", 1));
                        blanked.push_str(&blank("service."));
                        blanked.push_str(&line[found + "service.".len()..]);
                    }
                    _ => blanked.push_str(&blank(line)),
                }
            }
            None if inside => blanked.push_str(line),
            None => blanked.push_str(&blank(line)),
        }
        at += line.len();
    }
    blanked
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

fn blank(text: &str) -> String {
    let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
    text.bytes().map(blank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_service_keep_their_places_and_all_others_are_blank() {
        let text = "until = \"1s\"\n[service]\nname = \"web\"\nenv = { A = \"\"\"\n[run]\n\"\"\" }\n\
                    [service.restart] # often\npolicy = \"never\"\n[[run]]\nruns = 2\n";
        let document = DeTable::parse(text).unwrap();
        let profile = profile_text(text, document.get_ref());
        assert_eq!(profile.len(), text.len());
        let lines: Vec<_> = profile.lines().map(str::trim_end).collect();
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
