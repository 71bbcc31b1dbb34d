//! What an agent is told at its start.

use std::collections::BTreeMap;
use std::path::PathBuf;

use portreeve::host_addr::{AddressRule, Reach};
use portreeve::identity::HostName;
use portreeve::port::{PortRange, PortRanges};
use portreeve_api::Target;
use portreeve_api::local::ProcessIdentity;

/// What an agent is told at its start. The default is that of a host of its own with the usual places.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The name of this host; `localhost` unless told otherwise.
    pub host: HostName,
    /// Where the replicas' folders are; made 0700 if missing. One agent at a time.
    pub state: PathBuf,
    /// Where the controller answers.
    pub controller: Target,
    /// Everything is on this host: loopback is published.
    pub single_host: bool,
    /// Numbers that "any" draws from.
    pub dynamic: PortRanges,
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
    /// Which address is published.
    pub address: AddressRule,
    /// Begins every variable a job sees.
    pub prefix: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: "localhost".parse().expect("localhost is a host name"),
            state: "/var/lib/portreeve/agent".into(),
            controller: Target::Unix("/run/portreeve/controller.sock".into()),
            single_host: false,
            dynamic: ranges("20000-32767"),
            fixed: ranges("1024-65535"),
            reserved: PortRanges::default(),
            worker_program: "/usr/bin/portreeve".into(),
            lifeline: None,
            labels: BTreeMap::new(),
            address: AddressRule::default(),
            prefix: portreeve::variables::PREFIX.to_owned(),
        }
    }
}

fn ranges(text: &str) -> PortRanges {
    text.parse().expect("the default ranges are ranges")
}

impl Config {
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

    /// What to say if the kernel takes local ends of outgoing connections from the pool (P03).
    pub(crate) fn ephemeral_warning(&self, ephemeral: &PortRanges) -> Option<String> {
        let drawn = self
            .dynamic
            .iter()
            .filter(|port| !self.reserved.contains(*port));
        let both = drawn.filter(|port| ephemeral.contains(*port));
        let both = PortRanges::new(both.map(PortRange::single));
        (!both.is_empty()).then(|| {
            format!(
                "the pool {} overlaps the kernel's ephemeral range {ephemeral} in {both}: outgoing connections \
                 can take a granted port; `sysctl -w net.ipv4.ip_local_reserved_ports={both}` (added to what \
                 stands there) keeps them apart",
                self.dynamic
            )
        })
    }
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
    fn reserved_numbers_are_in_no_pool() {
        let config = Config {
            reserved: ranges("20000"),
            ..Config::default()
        };
        let holds = |port| config.pools_hold(portreeve::port::Port::new(port).unwrap());
        assert!(holds(20001) && !holds(20000) && !holds(80));
    }
}
