//! Bytes that no client of good will sends: each is answered clearly or the connection ends, and whoever asks beside it
//! is served.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use portreeve_api::Problem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::limits::{limits, listening};
use crate::limits::Limits;
use crate::site::{FakeAgent, PATIENCE, STRANGER, Site};

/// Sends the bytes and reads to the end of what comes back.
async fn told(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It may be refused before all of it is written.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let ended = tokio::time::timeout(PATIENCE, read).await;
    let excerpt = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]);
    // A reset is an end too.
    assert!(ended.is_ok(), "no end after {excerpt:?}");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whoever asks beside all this.
async fn is_served(address: &str) {
    let health = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = told(address, health.as_bytes()).await;
    assert!(answer.ends_with("ok\n"), "{answer}");
}

fn status(answer: &str) -> u16 {
    let word = answer.split(' ').nth(1).unwrap_or_default();
    word.parse().unwrap_or(0)
}

/// The problem of an answer.
fn problem(answer: &str) -> Problem {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(Problem::MEDIA_TYPE), "{answer}");
    let problem: Problem = serde_json::from_str(body).unwrap();
    assert_eq!(problem.status, status(answer));
    problem
}

fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n")
        .into_bytes()
}

fn put(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "PUT /api/v1/services/web HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The same bytes with others in place of `@`.
fn with(bytes: Vec<u8>, hostile: &[u8]) -> Vec<u8> {
    let at = bytes.iter().position(|byte| *byte == b'@').unwrap();
    [&bytes[..at], hostile, &bytes[at + 1..]].concat()
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_its_connection_ends() {
    let site = Site::start().await;
    // Line ends alone are waited for as a head is.
    let limits = Limits {
        head_within: Duration::from_millis(500),
        ..limits()
    };
    let (address, _switch) = listening(&site, limits).await;
    let many_headers = (0..500).map(|nth| format!("x-{nth}: y\r\n"));
    let cases: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("a NUL in the path", get("/healthz\0", ""), &[400]),
        ("a NUL in a header", get("/healthz", "x: a\0b\r\n"), &[400]),
        (
            "a line feed in a name",
            get("/healthz", "x\n y: z\r\n"),
            &[400],
        ),
        ("no version", b"GET /healthz\r\n\r\n".to_vec(), &[400]),
        ("no method", b" / HTTP/1.1\r\n\r\n".to_vec(), &[400]),
        (
            "HTTP/2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            &[0, 400, 505],
        ),
        (
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
            &[400],
        ),
        ("noise", (0..=255).cycle().take(20_000).collect(), &[400]),
        (
            "nothing but line ends",
            b"\r\n".repeat(40_000),
            &[0, 400, 431],
        ),
        (
            "a head that is too long",
            get("/healthz", &format!("x: {}\r\n", "y".repeat(300_000))),
            &[431],
        ),
        (
            "a path that is too long",
            get(&format!("/{}", "y".repeat(300_000)), ""),
            &[414, 431],
        ),
        (
            "too many headers",
            get("/healthz", &many_headers.collect::<String>()),
            &[431],
        ),
        (
            "two lengths",
            put("content-length: 2\r\ncontent-length: 3\r\n", b"{}"),
            &[400],
        ),
        (
            "a length below zero",
            put("content-length: -1\r\n", b"{}"),
            &[400],
        ),
        (
            "a length beyond all",
            put("content-length: 99999999999999999999\r\n", b"{}"),
            &[400],
        ),
        (
            "a coding nobody knows",
            put("transfer-encoding: chunked, x\r\n", b"2\r\n{}\r\n0\r\n\r\n"),
            &[400],
        ),
        (
            "raw bytes in the path",
            with(get("/api/v1/services/@", ""), b"\xff\xfe"),
            &[400],
        ),
    ];
    for (what, bytes, expected) in cases {
        let answer = told(&address, &bytes).await;
        assert!(expected.contains(&status(&answer)), "{what}: {answer}");
        is_served(&address).await;
    }
}

#[tokio::test]
async fn a_request_that_is_wrong_is_told_so_as_a_problem() {
    let site = Site::start().await;
    let (address, _switch) = listening(&site, limits()).await;
    let long = "y".repeat(50_000);
    let chunked = "transfer-encoding: chunked\r\n";
    let length = |count: usize| format!("content-length: {count}\r\n");
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1_000));
    let one_by_one = [chunk.repeat(1_100).as_bytes(), b"0\r\n\r\n"].concat();
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        (
            "bytes that are no text in a path",
            get("/api/v1/services/%ff%fe", ""),
            400,
            "bad_name",
        ),
        (
            "a NUL in a name",
            get("/api/v1/services/%00", ""),
            400,
            "bad_name",
        ),
        (
            "a long name",
            get(&format!("/api/v1/services/{long}"), ""),
            400,
            "bad_name",
        ),
        (
            "a long path",
            get(&format!("/{long}"), ""),
            404,
            "route_not_found",
        ),
        (
            "a long parameter",
            get(&format!("/api/v1/services?{long}=1"), ""),
            400,
            "bad_parameter",
        ),
        (
            "a long value",
            get(&format!("/api/v1/services?limit={long}"), ""),
            400,
            "bad_parameter",
        ),
        (
            "no text in a query",
            get("/api/v1/services?limit=%ff", ""),
            400,
            "bad_parameter",
        ),
        (
            "a token that is no text",
            with(
                get("/api/v1/services", "authorization: @\r\n"),
                b"Bearer \xff",
            ),
            401,
            "unauthenticated",
        ),
        (
            "a long token",
            get(
                "/api/v1/services",
                &format!("authorization: Bearer {long}\r\n"),
            ),
            401,
            "unauthenticated",
        ),
        (
            "a length that is too much",
            put(&length(2_000_000), b"{"),
            413,
            "body_too_large",
        ),
        (
            "chunks that are too much",
            put(chunked, &one_by_one),
            413,
            "body_too_large",
        ),
        (
            "a chunk that is too much",
            put(chunked, b"FFFFFFFFFFFFFFF\r\nx"),
            408,
            "body_too_slow",
        ),
        (
            "a chunk of no size",
            put(chunked, b"zz\r\nx"),
            400,
            "bad_body",
        ),
        (
            "a chunk with a long note",
            put(chunked, format!("1;{long}\r\nx").as_bytes()),
            400,
            "bad_body",
        ),
        (
            "trailers without end",
            put(
                chunked,
                format!("0\r\nx: {long}{long}{long}{long}\r\n\r\n").as_bytes(),
            ),
            400,
            "bad_body",
        ),
        (
            "a body that is no text",
            put(&length(2), b"\xff\xfe"),
            422,
            "profile_invalid",
        ),
        (
            "a NUL in a body",
            put(&length(1), b"\0"),
            422,
            "profile_invalid",
        ),
        (
            "brackets",
            put(&length(100_000), "[".repeat(100_000).as_bytes()),
            422,
            "profile_invalid",
        ),
    ];
    let mut others = Vec::new();
    for (what, bytes, expected, code) in cases {
        let answer = told(&address, &bytes).await;
        let shown: String = answer.chars().take(500).collect();
        if status(&answer) != expected || problem(&answer).code != code || answer.len() > 8 << 10 {
            others.push(format!("{what}: {shown}"));
        }
        is_served(&address).await;
    }
    assert!(others.is_empty(), "{others:#?}");
    // A header that is no text says nothing.
    let accept = with(get("/healthz", "accept: @\r\n"), b"\xff\xfe");
    assert_eq!(status(&told(&address, &accept).await), 200);
    // Who asks whether to go on is told so.
    let expects = put("content-length: 2\r\nexpect: 100-continue\r\n", b"{}");
    let answer = told(&address, &expects).await;
    assert!(answer.starts_with("HTTP/1.1 100 "), "{answer}");
    assert!(answer.contains("\r\n\r\nHTTP/1.1 422 "), "{answer}");
}

