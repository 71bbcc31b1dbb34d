//! What the host is like: its addresses, its strangers and its kernel's ranges; passed on only when something changed.
//!
//! The kernel tells of changed addresses; of new listeners it tells nobody, so those are looked for every [`INTERVAL`].

mod address_command;
mod addresses;
mod conditions;
mod kernel;
mod link_news;
mod listeners;
mod owners;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use portreeve::host_addr::{self, Candidate, Published, Unfit};
use portreeve::port::{Port, PortRanges, Protocol};
use portreeve::port_pool::Foreign;
use portreeve::registry::{ReportedAddress, UnusableAddress};
use portreeve_api::sockets;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::Config;

use addresses::Found;
use conditions::Conditions;
pub(crate) use kernel::{boot_id, capabilities, machine_id};
use link_news::LinkNews;
use owners::Owners;

/// How often listeners and the kernel's ranges are looked at.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);
/// How often addresses are looked at although the kernel told of no change, and a command is asked again.
const SLOW_INTERVAL: Duration = Duration::from_secs(30);
/// Changes of addresses come in bursts: so long after the first one they are looked at.
const SETTLED_AFTER: Duration = Duration::from_millis(50);
/// Addresses are looked at no oftener than this, however many changes there are.
const BREATH: Duration = Duration::from_millis(500);
/// How long the published address stays although its link hears nobody: as long as a host that is silent is not
/// given up. A cable that is out for seconds then changes nothing (P22).
const CUT_FORGIVEN: Duration = Duration::from_secs(90);

/// The numbers that replicas hold here, one entry a side.
pub(crate) type Granted = BTreeSet<(Port, Protocol)>;

/// What a report says of the host itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) addresses: Vec<ReportedAddress>,
    pub(crate) unusable: Vec<UnusableAddress>,
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
    /// Since when the link of the published address has heard nobody.
    cut_since: Option<Instant>,
    /// What the site's command last said.
    told: Option<Result<IpAddr, String>>,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Addresses,
    Listeners,
    All,
}

impl Observer {
    pub(crate) fn new(config: Arc<Config>, granted: watch::Receiver<Granted>) -> Self {
        Self {
            conditions: Conditions::of(&config.state),
            config,
            granted,
            owners: Owners::default(),
            last: Observed::default(),
            cut_since: None,
            told: None,
        }
    }

    /// Looks at everything once. Blocks for the reading of a few files below `/proc`, and for the site's command
    /// if there is one. What cannot be read stays as it was last seen: a failed look is no change.
    pub(crate) fn look(&mut self) -> Observed {
        self.look_at(Look::All)
    }

    fn look_at(&mut self, what: Look) -> Observed {
        let mut observed = self.last.clone();
        if what != Look::Listeners {
            self.look_at_addresses(&mut observed)
                .unwrap_or_else(|cause| warn!("the host's addresses cannot be read: {cause}"));
        }
        if what != Look::Addresses {
            match sockets::ephemeral() {
                Ok(ephemeral) => self.note_ephemeral(&mut observed, ephemeral),
                Err(cause) => warn!("the kernel's ephemeral range cannot be read: {cause}"),
            }
            match listeners::all(|port| self.config.pools_hold(port)) {
                // Read after the sockets: a number that was granted before its holder listens is never a stranger's.
                Ok(sockets) => {
                    observed.foreign = self.owners.foreign(sockets, &self.granted.borrow());
                }
                Err(cause) => warn!("the host's listeners cannot be read: {cause}"),
            }
        }
        observed.conditions = self.conditions.look(Instant::now().into_std());
        self.last = observed.clone();
        observed
    }

