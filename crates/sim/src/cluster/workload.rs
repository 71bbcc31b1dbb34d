//! What people do at random: the next time, and what it is then, drawn from what they see of the cluster.

use std::time::Duration;

use portreeve::identity::ServiceName;
use portreeve::registry::View;
use portreeve::supervision::ExitStatus;
use portreeve::time::Monotonic;

use super::act::{Act, HostAct, HostNo, PersonAct, ServiceNo, Whom};
use super::chance::Chance;
use super::spec::{Workload, WorkloadKind};

/// A workload under way.
#[derive(Debug)]
pub(crate) struct Working {
    workload: Workload,
    next: Option<Monotonic>,
    /// Counts what was replaced, so that each is another profile.
    generation: u32,
    chance: Chance,
}

/// What somebody who looks sees.
pub(crate) struct Looked<'a> {
    /// `None`: the controller does not answer.
    pub(crate) view: Option<&'a View>,
    pub(crate) services: &'a dyn Fn(ServiceNo) -> &'a ServiceName,
    pub(crate) host: &'a dyn Fn(&portreeve::identity::HostName) -> Option<HostNo>,
}

const MINUTE_MS: u64 = 60_000;

impl Working {
    pub(crate) fn new(workload: Workload, chance: Chance) -> Self {
        let mut working = Self {
            next: None,
            generation: 0,
            chance,
            workload,
        };
        working.next = working.after(working.workload.within.start);
        working
    }

    pub(crate) const fn next(&self) -> Option<Monotonic> {
        self.next
    }

    /// Does what is due; `None`: there was nothing to do it to.
    pub(crate) fn act(&mut self, looked: &Looked<'_>) -> Option<Act> {
        let now = self.next?;
        self.next = self.after(now);
        let services = &self.workload.services;
        let no = services.start + self.chance.place(services.len());
        if services.is_empty() {
            return None;
        }
        let name = (looked.services)(no);
        let service = looked.view.and_then(|view| view.services.get(name));
        Some(match self.workload.kind {
            WorkloadKind::Churn => Act::Person(match service.map(|it| it.state.as_str()) {
                None => PersonAct::Submit(no),
                Some("stopped" | "ended") => PersonAct::Delete(no),
                Some(_) => PersonAct::Stop(no),
            }),
            WorkloadKind::Scale { most } => {
                let replicas = self.up_to(most);
                Act::Person(PersonAct::Scale(no, replicas))
            }
            WorkloadKind::Restart => {
                let desired = service.map_or(0, |it| it.desired);
                // One of them, or all.
                let which = self.up_to(desired);
                Act::Person(PersonAct::Restart(no, (which < desired).then_some(which)))
            }
            WorkloadKind::Replace => {
                self.generation += 1;
                Act::Person(PersonAct::Replace(no, self.generation))
            }
            WorkloadKind::Crash => {
                let replicas = &service?.replicas;
                let place = self.chance.place(replicas.len());
                let replica = (place < replicas.len()).then(|| &replicas[place])?;
                let host = (looked.host)(replica.host.as_ref()?)?;
                let whom = Whom {
                    service: no,
                    index: replica.replica,
                };
                Act::Host(host, HostAct::ProcessEnds(whom, CRASH))
            }
        })
    }

    /// A moment after `now`, on average so long that the rate is met; `None`: it is over.
    fn after(&mut self, now: Monotonic) -> Option<Monotonic> {
        if self.workload.per_minute == 0 {
            return None;
        }
        let mean = MINUTE_MS.div_ceil(u64::from(self.workload.per_minute));
        let gap = 1 + self.chance.below(2 * mean - 1);
        let next = now + Duration::from_millis(gap);
        (next < self.workload.within.end).then_some(next)
    }

    fn up_to(&mut self, most: u32) -> u32 {
        let drawn = self.chance.below(u64::from(most) + 1);
        u32::try_from(drawn).expect("a number up to a u32 is one")
    }
}

/// A segmentation fault.
const CRASH: ExitStatus = ExitStatus::Signal {
    signal: 11,
    core: false,
    oom: false,
};
