//! A rogue host: somebody has the token of one, and tries what is another's.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use portreeve::identity::HostName;
use portreeve::registry::ReplicaReport;
use portreeve::supervision::State;
use portreeve_api::attach::{Ask, ProfileForm, Relayed};
use portreeve_api::body::{AgentIdentity, Joined, LeaseAsk, TokenMade, WhoAmI};
use portreeve_api::{ON_BEHALF_HEADER, paths};
use serde_json::{Value, json};

use crate::site::{FakeAgent, OWNER, STRANGER, Seen, Site, facts, profile, put, request, status};

fn with_body(method: Method, path: &str, body: &impl serde::Serialize) -> Request<Body> {
    let mut asked = put(path, "application/json", serde_json::to_vec(body).unwrap());
    *asked.method_mut() = method;
    asked
}

/// Under a token, from an account that is nobody in particular.
async fn under(site: &Site, token: &str, mut asked: Request<Body>) -> Seen {
    let value = format!("Bearer {token}").parse().unwrap();
    asked.headers_mut().insert("authorization", value);
    site.as_user(3_999_000, asked).await
}

/// The same for an account of the token's machine.
async fn for_account(site: &Site, token: &str, uid: &str, mut asked: Request<Body>) -> Seen {
    let uid = uid.parse().unwrap();
    asked.headers_mut().insert(ON_BEHALF_HEADER, uid);
    under(site, token, asked).await
}

async fn join_token(site: &Site, uses: u32, relay: bool) -> String {
    let ask = json!({"kind": "join", "uses": uses, "relay": relay});
    let seen = site
        .as_user(0, with_body(Method::POST, &paths::tokens(), &ask))
        .await;
    seen.json::<TokenMade>().token
}

async fn asks_to_join(site: &Site, token: &str, host: &str, machine: &str) -> Seen {
    let ask = json!({"host": host, "machine_id": machine});
    under(site, token, with_body(Method::POST, &paths::join(), &ask)).await
}

async fn joined(site: &Site, host: &str, relay: bool) -> String {
    let token = join_token(site, 1, relay).await;
    let seen = asks_to_join(site, &token, host, &format!("machine of {host}")).await;
    seen.json::<Joined>().token
}

fn of_machine(machine: &str) -> AgentIdentity {
    AgentIdentity {
        machine: machine.to_owned(),
        boot_id: "boot-1".into(),
        folder: "folder".into(),
    }
}

fn ask_of_job() -> Ask {
    Ask {
        profile: profile("job", 1),
        form: ProfileForm::Toml,
        set: Vec::new(),
        name: None,
        index: None,
        key: "a".to_owned(),
        job: None,
        folder: "/tmp/portreeve-run-1".into(),
    }
}

