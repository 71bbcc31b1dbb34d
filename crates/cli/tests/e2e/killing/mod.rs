//! Daemons that are killed at random instants, again and again, while they are kept busy.
//!
//! A run prints its seed and what it counted; `PORTREEVE_SEED` plays the same dice again, though not the same instants.

mod account;
mod controller;
mod daemons;
mod host;
mod owners;

use std::time::Duration;

use crate::endpoints::wire::{Answer, Place, Wire};
use crate::world::World;

/// So many rounds in `make test`, and so many in `make long`.
fn sized(usual: u32, long: u32) -> u32 {
    if std::env::var("PORTREEVE_LONG").is_ok_and(|value| value == "1") {
        long
    } else {
        usual
    }
}

/// The dice of a run: the same seed throws the same.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    /// By `PORTREEVE_SEED`, or else by the clock; printed.
    fn of_this_run() -> Self {
        let given = std::env::var("PORTREEVE_SEED").ok();
        let given = given.and_then(|text| text.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = given.unwrap_or_else(|| now.map_or(1, |now| now.subsec_nanos().into()));
        eprintln!("PORTREEVE_SEED={seed}");
        Self(seed | 1)
    }

    /// Other dice, as random as these.
    fn split(&mut self) -> Self {
        Self(self.next() | 1)
    }

    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Below `bound`, which is not zero.
    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound)).unwrap_or(0)
    }
}

/// Where the controller of a world answers.
fn place(world: &World) -> Place {
    Place::Unix(world.path("run/controller.sock"))
}

/// What became of a question.
enum Asked {
    /// It never left: nobody listens.
    Unsent,
    /// It may have arrived.
    InDoubt,
    Answered(Answer),
}

/// Asks on a connection of its own.
fn ask(place: &Place, method: &str, path: &str, body: &[u8], form: &str) -> Asked {
    let Ok(mut wire) = Wire::open(place, Duration::from_secs(20)) else {
        return Asked::Unsent;
    };
    let path = format!("/api/v1/{path}");
    let headers = [("Content-Type", form)];
    let headers = if body.is_empty() { &[][..] } else { &headers };
    if wire.ask(method, &path, headers, body).is_err() {
        return Asked::InDoubt;
    }
    match wire.answer() {
        // It is on its way down, or could not store it: it may say so after the truth was kept.
        Ok(answer) if answer.head.status == 503 => Asked::InDoubt,
        Ok(answer) => Asked::Answered(answer),
        Err(_) => Asked::InDoubt,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the instant of a kill, and the pace of who keeps the daemons busy, are what is tried"
)]
fn doze(span: Duration) {
    std::thread::sleep(span);
}
