//! What a worker does for its replica: what it writes down, tells and does, and in which order.
//!
//! [`Attendance`] stands between the machine of [`crate::supervision`] and the host. Each turn is one instant: what
//! happened goes in, and what is to be done comes out in the order in which it is done: written down first, then told,
//! then acted on, so that a worker that is killed at any moment is replaced by one that knows at least as much. A write
//! that fails holds up nothing: the service is worth more than the record of it. [`Telling`] is how the newest status
//! reaches the controller. [`Record`] is what the next worker takes over.
//!
//! This module starts, signals, probes and writes nothing, and knows no folder; facts that only a look at the host can
//! give are asked of [`Surroundings`].

mod begin;
mod cut_off;
mod effects;
mod happened;
mod news;
mod order;
mod output;
mod probing;
mod record;
mod start;
mod telling;
mod turn;

pub use begin::Beginning;
pub use happened::{Found, Happened, MainProcess, ProbeEnd, ProcessEvent, Stranger};
pub use order::Order;
pub use output::{Contact, Ended, Output, Surroundings, Token};
pub use record::{Record, Standing};
pub use telling::{Heard, Next, Telling};
pub use turn::{Attendance, Manner, Work};
