//! What a killed job left of its service: known by the variables that every process of a replica inherits, and by
//! descent from one that has them.
//!
//! A variable proves nothing of who set it, so only processes of the job's own account are looked at: whoever makes
//! one up ends only what is theirs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portreeve::residency::ReplicaName;
use portreeve_api::local::ProcessIdentity;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::Semaphore;
use tracing::warn;

/// How long until it is looked again whether something is left, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How long what is left may end by itself: the shim of a killed job ends its service at once, and sees what escapes us.
const BY_ITSELF: Duration = Duration::from_secs(3);

/// What the system says of a process that ended meanwhile, or is nobody's to read.
const GONE: [i32; 4] = [
    nix::libc::ENOENT,
    nix::libc::ESRCH,
    nix::libc::EACCES,
    nix::libc::EPERM,
];

/// What every process of one incarnation has in its environment.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    variables: Vec<Vec<u8>>,
    /// How the variable begins that names a directory in the job's private folder: another cluster's replica on this
    /// machine may have the same name, account and incarnation. `None` in the record of an earlier version.
    scratch: Option<Vec<u8>>,
    uid: u32,
}

impl Mark {
    pub(super) fn of(name: &ReplicaName, prefix: &str, uid: u32, folder: &Path) -> Self {
        let one =
            |variable: &str, value: String| format!("{prefix}{variable}={value}").into_bytes();
        let within = || one("SCRATCH", format!("{}/", folder.to_string_lossy()));
        Self {
            scratch: (!folder.as_os_str().is_empty()).then(within),
            variables: vec![
                one("SERVICE", name.service.label().to_string()),
                one("NAMESPACE", name.service.namespace().to_string()),
                one("REPLICA", name.index.to_string()),
                one("INCARNATION", name.incarnation.to_string()),
            ],
            uid,
        }
    }

    /// Every living process of it, and everything below.
    ///
    /// # Errors
    ///
    /// The system's: there may be more.
    pub(super) fn living(&self) -> io::Result<Vec<ProcessIdentity>> {
        let mut parents = Vec::new();
        let mut found = BTreeSet::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
                continue;
            };
            let folder = entry.path();
            // One that ends while it is looked at is gone; so is one that waits to be reaped.
            let Ok(stat) = fs::read_to_string(folder.join("stat")) else {
                continue;
            };
            let Some((parent, false)) = parent_and_end(&stat) else {
                continue;
            };
            parents.push((pid, parent));
            let own = folder.metadata().is_ok_and(|about| about.uid() == self.uid);
            if own && self.has(&folder)? {
                found.insert(pid);
            }
        }
        loop {
            let before = found.len();
            let below = parents.iter().filter(|(_, parent)| found.contains(parent));
            let below: Vec<u32> = below.map(|(pid, _)| *pid).collect();
            found.extend(below);
            if found.len() == before {
                break;
            }
        }
        let found = found.into_iter();
        Ok(found
            .filter_map(|pid| ProcessIdentity::of(pid).ok())
            .collect())
    }

    /// Whether the process of this folder of `/proc` has the mark. One that is gone has not, nor one that not even
    /// root may read.
    fn has(&self, folder: &Path) -> io::Result<bool> {
        match fs::read(folder.join("environ")) {
            Ok(environment) => Ok(self.is_in(&environment)),
            Err(cause) if GONE.contains(&cause.raw_os_error().unwrap_or(0)) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    fn is_in(&self, environment: &[u8]) -> bool {
        let mut all = environment.split(|byte| *byte == 0);
        let is_within = self
            .scratch
            .as_ref()
            .is_none_or(|scratch| all.any(|it| it.starts_with(scratch)));
        let has = |one: &Vec<u8>| environment.split(|byte| *byte == 0).any(|it| it == one);
        is_within && self.variables.iter().all(has)
    }
}

/// The parent of a `/proc/PID/stat`, and whether the process only waits to be reaped.
fn parent_and_end(stat: &str) -> Option<(u32, bool)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    Some((fields.next()?.parse().ok()?, matches!(state, "Z" | "X")))
}

