use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::identity::{Incarnation, Run};
use crate::supervision::{Final, State, Status};

fn name(incarnation: u32) -> ReplicaName {
    copy_name(0, incarnation)
}

fn copy_name(index: u32, incarnation: u32) -> ReplicaName {
    ReplicaName {
        service: "web.alice".parse().unwrap(),
        index,
        incarnation: Incarnation(incarnation),
    }
}

fn told(want: Want) -> Told {
    Told {
        want,
        restart_no: 0,
    }
}

fn status(state: State) -> Option<Status> {
    Some(Status {
        run: Run(1),
        seq: 1,
        state,
        ..Status::silent()
    })
}

fn ended_status() -> Option<Status> {
    status(State::Final(Final::Stopped))
}

fn resident(life: Life) -> Resident {
    Resident {
        life,
        told: None,
        restart_no: 0,
        status: status(State::Up),
        reported: false,
    }
}

fn watched(want: Want) -> Resident {
    Resident {
        told: Some(told(want)),
        ..resident(Life::Watched)
    }
}

fn orphan_that_ended(reported: bool) -> Resident {
    Resident {
        status: ended_status(),
        reported,
        ..resident(Life::Orphaned)
    }
}

fn act<const R: usize, const W: usize>(
    residents: [(ReplicaName, Resident); R],
    wanted: [(ReplicaName, Want); W],
) -> Vec<Action> {
    let wanted = wanted.into_iter().map(|(name, want)| (name, told(want)));
    difference(&residents.into(), Some(&wanted.collect()))
}

fn tell(incarnation: u32, want: Want) -> Action {
    Action::Tell {
        name: name(incarnation),
        told: told(want),
    }
}

fn take_over(incarnation: u32, want: Want) -> Action {
    Action::TakeOver {
        name: name(incarnation),
        told: Some(told(want)),
    }
}

#[test]
fn a_wanted_replica_that_does_not_live_here_is_started() {
    assert_eq!(
        act([], [(name(0), Want::Run)]),
        [Action::Start { name: name(0) }]
    );
}

#[test]
fn a_replica_that_runs_as_wanted_is_left_alone() {
    assert_eq!(
        act([(name(0), watched(Want::Run))], [(name(0), Want::Run)]),
        []
    );
}

#[test]
fn an_adopted_worker_is_told_what_is_wanted_once_more() {
    // P20: what it was told before is not known; being told twice is harmless.
    assert_eq!(
        act([(name(0), resident(Life::Watched))], [(name(0), Want::Run)]),
        [tell(0, Want::Run)]
    );
}

#[test]
fn a_users_restart_is_told_once() {
    let wanted = Told {
        want: Want::Run,
        restart_no: 3,
    };
    let residents = |told| {
        [(
            name(0),
            Resident {
                told,
                ..watched(Want::Run)
            },
        )]
        .into()
    };
    let set = [(name(0), wanted)].into();
    let actions = difference(&residents(Some(told(Want::Run))), Some(&set));
    assert_eq!(
        actions,
        [Action::Tell {
            name: name(0),
            told: wanted
        }]
    );
    assert_eq!(difference(&residents(Some(wanted)), Some(&set)), []);
}

#[test]
fn a_replica_that_the_wanted_set_does_not_name_is_never_stopped() {
    assert_eq!(act([(name(0), watched(Want::Run))], []), []);
    assert_eq!(act([(name(0), resident(Life::Watched))], []), []);
    assert_eq!(
        act([(name(0), resident(Life::Orphaned))], []),
        [Action::TakeOver {
            name: name(0),
            told: None
        }]
    );
}

#[test]
fn a_dead_worker_of_this_boot_is_started_again_even_without_a_controller() {
    let residents: Residents = [
        (name(0), resident(Life::Orphaned)),
        (copy_name(1, 0), watched(Want::Run)),
        (copy_name(2, 0), orphan_that_ended(false)),
        (copy_name(3, 0), resident(Life::Rebooted)),
    ]
    .into();
    assert_eq!(
        difference(&residents, None),
        [Action::TakeOver {
            name: name(0),
            told: None
        }]
    );
}

#[test]
fn what_an_earlier_boot_left_is_marked_as_ended_and_not_adopted() {
    assert_eq!(
        act(
            [(name(0), resident(Life::Rebooted))],
            [(name(0), Want::Run)]
        ),
        [Action::End { name: name(0) }]
    );
}