    /// Looks for ever and passes changes on.
    pub(crate) async fn run(mut self, observed: watch::Sender<Observed>) {
        let mut news = LinkNews::listen()
            .inspect_err(|cause| {
                let often = INTERVAL.as_secs();
                warn!("the kernel does not tell of changed addresses ({cause}); they are looked at every {often} s");
            })
            .ok();
        let mut next = Instant::now() + INTERVAL;
        // What changed between the first look and this moment is seen with the next one.
        let mut next_addresses = Instant::now();
        let mut quiet_until = Instant::now();
        loop {
            let change = async {
                match &news {
                    Some(news) => {
                        tokio::time::sleep_until(quiet_until).await;
                        news.come().await
                    }
                    None => std::future::pending().await,
                }
            };
            let what = tokio::select! {
                change = change => {
                    if let Err(cause) = change {
                        warn!("the kernel tells of no changed address any more: {cause}");
                        news = None;
                    }
                    tokio::time::sleep(SETTLED_AFTER).await;
                    Look::Addresses
                }
                () = tokio::time::sleep_until(next) => {
                    if news.is_none() || Instant::now() >= next_addresses {
                        Look::All
                    } else {
                        Look::Listeners
                    }
                }
            };
            let looked = tokio::task::spawn_blocking(move || {
                let seen = self.look_at(what);
                (self, seen)
            });
            let seen;
            (self, seen) = looked.await.expect("looking at the host does not panic");
            observed.send_if_modified(|last| {
                let changed = *last != seen;
                *last = seen;
                changed
            });
            let now = Instant::now();
            if what != Look::Listeners {
                next_addresses = now + SLOW_INTERVAL;
                quiet_until = now + BREATH;
            }
            if what != Look::Addresses {
                next = now + INTERVAL;
            }
        }
    }

    /// The choice of now by the configured rule.
    pub(crate) fn choose(&mut self) -> io::Result<Published> {
        let candidates = self.forgive(addresses::all()?);
        let reach = self.config.reach();
        let Some(command) = &self.config.address_command else {
            return Ok(host_addr::choose(&candidates, &self.config.address, reach));
        };
        match (address_command::ask(command), &self.told) {
            // An answer of before is better than none: name services fail for minutes.
            (Err(reason), Some(Ok(address))) => {
                warn!("command {command:?}: {reason}; {address} stays published");
            }
            (told, _) => self.told = Some(told),
        }
        let told = self.told.clone().expect("the command was just asked");
        let told = told.as_ref().map_err(String::as_str).copied();
        Ok(host_addr::choose_told(&candidates, command, told, reach))
    }

    /// What was found, the published address among it also for a while after its link was cut.
    fn forgive(&mut self, found: Vec<Found>) -> Vec<Candidate> {
        let published = self.last.published;
        let is_cut = |one: &Found| one.is_cut && Some(one.candidate.address) == published;
        if !found.iter().any(is_cut) {
            self.cut_since = None;
        }
        let forgiven = |one: Found, since: &mut Option<Instant>| {
            let mut candidate = one.candidate;
            if one.is_cut && Some(candidate.address) == published {
                let since = since.get_or_insert_with(Instant::now);
                candidate.up = since.elapsed() < CUT_FORGIVEN;
            }
            candidate
        };
        let found = found.into_iter();
        found
            .map(|one| forgiven(one, &mut self.cut_since))
            .collect()
    }

    fn look_at_addresses(&mut self, observed: &mut Observed) -> io::Result<()> {
        let choice = self.choose()?;
        let usable = choice.usable.iter().map(|one| ReportedAddress {
            interface: one.interface.clone(),
            address: one.address,
            prefix: one.prefix,
            default_route: one.default_route,
        });
        observed.addresses = usable.collect();
        // Link-local ones come and go with every container, and are of use to nobody: that is no news.
        let unusable = choice.unusable.iter();
        let unusable = unusable.filter(|(_, why)| *why != Unfit::LinkLocal);
        let unusable = unusable.map(|(one, why)| UnusableAddress {
            interface: one.interface.clone(),
            address: one.address,
            prefix: one.prefix,
            reason: why.to_string(),
        });
        observed.unusable = unusable.collect();
        observed.published = choice.address;
        observed.address_rule.clone_from(&choice.rule);
        if *observed != self.last {
            // P17: the choice is told with everything it was made from.
            info!("{}", spelled(&choice));
        }
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

/// The choice with everything it was made from, on one line.
fn spelled(choice: &Published) -> String {
    let listed = |one: &Candidate| {
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
    let or_none = |listed: Vec<String>| match listed.is_empty() {
        true => "none".to_owned(),
        false => listed.join(", "),
    };
    let published = choice
        .address
        .map_or("none".to_owned(), |address| address.to_string());
    format!(
        "published address: {published} ({}); usable: {}; not usable: {}",
        choice.rule,
        or_none(usable),
        or_none(unusable)
    )
}
