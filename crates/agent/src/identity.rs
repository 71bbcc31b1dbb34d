//! Who this agent is, so that the controller never takes another one of the same name for it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use portreeve::registry::AgentIdentity;

use crate::facts;

/// The random name of the state folder, kept in it.
const FILE: &str = "agent.id";

/// The identity of the agent that has the state folder; a new folder is given a name.
///
/// # Errors
///
/// The system's.
pub(crate) fn of(state: &Path, boot_id: &str) -> io::Result<AgentIdentity> {
    let folder = match known(state)? {
        Some(folder) => folder,
        None => name(state)?,
    };
    Ok(AgentIdentity {
        machine: facts::machine_id(),
        boot_id: boot_id.to_owned(),
        folder,
    })
}

/// The name of a state folder that has one.
///
/// # Errors
///
/// The system's.
pub(crate) fn known(state: &Path) -> io::Result<Option<String>> {
    let text = match fs::read_to_string(state.join(FILE)) {
        Ok(text) => text,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let name = text.trim();
    // Cut short by a crash of the machine, it is no name: another one is given.
    let is_name = name.len() == 36
        && name
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'-');
    Ok(is_name.then(|| name.to_owned()))
}

fn name(state: &Path) -> io::Result<String> {
    // The kernel gives another one at each reading.
    let name = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let beside = state.join(".agent.id");
    fs::write(&beside, &name)?;
    fs::rename(beside, state.join(FILE))?;
    Ok(name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_name_and_another_one_has_another() {
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        assert_eq!(known(one.path()).unwrap(), None);
        let first = of(one.path(), "b").unwrap();
        assert_eq!(of(one.path(), "b").unwrap(), first);
        assert_eq!(known(one.path()).unwrap(), Some(first.folder.clone()));
        assert_ne!(of(two.path(), "b").unwrap().folder, first.folder);
        assert_eq!(first.to_string().parse(), Ok(first));
    }

    #[test]
    fn a_name_that_was_cut_short_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "0123").unwrap();
        let given = of(folder.path(), "b").unwrap().folder;
        assert_eq!(known(folder.path()).unwrap(), Some(given));
    }
}
