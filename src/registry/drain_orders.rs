//! `drain` and `undrain`: what an operator orders, and what they are told at once.

use std::fmt::Display;

use crate::identity::HostId;
use crate::rights::Caller;
use crate::time::Spelled;

use super::commands::copies;
use super::drain::{Keeps, STAYS_NAMED, spelled_deadline};
use super::drain_plan::Trial;
use super::host_verbs::host_answer;
use super::machine::Registry;
use super::records::{Drain, Phase};
use super::truth::ReplicaKey;
use super::{Answer, DrainPace};

impl Registry {
    /// Begins to take the host out of service, or gives a drain that is under way another pace.
    pub(super) fn drain_host(&mut self, by: &Caller, host: HostId, pace: DrainPace) -> Answer {
        let name = self.host_name(host);
        let now = self.now.wall;
        let until = match pace {
            DrainPace::OneByOne => None,
            DrainPace::Within(span) => Some(now.after(span)),
            DrainPace::AtOnce => Some(now),
        };
        let to_leave = self.to_leave(host);
        let left = u32::try_from(to_leave.len()).unwrap_or(u32::MAX);
        let known = self.truth.hosts.find(&host).and_then(|it| it.drain.clone());
        let is_over = |drain: &Drain| drain.until.is_some_and(|until| until <= now);
        let drain = match &known {
            // Asking for one without a deadline leaves what was ordered: who asks again wants to see how far it is.
            Some(known) if pace == DrainPace::OneByOne => known.clone(),
            Some(known) if pace == DrainPace::AtOnce && is_over(known) => known.clone(),
            Some(known) => Drain {
                until,
                ..known.clone()
            },
            None => Drain {
                by: by.user.clone(),
                since: now,
                until,
                replicas: left,
            },
        };
        let changed = known.as_ref() != Some(&drain);
        let mut notes = vec![self.drain_note(known.as_ref(), &drain, left, changed)];
        if changed {
            if let Some(host) = self.truth.hosts.change(&host) {
                host.drain = Some(drain.clone());
            }
            self.drains.note(host, Some(&drain), self.now);
            let how = match pace {
                DrainPace::OneByOne => String::new(),
                DrainPace::Within(span) => {
                    format!(", what is left in {} is stopped", Spelled(span))
                }
                DrainPace::AtOnce => ", at once".to_owned(),
            };
            self.tell_host(host, "drain", format!("drain ordered by {}{how}", by.user));
            // Who waits may have been about to come here.
            self.waits.wake();
            self.shown.hosts_truth.insert(host);
        }
        notes.extend(self.nowhere_notes(by, &to_leave, is_over(&drain)));
        notes.extend(self.attached_note(host));
        host_answer(name, changed, notes)
    }

    fn drain_note(&self, known: Option<&Drain>, drain: &Drain, left: u32, changed: bool) -> String {
        let now = self.now.wall;
        let how = match drain.until {
            Some(until) if until <= now => "stopped at once".to_owned(),
            until => {
                let paced = "moved one of each service at a time";
                match until {
                    Some(until) => format!("{paced}; {}", spelled_deadline(until, now)),
                    None => paced.to_owned(),
                }
            }
        };
        match known {
            None if left == 0 => "drained: it has no replica that could move".to_owned(),
            None => {
                let are = if left == 1 { "is" } else { "are" };
                format!("draining: {} {are} {how}", copies(left))
            }
            Some(known) => {
                let ago = Spelled(super::survey::whole_seconds(now.since(known.since)));
                let far = match left {
                    0 => "nothing is left to move".to_owned(),
                    left => format!("{left} of {} left, {how}", copies(known.replicas.max(left))),
                };
                let nothing = if changed { "" } else { "nothing to change: " };
                format!("{nothing}drained by {} {ago} ago: {far}", known.by)
            }
        }
    }

