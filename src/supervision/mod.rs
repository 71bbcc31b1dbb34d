//! The shared probe and restart logic: events in, effects out.
//!
//! One pure machine serves the worker, a node manager, the virtual cluster and the post-mortem. It knows
//! nothing of ports: that a restart keeps them is true by construction.

mod agenda;
mod config;
mod decision;
mod forecast;
mod machine;
mod phase;
pub mod record;
mod stall;
mod status;
mod track;
mod vocabulary;
mod words;

pub use agenda::Agenda;
pub use config::{Backoff, Config, GiveUp, ProbeTiming, RestartPolicy, StopRule, Then, Window};
pub use forecast::{Between, Forecast, GivesUp, ProbeForm, ProbeForms};
pub use machine::{Machine, RunFailure, Standing};
pub use stall::{LONGEST_STALL, is_stall};
pub use status::{Failure, Final, Leaving, State, Status};
pub use vocabulary::{
    Effect, Event, ExitCause, ExitStatus, HOST_GRACE, ProbeKind, ProbeNumber, ProbeOutcome, Reason,
    Report, StartFailure,
};
pub use words::signal_name;

#[cfg(test)]
mod cases_test;
#[cfg(test)]
mod invariants_test;
#[cfg(test)]
mod probes_test;
#[cfg(test)]
mod scripts_test;
#[cfg(test)]
mod virtual_driver;
