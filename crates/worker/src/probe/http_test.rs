//! Real connections to servers that behave, and to servers that do not.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use portreeve::port::{Port, PortRanges};
use portreeve::supervision::{ProbeKind, ProbeOutcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::HttpCheck;
use crate::probe::{Check, ProbeReport, ProbeTarget, SourcePorts, probe};

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const LONG: Duration = Duration::from_secs(20);

fn get(path: &str) -> HttpCheck {
    HttpCheck {
        port: Port::MIN,
        host: Some(LOOPBACK),
        path: path.to_owned(),
        expect: vec![(200, 399)],
        headers: Vec::new(),
        require_body: None,
    }
}

async fn run(check: HttpCheck, timeout: Duration) -> ProbeReport {
    let target = ProbeTarget {
        kind: ProbeKind::Readiness,
        ports: Vec::new(),
        address: LOOPBACK,
        own_address: true,
        single_host: true,
        anywhere: false,
        root: None,
        sources: SourcePorts::beside(&PortRanges::default()),
    };
    probe(Check::Http(check), target, timeout, LONG, || ()).await
}

/// Reads one request of this connection, up to its empty line.
async fn request(connection: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let byte = connection.read_u8().await.unwrap();
        request.push(byte);
    }
    String::from_utf8(request).unwrap()
}

/// Checks a server that gives `answer` and then keeps the connection open until the client has gone;
/// with the request it saw.
async fn answered(mut check: HttpCheck, answer: &[u8], timeout: Duration) -> (ProbeReport, String) {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    check.port = Port::new(listener.local_addr().unwrap().port()).unwrap();
    let server = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        let request = request(&mut connection).await;
        // A client that has decided may be gone.
        _ = connection.write_all(answer).await;
        while let Ok(1..) = connection.read(&mut [0; 64]).await {}
        request
    };
    tokio::join!(run(check, timeout), server)
}

/// As [`answered`], but the server closes after its answer.
async fn answered_and_closed(mut check: HttpCheck, answer: &[u8]) -> ProbeReport {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    check.port = Port::new(listener.local_addr().unwrap().port()).unwrap();
    let server = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        request(&mut connection).await;
        _ = connection.write_all(answer).await;
    };
    tokio::join!(run(check, LONG), server).0
}

#[tokio::test]
async fn the_final_status_decides() {
    // probes 44
    for (status, outcome) in [
        (200, ProbeOutcome::Ok),
        (204, ProbeOutcome::Ok),
        (301, ProbeOutcome::Ok),
        (399, ProbeOutcome::Ok),
        (400, ProbeOutcome::Fail),
        (404, ProbeOutcome::Fail),
        (500, ProbeOutcome::Fail),
        (503, ProbeOutcome::Fail),
    ] {
        let answer = format!("HTTP/1.1 {status} Some Words\r\nContent-Length: 0\r\n\r\n");
        let (report, _) = answered(get("/"), answer.as_bytes(), LONG).await;
        assert_eq!(report.outcome, outcome, "{status}: {}", report.text);
    }
    let mut only = get("/");
    only.expect = vec![(503, 503)];
    let (report, _) = answered(only, b"HTTP/1.0 503 x\r\n\r\n", LONG).await;
    assert_eq!(report.outcome, ProbeOutcome::Ok);
}

#[tokio::test]
async fn answers_that_are_none_fail_with_a_reason() {
    // probes 44
    let long = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; 20_000]].concat();
    let status = [b"HTTP/1.1 200 ".to_vec(), vec![b'x'; 20_000]].concat();
    let many = [
        b"HTTP/1.1 200 OK\r\n".to_vec(),
        b"A: b\r\n".repeat(101),
        b"\r\n".to_vec(),
    ]
    .concat();
    for (answer, words) in [
        (&b""[..], "closed the connection before its header ended"),
        (
            b"HTTP/1.1 200 OK\r\nA: b\r\n",
            "closed the connection before its header ended",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 099 OK\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/2 200\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\n\0: b\r\n\r\n", "not an HTTP answer"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "but TLS"),
        (&long, "longer than 16 KiB"),
        (&status, "longer than 16 KiB"),
        (&many, "not an HTTP answer"),
    ] {
        let report = answered_and_closed(get("/"), answer).await;
        assert_eq!(report.outcome, ProbeOutcome::Fail, "{}", report.text);
        assert!(report.text.contains(words), "{}", report.text);
    }
}

