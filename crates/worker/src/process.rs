//! What `/proc` tells of processes. A process is named by number, start time and boot, never by number alone.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use portreeve_api::local::ProcessIdentity;

/// The fields of `/proc/PID/stat` that tell processes apart and relate them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: u32,
    pub(crate) state: char,
    pub(crate) parent: u32,
    pub(crate) session: u32,
    pub(crate) start_ticks: u64,
}

impl Stat {
    /// Reads the process `pid`.
    pub(crate) fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(pid, &text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(pid: u32, text: &str) -> Option<Self> {
        // The command name is in parentheses and may hold blanks and parentheses itself.
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        Some(Self {
            pid,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            // Field 6, after the process group; the state was field 3.
            session: fields.nth(1)?.parse().ok()?,
            // Field 22.
            start_ticks: fields.nth(15)?.parse().ok()?,
        })
    }

    pub(crate) fn is_dead(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Whether this very process is still there; one that waits to be reaped is not.
///
/// Unknown is not gone: where `/proc` cannot be read for want of descriptors, it counts as alive.
pub(crate) fn lives(process: &ProcessIdentity) -> bool {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    if boot.is_ok_and(|boot| boot.trim() != process.boot_id) {
        return false;
    }
    match Stat::read(process.pid) {
        Ok(stat) => stat.start_ticks == process.start_ticks && !stat.is_dead(),
        Err(cause) => !is_gone(&cause),
    }
}

/// Every living process below `root`, parents before children.
pub(crate) fn descendants(root: u32) -> Vec<Stat> {
    below(root, pids().filter_map(|pid| Stat::read(pid).ok()))
}

/// The same, if every process could be read.
///
/// # Errors
///
/// The system's: there may be more.
pub(crate) fn all_descendants(root: u32) -> io::Result<Vec<Stat>> {
    Ok(below(root, living()?.into_iter()))
}

fn below(root: u32, all: impl Iterator<Item = Stat>) -> Vec<Stat> {
    let mut children: BTreeMap<u32, Vec<Stat>> = BTreeMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    let mut level = vec![root];
    while let Some(parent) = level.pop() {
        // Taken out, so that no loop of parents, however torn the reading was, is walked twice.
        for child in children.remove(&parent).unwrap_or_default() {
            level.push(child.pid);
            found.push(child);
        }
    }
    found.retain(|stat| !stat.is_dead());
    found
}

/// Processes at and below `root`, as the kernel lists the children of each: its cost grows with them alone, not with
/// what else runs on the host, and those that are not asked for are not looked for. It may miss some, while others of
/// them end or where the kernel keeps no such lists.
pub(crate) fn near(root: u32) -> impl Iterator<Item = u32> {
    /// A tree that is larger, or grows as fast as it is read, is for the other way.
    const MOST: usize = 1_000;
    let mut found = vec![root];
    let mut next = 0;
    std::iter::from_fn(move || {
        if next > 0 && next <= MOST {
            let parent = found[next - 1];
            let mut children = children(parent);
            // Numbers may pass to others meanwhile; none is walked twice.
            children.retain(|child| !found.contains(child));
            found.append(&mut children);
        }
        next += 1;
        found.get(next - 1).copied()
    })
}

/// The children of a process, each listed by the kernel with the thread that has it.
fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    found
}

/// Every living process.
///
/// # Errors
///
/// The system's: there may be more.
pub(crate) fn living() -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match Stat::read(pid) {
            Ok(stat) if stat.is_dead() => {}
            Ok(stat) => found.push(stat),
            Err(cause) if is_gone(&cause) => {}
            // One of another user, on a host that hides those (`hidepid=1`): neither ours nor ours to end.
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(found)
}

/// Every living process whose environment holds exactly these variables, except ourselves.
///
/// Processes of other users cannot be read and are left out.
///
/// # Errors
///
/// The system's: there may be more.
pub(crate) fn with_variables(wanted: &[(String, String)]) -> io::Result<Vec<Stat>> {
    with_environment(has_all(wanted))
}

/// Every living process, except ourselves, whose environment as it was given to it, each variable ended by a zero
/// byte, is `wanted`.
///
/// Processes of other users cannot be read and are left out.
///
/// # Errors
///
/// The system's: there may be more.
pub(crate) fn with_environment(wanted: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if pid == std::process::id() {
            continue;
        }
        if let Holds::All(stat) = holds(&wanted, pid)? {
            found.push(stat);
        }
    }
    Ok(found)
}

/// Who was found by a mark.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) found: Vec<Stat>,
    /// Nobody can have been missed. One that is just becoming another program shows no environment for a moment.
    pub(crate) is_complete: bool,
}

