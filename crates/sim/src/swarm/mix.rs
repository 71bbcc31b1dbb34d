//! What one seed may suffer.
//!
//! Each seed has only some of all faults, and some seeds nearly none: where everything happens at once, faults hide
//! each other and few states are reached (swarm testing: Groce et al., ISSTA 2012).

use super::draw::Draw;

/// One kind of thing that can go wrong, or that people do out of turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    PowerLoss,
    Shutdown,
    CutOff,
    CutOffOneWay,
    AgentKilled,
    AgentHalted,
    AgentDies,
    WorkerKilled,
    WorkerHalted,
    WorkerDies,
    ProcessEnds,
    WorkerStop,
    WorkerRestart,
    HostDiskFull,
    Stranger,
    HostClock,
    Address,
    ControllerKilled,
    ControllerHalted,
    ControllerDies,
    ControllerDiskFull,
    ControllerDiesInCommit,
    ControllerClock,
    Restore,
    Network,
    Disk,
    Drain,
    Down,
    Remove,
    Fence,
    Scale,
    StartStop,
    Restart,
    Replace,
    Kill,
    Delete,
    Adopt,
}

impl Kind {
    pub(super) const ALL: [Self; 37] = [
        Self::PowerLoss,
        Self::Shutdown,
        Self::CutOff,
        Self::CutOffOneWay,
        Self::AgentKilled,
        Self::AgentHalted,
        Self::AgentDies,
        Self::WorkerKilled,
        Self::WorkerHalted,
        Self::WorkerDies,
        Self::ProcessEnds,
        Self::WorkerStop,
        Self::WorkerRestart,
        Self::HostDiskFull,
        Self::Stranger,
        Self::HostClock,
        Self::Address,
        Self::ControllerKilled,
        Self::ControllerHalted,
        Self::ControllerDies,
        Self::ControllerDiskFull,
        Self::ControllerDiesInCommit,
        Self::ControllerClock,
        Self::Restore,
        Self::Network,
        Self::Disk,
        Self::Drain,
        Self::Down,
        Self::Remove,
        Self::Fence,
        Self::Scale,
        Self::StartStop,
        Self::Restart,
        Self::Replace,
        Self::Kill,
        Self::Delete,
        Self::Adopt,
    ];
}

/// What one seed may suffer, and how often in a storm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mix {
    pub(super) kinds: Vec<(Kind, u32)>,
}

impl Mix {
    pub(super) fn of_seed(seed: u64) -> Self {
        let mut draw = Draw::new(seed, "mix");
        // Parts of a hundred: how likely each kind is in.
        let share = draw.one_of(&[5, 10, 15, 25, 25, 40, 60]);
        let mut kinds = Vec::new();
        for kind in Kind::ALL {
            // A backup ends much of what others would show.
            let share = if matches!(kind, Kind::Restore | Kind::Adopt) {
                share / 5
            } else {
                share
            };
            if draw.percent(share) {
                kinds.push((kind, draw.one_of(&[1, 1, 2, 2, 3, 4, 6, 10])));
            }
        }
        Self { kinds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_is_in_some_seeds_and_not_in_others() {
        let mixes: Vec<_> = (0..200).map(Mix::of_seed).collect();
        for kind in Kind::ALL {
            let with = mixes
                .iter()
                .filter(|mix| mix.kinds.iter().any(|(one, _)| *one == kind));
            assert!((1..150).contains(&with.count()), "{kind:?}");
        }
        let sizes: BTreeSet<_> = mixes.iter().map(|mix| mix.kinds.len()).collect();
        assert!(sizes.len() > 10);
    }
}
