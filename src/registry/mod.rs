//! Services, replicas and hosts as the controller sees them: inputs in, effects out.
//!
//! The order of promise 6 lives here: what depends on truth leaves [`Registry`] only after the driver
//! has said [`Registry::committed`] for the batch that holds the truth. News passes at once.
//!
//! * **Truth** is what is decided here: by owners (`commands`, `submit`; only if: `precondition`), about jobs of other schedulers (`attach`), ends (`settle`), rolls
//!   (`roll`) and places (`placement`, on hosts by `choice` as all are `spread`, with reasons by `pending`, within `limits` by what `usages` counts). It changes records through `ledger::Ledger::change`, which
//!   keeps their durable form.
//! * Operators order hosts about (`host_verbs`): out of service and back (`drain_orders`, moved by `drain` as `drain_plan` tries it), forgotten (`host_removal`), down, and what
//!   is `unknown` there (`fencing`). Hosts shut down by themselves (`host_shutdown`).
//! * **News** is what hosts tell (`hosts`, `news`), and their silence (`contact`). It is told to both forms, shown at once, and never undone. What a lost host may still
//!   run keeps its numbers (`stranded`).
//! * People and hosts prove themselves with `tokens` (`token_records`).
//! * What was is kept, bounded by `retention`: events (`event_log`) and who had which number (`port_history`).
//! * A decision looks at what is, not at what just happened: one that could not be stored is made again.
//! * Readers (`show`, `views`, `publish`) and hosts (`orders`) are served from the durable form with the newest news; `audit` looks at what decisions see.

mod at_host;
mod attach;
mod audit;
mod choice;
mod claims;
mod commands;
mod contact;
mod drain;
mod drain_orders;
mod drain_plan;
mod effect;
mod event_log;
mod events;
mod explain;
mod fencing;
mod heard;
mod host_removal;
mod host_shutdown;
mod host_verbs;
mod host_view;
mod hosts;
mod input;
mod ledger;
mod limits;
mod look;
mod machine;
mod networks;
mod news;
mod orders;
mod outbox;
mod pending;
mod placement;
mod pools;
mod port_history;
mod port_views;
mod precondition;
mod publish;
mod reasons;
mod records;
mod replica_list;
mod replicas;
mod residents;
mod retention;
mod roll;
mod roster;
#[cfg(feature = "openapi")]
mod schema;
mod seats;
mod services;
mod settle;
mod show;
mod spread;
mod stale;
mod store;
mod stranded;
mod submit;
mod survey;
mod take_up;
mod teller;
mod token_records;
mod tokens;
mod tombstones;
mod touched;
mod truth;
mod unknown;
mod usages;
mod view;
mod views;
mod windows;

pub use crate::residency::Want;
pub use attach::Attachment;
pub use audit::{PlacedAudit, PoolAudit};
pub use contact::{Silence, SilenceError, Suspects};
pub use effect::{Answer, Effect, Refusal, Ticket};
pub use event_log::EVENTS_KEPT;
pub use explain::Explain;
pub use host_verbs::{DrainPace, HostReplica, HostVerb};
pub use host_view::{
    DrainView, HostPorts, HostRanges, HostView, NetworkView, PortCounts, PortView, StayView,
};
pub use input::{
    Command, HostFacts, HostOwner, Input, ReplicaReport, ReportedAddress, Submission,
    UnusableAddress,
};
pub use limits::{Allowance, Claimant, LimitReached, Limited, Limits};
pub use machine::{Config, LoadError, Registry};
pub use port_history::{HistoryQuestion, PortHistory, TenureView};
pub use precondition::Precondition;
pub use reasons::{CauseSum, FitView, HolderView, HostFit, HostSums, ReasonView};
pub use replica_list::ReplicaList;
pub use roster::{Named, Roster};
pub use seats::{AgentIdentity, ParseAgentError, SeatTaken, Seats};
pub use store::tables;
pub use store::{Batch, BatchNumber, MemoryStore, Store, StoreError, Stored, Write};
pub use token_records::{ParseTokenIdError, SecretHash, Token, TokenBearer, TokenId};
pub use tokens::{Joining, NewToken, Through, TokenOrder, TokenVerb};
pub use tombstones::Removed;
pub use view::{Desired, EventView, ReplicaView, ServiceView, View};

#[cfg(test)]
mod attach_test;
#[cfg(test)]
mod drain_test;
#[cfg(test)]
mod ends_test;
#[cfg(test)]
mod event_log_test;
#[cfg(test)]
mod fencing_test;
#[cfg(test)]
mod host_removal_test;
#[cfg(test)]
mod host_shutdown_test;
#[cfg(test)]
mod limits_test;
#[cfg(test)]
mod loss_cases_test;
#[cfg(test)]
mod loss_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod networks_test;
#[cfg(test)]
mod news_test;
#[cfg(test)]
mod owner_test;
#[cfg(test)]
mod placement_test;
#[cfg(test)]
mod port_history_test;
#[cfg(test)]
mod precondition_test;
#[cfg(test)]
mod records_test;
#[cfg(test)]
mod retention_test;
#[cfg(test)]
mod revision_test;
#[cfg(test)]
pub(crate) mod rig;
#[cfg(test)]
mod roll_test;
#[cfg(test)]
mod services_test;
#[cfg(test)]
mod show_test;
#[cfg(test)]
mod stale_test;
#[cfg(test)]
mod store_test;
#[cfg(test)]
mod stranded_test;
#[cfg(test)]
mod survey_test;
#[cfg(test)]
mod tokens_test;
#[cfg(test)]
mod witness;
