//! What an agent is told at its start.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use portreeve::host_addr::{AddressRule, Reach};
use portreeve::identity::HostName;
use portreeve::port::PortRanges;
use portreeve::registry::HostOwner;
use portreeve_api::containment::Choice;
use portreeve_api::local::{LogBounds, ProcessIdentity};
use portreeve_api::service_manager::BackendKind;
use portreeve_api::tls::TlsFiles;
use portreeve_api::{Client, Target};

/// What an agent is told at its start. The default is that of a host of its own with the usual places.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The name of this host; `localhost` unless told otherwise.
    pub host: HostName,
    /// Where the replicas' folders are; made if missing, 0700, for root 0711. One agent at a time.
    pub state: PathBuf,
    /// Where the controller answers.
    pub controller: Target,
    /// Further addresses of it, tried in order where the first does not answer.
    pub further_controllers: Vec<Target>,
    /// What is believed and shown where it is spoken with over TLS; workers have the same.
    pub tls: TlsFiles,
    /// Everything is on this host: loopback is published.
    pub single_host: bool,
    /// Numbers that "any" draws from.
    pub dynamic: PortRanges,
    /// What becomes of those that the kernel also takes for outgoing connections.
    pub ephemeral: Ephemeral,
    /// Numbers that a fixed request may name.
    pub fixed: PortRanges,
    /// Numbers never given.
    pub reserved: PortRanges,
    /// Started as `PROGRAM worker --folder DIR` for each replica.
    pub worker_program: PathBuf,
    /// When this process ends, the services shall end too.
    pub lifeline: Option<ProcessIdentity>,
    /// Labels for placement.
    pub labels: BTreeMap<String, String>,
    /// Who gives the numbers of this host.
    pub owner: HostOwner,
    /// Which address is published.
    pub address: AddressRule,
    /// Says which address is published, in place of the rule: run by `sh -c`, its first word is read.
    pub address_command: Option<String>,
    /// Begins every variable a job sees.
    pub prefix: String,
    /// What starts the processes of replicas that are placed here from now on.
    pub backend: BackendKind,
    /// How the processes of new replicas are held together; those that live keep what they began with.
    pub containment: Choice,
    /// How much of what a service writes is kept.
    pub logs: LogBounds,
    /// How long it is kept after the end.
    pub keep_logs: Duration,
    /// Where jobs of another scheduler ask for ports.
    pub socket: Option<SocketPlace>,
    /// Where people of this host ask the controller, as whom the kernel says.
    pub relay: Option<SocketPlace>,
    /// What this host is known by to a controller that does not see who asks. `None`: it does.
    pub tokens: Option<TokenPlaces>,
}

/// Where this host's tokens are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPlaces {
    /// Its own; written by the agent when it joins, 0600.
    pub host: PathBuf,
    /// One that lets it join.
    pub join: Option<PathBuf>,
}

/// Where an agent's socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketPlace {
    /// Here, or the agent does not start.
    At(PathBuf),
    /// Here, if nothing is in the way: without it only `portreeve run` finds no agent.
    Usual(PathBuf),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: "localhost".parse().expect("localhost is a host name"),
            state: "/var/lib/portreeve/agent".into(),
            controller: Target::Unix("/run/portreeve/controller.sock".into()),
            further_controllers: Vec::new(),
            tls: TlsFiles::default(),
            single_host: false,
            dynamic: ranges("20000-32767"),
            ephemeral: Ephemeral::default(),
            fixed: ranges("1024-65535"),
            reserved: PortRanges::default(),
            worker_program: "/usr/bin/portreeve".into(),
            lifeline: None,
            labels: BTreeMap::new(),
            owner: HostOwner::default(),
            address: AddressRule::default(),
            address_command: None,
            prefix: portreeve::variables::PREFIX.to_owned(),
            backend: BackendKind::default(),
            containment: Choice::default(),
            logs: LogBounds::default(),
            keep_logs: Duration::from_hours(7 * 24),
            socket: None,
            relay: None,
            tokens: None,
        }
    }
}

fn ranges(text: &str) -> PortRanges {
    text.parse().expect("the default ranges are ranges")
}

impl Config {
    /// A client of the controller.
    pub(crate) fn client(&self) -> Client {
        let client = Client::new(self.controller.clone());
        let further = self.further_controllers.iter().cloned();
        client.with_further(further).with_tls(self.tls.clone())
    }

