//! `wait`: until a service is ready, or cannot become so.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use portreeve_api::body::{Endpoints, ReplicaView, ServiceView};
use portreeve_api::{Client, ClientError, paths};
use tokio::time::Instant;

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::listing::{Form, Listing, Surface, Writing};
use crate::names::{PortArg, ServiceArg};
use crate::output::{Format, print, tell};
use crate::span::Span;

use super::endpoints::usable;
use super::services::PATIENCE;

/// How many states of replicas a line tells; who waits for one and the same is one.
const TOLD: usize = 8;

/// Wait until a service is ready, and no restart or replacement of it is under way.
///
/// With --ready N only that many ready replicas count. Ends at once with exit code 4 if the service is unknown
/// (with --gone that is what was waited for: 0), with 1 and the reason if it can no longer become ready, with 7
/// and its state if it takes too long. A pending or backing-off replica keeps it waiting. So does a controller that
/// goes away meanwhile, which is said on standard error; with 6 it ends if that is away at the end of the time, or
/// does not answer within 5s at first.
#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// The service: NAME, or NAME.NAMESPACE; with --print also NAME:PORT
    name: PortArg,
    /// How many ready replicas; by default as many as there shall be
    #[arg(long, value_name = "N")]
    ready: Option<u32>,
    /// How long at most
    #[arg(long, default_value = "5m", value_name = "TIME")]
    timeout: Span,
    /// Also wait for a service that does not exist yet
    #[arg(long)]
    allow_missing: bool,
    /// Wait until no replica lives any more
    #[arg(long, conflicts_with = "ready")]
    gone: bool,
    /// Then print its endpoints in this form, as `endpoints -o` does
    #[arg(long, value_name = "FORM", value_enum, conflicts_with = "gone")]
    print: Option<Form>,
    /// Whether success is told by the exit code alone.
    #[arg(skip)]
    silent: bool,
}

/// One question is held at most this long.
const HOLD: Duration = Duration::from_secs(30);
/// Beyond it, an answer may take so long to come.
const ANSWER: Duration = Duration::from_secs(10);
/// A controller that never answered is given so long.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// Between two questions to one that is away, or that answers the same at once.
const PAUSE: Duration = Duration::from_millis(500);

/// What is known while one waits.
#[derive(Default)]
struct Seen {
    service: Option<ServiceView>,
    /// Whether it ever answered, if only that there is no such service.
    answered: bool,
    away: Away,
}

/// Whether it was said that the controller is away.
#[derive(Debug, Default)]
pub(super) struct Away(bool);

impl Wait {
    /// Until all of the service is ready, as `wait NAME` does. Where programs read, its success is the exit code.
    pub(super) fn until_ready(service: ServiceArg, timeout: Span, output: Format) -> Self {
        Self {
            name: PortArg {
                service,
                port: None,
            },
            ready: None,
            timeout,
            allow_missing: false,
            gone: false,
            print: None,
            silent: output == Format::Json,
        }
    }

    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        if self.name.port.is_some() && self.print.is_none() {
            let message = format!(
                "a service is ready as a whole: write {}; a port is for --print",
                self.name.service
            );
            return Err(Failure::new(Code::Usage, message));
        }
        let client = connect.client()?;
        let begun = Instant::now();
        let deadline = begun + self.timeout.0;
        let mut seen = Seen::default();
        loop {
            let asked = Instant::now();
            let answer = self.ask(&client, deadline, &seen).await;
            let service = match answer {
                Ok(service) => service,
                Err(ClientError::Refused(problem)) if problem.status == 404 => {
                    if self.gone {
                        return Ok(());
                    }
                    if !self.allow_missing {
                        return Err(ClientError::Refused(problem).into());
                    }
                    seen.answers();
                    if Instant::now() >= deadline {
                        return Err(self.late(None));
                    }
                    pause_after(asked).await;
                    continue;
                }
                Err(away) if is_away(&away) => {
                    let patience = if seen.answered {
                        deadline
                    } else {
                        deadline.min(begun + FIRST_ANSWER)
                    };
                    if Instant::now() + PAUSE > patience {
                        return Err(self.left_alone(away, &seen));
                    }
                    seen.away.miss(&away);
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(other) => return Err(other.into()),
            };
            seen.answers();
            if let Some(outcome) = self.outcome(&service) {
                outcome.map_err(|reason| Failure::new(Code::Failure, reason))?;
                if self.told(&client, &service).await? {
                    return Ok(());
                }
            }
            self.progress(&service, seen.service.as_ref());
            if Instant::now() >= deadline {
                return Err(self.late(Some(&service)));
            }
            let before = seen.service.replace(service);
            if before.map(|it| it.revision) == seen.service.as_ref().map(|it| it.revision) {
                pause_after(asked).await;
            }
        }
    }

