//! Clients while the controller is away, comes back, and comes back with older data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::wire::{Place, Wire};
use super::{Scripted, flappy, get, is_long, place, ports, wait_listed};
use crate::daemons::{agent, controller};
use crate::world::{World, eventually, kill, pause};

/// What a poller at a steady pace saw.
#[derive(Debug, Default)]
struct Polled {
    answers: usize,
    failures: usize,
    /// Successes that did not hold everybody.
    wrong: Vec<String>,
}

/// Asks every 10 ms on a connection of its own, as scrapers do, until it is told to end.
fn poll(place: &Place, path: &str, lines: usize, ended: &AtomicBool) -> Polled {
    let mut polled = Polled::default();
    while !ended.load(Ordering::Relaxed) {
        let asked =
            Wire::open(place, Duration::from_secs(10)).and_then(|mut wire| wire.get(path, &[]));
        match asked {
            Ok(answer) if answer.head.status == 200 => {
                polled.answers += 1;
                let held = match answer.json() {
                    Value::Null => answer.text().lines().count(),
                    json => json["endpoints"].as_array().map_or(0, Vec::len),
                };
                if held != lines {
                    polled.wrong.push(format!("{answer:?}"));
                }
            }
            // 503 is an error that says so; what must not come is an empty success, or that the service is unknown.
            Ok(answer) if answer.head.status == 503 => polled.failures += 1,
            Ok(answer) => polled.wrong.push(format!("{answer:?}")),
            Err(_) => polled.failures += 1,
        }
        doze();
    }
    polled
}

#[expect(
    clippy::disallowed_methods,
    reason = "the pace of a poller is what is tried"
)]
fn doze() {
    std::thread::sleep(Duration::from_millis(10));
}

#[test]
fn pollers_through_many_restarts_see_everybody_or_an_error_and_never_nobody() {
    // P25, point 5: the listener opens once the state is loaded.
    let Some(world) = World::new() else { return };
    let mut running = controller(&world);
    let _agent = agent(&world);
    world.ok(&[
        "submit",
        &world.profile("flap.toml", &flappy(&world, "flap", 3)),
    ]);
    world.ok(&["wait", "flap", "--timeout", "60s"]);
    let before = get(&world, "services/flap/endpoints").json();
    // News is written a second later at most; a controller that is killed before it knows less, and says so.
    let quiet = "kind = \"service\"\nname = \"quiet\"\ncommand = \"exec sleep 1000000\"\n";
    world.ok(&["submit", &world.profile("quiet.toml", quiet)]);
    let ended = Arc::new(AtomicBool::new(false));
    let paths = ["/api/v1/resolve/flap", "/api/v1/services/flap/endpoints"];
    let pollers = paths.map(|path| {
        let (place, ended) = (place(&world), Arc::clone(&ended));
        std::thread::spawn(move || poll(&place, path, 3, &ended))
    });
    let rounds = if is_long() { 50 } else { 10 };
    for round in 0..rounds {
        // Killed and asked to end, in turn.
        kill(running.pid(), if round % 2 == 0 { "KILL" } else { "TERM" });
        let _ = running.code();
        let away = world.run(&["endpoints", "flap"]);
        assert_eq!((away.code, away.stdout.as_str()), (Some(6), ""), "{away:?}");
        running = controller(&world);
        let back = world.run(&["endpoints", "flap"]);
        assert_eq!(back.stdout.lines().count(), 3, "{back:?}");
        assert_eq!(world.run(&["endpoints", "nothing"]).code, Some(4));
    }
    ended.store(true, Ordering::Relaxed);
    for poller in pollers {
        let polled = poller.join().unwrap();
        assert!(polled.wrong.is_empty(), "{polled:#?}");
        assert!(
            polled.answers > rounds && polled.failures > 0,
            "{polled:#?}"
        );
    }
    let after = get(&world, "services/flap/endpoints").json();
    assert_eq!(ports(&after), ports(&before));
}

