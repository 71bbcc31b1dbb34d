//! The account a job runs as, as its host knows it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The account a job runs as, as its host knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUser {
    /// Its name.
    pub name: String,
    /// Its numbers.
    #[serde(flatten)]
    pub ids: Ids,
    /// Its home directory, which need not exist.
    pub home: PathBuf,
    /// Its shell.
    pub shell: PathBuf,
}

/// What the kernel knows of an account: enough to become it. Written as `UID:GID:GROUP,GROUP`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// The user.
    pub uid: u32,
    /// Its own group.
    pub gid: u32,
    /// Every group it is in, its own among them.
    pub groups: Vec<u32>,
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.uid, self.gid)?;
        for (place, group) in self.groups.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{group}")?;
        }
        Ok(())
    }
}

impl FromStr for Ids {
    type Err = ParseIdsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseIdsError {
            text: text.chars().take(64).collect(),
        };
        let number = |text: &str| text.parse().map_err(|_| refused());
        let mut parts = text.split(':');
        let mut part = || parts.next().ok_or_else(refused);
        let (uid, gid, groups) = (number(part()?)?, number(part()?)?, part()?);
        let groups = groups.split(',').filter(|group| !group.is_empty());
        let groups = groups.map(number).collect::<Result<_, _>>()?;
        if parts.next().is_some() {
            return Err(refused());
        }
        Ok(Self { uid, gid, groups })
    }
}

/// A text that names no account's numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not UID:GID:GROUP,GROUP")]
pub struct ParseIdsError {
    /// Its beginning.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back_as_written_and_nothing_else_is() {
        for groups in [vec![], vec![7], vec![7, 4_294_967_294, 0]] {
            let ids = Ids {
                uid: 1000,
                gid: 7,
                groups,
            };
            assert_eq!(ids.to_string().parse(), Ok(ids));
        }
        for strange in [
            "",
            "1",
            "1:2",
            "1:2:3:4",
            "-1:2:",
            "a:b:c",
            "1:2:x",
            "1:99999999999:",
        ] {
            assert!(strange.parse::<Ids>().is_err(), "{strange:?}");
        }
    }

    #[test]
    fn an_account_is_stored_flat() {
        let user = JobUser {
            name: "alice".into(),
            ids: "1000:100:100,4".parse().unwrap(),
            home: "/home/alice".into(),
            shell: "/bin/sh".into(),
        };
        let text = serde_json::to_string(&user).unwrap();
        assert_eq!(
            text,
            r#"{"name":"alice","uid":1000,"gid":100,"groups":[100,4],"home":"/home/alice","shell":"/bin/sh"}"#
        );
        assert_eq!(serde_json::from_str::<JobUser>(&text).unwrap(), user);
    }
}
