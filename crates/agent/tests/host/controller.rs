//! A controller that writes down what it hears and wants what a test says.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path as UrlPath, Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post, put};
use portreeve::registry::HostFacts;
use portreeve::time::WallClock;
use portreeve_api::Problem;
use portreeve_api::attach::{Attached, Relayed};
use portreeve_api::body::{
    DesiredReplica, DesiredSet, JoinAsk, Joined, LOG_OFFSET_HEADER, Lease, LeaseAsk, LogRead,
};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Every wait of a test ends after this, with what was awaited.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Controller {
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    heard: Mutex<Heard>,
    /// Moves with everything that is heard or wanted.
    news: watch::Sender<u64>,
}

/// What a controller was told, and what it wants.
#[derive(Clone, Default)]
pub(crate) struct Heard {
    pub(crate) instance: String,
    pub(crate) reports: Vec<HostFacts>,
    pub(crate) leases: u32,
    /// How often the host said that it is being shut down.
    pub(crate) shutdowns: u32,
    /// How long it forgives silence.
    pub(crate) grace_ms: Option<u64>,
    pub(crate) asks: Vec<LeaseAsk>,
    /// How far its clock is behind.
    pub(crate) behind: Duration,
    pub(crate) pieces: Vec<(u64, u64, Vec<u8>)>,
    pub(crate) revision: u64,
    pub(crate) report_first: bool,
    pub(crate) replicas: Vec<DesiredReplica>,
    pub(crate) reads: Vec<LogRead>,
    /// What agents relayed for jobs.
    pub(crate) relayed: Vec<Relayed>,
    /// What the next jobs are granted.
    pub(crate) grants: Vec<DesiredReplica>,
    /// The one token under which a host is heard; `None`: everybody is.
    pub(crate) known: Option<String>,
    /// Who asked to join, and by which token.
    pub(crate) joins: Vec<(String, JoinAsk)>,
    /// How many answers to those who join are lost on their way.
    pub(crate) lost: usize,
    /// Whether streams may go on.
    pub(crate) go_on: bool,
    /// What was asked that is no host's matter: method, path, headers, body.
    pub(crate) others: Vec<(String, String, HeaderMap, Bytes)>,
}

impl Controller {
    /// Answers at `socket` under this instance, wanting nothing.
    pub(crate) fn start(socket: &Path, instance: &str) -> Self {
        _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let shared = Arc::new(Shared {
            heard: Mutex::new(Heard {
                instance: instance.to_owned(),
                revision: 1,
                ..Heard::default()
            }),
            news: watch::channel(0).0,
        });
        let routes = Router::new()
            .route("/api/v1/hosts/{host}/report", put(report))
            .route("/api/v1/hosts/{host}/lease", post(lease))
            .route("/api/v1/hosts/{host}/shutdown", post(shutdown))
            .route("/api/v1/hosts/{host}/attach", post(attach))
            .route("/api/v1/hosts/{host}/desired", get(desired))
            .route("/api/v1/hosts/{host}/reads/{read}", put(piece))
            .route("/api/v1/whoami", get(whoami))
            .route("/api/v1/stream", get(stream))
            .fallback(other)
            .layer(from_fn_with_state(shared.clone(), gate))
            .route("/api/v1/join", post(join))
            .with_state(shared.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { shared, serving }
    }

    /// Nobody listens any more; a poll that is held stays without an answer.
    pub(crate) async fn stop(self) {
        self.serving.abort();
        _ = self.serving.await;
    }

    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.shared.heard.lock().unwrap()
    }

    /// Wants something else from now on.
    pub(crate) fn want(&self, change: impl FnOnce(&mut Heard)) {
        {
            let mut heard = self.heard();
            change(&mut heard);
            heard.revision += 1;
        }
        self.shared.tell();
    }

    /// Waits until what was heard fits, and gives it.
    pub(crate) async fn until(&self, what: &str, fits: impl Fn(&Heard) -> bool) -> Heard {
        let mut news = self.shared.news.subscribe();
        let waiting = async {
            loop {
                news.borrow_and_update();
                let heard = self.heard().clone();
                if fits(&heard) {
                    return heard;
                }
                news.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(heard) => heard,
            Err(_) => panic!("{what}: not heard; reports: {:#?}", self.heard().reports),
        }
    }
}

impl Shared {
    fn tell(&self) {
        self.news.send_modify(|news| *news += 1);
    }

