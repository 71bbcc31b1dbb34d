//! `host drain`: orders it, and tells how far it is until nothing is left to move.

use std::time::Duration;

use clap::Args;
use http::Method;
use portreeve::identity::HostName;
use portreeve_api::body::{Answer, DrainAsk, DrainView, HostView};
use portreeve_api::{Client, ClientError, paths};
use tokio::time::Instant;

use crate::command::services::PATIENCE;
use crate::command::verbs::print_answer;
use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::output::{Format, is_read, print_json, tell};
use crate::span::Span;

use super::show::stays;

/// Take a host out of service: its replicas move to other hosts and nothing new comes.
///
/// Of each service one replica moves at a time: it leaves the lists, is drained and stopped, and the next follows once it
/// is ready elsewhere. What has nowhere to go is named and stays until it has, or until the deadline. Replicas inside jobs
/// of other schedulers stay with their jobs. It waits until nothing is left to move and tells how far it is; stopped
/// (Ctrl-C), or over --timeout (exit code 7), the drain itself goes on. `portreeve host undrain` ends it.
#[derive(Args, Debug)]
pub(crate) struct Drain {
    /// The host
    name: HostName,
    /// What is left after this time is stopped at once, whether it has somewhere to go or not
    #[arg(long, value_name = "TIME", conflicts_with = "now")]
    deadline: Option<Span>,
    /// Stop everything at once, whether it has somewhere to go or not
    #[arg(long)]
    now: bool,
    /// Do not wait: order it and return
    #[arg(long)]
    no_wait: bool,
    /// Wait so long at most
    #[arg(long, value_name = "TIME", conflicts_with = "no_wait")]
    timeout: Option<Span>,
    /// How to print it; as JSON the answer under --no-wait, else the host once it is drained
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A controller that is away meanwhile is waited for so long.
const AWAY: Duration = Duration::from_secs(300);

impl Drain {
    pub(super) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let begun = Instant::now();
        let ask = DrainAsk {
            deadline: self.deadline.map(written),
            now: self.now,
        };
        let client = connect.client()?;
        let path = paths::host_part(&self.name, "drain");
        let answer: Answer = client.call(Method::POST, &path, &ask, PATIENCE).await?;
        if self.output == Format::Table {
            print_answer(&answer)?;
        } else if self.no_wait {
            print_json(&answer)?;
        }
        if self.no_wait {
            return Ok(());
        }
        self.watch(&client, begun).await
    }

    async fn watch(&self, client: &Client, begun: Instant) -> Result<(), Failure> {
        let path = paths::host(&self.name);
        let mut told = Vec::new();
        let mut away = None;
        let mut is_first = true;
        loop {
            match client.get::<HostView>(&path, PATIENCE).await {
                Ok(host) => {
                    if away.take().is_some() {
                        tell!("the controller answers again");
                    }
                    let Some(drain) = &host.drain else {
                        let text = format!("host {} was put back into service", self.name);
                        return Err(Failure::plain(text));
                    };
                    if !self.tell(drain, &mut told)? {
                        return Ok(());
                    }
                    if drain.left == 0 {
                        return match self.output {
                            Format::Json => print_json(&host),
                            Format::Table => Ok(()),
                        };
                    }
                    if std::mem::take(&mut is_first) && self.output == Format::Table {
                        tell!(
                            "waiting until nothing is left; Ctrl-C ends the wait, and not the drain"
                        );
                    }
                    self.in_time(begun, drain)?;
                }
                Err(cause @ (ClientError::Unreachable { .. } | ClientError::Timeout { .. })) => {
                    if away.is_none() {
                        tell!(
                            "the controller does not answer, which a drain survives: waiting for it"
                        );
                    }
                    let since = *away.get_or_insert_with(Instant::now);
                    if since.elapsed() > AWAY.min(self.patience()) {
                        return Err(cause.into());
                    }
                }
                Err(other) => return Err(other.into()),
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Says what is new. False: nobody reads it any more.
    fn tell(&self, drain: &DrainView, told: &mut Vec<String>) -> Result<bool, Failure> {
        if self.output == Format::Json {
            return Ok(true);
        }
        let name = &self.name;
        let mut lines = vec![match drain.left {
            0 => format!("host {name}: drained"),
            left => format!("host {name}: {left} of {} left", drain.replicas),
        }];
        lines.extend(stays(drain));
        let new = lines.iter().filter(|line| !told.contains(line));
        let text: String = new.map(|line| format!("{line}\n")).collect();
        *told = lines;
        is_read(&text)
    }

    fn in_time(&self, begun: Instant, drain: &DrainView) -> Result<(), Failure> {
        if begun.elapsed() < self.patience() {
            return Ok(());
        }
        let text = format!(
            "host {}: {} of {} left after {}; the drain goes on: `portreeve host {}` shows it, \
             `portreeve host drain {} --now` stops what is left",
            self.name,
            drain.left,
            drain.replicas,
            portreeve::time::Spelled(self.patience()),
            self.name,
            self.name
        );
        Err(Failure::new(Code::Timeout, text))
    }

    fn patience(&self) -> Duration {
        self.timeout.map_or(Duration::MAX, |timeout| timeout.0)
    }
}

fn written(span: Span) -> String {
    portreeve::time::Spelled(span.0).to_string()
}
