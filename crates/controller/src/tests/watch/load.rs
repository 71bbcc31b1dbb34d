//! Many watchers, slow ones, and connections that break.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portreeve_api::body::Endpoints;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::Served;
use super::watcher::Watcher;
use crate::site::PATIENCE;

/// The full figures, where asked for.
fn long() -> bool {
    std::env::var_os("PORTREEVE_LONG").is_some()
}

/// Which replicas are ready, at a revision.
type Seen = BTreeMap<u64, Vec<u64>>;

fn replicas(data: &serde_json::Value) -> Vec<u64> {
    let endpoints = data["endpoints"].as_array().unwrap();
    let replicas = endpoints.iter().map(|it| it["replica"].as_u64().unwrap());
    replicas.collect()
}

/// Notes what one client saw, in its order; all clients must have seen the same at one revision.
fn note(seen: &Mutex<Seen>, newest: &mut u64, revision: u64, ready: Vec<u64>) {
    assert!(revision > *newest, "{revision} after {newest}");
    *newest = revision;
    let mut seen = seen.lock();
    let of_others = seen.entry(revision).or_insert_with(|| ready.clone());
    assert_eq!(*of_others, ready, "at {revision}");
}

/// Whether what one client saw are some of the true states, in their order, with the last one at the end.
fn ends_as(truth: &[Vec<u64>], saw: &[Vec<u64>]) -> bool {
    let mut left = truth.iter();
    saw.iter()
        .all(|state| left.any(|true_state| true_state == state))
        && saw.last() == truth.last()
}

#[test]
fn a_state_that_never_was_or_came_before_is_noticed() {
    let truth = [vec![], vec![0], vec![0, 1], vec![1]];
    for (saw, is_true) in [
        (&[vec![0], vec![1]][..], true),
        (&[vec![1], vec![0]], false),
        (&[vec![0], vec![2], vec![1]], false),
        (&[vec![0]], false),
        (&[], false),
    ] {
        assert_eq!(ends_as(&truth, saw), is_true, "{saw:?}");
    }
}

/// The replica that becomes ready with the last flip only.
const LAST: u64 = 3;

// E15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_flip_is_lost_on_fifty_polls_and_fifty_streams() {
    let flips = if long() { 3_000 } else { 150 };
    let mut served = Served::start(4).await;
    let path = served.path();
    let seen = Arc::new(Mutex::new(Seen::new()));
    let mut clients = Vec::new();
    for number in 0..50 {
        let (path, seen) = (path.clone(), Arc::clone(&seen));
        // Of the streams every second one is asked for lines.
        let accept = ["text/event-stream", "application/x-ndjson"][number % 2];
        let mut watcher = Watcher::open(&served.site, &path, accept, None).await;
        let client = served.site.client();
        let polled = (path.clone(), Arc::clone(&seen));
        clients.push(tokio::spawn(async move {
            let (mut newest, mut states) = (0, Vec::new());
            loop {
                let told = watcher.next().await;
                if told.event == "endpoints" {
                    let ready = replicas(&told.data);
                    let ends = ready.contains(&LAST);
                    note(&seen, &mut newest, told.revision(), ready.clone());
                    states.push(ready);
                    if ends {
                        return (newest, states);
                    }
                }
            }
        }));
        clients.push(tokio::spawn(async move {
            let (path, seen) = polled;
            let (mut newest, mut states) = (0, Vec::new());
            loop {
                let path = format!("{path}?revision={newest}&wait=5m");
                let told: Endpoints = client.get(&path, 2 * PATIENCE).await.unwrap();
                let ready: Vec<u64> = told.endpoints.iter().map(|it| it.replica.into()).collect();
                let ends = ready.contains(&LAST);
                note(&seen, &mut newest, told.revision, ready.clone());
                states.push(ready);
                if ends {
                    return (newest, states);
                }
            }
        }));
    }
    let mut ready = [false; 4];
    let mut truth = vec![Vec::new()];
    for flip in 0..=flips {
        let replica = match (flip * 7 + flip / 5) % 3 {
            _ if flip == flips => 3,
            other => other,
        };
        ready[replica] = !ready[replica];
        served.flip(replica, ready[replica]).await;
        truth.push(
            (0..)
                .zip(ready)
                .filter_map(|(at, ready)| ready.then_some(at))
                .collect(),
        );
    }
    let mut ends = Vec::new();
    for client in clients {
        let end = tokio::time::timeout(2 * PATIENCE, client).await;
        ends.push(end.expect("a client sleeps for ever").unwrap());
    }
    let last: Endpoints = served.site.get(&path).await;
    for (end, states) in ends {
        assert_eq!(end, last.revision);
        assert!(ends_as(&truth, &states), "{states:?} of {truth:?}");
    }
}

