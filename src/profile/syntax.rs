//! TOML that may be broken: what can still be read of it, and every place where it is broken.
//!
//! The parser goes on after an error, but what follows may then be dropped or land in the wrong table. So
//! the broken statement is blanked out (bytes keep their places) and the rest read again: the next error
//! told is a real one, and what is left can be checked like a sound profile.

use std::ops::Range;

use toml::de::{DeTable, Error};

use super::document::{Node, Value};
use super::lines::Lines;
use super::read::{Note, path_of};

/// What a broken text lost.
#[derive(Default)]
pub(super) struct Lost {
    text: String,
    everything: bool,
}

impl Lost {
    /// Whether this name may have stood in a part that could not be read.
    pub(super) fn may_hold(&self, name: &str) -> bool {
        self.everything || self.text.contains(name)
    }

    /// Whatever is asked for may have been lost.
    pub(super) const fn everything(&mut self) {
        self.everything = true;
    }

    /// What another text lost is lost too.
    pub(super) fn add(&mut self, other: Self) {
        self.everything |= other.everything;
        self.text.push_str(&other.text);
    }
}

/// How often the rest of a text is read again; larger texts than any real profile are read once.
const ROUNDS: usize = 24;
const LARGE: usize = 65_536;
/// The most errors looked at in one reading.
const MOST: usize = 128;

/// The tree of a text, what is broken in it, and what could not be read for that.
pub(super) fn read(text: &str) -> (Node, Vec<Note>, Lost) {
    let lines = Lines::of(text);
    let mut rest = text.to_owned();
    let mut notes = Vec::new();
    let mut lost = Lost::default();
    let rounds = if text.len() > LARGE { 1 } else { ROUNDS };
    for round in 1..=rounds {
        let (table, mut errors) = DeTable::parse_recoverable(&rest);
        let tree = Node::from_toml_table(table.get_ref());
        errors.truncate(MOST);
        errors.sort_by_key(|error| start(error, &rest));
        let (twice, broken): (Vec<_>, Vec<_>) = (errors.iter()).partition(|error| is_twice(error));
        let Some(first) = broken.first() else {
            notes.extend(
                twice
                    .iter()
                    .map(|error| written_twice(error, &rest, &tree, &lines)),
            );
            notes.dedup_by(|a, b| a.at == b.at);
            return (tree, notes, lost);
        };
        let (note, range) = broken_statement(first, &broken, &rest, &tree);
        notes.push(note);
        let hole = &rest[range.clone()];
        let blank = blanked(hole);
        if round == rounds || hole == blank {
            lost.everything = true;
            return (tree, notes, lost);
        }
        lost.text.push_str(hole);
        rest.replace_range(range, &blank);
    }
    lost.everything = true;
    (Node::table(Vec::new()), notes, lost)
}

fn start(error: &Error, text: &str) -> usize {
    error.span().map_or(text.len(), |span| span.start)
}

fn is_twice(error: &Error) -> bool {
    error.message() == "duplicate key"
}

/// What to tell of the first error, and the bytes of its statement.
fn broken_statement(
    first: &Error,
    errors: &[&Error],
    text: &str,
    tree: &Node,
) -> (Note, Range<usize>) {
    let at = start(first, text).min(text.len());
    let statement = statement_at(tree, at, "");
    let mut note = Note {
        field: String::new(),
        at: Some(at),
        text: format!("broken TOML: {}", first.message()),
        allowed: String::new(),
    };
    let mut range = line_start(text, at)..line_end(text, at);
    if let Some(statement) = statement {
        note.field = statement.field;
        range.start = line_start(text, statement.key);
        // An open bracket swallows what follows: the bracket is to blame, not the first line it swallowed.
        let open = |what: &str| {
            errors.iter().find(|error| {
                let inside = (statement.key..=statement.end).contains(&start(error, text));
                inside && error.message().starts_with(what)
            })
        };
        // What was swallowed may have brackets of its own.
        let outer = match text.as_bytes().get(statement.value) {
            Some(b'[') => "unclosed array",
            _ => "unclosed inline table",
        };
        let open = open(outer).or_else(|| open("unclosed"));
        if let Some(open) = open {
            note.at = Some(statement.value);
            note.text = format!("broken TOML: {}", open.message());
            range.end = next_statement(text, line_end(text, statement.value));
        } else {
            range.end = line_end(text, at.max(statement.end));
        }
    } else if text[range.clone()].trim_start().starts_with('[') {
        // Without its header a table's keys would be taken for those of the table before.
        range.end = next_header(text, range.end);
    }
    if let Some((problem, allowed)) = note.text.split_once(", expected ") {
        note.allowed = format!("expected {allowed}");
        note.text = problem.to_owned();
    }
    (note, range)
}

