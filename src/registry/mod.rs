//! Services, replicas and hosts as the controller sees them: inputs in, effects out.
//!
//! The order of promise 6 lives here: what depends on truth leaves [`Registry`] only after the driver
//! has said [`Registry::committed`] for the batch that holds the truth. News passes at once.

mod effect;
mod input;
mod machine;
mod store;
mod view;

pub use crate::residency::Want;
pub use effect::{Answer, Effect, Refusal, Ticket};
pub use input::{
    Command, ForeignListener, HostFacts, Input, ReplicaReport, ReportedAddress, Submission,
};
pub use machine::{Config, LoadError, Registry};
pub use store::tables;
pub use store::{Batch, BatchNumber, MemoryStore, Store, StoreError, Stored, Write};
pub use view::{Desired, EventView, HostView, PortView, ReplicaView, ServiceView, View};
