//! Asks the host's agent until there are ports, or it is too late.

use std::path::PathBuf;
use std::time::Duration;

use portreeve_api::Problem;
use portreeve_api::attach::Ask;
use portreeve_api::local::Assignment;
use tokio::time::Instant;

use crate::exit::Failure;

use super::link::{self, Answered, Connected};
use super::signals::Signals;
use super::voice::say;

/// Asks until there are ports.
pub(super) struct Seeker {
    pub(super) ask: Ask,
    pub(super) socket: PathBuf,
    /// Whether the index was asked for by name.
    pub(super) is_explicit: bool,
    pub(super) port_wait: Duration,
}

pub(super) enum Found {
    Granted(Box<(Assignment, Vec<String>, Connected)>),
    /// In words.
    TooLate(String),
    Signal(u8),
}

impl Seeker {
    /// Returns when there are ports, a signal came, or nothing can be had any more.
    ///
    /// # Errors
    ///
    /// What asking again cannot mend, in words.
    pub(super) async fn find(&mut self, signals: &mut Signals) -> Result<Found, Failure> {
        let began = Instant::now();
        let mut wait = ASK_AGAIN.0;
        let mut told = String::new();
        loop {
            let answered = tokio::select! {
                answered = link::ask(&self.socket, &self.ask) => answered,
                number = signals.next() => return Ok(Found::Signal(number)),
            };
            let reason = match answered {
                Ok(Answered::Granted(assignment, notes, connected)) => {
                    let granted = (*assignment, notes, connected);
                    return Ok(Found::Granted(Box::new(granted)));
                }
                Ok(Answered::Refused(problem)) if problem.passes() => {
                    if began.elapsed() >= self.port_wait {
                        let waited = self.port_wait.as_secs();
                        let reason = format!("no ports within {waited} s: {}", problem.detail);
                        return Ok(Found::TooLate(reason));
                    }
                    if problem.code == Problem::REPLICA_UNKNOWN {
                        // What was granted is another process's here, as after a controller lost its data: the next ask
                        // is for another.
                        self.ask.key = super::random_key()?;
                    }
                    problem.detail
                }
                Ok(Answered::Refused(problem)) if problem.code == Problem::REPLICA_TAKEN => {
                    if began.elapsed() < TAKEN_WAIT {
                        String::new()
                    } else if self.is_explicit {
                        return Err(Failure::plain(problem.detail));
                    } else {
                        self.ask.index = None;
                        problem.detail
                    }
                }
                Ok(Answered::Refused(problem)) => return Err(Failure::plain(problem.detail)),
                Err(cause) if began.elapsed() >= AGENT_WAIT => {
                    return Err(Failure::plain(format!(
                        "no agent answers at {}: {cause}; `portreeve agent` runs one on this host, --agent names its socket",
                        self.socket.display()
                    )));
                }
                Err(_) => String::new(),
            };
            if !reason.is_empty() && reason != told {
                say(&format!("waits: {reason}"));
                told = reason;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                number = signals.next() => return Ok(Found::Signal(number)),
            }
            wait = (wait * 2).min(ASK_AGAIN.1);
        }
    }
}

/// How long an agent may be away before there is none: it may be restarted.
const AGENT_WAIT: Duration = Duration::from_secs(5);
/// How long the index of a task or an array may be another's before the next free one is taken: the job before this one
/// may just have ended.
const TAKEN_WAIT: Duration = Duration::from_secs(2);
/// The wait before the agent is asked again, at first and at most.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
