//! A site with everybody in the table, and a service that most of them may not see, full of words to look for.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use portreeve::identity::{Incarnation, ServiceName};
use portreeve::registry::{Command, NewToken, TokenBearer, TokenOrder, TokenVerb};
use portreeve::rights::Rights;
use portreeve::supervision::{ExitStatus, Failure, Reason, State, Status};
use portreeve::time::WallClock;
use portreeve_api::body::{Joined, TokenMade};
use portreeve_api::paths;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::ask::{Answer, Ask, Form};
use super::table::{Row, names};
use super::who::Who;
use crate::reads::Piece;
use crate::rest::Api;
use crate::secret::{Drawn, TokenKind};
use crate::site::{FakeAgent, Seen, Site, config, facts, put, request, status};
use crate::token::{Bearer, ReplicaToken};
use crate::watch::Departed;
use crate::{AuditPlace, Config, Controller};

/// In everything of the hidden service: its name, its owner, its labels, ports, paths and texts.
pub(super) const MARKER: &str = "zqx";
/// In what only those are told who may read its logs.
pub(super) const LOGS: &str = "qlogq";
/// The service that is asked for.
pub(super) const HIDDEN: &str = "zqxweb.zqxalice";
/// Where it is.
const HOST: &str = "n1";
/// The host whose agent asks.
const AGENTS: &str = "n2";
/// The host that is ordered about.
const ORDERED: &str = "n3";

pub(super) const OWNER: u32 = 3_999_100;
pub(super) const STRANGER: u32 = 3_999_101;
/// Names, uids, groups.
const ACCOUNTS: [(&str, u32, &[&str]); 13] = [
    ("zqxalice", OWNER, &["chem", "users"]),
    ("stranger", STRANGER, &["users"]),
    ("mate", 3_999_102, &["chem", "users"]),
    ("shares", 3_999_103, &["chem", "users"]),
    ("friend", 3_999_104, &["users"]),
    ("reader", 3_999_105, &["users"]),
    ("viewer", 3_999_106, &["chem", "users"]),
    ("viewer-group", 3_999_107, &["users"]),
    ("viewer-all", 3_999_108, &["users"]),
    ("operator", 3_999_109, &["users"]),
    ("operator-own", 3_999_110, &["users"]),
    ("manager", 3_999_111, &["users"]),
    ("bound-admin", 3_999_112, &["users"]),
];

pub(super) const RIGHTS: &str = r#"
[user.shares]
view = "group"
[user.viewer]
role = "viewer"
[user.viewer-group]
role = "viewer"
view = "group:chem"
[user.viewer-all]
role = "viewer"
view = "all"
[user.operator]
role = "operator"
[user.operator-own]
role = "operator"
view = "own"
[user.manager]
manage = "group:chem"
[user.bound-admin]
role = "admin"
"#;

/// The service that is asked for.
pub(super) const PROFILE: &str = r#"
kind = "service"
name = "zqxweb"
command = ["sleep", "zqxcommand"]
pre_exec = ["zqxbefore"]
working_dir = "/zqxfolder"
env_file = "/zqxfolder/env"
env_secret = ["ZQXKEY"]
labels = { zqxlabel = "zqxvalue" }
visibility = ["user:friend", "user:reader"]
logs = ["user:reader"]
[env]
ZQXNAME = "zqx qlogq environment"
[ports]
http = "any"
zqxfixed = 5000
zqxinner = { any = 1, publish = false }
[readiness]
http = { port = "http", path = "/zqxpath", headers = { X-Zqx = "qlogq" } }
[placement]
hosts = "n1"
"#;

/// One that waits for a port of the other.
pub(super) fn waiting(name: &str) -> String {
    format!(
        "kind = \"service\"\nname = \"{name}\"\ncommand = [\"true\"]\n[ports]\nhttp = 5000\n[placement]\nhosts = \"n1\"\n"
    )
}

pub(super) struct World {
    pub(super) site: Site,
    pub(super) people: Vec<Who>,
    api: Api,
    /// A token of the owner's that others would end.
    theirs: Mutex<String>,
    /// The tag of the hidden service's endpoints.
    tag: String,
    reads: JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.reads.abort();
    }
}

