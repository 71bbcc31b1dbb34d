//! Who orders what of the controller, as commands, and what became of it.

use std::collections::BTreeMap;
use std::fmt;

use portreeve::identity::{HostName, Namespace, ServiceName};
use portreeve::profile::{Profile, Template};
use portreeve::registry::{Command, DrainPace, HostReplica, HostVerb, Submission};
use portreeve::rights::{Caller, Rights};
use portreeve::time::{Monotonic, Spelled};

use super::act::{PersonAct, ServiceNo};
use super::controller::{Outcome, PersonNo};
use super::sight::{Sight, Subject, What};
use super::spec::{ServiceSpec, Spec};

/// All people and what they wait for.
#[derive(Debug)]
pub(crate) struct People {
    services: Vec<ServiceName>,
    hosts: Vec<HostName>,
    waiting: BTreeMap<PersonNo, PersonAct>,
    next: PersonNo,
}

/// An order, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answered {
    pub(crate) person: PersonNo,
    pub(crate) act: PersonAct,
    pub(crate) outcome: Outcome,
}

impl People {
    pub(crate) fn new(spec: &Spec) -> Self {
        Self {
            services: spec.services.iter().map(service_name).collect(),
            hosts: spec.hosts.iter().map(|host| host.name.clone()).collect(),
            waiting: BTreeMap::new(),
            next: PersonNo(0),
        }
    }

    /// The name of a service of the spec.
    pub(crate) fn service(&self, no: ServiceNo) -> &ServiceName {
        &self.services[no]
    }

    /// Somebody begins to wait for what becomes of `act`: who that is, as whom, and what the controller is told.
    pub(crate) fn order(&mut self, spec: &Spec, act: &PersonAct) -> (PersonNo, Caller, Command) {
        let person = self.next;
        self.next.0 += 1;
        self.waiting.insert(person, act.clone());
        let (by, command) = match act {
            PersonAct::Host(no, verb) => {
                let host = self.hosts[*no].clone();
                let verb = verb.clone();
                (operator(), Command::Host { host, verb })
            }
            PersonAct::Submit(no) => (owner(spec, *no), self.submit(spec, *no, None)),
            PersonAct::Replace(no, generation) => {
                (owner(spec, *no), self.submit(spec, *no, Some(*generation)))
            }
            PersonAct::Scale(no, replicas) => {
                let service = self.services[*no].clone();
                let replicas = *replicas;
                (owner(spec, *no), Command::Scale { service, replicas })
            }
            PersonAct::Start(no) => {
                let service = self.services[*no].clone();
                (owner(spec, *no), Command::Start { service })
            }
            PersonAct::Stop(no) => {
                let service = self.services[*no].clone();
                (owner(spec, *no), Command::Stop { service })
            }
            PersonAct::Restart(no, index) => {
                let service = self.services[*no].clone();
                let index = *index;
                (owner(spec, *no), Command::Restart { service, index })
            }
            PersonAct::Kill(no, index) => {
                let service = self.services[*no].clone();
                let index = *index;
                (owner(spec, *no), Command::Kill { service, index })
            }
            PersonAct::Delete(no) => {
                let service = self.services[*no].clone();
                (owner(spec, *no), Command::Delete { service })
            }
        };
        (person, by, command)
    }

    /// Somebody is answered: what that was about, and what an onlooker sees of it.
    pub(crate) fn answer(
        &mut self,
        at: Monotonic,
        person: PersonNo,
        outcome: Outcome,
    ) -> Option<(Answered, Sight)> {
        let act = self.waiting.remove(&person)?;
        let of = match &act {
            PersonAct::Host(no, _) => Subject::Host(*no),
            act => act.service().map_or(Subject::Controller, |no| {
                Subject::Service(self.services[no].clone())
            }),
        };
        let sight = Sight {
            at,
            of,
            what: What::User(format!("{}: {}", Words(&act), Became(&outcome))),
        };
        let answered = Answered {
            person,
            act,
            outcome,
        };
        Some((answered, sight))
    }

    fn submit(&self, spec: &Spec, no: ServiceNo, generation: Option<u32>) -> Command {
        let mut profile = spec.services[no].profile.as_ref().clone();
        if let Some(generation) = generation {
            mark(&mut profile, generation);
        }
        Command::Submit(Submission {
            service: self.services[no].clone(),
            profile,
            source: None,
            replace: generation.is_some(),
        })
    }
}

