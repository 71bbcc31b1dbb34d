//! What the host shall do about one replica.

use super::resident::{ReplicaName, Told};

/// One thing to do. Doing it twice is harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Prepare the folder with the assignment, then start the worker.
    Start {
        /// Which incarnation.
        name: ReplicaName,
    },
    /// Start a worker again in the folder of one that died; it takes over the run.
    TakeOver {
        /// Which incarnation.
        name: ReplicaName,
        /// What the new worker shall find in its assignment; `None`: what stands there.
        told: Option<Told>,
    },
    /// Tell the worker what is wanted.
    Tell {
        /// Which incarnation.
        name: ReplicaName,
        /// What.
        told: Told,
    },
    /// Ask the worker for its newest status: the end of this incarnation is waited for.
    Ask {
        /// Which incarnation.
        name: ReplicaName,
    },
    /// Tell the controller the stored final status, since no worker does.
    Report {
        /// Which incarnation.
        name: ReplicaName,
    },
    /// It is to stop before it began here: prepare its folder with a final status and nothing else.
    NeverBegun {
        /// Which incarnation.
        name: ReplicaName,
    },
    /// Mark the folder as ended: only its logs are kept.
    End {
        /// Which incarnation.
        name: ReplicaName,
    },
    /// Remove the folder with its logs.
    Remove {
        /// Which incarnation.
        name: ReplicaName,
    },
}

impl Action {
    /// Whom it concerns.
    #[must_use]
    pub const fn name(&self) -> &ReplicaName {
        match self {
            Self::Start { name }
            | Self::TakeOver { name, .. }
            | Self::Tell { name, .. }
            | Self::Ask { name }
            | Self::Report { name }
            | Self::NeverBegun { name }
            | Self::End { name }
            | Self::Remove { name } => name,
        }
    }
}
