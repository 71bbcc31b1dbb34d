//! One GET over one connection: HTTP/1.1, no redirect followed, no proxy variable read, everything bounded.

use std::io;
use std::net::{IpAddr, SocketAddr};

use portreeve::port::Port;
use portreeve::profile::HttpProbe;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::address::Way;
use super::body::{Body, Progress};
use super::{ProbeReport, ProbeTarget, tcp};

/// One GET and what counts as success, with every reference filled in.
#[derive(Clone, Debug)]
pub struct HttpCheck {
    /// The number.
    pub port: Port,
    /// A literal address instead of the replica's.
    pub host: Option<IpAddr>,
    /// Begins with `/`.
    pub path: String,
    /// Accepted status codes as inclusive ranges; empty: 200 to 399.
    pub expect: Vec<(u16, u16)>,
    /// Further header lines.
    pub headers: Vec<(String, String)>,
    /// The body must contain this text.
    pub require_body: Option<String>,
}

impl HttpCheck {
    /// The check of `probe` on this number; `path` and `headers` are its templates filled in.
    #[must_use]
    pub fn new(
        probe: &HttpProbe,
        port: Port,
        path: String,
        headers: Vec<(String, String)>,
    ) -> Self {
        Self {
            port,
            host: probe.host,
            path,
            expect: probe.expect.clone(),
            headers,
            require_body: probe.require_body.clone(),
        }
    }

    fn expects(&self, status: u16) -> bool {
        let mut ranges = self.expect.iter();
        if self.expect.is_empty() {
            return (200..=399).contains(&status);
        }
        ranges.any(|(from, to)| (*from..=*to).contains(&status))
    }

    fn request(&self, address: SocketAddr) -> Result<String, Refusal> {
        let is_text = |text: &str| text.bytes().all(|byte| byte >= 0x20 && byte != 0x7f);
        if !self.path.starts_with('/') || !is_text(&self.path) || self.path.contains(' ') {
            return Err(Refusal(format!("{:?} is not a path", self.path)));
        }
        let written = |wanted: &str| {
            self.headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        let mut request = format!("GET {} HTTP/1.1\r\n", self.path);
        if !written("Host") {
            request += &format!("Host: {address}\r\n");
        }
        if !written("User-Agent") {
            request += concat!("User-Agent: portreeve/", env!("CARGO_PKG_VERSION"), "\r\n");
        }
        if !written("Accept") {
            request += "Accept: */*\r\n";
        }
        request += "Connection: close\r\n";
        for (name, value) in &self.headers {
            let is_token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            // A value from the environment may hold anything, also the beginning of another request.
            if name.is_empty() || !name.bytes().all(is_token) || !is_text(value) {
                return Err(Refusal(format!(
                    "the header {name:?} has a character that no header can have"
                )));
            }
            if !name.eq_ignore_ascii_case("Connection") {
                request += &format!("{name}: {value}\r\n");
            }
        }
        request += "\r\n";
        Ok(request)
    }
}

pub(super) async fn check(check: &HttpCheck, way: &Way, target: &ProbeTarget) -> ProbeReport {
    let address = way.to;
    let request = match check.request(address) {
        Ok(request) => request,
        Err(Refusal(why)) => return ProbeReport::fail(why),
    };
    let doubt = match tcp::owner(way, target) {
        Ok(doubt) => doubt,
        Err(report) => return report,
    };
    let connection = match tcp::connect(address, &target.sources).await {
        Ok(connection) => connection,
        Err(cause) => return tcp::refused(address, check.host, &cause, target),
    };
    let url = format!("http://{address}{}", check.path);
    match exchange(connection, &request, check).await {
        Ok(status) => ProbeReport::ok(format!("{url}: {status}{doubt}")),
        Err(Refusal(why)) => ProbeReport::fail(format!("{url}: {why}")),
    }
}

/// Sends the request, and decides at the header unless the body is asked for.
async fn exchange(connection: TcpStream, request: &str, check: &HttpCheck) -> Result<u16, Refusal> {
    let mut answer = Answer {
        connection,
        read: Vec::new(),
    };
    // A server may answer and close before it has read everything; its answer counts all the same.
    let sent = answer.connection.write_all(request.as_bytes()).await;
    let head = match (answer.head().await, sent) {
        (Ok(head), _) => head,
        (Err(why), Ok(())) => return Err(why),
        (Err(_), Err(cause)) => return Err(Refusal(format!("the request was not taken: {cause}"))),
    };
    if !check.expects(head.status) {
        return Err(Refusal(format!("answered {}", head.status)));
    }
    if let Some(text) = &check.require_body {
        answer.find(text.as_bytes(), &head).await?;
    }
    Ok(head.status)
}

/// What is read of the connection and not yet taken.
struct Answer {
    connection: TcpStream,
    read: Vec<u8>,
}

/// The final header of an answer.
struct Head {
    status: u16,
    chunked: bool,
    length: Option<u64>,
}

/// Why an answer does not count, in words.
struct Refusal(String);

impl Answer {
    /// Reads on until the final header is complete; interim ones (1xx) are skipped.
    async fn head(&mut self) -> Result<Head, Refusal> {
        for _ in 0..=MOST_INTERIM {
            let (head, size) = loop {
                if let Some(parsed) = parse(&self.read)? {
                    break parsed;
                }
                if self.read.len() >= LONGEST_HEADER {
                    return Err(Refusal("the header is longer than 16 KiB".to_owned()));
                }
                if self.more(LONGEST_HEADER).await? == 0 {
                    return Err(Refusal(
                        "closed the connection before its header ended".to_owned(),
                    ));
                }
            };
            self.read.drain(..size);
            if head.status >= 200 {
                return Ok(head);
            }
        }
        Err(Refusal(format!(
            "more than {MOST_INTERIM} interim answers (1xx)"
        )))
    }

