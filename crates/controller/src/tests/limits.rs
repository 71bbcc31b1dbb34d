//! What slow, silent and too many peers may do: nothing to others.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::limits::Limits;
use crate::listen::{Listener, serve};
use crate::site::Site;
use crate::stop::StopSwitch;

/// A listener of its own over the site's routes, with limits short enough to wait for.
pub(super) async fn listening(site: &Site, limits: Limits) -> (String, StopSwitch) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (switch, stop) = StopSwitch::new();
    let api = crate::rest::Api::new(Arc::clone(&site.controller.app));
    tokio::spawn(serve(Listener::Tcp(listener), api, limits, stop));
    (address, switch)
}

/// No user but root is exempt, as if the controller ran under another account.
pub(super) fn limits() -> Limits {
    Limits::of_account(u32::MAX, None, None)
}

async fn rest_of(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    // A reset is an end too.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_peer_that_does_not_finish_its_head_is_cut() {
    let site = Site::start().await;
    let limits = Limits {
        head_within: Duration::from_millis(50),
        ..limits()
    };
    let (address, _switch) = listening(&site, limits).await;
    let mut silent = TcpStream::connect(&address).await.unwrap();
    let mut slow = TcpStream::connect(&address).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: ")
        .await
        .unwrap();
    let mut idle = TcpStream::connect(&address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(rest_of(&mut silent).await, "");
    let _ = rest_of(&mut slow).await;
    assert!(
        rest_of(&mut idle).await.ends_with("ok\n"),
        "answered, then closed when idle"
    );
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_and_the_others_go_on() {
    let site = Site::start().await;
    let limits = Limits {
        connections: 2,
        ..limits()
    };
    let (address, _switch) = listening(&site, limits).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        // An answer proves that the connection counts.
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        held.push(stream);
    }
    let mut third = TcpStream::connect(&address).await.unwrap();
    let answer = rest_of(&mut third).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("too_many_connections"));
    held.pop();
    let served = async {
        loop {
            let mut next = TcpStream::connect(&address).await.unwrap();
            let _ = next.write_all(HEALTH).await;
            if rest_of(&mut next).await.ends_with("ok\n") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), served)
        .await
        .unwrap();
}

/// Opens a stream and reads on to its bookmark; what came instead, if it is none.
async fn stream(address: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let asked = "GET /api/v1/watch HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("event: bookmark")
        && stream.read_buf(&mut read).await.is_ok_and(|read| read > 0)
    {}
    (stream, String::from_utf8(read).unwrap())
}

#[tokio::test]
async fn watchers_have_their_own_room_and_leave_that_of_requests_alone() {
    let site = Site::start().await;
    let limits = Limits {
        connections: 20,
        streams: 6,
        ..limits()
    };
    let (address, _switch) = listening(&site, limits).await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        let (stream, told) = stream(&address).await;
        assert!(told.starts_with("HTTP/1.1 200"), "{told}");
        streams.push(stream);
    }
    let (mut refused, mut told) = stream(&address).await;
    told.push_str(&rest_of(&mut refused).await);
    assert!(told.starts_with("HTTP/1.1 429"), "{told}");
    assert!(told.contains("retry-after: ") && told.contains("too_many_streams"));
    // A worker of that user is served all the same.
    let mut worker = TcpStream::connect(&address).await.unwrap();
    worker.write_all(HEALTH).await.unwrap();
    assert!(rest_of(&mut worker).await.ends_with("ok\n"));
    streams.pop();
    let served = async {
        loop {
            let (stream, told) = stream(&address).await;
            if told.starts_with("HTTP/1.1 200") {
                return stream;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), served)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_stop_ends_idle_connections() {
    let site = Site::start().await;
    let (address, switch) = listening(&site, limits()).await;
    let mut idle = TcpStream::connect(&address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut byte = [0];
    idle.read_exact(&mut byte).await.unwrap();
    switch.stop();
    assert!(rest_of(&mut idle).await.ends_with("ok\n"));
}
