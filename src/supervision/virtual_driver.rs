//! A driver in virtual time: a script says what each run does, a log says what the machine did about it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{
    Agenda, Backoff, Config, Effect, Event, ExitCause, ExitStatus, Final, GiveUp, Machine,
    ProbeKind, ProbeOutcome, ProbeTiming, Reason, Report, RestartPolicy, StartFailure, StopRule,
    Then, Window,
};
use crate::identity::Run;
use crate::port::{Port, Protocol};
use crate::supervision::record::{Entry, Recorder};
use crate::time::{Monotonic, Now};

/// The rules of supervision.md 2: initial 1 s, max 60 s, reset after 60 s, no jitter, no give-up.
pub(super) fn config(restart: RestartPolicy) -> Config {
    Config {
        restart,
        backoff: Backoff {
            initial: seconds(1),
            max: seconds(60),
            jitter_permille: 0,
            reset_after: seconds(60),
        },
        give_up: None,
        success_exit: BTreeSet::from([ExitCause::Code(0)]),
        no_restart_exit: BTreeSet::new(),
        startup: None,
        liveness: None,
        readiness: None,
        min_up: seconds(1),
        stop: StopRule {
            drain: Duration::ZERO,
            grace: seconds(10),
            unkillable_after: seconds(60),
        },
    }
}

/// `(initial delay, interval, timeout, failure threshold)` in seconds.
pub(super) const fn probe(delay: u64, interval: u64, timeout: u64, failures: u32) -> ProbeTiming {
    ProbeTiming {
        initial_delay: seconds(delay),
        interval: seconds(interval),
        timeout: seconds(timeout),
        failure_threshold: failures,
        success_threshold: 1,
    }
}

pub(super) const fn give_up(max_restarts: u32, window_s: u64) -> GiveUp {
    GiveUp {
        max_restarts,
        window: Window::Span(seconds(window_s)),
        then: Then::Exit,
    }
}

pub(super) const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// What one run does. Times are milliseconds from its spawn unless said otherwise.
#[derive(Clone, Debug)]
pub(super) struct RunScript {
    pub(super) spawn_takes: u64,
    pub(super) spawn_error: Option<i32>,
    pub(super) exit: Option<(u64, ExitStatus)>,
    /// The answer to TERM and how long it takes; `None`: ignored.
    pub(super) on_term: Option<(u64, ExitStatus)>,
    pub(super) group: Group,
    /// Later entries win; a probe nothing is said of answers Ok at once.
    pub(super) probes: Vec<(ProbeKind, u64, u64, Answer)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Group {
    /// Empty this long after the exit.
    After(u64),
    /// Empty at this moment of the driver's clock.
    At(u64),
    Never,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Gives(ProbeOutcome),
    GivesAfter(u64, ProbeOutcome),
    Hangs,
}

pub(super) const FAILS: Answer = Answer::Gives(ProbeOutcome::Fail);
const SUCCEEDS: Answer = Answer::Gives(ProbeOutcome::Ok);
pub(super) const EVER: u64 = u64::MAX;

impl RunScript {
    /// Reads `up`, `enoent`, or `5:x1`, `5:sig15`, `5:unknown`: seconds from the spawn, and the end.
    fn parse(text: &str) -> Self {
        let mut script = Self {
            spawn_takes: 0,
            spawn_error: None,
            exit: None,
            on_term: Some((0, signal(15))),
            group: Group::After(0),
            probes: Vec::new(),
        };
        match text.split_once(':') {
            Some((at, end)) => script.exit = Some((milliseconds(at), status(end))),
            None if text == "enoent" => script.spawn_error = Some(2),
            None => assert_eq!(text, "up"),
        }
        script
    }
}

pub(super) struct World {
    pub(super) machine: Machine,
    /// The last one stays for every later run if `repeats`, else later runs stay up.
    pub(super) scripts: Vec<RunScript>,
    repeats: bool,
    /// From this moment a stranger holds a port.
    pub(super) stranger_from: u64,
    /// Writes the machine to JSON and reads it back before every call.
    pub(super) restores: bool,
    /// Hands over every event twice and mixes in old ones.
    pub(super) repeats_events: bool,
    pub(super) log: Vec<String>,
    now: u64,
    agenda: Agenda,
    runs: BTreeMap<Run, Life>,
    delivered: Vec<Event>,
    recorder: Option<Recorder>,
    record: Vec<Entry>,
}

#[derive(Default)]
struct Life {
    spawned: Option<u64>,
    exited: Option<u64>,
}

impl World {
    pub(super) fn new(config: Config, script: &str) -> Self {
        let repeats = script.ends_with('*');
        let scripts = script.trim_end_matches('*').split('|');
        let mut world = Self {
            machine: Machine::new(config, 7),
            scripts: scripts.map(|text| RunScript::parse(text.trim())).collect(),
            repeats,
            stranger_from: EVER,
            restores: false,
            repeats_events: false,
            log: Vec::new(),
            now: 0,
            agenda: Agenda::new(),
            runs: BTreeMap::new(),
            delivered: Vec::new(),
            recorder: None,
            record: Vec::new(),
        };
        world.at(0, Event::Start);
        world
    }

