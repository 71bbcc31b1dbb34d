//! One run, watched for broken promises.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use portreeve::time::Monotonic;

use super::Reached;
use crate::cluster::check::{Checks, Violation};
use crate::cluster::run::Cluster;
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

/// A run that is longer is cut off, and its end not judged: another seed shows more in the time.
const MOST_STEPS: u64 = 150_000;

/// Plays a spec until its end or the first broken promise.
pub(super) fn run(spec: Spec) -> Run {
    play(Cluster::new(Arc::new(spec)), u64::MAX).1
}

/// What happens until the end, the first broken promise, or step `until`: all of it, or the last lines.
pub(super) fn trace(spec: Spec, until: u64, last: Option<usize>) -> String {
    let (cluster, _) = play(Cluster::in_words(Arc::new(spec)), until);
    let words = cluster.trace().words();
    match last {
        None => words.to_owned(),
        Some(last) => {
            let lines: Vec<_> = words.lines().collect();
            let from = lines.len().saturating_sub(last);
            lines[from..].join("\n") + "\n"
        }
    }
}

fn play(mut cluster: Cluster, until: u64) -> (Cluster, Run) {
    let mut checks = Checks::new(cluster.spec());
    // Nothing of either is used after a panic but what was counted before.
    let played = catch_unwind(AssertUnwindSafe(|| watch(&mut cluster, &mut checks, until)));
    let broken = match played {
        Ok(verdict) => verdict.err(),
        Err(panic) => Some(Violation {
            invariant: "no-panic",
            detail: words(&*panic),
        }),
    };
    let run = Run {
        steps: cluster.steps(),
        reached: Reached(checks.coverage().clone()),
        failure: broken.map(|violation| Failure {
            step: cluster.steps(),
            at: cluster.now(),
            invariant: violation.invariant,
            detail: violation.detail,
        }),
    };
    (cluster, run)
}

fn watch(cluster: &mut Cluster, checks: &mut Checks, until: u64) -> Result<(), Violation> {
    while let Some(step) = cluster.step() {
        checks.after(cluster, &step)?;
        if step.number >= until.min(MOST_STEPS) {
            return Ok(());
        }
    }
    if cluster.stands_still() {
        return Err(Violation {
            invariant: "time-goes-on",
            detail: "something happens again and again in one instant".to_owned(),
        });
    }
    checks.at_end(cluster)
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without words".to_owned())
}