    /// One question, held until the service is another one than was seen.
    async fn ask(
        &self,
        client: &Client,
        deadline: Instant,
        seen: &Seen,
    ) -> Result<ServiceView, ClientError> {
        let hold = deadline.saturating_duration_since(Instant::now()).min(HOLD);
        let wait = format!("wait={}ms", hold.as_millis());
        let mut path = paths::service(&self.name.service);
        if let Some(service) = &seen.service {
            path.push_str(&format!("?revision={}&{wait}", service.revision));
        } else if self.allow_missing {
            path.push_str(&format!("?allow_missing=1&revision=0&{wait}"));
        }
        client.get(&path, hold + ANSWER).await
    }

    /// Says that it is as was waited for; `false` if it is so no more.
    async fn told(&self, client: &Client, service: &ServiceView) -> Result<bool, Failure> {
        let name = &service.service;
        if self.silent {
            return Ok(true);
        }
        let Some(form) = self.print else {
            let state = if self.gone {
                "no replica lives".to_owned()
            } else {
                format!("{} of {} ready", service.ready, service.desired)
            };
            return print(&format!("{name}: {state}\n")).map(|()| true);
        };
        let mut path = paths::service_part(&self.name.service, "endpoints");
        if let Some(port) = &self.name.port {
            path.push_str(&format!("?port={port}"));
        }
        let answer: Endpoints = client.get(&path, PATIENCE).await?;
        let listing = Listing::of(answer, self.name.port.clone())?;
        match usable(&listing) {
            Err(refused) if refused.code() == Code::NoneReady && service.ready > 0 => Ok(false),
            usable => {
                usable?;
                let surface = if std::io::stdout().is_terminal() {
                    Surface::Terminal
                } else {
                    Surface::Plain
                };
                print(&Writing::Form(form).one(&listing, surface)?)?;
                Ok(true)
            }
        }
    }

    /// What is decided: nothing yet, success, or why it cannot succeed.
    fn outcome(&self, service: &ServiceView) -> Option<Result<(), String>> {
        let lives = |state: &str| matches!(state, "PEND" | "RUN");
        let living = service
            .replicas
            .iter()
            .filter(|replica| lives(&replica.job_state))
            .count();
        if self.gone {
            return (living == 0).then_some(Ok(()));
        }
        let wanted = self.ready.unwrap_or(service.desired);
        if service.ready >= wanted {
            // Told to restart and not yet at it, a replica is ready as before; that is not what one waits for.
            let through = self.ready.is_some() || service.under_way.is_none();
            return through.then_some(Ok(()));
        }
        if service.state == "stopped" {
            let name = &service.service;
            return Some(Err(format!(
                "{name} is stopped; `portreeve start {name}` runs it"
            )));
        }
        let possible = u32::try_from(living).unwrap_or(u32::MAX);
        if possible >= wanted || possible >= service.desired && service.state == "running" {
            return None;
        }
        let ended = service
            .replicas
            .iter()
            .find(|replica| !lives(&replica.job_state));
        let reason = match ended {
            Some(replica) => format!(
                "{}/{} ended: {}",
                service.service,
                replica.replica,
                replica.reason.as_deref().unwrap_or(&replica.state),
            ),
            None => format!("{} has {} replicas", service.service, service.desired),
        };
        let hint = match ended {
            Some(replica) if matches!(replica.state.as_str(), "failed" | "gave up") => format!(
                "; `portreeve logs {}/{} --stderr` shows what it wrote",
                service.service, replica.replica
            ),
            Some(_) => format!("; `portreeve start {}` runs it again", service.service),
            None => String::new(),
        };
        Some(Err(format!(
            "{reason}; {} of {wanted} wanted replicas ready{hint}",
            service.ready
        )))
    }

    fn late(&self, service: Option<&ServiceView>) -> Failure {
        let name = self.whole_name(service);
        let state = service.map_or_else(|| "it does not exist".to_owned(), describe);
        let span = portreeve::time::Spelled(self.timeout.0);
        let missed = match (self.gone, self.ready) {
            (true, _) => "is not gone".to_owned(),
            (false, Some(1)) => "has no ready replica".to_owned(),
            (false, Some(wanted)) => format!("has fewer than {wanted} ready replicas"),
            (false, None) => "is not ready".to_owned(),
        };
        Failure::new(
            Code::Timeout,
            format!("{name} {missed} after {span}: {state}"),
        )
    }

    fn whole_name(&self, service: Option<&ServiceView>) -> String {
        service.map_or_else(
            || self.name.service.to_string(),
            |it| it.service.to_string(),
        )
    }

