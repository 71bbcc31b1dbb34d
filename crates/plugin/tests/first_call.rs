//! Builds the plugin and the example host, and runs one against the other.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot build what it tests has failed"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The plugin, built once: a test cannot depend on the shared object of its own package, and `cargo test`
/// does not build it. In the same target folder, whose lock is free while tests run, so that nothing is
/// built twice.
static PLUGIN: LazyLock<PathBuf> = LazyLock::new(|| {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().unwrap_or(temporary);
    run(Command::new(env!("CARGO"))
        .args(["build", "--locked", "-p", "portreeve-plugin"])
        .arg("--target-dir")
        .arg(target)
        .current_dir(root()));
    target.join("debug/libportreeve_plugin.so")
});

#[test]
fn a_scheduler_in_c_gives_two_replicas_their_ports_and_resolves_them() {
    let host = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first_call");
    run(Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .arg("-I")
        .arg(root().join("include"))
        .arg(root().join("examples/first_call.c"))
        .args(["-ldl", "-o"])
        .arg(&host));
    let said = run(Command::new(&host).arg(&*PLUGIN));
    for expected in [
        "2 hosts fit: 0x3",
        "replica 0: PORTREEVE_PORT_RPC_COUNT=4",
        "replica 0: PORTREEVE_HOST=n1",
        "replica 1: PORTREEVE_ADDR_HTTP=10.0.0.2:20004",
        "web.alice 10.0.0.1:20004",
        "web.alice 10.0.0.2:20004",
        "0 endpoints left; the numbers rest until 65000 ms",
    ] {
        assert!(
            said.lines().any(|line| line == expected),
            "{expected:?} not in:\n{said}"
        );
    }
}

#[test]
fn the_shared_object_exports_one_symbol_and_stays_loaded() {
    // abi 4
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&*PLUGIN));
    let symbols: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(symbols, ["pr_get_api"]);
    let dynamic = run(Command::new("readelf").arg("-d").arg(&*PLUGIN));
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the command printed; it must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}
