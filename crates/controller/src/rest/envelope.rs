//! What is common to all answers: the request's number, the form of a refusal, the headers of a read, `HEAD`, gzip.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use portreeve_api::Problem;
use tower::ServiceExt;

use crate::app::App;
use crate::audit::{Call, Noted, Outcome};
use crate::meters::Meters;
use crate::peer::Peer;
use crate::room::Room;
use crate::vital;
use crate::watch;

use super::accept::Form;
use super::answer::stamp;
use super::identity::Standing;
use super::query::AtOnce;

/// The number of a request, in the log and in a refusal of it.
static REQUEST_HEADER: HeaderName = HeaderName::from_static("portreeve-request");
/// The table's number when the answer was made, and the life of that number line.
pub(crate) static REVISION_HEADER: HeaderName = HeaderName::from_static("portreeve-revision");
static EPOCH_HEADER: HeaderName = HeaderName::from_static("portreeve-epoch");
/// How old, in milliseconds, the controller's knowledge of the hosts is that the answer speaks of.
pub(crate) static SYNCED_HEADER: HeaderName = HeaderName::from_static("portreeve-synced");

/// Who asks a question that is held is looked at again so often: the groups of an account change without a word.
const LOOKED_AT_AGAIN: Duration = Duration::from_secs(15);

/// Shorter answers are not worth packing.
const GZIP_ABOVE: u64 = 1 << 10;
/// Longer ones are packed beside the threads that answer.
const PACKED_HERE: usize = 64 << 10;

/// Every route, with the envelope of its answers. Cheap to copy; copies number their requests together.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    routes: Router,
    app: Arc<App>,
    /// Of the table, for as long as the controller runs.
    epoch: HeaderValue,
    numbers: Arc<AtomicU64>,
    /// For long bodies.
    room: Arc<Room>,
}

impl Api {
    pub(crate) fn new(app: Arc<App>) -> Self {
        let mut start = [0; 8];
        // Without randomness the numbers of two starts are the same, which only a reader of logs would notice.
        let _ = getrandom::fill(&mut start);
        // An epoch is digits; one that is no header text would only be left out.
        let epoch = HeaderValue::from_str(app.shown.table.epoch());
        Self {
            routes: super::router(Arc::clone(&app)),
            epoch: epoch.unwrap_or_else(|_| HeaderValue::from_static("")),
            room: Arc::new(Room::for_bodies(app.limits.own_uid)),
            app,
            numbers: Arc::new(AtomicU64::new(u64::from_ne_bytes(start))),
        }
    }

