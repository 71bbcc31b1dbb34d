//! How the controller's one task works: what it takes in at once, what it has the store make durable, and what leaves when.
//!
//! Invariant: steps are given in the order in which they are to be done; a view that an answer speaks of is shown before
//! the answer leaves; who told an end hears that it may forget it only once the end is durable. [`Rounds`] owns the
//! registry, [`Front`] listens to hosts, and a [`Desk`] keeps what one host is to be told. They do nothing: queues, the
//! store, what wakes whom and who is who are the driver's, in production and on virtual time.

mod desk;
mod front;
mod rounds;
mod step;

pub use desk::{Desk, Handout, Orders};
pub use front::{Front, GraceTooShort, Speaker, Terms, Told, Unheard};
pub use rounds::{LastNews, Rounds};
pub use step::Step;
