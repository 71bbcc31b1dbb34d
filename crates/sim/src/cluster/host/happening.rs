//! What a process does, and what whoever watches hears of it.

use portreeve::identity::Run;
use portreeve::supervision::{ExitStatus, StartFailure};

/// Something that a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    PreExecStarts(Run),
    PreExecEnds(Run, ExitStatus),
    /// It exists, or the system refuses it.
    Spawns(Run),
    Binds(Run),
    Ends(Run, ExitStatus),
    /// The last of its group that kept its ports is gone.
    LetsGo(Run),
    Empties(Run),
}

impl Happening {
    /// Its place among what happens in one instant: that of the event it becomes.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::PreExecStarts(_) => 0,
            Self::PreExecEnds(..) | Self::Spawns(_) | Self::Binds(_) => 1,
            Self::Ends(..) => 2,
            Self::LetsGo(_) | Self::Empties(_) => 3,
        }
    }
}

/// What whoever watches hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    PreExecStarted(Run),
    Spawned(Run, u32),
    SpawnFailed(Run, StartFailure),
    Exited(Run, ExitStatus),
    GroupEmpty(Run),
}
