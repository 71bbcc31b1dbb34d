//! Endpoints as `host:port` lines.

use std::net::SocketAddr;

use portreeve::endpoints::{Endpoint, Snapshot};

use super::view::EndpointsView;

/// Which of several lines an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// One, at random.
    One,
    /// Every one.
    All,
}

/// One line each: of the named port, else of the first published one.
pub(crate) fn lines(snapshot: &Snapshot, asked: &EndpointsView, pick: Pick) -> String {
    let endpoints = snapshot.set().endpoints.iter();
    let listed = endpoints.filter(|endpoint| asked.lists(endpoint));
    let mut lines: Vec<_> = listed
        .filter_map(|endpoint| Some(format!("{}\n", place(endpoint, asked)?)))
        .collect();
    if pick == Pick::One && !lines.is_empty() {
        let mut random = [0; 8];
        // Without randomness everybody gets the first, which is still a right answer.
        let _ = getrandom::fill(&mut random);
        let place = u64::from_ne_bytes(random) % lines.len() as u64;
        lines = vec![lines.swap_remove(usize::try_from(place).unwrap_or(0))];
    }
    lines.concat()
}

/// Where clients of it are sent.
fn place(endpoint: &Endpoint, asked: &EndpointsView) -> Option<SocketAddr> {
    let port = asked.port.as_ref();
    let mut ports = endpoint.ports.iter();
    let port = ports.find(|candidate| port.is_none_or(|name| candidate.name == *name))?;
    let first = port.numbers.first().number();
    let address = endpoint.address_of(port)?;
    Some(SocketAddr::new(address, first))
}
