//! The description of the routes against the routes themselves.

use std::collections::BTreeSet;

use axum::body::Body;
use http::{Method, Request, StatusCode};
use portreeve::registry::{HostView, ServiceView};
use portreeve_api::body::{Endpoints, ServiceList};
use portreeve_api::paths;
use serde_json::Value;

use crate::site::{FakeAgent, Site, profile, request};

/// A path with something in each of its places.
pub(super) fn filled(path: &str) -> String {
    let part = |part: &str| match part {
        "{service}" => "web".to_owned(),
        "{host}" => "n1".to_owned(),
        "{port}" => "http".to_owned(),
        place if place.starts_with('{') => "0".to_owned(),
        word => word.to_owned(),
    };
    let parts: Vec<_> = path.split('/').map(part).collect();
    parts.join("/")
}

#[tokio::test]
async fn every_route_is_described_and_everything_described_is_routed() {
    let document = crate::rest::openapi::document();
    let described = document["paths"].as_object().unwrap();
    let paths: BTreeSet<_> = described.keys().cloned().collect();
    let routed: BTreeSet<_> = crate::rest::routed().into_iter().collect();
    assert_eq!(paths, routed);
    let site = Site::start().await;
    for (path, methods) in described {
        let methods = methods.as_object().unwrap().keys();
        let mut told: BTreeSet<_> = methods.map(|it| it.to_uppercase()).collect();
        if told.contains("GET") {
            told.insert("HEAD".to_owned());
        }
        // The route itself says what it takes to a method that none takes.
        let asked = Request::builder().method("BREW").uri(filled(path));
        let seen = site.as_user(0, asked.body(Body::empty()).unwrap()).await;
        assert_eq!(seen.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed = seen.headers["allow"].to_str().unwrap().split(',');
        let allowed: BTreeSet<_> = allowed.map(|it| it.trim().to_owned()).collect();
        assert_eq!(allowed, told, "{path}");
    }
}

#[tokio::test]
async fn the_description_is_served_to_everybody_and_refers_to_nothing_that_it_lacks() {
    let site = Site::start().await;
    let seen = site
        .as_user(3_999_000, request(Method::GET, "/openapi.json"))
        .await;
    let document: Value = seen.json();
    assert_eq!(document, crate::rest::openapi::document());
    assert_eq!(document["openapi"], "3.1.0");
    let text = document.to_string();
    for part in text.split("\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(
            document["components"]["schemas"].get(name).is_some(),
            "{name}"
        );
    }
    let mut ids = BTreeSet::new();
    for methods in document["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            assert!(
                ids.insert(operation["operationId"].to_string()),
                "{operation}"
            );
            assert!(operation["summary"].as_str().unwrap().len() > 5);
        }
    }
}

/// A validator of what the document calls `name`. Objects may have no members that it does not tell of.
pub(super) fn shape(document: &Value, name: &str) -> jsonschema::Validator {
    let mut strict = document["components"].clone();
    let shapes = strict["schemas"].as_object_mut().unwrap();
    // What is put together of several objects has the members of all: none of them is closed.
    let parts: BTreeSet<_> = shapes.values().flat_map(parts).collect();
    let whole = shapes
        .iter_mut()
        .filter(|(name, shape)| shape.get("allOf").is_none() && !parts.contains(name.as_str()));
    whole.for_each(|(_, shape)| close(shape));
    let schema = serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": format!("#/components/schemas/{name}"),
        "components": strict,
    });
    jsonschema::validator_for(&schema).unwrap()
}

/// The names of what a shape is put together of.
fn parts(shape: &Value) -> Vec<String> {
    let parts = shape["allOf"].as_array().into_iter().flatten();
    let names = parts.filter_map(|part| part["$ref"].as_str()?.rsplit('/').next());
    names.map(str::to_owned).collect()
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.contains_key("properties") && !members.contains_key("additionalProperties") {
                members.insert("additionalProperties".to_owned(), false.into());
            }
            members.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

#[tokio::test]
async fn a_member_that_is_not_described_is_noticed() {
    let site = Site::start().await;
    let _agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 1)).await;
    let document = crate::rest::openapi::document();
    let cases = [
        (paths::services(), "ServiceList"),
        (paths::service(&"web"), "ServiceView"),
        (paths::service_part(&"web", "endpoints"), "Endpoints"),
        (paths::host(&"n1".parse().unwrap()), "HostView"),
    ];
    for (path, name) in cases {
        let mut body: Value = site.get(&path).await;
        let shape = shape(&document, name);
        let errors: Vec<_> = shape.iter_errors(&body).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{path}: {errors:?}");
        // What the description calls the body is what the code reads as one.
        let read = match name {
            "ServiceList" => serde_json::from_value::<ServiceList>(body.clone()).is_ok(),
            "ServiceView" => serde_json::from_value::<ServiceView>(body.clone()).is_ok(),
            "Endpoints" => serde_json::from_value::<Endpoints>(body.clone()).is_ok(),
            _ => serde_json::from_value::<HostView>(body.clone()).is_ok(),
        };
        assert!(read, "{path}");
        body["more"] = 1.into();
        assert!(!shape.is_valid(&body), "{path}");
        body.as_object_mut().unwrap().remove("more");
        let first = body.as_object().unwrap().keys().next().unwrap().clone();
        body[&first] = serde_json::json!({"no": "such"});
        assert!(!shape.is_valid(&body), "{path} {first}");
    }
}