impl World {
    pub(super) async fn start() -> Self {
        let site = open().await;
        let app = &site.controller.app;
        for (name, uid, groups) in ACCOUNTS {
            app.accounts.invent(name, uid, groups);
        }
        let agent = FakeAgent::named(&site, HOST);
        agent.report(&agent.facts()).await;
        submit(&site, OWNER, "zqxweb", PROFILE).await;
        let set = agent.desired_until(|set| set.replicas.len() == 1).await;
        agent.tell(&set.replicas[0], &told()).await;
        // One that waits for its port, another one's and a hidden one; and one of the other's that runs.
        submit(&site, STRANGER, "waits", &waiting("waits")).await;
        submit(&site, OWNER, "zqxwaits", &waiting("zqxwaits")).await;
        let plain = "kind = \"service\"\nname = \"runs\"\ncommand = [\"true\"]\n[ports]\nhttp = \"any\"\n[placement]\nhosts = \"n1\"\n";
        submit(&site, STRANGER, "runs", plain).await;
        agent.desired_until(|set| set.replicas.len() == 2).await;
        let people = everybody(&site).await;
        let theirs = made(&site, OWNER, &json!({"kind": "user"})).await.id;
        let path = paths::service_part(&HIDDEN, "endpoints");
        let seen = site.as_user(OWNER, request(Method::GET, &path)).await;
        let tag = seen.headers["etag"].to_str().unwrap().to_owned();
        let reads = tokio::spawn(answer_reads(Arc::clone(app)));
        Self {
            api: Api::new(Arc::clone(app)),
            theirs: Mutex::new(theirs),
            people,
            tag,
            reads,
            site,
        }
    }

    /// The one of this name.
    pub(super) fn who(&self, name: &str) -> &Who {
        self.people.iter().find(|who| who.name == name).unwrap()
    }

    /// What no answer may ever hold.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let secrets = self.people.iter().filter_map(Who::secret);
        // A text that is no token has none.
        secrets.filter(|secret| secret.len() > 20)
    }

    /// The hosts are as a row finds them.
    pub(super) async fn make_ready(&self, row: &Row) {
        let host = match row.room {
            "operate" => ORDERED,
            "host" => AGENTS,
            _ => return,
        };
        let host = host.parse().unwrap();
        let door = self.site.controller.door();
        door.report(&host, facts(&host), None).await.unwrap();
    }

    /// After a token was ended or renewed there is another one.
    pub(super) async fn settle(&self, row: &Row, answer: &Answer) {
        if ["theirs", "renew"].contains(&row.room) && answer.is_success() {
            let made = made(&self.site, OWNER, &json!({"kind": "user"})).await;
            *self.theirs.lock() = made.id;
        }
    }

    /// The question of this row in this form, about the hidden service.
    pub(super) fn concrete(&self, row: &Row, form: &Form) -> Ask {
        let host = match row.room {
            "operate" => ORDERED,
            "host" => AGENTS,
            _ => HOST,
        };
        let path = row
            .path
            .replace("{service}", HIDDEN)
            .replace("{host}", host);
        let path = path.replace("{index}", "0").replace("{incarnation}", "0");
        let path = path.replace("{port}", "http").replace("{read}", "0");
        let path = path.replace("{id}", &self.theirs.lock());
        let uri = if form.query.is_empty() {
            path
        } else {
            format!("{path}?{}", form.query)
        };
        let method = if form.head { "HEAD" } else { row.method };
        let headers = form.headers.iter().map(|(name, value)| {
            let value = value.replace("{TAG}", &self.tag);
            ((*name).to_owned(), value)
        });
        let mut headers: Vec<_> = headers.collect();
        let mut body = String::new();
        if let Some((kind, text)) = row.body {
            headers.push(("content-type".to_owned(), kind.to_owned()));
            body = match text {
                "{FACTS}" => serde_json::to_string(&facts(&AGENTS.parse().unwrap())).unwrap(),
                "{STATUS}" => serde_json::to_string(&told()).unwrap(),
                "{PROFILE}" => PROFILE.to_owned(),
                text => text.to_owned(),
            };
        }
        Ask {
            method: method.to_owned(),
            uri,
            headers,
            body,
        }
    }

    /// What somebody is answered.
    pub(super) async fn ask(&self, who: &Who, ask: &Ask) -> Answer {
        let mut asked = Request::builder().method(ask.method.as_str()).uri(&ask.uri);
        for (name, value) in &ask.headers {
            asked = asked.header(name, value);
        }
        let mut asked = asked.body(Body::from(ask.body.clone())).unwrap();
        who.sign(&mut asked);
        let mut response = self.api.answer(asked).await;
        if let Some(departed) = Departed::of(&mut response) {
            let body = until_quiet(self.followed(departed)).await;
            return Answer::new(response.status().as_u16(), response.headers().clone(), body);
        }
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer::new(parts.status.as_u16(), parts.headers, body)
    }

    /// A stream, as it begins.
    pub(super) async fn stream(&self, who: &Who, ask: &Ask) -> Following {
        let mut asked = request(Method::GET, &ask.uri);
        for (name, value) in &ask.headers {
            let name: http::HeaderName = name.parse().unwrap();
            asked.headers_mut().insert(name, value.parse().unwrap());
        }
        who.sign(&mut asked);
        let mut response = self.api.answer(asked).await;
        self.followed(Departed::of(&mut response).expect("it is a stream"))
    }

    fn followed(&self, departed: Departed) -> Following {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let app = &self.site.controller.app;
        let (limits, stop) = (app.limits.clone(), app.stopping.clone());
        let run = tokio::spawn(async move { departed.run(Box::new(theirs), &limits, stop).await });
        Following { ours, run }
    }

    /// The file of rights says this from now on.
    pub(super) fn bind(&self, text: &str) {
        std::fs::write(self.site.folder.path().join("rights.toml"), text).unwrap();
        self.site.controller.look_at_files();
    }
}

