//! `wait`: until a service is ready, or cannot become so.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use portreeve_api::body::{ReplicaView, ServiceView};
use portreeve_api::{ClientError, paths};
use tokio::time::Instant;

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::names::ServiceArg;
use crate::output::print;
use crate::span::Span;

/// How many states of replicas a line tells; who waits for one and the same is one.
const TOLD: usize = 8;

/// Wait until a service is ready, and no restart or replacement of it is under way.
///
/// With --ready N only that many ready replicas count. Ends at once with exit code 4 if the service is unknown
/// (with --gone that is what was waited for: 0), with 1 and the reason if it can no longer become ready, with 7
/// and its state if it takes too long. A pending or backing-off replica keeps it waiting.
#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// The service: NAME, or NAME.NAMESPACE
    name: ServiceArg,
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
}

/// One question is held at most this long.
const HOLD: Duration = Duration::from_secs(30);

impl Wait {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let client = connect.client()?;
        let deadline = Instant::now() + self.timeout.0;
        let mut seen: Option<ServiceView> = None;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && seen.is_some() {
                return Err(self.late(seen.as_ref()));
            }
            let hold = left.min(HOLD);
            let mut path = paths::service(&self.name);
            if let Some(service) = &seen {
                path.push_str(&format!(
                    "?revision={}&wait={}ms",
                    service.revision,
                    hold.as_millis()
                ));
            } else if self.allow_missing {
                path.push_str(&format!(
                    "?allow_missing=1&revision=0&wait={}ms",
                    hold.as_millis()
                ));
            }
            let answer = client.get::<ServiceView>(&path, hold + HOLD).await;
            let service = match answer {
                Ok(service) => service,
                Err(ClientError::Refused(problem)) if problem.status == 404 => {
                    if self.gone {
                        return Ok(());
                    }
                    if self.allow_missing && Instant::now() < deadline {
                        continue;
                    }
                    if self.allow_missing {
                        return Err(self.late(None));
                    }
                    return Err(ClientError::Refused(problem).into());
                }
                Err(other) => return Err(other.into()),
            };
            if let Some(outcome) = self.outcome(&service) {
                return outcome
                    .map_err(|reason| Failure::new(Code::Failure, reason))
                    .and_then(|()| {
                        let state = if self.gone {
                            "no replica lives".to_owned()
                        } else {
                            format!("{} of {} ready", service.ready, service.desired)
                        };
                        print(&format!("{}: {state}\n", service.service))
                    });
            }
            self.progress(&service, seen.as_ref());
            if Instant::now() >= deadline {
                return Err(self.late(Some(&service)));
            }
            seen = Some(service);
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
        let name = service.map_or_else(|| self.name.to_string(), |it| it.service.to_string());
        let state = service.map_or_else(|| "it does not exist".to_owned(), describe);
        let span = portreeve::time::Spelled(self.timeout.0);
        let missed = if self.gone { "not gone" } else { "not ready" };
        Failure::new(
            Code::Timeout,
            format!("{name} is {missed} after {span}: {state}"),
        )
    }

    /// Says on a terminal what is waited for, each time it changes.
    fn progress(&self, service: &ServiceView, before: Option<&ServiceView>) {
        let text = describe(service);
        if std::io::stderr().is_terminal() && before.map(describe).as_ref() != Some(&text) {
            eprintln!("{}: {text}", service.service);
        }
    }
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
        if let Some(reason) = &replica.reason {
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
