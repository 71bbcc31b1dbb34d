//! Requests made from the description of the routes: each is answered as it says, whatever stands in them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use portreeve::supervision::State;
use portreeve_api::{Problem, paths};
use serde_json::Value;
use tokio::task::JoinSet;

use super::described::shape;
use crate::peer::Peer;
use crate::rest::Api;
use crate::site::{FakeAgent, OWNER, STRANGER, Seen, Site, profile, put, status};

/// Random numbers that a seed tells.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }

    fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.roll(choices.len())]
    }

    fn chance(&mut self, of: usize) -> bool {
        self.roll(of) == 0
    }
}

/// What no route may stumble over, percent-encoded.
const HOSTILE: &[&str] = &[
    "",
    "%00",
    "%ff",
    "%FF%FE",
    "..",
    "%2e%2e%2f",
    "%2F",
    "%20",
    "+",
    "'",
    "%22",
    "%3Cscript%3E",
    "%F0%9F%98%80",
    "%E2%80%AE",
    "-1",
    "0",
    "1",
    "NaN",
    "1e9",
    "0x10",
    "null",
    "true",
    "[]",
    "%7B%7D",
    "a.b.c",
    ".",
    "web.",
    ".alice",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "%25",
    "%0d%0aX-Evil:%201",
    "WEB",
    "w%C3%A9b",
];

/// Values that mean something here.
fn known(name: &str, dice: &mut Dice) -> String {
    match name {
        "service" => dice
            .pick(&["web", "open.3999998", "hidden.3999998", "waits", "none"])
            .to_owned(),
        "host" => dice.pick(&["n1", "n2"]).to_owned(),
        "port" => dice.pick(&["http", "internal", "none"]).to_owned(),
        "prefix" => dice.pick(&["", "w", "open.", "zzz"]).to_owned(),
        "label" => dice.pick(&["model:m1", "model:m2", "a:b:c"]).to_owned(),
        "seed" => dice.roll(1000).to_string(),
        // Nothing is held longer than a moment: a revision is always asked with this.
        "wait" => dice.pick(&["1ms", "0s"]).to_owned(),
        _ => dice.pick(&["0", "1", "2", "1000"]).to_owned(),
    }
}

fn value(name: &str, schema: &Value, dice: &mut Dice) -> String {
    let hostile = if name == "wait" { 6 } else { 3 };
    if dice.chance(hostile) {
        let long = "x".repeat(5_000);
        return if dice.chance(20) {
            long
        } else {
            dice.pick(HOSTILE).to_owned()
        };
    }
    if let Some(words) = schema["enum"].as_array() {
        let word = &words[dice.roll(words.len())];
        return word.as_str().unwrap().to_owned();
    }
    if schema["type"] == "integer" && dice.chance(2) {
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        let least = bound("minimum").unwrap_or(0);
        let most = bound("maximum").unwrap_or(u64::from(u32::MAX));
        let around = [
            least.checked_sub(1),
            Some(least),
            Some(least + 1),
            Some(most - 1),
            Some(most),
            most.checked_add(1),
        ];
        let number = around[dice.roll(around.len())];
        return number.map_or("-1".to_owned(), |number| number.to_string());
    }
    known(name, dice)
}

