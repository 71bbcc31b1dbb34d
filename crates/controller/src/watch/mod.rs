//! Watching: streams of changes, and questions that are held until their answer is another one.
//!
//! Invariant: a watcher is owed the newest state, never a list of events. It holds what its peer has, as one
//! number per service, and reads the snapshots when the peer can take more; so nothing is queued, a slow peer
//! costs what a quick one costs, and what it gets last is what is true.
//!
//! A stream leaves HTTP's hands with its first byte: what HTTP keeps per connection is many times what a
//! stream needs. See [`crate::listen`] for the passage.

mod asked;
mod bells;
mod changes;
mod event;
mod fingerprint;
mod follow;
mod pace;
mod since;
mod spread;
mod stream;
mod texts;
mod wire;

pub(crate) use asked::{Asked, Format};
pub(crate) use bells::heard;
pub(crate) use fingerprint::Fingerprint;
pub(crate) use pace::{Pace, Paced};
pub(crate) use spread::spread;
pub(crate) use stream::{Departed, answer, stay};
pub(crate) use texts::Texts;