    /// Reads the body until it contains `text`.
    async fn find(&mut self, text: &[u8], head: &Head) -> Result<(), Refusal> {
        let mut body = Body::new(head.chunked, head.length);
        loop {
            let progress = body.take(&mut self.read).map_err(Refusal)?;
            if body.contains(text) {
                return Ok(());
            }
            let ended = match progress {
                Progress::Ended => true,
                Progress::Full => false,
                Progress::More if self.more(LONGEST_HEADER).await? == 0 => true,
                Progress::More => continue,
            };
            let text = String::from_utf8_lossy(text);
            let where_ = if ended {
                "the body does"
            } else {
                "the first 64 KiB of the body do"
            };
            return Err(Refusal(format!("{where_} not contain {text:?}")));
        }
    }

    /// Reads what has come, to at most `most` bytes in all; 0 at the end of the connection.
    async fn more(&mut self, most: usize) -> Result<usize, Refusal> {
        let mut buffer = [0; 4096];
        let room = buffer.len().min(most - self.read.len().min(most));
        let read = self.connection.read(&mut buffer[..room]).await;
        let read = match read {
            Ok(read) => read,
            Err(cause) if cause.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(cause) => return Err(Refusal(format!("the answer broke off: {cause}"))),
        };
        self.read.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}

/// Reads one header; `None` if it is not complete.
fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let size = match response.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        // The first bytes of a record of TLS, whatever its version.
        Err(_) if bytes.starts_with(&[0x15, 0x03]) || bytes.starts_with(&[0x16, 0x03]) => {
            return Err(Refusal(
                "not an HTTP answer but TLS, which probes do not speak: use tcp, listening or a command".to_owned(),
            ));
        }
        Err(cause) => return Err(Refusal(format!("not an HTTP answer: {cause}"))),
    };
    let Some(status @ 100..=999) = response.code else {
        return Err(Refusal("not an HTTP answer: no status".to_owned()));
    };
    let value = |wanted: &str| {
        let mut lines = response.headers.iter();
        let line = lines.find(|line| line.name.eq_ignore_ascii_case(wanted))?;
        std::str::from_utf8(line.value).ok()
    };
    let chunked = value("Transfer-Encoding").is_some_and(|coding| {
        let last = coding.rsplit(',').next().unwrap_or_default();
        last.trim().eq_ignore_ascii_case("chunked")
    });
    let length = value("Content-Length").and_then(|text| text.trim().parse().ok());
    let head = Head {
        status,
        chunked,
        length,
    };
    Ok(Some((head, size)))
}

/// Reads a whole answer that comes in such pieces; whether its body contains the text.
#[cfg(fuzzing)]
pub(crate) fn read_answer(bytes: &[u8], text: &[u8], piece: usize) -> Result<bool, String> {
    let Some((head, size)) = parse(bytes).map_err(|Refusal(words)| words)? else {
        return Err("incomplete".to_owned());
    };
    assert!(size <= bytes.len() && (100..=999).contains(&head.status));
    let mut body = Body::new(head.chunked, head.length);
    let mut read = Vec::new();
    for piece in bytes[size..].chunks(piece.max(1)) {
        read.extend_from_slice(piece);
        let progress = body.take(&mut read)?;
        if body.contains(text) {
            return Ok(true);
        }
        if progress != Progress::More {
            break;
        }
    }
    Ok(false)
}

const MOST_INTERIM: usize = 10;
const MOST_HEADERS: usize = 100;
const LONGEST_HEADER: usize = 16 * 1024;

#[cfg(test)]
#[path = "http_test.rs"]
mod http_test;
