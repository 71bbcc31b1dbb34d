//! One request over one connection, and its answer as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::client::{Client, ClientError};
use crate::target::Target;

/// An answer whose body is read piece by piece. Dropped, its connection is closed.
pub(crate) struct Flow {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    target: Target,
    body: Incoming,
    line: Line,
    _sender: SendRequest<Full<Bytes>>,
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
    pub(crate) async fn begin(
        client: &Client,
        request: Request<Full<Bytes>>,
    ) -> Result<Self, ClientError> {
        let target = client.target();
        let cut = |cause| cut(target, &cause);
        let wire = TokioIo::new(connect(target).await?);
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
            _sender: sender,
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

fn cut(target: &Target, cause: &hyper::Error) -> ClientError {
    ClientError::Unreachable {
        target: target.clone(),
        reason: cause.to_string(),
    }
}

/// What bytes go over.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

async fn connect(target: &Target) -> Result<Box<dyn Wire>, ClientError> {
    let connect = async {
        let wire: Box<dyn Wire> = match target {
            Target::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Target::Tcp(authority) => {
                let stream = TcpStream::connect(authority).await?;
                // Small requests and answers: waiting to fill a packet costs 40 ms each.
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        Ok::<_, std::io::Error>(wire)
    };
    let reason = match tokio::time::timeout(Client::CONNECT_TIMEOUT, connect).await {
        Ok(Ok(wire)) => return Ok(wire),
        Ok(Err(cause)) => cause.to_string(),
        Err(_) => format!(
            "no connection within {} s",
            Client::CONNECT_TIMEOUT.as_secs()
        ),
    };
    let target = target.clone();
    Err(ClientError::Unreachable { target, reason })
}
