//! What is held open ends or becomes less with the right to it, and wakes when there is more: within a second.

use std::time::{Duration, Instant};

use http::Method;
use portreeve_api::paths;
use serde_json::json;

use super::ask::{Answer, Ask};
use super::who::Who;
use super::world::{HIDDEN, OWNER, PROFILE, RIGHTS, World, made};
use crate::site::{PATIENCE, put, request};

const SECOND: Duration = Duration::from_secs(1);
/// Nothing else happens for so long.
const REST: Duration = Duration::from_millis(150);
const STREAMS: [&str; 2] = ["text/event-stream", "application/x-ndjson"];

/// What takes a right from somebody, or gives it.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Of the token's.
    Revoked,
    /// In the file of rights.
    Bindings,
    /// Of the account's, seen with the file of rights.
    Groups,
    /// Of the service's.
    Visibility,
}

impl Change {
    const ALL: [Self; 4] = [
        Self::Revoked,
        Self::Bindings,
        Self::Groups,
        Self::Visibility,
    ];
    /// Those that can be taken back.
    const BOTH_WAYS: [Self; 3] = [Self::Bindings, Self::Groups, Self::Visibility];

    /// Somebody who sees the hidden service by what this takes away, and the token's id if it is one.
    async fn seer(self, world: &World) -> (Who, String) {
        match self {
            Self::Revoked => {
                let token = made(&world.site, OWNER, &json!({"kind": "user"})).await;
                (Who::bearer("owner-token", &token.token), token.id)
            }
            Self::Bindings => (world.who("viewer-all").clone(), String::new()),
            Self::Groups => (world.who("shares").clone(), String::new()),
            Self::Visibility => (world.who("friend").clone(), String::new()),
        }
    }

    async fn take(self, world: &World, id: &str) {
        let accounts = &world.site.controller.app.accounts;
        match self {
            Self::Revoked => {
                let revoke = request(Method::DELETE, &paths::token(&id));
                assert!(world.site.as_user(OWNER, revoke).await.status.is_success());
            }
            Self::Bindings => world.bind(&RIGHTS.replace("view = \"all\"", "view = \"own\"")),
            Self::Groups => {
                accounts.invent("shares", 3_999_103, &["users"]);
                world.bind(&format!("{RIGHTS}\n# again\n"));
            }
            Self::Visibility => submit(world, &PROFILE.replace("\"user:friend\", ", "")).await,
        }
    }

    async fn give(self, world: &World) {
        let accounts = &world.site.controller.app.accounts;
        match self {
            Self::Revoked => unreachable!("no token comes back"),
            Self::Bindings => world.bind(RIGHTS),
            Self::Groups => {
                accounts.invent("shares", 3_999_103, &["chem", "users"]);
                world.bind(RIGHTS);
            }
            Self::Visibility => submit(world, PROFILE).await,
        }
    }
}

async fn submit(world: &World, profile: &str) {
    let path = format!("{}?replace=true", paths::service(&HIDDEN));
    let asked = put(&path, "application/toml", profile.to_owned());
    let seen = world.site.as_user(OWNER, asked).await;
    assert!(seen.status.is_success(), "{}", seen.text());
}

#[tokio::test]
async fn a_stream_is_told_within_a_second_what_its_asker_may_see_no_more() {
    let world = World::start().await;
    for change in Change::ALL {
        for accept in STREAMS {
            for uri in [
                format!("/api/v1/watch?service={HIDDEN}"),
                "/api/v1/watch?prefix=zqx".to_owned(),
                format!("/api/v1/services/{HIDDEN}/endpoints"),
            ] {
                let case = format!("{change:?} {accept} {uri}");
                let (who, id) = change.seer(&world).await;
                let mut stream = world.stream(&who, &Ask::get(uri, accept)).await;
                let told = stream.until("endpoints", PATIENCE).await;
                assert!(told.is_some(), "{case}: it sees nothing before");
                let begun = Instant::now();
                change.take(&world, &id).await;
                let word = match change {
                    Change::Revoked => "bye",
                    _ => "removed",
                };
                let told = stream.until(word, PATIENCE).await;
                assert!(told.is_some(), "{case}: no {word}");
                assert!(begun.elapsed() < SECOND, "{case}: {:?}", begun.elapsed());
                if !matches!(change, Change::Revoked) {
                    let begun = Instant::now();
                    change.give(&world).await;
                    let told = stream.until("endpoints", PATIENCE).await;
                    assert!(told.is_some(), "{case}: it is not told again");
                    assert!(begun.elapsed() < SECOND, "{case}: {:?}", begun.elapsed());
                }
            }
        }
    }
}

