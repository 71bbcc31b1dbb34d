//! Ports are given back in two steps: the stop is ordered, then the last process is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::identity::{HostId, Incarnation, ReplicaId};
use crate::port_pool::{Phase, PortGrant};
use crate::time::Monotonic;

use super::Allocator;

/// What becomes of numbers when their release is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRelease {
    /// They rest: clients may still know them.
    Cool,
    /// They are free at once: nothing ever listened there.
    Free,
}

/// Why a release had no effect. Each is harmless: nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// It was released a moment ago (within the time that its numbers rest).
    #[error("{} was released already", shown(.replica))]
    AlreadyReleased {
        /// Who.
        replica: ReplicaId,
    },
    /// Its release has begun already and waits to be confirmed.
    #[error("{} is being released already", shown(.replica))]
    AlreadyReleasing {
        /// Who.
        replica: ReplicaId,
    },
    /// It is an earlier placement of a replica that holds ports under a newer one.
    #[error("{} is not current: incarnation {newest} holds the ports", shown(.replica))]
    OldIncarnation {
        /// Who.
        replica: ReplicaId,
        /// The incarnation that holds.
        newest: Incarnation,
    },
    /// It holds nothing, and is not known to have held anything.
    #[error("{} holds no ports", shown(.replica))]
    NotHeld {
        /// Who.
        replica: ReplicaId,
    },
}

fn shown(replica: &ReplicaId) -> String {
    format!(
        "replica {} incarnation {} of service {}",
        replica.index, replica.incarnation, replica.service
    )
}

/// Releases of a while ago, so that a repeated one is told from a stranger's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Released {
    until: BTreeMap<ReplicaId, Monotonic>,
    by_age: BTreeSet<(Monotonic, ReplicaId)>,
}

impl Released {
    fn remember(&mut self, replica: ReplicaId, until: Monotonic) {
        if let Some(before) = self.until.insert(replica, until) {
            self.by_age.remove(&(before, replica));
        }
        self.by_age.insert((until, replica));
    }

    pub(super) fn forget_due(&mut self, now: Monotonic) {
        while let Some((until, replica)) = self.by_age.first().copied() {
            if until > now {
                return;
            }
            self.by_age.pop_first();
            self.until.remove(&replica);
        }
    }
}

impl Allocator {
    /// The stop of `replica` is ordered. Its numbers stay held until [`Self::confirm_release`].
    ///
    /// # Errors
    ///
    /// [`ReleaseError`]; nothing changed.
    pub fn begin_release(&mut self, replica: ReplicaId) -> Result<(), ReleaseError> {
        if self.phase_of(replica)? == Phase::Releasing {
            return Err(ReleaseError::AlreadyReleasing { replica });
        }
        for id in self.hosts_of(replica).collect::<Vec<_>>() {
            if let Some(host) = self.host_mut(id) {
                host.pool.set_phase(replica, Phase::Releasing);
            }
        }
        Ok(())
    }

    /// The last process of `replica` is gone: its numbers cool from `now`, or are free at once. A
    /// release that had not begun begins and ends with this. Returns where it held what.
    ///
    /// Who waits can be retried: see [`Self::take_freed`].
    ///
    /// # Errors
    ///
    /// [`ReleaseError`]; nothing changed but what was due by `now`.
    pub fn confirm_release(
        &mut self,
        replica: ReplicaId,
        now: Monotonic,
        after: AfterRelease,
    ) -> Result<(HostId, PortGrant), ReleaseError> {
        self.advance(now);
        self.phase_of(replica)?;
        let mut given_back = None;
        let mut longest = self.config.cooling;
        for id in self.hosts_of(replica).collect::<Vec<_>>() {
            let now = self.now;
            let everywhere = self.config.cooling;
            let Some(host) = self.host_mut(id) else {
                continue;
            };
            let cooling = host.cooling.unwrap_or(everywhere);
            longest = longest.max(cooling);
            let rests = after == AfterRelease::Cool && cooling > Duration::ZERO;
            let grant = host.pool.grant(replica);
            host.pool.release(replica, rests.then(|| now + cooling));
            self.placed.remove(&(replica, id));
            self.freed.insert(id);
            self.requeue(id);
            given_back = given_back.or(grant.map(|grant| (id, grant)));
        }
        let until = self.now + longest;
        if until > self.now {
            self.released.remember(replica, until);
        }
        given_back.ok_or(ReleaseError::NotHeld { replica })
    }

    /// The phase of a grant that can be released, or why there is none.
    fn phase_of(&self, replica: ReplicaId) -> Result<Phase, ReleaseError> {
        if let Some(phase) = self.phase(replica) {
            return Ok(phase);
        }
        let newest = self
            .newest(replica.service, replica.index)
            .filter(|newest| *newest > replica.incarnation);
        if let Some(newest) = newest {
            return Err(ReleaseError::OldIncarnation { replica, newest });
        }
        if self.released.until.contains_key(&replica) {
            return Err(ReleaseError::AlreadyReleased { replica });
        }
        Err(ReleaseError::NotHeld { replica })
    }
}
