//! What runs reached of what they could reach, and what they never did.

use std::collections::BTreeMap;
use std::fmt;

use super::super::host::EVENTS;
use super::words;

/// How often each thing was reached, by kind. Merged over runs in any order, the same comes out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    reached: BTreeMap<Kind, BTreeMap<&'static str, u64>>,
    /// State before, what happened, state after.
    transitions: BTreeMap<(&'static str, &'static str, &'static str), u64>,
}

/// The kinds of things that a run can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// What was done to the cluster.
    Act,
    /// What the network did to messages.
    Message,
    /// What was asked of the controller.
    Question,
    /// Where a replica stood on its host.
    State,
    /// What happened to a replica on its host.
    Event,
    /// What a replica's machine told.
    Report,
    /// How replicas stood as people read it.
    Replica,
    /// How hosts stood as people read it.
    Host,
    /// How endpoints stood.
    Endpoint,
    /// Why replicas had no place.
    Cause,
    /// Why orders were refused.
    Refusal,
    /// Promises that something was held against.
    Looked,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Act,
        Self::Message,
        Self::Question,
        Self::State,
        Self::Event,
        Self::Report,
        Self::Replica,
        Self::Host,
        Self::Endpoint,
        Self::Cause,
        Self::Refusal,
        Self::Looked,
    ];

    const fn title(self) -> &'static str {
        match self {
            Self::Act => "acts",
            Self::Message => "messages",
            Self::Question => "questions",
            Self::State => "states of runs",
            Self::Event => "what happens to runs",
            Self::Report => "reports",
            Self::Replica => "states of replicas",
            Self::Host => "states of hosts",
            Self::Endpoint => "states of endpoints",
            Self::Cause => "causes of waiting",
            Self::Refusal => "refusals",
            Self::Looked => "looks",
        }
    }

    /// Everything of this kind that there is.
    const fn all(self) -> &'static [&'static str] {
        match self {
            Self::Act => words::ACTS,
            Self::Message => words::MESSAGES,
            Self::Question => words::QUESTIONS,
            Self::State => words::STATES,
            Self::Event => EVENTS,
            Self::Report => words::REPORTS,
            Self::Replica => words::REPLICAS,
            Self::Host => words::HOSTS,
            Self::Endpoint => words::ENDPOINTS,
            Self::Cause => words::CAUSES,
            Self::Refusal => words::REFUSALS,
            Self::Looked => words::LOOKS,
        }
    }
}

impl Coverage {
    /// It was reached once more.
    pub(crate) fn reach(&mut self, kind: Kind, what: &'static str) {
        self.reach_times(kind, what, 1);
    }

    /// It was reached so often.
    pub(crate) fn reach_times(&mut self, kind: Kind, what: &'static str, times: u64) {
        *self
            .reached
            .entry(kind)
            .or_default()
            .entry(what)
            .or_default() += times;
    }

    /// A run went from one state to another, or stayed in it.
    pub(crate) fn pass(&mut self, from: &'static str, on: &'static str, to: &'static str) {
        self.reach(Kind::Event, on);
        self.reach(Kind::State, from);
        self.reach(Kind::State, to);
        *self.transitions.entry((from, on, to)).or_default() += 1;
    }

    /// Adds what another run reached.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (kind, all) in &other.reached {
            for (what, times) in all {
                self.reach_times(*kind, what, *times);
            }
        }
        for (transition, times) in &other.transitions {
            *self.transitions.entry(*transition).or_default() += times;
        }
    }

    /// How often it was reached.
    pub(crate) fn times(&self, kind: Kind, what: &str) -> u64 {
        let all = self.reached.get(&kind);
        all.and_then(|all| all.get(what)).copied().unwrap_or(0)
    }

    /// What was never reached, by kind.
    pub(crate) fn never(&self) -> impl Iterator<Item = (Kind, &'static str)> {
        Kind::ALL.into_iter().flat_map(move |kind| {
            let all = kind.all().iter().copied();
            all.filter(move |what| self.times(kind, what) == 0)
                .map(move |what| (kind, what))
        })
    }

    /// Different transitions that were seen.
    pub(crate) fn transitions(&self) -> usize {
        self.transitions.len()
    }
}

impl fmt::Display for Coverage {
    /// One line for each kind with counts, then what was never reached, then the transitions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in Kind::ALL {
            let all = kind.all();
            let reached = all.iter().filter(|what| self.times(kind, what) > 0);
            writeln!(f, "{}: {} of {}", kind.title(), reached.count(), all.len())?;
            for (what, times) in self.reached.get(&kind).into_iter().flatten() {
                let known = if all.contains(what) {
                    ""
                } else {
                    " (unlisted)"
                };
                writeln!(f, "  {what:<28} {times}{known}")?;
            }
        }
        writeln!(f, "transitions: {}", self.transitions.len())?;
        for ((from, on, to), times) in &self.transitions {
            writeln!(f, "  {from} --{on}--> {to}: {times}")?;
        }
        writeln!(f, "never reached:")?;
        for kind in Kind::ALL {
            let never: Vec<&str> = (self.never())
                .filter_map(|(of, what)| (of == kind).then_some(what))
                .collect();
            if !never.is_empty() {
                writeln!(f, "  {}: {}", kind.title(), never.join(", "))?;
            }
        }
        Ok(())
    }
}
