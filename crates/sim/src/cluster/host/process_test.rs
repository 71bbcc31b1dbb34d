//! Processes that nobody watches do what their script says, and keep what they listen on as long as they live.

use portreeve::port::Protocol;
use portreeve::port_pool::GrantedPort;

use super::super::agenda::{Actor, Agenda};
use super::*;

struct Stage {
    processes: Processes,
    grant: PortGrant,
    listeners: Listeners,
    agenda: Agenda<Happening>,
}

impl Stage {
    fn of(script: RunScript, pre_exec: bool) -> Self {
        let numbers = PortRange::new(port(8000), port(8001)).unwrap();
        let granted = GrantedPort {
            name: "http".parse().unwrap(),
            protocol: Protocol::Tcp,
            numbers,
        };
        Self {
            processes: Processes::new(Arc::new(Scripts::new(vec![script])), pre_exec),
            grant: PortGrant {
                ports: vec![granted],
            },
            listeners: Listeners::default(),
            agenda: Agenda::new(),
        }
    }

    fn does(&mut self, what: impl FnOnce(&mut Processes, &mut Ground<'_>)) {
        let mut later = Vec::new();
        let mut ground = Ground {
            place: Place(0),
            grant: &self.grant,
            listeners: &mut self.listeners,
            later: &mut later,
        };
        what(&mut self.processes, &mut ground);
        for (at, happening) in later {
            self.agenda
                .put(at, Actor::Machine, happening.rank(), happening);
        }
    }

    /// Everything that is heard until then, with its second.
    fn until(&mut self, end: u64) -> Vec<(u64, Heard)> {
        let mut heard = Vec::new();
        while let Some(now) = self.agenda.next().filter(|next| *next <= at(end)) {
            let happening = self.agenda.take_of(now, Actor::Machine).unwrap();
            self.does(|processes, ground| {
                let event = processes.happen(now, happening, ground);
                heard.extend(event.map(|event| (now.as_millis() / 1000, event)));
            });
        }
        heard
    }

    fn spawn(&mut self, now: u64, run: u32) {
        self.does(|processes, ground| processes.spawn(at(now), Run(run), 100 + run, ground));
    }

    fn kill(&mut self, now: u64, run: u32) {
        self.does(|processes, ground| {
            processes.kill_group(at(now), Run(run), ground);
        });
    }

    fn listens(&self, number: u16) -> bool {
        self.listeners.of(Protocol::Tcp, port(number)).is_some()
    }
}

fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

fn at(seconds: u64) -> Monotonic {
    Monotonic::from_millis(seconds * 1000)
}

const ONE: Run = Run(1);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_run_ends_as_its_script_says_and_its_group_after_it() {
    let mut stage = Stage::of(
        RunScript {
            spawn_takes: seconds(1),
            exit: Some((seconds(5), ExitStatus::Code(3))),
            leftover: Some(seconds(4)),
            leftover_listens: true,
            ..RunScript::default()
        },
        false,
    );
    stage.spawn(10, 1);
    assert!(!stage.listens(8001));
    assert_eq!(stage.until(15), [(11, Heard::Spawned(ONE, 101))]);
    assert!(stage.listens(8001));
    let ended = Heard::Exited(ONE, ExitStatus::Code(3));
    assert_eq!(stage.until(17), [(16, ended)]);
    // Its child goes on, and on listening.
    assert!(stage.listens(8001) && stage.processes.leftover_lives(at(17)));
    stage.kill(17, 1);
    assert_eq!(stage.until(19), []);
    assert_eq!(stage.until(20), [(20, Heard::GroupEmpty(ONE))]);
    assert!(!stage.listens(8001) && !stage.processes.leftover_lives(at(20)));
    stage.kill(21, 1);
    assert_eq!(stage.until(30), []);
}

#[test]
fn one_that_cannot_bind_ends_and_one_that_binds_late_or_elsewhere_does_so() {
    let script = RunScript {
        binds_after: seconds(5),
        ..RunScript::default()
    };
    let mut late = Stage::of(script.clone(), false);
    late.spawn(0, 1);
    late.until(4);
    assert!(!late.listens(8000));
    late.until(5);
    assert!(late.listens(8000));

    let mut taken = Stage::of(script, false);
    let second = Bound {
        numbers: PortRange::single(port(8001)),
        protocol: Protocol::Tcp,
    };
    taken.listeners.bind(second, Holder::Stranger).unwrap();
    taken.spawn(0, 1);
    let ended = Heard::Exited(ONE, ExitStatus::Code(1));
    assert_eq!(taken.until(9).last(), Some(&(5, ended)));
    assert!(!taken.listens(8000) && taken.listens(8001));

    for (binds, number, listens) in [
        (Binds::Beside(10), 8011, true),
        (Binds::Beside(10), 8001, false),
        (Binds::Beside(65_000), 8001, false),
        (Binds::Never, 8001, false),
    ] {
        let script = RunScript {
            binds,
            ..RunScript::default()
        };
        let mut stage = Stage::of(script, false);
        stage.spawn(0, 1);
        assert_eq!(stage.until(9), [(0, Heard::Spawned(ONE, 101))]);
        assert_eq!(stage.listens(number), listens, "{binds:?}");
    }
}

#[test]
fn the_command_before_the_first_run_runs_until_it_succeeded_once() {
    let mut stage = Stage::of(
        RunScript {
            pre_exec: Some((seconds(3), ExitStatus::Code(0))),
            ..RunScript::default()
        },
        true,
    );
    stage.spawn(0, 1);
    assert_eq!(stage.until(1), [(0, Heard::PreExecStarted(ONE))]);
    stage.kill(2, 1);
    let failed = Heard::SpawnFailed(ONE, StartFailure::PreExec(KILLED));
    assert_eq!(stage.until(9), [(2, failed)]);
    stage.spawn(10, 2);
    let spawned = |run, pid| Heard::Spawned(Run(run), pid);
    assert_eq!(stage.until(14).last(), Some(&(13, spawned(2, 102))));
    stage.kill(20, 2);
    stage.until(20);
    stage.spawn(30, 3);
    assert_eq!(stage.until(30), [(30, spawned(3, 103))]);
}

#[test]
fn what_happened_while_nobody_watched_is_told_to_the_next_worker() {
    let mut stage = Stage::of(
        RunScript {
            exit: Some((seconds(5), ExitStatus::Code(3))),
            ..RunScript::default()
        },
        false,
    );
    assert_eq!(stage.processes.adopt(at(0), ONE).0, Found::Nothing);
    stage.spawn(0, 1);
    stage.until(2);
    stage.processes.leave_alone(at(2));
    stage.until(9);
    let alone_since = Some(at(2));
    let told = stage.processes.adopt(at(9), ONE);
    let exited = Heard::Exited(ONE, ExitStatus::Code(3));
    let known = vec![Heard::Spawned(ONE, 101), exited];
    assert_eq!(told, (Found::Begun { alone_since }, known));
    assert_eq!(stage.processes.adopt(at(9), Run(2)).0, Found::Nothing);
}

#[test]
fn what_is_left_of_an_earlier_run_is_ended_before_a_later_one() {
    let mut stage = Stage::of(
        RunScript {
            leftover: Some(seconds(4)),
            ..RunScript::default()
        },
        false,
    );
    stage.spawn(0, 1);
    stage.until(2);
    let mut gone = None;
    stage.does(|processes, ground| gone = processes.clear(at(3), Run(2), ground));
    assert_eq!(gone, Some(Some(at(7))));
    assert!(!stage.listens(8000));
    stage.does(|processes, ground| gone = processes.clear(at(7), Run(2), ground));
    assert_eq!(gone, None);
}
