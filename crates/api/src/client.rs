//! A thin client: one request, one connection, over a Unix socket or TCP.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Problem;
use crate::wire::{self, Wire};

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
    pub const CONNECT_TIMEOUT: Duration = wire::CONNECT_TIMEOUT;

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
        let reply = tokio::time::timeout(within, exchange);
        let reply = reply.await.map_err(|_| self.late(within))??;
        if reply.status.is_success() || reply.status == StatusCode::NOT_MODIFIED {
            return Ok(reply);
        }
        Err(self.refused(reply.status, &reply.body))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Option<Bytes>,
        media_type: &str,
    ) -> Result<Reply, ClientError> {
        let mut request = self.request(method, path, body, media_type)?;
        request.headers_mut().extend(headers);
        let wire = wire::connect(&self.target).await?;
        self.speak(wire, request).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        media_type: &str,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
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
        request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|cause| self.garbled(cause.to_string()))
    }

    async fn speak(
        &self,
        wire: Box<dyn Wire>,
        request: Request<Full<Bytes>>,
    ) -> Result<Reply, ClientError> {
        let cut = |cause| self.cut(&cause);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(wire))
            .await
            .map_err(cut)?;
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(cut)?;
            self.whole(answer).await
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

    /// The answer with its whole body.
    async fn whole(&self, answer: http::Response<Incoming>) -> Result<Reply, ClientError> {
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, Self::MAX_BODY).collect().await;
        let body = body.map_err(|cause| self.half(&*cause))?.to_bytes();
        Ok(Reply {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }

    /// `GET path` answered with `media_type` and no end: the answer's body, to be read piece by piece.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]: none of its pieces was read then.
    pub(crate) async fn open(
        &self,
        path: &str,
        headers: HeaderMap,
        media_type: &str,
        within: Duration,
    ) -> Result<Flow, ClientError> {
        let opened = async {
            let mut request = self.request(Method::GET, path, None, media_type)?;
            request.headers_mut().extend(headers);
            let accept = HeaderValue::from_str(media_type);
            let accept = accept.map_err(|cause| self.garbled(cause.to_string()))?;
            request.headers_mut().insert(header::ACCEPT, accept);
            let wire = TokioIo::new(wire::connect(&self.target).await?);
            let cut = |cause| self.cut(&cause);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(wire)
                .await
                .map_err(cut)?;
            let mut connection: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(connection);
            let mut connected = true;
            let answer = {
                let mut answer = std::pin::pin!(sender.send_request(request));
                std::future::poll_fn(|context| {
                    if connected {
                        connected = connection.as_mut().poll(context).is_pending();
                    }
                    answer.as_mut().poll(context)
                })
                .await
                .map_err(cut)?
            };
            let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
            let mut flow = Flow {
                client: self.clone(),
                status: answer.status(),
                body: answer.into_body(),
                connection: connected.then_some(connection),
                _sender: sender,
            };
            if flow.status != StatusCode::OK {
                return Err(flow.refusal().await);
            }
            let kind = kind.as_ref().and_then(|kind| kind.to_str().ok());
            if !kind.is_some_and(|kind| kind.starts_with(media_type)) {
                let kind = kind.unwrap_or("no content type");
                return Err(self.garbled(format!("{kind} in place of {media_type}")));
            }
            Ok(flow)
        };
        match tokio::time::timeout(within, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(self.late(within)),
        }
    }

    fn late(&self, within: Duration) -> ClientError {
        let target = self.target.clone();
        ClientError::Timeout { target, within }
    }

    fn cut(&self, cause: &hyper::Error) -> ClientError {
        ClientError::Unreachable {
            target: self.target.clone(),
            reason: cause.to_string(),
        }
    }

    /// What an answer that is no success says.
    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => ClientError::Refused(Box::new(problem)),
            // What stands before a controller says so in its place.
            Err(_) if (502..=504).contains(&status.as_u16()) => ClientError::Unreachable {
                target: self.target.clone(),
                reason: format!("HTTP {status}"),
            },
            Err(_) => self.garbled(format!("HTTP {status} without a reason")),
        }
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

/// An answer's body that has no end of its own. Dropped, its connection is closed.
pub(crate) struct Flow {
    client: Client,
    status: StatusCode,
    body: Incoming,
    /// Driven by who reads; `None` once it ended.
    connection: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    _sender: SendRequest<Full<Bytes>>,
}

impl Flow {
    /// The most bytes of a refusal that are read.
    const MAX_REFUSAL: usize = 64 << 10;

    /// The next piece, `None` at the end. Dropping the call loses nothing.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unreachable`] if the connection is cut.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = std::future::poll_fn(|context| {
                if let Some(connection) = &mut self.connection
                    && connection.as_mut().poll(context).is_ready()
                {
                    self.connection = None;
                }
                Pin::new(&mut self.body).poll_frame(context)
            });
            match frame.await {
                None => return Ok(None),
                Some(Err(cause)) => return Err(self.client.cut(&cause)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// What it says, being no success.
    async fn refusal(&mut self) -> ClientError {
        let mut body = Vec::new();
        while let Ok(Some(piece)) = self.piece().await {
            body.extend_from_slice(&piece);
            if body.len() > Self::MAX_REFUSAL {
                break;
            }
        }
        self.client.refused(self.status, &body)
    }
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
