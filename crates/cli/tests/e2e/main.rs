//! End-to-end tests: the real binary, real daemons and real processes, each test in a network of its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what a test cannot do is its failure"
)]

mod bad_profiles;
mod crashes;
mod daemons;
mod dev_ends;
mod environment;
mod explain;
mod hosts;
mod leaks;
mod many;
mod namespace;
mod numbers;
mod ports;
mod reads;
mod run;
mod stranger;
mod tour;
mod why;
mod world;
