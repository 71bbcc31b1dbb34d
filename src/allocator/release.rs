//! Ports are given back in two steps: the stop is ordered, then the last process is gone.

use std::time::Duration;

use smallvec::SmallVec;

use crate::identity::{HostId, Incarnation, ReplicaId};
use crate::port::PortRange;
use crate::port_pool::{Phase, Side};
use crate::time::Monotonic;

use super::host::Host;
use super::{Allocator, TRIES};

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
    /// It was released a moment ago: within the time that its numbers rest, and among the last
    /// releases, of which the allocator remembers a million at least.
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

/// So many runs of one grant are few.
const FEW: usize = 8;

impl Allocator {
    /// The stop of `replica` is ordered. Its numbers stay held until [`Self::confirm_release`].
    ///
    /// # Errors
    ///
    /// [`ReleaseError`]; nothing changed.
    pub fn begin_release(&self, replica: ReplicaId) -> Result<(), ReleaseError> {
        for _ in 0..TRIES {
            let mut begun = None;
            for id in self.placements.of(replica, None) {
                let phase = self.hosts.with(id, |host| {
                    let phase = host.pool.phase(replica);
                    if phase == Some(Phase::Held) {
                        host.pool.set_phase(replica, Phase::Releasing);
                    }
                    phase
                });
                if begun != Some(Phase::Held) {
                    begun = phase.flatten().or(begun);
                }
            }
            match begun {
                Some(Phase::Held) => return Ok(()),
                Some(Phase::Releasing) => return Err(ReleaseError::AlreadyReleasing { replica }),
                // A host may be changing its number.
                Some(Phase::Tentative) | None => {}
            }
            if self.placements.of(replica, None).is_empty() {
                break;
            }
        }
        Err(self.not_held(replica))
    }

    /// The last process of `replica` is gone: its numbers cool from `now`, or are free at once. A
    /// release that had not begun begins and ends with this. Returns where it held them.
    ///
    /// Who waits can be retried: see [`Self::take_woken`] and [`Self::take_freed`].
    ///
    /// # Errors
    ///
    /// [`ReleaseError`]; nothing changed but what was due by `now`.
    pub fn confirm_release(
        &self,
        replica: ReplicaId,
        now: Monotonic,
        after: AfterRelease,
    ) -> Result<HostId, ReleaseError> {
        let now = self.advance(now);
        let mut first = None;
        for _ in 0..TRIES {
            for id in self.placements.of(replica, None) {
                let released = self
                    .hosts
                    .with(id, |host| self.release_on(id, host, replica, now, after));
                if released == Some(true) {
                    first = first.or(Some(id));
                }
            }
            if first.is_some() || self.placements.of(replica, None).is_empty() {
                break;
            }
        }
        first.ok_or_else(|| self.not_held(replica))
    }

    /// Gives back what `replica` holds on one host, under its lock. Whether it held anything.
    fn release_on(
        &self,
        id: HostId,
        host: &mut Host,
        replica: ReplicaId,
        now: Monotonic,
        after: AfterRelease,
    ) -> bool {
        if matches!(host.pool.phase(replica), None | Some(Phase::Tentative)) {
            return false;
        }
        let cooling = host.cooling.unwrap_or(self.config.cooling);
        // A grant of many ports changes more than is kept on the stack.
        let mut work =
            (host.pool.numbers_of(replica).count() > FEW).then(|| self.spares.take(self.no));
        let mut few: SmallVec<[(Side, PortRange); FEW]> = SmallVec::new();
        match &mut work {
            Some(work) => work.changed.extend(host.pool.numbers_of(replica)),
            None => few.extend(host.pool.numbers_of(replica)),
        }
        let rests = after == AfterRelease::Cool && cooling > Duration::ZERO;
        host.pool.release(replica, rests.then(|| now + cooling));
        let until = now + self.config.cooling.max(cooling);
        self.placements.release(replica, id, now, until);
        let changed = work.as_ref().map_or(few.as_slice(), |work| &work.changed);
        self.note(id, host, changed);
        if let Some(work) = work {
            self.spares.keep(work);
        }
        self.census.free(id);
        self.recount(id, host);
        true
    }

    /// Why `replica`, which has no grant, cannot be released.
    pub(super) fn not_held(&self, replica: ReplicaId) -> ReleaseError {
        let newest = self
            .placements
            .newest(replica.service, replica.index)
            .filter(|newest| *newest > replica.incarnation);
        if let Some(newest) = newest {
            return ReleaseError::OldIncarnation { replica, newest };
        }
        if self.placements.was_released(replica, self.now()) {
            return ReleaseError::AlreadyReleased { replica };
        }
        ReleaseError::NotHeld { replica }
    }
}
