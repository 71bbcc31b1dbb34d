//! Services, replicas and hosts as the controller sees them: inputs in, effects out.
//!
//! The order of promise 6 lives here: what depends on truth leaves [`Registry`] only after the driver
//! has said [`Registry::committed`] for the batch that holds the truth. News passes at once.

mod commands;
mod effect;
mod events;
mod hosts;
mod input;
mod ledger;
mod machine;
mod news;
mod orders;
mod outbox;
mod pending;
mod placement;
mod pools;
mod publish;
mod records;
mod roll;
mod settle;
mod show;
mod store;
mod submit;
mod take_up;
mod truth;
mod view;
mod views;

pub use crate::residency::Want;
pub use effect::{Answer, Effect, Refusal, Ticket};
pub use events::EVENTS_KEPT;
pub use input::{
    Command, ForeignListener, HostFacts, Input, ReplicaReport, ReportedAddress, Submission,
};
pub use machine::{Config, LoadError, Registry};
pub use store::tables;
pub use store::{Batch, BatchNumber, MemoryStore, Store, StoreError, Stored, Write};
pub use view::{Desired, EventView, HostView, PortView, ReplicaView, ServiceView, View};

#[cfg(test)]
mod ends_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod placement_test;
#[cfg(test)]
mod records_test;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod roll_test;
#[cfg(test)]
mod services_test;
#[cfg(test)]
mod store_test;
