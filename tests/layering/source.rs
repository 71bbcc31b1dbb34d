//! Rust text as far as its imports need it: what is code, and which rooms it names.

use std::collections::BTreeSet;

/// The code without comments, the text of strings, and items that only tests have.
///
/// The text must be formatted: an item ends at the first line of its own indentation that closes it.
pub(crate) fn code(text: &str) -> String {
    let plain = without_comments_and_strings(text);
    let mut kept = String::new();
    let mut lines = plain.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let indent = indentation(line);
        let ends = |line: &str| {
            let rest = line.trim();
            indentation(line) == indent && (rest.starts_with('}') || rest.ends_with([';', '}']))
        };
        lines.by_ref().find(|line| ends(line));
    }
    kept
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn without_comments_and_strings(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(raw) = raw_string(rest).filter(|_| !ends_a_word(&kept)) {
            raw
        } else if letter == '"' {
            quoted(rest, '"')
        } else if letter == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            kept.push(letter);
            rest = &rest[letter.len_utf8()..];
        } else {
            // Lines stay lines, so that what follows keeps its indentation.
            kept.extend(rest[..skipped].chars().filter(|letter| *letter == '\n'));
            rest = &rest[skipped..];
        }
    }
    kept
}

fn ends_a_word(text: &str) -> bool {
    text.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

/// The length of `r"…"`, `r#"…"#` and so on.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix('r')?;
    let inside = after.trim_start_matches('#');
    let close = format!("\"{}", "#".repeat(after.len() - inside.len()));
    let end = inside.strip_prefix('"')?.find(&close)?;
    Some(text.len() - inside.len() + 1 + end + close.len())
}

/// The length of a quoted text, its quotes included.
fn quoted(text: &str, quote: char) -> usize {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            letters.next();
        } else if letter == quote {
            return at + 1;
        }
    }
    text.len()
}

/// The length of a character literal; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut letters = text.chars().skip(1);
    match (letters.next(), letters.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, '\''),
        _ => 0,
    }
}

/// The words of a text, identifiers among them.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

/// What `crate::…` names in this code, in groups too. Whatever is no room is among it as it stands: a glob,
/// and an item of the crate's own root.
///
/// `depth` is how many modules deep the code is: so many `super::` lead to the root as well.
pub(crate) fn rooms_used(code: &str, depth: usize) -> BTreeSet<String> {
    let one_line: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = one_line.replace(&"super::".repeat(depth), "crate::");
    for import in text.split("use ").skip(1) {
        let import = import.split(';').next().unwrap_or_default();
        // `use super::{super::x}`, `use crate as x`, `use crate::{self as x}`.
        let climbs = import
            .split_once('{')
            .is_some_and(|(_, group)| group.contains("super::"));
        assert!(
            !climbs && !import.contains("crate as ") && !import.contains("crate::{self"),
            "this reader cannot follow `use {import}`: write it as a path of its own"
        );
    }
    let mut rooms = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        match text[at + "crate::".len()..].strip_prefix('{') {
            None => rooms.extend(name(&text[at + "crate::".len()..])),
            Some(group) => rooms.extend(members(group).iter().filter_map(|part| name(part))),
        }
    }
    rooms
}

/// What a path begins with: a name, or the one letter that stands in its place.
fn name(path: &str) -> Option<String> {
    let path = path.trim();
    let end = path.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    match end.unwrap_or(path.len()) {
        0 => path.chars().next().map(String::from),
        end => Some(path[..end].to_owned()),
    }
}

/// The members of a group, up to its end.
fn members(group: &str) -> Vec<String> {
    let mut members = vec![String::new()];
    let mut depth = 0;
    for letter in group.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => members.push(String::new()),
            other if depth == 0 => members.last_mut().unwrap().push(other),
            _ => {}
        }
    }
    members
}

fn used(text: &str, depth: usize) -> Vec<String> {
    rooms_used(&code(text), depth).into_iter().collect()
}

#[test]
fn groups_paths_and_climbs_are_seen() {
    let text = "use crate::{port::Port, registry::{self, View}};\nlet x: crate::profile::Profile;\n\
        use super::super::rights::Caller;\nuse super::endpoint::Endpoint;\n";
    assert_eq!(used(text, 2), ["port", "profile", "registry", "rights"]);
    assert_eq!(used("use super::time::Now;", 1), ["time"]);
}

#[test]
fn comments_strings_and_tests_are_not_code() {
    let text = "// crate::allocator is only talked about\n/* crate::a */\nlet x = \"crate::b \\\" crate::c\";\n\
        let y = r#\"crate::d\"#;\nlet z = '\"'; use crate::time;\nfn f<'a>() {}\n\
        #[cfg(test)]\nmod tests { use crate::endpoints; }\n";
    assert_eq!(used(text, 1), ["time"]);
}

#[test]
fn code_after_a_test_item_is_still_read() {
    let text = "#[cfg(test)]\nmod model;\n#[cfg(test)]\n#[path = \"x.rs\"]\nmod tests;\nuse crate::port;\nimpl X {\n    \
        #[cfg(test)]\n    fn y() {\n        crate::registry::z();\n    }\n\n    fn w() {\n        crate::rights::v();\n    }\n}\n";
    assert_eq!(used(text, 1), ["port", "rights"]);
}

#[test]
fn a_glob_and_an_item_of_the_root_are_no_rooms() {
    assert_eq!(used("use crate::*;\nuse crate::View;", 1), ["*", "View"]);
}

#[test]
#[should_panic(expected = "cannot follow")]
fn a_renamed_crate_is_refused() {
    used("use crate as ours;\nlet x = ours::registry::View;", 1);
}