/// One read: the method, the whole path, and the headers.
#[derive(Clone, Debug)]
struct Ask {
    uid: u32,
    head: bool,
    uri: String,
    headers: Vec<(&'static str, String)>,
}

fn ask(path: &str, operation: &Value, dice: &mut Dice) -> Ask {
    let parameters = operation["parameters"].as_array().unwrap();
    let of_path = |name: &str, dice: &mut Dice| {
        let known_here = parameters.iter().find(|it| it["name"] == name).unwrap();
        match value(name, &known_here["schema"], dice) {
            // Without it the path would be another one.
            text if text.is_empty() || text == "." || text == ".." => "0".to_owned(),
            text => text,
        }
    };
    let mut uri = path
        .split('/')
        .map(
            |part| match part.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
                Some(name) => of_path(name, dice),
                None => part.to_owned(),
            },
        )
        .collect::<Vec<_>>()
        .join("/");
    let mut query: Vec<(String, String)> = Vec::new();
    for parameter in parameters.iter().filter(|it| it["in"] == "query") {
        let name = parameter["name"].as_str().unwrap();
        for _ in 0..2 {
            if dice.chance(4) {
                let item = parameter["schema"]
                    .get("items")
                    .unwrap_or(&parameter["schema"]);
                query.push((name.to_owned(), value(name, item, dice)));
            }
        }
    }
    if dice.chance(12) {
        query.push((dice.pick(HOSTILE).to_owned(), dice.pick(HOSTILE).to_owned()));
    }
    let given = |name: &str| query.iter().any(|(it, _)| it == name);
    if given("revision") && !given("wait") {
        query.push(("wait".to_owned(), "1ms".to_owned()));
    }
    let pairs: Vec<_> = query
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !pairs.is_empty() {
        uri = format!("{uri}?{}", pairs.join("&"));
    }
    let mut headers = Vec::new();
    let choices: &[(&'static str, &[&'static str])] = &[
        (
            "accept",
            &[
                "*/*",
                "application/json",
                "text/plain",
                "text/html",
                "*/*;q=0",
                "garbage",
                "text/plain;q=0.1, application/json;q=0.2",
                ",;,",
                "application/problem+json",
                "text/event-stream",
                "application/x-ndjson, text/plain;q=0.5",
            ],
        ),
        (
            "accept-encoding",
            &["gzip", "br", "*", "gzip;q=0", "identity", ";;;"],
        ),
        (
            "if-none-match",
            &["\"\"", "*", "W/\"x\"", "x", "\"a\", \"b\"", ","],
        ),
        (
            "authorization",
            &[
                "Bearer pr1.x",
                "Basic eDp5",
                "x",
                "Bearer",
                "Bearer pj1.a.b.c",
            ],
        ),
        ("content-type", &["application/json", "x"]),
        ("range", &["bytes=0-1", "x"]),
        (
            "prefer",
            &["wait=0", "wait=x", "wait=-1", "respond-async", "wait"],
        ),
        (
            "last-event-id",
            &["x", "1", "a.1", "", "a.18446744073709551616"],
        ),
    ];
    for (name, values) in choices {
        // Refusals of the credential would hide all others.
        let often = if *name == "authorization" { 30 } else { 4 };
        if dice.chance(often) {
            headers.push((*name, values[dice.roll(values.len())].to_owned()));
        }
    }
    Ask {
        uid: [nix::unistd::geteuid().as_raw(), OWNER, STRANGER][dice.roll(3)],
        head: dice.chance(5),
        uri,
        headers,
    }
}

