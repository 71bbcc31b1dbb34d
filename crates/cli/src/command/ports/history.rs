//! Who had which number of a host, and when.

use portreeve_api::body::{PortHistory, TenureView};
use portreeve_api::{Client, paths};

use crate::exit::Failure;
use crate::output::{exactly, or_dash, print, print_json, rows, tell};

use super::{Format, PATIENCE, Ports};

/// Asks and prints.
pub(super) async fn show(ports: &Ports, client: &Client) -> Result<(), Failure> {
    let parameters = [
        ("port", ports.port.map(|port| port.to_string())),
        ("at", ports.at.map(|at| at.to_string())),
        ("since", ports.since.map(|since| since.to_string())),
    ];
    let path = paths::host_part(&ports.name, "ports/history");
    let path = paths::with_given(&path, &parameters);
    let history: PortHistory = client.get(&path, PATIENCE).await?;
    if ports.output == Format::Json {
        return print_json(&history);
    }
    let heading = [
        "PORT",
        "FROM",
        "UNTIL",
        "HOLDER",
        "NAME",
        "BY",
        "HOW IT ENDED",
    ];
    print(&rows(&heading, history.tenures.iter().map(row).collect()))?;
    if history.left_out > 0 {
        tell!(
            "{} earlier ones are left out: name a --port, or a later --since",
            history.left_out
        );
    }
    if history.tenures.is_empty() {
        tell!("{}", nobody(ports, &history));
    }
    Ok(())
}

fn nobody(ports: &Ports, history: &PortHistory) -> String {
    let what = ports
        .port
        .map_or_else(|| "a port".to_owned(), |port| port.to_string());
    let when = if ports.at.is_some() { " then" } else { "" };
    format!(
        "no replica had {what} on {}{when}; what ended before {} is not known, nor are processes outside portreeve",
        history.host,
        exactly(history.known_since)
    )
}

fn row(tenure: &TenureView) -> Vec<String> {
    let holder = match (&tenure.service, tenure.replica) {
        (Some(service), Some(index)) => format!("{service}/{index}"),
        _ => "somebody".to_owned(),
    };
    let until = tenure.until.map(exactly);
    vec![
        format!("{}/{}", tenure.numbers, tenure.protocol),
        exactly(tenure.from),
        until.unwrap_or_else(|| "now".to_owned()),
        holder,
        or_dash(tenure.name.as_ref()),
        or_dash(by(tenure)),
        or_dash(tenure.how.as_ref()),
    ]
}

/// The account, and the job where another scheduler ran it.
fn by(tenure: &TenureView) -> Option<String> {
    let user = tenure.user.as_ref()?;
    let uid = tenure.uid.map(|uid| format!(" (uid {uid})"));
    let job = tenure.job.as_ref().map(|job| format!(", {job}"));
    Some(format!(
        "{user}{}{}",
        uid.unwrap_or_default(),
        job.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use portreeve::port::{PortRange, Protocol};
    use portreeve::time::WallClock;

    use super::*;

    #[test]
    fn who_may_not_be_seen_is_somebody() {
        let hidden = TenureView {
            numbers: PortRange::single(7000.try_into().unwrap()),
            protocol: Protocol::Tcp,
            from: WallClock::from_unix_millis(1_700_000_000_500),
            until: None,
            service: None,
            replica: None,
            incarnation: None,
            name: None,
            job: None,
            user: None,
            uid: None,
            how: None,
        };
        let from = "2023-11-14T22:13:20.5Z";
        assert_eq!(
            row(&hidden),
            ["7000/tcp", from, "now", "somebody", "-", "-", "-"]
        );
        let seen = TenureView {
            service: Some("web.alice".parse().unwrap()),
            replica: Some(2),
            user: Some("alice".into()),
            uid: Some(1000),
            job: Some("slurm 4711".into()),
            until: Some(WallClock::from_unix_millis(1_700_000_001_000)),
            how: Some("stopped by alice".into()),
            ..hidden
        };
        assert_eq!(
            row(&seen)[2..],
            [
                "2023-11-14T22:13:21Z",
                "web.alice/2",
                "-",
                "alice (uid 1000), slurm 4711",
                "stopped by alice"
            ]
        );
    }
}
