//! One host of the model: what its agent keeps and what really runs there, whether or not the controller hears of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::identity::{HostName, Run, ServiceId};
use crate::port_pool::PortGrant;
use crate::residency::{Action, Life, ReplicaName, Resident, Residents, Told, Want, WantedSet};
use crate::supervision::{Final, State, Status};

use super::super::rig::{facts, foreign, starting};
use super::super::{Desired, HostFacts, ReplicaReport};

/// A machine with its agent and workers. Workers never die here: the agent's own tests cover that.
pub(super) struct Machine {
    pub(super) name: HostName,
    boot: u32,
    /// Whether what it says arrives, and what it is told.
    pub(super) linked: bool,
    /// Whether it ever told anything.
    pub(super) joined: bool,
    /// Its agent has told nothing since the boot, and does nothing before.
    pub(super) booted: bool,
    /// Somebody else's listener.
    pub(super) stranger: Option<u16>,
    pub(super) residents: Residents,
    grants: BTreeMap<ReplicaName, (ServiceId, PortGrant)>,
    /// What ran here when the controller gave the host up, or may have.
    pub(super) forsaken: BTreeSet<ReplicaName>,
    /// The controller's wall clock when it last heard of it, or began to wait.
    pub(super) heard_ms: u64,
}

impl Machine {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.parse().unwrap(),
            boot: 0,
            linked: true,
            joined: false,
            booted: false,
            stranger: None,
            residents: Residents::new(),
            grants: BTreeMap::new(),
            forsaken: BTreeSet::new(),
            heard_ms: 0,
        }
    }

    /// Everything that may have a process.
    pub(super) fn living(&self) -> impl Iterator<Item = (&ReplicaName, &PortGrant)> {
        let living = self.residents.iter().filter(|(_, it)| lives(it));
        living.map(|(name, _)| (name, &self.grants[name].1))
    }

    /// The power goes and comes back: nothing of before runs.
    pub(super) fn boot(&mut self) {
        self.boot += 1;
        self.booted = true;
        self.residents.clear();
        self.grants.clear();
        self.forsaken.clear();
    }

    /// All that runs here may be taken for lost.
    pub(super) fn forsake(&mut self) {
        let living: Vec<_> = self.living().map(|(name, _)| name.clone()).collect();
        self.forsaken.extend(living);
    }

    /// The controller is another one: whatever it was told may be forgotten.
    pub(super) fn told_nobody(&mut self) {
        for resident in self.residents.values_mut() {
            resident.reported = false;
        }
    }

    /// What the agent says of the host.
    pub(super) fn report(&self, full: bool) -> HostFacts {
        let known = self.residents.iter();
        let known = known.filter(|(_, it)| it.life != Life::Ended);
        HostFacts {
            boot_id: format!("boot-{}", self.boot),
            dynamic: "20000-20007".parse().unwrap(),
            foreign: self
                .stranger
                .map(|port| foreign(port, 1, "nc"))
                .into_iter()
                .collect(),
            replicas: known
                .filter_map(|(name, it)| self.status_report(name, it.status.clone()?))
                .collect(),
            full,
            ..facts(self.name.as_str())
        }
    }

    /// The newest status of a resident, as its worker tells it.
    pub(super) fn tells(&self, name: &ReplicaName) -> Option<ReplicaReport> {
        self.status_report(name, self.residents.get(name)?.status.clone()?)
    }

    fn status_report(&self, name: &ReplicaName, status: Status) -> Option<ReplicaReport> {
        self.grants.get(name).map(|(service, grant)| ReplicaReport {
            host: self.name.clone(),
            service: name.service.clone(),
            index: name.index,
            incarnation: name.incarnation,
            status,
            service_id: Some(*service),
            grant: Some(grant.clone()),
        })
    }

    /// A worker's next status.
    pub(super) fn becomes(&mut self, name: &ReplicaName, change: impl FnOnce(&mut Status)) {
        let resident = self.residents.get_mut(name);
        let status = resident.and_then(|it| it.status.as_mut());
        let Some(status) = status.filter(|it| !matches!(it.state, State::Final(_))) else {
            return;
        };
        status.seq += 1;
        change(status);
    }

    /// Does what follows from the wanted set, except that stops take their time: [`Machine::obey`]. Gives what the
    /// agent reports and what it began.
    pub(super) fn act(&mut self, wanted: &[Desired]) -> (Vec<ReplicaReport>, Vec<ReplicaName>) {
        let told = |it: &Desired| Told {
            want: it.want,
            restart_no: it.restart_no,
        };
        let set: WantedSet = wanted.iter().map(|it| (it.name(), told(it))).collect();
        let grant = |name: &ReplicaName| {
            let found = wanted.iter().find(|it| it.name() == *name);
            let found = found.expect("actions name what is wanted");
            (found.service_id, found.grant.clone())
        };
        let (mut reports, mut begun) = (Vec::new(), Vec::new());
        for action in crate::residency::difference(&self.residents, Some(&set)) {
            match action {
                Action::Start { name } => {
                    let order = wanted.iter().find(|it| it.name() == name);
                    let known = order.and_then(|it| it.last_status.as_ref());
                    if known.is_some_and(|it| matches!(it.state, State::Final(_))) {
                        // It ended here, and the folder is gone with its logs.
                        continue;
                    }
                    self.grants.insert(name.clone(), grant(&name));
                    let status = known.cloned().unwrap_or_else(starting);
                    self.residents
                        .insert(name.clone(), resident(status, set.get(&name)));
                    begun.push(name);
                }
                Action::NeverBegun { name } => {
                    self.grants.insert(name.clone(), grant(&name));
                    let status = Status {
                        state: State::Final(Final::Stopped),
                        seq: 1_000_000,
                        ..starting()
                    };
                    let never = Resident {
                        life: Life::Orphaned,
                        ..resident(status, None)
                    };
                    self.residents.insert(name, never);
                }
                Action::Tell { name, told } => {
                    let it = self.residents.get_mut(&name).expect("it lives here");
                    it.told = Some(told);
                    if told.want == Want::Forget {
                        assert!(it.is_final(), "{name} runs and is to be forgotten");
                        it.life = Life::Ended;
                    }
                }
                Action::Ask { name } | Action::Report { name } => {
                    reports.extend(self.tells(&name));
                    let it = self.residents.get_mut(&name).expect("it lives here");
                    it.reported = it.is_final();
                }
                Action::End { name } => {
                    let it = self.residents.get_mut(&name).expect("it lives here");
                    assert!(
                        it.is_final(),
                        "{name} runs and is to be ended without a stop"
                    );
                    it.life = Life::Ended;
                }
                Action::Remove { name } => {
                    self.residents.remove(&name);
                    self.grants.remove(&name);
                }
                Action::TakeOver { name, .. } => panic!("no worker of {name} died"),
            }
        }
        (reports, begun)
    }

    /// Everything that was told to stop has stopped.
    pub(super) fn obey(&mut self) -> Vec<ReplicaName> {
        let stops = |it: &Resident| lives(it) && is_told_to_stop(it);
        let stopping: Vec<ReplicaName> = self
            .residents
            .iter()
            .filter(|(_, it)| stops(it))
            .map(|(name, _)| name.clone())
            .collect();
        for name in &stopping {
            self.becomes(name, |status| {
                status.ready = false;
                status.state = State::Final(Final::Stopped);
            });
        }
        stopping
    }

    pub(super) fn is_stopping(&self, name: &ReplicaName) -> bool {
        self.residents.get(name).is_some_and(is_told_to_stop)
    }
}

/// Whether it has a process. A worker whose service ended stays a while to tell it.
pub(super) fn lives(resident: &Resident) -> bool {
    resident.may_live() && !resident.is_final()
}

fn is_told_to_stop(resident: &Resident) -> bool {
    resident.told.is_some_and(|told| told.want != Want::Run)
}

fn resident(status: Status, told: Option<&Told>) -> Resident {
    Resident {
        life: Life::Watched,
        told: told.copied(),
        restart_no: told.map_or(0, |told| told.restart_no),
        status: Some(Status {
            run: Run(1),
            ..status
        }),
        reported: false,
    }
}
