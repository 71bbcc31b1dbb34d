//! What the allocator promises to those who use it from outside: against a model, and by several threads.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set its world up has failed"
)]

mod chaos;
mod million;
mod threads;
mod warm;
mod world;
