//! One replica on virtual time: what its machine wants done is done to scripted processes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use portreeve::identity::{Run, ServiceName};
use portreeve::port::{Port, Protocol};
use portreeve::profile::{Probe, Profile};
use portreeve::supervision::{
    Agenda, Effect, Event, ExitStatus, Machine, ProbeKind, ProbeOutcome, StartFailure, is_stall,
};
use portreeve::time::Monotonic;

use crate::scenario::{Act, Answer, Outage, OutageKind, Scenario, Scripts, Stranger};
use crate::timeline::{Entry, What};

/// A machine, its processes and its worker.
pub(crate) struct Replica {
    index: u32,
    service: ServiceName,
    shown: Arc<str>,
    pub(crate) machine: Machine,
    agenda: Agenda,
    scripts: Arc<Scripts>,
    /// The newest run whose process was begun.
    life: Life,
    /// The newest run that was ready.
    ready_run: Option<Run>,
    pre_exec_done: bool,
    in_flight: BTreeMap<ProbeKind, InFlight>,
    /// The probes that a process which hangs does not answer; the kernel answers the others.
    answered_by_process: BTreeSet<ProbeKind>,
    /// Times without a worker, in order; the first may have begun.
    outages: VecDeque<Outage>,
    absent: bool,
    strangers: Vec<Stranger>,
}

/// The processes of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    run: Run,
    pre_exec: bool,
    spawned: Option<Monotonic>,
    exited: Option<Monotonic>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    until: Monotonic,
    timeout: Duration,
    stalled: bool,
}

impl Replica {
    pub(crate) fn new(scenario: &Scenario, index: u32) -> Self {
        let own = |of: &Option<u32>| of.is_none_or(|of| of == index);
        let service = &scenario.spec.services[0];
        let runs = service.scripts.get(&Some(index));
        let scripts = runs.or_else(|| service.scripts.get(&None)).cloned();
        let outages = scenario.alone.outages.iter();
        let outages = outages.filter(|outage| own(&outage.replica)).copied();
        let strangers = scenario
            .alone
            .strangers
            .iter()
            .filter(|one| own(&one.replica));
        let mut agenda = Agenda::new();
        agenda.put(Monotonic::default(), Event::Start);
        for user in scenario
            .alone
            .users
            .iter()
            .filter(|user| own(&user.replica))
        {
            let event = match user.act {
                Act::Stop { grace } => Event::Stop { grace },
                Act::Restart => Event::UserRestart,
            };
            agenda.put(user.at, event);
        }
        let seed = scenario.spec.seed.wrapping_add(u64::from(index));
        Self {
            index,
            service: service.name(),
            shown: service.profile.name.as_str().into(),
            machine: Machine::new(service.profile.supervision.clone(), seed),
            agenda,
            scripts: scripts.unwrap_or_default(),
            life: Life::default(),
            ready_run: None,
            pre_exec_done: service.profile.pre_exec.is_none(),
            in_flight: BTreeMap::new(),
            answered_by_process: answered_by_process(&service.profile),
            outages: outages.collect(),
            absent: false,
            strangers: strangers.copied().collect(),
        }
    }

    /// When something happens next, if ever.
    pub(crate) fn next(&self) -> Option<Monotonic> {
        let event = self.next_event();
        match self.outages.front() {
            Some(outage) if self.absent => Some(outage.to),
            Some(outage) if event.is_none_or(|event| event >= outage.from) => Some(outage.from),
            _ => event,
        }
    }

    fn next_event(&self) -> Option<Monotonic> {
        let due = self.machine.next_deadline();
        self.agenda.next().into_iter().chain(due).min()
    }

    /// One thing that happens at `now`: an event, the deadlines, or the worker's going or coming.
    pub(crate) fn step(&mut self, now: Monotonic, seen: &mut Vec<Entry>) {
        if let Some(outage) = self.outages.front().copied() {
            if self.absent && outage.to <= now {
                self.outages.pop_front();
                return self.worker_is_back(outage, seen);
            }
            if !self.absent && outage.from <= now {
                self.absent = true;
                let what = match outage.kind {
                    OutageKind::Killed => "killed",
                    OutageKind::Stopped => "stopped",
                };
                return self.saw(now, What::Worker(what), seen);
            }
        }
        let mut effects = Vec::new();
        match self.agenda.take(now) {
            Some(event) => {
                let event = self.as_it_counts(now, event, seen);
                self.machine.handle(now, event, &mut effects);
            }
            None => self.machine.on_deadline(now, &mut effects),
        }
        if self.machine.is_ready() {
            self.ready_run = Some(self.machine.run());
        }
        for effect in effects {
            self.act(now, effect, seen);
        }
    }

