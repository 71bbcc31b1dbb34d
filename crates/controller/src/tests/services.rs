//! Services through the whole way: submit, list, follow, act; and what is refused.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use portreeve::profile::Profile;
use portreeve::registry::Answer;
use portreeve_api::body::{Checked, ServiceList, ServiceView};
use portreeve_api::{Client, Target, paths};

use crate::site::{OWNER, PATIENCE, STRANGER, Site, problem_of, profile, put, request};

#[tokio::test]
async fn a_service_is_submitted_listed_shown_scaled_stopped_and_deleted() {
    let site = Site::start().await;
    let answer = site.submit(&profile("web", 2)).await;
    assert!(answer.changed);
    assert!(
        !site.submit(&profile("web", 2)).await.changed,
        "the same again is no change"
    );
    let list: ServiceList = site.get(&paths::services()).await;
    assert_eq!(list.view_scope, "all");
    assert_eq!(Some(&list.services[0].service), answer.service.as_ref());
    let shown = site.service("web").await;
    assert_eq!(
        (shown.desired, shown.ready, shown.replicas.len()),
        (2, 0, 2)
    );
    let client = site.client();
    let scale = serde_json::json!({ "replicas": 3 });
    let path = paths::service_part(&"web", "scale");
    client
        .call::<Answer>(Method::POST, &path, &scale, PATIENCE)
        .await
        .unwrap();
    assert_eq!(site.service("web").await.desired, 3);
    let path = paths::service_part(&"web", "stop");
    client
        .call::<Answer>(Method::POST, &path, &(), PATIENCE)
        .await
        .unwrap();
    assert_eq!(site.service("web").await.state, "stopped");
    let path = paths::service(&"web");
    client
        .call::<Answer>(Method::DELETE, &path, &(), PATIENCE)
        .await
        .unwrap();
    let gone = problem_of(client.get::<ServiceView>(&path, PATIENCE).await);
    assert_eq!(
        (gone.status, gone.code.as_str()),
        (404, "service_not_found")
    );
}

#[tokio::test]
async fn a_changed_profile_needs_replace() {
    let site = Site::start().await;
    site.submit(&profile("web", 1)).await;
    let changed = Profile::from_toml(&profile("web", 1).replace("\"9\"", "\"8\""))
        .unwrap()
        .profile;
    let path = paths::service(&"web");
    let client = site.client();
    let refused = client
        .call::<Answer>(Method::PUT, &path, &changed, PATIENCE)
        .await;
    assert_eq!(problem_of(refused).code, "profile_differs");
    let path = format!("{path}?replace=1");
    let replaced = client
        .call::<Answer>(Method::PUT, &path, &changed, PATIENCE)
        .await;
    assert!(replaced.unwrap().changed);
}

#[tokio::test]
async fn a_bad_profile_is_refused_with_every_error_and_nothing_is_stored() {
    let site = Site::start().await;
    let commits = site.controller.commits();
    let bad = "kind = \"service\"\nname = \"web\"\ncommand = [\"x\"]\nreplica = 2\n[ports]\nhttp = 65536\n";
    for path in [paths::service(&"web"), paths::check()] {
        let mut asked = put(&path, "application/toml", bad);
        if path == paths::check() {
            *asked.method_mut() = Method::POST;
        }
        let seen = site.as_user(0, asked).await;
        assert_eq!(seen.status, StatusCode::UNPROCESSABLE_ENTITY);
        let problem = seen.problem();
        assert_eq!(problem.code, "profile_invalid");
        let errors = problem.more["errors"].as_array().unwrap();
        assert_eq!(errors.len(), 2, "{errors:?}");
        for (error, line, field) in [(&errors[0], 4, "replica"), (&errors[1], 6, "ports.http")] {
            assert_eq!(error["line"], line);
            assert_eq!(error["field"], field);
            assert!(error["message"].is_string() && error["allowed"].is_string());
        }
    }
    assert!(
        site.get::<ServiceList>(&paths::services())
            .await
            .services
            .is_empty()
    );
    assert_eq!(site.controller.commits(), commits);
    let mut good = put(&paths::check(), "application/toml", profile("web", 1));
    *good.method_mut() = Method::POST;
    assert_eq!(site.as_user(0, good).await.json::<Checked>().name, "web");
}

