//! A port in a network of its own is asked at its address there.

use std::net::{IpAddr, Ipv4Addr, TcpListener};

use portreeve::supervision::ProbeOutcome;

use super::ProbeTarget;
use super::connecting_test::{listening, port_of, replica, tcp};

const PUBLISHED: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const IN_NETWORK: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// This process as a replica that listens at `bound`; clients of its only port use [`IN_NETWORK`].
fn listens_on(bound: IpAddr) -> (TcpListener, ProbeTarget) {
    let listener = TcpListener::bind((bound, 0)).unwrap();
    let mut target = replica(port_of(&listener));
    assert_eq!(target.address, PUBLISHED);
    target.ports[0].own = Some(("http".parse().unwrap(), IN_NETWORK));
    (listener, target)
}

#[tokio::test]
async fn a_service_that_listens_there_is_ready_though_nobody_answers_at_the_published_address() {
    let (listener, target) = listens_on(IN_NETWORK);
    let connected = tcp(port_of(&listener), target.clone()).await;
    assert_eq!(connected.outcome, ProbeOutcome::Ok, "{}", connected.text);
    let port = port_of(&listener);
    assert_eq!(
        connected.text,
        format!("{IN_NETWORK}:{port} takes connections")
    );
    let found = listening(target).await;
    assert_eq!(found.outcome, ProbeOutcome::Ok, "{}", found.text);
}

#[tokio::test]
async fn one_that_listens_at_the_published_address_only_is_told_what_to_bind() {
    let (listener, target) = listens_on(PUBLISHED);
    let port = port_of(&listener);
    let words = format!(
        "listens on {PUBLISHED}:{port} only; clients use {IN_NETWORK}: bind ${{addr.http}}"
    );
    for report in [tcp(port, target.clone()).await, listening(target).await] {
        assert_eq!(
            (report.outcome, report.text),
            (ProbeOutcome::Fail, words.clone())
        );
    }
}
