//! The description of all routes (OpenAPI 3.1), made from the types of the bodies and served at `/openapi.json`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use axum::response::Response;
use bytes::Bytes;
use portreeve_api::Problem;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use super::accept::Form;
use super::answer::written;

mod operation;
mod routes;

/// `GET /openapi.json`, for everybody: it tells nothing of what there is here.
pub(crate) async fn show() -> Response {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| document().to_string().into());
    written(Form::Json, document.clone())
}

/// The whole document.
pub(crate) fn document() -> Value {
    let mut shapes = Shapes::default();
    shapes.of::<Problem>();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for operation in routes::all() {
        let methods = paths.entry(operation.path()).or_default();
        methods.insert(
            operation.method().to_owned(),
            operation.describe(&mut shapes),
        );
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "portreeve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Ports, supervision and endpoints for long-running services. A caller is who the kernel says: the peer of the socket, the owner of a loopback connection; or shows a token. Refusals are problems (RFC 9457); what one may not see is answered like what does not exist.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": shapes.named,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "a job's token reads what its owner sees"},
            },
        },
    })
}

/// The types that the document has named so far.
#[derive(Debug, Default)]
struct Shapes {
    named: BTreeMap<String, Value>,
}

impl Shapes {
    /// A reference to the description of `T`, which is added with all that it refers to.
    fn of<T: ToSchema>(&mut self) -> Value {
        let mut found: Vec<(String, RefOr<Schema>)> = Vec::new();
        T::schemas(&mut found);
        found.push((T::name().into_owned(), T::schema()));
        for (name, schema) in found {
            let described = serde_json::to_value(schema).unwrap_or(Value::Null);
            self.named.entry(name).or_insert(described);
        }
        json!({"$ref": format!("#/components/schemas/{}", T::name())})
    }
}