#[tokio::test]
async fn a_host_speaks_for_no_other_whatever_it_asks() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let seen = put(
        &paths::service(&"web"),
        "application/toml",
        profile("web", 1),
    );
    assert_eq!(site.as_user(OWNER, seen).await.status, StatusCode::OK);
    let set = agent.desired_until(|set| set.replicas.len() == 1).await;
    let [replica] = &set.replicas[..] else {
        panic!("one is placed on n1")
    };
    agent.tell(replica, &status(1, State::Up, true)).await;
    let before = site.service(&format!("web.{OWNER}")).await;
    let rogue = joined(&site, "n2", true).await;

    let victim: HostName = "n1".parse().unwrap();
    let lease = LeaseAsk {
        agent: None,
        skew_ms: None,
    };
    let part = |part: &str| paths::host_part(&victim, part);
    let relayed = Relayed {
        uid: STRANGER,
        ask: ask_of_job(),
    };
    let tried = [
        with_body(Method::PUT, &part("report"), &facts(&victim)),
        with_body(Method::POST, &part("lease"), &lease),
        with_body(Method::POST, &part("shutdown"), &lease),
        with_body(Method::POST, &part("attach"), &relayed),
        with_body(Method::PUT, &part("reads/1"), &""),
        request(Method::GET, &part("desired")),
        request(Method::POST, &part("drain")),
        request(Method::POST, &part("down")),
        request(Method::POST, &part("remove")),
        request(Method::GET, &paths::host(&victim)),
        request(Method::GET, &paths::services()),
        request(Method::GET, &paths::service(&format!("web.{OWNER}"))),
        request(Method::GET, &paths::tokens()),
        request(Method::GET, &paths::backup(true)),
    ];
    for asked in tried {
        let what = format!("{} {}", asked.method(), asked.uri());
        let seen = under(&site, &rogue, asked).await;
        assert_eq!(
            seen.status,
            StatusCode::FORBIDDEN,
            "{what}: {}",
            seen.text()
        );
        assert!(!seen.text().contains("web"), "{what}: {}", seen.text());
    }
    // A replica's state is told under its own token, which the host never had.
    let desired = &replica.desired;
    let path = paths::status(&desired.service, desired.index, desired.incarnation);
    let lie = with_body(Method::PUT, &path, &status(2, State::Up, false));
    assert_eq!(
        under(&site, &rogue, lie).await.status,
        StatusCode::UNAUTHORIZED
    );
    // Nor is it believed what it says of a replica in its own report.
    let own: HostName = "n2".parse().unwrap();
    for host in [&own, &victim] {
        let mut lie = facts(&own);
        lie.replicas = vec![ReplicaReport {
            host: host.clone(),
            service: desired.service.clone(),
            index: desired.index,
            incarnation: desired.incarnation,
            service_id: Some(desired.service_id),
            grant: Some(desired.grant.clone()),
            status: status(9, State::Up, false),
        }];
        let told = with_body(Method::PUT, &paths::host_part(&own, "report"), &lie);
        let told = under(&site, &rogue, told).await;
        assert!(!told.status.is_server_error(), "{}", told.text());
    }
    let after = site.service(&format!("web.{OWNER}")).await;
    let standing = |view: &portreeve_api::body::ServiceView| {
        let it = serde_json::to_value(&view.replicas[0]).unwrap();
        ["host", "ready", "incarnation", "ports"].map(|name| it[name].clone())
    };
    assert_eq!(standing(&after), standing(&before));
}

#[tokio::test]
async fn who_finds_a_token_to_join_gets_no_further_than_it_was_made_for() {
    let site = Site::start().await;
    let token = join_token(&site, 1, true).await;
    let first = asks_to_join(&site, &token, "n1", "m1").await;
    assert_eq!(first.status, StatusCode::OK);
    for (host, machine, code) in [("n2", "m2", "token_used_up"), ("n1", "m2", "host_joined")] {
        let refused = asks_to_join(&site, &token, host, machine).await;
        assert_eq!(refused.problem().code, code, "{}", refused.text());
    }
    // Who lost the answer asks again; the token of the answer that was lost is worth nothing then.
    let again = asks_to_join(&site, &token, "n1", "m1").await;
    let (first, again): (Joined, Joined) = (first.json(), again.json());
    let status = async |token: &str| {
        let asked = request(Method::GET, &paths::whoami());
        under(&site, token, asked).await.status
    };
    assert_eq!(status(&first.token).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&again.token).await, StatusCode::OK);
    // It says what it is, for `agent --check`, and takes no part in anything else.
    let who: WhoAmI = under(&site, &token, request(Method::GET, &paths::whoami()))
        .await
        .json();
    assert_eq!(
        (who.role.as_str(), who.admin, who.host),
        ("join", false, None)
    );
    assert!(who.expires_at.is_some());
}

#[tokio::test]
async fn a_token_that_was_copied_to_another_machine_is_refused_there() {
    let site = Site::start().await;
    let token = joined(&site, "n1", true).await;
    let host = "n1".parse().unwrap();
    let own = of_machine("machine of n1");
    let copy = of_machine("another");
    let asked = |agent: &AgentIdentity| {
        let mut told = facts(&host);
        told.agent = Some(agent.clone());
        let lease = LeaseAsk {
            agent: Some(agent.clone()),
            skew_ms: None,
        };
        let desired = paths::with_parameters(
            &paths::host_part(&host, "desired"),
            &[("agent", &agent.to_string())],
        );
        [
            with_body(Method::PUT, &paths::host_part(&host, "report"), &told),
            with_body(Method::POST, &paths::host_part(&host, "lease"), &lease),
            with_body(Method::POST, &paths::host_part(&host, "shutdown"), &lease),
            request(Method::GET, &desired),
        ]
    };
    let [report, ..] = asked(&own);
    let told = under(&site, &token, report).await;
    assert_eq!(told.status, StatusCode::OK, "{}", told.text());
    for asked in asked(&copy) {
        let what = asked.uri().to_string();
        let seen = under(&site, &token, asked).await;
        assert_eq!(seen.status, StatusCode::FORBIDDEN, "{what}");
        assert!(
            seen.text().contains("another machine"),
            "{what}: {}",
            seen.text()
        );
    }
}

