//! What of the ladder a host offers, and which rung its replicas begin with.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

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
    /// Possible here, the surest first.
    pub possible: Vec<Rung>,
    /// What new replicas begin with.
    pub used: Rung,
    /// Where the groups of this agent's replicas are, if the rung takes groups.
    groups: Option<PathBuf>,
}

impl Ladder {
    /// Tries every rung. `state`, which must exist, tells this agent's groups from those of others on the host.
    ///
    /// # Errors
    ///
    /// [`NotPossible`] for a rung that is the only choice; or the state folder cannot be read. Nothing was changed.
    pub fn climb(choice: Choice, state: &Path) -> Result<Self, NotPossible> {
        let tried = Rung::LADDER.map(|rung| (rung, rung.possible()));
        let possible = |(rung, tried): &(Rung, Result<_, _>)| tried.is_ok().then_some(*rung);
        let possible: Vec<Rung> = tried.iter().filter_map(possible).collect();
        let used = match choice {
            Choice::Auto => possible.first().copied().unwrap_or_default(),
            Choice::Only(rung) => {
                let of_it = tried.into_iter().find(|(one, _)| *one == rung);
                of_it.map_or(Ok(()), |(_, tried)| tried)?;
                rung
            }
        };
        let groups = match used.hierarchy() {
            Some(hierarchy) => Some(hierarchy.own()?.join(tag(state)?)),
            None => None,
        };
        Ok(Self {
            possible,
            used,
            groups,
        })
    }

    /// How a new replica is held; `privileged`: its worker runs as root. Makes nothing.
    #[must_use]
    pub fn containment(&self, replica: &str, privileged: bool) -> Containment {
        if self.used == Rung::PidNamespace && !privileged {
            // Only root makes namespaces; a group would have come first or is not to be had.
            return Containment::default();
        }
        Containment {
            rung: self.used,
            group: self.groups.as_ref().map(|groups| groups.join(replica)),
        }
    }

    /// Removes empty groups that an earlier agent of the same state folder left, but for those of `living`.
    pub fn sweep(&self, living: impl Fn(&str) -> bool) {
        let Some(groups) = &self.groups else { return };
        for entry in fs::read_dir(groups).into_iter().flatten().flatten() {
            let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if folder && !entry.file_name().to_str().is_some_and(&living) {
                // One that still has a process stays, and its processes are found by their replica's next start.
                _ = remove_tree(&entry.path());
            }
        }
    }
}

/// The name of the group of all replicas of an agent.
fn tag(state: &Path) -> Result<String, NotPossible> {
    let at = |cause: io::Error| NotPossible::Unreadable {
        path: state.to_owned(),
        cause,
    };
    let folder = fs::metadata(state).map_err(at)?;
    Ok(format!("portreeve-{:x}-{:x}", folder.dev(), folder.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let state = Path::new("/");
        let ladder = Ladder::climb(Choice::Only(Rung::ProcessTree), state).unwrap();
        assert_eq!(ladder.possible.last(), Some(&Rung::ProcessTree));
        assert_eq!(
            ladder.containment("web.alice~0~1", false),
            Containment::default()
        );
    }

    #[test]
    fn the_surest_rung_is_taken_and_a_job_without_privileges_gets_no_namespace() {
        let ladder = Ladder {
            possible: vec![Rung::PidNamespace, Rung::ProcessTree],
            used: Rung::PidNamespace,
            groups: None,
        };
        assert_eq!(ladder.containment("a", true).rung, Rung::PidNamespace);
        assert_eq!(ladder.containment("a", false).rung, Rung::ProcessTree);
    }

    #[test]
    fn groups_that_nobody_lives_in_are_swept() {
        let groups = tempfile_folder("sweep");
        for name in ["web.alice~0~1/worker", "web.alice~0~2/run-1"] {
            fs::create_dir_all(groups.join(name)).unwrap();
        }
        let ladder = Ladder {
            possible: vec![Rung::Cgroup],
            used: Rung::Cgroup,
            groups: Some(groups.clone()),
        };
        ladder.sweep(|name| name == "web.alice~0~2");
        assert!(!groups.join("web.alice~0~1").exists());
        assert!(groups.join("web.alice~0~2/run-1").exists());
        fs::remove_dir_all(groups).unwrap();
    }

    fn tempfile_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("portreeve-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }
}
