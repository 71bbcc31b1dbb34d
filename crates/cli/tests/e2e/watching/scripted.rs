//! A controller that says what a test tells it to, over a Unix socket.

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use crate::world::{World, eventually};

/// The controller; it answers nobody whom the test does not take.
pub(super) struct Scripted {
    path: PathBuf,
    listener: UnixListener,
}

impl Scripted {
    pub(super) fn new(world: &World) -> Self {
        let path = world.path("scripted.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { path, listener }
    }

    /// What `--controller` takes.
    pub(super) fn address(&self) -> String {
        format!("unix:{}", self.path.display())
    }

    /// The next connection, whose request is read. Who asks only for a hint gets none.
    pub(super) fn taken(&self) -> Asked {
        loop {
            let asked = self.next();
            if !asked.head.starts_with("GET /api/v1/services?prefix=") {
                return asked;
            }
        }
    }

    fn next(&self) -> Asked {
        let mut taken = None;
        let met = eventually(|| match self.listener.accept() {
            Ok((stream, _)) => {
                taken = Some(stream);
                true
            }
            Err(cause) => {
                assert_eq!(cause.kind(), ErrorKind::WouldBlock, "{cause}");
                false
            }
        });
        assert!(met, "nobody came");
        let mut stream = taken.unwrap();
        stream.set_nonblocking(false).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        Asked {
            head,
            stream: RefCell::new(stream),
        }
    }

    /// The next connection, which is answered by a stream.
    pub(super) fn watched(&self) -> Asked {
        let asked = self.taken();
        asked.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nretry: 1000\n\n");
        asked
    }

    /// The next question, answered as a whole.
    pub(super) fn answer(&self, status: &str, body: &serde_json::Value) -> String {
        let asked = self.taken();
        let body = body.to_string();
        let length = body.len();
        asked.say(&format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
        asked.head
    }
}

/// One connection. Dropped, it is cut.
pub(super) struct Asked {
    pub(super) head: String,
    stream: RefCell<UnixStream>,
}

impl Asked {
    /// Waits for the other end to go.
    pub(super) fn outlived(&self) {
        _ = self.stream.borrow_mut().read(&mut [0]);
    }

    pub(super) fn say(&self, text: &str) {
        self.stream.borrow_mut().write_all(text.as_bytes()).unwrap();
    }

    /// The set of a service: its ready replicas are these ports of 10.0.0.1.
    pub(super) fn set(&self, service: &str, revision: u64, ports: &[u16]) {
        let data = set(service, revision, ports);
        self.say(&format!(
            "id: e.{revision}\nevent: endpoints\ndata: {data}\n\n"
        ));
    }

    pub(super) fn bookmark(&self, revision: u64) {
        self.say(&format!(
            "id: e.{revision}\nevent: bookmark\ndata: {{\"revision\":{revision}}}\n\n"
        ));
    }
}

/// The body of such a set.
pub(super) fn set(service: &str, revision: u64, ports: &[u16]) -> serde_json::Value {
    let endpoints: Vec<_> = ports
        .iter()
        .enumerate()
        .map(|(replica, port)| {
            serde_json::json!({
                "replica": replica, "host": "n1", "address": "10.0.0.1", "restarts": 0, "labels": {},
                "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
                "conditions": { "ready": true, "serving": true, "terminating": false },
            })
        })
        .collect();
    serde_json::json!({
        "service": service, "epoch": "e", "revision": revision, "port_filter": null, "desired": 2,
        "ready": ports.len(), "view_scope": "all", "stale": false, "endpoints": endpoints,
    })
}