/// Makes another profile of it, which says so in its environment.
pub(crate) fn mark(profile: &mut Profile, generation: u32) {
    let value = Template::parse(&generation.to_string());
    let value = value.expect("digits are a template of themselves");
    profile.env.insert("GENERATION".to_owned(), value);
}

/// A service's full name: in its own namespace, or its owner's.
pub(crate) fn service_name(service: &ServiceSpec) -> ServiceName {
    let profile = &service.profile;
    let own = || {
        let user: Result<Namespace, _> = service.owner.user.parse();
        user.expect("an owner of a spec has a name that is a namespace")
    };
    let namespace = profile.namespace.clone().unwrap_or_else(own);
    ServiceName::new(profile.name.clone(), namespace)
}

fn owner(spec: &Spec, no: ServiceNo) -> Caller {
    spec.services[no].owner.clone()
}

fn operator() -> Caller {
    Caller::new("root".to_owned(), Some(0), Vec::new(), Rights::ADMIN)
}

/// An order in words.
struct Words<'a>(&'a PersonAct);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            PersonAct::Submit(_) => f.write_str("submit"),
            PersonAct::Replace(_, generation) => write!(f, "replace by generation {generation}"),
            PersonAct::Scale(_, replicas) => write!(f, "scale to {replicas}"),
            PersonAct::Start(_) => f.write_str("start"),
            PersonAct::Stop(_) => f.write_str("stop"),
            PersonAct::Restart(_, None) => f.write_str("restart"),
            PersonAct::Restart(_, Some(index)) => write!(f, "restart {index}"),
            PersonAct::Kill(_, index) => write!(f, "kill {index}"),
            PersonAct::Delete(_) => f.write_str("delete"),
            PersonAct::Host(_, verb) => of_host(verb, f),
        }
    }
}

/// An order about a host, as it is typed.
fn of_host(verb: &HostVerb, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let replica = |it: &HostReplica, f: &mut fmt::Formatter<'_>| {
        write!(f, "{}/{}", it.service, it.index)?;
        let incarnation = it.incarnation.map(|it| it.0);
        incarnation.map_or(Ok(()), |it| write!(f, " incarnation {it}"))
    };
    match verb {
        HostVerb::Drain { pace } => match pace {
            DrainPace::OneByOne => f.write_str("drain"),
            DrainPace::Within(span) => write!(f, "drain within {}", Spelled(*span)),
            DrainPace::AtOnce => f.write_str("drain at once"),
        },
        HostVerb::Undrain => f.write_str("undrain"),
        HostVerb::Down { fenced: false } => f.write_str("down"),
        HostVerb::Down { fenced: true } => f.write_str("down, fenced"),
        HostVerb::Remove => f.write_str("remove"),
        HostVerb::Adopt { replica: which } => {
            f.write_str("adopt ")?;
            replica(which, f)
        }
        HostVerb::Fence { replica: None } => f.write_str("fence what is unknown"),
        HostVerb::Fence {
            replica: Some(which),
        } => {
            f.write_str("fence ")?;
            replica(which, f)
        }
    }
}

struct Became<'a>(&'a Outcome);

impl fmt::Display for Became<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Outcome::Done(answer) if !answer.changed => f.write_str("nothing to change"),
            Outcome::Done(_) => f.write_str("done"),
            Outcome::Refused(why) => write!(f, "refused: {why}"),
            Outcome::Unreachable => f.write_str("the controller is not reached"),
            Outcome::Lost => f.write_str("no answer: it may be done or not"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_about_a_host_is_told_as_it_is_typed() {
        let replica = HostReplica {
            service: "web.me".parse().unwrap(),
            index: 2,
            incarnation: Some(portreeve::identity::Incarnation(3)),
        };
        let within = DrainPace::Within(std::time::Duration::from_secs(300));
        for (verb, told) in [
            (HostVerb::Drain { pace: within }, "drain within 5m"),
            (HostVerb::Down { fenced: true }, "down, fenced"),
            (HostVerb::Fence { replica: None }, "fence what is unknown"),
            (HostVerb::Adopt { replica }, "adopt web.me/2 incarnation 3"),
        ] {
            assert_eq!(Words(&PersonAct::Host(0, verb)).to_string(), told);
        }
    }
}
