//! One connect.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use portreeve::port::Port;
use portreeve_api::sockets::{self, Side};
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use super::owner::{Holder, Ownership, ownership};
use super::{ProbeReport, ProbeTarget, address};

pub(super) async fn check(port: Port, host: Option<IpAddr>, target: &ProbeTarget) -> ProbeReport {
    // What listens on an address the profile chose is the profile's choice.
    if host.is_none()
        && let Some(report) = stranger(port, target)
    {
        return report;
    }
    let address = address::of(port, host, target);
    match connect(address).await {
        Ok(_) => ProbeReport::ok(format!("{address} takes connections")),
        Err(cause) => refused(address, port, &cause, target),
    }
}

/// Connects, so that the close leaves nothing behind.
///
/// A normal close by the side that closes first leaves `TIME_WAIT`. Where the service closes first, that would
/// be on its own number, and a restart without `SO_REUSEADDR` could not bind it.
pub(super) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    let stream = socket.connect(address).await?;
    // The kernel may choose the very number as the source and connect it to itself, where nobody listens.
    // Choosing the source outside the pools needs `IP_LOCAL_PORT_RANGE`, for which no safe wrapper exists yet.
    if stream.local_addr()? == address {
        return Err(io::Error::other(
            "nothing listens; the connection reached itself",
        ));
    }
    Ok(stream)
}

/// A connection that was not made, with the reason if it is known.
pub(super) fn refused(
    address: SocketAddr,
    port: Port,
    cause: &io::Error,
    target: &ProbeTarget,
) -> ProbeReport {
    let why = if cause.kind() == io::ErrorKind::ConnectionRefused {
        address::why_unreachable(port, target)
    } else {
        None
    };
    match why {
        Some(why) => ProbeReport::fail(why),
        None if cause.kind() == io::ErrorKind::ConnectionRefused => {
            ProbeReport::fail(format!("{address} refuses connections"))
        }
        None => ProbeReport::of_refusal(&address.to_string(), cause),
    }
}

/// Somebody listens, and it is certain that nobody of the replica does.
fn stranger(port: Port, target: &ProbeTarget) -> Option<ProbeReport> {
    let owner = target.port(port)?.owner;
    let found = sockets::listeners(Side::Tcp, port).ok()?;
    let mut holder = None;
    for listener in &found {
        match ownership(listener, owner, target.root.as_ref()) {
            Ownership::Own | Ownership::Unreadable => return None,
            Ownership::Stranger(of) => holder = Some(of),
        }
    }
    holder.map(|holder| ProbeReport::fail(strangers(port, holder.as_ref())))
}

/// Somebody else serves the number.
pub(super) fn strangers(port: Port, holder: Option<&Holder>) -> String {
    let who = match holder {
        Some(Holder {
            pid,
            comm: Some(comm),
        }) => format!("{comm} (pid {pid})"),
        Some(Holder { pid, comm: None }) => format!("pid {pid}"),
        None => "a process that cannot be read".to_owned(),
    };
    format!("{port} is served by {who}, which is not of this replica")
}
