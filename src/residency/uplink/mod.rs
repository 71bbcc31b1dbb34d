//! What this host tells the controller and asks of it: one full report at join and after each new controller, changes as
//! they happen, a lease, and one question for what is wanted.
//!
//! In the steady state only the lease is sent and the question is held. At most one message that tells is waited for,
//! beside it at most one question for the wanted set. One that was given up may still arrive, after a newer one, and so
//! reports are numbered. This module sends nothing: it says what to send and is told what came of it.

mod answer;
mod contact;
mod joining;
mod outgoing;
mod poll;

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease;
use super::resident::ReplicaName;
use crate::time::{Monotonic, Now, WallClock};

use contact::Contact;
use poll::{Due, Poll};

pub use answer::Fitness;
pub use outgoing::{News, Outgoing};

/// How long the controller may take to answer what it is told; later the driver says [`Uplink::unanswered`].
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The same for the question of what is wanted, which the controller holds up to 30 s.
pub const POLL_PATIENCE: Duration = Duration::from_secs(45);

/// What an answer says of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal<'a> {
    /// Random per start of the controller.
    pub instance: &'a str,
    /// How often it wants a sign of life; `None`: it does not say.
    pub period: Option<Duration>,
    /// How long a silence it forgives.
    pub grace: Option<Duration>,
    /// What its clock shows.
    pub now: Option<WallClock>,
}

/// What a set says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetHead<'a> {
    /// Whose it is.
    pub instance: &'a str,
    /// Which of its sets.
    pub revision: u64,
    /// Whether the controller wants a full report before it wants anything else.
    pub report_first: bool,
}

/// The machine of one agent. `O` is what the host is like, `R` what is told of one replica; of neither more is known
/// here than whether it changed and whom it concerns.
///
/// Not for several threads; each call costs no more than what it lets out.
#[derive(Clone, Debug)]
pub struct Uplink<O, R> {
    observed: O,
    /// Ends that no worker tells.
    untold: BTreeMap<ReplicaName, R>,
    stage: Stage<O, R>,
    poll: Poll,
    contact: Contact,
    period: Duration,
    skew_ms: Option<i64>,
    shutdown: Shutdown,
    /// How often in a row a change was refused, and until when it is not told again.
    refusals: u32,
    change_after: Monotonic,
    /// Somebody found that the controller misses our full report.
    rejoin: bool,
    questions: u64,
    /// The number of the newest report.
    reported: u64,
}

#[derive(Clone, Debug)]
enum Stage<O, R> {
    /// The controller has no full report; it is told everything then.
    Apart(Monotonic),
    /// What replicas last told is gathered, to go with this.
    Gathering(O),
    /// It is being told everything.
    Joining { told: O, asked: Asked<O, R> },
    /// It has the full report.
    Joined {
        instance: Box<str>,
        told: O,
        next_lease: Monotonic,
        asked: Option<Asked<O, R>>,
    },
}

#[derive(Clone, Debug)]
struct Asked<O, R> {
    no: u64,
    at: Now,
    what: Question<O, R>,
}

#[derive(Clone, Debug)]
enum Question<O, R> {
    /// Everything, with these replicas.
    Full(Vec<ReplicaName>),
    /// What the host is like now, with the ends that were untold.
    Change(O, BTreeMap<ReplicaName, R>),
    Lease,
    Shutdown,
}

/// Whether the host is being shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    Untold,
    Told,
}

impl<O: Clone + PartialEq, R: Clone> Uplink<O, R> {
    /// Of an agent that has just started; [`Self::on_deadline`] begins.
    #[must_use]
    pub fn new(observed: O) -> Self {
        Self {
            observed,
            untold: BTreeMap::new(),
            stage: Stage::Apart(Monotonic::default()),
            poll: Poll::default(),
            contact: Contact::default(),
            period: lease::PERIOD,
            skew_ms: None,
            shutdown: Shutdown::No,
            refusals: 0,
            change_after: Monotonic::default(),
            rejoin: false,
            questions: 0,
            reported: 0,
        }
    }

    /// The instance of the controller that has the full report; `None` while none has it.
    #[must_use]
    pub const fn instance(&self) -> Option<&str> {
        match &self.stage {
            Stage::Joined { instance, .. } => Some(instance),
            _ => None,
        }
    }

