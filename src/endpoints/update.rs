//! What the writer tells the table of one service.

use crate::endpoints::{Endpoint, Entry, ServiceEndpoints};
use crate::identity::ServiceName;

/// One service as it shall be shown from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUpdate<E: Entry = Endpoint> {
    /// Which service; an unknown one becomes known.
    pub service: ServiceName,
    /// How many replicas there shall be.
    pub desired: u32,
    /// What becomes of its entries.
    pub change: Change<E>,
}

/// What becomes of the entries of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<E: Entry = Endpoint> {
    /// These and no others, whatever the table had. Of two of one key the higher incarnation is kept, of
    /// equal ones the later.
    Whole(Vec<E>),
    /// Changes of what the table has; the rest stays.
    Parts {
        /// New, or in the place of those of the same keys. One of a lower incarnation than the table has
        /// is old news and ignored.
        upsert: Vec<E>,
        /// Gone; done before `upsert`. Unknown keys are ignored.
        remove: Vec<E::Key>,
    },
}

impl<E: Entry> From<ServiceEndpoints<E>> for ServiceUpdate<E> {
    fn from(set: ServiceEndpoints<E>) -> Self {
        Self {
            service: set.service,
            desired: set.desired,
            change: Change::Whole(set.endpoints),
        }
    }
}
