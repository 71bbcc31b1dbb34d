//! The query part of a request: every parameter is known, given once and readable, or named in a refusal.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, Uri};
use portreeve::time::parse_duration;

use crate::watch::{Paced, spread};

use super::refused::Refused;

/// The parameters of one request; take them out, then [`Query::end`].
#[derive(Debug, Default)]
pub(crate) struct Query {
    given: BTreeMap<String, Vec<String>>,
    /// `Prefer: wait=SECONDS` (RFC 7240).
    prefers: Option<Duration>,
    at_once: bool,
}

/// Of a question that is asked again because its asker is another now: it is answered and not held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOnce;

/// How long a question may be held, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The asker has the answer of this revision.
    pub(crate) since: Option<u64>,
    /// It waits so long for another.
    pub(crate) wait: Duration,
}

impl Hold {
    /// Without `wait`, a question with `revision` is held so long.
    const DEFAULT: Duration = Duration::from_secs(300);
    /// No question is held longer.
    const MAX: Duration = Duration::from_secs(600);
    /// Nor shorter, if it is held at all: whoever asks in a circle shall not do so faster.
    const MIN: Duration = Duration::from_secs(1);

    /// Whether the answer of `revision` is another than the asker's. One that is lower, or foreign, is too.
    pub(crate) fn is_news(self, revision: u64) -> bool {
        self.since != Some(revision)
    }

    /// How long to hold it really: up to a sixteenth less, at random. Askers that began together must not
    /// all come back together, and none may get its answer later than it waits for it.
    pub(crate) fn shortened(self) -> Duration {
        // A small part of the time stays for the answer's way.
        spread(self.wait / 16 * 15..self.wait / 128 * 127)
    }

    /// Marks the answer to a question that could be held, so that its connection paces such answers.
    pub(crate) fn mark(self, response: &mut Response) {
        if self.since.is_some() {
            response.extensions_mut().insert(Paced);
        }
    }
}

impl Query {
    /// Numbers stay below 2^53, so that every reader of JSON keeps them whole.
    const MAX_REVISION: u64 = (1 << 53) - 1;

    fn of_uri(uri: &Uri) -> Self {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
        let mut query = Self::default();
        // The form encoding reads any text, so nothing is lost here.
        for (name, value) in pairs.map(|pairs| pairs.0).unwrap_or_default() {
            query.given.entry(name).or_default().push(value);
        }
        query
    }

