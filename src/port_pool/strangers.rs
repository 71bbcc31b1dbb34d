//! Numbers on which somebody else listens: reported by the host, or met when a bind was refused.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::port::{Port, Protocol};
use crate::time::Monotonic;

use super::Side;

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
}

impl Strangers {
    /// Who listens there. A report knows more than a refused bind.
    pub(super) fn at(&self, side: Side, number: u16) -> Option<&Stranger> {
        let place = (side, number);
        self.reported
            .get(&place)
            .or_else(|| self.resting.get(&place).map(|(_, stranger)| stranger))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reported.is_empty() && self.resting.is_empty()
    }

    /// Every foreign number; one that is both reported and resting comes twice.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.reported.keys().chain(self.resting.keys()).copied()
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
        gone
    }

    /// Lets a number rest on which a bind was refused.
    pub(super) fn rest(&mut self, place: Place, until: Monotonic, stranger: Stranger) {
        self.resting.insert(place, (until, stranger));
    }

    /// When the first rest is over. Cost: linear in the resting numbers, which are few.
    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.resting.values().map(|(until, _)| *until).min()
    }

    /// Ends every rest that is over. Returns what is foreign no more.
    pub(super) fn end_due(&mut self, now: Monotonic) -> Vec<Place> {
        let due = |(until, _): &(Monotonic, Stranger)| *until <= now;
        let ended: Vec<Place> = self
            .resting
            .iter()
            .filter(|(_, rest)| due(rest))
            .map(|(place, _)| *place)
            .collect();
        self.resting.retain(|_, rest| !due(rest));
        ended
            .into_iter()
            .filter(|place| !self.reported.contains_key(place))
            .collect()
    }
}
