//! What the tests of the plugin build before they run it: the shared object, and hosts in C.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The plugin, built once: a test cannot depend on the shared object of its own package, and `cargo test`
/// does not build it. In the same target folder, whose lock is free while tests run, so that nothing is
/// built twice.
pub(crate) static PLUGIN: LazyLock<PathBuf> = LazyLock::new(|| {
    run(cargo(&["build", "--locked", "-p", "portreeve-plugin"])
        .arg("--target-dir")
        .arg(target()));
    target().join("debug/libportreeve_plugin.so")
});

/// Compiles one C file, of this path from the root, into a host of its name; it must give no warning.
pub(crate) fn host(source: &str, more: &[&str]) -> PathBuf {
    let source = root().join(source);
    let name = source.file_stem().unwrap();
    let host = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    run(Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic"])
        .args(["-Wconversion", "-Wshadow", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(&source)
        .args(more)
        .args(["-ldl", "-o"])
        .arg(&host));
    host
}

/// Cargo, as it runs this test, at the root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).current_dir(root());
    cargo
}

/// The target folder.
pub(crate) fn target() -> &'static Path {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().unwrap_or(temporary)
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the command printed; it must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?}:\n{said}{errors}");
    said.into_owned()
}
