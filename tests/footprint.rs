//! The plugin lives in a scheduler's process: what it brings along may not grow unnoticed.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test asks cargo and reads a file; the core does neither"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot ask cargo has failed"
)]

use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn the_core_depends_on_exactly_the_committed_packages_and_features() {
    let found = tree("portreeve");
    let committed =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/footprint.txt"));
    let committed: BTreeSet<_> = committed.unwrap().lines().map(str::to_owned).collect();
    let (more, less): (Vec<_>, Vec<_>) = (
        found.difference(&committed).collect(),
        committed.difference(&found).collect(),
    );
    assert!(
        more.is_empty() && less.is_empty(),
        "the core's packages changed: new {more:?}, gone {less:?}; if it is worth it, say why in Cargo.toml and edit tests/footprint.txt"
    );
}

#[test]
fn the_plugin_adds_nothing_to_the_core() {
    let mut plugin = tree("portreeve-plugin");
    assert!(plugin.remove("portreeve-plugin"));
    assert_eq!(plugin, tree("portreeve"));
}

/// Every package that is built for `package`, with the features that are on: `tokio sync`.
fn tree(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", package, "-e", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}|{f}"])
        .args(["--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let line = |line: &str| {
        let mut parts = line.split('|');
        let name = parts.next()?.split(' ').next()?;
        let features = parts.next()?.trim_end_matches(" (*)");
        Some(format!("{name} {features}").trim_end().to_owned())
    };
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(line).collect()
}
