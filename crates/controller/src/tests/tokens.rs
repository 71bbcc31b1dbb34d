//! Tokens over REST, from being made to being worth nothing, and what the site's file of rights grants.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use hyper::body::Frame;
use portreeve_api::body::{Joined, ServiceList, TokenList, TokenMade, WhoAmI};
use portreeve_api::paths;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use crate::site::{
    FakeAgent, OWNER, PATIENCE, STRANGER, Seen, Site, config, profile, put, request,
};
use crate::tests::watch::watcher::Watcher;
use crate::{Config, Controller};

/// As the user of this uid.
async fn post(site: &Site, uid: u32, path: &str, body: &Value) -> Seen {
    site.as_user(uid, posted(path, body)).await
}

fn posted(path: &str, body: &Value) -> Request<Body> {
    let mut asked = request(Method::POST, path);
    *asked.body_mut() = Body::from(body.to_string());
    let media_type = "application/json".parse().unwrap();
    asked.headers_mut().insert("content-type", media_type);
    asked
}

/// The same with a token, from an account that is nobody in particular.
async fn with_token(site: &Site, token: &str, mut asked: Request<Body>) -> Seen {
    let value = format!("Bearer {token}").parse().unwrap();
    asked.headers_mut().insert("authorization", value);
    site.as_user(3_999_000, asked).await
}

async fn made(site: &Site, uid: u32, body: &Value) -> TokenMade {
    let seen = post(site, uid, &paths::tokens(), body).await;
    assert_eq!(seen.status, StatusCode::OK, "{}", seen.text());
    assert_eq!(seen.headers["cache-control"], "no-store");
    seen.json()
}

async fn whoami(site: &Site, token: &str) -> WhoAmI {
    let seen = with_token(site, token, request(Method::GET, &paths::whoami())).await;
    assert_eq!(seen.status, StatusCode::OK, "{}", seen.text());
    seen.json()
}

/// A site with this file of rights.
async fn with_rights(text: &str) -> Site {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rights.toml");
    std::fs::write(&path, text).unwrap();
    let config = Config {
        rights: Some(path),
        ..config(&folder)
    };
    let controller = Controller::start(config).await.unwrap();
    Site { folder, controller }
}

fn bind(site: &Site, text: &str) {
    std::fs::write(site.folder.path().join("rights.toml"), text).unwrap();
}

/// A private service of the owner.
async fn owners(site: &Site) -> FakeAgent {
    let agent = FakeAgent::join(site).await;
    let path = paths::service(&"web");
    let seen = site.as_user(OWNER, put(&path, "application/toml", profile("web", 1)));
    assert_eq!(seen.await.status, StatusCode::OK);
    agent
}

fn owned() -> String {
    paths::service(&format!("web.{OWNER}"))
}

async fn status_of(site: &Site, uid: u32, path: &str) -> StatusCode {
    site.as_user(uid, request(Method::GET, path)).await.status
}

#[tokio::test]
async fn a_token_speaks_for_its_account_until_it_is_revoked() {
    let site = Site::start().await;
    let _agent = owners(&site).await;
    let token = made(&site, OWNER, &json!({"kind": "user"})).await;
    let me = whoami(&site, &token.token).await;
    assert_eq!(me.user, OWNER.to_string());
    assert_eq!((me.method.as_str(), me.role.as_str()), ("token", "user"));
    assert_eq!(
        (me.view_scope.as_str(), me.manage_scope.as_str()),
        ("own", "own")
    );
    assert_eq!(
        (me.expires_at, me.token),
        (token.expires_at, Some(token.id.clone()))
    );
    let seen = with_token(&site, &token.token, request(Method::GET, &owned())).await;
    assert_eq!(seen.status, StatusCode::OK);
    let stop = request(Method::POST, &paths::service_part(&"web", "stop"));
    assert_eq!(
        with_token(&site, &token.token, stop).await.status,
        StatusCode::OK
    );
    let revoke = request(Method::DELETE, &paths::token(&token.id));
    assert_eq!(
        with_token(&site, &token.token, revoke).await.status,
        StatusCode::OK
    );
    let gone = with_token(&site, &token.token, request(Method::GET, &owned())).await;
    assert_eq!(gone.status, StatusCode::UNAUTHORIZED);
    assert_eq!(gone.problem().code, "unauthenticated");
    assert!(gone.headers.contains_key("www-authenticate"));
}

