//! Hosts in C that watch what the plugin does to its process: its memory, its system calls, its answers in need.

mod built;

use std::path::{Path, PathBuf};
use std::process::Command;

use built::{compiler, root, run, shared_object, temporary};

#[test]
fn a_context_for_which_there_is_no_memory_is_refused_and_nothing_of_it_is_left() {
    let host = instrument("failing_create", "failing_create", &["-rdynamic"]);
    let said = run(Command::new(host).arg(shared_object()));
    assert!(said.contains("the largest refused"), "{said}");
}

#[test]
fn feasible_says_yes_where_explain_finds_no_cause_and_as_often_as_can_be_reserved() {
    // abi 17
    brute_force(1_500);
}

#[test]
#[ignore = "takes seconds: `make external` runs it"]
fn feasible_is_brute_force_over_explain_in_ten_thousand_states() {
    // abi 17
    brute_force(10_000);
}

fn brute_force(states: u32) {
    let host = instrument(&format!("brute_force_{states}"), "brute_force", &[]);
    let mut asked = Command::new(host);
    print!(
        "{}",
        run(asked.arg(shared_object()).arg(states.to_string()))
    );
}

#[test]
fn readers_see_whole_answers_beside_a_writer() {
    let host = instrument("race", "race", &["-pthread"]);
    print!(
        "{}",
        run(Command::new(host).arg(shared_object()).arg("300"))
    );
}

#[test]
#[ignore = "builds the core anew, instrumented: `make tsan` runs it"]
fn the_thread_sanitizer_finds_no_race_between_readers_and_a_writer() {
    let target = target().join("tsan");
    // The sanitizer is built in, but a stable compiler has to be told that we know it is not stable. The
    // standard library stays as it is; what that hides from the sanitizer is named in race.supp.
    run(Command::new(env!("CARGO"))
        .args(["rustc", "--locked", "-p", "portreeve-plugin", "--lib"])
        .args([
            "--crate-type",
            "staticlib",
            "--target",
            TRIPLE,
            "--target-dir",
        ])
        .arg(&target)
        .env("RUSTC_BOOTSTRAP", "1")
        .env(
            "RUSTFLAGS",
            "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
        )
        .current_dir(root()));
    let host = temporary().join("race_tsan");
    let library = target.join(TRIPLE).join("debug/libportreeve_plugin.a");
    run(compiler()
        .args(["-O1", "-fsanitize=thread", "-DSTATIC_PLUGIN"])
        .arg(source("race"))
        .arg(library)
        .args(["-pthread", "-ldl", "-lm", "-o"])
        .arg(&host));
    let suppressions = folder().join("race.supp");
    // Its shadow memory has fixed places, which a randomized layout can take.
    let said = run(Command::new("setarch")
        .arg("-R")
        .arg(host)
        .args(["-", "400"])
        .env(
            "TSAN_OPTIONS",
            format!("halt_on_error=1 suppressions={}", suppressions.display()),
        ));
    print!("{said}");
}

const TRIPLE: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

#[test]
#[ignore = "builds a plugin of its own: `make external` runs it"]
fn a_defect_in_any_call_is_an_answer_and_hurts_no_other_context() {
    run(Command::new(env!("CARGO"))
        .args(["build", "--locked", "-p", "portreeve-plugin"])
        .args(["--features", "panic-injection"])
        .args(["--example", "panicking_plugin", "--target-dir"])
        .arg(target())
        .current_dir(root()));
    let plugin = target().join("debug/examples/libpanicking_plugin.so");
    let output = Command::new(instrument("panics", "panics", &[]))
        .arg(plugin)
        .output()
        .expect("it was just built");
    // The scheduler's stderr is its own: not a word of a caught panic goes there.
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    print!("{said}");
}

fn target() -> &'static Path {
    temporary().parent().unwrap_or(temporary())
}

fn folder() -> PathBuf {
    root().join("crates/plugin/tests/c/instruments")
}

fn source(name: &str) -> PathBuf {
    folder().join(name).with_extension("c")
}

/// A host that watches, compiled under a name of its own.
fn instrument(name: &str, of: &str, more: &[&str]) -> PathBuf {
    let host = temporary().join(name);
    run(compiler()
        .arg("-O1")
        .arg(source(of))
        .args(more)
        .args(["-ldl", "-o"])
        .arg(&host));
    host
}
