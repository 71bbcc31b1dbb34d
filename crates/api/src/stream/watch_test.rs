//! A watch against a controller that plays a script, one part a connection.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// What a scripted controller does with one connection.
#[derive(Clone, Copy)]
enum Part {
    /// Answers so, and goes.
    Cut(&'static str),
    /// Answers so, and says nothing more.
    Mute(&'static str),
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// A watch of a controller with this script, and the heads of the requests that it gets.
struct Scripted {
    watch: Watch,
    asked: tokio::sync::mpsc::UnboundedReceiver<String>,
}

async fn scripted(parts: &[Part]) -> Scripted {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let (tell, asked) = tokio::sync::mpsc::unbounded_channel();
    let parts = parts.to_vec();
    tokio::spawn(async move {
        let mut mute = Vec::new();
        for part in parts {
            let (mut stream, _) = listener.accept().await.unwrap();
            tell.send(head(&mut stream).await).unwrap();
            match part {
                Part::Cut(text) => stream.write_all(text.as_bytes()).await.unwrap(),
                Part::Mute(text) => {
                    stream.write_all(text.as_bytes()).await.unwrap();
                    mute.push(stream);
                }
            }
        }
        // Then nobody answers any more, but what is open stays open.
        drop(listener);
        std::future::pending::<()>().await;
    });
    let path = crate::paths::watch(&["web".to_owned()], None, "ready");
    let watch = Watch::new(Client::new(target.parse().unwrap()), path);
    Scripted { watch, asked }
}

async fn head(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

/// What is told, in words.
async fn told(watch: &mut Watch) -> String {
    match watch.next().await {
        Ok(Told::Set { id, set, .. }) => format!("{} {} {}", set.service, set.ready, id),
        Ok(Told::Removed { service, .. }) => format!("{service} removed"),
        Ok(Told::CaughtUp {
            revision, stale, ..
        }) => {
            let old = if stale { ", stale" } else { "" };
            format!("caught up {revision}{old}")
        }
        Ok(Told::Reset) => "reset".to_owned(),
        Ok(Told::Away { reason }) => format!("away: {reason}"),
        Ok(Told::Back) => "back".to_owned(),
        Err(error) => format!("refused: {error}"),
    }
}

macro_rules! stream {
    ($($event:literal),* $(,)?) => {
        concat!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nretry: 1\n\n", $($event, "\n\n"),*)
    };
}

#[tokio::test]
async fn a_cut_stream_goes_on_behind_its_last_event_without_a_word() {
    let mut it = scripted(&[
        Part::Cut(stream![
            "id: e.5\nevent: endpoints\ndata: {\"service\":\"web.a\",\"revision\":5,\"ready\":1,\"endpoints\":[]}",
            "id: e.6\nevent: bookmark\ndata: {\"revision\":6,\"stale\":true}",
        ]),
        Part::Mute(stream![
            "id: e.9\nevent: removed\ndata: {\"service\":\"web.a\"}"
        ]),
    ])
    .await;
    assert_eq!(told(&mut it.watch).await, "web.a 1 e.5");
    assert_eq!(told(&mut it.watch).await, "caught up 6, stale");
    assert_eq!(told(&mut it.watch).await, "web.a removed");
    let first = it.asked.recv().await.unwrap();
    assert!(
        first.starts_with("GET /api/v1/watch?service=web&state=ready HTTP/1.1\r\n"),
        "{first}"
    );
    assert!(
        first.contains("\r\naccept: text/event-stream\r\n"),
        "{first}"
    );
    assert!(!first.contains("last-event-id"), "{first}");
    let second = it.asked.recv().await.unwrap();
    assert!(second.contains("\r\nlast-event-id: e.6\r\n"), "{second}");
}

// P24: what was told before a reset is asked for anew, also where the connection is cut before it came.
#[tokio::test]
async fn a_reset_that_is_cut_short_asks_for_everything() {
    let mut it = scripted(&[
        Part::Cut(stream!["id: e.5\nevent: bookmark\ndata: {\"revision\":5}"]),
        Part::Cut(stream!["id: f.3\nevent: reset\ndata: {\"revision\":3}"]),
        Part::Mute(stream![
            "id: f.2\nevent: endpoints\ndata: {\"service\":\"web.a\",\"revision\":2,\"ready\":0,\"endpoints\":[]}"
        ]),
    ])
    .await;
    assert_eq!(told(&mut it.watch).await, "caught up 5");
    assert_eq!(told(&mut it.watch).await, "reset");
    assert_eq!(told(&mut it.watch).await, "web.a 0 f.2");
    it.asked.recv().await.unwrap();
    assert!(
        it.asked
            .recv()
            .await
            .unwrap()
            .contains("last-event-id: e.5")
    );
    assert!(!it.asked.recv().await.unwrap().contains("last-event-id"));
}

#[tokio::test]
async fn a_controller_that_is_away_is_told_once_and_so_is_its_return() {
    let mut it = scripted(&[
        Part::Cut(""),
        Part::Cut(HEAD),
        Part::Cut("HTTP/1.1 503 no\r\ncontent-length: 0\r\n\r\n"),
        Part::Mute(stream!["id: e.5\nevent: bookmark\ndata: {\"revision\":5}"]),
    ])
    .await;
    let away = told(&mut it.watch).await;
    assert!(away.starts_with("away: no controller answers"), "{away}");
    assert_eq!(told(&mut it.watch).await, "back");
    assert_eq!(told(&mut it.watch).await, "caught up 5");
}

#[tokio::test]
async fn a_connection_without_heartbeats_is_dead() {
    let script = stream!["id: e.5\nevent: bookmark\ndata: {\"revision\":5}"];
    let mut it = scripted(&[Part::Mute(script), Part::Mute(HEAD), Part::Mute(script)]).await;
    it.watch = it.watch.silent_at_most(Duration::from_millis(200));
    assert_eq!(told(&mut it.watch).await, "caught up 5");
    assert_eq!(
        told(&mut it.watch).await,
        format!("away: no sign from {} for 0.2 s", it.watch.client.target())
    );
    assert_eq!(told(&mut it.watch).await, "back");
    assert_eq!(told(&mut it.watch).await, "caught up 5");
}

#[tokio::test]
async fn what_another_try_would_not_change_ends_the_watch() {
    let refused = concat!(
        "HTTP/1.1 403 no\r\nconnection: close\r\n\r\n",
        r#"{"type":"urn:portreeve:problem:forbidden","title":"Forbidden","status":403,"detail":"not yours","code":"forbidden"}"#
    );
    let mut it = scripted(&[Part::Cut(refused)]).await;
    assert_eq!(told(&mut it.watch).await, "refused: not yours");
    let mut it = scripted(&[Part::Cut(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 0\r\n\r\n",
    )])
    .await;
    let told = told(&mut it.watch).await;
    assert!(
        told.contains("text/html in place of text/event-stream"),
        "{told}"
    );
}

#[tokio::test]
async fn garbage_is_no_event_and_what_it_belongs_to_is_asked_for_anew() {
    let mut it = scripted(&[
        Part::Mute(stream![
            "id: e.4\nevent: a later word\ndata: x",
            "id: e.5\nevent: bookmark\ndata: {\"revision\":5}",
            "id: e.6\nevent: endpoints\ndata: {\"service\":7}",
        ]),
        Part::Mute(stream!["id: e.7\nevent: bookmark\ndata: {\"revision\":7}"]),
    ])
    .await;
    assert_eq!(told(&mut it.watch).await, "caught up 5");
    let away = told(&mut it.watch).await;
    assert!(away.contains("tells no endpoints event"), "{away}");
    assert_eq!(told(&mut it.watch).await, "back");
    assert_eq!(told(&mut it.watch).await, "caught up 7");
    it.asked.recv().await.unwrap();
    assert!(!it.asked.recv().await.unwrap().contains("last-event-id"));
}

#[tokio::test(start_paused = true)]
async fn a_bye_is_followed_by_the_pause_it_wishes() {
    let (mut watch, _held) = {
        let it = scripted(&[
            Part::Cut(concat!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nretry: 7000\n\n",
                "id: e.5\nevent: bookmark\ndata: {\"revision\":5}\n\nevent: bye\ndata: {}\n\n"
            )),
            Part::Mute(stream!["id: e.6\nevent: bookmark\ndata: {\"revision\":6}"]),
        ])
        .await;
        (it.watch, it.asked)
    };
    assert_eq!(told(&mut watch).await, "caught up 5");
    let before = Instant::now();
    assert_eq!(told(&mut watch).await, "caught up 6");
    let pause = before.elapsed();
    assert!(
        pause >= Duration::from_secs(7) && pause <= Watch::MAX_PAUSE,
        "{pause:?}"
    );
}
