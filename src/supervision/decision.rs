//! What follows the end of a run: restart, give up or rest, and after which wait.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config::{Config, GiveUp, RestartPolicy, Window};
use super::vocabulary::{ExitCause, ExitStatus};
use crate::identity::Run;
use crate::time::Monotonic;

/// What of the past decides about the next restart.
///
/// Invariant: at most `max_restarts` instants are kept, all of them inside the window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Budget {
    /// Restarts granted in a row, which the next wait grows with.
    in_a_row: u32,
    /// The exits whose restart was granted, oldest first.
    granted: VecDeque<Monotonic>,
}

/// Why no restart is granted: the window is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowFull;

impl Budget {
    /// Restarts granted in a row.
    pub(super) const fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// The exits whose restart was granted and may still count, oldest first.
    pub(super) fn granted(&self) -> impl Iterator<Item = Monotonic> {
        self.granted.iter().copied()
    }

    /// Begins again at the first wait. The window stays as it is.
    pub(super) const fn reset_backoff(&mut self) {
        self.in_a_row = 0;
    }

    /// Charges one restart for a run that ended now, and says how long to wait before it.
    pub(super) fn grant(
        &mut self,
        now: Monotonic,
        config: &Config,
        seed: u64,
        run: Run,
    ) -> Result<Duration, WindowFull> {
        if let Some(rule) = &config.give_up {
            self.drop_outdated(now, rule);
            if self.granted.len() >= usize::try_from(rule.max_restarts).unwrap_or(usize::MAX) {
                return Err(WindowFull);
            }
            self.granted.push_back(now);
        }
        let wait = config.backoff.wait(self.in_a_row);
        self.in_a_row = self.in_a_row.saturating_add(1);
        Ok(shortened(
            wait,
            config.backoff.jitter_permille,
            mix(seed, u64::from(run.0)),
        ))
    }

    fn drop_outdated(&mut self, now: Monotonic, rule: &GiveUp) {
        let Window::Span(span) = rule.window else {
            return;
        };
        while self
            .granted
            .front()
            .is_some_and(|exit| now.since(*exit) >= span)
        {
            self.granted.pop_front();
        }
    }
}

/// Whether this end of the process, by itself, counts as success.
pub(super) fn is_success(status: ExitStatus, config: &Config) -> bool {
    match status {
        ExitStatus::Code(code) => config.success_exit.contains(&ExitCause::Code(code)),
        ExitStatus::Signal {
            signal,
            core: false,
            oom: false,
        } => config.success_exit.contains(&ExitCause::Signal(signal)),
        ExitStatus::Signal { .. } | ExitStatus::Unknown => false,
    }
}

/// Whether a profile forbids a restart after this end, whatever the policy.
pub(super) fn forbids_restart(status: ExitStatus, config: &Config) -> bool {
    match status {
        ExitStatus::Code(code) => config.no_restart_exit.contains(&ExitCause::Code(code)),
        ExitStatus::Signal { signal, .. } => {
            config.no_restart_exit.contains(&ExitCause::Signal(signal))
        }
        ExitStatus::Unknown => false,
    }
}

/// Whether the policy restarts after an end of this kind.
pub(super) const fn policy_restarts(policy: RestartPolicy, success: bool) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => !success,
        RestartPolicy::Never => false,
    }
}

/// `wait` less up to `jitter_permille` thousandths of it, as `random` decides.
///
/// Jitter only shortens: the longest wait a user wrote is never exceeded.
fn shortened(wait: Duration, jitter_permille: u16, random: u64) -> Duration {
    let share = (random >> 32) * u64::from(jitter_permille.min(1000));
    // At most 1000 * 2^32 / 1000 of `wait`, so never more than `wait` itself.
    let cut = wait.as_millis() * u128::from(share) / (1000 << 32);
    wait.saturating_sub(Duration::from_millis(
        u64::try_from(cut).unwrap_or(u64::MAX),
    ))
}

/// A well-spread number for `salt` that is equal for equal seeds: the finaliser of splitmix64.
pub(super) const fn mix(seed: u64, salt: u64) -> u64 {
    let mut z = seed.wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::config::Backoff;
    use super::*;

    fn backoff(initial: u64, max: u64) -> Backoff {
        Backoff {
            initial: Duration::from_secs(initial),
            max: Duration::from_secs(max),
            jitter_permille: 0,
            reset_after: Duration::from_secs(max),
        }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        // probes 57
        let rule = backoff(10, 300);
        let waits: Vec<_> = (0..7).map(|k| rule.wait(k).as_secs()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(rule.wait(u32::MAX).as_secs(), 300);
    }

    #[test]
    fn jitter_only_shortens_and_never_by_more_than_its_share() {
        // probes 58
        let whole = Duration::from_millis(1000);
        for run in 0..10_000 {
            let wait = shortened(whole, 250, mix(7, run));
            assert!((750..=1000).contains(&wait.as_millis()), "{wait:?}");
            assert_eq!(wait, shortened(whole, 250, mix(7, run)));
        }
        assert_eq!(shortened(whole, 250, 0), whole);
        assert_ne!(
            shortened(whole, 250, mix(7, 1)),
            shortened(whole, 250, mix(8, 1))
        );
        assert_eq!(shortened(Duration::ZERO, 1000, u64::MAX), Duration::ZERO);
    }
}