#[tokio::test]
async fn hidden_is_answered_like_unknown_byte_for_byte() {
    let site = Site::start().await;
    let mine = put(
        &paths::service(&"web"),
        "application/toml",
        profile("web", 1),
    );
    let answer: Answer = site.as_user(OWNER, mine).await.json();
    assert_eq!(answer.subject(), format!("web.{OWNER}"));
    let hidden = format!("web.{OWNER}");
    let unknown = format!("wob.{OWNER}");
    type PathOf = fn(&dyn std::fmt::Display) -> String;
    let ways: [(Method, PathOf); 8] = [
        (Method::GET, |name| paths::service(name)),
        (Method::DELETE, |name| paths::service(name)),
        (Method::POST, |name| paths::service_part(name, "stop")),
        (Method::GET, |name| paths::service_part(name, "events")),
        (Method::GET, |name| paths::service_part(name, "endpoints")),
        (Method::GET, |name| paths::resolve(name, Some("http"))),
        (Method::GET, |name| paths::replica_part(name, 0, "logs")),
        (Method::POST, |name| paths::replica_part(name, 0, "kill")),
    ];
    for (method, path) in ways {
        let of_hidden = site
            .as_user(STRANGER, request(method.clone(), &path(&hidden)))
            .await;
        let of_unknown = site
            .as_user(STRANGER, request(method.clone(), &path(&unknown)))
            .await;
        assert_eq!(
            of_hidden.status,
            StatusCode::NOT_FOUND,
            "{method} {}",
            path(&hidden)
        );
        // The request's number alone differs, as it does between two equal requests.
        let [hidden, unknown] = [of_hidden, of_unknown].map(|seen| {
            let number = seen.headers["portreeve-request"]
                .to_str()
                .unwrap()
                .to_owned();
            let mut headers = seen.headers.clone();
            headers.remove("portreeve-request");
            let text = seen.text().replace("web.", "wob.");
            assert!(text.contains(&number), "{text}");
            (headers, text.replace(&number, ""))
        });
        assert_eq!(hidden, unknown);
    }
    let list = site
        .as_user(STRANGER, request(Method::GET, &paths::services()))
        .await;
    let list: ServiceList = list.json();
    assert_eq!((list.services.len(), list.view_scope.as_str()), (0, "own"));
    // A submit into somebody else's namespace says the same whether or not something is there.
    for name in [&hidden, &unknown] {
        let label = name.split('.').next().unwrap();
        let asked = put(&paths::service(name), "application/toml", profile(label, 1));
        assert_eq!(
            site.as_user(STRANGER, asked).await.problem().code,
            "not_allowed"
        );
    }
}

#[tokio::test]
async fn who_sees_a_service_does_not_manage_it_nor_read_what_it_writes() {
    let site = Site::start().await;
    let open = format!(
        "visibility = \"cluster\"\nenv = {{ KEY = \"s3cret\" }}\n{}",
        profile("web", 1)
    );
    let mine = put(&paths::service(&"web"), "application/toml", open);
    assert_eq!(site.as_user(OWNER, mine).await.status, StatusCode::OK);
    let web = format!("web.{OWNER}");
    let shown = site
        .as_user(STRANGER, request(Method::GET, &paths::service(&web)))
        .await;
    assert!(!shown.text().contains("s3cret"));
    assert_eq!(shown.json::<ServiceView>().owner, OWNER.to_string());
    let own = site
        .as_user(OWNER, request(Method::GET, &paths::service(&"web")))
        .await;
    assert!(own.text().contains("s3cret"));
    for (method, path) in [
        (Method::POST, paths::service_part(&web, "stop")),
        (Method::DELETE, paths::service(&web)),
        (Method::GET, paths::service_part(&web, "events")),
        (Method::GET, paths::replica_part(&web, 0, "logs")),
    ] {
        let seen = site.as_user(STRANGER, request(method.clone(), &path)).await;
        assert_eq!(seen.status, StatusCode::FORBIDDEN, "{method} {path}");
        seen.problem();
    }
}

#[tokio::test]
async fn a_header_of_a_probe_is_told_to_nobody() {
    let site = Site::start().await;
    let asked = format!(
        "{}\n[liveness]\nhttp = {{ port = \"http\", headers = {{ Authorization = \"Bearer s3cret\" }} }}\n",
        profile("web", 1)
    );
    let explained = Request::post("/api/v1/explain").header("content-type", "application/toml");
    let explained = explained.body(Body::from(asked.clone())).unwrap();
    let explained = site.as_user(OWNER, explained).await;
    assert_eq!(explained.status, StatusCode::OK, "{}", explained.text());
    let mine = put(&paths::service(&"web"), "application/toml", asked);
    let submitted = site.as_user(OWNER, mine).await;
    assert_eq!(submitted.status, StatusCode::OK, "{}", submitted.text());
    let web = format!("web.{OWNER}");
    let mut told = vec![explained, submitted];
    for path in [paths::service(&web), paths::services()] {
        for user in [OWNER, 0] {
            told.push(site.as_user(user, request(Method::GET, &path)).await);
        }
    }
    for told in &told {
        assert!(!told.text().contains("s3cret"), "{}", told.text());
    }
    // Its name is, and that it has a value.
    assert!(told[2].text().contains("Authorization") && told[2].text().contains("***"));
}