    /// The command `event` comes at this moment, in milliseconds.
    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.agenda.put(Monotonic::from_millis(at), event);
    }

    pub(super) fn stop_at(&mut self, at: u64, grace_s: Option<u64>) {
        let grace = grace_s.map(seconds);
        self.at(at, Event::Stop { grace });
    }

    /// The probes of this kind that begin within `from..to` ms of the spawn of the run at `place`.
    pub(super) fn answers(
        &mut self,
        place: usize,
        kind: ProbeKind,
        from: u64,
        to: u64,
        answer: Answer,
    ) {
        self.scripts[place].probes.push((kind, from, to, answer));
    }

    /// Lets time pass until this moment, everything at it included.
    pub(super) fn run_until(&mut self, end: u64) {
        loop {
            let due = self.machine.next_deadline();
            let next = self.agenda.next().into_iter().chain(due).min();
            let Some(next) = next.map(Monotonic::as_millis) else {
                return;
            };
            if next > end {
                return;
            }
            self.now = self.now.max(next);
            let mut out = Vec::new();
            if let Some(event) = self.agenda.take(self.mono()) {
                self.deliver(event, &mut out);
            } else {
                self.restore();
                let now = self.mono();
                match &mut self.recorder {
                    Some(recorder) => {
                        recorder.on_deadline(&mut self.machine, now, &mut out, &mut self.record);
                    }
                    None => self.machine.on_deadline(now, &mut out),
                }
                let due = self.machine.next_deadline();
                assert!(
                    due.is_none_or(|at| at > self.mono()),
                    "busy at {}",
                    self.now
                );
            }
            for effect in out {
                self.act(effect);
            }
        }
    }

    fn deliver(&mut self, event: Event, out: &mut Vec<Effect>) {
        if let Event::Exited { run, .. } = event {
            let life = self.runs.entry(run).or_default();
            life.exited.get_or_insert(self.now);
        }
        self.restore();
        let now = self.mono();
        match &mut self.recorder {
            Some(recorder) => {
                let taken = event.clone();
                recorder.handle(&mut self.machine, now, taken, None, out, &mut self.record);
            }
            None => self.machine.handle(now, event.clone(), out),
        }
        if self.repeats_events && event.run().is_some() {
            self.delivered.push(event);
            for old in self.delivered.iter().rev().take(40) {
                let before = self.machine.clone();
                let mut nothing = Vec::new();
                // A process that ends once cannot end again, so its end is only old if it was taken.
                self.machine.handle(self.mono(), old.clone(), &mut nothing);
                assert_eq!((&nothing, &self.machine), (&Vec::new(), &before), "{old:?}");
            }
        }
    }

    /// Keeps a record from now on.
    pub(super) fn record(&mut self) {
        let mut recorder = Recorder::default();
        let now = Now {
            mono: self.mono(),
            ..Now::default()
        };
        self.record
            .push(recorder.state(now, now.mono, &self.machine));
        self.recorder = Some(recorder);
    }

    pub(super) fn record_text(&self) -> String {
        self.record.iter().map(Entry::line).collect()
    }

    fn restore(&mut self) {
        if self.restores {
            let text = serde_json::to_string(&self.machine).unwrap();
            let read: Machine = serde_json::from_str(&text).unwrap();
            assert_eq!(read, self.machine);
            self.machine = read;
        }
    }

    fn mono(&self) -> Monotonic {
        Monotonic::from_millis(self.now)
    }

    fn script(&self, run: Run) -> RunScript {
        let place = run.0 as usize - 1;
        let last = self.repeats.then(|| self.scripts.last()).flatten();
        let script = self.scripts.get(place).or(last);
        script.map_or_else(|| RunScript::parse("up"), RunScript::clone)
    }

    fn act(&mut self, effect: Effect) {
        let now = self.now;
        match effect {
            Effect::Spawn { run } => self.spawn(run),
            Effect::Term { run } => {
                self.write("T");
                if let Some((takes, status)) = self.script(run).on_term {
                    self.at(now + takes, Event::Exited { run, status });
                }
            }
            Effect::KillGroup { run } => self.kill(run),
            Effect::Probe {
                run,
                kind,
                probe,
                timeout,
            } => {
                let timeout = u64::try_from(timeout.as_millis()).unwrap();
                let (takes, outcome) = match self.answer(run, kind) {
                    Answer::Gives(outcome) => (0, outcome),
                    Answer::GivesAfter(takes, outcome) if takes < timeout => (takes, outcome),
                    Answer::GivesAfter(..) | Answer::Hangs => (timeout, ProbeOutcome::Timeout),
                };
                let result = Event::ProbeResult {
                    run,
                    kind,
                    probe,
                    outcome,
                };
                self.at(now + takes, result);
            }
            // The result comes nevertheless, so that every case also shows that it is stale.
            Effect::CancelProbe { .. } => {}
            Effect::Report(report) => self.write(&report_words(&report)),
        }
    }

