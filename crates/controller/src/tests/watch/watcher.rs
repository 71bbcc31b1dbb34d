//! A watcher as a client is one: a socket, a request, and events as they come.

use http::Method;
use portreeve_api::Target;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};

use crate::site::{PATIENCE, Site};

pub(crate) trait Reading:
    tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send
{
}
impl<R: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Reading for R {}

/// One stream.
pub(crate) struct Watcher {
    reader: BufReader<Box<dyn Reading>>,
    head: Vec<String>,
    lines: bool,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl Told {
    pub(crate) fn revision(&self) -> u64 {
        let (_, revision) = self.id.rsplit_once('.').unwrap();
        revision.parse().unwrap()
    }
}

impl Watcher {
    /// Over the Unix socket, as this process's own user.
    pub(crate) async fn open(site: &Site, path: &str, accept: &str, last: Option<&str>) -> Self {
        let last = last.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
        let stream = connect(site).await.into_inner();
        Self::ask(Box::new(stream), path, accept, &last).await
    }

    /// Over TCP.
    pub(crate) async fn open_at(address: &str, path: &str, last: Option<&str>) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let last = last.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
        Self::ask(Box::new(stream), path, "text/event-stream", &last).await
    }

    /// Over TCP, with a token.
    pub(crate) async fn open_with(address: &str, path: &str, token: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let header = format!("authorization: Bearer {token}\r\n");
        Self::ask(Box::new(stream), path, "text/event-stream", &header).await
    }

    async fn ask(mut stream: Box<dyn Reading>, path: &str, accept: &str, header: &str) -> Self {
        let method = Method::GET;
        let asked = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n{header}\r\n"
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut watcher = Self {
            reader: BufReader::new(stream),
            head: Vec::new(),
            lines: accept.contains("ndjson"),
        };
        while let Some(line) = watcher.line().await
            && !line.is_empty()
        {
            watcher.head.push(line);
        }
        watcher
    }

    pub(crate) fn status(&self) -> &str {
        self.head[0].split(' ').nth(1).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.iter().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| *known == name).unwrap().1
    }

    /// The next line; `None` at the end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line);
        let read = tokio::time::timeout(PATIENCE, read).await;
        match read.expect("nothing came for a long time") {
            // A reset is an end too, and what was cut is no line.
            Ok(_) | Err(_) if !line.ends_with('\n') => None,
            Err(_) => None,
            Ok(_) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
        }
    }

    pub(crate) async fn next(&mut self) -> Told {
        self.try_next().await.expect("the stream ended")
    }

    /// The next event; heartbeats and `retry` are passed over; `None` at the end.
    pub(crate) async fn try_next(&mut self) -> Option<Told> {
        if self.lines {
            return self.next_line().await;
        }
        let mut told = Told {
            id: String::new(),
            event: String::new(),
            data: Value::Null,
        };
        loop {
            let line = self.line().await?;
            match line.split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut told.id),
                Some(("event", event)) => event.clone_into(&mut told.event),
                Some(("data", data)) => told.data = serde_json::from_str(data).unwrap(),
                Some(("retry" | "", _)) => {}
                None if line.is_empty() && told.event.is_empty() => {}
                None if line.is_empty() => return Some(told),
                _ => panic!("no line of a stream: {line:?}"),
            }
        }
    }

    async fn next_line(&mut self) -> Option<Told> {
        let line = self.line().await?;
        let read: Value = serde_json::from_str(&line).unwrap();
        if let Some(revision) = read.get("bookmark") {
            return Some(Told {
                id: format!(".{revision}"),
                event: "bookmark".into(),
                data: read.clone(),
            });
        }
        Some(Told {
            id: read["id"].as_str().unwrap().to_owned(),
            event: read["event"].as_str().unwrap().to_owned(),
            data: read["data"].clone(),
        })
    }
}

/// A connection over the Unix socket that stays open between questions.
pub(crate) async fn connect(site: &Site) -> BufReader<UnixStream> {
    let Target::Unix(socket) = &site.controller.addresses()[0] else {
        panic!("the socket comes first");
    };
    BufReader::new(UnixStream::connect(socket).await.unwrap())
}

/// Asks over it, and reads the whole answer.
pub(crate) async fn exchange(connection: &mut BufReader<UnixStream>, asked: &str) -> String {
    connection.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).await.unwrap();
        if let Some(given) = line.strip_prefix("content-length: ") {
            length = given.trim().parse().unwrap();
        }
        answer.push_str(&line);
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.unwrap();
    answer + std::str::from_utf8(&body).unwrap()
}
