//! One question and its answer, whole as a client gets them, streams for as long as they have something to tell.

use std::io::Read;
use std::time::Duration;

use flate2::read::GzDecoder;
use http::HeaderMap;
use serde_json::Value;

use super::table::Row;

/// A form in which a route is asked.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) name: String,
    pub(super) head: bool,
    pub(super) query: &'static str,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) is_stream: bool,
}

impl Form {
    fn of(name: &str, headers: &[(&'static str, &str)]) -> Self {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        Self {
            name: name.to_owned(),
            head: false,
            query: "",
            headers: headers.collect(),
            is_stream: false,
        }
    }
}

/// Every form of a route: each media type that the description names, only the head, packed, if it is another, held.
pub(super) fn forms(row: &Row) -> Vec<Form> {
    if row.method != "GET" {
        // Whoever may change it is told that it is another than they think: nothing is ended here.
        let by_tag = row.good.contains(&412);
        let held = [("if-match", "\"s-none\"")];
        return vec![Form::of("plain", if by_tag { &held } else { &[] })];
    }
    let document = crate::rest::openapi::document();
    let operation = &document["paths"][row.path]["get"];
    let content = operation["responses"]["200"]["content"].as_object();
    let types = content.into_iter().flatten().map(|(kind, _)| kind.as_str());
    let mut forms: Vec<Form> = types
        .map(|kind| Form {
            is_stream: kind.contains("event-stream") || kind.contains("ndjson"),
            ..Form::of(kind, &[("accept", kind)])
        })
        .collect();
    forms.push(Form {
        head: true,
        ..Form::of("HEAD", &[])
    });
    if row.path != "/api/v1/watch" {
        forms.push(Form::of("gzip", &[("accept-encoding", "gzip")]));
        forms.push(Form::of("if-none-match", &[("if-none-match", "{TAG}, *")]));
    }
    let parameters = operation["parameters"].as_array();
    let mut parameters = parameters.into_iter().flatten();
    if parameters.any(|it| it["name"] == "wait") {
        let query = if row.path.ends_with("/logs") {
            "wait=1ms"
        } else {
            "revision=1&wait=1ms"
        };
        forms.push(Form {
            query,
            ..Form::of("wait", &[])
        });
    }
    forms
}

/// A question, whole.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: String,
    pub(super) uri: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Ask {
    /// A read of this.
    pub(super) fn get(uri: impl Into<String>, accept: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            uri: uri.into(),
            headers: vec![("accept".to_owned(), accept.to_owned())],
            body: String::new(),
        }
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// Unpacked.
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// A stream that told nothing new for so long is read no further.
    pub(super) const QUIET: Duration = Duration::from_millis(20);

    pub(super) fn new(status: u16, headers: HeaderMap, body: Vec<u8>) -> Self {
        let is_packed = body.starts_with(&[0x1f, 0x8b]);
        let mut plain = Vec::new();
        if is_packed {
            GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
        }
        Self {
            status,
            headers,
            body: if is_packed { plain } else { body },
        }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status) || self.status == 304
    }

    /// Whether it is this refusal; of a head, the status has to do.
    pub(super) fn is_refusal(&self, status: u16, codes: &[&str]) -> bool {
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let has_code = || {
            problem["code"]
                .as_str()
                .is_some_and(|code| codes.contains(&code))
        };
        self.status == status && (self.body.is_empty() || has_code())
    }

    /// Every byte that came: the status, the headers, the body.
    pub(super) fn text(&self) -> String {
        let Self {
            status,
            headers,
            body,
            ..
        } = self;
        format!("{status} {headers:?}\n{}", String::from_utf8_lossy(body))
    }

    pub(super) fn brief(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let body: String = body.chars().take(200).collect();
        format!("{} {body}", self.status)
    }
}
