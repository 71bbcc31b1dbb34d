//! Replicas that jobs of another scheduler bring along: the job is the worker, the agent keeps their ports honest.
//!
//! One task owns what is known of them ([`Moorage`]). `listen` speaks with the jobs over the agent's Unix socket and
//! relays what they ask for; `record` keeps on disk who has what; `remains` ends what a killed job left. Nothing here
//! starts or stops a service: what is wanted is told to the job, and an end is told to the controller once nothing of
//! the replica lives any more.

mod ending;
mod line;
mod listen;
mod message;
mod moorage;
mod record;
mod remains;
mod wanted;

#[cfg(fuzzing)]
pub(crate) use line::read_lines;
pub(crate) use listen::serve;
pub(crate) use message::{Channels, Message};
pub(crate) use moorage::Moorage;
pub(crate) use record::open_of_job;