/// As [`with_variables`], among the processes that were made after `since` was. Cost: one look at each number given
/// since then.
///
/// # Errors
///
/// As [`with_variables`].
pub(crate) fn marked_since(mark: &(String, String), since: u32) -> io::Result<Marked> {
    /// Beyond so many it is cheaper to look only at those that exist.
    const FEW: u32 = 2_000;
    // The newest number is the last word of the line.
    let load = fs::read_to_string("/proc/loadavg")?;
    let newest = load.split_ascii_whitespace().last();
    let newest: Option<u32> = newest.and_then(|word| word.parse().ok());
    let candidates: Vec<u32> = match newest {
        Some(newest) if since <= newest && newest - since <= FEW => (since..=newest).collect(),
        // Many, or the numbers began anew.
        _ => pids().filter(|pid| *pid != std::process::id()).collect(),
    };
    let wanted = has_all(std::slice::from_ref(mark));
    let mut marked = Marked {
        found: Vec::new(),
        is_complete: true,
    };
    for pid in candidates {
        match holds(&wanted, pid)? {
            Holds::All(stat) => marked.found.push(stat),
            Holds::NotAll => {}
            Holds::Nothing(stat) => {
                marked.is_complete &= stat.parent == KERNEL || stat.pid == KERNEL;
            }
        }
    }
    Ok(marked)
}

/// The parent of the kernel's own threads, which have no environment.
const KERNEL: u32 = 2;

/// What the environment of a living process holds.
enum Holds {
    All(Stat),
    NotAll,
    /// No variable at all.
    Nothing(Stat),
}

/// Whether the process `pid` lives and its environment is wanted.
fn holds(wanted: impl Fn(&[u8]) -> bool, pid: u32) -> io::Result<Holds> {
    let env = match fs::read(format!("/proc/{pid}/environ")) {
        Ok(env) => env,
        Err(cause) if is_gone(&cause) || cause.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Holds::NotAll);
        }
        Err(cause) => return Err(cause),
    };
    let has_all = wanted(&env);
    if !has_all && !env.is_empty() {
        return Ok(Holds::NotAll);
    }
    Ok(match Stat::read(pid) {
        Ok(stat) if stat.is_dead() => Holds::NotAll,
        Ok(stat) if has_all => Holds::All(stat),
        Ok(stat) => Holds::Nothing(stat),
        Err(_) => Holds::NotAll,
    })
}

/// Whether an environment holds all of these variables.
fn has_all(wanted: &[(String, String)]) -> impl Fn(&[u8]) -> bool + use<> {
    let wanted: Vec<String> = wanted.iter().map(|(n, v)| format!("{n}={v}")).collect();
    move |env| {
        let has = |one: &String| env.split(|byte| *byte == 0).any(|v| v == one.as_bytes());
        wanted.iter().all(has)
    }
}

/// Whether this is what `/proc` says of a process that is no more.
pub(crate) fn is_gone(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::NotFound
        || cause.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32)
}

/// Kills exactly the process that was read as `stat`; one that is gone is left alone.
pub(crate) fn kill(stat: &Stat) {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let pid = i32::try_from(stat.pid).ok().and_then(Pid::from_raw);
    let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return;
    };
    // Looked at after it was pinned: from here on the number cannot have been given to another.
    if Stat::read(stat.pid).is_ok_and(|now| now.start_ticks == stat.start_ticks) {
        // It can only fail because the process is gone or is not ours to kill; the caller looks again.
        _ = pidfd_send_signal(&process, Signal::KILL);
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b) S 3 7 8 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        let stat = Stat::parse(7, text).unwrap();
        assert_eq!((stat.parent, stat.start_ticks, stat.state), (3, 4242, 'S'));
        assert_eq!(stat.session, 8);
    }

    #[test]
    fn a_process_with_another_start_time_is_another_process() {
        let me = ProcessIdentity::of_self().unwrap();
        assert!(lives(&me));
        let mut other = me.clone();
        other.start_ticks += 1;
        assert!(!lives(&other));
        let mut earlier_boot = me;
        earlier_boot.boot_id = "earlier".into();
        assert!(!lives(&earlier_boot));
    }

    #[test]
    fn what_is_near_is_below() {
        let me = std::process::id();
        assert_eq!(near(me).next(), Some(me));
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "/bin/sh -c 'read line; :'; :"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let begun = std::time::Instant::now();
        // The shell, and the shell of the shell.
        while near(child.id()).count() < 2 {
            assert!(begun.elapsed() < std::time::Duration::from_secs(10));
            std::thread::yield_now();
        }
        assert!(near(me).any(|pid| pid == child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_child_is_below_its_parent() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "read line"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let me = std::process::id();
        assert!(descendants(me).iter().any(|stat| stat.pid == child.id()));
        if std::path::Path::new("/proc/thread-self/children").exists() {
            assert!(near(me).any(|pid| pid == child.id()));
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