// E17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_change_reaches_all_of_many_idle_streams() {
    let streams = if long() { 2_000 } else { 200 };
    let mut served = Served::start(1).await;
    let path = served.path();
    let mut watchers = Vec::new();
    for _ in 0..streams {
        let mut watcher = served.watch(&path).await;
        assert_eq!(watcher.next().await.event, "endpoints");
        assert_eq!(watcher.next().await.event, "bookmark");
        watchers.push(watcher);
    }
    for ready in [true, false] {
        served.show(0, ready).await;
        let expected: &[u64] = if ready { &[0] } else { &[] };
        for watcher in &mut watchers {
            assert_eq!(replicas(&watcher.next().await.data), expected);
        }
    }
}

/// A proxy that cuts every connection after a while, and its address.
async fn cutting(to: String, cuts: Arc<AtomicU32>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&to).await.unwrap();
            let number = cuts.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                // In the middle of a head, of an event, or in between.
                let most = 300 + u64::from(number * 997 % 3_000);
                let (mut from_client, mut to_client) = client.split();
                let (from_server, mut to_server) = server.split();
                let mut some = from_server.take(most);
                tokio::select! {
                    _ = tokio::io::copy(&mut some, &mut to_client) => {}
                    _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                }
                let _ = to_client.shutdown().await;
            });
        }
    });
    address
}

// P24
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_over_a_connection_that_is_cut_again_and_again() {
    let cuts = if long() { 200 } else { 30 };
    let mut served = Served::start(4).await;
    let made = Arc::new(AtomicU32::new(0));
    let proxy = cutting(served.site.tcp(), Arc::clone(&made)).await;
    let path = served.path();
    let watching = tokio::spawn(async move {
        let mut last: Option<String> = None;
        let mut newest = 0;
        loop {
            let mut watcher = Watcher::open_at(&proxy, &path, last.as_deref()).await;
            while let Some(told) = watcher.try_next().await {
                assert!(told.revision() >= newest, "{told:?} after {newest}");
                assert_ne!(told.event, "reset");
                newest = told.revision();
                last = Some(told.id.clone());
                if told.event == "endpoints" && replicas(&told.data).contains(&LAST) {
                    return told;
                }
            }
        }
    });
    let mut flip = 0;
    while made.load(Ordering::Relaxed) < cuts && !watching.is_finished() {
        served.flip(flip % 3, flip % 2 == 0).await;
        flip += 1;
    }
    served.flip(3, true).await;
    let told = tokio::time::timeout(2 * PATIENCE, watching).await;
    let told = told.expect("the watcher sleeps for ever").unwrap();
    let now: Endpoints = served.site.get(&served.path()).await;
    assert_eq!(told.data["revision"], now.revision);
    let ready: Vec<u64> = now.endpoints.iter().map(|it| it.replica.into()).collect();
    assert_eq!(replicas(&told.data), ready);
}

// E16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_reads_a_byte_a_second_is_owed_the_newest_state_and_nothing_else() {
    let flips = if long() { 100_000 } else { 1_000 };
    let mut served = Served::start(4).await;
    let path = served.path();
    let mut slow = TcpStream::connect(served.site.tcp()).await.unwrap();
    let asked =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n");
    slow.write_all(asked.as_bytes()).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&done);
    let reading = tokio::spawn(async move {
        let mut byte = [0];
        while !over.load(Ordering::Acquire) {
            slow.read_exact(&mut byte).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        slow
    });
    let mut other = served.watch(&path).await;
    other.next().await;
    other.next().await;
    for flip in 0..flips {
        served.flip(flip % 3, flip / 3 % 2 == 0).await;
    }
    served.flip(3, true).await;
    let last = loop {
        let told = other.next().await;
        if replicas(&told.data).contains(&LAST) {
            break told;
        }
    };
    done.store(true, Ordering::Release);
    let mut slow = reading.await.unwrap();
    let mut rest = Vec::new();
    let wanted = format!("id: {}", last.id);
    let mut piece = vec![0; 64 << 10];
    let caught_up = async {
        while !String::from_utf8_lossy(&rest).contains(&wanted) {
            let read = slow.read(&mut piece).await.unwrap();
            assert!(read > 0, "it was cut");
            rest.extend_from_slice(&piece[..read]);
        }
    };
    tokio::time::timeout(PATIENCE, caught_up)
        .await
        .expect("it never catches up");
}