#[tokio::test]
async fn unknown_revoked_renewed_and_bent_tokens_are_refused_alike() {
    let site = Site::start().await;
    let revoked = made(&site, OWNER, &json!({"kind": "user"})).await;
    site.as_user(OWNER, request(Method::DELETE, &paths::token(&revoked.id)))
        .await;
    let before = made(&site, OWNER, &json!({"kind": "user"})).await;
    let renewed: TokenMade = site
        .as_user(
            OWNER,
            request(Method::POST, &paths::rotate_token(&before.id)),
        )
        .await
        .json();
    assert_eq!(
        (&renewed.id, renewed.expires_at),
        (&before.id, before.expires_at)
    );
    whoami(&site, &renewed.token).await;
    let bent = before.token.replacen("prt1", "prh1", 1);
    let unknown = format!("prt1.{}.{}", "0".repeat(16), "a".repeat(64));
    let mut answers = Vec::new();
    for token in [
        &revoked.token,
        &before.token,
        &bent,
        &unknown,
        "x",
        "prt1..",
    ] {
        for path in [
            owned(),
            paths::services(),
            paths::whoami(),
            paths::resolve(&"web", None),
        ] {
            let refused = with_token(&site, token, request(Method::GET, &path)).await;
            assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{token} {path}");
            let mut body: Value = refused.json();
            body.as_object_mut().unwrap().remove("instance");
            answers.push(body);
        }
    }
    assert!(
        answers.windows(2).all(|two| two[0] == two[1]),
        "{answers:#?}"
    );
}

/// `controller --check-config` called a site fine whose file of rights kept it from starting.
#[test]
fn a_check_reads_the_file_of_rights_as_a_start_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rights.toml");
    let config = Config {
        rights: Some(path.clone()),
        ..config(&folder)
    };
    for (text, wrong) in [
        (Some("[default]\nrole = \"user\"\n"), None),
        (Some("[default]\nrole = \"usr\"\n"), Some("rights.toml:2:8")),
        (None, Some("rights.toml")),
    ] {
        match text {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let told = Controller::check(&config).err().map(|it| it.to_string());
        match (wrong, &told) {
            (None, None) => {}
            (Some(wrong), Some(told)) if told.contains(wrong) => {}
            _ => panic!("{text:?}: {told:?}"),
        }
    }
}

/// Root asked for a token that sees one group, named no role, and got one that saw and managed everything.
#[tokio::test]
async fn a_scope_that_its_role_has_no_use_for_is_refused() {
    let site = with_rights(&format!("[user.{OWNER}]\nrole = \"admin\"\n")).await;
    for (ask, cure) in [
        (
            json!({"kind": "user", "view": "group:chem"}),
            "name another role too",
        ),
        (
            json!({"kind": "user", "manage": "own"}),
            "name another role too",
        ),
        (
            json!({"kind": "user", "role": "viewer", "manage": "all"}),
            "a viewer manages nothing",
        ),
    ] {
        let refused = post(&site, OWNER, &paths::tokens(), &ask).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{ask}");
        assert!(
            refused.problem().detail.contains(cure),
            "{}",
            refused.text()
        );
    }
    let list: TokenList = site
        .as_user(OWNER, request(Method::GET, &paths::tokens()))
        .await
        .json();
    assert_eq!(list.tokens, []);
    let ask = json!({"kind": "user", "role": "user", "view": "group:chem"});
    let narrow = made(&site, OWNER, &ask).await;
    let me = whoami(&site, &narrow.token).await;
    assert_eq!(
        (me.role.as_str(), me.view_scope.as_str(), me.admin),
        ("user", "group:chem", false)
    );
    made(&site, OWNER, &json!({"kind": "user", "view": "all"})).await;
}

