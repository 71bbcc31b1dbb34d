//! Rung three: a control group of version 1 for each run that is frozen while its processes are killed, so that
//! none of them forks on meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use portreeve::identity::Run;
use portreeve_api::containment::{Containment, tree};

use super::{about, enter, from_inside, make, run_group};
use crate::process::{self, Stat};

/// The group of one run.
#[derive(Debug)]
pub(crate) struct FreezerGroup {
    path: PathBuf,
    /// Where the shim is when it is not inside.
    home: PathBuf,
}

impl FreezerGroup {
    pub(super) fn of(replica: &Path, run: Run) -> Self {
        Self {
            path: run_group(replica, run),
            home: replica.join(Containment::WORKER),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn prepare(&self) -> io::Result<()> {
        enter(&self.home)
            .and_then(|()| make(&self.path))
            .map_err(|cause| about(&self.path, &cause))
    }

    pub(super) fn start<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        let (started, left) = from_inside(&self.path, &self.home, start)
            .map_err(|cause| about(&self.path, &cause))?;
        // Inside, it would be frozen with the rest; it kills by number and spares itself, so it stays in charge.
        if let Err(cause) = left {
            tracing::error!("the shim cannot leave the group of its run: {cause}");
        }
        Ok(started)
    }

    /// Freezes, kills what is inside and thaws, since a frozen process does not end. What forks before it is
    /// frozen is killed in a later round, or at the caller's next try.
    pub(super) fn kill(&self) {
        /// A forking process is frozen within a few rounds.
        const MOST_ROUNDS: usize = 64;
        let own = std::process::id();
        let Ok(members) = self.members() else { return };
        if members.is_empty() {
            return;
        }
        // Whoever is inside itself must not be frozen.
        let freeze = !members.contains(&own);
        let mut killed = BTreeSet::new();
        if freeze {
            _ = self.freeze();
        }
        for _ in 0..MOST_ROUNDS {
            let new = self.kill_members(own, &mut killed);
            let frozen = fs::read_to_string(self.path.join("freezer.state"));
            if !new && (!freeze || frozen.is_ok_and(|state| state.trim() == "FROZEN")) {
                break;
            }
        }
        self.thaw();
    }

    /// Whether there were any that had not been killed before.
    fn kill_members(&self, own: u32, killed: &mut BTreeSet<u32>) -> bool {
        let stats: Vec<Stat> = self
            .members()
            .into_iter()
            .flatten()
            .filter(|pid| *pid != own)
            .filter_map(|pid| Stat::read(pid).ok())
            .collect();
        // Who is named again after it was read was inside when it was read, whatever its number meant before.
        let still = self.members().unwrap_or_default();
        let members = stats.iter().filter(|stat| still.contains(&stat.pid));
        members.fold(false, |new, stat| {
            process::kill(stat);
            killed.insert(stat.pid) || new
        })
    }

    pub(super) fn is_empty(&self) -> io::Result<bool> {
        match self.members() {
            Ok(members) => Ok(members.is_empty()),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(cause) => Err(cause),
        }
    }

    fn members(&self) -> io::Result<BTreeSet<u32>> {
        let mut members = BTreeSet::new();
        // The service may make groups of its own in it.
        for group in tree(&self.path) {
            match fs::read_to_string(group.join("cgroup.procs")) {
                Ok(text) => {
                    members.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
                }
                Err(cause) if group == self.path => return Err(cause),
                Err(_) => {}
            }
        }
        Ok(members)
    }

    fn freeze(&self) -> io::Result<()> {
        fs::write(self.path.join("freezer.state"), "FROZEN")
    }

    /// Also what the service froze itself, which would not end otherwise.
    fn thaw(&self) {
        for group in tree(&self.path) {
            _ = fs::write(group.join("freezer.state"), "THAWED");
        }
    }
}
