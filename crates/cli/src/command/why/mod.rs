//! `why` and `replay`: why a service or a replica stands where it stands, and what to do.

mod record;
mod replay;
mod standing;

use clap::Args;
use portreeve::supervision::record::Because;
use portreeve_api::body::{EventList, EventView, ServiceView};
use portreeve_api::{Client, paths};
use serde::Serialize;

use crate::connect::Connect;
use crate::exit::Failure;
use crate::names::{ReplicaArg, ServiceArg};
use crate::output::{Format, moment, print, print_json, prose, tell};

use super::services::PATIENCE;
use standing::{Standing, of_replica, of_service};

pub(crate) use replay::Replay;

/// Say why a service or a replica stands where it stands: one sentence, the cause, the next step.
///
/// Why it waits for a place, is not listed, was restarted, gave up, was moved, or lost its host. Of one replica (NAME/N,
/// or NAME where there is only one) also the rule and the boundary that fired last: for that it plays the record that the
/// replica's worker keeps on its host, so it needs the right to read the service's logs and the host to answer; and what
/// led there by the controller's events.
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// The service or one replica: NAME[/N]
    name: ReplicaArg,
    /// Every turn of the record, not only the newest
    #[arg(long)]
    all: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// How many events are told that led there.
const LED_THERE: usize = 5;

/// What programs are told.
#[derive(Serialize)]
struct Told {
    service: String,
    /// `None`: the service as a whole.
    replica: Option<u32>,
    #[serde(flatten)]
    standing: Standing,
    /// Of a service as a whole: each replica.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replicas: Vec<ToldReplica>,
    /// Of one replica: the turns of its worker's record, oldest first.
    turns: Vec<Because>,
    /// What led there, oldest first.
    events: Vec<EventView>,
}

#[derive(Serialize)]
struct ToldReplica {
    replica: u32,
    #[serde(flatten)]
    standing: Standing,
}

impl Why {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let client = connect.client()?;
        let service: ServiceView = client
            .get(&paths::service(&self.name.service), PATIENCE)
            .await?;
        let mut all = service.replicas.iter();
        let only = all.next().filter(|_| all.next().is_none());
        let only = only.map(|replica| replica.replica);
        match self.name.index.or(only) {
            Some(index) => self.of_one(&client, &service, index).await,
            None => self.of_all(&client, &service).await,
        }
    }

    async fn of_all(&self, client: &Client, service: &ServiceView) -> Result<(), Failure> {
        let replicas = service.replicas.iter().map(|replica| ToldReplica {
            replica: replica.replica,
            standing: of_replica(service, replica),
        });
        let told = Told {
            service: service.service.to_string(),
            replica: None,
            standing: of_service(service),
            replicas: replicas.collect(),
            turns: Vec::new(),
            events: led_there(client, &self.name.service, None).await,
        };
        if self.output == Format::Json {
            return print_json(&told);
        }
        let mut text = lines(&told.service, &told.standing);
        for (names, standing) in grouped(&told.service, &told.replicas) {
            text.push_str(&lines(&names, standing));
        }
        text.push_str(&events(&told.events));
        print(&prose(&text))
    }

    async fn of_one(
        &self,
        client: &Client,
        service: &ServiceView,
        index: u32,
    ) -> Result<(), Failure> {
        let Some(replica) = service.replicas.iter().find(|it| it.replica == index) else {
            let service = service.service.to_string();
            return Err(Failure::no_such_replica(&service, index));
        };
        let mut standing = of_replica(service, replica);
        let asked = &self.name.service;
        let turns = if replica.host.is_some() && !standing.is_unknown {
            match record::turns(client, asked, index).await {
                Ok(turns) => turns,
                Err(why) => {
                    tell!("{why}");
                    Vec::new()
                }
            }
        } else {
            Vec::new()
        };
        if let Some(newest) = turns.last()
            && standing.is_of_worker
        {
            // The worker knows the rule; the controller only what came of it.
            standing.sentence.clone_from(&newest.sentence);
        }
        let told = Told {
            service: service.service.to_string(),
            replica: Some(index),
            standing,
            replicas: Vec::new(),
            turns,
            events: led_there(client, asked, Some(index)).await,
        };
        if self.output == Format::Json {
            return print_json(&told);
        }
        let mut text = lines(&format!("{asked}/{index}"), &told.standing);
        text.push_str(&record::told(&told.turns, self.all));
        text.push_str(&events(&told.events));
        print(&prose(&text))
    }
}

