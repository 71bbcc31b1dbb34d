//! What workers found wrong with the host itself: told while it lasts, and a while longer.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use portreeve_api::host_limits::{HostLimits, MOST_COMMAND_PROBES, Tallies};

/// How long a condition is told after it was met last. Shorter, it would come and go with each probe.
const REST: Duration = Duration::from_secs(60);

/// Follows the page of limits that all workers of the host share.
#[derive(Debug)]
pub(super) struct Conditions {
    page: Option<HostLimits>,
    seen: Tallies,
    late: Option<Instant>,
    shortage: Option<Instant>,
}

impl Conditions {
    /// What happens from now on; what was noted before is over.
    pub(super) fn of(state: &Path) -> Self {
        let page = HostLimits::open(&state.join("limits"));
        let page = page.inspect_err(|cause| {
            tracing::warn!(
                "the limits of this host cannot be kept, each worker keeps its own: {cause}"
            );
        });
        let page = page.ok();
        let seen = page.as_ref().and_then(|page| page.tallies().ok());
        Self {
            page,
            seen: seen.unwrap_or_default(),
            late: None,
            shortage: None,
        }
    }

    /// What is wrong as of `now`, in words that do not change while it is the same.
    pub(super) fn look(&mut self, now: Instant) -> Vec<String> {
        let tallies = self.page.as_ref().and_then(|page| page.tallies().ok());
        let tallies = tallies.unwrap_or(self.seen);
        if tallies.late != self.seen.late {
            self.late = Some(now);
        }
        if tallies.shortages != self.seen.shortages {
            self.shortage = Some(now);
        }
        self.seen = tallies;
        let lasts = |met: Option<Instant>| met.is_some_and(|met| now.duration_since(met) < REST);
        let mut words = Vec::new();
        if lasts(self.late) {
            words.push(format!(
                "checks by a command do not begin within their interval and say nothing: this host runs at most \
                 {MOST_COMMAND_PROBES} at once; use http, tcp or listening probes, longer intervals or shorter timeouts"
            ));
        }
        if lasts(self.shortage) {
            words.push(format!(
                "probes say nothing because this host has no room for them: {}",
                Errno::from_raw(tallies.last_shortage)
            ));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portreeve_api::host_limits::Note;

    #[test]
    fn what_workers_note_is_told_for_a_while_and_not_what_was_before() {
        let state = tempfile::tempdir().unwrap();
        let page = HostLimits::open(&state.path().join("limits")).unwrap();
        page.note(Note::Late);
        let mut conditions = Conditions::of(state.path());
        let now = Instant::now();
        assert_eq!(conditions.look(now), [""; 0]);
        page.note(Note::Late);
        page.note(Note::Shortage(Errno::EMFILE as i32));
        let told = conditions.look(now);
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("at most 64 at once"), "{told:?}");
        assert!(told[1].contains("EMFILE"), "{told:?}");
        // One more of the same is no news.
        page.note(Note::Late);
        assert_eq!(conditions.look(now + REST / 2), told);
        let late = conditions.look(now + REST);
        assert_eq!(late, told[..1]);
        assert_eq!(conditions.look(now + REST * 2), [""; 0]);
    }
}
