//! Readiness without a connection: every published TCP port has a listener of the replica that clients reach.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use portreeve::port::Port;
use portreeve_api::sockets::{self, Listener, Side};

use super::owner::{self, Holder, Ownership, ownership};
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
                let address = SocketAddr::new(target.address, number.number());
                if let Err(cause) = tcp::connect(address).await {
                    return tcp::refused(address, number, &cause, target);
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
    let mut elsewhere = None;
    let mut stranger: Option<(Port, Option<Holder>)> = None;
    let mut unknown = None;
    for number in port.numbers.iter() {
        let found = match sockets::listeners(Side::Tcp, number) {
            Ok(found) => found,
            Err(cause) => {
                let why = format!("who listens on {number} cannot be asked: {cause}");
                return Found::Unknown(number, why);
            }
        };
        for listener in found {
            match ownership(&listener, port.owner, target.root.as_ref()) {
                Ownership::Own if reaches(&listener, number, target) => return Found::Reached,
                Ownership::Own => elsewhere = Some(listener.address),
                Ownership::Stranger(holder) => stranger = Some((number, holder)),
                Ownership::Unreadable => unknown = Some(number),
            }
        }
    }
    if let Some(bound) = elsewhere {
        return Found::Missing(address::wrong_address(bound, target.address));
    }
    if let Some(number) = unknown {
        let why = format!("whose listener {number} is cannot be read; it answers");
        return Found::Unknown(number, why);
    }
    Found::Missing(match stranger {
        Some((number, holder)) => strangers(number, holder.as_ref()),
        None => nothing_listens(port, target),
    })
}

fn reaches(listener: &Listener, number: Port, target: &ProbeTarget) -> bool {
    let loopback = listener.address.ip().is_loopback();
    listener.covers(target.address) || loopback && target.accepts_loopback(number)
}

/// The usual cause is a service that ignores its variables, so what it listens on instead is told.
fn nothing_listens(port: &TargetPort, target: &ProbeTarget) -> String {
    const SHOWN: usize = 5;
    let (first, last) = (port.numbers.first(), port.numbers.last());
    let mut text = format!("nothing listens on {first}");
    if last > first {
        text = format!("nothing listens on any of {first}-{last}");
    }
    let all = sockets::all_listeners(Side::Tcp).unwrap_or_default();
    let members = target.root.iter();
    let members = members.flat_map(|root| owner::members(root.pid));
    let own: BTreeSet<u64> = members
        .filter_map(|pid| owner::sockets(pid).ok())
        .flatten()
        .collect();
    let own = all.iter().filter(|one| own.contains(&one.inode));
    let numbers: BTreeSet<u16> = own.map(|one| one.address.port()).collect();
    if !numbers.is_empty() {
        let shown: Vec<_> = numbers.iter().take(SHOWN).map(u16::to_string).collect();
        let more = if numbers.len() > SHOWN { ", …" } else { "" };
        text += &format!(
            "; processes of this replica listen on {}{more}",
            shown.join(", ")
        );
    }
    text
}
