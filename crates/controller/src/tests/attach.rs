//! What an agent relays for jobs of other schedulers.

use http::{Method, Request, StatusCode};
use portreeve::supervision::{Final, State};
use portreeve_api::attach::{Ask, Attached, ProfileForm, Relayed};
use portreeve_api::paths;

use crate::site::{FakeAgent, OWNER, STRANGER, Seen, Site, profile, put, request, status};

fn ask(profile: &str, key: &str) -> Ask {
    Ask {
        profile: profile.to_owned(),
        form: ProfileForm::Toml,
        set: Vec::new(),
        name: None,
        index: None,
        key: key.to_owned(),
        job: Some("slurm 4711".to_owned()),
        folder: "/tmp/portreeve-run-1".into(),
    }
}

/// The agent of `n1`, which runs as `agent`, relays for a job of `uid`.
async fn relay(site: &Site, agent: u32, uid: u32, ask: Ask) -> Seen {
    let path = paths::host_part(&"n1".parse().unwrap(), "attach");
    let body = serde_json::to_vec(&Relayed { uid, ask }).unwrap();
    let mut request: Request<_> = put(&path, "application/json", body);
    *request.method_mut() = Method::POST;
    site.as_user(agent, request).await
}

fn own() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[tokio::test]
async fn a_relayed_job_is_its_own_account_and_tells_its_state_with_its_token() {
    let site = Site::start().await;
    let agent = FakeAgent::join(&site).await;
    let seen = relay(&site, own(), OWNER, ask(&profile("web", 3), "a")).await;
    assert_eq!(seen.status, StatusCode::OK, "{}", seen.text());
    let Attached { replica, .. } = seen.json();
    assert_eq!(replica.desired.uid, OWNER);
    assert_eq!(replica.desired.service.to_string(), format!("web.{OWNER}"));
    assert!(replica.desired.attached);
    agent.tell(&replica, &status(1, State::Up, true)).await;
    let of = |uid: u32| {
        let path = paths::service(&replica.desired.service);
        site.as_user(uid, request(Method::GET, &path))
    };
    let shown: serde_json::Value = of(OWNER).await.json();
    assert_eq!(shown["attached"], true);
    assert_eq!(shown["replicas"][0]["job"], "slurm 4711");
    assert_eq!(shown["replicas"][0]["state"], "ready");
    let path = paths::service_part(&replica.desired.service, "endpoints");
    let all = request(Method::GET, &format!("{path}?state=all"));
    let all: serde_json::Value = site.as_user(OWNER, all).await.json();
    assert_eq!(all["endpoints"][0]["job"], "slurm 4711");
    assert_eq!(of(STRANGER).await.status, StatusCode::NOT_FOUND);
    // The host's wanted set names it, so that its agent knows whose the numbers are.
    let set = agent.desired_until(|set| !set.replicas.is_empty()).await;
    assert!(set.replicas[0].desired.attached);
    // Its end frees the ports, and the next job is the next incarnation.
    let end = status(2, State::Final(Final::Stopped), false);
    agent.tell(&replica, &end).await;
    let again = relay(&site, own(), OWNER, ask(&profile("web", 1), "b")).await;
    let again: Attached = again.json();
    assert_eq!(again.replica.desired.incarnation.0, 1);
}

#[tokio::test]
async fn nobody_but_an_agent_relays_and_root_of_a_host_is_no_admin_here() {
    let site = Site::start().await;
    let _agent = FakeAgent::join(&site).await;
    let forged = relay(&site, STRANGER, OWNER, ask(&profile("web", 1), "a")).await;
    assert_eq!(forged.status, StatusCode::FORBIDDEN);
    let mut elsewhere = ask(&profile("web", 1), "a");
    elsewhere.name = Some(format!("web.{OWNER}"));
    for uid in [0, STRANGER] {
        let seen = relay(&site, own(), uid, elsewhere.clone()).await;
        assert_eq!(seen.status, StatusCode::FORBIDDEN, "{}", seen.text());
    }
    let unknown = site
        .as_user(OWNER, request(Method::GET, &paths::services()))
        .await;
    let list: serde_json::Value = unknown.json();
    assert_eq!(list["services"].as_array().map(Vec::len), Some(0));
}

#[tokio::test]
async fn what_is_refused_says_whether_to_ask_again() {
    let site = Site::start().await;
    let _agent = FakeAgent::join(&site).await;
    let fixed = |name: &str| {
        format!("kind = \"service\"\nname = \"{name}\"\ncommand = [\"x\"]\n[ports]\nhttp = 5432\n")
    };
    let mut first = ask(&fixed("web"), "a");
    first.index = Some(2);
    let granted = relay(&site, own(), OWNER, first.clone()).await;
    assert_eq!(granted.status, StatusCode::OK, "{}", granted.text());
    // The same ask again: the answer was lost.
    let again = relay(&site, own(), OWNER, first.clone()).await;
    assert_eq!(again.text(), granted.text());
    first.key = "b".to_owned();
    let taken = relay(&site, own(), OWNER, first).await.problem();
    assert_eq!(
        (taken.code.as_str(), taken.passes()),
        ("replica_taken", false)
    );
    let full = relay(&site, own(), OWNER, ask(&fixed("db"), "c"))
        .await
        .problem();
    assert_eq!((full.code.as_str(), full.passes()), ("no_port", true));
    assert!(full.detail.contains("5432/tcp"), "{}", full.detail);
    let bad = relay(&site, own(), OWNER, ask("kind = \"service\"", "d"))
        .await
        .problem();
    assert_eq!(
        (bad.code.as_str(), bad.passes()),
        ("profile_invalid", false)
    );
    let mut long = ask(&fixed("x"), "e");
    long.job = Some("a\nb".to_owned());
    let long = relay(&site, own(), OWNER, long).await;
    assert_eq!(long.status, StatusCode::BAD_REQUEST);
}
