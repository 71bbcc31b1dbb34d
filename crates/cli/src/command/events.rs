//! `events`: what happened to a service or on a host.

use clap::Args;
use portreeve::identity::HostName;
use portreeve_api::body::{EventList, EventView};
use portreeve_api::moment::Moment;
use portreeve_api::paths;

use crate::connect::Connect;
use crate::exit::Failure;
use crate::names::ReplicaArg;
use crate::output::{Format, moment, or_dash, print, print_json, rows, tell};

use super::services::PATIENCE;

/// Show what happened to a service, one of its replicas, or a host, oldest first.
///
/// Up to 1,000 events of the last 30 days are kept, and the last 10 failures however old they are. What happens again
/// and again in the same way is one entry: when it last did, how often, and since when.
///
/// In a pipe: time, replica, event, what, host, with a dash for nothing.
#[derive(Args, Debug)]
pub(crate) struct Events {
    /// The service or one replica: NAME[/N]
    #[arg(required_unless_present = "host")]
    name: Option<ReplicaArg>,
    /// What happened to this host
    #[arg(long, conflicts_with = "name")]
    host: Option<HostName>,
    /// Only what last happened then or later: 2026-11-30T02:00:00Z, milliseconds since 1970, or -2h for two hours ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<Moment>,
    /// Only the newest so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1010))]
    limit: Option<u16>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Events {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let replica = self.name.as_ref().and_then(|name| name.index);
        let path = match (&self.name, &self.host) {
            (Some(name), _) => paths::service_part(&name.service, "events"),
            (None, Some(host)) => paths::host_part(host, "events"),
            (None, None) => return Err(Failure::plain("name a service, or a host with --host")),
        };
        let parameters = [
            ("since", self.since.map(|it| it.to_string())),
            ("limit", self.limit.map(|it| it.to_string())),
            ("replica", replica.map(|it| it.to_string())),
        ];
        let path = paths::with_given(&path, &parameters);
        let list: EventList = connect.client()?.get(&path, PATIENCE).await?;
        if self.output == Format::Json {
            return print_json(&list);
        }
        let heading = ["TIME", "REPLICA", "EVENT", "WHAT", "HOST"];
        print(&rows(&heading, list.events.iter().map(row).collect()))?;
        if list.events.is_empty() && self.since.is_none() {
            tell!("nothing is known of it: it was never there, or it is longer ago than is kept");
        }
        if list.left_out > 0 {
            tell!("{} earlier ones are left out", list.left_out);
        }
        Ok(())
    }
}

fn row(event: &EventView) -> Vec<String> {
    let replica = event.replica.map(|index| index.to_string());
    let what = match event.first {
        Some(first) => format!(
            "{} ({} times since {})",
            event.text,
            event.times,
            moment(first)
        ),
        None => event.text.clone(),
    };
    vec![
        moment(event.at),
        or_dash(replica),
        event.kind.clone(),
        what,
        or_dash(event.host.as_ref()),
    ]
}

#[cfg(test)]
mod tests {
    use portreeve::time::WallClock;

    use super::*;

    #[test]
    fn what_repeats_is_told_with_how_often_and_since_when() {
        let at = |s: u64| WallClock::from_unix_millis(s * 1000);
        let mut event = EventView {
            at: at(1_700_000_100),
            replica: Some(0),
            incarnation: None,
            host: Some("n1".parse().unwrap()),
            kind: "failed".into(),
            text: "exit 1".into(),
            times: 1,
            first: None,
        };
        assert_eq!(
            row(&event),
            ["2023-11-14T22:15:00Z", "0", "failed", "exit 1", "n1"]
        );
        (event.times, event.first) = (7, Some(at(1_700_000_000)));
        assert_eq!(
            row(&event)[3],
            "exit 1 (7 times since 2023-11-14T22:13:20Z)"
        );
    }
}