#[tokio::test]
async fn every_body_is_read_without_trust() {
    let site = Site::start().await;
    let _agent = FakeAgent::join(&site).await;
    let document = crate::rest::openapi::document();
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in [Method::PUT, Method::POST] {
            let operation = &methods[method.as_str().to_ascii_lowercase()];
            if !operation["requestBody"].is_object() {
                continue;
            }
            let path = path
                .replace("{service}", "web")
                .replace("{host}", "n1")
                .replace("{port}", "http")
                .replace("{index}", "0")
                .replace("{incarnation}", "0")
                .replace("{read}", "0");
            let deep = |open: &str| open.repeat((300 << 10) / open.len()).into_bytes();
            let twice = br#"{"replicas":1,"replicas":1,"agent":{},"agent":{}}"#;
            let number = [b"1".repeat(200_000), b"e999999999".to_vec()].concat();
            for body in [
                deep("["),
                deep("{\"a\":"),
                deep("[{\"profile\":"),
                b"\xff\xfe\x00".to_vec(),
                b"\"\\ud800\"".to_vec(),
                b"{\"a\0\":1}".to_vec(),
                twice.to_vec(),
                number,
                Vec::new(),
            ] {
                for uid in [nix::unistd::geteuid().as_raw(), STRANGER] {
                    let start: String = String::from_utf8_lossy(&body).chars().take(30).collect();
                    let request = Request::builder()
                        .method(method.clone())
                        .uri(&path)
                        .header("content-type", "application/json");
                    let request = request.body(body.clone().into()).unwrap();
                    let seen = tokio::time::timeout(PATIENCE, site.as_user(uid, request));
                    let seen = seen.await.unwrap();
                    let told = format!("{method} {path} as {uid} with {start:?}");
                    // An order without members is an order; nothing else here is.
                    let is_empty = start.is_empty() && seen.status == StatusCode::OK;
                    assert!(
                        seen.status.is_client_error() || is_empty,
                        "{told}: {seen:?}"
                    );
                    if !is_empty {
                        assert_eq!(seen.problem().status, seen.status.as_u16(), "{told}");
                        assert!(seen.body.len() < 8 << 10, "{told}: it does not echo");
                    }
                    tried += 1;
                }
            }
        }
    }
    assert!(tried >= 12 * 18, "{tried}");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let site = Site::start().await;
    let (address, _switch) = listening(&site, limits()).await;
    let mut slow = TcpStream::connect(&address).await.unwrap();
    slow.write_all(&put("content-length: 10\r\n", b"{"))
        .await
        .unwrap();
    let mut answer = String::new();
    let read = slow.read_to_string(&mut answer);
    let dripping = async {
        loop {
            is_served(&address).await;
        }
    };
    tokio::select! {
        read = tokio::time::timeout(PATIENCE, read) => { read.unwrap().unwrap(); }
        () = dripping => {}
    }
    assert_eq!(problem(&answer).code, "body_too_slow", "{answer}");
    assert_eq!(status(&answer), 408);
}

