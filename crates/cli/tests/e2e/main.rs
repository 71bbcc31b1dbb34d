//! End-to-end tests: the real binary, real daemons and real processes, each test in a network of its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what a test cannot do is its failure"
)]

mod addresses;
mod alike;
mod bad_profiles;
mod cluster;
mod configured;
mod conflicts;
mod crashes;
mod crowds;
mod daemons;
mod dev_ends;
mod drain;
mod endpoints;
mod env_command;
mod environment;
mod explain;
mod golden;
mod history;
mod host_loss;
mod host_verbs;
mod hostile;
mod hostile_users;
mod hosts;
mod idle;
mod install;
mod killing;
mod leaks;
mod many;
mod namespace;
mod neighbours;
mod networks;
mod numbers;
mod operating;
mod output;
mod packaging;
mod pages;
mod partitions;
mod ports;
mod probe_command;
mod probes;
mod reads;
mod rights;
mod run;
mod serving;
mod shell_files;
mod standalone;
mod steady;
mod store;
mod stranger;
mod terminal;
mod tokens;
mod tour;
mod tree;
mod units;
mod upgrade;
mod users;
mod watching;
mod why;
mod words;
mod world;
