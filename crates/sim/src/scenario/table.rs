//! Takes a scenario's tables apart: every key is asked for by name, and what nobody asked for is told.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use portreeve::profile::Place;
use portreeve::time::parse_duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing that is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands.
    pub place: Option<Place>,
    /// The field, such as `run.exit.code`; empty for the whole.
    pub field: String,
    /// What is wrong, with the value.
    pub problem: String,
    /// What is allowed instead.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.problem)?;
        if !self.allowed.is_empty() {
            write!(f, "; {}", self.allowed)?;
        }
        Ok(())
    }
}

/// The longest span of virtual time anywhere: 366 days.
pub(super) const LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// No known key is longer, with a slip or three.
const LONGEST_NAME: usize = 40;
/// The most problems told at once.
const MOST_PROBLEMS: usize = 100;

/// A text and what is wrong with it.
pub(super) struct Notes<'t> {
    text: &'t str,
    problems: RefCell<Vec<(usize, Problem)>>,
}

impl<'t> Notes<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self {
            text,
            problems: RefCell::new(Vec::new()),
        }
    }

    pub(super) fn note(&self, at: usize, field: &str, problem: impl fmt::Display, allowed: &str) {
        // To find a place costs a look at all before it, which a file of nothing but mistakes must not multiply.
        if self.is_full() {
            return;
        }
        let problem = Problem {
            place: Some(self.place(at)),
            field: field.to_owned(),
            problem: problem.to_string(),
            allowed: allowed.to_owned(),
        };
        self.add(at, problem);
    }

    pub(super) fn add(&self, at: usize, problem: Problem) {
        if !self.is_full() {
            self.problems.borrow_mut().push((at, problem));
        }
    }

    fn is_full(&self) -> bool {
        self.problems.borrow().len() >= MOST_PROBLEMS
    }

    pub(super) fn place(&self, at: usize) -> Place {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        let number = |n| u32::try_from(n).unwrap_or(u32::MAX);
        Place {
            line: number(line),
            column: number(column),
        }
    }

    /// Every problem, by place.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(at, _)| *at);
        problems.into_iter().map(|(_, problem)| problem).collect()
    }
}

/// One table of the text.
pub(super) struct Table<'a, 't> {
    notes: &'a Notes<'t>,
    path: String,
    entries: &'a DeTable<'t>,
    at: usize,
    asked: RefCell<Vec<&'static str>>,
    is_forgiven: Cell<bool>,
}

impl<'a, 't> Table<'a, 't> {
    pub(super) const fn new(
        notes: &'a Notes<'t>,
        path: String,
        entries: &'a DeTable<'t>,
        at: usize,
    ) -> Self {
        Self {
            notes,
            path,
            entries,
            at,
            asked: RefCell::new(Vec::new()),
            is_forgiven: Cell::new(false),
        }
    }

    /// Its keys and values.
    pub(super) const fn entries(&self) -> &'a DeTable<'t> {
        self.entries
    }

    /// Where it begins.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Tells that something is wrong with the value of `key`, or with the whole where it is not written.
    pub(super) fn wrong(&self, key: &'static str, problem: impl fmt::Display, allowed: &str) {
        let at = self.look(key).map_or(self.at, |value| value.span().start);
        self.notes.note(at, &self.field(key), problem, allowed);
    }

    /// Tells that something is wrong at a place inside the value of `key`.
    pub(super) fn note(&self, at: usize, key: &'static str, problem: impl fmt::Display) {
        self.notes.note(at, &self.field(key), problem, "");
    }

    /// Whether the key is written.
    pub(super) fn has(&self, key: &str) -> bool {
        self.look(key).is_some()
    }

    /// Whether the value of the key is a list.
    pub(super) fn is_list(&self, key: &str) -> bool {
        let value = self.look(key);
        value.is_some_and(|value| matches!(value.get_ref(), DeValue::Array(_)))
    }

    pub(super) fn text(&self, key: &'static str) -> Option<&'a str> {
        match self.value(key)?.get_ref() {
            DeValue::String(text) => Some(text),
            other => self.refuse(key, other, "write a text in quotes"),
        }
    }

    pub(super) fn flag(&self, key: &'static str) -> Option<bool> {
        match self.value(key)?.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            other => self.refuse(key, other, "write true or false"),
        }
    }

    pub(super) fn number<N: TryFrom<u64>>(
        &self,
        key: &'static str,
        bounds: RangeInclusive<u64>,
    ) -> Option<N> {
        let allowed = format!(
            "write a whole number from {} to {}",
            bounds.start(),
            bounds.end()
        );
        match self.value(key)?.get_ref() {
            DeValue::Integer(number) => {
                let read = u64::from_str_radix(number.as_str(), number.radix()).ok();
                let read = read.filter(|number| bounds.contains(number));
                let read = read.and_then(|number| N::try_from(number).ok());
                if read.is_none() {
                    self.wrong(
                        key,
                        format!("{} is out of bounds", number.as_str()),
                        &allowed,
                    );
                }
                read
            }
            other => self.refuse(key, other, &allowed),
        }
    }

    pub(super) fn span(&self, key: &'static str) -> Option<Duration> {
        self.span_of(key, self.text(key)?, "")
    }

