//! Several hosts on one machine: an agent each, at a loopback address of its own and with a share of the numbers.
//!
//! They share one network, so what one listens on for all addresses is taken for all of them.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use portreeve::port::PortRanges;
use portreeve_agent::{Agent, Config};

use crate::exit::{Code, Failure};

/// The configurations of `dev-1`, `dev-2`, … from that of the whole machine.
pub(super) fn split(whole: &Config, count: NonZeroU16) -> Result<Vec<Config>, Failure> {
    let shares = whole.dynamic.split(count);
    if shares.iter().any(PortRanges::is_empty) {
        return Err(Failure::new(
            Code::Usage,
            format!(
                "--ports {} holds {} numbers for {count} hosts; each needs one at least",
                whole.dynamic,
                whole.dynamic.count()
            ),
        ));
    }
    let hosts = (1..=count.get()).zip(shares).map(|(number, share)| {
        let host = format!("dev-{number}");
        let last = u8::try_from(number).expect("there are at most 16 hosts");
        let mut config = Config {
            host: host.parse().expect("dev-N is a host name"),
            state: whole.state.with_file_name(format!("agent-{number}")),
            // What the others draw is not this one's to give by name either.
            fixed: whole.fixed.difference(&whole.dynamic.difference(&share)),
            dynamic: share,
            ..whole.clone()
        };
        config.address.literal = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        config
    });
    Ok(hosts.collect())
}

/// Starts the agents, or none of them.
pub(super) async fn start(configs: Vec<Config>) -> Result<Vec<Agent>, Failure> {
    let mut agents = Vec::new();
    for config in configs {
        match Agent::start(config).await {
            Ok(agent) => agents.push(agent),
            Err(cause) => {
                stop(agents).await;
                return Err(Failure::plain(cause));
            }
        }
    }
    Ok(agents)
}

/// Returns when no replica has a worker or a process on any of them.
pub(super) async fn empty(agents: &mut [Agent]) {
    for agent in agents {
        agent.empty().await;
    }
}

/// Stops them; no worker is touched.
pub(super) async fn stop(agents: Vec<Agent>) {
    for agent in agents {
        agent.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(dynamic: &str, count: u16) -> Result<Vec<Config>, Failure> {
        let whole = Config {
            state: "/x/agent".into(),
            dynamic: dynamic.parse().unwrap(),
            ..Config::default()
        };
        split(&whole, NonZeroU16::new(count).unwrap())
    }

    #[test]
    fn hosts_have_an_address_a_folder_and_numbers_of_their_own() {
        let hosts = hosts("20000-32767", 3).unwrap();
        let shown: Vec<String> = hosts
            .iter()
            .map(|host| {
                let address = host.address.to_string();
                let state = host.state.display();
                format!(
                    "{} {address} {state} {} {}",
                    host.host, host.dynamic, host.fixed
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "dev-1 127.0.0.1 /x/agent-1 20000-24255 1024-24255,32768-65535",
                "dev-2 127.0.0.2 /x/agent-2 24256-28511 1024-19999,24256-28511,32768-65535",
                "dev-3 127.0.0.3 /x/agent-3 28512-32767 1024-19999,28512-65535",
            ]
        );
    }

    #[test]
    fn fewer_numbers_than_hosts_are_refused() {
        let refused = hosts("20000-20001", 3).unwrap_err();
        assert_eq!(refused.code(), Code::Usage);
        assert!(refused.to_string().contains("holds 2 numbers for 3 hosts"));
    }
}
