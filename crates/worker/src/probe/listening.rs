//! Readiness without a connection: every published TCP port has a listener of the replica that clients reach.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use portreeve::port::Port;
use portreeve_api::sockets::{self, Listener, Side};

use super::owner::{Holder, Ownership, ownership};
use super::tcp::strangers;
use super::{ProbeReport, ProbeTarget, TargetPort, address, tcp};

pub(super) async fn check(target: &ProbeTarget) -> ProbeReport {
    let mut unproven = Vec::new();
    for port in target.ports.iter().filter(|port| port.publish) {
        match look(port, target) {
            Found::Reached => {}
            Found::Missing(why) => return ProbeReport::fail(why),
            // Who listens cannot be told; that somebody answers is the most there is.
            Found::Unknown(number, why) => {
                let address = SocketAddr::new(target.address_of(number), number.number());
                if let Err(cause) = tcp::connect(address, &target.sources).await {
                    return tcp::refused(address, None, &cause, target);
                }
                unproven.push(why);
            }
        }
    }
    ProbeReport::ok(if unproven.is_empty() {
        "every published port has its listener".to_owned()
    } else {
        unproven.join("; ")
    })
}

enum Found {
    Reached,
    Missing(String),
    /// Whether it is ours cannot be known, and why.
    Unknown(Port, String),
}

/// One number of the port must have a listener; of a single port it is the only one.
fn look(port: &TargetPort, target: &ProbeTarget) -> Found {
    let found = match listeners(port) {
        Ok(found) => found,
        Err(cause) => {
            let number = port.numbers.first();
            let why = format!("who listens on {number} cannot be asked: {cause}");
            return Found::Unknown(number, why);
        }
    };
    let mut seen = Seen::default();
    for (number, found) in found {
        if look_at(&found, number, port, target, &mut seen) == Look::Reached {
            return Found::Reached;
        }
    }
    if let Some((bound, number)) = seen.elsewhere {
        return Found::Missing(address::wrong_address(bound, number, target));
    }
    if let Some(number) = seen.unknown {
        let why = format!("whose listener {number} is cannot be read; it answers");
        return Found::Unknown(number, why);
    }
    Found::Missing(match seen.stranger {
        Some((number, holder)) => strangers(number, holder.as_ref()),
        None => address::nothing_listens(port.numbers, target),
    })
}

#[derive(PartialEq, Eq)]
enum Look {
    Reached,
    Further,
}

/// What was found beside a listener that serves clients.
#[derive(Default)]
struct Seen {
    elsewhere: Option<(SocketAddr, Port)>,
    stranger: Option<(Port, Option<Holder>)>,
    unknown: Option<Port>,
}

/// Whoever answers clients of the number must be the replica, and nobody else beside it.
fn look_at(
    found: &[Listener],
    number: Port,
    port: &TargetPort,
    target: &ProbeTarget,
    seen: &mut Seen,
) -> Look {
    let whose = |listener: &Listener| ownership(listener, port.owner, target.root.as_ref());
    let answering = sockets::answering(found, target.address_of(number));
    let mut own = 0;
    for listener in &answering {
        match whose(listener) {
            Ownership::Own => own += 1,
            Ownership::Stranger(holder) => seen.stranger = Some((number, holder)),
            Ownership::Unreadable => seen.unknown = Some(number),
        }
    }
    if own > 0 && own == answering.len() {
        return Look::Reached;
    }
    if answering.is_empty() {
        for listener in found {
            match whose(listener) {
                Ownership::Own if accepts(listener, number, target) => {
                    return Look::Reached;
                }
                Ownership::Own => seen.elsewhere = Some((listener.address, number)),
                Ownership::Stranger(holder) => seen.stranger = Some((number, holder)),
                Ownership::Unreadable => seen.unknown = Some(number),
            }
        }
    }
    Look::Further
}

/// The listeners of the port by number. A single one is asked for exactly; for a block everything is read once.
fn listeners(port: &TargetPort) -> io::Result<BTreeMap<Port, Vec<Listener>>> {
    let all = if port.numbers.first() == port.numbers.last() {
        sockets::listeners(Side::Tcp, port.numbers.first())?
    } else {
        sockets::all_listeners(Side::Tcp)?
    };
    let mut found: BTreeMap<Port, Vec<Listener>> = BTreeMap::new();
    for listener in all {
        let number = Port::new(listener.address.port());
        if let Some(number) = number.filter(|number| port.numbers.contains(*number)) {
            found.entry(number).or_default().push(listener);
        }
    }
    Ok(found)
}

fn accepts(listener: &Listener, number: Port, target: &ProbeTarget) -> bool {
    target.anywhere || listener.address.ip().is_loopback() && target.accepts_loopback(number)
}