#[tokio::test]
async fn a_host_without_relay_speaks_for_nobody_and_one_with_it_for_no_host() {
    let site = Site::start().await;
    let alone = joined(&site, "n1", false).await;
    let relay = joined(&site, "n2", true).await;
    let me = || request(Method::GET, &paths::whoami());
    let attach = |host: &str| {
        let relayed = Relayed {
            uid: OWNER,
            ask: ask_of_job(),
        };
        let path = paths::host_part(&host.parse().unwrap(), "attach");
        with_body(Method::POST, &path, &relayed)
    };
    let owner = OWNER.to_string();
    for refused in [
        for_account(&site, &alone, &owner, me()).await,
        // A job that is attached is somebody's too.
        under(&site, &alone, attach("n1")).await,
    ] {
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(
            refused.text().contains("joined without --relay"),
            "{}",
            refused.text()
        );
    }
    let who: WhoAmI = for_account(&site, &relay, &owner, me()).await.json();
    assert_eq!(who.user, owner);
    assert_eq!(who.host.unwrap().as_str(), "n2");
    // For people there are no hosts' matters, the own host's neither, and whoever they are: not the tokens of others.
    let token = join_token(&site, 1, true).await;
    let host = "n2".parse().unwrap();
    let join = json!({"host": "n3", "machine_id": "m3"});
    for uid in ["0", &owner] {
        for asked in [
            with_body(
                Method::PUT,
                &paths::host_part(&host, "report"),
                &facts(&host),
            ),
            request(Method::GET, &paths::host_part(&host, "desired")),
            attach("n2"),
            with_body(Method::POST, &paths::join(), &join),
            request(Method::GET, &paths::backup(true)),
            with_body(Method::POST, &paths::tokens(), &json!({"kind": "join"})),
        ] {
            let what = format!("{} {} for {uid}", asked.method(), asked.uri());
            let seen = for_account(&site, &relay, uid, asked).await;
            assert_eq!(
                seen.status,
                StatusCode::FORBIDDEN,
                "{what}: {}",
                seen.text()
            );
        }
    }
    let list: Value = for_account(
        &site,
        &relay,
        &owner,
        request(Method::GET, &paths::tokens()),
    )
    .await
    .json();
    assert_eq!(
        list["tokens"],
        json!([]),
        "another's token is nobody else's to know"
    );
    // Only a host's token says who asks, once, and in numbers.
    let made = with_body(Method::POST, &paths::tokens(), &json!({"kind": "user"}));
    let user: TokenMade = site.as_user(OWNER, made).await.json();
    for other in [&user.token, &token] {
        let seen = for_account(&site, other, "0", me()).await;
        assert_eq!(seen.status, StatusCode::FORBIDDEN, "{}", seen.text());
    }
    for bad in ["root", "-1", "4294967296", ""] {
        let seen = for_account(&site, &relay, bad, me()).await;
        assert_eq!(
            seen.status,
            StatusCode::BAD_REQUEST,
            "{bad:?}: {}",
            seen.text()
        );
    }
    let mut twice = me();
    twice
        .headers_mut()
        .append(ON_BEHALF_HEADER, "0".parse().unwrap());
    twice
        .headers_mut()
        .append(ON_BEHALF_HEADER, owner.parse().unwrap());
    assert_eq!(
        under(&site, &relay, twice).await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn what_a_host_had_made_for_people_ends_with_its_own_token() {
    // It can speak for anybody of its people while it may, and had tokens without an end made in all their names.
    let site = Site::start().await;
    let relay = joined(&site, "n1", true).await;
    let owner = OWNER.to_string();
    let ask = json!({"kind": "user", "no_expiry": true});
    let made = with_body(Method::POST, &paths::tokens(), &ask);
    let kept: TokenMade = for_account(&site, &relay, &owner, made).await.json();
    let me = || request(Method::GET, &paths::whoami());
    assert_eq!(
        under(&site, &kept.token, me()).await.json::<WhoAmI>().user,
        owner
    );
    let id = relay.split('.').nth(1).unwrap().to_owned();
    let ended = site.as_user(0, request(Method::DELETE, &paths::token(&id)));
    assert_eq!(ended.await.status, StatusCode::OK);
    let seen = under(&site, &kept.token, me()).await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED, "{}", seen.text());
}
