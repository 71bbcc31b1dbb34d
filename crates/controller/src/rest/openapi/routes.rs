//! Every route in the order of `docs/rest.md`.

use portreeve::registry::Answer;
use portreeve_api::body::{
    Checked, Counters, DownAsk, DrainAsk, Endpoints, EventList, Explained, HostList, HostPorts,
    HostView, JoinAsk, Joined, Lease, PortHistory, ReplicaView, Scale, ServiceList, ServiceView,
    TokenAsk, TokenList, TokenMade, UnknownReplica, WhoAmI,
};
use serde_json::{Value, json};
use utoipa::PartialSchema;

use super::operation::{Operation, get, host, labels, like, operation, port, service, span, text};

const SERVICES: &str = "services";
const ENDPOINTS: &str = "endpoints";
const HOSTS: &str = "hosts";
const AGENTS: &str = "agents and workers";
const TOKENS: &str = "tokens";
const OTHERS: &str = "others";

/// The description of every route.
pub(super) fn all() -> Vec<Operation> {
    let mut all = reads();
    all.extend(orders());
    all.extend(of_operators());
    all.extend(of_agents());
    all.extend(of_tokens());
    all
}

fn reads() -> Vec<Operation> {
    vec![
        get("/services", SERVICES, "The visible services, in pages of one moment")
            .query("prefix", text(), "only those whose full name begins so")
            .query("label", labels(), "only those with all of these labels, each NAME:VALUE")
            .query("limit", json!({"type": "integer", "minimum": 1, "maximum": 1000}), "how many on a page; without it 1000")
            .query("cursor", text(), "next_cursor of the page before; then only limit may stand beside it")
            .held()
            .json::<ServiceList>()
            .form("text/plain")
            .also(&[410]),
        get("/services/{service}", SERVICES, "One service with its replicas and its effective profile")
            .query("allow_missing", flag(), "also wait for one that is not there yet")
            .held()
            .json::<ServiceView>()
            .form("text/plain"),
        get("/services/{service}/events", SERVICES, "What happened to a service, oldest first")
            .query("replica", index(), "only what happened to this one")
            .query("since", moment(), "only what last happened at this moment or later")
            .query("limit", json!({"type": "integer", "minimum": 1, "maximum": 1010}), "the newest so many; without it all")
            .json::<EventList>(),
        get("/services/{service}/explain", SERVICES, "Where a replica would fit now, and what is against every other host")
            .query("replica", index(), "which one; without it the first that waits, else one more")
            .json::<Explained>()
            .form("text/plain")
            .also(&[409]),
        get("/services/{service}/replicas/{index}", SERVICES, "One replica").json::<ReplicaView>(),
        get("/services/{service}/replicas/{index}/logs", SERVICES, "A piece of what a replica wrote")
            .query("stream", words(&["stdout", "stderr", "events", "events-before"]), "which file; without it stdout")
            .query("offset", json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}), "from this byte; without it the last ones")
            .query("incarnation", index(), "of which incarnation the offset is")
            .query("max", index(), "how many bytes at most")
            .query("wait", span(), "how long to wait for more, such as 30s; at most 60s")
            .form("application/octet-stream")
            .also(&[409, 504]),
        streamed(get(
            "/services/{service}/endpoints",
            ENDPOINTS,
            "Where the replicas of a service answer: one atomic snapshot, or a stream of what changes",
        ))
        .query("allow_missing", flag(), "a read without revision: also wait for a service that is not there yet")
        .query("epoch", text(), "the life of the number line that revision is of")
        .held()
        .json::<Endpoints>()
        .form("text/plain")
        .also(&[304]),
        streamed(get(
            "/watch",
            ENDPOINTS,
            "One stream over many services; over all that are visible where neither service nor prefix is given",
        ))
        .query("service", several(service()), "these, whether or not they are there yet; at most 256")
        .query("prefix", text(), "all whose full name begins so"),
        resolve("/resolve/{service}"),
        resolve("/resolve/{service}/{port}"),
        get("/hosts", HOSTS, "The hosts, in pages of one moment")
            .query("label", labels(), "only those with all of these labels, each NAME:VALUE")
            .query("limit", json!({"type": "integer", "minimum": 1, "maximum": 1000}), "how many on a page; without it 1000")
            .query("cursor", text(), "next_cursor of the page before; then only limit may stand beside it")
            .json::<HostList>()
            .also(&[410]),
        get("/hosts/{host}", HOSTS, "One host").json::<HostView>(),
        get("/hosts/{host}/ports", HOSTS, "Every number of a host that is not free").json::<HostPorts>(),
        get("/hosts/{host}/ports/history", HOSTS, "Who had which numbers of a host, earliest first")
            .query("port", json!({"type": "integer", "minimum": 1, "maximum": 65_535}), "only this number")
            .query("at", moment(), "only who had it at this moment")
            .query("since", moment(), "only who had it at this moment or later; not beside at")
            .json::<PortHistory>(),
        get("/hosts/{host}/events", HOSTS, "What happened to a host, oldest first")
            .query("since", moment(), "only what last happened at this moment or later")
            .query("limit", json!({"type": "integer", "minimum": 1, "maximum": 1010}), "the newest so many; without it all")
            .json::<EventList>(),
        get("/counters", OTHERS, "What came in and was written since the controller's start").json::<Counters>(),
        get("/backup", OTHERS, "Everything that is stored, of one moment, for `portreeve restore`; for admins")
            .query("secrets", flag(), "with the secret that signs the tokens of replicas")
            .form("application/gzip"),
        get("/tokens", TOKENS, "The tokens of the asker, without their texts; to an admin all").json::<TokenList>(),
        get("/whoami", OTHERS, "Who the caller is").json::<WhoAmI>(),
        get("//healthz", OTHERS, "Whether the process answers").form("text/plain"),
        get("//readyz", OTHERS, "Whether the state is loaded and the store takes writes").form("text/plain"),
        get("//metrics", OTHERS, "What there is and what was done, for Prometheus")
            .form("text/plain")
            .form("application/openmetrics-text"),
        get("//openapi.json", OTHERS, "This document").content_json(),
    ]
}