    /// The controller is away, and there is no more time to wait for it.
    fn left_alone(&self, away: ClientError, seen: &Seen) -> Failure {
        let failure = Failure::from(away);
        match &seen.service {
            None => failure,
            Some(service) => {
                let name = self.whole_name(seen.service.as_ref());
                let last = describe(service);
                Failure::new(failure.code(), format!("{failure}; {name} was last {last}"))
            }
        }
    }

    /// Says on a terminal what is waited for, each time it changes.
    fn progress(&self, service: &ServiceView, before: Option<&ServiceView>) {
        let text = describe(service);
        if std::io::stderr().is_terminal() && before.map(describe).as_ref() != Some(&text) {
            tell!("{}: {text}", service.service);
        }
    }
}

impl Seen {
    fn answers(&mut self) {
        self.answered = true;
        self.away.answers();
    }
}

impl Away {
    /// It answers; said if it did not before.
    pub(super) fn answers(&mut self) {
        if std::mem::take(&mut self.0) {
            tell!("portreeve: the controller answers again");
        }
    }

    /// It does not; said once.
    pub(super) fn miss(&mut self, away: &ClientError) {
        if !std::mem::replace(&mut self.0, true) {
            tell!("portreeve: {away}; trying again");
        }
    }
}

/// Whether another try may be answered.
pub(super) fn is_away(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Timeout { .. } => true,
        ClientError::Refused(problem) => [429, 503].contains(&problem.status),
        _ => false,
    }
}

/// A question that was to be held and was not is not asked again at once.
async fn pause_after(asked: Instant) {
    tokio::time::sleep_until(asked + PAUSE).await;
}

fn describe(service: &ServiceView) -> String {
    let mut text = format!("{} of {} ready", service.ready, service.desired);
    if let Some(under_way) = &service.under_way {
        text.push_str(&format!(", {under_way}"));
    }
    let mut groups: Vec<(u32, u32, &ReplicaView)> = Vec::new();
    for replica in service.replicas.iter().filter(|replica| !replica.ready) {
        let alike = |it: &ReplicaView| (&it.state, &it.reason) == (&replica.state, &replica.reason);
        match groups.last_mut() {
            Some((_, last, first)) if *last + 1 == replica.replica && alike(first) => {
                *last = replica.replica;
            }
            _ => groups.push((replica.replica, replica.replica, replica)),
        }
    }
    for (first, last, replica) in groups.iter().take(TOLD) {
        let whose = if first == last {
            format!("replica {first}")
        } else {
            format!("replicas {first} to {last}")
        };
        text.push_str(&format!(", {whose} {}", replica.state));
        if let Some(reason) = &replica.reason
            && *reason != replica.state
        {
            text.push_str(&format!(" ({reason})"));
        }
    }
    let untold = groups.iter().skip(TOLD);
    let untold: u32 = untold.map(|(first, last, _)| last - first + 1).sum();
    if untold > 0 {
        text.push_str(&format!(", and {untold} more not ready"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(index: u32, state: &str, reason: &str) -> ReplicaView {
        let view = serde_json::json!({
            "replica": index, "incarnation": 1, "job_state": "PEND", "state": state, "ready": false,
            "reason": reason, "reasons": [], "restarts": 0, "restarts_total": 0, "user_restarts": 0,
            "ports": {}, "since": 0,
        });
        serde_json::from_value(view).unwrap()
    }

    fn service(replicas: Vec<ReplicaView>) -> ServiceView {
        let view = serde_json::json!({
            "service": "web.alice", "owner": "alice", "state": "running", "desired": replicas.len(), "ready": 0,
            "submitted": 0, "changed": 0, "revision": 1, "replicas": replicas, "id": 1,
            "profile": { "kind": "service", "name": "web", "command": "true" },
        });
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn replicas_that_wait_for_the_same_are_told_as_one() {
        let mut replicas: Vec<_> = (0..2000)
            .map(|index| replica(index, "pending", "no free port"))
            .collect();
        replicas[7] = replica(7, "backoff", "exit 1");
        assert_eq!(
            describe(&service(replicas)),
            "0 of 2000 ready, replicas 0 to 6 pending (no free port), replica 7 backoff (exit 1), \
             replicas 8 to 1999 pending (no free port)"
        );
    }

    #[test]
    fn what_is_told_has_an_end() {
        let replicas = (0..20).map(|index| replica(index, "backoff", &format!("exit {index}")));
        let told = describe(&service(replicas.collect()));
        assert!(
            told.ends_with("replica 7 backoff (exit 7), and 12 more not ready"),
            "{told}"
        );
    }
}