    /// `req-` and 16 digits that tell neither how many there were nor what comes next to a reader.
    fn next_number(&self) -> String {
        let nth = self
            .numbers
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (nth ^ (nth >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        format!("req-{:016x}", mixed ^ (mixed >> 31))
    }

    /// What is counted of requests and connections.
    pub(crate) fn meters(&self) -> &Meters {
        &self.app.meters
    }

    async fn route(&self, request: Request) -> Response {
        let answer = self.routes.clone().oneshot(request).await;
        answer.unwrap_or_else(|never| match never {})
    }

    /// Serves a question that may be held, for as long as its asker is who it was: one whose token is revoked, or whose
    /// rights are other ones, is asked anew and answered at once.
    async fn held(&self, request: Request) -> Response {
        let app = &self.app;
        let (mut parts, _) = request.into_parts();
        let mut again = parts.clone();
        let standing = Standing::default();
        parts.extensions.insert(standing.clone());
        let mut access = app.shown.access.subscribe();
        {
            let answer = self.route(Request::from_parts(parts, Body::empty()));
            let mut answer = std::pin::pin!(answer);
            loop {
                tokio::select! {
                    response = &mut answer => return response,
                    _ = access.changed() => {}
                    () = tokio::time::sleep(LOOKED_AT_AGAIN) => {}
                }
                if standing.has_changed(app).await {
                    break;
                }
            }
        }
        again.extensions.insert(AtOnce);
        self.route(Request::from_parts(again, Body::empty())).await
    }

    /// What the audit log may have to say of the request; `None`: there is no such log.
    fn noted(&self, request: &mut Request, head: bool) -> Option<Call> {
        if !self.app.audit.is_kept() {
            return None;
        }
        let noted = Arc::new(Noted::default());
        request.extensions_mut().insert(Arc::clone(&noted));
        let method = request.method();
        let method = if head { &Method::HEAD } else { method };
        Some(Call {
            method: method.clone(),
            uri: request.uri().clone(),
            peer: request.extensions().get::<Arc<Peer>>().map(Arc::clone),
            noted,
        })
    }

    /// Serves one request.
    pub(crate) async fn answer(&self, mut request: Request) -> Response {
        let app = &self.app;
        request.extensions_mut().insert(Arc::clone(&self.room));
        let number = self.next_number();
        let head = *request.method() == Method::HEAD;
        if head {
            // The same answer, of which only the head is sent.
            *request.method_mut() = Method::GET;
        }
        let reads = *request.method() == Method::GET;
        let takes_gzip = reads && takes_gzip(request.headers());
        let place = app.meters.place(request.method(), request.uri().path());
        let call = self.noted(&mut request, head);
        // Before the snapshots that the answer is made of: they are at least as new.
        let revision = app.shown.table.revision();
        // Around the routes, not a layer of each: that would be made anew, in boxes, for every request.
        let mut response = if reads && may_be_held(&request) {
            self.held(request).await
        } else {
            if !reads {
                request.extensions_mut().insert(Standing::default());
                request.extensions_mut().insert(Arc::clone(app));
            }
            self.route(request).await
        };
        app.meters.answered(place, response.status());
        if let Some(call) = call {
            let problem = response.extensions().get::<Box<Problem>>();
            let outcome = Outcome {
                route: app.meters.route(place),
                status: response.status(),
                code: problem.map(|problem| problem.code.as_str()),
                request: &number,
            };
            if let Some(entry) = call.line(outcome).await {
                app.audit.add(entry);
            }
        }
        if let Some(problem) = response.extensions_mut().remove::<Box<Problem>>() {
            app.meters.refused(&problem.code);
            response = refusal(response, *problem, &number);
        } else if reads
            && (response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED)
        {
            let headers = response.headers_mut();
            if !headers.contains_key(&REVISION_HEADER) {
                headers.insert(&REVISION_HEADER, revision.into());
            }
            headers.insert(&EPOCH_HEADER, self.epoch.clone());
            if !headers.contains_key(&SYNCED_HEADER) {
                let view = super::services::newest(app);
                headers.insert(&SYNCED_HEADER, app.synced.of_all(&view).into());
            }
            if response.body().size_hint().lower() > GZIP_ABOVE && takes_gzip {
                response = packed(response).await;
            }
        }
        if let Ok(number) = HeaderValue::try_from(number) {
            response.headers_mut().insert(&REQUEST_HEADER, number);
        }
        if head {
            watch::stay(&mut response);
            response = without_body(response);
        }
        response
    }
}

/// Whether a question can be held: it says so, or it is one that always is.
fn may_be_held(request: &Request) -> bool {
    let uri = request.uri();
    let query = uri.query().unwrap_or_default();
    query.contains("wait")
        || query.contains("revision")
        || uri.path().ends_with("/desired")
        || request.headers().contains_key("prefer")
}

/// The problem as the body.
fn refusal(response: Response, mut problem: Problem, number: &str) -> Response {
    let status = problem.status;
    let code = &problem.code;
    if response.status().is_server_error() {
        tracing::warn!(request = number, status, code, detail = %problem.detail, "refused");
    } else {
        tracing::debug!(request = number, status, code, "refused");
    }
    problem.instance = Some(number.to_owned());
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = response.map(|_| Body::from(body));
    // The routes told that of the empty body before.
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}

/// Packs what is long and whole and of a kind that gets shorter. A stream is not whole, and stays as it is.
async fn packed(response: Response) -> Response {
    let whole = response.body().size_hint().exact().is_some();
    if !whole || !is_text(response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // It is in memory: this neither waits nor fails.
    let plain = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Response::from_parts(parts, Body::empty()),
    };
    let again = plain.clone();
    let packed = if plain.len() > PACKED_HERE {
        vital::blocking("gzip", move || gzip(&again)).await
    } else {
        gzip(&again)
    };
    let Some(packed) = packed else {
        return Response::from_parts(parts, Body::from(plain));
    };
    let headers = &mut parts.headers;
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.remove(header::CONTENT_LENGTH);
    // A strong tag names one sequence of bytes, and that is the plain one.
    let tag = headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
    if let Some(tag) = tag.map(|tag| format!("W/{tag}")) {
        stamp(headers, "etag", &tag);
    }
    Response::from_parts(parts, Body::from(packed))
}

fn gzip(plain: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok()
}

fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    [
        "application/json",
        "text/plain",
        Form::OpenMetrics.media_type(),
    ]
    .iter()
    .any(|text| kind.starts_with(text))
}

/// Whether `Accept-Encoding` names gzip, or everything, and not with `q=0`.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut codings = texts.flat_map(|text| text.split(',')).map(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let quality = quality.trim().strip_prefix("q=").unwrap_or("1");
        let taken = quality.parse::<f32>().is_ok_and(|quality| quality > 0.0);
        (name.trim(), taken)
    });
    let mut any = false;
    let named = codings.find_map(|(name, taken)| {
        any |= name == "*" && taken;
        (name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip")).then_some(taken)
    });
    named.unwrap_or(any)
}

fn without_body(response: Response) -> Response {
    let length = response.body().size_hint().exact();
    let mut response = response.map(|_| Body::empty());
    if let Some(length) = length {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_those_who_take_it() {
        let takes = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("accept-encoding", text.parse().unwrap());
            takes_gzip(&headers)
        };
        for text in [
            "gzip",
            "deflate, gzip;q=0.5, br",
            "*",
            "GZIP",
            "x-gzip",
            "identity, *;q=0.1",
        ] {
            assert!(takes(text), "{text}");
        }
        for text in ["", "br", "gzip;q=0", "*;q=0", "gzip;q=0, *", "gzip;q=x"] {
            assert!(!takes(text), "{text}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
