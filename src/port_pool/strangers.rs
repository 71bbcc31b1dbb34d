//! Numbers on which somebody else listens: reported by the host, or met when a bind was refused.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::port::{Port, Protocol};
use crate::time::Monotonic;

use super::Side;
use super::number_set::NumberSet;
use super::span::Span;

/// Whose listener it is, as far as the host could read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stranger {
    /// Its process.
    pub pid: Option<u32>,
    /// Its command name; shared, so that a cause names it without a copy.
    pub comm: Option<Arc<str>>,
}

/// ` pid 811 (nginx)`, with a leading blank, or nothing where nothing is known.
impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pid) = self.pid {
            write!(f, " pid {pid}")?;
        }
        if let Some(comm) = &self.comm {
            write!(f, " ({comm})")?;
        }
        Ok(())
    }
}

/// One listener that is not ours, as a host reports it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Foreign {
    /// The number.
    pub port: Port,
    /// The side or sides.
    pub protocol: Protocol,
    /// Its process, where readable.
    pub pid: Option<u32>,
    /// Its command name, where readable.
    pub comm: Option<String>,
}

type Place = (Side, u16);

/// The foreign numbers of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Strangers {
    reported: BTreeMap<Place, Stranger>,
    /// Numbers on which a bind was refused, until when they rest.
    resting: BTreeMap<Place, (Monotonic, Stranger)>,
    /// Both together, by side: a search asks nothing else.
    numbers: [NumberSet; 2],
}

impl Strangers {
    /// Who listens there. A report knows more than a refused bind.
    pub(super) fn at(&self, side: Side, number: u16) -> Option<&Stranger> {
        let place = (side, number);
        self.reported
            .get(&place)
            .or_else(|| self.resting.get(&place).map(|(_, stranger)| stranger))
    }

    /// The foreign numbers of one side.
    pub(super) const fn on(&self, side: Side) -> &NumberSet {
        &self.numbers[side.index()]
    }

    /// Replaces the report. A number that the last report named and this one does not is free of
    /// strangers again, also if a refused bind made it rest. Returns what is foreign no more.
    pub(super) fn report(&mut self, list: &[Foreign]) -> Vec<Place> {
        let mut reported = BTreeMap::new();
        for foreign in list {
            for side in Side::of(foreign.protocol) {
                let stranger = Stranger {
                    pid: foreign.pid,
                    comm: foreign.comm.as_deref().map(Arc::from),
                };
                reported.insert((side, foreign.port.number()), stranger);
            }
        }
        let before = std::mem::replace(&mut self.reported, reported);
        let gone: Vec<Place> = before
            .into_keys()
            .filter(|place| !self.reported.contains_key(place))
            .collect();
        for place in &gone {
            self.resting.remove(place);
        }
        self.forget(&gone);
        for (side, number) in self.reported.keys() {
            self.numbers[side.index()].insert(Span::single(*number));
        }
        gone
    }

    /// Lets a number rest on which a bind was refused.
    pub(super) fn rest(&mut self, place: Place, until: Monotonic, stranger: Stranger) {
        let (side, number) = place;
        self.resting.insert(place, (until, stranger));
        self.numbers[side.index()].insert(Span::single(number));
    }

    /// When the first rest is over. Cost: linear in the resting numbers, which are few.
    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.resting.values().map(|(until, _)| *until).min()
    }

    /// Ends every rest that is over. Returns what is foreign no more; nothing is allocated if no
    /// rest is over.
    pub(super) fn end_due(&mut self, now: Monotonic) -> Vec<Place> {
        let due = |(until, _): &(Monotonic, Stranger)| *until <= now;
        let mut ended: Vec<Place> = self
            .resting
            .iter()
            .filter(|(_, rest)| due(rest))
            .map(|(place, _)| *place)
            .collect();
        if !ended.is_empty() {
            self.resting.retain(|_, rest| !due(rest));
        }
        ended.retain(|place| !self.reported.contains_key(place));
        self.forget(&ended);
        ended
    }

    fn forget(&mut self, places: &[Place]) {
        for (side, number) in places {
            self.numbers[side.index()].remove(Span::single(*number));
        }
    }
}
