//! A program whose exit code decides. It and everything it starts ends with the check.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use portreeve::supervision::ExitStatus;
use portreeve::time::Spelled;
use portreeve_api::host_limits::MOST_COMMAND_PROBES;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::ProbeReport;
use crate::containment::ProbeGroup;
use crate::limits::{Limits, Place};
use crate::process::{self, Stat};

/// What to run.
#[derive(Clone, Debug)]
pub struct CommandCheck {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The whole environment, beside the mark of the check.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub working_dir: PathBuf,
    /// What earlier checks of the same kind left; kept by the caller from check to check.
    pub leftovers: Leftovers,
    /// How many such checks this host runs.
    pub limits: Limits,
    /// Where the run has a control group: that of its checks.
    pub(crate) group: Option<ProbeGroup>,
}

impl CommandCheck {
    /// A check of no replica: alone on its host as far as it knows, and held by nothing but its own marks.
    #[must_use]
    pub fn alone(argv: Vec<String>, env: Vec<(OsString, OsString)>, working_dir: PathBuf) -> Self {
        Self {
            argv,
            env,
            working_dir,
            leftovers: Leftovers::default(),
            limits: Limits::of_process(),
            group: None,
        }
    }
}

/// Processes of ended checks that were killed and may not be gone yet.
#[derive(Clone, Debug, Default)]
pub struct Leftovers(Arc<Mutex<Vec<Stat>>>);

impl Leftovers {
    fn add(&self, killed: Vec<Stat>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(killed);
    }

    /// Waits until none of them is left: two checks of a kind never run at once.
    async fn gone(&self) {
        while self.any() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn numbers(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers: Vec<_> = all.iter().take(5).map(|one| one.pid.to_string()).collect();
        numbers.join(", ")
    }

    fn any(&self) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|killed| {
            let now = Stat::read(killed.pid);
            now.is_ok_and(|now| now.start_ticks == killed.start_ticks && !now.is_dead())
        });
        !all.is_empty()
    }
}

/// Waits until a check may begin.
///
/// # Errors
///
/// Why it may not, after `patience`.
pub(super) async fn turn(check: &CommandCheck, patience: Duration) -> Result<Place, ProbeReport> {
    let begun = Instant::now();
    // Processes that nobody can end are the service's fault as far as anybody can tell.
    let gone = async {
        check.leftovers.gone().await;
        if let Some(group) = &check.group {
            group.emptied().await;
        }
    };
    if tokio::time::timeout(patience, gone).await.is_err() {
        let numbers = check.leftovers.numbers();
        return Err(ProbeReport::fail(format!(
            "not begun: processes of an earlier check were killed and do not end (pid {numbers})"
        )));
    }
    let left = patience.saturating_sub(begun.elapsed());
    check.limits.probe(left).await.ok_or_else(|| {
        let whose = if check.limits.are_shared() { "this host" } else { "this worker" };
        ProbeReport::inconclusive(format!(
            "not begun within {}: {whose} runs at most {MOST_COMMAND_PROBES} checks by a command at once",
            Spelled(patience)
        ))
    })
}

