//! People of a host ask through its agent, as who they are and as nobody else.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use portreeve_agent::{Agent, Config, SocketPlace, TokenPlaces};
use portreeve_api::{Client, ClientError, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::controller::{Controller, PATIENCE};
use crate::house::House;

struct Relay {
    agent: Agent,
    controller: Controller,
    socket: PathBuf,
    house: House,
}

impl Relay {
    /// An agent with the token `prh1.own`, if with any.
    async fn start(token: bool) -> Self {
        let house = House::new();
        let controller = house.controller("one");
        controller.want(|it| it.known = Some("prh1.own".into()));
        fs::create_dir_all(house.state()).unwrap();
        let own = house.state().join("host-token");
        if token {
            fs::write(&own, "prh1.own\n").unwrap();
            fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        }
        let socket = house.state().join("api.sock");
        let config = Config {
            tokens: Some(TokenPlaces {
                host: own,
                join: None,
            }),
            relay: Some(SocketPlace::At(socket.clone())),
            ..house.config()
        };
        let agent = house.agent_with(config).await;
        agent.joined(PATIENCE).await;
        Self {
            agent,
            controller,
            socket,
            house,
        }
    }

    /// Everything that is answered to these bytes.
    async fn said(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
        answer
    }

    fn client(&self) -> Client {
        Client::new(Target::Unix(self.socket.clone()))
    }
}

#[tokio::test]
async fn nothing_that_people_say_of_who_they_are_goes_on_and_the_kernels_word_does() {
    let relay = Relay::start(true).await;
    assert_eq!(fs::metadata(&relay.socket).unwrap().mode() & 0o777, 0o666);
    let own = rustix::process::geteuid().as_raw();
    let body = "{\"x\":1}";
    let answer = relay
        .said(&format!(
            "POST http://elsewhere.example/api/v1/services?a=%20b HTTP/1.1\r\nhost: elsewhere.example\r\n\
             authorization: Bearer prt1.stolen\r\nAuthorization: Bearer prh1.other\r\n\
             portreeve-on-behalf: 0\r\nPortreeve-On-Behalf: 1\r\nx-consul-token: a\r\nx-nomad-token: b\r\n\
             connection: keep-alive, portreeve-sent\r\nupgrade: x\r\nportreeve-sent: 7\r\nif-match: \"5\"\r\n\
             content-length: {}\r\n\r\n{body}GET /second HTTP/1.1\r\n\r\n",
            body.len()
        ))
        .await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(
        answer.contains("not_allowed"),
        "the answer comes as it is: {answer}"
    );
    let heard = relay.controller.heard().clone();
    let [(method, path, headers, sent)] = &heard.others[..] else {
        panic!("one connection asks one thing: {:?}", heard.others)
    };
    assert_eq!(
        (method.as_str(), path.as_str()),
        ("POST", "/api/v1/services?a=%20b")
    );
    assert_eq!(sent, body.as_bytes());
    let all = |name: &str| {
        let values = headers.get_all(name).iter();
        values
            .map(|it| it.to_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(all("authorization"), ["Bearer prh1.own"]);
    assert_eq!(all("portreeve-on-behalf"), [own.to_string()]);
    assert_eq!(all("host"), ["portreeve"]);
    assert_eq!(all("if-match"), ["\"5\""]);
    for name in [
        "x-consul-token",
        "x-nomad-token",
        "upgrade",
        "portreeve-sent",
    ] {
        assert_eq!(all(name), [""; 0], "{name}");
    }
    relay.agent.stop().await;
    assert!(!relay.socket.exists());
}

#[tokio::test]
async fn a_stream_comes_piece_by_piece() {
    let relay = Relay::start(true).await;
    let mut stream = UnixStream::connect(&relay.socket).await.unwrap();
    stream
        .write_all(b"GET /api/v1/stream HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut come = String::new();
    let mut bytes = [0; 1024];
    while !come.contains("one\n") {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await;
        let count = read.unwrap().unwrap();
        assert!(count > 0, "{come}");
        come.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    assert!(!come.contains("two"), "{come}");
    relay.controller.want(|it| it.go_on = true);
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut come))
        .await
        .unwrap()
        .unwrap();
    assert!(come.contains("two\n"), "{come}");
    relay.agent.stop().await;
}

#[tokio::test]
async fn a_controller_that_is_away_or_does_not_know_the_host_is_none_that_answers() {
    let relay = Relay::start(true).await;
    let within = Duration::from_secs(20);
    let ask = || async {
        let asked: Result<serde_json::Value, _> = relay.client().get("/api/v1/x", within).await;
        match asked {
            Err(ClientError::Unreachable { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    relay
        .controller
        .want(|it| it.known = Some("prh1.other".into()));
    let words = ask().await;
    assert!(
        words.contains("n17") && words.contains("does not know this host's token"),
        "{words}"
    );
    let Relay {
        agent,
        controller,
        socket,
        house,
    } = relay;
    controller.stop().await;
    let client = Client::new(Target::Unix(socket));
    let asked: Result<serde_json::Value, _> = client.get("/api/v1/x", within).await;
    assert!(
        matches!(asked, Err(ClientError::Unreachable { .. })),
        "{asked:?}"
    );
    agent.stop().await;
    drop(house);
}

#[tokio::test]
async fn a_host_that_has_not_joined_asks_for_nobody() {
    let relay = Relay::start(false).await;
    let answer = relay
        .said("GET /api/v1/x HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("has not joined"), "{answer}");
    assert!(relay.controller.heard().others.is_empty());
    relay.agent.stop().await;
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_troubles_nobody() {
    let relay = Relay::start(true).await;
    for bytes in [
        "GARBAGE\r\n\r\n".to_owned(),
        "CONNECT elsewhere.example:80 HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(100_000)),
        // Two lengths, or a length and pieces: what one reads as a body another could take for a request.
        "POST /x HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_owned(),
    ] {
        let answer = relay.said(&bytes).await;
        assert!(
            answer.starts_with("HTTP/1.1 4") || answer.is_empty(),
            "{answer}"
        );
    }
    let both = "POST /x HTTP/1.1\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    let answer = relay.said(both).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    for (_, path, _, body) in &relay.controller.heard().others {
        assert_eq!(
            (path.as_str(), &body[..]),
            ("/x", &b"a"[..]),
            "only ever as one reads it"
        );
    }
    // As many as one account may have, and one more.
    let mut held = Vec::new();
    for _ in 0..128 {
        held.push(UnixStream::connect(&relay.socket).await.unwrap());
    }
    let answer = relay.said("").await;
    assert!(answer.contains("too_many_connections"), "{answer}");
    drop(held);
    relay.agent.stop().await;
}
