//! What comes of a question: the controller took it, refused it, or nothing came back.

use super::super::lease;
use super::super::resident::ReplicaName;
use super::contact::wait_after;
use super::{Asked, News, Outgoing, Question, Renewal, SetHead, Stage, Uplink};
use crate::time::Now;

/// What a set is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// It is to be acted on.
    News,
    /// It is what is acted on already.
    Known,
    /// It cannot be acted on before the controller has a full report.
    Unfit,
    /// It answers no question.
    Stale,
}

impl<O: Clone + PartialEq, R: Clone> Uplink<O, R> {
    /// The controller took what was told. Without a renewal, it is no answer to a lease.
    pub fn taken(
        &mut self,
        now: Now,
        no: u64,
        renewal: Option<&Renewal<'_>>,
        out: &mut Vec<Outgoing<O, R>>,
    ) {
        let Some(asked) = self.answered(no) else {
            return;
        };
        match asked.what {
            Question::Full(names) => {
                acknowledged(names, out);
                self.told_everything(now, out);
            }
            Question::Change(observed, ends) => {
                acknowledged(ends.into_keys().collect(), out);
                self.refusals = 0;
                if let Stage::Joined { told, .. } = &mut self.stage {
                    *told = observed;
                }
            }
            Question::Shutdown => self.told_shutdown(now, out),
            Question::Lease => match renewal {
                Some(renewal) => self.renewed(now, asked.at, renewal, out),
                None => return self.failed(now, Question::Lease, out),
            },
        }
        self.go_on(now, out);
    }

    /// The controller refused what it was told or asked.
    pub fn refused(&mut self, now: Now, no: u64, out: &mut Vec<Outgoing<O, R>>) {
        if self.poll.is_asked(no) {
            out.push(Outgoing::News(News::ReportFirst));
            self.poll.unfit(now.mono);
            return self.go_on(now, out);
        }
        let Some(asked) = self.answered(no) else {
            return;
        };
        match asked.what {
            // One that does not know the word: what ends here is told all the same.
            Question::Shutdown => {
                out.push(Outgoing::News(News::ShutdownRefused));
                self.told_shutdown(now, out);
                self.go_on(now, out);
            }
            Question::Lease if self.instance().is_some() => {
                out.push(Outgoing::News(News::LeaseRefused));
                self.fail(now, out);
                self.leave(now.mono + self.contact.wait(self.period));
                self.go_on(now, out);
            }
            Question::Change(_, ends) => {
                if self.refusals == 0 {
                    out.push(Outgoing::News(News::ChangeRefused));
                }
                self.refusals = self.refusals.saturating_add(1);
                // It answers, and so a lease is no sign that it would take it now.
                self.change_after = now.mono + wait_after(self.refusals, lease::PERIOD);
                self.not_told(ends);
                self.go_on(now, out);
            }
            what => self.failed(now, what, out),
        }
    }

    /// Nothing came back in time, or nothing that can be read, or nobody listens.
    pub fn unanswered(&mut self, now: Now, no: u64, out: &mut Vec<Outgoing<O, R>>) {
        if self.poll.is_asked(no) {
            self.poll.unanswered(now.mono);
            return self.go_on(now, out);
        }
        if let Some(asked) = self.answered(no) {
            self.failed(now, asked.what, out);
        }
    }

    /// What came back to [`Outgoing::Wanted`]; `None`: nothing new. Whether the set is to be acted on now.
    ///
    /// `brings_more` says that there is something else in it that was not known, so that it is asked for again at once.
    pub fn wanted(
        &mut self,
        now: Now,
        no: u64,
        set: Option<&SetHead<'_>>,
        brings_more: bool,
        out: &mut Vec<Outgoing<O, R>>,
    ) -> Fitness {
        if !self.poll.is_asked(no) {
            return Fitness::Stale;
        }
        let fitness = match set {
            None => {
                self.poll.nothing_new(now.mono);
                Fitness::Known
            }
            Some(set) if set.report_first || !self.poll.is_at(set.instance) => {
                out.push(Outgoing::News(News::ReportFirst));
                self.poll.unfit(now.mono);
                Fitness::Unfit
            }
            Some(set) => match self.poll.fit(now.mono, set.revision, brings_more) {
                true => Fitness::News,
                false => Fitness::Known,
            },
        };
        self.go_on(now, out);
        fitness
    }

    /// The question that this is the answer to; it waits for none any more.
    fn answered(&mut self, no: u64) -> Option<Asked<O, R>> {
        match &mut self.stage {
            Stage::Joining { asked, .. } if asked.no == no => Some(asked.clone()),
            Stage::Joined { asked, .. } => asked.take_if(|asked| asked.no == no),
            _ => None,
        }
    }
}

fn acknowledged<O, R>(names: Vec<ReplicaName>, out: &mut Vec<Outgoing<O, R>>) {
    if !names.is_empty() {
        out.push(Outgoing::Acknowledged(names));
    }
}
