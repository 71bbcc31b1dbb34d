//! The plugin and C programs that load it, each built once per test binary.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Where the plugin is, as `libportreeve_plugin.so` and `.a`. A test cannot depend on the shared object of its
/// own package, and `cargo test` does not build it. In the same target folder, whose lock is free while tests
/// run, so that nothing is built twice, and as optimised as the test itself.
pub(crate) static PLUGIN: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = temporary().parent().unwrap_or(temporary()).to_owned();
    let (flag, folder) = if cfg!(debug_assertions) {
        (None, "debug")
    } else {
        (Some("--release"), "release")
    };
    run(Command::new(env!("CARGO"))
        .args(["build", "--locked", "-p", "portreeve-plugin"])
        .args(flag)
        .arg("--target-dir")
        .arg(&target)
        .current_dir(root()));
    target.join(folder)
});

/// The plugin as a scheduler loads it.
pub(crate) fn shared_object() -> PathBuf {
    PLUGIN.join("libportreeve_plugin.so")
}

/// `cc` with the warnings that our C is free of, and the header in reach.
pub(crate) fn compiler() -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-g"]);
    cc.args(["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow"]);
    cc.args(["-Werror", "-I"]).arg(root().join("include"));
    cc
}

/// A place for what a test makes.
pub(crate) fn temporary() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the command printed; it must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|fault| panic!("{command:?}: {fault}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let ended = output.status;
    assert!(ended.success(), "{command:?}: {ended}\n{errors}\n{said}");
    said.into_owned()
}
