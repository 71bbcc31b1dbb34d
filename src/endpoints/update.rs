//! What the writer tells of one service.

use crate::endpoints::{Endpoint, Entry};
use crate::identity::ServiceName;

/// One service in a batch.
#[derive(Clone, Debug)]
pub struct ServiceUpdate<E: Entry = Endpoint> {
    /// Whose endpoints.
    pub service: ServiceName,
    /// How many replicas there shall be.
    pub desired: u32,
    /// What becomes of its endpoints.
    pub change: Change<E>,
}

/// What becomes of a service's endpoints.
#[derive(Clone, Debug)]
pub enum Change<E: Entry = Endpoint> {
    /// These replace all.
    Whole(Vec<E>),
    /// The others stay.
    Parts {
        /// Added, or in place of the one of their key.
        upsert: Vec<E>,
        /// Gone.
        remove: Vec<E::Key>,
    },
}
