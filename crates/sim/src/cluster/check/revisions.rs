//! Numbers that readers rely on: they only grow within an epoch, and move exactly when something changes.

use std::collections::{BTreeMap, BTreeSet};

use portreeve::identity::ServiceName;

use super::{Verdict, broken};

/// The number line as readers saw it.
#[derive(Debug, Default)]
pub(crate) struct Revisions {
    epoch: String,
    ended: BTreeSet<String>,
    newest: u64,
    services: BTreeMap<ServiceName, Numbered>,
    /// Services that were told of since this start of the controller: a start shows all anew, whether or not they changed.
    told: BTreeSet<ServiceName>,
}

/// One version of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// What `state=all` shows moved then.
    pub(crate) all: u64,
    /// What is listed moved then.
    pub(crate) listed: u64,
    /// What is listed, as a digest: nothing of it that ages.
    pub(crate) content: u64,
}

impl Revisions {
    /// A controller starts: what it shows first, it shows anew.
    pub(crate) fn begin(&mut self) {
        self.told.clear();
    }

    /// The newest number of the table.
    pub(crate) fn check(&mut self, epoch: &str, revision: u64) -> Verdict {
        if epoch != self.epoch {
            if self.ended.contains(epoch) {
                let text = format!("epoch {epoch} is back after {}", self.epoch);
                return broken("revisions grow", text);
            }
            let ended = std::mem::replace(&mut self.epoch, epoch.to_owned());
            self.ended.insert(ended);
            (self.newest, self.services) = (0, BTreeMap::new());
        }
        if revision < self.newest {
            let text = format!("{revision} after {} in epoch {epoch}", self.newest);
            return broken("revisions grow", text);
        }
        self.newest = revision;
        Ok(())
    }

    /// A service as it is shown now. To be called after [`Self::check`].
    pub(crate) fn check_service(&mut self, name: &ServiceName, now: Numbered) -> Verdict {
        if now.listed > now.all || now.all > self.newest {
            let text = format!("{name}: {now:?} beyond revision {}", self.newest);
            return broken("revisions grow", text);
        }
        let is_first = self.told.insert(name.clone());
        let before = self.services.insert(name.clone(), now.clone());
        let Some(before) = before else { return Ok(()) };
        if now.all < before.all || now.listed < before.listed {
            return broken(
                "revisions grow",
                format!("{name}: {now:?} after {before:?}"),
            );
        }
        let (moved, changed) = (now.listed > before.listed, now.content != before.content);
        if changed && !moved {
            let text = format!("{name}: another list at revision {}", now.listed);
            return broken("a change moves the revision", text);
        }
        if moved && !changed && !is_first {
            let text = format!(
                "{name}: revision {} after {} shows the same list",
                now.listed, before.listed
            );
            return broken("silence without change", text);
        }
        Ok(())
    }

    /// The service is not known any more: one of its name begins anew.
    pub(crate) fn removed(&mut self, name: &ServiceName) {
        self.services.remove(name);
        self.told.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(all: u64, listed: u64, content: u64) -> Numbered {
        Numbered {
            all,
            listed,
            content,
        }
    }

    #[test]
    fn a_number_that_falls_is_found_and_a_new_epoch_may_begin_anywhere() {
        let mut seen = Revisions::default();
        assert_eq!(seen.check("a", 10), Ok(()));
        assert_eq!(seen.check("a", 10), Ok(()));
        assert_eq!(seen.check("a", 9).unwrap_err().invariant, "revisions grow");
        assert_eq!(seen.check("b", 3), Ok(()));
        assert_eq!(seen.check("a", 20).unwrap_err().invariant, "revisions grow");
    }

    #[test]
    fn a_list_that_changes_moves_its_revision_and_no_other_does() {
        let mut seen = Revisions::default();
        let web: ServiceName = "web.alice".parse().unwrap();
        seen.check("a", 10).unwrap();
        assert_eq!(seen.check_service(&web, at(5, 4, 1)), Ok(()));
        let found = seen.check_service(&web, at(6, 4, 2)).unwrap_err();
        assert_eq!(found.invariant, "a change moves the revision");
        assert_eq!(seen.check_service(&web, at(7, 7, 3)), Ok(()));
        let found = seen.check_service(&web, at(8, 8, 3)).unwrap_err();
        assert_eq!(found.invariant, "silence without change");
        let found = seen.check_service(&web, at(8, 2, 4)).unwrap_err();
        assert_eq!(found.invariant, "revisions grow");
        let found = seen.check_service(&web, at(11, 9, 4)).unwrap_err();
        assert_eq!(found.invariant, "revisions grow");
        // A start tells everything anew.
        seen.begin();
        assert_eq!(seen.check_service(&web, at(9, 9, 4)), Ok(()));
        seen.begin();
        assert_eq!(seen.check_service(&web, at(10, 10, 4)), Ok(()));
    }
}
