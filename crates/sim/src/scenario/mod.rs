//! What a scenario says: hosts, services, how their processes behave, and what happens to all of them.
//!
//! * `read` goes through a file. Its tables are in `surroundings`, `services` (one of them in `service`, its processes in `run`), `workload`,
//!   `replica_acts` and `acts`.
//! * `table` and `value` take them apart and note the place of each mistake; `names` says who is meant.

mod acts;
mod names;
mod read;
mod replica_acts;
mod run;
mod service;
mod services;
mod surroundings;
mod table;
mod value;
mod workload;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use portreeve::identity::Run;
use portreeve::profile::ProfileErrors;
use portreeve::supervision::{ExitStatus, ProbeKind, ProbeOutcome};
use portreeve::time::Monotonic;

use crate::cluster::people::service_name;
use crate::cluster::spec::Spec;
use crate::expectation::Expectations;

pub(crate) use read::BEGIN;
pub(crate) use services::FIRST_UID;
pub use table::Problem;

/// The longest scenario in bytes.
pub const MAX_SCENARIO: usize = 1_048_576;

/// A cluster, its services and what happens to them, checked: [`crate::play`] can only play it.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) spec: Arc<Spec>,
    pub(crate) expectations: Expectations,
}

/// What happens to replicas wherever they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alone {
    pub(crate) users: Vec<UserAct>,
    /// In order; of one replica, each begins when the one before is over.
    pub(crate) outages: Vec<Outage>,
    pub(crate) strangers: Vec<Stranger>,
}

impl Scenario {
    /// Reads a scenario in TOML; `load` brings the texts of profiles that it names instead of own ones.
    ///
    /// # Errors
    ///
    /// [`ScenarioErrors`] with everything that is wrong, each with line, column, field and what is allowed.
    pub fn from_toml(
        text: &str,
        load: impl FnMut(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Self, ScenarioErrors> {
        read::read(text, load)
    }

    /// The same with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        Arc::make_mut(&mut self.spec).seed = seed;
        self
    }

    /// Whether it has a service of this name, with or without its namespace.
    #[must_use]
    pub fn has_service(&self, name: &str) -> bool {
        let mut names = self.spec.services.iter().map(service_name);
        names.any(|it| it.label().as_str() == name || it.to_string() == name)
    }

    /// Whether it has a host of this name.
    #[must_use]
    pub fn has_host(&self, name: &str) -> bool {
        let mut hosts = self.spec.hosts.iter();
        hosts.any(|it| it.name.as_str() == name)
    }
}

/// Everything that is wrong with a scenario. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioErrors {
    /// What is wrong with the scenario itself, by place.
    pub problems: Vec<Problem>,
    /// What is wrong with the profile that it names: the profile's path and its errors.
    pub profile: Option<(String, ProfileErrors)>,
}

impl ScenarioErrors {
    /// One line for each problem, with the file's name in front.
    pub fn in_file<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| self.lines(Some(file), f))
    }

    fn lines(&self, file: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for problem in &self.problems {
            if !std::mem::take(&mut first) {
                f.write_str("\n")?;
            }
            if let Some(file) = file {
                write!(f, "{file}:")?;
            }
            if let Some(place) = problem.place {
                write!(f, "{place}:")?;
            }
            if file.is_some() || problem.place.is_some() {
                f.write_str(" ")?;
            }
            write!(f, "{problem}")?;
        }
        if let Some((path, errors)) = &self.profile {
            if !first {
                f.write_str("\n")?;
            }
            write!(f, "{}", errors.in_file(path))?;
        }
        Ok(())
    }
}

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines(None, f)
    }
}

impl std::error::Error for ScenarioErrors {}

/// What the runs of a replica do, in turn; the last script is for all that follow.
#[derive(Clone, Debug)]
pub(crate) struct Scripts {
    /// Each with the last run that it is for; never empty.
    by_last_run: Vec<(u64, RunScript)>,
}

