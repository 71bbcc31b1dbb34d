//! One connection to a controller, over a Unix socket or TCP.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::client::{ClientError, Target};

/// What bytes go over.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// How long a connect may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A new connection to `target`.
///
/// # Errors
///
/// [`ClientError::Unreachable`] if nobody answers there within [`CONNECT_TIMEOUT`].
pub(crate) async fn connect(target: &Target) -> Result<Box<dyn Wire>, ClientError> {
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
    let reason = match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
        Ok(Ok(wire)) => return Ok(wire),
        Ok(Err(cause)) => cause.to_string(),
        Err(_) => format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()),
    };
    let target = target.clone();
    Err(ClientError::Unreachable { target, reason })
}
