//! An agent between a controller that is played and workers that are played: join, lease, acting on what
//! is wanted, adoption, and what it tells of the host.

#![expect(clippy::unwrap_used, reason = "a test says what broke by panicking")]

mod adoption;
mod attached;
mod controller;
mod house;
mod joining;
mod relaying;
mod reports;
mod shutdown;
mod wanted;
mod worker;
