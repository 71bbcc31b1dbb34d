//! Long lists in pages that all show one moment: who reads on reads what the first page began.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use parking_lot::Mutex;
use portreeve::registry::{HostView, ServiceView, View};
use portreeve_api::Problem;

use super::query::Query;
use super::refused::Refused;

/// Which services a list has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    prefix: String,
    labels: BTreeMap<String, String>,
}

impl Wanted {
    /// Takes `prefix` and `label` out of the query.
    pub(crate) fn take(query: &mut Query) -> Result<Self, Refused> {
        Ok(Self {
            prefix: query.text("prefix")?.unwrap_or_default(),
            labels: super::endpoints::view::labels(query)?,
        })
    }

    /// Whether the list has this one.
    pub(crate) fn includes(&self, service: &ServiceView) -> bool {
        let labels = &service.profile.labels;
        let mut wanted = self.labels.iter();
        wanted.all(|(name, value)| labels.get(name) == Some(value))
            && (self.prefix.is_empty() || service.service.to_string().starts_with(&self.prefix))
    }
}

/// Which hosts a list has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedHosts {
    labels: BTreeMap<String, String>,
}

impl WantedHosts {
    /// Takes `label` out of the query.
    pub(crate) fn take(query: &mut Query) -> Result<Self, Refused> {
        let labels = super::endpoints::view::labels(query)?;
        Ok(Self { labels })
    }

    /// Whether the list has this one.
    pub(crate) fn includes(&self, host: &HostView) -> bool {
        let mut wanted = self.labels.iter();
        wanted.all(|(name, value)| host.labels.get(name) == Some(value))
    }
}

/// The moments that unfinished lists show, each with which entries it has. They hold what has changed since, so they
/// are few and end soon.
#[derive(Debug)]
pub(crate) struct Pages<W>(Mutex<VecDeque<Moment<W>>>);

impl<W> Default for Pages<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

#[derive(Debug)]
struct Moment<W> {
    number: u64,
    user: String,
    wanted: W,
    view: Arc<View>,
    used: Instant,
}

impl<W: Clone> Pages<W> {
    /// A list that nobody read on for so long is forgotten.
    const KEPT: Duration = Duration::from_secs(300);
    /// The most unfinished lists of all; the one longest unused goes first.
    const MOST: usize = 16;
    /// The most of one user.
    const MOST_OF_USER: usize = 4;

    /// Keeps `view` for the pages after the first; the number finds it again.
    pub(crate) fn keep(&self, user: &str, wanted: W, view: Arc<View>, now: Instant) -> u64 {
        let mut random = [0; 8];
        // Whoever guesses a number still has to be its user: without randomness two lists of one user mix.
        let _ = getrandom::fill(&mut random);
        let number = u64::from_ne_bytes(random);
        let mut kept = self.0.lock();
        Self::forget(&mut kept, now);
        let of_user = |moment: &Moment<W>| moment.user == user;
        if kept.iter().filter(|moment| of_user(moment)).count() >= Self::MOST_OF_USER
            && let Some(oldest) = kept.iter().position(of_user)
        {
            kept.remove(oldest);
        }
        if kept.len() >= Self::MOST {
            kept.pop_front();
        }
        kept.push_back(Moment {
            number,
            user: user.to_owned(),
            wanted,
            view,
            used: now,
        });
        number
    }

    /// The moment that a cursor of this user goes on from.
    pub(crate) fn find<N>(
        &self,
        user: &str,
        cursor: &Cursor<N>,
        now: Instant,
    ) -> Result<(W, Arc<View>), Refused> {
        let mut kept = self.0.lock();
        Self::forget(&mut kept, now);
        let place = kept
            .iter()
            .position(|moment| moment.number == cursor.number && moment.user == user);
        let found = place.and_then(|place| kept.remove(place));
        let mut found = found.ok_or_else(|| {
            let reason = "the list that this cursor goes on with is not kept any more; begin again without it";
            Refused::new(StatusCode::GONE, Problem::CURSOR_EXPIRED, reason)
        })?;
        found.used = now;
        let told = (found.wanted.clone(), Arc::clone(&found.view));
        kept.push_back(found);
        Ok(told)
    }

    /// The longest unused are in front.
    fn forget(kept: &mut VecDeque<Moment<W>>, now: Instant) {
        while kept
            .front()
            .is_some_and(|moment| now.saturating_duration_since(moment.used) > Self::KEPT)
        {
            kept.pop_front();
        }
    }
}

/// Where the next page begins. Askers give it back as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor<N> {
    pub(crate) number: u64,
    /// The name of the last entry that was told.
    pub(crate) after: N,
}

impl<N: fmt::Display> fmt::Display for Cursor<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.number)?;
        let after = self.after.to_string();
        after.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<N: FromStr> FromStr for Cursor<N> {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        // A sign is a digit to nobody but the number's reader.
        let hex = text.len() <= 1024 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parts = text.split_at_checked(16).filter(|_| hex);
        let (number, after) = parts.ok_or(ParseCursorError)?;
        let pairs = after.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        Ok(Self {
            number: u64::from_str_radix(number, 16).map_err(|_| ParseCursorError)?,
            after: name
                .and_then(|name| name.parse().ok())
                .ok_or(ParseCursorError)?,
        })
    }
}

/// Not a cursor of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the next_cursor of an earlier answer; begin again without it")]
pub(crate) struct ParseCursorError;

#[cfg(test)]
mod tests {
    use portreeve::identity::ServiceName;

    use super::*;

    fn cursor(number: u64) -> Cursor<ServiceName> {
        let after = "web.alice".parse().unwrap();
        Cursor { number, after }
    }

    #[test]
    fn a_cursor_is_read_back_and_a_made_up_one_is_not() {
        let text = cursor(7).to_string();
        assert_eq!(text.parse(), Ok(cursor(7)));
        for bad in [
            "",
            "0",
            &text[..20],
            &format!("{text}0"),
            &format!("+{}", &text[1..]),
            "ä",
            &"0".repeat(2048),
        ] {
            assert_eq!(
                bad.parse::<Cursor<ServiceName>>(),
                Err(ParseCursorError),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn moments_are_kept_for_their_user_for_a_while_and_in_bounded_number() {
        let pages = Pages::<Wanted>::default();
        let begin = Instant::now();
        let keep = |user: &str, now| pages.keep(user, Wanted::default(), Arc::default(), now);
        let first = keep("alice", begin);
        let found = |user: &str, number, now| pages.find(user, &cursor(number), now).is_ok();
        assert!(found("alice", first, begin));
        assert!(!found("bob", first, begin), "another's cursor is unknown");
        let used = begin + Pages::<Wanted>::KEPT;
        assert!(found("alice", first, used), "each use keeps it longer");
        assert!(found("alice", first, used + Pages::<Wanted>::KEPT));
        let late = used + Pages::<Wanted>::KEPT * 2 + Duration::from_millis(1);
        assert!(!found("alice", first, late));
        let of_alice: Vec<_> = (0..=Pages::<Wanted>::MOST_OF_USER)
            .map(|_| keep("alice", late))
            .collect();
        assert!(!found("alice", of_alice[0], late), "the oldest went");
        assert!(found("alice", of_alice[1], late));
        for nth in 0..2 * Pages::<Wanted>::MOST {
            keep(&nth.to_string(), late);
        }
        assert_eq!(pages.0.lock().len(), Pages::<Wanted>::MOST);
    }
}