/// Waits for the end of everything of the mark and kills what stays; returns when nothing is left, however long that
/// takes: its ports are held till then. Looks only while it has the place of `one_look`.
pub(super) async fn end(name: &ReplicaName, mark: Mark, one_look: Arc<Semaphore>) {
    end_within(name, mark, BY_ITSELF, one_look).await;
}

async fn end_within(name: &ReplicaName, mark: Mark, patience: Duration, one_look: Arc<Semaphore>) {
    let since = tokio::time::Instant::now();
    let mut wait = AGAIN.0;
    let mut told = false;
    loop {
        let looked = {
            let mark = mark.clone();
            let place = one_look.clone().acquire_owned().await;
            let is_late = since.elapsed() >= patience;
            tokio::task::spawn_blocking(move || {
                let _place = place;
                let left = mark.living()?;
                if is_late {
                    left.iter().for_each(kill);
                }
                Ok::<_, io::Error>(left.len())
            })
        };
        match looked.await.expect("looking for processes does not panic") {
            Ok(0) => return,
            Ok(left) if !told && since.elapsed() >= patience => {
                told = true;
                warn!(
                    "{name}: its job is gone and {left} of its processes are not; they are killed"
                );
            }
            Ok(_) => {}
            Err(cause) => warn!("what is left of {name} cannot be looked for: {cause}"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(AGAIN.1);
    }
}

/// Kills exactly this process.
fn kill(process: &ProcessIdentity) {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let Some(Ok(held)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return;
    };
    // Looked at after it was pinned: from here on the number cannot have been given to another.
    if process.is_alive() {
        // It fails only where the process is gone or not ours to kill; it is looked again.
        _ = pidfd_send_signal(&held, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn name() -> ReplicaName {
        parse("web.alice~3~7")
    }

    fn parse(text: &str) -> ReplicaName {
        crate::household::parse_name(text).unwrap()
    }

    #[tokio::test]
    async fn what_has_the_marks_is_ended_with_everything_below_and_nothing_else_is() {
        let uid = rustix::process::geteuid().as_raw();
        let prefix = format!("REMAINS{}_", std::process::id());
        let start = |incarnation: &str, folder: &str, script: &str| {
            Command::new("/bin/sh")
                .args(["-c", script])
                .env(format!("{prefix}SERVICE"), "web")
                .env(format!("{prefix}NAMESPACE"), "alice")
                .env(format!("{prefix}REPLICA"), "3")
                .env(format!("{prefix}INCARNATION"), incarnation)
                .env(
                    format!("{prefix}SCRATCH"),
                    format!("{folder}/run-1/scratch"),
                )
                .stdin(Stdio::piped())
                .spawn()
                .unwrap()
        };
        // Its child has cleared its environment.
        let mut marked = start("7", "/tmp/ours", "env -i sleep 1000 & echo; read line");
        let others = [
            ("8", "/tmp/ours"),
            ("7", "/tmp/ours2"),
            ("7", "/tmp/theirs"),
        ];
        let others = others.map(|(incarnation, folder)| start(incarnation, folder, "read line"));
        let folder = Path::new("/tmp/ours");
        let mark = Mark::of(&name(), &prefix, uid, folder);
        let two = async {
            while mark.living().unwrap().len() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), two)
            .await
            .unwrap();
        // As somebody else's they are not looked at.
        assert!(
            Mark::of(&name(), &prefix, uid + 1, folder)
                .living()
                .unwrap()
                .is_empty()
        );
        // Closed by the wait, it would end the shell before it is looked at.
        let open = marked.stdin.take();
        let reaped = std::thread::spawn(move || marked.wait());
        let one_look = Arc::new(Semaphore::new(1));
        end_within(&name(), mark.clone(), Duration::ZERO, one_look).await;
        assert!(mark.living().unwrap().is_empty());
        reaped.join().unwrap().unwrap();
        drop(open);
        for mut other in others {
            assert!(other.try_wait().unwrap().is_none());
            drop(other.stdin.take());
            other.wait().unwrap();
        }
    }
}
