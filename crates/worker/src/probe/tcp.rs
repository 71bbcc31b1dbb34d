//! One connect.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use portreeve::port::Port;
use portreeve_api::sockets;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use super::address::Way;
use super::owner::{Holder, Ownership, ownership};
use super::{ProbeReport, ProbeTarget, SourcePorts, address};

pub(super) async fn check(way: &Way, target: &ProbeTarget) -> ProbeReport {
    let (address, host) = (way.to, way.host);
    let doubt = match owner(way, target) {
        Ok(doubt) => doubt,
        Err(report) => return report,
    };
    match connect(address, &target.sources).await {
        Ok(_) => ProbeReport::ok(format!("{address} takes connections{doubt}")),
        Err(cause) => refused(address, host, &cause, target),
    }
}

/// Connects, so that the close leaves nothing behind.
///
/// A normal close by the side that closes first leaves `TIME_WAIT`. Where the service closes first, that would
/// be on its own number, and a restart without `SO_REUSEADDR` could not bind it.
pub(super) async fn connect(address: SocketAddr, sources: &SourcePorts) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    sources.bind(&socket, address)?;
    let stream = socket.connect(address).await?;
    // Only where no number of ours was free and the kernel chose this very one.
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
    host: Option<IpAddr>,
    cause: &io::Error,
    target: &ProbeTarget,
) -> ProbeReport {
    if cause.kind() != io::ErrorKind::ConnectionRefused {
        return ProbeReport::of_refusal(&address.to_string(), cause);
    }
    // An address the profile chose may be another machine's, of which our listeners tell nothing.
    let why = match host {
        None => address::why_refused(address.port(), target),
        Some(_) => None,
    };
    ProbeReport::fail(why.unwrap_or_else(|| format!("{address} refuses connections")))
}

/// Whether the replica is who answers at `address`, of those `found` there: nothing to say, or that it cannot be told.
///
/// # Errors
///
/// It is certain that somebody else answers.
pub(super) fn owner(way: &Way, target: &ProbeTarget) -> Result<&'static str, ProbeReport> {
    let address = way.to;
    // What listens on an address the profile chose is the profile's choice.
    let port = Port::new(address.port()).filter(|_| way.host.is_none());
    let Some((port, owner)) = port.and_then(|port| Some((port, target.port(port)?.owner))) else {
        return Ok("");
    };
    let Some(found) = &way.found else {
        return Ok(UNPROVEN);
    };
    let mut doubt = "";
    for listener in sockets::answering(found, address.ip()) {
        match ownership(listener, owner, target.root.as_ref()) {
            Ownership::Own => {}
            Ownership::Unreadable => doubt = UNPROVEN,
            Ownership::Stranger(holder) => {
                return Err(ProbeReport::fail(strangers(port, holder.as_ref())));
            }
        }
    }
    Ok(doubt)
}

const UNPROVEN: &str = "; whose listener it is cannot be read";

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