    fn worker_is_back(&mut self, outage: Outage, seen: &mut Vec<Entry>) {
        self.absent = false;
        let now = outage.to;
        match outage.kind {
            OutageKind::Killed => {
                self.saw(now, What::Worker("took over"), seen);
                // Its probes died with it.
                self.in_flight.clear();
                self.agenda
                    .retain(|event| !matches!(event, Event::ProbeResult { .. }));
                let begun = self.machine.run() > Run::default() && !self.machine.is_final();
                let adopt = begun.then(|| Event::taken_over(now.since(outage.from)));
                self.agenda.hold_until(now, adopt);
            }
            OutageKind::Stopped => {
                self.saw(now, What::Worker("continued"), seen);
                let in_flight = self.in_flight.values().map(|one| one.until);
                let planned = self.next_event().into_iter().chain(in_flight).min();
                for one in self.in_flight.values_mut() {
                    one.stalled |= planned.is_some_and(|at| is_stall(at, now, one.timeout));
                }
                self.agenda.hold_until(now, None);
            }
        }
    }

    /// The event as the worker hands it over, and what an onlooker sees of it.
    fn as_it_counts(&mut self, now: Monotonic, event: Event, seen: &mut Vec<Entry>) -> Event {
        match event {
            Event::Stop { .. } => self.saw(now, What::User("stop".to_owned()), seen),
            Event::UserRestart => self.saw(now, What::User("restart".to_owned()), seen),
            Event::Spawned { run } if run == self.life.run && self.life.exited.is_none() => {
                self.saw(now, What::Spawned, seen);
            }
            Event::SpawnFailed { run, .. } if run == self.life.run => self.life.pre_exec = false,
            Event::Exited { run, status } if run == self.life.run => {
                if self.life.exited.is_some() {
                    return event;
                }
                self.life.exited = Some(now);
                self.saw(now, What::Exited(status), seen);
                let was_ready = self.ready_run == Some(run);
                if status != ExitStatus::Unknown
                    && self.machine.suspects_stranger(run, was_ready)
                    && self.stranger_is_there(now)
                {
                    return conflict(run);
                }
            }
            Event::ProbeResult {
                run,
                kind,
                probe,
                outcome,
            } => {
                let stalled = self.in_flight.remove(&kind).is_some_and(|one| one.stalled);
                let outcome = if stalled {
                    outcome.after_stall()
                } else {
                    outcome
                };
                return Event::ProbeResult {
                    run,
                    kind,
                    probe,
                    outcome,
                };
            }
            _ => {}
        }
        event
    }

    fn act(&mut self, now: Monotonic, effect: Effect, seen: &mut Vec<Entry>) {
        match effect {
            Effect::Spawn { run } => self.spawn(now, run),
            Effect::Term { run } => {
                self.saw(now, What::Term, seen);
                if let Some((takes, status)) = self.scripts.of(run).on_term {
                    self.end(now + takes, run, status);
                }
            }
            Effect::KillGroup { run } => self.kill(now, run, seen),
            Effect::Probe {
                run,
                kind,
                probe,
                timeout,
            } => {
                let (takes, outcome) = match self.answer(now, run, kind) {
                    Answer::After(takes, outcome) if takes < timeout => (takes, outcome),
                    Answer::After(..) | Answer::Never => (timeout, ProbeOutcome::Timeout),
                };
                let result = Event::ProbeResult {
                    run,
                    kind,
                    probe,
                    outcome,
                };
                self.agenda.put(now + takes, result);
                let in_flight = InFlight {
                    until: now + timeout,
                    timeout,
                    stalled: false,
                };
                self.in_flight.insert(kind, in_flight);
            }
            // What comes of it nevertheless is stale, and the machine's to drop.
            Effect::CancelProbe { .. } => {}
            Effect::Report(report) => self.saw(now, What::Report(report), seen),
        }
    }