    /// The parameters written as in an address, without the question mark.
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self::of_uri(
            &format!("/?{text}")
                .parse()
                .expect("a test writes an address"),
        )
    }

    /// The parameter as text, if given.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Refused> {
        match self.given.remove(name) {
            None => Ok(None),
            Some(mut values) if values.len() == 1 => Ok(values.pop()),
            Some(_) => Err(Refused::parameter(name, "given more than once")),
        }
    }

    /// Whether the parameter is given and was not taken out.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// `limit`: how many entries a page has, 1 to `most`; without it `most`.
    pub(crate) fn limit(&mut self, most: usize) -> Result<usize, Refused> {
        let limit = self.read("limit", "a number of entries")?.unwrap_or(most);
        if (1..=most).contains(&limit) {
            return Ok(limit);
        }
        Err(Refused::parameter(
            "limit",
            format!("{limit} is not in 1 to {most}"),
        ))
    }

    /// Every value of a parameter that may be given more than once, in order.
    pub(crate) fn texts(&mut self, name: &str) -> Vec<String> {
        self.given.remove(name).unwrap_or_default()
    }

    /// The parameter read as a `T`, if given.
    pub(crate) fn read<T: FromStr>(
        &mut self,
        name: &str,
        what: &str,
    ) -> Result<Option<T>, Refused> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let read = text.parse().map(Some);
        read.map_err(|_| Refused::parameter(name, format!("{:?} is not {what}", excerpt(&text))))
    }

    /// The parameter read as a `T` whose own words say what is wrong with it.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Refused> {
        let text = self.text(name)?;
        let parsed = text.map(|text| text.parse()).transpose();
        parsed.map_err(|cause| Refused::parameter(name, cause))
    }

    /// Whether a yes-or-no parameter says yes.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Refused> {
        let allowed = [
            ("1", true),
            ("true", true),
            ("", true),
            ("0", false),
            ("false", false),
        ];
        Ok(self.one_of(name, &allowed)?.unwrap_or(false))
    }

    /// The parameter as one of these words.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        name: &str,
        allowed: &[(&str, T)],
    ) -> Result<Option<T>, Refused> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let found = allowed.iter().find(|(word, _)| *word == text);
        match found {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let words: Vec<_> = allowed.iter().map(|(word, _)| *word).collect();
                let text = excerpt(&text);
                let words = words.join(", ");
                Err(Refused::parameter(
                    name,
                    format!("{text:?} is not one of {words}"),
                ))
            }
        }
    }

    /// A duration with a unit.
    pub(crate) fn span(&mut self, name: &str) -> Result<Option<Duration>, Refused> {
        let text = self.text(name)?;
        let span = text.map(|text| parse_duration(&text)).transpose();
        span.map_err(|cause| Refused::parameter(name, cause))
    }

    /// `revision` and `wait`, or the header `Prefer: wait=`: whether and how long to hold the question.
    pub(crate) fn hold(&mut self) -> Result<Hold, Refused> {
        let what = "a revision: write the number of an earlier answer";
        let since = self.read("revision", what)?;
        if since.is_some_and(|since| since > Self::MAX_REVISION) {
            let reason = format!("it is greater than any revision, {}", Self::MAX_REVISION);
            return Err(Refused::parameter("revision", reason));
        }
        let preferred = self.prefers.filter(|_| since.is_some());
        let wait = self.span("wait")?.or(preferred);
        let wait = match (wait, since) {
            _ if self.at_once => Duration::ZERO,
            (Some(wait), _) if wait.is_zero() => wait,
            (Some(wait), _) => wait.clamp(Hold::MIN, Hold::MAX),
            (None, Some(_)) => Hold::DEFAULT,
            (None, None) => Duration::ZERO,
        };
        Ok(Hold { since, wait })
    }

    /// Refuses what is left over: a misspelled parameter must not be ignored in silence.
    pub(crate) fn end(self) -> Result<(), Refused> {
        match self.given.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(Refused::parameter(&excerpt(&name), "not known here")),
        }
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The seconds of `Prefer: wait=SECONDS`; a preference that cannot be read is none.
fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let given = headers.get_all("prefer").iter();
    let given = given.filter_map(|value| value.to_str().ok());
    let mut preferences = given.flat_map(|value| value.split([',', ';']));
    preferences.find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        let named = name.trim().eq_ignore_ascii_case("wait");
        let seconds = value.trim().trim_matches('"').parse().ok()?;
        named.then(|| Duration::from_secs(seconds))
    })
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self {
            prefers: preferred_wait(&parts.headers),
            at_once: parts.extensions.get::<AtOnce>().is_some(),
            ..Self::of_uri(&parts.uri)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Query {
        let mut query = Query::default();
        for (name, value) in pairs {
            let values = query.given.entry((*name).to_owned()).or_default();
            values.push((*value).to_owned());
        }
        query
    }

    #[test]
    fn a_revision_asks_to_be_held_within_bounds() {
        let hold = |pairs: &[(&str, &str)]| query(pairs).hold().unwrap();
        let secs = Duration::from_secs;
        assert_eq!(hold(&[]).wait, Duration::ZERO);
        assert_eq!(
            hold(&[("revision", "5")]),
            Hold {
                since: Some(5),
                wait: secs(300)
            }
        );
        assert_eq!(hold(&[("revision", "5"), ("wait", "2s")]).wait, secs(2));
        assert_eq!(hold(&[("wait", "9h")]).wait, secs(600));
        assert_eq!(hold(&[("wait", "10ms")]).wait, secs(1));
        assert_eq!(hold(&[("revision", "5"), ("wait", "0s")]).wait, secs(0));
    }

    // endpoints.md 6, 10 and 14
    #[test]
    fn an_answer_comes_a_little_early_and_never_late() {
        let hold = query(&[("revision", "5"), ("wait", "10s")]).hold().unwrap();
        let holds: Vec<_> = (0..200).map(|_| hold.shortened()).collect();
        let (least, most) = (holds.iter().min().unwrap(), holds.iter().max().unwrap());
        assert!(*least >= Duration::from_millis(9_300), "{least:?}");
        assert!(*most <= Duration::from_millis(9_950), "{most:?}");
        assert!(*most - *least >= Duration::from_millis(400));
        let at_once = Hold {
            wait: Duration::ZERO,
            ..hold
        };
        assert_eq!(at_once.shortened(), Duration::ZERO);
    }

    #[test]
    fn a_preference_to_wait_counts_where_there_is_something_to_wait_for() {
        let prefers = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", value.parse().unwrap());
            preferred_wait(&headers)
        };
        let secs = Duration::from_secs;
        assert_eq!(prefers("wait=30"), Some(secs(30)));
        assert_eq!(prefers("respond-async, WAIT = 5"), Some(secs(5)));
        for unread in ["wait", "wait=x", "wait=-1", "waits=5", ""] {
            assert_eq!(prefers(unread), None, "{unread:?}");
        }
        let mut asked = query(&[("revision", "5")]);
        asked.prefers = Some(secs(7));
        assert_eq!(asked.hold().unwrap().wait, secs(7));
        let mut plain = query(&[]);
        plain.prefers = Some(secs(7));
        assert_eq!(plain.hold().unwrap().wait, secs(0));
    }

    #[test]
    fn wrong_parameters_are_named() {
        for bad in [
            "-1",
            "abc",
            "",
            "9223372036854775808",
            "18446744073709551616",
            "9007199254740992",
        ] {
            assert!(query(&[("revision", bad)]).hold().is_err(), "{bad:?}");
        }
        assert!(query(&[("wait", "5")]).hold().is_err());
        assert!(query(&[("a", "1"), ("a", "2")]).text("a").is_err());
        assert!(query(&[("a", "x")]).flag("a").is_err());
        assert!(query(&[("a", "x")]).end().is_err());
        assert!(query(&[("a", "")]).flag("a").unwrap());
    }
}
