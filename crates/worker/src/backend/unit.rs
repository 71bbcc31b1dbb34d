//! The shim as a transient unit of a service manager: systemd starts it, owns its control group and clears it.
//!
//! The launch goes the way it goes to a child, over a socket that becomes the shim's standard input; the
//! manager hands the descriptor on. So nothing of a job stands on a command line or in a unit's properties,
//! and everything after the start is the same for both.
//!
//! A worker that is killed leaves the unit alone. A shim that is killed leaves nothing: the manager kills
//! what else is in the unit, and [`Unit::end`] sees to it where the manager cannot.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use portreeve::identity::Run;
use portreeve_api::local::ReplicaFolder;
use portreeve_api::service_manager::ServiceManager;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::shim::ShimProgram;
use crate::process::{self, Stat};

/// How long the manager may take to start a unit before its worker gives up on the request. The request may
/// be answered later all the same; the run is then followed as usual.
const START_WITHIN: Duration = Duration::from_secs(30);
/// How long one order to the manager may take.
const ORDER_WITHIN: Duration = Duration::from_secs(10);
/// How long until it is looked again whether a control group is empty: at first and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
/// The longest text of a refusal.
const MOST_WORDS: u64 = 1024;

/// The units of one run: one, or two where a worker was killed while it made the first.
pub(super) struct Unit {
    manager: ServiceManager,
    /// Matches the names of all units of the run and of no other.
    pattern: String,
    request: Option<Request>,
    /// The control group in which the shim was seen.
    group: Option<PathBuf>,
}

/// A start that was asked for and of which nothing was heard yet.
struct Request {
    heard: oneshot::Sender<()>,
    refusal: JoinHandle<Option<String>>,
}

impl Unit {
    /// Those of a run that this worker did not start, or not yet.
    pub(super) fn of(manager: ServiceManager, folder: &ReplicaFolder, run: Run) -> Self {
        Self {
            manager,
            pattern: format!("{}*.service", stem(folder, run)),
            request: None,
            group: None,
        }
    }

    /// Asks the manager to start the shim of `run`, with `stdin` as its standard input and `log` for its words.
    ///
    /// # Errors
    ///
    /// The system's; nothing was asked for.
    pub(super) fn start(
        &mut self,
        program: &ShimProgram,
        folder: &ReplicaFolder,
        run: Run,
        stdin: Stdio,
        log: &Path,
    ) -> io::Result<()> {
        // A worker that was killed while it asked may have left a unit of the same run on its way.
        let name = format!(
            "{}{:08x}.service",
            stem(folder, run),
            getrandom::u32().unwrap_or(0)
        );
        let words = File::options().append(true).open(log)?;
        let said_before = words.metadata()?.len();
        let bound: &[&str] = match rustix::thread::no_new_privs() {
            // What a worker gave up for its job, the manager must not give back.
            Ok(true) => &["NoNewPrivileges=yes"],
            _ => &[],
        };
        let mut command = self
            .manager
            .run_unit(&name, &description(folder, run), bound);
        // The path itself is taken as it is; what follows is filled in.
        command.arg(&program.program);
        let arguments = program.arguments.iter().map(|word| word.as_os_str());
        let run = run.to_string();
        let own = [
            OsStr::new("--folder"),
            folder.path().as_os_str(),
            OsStr::new("--run"),
            OsStr::new(&run),
        ];
        command.args(arguments.chain(own).map(ServiceManager::argument));
        command
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(words)
            .kill_on_drop(true);
        let asked = command.spawn()?;
        let (heard, hears) = oneshot::channel();
        let refusal = tokio::spawn(wait(asked, hears, log.to_owned(), said_before));
        self.request = Some(Request { heard, refusal });
        Ok(())
    }

    /// The shim lives and is this process: the request is through.
    pub(super) fn heard(&mut self, shim: u32) {
        if let Some(request) = self.request.take() {
            // The command would stay as long as the unit; it was only needed to pass descriptors on.
            _ = request.heard.send(());
        }
        if self.group.is_none() {
            self.group = group_of(shim);
        }
    }

    /// Why the manager did not start it, if it did not.
    pub(super) async fn refusal(&mut self) -> Option<String> {
        let request = self.request.take()?;
        // Kept until it ended by itself or its time is up.
        let Request { heard, refusal } = request;
        let words = refusal.await.ok().flatten();
        drop(heard);
        words
    }

