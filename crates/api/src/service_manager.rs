//! The service manager of a host, systemd: whether runs can be units of it, and how one is asked for.
//!
//! Agent and worker ask in the same words, so that what the agent tried at its start is what a worker does
//! later. Only the two programs `systemd-run` and `systemctl` are used: they follow their manager through
//! every version, and need no bus library here.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::process::Command;

/// What starts the processes of a replica's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendKind {
    /// The worker itself.
    #[default]
    Process,
    /// A service manager, as a transient unit per run.
    Systemd(ServiceManager),
}

/// Which of a host's service managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceManager {
    /// The system's, which root may ask.
    System,
    /// That of the user who runs this process.
    User,
}

impl ServiceManager {
    /// The slice all units are in: `systemctl status portreeve.slice` shows them, and a site can limit them there.
    pub const SLICE: &str = "portreeve.slice";
    /// How long a trial may take: a manager that is busy with a boot answers late.
    const TRIAL: Duration = Duration::from_secs(20);

    /// The manager that can run units for this user: root's is the system's, where there is one, else the
    /// user's own. Runs `true` as a unit, and leaves nothing.
    ///
    /// Takes as long as a start does, some 50 ms; at most 20 s for each manager.
    ///
    /// # Errors
    ///
    /// [`NoServiceManager`] with what each of them said. Nothing is running then.
    pub async fn find() -> Result<Self, NoServiceManager> {
        let mut refused = Vec::new();

        let candidates: &[Self] = match is_root() {
            true => &[Self::System, Self::User],
            false => &[Self::User],
        };
        for manager in candidates {
            match manager.try_unit().await {
                Ok(()) => return Ok(*manager),
                Err(words) => refused.push(format!("{manager}: {words}")),
            }
        }
        Err(NoServiceManager {
            refused: refused.join("; "),
        })
    }

    /// The one that this process may ask for what an agent decided: the system's is root's alone, so a worker
    /// that runs a job as another user asks that user's own.
    #[must_use]
    pub fn of_this_user(self) -> Self {
        if is_root() { self } else { Self::User }
    }

    async fn try_unit(self) -> Result<(), String> {
        let name = format!("portreeve-trial-{}.service", std::process::id());
        let description = "portreeve asks whether units can be started";
        let mut trial = self.run_unit(&name, description, &[]);
        trial
            .arg("true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let output = tokio::time::timeout(Self::TRIAL, trial.output()).await;
        let output = output
            .map_err(|_| format!("no answer within {} s", Self::TRIAL.as_secs()))?
            .map_err(|cause| format!("systemd-run: {cause}"))?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        match words.trim() {
            "" => Err(format!("systemd-run ended with {}", output.status)),
            // Several lines, and what is told of it is one.
            words => {
                let lines: Vec<_> = words.lines().map(str::trim).collect();
                Err(lines.join(" ").chars().take(512).collect())
            }
        }
    }

    /// `systemd-run` as far as the program, which follows as the next argument, then the program's own, each
    /// through [`ServiceManager::argument`].
    ///
    /// `more` are further properties. The unit gets the standard streams of the returned command. It belongs to nobody but the manager and
    /// forgets itself at its end, however it ends. A stop by somebody else is one TERM to its first process; when
    /// that ends, whatever else is in the unit is killed at once.
    #[must_use]
    pub fn run_unit(self, name: &str, description: &str, more: &[&str]) -> Command {
        let mut command = self.command("systemd-run");
        command
            .args(["--quiet", "--collect", "--pipe"])
            .args(["--slice", Self::SLICE, "--unit", name])
            .arg(format!("--description={description}"));
        let properties = [
            // A program that cannot be executed is an error of this command, not of a unit that nobody sees.
            "Type=exec",
            "Delegate=yes",
            "KillMode=mixed",
            // The worker decides whether and when it starts again.
            "Restart=no",
            // By default a part of what the machine can have, which no other backend takes away.
            "TasksMax=infinity",
        ];
        for property in properties.iter().chain(more) {
            command.args(["-p", property]);
        }
        command.arg("--");
        command
    }

    /// `systemctl` for this manager, as far as the verb.
    #[must_use]
    pub fn control(self) -> Command {
        let mut command = self.command("systemctl");
        command.args(["--quiet", "--no-ask-password"]);
        command
    }

    /// An argument as [`ServiceManager::run_unit`] takes it: the manager fills in variables of its own.
    #[must_use]
    pub fn argument(text: &std::ffi::OsStr) -> OsString {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let mut escaped = Vec::with_capacity(text.len());
        for byte in text.as_bytes() {
            escaped.push(*byte);
            if *byte == b'$' {
                escaped.push(b'$');
            }
        }
        OsString::from_vec(escaped)
    }

    fn command(self, program: &str) -> Command {
        let mut command = Command::new(program);
        match self {
            Self::System => _ = command.arg("--system"),
            Self::User => {
                command.arg("--user");
                // A daemon that no log-in started has no variable for it.
                if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
                    let folder = format!("/run/user/{}", own_uid());
                    if Path::new(&folder).is_dir() {
                        command.env("XDG_RUNTIME_DIR", folder);
                    }
                }
            }
        }
        command
    }

    /// Whether units end when their user logs out; root's own never do.
    #[must_use]
    pub fn ends_at_log_out(self) -> bool {
        self == Self::User && own_uid() != 0 && !lingers()
    }
}

impl std::fmt::Display for ServiceManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::System => "systemd of the system",
            Self::User => "systemd of the user",
        })
    }
}

fn own_uid() -> u32 {
    // Its folder in /proc belongs to the effective user.
    std::fs::metadata("/proc/self").map_or(u32::MAX, |about| about.uid())
}

fn is_root() -> bool {
    own_uid() == 0
}

/// `loginctl enable-linger` leaves a file with the user's name.
fn lingers() -> bool {
    std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .is_ok_and(|user| Path::new("/var/lib/systemd/linger").join(user).exists())
}

/// No service manager runs units for this user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no systemd runs units here: {refused}; start without `--backend systemd`, or have it running"
)]
pub struct NoServiceManager {
    /// What each said.
    pub refused: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dollar_reaches_the_program_as_one() {
        let argument = |text: &str| ServiceManager::argument(text.as_ref());
        assert_eq!(argument("/a/$b/c"), "/a/$$b/c");
        assert_eq!(argument("plain %n"), "plain %n");
    }

    #[test]
    fn the_kind_is_stored_in_words() {
        let kinds = [
            BackendKind::Process,
            BackendKind::Systemd(ServiceManager::User),
        ];
        let text = serde_json::to_string(&kinds).unwrap();
        assert_eq!(text, r#"["process",{"systemd":"user"}]"#);
        assert_eq!(
            serde_json::from_str::<[BackendKind; 2]>(&text).unwrap(),
            kinds
        );
    }
}