pub(super) async fn check(check: &CommandCheck) -> ProbeReport {
    let Some((program, arguments)) = check.argv.split_first() else {
        return ProbeReport::fail("cannot be started: no command");
    };
    let mark = mark();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(check.env.iter().map(|(name, value)| (name, value)))
        .env(MARK, &mark)
        .current_dir(&check.working_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let spawned = match &check.group {
        Some(group) => group.start(|| command.spawn()),
        None => command.spawn(),
    };
    let child = match spawned {
        Ok(child) => child,
        Err(cause) => {
            return ProbeReport::of_refusal(&format!("{program:?} cannot be started"), &cause);
        }
    };
    let leader = child.id().unwrap_or_default();
    let mut group = Group {
        child,
        leader,
        mark,
        leftovers: &check.leftovers,
        group: check.group.as_ref(),
        swept: false,
    };
    let output = Output::default();
    let stdout = group.child.stdout.take();
    let stderr = group.child.stderr.take();
    let mut reading = std::pin::pin!(async {
        tokio::join!(output.take(stdout), output.take(stderr));
    });
    let mut closed = false;
    let ended = loop {
        tokio::select! {
            ended = group.child.wait() => break ended,
            () = &mut reading, if !closed => closed = true,
        }
    };
    // What it wrote last is in the pipes. One that left a child which holds them open is not waited for.
    if !closed {
        _ = tokio::time::timeout(LAST_WORDS, &mut reading).await;
    }
    // Who has none of its pipes may still be left, but not hidden from its control group.
    group.swept = closed && check.group.as_ref().is_some_and(ProbeGroup::is_empty);
    match ended {
        Ok(status) => report(exit_status(status), &output.text()),
        Err(cause) => ProbeReport::inconclusive(format!("its exit was lost: {cause}")),
    }
}

/// A value no other check of any worker on this host has.
fn mark() -> String {
    static CHECKS: AtomicU64 = AtomicU64::new(0);
    let me = std::process::id();
    let began = Stat::read(me).map_or(0, |stat| stat.start_ticks);
    format!("{me}-{began}-{}", CHECKS.fetch_add(1, Ordering::Relaxed))
}

fn report(status: ExitStatus, output: &str) -> ProbeReport {
    let what = match status {
        ExitStatus::Code(126) => "exit 126 (the command cannot be executed)".to_owned(),
        ExitStatus::Code(127) => "exit 127 (the command was not found)".to_owned(),
        status => status.to_string(),
    };
    let text = if output.is_empty() {
        what
    } else {
        format!("{what}: {output}")
    };
    if status == ExitStatus::Code(0) {
        ProbeReport::ok(text)
    } else {
        ProbeReport::fail(text)
    }
}

fn exit_status(status: std::process::ExitStatus) -> ExitStatus {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitStatus::Code(code),
        (None, Some(signal)) => ExitStatus::Signal {
            signal,
            core: status.core_dumped(),
            oom: false,
        },
        (None, None) => ExitStatus::Unknown,
    }
}

/// A running check: dropped, it ends everything the check started.
struct Group<'a> {
    child: Child,
    leader: u32,
    mark: String,
    leftovers: &'a Leftovers,
    group: Option<&'a ProbeGroup>,
    /// Nothing is left to be ended.
    swept: bool,
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if self.swept {
            return;
        }
        if let Some(group) = self.group {
            group.kill();
        }
        let mut killed = Vec::new();
        // Present until it is reaped, so the number cannot be another's.
        if let Some(pid) = self.child.id() {
            killed.extend(Stat::read(pid));
            killed.extend(process::descendants(pid));
            let group = i32::try_from(pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            if let Some(group) = group {
                // It fails only if the group is gone.
                _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
        }
        killed.iter().for_each(process::kill);
        // Those whose parent ended, also in a session of their own, are found by what they inherited. One that was
        // killed makes no other any more, so a look that finds nobody new is the last.
        let mark = (MARK.to_owned(), std::mem::take(&mut self.mark));
        for _ in 0..MOST_LOOKS {
            let Ok(marked) = process::marked_since(&mark, self.leader) else {
                break;
            };
            let is_known = |one: &Stat| {
                let mut known = killed.iter();
                known.any(|killed| (killed.pid, killed.start_ticks) == (one.pid, one.start_ticks))
            };
            let mut fresh = marked.found;
            fresh.retain(|one| !is_known(one));
            if fresh.is_empty() && marked.is_complete {
                break;
            }
            // Also a child that cleared its environment.
            let below = fresh.iter().flat_map(|one| process::near(one.pid).skip(1));
            let below: Vec<_> = below.filter_map(|pid| Stat::read(pid).ok()).collect();
            fresh.extend(below);
            fresh.iter().for_each(process::kill);
            killed.extend(fresh);
            std::thread::yield_now();
        }
        self.leftovers.add(killed);
    }
}

/// How often what a check left is looked for. Each look costs well below a millisecond.
const MOST_LOOKS: u32 = 50;

/// The beginning of what a check writes, both streams as they come.
#[derive(Default)]
struct Output(Mutex<Vec<u8>>);

impl Output {
    /// Keeps what fits and drains the rest, so that a check that writes much is not stopped by a full pipe.
    async fn take(&self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(mut stream) = stream else {
            return;
        };
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = KEPT_OUTPUT - kept.len().min(KEPT_OUTPUT);
            kept.extend_from_slice(&buffer[..read.min(room)]);
        }
    }

    fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).trim().to_owned()
    }
}

/// By this variable the processes of one check are found again, whatever session or parent they chose.
const MARK: &str = "PORTREEVE_PROBE_MARK";
const KEPT_OUTPUT: usize = 4096;
const LAST_WORDS: Duration = Duration::from_millis(100);

#[cfg(test)]
#[path = "command_test.rs"]
mod command_test;
