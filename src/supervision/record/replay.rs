//! Plays a record through the machine again.
//!
//! Every entry comes at its own moment. Results that were only counted come as early as the rhythm of their probe
//! allows, which is never later than they really came, because a real wake-up is never before its deadline. They
//! change nothing that is reported, so neither does their moment.

use std::collections::VecDeque;
use std::fmt;

use serde::Serialize;

use super::recorder::{about_probes, reports};
use super::{Entry, What};
use crate::identity::Run;
use crate::supervision::machine::Machine;
use crate::supervision::vocabulary::{Effect, Event, ProbeKind, ProbeNumber, ProbeOutcome, Report};
use crate::time::Monotonic;

/// The most counted results of one record: years of the quickest probe.
const MOST_COUNTED: u64 = 100_000_000;

/// What came of playing a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// What the machine reported, in order.
    pub told: Vec<Told>,
    /// Where that is not what the record says was reported. Empty for a sound record.
    pub differences: Vec<Difference>,
    /// Lines that could not be read: a full disk or a killed worker cut them short, or they are of another version.
    /// What followed up to the next state was left out.
    pub unread: usize,
    /// When the replica began.
    pub began: Monotonic,
}

/// One report, as a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// When, in milliseconds of the host's monotonic clock.
    pub at: Monotonic,
    /// The newest start then.
    pub run: Run,
    /// What.
    pub report: Report,
}

/// One entry whose reports were others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// When.
    pub at: Monotonic,
    /// What the record says.
    pub recorded: Vec<Report>,
    /// What the machine said now.
    pub replayed: Vec<Report>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |reports: &[Report]| match reports {
            [] => "nothing".to_owned(),
            some => {
                let words: Vec<_> = some.iter().map(ToString::to_string).collect();
                words.join(", ")
            }
        };
        let (recorded, replayed) = (words(&self.recorded), words(&self.replayed));
        let at = self.at.as_millis();
        write!(f, "at {at} ms: recorded {recorded}; replayed {replayed}")
    }
}

/// Why a record cannot be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is nothing to begin with.
    #[error(
        "no line holds the machine's state, with which a record begins; it is empty, was changed, or is of another version"
    )]
    NoState,
    /// More results are counted than any real run has in its record.
    #[error("line {line}: more than {MOST_COUNTED} results are counted; the record was changed")]
    TooMany {
        /// The line, from 1.
        line: usize,
    },
    /// A result is told of a probe that the machine would not have begun by then.
    #[error(
        "line {line}: the {kind} probe {probe} was not begun by then; the record is of another version or was changed"
    )]
    NotBegun {
        /// The line, from 1.
        line: usize,
        /// Which kind.
        kind: ProbeKind,
        /// Which probe; 0: one that was only counted.
        probe: u32,
    },
}

/// Plays the text of a record.
///
/// Cost: proportional to its events and probes.
///
/// # Errors
///
/// [`ReplayError`].
pub fn replay(text: &str) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed {
        told: Vec::new(),
        differences: Vec::new(),
        unread: 0,
        began: Monotonic::default(),
    };
    let unread = play(text, |step| {
        if let What::State(start) = &step.entry.what {
            replayed.began = start.began;
        }
        let now = reports(step.effects);
        let told = now.iter().map(|report| Told {
            at: step.entry.at,
            run: step.after.run(),
            report: report.clone(),
        });
        replayed.told.extend(told);
        if now != step.entry.reports {
            replayed.differences.push(Difference {
                at: step.entry.at,
                recorded: step.entry.reports.clone(),
                replayed: now,
            });
        }
    })?;
    replayed.unread = unread;
    Ok(replayed)
}

/// One entry that was played.
pub(super) struct Step<'a> {
    pub(super) entry: &'a Entry,
    /// The machine just before; not yet there before the first state.
    pub(super) before: Option<&'a Machine>,
    pub(super) after: &'a Machine,
    pub(super) effects: &'a [Effect],
}

