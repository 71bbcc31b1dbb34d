//! Builds the plugin and the example host, and runs one against the other.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot build what it tests has failed"
)]

mod built;

use std::process::Command;

use built::{PLUGIN, host, run};

#[test]
fn a_scheduler_in_c_gives_two_replicas_their_ports_and_resolves_them() {
    let host = host("examples/first_call.c", &["-std=c11"]);
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
