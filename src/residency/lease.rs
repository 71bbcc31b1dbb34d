//! How often a host gives a sign of life, and how long it may take until a host that is well is heard of again: what
//! controller and agent must think alike of.

use std::time::Duration;

/// How often the lease is renewed, unless the controller says otherwise.
pub const PERIOD: Duration = Duration::from_secs(5);

/// The shortest period that a controller may ask for and an agent follows.
pub const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// Signs of life within the time after which a host is suspect: that one of them is late or lost says nothing yet.
const SIGNS_BEFORE_SUSPICION: u32 = 4;

/// How often the lease is renewed where a host is suspect after so long a silence.
#[must_use]
pub fn period_for(suspect_after: Duration) -> Duration {
    (suspect_after / SIGNS_BEFORE_SUSPICION).clamp(SHORTEST_PERIOD, PERIOD)
}

/// The longest silence of a host on which only the agent and the workers were started anew, part by part.
#[must_use]
pub fn restart_and_rejoin(period: Duration) -> [(&'static str, Duration); 4] {
    [
        ("since the last sign of life", period),
        ("until the agent runs again and has its workers", period),
        ("until it tries the controller again", period),
        ("for its full report", 2 * period),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicion_begins_after_several_signs_of_life_that_did_not_come() {
        let seconds = Duration::from_secs;
        assert_eq!(period_for(seconds(20)), PERIOD);
        assert_eq!(period_for(seconds(3600)), PERIOD);
        assert_eq!(period_for(seconds(2)), Duration::from_millis(500));
        assert_eq!(period_for(Duration::ZERO), SHORTEST_PERIOD);
        let all: Duration = restart_and_rejoin(PERIOD).iter().map(|(_, it)| *it).sum();
        assert_eq!(all, seconds(25));
    }
}