#[test]
fn an_older_incarnation_is_stopped_before_the_newer_one_starts() {
    let run = || [(name(1), Want::Run)];
    assert_eq!(
        act([(name(0), watched(Want::Run))], run()),
        [tell(0, Want::Stop)]
    );
    assert_eq!(
        act([(name(0), watched(Want::Stop))], run()),
        [Action::Ask { name: name(0) }]
    );
    assert_eq!(
        act([(name(0), resident(Life::Orphaned))], run()),
        [take_over(0, Want::Stop)]
    );
    let ended = |reported| Resident {
        status: ended_status(),
        reported,
        ..watched(Want::Stop)
    };
    assert_eq!(
        act([(name(0), ended(false))], run()),
        [Action::Report { name: name(0) }]
    );
    assert_eq!(
        act([(name(0), ended(true))], run()),
        [tell(0, Want::Forget)]
    );
    assert_eq!(
        act([(name(0), orphan_that_ended(true))], run()),
        [
            Action::End { name: name(0) },
            Action::Start { name: name(1) }
        ]
    );
}

#[test]
fn an_older_incarnation_that_the_controller_stops_itself_is_waited_for() {
    assert_eq!(
        act(
            [(name(0), watched(Want::Stop))],
            [(name(0), Want::Stop), (name(1), Want::Run)]
        ),
        []
    );
}

#[test]
fn of_two_incarnations_that_shall_run_only_the_newer_starts() {
    let both = || [(name(0), Want::Run), (name(1), Want::Run)];
    assert_eq!(act([], both()), [Action::Start { name: name(1) }]);
    assert_eq!(
        act([(name(0), watched(Want::Run))], both()),
        [tell(0, Want::Stop)]
    );
}

#[test]
fn nothing_older_starts_beside_a_newer_incarnation() {
    // A restored controller may want what was replaced long ago.
    assert_eq!(
        act([(name(1), watched(Want::Run))], [(name(0), Want::Run)]),
        []
    );
}

#[test]
fn an_end_that_no_worker_can_tell_is_reported_until_it_is_acknowledged() {
    let wanted = || [(name(0), Want::Run)];
    assert_eq!(
        act([(name(0), orphan_that_ended(false))], wanted()),
        [Action::Report { name: name(0) }]
    );
    assert_eq!(act([(name(0), orphan_that_ended(true))], wanted()), []);
}

#[test]
fn an_end_that_a_controller_lost_is_told_again_and_only_while_it_waits_for_it() {
    let ended = |reported| Resident {
        status: ended_status(),
        reported,
        ..resident(Life::Ended)
    };
    let report = Action::Report { name: name(0) };
    for (reported, want, expected) in [
        (false, Want::Run, vec![report.clone()]),
        (false, Want::Stop, vec![report]),
        (false, Want::Forget, vec![]),
        (true, Want::Run, vec![]),
    ] {
        assert_eq!(
            act([(name(0), ended(reported))], [(name(0), want)]),
            expected
        );
    }
    assert_eq!(act([(name(0), ended(false))], []), []);
    // Without a status there is no end to tell.
    let bare = Resident {
        status: None,
        ..ended(false)
    };
    assert_eq!(act([(name(0), bare)], [(name(0), Want::Stop)]), []);
}

#[test]
fn a_stop_before_the_beginning_is_reported_as_an_end() {
    assert_eq!(
        act([], [(name(0), Want::Stop)]),
        [Action::NeverBegun { name: name(0) }]
    );
}

#[test]
fn a_forgotten_replica_keeps_its_logs_and_only_the_newest_ones() {
    let ended = || Resident {
        status: ended_status(),
        ..resident(Life::Ended)
    };
    assert_eq!(
        act(
            [(name(0), orphan_that_ended(true))],
            [(name(0), Want::Forget)]
        ),
        [Action::End { name: name(0) }]
    );
    assert_eq!(act([(name(0), ended())], [(name(0), Want::Forget)]), []);
    assert_eq!(
        act(
            [
                (name(0), ended()),
                (name(1), ended()),
                (name(2), watched(Want::Run))
            ],
            []
        ),
        [Action::Remove { name: name(0) }]
    );
}

#[test]
fn a_service_that_may_still_run_is_stopped_before_it_is_forgotten() {
    assert_eq!(
        act(
            [(name(0), resident(Life::Orphaned))],
            [(name(0), Want::Forget)]
        ),
        [take_over(0, Want::Stop)]
    );
}

/// Something that happens between two looks at the host.
#[derive(Clone, Debug)]
enum Happening {
    Wanted(Vec<(u32, u32, Want)>),
    Silence,
    WorkerDies(usize),
    ServiceEnds(usize),
    AgentRestarts,
    Reboot,
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let want = prop_oneof![
        3 => Just(Want::Run),
        1 => Just(Want::Stop),
        1 => Just(Want::Forget)
    ];
    prop_oneof![
        4 => proptest::collection::vec((0u32..2, 0u32..4, want), 0..5).prop_map(Happening::Wanted),
        1 => Just(Happening::Silence),
        2 => any::<usize>().prop_map(Happening::WorkerDies),
        3 => any::<usize>().prop_map(Happening::ServiceEnds),
        1 => Just(Happening::AgentRestarts),
        1 => Just(Happening::Reboot),
    ]
}