/// What readers and watchers of endpoints ask alike.
fn streamed(operation: Operation) -> Operation {
    let states = words(&["ready", "serving", "all"]);
    operation
        .query("port", port(), "only this named port of each")
        .query("state", states, "ready: clients may be sent there; serving: also what stops but answers; all: with reasons")
        .query("host", host(), "only those on this host")
        .query("label", labels(), "only those with all of these labels, each NAME:VALUE")
        .query("delta", flag(), "a stream: changes alone where they will do")
        .query("since", like("^([0-9a-f]{1,32}[.])?[0-9]{1,15}$"), "a stream: goes on after this EPOCH.REVISION, or REVISION; as Last-Event-ID")
        .form("text/event-stream")
        .form("application/x-ndjson")
        .also(&[429])
}

fn resolve(path: &'static str) -> Operation {
    get(
        path,
        ENDPOINTS,
        "Lines host:port of the ready replicas; none where none is ready",
    )
    .query("pick", words(&["one", "all"]), "all of them, or one")
    .query(
        "seed",
        json!({"type": "string", "maxLength": 256}),
        "an order of its own for each seed: its first stays the same for as long as that is ready",
    )
    .form("text/plain")
    .also(&[304])
}

fn orders() -> Vec<Operation> {
    let order = |method, path, summary| {
        operation(method, path, SERVICES, summary)
            .json::<Answer>()
            .conditional()
            .also(&[409])
    };
    let profile = |operation: Operation| {
        operation
            .query(
                "set",
                several(text()),
                "FIELD=VALUE over the profile, once or more",
            )
            .takes("application/toml", text())
            .takes("application/json", json!({"type": "object"}))
            .also(&[409, 422])
    };
    vec![
        profile(order(
            "put",
            "/services/{service}",
            "Creates a service, or replaces its profile",
        ))
        .query("replace", flag(), "replace a profile that differs"),
        order("delete", "/services/{service}", "Forgets a stopped service"),
        order(
            "post",
            "/services/{service}/scale",
            "How many replicas there shall be",
        )
        .takes("application/json", inline::<Scale>()),
        order(
            "post",
            "/services/{service}/start",
            "Starts a stopped service",
        ),
        order("post", "/services/{service}/stop", "Stops a service"),
        order(
            "post",
            "/services/{service}/restart",
            "Restarts every replica in turn",
        ),
        order(
            "post",
            "/services/{service}/replicas/{index}/kill",
            "Ends a replica; its index stays empty",
        ),
        order(
            "post",
            "/services/{service}/replicas/{index}/restart",
            "Restarts a replica in place",
        ),
        profile(
            operation("post", "/check", OTHERS, "Checks a profile; stores nothing")
                .json::<Checked>(),
        ),
        profile(
            operation(
                "post",
                "/explain",
                OTHERS,
                "Where a replica of a profile would fit; stores nothing",
            )
            .json::<Explained>(),
        )
        .form("text/plain")
        .also(&[406]),
    ]
}

