//! Refused means unchanged: what readers see and what the store holds is as it was before the order.

use std::sync::Arc;

use portreeve::registry::View;
use portreeve::time::Monotonic;

use super::{Verdict, broken};

/// How a controller stood between two steps.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    pub(crate) view: Arc<View>,
    pub(crate) revision: u64,
    /// Batches that were begun.
    pub(crate) batches: u64,
    /// When something is due though nobody asks.
    pub(crate) due: Option<Monotonic>,
    /// Nothing was due, undecided or with the store: only the next order can change anything.
    pub(crate) is_at_rest: bool,
}

/// An order was refused between the two, and nothing else happened.
pub(crate) fn check(order: &str, before: &Stand, after: &Stand) -> Verdict {
    if !before.is_at_rest {
        return Ok(());
    }
    let is_same = Arc::ptr_eq(&before.view, &after.view)
        && before.revision == after.revision
        && before.batches == after.batches;
    if is_same {
        return Ok(());
    }
    let text = format!(
        "{order} was refused, and {} batches were begun, {} revisions given",
        after.batches - before.batches,
        after.revision - before.revision
    );
    broken("refused means unchanged", text)
}

#[cfg(test)]
mod tests {
    use portreeve::registry::Command;

    use super::super::stage::Stage;
    use super::*;

    fn stand(stage: &Stage) -> Stand {
        Stand {
            view: stage.registry.view(),
            revision: stage.registry.revision(),
            batches: stage.batches,
            due: None,
            is_at_rest: true,
        }
    }

    #[test]
    fn a_refusal_that_changes_something_is_found() {
        let mut stage = Stage::new("20000-20009");
        stage.submit("web", "");
        let before = stand(&stage);
        let delete = Command::Delete {
            service: "web.alice".parse().unwrap(),
        };
        assert!(stage.ask(delete).is_err());
        assert_eq!(check("delete", &before, &stand(&stage)), Ok(()));
        stage.submit("other", "");
        let after = stand(&stage);
        let found = check("delete", &before, &after).unwrap_err();
        assert_eq!(found.invariant, "refused means unchanged");
        let disturbed = Stand {
            is_at_rest: false,
            ..before
        };
        assert_eq!(check("delete", &disturbed, &after), Ok(()));
    }
}