    /// What of the host does not just move, for the operator to know beforehand.
    fn nowhere_notes(&mut self, by: &Caller, there: &[ReplicaKey], at_once: bool) -> Vec<String> {
        let (mut movable, mut one_each, mut rooted) = (Vec::new(), Vec::new(), Vec::new());
        for key in there.iter().rev() {
            let found = self
                .truth
                .services
                .find(&key.0)
                .zip(self.truth.replicas.find(key));
            let Some((service, replica)) = found else {
                continue;
            };
            let name = format!("{}/{}", service.name, key.1);
            let is_stopping = matches!(&replica.phase, Phase::Placed(at) if at.stop.is_some());
            match self.keeps(*key) {
                Keeps::OnePerHost => one_each.push(name),
                _ if is_stopping => {}
                _ if !service.profile().rerunnable => rooted.push(name),
                _ => movable.push(*key),
            }
        }
        let stuck = self.with_places(&movable, Trial::Any).nowhere;
        let crowd = self.crowd();
        let until = if at_once {
            "it is stopped and waits"
        } else {
            "it stays until it has, or until the deadline"
        };
        let mut notes = Vec::new();
        for key in stuck.iter().take(STAYS_NAMED) {
            let service = self.truth.services.find(&key.0);
            let Some(name) = service.map(|it| format!("{}/{}", it.name, key.1)) else {
                continue;
            };
            let why = match self.nowhere(*key, by, &crowd) {
                Some((told, 0)) => told.sentence,
                _ => "what moves before it takes the room there is".to_owned(),
            };
            notes.push(format!("{name} has nowhere to go: {why}; {until}"));
        }
        if stuck.len() > STAYS_NAMED {
            let more = stuck.len() - STAYS_NAMED;
            notes.push(format!("{more} more have nowhere to go; {until}"));
        }
        if !rooted.is_empty() {
            let end = match (at_once, rooted.len()) {
                (true, 1) => "it ends for good",
                (true, _) => "they end for good",
                (false, 1) => "it stays until it ends, or until the deadline ends it for good",
                (false, _) => "they stay until they end, or until the deadline ends them for good",
            };
            notes.push(format!("not rerunnable: {}; {end}", named(&rooted)));
        }
        if !one_each.is_empty() {
            let text = "one runs on each host, so it ends here last and comes back with the host";
            notes.push(format!("{}: {text}", named(&one_each)));
        }
        notes
    }

    /// The jobs of other schedulers that are there.
    fn attached_note(&self, host: HostId) -> Option<String> {
        let mut jobs = Vec::new();
        for (key, replica) in self.truth.replicas.iter() {
            if let Phase::Placed(placement) = &replica.phase
                && placement.host == host
                && let Some(attached) = &placement.attached
                && let Some(service) = self.truth.services.find(&key.0)
            {
                let job = attached.job.as_ref();
                let job = job.map_or(String::new(), |job| format!(" ({job})"));
                jobs.push(format!("{}/{}{job}", service.name, key.1));
            }
        }
        (!jobs.is_empty()).then(|| {
            format!(
                "inside jobs of another scheduler, and not moved: {}; each ends with its job",
                named(&jobs)
            )
        })
    }

    /// Puts the host back into service.
    pub(super) fn undrain_host(&mut self, by: &Caller, host: HostId) -> Answer {
        let name = self.host_name(host);
        let known = self.truth.hosts.find(&host).and_then(|it| it.drain.clone());
        let Some(known) = known else {
            let mut note = "nothing to change: it is not drained".to_owned();
            if self.shuts_down(host) {
                note.push_str("; it is shutting down, and takes replicas again once it is back");
            }
            return host_answer(name, false, vec![note]);
        };
        if let Some(host) = self.truth.hosts.change(&host) {
            host.drain = None;
        }
        self.tell_host(
            host,
            "undrain",
            format!("put back into service by {}", by.user),
        );
        self.drains.note(host, None, self.now);
        self.waits.wake();
        self.shown.hosts_truth.insert(host);
        let left = self.to_leave(host);
        let stopping = |key: &&ReplicaKey| {
            let replica = self.truth.replicas.find(key);
            let phase = replica.map(|it| &it.phase);
            matches!(phase, Some(Phase::Placed(at)) if at.stop.is_some())
        };
        let stopping = left.iter().filter(stopping).count();
        let stayed = left.len() - stopping;
        let mut note = format!(
            "in service again, drained by {} before: {stayed} of {} stayed",
            known.by,
            copies(known.replicas)
        );
        if stopping > 0 {
            note.push_str(&format!(
                "; {stopping} on the way out go on, and may come back here"
            ));
        }
        host_answer(name, true, vec![note])
    }
}

/// The first of several by name, the rest counted.
fn named<T: Display>(all: &[T]) -> String {
    let first: Vec<String> = all.iter().take(STAYS_NAMED).map(T::to_string).collect();
    match all.len().saturating_sub(STAYS_NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
