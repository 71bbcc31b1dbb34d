//! Hosts in C that watch what the plugin does to its process: its memory, its system calls, its answers in need.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot build what it tests has failed"
)]

mod built;

use std::process::Command;

use built::{PLUGIN, host, run};

#[test]
fn a_context_for_which_there_is_no_memory_is_refused_and_nothing_of_it_is_left() {
    let host = host(
        "crates/plugin/tests/c/instruments/failing_create.c",
        &["-rdynamic"],
    );
    let said = run(Command::new(host).arg(&*PLUGIN));
    assert!(said.contains("the largest refused"), "{said}");
}
