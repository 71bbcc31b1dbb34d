//! Where agents and workers are heard: the desk of each host, and questions that are held while nothing is new there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use portreeve::commit::{Desk, Front, Handout, Orders, Speaker, Terms, Told, Unheard};
use portreeve::identity::HostName;
use portreeve::registry::{Silence, View};
use portreeve::time::{Monotonic, Now, WallClock};

use super::controller::ControllerOut;
use super::wire::{Asker, Lease, Question, Reply, WantedOfHost};

/// What nobody puts up here: reads of logs.
#[derive(Clone, Copy, Debug)]
enum Errand {}

/// The desks of all hosts in one life of the controller.
#[derive(Debug)]
pub(crate) struct Desks {
    instance: Arc<str>,
    front: Front,
    by_host: BTreeMap<HostName, HostDesk>,
    /// When a held question is answered whatever is new, the oldest first. One that was answered meanwhile is passed over.
    holds: VecDeque<(Monotonic, HostName, Asker)>,
}

#[derive(Debug, Default)]
struct HostDesk {
    desk: Desk<Errand>,
    /// Who waits there, and which set they have.
    held: Vec<(Option<u64>, Asker)>,
}

impl Desks {
    /// Of a controller that starts now and whose readers see `view`.
    pub(crate) fn new(instance: String, silence: &Silence, view: &View, now: Monotonic) -> Self {
        let terms = Terms::new(silence, false).expect("who makes a spec sees to the grace");
        Self {
            instance: instance.into(),
            front: Front::new(terms, view, now),
            by_host: BTreeMap::new(),
            holds: VecDeque::new(),
        }
    }

    /// Hears one question: what it tells, and who waits for the acknowledgement of that.
    pub(crate) fn hear(
        &mut self,
        now: Now,
        asker: Asker,
        question: Question,
        sent: WallClock,
        view: &View,
        out: &mut Vec<ControllerOut>,
    ) -> Option<(Asker, Told)> {
        let sent = Some(sent);
        let told = match question {
            Question::Report(facts) => {
                let host = facts.host.clone();
                self.front.report(now, &host, *facts, sent, view)
            }
            Question::Lease {
                host,
                agent,
                skew_ms,
            } => self.front.lease(now, host, Some(&agent), skew_ms, view),
            Question::Shutdown { host, agent } => {
                self.front.shutdown(now, host, Some(&agent), view)
            }
            Question::Status {
                name,
                service_id,
                status,
            } => {
                let speaker = Speaker { name, service_id };
                let host = speaker.place(view, |speaker| self.told_of(speaker));
                host.map(|host| Told::status(now.wall, host, speaker, *status, sent))
            }
            Question::Wanted { host, agent, since } => {
                match self.front.asks(now, &host, Some(&agent), view) {
                    Ok(()) => {
                        self.take(now.mono, host, since, asker, out);
                        return None;
                    }
                    Err(unheard) => Err(unheard),
                }
            }
        };
        match told {
            Ok(told) => Some((asker, told)),
            Err(unheard) => {
                out.push(ControllerOut::Reply(asker, refused(&unheard)));
                None
            }
        }
    }

    fn told_of(&self, speaker: &Speaker) -> Option<HostName> {
        let mut desks = self.by_host.iter();
        let told = desks.find(|(_, it)| it.desk.was_told_of(speaker));
        told.map(|(host, _)| host.clone())
    }

    fn take(
        &mut self,
        now: Monotonic,
        host: HostName,
        since: Option<u64>,
        asker: Asker,
        out: &mut Vec<ControllerOut>,
    ) {
        let at = self.by_host.entry(host.clone()).or_default();
        match at.desk.take(since) {
            Some(handout) => out.push(ControllerOut::Reply(
                asker,
                wanted(&self.instance, &handout),
            )),
            None => {
                at.held.push((since, asker.clone()));
                let until = now + Desk::<Errand>::HOLD;
                self.holds.push_back((until, host, asker));
            }
        }
    }

    /// This is wanted of the host from now on: whoever waits there is told.
    pub(crate) fn put_up(
        &mut self,
        host: &HostName,
        orders: Arc<Orders>,
        out: &mut Vec<ControllerOut>,
    ) {
        let at = self.by_host.entry(host.clone()).or_default();
        at.desk.put(orders);
        let instance = &self.instance;
        at.held.retain(|(since, asker)| match at.desk.take(*since) {
            Some(handout) => {
                out.push(ControllerOut::Reply(
                    asker.clone(),
                    wanted(instance, &handout),
                ));
                false
            }
            None => true,
        });
    }

    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        self.holds.front().map(|(until, ..)| *until)
    }

    /// Whoever was held long enough is told what there is.
    pub(crate) fn end_holds(&mut self, now: Monotonic, out: &mut Vec<ControllerOut>) {
        while let Some((_, host, asker)) = self.holds.pop_front_if(|(until, ..)| *until <= now) {
            let Some(at) = self.by_host.get_mut(&host) else {
                continue;
            };
            if let Some(place) = at.held.iter().position(|(_, one)| *one == asker) {
                at.held.remove(place);
                let handout = at.desk.take_all();
                out.push(ControllerOut::Reply(
                    asker,
                    wanted(&self.instance, &handout),
                ));
            }
        }
    }

    pub(crate) fn acknowledgement(&self, now: WallClock) -> Reply {
        let terms = self.front.terms();
        Reply::Lease(Lease {
            instance: Arc::clone(&self.instance),
            now,
            host_grace: terms.host_grace,
            period: terms.lease_period,
        })
    }

    /// Every connection of a held question breaks.
    pub(crate) fn break_off(self, out: &mut Vec<ControllerOut>) {
        let held = self.by_host.into_values().flat_map(|at| at.held);
        out.extend(held.map(|(_, asker)| ControllerOut::Reply(asker, Reply::Unreachable)));
    }
}

fn wanted(instance: &Arc<str>, handout: &Handout<Errand>) -> Reply {
    Reply::Wanted(Arc::new(WantedOfHost {
        instance: Arc::clone(instance),
        revision: handout.revision(),
        report_first: handout.report_first(),
        replicas: handout.shared_replicas(),
    }))
}

fn refused(unheard: &Unheard) -> Reply {
    Reply::Refused {
        status: unheard.http_status(),
        reason: unheard.to_string(),
    }
}
