//! Patience with cables: an address stays although its link hears nobody, for a while.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use portreeve::host_addr::Candidate;
use portreeve::registry::ReportedAddress;
use tokio::time::Instant;

use super::addresses::Found;

/// How long an address stays although its link hears nobody: as long as a host that is silent is not given up. A cable
/// that is out for seconds then changes nothing (P22).
const FORGIVEN: Duration = Duration::from_secs(90);

/// Since when the links of addresses that were in use have heard nobody.
#[derive(Debug, Default)]
pub(super) struct Cuts(BTreeMap<IpAddr, Instant>);

impl Cuts {
    /// What was found, those of `usable` among it also for a while after their link was cut. Each may be published, or
    /// serve a network of the site.
    pub(super) fn forgive(
        &mut self,
        found: Vec<Found>,
        usable: &[ReportedAddress],
        now: Instant,
    ) -> Vec<Candidate> {
        let is_cut = |address: &IpAddr| {
            let mut found = found.iter();
            found.any(|one| one.is_cut && one.candidate.address == *address)
        };
        self.0.retain(|address, _| is_cut(address));
        let found = found.into_iter().map(|one| {
            let mut candidate = one.candidate;
            let was_usable = usable.iter().any(|it| it.address == candidate.address);
            if one.is_cut && was_usable {
                self.0.entry(candidate.address).or_insert(now);
            }
            if let Some(since) = self.0.get(&candidate.address) {
                candidate.up = now.duration_since(*since) < FORGIVEN;
            }
            candidate
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(address: &str, is_cut: bool) -> Found {
        Found {
            candidate: Candidate {
                interface: "eth0".to_owned(),
                address: address.parse().unwrap(),
                prefix: 24,
                up: !is_cut,
                default_route: false,
                passing: false,
            },
            is_cut,
        }
    }

    /// Those that are up after a look that found these.
    fn look(
        cuts: &mut Cuts,
        last: &mut Vec<ReportedAddress>,
        all: Vec<Found>,
        now: Instant,
    ) -> Vec<String> {
        let up = cuts
            .forgive(all, last, now)
            .into_iter()
            .filter(|one| one.up);
        *last = up
            .map(|one| ReportedAddress {
                interface: one.interface,
                address: one.address,
                prefix: one.prefix,
                default_route: one.default_route,
            })
            .collect();
        last.iter().map(|one| one.address.to_string()).collect()
    }

    #[test]
    fn every_usable_address_outlives_a_cut_for_a_while_and_no_longer() {
        // P22, for the addresses of networks too: the port of one would leave the lists with the cable.
        let (mut cuts, mut last) = (Cuts::default(), Vec::new());
        let begun = Instant::now();
        let both = |cut: bool| vec![found("10.20.0.7", cut), found("10.1.0.7", false)];
        let all = ["10.20.0.7", "10.1.0.7"];
        assert_eq!(look(&mut cuts, &mut last, both(false), begun), all);
        assert_eq!(look(&mut cuts, &mut last, both(true), begun), all);
        let almost = begun + FORGIVEN - Duration::from_secs(1);
        assert_eq!(look(&mut cuts, &mut last, both(true), almost), all);
        let late = begun + FORGIVEN;
        assert_eq!(look(&mut cuts, &mut last, both(true), late), all[1..]);
        // It stays away until the link is heard, and has its patience anew then.
        assert_eq!(
            look(&mut cuts, &mut last, both(true), late + FORGIVEN),
            all[1..]
        );
        assert_eq!(
            look(&mut cuts, &mut last, both(false), late + FORGIVEN),
            all
        );
        assert_eq!(look(&mut cuts, &mut last, both(true), late + FORGIVEN), all);
    }

    #[test]
    fn an_address_that_was_never_usable_is_not_waited_for() {
        let (mut cuts, mut last) = (Cuts::default(), Vec::new());
        let now = Instant::now();
        let nothing = look(&mut cuts, &mut last, vec![found("10.20.0.7", true)], now);
        assert!(nothing.is_empty());
    }
}
