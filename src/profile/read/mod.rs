//! Reads the tree of a profile into domain types and notes everything that is wrong on the way.
//!
//! A value that is wrong is noted and replaced by its default, so that the reading goes on; a profile is
//! handed out only if nothing was noted. Rules over several fields are asked only where these are sound.

mod command;
mod form;
mod place;
mod ports;
mod probe;
mod restart;
mod service;
mod value;

use std::fmt;
use std::ops::Range;

use super::document::{Key, Node, Value};
use super::syntax::Lost;

pub use command::is_variable;
pub(super) use service::TABLES;

/// Who reads, and what was noted.
pub(super) struct Reader<'d> {
    /// Begins our own variables; `None` for a stored profile, which was checked when it came.
    prefix: Option<&'d str>,
    /// What of a broken text could not be read: absence then proves nothing.
    lost: &'d Lost,
    /// Only a part is read, that others stand over and under: rules over several fields wait for the whole.
    partial: bool,
    pub(super) errors: Vec<Note>,
    /// How many errors more there are than are kept.
    pub(super) further: usize,
    pub(super) warnings: Vec<Note>,
}

/// The most errors kept; a hostile text has one per byte.
const MOST_ERRORS: usize = 1000;

/// An error or a warning with its place in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Note {
    pub(super) field: String,
    pub(super) at: Option<usize>,
    pub(super) text: String,
    pub(super) allowed: String,
}

/// One value of the tree and the name of its field.
#[derive(Clone)]
struct Field<'d> {
    path: String,
    key: Option<Range<usize>>,
    node: &'d Node,
}

/// A table whose keys are known to be allowed.
struct Table<'d> {
    path: String,
    at: Option<usize>,
    entries: &'d [(Key, Node)],
}

impl<'d> Reader<'d> {
    pub(super) const fn new(prefix: Option<&'d str>, lost: &'d Lost) -> Self {
        Self {
            prefix,
            lost,
            partial: false,
            errors: Vec::new(),
            further: 0,
            warnings: Vec::new(),
        }
    }

    /// A reader of one layer by itself. `lost` says that everything missing may stand elsewhere.
    pub(super) const fn of_part(prefix: Option<&'d str>, lost: &'d Lost) -> Self {
        let mut reader = Self::new(prefix, lost);
        reader.partial = true;
        reader
    }

    /// Notes that the value of `field` is wrong.
    fn refuse(&mut self, field: &Field<'_>, problem: impl fmt::Display, allowed: &str) {
        self.note(&field.path, field.at(), problem, allowed);
    }

    /// Notes that `field` has another kind of value than its own.
    fn refuse_kind(&mut self, field: &Field<'_>, allowed: &str) {
        let kind = field.node.value.kind();
        self.refuse(field, format_args!("{kind} does not stand here"), allowed);
    }

    /// Notes that something is not there, unless it may have been lost with a broken line.
    fn miss(&mut self, name: &str, path: &str, at: Option<usize>, problem: &str, allowed: &str) {
        if !self.lost.may_hold(name) {
            self.note(path, at, problem, allowed);
        }
    }

    fn note(&mut self, field: &str, at: Option<usize>, text: impl fmt::Display, allowed: &str) {
        if self.errors.len() >= MOST_ERRORS {
            self.further += 1;
            return;
        }
        self.errors.push(Note {
            field: field.to_owned(),
            at,
            text: text.to_string(),
            allowed: allowed.to_owned(),
        });
    }

    /// Notes what to know although nothing is wrong.
    fn warn(&mut self, field: &Field<'_>, text: impl fmt::Display) {
        self.warnings.push(Note {
            field: field.path.clone(),
            at: field.at(),
            text: text.to_string(),
            allowed: String::new(),
        });
    }

    /// Whether nothing was noted by `read`; for rules over several fields.
    fn sound<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> (T, bool) {
        let noted = |reader: &Self| reader.errors.len() + reader.further;
        let before = noted(self);
        let value = read(self);
        (value, noted(self) == before)
    }

    /// The table at `field`, its keys checked against `keys`.
    fn table(&mut self, field: &Field<'d>, keys: &[&str]) -> Option<Table<'d>> {
        let table = self.map(field, "write a table")?;
        let mut seen: Vec<&str> = Vec::new();
        for (key, _) in table.entries {
            let at = key.span.as_ref().map(|span| span.start);
            let name = key.name.as_str();
            if seen.contains(&name) {
                self.note(&table.path_of(name), at, "written twice", "write it once");
            } else if keys.contains(&name) {
                seen.push(name);
            } else if self.errors.len() < MOST_ERRORS {
                let meant = nearest(name, keys).map(|near| format!(" (did you mean {near:?}?)"));
                let problem = format!("unknown key{}", meant.unwrap_or_default());
                let known = format!("known here: {}", keys.join(", "));
                self.note(&table.path_of(name), at, problem, &known);
            } else {
                self.further += 1;
            }
        }
        Some(table)
    }

    /// The table at `field` whose keys are the user's own.
    fn map(&mut self, field: &Field<'d>, allowed: &str) -> Option<Table<'d>> {
        match &field.node.value {
            Value::Table(entries) => Some(Table {
                path: field.path.clone(),
                at: field.at(),
                entries,
            }),
            _ => {
                self.refuse_kind(field, allowed);
                None
            }
        }
    }
}

impl<'d> Field<'d> {
    /// The whole document.
    fn root(node: &'d Node) -> Self {
        let path = String::new();
        Self {
            path,
            key: None,
            node,
        }
    }

    fn at(&self) -> Option<usize> {
        self.node.span.as_ref().map(|span| span.start)
    }

    /// The place of its name, for what is wrong with the name.
    fn key_at(&self) -> Option<usize> {
        self.key.as_ref().map(|span| span.start)
    }

    /// One item of a list.
    fn item(&self, (nth, node): (usize, &'d Node)) -> Self {
        Self {
            path: format!("{}[{nth}]", self.path),
            key: self.key.clone(),
            node,
        }
    }
}

impl<'d> Table<'d> {
    /// The field of this name, if it is written.
    fn field(&self, name: &str) -> Option<Field<'d>> {
        let mut entries = self.entries.iter();
        let (key, node) = entries.find(|(key, _)| key.name == name)?;
        Some(self.located(key, node))
    }

    /// Every field, in the order written.
    fn fields(&self) -> impl Iterator<Item = (&'d str, Field<'d>)> + '_ {
        let entries = self.entries.iter();
        entries.map(|(key, node)| (key.name.as_str(), self.located(key, node)))
    }

    fn located(&self, key: &Key, node: &'d Node) -> Field<'d> {
        Field {
            path: self.path_of(&key.name),
            key: key.span.clone(),
            node,
        }
    }

    fn path_of(&self, name: &str) -> String {
        path_of(&self.path, name)
    }
}

/// The path of a key below another; a key that is no plain word is quoted, as TOML wants it.
pub(super) fn path_of(path: &str, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = if !name.is_empty() && name.chars().all(plain) {
        crate::port::excerpt(name)
    } else {
        format!("{:?}", crate::port::excerpt(name))
    };
    if path.is_empty() {
        name
    } else {
        format!("{path}.{name}")
    }
}

/// The known word a mistyped one most likely means.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // A long name is no typing error, and its distance would cost its length squared.
    if name.len() > 64 {
        return None;
    }
    let distance = |word: &&str| strsim::osa_distance(&name.to_lowercase(), word);
    let near = known.iter().copied().min_by_key(distance)?;
    let most = 1 + near.len().min(name.len()) / 3;
    (distance(&near) <= most).then_some(near)
}
