//! One method of one path: what it takes, what it answers, how it refuses.

use portreeve_api::paths;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::Shapes;

/// What one method of a path does.
pub(super) struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    tag: &'static str,
    parameters: Vec<Value>,
    /// Media type and description of what may be sent.
    body: Vec<(&'static str, Value)>,
    /// What is answered, if anything.
    content: Vec<Answered>,
    /// Statuses beside 200 and the refusals of every route.
    statuses: Vec<u16>,
}

/// One form of an answer.
struct Answered {
    media_type: &'static str,
    shape: fn(&mut Shapes) -> Value,
}

/// A read; refused with 406 where it cannot be given as asked for.
pub(super) fn get(path: &'static str, tag: &'static str, summary: &'static str) -> Operation {
    operation("get", path, tag, summary)
}

/// An order.
pub(super) fn operation(
    method: &'static str,
    path: &'static str,
    tag: &'static str,
    summary: &'static str,
) -> Operation {
    Operation {
        method,
        path,
        summary,
        tag,
        parameters: Vec::new(),
        body: Vec::new(),
        content: Vec::new(),
        statuses: Vec::new(),
    }
}

impl Operation {
    pub(super) const fn method(&self) -> &'static str {
        self.method
    }

    /// The whole path; those that begin with `//` are not under the root of the native tree.
    pub(super) fn path(&self) -> String {
        match self.path.strip_prefix("//") {
            Some(rest) => format!("/{rest}"),
            None => format!("{}{}", paths::ROOT, self.path),
        }
    }

    /// Takes this query parameter.
    pub(super) fn query(mut self, name: &str, schema: Value, what: &str) -> Self {
        self.parameters.push(json!({
            "name": name, "in": "query", "description": what, "schema": schema,
        }));
        self
    }

    /// Takes `If-Match` and `If-None-Match: *`.
    pub(super) fn conditional(mut self) -> Self {
        let headers = [
            (
                "If-Match",
                "only if the service has this tag (ETag of GET /services/{service}); *: if it is there",
            ),
            ("If-None-Match", "*: only if it is not there"),
        ];
        for (name, what) in headers {
            self.parameters.push(json!({
                "name": name, "in": "header", "description": what, "schema": text(),
            }));
        }
        self.also(&[412])
    }

    /// Takes `revision` and `wait`.
    pub(super) fn held(self) -> Self {
        let number = json!({"type": "integer", "minimum": 0, "maximum": (1_u64 << 53) - 1});
        self.query(
            "revision",
            number,
            "the asker has the answer of this revision: wait for another one",
        )
        .query(
            "wait",
            span(),
            "how long at most; 5m where only revision is given, never more than 10m",
        )
    }

    /// Takes a body of this kind.
    pub(super) fn takes(mut self, media_type: &'static str, schema: Value) -> Self {
        self.body.push((media_type, schema));
        self.also(&[408, 413, 415])
    }

    /// Answers with a `T` as JSON.
    pub(super) fn json<T: ToSchema>(mut self) -> Self {
        self.content.push(Answered {
            media_type: "application/json",
            shape: Shapes::of::<T>,
        });
        self
    }

    /// Answers in words of another form too.
    pub(super) fn form(mut self, media_type: &'static str) -> Self {
        let shape = |_: &mut Shapes| text();
        self.content.push(Answered { media_type, shape });
        self
    }

    /// Answers with JSON whose form is between those who speak it.
    pub(super) fn content_json(mut self) -> Self {
        let shape = |_: &mut Shapes| json!({"type": "object"});
        self.content.push(Answered {
            media_type: "application/json",
            shape,
        });
        self
    }

    /// Has these statuses too.
    pub(super) fn also(mut self, statuses: &[u16]) -> Self {
        self.statuses.extend(statuses);
        self
    }

    pub(super) fn describe(&self, shapes: &mut Shapes) -> Value {
        let mut described = json!({
            "operationId": self.id(),
            "summary": self.summary,
            "tags": [self.tag],
            "parameters": self.path_parameters().into_iter().chain(self.parameters.clone()).collect::<Vec<_>>(),
            "responses": self.responses(shapes),
        });
        if !self.body.is_empty() {
            let forms = self.body.iter();
            let content: Map<_, _> = forms
                .map(|(media_type, schema)| ((*media_type).to_owned(), json!({"schema": schema})))
                .collect();
            described["requestBody"] = json!({"required": true, "content": content});
        }
        described
    }

    /// `get_services_service_endpoints`.
    fn id(&self) -> String {
        let words = self
            .path
            .split(|letter: char| !letter.is_ascii_alphanumeric());
        let words = words.filter(|word| !word.is_empty());
        words.fold(self.method.to_owned(), |id, word| id + "_" + word)
    }

    fn path_parameters(&self) -> Vec<Value> {
        let parts = self.path.split('/');
        let names = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        names
            .map(|name| {
                let (schema, what) = match name {
                    "service" => (service(), "NAME.NAMESPACE; or NAME alone, in the caller's own namespace"),
                    "port" => (port(), "what the profile calls the port"),
                    "host" => (host(), "a host's name"),
                    _ => (json!({"type": "integer", "minimum": 0}), "a number"),
                };
                json!({"name": name, "in": "path", "required": true, "description": what, "schema": schema})
            })
            .collect()
    }

    fn responses(&self, shapes: &mut Shapes) -> Value {
        let content: Map<_, _> = self
            .content
            .iter()
            .map(|it| {
                let shape = (it.shape)(shapes);
                (it.media_type.to_owned(), json!({"schema": shape}))
            })
            .collect();
        let mut done = json!({"description": "done"});
        if !content.is_empty() {
            done["content"] = content.into();
        }
        if self.method == "get" {
            done["headers"] = headers();
        }
        let mut responses = Map::new();
        responses.insert("200".to_owned(), done);
        let named = if self.path.contains('{') {
            &[404][..]
        } else {
            &[]
        };
        let read = if self.method == "get" {
            &[406][..]
        } else {
            &[]
        };
        // Of every route: wrong parameters, nobody known, somebody without the right, and a time to ask again.
        let common = [400, 401, 403, 429, 503];
        for status in common.iter().chain(named).chain(read).chain(&self.statuses) {
            let response = match *status {
                304 => json!({"description": "the asker has this very answer"}),
                _ => json!({
                    "description": meaning(*status),
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                }),
            };
            responses.insert(status.to_string(), response);
        }
        responses.into()
    }
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