    pub(crate) const fn reach(&self) -> Reach {
        if self.single_host {
            Reach::SingleHost
        } else {
            Reach::Network
        }
    }

    /// Whether the pools hold this number: then it matters who else listens there.
    pub(crate) fn pools_hold(&self, port: portreeve::port::Port) -> bool {
        (self.dynamic.contains(port) || self.fixed.contains(port)) && !self.reserved.contains(port)
    }

    /// The numbers that "any" draws from on this host.
    pub(crate) fn drawn(&self, ephemeral: &PortRanges) -> PortRanges {
        match self.ephemeral {
            Ephemeral::Warn => self.dynamic.clone(),
            Ephemeral::Exclude => self.dynamic.difference(ephemeral),
        }
    }

    /// What to say if the kernel takes local ends of outgoing connections from the pool (P03, ports 19).
    pub(crate) fn ephemeral_warning(&self, ephemeral: &PortRanges) -> Option<String> {
        let pool = &self.dynamic;
        let both = pool.intersection(ephemeral).difference(&self.reserved);
        if both.is_empty() {
            return None;
        }
        let overlap =
            format!("the pool {pool} overlaps the kernel's ephemeral range {ephemeral} in {both}");
        let cure = format!(
            "`sysctl -w net.ipv4.ip_local_reserved_ports={both}` (added to what stands there)"
        );
        Some(match (self.ephemeral, self.drawn(ephemeral)) {
            (Ephemeral::Warn, _) => format!(
                "{overlap}: outgoing connections can take a granted port; {cure} keeps them apart, \
                 `--ephemeral exclude` leaves these numbers out"
            ),
            (Ephemeral::Exclude, left) if left.is_empty() => format!(
                "{overlap}: they are left out, so that \"any\" finds none; {cure} gives them back"
            ),
            (Ephemeral::Exclude, left) => {
                format!("{overlap}: \"any\" draws from {left}; {cure} gives the rest back")
            }
        })
    }
}

/// What becomes of numbers of the pool that the kernel also takes for local ends of outgoing connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ephemeral {
    /// They stay in the pool; the log and `portreeve host` warn.
    #[default]
    Warn,
    /// "Any" never draws them.
    Exclude,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_with_the_ephemeral_range_is_told_with_both_ranges_and_the_cure() {
        // P03
        let config = Config {
            dynamic: ranges("30000-33000"),
            ..Config::default()
        };
        let words = config.ephemeral_warning(&ranges("32768-60999")).unwrap();
        assert!(words.contains("the pool 30000-33000 overlaps"), "{words}");
        assert!(
            words.contains("ephemeral range 32768-60999 in 32768-33000"),
            "{words}"
        );
        assert!(
            words.contains("ip_local_reserved_ports=32768-33000"),
            "{words}"
        );
        assert_eq!(
            Config::default().ephemeral_warning(&ranges("32768-60999")),
            None
        );
    }

    #[test]
    fn an_overlap_can_be_left_out_of_the_pool() {
        // ports 19
        let config = Config {
            dynamic: ranges("30000-40000"),
            ephemeral: Ephemeral::Exclude,
            ..Config::default()
        };
        let kernel = ranges("32768-60999");
        assert_eq!(config.drawn(&kernel), ranges("30000-32767"));
        let words = config.ephemeral_warning(&kernel).unwrap();
        assert!(
            words.contains("in 32768-40000: \"any\" draws from 30000-32767"),
            "{words}"
        );
        let warned = Config {
            ephemeral: Ephemeral::Warn,
            ..config
        };
        assert_eq!(warned.drawn(&kernel), ranges("30000-40000"));
        let all = Config {
            dynamic: ranges("40000-40009"),
            ephemeral: Ephemeral::Exclude,
            ..warned
        };
        let words = all.ephemeral_warning(&kernel).unwrap();
        assert!(words.contains("finds none"), "{words}");
    }

    #[test]
    fn reserved_numbers_are_in_no_pool() {
        let config = Config {
            reserved: ranges("20000"),
            ..Config::default()
        };
        let holds = |port| config.pools_hold(portreeve::port::Port::new(port).unwrap());
        assert!(holds(20001) && !holds(20000) && !holds(80));
    }
}
