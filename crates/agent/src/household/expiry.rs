//! Lets the logs of replicas go that ended long ago.

use std::fs;
use std::time::{Duration, SystemTime};

use portreeve::residency::{Life, ReplicaName, Want};
use tokio::time::Instant;
use tracing::info;

use super::Household;

/// How long until a folder is looked at again that was to go and is still wanted.
const AGAIN: Duration = Duration::from_secs(60 * 60);

impl Household {
    /// Removes the folders whose time has come, and sets when to look again.
    pub(super) fn expire(&mut self) {
        let Some(wanted) = &self.wanted else { return };
        let now = Instant::now();
        let ended = self.residents.iter();
        let ended = ended.filter(|(_, resident)| resident.life == Life::Ended);
        let mut gone: Vec<ReplicaName> = Vec::new();
        let mut next = None;
        for (name, _) in ended {
            let Some(keeping) = self.keeping.get_mut(name) else {
                continue;
            };
            let kept = self.config.keep_logs;
            let expires = *keeping.expires.get_or_insert_with(|| {
                let ended = fs::symlink_metadata(keeping.folder.ended());
                let ended = ended.and_then(|about| about.modified()).ok();
                // The clock may have been set back since.
                let since = ended.and_then(|ended| SystemTime::now().duration_since(ended).ok());
                now + kept.saturating_sub(since.unwrap_or_default())
            });
            if expires > now {
                next = Some(next.map_or(expires, |next: Instant| next.min(expires)));
                continue;
            }
            // Its end is still waited for.
            let waited_for = wanted.set.get(name);
            if waited_for.is_some_and(|told| told.want != Want::Forget) {
                keeping.expires = Some(now + AGAIN);
            } else {
                gone.push(name.clone());
            }
        }
        for name in gone {
            info!("the logs of {name} have been kept long enough");
            self.remove(&name);
        }
        if let Some(next) = next {
            self.later(next);
        }
    }
}
