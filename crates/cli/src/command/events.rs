//! `events`: what happened to a service or on a host.

use std::time::Duration;

use clap::Args;
use portreeve::identity::HostName;
use portreeve_api::body::{EventList, EventView};
use portreeve_api::moment::Moment;
use portreeve_api::{Client, paths};

use crate::connect::Connect;
use crate::exit::Failure;
use crate::names::ReplicaArg;
use crate::output::{Format, is_read, moment, or_dash, plain_rows, print, print_json, rows, tell};

use super::services::PATIENCE;
use super::wait::{Away, is_away};

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
    /// Go on as more happens, until Ctrl-C; as JSON one object a line
    #[arg(short, long)]
    follow: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Events {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let client = connect.client()?;
        let since = self.since.map(|it| it.to_string());
        let list: EventList = client.get(&self.path(since)?, PATIENCE).await?;
        if self.output == Format::Json && !self.follow {
            return print_json(&list);
        }
        if !self.show(&list.events)? {
            return Ok(());
        }
        if list.events.is_empty() && self.since.is_none() {
            tell!("nothing is known of it: it was never there, or it is longer ago than is kept");
        }
        if list.left_out > 0 {
            tell!("{} earlier ones are left out", list.left_out);
        }
        match self.follow {
            true => self.go_on(&client, list.events).await,
            false => Ok(()),
        }
    }

    /// Where what happened since then is told.
    fn path(&self, since: Option<String>) -> Result<String, Failure> {
        let replica = self.name.as_ref().and_then(|name| name.index);
        let path = match (&self.name, &self.host) {
            (Some(name), _) => paths::service_part(&name.service, "events"),
            (None, Some(host)) => paths::host_part(host, "events"),
            (None, None) => return Err(Failure::plain("name a service, or a host with --host")),
        };
        let parameters = [
            ("since", since),
            ("limit", self.limit.map(|it| it.to_string())),
            ("replica", replica.map(|it| it.to_string())),
        ];
        Ok(paths::with_given(&path, &parameters))
    }

    /// Tells of these; says whether anybody reads on.
    fn show(&self, events: &[EventView]) -> Result<bool, Failure> {
        if !self.follow {
            return print(&rows(&HEADING, events.iter().map(row).collect())).map(|()| true);
        }
        // One a line: nobody knows how wide the columns of what is still to come are.
        let mut lines = String::new();
        for event in events {
            match self.output {
                Format::Json => {
                    lines.push_str(&serde_json::to_string(event).map_err(Failure::plain)?);
                }
                Format::Table => lines.push_str(plain_rows(&[row(event)]).trim_end()),
            }
            lines.push('\n');
        }
        is_read(&lines)
    }

    /// Asks again and again for what happened since the last of these, and tells of it.
    ///
    /// A controller that is away is waited for, and that is said once.
    async fn go_on(&self, client: &Client, mut told: Vec<EventView>) -> Result<(), Failure> {
        let mut away = Away::default();
        loop {
            tokio::time::sleep(BETWEEN).await;
            let last = told.last().map(|event| event.at);
            let since = last.map(|at| Moment::At(at).to_string());
            let since = since.or_else(|| self.since.map(|it| it.to_string()));
            let list = match client.get::<EventList>(&self.path(since)?, PATIENCE).await {
                Ok(list) => list,
                Err(cause) if is_away(&cause) => {
                    away.miss(&cause);
                    continue;
                }
                Err(other) => return Err(other.into()),
            };
            away.answers();
            let new = news(&told, &list.events);
            if !new.is_empty() && !self.show(&new)? {
                return Ok(());
            }
            if !list.events.is_empty() {
                told = list.events;
            }
        }
    }
}

const HEADING: [&str; 5] = ["TIME", "REPLICA", "EVENT", "WHAT", "HOST"];
/// Between two questions.
const BETWEEN: Duration = Duration::from_secs(1);

/// What is in the newer list only. What repeats is one entry, which moves on: it is news each time.
fn news(told: &[EventView], newer: &[EventView]) -> Vec<EventView> {
    let is_new = |event: &&EventView| !told.contains(event);
    newer.iter().filter(is_new).cloned().collect()
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
    fn one_who_follows_is_told_each_turn_once() {
        let event = |at: u64, text: &str, times: u32| EventView {
            at: WallClock::from_unix_millis(at),
            replica: Some(0),
            incarnation: None,
            host: None,
            kind: "failed".into(),
            text: text.into(),
            times,
            first: None,
        };
        let told = [event(1, "exit 1", 1), event(2, "exit 2", 1)];
        let again = event(3, "exit 2", 2);
        let newer = [told[1].clone(), again.clone()];
        assert_eq!(news(&told, &newer), [again]);
        assert_eq!(news(&newer, &newer), []);
    }

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
