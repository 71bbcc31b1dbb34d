//! One run, watched for broken promises.

use portreeve::time::Monotonic;

use super::Reached;
use crate::cluster::spec::Spec;

/// How a run went.
pub(super) struct Run {
    pub(super) steps: u64,
    pub(super) reached: Reached,
    pub(super) failure: Option<Failure>,
}

/// Where a run broke a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// After which step.
    pub(crate) step: u64,
    pub(crate) at: Monotonic,
    /// Which promise: the same word whenever it is broken.
    pub(crate) invariant: &'static str,
    /// Who, where and when, for people.
    pub(crate) detail: String,
}

/// Plays a spec until its end or the first broken promise.
pub(super) fn run(_spec: Spec) -> Run {
    Run {
        steps: 0,
        reached: Reached::default(),
        failure: None,
    }
}

/// What happens until the end, the first broken promise, or step `until`: all of it, or the last lines.
pub(super) fn trace(_spec: Spec, _until: u64, _last: Option<usize>) -> String {
    String::new()
}
