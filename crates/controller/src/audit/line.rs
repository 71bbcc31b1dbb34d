//! One line: what was asked, by whom and from where, and what came of it.

use std::sync::Arc;

use http::{Method, StatusCode, Uri};
use serde::Serialize;

use super::Noted;
use crate::clock;
use crate::peer::Peer;

/// A request as it came, kept until its answer is known. Cheap to make: what it holds is shared.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) peer: Option<Arc<Peer>>,
    pub(crate) noted: Arc<Noted>,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome<'a> {
    /// Its path as `/openapi.json` writes it.
    pub(crate) route: &'a str,
    pub(crate) status: StatusCode,
    /// The code of the problem.
    pub(crate) code: Option<&'a str>,
    /// The request's number.
    pub(crate) request: &'a str,
}

/// A line, and of a refusal who was refused.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) line: String,
    /// The host that spoke, else the account or the machine at the other end: what a request says of itself is not counted.
    pub(crate) refused: Option<String>,
}

/// What agents and workers tell all the time, and what is only looked into: no change of anybody's.
const ROUTINE: [&str; 6] = [
    "/api/v1/hosts/{host}/report",
    "/api/v1/hosts/{host}/lease",
    "/api/v1/hosts/{host}/reads/{read}",
    "/api/v1/replicas/{service}/{index}/{incarnation}/status",
    "/api/v1/check",
    "/api/v1/explain",
];
/// Longer paths and queries are cut.
const MOST_TEXT: usize = 512;

impl Call {
    /// The line, if what came of it belongs into the log: a change, somebody who is not known or may not do that, and
    /// a change that was refused.
    pub(crate) async fn line(&self, outcome: Outcome<'_>) -> Option<Entry> {
        let status = outcome.status;
        let turned_away = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let changes = !matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let counts = changes && !ROUTINE.contains(&outcome.route);
        if !turned_away && !counts {
            return None;
        }
        let refused = status.is_client_error() || status.is_server_error();
        let who = self.noted.who();
        let line = Line {
            time: now(),
            event: if refused { "refusal" } else { "change" },
            user: who.as_ref().map(|who| who.user.as_str()),
            method: who.as_ref().map(|who| who.method),
            token: who.as_ref().and_then(|who| who.token.as_deref()),
            host: who.as_ref().and_then(|who| who.host.as_deref()),
            from: self.from().await,
            call: self.method.as_str(),
            route: outcome.route,
            path: without_tokens(self.uri.path()),
            query: self.uri.query().map(without_tokens),
            status: status.as_u16(),
            code: outcome.code,
            request: outcome.request,
        };
        let line = serde_json::to_string(&line).ok()?;
        let refused = match (refused, &self.peer) {
            (false, _) => None,
            (true, Some(peer)) => {
                let host = who.and_then(|who| who.host);
                let whose = peer.whose().await;
                Some(host.unwrap_or_else(|| format!("{whose:?}")))
            }
            (true, None) => Some(String::new()),
        };
        Some(Entry { line, refused })
    }

    async fn from(&self) -> From {
        let peer = self.peer.as_deref();
        let (via, address) = match peer {
            None => ("unknown", None),
            Some(Peer::Unix { .. }) => ("unix socket", None),
            Some(Peer::Loopback { peer, .. }) => ("loopback", Some(*peer)),
            Some(Peer::Remote { address, tls: true }) => ("tls", Some(*address)),
            Some(Peer::Remote { address, .. }) => ("plain", Some(*address)),
        };
        let uid = match peer {
            Some(peer) => peer.uid().await,
            None => None,
        };
        From {
            via,
            address: address.map(|address| address.to_string()),
            uid,
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    from: From,
    call: &'a str,
    route: &'a str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    request: &'a str,
}

#[derive(Serialize)]
struct From {
    via: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
}

/// The time for people, to the millisecond.
fn now() -> String {
    let ms = i64::try_from(clock::wall().as_unix_millis()).unwrap_or(i64::MAX);
    let now = jiff::Timestamp::from_millisecond(ms);
    now.unwrap_or_default().to_string()
}

/// The line that says how many before it were lost.
pub(super) fn of_losses(lines: u64) -> String {
    serde_json::json!({ "time": now(), "event": "lost", "lines": lines }).to_string()
}

/// The text of a path or a query without what could be a token: the value of a parameter that is named like one, and
/// whatever begins as ours do, wherever it stands.
fn without_tokens(text: &str) -> String {
    const BEGIN: [&str; 5] = ["prt1.", "prj1.", "prh1.", "pr1.", "pj1."];
    const NAMED: [&str; 6] = ["token", "secret", "password", "auth", "credential", "key"];
    let mut told = String::with_capacity(text.len().min(MOST_TEXT));
    for piece in text.split_inclusive(['/', '&', ';']) {
        let (piece, end) = match piece.strip_suffix(['/', '&', ';']) {
            Some(bare) => (bare, &piece[bare.len()..]),
            None => (piece, ""),
        };
        let plain = decoded(piece).to_ascii_lowercase();
        let name = piece.split_once('=').map(|(name, _)| name);
        let is_named = name.is_some_and(|name| {
            let name = decoded(name).to_ascii_lowercase();
            NAMED.iter().any(|secret| name.contains(secret))
        });
        let is_token = BEGIN.iter().any(|begin| plain.contains(begin));
        match name {
            _ if is_token => told.push_str("..."),
            Some(name) if is_named => told.push_str(&format!("{name}=...")),
            _ => told.push_str(piece),
        }
        told.push_str(end);
        if told.len() > MOST_TEXT {
            let cut = told.floor_char_boundary(MOST_TEXT);
            told.truncate(cut);
            told.push_str("...");
            break;
        }
    }
    told
}

/// What `%70` stands for is what is meant; bytes that are no text do not matter here.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten();
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_a_token_is_left_out_of_paths_and_queries() {
        for (text, told) in [
            (
                "/api/v1/services/web.alice/scale",
                "/api/v1/services/web.alice/scale",
            ),
            (
                "/api/v1/tokens/0123456789abcdef",
                "/api/v1/tokens/0123456789abcdef",
            ),
            ("/x/prt1.0123.SECRET/y", "/x/.../y"),
            ("/x/%70rt1.0123.SECRET/y", "/x/.../y"),
            ("/x/PJ1.SECRET", "/x/..."),
            (
                "replace=1&token=SECRET&wait=5s",
                "replace=1&token=...&wait=5s",
            ),
            ("a=1&%74oken=SECRET", "a=1&%74oken=..."),
            ("access_token=SECRET;b=2", "access_token=...;b=2"),
            ("API-Key=SECRET", "API-Key=..."),
            ("name=pr1.SECRET", "..."),
            ("pr1.SECRET&key=SECRET", "...&key=..."),
            ("pr1.SECRETkey=x", "..."),
            ("%", "%"),
        ] {
            assert_eq!(without_tokens(text), told);
        }
        let long = without_tokens(&"é".repeat(MOST_TEXT));
        assert!(long.len() <= MOST_TEXT + 3 && long.ends_with("..."));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic_and_no_token_of_ours_stays(before in "[ -~é%]{0,40}", after in "[!-~]{0,40}") {
            let told = without_tokens(&format!("{before}&prt1.MARKER{after}"));
            assert!(!told.contains("MARKER"), "{told}");
        }
    }
}
