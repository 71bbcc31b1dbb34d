//! What a context keeps, and who may take what of it.
//!
//! * [`contexts`] finds a [`context`]; its locks say which class of call takes which part.
//! * [`register`] has every grant ([`entered`]) under its id, its key and its job ([`key_index`]), and who waits
//!   ([`waiting`]); [`queue`] has what other threads left for the next cycle.
//! * [`board`] is what readers are told of that.
//! * [`room`] and [`scratch`]: memory taken when the context is made, so that no hot call asks for any.

pub(super) mod board;
pub(super) mod context;
pub(super) mod contexts;
pub(super) mod entered;
pub(super) mod key_index;
pub(super) mod queue;
pub(super) mod register;
pub(super) mod room;
pub(super) mod scratch;
pub(super) mod waiting;