    fn spawn(&mut self, run: Run) {
        let script = self.script(run);
        if self.now >= self.stranger_from {
            let conflict = Event::PortConflict {
                run,
                port: Port::MAX,
                protocol: Protocol::Tcp,
                pid: None,
                comm: None,
            };
            return self.at(self.now, conflict);
        }
        if let Some(errno) = script.spawn_error {
            let why = StartFailure::Errno(errno);
            return self.at(self.now, Event::SpawnFailed { run, why });
        }
        let spawned = self.now + script.spawn_takes;
        self.runs.entry(run).or_default().spawned = Some(spawned);
        self.at(spawned, Event::Spawned { run });
        if let Some((after, status)) = script.exit {
            self.at(spawned + after, Event::Exited { run, status });
        }
    }

    fn kill(&mut self, run: Run) {
        let script = self.script(run);
        let life = self.runs.entry(run).or_default();
        match (life.spawned, life.exited) {
            (Some(_), None) => {
                self.write("K");
                let status = signal(9);
                self.at(self.now, Event::Exited { run, status });
            }
            (_, exited) => {
                let empty = match script.group {
                    Group::After(takes) => exited.unwrap_or(self.now) + takes,
                    Group::At(at) => at,
                    Group::Never => return,
                };
                self.at(empty.max(self.now), Event::GroupEmpty { run });
            }
        }
    }

    fn answer(&self, run: Run, kind: ProbeKind) -> Answer {
        let age = self.now - self.runs[&run].spawned.unwrap();
        let script = self.script(run);
        let said = script.probes.iter().rev();
        let said = said
            .filter(|(of, from, to, _)| *of == kind && (*from..*to).contains(&age))
            .map(|(.., answer)| *answer)
            .next();
        said.unwrap_or(SUCCEEDS)
    }

    fn write(&mut self, what: &str) {
        let (whole, part) = (self.now / 1000, self.now % 1000);
        let part = format!(".{part:03}");
        let part = part.trim_end_matches(['0']).trim_end_matches('.');
        self.log.push(format!("{whole}{part} {what}"));
    }
}

/// A report in the shorthand of supervision.md 2.
fn report_words(report: &Report) -> String {
    match report {
        Report::Ready => "R".to_owned(),
        Report::NotReady(reason) => format!("N({})", reason_words(reason)),
        Report::Backoff { reason, delay } => {
            format!("B({},{})", reason_words(reason), delay.as_secs_f64())
        }
        Report::Restarted {
            count,
            reason: Reason::User,
            ..
        } => format!("S({count},user)"),
        Report::Restarted { count, .. } => format!("S({count})"),
        Report::Stuck => "STUCK".to_owned(),
        Report::Final(end) => match end {
            Final::Succeeded => "SUCCEEDED".to_owned(),
            Final::Failed(reason) => format!("FAILED({})", reason_words(reason)),
            Final::Stopped | Final::Left(_) => "STOPPED".to_owned(),
            Final::GaveUp { reason, count } => format!("GAVEUP({},{count})", reason_words(reason)),
            Final::PortConflict { .. } => "PORT_CONFLICT".to_owned(),
        },
    }
}

fn reason_words(reason: &Reason) -> String {
    match reason {
        Reason::Exit(ExitStatus::Code(code)) => format!("x{code}"),
        Reason::Exit(ExitStatus::Signal { signal, .. }) => format!("sig{signal}"),
        Reason::Exit(ExitStatus::Unknown) => "unknown".to_owned(),
        Reason::StartFailed(_) => "start-failed".to_owned(),
        Reason::Startup { .. } => "startup".to_owned(),
        Reason::Liveness { .. } => "liveness".to_owned(),
        Reason::Probe { .. } => "probe".to_owned(),
        Reason::User => "user".to_owned(),
        Reason::Stop => "stop".to_owned(),
        Reason::StaleRecord => "stale-record".to_owned(),
    }
}

pub(super) const fn signal(number: i32) -> ExitStatus {
    ExitStatus::Signal {
        signal: number,
        core: false,
        oom: false,
    }
}

fn status(text: &str) -> ExitStatus {
    if let Some(code) = text.strip_prefix('x') {
        return ExitStatus::Code(code.parse().unwrap());
    }
    if let Some(number) = text.strip_prefix("sig") {
        return signal(number.parse().unwrap());
    }
    assert_eq!(text, "unknown");
    ExitStatus::Unknown
}

fn milliseconds(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{part:0<3}").parse().unwrap()
}
