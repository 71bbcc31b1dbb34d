//! Ends, failures and reasons in words for people: `signal 9 (KILL)`, `liveness probe failed 3 times`.

use std::fmt;

use super::status::{Final, Leaving};
use super::vocabulary::{ExitStatus, Reason, Report, StartFailure};
use crate::time::Spelled;

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal { signal, core, oom } => {
                write!(f, "signal {signal}")?;
                if let Some(name) = signal_name(signal) {
                    write!(f, " ({name})")?;
                }
                if core {
                    f.write_str(", core dumped")?;
                }
                if oom {
                    f.write_str(", out of memory")?;
                }
                Ok(())
            }
            Self::Unknown => f.write_str("exit status unknown"),
        }
    }
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(number) => match errno_words(*number) {
                Some((name, words)) => write!(f, "{words} ({name})"),
                None => write!(f, "errno {number}"),
            },
            Self::Exec { program, errno } => write!(f, "{program:?}: {}", Self::Errno(*errno)),
            Self::PreExec(status) => write!(f, "pre-exec: {status}"),
            Self::Prepare(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => status.fmt(f),
            // What its command said is the whole story.
            Self::StartFailed(why @ StartFailure::PreExec(_)) => why.fmt(f),
            Self::StartFailed(why) => write!(f, "start failed: {why}"),
            Self::Startup { failures } => write!(f, "startup probe failed {}", Times(*failures)),
            Self::Liveness { failures } => write!(f, "liveness probe failed {}", Times(*failures)),
            Self::Probe { failures } => write!(f, "readiness probe failed {}", Times(*failures)),
            Self::User => f.write_str("restarted by the user"),
            // By its owner, or by a drain, a replacement, a lost host: the order itself says which.
            Self::Stop => f.write_str("told to stop"),
            Self::StaleRecord => f.write_str("not checked for too long"),
        }
    }
}

/// One line of a timeline: the word of supervision.md 1.4, then its detail.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("READY"),
            Self::NotReady(reason) => write!(f, "NOTREADY {reason}"),
            Self::Backoff { reason, delay } => write!(f, "BACKOFF {}: {reason}", Spelled(*delay)),
            Self::Restarted {
                reason: Reason::User,
                user_restarts,
                ..
            } => write!(f, "RESTARTED by the user, {}", Times(*user_restarts)),
            Self::Restarted { count, reason, .. } => write!(f, "RESTARTED {count}: {reason}"),
            Self::Stuck => f.write_str("STUCK"),
            Self::Final(end) => match end {
                Final::Succeeded => f.write_str("SUCCEEDED"),
                Final::Failed(reason) => write!(f, "FAILED {reason}"),
                Final::Stopped => f.write_str("STOPPED"),
                Final::Left(why) => write!(f, "STOPPED {why}"),
                Final::GaveUp { reason, count: 1 } => write!(f, "GAVEUP after 1 restart: {reason}"),
                Final::GaveUp { reason, count } => {
                    write!(f, "GAVEUP after {count} restarts: {reason}")
                }
                Final::PortConflict { .. } => write!(f, "PORT_CONFLICT {end}"),
            },
        }
    }
}

impl fmt::Display for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutOff => "cut off from the controller for longer than the grace",
            Self::Shutdown => "host shutting down",
        })
    }
}

impl fmt::Display for Final {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("succeeded"),
            Self::Failed(reason) => write!(f, "failed: {reason}"),
            Self::Stopped => f.write_str("stopped"),
            Self::Left(why) => write!(f, "stopped: {why}"),
            Self::GaveUp { reason, count: 1 } => write!(f, "gave up after 1 restart: {reason}"),
            Self::GaveUp { reason, count } => write!(f, "gave up after {count} restarts: {reason}"),
            Self::PortConflict {
                port,
                protocol,
                pid,
                comm,
            } => {
                write!(f, "port {port}/{protocol} is taken by ")?;
                match (comm, pid) {
                    (Some(comm), Some(pid)) => write!(f, "{comm} (pid {pid})"),
                    (Some(comm), None) => f.write_str(comm),
                    (None, Some(pid)) => write!(f, "pid {pid}"),
                    (None, None) => f.write_str("another process"),
                }
            }
        }
    }
}

struct Times(u32);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("once"),
            times => write!(f, "{times} times"),
        }
    }
}

