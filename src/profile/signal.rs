//! The names of signals, as Linux numbers them on x86-64 and arm64.

/// What asks a process to end.
pub(super) const TERM: i32 = 15;

const NAMES: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", TERM),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// The number of a signal's name, with or without `SIG`.
pub(super) fn number(name: &str) -> Option<i32> {
    let bare = name.strip_prefix("SIG").unwrap_or(name);
    let known = NAMES.iter().find(|(known, _)| *known == bare);
    known.map(|(_, number)| *number)
}

/// The name of a signal's number, without `SIG`.
pub(super) fn name(number: i32) -> Option<&'static str> {
    let known = NAMES.iter().find(|(_, known)| *known == number);
    known.map(|(name, _)| *name)
}
