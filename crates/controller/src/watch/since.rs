//! What a watcher says that it has.

use http::HeaderMap;

use crate::rest::query::Query;
use crate::rest::refused::Refused;

/// Everything up to a revision: `R`, or `EPOCH.R` as the ids of a stream's events are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    /// The life of the revision line; `None`: the asker does not say.
    epoch: Option<String>,
    revision: u64,
}

/// Why a watcher has to drop what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    /// Its numbers are another line's: the state was restored, or it spoke with another controller.
    OtherEpoch,
    /// It has seen a revision that this line has not reached.
    Future,
    /// Services have gone since, and which of them it had is not known any more.
    TooOld,
}

impl Reset {
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::OtherEpoch => "other_epoch",
            Self::Future => "revision_from_the_future",
            Self::TooOld => "too_old",
        }
    }
}

impl Since {
    /// The header `Last-Event-ID`, else the parameter `since`.
    ///
    /// The header first: a browser that comes back asks the same address as at first, and tells in the header
    /// how far it has come. A header that cannot be read is one of another line; refusing it would end an
    /// `EventSource` for ever.
    pub(crate) fn take(query: &mut Query, headers: &HeaderMap) -> Result<Option<Self>, Refused> {
        let asked = match query.text("since")? {
            None => None,
            Some(text) => Some(Self::parse(&text).ok_or_else(|| {
                let reason = "write the id of an event, EPOCH.REVISION, or a revision alone";
                Refused::parameter("since", reason)
            })?),
        };
        let Some(last) = headers.get("last-event-id").filter(|it| !it.is_empty()) else {
            return Ok(asked);
        };
        let read = last.to_str().ok().and_then(Self::parse);
        let unreadable = Self {
            epoch: Some(String::new()),
            revision: 0,
        };
        Ok(Some(read.unwrap_or(unreadable)))
    }

    fn parse(text: &str) -> Option<Self> {
        let (epoch, revision) = match text.rsplit_once('.') {
            Some((epoch, revision)) => (Some(epoch.to_owned()), revision),
            None => (None, text),
        };
        let digits = revision.bytes().all(|byte| byte.is_ascii_digit());
        let revision = revision.parse().ok().filter(|_| digits)?;
        Some(Self { epoch, revision })
    }

    /// The revision, if it is one of the line `epoch`, which has come to `current`.
    pub(crate) fn on(&self, epoch: &str, current: u64) -> Result<u64, Reset> {
        if self.epoch.as_ref().is_some_and(|it| it != epoch) {
            return Err(Reset::OtherEpoch);
        }
        if self.revision > current {
            return Err(Reset::Future);
        }
        Ok(self.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_revisions_are_read_and_what_is_foreign_is_told_apart() {
        let on = |text: &str| Since::parse(text).map(|since| since.on("e1", 40));
        assert_eq!(on("40"), Some(Ok(40)));
        assert_eq!(on("e1.0"), Some(Ok(0)));
        assert_eq!(on("e2.40"), Some(Err(Reset::OtherEpoch)));
        assert_eq!(on("e1.41"), Some(Err(Reset::Future)));
        assert_eq!(on("18446744073709551615"), Some(Err(Reset::Future)));
        for bad in ["", "x", "e1.", "-1", "+1", "e1.18446744073709551616"] {
            assert_eq!(on(bad), None, "{bad:?}");
        }
    }
}