/// What came back; of a stream only its head, which does not wait for its end.
async fn send(api: &Api, ask: &Ask) -> Option<Seen> {
    let method = if ask.head { Method::HEAD } else { Method::GET };
    let mut request = Request::builder().method(method).uri(&ask.uri);
    for (name, value) in &ask.headers {
        request = request.header(*name, value);
    }
    // What is no request at all does not reach the routes.
    let mut request = request.body(Body::empty()).ok()?;
    let peer = Arc::new(Peer::Unix { uid: ask.uid });
    request.extensions_mut().insert(peer);
    let answered = async {
        let (parts, body) = api.answer(request).await.into_parts();
        let body = if is_stream(&parts.headers) {
            Vec::new()
        } else {
            body.collect().await.unwrap().to_bytes().to_vec()
        };
        Seen {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(20), answered).await;
    Some(seen.unwrap_or_else(|_| panic!("no answer to {ask:?}")))
}

/// The same question from who has its answer.
fn again((ask, seen): &(Ask, Option<Seen>)) -> Option<Ask> {
    let seen = seen.as_ref().filter(|it| it.status == StatusCode::OK)?;
    let tag = seen.headers.get("etag")?.to_str().ok()?;
    let mut again = ask.clone();
    again.headers.retain(|(name, _)| *name != "if-none-match");
    again.headers.push(("if-none-match", tag.to_owned()));
    Some(again)
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get("content-type").and_then(|it| it.to_str().ok());
    kind.is_some_and(|it| {
        it.starts_with("text/event-stream") || it.starts_with("application/x-ndjson")
    })
}

fn check(
    ask: &Ask,
    seen: &Seen,
    operation: &Value,
    shapes: &BTreeMap<String, jsonschema::Validator>,
) {
    let status = seen.status;
    let told = &operation["responses"][status.as_str()];
    assert!(
        told.is_object(),
        "{status} is not described: {ask:?}: {}",
        String::from_utf8_lossy(&seen.body)
    );
    assert!(
        !status.is_server_error(),
        "{status}: {ask:?}: {}",
        String::from_utf8_lossy(&seen.body)
    );
    assert!(seen.headers.contains_key("portreeve-request"), "{ask:?}");
    if status == StatusCode::OK || status == StatusCode::NOT_MODIFIED {
        for name in ["portreeve-revision", "portreeve-epoch", "portreeve-synced"] {
            assert!(seen.headers.contains_key(name), "{name}: {ask:?}");
        }
    }
    if ask.head || status == StatusCode::NOT_MODIFIED {
        assert!(seen.body.is_empty(), "{ask:?}");
        return;
    }
    let kind = seen.headers["content-type"].to_str().unwrap();
    let kind = kind.split(';').next().unwrap();
    let content = told["content"].get(kind);
    let content = content.unwrap_or_else(|| panic!("{kind} is not described: {ask:?}"));
    if seen.headers.contains_key("content-encoding") || is_stream(&seen.headers) {
        return;
    }
    if status.is_client_error() {
        assert_eq!(kind, Problem::MEDIA_TYPE);
        let number = seen.headers["portreeve-request"].to_str().unwrap();
        assert_eq!(seen.problem().instance.as_deref(), Some(number));
        assert!(
            seen.body.len() < 8 << 10,
            "a refusal does not echo without bound: {ask:?}"
        );
    }
    match content["schema"]["$ref"].as_str() {
        Some(shape) => {
            let body: Value = seen.json();
            let shape = &shapes[shape.rsplit('/').next().unwrap()];
            let errors: Vec<_> = shape.iter_errors(&body).map(|it| it.to_string()).collect();
            assert!(errors.is_empty(), "{ask:?}: {errors:?}");
        }
        None if kind == "text/plain" => {
            let text = seen.text();
            assert!(text.is_empty() || text.ends_with('\n'), "{ask:?}");
        }
        None => {}
    }
}

/// Services of several owners, ready, not ready and waiting ones.
async fn world() -> (Site, FakeAgent) {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    site.submit(&format!(
        "labels = {{ model = \"m1\" }}\n{}",
        profile("web", 3)
    ))
    .await;
    let fixed = "kind = \"service\"\nname = \"waits\"\nreplicas = 2\ncommand = [\"x\"]\n[ports]\nhttp = 8888\n";
    site.submit(fixed).await;
    for (name, visibility) in [("open", "cluster"), ("hidden", "private")] {
        let toml = format!("visibility = \"{visibility}\"\n{}", profile(name, 1));
        let mine = put(&paths::service(&name), "application/toml", toml);
        assert_eq!(site.as_user(OWNER, mine).await.status, StatusCode::OK);
    }
    let set = agent.desired_until(|set| set.replicas.len() >= 6).await;
    for (nth, replica) in set.replicas.iter().enumerate() {
        if nth % 3 != 2 {
            agent.tell(replica, &status(1, State::Up, true)).await;
        }
    }
    (site, agent)
}

#[tokio::test]
async fn every_read_is_answered_as_it_is_described() {
    let long = std::env::var_os("PORTREEVE_LONG").is_some();
    let (site, _agent) = world().await;
    let document = crate::rest::openapi::document();
    let names = document["components"]["schemas"]
        .as_object()
        .unwrap()
        .keys();
    let shapes: BTreeMap<_, _> = names
        .map(|name| (name.clone(), shape(&document, name)))
        .collect();
    let reads: Vec<_> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter_map(|(path, methods)| Some((path, methods.get("get")?)))
        // Agents hold their questions, and nobody answers for a log here.
        .filter(|(path, get)| get["tags"][0] != "agents and workers" && !path.ends_with("/logs"))
        .collect();
    let fresh = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let fresh = u64::try_from(fresh.unwrap().as_nanos() & u128::from(u64::MAX)).unwrap();
    let seeds = match std::env::var("PORTREEVE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![7, fresh],
    };
    let api = Api::new(Arc::clone(&site.controller.app));
    let rounds = if long { 20_000 } else { 100 };
    let mut statuses: BTreeMap<u16, u32> = BTreeMap::new();
    for seed in seeds {
        // Shown where the test fails.
        println!("PORTREEVE_SEED={seed}");
        let mut dice = Dice(seed);
        for _ in 0..rounds {
            // Beside one another: some are held for a moment.
            let mut asked = JoinSet::new();
            for (nth, (path, operation)) in reads.iter().enumerate() {
                let ask = ask(path, operation, &mut dice);
                let api = api.clone();
                asked.spawn(async move {
                    let seen = send(&api, &ask).await;
                    let mut answers = vec![(ask, seen)];
                    if let Some(again) = again(&answers[0]) {
                        let seen = send(&api, &again).await;
                        answers.push((again, seen));
                    }
                    (nth, answers)
                });
            }
            while let Some(answered) = asked.join_next().await {
                let (nth, answers) = answered.unwrap();
                for (ask, seen) in answers {
                    let Some(seen) = seen else { continue };
                    check(&ask, &seen, reads[nth].1, &shapes);
                    *statuses.entry(seen.status.as_u16()).or_default() += 1;
                }
            }
        }
    }
    println!("{statuses:?}");
    for expected in [200, 304, 400, 401, 403, 404, 406] {
        assert!(
            statuses.contains_key(&expected),
            "{expected} never came: {statuses:?}"
        );
    }
}