/// The newest events of it; none for who may not read them, and from a controller that does not answer.
async fn led_there(client: &Client, service: &ServiceArg, index: Option<u32>) -> Vec<EventView> {
    let parameters = [
        ("limit", Some(LED_THERE.to_string())),
        ("replica", index.map(|it| it.to_string())),
    ];
    let path = paths::with_given(&paths::service_part(service, "events"), &parameters);
    let list = client.get::<EventList>(&path, PATIENCE).await;
    list.map_or_else(|_| Vec::new(), |list| list.events)
}

fn lines(name: &str, standing: &Standing) -> String {
    let mut text = format!("{name}: {}\n", standing.sentence);
    if let Some(cause) = &standing.cause {
        text.push_str(&format!("  cause: {cause}\n"));
    }
    if let Some(next) = &standing.next {
        text.push_str(&format!("  next: {next}\n"));
    }
    text
}

/// Replicas that stand alike, together: `web.alice/0, 1, 5`.
fn grouped<'a>(service: &str, replicas: &'a [ToldReplica]) -> Vec<(String, &'a Standing)> {
    let mut groups: Vec<(String, &Standing)> = Vec::new();
    for told in replicas {
        match groups.iter_mut().find(|(_, it)| **it == told.standing) {
            Some((names, _)) => names.push_str(&format!(", {}", told.replica)),
            None => groups.push((format!("{service}/{}", told.replica), &told.standing)),
        }
    }
    groups
}

fn events(events: &[EventView]) -> String {
    let mut text = String::new();
    if !events.is_empty() {
        text.push_str("what led there:\n");
    }
    for event in events {
        let times = match event.times {
            1 => String::new(),
            times => format!(" ({times} times)"),
        };
        let of = event
            .replica
            .map_or(String::new(), |index| format!("replica {index}: "));
        text.push_str(&format!(
            "  {}  {of}{}{times}\n",
            moment(event.at),
            in_words(event)
        ));
    }
    text
}

/// What happened, led in by its kind where the text does not say that itself.
fn in_words(event: &EventView) -> String {
    let kind = event.kind.replace('-', " ");
    // The first letters, as `stopping` is told by "stopped by alice" and `restarted` by "restart 2".
    let stem = kind.get(..4).unwrap_or(&kind);
    match event.text.starts_with(stem) {
        true => event.text.clone(),
        false => format!("{kind}: {}", event.text),
    }
}

#[cfg(test)]
mod tests {
    use portreeve::time::WallClock;

    use super::*;

    #[test]
    fn what_led_there_names_the_replica_and_says_nothing_twice() {
        let told = |kind: &str, text: &str, replica, times| {
            let event = EventView {
                at: WallClock::from_unix_millis(1_700_000_100_000),
                replica,
                incarnation: None,
                host: None,
                kind: kind.into(),
                text: text.into(),
                times,
                first: None,
            };
            let told = events(&[event]);
            told.split_once("  2023-11-14T22:15:00Z  ")
                .unwrap()
                .1
                .to_owned()
        };
        assert_eq!(
            told("placed", "placed on host n1", Some(1), 1),
            "replica 1: placed on host n1\n"
        );
        assert_eq!(
            told("gave-up", "gave up after 2 restarts", Some(0), 1),
            "replica 0: gave up after 2 restarts\n"
        );
        assert_eq!(
            told("requeued", "host n2 lost", Some(0), 1),
            "replica 0: requeued: host n2 lost\n"
        );
        assert_eq!(
            told("failed", "exit 1", Some(0), 2),
            "replica 0: failed: exit 1 (2 times)\n"
        );
        assert_eq!(
            told("submitted", "submitted by alice", None, 1),
            "submitted by alice\n"
        );
    }
}
