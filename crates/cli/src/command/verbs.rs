//! `scale`, `start`, `restart`, `stop`, `kill`, `delete`: what a service's owner can order.

use clap::Args;
use http::Method;
use portreeve_api::body::{self, Answer};
use portreeve_api::paths;
use serde::Serialize;

use crate::connect::Connect;
use crate::exit::Failure;
use crate::names::{ReplicaArg, ServiceArg};
use crate::output::{Format, print, print_json, prose};

use super::services::PATIENCE;

/// Set the number of replicas; the highest index goes first.
#[derive(Args, Debug)]
pub(crate) struct Scale {
    /// The service: NAME, or NAME.NAMESPACE
    name: ServiceArg,
    /// How many replicas there shall be
    replicas: u32,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Scale {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let body = body::Scale {
            replicas: self.replicas,
        };
        let path = paths::service_part(&self.name, "scale");
        order(connect, Method::POST, &path, &body, self.output).await
    }
}

/// Start a stopped service, and replicas that ended, with a fresh restart budget.
#[derive(Args, Debug)]
pub(crate) struct Start {
    /// The service: NAME, or NAME.NAMESPACE
    name: ServiceArg,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Start {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        order(
            connect,
            Method::POST,
            &paths::service_part(&self.name, "start"),
            &(),
            self.output,
        )
        .await
    }
}

/// Restart replicas in place on their ports; not charged to the restart budget.
///
/// Of a whole service one replica at a time, highest index first, each after the one before is ready. It returns at
/// once: `portreeve wait NAME` waits until the restart is through.
#[derive(Args, Debug)]
pub(crate) struct Restart {
    /// The service or one replica: NAME[/N]
    name: ReplicaArg,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Restart {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let path = match self.name.index {
            Some(index) => paths::replica_part(&self.name.service, index, "restart"),
            None => paths::service_part(&self.name.service, "restart"),
        };
        order(connect, Method::POST, &path, &(), self.output).await
    }
}

/// Stop every replica of a service; it stays known until deleted.
///
/// It returns at once: `portreeve wait NAME --gone` waits for the end.
#[derive(Args, Debug)]
pub(crate) struct Stop {
    /// The service: NAME, or NAME.NAMESPACE
    name: ServiceArg,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Stop {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        order(
            connect,
            Method::POST,
            &paths::service_part(&self.name, "stop"),
            &(),
            self.output,
        )
        .await
    }
}

/// Stop one replica; its index stays empty until start or submit.
#[derive(Args, Debug)]
pub(crate) struct Kill {
    /// The replica: NAME/N
    name: ReplicaArg,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Kill {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let Some(index) = self.name.index else {
            let message = format!(
                "name one replica, as in `portreeve kill {}/0`; `portreeve stop` ends the service",
                self.name.service
            );
            return Err(Failure::new(crate::exit::Code::Usage, message));
        };
        let path = paths::replica_part(&self.name.service, index, "kill");
        order(connect, Method::POST, &path, &(), self.output).await
    }
}

/// Forget a stopped service.
#[derive(Args, Debug)]
pub(crate) struct Delete {
    /// The service: NAME, or NAME.NAMESPACE
    name: ServiceArg,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Delete {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        order(
            connect,
            Method::DELETE,
            &paths::service(&self.name),
            &(),
            self.output,
        )
        .await
    }
}

async fn order(
    connect: &Connect,
    method: Method,
    path: &str,
    body: &impl Serialize,
    output: Format,
) -> Result<(), Failure> {
    let answer: Answer = connect.client()?.call(method, path, body, PATIENCE).await?;
    show_answer(&answer, output)
}

/// An answer in the form that was asked for.
pub(crate) fn show_answer(answer: &Answer, output: Format) -> Result<(), Failure> {
    match output {
        Format::Json => print_json(answer),
        Format::Table => print_answer(answer),
    }
}

/// What became of an order, one sentence a line.
pub(crate) fn print_answer(answer: &Answer) -> Result<(), Failure> {
    let mut text = String::new();
    for note in &answer.notes {
        text.push_str(&format!("{}: {note}\n", answer.subject()));
    }
    if text.is_empty() {
        // From a controller that says no more.
        let done = if answer.changed {
            "done"
        } else {
            "nothing to change"
        };
        text = format!("{}: {done}\n", answer.subject());
    }
    print(&prose(&text))
}