/// The name of a signal without `SIG`, by Linux's numbers on every architecture we build for.
#[must_use]
pub const fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        5 => "TRAP",
        6 => "ABRT",
        7 => "BUS",
        8 => "FPE",
        9 => "KILL",
        10 => "USR1",
        11 => "SEGV",
        12 => "USR2",
        13 => "PIPE",
        14 => "ALRM",
        15 => "TERM",
        16 => "STKFLT",
        17 => "CHLD",
        18 => "CONT",
        19 => "STOP",
        20 => "TSTP",
        21 => "TTIN",
        22 => "TTOU",
        23 => "URG",
        24 => "XCPU",
        25 => "XFSZ",
        26 => "VTALRM",
        27 => "PROF",
        28 => "WINCH",
        29 => "IO",
        30 => "PWR",
        31 => "SYS",
        _ => return None,
    })
}

/// The refusals that a start meets in practice.
const fn errno_words(number: i32) -> Option<(&'static str, &'static str)> {
    Some(match number {
        1 => ("EPERM", "operation not permitted"),
        2 => ("ENOENT", "no such file or directory"),
        5 => ("EIO", "input/output error"),
        7 => ("E2BIG", "arguments and environment are too long"),
        8 => (
            "ENOEXEC",
            "not an executable file, or its #! line is missing",
        ),
        11 => ("EAGAIN", "too many processes, try again"),
        12 => ("ENOMEM", "out of memory"),
        13 => ("EACCES", "permission denied"),
        20 => ("ENOTDIR", "not a directory"),
        21 => ("EISDIR", "is a directory"),
        22 => ("EINVAL", "invalid argument"),
        23 => ("ENFILE", "too many open files on the host"),
        24 => ("EMFILE", "too many open files"),
        26 => ("ETXTBSY", "the program file is being written"),
        28 => ("ENOSPC", "no space left on the device"),
        30 => ("EROFS", "read-only file system"),
        36 => ("ENAMETOOLONG", "file name too long"),
        40 => ("ELOOP", "too many symbolic links"),
        98 => ("EADDRINUSE", "address already in use"),
        99 => (
            "EADDRNOTAVAIL",
            "not an address or no free port of this host",
        ),
        100 => ("ENETDOWN", "the network is down"),
        101 => ("ENETUNREACH", "no way to that network"),
        104 => ("ECONNRESET", "the other end broke the connection off"),
        110 => ("ETIMEDOUT", "no answer"),
        111 => ("ECONNREFUSED", "nobody listens there"),
        113 => ("EHOSTUNREACH", "no way to that host"),
        116 => ("ESTALE", "stale file handle"),
        122 => ("EDQUOT", "disk quota exceeded"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Port, Protocol};

    #[test]
    fn ends_and_reasons_read_as_people_say_them() {
        let signal = |signal, core, oom| ExitStatus::Signal { signal, core, oom };
        for (status, words) in [
            (ExitStatus::Code(143), "exit 143"),
            (signal(9, false, false), "signal 9 (KILL)"),
            (signal(11, true, false), "signal 11 (SEGV), core dumped"),
            (signal(9, false, true), "signal 9 (KILL), out of memory"),
            (signal(40, false, false), "signal 40"),
            (ExitStatus::Unknown, "exit status unknown"),
        ] {
            assert_eq!(status.to_string(), words);
        }
        for (reason, words) in [
            (
                Reason::Liveness { failures: 3 },
                "liveness probe failed 3 times",
            ),
            (Reason::Startup { failures: 1 }, "startup probe failed once"),
            (
                Reason::StartFailed(StartFailure::Errno(2)),
                "start failed: no such file or directory (ENOENT)",
            ),
            (
                Reason::StartFailed(StartFailure::PreExec(ExitStatus::Code(1))),
                "pre-exec: exit 1",
            ),
            (
                Reason::StartFailed(StartFailure::Exec {
                    program: "vlm".into(),
                    errno: 2,
                }),
                "start failed: \"vlm\": no such file or directory (ENOENT)",
            ),
            (
                Reason::StartFailed(StartFailure::Errno(999)),
                "start failed: errno 999",
            ),
        ] {
            assert_eq!(reason.to_string(), words);
        }
        let conflict = Final::PortConflict {
            port: Port::new(20007).unwrap(),
            protocol: Protocol::Tcp,
            pid: Some(41),
            comm: Some("python3".to_owned()),
        };
        assert_eq!(
            conflict.to_string(),
            "port 20007/tcp is taken by python3 (pid 41)"
        );
        let gave_up = Final::GaveUp {
            reason: Reason::Exit(ExitStatus::Code(1)),
            count: 10,
        };
        assert_eq!(gave_up.to_string(), "gave up after 10 restarts: exit 1");
    }
}
