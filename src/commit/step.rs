//! What the driver of [`Rounds`](super::Rounds) has to do.

use std::sync::Arc;

use crate::endpoints::ServiceUpdate;
use crate::identity::{HostName, ServiceName};
use crate::registry::{Answer, Batch, Refusal, View};

use super::Orders;

/// One thing to do, in the order in which they were given: what an answer speaks of is visible before it leaves.
///
/// `C` is who gave a command, `T` who told something.
#[derive(Debug)]
pub enum Step<C, T> {
    /// The store is to make this durable; then [`super::Rounds::stored`]. Nothing else is asked of it until then.
    Commit(Batch),
    /// The store is to be read to who waits for that; then [`super::Rounds::was_read`]. Nothing else is asked of it
    /// until then.
    Read,
    /// These services' endpoints are others from this revision on.
    Publish {
        /// The revision all of them get.
        revision: u64,
        /// What became of their endpoints.
        services: Vec<ServiceUpdate>,
        /// Services that are gone.
        removed: Vec<ServiceName>,
    },
    /// Readers see this from now on.
    Show(Arc<View>),
    /// A command is answered.
    Answer {
        /// Who gave it.
        to: C,
        /// What became of it.
        answer: Result<Answer, Refusal>,
    },
    /// This is wanted of a host from now on.
    Order {
        /// Which host.
        host: HostName,
        /// All that is wanted of it.
        orders: Arc<Orders>,
    },
    /// What somebody told is taken in, and durable where that was asked for; or the store refused it, in its words.
    /// Who told it then keeps it and tells it again.
    Acknowledge {
        /// Who told it.
        to: T,
        /// Whether it may be forgotten there.
        outcome: Result<(), String>,
    },
}