    /// The span that `text`, which stands at `key`, says; `hint`: what else is allowed there.
    pub(super) fn span_of(
        &self,
        key: &'static str,
        text: &str,
        hint: &'static str,
    ) -> Option<Duration> {
        match parse_duration(text) {
            Ok(span) if span <= LONGEST => Some(span),
            Ok(_) => {
                self.wrong(
                    key,
                    format!("{text:?} is too long"),
                    "write at most \"366d\"",
                );
                None
            }
            Err(cause) => {
                self.wrong(key, cause, hint);
                None
            }
        }
    }

    /// One of these words, as what it means.
    pub(super) fn word<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known = words.iter().map(|(word, _)| *word);
            let allowed = match nearest(text, known.clone()) {
                Some(word) => format!("did you mean {word:?}?"),
                None => {
                    let all: Vec<_> = known.map(|word| format!("{word:?}")).collect();
                    format!("write {}", all.join(" or "))
                }
            };
            self.wrong(key, format!("{text:?} is not known"), &allowed);
        }
        found.map(|(_, meaning)| *meaning)
    }

    pub(super) fn texts(&self, key: &'static str, most: usize) -> Vec<(&'a str, Range<usize>)> {
        let allowed = "write a list of texts";
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = value.get_ref() else {
            _ = self.refuse::<()>(key, value.get_ref(), allowed);
            return Vec::new();
        };
        if items.len() > most {
            self.wrong(
                key,
                format!("{} are too many", items.len()),
                &format!("write at most {most}"),
            );
            return Vec::new();
        }
        let mut texts = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::String(text) => texts.push((&**text, item.span())),
                other => {
                    let problem = format!("{} is no text", other.type_str());
                    self.notes
                        .note(item.span().start, &self.field(key), problem, allowed);
                }
            }
        }
        texts
    }

    /// The table under `key`: `key = { .. }` or `[key]`.
    pub(super) fn table(&self, key: &'static str) -> Option<Table<'a, 't>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(entries) => {
                let at = value.span().start;
                Some(Table::new(self.notes, self.field(key), entries, at))
            }
            other => self.refuse(key, other, "write a table"),
        }
    }

    /// The tables under `key`: one `[[key]]` each.
    pub(super) fn tables(&self, key: &'static str, most: usize) -> Vec<Table<'a, 't>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let allowed = format!("write tables [[{}]]", self.field(key));
        let DeValue::Array(items) = value.get_ref() else {
            _ = self.refuse::<()>(key, value.get_ref(), &allowed);
            return Vec::new();
        };
        if items.len() > most {
            self.wrong(
                key,
                format!("{} are too many", items.len()),
                &format!("write at most {most}"),
            );
            return Vec::new();
        }
        let table = |item: &'a Spanned<DeValue<'t>>| match item.get_ref() {
            DeValue::Table(entries) => {
                let at = item.span().start;
                Some(Table::new(self.notes, self.field(key), entries, at))
            }
            other => self.refuse(key, other, &allowed),
        };
        items.iter().filter_map(table).collect()
    }

    /// How many problems were told so far, of all tables.
    pub(super) fn problems(&self) -> usize {
        self.notes.problems.borrow().len()
    }

    /// Takes every key for known: what may stand here could not be found out.
    pub(super) fn forgive(&self) {
        self.is_forgiven.set(true);
    }

    /// Tells every key that nobody asked for.
    pub(super) fn end(self) {
        if self.is_forgiven.get() {
            return;
        }
        let asked = self.asked.borrow();
        for (key, _) in self.entries {
            let name = key.get_ref();
            if self.notes.is_full() {
                return;
            }
            if asked.iter().any(|known| known == name) {
                continue;
            }
            let allowed = match nearest(name, asked.iter().copied()) {
                Some(known) => format!("did you mean {known}?"),
                None => format!("known here: {}", asked.join(", ")),
            };
            let field = join(&self.path, name);
            self.notes
                .note(key.span().start, &field, "unknown field", &allowed);
        }
    }

    fn value(&self, key: &'static str) -> Option<&'a Spanned<DeValue<'t>>> {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
        self.look(key)
    }

    fn look(&self, key: &str) -> Option<&'a Spanned<DeValue<'t>>> {
        let entry = self.entries.iter().find(|(name, _)| name.get_ref() == key);
        entry.map(|(_, value)| value)
    }

    fn refuse<T>(&self, key: &'static str, value: &DeValue<'_>, allowed: &str) -> Option<T> {
        let problem = format!("{} does not fit here", value.type_str());
        self.wrong(key, problem, allowed);
        None
    }

    fn field(&self, key: &str) -> String {
        join(&self.path, key)
    }
}

/// The word that was probably meant.
fn nearest<'w>(text: &str, known: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    if text.len() > LONGEST_NAME {
        return None;
    }
    let near = known.map(|word| (strsim::damerau_levenshtein(word, text), word));
    let near = near.filter(|(distance, word)| *distance <= 3 && *distance < word.len());
    near.min().map(|(_, word)| word)
}

fn join(path: &str, key: &str) -> String {
    let bare = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    // In quotes it is one key, and moves no cursor.
    let key = if bare {
        key.to_owned()
    } else {
        format!("{key:?}")
    };
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}