#[tokio::test]
async fn interim_answers_are_skipped_but_not_for_ever() {
    // probes 44
    let interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let answer = [interim.repeat(10), b"HTTP/1.1 200 OK\r\n\r\n".to_vec()].concat();
    assert_eq!(
        answered(get("/"), &answer, LONG).await.0.outcome,
        ProbeOutcome::Ok
    );
    let answer = [interim.repeat(11), b"HTTP/1.1 200 OK\r\n\r\n".to_vec()].concat();
    let (report, _) = answered(get("/"), &answer, LONG).await;
    assert!(report.text.contains("interim"), "{}", report.text);
    let (report, _) = answered(get("/"), &interim[..], Duration::from_millis(100)).await;
    assert_eq!(report.outcome, ProbeOutcome::Timeout);
}

/// Checks a server that gives its answer byte by byte, for ever.
async fn dripped(mut check: HttpCheck, answer: impl Iterator<Item = u8>) -> ProbeReport {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    check.port = Port::new(listener.local_addr().unwrap().port()).unwrap();
    let server = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.set_nodelay(true).unwrap();
        request(&mut connection).await;
        for byte in answer {
            tokio::time::sleep(Duration::from_millis(1)).await;
            // A client that has decided may be gone.
            if connection.write_all(&[byte]).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(run(check, Duration::from_millis(300)), server).0
}

#[tokio::test]
async fn an_answer_that_drips_ends_with_the_timeout_wherever_it_drips() {
    let for_ever = || std::iter::repeat(b'x');
    let head = b"HTTP/1.1 200 OK\r\n";
    for begin in [&b"HTTP/1.1 200 "[..], b"HTTP/1.1 200 OK\r\nX: "] {
        let report = dripped(get("/"), begin.iter().copied().chain(for_ever())).await;
        assert_eq!(report.outcome, ProbeOutcome::Timeout, "{}", report.text);
    }
    let storm = b"HTTP/1.1 100 Continue\r\n\r\n".iter().copied().cycle();
    let report = dripped(get("/"), storm).await;
    assert_ne!(report.outcome, ProbeOutcome::Ok, "{}", report.text);
    for begin in [
        &b"\r\n"[..],
        b"Transfer-Encoding: chunked\r\n\r\nffff\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1;",
        b"Content-Length: 99999999999999999999\r\n\r\n",
    ] {
        let mut body = get("/");
        body.require_body = Some("ready".to_owned());
        let answer = head.iter().chain(begin).copied().chain(for_ever());
        let report = dripped(body, answer).await;
        assert_eq!(report.outcome, ProbeOutcome::Timeout, "{}", report.text);
    }
}

#[tokio::test]
async fn an_endless_body_is_not_read() {
    // probes 44
    let begun = Instant::now();
    let answer = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 10_000_000]].concat();
    assert_eq!(
        answered(get("/"), &answer, LONG).await.0.outcome,
        ProbeOutcome::Ok
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    // probes 45
    let elsewhere = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let address = elsewhere.local_addr().unwrap();
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: http://{address}/\r\n\r\n");
    let visited = tokio::select! {
        biased;
        _ = elsewhere.accept() => true,
        (report, _) = answered(get("/"), answer.as_bytes(), LONG) => {
            assert_eq!(report.outcome, ProbeOutcome::Ok);
            false
        }
    };
    assert!(!visited);
    // Whoever was sent there would stand in the queue by now.
    let queued = tokio::time::timeout(Duration::from_millis(50), elsewhere.accept()).await;
    assert!(queued.is_err());
}

