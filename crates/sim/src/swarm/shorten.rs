//! From a run that broke a promise to the shortest one that can be found that breaks the same.
//!
//! Each cut is tried by a whole run: what is left counts only if the same invariant is broken. That finds no
//! smallest run, but one that people can read.

use std::sync::Arc;

use portreeve::profile::Replicas;
use portreeve::time::Monotonic;

use super::hunt::Failure;
use crate::cluster::act::{Act, HostAct, PersonAct, StrangerPort};
use crate::cluster::spec::Spec;
use crate::scenario::Scripts;

/// How a run went, as far as it is of interest here.
pub(super) struct Attempt {
    pub(super) failure: Option<Failure>,
    pub(super) steps: u64,
}

/// The shortest run found that breaks the same promise as `failure` of `spec`, and where it does.
///
/// Cost: tries runs of at most `most_steps` steps together, and the one under way.
pub(super) fn shorten(
    spec: &Spec,
    failure: &Failure,
    most_steps: u64,
    run: impl FnMut(&Spec) -> Attempt,
) -> (Spec, Failure) {
    let mut shortening = Shortening {
        spec: spec.clone(),
        failure: failure.clone(),
        left: most_steps,
        run,
    };
    // What one cut frees another may take.
    loop {
        let before = weight(&shortening.spec);
        shortening.end_early();
        shortening.drop_workloads();
        shortening.narrow_workloads();
        shortening.drop_acts();
        shortening.drop_services();
        shortening.drop_hosts();
        shortening.make_plain();
        if weight(&shortening.spec) >= before || shortening.left == 0 {
            return (shortening.spec, shortening.failure);
        }
    }
}

struct Shortening<R> {
    spec: Spec,
    failure: Failure,
    left: u64,
    run: R,
}

impl<R: FnMut(&Spec) -> Attempt> Shortening<R> {
    /// Keeps the cut if the same promise is broken still.
    fn keep_if_broken(&mut self, cut: Spec) -> bool {
        if self.left == 0 {
            return false;
        }
        let attempt = (self.run)(&cut);
        self.left = self.left.saturating_sub(attempt.steps.max(1));
        match attempt.failure {
            Some(failure) if failure.invariant == self.failure.invariant => {
                self.spec = cut;
                self.failure = failure;
                true
            }
            _ => false,
        }
    }

    /// Nothing after the break matters, unless the end itself is what is judged.
    fn end_early(&mut self) {
        let at = self.failure.at;
        if at >= self.spec.until {
            return;
        }
        let mut cut = self.spec.clone();
        cut.until = Monotonic::from_millis(at.as_millis() + 1);
        cut.acts.retain(|planned| planned.at <= at);
        self.keep_if_broken(cut);
    }

    fn drop_workloads(&mut self) {
        for place in (0..self.spec.workloads.len()).rev() {
            let mut cut = self.spec.clone();
            cut.workloads.remove(place);
            self.keep_if_broken(cut);
        }
    }

    /// A workload that needs one service only holds no other in the run.
    fn narrow_workloads(&mut self) {
        for place in 0..self.spec.workloads.len() {
            let all = self.spec.workloads[place].services.clone();
            if all.len() < 2 {
                continue;
            }
            for no in all {
                let mut cut = self.spec.clone();
                cut.workloads[place].services = no..no + 1;
                if self.keep_if_broken(cut) {
                    break;
                }
            }
        }
    }

    /// Halves first, then smaller parts, then each by itself.
    fn drop_acts(&mut self) {
        let mut part = self.spec.acts.len().div_ceil(2);
        while part > 0 {
            let mut end = self.spec.acts.len();
            while end > 0 && self.left > 0 {
                let from = end.saturating_sub(part);
                let mut cut = self.spec.clone();
                cut.acts.drain(from..end);
                self.keep_if_broken(cut);
                end = from;
            }
            part = if part == 1 { 0 } else { part / 2 };
        }
    }

    fn drop_services(&mut self) {
        for no in (0..self.spec.services.len()).rev() {
            if self.spec.services.len() > 1
                && let Some(cut) = without_service(&self.spec, no)
            {
                self.keep_if_broken(cut);
            }
        }
    }

    fn drop_hosts(&mut self) {
        for no in (0..self.spec.hosts.len()).rev() {
            if self.spec.hosts.len() > 1 {
                self.keep_if_broken(without_host(&self.spec, no));
            }
        }
    }

