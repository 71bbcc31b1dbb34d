//! What of the ladder a host offers, and which rung its replicas begin with.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::UNIX_EPOCH;

use super::{Containment, NotPossible, Rung, UnknownRung, remove_tree};

/// What the configuration says about the rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The highest that is possible.
    #[default]
    Auto,
    /// This one or none.
    Only(Rung),
}

impl FromStr for Choice {
    type Err = UnknownRung;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            rung => rung.parse().map(Self::Only),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Only(rung) => rung.fmt(f),
        }
    }
}

/// The rungs of this host and the choice among them, tried once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    choice: Choice,
    /// Possible here and not above the choice, the surest first; with the folder of the groups of this agent's
    /// replicas, where the rung takes groups.
    rungs: Vec<(Rung, Option<PathBuf>)>,
    /// Every rung that is possible here.
    possible: Vec<Rung>,
}

impl Ladder {
    /// Tries every rung. `state`, which must exist, tells this agent's groups from those of others on the host.
    ///
    /// # Errors
    ///
    /// [`NotPossible`] for a rung that is the only choice; or the state folder cannot be read. Nothing was changed.
    pub fn climb(choice: Choice, state: &Path) -> Result<Self, NotPossible> {
        let tag = tag(state)?;
        let mut rungs = Vec::new();
        let mut possible = Vec::new();
        for rung in Rung::LADDER {
            let chosen = match choice {
                Choice::Auto => true,
                Choice::Only(only) => only == rung,
            };
            match rung.possible() {
                Ok(()) => possible.push(rung),
                Err(cause) if choice == Choice::Only(rung) => return Err(cause),
                Err(_) => continue,
            }
            if chosen {
                let own = rung.hierarchy().map(super::Hierarchy::own).transpose()?;
                rungs.push((rung, own.map(|own| own.join(&tag))));
            }
        }
        Ok(Self {
            choice,
            rungs,
            possible,
        })
    }

    /// Every rung that is possible here, the surest first.
    #[must_use]
    pub fn possible(&self) -> &[Rung] {
        &self.possible
    }

    /// What a new replica of this process's own user begins with.
    #[must_use]
    pub fn used(&self) -> Rung {
        self.rungs
            .first()
            .map_or(Rung::ProcessTree, |(rung, _)| *rung)
    }

    /// How a new replica is held; `privileged`: its worker runs as root, or as this process does. Makes nothing.
    ///
    /// # Errors
    ///
    /// [`NotPossible::NoPrivilege`] if the only choice takes a privilege that the job's user has not.
    pub fn containment(&self, replica: &str, privileged: bool) -> Result<Containment, NotPossible> {
        let may = |(rung, _): &&(Rung, _)| privileged || *rung != Rung::PidNamespace;
        match self.rungs.iter().find(may) {
            Some((rung, groups)) => Ok(Containment {
                rung: *rung,
                group: groups.as_ref().map(|groups| groups.join(replica)),
            }),
            None if self.choice == Choice::Auto => Ok(Containment::default()),
            None => Err(NotPossible::NoPrivilege),
        }
    }

    /// Removes the groups without a process that this agent, or an earlier one of the same state folder, left.
    /// What still has one stays, and is found by its replica's next start. Whether nothing is left.
    pub fn sweep(&self) -> bool {
        let mut gone = true;
        for groups in self.rungs.iter().filter_map(|(_, groups)| groups.as_ref()) {
            for entry in fs::read_dir(groups).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !is_populated(&path) {
                    _ = remove_tree(&path);
                }
            }
            _ = fs::remove_dir(groups);
            gone &= !groups.exists();
        }
        gone
    }
}

/// Whether a process is in the group or below it; unknown counts as one, a group that is not there is empty.
pub(super) fn is_populated(group: &Path) -> bool {
    if !group.exists() {
        return false;
    }
    if let Ok(events) = fs::read_to_string(group.join("cgroup.events")) {
        return !events.lines().any(|line| line == "populated 0");
    }
    let procs = fs::read_to_string(group.join("cgroup.procs"));
    let unknown = |cause: io::Error| cause.kind() != io::ErrorKind::NotFound;
    let has_any = |procs: io::Result<String>| procs.map_or_else(unknown, |procs| !procs.is_empty());
    let mut below = super::tree(group).into_iter().skip(1);
    has_any(procs) || below.any(|one| has_any(fs::read_to_string(one.join("cgroup.procs"))))
}

