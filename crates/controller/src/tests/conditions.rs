//! `If-Match` and `If-None-Match` on what changes a service.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use portreeve::registry::Answer;
use portreeve_api::paths;

use crate::site::{FakeAgent, Seen, Site, profile, put};

async fn asked(site: &Site, method: Method, path: &str, header: (&str, &str), body: &str) -> Seen {
    let request = Request::builder().method(method).uri(path);
    let request = request
        .header(header.0, header.1)
        .header("content-type", "application/json");
    let body = Body::from(body.to_owned());
    site.as_user(0, request.body(body).unwrap()).await
}

fn tag(seen: &Seen) -> String {
    seen.headers["etag"].to_str().unwrap().to_owned()
}

async fn shown(site: &Site) -> String {
    let path = paths::service(&"web");
    tag(&site
        .as_user(0, crate::site::request(Method::GET, &path))
        .await)
}

#[tokio::test]
async fn a_change_of_what_one_read_is_refused_once_it_is_something_else() {
    let site = Site::start().await;
    let _agent = FakeAgent::join(&site).await;
    site.submit(&profile("web", 1)).await;
    let read = shown(&site).await;
    let scale = paths::service_part(&"web", "scale");
    let to = |replicas: u32| format!("{{\"replicas\":{replicas}}}");
    let seen = asked(&site, Method::POST, &scale, ("if-match", &read), &to(2)).await;
    assert_eq!(seen.status, StatusCode::OK, "{}", seen.text());
    let after = tag(&seen);
    assert_eq!(after, shown(&site).await, "the answer has the new tag");
    for verb in ["scale", "stop", "restart", "start"] {
        let path = paths::service_part(&"web", verb);
        let seen = asked(&site, Method::POST, &path, ("if-match", &read), &to(3)).await;
        assert_eq!(seen.status, StatusCode::PRECONDITION_FAILED, "{verb}");
        let problem = seen.problem();
        assert_eq!(problem.code, "changed");
        assert_eq!(problem.more["tag"], after.as_str());
    }
    let path = paths::service(&"web");
    let delete = asked(&site, Method::DELETE, &path, ("if-match", &read), "").await;
    assert_eq!(delete.status, StatusCode::PRECONDITION_FAILED);
    // A packed answer's tag is a weak one.
    let weak = format!("\"s-x\", W/{after}");
    let seen = asked(&site, Method::POST, &scale, ("if-match", &weak), &to(3)).await;
    assert_eq!(seen.status, StatusCode::OK);
}

#[tokio::test]
async fn a_submit_may_ask_to_create_only_or_to_replace_this_very_version() {
    let site = Site::start().await;
    let _agent = FakeAgent::join(&site).await;
    let submit = |header: (&'static str, String)| {
        let mut request = put(
            &paths::service(&"web"),
            "application/toml",
            profile("web", 1),
        );
        let value = header.1.parse().unwrap();
        request.headers_mut().insert(header.0, value);
        site.as_user(0, request)
    };
    let missing = submit(("if-match", "*".into())).await;
    assert_eq!(missing.status, StatusCode::PRECONDITION_FAILED);
    assert!(missing.problem().more["tag"].is_null());
    let created = submit(("if-none-match", "*".into())).await;
    assert_eq!(created.status, StatusCode::OK, "{}", created.text());
    let again = submit(("if-none-match", "*".into())).await;
    assert_eq!(again.status, StatusCode::PRECONDITION_FAILED);
    let same = submit(("if-match", tag(&created))).await;
    assert_eq!(same.status, StatusCode::OK);
    assert!(!same.json::<Answer>().changed, "unchanged is no change");
    assert_eq!(tag(&same), tag(&created));
    for (header, value) in [("if-none-match", "\"s-1\""), ("if-match", " , ")] {
        let refused = submit((header, value.to_owned())).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{header}: {value}");
        assert_eq!(refused.problem().code, "bad_header");
    }
}
