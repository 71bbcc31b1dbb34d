//! Named networks: which of a host's addresses a port is served at.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::host_addr::Prefix;
use crate::identity::NetworkName;
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::Kind;
use crate::plugin_abi::border::memory::{read_sized_array, read_text};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::reports::report::ip_address;
use crate::plugin_abi::state::context::{Context, Cycle};
use crate::plugin_abi::types::{PrCtx, PrNetwork};
use crate::port_pool::{NetworkNo, NetworkSet};

/// See `network_put` in the header.
pub(crate) unsafe extern "C" fn network_put(ctx: PrCtx, networks: *const PrNetwork, n: u32) -> i32 {
    inside(ctx, Kind::Context, Class::Control, |context, _| {
        // SAFETY: by C's promise null, or `n` structs of the size that the first one says.
        let networks = unsafe { read_sized_array(networks, n, MOST, "networks") }?;
        let mut written = Vec::with_capacity(networks.len());
        let mut names = BTreeSet::new();
        for (place, network) in networks.iter().enumerate() {
            // SAFETY: the caller's promise for what each struct points to.
            let read = unsafe { read_network(network) };
            let (name, prefix) = read.map_err(|failure| failure.of_element("networks", place))?;
            if !names.insert(name.clone()) {
                return Err(Failure::malformed(
                    "network.name",
                    format_args!("{name} is named twice in one call"),
                ));
            }
            written.push((name, prefix));
        }
        put(context, written)?;
        Ok(PR_OK)
    })
}

/// The most networks of one context.
#[expect(clippy::cast_possible_truncation, reason = "64")]
const MOST: u32 = NetworkSet::MOST as u32;

fn put(context: &Context, networks: Vec<(NetworkName, Prefix)>) -> Result<(), Failure> {
    let mut cycle = context.control()?;
    let known = cycle.networks.len();
    let new = networks.iter().map(|(name, _)| name);
    let new = new.filter(|name| !cycle.networks.contains_key(*name));
    let all = (known + new.count()) as u64;
    let mut numbered = Vec::with_capacity(networks.len());
    for (name, prefix) in networks {
        let number = cycle.number_of_network(name, all)?;
        numbered.push((number, prefix));
    }
    context.report(|board| {
        let mut register = context.register();
        register.outline.networks = cycle.networks.keys().cloned().collect();
        for chosen in board.put_networks(numbered) {
            register.rechoose(chosen);
        }
    });
    // No transaction is open, so that the pools may know at once.
    cycle.apply_queue(context);
    cycle.room_for_networks();
    Ok(())
}

impl Cycle {
    /// The number of a network, a new one for a new name, of `all` that there will be.
    fn number_of_network(&mut self, name: NetworkName, all: u64) -> Result<NetworkNo, Failure> {
        if let Some(known) = self.networks.get(&name) {
            return Ok(*known);
        }
        let full = Failure::limit("networks", all, u64::from(MOST));
        if all > u64::from(MOST) {
            return Err(full);
        }
        let next = u8::try_from(self.networks.len()).ok();
        let number = next.and_then(NetworkNo::new).ok_or(full)?;
        self.networks.insert(name, number);
        Ok(number)
    }

    /// Lets sets of hosts have their room, so that no hot call makes it.
    pub(crate) fn room_for_networks(&self) {
        self.allocator.room_for_networks(self.networks.len());
    }
}

/// # Safety
///
/// `raw` points to what the header says.
unsafe fn read_network(raw: &PrNetwork) -> Result<(NetworkName, Prefix), Failure> {
    const MOST_NAME: usize = 63;
    if raw.flags != 0 {
        return Err(Failure::flags("network.flags", raw.flags));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { read_text(raw.name, MOST_NAME, "network.name") }?;
    let name = name
        .ok_or_else(|| Failure::absent("network.name"))?
        .parse()
        .map_err(|fault| Failure::malformed("network.name", fault))?;
    let address = ip_address(raw.family, raw.ip);
    let address = address.ok_or(Failure::none_of("network.family", raw.family, "4 or 6"))?;
    let prefix = u8::try_from(raw.prefix).ok();
    let prefix = prefix.and_then(|bits| Prefix::new(address, bits));
    let prefix = prefix.ok_or(Failure::none_of(
        "network.prefix",
        raw.prefix,
        "0 to 32, or 128 of family 6,",
    ))?;
    if prefix.first() != address {
        return Err(Failure::said(
            PR_EINVAL,
            "network.ip has bits beyond its prefix",
        ));
    }
    Ok((name, prefix))
}

/// Where a host is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// For ports that name no network.
    pub(crate) usual: Option<IpAddr>,
    /// By network; those in which it has none are left out.
    named: Vec<(NetworkNo, IpAddr)>,
}

impl Addresses {
    /// The best of what a host reported, in general and for each of `networks`.
    pub(crate) fn choose(reported: &[Reported], networks: &[Option<Prefix>]) -> Self {
        let named = (0..).zip(networks).filter_map(|(number, prefix)| {
            let prefix = (*prefix)?;
            let inside = reported.iter().filter(|it| prefix.contains(it.address));
            Some((NetworkNo::new(number)?, best(inside)?))
        });
        Self {
            usual: best(reported.iter()),
            named: named.collect(),
        }
    }

    /// Where a port is reached that names `network`, or none.
    pub(crate) fn of_port(&self, network: Option<NetworkNo>) -> Option<IpAddr> {
        let Some(network) = network else {
            return self.usual;
        };
        let mut named = self.named.iter();
        named
            .find(|(number, _)| *number == network)
            .map(|(_, address)| *address)
    }

    /// The networks in which there is one.
    pub(crate) fn networks(&self) -> NetworkSet {
        self.named.iter().map(|(number, _)| *number).collect()
    }
}

/// An address as a host reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    /// The lowest is the best.
    pub(crate) rank: (u32, u32),
    pub(crate) address: IpAddr,
}

/// Among equals the earlier one.
fn best<'a>(reported: impl Iterator<Item = &'a Reported>) -> Option<IpAddr> {
    reported.min_by_key(|it| it.rank).map(|it| it.address)
}