    /// Whether the host is being shut down; every report says so.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.shutdown != Shutdown::No
    }

    /// The host is like this now.
    pub fn observed(&mut self, now: Now, observed: O, out: &mut Vec<Outgoing<O, R>>) {
        self.observed = observed;
        self.go_on(now, out);
    }

    /// A replica ended and no worker tells it.
    pub fn ended(&mut self, now: Now, name: ReplicaName, end: R, out: &mut Vec<Outgoing<O, R>>) {
        self.untold.insert(name, end);
        self.go_on(now, out);
    }

    /// The host is being shut down. Said twice it is said once.
    pub fn close(&mut self, now: Now, out: &mut Vec<Outgoing<O, R>>) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Untold;
        }
        self.go_on(now, out);
    }

    /// What was asked for by [`Outgoing::Gather`].
    pub fn gathered(
        &mut self,
        now: Now,
        replicas: BTreeMap<ReplicaName, R>,
        out: &mut Vec<Outgoing<O, R>>,
    ) {
        let Stage::Gathering(told) = &self.stage else {
            return;
        };
        let told = told.clone();
        let names = replicas.keys().cloned().collect();
        let asked = self.question(now, Question::Full(names));
        out.push(Outgoing::Report {
            no: asked.no,
            seq: self.report_seq(now.mono),
            observed: told.clone(),
            replicas,
            full: true,
        });
        self.stage = Stage::Joining { told, asked };
    }

    /// When [`Self::on_deadline`] is to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        let telling = match &self.stage {
            Stage::Apart(until) => Some(*until),
            Stage::Gathering(_) | Stage::Joining { .. } => None,
            Stage::Joined { asked: Some(_), .. } => None,
            Stage::Joined { next_lease, .. } if self.is_news() && self.contact.is_fine() => {
                Some(self.change_after.min(*next_lease))
            }
            Stage::Joined { next_lease, .. } => Some(*next_lease),
        };
        let both = [telling, self.poll.next_deadline()];
        both.into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn on_deadline(&mut self, now: Now, out: &mut Vec<Outgoing<O, R>>) {
        self.go_on(now, out);
    }

    /// Everything that can be said now.
    fn go_on(&mut self, now: Now, out: &mut Vec<Outgoing<O, R>>) {
        match self.poll.due(now.mono) {
            Some(Due::Ask { since }) => {
                let no = self.number();
                self.poll.asked(no);
                out.push(Outgoing::Wanted { no, since });
            }
            // Else it is being told everything, after which it is asked anew.
            Some(Due::Rejoin) => self.rejoin = self.instance().is_some(),
            None => {}
        }
        if let Stage::Apart(until) = self.stage
            && until <= now.mono
        {
            self.stage = Stage::Gathering(self.observed.clone());
            out.push(Outgoing::Gather);
        }
        let Stage::Joined {
            asked: None,
            next_lease,
            ..
        } = &self.stage
        else {
            return;
        };
        if self.rejoin {
            self.leave(now.mono);
            return self.go_on(now, out);
        }
        let is_told = self.change_after <= now.mono && self.contact.is_fine() && self.is_news();
        let asked = if self.shutdown == Shutdown::Untold {
            let asked = self.question(now, Question::Shutdown);
            out.push(Outgoing::Shutdown { no: asked.no });
            asked
        } else if is_told {
            let ends = std::mem::take(&mut self.untold);
            let change = Question::Change(self.observed.clone(), ends.clone());
            let asked = self.question(now, change);
            out.push(Outgoing::Report {
                no: asked.no,
                seq: self.report_seq(now.mono),
                observed: self.observed.clone(),
                replicas: ends,
                full: false,
            });
            asked
        } else if *next_lease <= now.mono {
            self.ask_lease(now, out)
        } else {
            return;
        };
        if let Stage::Joined { asked: place, .. } = &mut self.stage {
            *place = Some(asked);
        }
    }

    /// Whether the controller that was joined is to be told of a change.
    fn is_news(&self) -> bool {
        let is_changed = match &self.stage {
            Stage::Joined { told, .. } => *told != self.observed,
            _ => false,
        };
        is_changed || !self.untold.is_empty()
    }

    /// These are still to be told, unless there is a newer word.
    fn not_told(&mut self, ends: BTreeMap<ReplicaName, R>) {
        for (name, end) in ends {
            self.untold.entry(name).or_insert(end);
        }
    }

    const fn question(&mut self, at: Now, what: Question<O, R>) -> Asked<O, R> {
        Asked {
            no: self.number(),
            at,
            what,
        }
    }

    /// The number of the next report. All agents of one boot go by one clock that is never set back: what the one before
    /// told and gave up, and what arrives late, has a smaller number without either knowing of the other.
    fn report_seq(&mut self, now: Monotonic) -> u64 {
        self.reported = now.as_millis().max(self.reported + 1);
        self.reported
    }

    const fn number(&mut self) -> u64 {
        self.questions += 1;
        self.questions
    }
}

#[cfg(test)]
#[path = "uplink_test.rs"]
mod tests;
