//! A thin client: one request, one connection, over a Unix socket or TCP.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, UnixStream};

use crate::Problem;

/// Where a controller answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Unix socket on this machine.
    Unix(PathBuf),
    /// `host:port`.
    Tcp(String),
}

impl FromStr for Target {
    type Err = ParseTargetError;

    /// Reads `unix:/path`, `/path`, `http://host:port` or `host:port`.
    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        let authority = text
            .strip_prefix("http://")
            .unwrap_or(text)
            .trim_end_matches('/');
        match authority.rsplit_once(':') {
            Some((host, port))
                if !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() =>
            {
                Ok(Self::Tcp(authority.to_owned()))
            }
            _ => Err(ParseTargetError {
                text: text.chars().take(64).collect(),
            }),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(authority) => write!(f, "http://{authority}"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Target {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Not the address of a controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no controller address: write unix:/path/to/controller.sock or http://host:port"
)]
pub struct ParseTargetError {
    text: String,
}

/// When a request was sent by the sender's clock, in milliseconds since 1970: what it tells of moments is then as old
/// as it is, however far that clock is off.
pub const SENT_HEADER: &str = "portreeve-sent";

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Speaks with one controller.
#[derive(Clone, Debug)]
pub struct Client {
    target: Target,
    token: Option<String>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Reply {
    /// 2xx or 304.
    pub status: StatusCode,
    /// The answer's headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Client {
    /// The most bytes of an answer; longer ones are refused.
    pub const MAX_BODY: usize = 64 << 20;
    /// How long a connect may take.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// A client of `target` without a token.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self {
            target,
            token: None,
        }
    }

    /// The same client with a bearer token.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Where it speaks to.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// `GET path` read as JSON.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        within: Duration,
    ) -> Result<T, ClientError> {
        let reply = self
            .send(Method::GET, path, None, "application/json", within)
            .await?;
        self.read(&reply.body)
    }

    /// `method path` with a JSON body; the answer read as JSON.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|cause| self.garbled(cause.to_string()))?;
        let reply = self
            .send(method, path, Some(body.into()), "application/json", within)
            .await?;
        self.read(&reply.body)
    }

    /// One request with a ready body; the answer raw.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        media_type: &str,
        within: Duration,
    ) -> Result<Reply, ClientError> {
        self.send_with(method, path, HeaderMap::new(), body, media_type, within)
            .await
    }

    /// [`Client::send`] with further headers.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<Bytes>,
        media_type: &str,
        within: Duration,
    ) -> Result<Reply, ClientError> {
        let exchange = self.exchange(method, path, headers, body, media_type);
        let reply =
            tokio::time::timeout(within, exchange)
                .await
                .map_err(|_| ClientError::Timeout {
                    target: self.target.clone(),
                    within,
                })??;
        if reply.status.is_success() || reply.status == StatusCode::NOT_MODIFIED {
            return Ok(reply);
        }
        match serde_json::from_slice::<Problem>(&reply.body) {
            Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
            Err(_) => Err(self.garbled(format!("HTTP {} without a reason", reply.status))),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<Bytes>,
        media_type: &str,
    ) -> Result<Reply, ClientError> {
        let unreachable = |reason: String| ClientError::Unreachable {
            target: self.target.clone(),
            reason,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "portreeve")
            .header(header::ACCEPT, "application/json, text/plain;q=0.9")
            .header(SENT_HEADER, unix_millis());
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, media_type);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let mut request = request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|cause| self.garbled(cause.to_string()))?;
        request.headers_mut().extend(headers);
        let connect = async {
            match &self.target {
                Target::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
                Target::Tcp(authority) => TcpStream::connect(authority).await.map(Stream::Tcp),
            }
        };
        let stream = match tokio::time::timeout(Self::CONNECT_TIMEOUT, connect).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(cause)) => return Err(unreachable(cause.to_string())),
            Err(_) => return Err(unreachable("no connection within 5 s".to_owned())),
        };
        match stream {
            Stream::Unix(stream) => self.speak(TokioIo::new(stream), request).await,
            Stream::Tcp(stream) => {
                // Small requests and answers: waiting to fill a packet costs 40 ms each.
                stream
                    .set_nodelay(true)
                    .map_err(|cause| unreachable(cause.to_string()))?;
                self.speak(TokioIo::new(stream), request).await
            }
        }
    }

    async fn speak<S>(
        &self,
        stream: TokioIo<S>,
        request: Request<Full<Bytes>>,
    ) -> Result<Reply, ClientError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let cut = |cause: hyper::Error| ClientError::Unreachable {
            target: self.target.clone(),
            reason: cause.to_string(),
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
            .await
            .map_err(cut)?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(cut)?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, Self::MAX_BODY).collect().await;
            let body = body.map_err(|cause| self.half(&*cause))?.to_bytes();
            Ok(Reply {
                status: parts.status,
                headers: parts.headers,
                body,
            })
        };
        tokio::pin!(exchange);
        tokio::pin!(connection);
        // The connection is driven here, so that dropping the call also drops it: no task is left behind.
        let mut connected = true;
        std::future::poll_fn(|context| {
            if connected {
                // An error of the connection reaches the exchange too, with its words.
                connected = connection.as_mut().poll(context).is_pending();
            }
            exchange.as_mut().poll(context)
        })
        .await
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|cause| self.garbled(cause.to_string()))
    }

    /// An answer that began and has no end here.
    fn half(&self, cause: &(dyn std::error::Error + Send + Sync + 'static)) -> ClientError {
        let target = self.target.clone();
        if cause.is::<LengthLimitError>() {
            return ClientError::TooLong { target };
        }
        let reason = cause.to_string();
        ClientError::Unreachable { target, reason }
    }

    fn garbled(&self, reason: String) -> ClientError {
        ClientError::Garbled {
            target: self.target.clone(),
            reason,
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Why a call has no good answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody answers there.
    #[error("no controller answers at {target}: {reason}")]
    Unreachable {
        /// Where.
        target: Target,
        /// The system's words.
        reason: String,
    },
    /// It refused; nothing changed.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// It did not answer in time; whether anything changed is unknown.
    #[error("no answer from {target} within {} s", within.as_secs())]
    Timeout {
        /// Where.
        target: Target,
        /// How long it had.
        within: Duration,
    },
    /// The answer has more bytes than [`Client::MAX_BODY`].
    #[error("{target} answers with more than {} MiB; ask for less, such as one service", Client::MAX_BODY >> 20)]
    TooLong {
        /// Where.
        target: Target,
    },
    /// The answer is not ours.
    #[error("{target} answered what is not the portreeve protocol: {reason}")]
    Garbled {
        /// Where.
        target: Target,
        /// What was found.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What a call of a controller says that answers these bytes, the last so many times, and goes.
    async fn answered(
        head: &str,
        rest: &[u8],
        times: usize,
    ) -> Result<serde_json::Value, ClientError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::new(target.parse().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 4096];
            _ = stream.read(&mut asked).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..times {
                if stream.write_all(rest).await.is_err() {
                    break;
                }
            }
        };
        let call = client.get("/", Duration::from_secs(60));
        tokio::join!(call, serve).0
    }

    #[tokio::test]
    async fn a_controller_that_goes_in_the_middle_of_an_answer_does_not_answer() {
        let answer = answered("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", b"{", 1).await;
        assert!(
            matches!(answer, Err(ClientError::Unreachable { .. })),
            "{answer:?}"
        );
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_too_long() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n";
        let answer = answered(head, &[b' '; 1 << 20], 65).await;
        assert!(
            matches!(answer, Err(ClientError::TooLong { .. })),
            "{answer:?}"
        );
    }
}
