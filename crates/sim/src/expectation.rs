//! What a scenario expects to be seen, and how what was seen differs.

use std::fmt;

use portreeve::time::{Monotonic, parse_duration};

use crate::claim::Claim;
use crate::cluster::sight::{FIRST_WORDS, first_word};
use crate::timeline::{Entry, Seconds, What};

/// What a scenario expects of what is seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expectations {
    /// In this order.
    pub(crate) seen: Vec<Expectation>,
    /// What must not be seen.
    pub(crate) never: Vec<Expectation>,
    /// Whether every report must be among the expected.
    pub(crate) complete: bool,
    /// What is so at a time.
    pub(crate) holds: Vec<Claim>,
}

/// One line: `TIME [@WHO ]WORDS`, where the words need only begin what is seen, and `TIME..TIME` is any moment of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    text: String,
    at: Option<(Monotonic, Monotonic)>,
    who: Option<Who>,
    words: String,
}

/// Of whom it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// Replicas with this index.
    Index(u32),
    /// A service, a replica, a host or the controller.
    Named(String),
}

impl Expectation {
    /// Reads a line, with its time or without one.
    pub(crate) fn parse(text: &str, timed: bool) -> Result<Self, String> {
        let refuse = || {
            let time = if timed { "TIME " } else { "" };
            format!("{text:?} is no expectation: write \"{time}WORDS\" or \"{time}@REPLICA WORDS\"")
        };
        let mut rest = text.trim();
        let mut at = None;
        if timed {
            let (time, words) = rest.split_once(' ').ok_or_else(refuse)?;
            at = Some(times(time)?);
            rest = words.trim_start();
        } else if let Some((first, _)) = rest.split_once(' ')
            && times(first).is_ok()
        {
            // It would be taken for a word, and nothing ever begins with it.
            return Err(format!("{text:?} has a time, and never is at all times"));
        }
        let mut who = None;
        if let Some(after) = rest.strip_prefix('@') {
            let (name, words) = after.split_once(' ').ok_or_else(refuse)?;
            if name.is_empty() {
                return Err(refuse());
            }
            who = Some(
                name.parse()
                    .map_or_else(|_| Who::Named(name.to_owned()), Who::Index),
            );
            rest = words.trim_start();
        }
        if rest.is_empty() {
            return Err(refuse());
        }
        Ok(Self {
            text: text.to_owned(),
            at,
            who,
            words: rest.to_owned(),
        })
    }

    /// The name after the `@`, if it is no number.
    pub(crate) fn who(&self) -> Option<&str> {
        match &self.who {
            Some(Who::Named(name)) => Some(name),
            Some(Who::Index(_)) | None => None,
        }
    }

    /// What stands before the first space, where somebody may be named who lacks the `@`.
    pub(crate) fn first_of_several(&self) -> Option<&str> {
        let nobody = self.who.is_none();
        nobody
            .then(|| self.words.split_once(' '))
            .flatten()
            .map(|(first, _)| first)
    }

    /// Refuses what begins with no word that anything seen begins with.
    pub(crate) fn can_be_seen(&self) -> Result<(), String> {
        let word = first_word(&self.words);
        if FIRST_WORDS.contains(&word) {
            return Ok(());
        }
        let as_written = |known: &&&str| known.eq_ignore_ascii_case(word);
        let hint = match FIRST_WORDS.iter().find(as_written) {
            Some(known) => format!("did you mean {known}?"),
            None => format!("what is seen begins with {}", FIRST_WORDS.join(", ")),
        };
        Err(format!("no words begin with {word}; {hint}"))
    }

    fn is_met_by(&self, entry: &Entry) -> bool {
        let in_time = self
            .at
            .is_none_or(|(from, to)| (from..=to).contains(&entry.at));
        in_time && self.speaks_of(entry, &entry.what.to_string())
    }

    /// Who and what fit, whatever the time.
    fn speaks_of(&self, entry: &Entry, said: &str) -> bool {
        let follows = said.strip_prefix(&self.words);
        // Whole words: `RESTARTED 1` is not the begin of `RESTARTED 10`.
        let whole = follows.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()));
        whole && self.is_about(entry)
    }

    fn is_about(&self, entry: &Entry) -> bool {
        match &self.who {
            None => true,
            Some(Who::Index(index)) => entry.replica == Some(*index),
            Some(Who::Named(name)) => entry.is_of(name),
        }
    }

    fn begins(&self) -> Monotonic {
        self.at.map_or_else(Monotonic::default, |(from, _)| from)
    }

    /// What begins with the same word and came nearest in time, else anything at that time where it is one instant.
    fn nearest_of_its_kind<'a>(&self, seen: &'a [Entry]) -> Option<&'a Entry> {
        let at = self.begins();
        let distance = |entry: &&Entry| entry.at.since(at).max(at.since(entry.at));
        let word = self.words.split(' ').next();
        let own = seen.iter().filter(|entry| self.is_about(entry));
        let kind = own
            .clone()
            .filter(|entry| entry.what.to_string().split(' ').next() == word);
        let is_instant = self.at.is_some_and(|(from, to)| from == to);
        let same_time = || own.clone().find(|entry| is_instant && entry.at == at);
        kind.min_by_key(distance).or_else(same_time)
    }
}

/// `2m`, or `2m..3m`: both ends belong to it.
pub(crate) fn times(text: &str) -> Result<(Monotonic, Monotonic), String> {
    let moment = |text| {
        parse_duration(text)
            .map(|span| Monotonic::default() + span)
            .map_err(|cause| cause.to_string())
    };
    match text.split_once("..") {
        None => moment(text).map(|at| (at, at)),
        Some((from, to)) => {
            let (from, to) = (moment(from)?, moment(to)?);
            if from > to {
                return Err(format!("{text:?} ends before it begins"));
            }
            Ok((from, to))
        }
    }
}

