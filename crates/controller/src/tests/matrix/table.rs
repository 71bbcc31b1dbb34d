//! The one table: who may what.

use std::fmt;

/// How somebody is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// `o`: done, or told; a list of what they may see.
    Served,
    /// `h`: 404, as if it were not there.
    Hidden,
    /// `u`: 401, nobody known.
    Unknown,
    /// `x`: 401, known once.
    Expired,
    /// `f`: 403, not theirs to ask.
    Forbidden,
}

/// Who (a row each) may what (a column each), of a service of `zqxalice`, who is in `chem`, which lets `friend` and
/// `reader` see it, and `reader` its logs.
///
/// `open`: what says nothing of anybody. `known`: hosts, lists of what one sees, one's own profile. `see`, `logs`,
/// `manage`: the service. `submit`: replace it. `operate`: a host. `backup`: all. `mine`: list one's tokens. `make`: one.
/// `theirs`: end one of its owner's. `renew`: that one. `join`: as a machine. `host`: as the agent of n2. `work`: as the worker of its replica. `me`: who am I.
const CELLS: &str = "
who              open known see logs manage submit operate backup mine make theirs renew join host work me
none             o    u     u   u    u      u      u       u      u    u    u      u     u    u    u    u
plain            o    o     h   h    u      u      u       u      u    u    u      u     u    f    u    o
garbage          o    u     u   u    u      u      u       u      u    u    u      u     u    u    u    u
unknown          o    u     u   u    u      u      u       u      u    u    u      u     u    u    u    u
revoked          o    u     u   u    u      u      u       u      u    u    u      u     u    u    u    u
expired          o    x     x   x    x      x      x       x      x    x    x      x     x    x    u    x
stranger         o    o     h   h    h      f      f       f      o    o    h      h     u    f    u    o
mate             o    o     h   h    h      f      f       f      o    o    h      h     u    f    u    o
shares           o    o     o   f    f      f      f       f      o    o    h      h     u    f    u    o
friend           o    o     o   f    f      f      f       f      o    o    h      h     u    f    u    o
reader           o    o     o   o    f      f      f       f      o    o    h      h     u    f    u    o
viewer           o    o     h   h    f      f      f       f      o    f    h      f     u    f    u    o
viewer-group     o    o     o   f    f      f      f       f      o    f    h      f     u    f    u    o
viewer-all       o    o     o   f    f      f      f       f      o    f    h      f     u    f    u    o
operator         o    o     o   f    f      f      o       f      o    o    h      h     u    f    u    o
operator-own     o    o     h   h    h      f      o       f      o    o    h      h     u    f    u    o
manager          o    o     o   o    o      o      f       f      o    o    h      h     u    f    u    o
bound-admin      o    o     o   o    o      o      o       o      o    o    o      o     u    o    u    o
root             o    o     o   o    o      o      o       o      o    o    o      o     u    o    u    o
root-token       o    o     o   o    o      o      o       o      o    o    o      f     f    f    u    o
owner            o    o     o   o    o      o      f       f      o    o    o      o     u    f    u    o
owner-token      o    o     o   o    o      o      f       f      o    o    f      f     f    f    u    o
owner-reads      o    o     o   f    f      f      f       f      o    f    f      f     f    f    u    o
stranger-token   o    o     h   h    h      f      f       f      o    o    h      h     f    f    u    o
host             o    f     f   f    f      f      f       f      f    f    f      f     f    o    u    o
host-other       o    f     f   f    f      f      f       f      f    f    f      f     f    f    u    o
relayed-owner    o    o     o   o    o      o      f       f      o    o    o      f     f    f    u    o
relayed-stranger o    o     h   h    h      f      f       f      o    o    h      h     f    f    u    o
relayed-root     o    o     h   h    f      f      f       f      f    f    f      f     f    f    u    o
relayed-nowhere  o    f     f   f    f      f      f       f      f    f    f      f     f    f    u    f
peer-relays      o    f     f   f    f      f      f       f      f    f    f      f     u    f    u    f
worker           o    f     f   f    f      f      f       f      f    f    f      f     u    f    o    f
worker-old       o    f     f   f    f      f      f       f      f    f    f      f     u    f    f    f
worker-other     o    f     f   f    f      f      f       f      f    f    f      f     u    f    f    f
job              o    o     o   o    f      f      f       f      f    f    f      f     u    f    f    o
job-old          o    u     u   u    u      u      u       u      u    u    u      u     u    u    f    u
job-other        o    o     h   h    f      f      f       f      f    f    f      f     u    f    f    o
join             o    f     f   f    f      f      f       f      f    f    f      f     o    f    u    o
";

/// Everybody in the table.
pub(super) fn names() -> Vec<&'static str> {
    let rows = CELLS.trim().lines().skip(1);
    rows.filter_map(|row| row.split_whitespace().next())
        .collect()
}

/// What the table says.
pub(super) fn expected(who: &str, room: &str) -> Class {
    let mut lines = CELLS.trim().lines();
    let mut head = lines.next().unwrap().split_whitespace();
    let column = head.position(|it| it == room);
    let column = column.unwrap_or_else(|| panic!("no column {room}"));
    let row = lines.find(|row| row.split_whitespace().next() == Some(who));
    let row = row.unwrap_or_else(|| panic!("no row for {who}"));
    match row.split_whitespace().nth(column) {
        Some("o") => Class::Served,
        Some("h") => Class::Hidden,
        Some("u") => Class::Unknown,
        Some("x") => Class::Expired,
        Some("f") => Class::Forbidden,
        other => panic!("{who} {room}: {other:?}"),
    }
}

