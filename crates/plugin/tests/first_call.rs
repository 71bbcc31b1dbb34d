//! Builds the plugin and the example host, and runs one against the other.

mod built;

use std::process::Command;

use built::{compiler, root, run, shared_object, temporary};

#[test]
fn a_scheduler_in_c_gives_two_replicas_their_ports_and_resolves_them() {
    let host = temporary().join("first_call");
    run(compiler()
        .arg(root().join("examples/first_call.c"))
        .args(["-ldl", "-o"])
        .arg(&host));
    let said = run(Command::new(&host).arg(shared_object()));
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
        .arg(shared_object()));
    let symbols: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(symbols, ["pr_get_api"]);
    let dynamic = run(Command::new("readelf").arg("-d").arg(shared_object()));
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}