fn of_operators() -> Vec<Operation> {
    let order = |path, summary| {
        operation("post", path, HOSTS, summary)
            .json::<Answer>()
            .also(&[409])
    };
    vec![
        order(
            "/hosts/{host}/drain",
            "Takes a host out of service: its replicas move, nothing new comes",
        )
        .takes("application/json", inline::<DrainAsk>()),
        order("/hosts/{host}/undrain", "Puts a host back into service"),
        order(
            "/hosts/{host}/down",
            "Takes a host for lost at once, without waiting for the grace",
        )
        .takes("application/json", inline::<DownAsk>()),
        order("/hosts/{host}/remove", "Forgets a host that is gone"),
        order(
            "/hosts/{host}/adopt",
            "Makes a replica that runs there and is not known here one of its service again",
        )
        .takes("application/json", inline::<UnknownReplica>()),
        order(
            "/hosts/{host}/fence",
            "Stops a replica that runs there and is not known here; without a body all of them",
        )
        .takes("application/json", inline::<UnknownReplica>()),
    ]
}

fn of_agents() -> Vec<Operation> {
    let object = || json!({"type": "object"});
    vec![
        operation(
            "put",
            "/hosts/{host}/report",
            AGENTS,
            "What an agent finds on its host",
        )
        .takes("application/json", object())
        .json::<Lease>()
        .also(&[409]),
        operation(
            "post",
            "/hosts/{host}/lease",
            AGENTS,
            "A host's sign of life",
        )
        .takes("application/json", object())
        .json::<Lease>()
        .also(&[409]),
        operation(
            "post",
            "/hosts/{host}/shutdown",
            AGENTS,
            "A host is about to be shut down: everything there ends, and nothing is placed there",
        )
        .takes("application/json", object())
        .json::<Lease>()
        .also(&[409]),
        operation(
            "post",
            "/hosts/{host}/attach",
            AGENTS,
            "A job of another scheduler asks for its ports",
        )
        .takes("application/json", object())
        .content_json()
        .also(&[409, 422]),
        get(
            "/hosts/{host}/desired",
            AGENTS,
            "The whole wanted set of a host",
        )
        .query(
            "since",
            json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
            "the number of the last set: wait for another one",
        )
        .query("agent", text(), "which agent asks, as MACHINE/BOOT/FOLDER")
        .content_json()
        .also(&[409]),
        operation(
            "put",
            "/hosts/{host}/reads/{read}",
            AGENTS,
            "A piece of a log that a reader waits for",
        )
        .takes("application/octet-stream", text()),
        operation(
            "put",
            "/replicas/{service}/{index}/{incarnation}/status",
            AGENTS,
            "What a worker tells of its replica",
        )
        .takes("application/json", object())
        .json::<Lease>()
        .also(&[409]),
    ]
}

fn of_tokens() -> Vec<Operation> {
    vec![
        operation(
            "post",
            "/tokens",
            TOKENS,
            "Makes a token, whose text is told this once",
        )
        .takes("application/json", inline::<TokenAsk>())
        .json::<TokenMade>()
        .also(&[409]),
        operation(
            "post",
            "/tokens/{id}/rotate",
            TOKENS,
            "Gives a token another text; the one before is worth nothing then",
        )
        .json::<TokenMade>(),
        operation(
            "delete",
            "/tokens/{id}",
            TOKENS,
            "Ends a token, and all that were made through it",
        )
        .json::<Answer>(),
        operation(
            "post",
            "/join",
            TOKENS,
            "A machine trades a token to join for its host's",
        )
        .takes("application/json", inline::<JoinAsk>())
        .json::<Joined>()
        .also(&[409]),
    ]
}

fn inline<T: PartialSchema>() -> Value {
    serde_json::to_value(T::schema()).unwrap_or(Value::Null)
}

/// Any words, once or more.
fn several(item: Value) -> Value {
    json!({"type": "array", "items": item})
}

/// A moment as people write it.
fn moment() -> Value {
    json!({"type": "string", "description": "RFC 3339, milliseconds since 1970, or before now such as -2h"})
}

fn flag() -> Value {
    words(&["1", "true", "0", "false", ""])
}

fn index() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})
}

fn words(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}
