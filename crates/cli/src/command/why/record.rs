//! What the record of a replica's worker tells: the rule and the boundary that fired last.

use std::fmt::Write as _;
use std::time::Duration;

use http::Method;
use portreeve::supervision::record::{Because, why};
use portreeve_api::{Client, paths};

use crate::names::ServiceArg;
use crate::output::moment;

/// The most that is read of one part of a record; its worker keeps less.
const MOST: u32 = 1 << 20;
/// A part comes from the agent within this time.
const PATIENCE: Duration = Duration::from_secs(40);
/// How many turns before the newest are shown.
const BEFORE: usize = 8;

/// The turns of a replica's record; else why there are none, one sentence.
pub(super) async fn turns(
    client: &Client,
    service: &ServiceArg,
    index: u32,
) -> Result<Vec<Because>, String> {
    let mut record = part(client, service, index, "events-before").await?;
    record.push('\n');
    record.push_str(&part(client, service, index, "events").await?);
    if record.trim().is_empty() {
        return Err(format!(
            "the record of {service}/{index} is gone, or nothing was recorded: its host keeps it with the replica's folder"
        ));
    }
    let played = why(&record);
    played.map_err(|cause| format!("the record of {service}/{index} cannot be played: {cause}"))
}

async fn part(
    client: &Client,
    service: &ServiceArg,
    index: u32,
    stream: &str,
) -> Result<String, String> {
    let mut path = paths::replica_part(service, index, "logs");
    path.push_str(&format!("?stream={stream}&max={MOST}"));
    let reply = client.send(Method::GET, &path, None, "text/plain", PATIENCE);
    match reply.await {
        Ok(reply) => Ok(String::from_utf8_lossy(&reply.body).into_owned()),
        Err(cause) => Err(format!(
            "what the worker of {service}/{index} recorded is left out: {cause}"
        )),
    }
}

/// The boundary of the newest turn, then those before it, newest first.
pub(super) fn told(turns: &[Because], all: bool) -> String {
    let Some((newest, before)) = turns.split_last() else {
        return String::new();
    };
    let mut text = String::new();
    let boundary = newest
        .boundary
        .as_deref()
        .map_or(String::new(), |it| format!("{it}; "));
    // Writing to a string cannot fail.
    _ = writeln!(
        text,
        "  {boundary}run {}, {} s after it began, {}",
        newest.run,
        seconds(newest.at_ms),
        moment(newest.wall)
    );
    let shown = if all {
        before.len()
    } else {
        before.len().min(BEFORE)
    };
    if shown > 0 {
        text.push_str("before that:\n");
    }
    for turn in before.iter().rev().take(shown) {
        _ = writeln!(
            text,
            "{:>11} s  run {}  {}",
            seconds(turn.at_ms),
            turn.run,
            turn.sentence
        );
    }
    if shown < before.len() {
        _ = writeln!(text, "  and {} more: --all", before.len() - shown);
    }
    text
}

pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}
