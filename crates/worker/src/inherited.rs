//! What a careless parent hands on and a worker must not keep: blocked and ignored signals, and descriptors.
//!
//! Blocked, its TERM would never be heard. What else there is would come to its checks and to what these start: a
//! signal that they ignore, a listener that they keep open. A service gets none of it in any case: its shim sees to that.

use nix::sys::signal::SigSet;
use tokio::signal::unix::{SignalKind, signal};

/// Blocks no signal from now on. Call it before a second thread is made.
pub(crate) fn unblock_signals() {
    // Only an invalid argument is refused, and this one is not.
    _ = SigSet::empty().thread_set_mask();
}

/// Lets no child inherit an ignored signal; this process goes on ignoring it. Call it within the event loop.
///
/// A signal that is listened to is at its default again in a child, which is the one way to this end in safe code.
pub(crate) fn hear_ignored_signals() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    for number in ignored(&status).filter(|number| !LEFT.contains(number)) {
        // Listened to for as long as this process lives, even where nobody waits for it. What may not be listened
        // to may not be ignored either, or is a fault of the process itself.
        _ = signal(SignalKind::from_raw(number));
    }
}

/// Closes every descriptor beyond standard error that a child would inherit. Cost: two reads below `/proc` for each.
///
/// All of our own are closed at an exec, so what is not came by one, and nobody here holds it.
pub(crate) fn close_descriptors() {
    let entries = std::fs::read_dir("/proc/self/fdinfo");
    let entries: Vec<_> = entries.into_iter().flatten().flatten().collect();
    for entry in entries {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let about = std::fs::read_to_string(entry.path()).unwrap_or_default();
        if let Some(number) = number.filter(|number: &i32| *number > 2 && stays_at_exec(&about)) {
            _ = nix::unistd::close(number);
        }
    }
}

/// Whether an exec leaves this descriptor open, as `/proc/PID/fdinfo/N` tells.
fn stays_at_exec(about: &str) -> bool {
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & nix::libc::O_CLOEXEC == 0)
}

/// Whether this process was started with this standard signal ignored, as by `nohup`; listening to it would undo that.
/// Cost: one read below `/proc`.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status).any(|number| number == signal)
}

/// The standard signals that are ignored, as `/proc/PID/status` tells.
fn ignored(status: &str) -> impl Iterator<Item = i32> + use<> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let mask = mask.unwrap_or_default();
    (1..32).filter(move |number| mask & (1 << (number - 1)) != 0)
}

/// PIPE, which the standard library sets to its default in children itself; TSTP, TTIN and TTOU, by which a
/// terminal stops who does not ignore them.
const LEFT: [i32; 4] = [13, 20, 21, 22];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status =
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000181000205\nSigCgt:\t0000000000000400\n";
        assert_eq!(ignored(status).collect::<Vec<_>>(), [1, 3, 10, 25]);
        assert_eq!(ignored("SigIgn:\tx\n").count(), 0);
        assert_eq!(ignored("").count(), 0);
    }

    #[test]
    fn only_what_an_exec_leaves_open_is_told_so() {
        assert!(stays_at_exec("pos:\t0\nflags:\t0100000\nmnt_id:\t15\n"));
        assert!(!stays_at_exec("pos:\t0\nflags:\t02100000\nmnt_id:\t15\n"));
        assert!(!stays_at_exec(""));
        let own = std::fs::File::open("/dev/null").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&own);
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        assert!(!stays_at_exec(&about), "{about}");
    }
}
