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
    /// When the first of these rests is over: asked for after every change of the host.
    first_over: Option<Monotonic>,
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
        let mut rested = false;
        for place in &gone {
            rested |= self.resting.remove(place).is_some();
        }
        if rested {
            self.find_first_over();
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
        if self.resting.insert(place, (until, stranger)).is_some() {
            self.find_first_over();
        } else {
            let first = self.first_over.map_or(until, |first| first.min(until));
            self.first_over = Some(first);
        }
        self.numbers[side.index()].insert(Span::single(number));
    }

    /// When the first rest is over. Cost: constant.
    pub(super) const fn next_deadline(&self) -> Option<Monotonic> {
        self.first_over
    }

    fn find_first_over(&mut self) {
        self.first_over = self.resting.values().map(|(until, _)| *until).min();
    }

    /// Ends every rest that is over. Returns what is foreign no more; nothing is allocated if no
    /// rest is over.
    pub(super) fn end_due(&mut self, now: Monotonic) -> Vec<Place> {
        if self.first_over.is_none_or(|first| first > now) {
            return Vec::new();
        }
        let due = |(until, _): &(Monotonic, Stranger)| *until <= now;
        let mut ended: Vec<Place> = self
            .resting
            .iter()
            .filter(|(_, rest)| due(rest))
            .map(|(place, _)| *place)
            .collect();
        self.resting.retain(|_, rest| !due(rest));
        self.find_first_over();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rest_that_is_over_is_known_whatever_comes_and_goes() {
        let at = Monotonic::from_millis;
        let mut strangers = Strangers::default();
        let rest = |strangers: &mut Strangers, number, until| {
            strangers.rest((Side::Tcp, number), at(until), Stranger::default());
            strangers.next_deadline()
        };
        assert_eq!(rest(&mut strangers, 1, 50), Some(at(50)));
        assert_eq!(rest(&mut strangers, 2, 40), Some(at(40)));
        assert_eq!(rest(&mut strangers, 3, 60), Some(at(40)));
        assert_eq!(rest(&mut strangers, 2, 70), Some(at(50)), "it rests longer");
        assert!(strangers.end_due(at(49)).is_empty());
        assert_eq!(strangers.end_due(at(50)), [(Side::Tcp, 1)]);
        assert_eq!(strangers.next_deadline(), Some(at(60)));
        let foreign = Foreign {
            port: Port::new(3).expect("a port"),
            protocol: Protocol::Tcp,
            pid: None,
            comm: None,
        };
        strangers.report(&[foreign]);
        strangers.report(&[]);
        assert_eq!(strangers.next_deadline(), Some(at(70)), "it is gone");
        assert_eq!(strangers.end_due(at(70)), [(Side::Tcp, 2)]);
        assert_eq!(strangers, Strangers::default());
    }
}
