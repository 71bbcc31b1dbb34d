//! HTTP as it is on the wire: what was sent, byte by byte, and when the connection ended.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Where a server is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// One connection.
pub(crate) struct Wire {
    incoming: BufReader<File>,
    outgoing: File,
    /// Of the answer that is being read: what is left of its chunk, where it is sent in chunks.
    chunk: Option<usize>,
}

/// An answer without its body. Names are lower case.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|header| header.0 == name)
            .map(|header| header.1.as_str())
    }

    fn says(&self, name: &str, value: &str) -> bool {
        self.header(name)
            .is_some_and(|header| header.eq_ignore_ascii_case(value))
    }
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or("not UTF-8")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Wire {
    /// Connects; a read that gets nothing for `patience` fails.
    pub(crate) fn open(place: &Place, patience: Duration) -> io::Result<Self> {
        let socket: OwnedFd = match place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(patience))?;
                stream.into()
            }
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.into()
            }
        };
        let outgoing = File::from(socket);
        Ok(Self {
            incoming: BufReader::with_capacity(1 << 14, outgoing.try_clone()?),
            outgoing,
            chunk: None,
        })
    }

    /// Asks in one write.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text += "\r\n";
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        self.outgoing.write_all(&bytes)
    }

    /// The head of the next answer; its body comes by [`Self::line`].
    pub(crate) fn head(&mut self) -> io::Result<Head> {
        let first = self.raw_line()?;
        let mut words = first.split_ascii_whitespace().skip(1);
        let status = words.next().and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.raw_line()?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let head = Head { status, headers };
        self.chunk = head.says("transfer-encoding", "chunked").then_some(0);
        Ok(head)
    }

    /// The whole next answer.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let head = self.head()?;
        let length = head
            .header("content-length")
            .and_then(|text| text.parse().ok());
        let mut body = Vec::new();
        match (self.chunk, length) {
            (Some(_), _) => {
                while let Some(byte) = self.byte()? {
                    body.push(byte);
                }
            }
            (None, Some(length)) => {
                body.resize(length, 0);
                self.incoming.read_exact(&mut body)?;
            }
            (None, None) if head.status == 304 || head.status == 204 => {}
            (None, None) => {
                self.incoming.read_to_end(&mut body)?;
            }
        }
        Ok(Answer { head, body })
    }

    /// Asks and waits for the whole answer.
    pub(crate) fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> io::Result<Answer> {
        self.ask("GET", path, headers, b"")?;
        self.answer()
    }

    /// The next line of a body without its end; `None` at the end of the body or of the connection.
    pub(crate) fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        if self.chunk.is_none() {
            self.incoming.read_until(b'\n', &mut line)?;
            let whole = line.pop() == Some(b'\n');
            return Ok(whole.then(|| String::from_utf8_lossy(&line).into_owned()));
        }
        while let Some(byte) = self.byte()? {
            if byte == b'\n' {
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            line.push(byte);
        }
        Ok(None)
    }

    /// The next byte of the body, slowly where the caller takes its time.
    pub(crate) fn byte(&mut self) -> io::Result<Option<u8>> {
        if self.chunk == Some(0) {
            let line = self.raw_line()?;
            if line.is_empty() {
                return Ok(None);
            }
            let size = usize::from_str_radix(&line, 16).map_err(io::Error::other)?;
            if size == 0 {
                self.raw_line()?;
                return Ok(None);
            }
            self.chunk = Some(size);
        }
        let mut byte = [0];
        if self.incoming.read(&mut byte)? == 0 {
            return Ok(None);
        }
        if let Some(left) = &mut self.chunk {
            *left -= 1;
            if *left == 0 {
                self.raw_line()?;
            }
        }
        Ok(Some(byte[0]))
    }

    /// The next line whatever it belongs to; empty at the end.
    fn raw_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.incoming.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

/// One event of a stream; its heartbeats and hints for reconnecting are left out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) data: serde_json::Value,
}

/// A stream of events that was begun.
pub(crate) struct Events(pub(crate) Wire);

impl Events {
    /// Begins one at `path`, after the event of this id where there is one.
    pub(crate) fn open(
        place: &Place,
        path: &str,
        after: Option<&str>,
        patience: Duration,
    ) -> io::Result<Self> {
        let mut wire = Wire::open(place, patience)?;
        let mut headers = vec![("Accept", "text/event-stream")];
        headers.extend(after.map(|id| ("Last-Event-ID", id)));
        wire.ask("GET", path, &headers, b"")?;
        let head = wire.head()?;
        match head.status {
            200 if head.header("content-length").is_some() => {
                Err(io::Error::other("a stream that says its length"))
            }
            200 => Ok(Self(wire)),
            other => Err(io::Error::other(format!("no stream but {other}"))),
        }
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) fn next(&mut self) -> io::Result<Option<Event>> {
        let (mut name, mut id, mut data) = (String::new(), String::new(), String::new());
        while let Some(line) = self.0.line()? {
            match line.split_once(": ") {
                _ if line.is_empty() && !name.is_empty() => {
                    let data = serde_json::from_str(&data).unwrap_or_default();
                    return Ok(Some(Event { name, id, data }));
                }
                Some(("event", text)) => text.clone_into(&mut name),
                Some(("id", text)) => text.clone_into(&mut id),
                Some(("data", text)) => text.clone_into(&mut data),
                _ => {}
            }
        }
        Ok(None)
    }
}
