//! What is hidden and what is not there are one: in every header and byte, and in what is looked for.

use super::ask::{Answer, Ask, forms};
use super::table::{Class, Row, expected, rows};
use super::world::{HIDDEN, World};
use crate::app::LOOK_UPS;

/// As long as the hidden one's name, in the same namespace.
const UNKNOWN: &str = "zqxwob.zqxalice";

/// The headers and the body, but for what is another with every answer, and with every name.
fn shown(answer: &Answer, name: &str) -> String {
    let mut answer = answer.clone();
    let request = answer.headers.remove("portreeve-request");
    answer.headers.remove("date");
    // How long ago hosts were heard of.
    if let Some(synced) = answer.headers.get_mut("portreeve-synced") {
        *synced = http::HeaderValue::from_static("0");
    }
    let mut text = answer.text().replace(name, "NAME");
    let label = name.split('.').next().unwrap();
    text = text.replace(label, "LABEL");
    if let Some(request) = request {
        text = text.replace(request.to_str().unwrap(), "REQUEST");
    }
    // The head of a stream is written with it, and says when to come back: anew each time.
    let anew = ["retry: ", "date: ", "portreeve-synced: "];
    let lines = text.lines();
    let lines = lines.filter(|line| !anew.iter().any(|begin| line.starts_with(begin)));
    lines.collect::<Vec<_>>().join("\n")
}

fn named(mut ask: Ask, name: &str) -> Ask {
    ask.uri = ask.uri.replace(HIDDEN, name);
    let label = name.split('.').next().unwrap();
    ask.body = ask.body.replace("\"zqxweb\"", &format!("\"{label}\""));
    ask
}

/// Questions that name a service and are no routes of their own.
pub(super) fn more() -> Vec<Ask> {
    let json = "application/json";
    let paths = [
        (
            format!("/api/v1/watch?service={HIDDEN}"),
            "text/event-stream",
        ),
        (
            format!("/api/v1/watch?service={HIDDEN}&delta=1"),
            "application/x-ndjson",
        ),
        (
            format!("/api/v1/watch?prefix={HIDDEN}&state=all"),
            "text/event-stream",
        ),
        (format!("/api/v1/services?prefix={HIDDEN}"), json),
        (
            format!("/api/v1/services/{HIDDEN}/endpoints?state=all"),
            json,
        ),
        (
            format!("/api/v1/services/{HIDDEN}/endpoints?port=none"),
            json,
        ),
        (
            format!("/api/v1/services/{HIDDEN}/endpoints?allow_missing=1&wait=1ms"),
            json,
        ),
        (
            format!("/api/v1/services/{HIDDEN}/endpoints?delta=1&since=1"),
            "text/event-stream",
        ),
        (
            format!("/api/v1/services/{HIDDEN}?allow_missing=1&revision=1&wait=1ms"),
            json,
        ),
        (format!("/api/v1/services/{HIDDEN}/replicas/77"), json),
        (format!("/api/v1/services/{HIDDEN}/replicas/77/logs"), "*/*"),
        (
            format!("/api/v1/services/{HIDDEN}/explain?replica=77"),
            json,
        ),
        (format!("/api/v1/resolve/{HIDDEN}/none"), "text/plain"),
        (
            format!("/api/v1/resolve/{HIDDEN}?pick=one&seed=3"),
            "text/plain",
        ),
    ];
    paths.map(|(path, accept)| Ask::get(path, accept)).into()
}

fn unconditional(world: &World, row: &Row) -> Option<Ask> {
    row.good.contains(&412).then(|| {
        let form = forms(row).swap_remove(0);
        let mut ask = world.concrete(row, &form);
        // Without it everything is done at once: only who may not see it asks here.
        ask.headers.retain(|(name, _)| name != "if-match");
        ask
    })
}

#[tokio::test]
async fn what_is_hidden_is_answered_in_every_byte_like_what_is_not_there() {
    let world = World::start().await;
    let mut asks = more();
    for row in rows().iter().filter(|row| row.path.contains("{service}")) {
        asks.extend(forms(row).iter().map(|form| world.concrete(row, form)));
        asks.extend(unconditional(&world, row));
    }
    // A worker's token names its own replica, which it knows.
    let blind = |name: &str| {
        expected(name, "see") != Class::Served && !["worker", "worker-old"].contains(&name)
    };
    let mut compared = 0;
    for who in world.people.iter().filter(|who| blind(who.name)) {
        for ask in &asks {
            let mut seen = Vec::new();
            for name in [HIDDEN, UNKNOWN] {
                let before = LOOK_UPS.get();
                let answer = world.ask(who, &named(ask.clone(), name)).await;
                // A prefix looks at every name that there is, and who waits looks again whenever anything changes.
                let by_name = !ask.uri.contains("prefix=") && !ask.uri.contains("wait=");
                let looked = by_name.then(|| LOOK_UPS.get() - before);
                seen.push((shown(&answer, name), looked));
            }
            let [hidden, unknown] = &seen[..] else {
                unreachable!("two were asked for")
            };
            assert_eq!(hidden, unknown, "{} {} {}", who.name, ask.method, ask.uri);
            compared += 1;
        }
    }
    println!("hidden and unknown: {compared} pairs of answers are equal, and looked for as often");
    assert!(compared > 1000, "{compared}");
    // Nothing of it was changed by who may not even see it.
    let still = world.site.service(HIDDEN).await;
    assert_eq!((still.state.as_str(), still.ready), ("running", 1));
}
