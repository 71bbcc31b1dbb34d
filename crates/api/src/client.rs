//! A thin client: one request, one connection, over a Unix socket, TCP or TLS.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Problem;
use crate::flow::Flow;
use crate::target::Target;
use crate::tls::{TlsFault, TlsFiles, Trust};

/// When a request was sent by the sender's clock, in milliseconds since 1970: what it tells of moments is then as old
/// as it is, however far that clock is off.
pub const SENT_HEADER: &str = "portreeve-sent";

/// The uid of the account of its machine for which an agent asks.
pub const ON_BEHALF_HEADER: &str = "portreeve-on-behalf";

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Speaks with one controller, or with the first that answers of several that stand for the same. Copies stay with the
/// same one.
#[derive(Clone)]
pub struct Client {
    targets: Arc<[Target]>,
    /// Which of them answered last.
    at: Arc<AtomicUsize>,
    trust: Arc<Trust>,
    /// Of this client and its copies.
    token: Arc<RwLock<Option<String>>>,
}

/// Whoever prints one shows no secret.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("targets", &self.targets)
            .field("token", &self.token().map(|_| "..."))
            .finish_non_exhaustive()
    }
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
    pub fn new(target: Target) -> Self {
        Self {
            targets: [target].into(),
            at: Arc::default(),
            trust: Arc::default(),
            token: Arc::default(),
        }
    }

    /// The same client with further addresses, tried in order where nobody answers at those before. A request that may
    /// have reached one is never sent to another.
    #[must_use]
    pub fn with_further(mut self, further: impl IntoIterator<Item = Target>) -> Self {
        self.targets = self.targets.iter().cloned().chain(further).collect();
        self
    }

    /// The same client with these files for https.
    #[must_use]
    pub fn with_tls(mut self, files: TlsFiles) -> Self {
        self.trust = Arc::new(Trust::of(files));
        self
    }

    /// The same client with a bearer token of its own.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.token = Arc::new(RwLock::new(token));
        self
    }

    /// From now on this client and its copies bear another token, or none.
    pub fn bear(&self, token: Option<String>) {
        // Whoever broke while it was held left a whole one behind.
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
    }

    /// What it bears now.
    pub(crate) fn token(&self) -> Option<String> {
        let token = self.token.read();
        token.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where it speaks to: the address that answered last.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.targets[self.at.load(Ordering::Relaxed) % self.targets.len()]
    }

    /// Every address, in the order given.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// All addresses, the one that answered last before the others.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = (usize, &Target)> {
        let first = self.at.load(Ordering::Relaxed);
        let count = self.targets.len();
        (0..count).map(move |nth| {
            let place = (first + nth) % count;
            (place, &self.targets[place])
        })
    }

    /// The address at this place answers.
    pub(crate) fn stay_at(&self, place: usize) {
        self.at.store(place, Ordering::Relaxed);
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
        let mut flow = Flow::begin(self, request).await?;
        let body = flow.rest(Self::MAX_BODY).await?;
        Ok(Reply {
            status: flow.status,
            headers: flow.headers,
            body,
        })
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
        if let Some(token) = self.token() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|cause| self.garbled(cause.to_string()))
    }

    /// `GET path` answered with `media_type` and no end of its own, to be read piece by piece.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub(crate) async fn open(
        &self,
        path: &str,
        mut headers: HeaderMap,
        media_type: &'static str,
        within: Duration,
    ) -> Result<Flow, ClientError> {
        headers.insert(header::ACCEPT, HeaderValue::from_static(media_type));
        let opened = async {
            let mut request = self.request(Method::GET, path, None, media_type)?;
            request.headers_mut().extend(headers);
            let mut flow = Flow::begin(self, request).await?;
            if flow.status != StatusCode::OK {
                let body = flow.rest(Self::MAX_BODY).await?;
                return Err(self.refused(flow.status, &body));
            }
            let kind = flow.headers.get(header::CONTENT_TYPE);
            let kind = kind.and_then(|kind| kind.to_str().ok());
            if !kind.is_some_and(|kind| kind.starts_with(media_type)) {
                let kind = kind.unwrap_or("no content type");
                return Err(self.garbled(format!("{kind} in place of {media_type}")));
            }
            Ok(flow)
        };
        let opened = tokio::time::timeout(within, opened).await;
        opened.unwrap_or_else(|_| Err(self.late(within)))
    }

    /// `GET path` answered with `media_type`, however long, to be read piece by piece as it comes.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn download(
        &self,
        path: &str,
        media_type: &'static str,
        within: Duration,
    ) -> Result<Download, ClientError> {
        let flow = self.open(path, HeaderMap::new(), media_type, within);
        Ok(Download {
            flow: flow.await?,
            within,
            client: self.clone(),
        })
    }

    fn late(&self, within: Duration) -> ClientError {
        let target = self.target().clone();
        ClientError::Timeout { target, within }
    }

    /// What an answer that is no success says.
    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<Problem>(body) {
            // An agent that asks for the people of its host says so in its place.
            Ok(problem) if problem.code == Problem::CONTROLLER_UNREACHABLE => {
                ClientError::Unreachable {
                    target: self.target().clone(),
                    reason: problem.detail,
                }
            }
            Ok(problem) => ClientError::Refused(Box::new(problem)),
            // What stands before a controller says so in its place.
            Err(_) if (502..=504).contains(&status.as_u16()) => ClientError::Unreachable {
                target: self.target().clone(),
                reason: format!("HTTP {status}"),
            },
            Err(_) => self.garbled(format!("HTTP {status} without a reason")),
        }
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|cause| self.garbled(cause.to_string()))
    }

    fn garbled(&self, reason: String) -> ClientError {
        ClientError::Garbled {
            target: self.target().clone(),
            reason,
        }
    }
}

