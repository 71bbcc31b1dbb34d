//! What the host is like: its addresses, its strangers and its kernel's ranges, looked at every
//! [`INTERVAL`] and passed on only when something changed.

mod addresses;
mod conditions;
mod kernel;
mod listeners;
mod owners;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portreeve::host_addr;
use portreeve::port::{Port, PortRanges, Protocol};
use portreeve::port_pool::Foreign;
use portreeve::registry::ReportedAddress;
use portreeve_api::sockets;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::Config;

use conditions::Conditions;
pub(crate) use kernel::{boot_id, capabilities};
use owners::Owners;

/// How often the host is looked at.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// The numbers that replicas hold here, one entry a side.
pub(crate) type Granted = BTreeSet<(Port, Protocol)>;

/// What a report says of the host itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) addresses: Vec<ReportedAddress>,
    pub(crate) published: Option<IpAddr>,
    pub(crate) address_rule: String,
    pub(crate) ephemeral: PortRanges,
    pub(crate) foreign: Vec<Foreign>,
    pub(crate) conditions: Vec<String>,
}

/// Looks at the host.
pub(crate) struct Observer {
    config: Arc<Config>,
    granted: watch::Receiver<Granted>,
    owners: Owners,
    conditions: Conditions,
    last: Observed,
}

impl Observer {
    pub(crate) fn new(config: Arc<Config>, granted: watch::Receiver<Granted>) -> Self {
        Self {
            conditions: Conditions::of(&config.state),
            config,
            granted,
            owners: Owners::default(),
            last: Observed::default(),
        }
    }

    /// Looks once. Blocks for the reading of a few files below `/proc`. What cannot be read stays as
    /// it was last seen: a failed look is no change.
    pub(crate) fn look(&mut self) -> Observed {
        let mut observed = self.last.clone();
        self.look_at_addresses(&mut observed)
            .unwrap_or_else(|cause| warn!("the host's addresses cannot be read: {cause}"));
        match sockets::ephemeral() {
            Ok(ephemeral) => self.note_ephemeral(&mut observed, ephemeral),
            Err(cause) => warn!("the kernel's ephemeral range cannot be read: {cause}"),
        }
        match listeners::all(|port| self.config.pools_hold(port)) {
            // Read after the sockets: a number that was granted before its holder listens is never a stranger's.
            Ok(sockets) => observed.foreign = self.owners.foreign(sockets, &self.granted.borrow()),
            Err(cause) => warn!("the host's listeners cannot be read: {cause}"),
        }
        observed.conditions = self.conditions.look(Instant::now());
        self.last = observed.clone();
        observed
    }

    /// Looks for ever and passes changes on.
    pub(crate) async fn run(mut self, observed: watch::Sender<Observed>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let looked = tokio::task::spawn_blocking(move || {
                let seen = self.look();
                (self, seen)
            });
            let seen;
            (self, seen) = looked.await.expect("looking at the host does not panic");
            observed.send_if_modified(|last| {
                let changed = *last != seen;
                *last = seen;
                changed
            });
        }
    }

    fn look_at_addresses(&self, observed: &mut Observed) -> io::Result<()> {
        let candidates = addresses::candidates()?;
        let choice = host_addr::choose(&candidates, &self.config.address, self.config.reach());
        let reported = choice.usable.iter().map(|one| ReportedAddress {
            interface: one.interface.clone(),
            address: one.address,
            prefix: one.prefix,
        });
        let reported: Vec<_> = reported.collect();
        let changed =
            choice.address != self.last.published || choice.rule != self.last.address_rule;
        if changed || reported != self.last.addresses {
            // P17: the choice is told with everything it was made from.
            let listed = |one: &host_addr::Candidate| {
                format!(
                    "{} {}/{} {}",
                    one.interface,
                    one.address,
                    one.prefix,
                    one.scope()
                )
            };
            let usable: Vec<_> = choice.usable.iter().map(listed).collect();
            let unusable = choice.unusable.iter();
            let unusable: Vec<_> = unusable
                .map(|(one, why)| format!("{} ({why})", listed(one)))
                .collect();
            let published = choice
                .address
                .map_or("none".to_owned(), |address| address.to_string());
            info!(
                "published address: {published} ({}); usable: {}; not usable: {}",
                choice.rule,
                usable.join(", "),
                unusable.join(", ")
            );
        }
        observed.addresses = reported;
        observed.published = choice.address;
        observed.address_rule = choice.rule;
        Ok(())
    }

    fn note_ephemeral(&self, observed: &mut Observed, ephemeral: PortRanges) {
        if ephemeral != self.last.ephemeral
            && let Some(words) = self.config.ephemeral_warning(&ephemeral)
        {
            warn!("{words}");
        }
        observed.ephemeral = ephemeral;
    }
}
