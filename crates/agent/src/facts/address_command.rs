//! The site's own command that says which address is published.

use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// How long it may take; then it is killed with everything it started.
const WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of its output that are read.
const MOST: usize = 4096;

/// Runs it by `sh -c` and reads the first word of its output as an address. Blocks for at most [`WITHIN`].
///
/// # Errors
///
/// Why there is no address, in words.
pub(super) fn ask(command: &str) -> Result<IpAddr, String> {
    let text = run(command)?;
    let word = text.split_ascii_whitespace().next().unwrap_or_default();
    word.parse().map_err(|_| match word {
        "" => "it printed nothing".to_owned(),
        word => format!("it printed {:?}, which is no address", excerpt(word)),
    })
}

fn excerpt(word: &str) -> String {
    word.chars().take(64).collect()
}

fn run(command: &str) -> Result<String, String> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // A group of its own, so that it is killed whole.
        .process_group(0)
        .spawn()
        .map_err(|cause| format!("sh: {cause}"))?;
    let read = read(&mut child);
    // Also after success: what it left behind must not stay.
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // Nobody is left in most cases.
        _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait().map_err(|cause| cause.to_string())?;
    let text = read?;
    match status.code() {
        Some(0) => Ok(text),
        Some(code) => Err(format!("exit code {code}")),
        None => Err("a signal ended it".to_owned()),
    }
}

fn read(child: &mut Child) -> Result<String, String> {
    let deadline = Instant::now() + WITHIN;
    let mut out = child.stdout.take().expect("stdout is piped");
    let mut text = Vec::new();
    let mut part = [0; 512];
    loop {
        if !is_ready(out.as_fd(), deadline)? {
            return Err(format!("no answer within {} s", WITHIN.as_secs()));
        }
        match out.read(&mut part) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&part[..count]),
            Err(cause) => return Err(cause.to_string()),
        }
        if text.len() > MOST {
            return Err(format!("more than {MOST} bytes of output"));
        }
    }
    // Its output is closed; it has the rest of the time to end by itself.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let process = pidfd_open(pid.ok_or("no process")?, PidfdFlags::empty());
    let process = process.map_err(|cause| io::Error::from(cause).to_string())?;
    if !is_ready(process.as_fd(), deadline)? {
        return Err(format!("no end within {} s", WITHIN.as_secs()));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Waits until there is something to read, or the end of the process; `false` at the deadline.
fn is_ready(descriptor: BorrowedFd<'_>, deadline: Instant) -> Result<bool, String> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let late = Timespec::try_from(left).map_err(|cause| cause.to_string())?;
        let mut ready = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        match poll(&mut ready, Some(&late)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(io::Error::from(cause).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_the_output_is_the_address() {
        assert_eq!(ask("echo 10.20.0.7 n17"), Ok("10.20.0.7".parse().unwrap()));
        assert_eq!(
            ask("printf '\\n fd00::7\\n'"),
            Ok("fd00::7".parse().unwrap())
        );
    }

    #[test]
    fn no_address_has_a_reason() {
        for (command, reason) in [
            ("true", "it printed nothing"),
            ("echo n17", "it printed \"n17\", which is no address"),
            ("echo 10.20.0.7; exit 3", "exit code 3"),
            ("no-such-command-here 2>/dev/null", "exit code 127"),
            ("yes", "more than 4096 bytes of output"),
        ] {
            assert_eq!(ask(command), Err(reason.to_owned()), "{command}");
        }
    }

    #[test]
    fn what_it_leaves_behind_is_killed() {
        // The output closes with the sleeper alone, which would keep us for the whole bound.
        let begun = Instant::now();
        let told = ask("sleep 1000 >/dev/null & echo 10.0.0.1");
        assert_eq!(told, Ok("10.0.0.1".parse().unwrap()));
        assert!(begun.elapsed() < WITHIN);
    }
}