/// The name of the group of all replicas of an agent.
fn tag(state: &Path) -> Result<String, NotPossible> {
    let at = |cause: io::Error| NotPossible::Unreadable {
        path: state.to_owned(),
        cause,
    };
    let folder = fs::metadata(state).map_err(at)?;
    // A new folder may have the number of one that was removed, of which a worker may still live.
    let born = folder.created().ok();
    let born = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |born| born.as_micros());
    Ok(format!(
        "portreeve-{:x}-{:x}-{born:x}",
        folder.dev(),
        folder.ino()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_state_folder_in_the_place_of_one_that_was_removed_has_groups_of_its_own() {
        // File systems give the number of a removed folder to the next one: both agents had the same groups.
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("agent");
        let made = || {
            fs::create_dir(&state).unwrap();
            let tag = tag(&state).unwrap();
            fs::remove_dir(&state).unwrap();
            tag
        };
        let first = made();
        // Births are told to some milliseconds.
        assert!((0..100_000).any(|_| made() != first));
    }

    #[test]
    fn a_choice_is_auto_or_a_rung() {
        assert_eq!("auto".parse(), Ok(Choice::Auto));
        assert_eq!("freezer".parse(), Ok(Choice::Only(Rung::Freezer)));
        let refused = "cgroupv2".parse::<Choice>().unwrap_err().to_string();
        assert!(refused.contains("pid-namespace"), "{refused}");
        assert_eq!(Choice::default().to_string(), "auto");
    }

    #[test]
    fn the_tree_of_processes_can_be_chosen_everywhere_and_takes_no_group() {
        let ladder = Ladder::climb(Choice::Only(Rung::ProcessTree), Path::new("/")).unwrap();
        assert_eq!(ladder.possible().last(), Some(&Rung::ProcessTree));
        assert_eq!(ladder.used(), Rung::ProcessTree);
        let held = ladder.containment("web.alice~0~1", false).unwrap();
        assert_eq!(held, Containment::default());
    }

    #[test]
    fn a_job_without_privileges_gets_the_next_rung_and_is_refused_where_there_is_to_be_no_other() {
        let namespace = (Rung::PidNamespace, None);
        let freezer = (Rung::Freezer, Some(PathBuf::from("/groups")));
        let mut ladder = Ladder {
            choice: Choice::Auto,
            rungs: vec![namespace.clone(), freezer],
            possible: vec![Rung::PidNamespace, Rung::Freezer],
        };
        assert_eq!(
            ladder.containment("a", true).unwrap().rung,
            Rung::PidNamespace
        );
        let held = ladder.containment("a", false).unwrap();
        assert_eq!(held.rung, Rung::Freezer);
        assert_eq!(held.group.unwrap(), Path::new("/groups/a"));
        ladder.choice = Choice::Only(Rung::PidNamespace);
        ladder.rungs = vec![namespace];
        assert!(ladder.containment("a", true).is_ok());
        assert!(matches!(
            ladder.containment("a", false),
            Err(NotPossible::NoPrivilege)
        ));
    }

    #[test]
    fn groups_that_nobody_lives_in_are_swept() {
        let groups = std::env::temp_dir().join(format!("portreeve-sweep-{}", std::process::id()));
        // As the kernel would show them: the first without, the second with a process.
        for (name, populated) in [("web.alice~0~1", 0), ("web.alice~0~2", 1)] {
            fs::create_dir_all(groups.join(name).join("worker")).unwrap();
            let events = groups.join(name).join("cgroup.events");
            fs::write(events, format!("populated {populated}\nfrozen 0\n")).unwrap();
        }
        assert!(!is_populated(&groups.join("web.alice~0~1")));
        assert!(is_populated(&groups.join("web.alice~0~2")));
        // Unlike those of a control group, these files are in the way of a removal.
        fs::remove_file(groups.join("web.alice~0~1/cgroup.events")).unwrap();
        fs::write(groups.join("web.alice~0~1/worker/cgroup.procs"), "").unwrap();
        assert!(!is_populated(&groups.join("web.alice~0~1")));
        // What cannot be read.
        fs::create_dir(groups.join("web.alice~0~1/cgroup.procs")).unwrap();
        assert!(
            is_populated(&groups.join("web.alice~0~1")),
            "unknown counts as a process"
        );
        fs::remove_dir_all(groups).unwrap();
    }
}
