//! Hosts in C that watch what the plugin does to its process: its memory, its system calls, its answers in need.
//! `PORTREEVE_LONG=1` plays them in full.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot build what it tests has failed"
)]

mod built;

use std::path::PathBuf;
use std::process::Command;

use built::{compiler, root, run, shared_object, temporary};

#[test]
fn a_context_for_which_there_is_no_memory_is_refused_and_nothing_of_it_is_left() {
    let host = instrument("failing_create", &["-rdynamic"]);
    let said = run(Command::new(host).arg(shared_object()));
    assert!(said.contains("the largest refused"), "{said}");
}

#[test]
fn feasible_says_yes_where_explain_finds_no_cause_and_as_often_as_can_be_reserved() {
    // abi 17
    let states = if is_long() { "10000" } else { "1500" };
    let host = instrument("brute_force", &[]);
    print!(
        "{}",
        run(Command::new(host).arg(shared_object()).arg(states))
    );
}

#[test]
fn a_defect_in_any_call_is_an_answer_and_hurts_no_other_context() {
    if !is_long() {
        eprintln!("skipped: it builds a plugin of its own; PORTREEVE_LONG=1 runs it");
        return;
    }
    let package = ["build", "--locked", "-p", "portreeve-plugin"];
    let target = temporary().parent().unwrap();
    run(Command::new(env!("CARGO"))
        .current_dir(root())
        .args(package)
        .args(["--features", "panic-injection"])
        .args(["--example", "panicking_plugin", "--target-dir"])
        .arg(target));
    let plugin = target.join("debug/examples/libpanicking_plugin.so");
    let output = Command::new(instrument("panics", &[]))
        .arg(plugin)
        .output()
        .unwrap();
    // The scheduler's stderr is its own: not a word of a caught panic goes there.
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    print!("{said}");
}

/// Compiles one program of `c/instruments/`.
fn instrument(name: &str, more: &[&str]) -> PathBuf {
    let program = temporary().join(name);
    let folder = root().join("crates/plugin/tests/c/instruments");
    run(compiler()
        .arg("-O1")
        .arg(folder.join(name).with_extension("c"))
        .args(more)
        .args(["-ldl", "-lpthread", "-o"])
        .arg(&program));
    program
}

fn is_long() -> bool {
    std::env::var_os("PORTREEVE_LONG").is_some()
}