    /// Ends what there is of the units, now that nobody keeps them.
    pub(super) async fn end(&self) {
        let Some(group) = &self.group else {
            // One of which nothing was heard: it runs, or was asked for and is not begun yet.
            self.order(&["kill", "--signal=KILL"]).await;
            self.order(&["stop"]).await;
            return;
        };
        // The manager is at it too, if there is one still; it is not waited for.
        let mut wait = LOOK_AGAIN.0;
        loop {
            let left = members(group);
            if left.is_empty() {
                return;
            }
            // One by one, where the kernel cannot kill a group whole: Linux before 5.14.
            if fs::write(group.join("cgroup.kill"), "1").is_err() {
                let found = left.into_iter().filter_map(|pid| Stat::read(pid).ok());
                found.for_each(|found| process::kill(&found));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LOOK_AGAIN.1);
        }
    }

    async fn order(&self, words: &[&str]) {
        let mut command: Command = self.manager.control();
        command
            .args(words)
            .arg(&self.pattern)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        match tokio::time::timeout(ORDER_WITHIN, command.status()).await {
            Ok(Ok(_)) => {}
            Ok(Err(cause)) => tracing::warn!("systemctl {}: {cause}", words[0]),
            Err(_) => tracing::warn!("{} does not answer", self.manager),
        }
    }
}

/// Waits for the end of a request; `None` if somebody heard of the unit first.
async fn wait(
    mut asked: Child,
    heard: oneshot::Receiver<()>,
    log: PathBuf,
    said_before: u64,
) -> Option<String> {
    let ended = tokio::select! {
        ended = asked.wait() => ended,
        _ = heard => {
            _ = asked.kill().await;
            return None;
        }
        () = tokio::time::sleep(START_WITHIN) => {
            _ = asked.kill().await;
            let within = START_WITHIN.as_secs();
            return Some(format!("the service manager did not start its unit within {within} s"));
        }
    };
    match ended {
        Ok(status) if status.success() => None,
        Ok(status) => {
            let words = words_since(&log, said_before);
            Some(match words.trim() {
                "" => format!("systemd-run ended with {status}"),
                words => format!("systemd-run: {words}"),
            })
        }
        Err(cause) => Some(format!("systemd-run: {cause}")),
    }
}

/// What was written to the log since it had this length.
fn words_since(log: &Path, length: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(length))?;
        let mut words = Vec::new();
        file.take(MOST_WORDS).read_to_end(&mut words)?;
        Ok(words)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Begins the names of a run's units. What makes it the only one on the host is the folder's identity; the
/// rest is for people.
fn stem(folder: &ReplicaFolder, run: Run) -> String {
    /// A unit's name may have 255 bytes.
    const MOST: usize = 120;
    let name: String = replica_name(folder)
        .chars()
        .take(MOST)
        .map(|one| match one {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => one,
            // Also the dash: it would hide where one part of the name ends.
            _ => '_',
        })
        .collect();
    let place = fs::metadata(folder.path())
        .map(|about| format!("{:x}.{:x}", about.dev(), about.ino()))
        .unwrap_or_default();
    format!("portreeve-{name}-{place}-run{run}-")
}

fn description(folder: &ReplicaFolder, run: Run) -> String {
    format!("portreeve replica {}, run {run}", replica_name(folder))
}

fn replica_name(folder: &ReplicaFolder) -> String {
    let name = folder.path().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The control group of a process, where it is one that a unit has for itself.
fn group_of(pid: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    if !path.contains(".service") || path.contains("..") {
        return None;
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let place = mounts.lines().find_map(|line| {
        let (about, source) = line.split_once(" - ")?;
        source
            .starts_with("cgroup2 ")
            .then(|| about.split(' ').nth(4))?
    })?;
    let group = Path::new(place).join(path);
    group.is_dir().then_some(group)
}

/// Every process in the group and in those below it; none where it is gone.
fn members(group: &Path) -> Vec<u32> {
    let own = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut all: Vec<u32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(members(&entry.path()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_two_runs_and_of_two_folders_never_match_each_other() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(&path).unwrap();
            ReplicaFolder::at(path)
        };
        let (one, other) = (folder("a/web-x.alice~0~1"), folder("b/web-x.alice~0~1"));
        let first = stem(&one, Run(1));
        assert!(first.starts_with("portreeve-web_x.alice_0_1-"), "{first}");
        assert!(!stem(&one, Run(11)).starts_with(&first));
        assert!(!stem(&other, Run(1)).starts_with(&first));
        assert_eq!(stem(&one, Run(1)), first);
        let long = stem(&folder(&"ü".repeat(100)), Run(u32::MAX));
        assert!(long.len() + "12345678.service".len() < 255, "{long}");
    }

    #[test]
    fn only_what_was_said_since_is_a_refusal() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("shim.log");
        fs::write(&log, "before\nFailed to connect\n").unwrap();
        assert_eq!(words_since(&log, 7), "Failed to connect\n");
        assert_eq!(words_since(&place.path().join("none"), 0), "");
    }
}