/// A time with its unit.
pub(super) fn span() -> Value {
    json!({"type": "string", "pattern": "^[0-9]{1,6}(ms|s|m|h)$", "examples": ["30s"]})
}

/// Text of this form.
pub(super) fn like(pattern: &str) -> Value {
    json!({"type": "string", "pattern": pattern})
}

pub(super) fn service() -> Value {
    like("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?([.][A-Za-z0-9][A-Za-z0-9._@+-]{0,63})?$")
}

pub(super) fn host() -> Value {
    like("^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$")
}

pub(super) fn port() -> Value {
    like("^(?!.*-(last|count)$)[a-z][a-z0-9-]{0,31}$")
}

/// `NAME:VALUE`, once or more.
pub(super) fn labels() -> Value {
    json!({"type": "array", "maxItems": 16, "items": like("^[a-z0-9._-]+:[^:]*$")})
}

/// What the answer of a read tells beside its body.
fn headers() -> Value {
    let header = |what: &str, kind: &str| json!({"description": what, "schema": {"type": kind}});
    json!({
        "Portreeve-Request": header("the request's number in the log", "string"),
        "Portreeve-Revision": header("the number of the newest change when the answer was made", "integer"),
        "Portreeve-Epoch": header("the life of the number line", "string"),
        "Portreeve-Synced": header("how many milliseconds ago the controller last heard of the hosts concerned", "integer"),
    })
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "a name, a parameter or the body is not readable; which one is named",
        401 => "nobody known asks",
        403 => "visible, but not the asker's to do or read",
        404 => "unknown, or not the asker's to see: the same answer",
        406 => "it is not given in a form that the asker takes",
        408 => "the body did not arrive in time",
        409 => "the state does not allow it; nothing was changed",
        410 => "the list that the cursor goes on with is not kept any more",
        412 => "the service is not as the asker knows it; nothing was changed",
        413 => "the body is too long",
        415 => "the body is of another kind than the route takes",
        422 => "the profile is refused, with every error in it",
        429 => {
            "the asker asks too often, or has as many of these under way as it may have; ask again after Retry-After"
        }
        503 => "not now; ask again after Retry-After",
        504 => "the host concerned does not answer",
        _ => "refused",
    }
}