#[tokio::test]
async fn the_request_says_what_it_must_and_takes_overrides() {
    // probes 46
    let answer = b"HTTP/1.1 200 OK\r\n\r\n";
    let (report, request) = answered(get("/health?full=1"), answer, LONG).await;
    let address = report.text.split('/').nth(2).unwrap();
    assert!(
        request.starts_with("GET /health?full=1 HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains(&format!("\r\nHost: {address}\r\n")),
        "{request}"
    );
    assert!(request.contains("\r\nConnection: close\r\n"), "{request}");
    assert!(request.contains("\r\nUser-Agent: portreeve/"), "{request}");
    let mut own = get("/");
    own.headers = [
        ("host", "model.site"),
        ("User-Agent", "kube-probe/1.0"),
        ("connection", "keep-alive"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    let (_, request) = answered(own, answer, LONG).await;
    assert!(request.contains("\r\nhost: model.site\r\n"), "{request}");
    assert!(
        request.contains("\r\nUser-Agent: kube-probe/1.0\r\n"),
        "{request}"
    );
    assert_eq!(request.matches("User-Agent").count(), 1);
    assert!(!request.contains("keep-alive"), "{request}");
}

#[tokio::test]
async fn values_that_would_smuggle_a_request_are_refused_before_connecting() {
    for (name, value) in [
        ("A", "b\r\nC: d"),
        ("A\r\nB", "c"),
        ("", "c"),
        ("A B", "c"),
        ("A", "b\0"),
    ] {
        let mut check = get("/");
        check.headers = vec![(name.to_owned(), value.to_owned())];
        let report = run(check, LONG).await;
        assert!(
            report.text.contains("no header can have"),
            "{}",
            report.text
        );
    }
    for path in ["", "health", "/a b", "/a\r\nHost: x"] {
        let report = run(get(path), LONG).await;
        assert!(report.text.ends_with("is not a path"), "{}", report.text);
    }
}

#[tokio::test]
async fn a_required_body_is_found_wherever_it_comes_and_not_read_for_ever() {
    let with = |text: &str| {
        let mut check = get("/");
        check.require_body = Some(text.to_owned());
        check
    };
    let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nall ready";
    assert_eq!(
        answered(with("ready"), plain, LONG).await.0.outcome,
        ProbeOutcome::Ok
    );
    // At the announced end the answer is complete, though the server keeps the connection.
    let (report, _) = answered(with("steady"), plain, LONG).await;
    assert!(
        report.text.contains("the body does not contain \"steady\""),
        "{}",
        report.text
    );
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrea\r\n2;x=y\r\ndy\r\n0\r\n\r\n";
    assert_eq!(
        answered(with("ready"), chunked, LONG).await.0.outcome,
        ProbeOutcome::Ok
    );
    assert_eq!(
        answered(with("steady"), chunked, LONG).await.0.outcome,
        ProbeOutcome::Fail
    );
    let broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nready\r\n";
    assert_eq!(
        answered(with("ready"), broken, LONG).await.0.outcome,
        ProbeOutcome::Fail
    );
    let endless = [
        b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        vec![b'x'; 1_000_000],
        b"ready".to_vec(),
    ]
    .concat();
    let (report, _) = answered(with("ready"), &endless, LONG).await;
    assert!(report.text.contains("the first 64 KiB"), "{}", report.text);
    let closed = answered_and_closed(with("ready"), b"HTTP/1.0 200 OK\r\n\r\nready").await;
    assert_eq!(closed.outcome, ProbeOutcome::Ok);
}

#[tokio::test]
async fn an_answer_counts_until_the_timeout_and_not_after() {
    // probes 43
    let (report, _) = answered(get("/"), b"", Duration::from_millis(100)).await;
    assert_eq!(report.outcome, ProbeOutcome::Timeout);
    assert_eq!(report.text, "no answer within 100ms");
}

#[tokio::test]
async fn the_number_can_be_bound_at_once_after_a_server_closed_first() {
    // A close in order would leave TIME_WAIT on the service's side, and its restart could not bind.
    let server = async |listener: std::net::TcpListener| {
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let mut check = get("/");
        check.port = Port::new(listener.local_addr().unwrap().port()).unwrap();
        // Its end is told before the client decides, so the server is the first to close.
        check.require_body = Some("absent".to_owned());
        let serve = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            request(&mut connection).await;
            connection
                .write_all(b"HTTP/1.1 200 OK\r\n\r\nbody")
                .await
                .unwrap();
        };
        tokio::join!(run(check, LONG), serve).0
    };
    // Without SO_REUSEADDR, as the strictest of services.
    let bind = |port: u16| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        let address = std::net::SocketAddr::new(LOOPBACK, port);
        socket.bind(&address.into())?;
        socket.listen(8)?;
        Ok::<_, std::io::Error>(std::net::TcpListener::from(socket))
    };
    let first = bind(0).unwrap();
    let port = first.local_addr().unwrap().port();
    assert_eq!(server(first).await.outcome, ProbeOutcome::Fail);
    bind(port).unwrap();
}
