//! What arrives at the socket of a controller.

use portreeve::registry::Command;
use portreeve::rights::Caller;
use portreeve::time::WallClock;

use super::super::wire::{Asker, Question, Reply};
use super::{ControllerOut, Outcome, PersonNo};

/// A question of a host, or an order of a person.
#[derive(Debug)]
pub(super) enum Arrived {
    Question(Asker, Question, WallClock),
    Order(PersonNo, Caller, Box<Command>),
}

impl Arrived {
    pub(super) fn refused_to_connect(self) -> ControllerOut {
        match self {
            Self::Question(asker, ..) => ControllerOut::Reply(asker, Reply::Unreachable),
            Self::Order(person, ..) => ControllerOut::Answered(person, Outcome::Unreachable),
        }
    }

    pub(super) fn broken(self) -> ControllerOut {
        match self {
            Self::Question(asker, ..) => ControllerOut::Reply(asker, Reply::Unreachable),
            Self::Order(person, ..) => ControllerOut::Answered(person, Outcome::Lost),
        }
    }

    /// A person gives up waiting; an agent's own time runs out.
    pub(super) fn unanswered(self) -> Option<ControllerOut> {
        match self {
            Self::Question(..) => None,
            Self::Order(person, ..) => Some(ControllerOut::Answered(person, Outcome::Lost)),
        }
    }
}