/// A plain host: does what it is told, at once.
#[derive(Default)]
struct Host {
    residents: Residents,
    wanted: Option<WantedSet>,
}

impl Host {
    fn happen(&mut self, happening: Happening) {
        let watched = |residents: &Residents, pick: usize| {
            let living = residents
                .iter()
                .filter(|(_, one)| one.life == Life::Watched);
            let names: Vec<_> = living.map(|(name, _)| name.clone()).collect();
            (!names.is_empty()).then(|| names[pick % names.len()].clone())
        };
        match happening {
            Happening::Wanted(set) => {
                let set = set.into_iter();
                let set = set.map(|(index, inc, want)| (copy_name(index, inc), told(want)));
                self.wanted = Some(set.collect());
            }
            Happening::Silence => {}
            Happening::WorkerDies(pick) => {
                if let Some(name) = watched(&self.residents, pick) {
                    self.resident(&name).life = Life::Orphaned;
                }
            }
            Happening::ServiceEnds(pick) => {
                if let Some(name) = watched(&self.residents, pick) {
                    self.resident(&name).status = ended_status();
                }
            }
            Happening::AgentRestarts => {
                self.wanted = None;
                for resident in self.residents.values_mut() {
                    resident.told = None;
                    resident.reported = false;
                }
            }
            Happening::Reboot => {
                for resident in self.residents.values_mut() {
                    if resident.life != Life::Ended {
                        resident.life = Life::Rebooted;
                    }
                }
            }
        }
    }

    fn resident(&mut self, name: &ReplicaName) -> &mut Resident {
        self.residents.get_mut(name).unwrap()
    }

    /// Does it and holds the promises against it.
    fn act(&mut self, action: Action) {
        match action {
            Action::Start { name } => {
                let mut others = self.residents.iter();
                assert!(
                    !others.any(|(other, one)| other.copy() == name.copy() && one.may_live()),
                    "{name} was started beside another"
                );
                assert!(!self.residents.contains_key(&name), "{name} started twice");
                let fresh = Resident {
                    status: None,
                    ..watched(Want::Run)
                };
                self.residents.insert(name, fresh);
            }
            Action::TakeOver { name, told } => {
                let resident = self.resident(&name);
                assert_eq!(resident.life, Life::Orphaned, "{name} has a worker");
                assert!(!resident.is_final(), "{name} would run again after its end");
                resident.life = Life::Watched;
                resident.told = told;
            }
            Action::Tell { name, told } => {
                if told.want != Want::Run {
                    self.assert_may_stop(&name);
                }
                let resident = self.resident(&name);
                resident.told = Some(told);
                if told.want == Want::Forget && resident.is_final() {
                    resident.life = Life::Orphaned;
                }
            }
            Action::Ask { name } => assert_eq!(self.resident(&name).life, Life::Watched),
            Action::Report { name } => {
                assert!(self.resident(&name).is_final());
                self.resident(&name).reported = true;
            }
            Action::NeverBegun { name } => {
                let before = self.residents.insert(name, orphan_that_ended(false));
                assert_eq!(before, None);
            }
            Action::End { name } => {
                assert!(!self.resident(&name).may_live(), "{name} may still run");
                self.resident(&name).life = Life::Ended;
            }
            Action::Remove { name } => {
                assert_eq!(self.residents.remove(&name).unwrap().life, Life::Ended);
            }
        }
    }

    fn assert_may_stop(&self, name: &ReplicaName) {
        let wanted = self.wanted.as_ref().unwrap();
        let told_so = wanted.get(name).is_some_and(|told| told.want != Want::Run);
        let replaced = wanted.iter().any(|(other, told)| {
            other.copy() == name.copy() && other > name && told.want == Want::Run
        });
        assert!(told_so || replaced, "{name} was stopped by nobody's wish");
    }
}

proptest! {
    #[test]
    fn a_host_settles_and_never_runs_two_incarnations_it_started(
        happenings in proptest::collection::vec(any_happening(), 1..40)
    ) {
        let mut host = Host::default();
        for happening in happenings {
            host.happen(happening);
            let mut done = BTreeSet::new();
            for round in 0.. {
                let actions = difference(&host.residents, host.wanted.as_ref());
                prop_assert_eq!(&actions, &difference(&host.residents, host.wanted.as_ref()));
                let mut settled = true;
                for action in actions {
                    if matches!(action, Action::Ask { .. }) {
                        continue;
                    }
                    settled = false;
                    // Acting twice is acting once: what was done is not asked for again.
                    prop_assert!(done.insert(format!("{action:?}")), "{action:?} was asked for twice");
                    host.act(action);
                }
                if settled {
                    break;
                }
                prop_assert!(round < 10, "the host does not settle");
            }
        }
    }
}
