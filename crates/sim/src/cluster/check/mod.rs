//! What must be true of a cluster at every moment, whatever befalls it: an onlooker who knows the promises and not how they are kept.
//!
//! Each kind of promise has a file and judges plain observations, so that a test can show it a broken world.

mod contact;
mod coverage;
mod durable;
mod follower;
mod listing;
mod lives;
mod numbers;
mod onlooker;
mod oracle;
mod refusals;
mod restarts;
mod rests;
mod revisions;
mod settled;
mod settling;
mod silence;
#[cfg(test)]
mod stage;
mod unasked;
mod wellness;
mod words;

pub(crate) use coverage::Coverage;
pub(crate) use onlooker::Checks;
pub(crate) use settling::Settling;

use std::fmt;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Its name, the same whenever it is broken: what a failing run is shortened by.
    pub(crate) invariant: &'static str,
    /// Who, where and when, for people.
    pub(crate) detail: String,
}

/// What a look found.
pub(crate) type Verdict = Result<(), Violation>;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

impl std::error::Error for Violation {}

/// The promise called `invariant` is broken.
pub(crate) fn broken<T>(
    invariant: &'static str,
    detail: impl Into<String>,
) -> Result<T, Violation> {
    Err(Violation {
        invariant,
        detail: detail.into(),
    })
}