#[test]
fn a_client_that_waits_through_restarts_sees_revisions_rise_and_misses_nothing() {
    // Entry 12
    let Some(mut site) = Scripted::new("web", 2) else {
        return;
    };
    site.tell(0, true);
    wait_listed(&site.world, "web", 1);
    // Written with the next truth: news of the last second is what a killed controller may forget.
    site.submit("other", 1);
    let ended = Arc::new(AtomicBool::new(false));
    let newest = Arc::new(AtomicU64::new(0));
    let follower = {
        let (place, ended) = (place(&site.world), Arc::clone(&ended));
        let newest = Arc::clone(&newest);
        std::thread::spawn(move || follow(&place, &newest, &ended))
    };
    let rounds = if is_long() { 50 } else { 4 };
    for _ in 0..rounds {
        pause();
        drop(site.controller.take());
        site.restart_controller();
        site.flip(1);
    }
    // Never without replica 0, so an empty set would be a lie.
    site.tell(1, true);
    wait_listed(&site.world, "web", 2);
    let last = get(&site.world, "services/web/endpoints").json();
    assert_eq!(last["ready"], 2, "{last:#}");
    // It gets to know the last state too, without another change that wakes it.
    let knows = || newest.load(Ordering::Relaxed) == last["revision"].as_u64().unwrap();
    assert!(eventually(knows), "{newest:?} {last:#}");
    ended.store(true, Ordering::Relaxed);
    // Wakes it, whatever it waits for.
    site.tell(1, false);
    let seen = follower.join().unwrap();
    assert!(seen.len() > rounds, "{seen:?}");
    for pair in seen.windows(2) {
        assert!(pair[0].0 < pair[1].0, "not strictly larger: {seen:?}");
    }
    assert!(seen.iter().all(|(_, ready)| *ready >= 1), "{seen:?}");
    let end = (last["revision"].as_u64().unwrap(), 2);
    assert!(seen.contains(&end), "{seen:?} {last:#}");
}

/// Long polls one after the other, with the revision of the last, the `newest`; gives every revision with how many were
/// ready.
fn follow(place: &Place, newest: &AtomicU64, ended: &AtomicBool) -> Vec<(u64, u64)> {
    let mut seen: Vec<(u64, u64)> = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let since = seen.last().map_or(String::new(), |(last, _)| {
            format!("?revision={last}&wait=30s")
        });
        let path = format!("/api/v1/services/web/endpoints{since}");
        let asked =
            Wire::open(place, Duration::from_secs(60)).and_then(|mut wire| wire.get(&path, &[]));
        let Ok(answer) = asked else {
            doze();
            continue;
        };
        let json = answer.json();
        let number = |name: &str| json[name].as_u64();
        if let (200, Some(revision), Some(ready)) =
            (answer.head.status, number("revision"), number("ready"))
            && seen.last().is_none_or(|(last, _)| *last != revision)
        {
            seen.push((revision, ready));
            newest.store(revision, Ordering::Relaxed);
        }
    }
    seen
}

#[test]
fn what_was_stored_is_shown_as_stale_until_its_host_has_spoken() {
    // Point 5: empty, stale and unknown are told apart.
    let Some(mut site) = Scripted::new("web", 2) else {
        return;
    };
    site.tell(0, true);
    site.tell(1, true);
    wait_listed(&site.world, "web", 2);
    let before = get(&site.world, "services/web/endpoints");
    assert_eq!(before.json()["stale"], false);
    // Written with the next truth: what follows kills the controller at once.
    site.submit("other", 1);
    drop(site.controller.take());
    site.controller = Some(controller(&site.world));
    let stale = get(&site.world, "services/web/endpoints");
    assert_eq!(stale.json()["stale"], true, "{stale:?}");
    assert_eq!(ports(&stale.json()), ports(&before.json()));
    let tag = stale.head.header("etag").unwrap();
    assert!(tag.ends_with("-stale\""), "{tag}");
    assert_eq!(
        get(&site.world, "services/nothing/endpoints").head.status,
        404
    );
    let told = site.world.run(&["endpoints", "web"]);
    assert_eq!(
        (told.code, told.stdout.lines().count()),
        (Some(0), 2),
        "{told:?}"
    );
    site.host.report().unwrap();
    let fresh = || get(&site.world, "services/web/endpoints").json()["stale"] == false;
    assert!(eventually(fresh));
    let fresh = get(&site.world, "services/web/endpoints").json();
    assert_eq!(
        fresh["revision"],
        stale.json()["revision"],
        "its end moves no revision"
    );
}