/// A long answer on its way. Dropped, its connection is closed.
pub struct Download {
    flow: Flow,
    within: Duration,
    client: Client,
}

impl Download {
    /// The next piece, `None` at the end; each has as long as the head of the answer had.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unreachable`] if the connection is cut before the end, [`ClientError::Timeout`].
    pub async fn piece(&mut self) -> Result<Option<Bytes>, ClientError> {
        let piece = tokio::time::timeout(self.within, self.flow.piece());
        let piece = piece.await;
        piece.unwrap_or_else(|_| Err(self.client.late(self.within)))
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
    /// Somebody answers, but not as TLS asks for; nothing was asked.
    #[error("{target}: {fault}")]
    Tls {
        /// Where.
        target: Target,
        /// What is wrong.
        fault: TlsFault,
    },
    /// A token is for the controller alone, and everybody on the way could read it.
    #[error(
        "no token is sent to {target}: it would go over the network in the clear; name the controller with https://"
    )]
    TokenInClear {
        /// Where.
        target: Target,
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

    /// How many bytes come of a download that is said to have so many megabytes.
    async fn downloaded(said: usize, sent: usize) -> Result<usize, ClientError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::new(target.parse().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 4096];
            _ = stream.read(&mut asked).await.unwrap();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/gzip\r\ncontent-length: {}\r\n\r\n",
                said << 20
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..sent {
                stream.write_all(&vec![0; 1 << 20]).await.unwrap();
            }
        };
        let read = async {
            let within = Duration::from_secs(60);
            let mut download = client.download("/", "application/gzip", within).await?;
            let mut bytes = 0;
            while let Some(piece) = download.piece().await? {
                bytes += piece.len();
            }
            Ok(bytes)
        };
        tokio::join!(read, serve).0
    }

    #[tokio::test]
    async fn a_download_may_be_longer_than_any_answer_but_not_shorter_than_it_says() {
        let long = (Client::MAX_BODY >> 20) + 1;
        assert_eq!(downloaded(long, long).await.unwrap(), long << 20);
        let cut = downloaded(3, 2).await;
        assert!(
            matches!(cut, Err(ClientError::Unreachable { .. })),
            "{cut:?}"
        );
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