fn held(uri: &str, seen: &Answer) -> Ask {
    let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
    Ask::get(
        format!("{uri}?revision={}&wait=5m", body["revision"]),
        "application/json",
    )
}

#[tokio::test]
async fn a_held_question_is_answered_within_a_second_of_a_lost_right() {
    let world = World::start().await;
    for change in Change::ALL {
        for uri in [
            paths::service(&HIDDEN),
            paths::service_part(&HIDDEN, "endpoints"),
            paths::services(),
        ] {
            let case = format!("{change:?} {uri}");
            let (who, id) = change.seer(&world).await;
            let held = at_rest(&world, &who, &uri, &case).await;
            let mut held = Box::pin(world.ask(&who, &held));
            let early = tokio::time::timeout(REST, &mut held).await;
            assert!(early.is_err(), "{case}: {}", early.unwrap().brief());
            let begun = Instant::now();
            let (answer, ()) = tokio::join!(held, change.take(&world, &id));
            assert!(begun.elapsed() < SECOND, "{case}: {:?}", begun.elapsed());
            let expected = match change {
                Change::Revoked => 401,
                _ if uri == paths::services() => 200,
                _ => 404,
            };
            assert_eq!(answer.status, expected, "{case}: {}", answer.brief());
            if expected == 200 {
                assert!(!answer.text().contains(HIDDEN), "{case}");
            }
            if !matches!(change, Change::Revoked) {
                change.give(&world).await;
                await_seen(&world, &who).await;
            }
        }
    }
}

/// A question that is held: what went on from the change before it is told first.
async fn at_rest(world: &World, who: &Who, uri: &str, case: &str) -> Ask {
    loop {
        let seen = world.ask(who, &Ask::get(uri, "application/json")).await;
        assert!(seen.text().contains(HIDDEN), "{case}: {}", seen.brief());
        let held = held(uri, &seen);
        if tokio::time::timeout(REST, world.ask(who, &held))
            .await
            .is_err()
        {
            return held;
        }
    }
}

/// Until the right that was given back is seen to.
async fn await_seen(world: &World, who: &Who) {
    let begun = Instant::now();
    let ask = Ask::get(paths::service(&HIDDEN), "*/*");
    while world.ask(who, &ask).await.status != 200 {
        assert!(begun.elapsed() < PATIENCE, "{}", who.name);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn hidden_and_unknown_are_held_alike_and_a_right_that_is_gained_wakes() {
    let world = World::start().await;
    for change in Change::BOTH_WAYS {
        for part in ["", "/endpoints"] {
            let (who, id) = change.seer(&world).await;
            change.take(&world, &id).await;
            let hidden = Ask::get(paths::service(&HIDDEN), "*/*");
            let begun = Instant::now();
            while world.ask(&who, &hidden).await.status != 404 {
                assert!(begun.elapsed() < PATIENCE);
                tokio::task::yield_now().await;
            }
            let ask = |name: &str| {
                let path = paths::service(&name);
                Ask::get(
                    format!("{path}{part}?allow_missing=1&revision=1&wait=5m"),
                    "application/json",
                )
            };
            let (hidden, unknown) = (ask(HIDDEN), ask("zqxwob.zqxalice"));
            let mut hidden = Box::pin(world.ask(&who, &hidden));
            let mut unknown = Box::pin(world.ask(&who, &unknown));
            let both = async {
                tokio::select! { it = &mut hidden => it, it = &mut unknown => it }
            };
            let early = tokio::time::timeout(Duration::from_millis(200), both).await;
            assert!(early.is_err(), "{change:?}: {}", early.unwrap().brief());
            let begun = Instant::now();
            let given = async { change.give(&world).await };
            let (answer, ()) = tokio::join!(hidden, given);
            assert_eq!(answer.status, 200, "{change:?} {}", answer.brief());
            assert!(begun.elapsed() < SECOND, "{change:?} {:?}", begun.elapsed());
            // Whose rights are other ones is answered anew whatever it asked.
            if matches!(change, Change::Visibility) {
                let still = tokio::time::timeout(REST, unknown).await;
                assert!(still.is_err(), "{change:?}: the unknown one woke too");
            } else {
                assert_eq!(unknown.await.status, 404, "{change:?}");
            }
        }
    }
}
