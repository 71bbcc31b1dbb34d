//! One request over one connection, and its answer as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode, header};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::client::{Client, ClientError};
use crate::target::Target;
use crate::tls::{TlsFault, Trust};

/// An answer whose body is read piece by piece. Dropped, its connection is closed.
pub(crate) struct Flow {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    target: Target,
    body: Incoming,
    line: Line,
    /// The connection ends with it.
    _sender: Box<dyn Send>,
}

/// The connection, driven by whoever waits for what comes over it, so that dropping the wait also drops it: no task is
/// left behind. `None` once it ended; its errors reach who reads too, with their words.
struct Line(Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>);

impl Line {
    fn drive(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.0
            && connection.as_mut().poll(context).is_ready()
        {
            self.0 = None;
        }
    }
}

impl Flow {
    /// Connects, asks, and waits for the head of the answer.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unreachable`] if nobody answers within [`Client::CONNECT_TIMEOUT`], or the connection is cut.
    pub(crate) async fn begin<B>(client: &Client, request: Request<B>) -> Result<Self, ClientError>
    where
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let bears_token = request.headers().contains_key(header::AUTHORIZATION);
        let (target, wire) = connect(client, bears_token).await?;
        let cut = |cause| cut(target, &cause);
        let wire = TokioIo::new(wire);
        let (mut sender, connection) = handshake(wire).await.map_err(cut)?;
        let mut line = Line(Some(Box::pin(connection)));
        let answer = {
            let mut answer = std::pin::pin!(sender.send_request(request));
            std::future::poll_fn(|context| {
                line.drive(context);
                answer.as_mut().poll(context)
            })
            .await
            .map_err(cut)?
        };
        let (parts, body) = answer.into_parts();
        Ok(Self {
            status: parts.status,
            headers: parts.headers,
            target: target.clone(),
            body,
            line,
            _sender: Box::new(sender),
        })
    }

    /// The next piece, `None` at the end. Dropping the call loses nothing.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unreachable`] if the connection is cut before the end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = std::future::poll_fn(|context| -> Poll<_> {
                self.line.drive(context);
                Pin::new(&mut self.body).poll_frame(context)
            });
            match frame.await {
                None => return Ok(None),
                Some(Err(cause)) => return Err(cut(&self.target, &cause)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// All that is still to come.
    ///
    /// # Errors
    ///
    /// As of [`Flow::piece`]; [`ClientError::TooLong`] if there is more than `most` bytes.
    pub(crate) async fn rest(&mut self, most: usize) -> Result<Bytes, ClientError> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            if whole.len() + piece.len() > most {
                let target = self.target.clone();
                return Err(ClientError::TooLong { target });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}

/// The body of the answer alone, for who passes it on.
impl Body for Flow {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.line.drive(context);
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn cut(target: &Target, cause: &hyper::Error) -> ClientError {
    let target = target.clone();
    // A controller that wants to know the client says so after the greeting, when something is asked.
    if let Some(fault) = TlsFault::beneath(cause) {
        return ClientError::Tls { target, fault };
    }
    let reason = if cause.is_parse() && !target.is_tls() {
        format!("{cause}; a port with TLS is named https://")
    } else {
        cause.to_string()
    };
    ClientError::Unreachable { target, reason }
}

/// What bytes go over.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// The first address of the client that answers, and the way to it.
async fn connect(
    client: &Client,
    bears_token: bool,
) -> Result<(&Target, Box<dyn Wire>), ClientError> {
    let mut failed: Option<ClientError> = None;
    for (place, target) in client.in_turn() {
        match connect_to(target, client.trust(), bears_token).await {
            Ok(wire) => {
                client.stay_at(place);
                return Ok((target, wire));
            }
            Err(cause) => {
                failed = Some(match failed {
                    None => cause,
                    Some(before) => both(before, cause),
                });
            }
        }
    }
    Err(failed.expect("a client has at least one address"))
}

/// One error of two. What can be mended here is told rather than who is away.
fn both(first: ClientError, second: ClientError) -> ClientError {
    match (first, &second) {
        (ClientError::Unreachable { target, reason }, ClientError::Unreachable { .. }) => {
            let reason = format!("{reason}; {second}");
            ClientError::Unreachable { target, reason }
        }
        (ClientError::Unreachable { .. }, _) => second,
        (first, _) => first,
    }
}

async fn connect_to(
    target: &Target,
    trust: &Trust,
    bears_token: bool,
) -> Result<Box<dyn Wire>, ClientError> {
    let unreachable = |reason: String| {
        let target = target.clone();
        ClientError::Unreachable { target, reason }
    };
    let io = |cause: std::io::Error| unreachable(cause.to_string());
    let connect = async {
        let wire: Box<dyn Wire> = match target {
            Target::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(io)?),
            Target::Tcp(authority) => {
                let stream = TcpStream::connect(authority).await.map_err(io)?;
                let far = stream.peer_addr().map_err(io)?.ip().to_canonical();
                if bears_token && !far.is_loopback() {
                    let target = target.clone();
                    return Err(ClientError::TokenInClear { target });
                }
                // Small requests and answers: waiting to fill a packet costs 40 ms each.
                stream.set_nodelay(true).map_err(io)?;
                Box::new(stream)
            }
            Target::Tls(authority) => {
                let stream = TcpStream::connect(authority).await.map_err(io)?;
                stream.set_nodelay(true).map_err(io)?;
                let fault = |fault| {
                    let target = target.clone();
                    ClientError::Tls { target, fault }
                };
                let config = trust.config().map_err(|cause| fault(cause.into()))?;
                let name = server_name(authority).map_err(unreachable)?;
                let connected = TlsConnector::from(config).connect(name, stream).await;
                Box::new(connected.map_err(|cause| match TlsFault::beneath(&cause) {
                    Some(found) => fault(found),
                    None => io(cause),
                })?)
            }
        };
        Ok(wire)
    };
    let connected = tokio::time::timeout(Client::CONNECT_TIMEOUT, connect).await;
    connected.unwrap_or_else(|_| {
        let seconds = Client::CONNECT_TIMEOUT.as_secs();
        Err(unreachable(format!("no connection within {seconds} s")))
    })
}

/// Whom the certificate has to be for.
fn server_name(authority: &str) -> Result<ServerName<'static>, String> {
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned())
        .map_err(|_| format!("{bare:?} is neither a host name nor an address"))
}