/// One route with one method.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The column of the table.
    pub(super) room: &'static str,
    /// Its media type and its text, where it has one.
    pub(super) body: Option<(&'static str, &'static str)>,
    /// Answers beyond success of who may ask that: nothing is ended by a question of this test.
    pub(super) good: &'static [u16],
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, .. } = self;
        write!(f, "{method} {path}")
    }
}

const TOML: &str = "application/toml";
const JSON: &str = "application/json";
const PROFILE: &str =
    "kind = \"service\"\nname = \"tried\"\nnamespace = \"lab\"\ncommand = [\"true\"]\n";
const FACTS: &str = "{FACTS}";
const UNCHANGED: &[u16] = &[412];
const UNFIT: &[u16] = &[400, 409];

/// Every route with every method: what is asked of it, and which column of the table says who may.
pub(super) fn rows() -> Vec<Row> {
    let row = |method, path, room| Row {
        method,
        path,
        room,
        body: None,
        good: &[],
    };
    let get = |path, room| row("GET", path, room);
    let with = |method, path, room, kind, text, good| Row {
        body: Some((kind, text)),
        good,
        ..row(method, path, room)
    };
    let order = |path, room, good| Row {
        good,
        ..row("POST", path, room)
    };
    vec![
        get("/healthz", "open"),
        get("/readyz", "open"),
        get("/openapi.json", "open"),
        get("/metrics", "known"),
        get("/api/v1/whoami", "me"),
        get("/api/v1/counters", "known"),
        get("/api/v1/services", "known"),
        get("/api/v1/watch", "known"),
        get("/api/v1/hosts", "known"),
        get("/api/v1/hosts/{host}", "known"),
        get("/api/v1/hosts/{host}/ports", "known"),
        get("/api/v1/hosts/{host}/ports/history", "known"),
        get("/api/v1/hosts/{host}/events", "known"),
        with("POST", "/api/v1/check", "known", TOML, PROFILE, &[]),
        with("POST", "/api/v1/explain", "known", TOML, PROFILE, &[]),
        get("/api/v1/services/{service}", "see"),
        get("/api/v1/services/{service}/endpoints", "see"),
        get("/api/v1/services/{service}/replicas/{index}", "see"),
        get("/api/v1/resolve/{service}", "see"),
        get("/api/v1/resolve/{service}/{port}", "see"),
        get("/api/v1/services/{service}/events", "logs"),
        get("/api/v1/services/{service}/explain", "logs"),
        get("/api/v1/services/{service}/replicas/{index}/logs", "logs"),
        with(
            "PUT",
            "/api/v1/services/{service}",
            "submit",
            TOML,
            "{PROFILE}",
            UNCHANGED,
        ),
        Row {
            good: UNCHANGED,
            ..row("DELETE", "/api/v1/services/{service}", "manage")
        },
        with(
            "POST",
            "/api/v1/services/{service}/scale",
            "manage",
            JSON,
            "{\"replicas\": 1}",
            UNCHANGED,
        ),
        order("/api/v1/services/{service}/start", "manage", UNCHANGED),
        order("/api/v1/services/{service}/stop", "manage", UNCHANGED),
        order("/api/v1/services/{service}/restart", "manage", UNCHANGED),
        order(
            "/api/v1/services/{service}/replicas/{index}/kill",
            "manage",
            UNCHANGED,
        ),
        order(
            "/api/v1/services/{service}/replicas/{index}/restart",
            "manage",
            UNCHANGED,
        ),
        order("/api/v1/hosts/{host}/drain", "operate", &[]),
        order("/api/v1/hosts/{host}/undrain", "operate", &[]),
        order("/api/v1/hosts/{host}/down", "operate", UNFIT),
        order("/api/v1/hosts/{host}/remove", "operate", UNFIT),
        with(
            "POST",
            "/api/v1/hosts/{host}/adopt",
            "operate",
            JSON,
            "{\"service\": \"tried.lab\", \"replica\": 0}",
            UNFIT,
        ),
        order("/api/v1/hosts/{host}/fence", "operate", UNFIT),
        get("/api/v1/backup", "backup"),
        get("/api/v1/tokens", "mine"),
        with(
            "POST",
            "/api/v1/tokens",
            "make",
            JSON,
            "{\"kind\": \"user\", \"ttl\": \"1h\"}",
            &[],
        ),
        Row {
            good: &[],
            ..row("DELETE", "/api/v1/tokens/{id}", "theirs")
        },
        order("/api/v1/tokens/{id}/rotate", "renew", &[]),
        with(
            "POST",
            "/api/v1/join",
            "join",
            JSON,
            "{\"host\": \"n9\", \"machine_id\": \"m9\", \"replace\": true}",
            &[],
        ),
        with(
            "PUT",
            "/api/v1/hosts/{host}/report",
            "host",
            JSON,
            FACTS,
            &[],
        ),
        with(
            "POST",
            "/api/v1/hosts/{host}/lease",
            "host",
            JSON,
            "{}",
            &[],
        ),
        with(
            "POST",
            "/api/v1/hosts/{host}/shutdown",
            "host",
            JSON,
            "{}",
            &[],
        ),
        with(
            "POST",
            "/api/v1/hosts/{host}/attach",
            "host",
            JSON,
            "{}",
            UNFIT,
        ),
        get("/api/v1/hosts/{host}/desired", "host"),
        with(
            "PUT",
            "/api/v1/hosts/{host}/reads/{read}",
            "host",
            "application/octet-stream",
            "x",
            &[400, 404],
        ),
        with(
            "PUT",
            "/api/v1/replicas/{service}/{index}/{incarnation}/status",
            "work",
            JSON,
            "{STATUS}",
            &[],
        ),
    ]
}