    fn make_plain(&mut self) {
        self.change(|spec| {
            let was = std::mem::take(&mut spec.network);
            was != spec.network
        });
        self.change(|spec| {
            let was = std::mem::take(&mut spec.disk);
            was != spec.disk
        });
        self.change(|spec| {
            let was = std::mem::take(&mut spec.config);
            was != spec.config
        });
        for no in 0..self.spec.services.len() {
            self.change(|spec| {
                let scripts = &mut spec.services[no].scripts;
                let had = scripts.len() > 1 || scripts.values().any(|it| !is_plain(it));
                scripts.clear();
                scripts.insert(None, Arc::new(Scripts::default()));
                had
            });
            for replicas in [1, 2, 3] {
                self.change(|spec| {
                    let profile = Arc::make_mut(&mut spec.services[no].profile);
                    let is_fewer = match profile.replicas {
                        Replicas::Count(count) => count > replicas,
                        Replicas::PerHost => true,
                    };
                    profile.replicas = Replicas::Count(replicas);
                    is_fewer
                });
            }
            self.change(|spec| {
                let profile = Arc::make_mut(&mut spec.services[no].profile);
                profile.startup = None;
                Arc::make_mut(&mut profile.supervision)
                    .startup
                    .take()
                    .is_some()
            });
            self.change(|spec| {
                let profile = Arc::make_mut(&mut spec.services[no].profile);
                profile.liveness = None;
                Arc::make_mut(&mut profile.supervision)
                    .liveness
                    .take()
                    .is_some()
            });
            self.change(|spec| {
                let profile = Arc::make_mut(&mut spec.services[no].profile);
                let rule = std::mem::take(&mut profile.placement);
                rule != profile.placement
            });
        }
    }

    /// Tries a change, which tells whether it is one.
    fn change(&mut self, change: impl FnOnce(&mut Spec) -> bool) {
        let mut cut = self.spec.clone();
        if change(&mut cut) {
            self.keep_if_broken(cut);
        }
    }
}

/// How much there is to read: rounds go on while it falls.
fn weight(spec: &Spec) -> u64 {
    let services = spec.services.iter().map(|service| {
        let scripts = service.scripts.values().filter(|it| !is_plain(it));
        let probes = &service.profile.supervision;
        let probes = [&probes.startup, &probes.liveness, &probes.readiness];
        5 + scripts.count() + probes.into_iter().flatten().count()
    });
    let workloads = spec.workloads.iter().map(|it| 5 + it.services.len());
    let parts =
        spec.acts.len() + workloads.sum::<usize>() + spec.hosts.len() + services.sum::<usize>();
    u64::try_from(parts).unwrap_or(u64::MAX)
}

/// Whether every run does what one does of which nothing is said.
fn is_plain(scripts: &Scripts) -> bool {
    format!("{scripts:?}") == format!("{:?}", Scripts::default())
}

/// The same without one service, if its acts can be told apart from those of others.
fn without_service(spec: &Spec, no: usize) -> Option<Spec> {
    let mut cut = spec.clone();
    cut.services.remove(no);
    cut.acts.retain_mut(|planned| {
        let mut places = services_of(&mut planned.act);
        let is_his = places.iter().any(|place| **place == no);
        for place in &mut places {
            if **place > no {
                **place -= 1;
            }
        }
        !is_his
    });
    for workload in &mut cut.workloads {
        let services = &mut workload.services;
        services.start -= usize::from(services.start > no);
        services.end -= usize::from(services.end > no);
        if services.start >= services.end {
            return None;
        }
    }
    Some(cut)
}

fn without_host(spec: &Spec, no: usize) -> Spec {
    let mut cut = spec.clone();
    cut.hosts.remove(no);
    cut.acts.retain_mut(|planned| {
        let place = match &mut planned.act {
            Act::Host(place, _) | Act::Person(PersonAct::Host(place, _)) => place,
            _ => return true,
        };
        let is_his = *place == no;
        *place -= usize::from(*place > no);
        !is_his
    });
    cut
}

/// The services that an act names.
fn services_of(act: &mut Act) -> Vec<&mut usize> {
    match act {
        Act::Person(person) => match person {
            PersonAct::Submit(service)
            | PersonAct::Replace(service, _)
            | PersonAct::Scale(service, _)
            | PersonAct::Start(service)
            | PersonAct::Stop(service)
            | PersonAct::Restart(service, _)
            | PersonAct::Kill(service, _)
            | PersonAct::Delete(service) => vec![service],
            PersonAct::Host(..) => Vec::new(),
        },
        Act::Host(_, act) => whom_of(act).into_iter().collect(),
        Act::HostOf(whom, act) => [&mut whom.service]
            .into_iter()
            .chain(whom_of(act))
            .collect(),
        _ => Vec::new(),
    }
}