#[tokio::test]
async fn a_held_question_is_answered_by_a_change() {
    let site = Site::start().await;
    let list: ServiceList = site.get(&paths::services()).await;
    let (all, one, missing) = (
        format!("{}?revision={}&wait=5m", paths::services(), list.revision),
        format!("{}?allow_missing=1&wait=5m", paths::service(&"web")),
        format!("{}?wait=5m", paths::service(&"web")),
    );
    let client = site.client();
    let unknown = problem_of(client.get::<ServiceView>(&missing, PATIENCE).await);
    assert_eq!(unknown.status, 404, "an unknown name is answered at once");
    let web = profile("web", 1);
    let (list, appeared, _) = tokio::join!(
        client.get::<ServiceList>(&all, PATIENCE),
        client.get::<ServiceView>(&one, PATIENCE),
        site.submit(&web),
    );
    let list = list.unwrap();
    assert_eq!(list.services.len(), 1);
    let web = appeared.unwrap();
    let path = format!(
        "{}?revision={}&wait=5m",
        paths::service(&"web"),
        web.revision
    );
    let scale = serde_json::json!({ "replicas": 2 });
    let scaling = paths::service_part(&"web", "scale");
    let (changed, scaled) = tokio::join!(
        client.get::<ServiceView>(&path, PATIENCE),
        client.call::<Answer>(Method::POST, &scaling, &scale, PATIENCE),
    );
    scaled.unwrap();
    assert!(changed.unwrap().revision > web.revision);
    // A deletion is news too.
    let stop = paths::service_part(&"web", "stop");
    client
        .call::<Answer>(Method::POST, &stop, &(), PATIENCE)
        .await
        .unwrap();
    let list: ServiceList = site.get(&paths::services()).await;
    let path = format!("{}?revision={}&wait=5m", paths::services(), list.revision);
    let service = paths::service(&"web");
    let (left, deleted) = tokio::join!(
        client.get::<ServiceList>(&path, PATIENCE),
        client.call::<Answer>(Method::DELETE, &service, &(), PATIENCE),
    );
    deleted.unwrap();
    assert!(left.unwrap().services.is_empty());
}

#[tokio::test]
async fn text_is_for_those_who_ask_for_it() {
    let site = Site::start().await;
    site.submit(&profile("web", 2)).await;
    let user = site.service("web").await.service.namespace().to_string();
    let mut asked = request(Method::GET, &paths::services());
    asked
        .headers_mut()
        .insert("accept", "text/plain".parse().unwrap());
    let seen = site.as_user(0, asked).await;
    assert_eq!(seen.text(), format!("web.{user} running 0/2\n"));
    let client = Client::new(Target::Tcp(site.tcp()));
    let list: ServiceList = client.get(&paths::services(), PATIENCE).await.unwrap();
    assert_eq!(list.services.len(), 1);
}

#[tokio::test]
async fn wrong_requests_are_problems_too() {
    let site = Site::start().await;
    let long = format!("name = \"{}\"", "x".repeat(2 << 20));
    let web = paths::service(&"web");
    let with = |name: &'static str, value: &str, mut asked: Request<Body>| {
        asked.headers_mut().insert(name, value.parse().unwrap());
        asked
    };
    let cases = [
        (
            request(Method::GET, "/api/v1/nothing"),
            404,
            "route_not_found",
        ),
        (request(Method::GET, "/nothing"), 404, "route_not_found"),
        (
            request(Method::POST, "/api/v1/whoami"),
            405,
            "method_not_allowed",
        ),
        (request(Method::POST, "/healthz"), 405, "method_not_allowed"),
        (
            request(Method::GET, "/api/v1/services?revision=x"),
            400,
            "bad_parameter",
        ),
        (
            request(Method::GET, "/api/v1/services?prefixx=a"),
            400,
            "bad_parameter",
        ),
        (
            request(Method::GET, "/api/v1/services/A%20B"),
            400,
            "bad_name",
        ),
        (
            request(Method::GET, "/api/v1/services/%ff"),
            400,
            "bad_name",
        ),
        (request(Method::GET, "/api/v1/hosts/-"), 400, "bad_name"),
        (
            request(Method::GET, "/api/v1/hosts/n9"),
            404,
            "host_not_found",
        ),
        (
            put(&web, "text/yaml", "a: b"),
            415,
            "unsupported_media_type",
        ),
        (put(&web, "application/toml", long), 413, "body_too_large"),
        (
            put(&web, "application/toml", vec![0xff]),
            422,
            "profile_invalid",
        ),
        (
            put(&web, "application/toml", profile("wob", 1)),
            400,
            "names_differ",
        ),
        (put(&web, "application/json", "[}"), 422, "profile_invalid"),
        (
            with(
                "authorization",
                "pr1.x",
                request(Method::GET, "/api/v1/whoami"),
            ),
            401,
            "unauthenticated",
        ),
        (
            with(
                "authorization",
                "Bearer pr1.x",
                request(Method::GET, "/api/v1/whoami"),
            ),
            401,
            "unauthenticated",
        ),
    ];
    for (asked, status, code) in cases {
        let what = format!("{} {}", asked.method(), asked.uri());
        let seen = site.as_user(0, asked).await;
        assert_eq!(
            (seen.status.as_u16(), seen.problem().code.as_str()),
            (status, code),
            "{what}"
        );
        let number = seen.headers["portreeve-request"].to_str().unwrap();
        assert_eq!(seen.problem().instance.as_deref(), Some(number), "{what}");
        assert_eq!(seen.headers.contains_key("allow"), status == 405, "{what}");
        assert_eq!(
            seen.headers.contains_key("www-authenticate"),
            status == 401,
            "{what}"
        );
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(
            site.as_user(0, request(Method::GET, path)).await.status,
            StatusCode::OK
        );
    }
}