/// A stream that somebody follows.
pub(super) struct Following {
    ours: UnixStream,
    run: JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.run.abort();
    }
}

impl Following {
    /// Reads until this word came; all that was read. `None`: it did not within the time.
    pub(super) async fn until(&mut self, word: &str, within: Duration) -> Option<String> {
        let mut told = Vec::new();
        let reading = async {
            loop {
                let text = String::from_utf8_lossy(&told);
                if text.contains(word) {
                    return Some(text.into_owned());
                }
                if self.ours.read_buf(&mut told).await.unwrap_or(0) == 0 {
                    return None;
                }
            }
        };
        tokio::time::timeout(within, reading).await.ok().flatten()
    }
}

/// What a stream tells until it is quiet. Its head comes with the first event, which there always is.
async fn until_quiet(mut following: Following) -> Vec<u8> {
    let mut told = Vec::new();
    let mut patience = Duration::from_secs(5);
    loop {
        let read = following.ours.read_buf(&mut told);
        match tokio::time::timeout(patience, read).await {
            Ok(Ok(read)) if read > 0 => patience = Answer::QUIET,
            _ => return told,
        }
    }
}

async fn open() -> Site {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rights.toml");
    std::fs::write(&path, RIGHTS).unwrap();
    let config = Config {
        rights: Some(path),
        audit: Some(AuditPlace::File(folder.path().join("audit.log"))),
        // Nobody asks faster here than this machine answers.
        requests_per_second: Some(1_000_000),
        ..config(&folder)
    };
    let controller = Controller::start(config).await.unwrap();
    Site { folder, controller }
}

async fn submit(site: &Site, uid: u32, name: &str, profile: &str) {
    let asked = put(
        &paths::service(&name),
        "application/toml",
        profile.to_owned(),
    );
    let seen = site.as_user(uid, asked).await;
    assert!(seen.status.is_success(), "{name}: {}", seen.text());
}

/// What the hidden service's worker tells: it is up after a failure.
pub(super) fn told() -> Status {
    let failure = || Failure {
        reason: Reason::Liveness { failures: 3 },
        exit: Some(ExitStatus::Code(3)),
        run: portreeve::identity::Run(1),
        at: WallClock::from_unix_millis(1_700_000_000_000),
        probe_output: Some("zqx qlogq probe".into()),
    };
    Status {
        restarts: 1,
        not_ready_reason: None,
        first_failure: Some(failure()),
        last_failure: Some(failure()),
        ..status(2, State::Up, true)
    }
}

/// The agent of the host answers who reads logs.
async fn answer_reads(app: Arc<crate::app::App>) {
    let host = HOST.parse().unwrap();
    let mut since = None;
    while let Ok(handout) = app.desired(&host, None, since).await {
        since = Some(handout.revision());
        for read in &handout.errands {
            let piece = Piece {
                offset: 0,
                incarnation: Some(0),
                bytes: Bytes::from_static(b"zqx qlogq written\n"),
            };
            app.reads.answer(&host, read.read, piece);
        }
    }
}

