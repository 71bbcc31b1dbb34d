//! What earlier runs of a replica left although their records say, or nobody wrote down, that they are over: found
//! by their control groups and by what they inherited, and ended before the next start. Never two for one replica.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portreeve::identity::Run;
use portreeve::supervision::StartFailure;
use portreeve_api::containment::Containment;
use portreeve_api::local::ReplicaFolder;

use crate::containment::{self, Hold};
use crate::process::{self, Stat};

use super::shim::Mark;

/// Everything of a replica that lives beside its next run.
pub(super) struct Leftovers {
    /// The earlier runs that have a group, and the next one, which may have been begun before.
    holds: BTreeMap<Run, Hold>,
    marked: Marked,
    containment: Containment,
    found: Vec<Stat>,
}

/// How the processes of this replica are known.
struct Marked {
    /// Begins the variable with the token file.
    name: String,
    folder: PathBuf,
}

impl Leftovers {
    pub(super) fn of(
        folder: &ReplicaFolder,
        mark: &Mark,
        containment: &Containment,
        next: Run,
    ) -> Self {
        let runs = containment::runs_with_groups(containment).into_iter();
        let earlier = runs.filter(|run| *run <= next);
        Self {
            holds: earlier
                .map(|run| (run, Hold::of(containment, run)))
                .collect(),
            marked: Marked {
                name: format!("{}TOKEN_FILE=", mark.prefix),
                folder: folder.path().to_owned(),
            },
            containment: containment.clone(),
            found: Vec::new(),
        }
    }

    /// Looks whether there is anything; `everywhere`: also what has no group. An empty group is removed.
    pub(super) fn any(&mut self, everywhere: bool) -> bool {
        self.holds.retain(|_, hold| {
            let empty = hold.is_empty().unwrap_or(false);
            // Busy for a moment, it is removed another time.
            _ = empty && hold.remove();
            !empty
        });
        if everywhere {
            match process::with_environment(|env| self.marked.has(env)) {
                Ok(found) => self.found = found,
                Err(cause) => {
                    tracing::warn!("what earlier runs left cannot be looked for: {cause}");
                }
            }
        } else {
            self.found.clear();
        }
        match containment::strays(&self.containment) {
            Ok(strays) => self.found.extend(strays),
            Err(cause) => tracing::warn!("the replica's own group cannot be read: {cause}"),
        }
        !self.holds.is_empty() || !self.found.is_empty()
    }

    /// Kills it all until nothing is left.
    ///
    /// # Errors
    ///
    /// The next run must not start: something is left after [`PATIENCE`].
    pub(super) async fn end(mut self) -> Result<(), StartFailure> {
        let pids = self.found.iter().map(|one| one.pid.to_string());
        let pids: Vec<_> = pids.collect();
        let runs: Vec<_> = self.holds.keys().map(ToString::to_string).collect();
        tracing::warn!(
            "earlier runs of this replica left processes, which are ended (groups of runs: {}; pids: {})",
            runs.join(", "),
            pids.join(", ")
        );
        let ending = async {
            let mut wait = AGAIN.0;
            while self.any(true) {
                self.holds.values_mut().for_each(Hold::kill);
                self.found.iter().for_each(process::kill);
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(AGAIN.1);
            }
        };
        match tokio::time::timeout(PATIENCE, ending).await {
            Ok(()) => Ok(()),
            Err(_) => Err(StartFailure::Prepare(format!(
                "processes of an earlier run of this replica do not end (groups of runs: {}; pids: {})",
                runs.join(", "),
                pids.join(", ")
            ))),
        }
    }
}

impl Marked {
    /// Whether this is the environment of a process of this incarnation, or of an earlier one of the same copy that
    /// nobody has a record of any more.
    fn has(&self, env: &[u8]) -> bool {
        let variables = env.split(|byte| *byte == 0);
        let mut files = variables.filter_map(|one| one.strip_prefix(self.name.as_bytes()));
        files.any(|file| {
            let Ok(file) = std::str::from_utf8(file) else {
                return false;
            };
            let folder = Path::new(file).parent().unwrap_or(Path::new(""));
            folder == self.folder || self.is_forgotten(folder)
        })
    }

    /// The folder of an earlier incarnation of the same copy, in which no worker can be.
    fn is_forgotten(&self, folder: &Path) -> bool {
        if folder.parent() != self.folder.parent() {
            return false;
        }
        let place = |folder: &Path| {
            let name = folder.file_name()?.to_str()?;
            let (copy, incarnation) = name.rsplit_once('~')?;
            Some((copy.to_owned(), incarnation.parse::<u64>().ok()?))
        };
        let (Some((copy, incarnation)), Some((own_copy, own))) =
            (place(folder), place(&self.folder))
        else {
            return false;
        };
        copy == own_copy && incarnation < own && !ReplicaFolder::at(folder).assignment().exists()
    }
}

/// A killed process that is not gone by then hangs in the kernel.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long until it is looked again, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(500));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_replica_and_forgotten_earlier_incarnations_of_it_are_meant() {
        let state = tempfile::tempdir().unwrap();
        let folder = |name: &str| state.path().join("replicas").join(name);
        std::fs::create_dir_all(folder("web.alice~0~2")).unwrap();
        std::fs::write(folder("web.alice~0~2").join("assignment.json"), "{}").unwrap();
        let marked = Marked {
            name: "PORTREEVE_TOKEN_FILE=".into(),
            folder: folder("web.alice~0~3"),
        };
        let has = |name: &str| {
            let file = folder(name).join("token");
            marked.has(format!("A=1\0PORTREEVE_TOKEN_FILE={}\0", file.display()).as_bytes())
        };
        assert!(has("web.alice~0~3"));
        assert!(has("web.alice~0~1"), "its folder is gone");
        assert!(!has("web.alice~0~2"), "it has a worker, or will have one");
        assert!(!has("web.alice~0~4") && !has("web.alice~1~1") && !has("web.bob~0~1"));
        assert!(!marked.has(b"") && !marked.has(b"PORTREEVE_TOKEN_FILE=\0"));
    }
}