/// Plays a record and shows each entry; how many lines could not be read.
pub(super) fn play(text: &str, mut show: impl FnMut(&Step<'_>)) -> Result<usize, ReplayError> {
    let mut player: Option<Player> = None;
    // After a line that cannot be read nothing is known until the next state.
    let mut lost = false;
    let mut begun = false;
    let mut unread = 0;
    let mut counted = 0;
    for (place, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let Ok(entry) = serde_json::from_str::<Entry>(line) else {
            unread += 1;
            lost = true;
            continue;
        };
        if let What::Probes { count, .. } = entry.what {
            counted += u64::from(count);
            if counted > MOST_COUNTED {
                return Err(ReplayError::TooMany { line: place + 1 });
            }
        }
        let before = player.as_ref().map(|player| player.machine.clone());
        let mut effects = Vec::new();
        if let What::State(start) = &entry.what {
            player = Some(Player::new(start.machine.clone(), entry.at));
            (lost, begun) = (false, true);
        } else if lost {
            continue;
        } else if let Some(player) = &mut player {
            let line = place + 1;
            effects = player
                .take(&entry)
                .map_err(|(kind, probe)| ReplayError::NotBegun { line, kind, probe })?;
        } else {
            return Err(ReplayError::NoState);
        }
        if let Some(player) = &player {
            show(&Step {
                entry: &entry,
                before: before.as_ref(),
                after: &player.machine,
                effects: &effects,
            });
        }
    }
    if begun {
        Ok(unread)
    } else {
        Err(ReplayError::NoState)
    }
}

/// A machine that is driven by a record.
struct Player {
    machine: Machine,
    /// When the newest probe of each kind was begun.
    begun: [Monotonic; 3],
    /// Counted results that have not been handed over, by kind.
    counted: [VecDeque<(ProbeOutcome, u32)>; 3],
}

const KINDS: [ProbeKind; 3] = [
    ProbeKind::Startup,
    ProbeKind::Liveness,
    ProbeKind::Readiness,
];

/// A probe that the machine did not begin.
type NotBegun = (ProbeKind, u32);

impl Player {
    fn new(machine: Machine, now: Monotonic) -> Self {
        Self {
            machine,
            begun: [now; 3],
            counted: Default::default(),
        }
    }

    fn take(&mut self, entry: &Entry) -> Result<Vec<Effect>, NotBegun> {
        let mut effects = Vec::new();
        match &entry.what {
            What::State(_) => {}
            What::Probes {
                kind,
                outcome,
                count,
                ..
            } => self.counted[*kind as usize].push_back((*outcome, *count)),
            What::Event(event) => {
                self.catch_up(entry.at, &mut effects)?;
                let mut event = event.clone();
                if let Event::ProbeResult {
                    run, kind, probe, ..
                } = &mut event
                    && *run == self.machine.run()
                {
                    // Only a result that was waited for is recorded, so it is of the probe in flight; how many were
                    // begun and forgotten before it does not matter.
                    *probe = self
                        .begin(*kind, entry.at, &mut effects)
                        .ok_or((*kind, probe.0))?;
                }
                self.machine.handle(entry.at, event, &mut effects);
            }
            What::Deadlines => {
                self.catch_up(entry.at, &mut effects)?;
                self.on_deadline(entry.at, &mut effects);
            }
        }
        effects.retain(|effect| !about_probes(effect));
        Ok(effects)
    }

    /// Begins what the real machine had begun before `until`, and hands over every counted result. Deadlines of
    /// another kind have entries of their own, at their own moments.
    fn catch_up(&mut self, until: Monotonic, effects: &mut Vec<Effect>) -> Result<(), NotBegun> {
        loop {
            let waits = KINDS
                .into_iter()
                .filter(|kind| !self.counted[*kind as usize].is_empty());
            let waits: Vec<_> = waits.collect();
            let ready = waits.iter().find_map(|kind| {
                let (probe, in_flight) = self.machine.newest_probe(*kind)?;
                in_flight.then_some((*kind, probe))
            });
            if let Some((kind, probe)) = ready {
                self.hand_over_one(kind, probe, effects);
                continue;
            }
            match (self.machine.next_probe(), waits.first()) {
                (Some(due), waits) if due < until || due == until && waits.is_some() => {
                    self.on_deadline(due, effects);
                }
                (_, Some(kind)) => return Err((*kind, 0)),
                (_, None) => return Ok(()),
            }
        }
    }

    fn hand_over_one(&mut self, kind: ProbeKind, probe: ProbeNumber, effects: &mut Vec<Effect>) {
        let counted = &mut self.counted[kind as usize];
        let Some((outcome, count)) = counted.front_mut() else {
            return;
        };
        let event = Event::ProbeResult {
            run: self.machine.run(),
            kind,
            probe,
            outcome: *outcome,
        };
        *count = count.saturating_sub(1);
        if *count == 0 {
            counted.pop_front();
        }
        self.machine
            .handle(self.begun[kind as usize], event, effects);
    }

    /// The probe in flight of this kind, begun by `until`.
    fn begin(
        &mut self,
        kind: ProbeKind,
        until: Monotonic,
        effects: &mut Vec<Effect>,
    ) -> Option<ProbeNumber> {
        loop {
            let (newest, in_flight) = self.machine.newest_probe(kind)?;
            if in_flight {
                return Some(newest);
            }
            let due = self.machine.next_probe().filter(|due| *due <= until)?;
            self.on_deadline(due, effects);
        }
    }

    fn on_deadline(&mut self, now: Monotonic, effects: &mut Vec<Effect>) {
        let from = effects.len();
        self.machine.on_deadline(now, effects);
        for effect in &effects[from..] {
            if let Effect::Probe { kind, .. } = effect {
                self.begun[*kind as usize] = now;
            }
        }
    }
}
