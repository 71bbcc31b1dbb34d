//! The plugin lives in a scheduler's process: what it brings along may not grow unnoticed.
#![expect(
    clippy::disallowed_methods,
    reason = "the test asks cargo and reads a file; the core does neither"
)]

use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn the_core_depends_on_exactly_the_committed_list() {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "-p",
            "portreeve",
            "-e",
            "normal",
            "--prefix",
            "none",
            "--offline",
            "--locked",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let found: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let committed =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/footprint.txt"));
    let committed = committed.unwrap();
    let committed: BTreeSet<_> = committed.lines().collect();
    let (more, less): (Vec<_>, Vec<_>) = (
        found.difference(&committed).collect(),
        committed.difference(&found).collect(),
    );
    assert!(
        more.is_empty() && less.is_empty(),
        "the core's packages changed: new {more:?}, gone {less:?}; if it is worth it, say why in Cargo.toml and edit tests/footprint.txt"
    );
}