/// An expectation that was not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet(String);

impl Unmet {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Holds what was seen against what was expected: in this order, with others between unless `complete`. Also how
/// many more differences there are than are told.
pub(crate) fn unmet(seen: &[Entry], expectations: &Expectations) -> (Vec<Unmet>, usize) {
    let Expectations {
        seen: expected,
        never,
        complete,
        ..
    } = expectations;
    let mut unmet = Vec::new();
    let mut met = vec![false; seen.len()];
    let mut from = 0;
    let mut more = 0;
    for one in expected {
        // They are in the order of time, and there may be millions.
        let (begin, end) = one.at.unwrap_or_default();
        let first = seen.partition_point(|entry| entry.at < begin).max(from);
        let then = seen[first..].iter().take_while(|entry| entry.at <= end);
        let found = then.map(|entry| one.is_met_by(entry)).position(|met| met);
        if let Some(found) = found {
            met[first + found] = true;
            from = first + found + 1;
            continue;
        }
        if unmet.len() >= MOST_TOLD {
            more += 1;
            continue;
        }
        let mut later = seen[from..].iter();
        let instead = later.find(|entry| one.speaks_of(entry, &entry.what.to_string()));
        let instead = instead.or_else(|| one.nearest_of_its_kind(seen));
        let instead = match instead {
            Some(entry) => format!("instead: {}", brief(entry)),
            None => "nothing like it was seen".to_owned(),
        };
        unmet.push(Unmet(format!("expected: {}\n {instead}", one.text)));
    }
    let mut tell = |text: String| {
        if unmet.len() < MOST_TOLD {
            unmet.push(Unmet(text));
        } else {
            more += 1;
        }
    };
    let mut never: Vec<_> = never.iter().collect();
    for entry in seen {
        if never.is_empty() {
            break;
        }
        let said = entry.what.to_string();
        never.retain(|one| {
            let is_seen = one.speaks_of(entry, &said);
            if is_seen {
                tell(format!(
                    "never expected: {}\n seen: {}",
                    one.text,
                    brief(entry)
                ));
            }
            !is_seen
        });
    }
    if *complete {
        for (entry, met) in seen.iter().zip(met) {
            if !met && matches!(entry.what, What::Report(_)) {
                tell(format!("not expected: {}", brief(entry)));
            }
        }
    }
    (unmet, more)
}

/// The most differences that are told; what is behind them costs a look through everything that was seen.
const MOST_TOLD: usize = 50;

fn brief(entry: &Entry) -> String {
    format!("{} @{} {}", Seconds(entry.at), entry.who(), entry.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve::identity::Run;
    use portreeve::supervision::Report;

    fn ready_at(ms: u64) -> Entry {
        Entry {
            at: Monotonic::from_millis(ms),
            service: None,
            shown: None,
            replica: Some(0),
            incarnation: None,
            run: Some(Run(1)),
            host: None,
            what: What::Report(Report::Ready),
        }
    }

    fn said(expected: &[&str], never: &[&str], complete: bool) -> Vec<String> {
        let seen = [ready_at(1000), ready_at(7000)];
        let parse = |texts: &[&str], timed| {
            let parse = |text: &&str| Expectation::parse(text, timed).unwrap();
            texts.iter().map(parse).collect::<Vec<_>>()
        };
        let expectations = Expectations {
            seen: parse(expected, true),
            never: parse(never, false),
            complete,
            holds: Vec::new(),
        };
        let (unmet, _) = unmet(&seen, &expectations);
        unmet.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_difference_says_what_was_seen_instead() {
        assert_eq!(
            said(&["1s READY", "7s @0 READY"], &["STUCK"], true),
            [""; 0]
        );
        assert_eq!(
            said(&["2s READY"], &["READY"], false),
            [
                "expected: 2s READY\n instead: 1.000 @0 READY",
                "never expected: READY\n seen: 1.000 @0 READY"
            ]
        );
        assert_eq!(
            said(&["7s READY", "1s READY"], &[], true),
            [
                "expected: 1s READY\n instead: 1.000 @0 READY",
                "not expected: 1.000 @0 READY"
            ]
        );
        assert_eq!(
            said(&["3s READ"], &[], false),
            ["expected: 3s READ\n nothing like it was seen"]
        );
        // What else happens as a long time begins says nothing about it.
        assert_eq!(
            said(&["1s STUCK", "1s..1h STUCK"], &[], false),
            [
                "expected: 1s STUCK\n instead: 1.000 @0 READY",
                "expected: 1s..1h STUCK\n nothing like it was seen"
            ]
        );
    }

    #[test]
    fn who_names_a_service_means_its_replicas_too() {
        let entry = Entry {
            service: Some("web.me".parse().unwrap()),
            shown: Some("web".into()),
            ..ready_at(1000)
        };
        for (who, is_meant) in [
            ("web", true),
            ("web.me", true),
            ("web/0", true),
            ("0", true),
            ("web/1", false),
            ("db", false),
        ] {
            let one = Expectation::parse(&format!("1s @{who} READY"), true).unwrap();
            assert_eq!(one.is_met_by(&entry), is_meant, "{who}");
        }
    }

    #[test]
    fn a_line_that_nothing_can_meet_is_refused() {
        for text in ["", "5s", "5s @1", "5 READY", "5s @ READY", "6s..5s READY"] {
            assert!(Expectation::parse(text, true).is_err(), "{text:?}");
        }
        for text in ["5s READY", "1s..5s @1 READY"] {
            assert!(Expectation::parse(text, false).is_err(), "{text:?}");
        }
    }
}
