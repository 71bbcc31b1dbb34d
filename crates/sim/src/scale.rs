//! Clusters of any size under a steady load, to be measured: how much a run costs, and how that grows.
//!
//! One size is one cluster and one course of it, the same on every machine. Whoever measures brings the clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portreeve::profile::Profile;
use portreeve::registry::Config;
use portreeve::rights::{Caller, Rights};
use portreeve::time::{Monotonic, WallClock};

use crate::cluster::act::{Act, HostAct, PersonAct, Planned};
use crate::cluster::check::Checks;
use crate::cluster::run::Cluster;
use crate::cluster::spec::{
    DiskSpec, HostSpec, NetworkSpec, ServiceSpec, Spec, Workload, WorkloadKind,
};

/// Replicas of each service.
const OF_A_SERVICE: usize = 50;
const MINUTE: Duration = Duration::from_secs(60);

/// How large a cluster is, and for how long it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// A multiple of 5, so that services of 50 replicas come out even.
    pub hosts: usize,
    /// At most 100, which is how many numbers a host has.
    pub replicas_of_a_host: usize,
    /// Of virtual time.
    pub minutes: u64,
}

impl Size {
    /// All replicas that are submitted.
    #[must_use]
    pub const fn replicas(self) -> usize {
        self.hosts * self.replicas_of_a_host
    }

    const fn services(self) -> usize {
        self.replicas() / OF_A_SERVICE
    }

    /// A hundred services a second are submitted from the tenth second on: more at once than may wait for the store are
    /// refused. From the second minute on 1 % of the replicas end and are there
    /// again in each minute: four of ten by a crash, four because their service is rolled to another profile, two because
    /// it is stopped, deleted or submitted. And of 10,000 hosts one a minute loses its power, for two minutes.
    fn spec(self) -> Spec {
        let begun = Duration::from_secs(10);
        let after = (0..).map(|no| begun + Duration::from_millis(10) * no);
        let submitted = (0..self.services()).zip(after).map(|(no, after)| Planned {
            at: Monotonic::default() + after,
            act: Act::Person(PersonAct::Submit(no)),
        });
        let mut acts: Vec<Planned> = submitted.collect();
        acts.extend(self.power_losses());
        acts.sort_by_key(|planned| planned.at);
        let of_replicas = self.replicas() / 100;
        let workload = |kind, per_minute: usize| Workload {
            within: Monotonic::default() + MINUTE..self.end(),
            per_minute: u32::try_from(per_minute).expect("some thousands"),
            kind,
            services: 0..self.services(),
        };
        Spec {
            seed: 1,
            until: self.end(),
            wall: WallClock::from_unix_millis(1_800_000_000_000),
            config: Config::default(),
            hosts: (0..self.hosts).map(host).collect(),
            services: (0..self.services()).map(service).collect(),
            network: NetworkSpec {
                delay: Duration::from_millis(1)..Duration::from_millis(3),
                ..NetworkSpec::default()
            },
            disk: DiskSpec {
                commit: Duration::from_millis(2)..Duration::from_millis(10),
                refusal: 0,
            },
            acts,
            workloads: vec![
                workload(WorkloadKind::Crash, of_replicas * 4 / 10),
                workload(WorkloadKind::Replace, of_replicas * 4 / 10 / OF_A_SERVICE),
                workload(WorkloadKind::Churn, of_replicas * 2 / 10 / OF_A_SERVICE),
            ],
        }
    }

    fn end(self) -> Monotonic {
        Monotonic::default() + MINUTE * u32::try_from(self.minutes).expect("some hours")
    }

    fn power_losses(self) -> Vec<Planned> {
        let between = MINUTE * 10_000 / u32::try_from(self.hosts.max(1)).expect("some millions");
        let mut acts = Vec::new();
        for no in 1_u32.. {
            let at = Monotonic::default() + MINUTE * 2 + between * no;
            if at >= self.end() {
                break;
            }
            // Far from each other, as failures are: no host twice before all were hit.
            let host = no as usize * 7_919 % self.hosts;
            let act = |at, act| Planned {
                at,
                act: Act::Host(host, act),
            };
            acts.push(act(at, HostAct::PowerLoss));
            acts.push(act(at + MINUTE * 2, HostAct::Boot));
        }
        acts
    }
}

fn host(no: usize) -> HostSpec {
    let numbers = |text: &str| text.parse().expect("it is a range");
    HostSpec {
        name: format!("n{no:05}").parse().expect("it is a name"),
        dynamic: numbers("20000-20099"),
        fixed: numbers("8000-8099"),
        reserved: portreeve::port::PortRanges::default(),
        labels: BTreeMap::new(),
    }
}

fn service(no: usize) -> ServiceSpec {
    let text = format!(
        "kind = \"service\"\nname = \"web\"\nreplicas = {OF_A_SERVICE}\ncommand = [\"./web\"]\n\n[ports]\nhttp = \"any\"\n"
    );
    let profile = Profile::from_toml(&text).expect("it is a profile").profile;
    ServiceSpec {
        profile: Arc::new(profile),
        // One each, so that nobody reaches a limit.
        owner: Caller::new(format!("user{no}"), Some(1000), Vec::new(), Rights::USER),
        scripts: BTreeMap::new(),
    }
}

/// A cluster of some size under way.
pub struct Run {
    cluster: Cluster,
    /// Where the promises are watched.
    checks: Option<Checks>,
    minute: u64,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Things that happened: messages that arrived, deadlines, acts, ends of commits.
    pub steps: u64,
    /// Messages between hosts and the controller.
    pub messages: u64,
    /// Replicas that clients are sent to.
    pub ready: u32,
    /// Replicas that there shall be.
    pub desired: u32,
}

impl Run {
    /// At its beginning; `watched`: every promise is held against what happens, which costs as much again and more.
    #[must_use]
    pub fn new(size: Size, watched: bool) -> Self {
        let cluster = Cluster::new(Arc::new(size.spec()));
        let checks = watched.then(|| Checks::new(cluster.spec()));
        Self {
            cluster,
            checks,
            minute: 0,
        }
    }

    /// The next minute of virtual time; false: there is none.
    ///
    /// # Errors
    ///
    /// The promise that was broken, in words.
    pub fn minute(&mut self) -> Result<bool, String> {
        self.minute += 1;
        let until = Monotonic::default() + MINUTE * u32::try_from(self.minute).unwrap_or(u32::MAX);
        while let Some(step) = self.cluster.step() {
            if let Some(checks) = &mut self.checks {
                let verdict = checks.after(&self.cluster, &step);
                verdict.map_err(|violation| violation.to_string())?;
            }
            if self.cluster.now() >= until {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where it stands.
    #[must_use]
    pub fn stand(&self) -> Stand {
        let services = self.cluster.controller().view().into_iter();
        let services = services.flat_map(|view| view.services.values());
        let (ready, desired) = services.fold((0, 0), |(ready, desired), service| {
            (ready + service.ready, desired + service.desired)
        });
        Stand {
            steps: self.cluster.steps(),
            messages: self.cluster.network().counts().sent,
            ready,
            desired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_measured_keeps_every_promise_and_most_of_its_replicas() {
        let size = Size {
            hosts: 50,
            replicas_of_a_host: 10,
            minutes: 4,
        };
        let mut run = Run::new(size, true);
        while run.minute().unwrap() {}
        let stand = run.stand();
        assert!(stand.desired >= 450, "{stand:?}");
        assert!(stand.ready + 60 >= stand.desired, "{stand:?}");
    }
}