    fn hear(&self, change: impl FnOnce(&mut Heard)) {
        change(&mut self.heard.lock().unwrap());
        self.tell();
    }
}

async fn report(State(shared): State<Arc<Shared>>, Json(facts): Json<HostFacts>) -> StatusCode {
    shared.hear(|heard| {
        heard.report_first &= !facts.full;
        heard.reports.push(facts);
        heard.revision += 1;
    });
    StatusCode::NO_CONTENT
}

async fn lease(State(shared): State<Arc<Shared>>, Json(ask): Json<LeaseAsk>) -> Json<Lease> {
    shared.hear(|heard| {
        heard.leases += 1;
        heard.asks.push(ask);
    });
    let heard = shared.heard.lock().unwrap();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = WallClock::from_unix_millis(since.as_millis().try_into().unwrap());
    Json(Lease {
        instance: heard.instance.clone(),
        now: Some(now.before(heard.behind)),
        host_grace_ms: heard.grace_ms,
        period_ms: None,
    })
}

async fn shutdown(State(shared): State<Arc<Shared>>, Json(ask): Json<LeaseAsk>) -> Json<Lease> {
    assert!(ask.agent.is_some());
    shared.hear(|heard| heard.shutdowns += 1);
    let instance = shared.heard.lock().unwrap().instance.clone();
    Json(Lease {
        instance,
        now: None,
        host_grace_ms: None,
        period_ms: None,
    })
}

#[derive(serde::Deserialize)]
struct Since {
    since: Option<u64>,
}

async fn desired(
    State(shared): State<Arc<Shared>>,
    Query(Since { since }): Query<Since>,
) -> Json<DesiredSet> {
    let mut news = shared.news.subscribe();
    loop {
        news.borrow_and_update();
        {
            let heard = shared.heard.lock().unwrap();
            if since != Some(heard.revision) {
                return Json(DesiredSet {
                    instance: heard.instance.clone(),
                    revision: heard.revision,
                    report_first: heard.report_first,
                    replicas: heard.replicas.clone(),
                    reads: heard.reads.clone(),
                });
            }
        }
        news.changed().await.unwrap();
    }
}

async fn attach(
    State(shared): State<Arc<Shared>>,
    Json(relayed): Json<Relayed>,
) -> Result<Json<Attached>, StatusCode> {
    let mut granted = None;
    shared.hear(|heard| {
        heard.relayed.push(relayed);
        granted = heard.grants.pop();
    });
    let replica = granted.ok_or(StatusCode::NOT_FOUND)?;
    let notes = Vec::new();
    Ok(Json(Attached { replica, notes }))
}

fn bearer(headers: &HeaderMap) -> &str {
    let text = headers.get("authorization").map(|it| it.to_str().unwrap());
    text.and_then(|it| it.strip_prefix("Bearer "))
        .unwrap_or_default()
}

async fn gate(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let known = shared.heard.lock().unwrap().known.clone();
    if known.is_some_and(|known| known != bearer(request.headers())) {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", "not known");
        return (StatusCode::UNAUTHORIZED, Json(problem)).into_response();
    }
    next.run(request).await
}

/// Each machine that joins gets the next token, and no other is known from then on.
async fn join(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(ask): Json<JoinAsk>,
) -> Response {
    let host = ask.host.clone();
    let mut answer = None;
    shared.hear(|heard| {
        heard.joins.push((bearer(&headers).to_owned(), ask));
        let token = format!("prh1.{}", heard.joins.len());
        heard.known = Some(token.clone());
        if heard.lost > 0 {
            heard.lost -= 1;
        } else {
            answer = Some(Joined { token, host });
        }
    });
    match answer {
        Some(joined) => Json(joined).into_response(),
        None => StatusCode::BAD_GATEWAY.into_response(),
    }
}

async fn whoami() -> Json<serde_json::Value> {
    let who = serde_json::json!({
        "user": "host n17", "method": "host token", "view_scope": "own", "admin": false, "host": "n17",
    });
    Json(who)
}

/// Two pieces, the second once it may go on.
async fn stream(State(shared): State<Arc<Shared>>) -> Body {
    let mut news = shared.news.subscribe();
    let (sender, receiver) = tokio::sync::mpsc::channel::<&'static str>(1);
    tokio::spawn(async move {
        sender.send("one\n").await.unwrap();
        while !shared.heard.lock().unwrap().go_on {
            news.changed().await.unwrap();
        }
        _ = sender.send("two\n").await;
    });
    Body::new(Pieces(receiver))
}

struct Pieces(tokio::sync::mpsc::Receiver<&'static str>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        let piece = self.0.poll_recv(context);
        piece.map(|it| {
            it.map(|text| {
                Ok(hyper::body::Frame::data(Bytes::from_static(
                    text.as_bytes(),
                )))
            })
        })
    }
}

async fn other(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let length = body.len();
    shared.hear(|heard| {
        let path = parts.uri.to_string();
        let method = parts.method.to_string();
        heard.others.push((method, path, parts.headers, body));
    });
    let refused = Problem::new(StatusCode::FORBIDDEN, "not_allowed", "no").with("length", length);
    (StatusCode::FORBIDDEN, Json(refused)).into_response()
}

async fn piece(
    State(shared): State<Arc<Shared>>,
    UrlPath((_, read)): UrlPath<(String, u64)>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let offset = headers[LOG_OFFSET_HEADER]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    shared.hear(|heard| {
        heard.reads.retain(|waiting| waiting.read != read);
        heard.pieces.push((read, offset, body.to_vec()));
    });
    StatusCode::NO_CONTENT
}
