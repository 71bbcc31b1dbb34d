//! Stands between a driver and its machine, and says what is worth a line.

use super::{Entry, Start, What};
use crate::identity::Run;
use crate::supervision::machine::Machine;
use crate::supervision::vocabulary::{Effect, Event, ProbeKind, ProbeOutcome, Report};
use crate::time::{Monotonic, Now};

/// Hands events to a machine and makes the entries of its record.
///
/// An event, a deadline that led to something, and a probe's result that is new each make one entry. A result
/// like the one before it that changes nothing makes none and allocates nothing; it is counted, and its count
/// comes before the next entry.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    kinds: [Counted; 3],
}

/// The results of one kind of probe.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    newest: Option<(Run, ProbeOutcome)>,
    /// Of these, how many have no entry, and when the last of them came.
    count: u32,
    last: Monotonic,
}

impl Recorder {
    /// Where a record begins, or goes on after entries were lost. What was counted so far is part of the machine.
    pub fn state(&mut self, now: Now, began: Monotonic, machine: &Machine) -> Entry {
        for one in &mut self.kinds {
            one.count = 0;
        }
        Entry {
            at: now.mono,
            what: What::State(Box::new(Start {
                machine: machine.clone(),
                began,
                wall: now.wall,
            })),
            reports: Vec::new(),
            text: None,
        }
    }

    /// [`Machine::handle`], with the entries that it is worth. `text`: what a probe said.
    pub fn handle(
        &mut self,
        machine: &mut Machine,
        now: Monotonic,
        event: Event,
        text: Option<&str>,
        out: &mut Vec<Effect>,
        entries: &mut Vec<Entry>,
    ) {
        let from = out.len();
        if let Event::ProbeResult {
            run,
            kind,
            probe,
            outcome,
        } = event
        {
            let waited_for = machine.newest_probe(kind) == Some((probe, true));
            let before = machine.state();
            let taken = run == machine.run() && waited_for;
            machine.handle(now, event.clone(), out);
            if !taken {
                // It has no effect at all.
                return;
            }
            let counted = &mut self.kinds[kind as usize];
            let changes = machine.state() != before || !out[from..].iter().all(about_probes);
            if counted.newest == Some((run, outcome)) && !changes {
                counted.count = counted.count.saturating_add(1);
                counted.last = now;
                return;
            }
            self.count_down(entries);
            self.kinds[kind as usize].newest = Some((run, outcome));
        } else {
            machine.handle(now, event.clone(), out);
            self.count_down(entries);
        }
        let text = text.filter(|text| !text.is_empty());
        let text = text.map(|text| &text[..text.floor_char_boundary(Entry::LONGEST_TEXT)]);
        entries.push(Entry {
            at: now,
            what: What::Event(event),
            reports: reports(&out[from..]),
            text: text.map(str::to_owned),
        });
    }

    /// [`Machine::on_deadline`], with the entries that it is worth.
    pub fn on_deadline(
        &mut self,
        machine: &mut Machine,
        now: Monotonic,
        out: &mut Vec<Effect>,
        entries: &mut Vec<Entry>,
    ) {
        let from = out.len();
        machine.on_deadline(now, out);
        if out[from..].iter().all(about_probes) {
            return;
        }
        self.count_down(entries);
        entries.push(Entry {
            at: now,
            what: What::Deadlines,
            reports: reports(&out[from..]),
            text: None,
        });
    }

    /// The entries of what was counted, for a record that ends here.
    pub fn count_down(&mut self, entries: &mut Vec<Entry>) {
        let kinds = [
            ProbeKind::Startup,
            ProbeKind::Liveness,
            ProbeKind::Readiness,
        ];
        for kind in kinds {
            let counted = &mut self.kinds[kind as usize];
            let count = std::mem::take(&mut counted.count);
            if let (Some((run, outcome)), true) = (counted.newest, count > 0) {
                entries.push(Entry {
                    at: counted.last,
                    what: What::Probes {
                        run,
                        kind,
                        outcome,
                        count,
                    },
                    reports: Vec::new(),
                    text: None,
                });
            }
        }
    }
}

/// Effects that are no turn of events.
pub(super) const fn about_probes(effect: &Effect) -> bool {
    matches!(effect, Effect::Probe { .. } | Effect::CancelProbe { .. })
}

pub(super) fn reports(effects: &[Effect]) -> Vec<Report> {
    let report = |effect: &Effect| match effect {
        Effect::Report(report) => Some(report.clone()),
        _ => None,
    };
    effects.iter().filter_map(report).collect()
}