    fn spawn(&mut self, now: Monotonic, run: Run) {
        self.life = Life {
            run,
            ..Life::default()
        };
        if self.stranger_is_there(now) {
            return self.agenda.put(now, conflict(run));
        }
        // Shared, so that it does not hold on to the replica.
        let scripts = Arc::clone(&self.scripts);
        let script = scripts.of(run);
        let mut begins = now;
        if !self.pre_exec_done {
            let (takes, status) = script
                .pre_exec
                .unwrap_or((Duration::ZERO, ExitStatus::Code(0)));
            self.agenda.put(now, Event::PreExecStarted { run });
            begins = now + takes;
            if status != ExitStatus::Code(0) {
                self.life.pre_exec = true;
                let why = StartFailure::PreExec(status);
                return self.agenda.put(begins, Event::SpawnFailed { run, why });
            }
            self.pre_exec_done = true;
        }
        if let Some(errno) = script.spawn_error {
            let why = StartFailure::Errno(errno);
            return self.agenda.put(begins, Event::SpawnFailed { run, why });
        }
        let spawned = begins + script.spawn_takes;
        self.life.spawned = Some(spawned);
        self.agenda.put(spawned, Event::Spawned { run });
        if let Some((after, status)) = script.exit {
            self.agenda
                .put(spawned + after, Event::Exited { run, status });
        }
    }

    fn kill(&mut self, now: Monotonic, run: Run, seen: &mut Vec<Entry>) {
        let scripts = Arc::clone(&self.scripts);
        let script = scripts.of(run);
        let lives = self.life.run == run && self.life.exited.is_none();
        if lives && self.life.pre_exec {
            self.saw(now, What::Kill, seen);
            return self.end(now, run, KILLED);
        }
        if lives && self.life.spawned.is_some() {
            self.saw(now, What::Kill, seen);
            if script.killable {
                self.end(now, run, KILLED);
            }
            return;
        }
        if let Some(leftover) = script.leftover {
            let empty = self.life.exited.map_or(now, |exited| exited + leftover);
            self.agenda.put(empty.max(now), Event::GroupEmpty { run });
        }
    }

    /// The main process, or the `pre_exec` command in its place, ends at `at`.
    fn end(&mut self, at: Monotonic, run: Run, status: ExitStatus) {
        let event = if self.life.pre_exec {
            let why = StartFailure::PreExec(status);
            Event::SpawnFailed { run, why }
        } else {
            Event::Exited { run, status }
        };
        self.agenda.put(at, event);
    }

    fn answer(&self, now: Monotonic, run: Run, kind: ProbeKind) -> Answer {
        let age = now.since(self.life.spawned.unwrap_or(now));
        let script = self.scripts.of(run);
        let hangs = script.hangs.is_some_and(|from| age >= from);
        if hangs && self.answered_by_process.contains(&kind) {
            return Answer::Never;
        }
        let mut said = script.probes.iter().rev();
        let said = said
            .find(|one| one.kind.is_none_or(|of| of == kind) && (one.from..one.to).contains(&age));
        said.map_or(Answer::After(Duration::ZERO, ProbeOutcome::Ok), |one| {
            one.answer
        })
    }

    fn stranger_is_there(&self, now: Monotonic) -> bool {
        let mut strangers = self.strangers.iter();
        strangers.any(|one| (one.from..one.to).contains(&now))
    }

    fn saw(&self, at: Monotonic, what: What, seen: &mut Vec<Entry>) {
        seen.push(Entry {
            at,
            service: Some(self.service.clone()),
            shown: Some(Arc::clone(&self.shown)),
            replica: Some(self.index),
            incarnation: None,
            run: Some(self.machine.run()),
            host: None,
            what,
        });
    }
}

fn answered_by_process(profile: &Profile) -> BTreeSet<ProbeKind> {
    let probes = [
        (ProbeKind::Startup, &profile.startup),
        (ProbeKind::Liveness, &profile.liveness),
        (ProbeKind::Readiness, &profile.readiness),
    ];
    let asks = |(kind, probe): (ProbeKind, &Option<Probe>)| match probe {
        Some(Probe::Http(_) | Probe::Command(_)) => Some(kind),
        Some(Probe::Tcp { .. } | Probe::Listening) | None => None,
    };
    probes.into_iter().filter_map(asks).collect()
}

const KILLED: ExitStatus = ExitStatus::Signal {
    signal: 9,
    core: false,
    oom: false,
};

const fn conflict(run: Run) -> Event {
    Event::PortConflict {
        run,
        port: Port::MAX,
        protocol: Protocol::Tcp,
        pid: None,
        comm: None,
    }
}
