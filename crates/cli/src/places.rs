//! Where portreeve keeps sockets and data, by who runs it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use portreeve_api::Target;
use portreeve_api::site_profiles::SiteFolder;

/// The folders of one user, or of the system when root runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Sockets and locks; empty after a boot.
    pub run: PathBuf,
    /// What must survive.
    pub data: PathBuf,
}

/// Where root keeps them, and where everybody looks for a system's controller.
pub(crate) const SYSTEM_RUN: &str = "/run/portreeve";
const SYSTEM_DATA: &str = "/var/lib/portreeve";
/// The address of a controller by default.
pub(crate) const LISTEN: [&str; 2] = ["127.0.0.1:7373", "[::1]:7373"];

impl Places {
    /// The folders of the user who runs this process.
    pub(crate) fn here() -> Self {
        let uid = nix::unistd::geteuid();
        if uid.is_root() {
            return Self {
                run: SYSTEM_RUN.into(),
                data: SYSTEM_DATA.into(),
            };
        }
        let folder = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        let home = folder("HOME").unwrap_or_else(|| "/".into());
        let run = folder("XDG_RUNTIME_DIR").map_or_else(
            || std::env::temp_dir().join(format!("portreeve-{uid}")),
            |runtime| runtime.join("portreeve"),
        );
        let data = folder("XDG_STATE_HOME")
            .unwrap_or_else(|| home.join(".local/state"))
            .join("portreeve");
        Self { run, data }
    }
}

/// Where configuration files are: root's, and what a site says for all of its users.
pub(crate) const SYSTEM_CONFIG: &str = "/etc/portreeve";

/// The folder of this user's configuration files.
pub(crate) fn config() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return SYSTEM_CONFIG.into();
    }
    let folder = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let home = || folder("HOME").unwrap_or_else(|| "/".into());
    let config = folder("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    config
        .unwrap_or_else(|| home().join(".config"))
        .join("portreeve")
}

/// Where a site's profiles are: the folder named, else root's own.
pub(crate) fn site_profiles(named: Option<PathBuf>) -> SiteFolder {
    const SYSTEM: &str = "/etc/portreeve/profiles";
    let usual = || nix::unistd::geteuid().is_root().then(|| SYSTEM.into());
    SiteFolder::at(named.or_else(usual))
}

/// The socket of a controller below a run folder.
pub(crate) fn socket(run: &Path) -> PathBuf {
    run.join("controller.sock")
}

/// The socket of an agent below a run folder.
pub(crate) fn agent_socket(run: &Path) -> PathBuf {
    run.join(portreeve_api::attach::SOCKET)
}

/// The socket of an agent below a run folder, at which it asks the controller for people.
pub(crate) fn relay_socket(run: &Path) -> PathBuf {
    run.join("api.sock")
}

/// Where an agent on this machine asks the controller for people, nearest first: one's own, the system's.
pub(crate) fn usual_relays() -> Vec<PathBuf> {
    let mut sockets = vec![relay_socket(&Places::here().run)];
    let system = relay_socket(SYSTEM_RUN.as_ref());
    if !sockets.contains(&system) {
        sockets.push(system);
    }
    sockets
}

/// The controllers to try when none is named, nearest first: one's own, the system's, the default address.
pub(crate) fn usual_targets() -> Vec<Target> {
    let mut targets = vec![Target::Unix(socket(&Places::here().run))];
    let system = Target::Unix(socket(SYSTEM_RUN.as_ref()));
    if !targets.contains(&system) {
        targets.push(system);
    }
    targets.push(Target::Tcp(LISTEN[0].to_owned()));
    targets
}

/// Whether nobody but this user and root can have made the socket: in a temporary folder that all share,
/// somebody else may have been first to take the name.
pub(crate) fn is_trusted(socket: &Path) -> bool {
    /// Everybody may write.
    const SHARED: u32 = 0o002;
    let folder = socket
        .parent()
        .and_then(|folder| std::fs::metadata(folder).ok());
    folder.is_some_and(|about| {
        let own = nix::unistd::geteuid().as_raw();
        [own, 0].contains(&about.uid()) && about.mode() & SHARED == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_is_trusted_only_where_nobody_else_can_make_one() {
        let folder = tempfile::tempdir().unwrap();
        let socket = socket(folder.path());
        assert!(is_trusted(&socket));
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(!is_trusted(&socket));
        assert!(!is_trusted(&folder.path().join("none/controller.sock")));
    }
}
