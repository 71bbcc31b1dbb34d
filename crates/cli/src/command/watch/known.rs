//! What a watcher knows of the services it watches, and which of them changed.

use std::collections::{BTreeMap, BTreeSet};

use portreeve_api::stream::Told;

use crate::listing::Listing;
use crate::names::PortArg;

/// The newest listing of each watched service.
///
/// Invariant: what was told before a reset stays until all that holds now was told, so that nobody sees an empty list
/// between.
#[derive(Debug, Default)]
pub(super) struct Known {
    asked: Vec<PortArg>,
    listings: BTreeMap<String, (String, Listing)>,
    /// Those told before a reset and not since; `None`: nothing was reset, or all was told since.
    unconfirmed: Option<BTreeSet<String>>,
    caught_up: bool,
}

/// One service that readers see change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change {
    pub(super) service: String,
    /// The event's `epoch.revision`.
    pub(super) id: String,
}

impl Known {
    pub(super) fn of(asked: &[PortArg]) -> Self {
        Self {
            asked: asked.to_vec(),
            ..Self::default()
        }
    }

    /// Takes what was told, and gives what changed by it for those who read.
    pub(super) fn take(&mut self, told: Told) -> Vec<Change> {
        match told {
            Told::Set { id, set, text } => {
                let service = set.service.clone();
                if let Some(unconfirmed) = &mut self.unconfirmed {
                    unconfirmed.remove(&service);
                }
                let port = self.asked.iter().find(|name| meant_by(name, &service));
                let port = port.and_then(|name| name.port.clone());
                let listing = Listing::of_set(*set, text, port);
                let before = self.listings.get(&service);
                let the_same = before.is_some_and(|(_, before)| before.shows_the_same(&listing));
                self.listings.insert(service.clone(), (id.clone(), listing));
                if the_same {
                    Vec::new()
                } else {
                    vec![Change { service, id }]
                }
            }
            Told::Removed { id, service } => self.remove(service, &id).into_iter().collect(),
            Told::CaughtUp { id, .. } => {
                self.caught_up = true;
                let gone = self.unconfirmed.take().unwrap_or_default();
                let gone = gone.into_iter().filter_map(|it| self.remove(it, &id));
                gone.collect()
            }
            Told::Reset => {
                self.unconfirmed = Some(self.listings.keys().cloned().collect());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn remove(&mut self, service: String, id: &str) -> Option<Change> {
        self.listings.remove(&service)?;
        let id = id.to_owned();
        Some(Change { service, id })
    }

    /// Whether what is known is whole: everything there is was told, and nothing is being told anew.
    pub(super) const fn is_whole(&self) -> bool {
        self.caught_up && self.unconfirmed.is_none()
    }

    /// What is known of a service.
    pub(super) fn listing(&self, service: &str) -> Option<&Listing> {
        self.listings.get(service).map(|(_, listing)| listing)
    }

    /// Everything, by name.
    pub(super) fn listings(&self) -> Vec<&Listing> {
        self.listings.values().map(|(_, listing)| listing).collect()
    }

    /// Of what was asked for by name: what does not exist, or is not visible.
    pub(super) fn missing(&self) -> Vec<String> {
        let known = |name: &&PortArg| self.listings.keys().any(|service| meant_by(name, service));
        let missing = self.asked.iter().filter(|name| !known(name));
        missing.map(|name| name.service.to_string()).collect()
    }
}

/// Whether a name as it was typed means the service; without a namespace: the caller's, which the controller knows.
fn meant_by(name: &PortArg, service: &str) -> bool {
    let name = name.service.to_string();
    let rest = service.strip_prefix(&name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') && !name.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(service: &str, revision: u64, ready: u32) -> Told {
        let text = serde_json::json!({
            "service": service, "revision": revision, "desired": 3, "ready": ready, "endpoints": [],
        })
        .to_string();
        let set = serde_json::from_str(&text).unwrap();
        let id = format!("e.{revision}");
        Told::Set { id, set, text }
    }

    fn caught_up(revision: u64) -> Told {
        Told::CaughtUp {
            id: format!("e.{revision}"),
            revision,
            stale: false,
        }
    }

    /// The services that change by it.
    fn changed(known: &mut Known, told: Told) -> Vec<String> {
        let changes = known.take(told);
        changes.into_iter().map(|change| change.service).collect()
    }

    #[test]
    fn what_shows_nothing_new_is_no_change() {
        let mut known = Known::default();
        assert_eq!(changed(&mut known, set("web.a", 5, 1)), ["web.a"]);
        assert_eq!(
            changed(&mut known, set("web.a", 6, 1)),
            Vec::<String>::new()
        );
        assert_eq!(changed(&mut known, set("web.a", 7, 2)), ["web.a"]);
        assert_eq!(known.listing("web.a").unwrap().revision, 7);
    }

    #[test]
    fn what_is_not_told_again_after_a_reset_is_gone_and_nothing_is_empty_between() {
        let mut known = Known::default();
        for told in [set("db.a", 4, 1), set("web.a", 5, 1), caught_up(5)] {
            known.take(told);
        }
        assert!(known.is_whole());
        assert_eq!(changed(&mut known, Told::Reset), Vec::<String>::new());
        assert!(!known.is_whole());
        assert_eq!(known.listings().len(), 2);
        assert_eq!(
            changed(&mut known, set("web.a", 2, 1)),
            Vec::<String>::new()
        );
        assert_eq!(changed(&mut known, caught_up(2)), ["db.a"]);
        assert!(known.is_whole());
        assert_eq!(known.listings().len(), 1);
    }

    #[test]
    fn a_name_without_a_namespace_means_one_service_and_no_longer_one() {
        let asked: Vec<PortArg> = ["web:http", "web-gw.bio", "db.a"]
            .iter()
            .map(|name| name.parse().unwrap())
            .collect();
        let mut known = Known::of(&asked);
        assert_eq!(known.missing(), ["web", "web-gw.bio", "db.a"]);
        known.take(set("web-gw.bio", 1, 0));
        assert_eq!(known.missing(), ["web", "db.a"]);
        known.take(set("web.alice", 2, 0));
        known.take(set("db.abc", 3, 0));
        assert_eq!(known.missing(), ["db.a"]);
        let removed = Told::Removed {
            id: "e.9".to_owned(),
            service: "web.alice".to_owned(),
        };
        assert_eq!(changed(&mut known, removed.clone()), ["web.alice"]);
        assert_eq!(changed(&mut known, removed), Vec::<String>::new());
    }
}
