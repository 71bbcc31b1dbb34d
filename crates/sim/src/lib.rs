//! Whole clusters on virtual time: the controller, agents, workers and supervision of production, with a network, disks,
//! machines, people and processes that follow a script.
//!
//! One scenario and one seed are one run: the same bytes come out each time, on every machine. Nothing here
//! decides anything about a service; that is the core, driven as production drives it. The whole format of a scenario is in docs/sim.md.
//! This crate reads no file and no clock; a caller brings the texts.
//!
//! ```
//! use portreeve_sim::{Scenario, play};
//!
//! let text = r#"
//! until = "10s"
//! expect = ["1s READY", "5s BACKOFF 1s", "6s RESTARTED 1", "7s READY"]
//!
//! [service]
//! kind = "service"
//! name = "web"
//! command = ["web"]
//! restart = { backoff = { jitter = 0.0 } }
//!
//! [[run]]
//! exit = { after = "5s", code = 1 }
//! "#;
//! let scenario = Scenario::from_toml(text, |_| Err("no other file".to_owned())).unwrap();
//! let played = play(&scenario).unwrap();
//! assert!(played.unmet.is_empty());
//! ```

mod brief;
mod claim;
#[expect(
    dead_code,
    reason = "what the parts of the cluster agree on; they follow"
)]
mod cluster;
mod expectation;
mod outcome;
mod play;
pub mod scale;
mod scenario;
pub mod swarm;
mod timeline;

pub use brief::{Line, account, brief};
pub use cluster::controller::PersonNo;
pub use cluster::fleet::{Fleet, Said};
pub use cluster::wire::{Asker, Lease, Question, Reply, WantedOfHost};
pub use expectation::Unmet;
pub use outcome::{Outcome, ServiceOutcome};
pub use play::{PlayError, Played, Progress, play, play_with};
pub use scenario::{MAX_SCENARIO, Problem, Scenario, ScenarioErrors};
pub use timeline::{Entry, What};
