//! What is told beside the routes' plain answers: reasons, holders, drains, cursors, resumed watches, near names.

use serde_json::json;

use super::ask::{Answer, Ask};
use super::hidden::more;
use super::table::{Class, expected};
use super::who::Who;
use super::world::{HIDDEN, MARKER, STRANGER, World, waiting};

fn blind(world: &World) -> impl Iterator<Item = &Who> {
    let sees = |who: &&Who| expected(who.name, "see") == Class::Served;
    world.people.iter().filter(move |who| !sees(who))
}

fn post(uri: &str, kind: &str, body: String) -> Ask {
    Ask {
        method: "POST".to_owned(),
        headers: vec![("content-type".to_owned(), kind.to_owned())],
        body,
        ..Ask::get(uri, "*/*")
    }
}

/// Fails where the marker is in the answer, but for a name that was asked for.
fn tells_nothing(who: &str, ask: &Ask, answer: &Answer) {
    let told = answer.text().replace(HIDDEN, "");
    let at = told.find(MARKER);
    assert!(at.is_none(), "{who} {} {}: {told}", ask.method, ask.uri);
}

fn questions() -> Vec<Ask> {
    let get = |uri: &str| Ask::get(uri, "application/json, text/plain;q=0.5, */*;q=0.1");
    let mut asks = more();
    asks.extend([
        // Another one's service waits for the port that the hidden one has.
        get("/api/v1/services/waits.stranger"),
        Ask::get("/api/v1/services/waits.stranger", "text/plain"),
        get("/api/v1/services/waits.stranger/replicas/0"),
        get("/api/v1/services/waits.stranger/events"),
        get("/api/v1/services/waits.stranger/explain"),
        Ask::get("/api/v1/services/waits.stranger/explain", "text/plain"),
        post("/api/v1/explain", "application/toml", waiting("tried")),
        // A name that is near to the hidden one's.
        get("/api/v1/services/sqxweb.sqxalice"),
        get("/api/v1/services?prefix=z"),
        get("/api/v1/services?prefix=z&revision=1&wait=1ms"),
        Ask::get("/api/v1/services?label=zqxlabel:zqxvalue", "text/plain"),
        get("/api/v1/hosts/n1/ports/history?port=5000"),
        get("/api/v1/hosts?label=zqx:zqx"),
        Ask::get("/api/v1/watch?prefix=z&state=all", "application/x-ndjson"),
    ]);
    // Their own word is not told back to them as something that there is.
    asks.retain(|ask| !ask.uri.contains("zqxlabel") && !ask.uri.contains("zqx:"));
    asks
}

#[tokio::test]
async fn nothing_beside_a_service_names_it_to_whom_it_is_hidden_from() {
    let world = World::start().await;
    let root = world.who("root").clone();
    // It is there for who may see it, in all that is asked here.
    let holder = world
        .ask(&root, &Ask::get("/api/v1/hosts/n1/ports", "*/*"))
        .await;
    assert!(holder.text().contains(MARKER), "{}", holder.text());
    let reason = Ask::get("/api/v1/services/waits.stranger", "*/*");
    let reason = world.ask(&root, &reason).await;
    assert!(reason.text().contains(MARKER), "{}", reason.text());
    let mut asked = 0;
    for who in blind(&world) {
        for ask in &questions() {
            tells_nothing(who.name, ask, &world.ask(who, ask).await);
            asked += 1;
        }
    }
    // A job of the other's asks at the host for the number that the hidden one has.
    let ask = json!({"uid": STRANGER, "ask": {
        "profile": waiting("late"), "form": "toml", "set": [], "name": null, "index": null,
        "key": "k1", "job": null, "folder": "/x",
    }});
    let ask = post(
        "/api/v1/hosts/n1/attach",
        "application/json",
        ask.to_string(),
    );
    let refused = world.ask(&root, &ask).await;
    assert_eq!(refused.status, 409, "{}", refused.brief());
    tells_nothing("the other's job", &ask, &refused);
    // The first page's cursor, and where a watch was, of who sees everything.
    let first = world
        .ask(&root, &Ask::get("/api/v1/services?limit=1", "*/*"))
        .await;
    let first: serde_json::Value = serde_json::from_slice(&first.body).unwrap();
    let cursor = first["next_cursor"].as_str().unwrap();
    let epoch = world.site.controller.app.shown.table.epoch();
    for who in blind(&world) {
        let page = Ask::get(format!("/api/v1/services?cursor={cursor}"), "*/*");
        let told = world.ask(who, &page).await.text().replace(cursor, "");
        assert!(!told.contains(MARKER), "{} {told}", who.name);
        for delta in ["", "&delta=1"] {
            let uri = format!("/api/v1/watch?prefix={delta}");
            let mut watch = Ask::get(uri, "text/event-stream");
            watch
                .headers
                .push(("last-event-id".to_owned(), format!("{epoch}.1")));
            tells_nothing(who.name, &watch, &world.ask(who, &watch).await);
        }
        asked += 3;
    }
    // Who orders a drain is told what stays, if they may see it.
    let drain = post(
        "/api/v1/hosts/n1/drain",
        "application/json",
        "{}".to_owned(),
    );
    let operator = world.who("operator-own").clone();
    let drained = world.ask(&operator, &drain).await;
    assert!(drained.is_success(), "{}", drained.brief());
    tells_nothing(operator.name, &drain, &drained);
    for who in blind(&world) {
        for uri in [
            "/api/v1/hosts",
            "/api/v1/hosts/n1",
            "/api/v1/hosts/n1/events",
            "/api/v1/hosts/n1/ports",
        ] {
            let ask = Ask::get(uri, "*/*");
            tells_nothing(who.name, &ask, &world.ask(who, &ask).await);
            asked += 1;
        }
    }
    println!("beside the matrix: {asked} answers name nothing that is hidden");
}
