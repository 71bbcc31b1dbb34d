//! Whole requests to a whole controller: paths, queries, headers and bodies as the routes read them.
//!
//! The first line is `UID METHOD PATH`, then header lines, an empty line and the body.

use std::cell::RefCell;
use std::time::Duration;

use http::Request;
use portreeve_api::Problem;
use portreeve_controller::fuzzing::Rest;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// So many requests are asked of one controller; then another begins, so that memory does not grow with the state.
const OF_ONE: u32 = 2_000;
/// What takes longer is held on purpose.
const PATIENCE: Duration = Duration::from_millis(30);

struct Site {
    rest: Option<Rest>,
    asked: u32,
    runtime: Runtime,
    _folder: TempDir,
}

thread_local! {
    static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
}

/// Every answer is one of the kinds that REST promises.
pub(crate) fn requests(bytes: &[u8]) {
    let Some((uid, request)) = read(bytes) else {
        return;
    };
    let asked = format!("{} {}", request.method(), request.uri());
    let is_head = request.method() == http::Method::HEAD;
    SITE.with_borrow_mut(|site| {
        if site.as_ref().is_some_and(|site| site.asked >= OF_ONE)
            && let Some(mut old) = site.take()
            && let Some(rest) = old.rest.take()
        {
            old.runtime.block_on(rest.stop());
        }
        let site = site.get_or_insert_with(begin);
        site.asked += 1;
        let Some(rest) = &site.rest else { return };
        let answered = site.runtime.block_on(rest.ask(uid, request, PATIENCE));
        let Some(answered) = answered else { return };
        let status = answered.status;
        // The store may be busy for a moment; nothing else of ours is broken by a request.
        assert!(
            !status.is_server_error() || status == http::StatusCode::SERVICE_UNAVAILABLE,
            "{asked}: {status}: {}",
            String::from_utf8_lossy(&answered.body)
        );
        assert!(
            answered.headers.contains_key("portreeve-request"),
            "{asked}"
        );
        if status.is_client_error() && !is_head {
            let kind = answered
                .headers
                .get("content-type")
                .map(|kind| kind.as_bytes());
            assert_eq!(kind, Some(Problem::MEDIA_TYPE.as_bytes()), "{asked}");
            let problem: Problem =
                serde_json::from_slice(&answered.body).expect("a refusal is a problem");
            assert_eq!(problem.status, status.as_u16());
            assert!(
                answered.body.len() < 512 << 10,
                "a refusal is bounded: {asked}"
            );
        }
    });
}

fn begin() -> Site {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let rest = runtime.block_on(async {
        let rest = Rest::start(folder.path()).await;
        for name in ["web", "hidden"] {
            let body = format!("name = \"{name}\"\ncommand = [\"x\"]\n[ports]\nhttp = \"any\"\n");
            let request = Request::put(format!("/api/v1/services/{name}"))
                .header("content-type", "application/toml")
                .body(body.into_bytes())
                .expect("a request");
            let patience = Duration::from_secs(30);
            let answered = rest.ask(1, request, patience).await.expect("an answer");
            assert!(answered.status.is_success(), "{answered:?}");
        }
        rest
    });
    Site {
        rest: Some(rest),
        asked: 0,
        runtime,
        _folder: folder,
    }
}

/// The user and the request; what HTTP does not carry is none.
fn read(bytes: &[u8]) -> Option<(u32, Request<Vec<u8>>)> {
    let (head, body) = match bytes.windows(2).position(|two| two == b"\n\n") {
        Some(at) => (&bytes[..at], &bytes[at + 2..]),
        None => (bytes, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut first = lines.next()?.splitn(3, |byte| *byte == b' ');
    let uid = std::str::from_utf8(first.next()?).ok()?.parse().ok()?;
    let method = http::Method::from_bytes(first.next()?).ok()?;
    let mut request = Request::builder().method(method).uri(first.next()?);
    for line in lines {
        let at = line.iter().position(|byte| *byte == b':')?;
        let value = http::HeaderValue::from_bytes(line[at + 1..].trim_ascii()).ok()?;
        request = request.header(&line[..at], value);
    }
    request
        .body(body.to_vec())
        .ok()
        .map(|request| (uid, request))
}
