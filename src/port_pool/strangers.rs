//! Numbers on which somebody else listens: reported by the host, or met when a bind was refused.

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

/// The foreign numbers of one host. The lists are ascending by place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Strangers {
    reported: Vec<(Place, Stranger)>,
    /// Numbers on which a bind was refused, until when they rest.
    resting: Vec<(Place, (Monotonic, Stranger))>,
    /// When the first of these rests is over: asked for after every change of the host.
    first_over: Option<Monotonic>,
    /// Both together, by side: a search asks nothing else.
    numbers: [NumberSet; 2],
    /// What is foreign no more, until it is taken; room that is kept.
    ended: Vec<Place>,
}

impl Strangers {
    /// The memory beside the value itself; names of commands are shared and not counted.
    pub(super) fn bytes(&self) -> usize {
        let reported = self.reported.capacity() * size_of::<(Place, Stranger)>();
        let resting = self.resting.capacity() * size_of::<(Place, (Monotonic, Stranger))>();
        reported + resting
    }

    /// Who listens there. A report knows more than a refused bind.
    pub(super) fn at(&self, side: Side, number: u16) -> Option<&Stranger> {
        let place = (side, number);
        let reported = find(&self.reported, place).map(|at| &self.reported[at].1);
        reported.or_else(|| find(&self.resting, place).map(|at| &self.resting[at].1.1))
    }

    /// The foreign numbers of one side.
    pub(super) const fn on(&self, side: Side) -> &NumberSet {
        &self.numbers[side.index()]
    }

    /// Replaces the report. A number that the last report named and this one does not is free of
    /// strangers again, also if a refused bind made it rest. Returns what is foreign no more.
    pub(super) fn report(&mut self, list: &[Foreign]) -> Vec<Place> {
        let mut reported = Vec::with_capacity(list.len());
        // From the end, so that of several that name one number the last one is kept.
        for foreign in list.iter().rev() {
            let comm: Option<Arc<str>> = foreign.comm.as_deref().map(Arc::from);
            for side in Side::of(foreign.protocol) {
                let stranger = Stranger {
                    pid: foreign.pid,
                    comm: comm.clone(),
                };
                reported.push(((side, foreign.port.number()), stranger));
            }
        }
        reported.sort_by_key(|(place, _)| *place);
        reported.dedup_by_key(|(place, _)| *place);
        let before = std::mem::replace(&mut self.reported, reported);
        let gone: Vec<Place> = before
            .into_iter()
            .map(|(place, _)| place)
            .filter(|place| find(&self.reported, *place).is_none())
            .collect();
        let rested = self.resting.len();
        self.resting
            .retain(|(place, _)| gone.binary_search(place).is_err());
        if self.resting.len() < rested {
            self.find_first_over();
        }
        for (side, number) in &gone {
            self.numbers[side.index()].remove(Span::single(*number));
        }
        for ((side, number), _) in &self.reported {
            self.numbers[side.index()].insert(Span::single(*number));
        }
        self.make_room();
        gone
    }

    /// Lets a number rest on which a bind was refused.
    pub(super) fn rest(&mut self, place: Place, until: Monotonic, stranger: Stranger) {
        let (side, number) = place;
        match self.resting.binary_search_by_key(&place, |(of, _)| *of) {
            Ok(at) => {
                self.resting[at].1 = (until, stranger);
                self.find_first_over();
            }
            Err(at) => {
                self.resting.insert(at, (place, (until, stranger)));
                let first = self.first_over.map_or(until, |first| first.min(until));
                self.first_over = Some(first);
            }
        }
        self.numbers[side.index()].insert(Span::single(number));
        self.make_room();
    }

    /// Makes room for the end of every rest.
    fn make_room(&mut self) {
        let resting = self.resting.len();
        self.ended.reserve(resting);
        for numbers in &mut self.numbers {
            numbers.make_room(resting);
        }
    }

    /// When the first rest is over. Cost: constant.
    pub(super) const fn next_deadline(&self) -> Option<Monotonic> {
        self.first_over
    }

    fn find_first_over(&mut self) {
        let ends = self.resting.iter().map(|(_, (until, _))| *until);
        self.first_over = ends.min();
    }

    /// Ends every rest that is over. What is foreign no more is to be taken by [`Self::next_ended`].
    /// Allocates nothing once warm.
    pub(super) fn end_due(&mut self, now: Monotonic) {
        if self.first_over.is_none_or(|first| first > now) {
            return;
        }
        let Self {
            reported,
            resting,
            numbers,
            ended,
            ..
        } = self;
        resting.retain(|(place, (until, _))| {
            if *until > now {
                return true;
            }
            if find(reported, *place).is_none() {
                let (side, number) = *place;
                numbers[side.index()].remove(Span::single(number));
                ended.push(*place);
            }
            false
        });
        self.find_first_over();
    }

    /// A number that is foreign no more.
    pub(super) fn next_ended(&mut self) -> Option<Place> {
        self.ended.pop()
    }
}

/// Where the entry of a place stands.
fn find<T>(list: &[(Place, T)], place: Place) -> Option<usize> {
    list.binary_search_by_key(&place, |(of, _)| *of).ok()
}

impl Clone for Strangers {
    fn clone(&self) -> Self {
        Self {
            reported: self.reported.clone(),
            resting: self.resting.clone(),
            first_over: self.first_over,
            numbers: self.numbers.clone(),
            ended: Vec::new(),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.reported.clone_from(&source.reported);
        self.resting.clone_from(&source.resting);
        self.first_over = source.first_over;
        self.numbers.clone_from(&source.numbers);
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
        let end = |strangers: &mut Strangers, now| {
            strangers.end_due(now);
            std::iter::from_fn(|| strangers.next_ended()).collect::<Vec<_>>()
        };
        assert!(end(&mut strangers, at(49)).is_empty());
        assert_eq!(end(&mut strangers, at(50)), [(Side::Tcp, 1)]);
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
        assert_eq!(end(&mut strangers, at(70)), [(Side::Tcp, 2)]);
        assert_eq!(strangers, Strangers::default());
    }
}