impl Scripts {
    pub(crate) fn new(scripts: Vec<RunScript>) -> Self {
        let mut last = 0;
        let mut by_last_run = Vec::with_capacity(scripts.len());
        for script in scripts {
            last += u64::from(script.times);
            by_last_run.push((last, script));
        }
        if by_last_run.is_empty() {
            by_last_run.push((1, RunScript::default()));
        }
        Self { by_last_run }
    }

    /// Each in its turn.
    pub(crate) fn each(&self) -> impl Iterator<Item = &RunScript> {
        self.by_last_run.iter().map(|(_, script)| script)
    }

    pub(crate) fn of(&self, run: Run) -> &RunScript {
        let run = u64::from(run.0);
        let place = self.by_last_run.partition_point(|(last, _)| *last < run);
        &self.by_last_run[place.min(self.by_last_run.len() - 1)].1
    }
}

impl Default for Scripts {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// What the processes of one run do. Spans are from the spawn unless said otherwise.
#[derive(Clone, Debug)]
pub(crate) struct RunScript {
    /// For how many runs in a row; the last script is for all that follow.
    pub(crate) times: u32,
    /// From the order to the process.
    pub(crate) spawn_takes: Duration,
    /// There is no process, but this error number.
    pub(crate) spawn_error: Option<i32>,
    /// What the `pre_exec` command does, where one is due.
    pub(crate) pre_exec: Option<(Duration, ExitStatus)>,
    /// It ends by itself.
    pub(crate) exit: Option<(Duration, ExitStatus)>,
    /// What it does after the stop signal, and how long that takes; `None`: nothing.
    pub(crate) on_term: Option<(Duration, ExitStatus)>,
    /// Whether the kill ends the main process.
    pub(crate) killable: bool,
    /// How long others of its group outlive the main process; `None`: for ever.
    pub(crate) leftover: Option<Duration>,
    /// Whether those others keep the ports of the run until they are gone.
    pub(crate) leftover_listens: bool,
    /// From then on no probe is answered that needs the process: http and command. A port still listens.
    pub(crate) hangs: Option<Duration>,
    /// Which numbers it listens on.
    pub(crate) binds: Binds,
    /// How long after the spawn it does. A number that somebody else has by then ends it with exit code 1.
    pub(crate) binds_after: Duration,
    /// Later ones win; a probe nothing is said of succeeds at once.
    pub(crate) probes: Vec<ProbeScript>,
}

impl Default for RunScript {
    /// It stays up, answers every probe, and ends at the stop signal.
    fn default() -> Self {
        let term = ExitStatus::Signal {
            signal: 15,
            core: false,
            oom: false,
        };
        Self {
            times: 1,
            spawn_takes: Duration::ZERO,
            spawn_error: None,
            pre_exec: None,
            exit: None,
            on_term: Some((Duration::ZERO, term)),
            killable: true,
            leftover: Some(Duration::ZERO),
            leftover_listens: false,
            hangs: None,
            binds: Binds::Granted,
            binds_after: Duration::ZERO,
            probes: Vec::new(),
        }
    }
}

/// Which numbers a process listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binds {
    /// Those it was granted.
    Granted,
    /// Numbers so far above them, which are not its own.
    Beside(u16),
    /// None.
    Never,
}

/// How probes end that begin within `from..to` of the spawn.
#[derive(Clone, Debug)]
pub(crate) struct ProbeScript {
    /// `None`: every kind.
    pub(crate) kind: Option<ProbeKind>,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) answer: Answer,
}

/// How one probe ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    After(Duration, ProbeOutcome),
    Never,
}

/// An order of a user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserAct {
    pub(crate) at: Monotonic,
    pub(crate) replica: Option<u32>,
    pub(crate) act: Act,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Stop { grace: Option<Duration> },
    Restart,
}

/// A time without a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) replica: Option<u32>,
    pub(crate) from: Monotonic,
    pub(crate) to: Monotonic,
    pub(crate) kind: OutageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutageKind {
    /// It is gone, and another takes over.
    Killed,
    /// It stands still, and goes on.
    Stopped,
}

/// A time in which somebody else has one of the replica's ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stranger {
    pub(crate) replica: Option<u32>,
    pub(crate) from: Monotonic,
    pub(crate) to: Monotonic,
}

#[cfg(test)]
mod read_test;