/// The service of the replica that an act names.
fn whom_of(act: &mut HostAct) -> Option<&mut usize> {
    match act {
        HostAct::WorkerKilled(whom)
        | HostAct::WorkerHalted(whom)
        | HostAct::WorkerContinued(whom)
        | HostAct::WorkerDiesAfter(whom, _)
        | HostAct::ProcessEnds(whom, _)
        | HostAct::WorkerStop(whom, _)
        | HostAct::WorkerRestart(whom)
        | HostAct::StrangerTakes(StrangerPort::Of(whom))
        | HostAct::StrangerLeaves(StrangerPort::Of(whom)) => Some(&mut whom.service),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks where a worker of the last service is killed on a host after the controller was killed.
    fn run(spec: &Spec) -> Attempt {
        let mut down = false;
        for planned in &spec.acts {
            match &planned.act {
                Act::Controller(_) => down = true,
                Act::HostOf(_, HostAct::WorkerKilled(whom)) if down => {
                    let name = spec.services[whom.service].profile.name.to_string();
                    if name == "s1" {
                        return Attempt {
                            failure: Some(Failure {
                                step: 1,
                                at: planned.at,
                                invariant: "made-up",
                                detail: name,
                            }),
                            steps: 10,
                        };
                    }
                }
                _ => {}
            }
        }
        Attempt {
            failure: None,
            steps: 10,
        }
    }

    #[test]
    fn what_does_not_matter_is_cut_and_what_does_is_left() {
        let (mut found, mut failure) = (None, None);
        for seed in 0..10_000 {
            let spec = Spec::of_seed(seed);
            if spec.hosts.len() > 2 && spec.services.len() > 3 && spec.acts.len() > 40 {
                failure = run(&spec).failure;
                if failure.is_some() {
                    found = Some(spec);
                    break;
                }
            }
        }
        let (spec, failure) = (found.unwrap(), failure.unwrap());
        let (short, at) = shorten(&spec, &failure, 1_000_000, run);
        assert_eq!(at.invariant, "made-up");
        assert_eq!(short.acts.len(), 2, "{:?}", short.acts);
        assert_eq!(short.services.len(), 1);
        assert_eq!(short.services[0].profile.name.to_string(), "s1");
        assert_eq!(short.hosts.len(), 1);
        assert!(short.workloads.is_empty());
        assert!(short.until <= failure.at + std::time::Duration::from_millis(1));
        assert!(run(&short).failure.is_some());
    }

    /// Whoever draws among services drew otherwise without one of them: such a run kept services that nobody submits.
    #[test]
    fn a_workload_keeps_no_service_in_the_run_that_it_does_not_need() {
        let mut specs = (0..10_000).map(Spec::of_seed);
        let is_meant = |spec: &Spec| spec.services.len() > 3 && spec.workloads.len() == 1;
        let mut spec = specs.find(is_meant).unwrap();
        spec.acts.clear();
        let failure = Failure {
            step: 1,
            at: spec.until,
            invariant: "made-up",
            detail: String::new(),
        };
        let works_on_the_second = |spec: &Spec| {
            let among = spec.workloads.iter().flat_map(|it| it.services.clone());
            let among: Vec<_> = among
                .map(|no| spec.services[no].profile.name.to_string())
                .collect();
            // Chance is another one where there are others to draw from.
            among.iter().any(|it| it == "s1") && (among.len() == 1 || among.len() > 3)
        };
        let (short, _) = shorten(&spec, &failure, 1_000_000, |spec| Attempt {
            failure: works_on_the_second(spec).then(|| failure.clone()),
            steps: 10,
        });
        assert_eq!(short.services.len(), 1);
        assert_eq!(short.services[0].profile.name.to_string(), "s1");
        assert_eq!(short.workloads[0].services, 0..1);
    }

    #[test]
    fn it_ends_when_its_steps_are_used_up() {
        let spec = Spec::of_seed(1);
        let failure = Failure {
            step: 1,
            at: spec.until,
            invariant: "made-up",
            detail: String::new(),
        };
        let mut runs = 0;
        let always = |_: &Spec| {
            runs += 1;
            Attempt {
                failure: None,
                steps: 10,
            }
        };
        let (short, _) = shorten(&spec, &failure, 50, always);
        assert_eq!(runs, 5);
        assert_eq!(short.acts.len(), spec.acts.len());
    }
}
