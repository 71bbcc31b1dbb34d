//! What a worker promises, with real processes: `/bin/sh` as service and a controller of one route.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it must be"
)]

mod containment;
mod controller;
mod environment;
mod kills;
mod replay;
mod restarts;
mod reuse;
mod rungs;
mod stall;
mod stops;
mod takeover;
mod uplink;
mod world;