#[tokio::test]
async fn a_peer_that_ends_in_the_middle_of_what_it_says_is_forgotten() {
    let site = Site::start().await;
    let (address, _switch) = listening(&site, limits()).await;
    for said in [
        b"GET /hea".to_vec(),
        put("content-length: 10\r\n", b"{"),
        put("transfer-encoding: chunked\r\n", b"5\r\nab"),
    ] {
        let mut half = TcpStream::connect(&address).await.unwrap();
        half.write_all(&said).await.unwrap();
        half.shutdown().await.unwrap();
        let mut answer = String::new();
        let read = half.read_to_string(&mut answer);
        tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
        assert!(matches!(status(&answer), 0 | 400), "{answer}");
        is_served(&address).await;
    }
}

#[tokio::test]
async fn what_follows_a_request_unasked_is_read_only_when_its_turn_comes() {
    let site = Site::start().await;
    let (address, _switch) = listening(&site, limits()).await;
    let first = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let garbage = [&first[..], b"garbage\0\r\n\r\n"].concat();
    let answer = told(&address, &garbage).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("ok\n"), "{answer}");
    assert!(answer.contains("HTTP/1.1 400 "), "{answer}");
    // A thousand at once are answered one by one, in order.
    let all = [first.repeat(999), get("/healthz", "")].concat();
    let answer = told(&address, &all).await;
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 1_000);
    is_served(&address).await;
}

#[tokio::test]
async fn who_asks_much_and_reads_nothing_is_cut() {
    let site = Site::start().await;
    let limits = Limits {
        taken_within: Duration::from_millis(200),
        ..limits()
    };
    let (address, _switch) = listening(&site, limits).await;
    let mut greedy = TcpStream::connect(&address).await.unwrap();
    let asked = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(200);
    // What nobody reads fills both buffers; then nothing more is read of what is asked, and the connection ends.
    let cut = async {
        loop {
            is_served(&address).await;
            if greedy.write_all(&asked).await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, cut).await.unwrap();
    is_served(&address).await;
}