/// A `key = value` around a place.
struct Statement {
    field: String,
    key: usize,
    value: usize,
    end: usize,
}

/// The outermost statement around `at`, named by the innermost.
fn statement_at(node: &Node, at: usize, path: &str) -> Option<Statement> {
    let Value::Table(entries) = &node.value else {
        return None;
    };
    for (key, node) in entries {
        let field = path_of(path, &key.name);
        let (Some(key), Some(value)) = (&key.span, &node.span) else {
            continue;
        };
        let inner = statement_at(node, at, &field);
        // The value of a `[header]` is its header, and begins before its name.
        let is_statement = key.start < value.start;
        if is_statement && (key.start..=value.end).contains(&at) {
            return Some(Statement {
                field: inner.map_or(field, |inner| inner.field),
                key: key.start,
                value: value.start,
                end: value.end,
            });
        }
        if inner.is_some() {
            return inner;
        }
    }
    None
}

fn line_start(text: &str, at: usize) -> usize {
    text.as_bytes()[..at]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |before| before + 1)
}

fn line_end(text: &str, at: usize) -> usize {
    let rest = text.as_bytes()[at..].iter();
    rest.clone()
        .position(|byte| *byte == b'\n')
        .map_or(text.len(), |more| at + more)
}

/// The end of the line before the next one that looks like a statement.
fn next_statement(text: &str, from: usize) -> usize {
    next_line(text, from, |line| {
        let key = line.trim_start();
        let word =
            key.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_-.\"".contains(c));
        key.starts_with('[') && !key.trim_end().ends_with(',')
            || word.len() < key.len() && word.trim_start().starts_with('=')
    })
}

fn next_header(text: &str, from: usize) -> usize {
    next_line(text, from, |line| line.trim_start().starts_with('['))
}

fn next_line(text: &str, from: usize, is_it: impl Fn(&str) -> bool) -> usize {
    let mut end = from;
    for line in text[from..].split('\n').skip(1) {
        if is_it(line) {
            return end;
        }
        end += 1 + line.len();
    }
    text.len()
}

/// Blanks of the same length in bytes; lines stay lines.
fn blanked(text: &str) -> String {
    let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
    text.bytes().map(blank).collect()
}

/// What to tell of a key that stands twice in one table.
fn written_twice(error: &Error, text: &str, tree: &Node, lines: &Lines<'_>) -> Note {
    let at = start(error, text);
    let name = error
        .span()
        .and_then(|span| text.get(span))
        .unwrap_or_default();
    let name = name.trim().trim_matches(['"', '\'']);
    let nearest = earlier_header(text, at).or_else(|| {
        let mut nearest = None;
        earlier_key(tree, name, at, "", &mut nearest);
        nearest
    });
    let Some((first, field)) = nearest else {
        return Note {
            field: path_of("", name),
            at: Some(at),
            text: "written twice".to_owned(),
            allowed: "write it once".to_owned(),
        };
    };
    let line = lines.place(first).line;
    let is_port = field == format!("ports.{name}");
    let (problem, allowed) = if is_port {
        (
            format!("two ports are called {name}, the first in line {line}"),
            "choose another name",
        )
    } else {
        (
            format!("written twice, first in line {line}"),
            "write it once",
        )
    };
    Note {
        field,
        at: Some(at),
        text: problem,
        allowed: allowed.to_owned(),
    }
}

/// The same `[header]` before that in whose line `at` is. The tree keeps only the place of the later one.
fn earlier_header(text: &str, at: usize) -> Option<(usize, String)> {
    let header = |line: &str| {
        let (name, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
        Some(name.trim().to_owned())
    };
    let here = line_start(text, at);
    let wanted = header(&text[here..line_end(text, at)])?;
    let mut start = 0;
    for line in text[..here].split_inclusive('\n') {
        if header(line).as_ref() == Some(&wanted) {
            return Some((start, wanted));
        }
        start += line.len();
    }
    None
}

/// The last key of this name before `at`: a table is written in one piece, so it is the one repeated.
fn earlier_key(
    node: &Node,
    name: &str,
    at: usize,
    path: &str,
    nearest: &mut Option<(usize, String)>,
) {
    let Value::Table(entries) = &node.value else {
        return;
    };
    for (key, node) in entries {
        let field = path_of(path, &key.name);
        earlier_key(node, name, at, &field, nearest);
        let start = key.span.as_ref().map_or(usize::MAX, |span| span.start);
        let nearer = nearest.as_ref().is_none_or(|(best, _)| *best < start);
        if key.name == name && start < at && nearer {
            *nearest = Some((start, field));
        }
    }
}