async fn everybody(site: &Site) -> Vec<Who> {
    let app = &site.controller.app;
    let accounts = ACCOUNTS.iter().filter(|(name, ..)| *name != "zqxalice");
    let mut people: Vec<Who> = accounts
        .map(|(name, uid, _)| Who::account(name, *uid))
        .collect();
    people.extend([
        Who::account("owner", OWNER),
        Who::account("root", 0),
        Who::remote("none", true),
        Who::remote("plain", false),
        Who::bearer("garbage", "x"),
        Who::account("peer-relays", STRANGER).on_behalf(OWNER),
    ]);
    let unknown = Drawn::new().unwrap().text(TokenKind::User);
    people.push(Who::bearer("unknown", &unknown));
    people.push(Who::bearer("expired", &expired(site).await));
    let of = |uid, body: Value| async move { made(site, uid, &body).await.token };
    let revoked = made(site, OWNER, &json!({"kind": "user"})).await;
    people.push(Who::bearer("revoked", &revoked.token));
    let path = paths::token(&revoked.id);
    let seen = site.as_user(OWNER, request(Method::DELETE, &path)).await;
    assert!(seen.status.is_success(), "{}", seen.text());
    let user = || json!({"kind": "user"});
    let viewer = json!({"kind": "user", "role": "viewer"});
    let join = |relay: bool| json!({"kind": "join", "uses": 1000, "relay": relay});
    people.push(Who::bearer("owner-token", &of(OWNER, user()).await));
    people.push(Who::bearer("owner-reads", &of(OWNER, viewer).await));
    people.push(Who::bearer("stranger-token", &of(STRANGER, user()).await));
    people.push(Who::bearer("root-token", &of(0, user()).await));
    let (relaying, joining) = (of(0, join(true)).await, of(0, join(false)).await);
    let (host, other) = (
        joined(site, &relaying, AGENTS).await,
        joined(site, &joining, "n4").await,
    );
    people.extend([
        Who::bearer("join", &joining),
        Who::bearer("host", &host),
        Who::bearer("host-other", &other),
        Who::bearer("relayed-owner", &host).on_behalf(OWNER),
        Who::bearer("relayed-stranger", &host).on_behalf(STRANGER),
        Who::bearer("relayed-root", &host).on_behalf(0),
        Who::bearer("relayed-nowhere", &other).on_behalf(OWNER),
    ]);
    let replicas = [
        ("worker", "job", HIDDEN, 0),
        ("worker-old", "job-old", HIDDEN, 7),
        ("worker-other", "job-other", "runs.stranger", 0),
    ];
    for (worker, job, service, incarnation) in replicas {
        let service: ServiceName = service.parse().unwrap();
        let service_id = app.shown.view.borrow().services.get(&service).unwrap().id;
        let token = ReplicaToken {
            service,
            service_id,
            index: 0,
            incarnation: Incarnation(incarnation),
        };
        let signed = |bearer| app.key.sign(&token, bearer);
        people.push(Who::bearer(worker, &signed(Bearer::Worker)));
        people.push(Who::bearer(job, &signed(Bearer::Job)));
    }
    let mut known: Vec<_> = people.iter().map(|who| who.name).collect();
    let mut told = names();
    known.sort_unstable();
    told.sort_unstable();
    assert_eq!(
        known, told,
        "everybody in the table is here, and nobody else"
    );
    people
}

async fn expired(site: &Site) -> String {
    let app = &site.controller.app;
    let by = app.accounts.of_uid(OWNER).await;
    let drawn = Drawn::new().unwrap();
    let verb = TokenVerb::Create(Box::new(NewToken {
        id: drawn.id,
        hash: drawn.hash(),
        bearer: TokenBearer::User {
            user: by.user.clone(),
            uid: by.uid,
            rights: Rights::USER,
        },
        expires: Some(WallClock::from_unix_millis(1_700_000_000_000)),
        label: None,
    }));
    let order = TokenOrder {
        through: None,
        verb,
    };
    let order = Command::Token(Box::new(order));
    let answer = app.queue.command((*by).clone(), order).await;
    answer.unwrap().unwrap();
    drawn.text(TokenKind::User)
}

fn posted(path: &str, body: &Value) -> Request<Body> {
    let mut asked = put(path, "application/json", body.to_string());
    *asked.method_mut() = Method::POST;
    asked
}

/// A token that this account makes.
pub(super) async fn made(site: &Site, uid: u32, body: &Value) -> TokenMade {
    let seen: Seen = site.as_user(uid, posted(&paths::tokens(), body)).await;
    assert!(seen.status.is_success(), "{}", seen.text());
    seen.json()
}

async fn joined(site: &Site, token: &str, host: &str) -> String {
    let mut asked = posted(&paths::join(), &json!({"host": host, "machine_id": host}));
    let value = format!("Bearer {token}").parse().unwrap();
    asked.headers_mut().insert("authorization", value);
    let seen = site.as_user(STRANGER, asked).await;
    assert!(seen.status.is_success(), "{}", seen.text());
    seen.json::<Joined>().token
}
