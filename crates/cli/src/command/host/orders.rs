//! `host undrain`, `down`, `remove`, `adopt` and `fence`: orders that are answered at once.

use clap::Args;
use http::Method;
use portreeve::identity::HostName;
use portreeve_api::body::{Answer, DownAsk, UnknownReplica};
use portreeve_api::paths;
use serde::Serialize;

use crate::command::services::PATIENCE;
use crate::command::verbs::show_answer;
use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::names::ReplicaArg;
use crate::output::Format;

/// Put a host back into service; what was moved stays where it is.
#[derive(Args, Debug)]
pub(crate) struct Undrain {
    /// The host
    name: HostName,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Undrain {
    pub(super) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        order(connect, &self.name, "undrain", &(), self.output).await
    }
}

/// Take a silent host for lost at once, without waiting for the grace: what may run elsewhere follows there.
///
/// The ports of what ran there stay held until the host is back and says what runs, or was booted. With --fenced they
/// are free at once: say it only if the machine is off or cut off for good, or two processes may end up with one port.
#[derive(Args, Debug)]
pub(crate) struct Down {
    /// The host
    name: HostName,
    /// Nothing runs there any more: it is off, or cut off for good
    #[arg(long)]
    fenced: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Down {
    pub(super) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let ask = DownAsk {
            fenced: self.fenced,
        };
        order(connect, &self.name, "down", &ask, self.output).await
    }
}

/// Forget a host that is gone for good; refused while it is up or something may live there.
///
/// An agent that reports under its name later makes it a new host.
#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// The host
    name: HostName,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Remove {
    pub(super) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        order(connect, &self.name, "remove", &(), self.output).await
    }
}

/// Make a replica that runs on a host and is not known to the controller one of its service again.
///
/// Such replicas are there after a backup was restored, or with a controller that lost its data; `portreeve host NAME`
/// names them. Until they are adopted or fenced they run on, and their ports are kept from others.
#[derive(Args, Debug)]
pub(crate) struct Adopt {
    /// The host
    name: HostName,
    /// The replica: SERVICE/N, with the namespace where it is not yours
    replica: ReplicaArg,
    /// Which placement of it, where several run there
    #[arg(long, value_name = "N")]
    incarnation: Option<u32>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Adopt {
    pub(super) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let ask = unknown(&self.replica, self.incarnation)?;
        order(connect, &self.name, "adopt", &ask, self.output).await
    }
}

/// Stop a replica that runs on a host and is not known to the controller, or all such with --all.
#[derive(Args, Debug)]
pub(crate) struct Fence {
    /// The host
    name: HostName,
    /// The replica: SERVICE/N, with the namespace where it is not yours
    #[arg(required_unless_present = "all")]
    replica: Option<ReplicaArg>,
    /// Which placement of it, where several run there
    #[arg(long, value_name = "N", requires = "replica")]
    incarnation: Option<u32>,
    /// Everything there that is not known
    #[arg(long, conflicts_with = "replica")]
    all: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Fence {
    pub(super) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let replica = self.replica.as_ref();
        let ask = replica.map(|replica| unknown(replica, self.incarnation));
        let ask = ask.transpose()?;
        order(connect, &self.name, "fence", &ask, self.output).await
    }
}

fn unknown(replica: &ReplicaArg, incarnation: Option<u32>) -> Result<UnknownReplica, Failure> {
    let service = replica.service.to_string();
    let Some(index) = replica.index else {
        let message = format!("name one replica, as in {service}/0");
        return Err(Failure::new(Code::Usage, message));
    };
    Ok(UnknownReplica {
        service,
        replica: index,
        incarnation,
    })
}

async fn order(
    connect: &Connect,
    host: &HostName,
    verb: &str,
    body: &impl Serialize,
    output: Format,
) -> Result<(), Failure> {
    let path = paths::host_part(host, verb);
    let client = connect.client()?;
    let answer: Answer = client.call(Method::POST, &path, body, PATIENCE).await?;
    show_answer(&answer, output)
}
