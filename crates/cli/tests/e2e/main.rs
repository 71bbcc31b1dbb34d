//! End-to-end tests: the real binary, real daemons and real processes, each test in a network of its own.

mod bad_profiles;
mod crashes;
mod daemons;
mod environment;
mod many;
mod ports;
mod reads;
mod tour;
mod world;
