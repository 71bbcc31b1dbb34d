//! Which commands are whose.

/// The groups of the first page of help, in their order. Every command is in one.
pub(super) const GROUPS: [(&str, &[&str]); 6] = [
    ("Trying it", &["dev"]),
    (
        "For the owner of a service",
        &[
            "check", "explain", "submit", "services", "service", "scale", "start", "restart",
            "stop", "kill", "delete", "logs", "events", "why", "run",
        ],
    ),
    ("For its clients", &["endpoints", "wait", "watch"]),
    (
        "For operators",
        &[
            "controller",
            "agent",
            "hosts",
            "host",
            "ports",
            "token",
            "backup",
            "restore",
            "sim",
        ],
    ),
    (
        "Tools",
        &[
            "whoami", "login", "logout", "env", "probe", "replay", "worker", "hello",
        ],
    ),
    ("For a shell", &["completions", "man", "help"]),
];
