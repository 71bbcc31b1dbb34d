//! One program with every fuzz target: `PORTREEVE_FUZZ=NAME` says which. `fuzz/run` builds and starts it.
//!
//! A target reads any bytes without a panic, within bounded time and memory, and holds what is accepted to promises: it
//! is written and read again as the same, and a refusal is bounded in length.
#![no_main]

mod bodies;
mod daemons;
mod identity;
mod profiles;
mod requests;
mod saved;
mod texts;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

/// Every target: the folder of its corpus, and what reads the bytes.
const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("agent_lines", daemons::agent_lines),
    ("backup", daemons::backup),
    ("bodies", bodies::bodies),
    ("env_file", daemons::env_file),
    ("events", daemons::events),
    ("grant", profiles::grant),
    ("jwt", identity::jwt),
    ("limits", daemons::limits),
    ("probe_answer", daemons::probe_answer),
    ("profile_json", profiles::json),
    ("profile_toml", profiles::toml),
    ("ranges", texts::ranges),
    ("record", saved::record),
    ("relay_head", identity::relay_head),
    ("requests", requests::requests),
    ("rights", identity::rights),
    ("saved", saved::saved),
    ("scheduler_lines", daemons::scheduler_lines),
    ("shim", daemons::shim),
    ("socket_answer", daemons::socket_answer),
    ("stored", saved::stored),
    ("stored_token", identity::stored_token),
    ("texts", texts::texts),
    ("token", daemons::token),
];

static CHOSEN: OnceLock<fn(&[u8])> = OnceLock::new();

/// The target that the environment names; without one, the names of all are printed.
fn chosen() -> fn(&[u8]) {
    let wanted = std::env::var("PORTREEVE_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    let Some((_, target)) = found else {
        for (name, _) in TARGETS {
            println!("{name}");
        }
        std::process::exit(i32::from(!wanted.is_empty()));
    };
    *target
}

fuzz_target!(
    init: {
        let _ = CHOSEN.set(chosen());
    },
    |bytes: &[u8]| {
        if let Some(target) = CHOSEN.get() {
            target(bytes);
        }
    }
);

/// The bytes as text; what is none says nothing.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// The first byte, which chooses, and the rest.
fn choice(bytes: &[u8]) -> (u8, &[u8]) {
    bytes
        .split_first()
        .map_or((0, bytes), |(first, rest)| (*first, rest))
}
