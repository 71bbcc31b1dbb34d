//! `services` and `service`: what there is.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use portreeve_api::body::{ReplicaView, ServiceList, ServiceView};
use portreeve_api::paths;

use crate::connect::Connect;
use crate::exit::Failure;
use crate::names::ServiceArg;
use crate::output::{Format, moment, or_dash, print, print_json, prose, rows, tell};

use super::every_page::every_page;

/// How long a plain question may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// List services.
///
/// Columns: service, state, ready of desired, restarts, and what it waits for.
#[derive(Args, Debug)]
pub(crate) struct Services {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Services {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let list: ServiceList = every_page(&connect.client()?, &paths::services(), &[]).await?;
        if self.output == Format::Json {
            return print_json(&list);
        }
        let lines = list.services.iter().map(|service| {
            vec![
                service.service.to_string(),
                service.state.clone(),
                format!("{}/{}", service.ready, service.desired),
                restarts(service).to_string(),
                or_dash(waits_for(service)),
            ]
        });
        if list.services.is_empty() {
            tell!("no service in your view; `portreeve submit FILE` creates one");
            return Ok(());
        }
        let heading = ["SERVICE", "STATE", "READY", "RESTARTS", "REASON"];
        print(&rows(&heading, lines.collect()))
    }
}

/// Show one service with its replicas, and why one is not ready.
///
/// In a pipe: one line per replica with service, replica, host, ports, state, ready, restarts, last failure, reason.
#[derive(Args, Debug)]
pub(crate) struct Service {
    /// The service: NAME, or NAME.NAMESPACE
    name: ServiceArg,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Service {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let path = paths::service(&self.name);
        let service: ServiceView = connect.client()?.get(&path, PATIENCE).await?;
        if self.output == Format::Json {
            return print_json(&service);
        }
        if !std::io::stdout().is_terminal() {
            let mut lines = replica_rows(&service);
            for (line, replica) in lines.iter_mut().zip(&service.replicas) {
                line.push(or_dash(standing(replica)));
            }
            return print(&rows(&REPLICA_HEADING, lines));
        }
        let mut text = format!(
            "{}: {}, {} of {} ready, submitted {} by {}\n",
            service.service,
            service.state,
            service.ready,
            service.desired,
            moment(service.submitted),
            service.owner,
        );
        if let Some(under_way) = &service.under_way {
            text.push_str(&format!("under way: {under_way}\n"));
        }
        text.push_str(&rows(&REPLICA_HEADING, replica_rows(&service)));
        text.push_str(&prose(&reasons(&service)));
        print(&text)
    }
}

/// The columns of a replica, in `service` and in `dev`.
pub(crate) const REPLICA_HEADING: [&str; 8] = [
    "SERVICE",
    "REPLICA",
    "HOST",
    "PORTS",
    "STATE",
    "READY",
    "RESTARTS",
    "LAST FAILURE",
];

/// One row per replica of a service.
pub(crate) fn replica_rows(service: &ServiceView) -> Vec<Vec<String>> {
    let row = |replica: &ReplicaView| {
        vec![
            service.service.to_string(),
            replica.replica.to_string(),
            or_dash(replica.host.as_ref()),
            ports(replica),
            replica.state.clone(),
            if replica.ready { "yes" } else { "no" }.to_owned(),
            replica.restarts.to_string(),
            or_dash(replica.last_failure.as_ref()),
        ]
    };
    service.replicas.iter().map(row).collect()
}

/// Why each replica is as it is, below the table; neighbours for the same reason on one line.
pub(crate) fn reasons(service: &ServiceView) -> String {
    let mut groups: Vec<(u32, u32, String)> = Vec::new();
    for replica in &service.replicas {
        let Some(reason) = standing(replica) else {
            continue;
        };
        match groups.last_mut() {
            Some((_, last, same)) if *same == reason && *last + 1 == replica.replica => {
                *last = replica.replica;
            }
            _ => groups.push((replica.replica, replica.replica, reason)),
        }
    }
    let told = groups.into_iter().map(|(first, last, reason)| {
        let name = &service.service;
        if first == last {
            format!("{name}/{first}: {reason}\n")
        } else {
            format!("{name}/{first} to {last}: {reason}\n")
        }
    });
    told.collect()
}

/// Why a replica is as it is; of an attached one that is as it should be, whose it is.
fn standing(replica: &ReplicaView) -> Option<String> {
    let attached = || match &replica.job {
        Some(job) => format!("attached: runs inside {job}"),
        None => "attached: runs inside a job of another scheduler".to_owned(),
    };
    let lives = replica.host.is_some() && replica.job_state == "RUN";
    let reason = replica.reason.clone();
    reason.or_else(|| (replica.attached && lives).then(attached))
}

/// `http=20001 workers=20002-20005`.
pub(crate) fn ports(replica: &ReplicaView) -> String {
    let ports: Vec<_> = replica
        .ports
        .iter()
        .map(|(name, numbers)| format!("{name}={numbers}"))
        .collect();
    if ports.is_empty() {
        "-".to_owned()
    } else {
        ports.join(" ")
    }
}

fn restarts(service: &ServiceView) -> u32 {
    service
        .replicas
        .iter()
        .map(|replica| replica.restarts_total)
        .sum()
}

/// What waiting replicas wait for; else the reason of the first replica that is not ready.
fn waits_for(service: &ServiceView) -> Option<String> {
    if let Some(waits_for) = &service.waits_for {
        return Some(waits_for.clone());
    }
    let waiting = service
        .replicas
        .iter()
        .find(|replica| !replica.ready && replica.reason.is_some());
    let told = waiting.and_then(|replica| {
        replica
            .reason
            .as_ref()
            .map(|reason| format!("replica {}: {reason}", replica.replica))
    });
    let attached = || "attached to jobs of another scheduler".to_owned();
    told.or_else(|| service.attached.then(attached))
}