#[tokio::test]
async fn a_token_may_no_more_than_who_made_it_may_now() {
    let site = with_rights(&format!("[user.{STRANGER}]\nview = \"all\"\n")).await;
    let _agent = owners(&site).await;
    let ask = json!({"kind": "user", "role": "viewer", "view": "all", "no_expiry": true});
    let refused = post(&site, OWNER, &paths::tokens(), &ask).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let token = made(&site, STRANGER, &ask).await;
    assert_eq!(token.expires_at, None);
    let list = || {
        with_token(
            &site,
            &token.token,
            request(Method::GET, &paths::services()),
        )
    };
    let told: ServiceList = list().await.json();
    assert_eq!((told.view_scope.as_str(), told.services.len()), ("all", 1));
    // A viewer changes nothing, and is told so whether or not there is such a service.
    for name in ["web", "none"] {
        let stop = request(
            Method::POST,
            &paths::service_part(&format!("{name}.{OWNER}"), "stop"),
        );
        let refused = with_token(&site, &token.token, stop).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(
            refused.problem().detail.contains("is a viewer here"),
            "{}",
            refused.text()
        );
    }
    let logs = format!("{}/replicas/0/logs", owned());
    let refused = with_token(&site, &token.token, request(Method::GET, &logs)).await;
    assert_eq!(
        refused.status,
        StatusCode::FORBIDDEN,
        "to see all opens no logs"
    );
    bind(&site, "");
    site.controller.look_at_files();
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let told: ServiceList = list().await.json();
        if (told.view_scope.as_str(), told.services.len()) == ("own", 0) {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "it never became less");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_list_has_the_asker_s_own_and_no_token_s_text() {
    let site = Site::start().await;
    let mine = made(&site, OWNER, &json!({"kind": "user", "label": "laptop"})).await;
    let other = made(&site, STRANGER, &json!({"kind": "user"})).await;
    let seen = site
        .as_user(OWNER, request(Method::GET, &paths::tokens()))
        .await;
    let list: TokenList = seen.json();
    assert_eq!(list.tokens.len(), 1);
    assert_eq!(
        (&list.tokens[0].id, list.tokens[0].label.as_deref()),
        (&mine.id, Some("laptop"))
    );
    let all = site
        .as_user(0, request(Method::GET, &paths::tokens()))
        .await;
    assert_eq!(all.json::<TokenList>().tokens.len(), 2);
    for token in [&mine, &other] {
        let secret = token.token.rsplit('.').next().unwrap();
        assert!(!all.text().contains(secret));
    }
    // Another's is as one that is not there.
    let unknown = "0".repeat(16);
    let refused = |id: &str| site.as_user(OWNER, request(Method::DELETE, &paths::token(&id)));
    let (hidden, unknown) = (refused(&other.id).await, refused(&unknown).await);
    assert_eq!(hidden.status, StatusCode::NOT_FOUND);
    let (hidden, unknown) = (hidden.problem(), unknown.problem());
    assert_eq!(hidden.code, unknown.code);
    let without_id = |text: &str, id: &str| text.replace(id, "ID");
    assert_eq!(
        without_id(&hidden.detail, &other.id),
        without_id(&unknown.detail, &"0".repeat(16))
    );
}

#[tokio::test]
async fn a_machine_joins_and_its_token_speaks_for_its_host_alone() {
    let site = Site::start().await;
    let join = json!({"kind": "join", "uses": 2, "relay": true});
    let refused = post(&site, OWNER, &paths::tokens(), &join).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let token = made(&site, 0, &join).await;
    let ask = |host: &str, machine: &str| {
        posted(
            &paths::join(),
            &json!({"host": host, "machine_id": machine}),
        )
    };
    let joined = with_token(&site, &token.token, ask("n1", "m1")).await;
    assert_eq!(joined.status, StatusCode::OK, "{}", joined.text());
    let joined: Joined = joined.json();
    let taken = with_token(&site, &token.token, ask("n1", "m2")).await;
    assert_eq!(
        (taken.status, taken.problem().code.as_str()),
        (StatusCode::CONFLICT, "host_joined")
    );
    let me = whoami(&site, &joined.token).await;
    assert_eq!(me.host.unwrap().as_str(), "n1");

    let agent = FakeAgent::named(&site, "n1");
    let report = |host: &str| {
        let body = serde_json::to_vec(&crate::site::facts(&host.parse().unwrap())).unwrap();
        put(
            &format!("/api/v1/hosts/{host}/report"),
            "application/json",
            body,
        )
    };
    let told = with_token(&site, &joined.token, report("n1")).await;
    assert_eq!(told.status, StatusCode::OK, "{}", told.text());
    let other = with_token(&site, &joined.token, report("n2")).await;
    assert_eq!(other.status, StatusCode::FORBIDDEN);
    assert!(
        other.problem().detail.contains("host n1"),
        "{}",
        other.text()
    );
    for path in [paths::services(), paths::tokens(), paths::hosts()] {
        let refused = with_token(&site, &joined.token, request(Method::GET, &path)).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
    }
    // One who only lets machines join neither reads nor speaks for a host.
    for asked in [request(Method::GET, &paths::services()), report("n1")] {
        let refused = with_token(&site, &token.token, asked).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
    drop(agent);

    // It relays people of its machine, and root of it is nobody.
    let relayed = |uid: &str| {
        let mut asked = request(Method::GET, &paths::whoami());
        asked
            .headers_mut()
            .insert("portreeve-on-behalf", uid.parse().unwrap());
        asked
    };
    let owner: WhoAmI = with_token(&site, &joined.token, relayed(&OWNER.to_string()))
        .await
        .json();
    assert_eq!(
        (owner.user, owner.method.as_str()),
        (OWNER.to_string(), "agent")
    );
    let root: WhoAmI = with_token(&site, &joined.token, relayed("0")).await.json();
    assert_eq!(
        (root.admin, root.role.as_str(), root.manage_scope.as_str()),
        (false, "viewer", "none")
    );
    let alone = site.as_user(0, relayed("1000")).await;
    assert_eq!(
        alone.status,
        StatusCode::FORBIDDEN,
        "nobody else says who asks"
    );

    let remove = request(Method::POST, "/api/v1/hosts/n1/down");
    assert_eq!(site.as_user(0, remove).await.status, StatusCode::OK);
    let remove = request(Method::POST, "/api/v1/hosts/n1/remove");
    let removed = site.as_user(0, remove).await;
    assert_eq!(removed.status, StatusCode::OK, "{}", removed.text());
    let gone = with_token(&site, &joined.token, report("n1")).await;
    assert_eq!(
        gone.status,
        StatusCode::UNAUTHORIZED,
        "a removed host has no token"
    );
}

#[tokio::test]
async fn a_token_that_is_over_is_told_with_both_clocks() {
    let site = Site::start().await;
    let token = made(&site, OWNER, &json!({"kind": "user", "ttl": "1ms"})).await;
    // Within the minute that clocks may differ it is still good.
    let me = whoami(&site, &token.token).await;
    assert_eq!(me.expires_at, token.expires_at);
    for bad in ["0s", "yesterday", "40000d"] {
        let ask = json!({"kind": "user", "ttl": bad});
        let refused = post(&site, OWNER, &paths::tokens(), &ask).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{bad}");
    }
    let at = token.expires_at.unwrap();
    let refused = crate::rest::identity::expired(at, at.after(Duration::from_secs(61)));
    assert_eq!(refused.code(), "token_expired");
    let told = format!("{refused:?}");
    assert!(
        told.matches(&portreeve::time::Utc(at).to_string()).count() >= 2,
        "{told}"
    );
}

#[tokio::test]
async fn a_right_gained_shows_and_a_right_lost_hides_within_a_held_question() {
    let site = with_rights("").await;
    let _agent = owners(&site).await;
    assert_eq!(
        status_of(&site, STRANGER, &owned()).await,
        StatusCode::NOT_FOUND
    );
    let held = format!("{}?revision=1&wait=5m&allow_missing=1", owned());
    let held = status_of(&site, STRANGER, &held);
    let gained = async {
        bind(&site, &format!("[user.{STRANGER}]\nview = \"all\"\n"));
    };
    let (status, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(held, gained) })
        .await
        .expect("a right that is gained wakes who waits");
    assert_eq!(status, StatusCode::OK);
    // It may see, and manages nothing by it.
    let stop = request(
        Method::POST,
        &paths::service_part(&format!("web.{OWNER}"), "stop"),
    );
    assert_eq!(
        site.as_user(STRANGER, stop).await.status,
        StatusCode::FORBIDDEN
    );
    let seen = site.as_user(STRANGER, request(Method::GET, &owned())).await;
    let revision = seen.json::<Value>()["revision"].as_u64().unwrap();
    let held = format!("{}?revision={revision}&wait=5m", owned());
    let (status, ()) = tokio::time::timeout(PATIENCE, async {
        tokio::join!(status_of(&site, STRANGER, &held), async { bind(&site, "") })
    })
    .await
    .expect("a right that is lost ends what is held");
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_held_question_ends_with_the_token_it_came_with() {
    let site = Site::start().await;
    let _agent = owners(&site).await;
    let token = made(&site, OWNER, &json!({"kind": "user"})).await;
    let held = format!(
        "{}?allow_missing=1&revision=1&wait=5m",
        paths::service(&"none")
    );
    let held = with_token(&site, &token.token, request(Method::GET, &held));
    let revoked = site.as_user(OWNER, request(Method::DELETE, &paths::token(&token.id)));
    let (held, revoked) = tokio::time::timeout(PATIENCE, async { tokio::join!(held, revoked) })
        .await
        .expect("it is not held on");
    assert_eq!(
        (held.status, revoked.status),
        (StatusCode::UNAUTHORIZED, StatusCode::OK)
    );
}

#[tokio::test]
async fn operators_order_hosts_about_and_take_no_backup() {
    let site = with_rights(&format!("[user.{STRANGER}]\nrole = \"operator\"\n")).await;
    let _agent = owners(&site).await;
    let drain = request(Method::POST, "/api/v1/hosts/n1/drain");
    assert_eq!(
        site.as_user(OWNER, drain).await.status,
        StatusCode::FORBIDDEN
    );
    let drain = request(Method::POST, "/api/v1/hosts/n1/drain");
    assert_eq!(site.as_user(STRANGER, drain).await.status, StatusCode::OK);
    assert_eq!(status_of(&site, STRANGER, &owned()).await, StatusCode::OK);
    for path in [paths::backup(false), paths::backup(true)] {
        assert_eq!(
            status_of(&site, STRANGER, &path).await,
            StatusCode::FORBIDDEN
        );
        assert_eq!(status_of(&site, 0, &path).await, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_backup_has_tokens_only_with_secrets() {
    let site = Site::start().await;
    let token = made(&site, OWNER, &json!({"kind": "user"})).await;
    let has = async |secrets| {
        let seen = site
            .as_user(0, request(Method::GET, &paths::backup(secrets)))
            .await;
        let mut text = String::new();
        let mut packed = flate2::read::GzDecoder::new(&seen.body[..]);
        std::io::Read::read_to_string(&mut packed, &mut text).unwrap();
        assert!(!text.contains(token.token.rsplit('.').next().unwrap()));
        text.contains(&token.id)
    };
    assert!(!has(false).await);
    assert!(has(true).await);
}

#[tokio::test]
async fn a_controller_does_not_start_with_a_file_of_rights_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rights.toml");
    std::fs::write(&path, "[user.alice]\nrole = \"boss\"\n").unwrap();
    let config = Config {
        rights: Some(path),
        ..config(&folder)
    };
    let refused = Controller::start(config).await.unwrap_err().to_string();
    assert!(
        refused.contains("rights.toml:2:8: \"boss\" is no role"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_stream_follows_the_rights_of_its_asker_and_ends_with_its_token() {
    let all = format!("[user.{STRANGER}]\nview = \"all\"\n");
    let site = with_rights(&all).await;
    let _agent = owners(&site).await;
    let token = made(&site, STRANGER, &json!({"kind": "user"})).await;
    let path = format!("/api/v1/watch?service=web.{OWNER}");
    let mut watcher = Watcher::open_with(&site.tcp(), &path, &token.token).await;
    let mut until = async |event: &str| {
        let told = async {
            while let Some(told) = watcher.try_next().await {
                if told.event == event {
                    return Some(told);
                }
            }
            None
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        told.unwrap_or_else(|_| panic!("no {event}"))
    };
    assert!(until("endpoints").await.is_some());
    for _ in 0..2 {
        bind(&site, "");
        assert!(
            until("removed").await.is_some(),
            "a right that is lost hides"
        );
        bind(&site, &all);
        assert!(
            until("endpoints").await.is_some(),
            "a right that is gained shows"
        );
    }
    let begun = std::time::Instant::now();
    let revoke = request(Method::DELETE, &paths::token(&token.id));
    assert_eq!(site.as_user(STRANGER, revoke).await.status, StatusCode::OK);
    let bye = until("bye").await.unwrap();
    assert_eq!(bye.data["reason"], "token");
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
}

/// A body that comes when somebody says so.
struct Held {
    wanted: Arc<Notify>,
    comes: Option<oneshot::Receiver<Bytes>>,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.wanted.notify_one();
        let Some(comes) = &mut self.comes else {
            return Poll::Ready(None);
        };
        let came = Pin::new(comes).poll(context);
        came.map(|bytes| {
            self.comes = None;
            bytes.ok().map(|bytes| Ok(Frame::data(bytes)))
        })
    }
}

#[tokio::test]
async fn a_token_that_is_revoked_while_a_body_comes_slowly_changes_nothing() {
    // Who found a token began requests and kept their bodies back: each was still good for its half minute after the
    // token was revoked.
    let site = with_rights("").await;
    let _agent = owners(&site).await;
    for is_rotated in [false, true] {
        let token = made(&site, OWNER, &json!({"kind": "user"})).await;
        let wanted = Arc::new(Notify::new());
        let (say, comes) = oneshot::channel();
        let path = paths::service_part(&format!("web.{OWNER}"), "scale");
        let mut asked = posted(&path, &Value::Null);
        *asked.body_mut() = Body::new(Held {
            wanted: Arc::clone(&wanted),
            comes: Some(comes),
        });
        let ending = async {
            wanted.notified().await;
            let path = paths::token(&token.id);
            let seen = if is_rotated {
                post(&site, OWNER, &format!("{path}/rotate"), &Value::Null).await
            } else {
                site.as_user(OWNER, request(Method::DELETE, &path)).await
            };
            assert_eq!(seen.status, StatusCode::OK, "{}", seen.text());
            say.send(Bytes::from_static(b"{\"replicas\": 3}")).unwrap();
        };
        let (seen, ()) = tokio::join!(with_token(&site, &token.token, asked), ending);
        assert_eq!(seen.status, StatusCode::UNAUTHORIZED, "{}", seen.text());
        let seen = site.as_user(OWNER, request(Method::GET, &owned())).await;
        assert!(seen.text().contains("\"desired\":1"), "{}", seen.text());
    }
}

#[tokio::test]
async fn a_file_of_rights_that_turns_into_a_pipe_holds_nothing_up() {
    // Opened for reading it waits for who writes it: no later change was seen, and the controller did not end.
    let site = with_rights("").await;
    let path = site.folder.path().join("rights.toml");
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Looked at every 20 ms here; that it was is not to be seen, and need not be for the promise to be kept.
    tokio::time::sleep(Duration::from_millis(100)).await;
    std::fs::remove_file(&path).unwrap();
    bind(&site, &format!("[user.{OWNER}]\nrole = \"viewer\""));
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let seen = site.as_user(OWNER, request(Method::GET, &paths::whoami()));
        if seen.await.json::<WhoAmI>().role == "viewer" {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the file is not read");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ended = tokio::time::timeout(PATIENCE, site.controller.stop());
    ended.await.expect("it ends");
}
