//! The ports of a kind of job, parsed once so that no hot call reads a name.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::identity::{NetworkName, ServiceId, ServiceName};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::Kind;
use crate::plugin_abi::border::memory::{Input, Output, read_sized, read_strided, read_text};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::state::context::{Context, Cycle};
use crate::plugin_abi::types::{PrCtx, PrPort, PrProfile, PrRange};
use crate::port::{Port, PortName, PortRange, PortRanges, Protocol};
use crate::port_pool::{NetworkNo, PortRequest, Want, WantedPort};
use crate::profile::is_variable;

/// What `profile_put` made known.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) id: u32,
    pub(crate) service: ServiceName,
    pub(crate) service_id: ServiceId,
    pub(crate) request: PortRequest,
    /// In the order of the request.
    pub(crate) ports: Vec<DeclaredPort>,
}

/// What a port is beside its request.
#[derive(Debug)]
pub(crate) struct DeclaredPort {
    pub(crate) alias: Option<String>,
    pub(crate) published: bool,
    /// The network it is reached in, if not where the host is.
    pub(crate) network: Option<NetworkNo>,
    /// The number of its name.
    pub(crate) name: u32,
}

impl Profile {
    /// How many numbers one replica gets, at most 256.
    pub(crate) fn numbers(&self) -> u32 {
        let ports = self.request.as_slice().iter();
        ports.map(|port| u32::from(port.count().get())).sum()
    }
}

/// The longest text of a profile.
const MOST_TEXT: usize = 255;

/// See `profile_put` in the header.
pub(crate) unsafe extern "C" fn profile_put(
    ctx: PrCtx,
    profile: *const PrProfile,
    id: *mut u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Control, |context, _| {
        // SAFETY: by C's promise null, or a struct of the size it says.
        let raw = unsafe { read_sized(profile, "profile") }?;
        // SAFETY: by C's promise null, or writable.
        let id = unsafe { Output::new(id, "id") }?;
        // SAFETY: `raw` is the caller's, and what it points to is readable during the call.
        let written = unsafe { Written::read(&raw, &context.settings().prefix) }?;
        id.set(put(context, written)?);
        Ok(PR_OK)
    })
}

fn put(context: &Context, written: Written) -> Result<u32, Failure> {
    let mut cycle = context.control()?;
    let most = context.settings().limits.profiles;
    let known = cycle.profiles.iter().flatten().count() as u64;
    if known >= u64::from(most) {
        return Err(Failure::limit("profiles", known + 1, u64::from(most)));
    }
    // A number is not used again, so those of dropped profiles count here.
    let id = u32::try_from(cycle.profiles.len()).unwrap_or(u32::MAX);
    if id == PR_ANY {
        return Err(Failure::limit(
            "numbers of profiles",
            id.into(),
            PR_ANY.into(),
        ));
    }
    let profile = Arc::new(written.known_to(&mut cycle, id)?);
    cycle.profiles.push(Some(Arc::clone(&profile)));
    context.register().profiles.push(Some(Arc::clone(&profile)));
    context.names().know(&profile);
    // Still under the cycle's lock, so that no grant is posted before its service is known.
    context.report(|board| board.know(&profile));
    Ok(id)
}

/// See `profile_drop` in the header.
pub(crate) unsafe extern "C" fn profile_drop(ctx: PrCtx, id: u32) -> i32 {
    inside(ctx, Kind::Context, Class::Control, |context, _| {
        let mut cycle = context.control()?;
        let dropped = cycle.profile(id)?;
        // Grants and waits keep it as long as they need it.
        let mut register = context.register();
        for profiles in [&mut cycle.profiles, &mut register.profiles] {
            if let Some(profile) = profiles.get_mut(id as usize) {
                *profile = None;
            }
        }
        drop(register);
        context.report(|board| board.drop_profile(&dropped));
        context.register().drop_profile(Some(dropped));
        Ok(PR_OK)
    })
}

/// A profile as written: valid, but without the context's numbers.
struct Written {
    service: ServiceName,
    request: PortRequest,
    ports: Vec<WrittenPort>,
}

/// What a port says beside its request.
struct WrittenPort {
    alias: Option<String>,
    published: bool,
    network: Option<NetworkName>,
}

impl Written {
    /// # Safety
    ///
    /// `raw` points to what the header says.
    unsafe fn read(raw: &PrProfile, prefix: &str) -> Result<Self, Failure> {
        if raw.flags != 0 {
            return Err(Failure::flags("profile.flags", raw.flags));
        }
        // The profile's own name is for the scheduler's log; it must at least be a text.
        // SAFETY: the caller's promise for each text.
        unsafe { read_text(raw.name, MOST_TEXT, "profile.name") }?;
        // SAFETY: as above.
        let service = unsafe { read_text(raw.service, MOST_TEXT, "profile.service") }?;
        let service = service.ok_or_else(|| Failure::absent("profile.service"))?;
        let service = service
            .parse()
            .map_err(|fault| Failure::malformed("profile.service", fault))?;
        if raw.n_ports > PortRequest::MAX_NUMBERS {
            let most = u64::from(PortRequest::MAX_NUMBERS);
            return Err(Failure::limit(
                "profile.n_ports",
                u64::from(raw.n_ports),
                most,
            ));
        }
        // SAFETY: the caller's promise: `n_ports` elements of `port_size` bytes.
        let raw_ports =
            unsafe { read_strided(raw.ports, raw.n_ports, raw.port_size, "profile.ports") }?;
        let ranges = raw_ports.iter().map(|port| u64::from(port.n_within)).sum();
        let most = PortRanges::MAX_RANGES as u64;
        if ranges > most {
            return Err(Failure::limit("ranges of a profile", ranges, most));
        }
        let mut wanted = Vec::with_capacity(raw_ports.len());
        let mut ports = Vec::with_capacity(raw_ports.len());
        let mut aliases = BTreeSet::new();
        for (place, port) in raw_ports.iter().enumerate() {
            // SAFETY: the caller's promise holds for what each port points to.
            let read = unsafe { read_port(port, prefix) };
            let (port, beside) = read.map_err(|failure| failure.of_element("ports", place))?;
            if let Some(alias) = &beside.alias
                && !aliases.insert(alias.clone())
            {
                return Err(Failure::malformed(
                    "port.env",
                    format_args!("{alias} is the alias of two ports"),
                ));
            }
            wanted.push(port);
            ports.push(beside);
        }
        let request = PortRequest::new(wanted).map_err(|fault| {
            let code = match fault {
                crate::port_pool::PortRequestError::TooMany { .. } => PR_ELIMIT,
                _ => PR_EINVAL,
            };
            Failure::told(code, fault)
        })?;
        Ok(Self {
            service,
            request,
            ports,
        })
    }

    fn known_to(self, cycle: &mut Cycle, id: u32) -> Result<Profile, Failure> {
        let known = |network: &NetworkName| {
            let number = cycle.networks.get(network).copied();
            let unknown = || format!("port.network: {network} is not known");
            number.ok_or_else(|| Failure::told(PR_ENOENT, unknown()))
        };
        let networks = self.ports.iter().map(|port| port.network.as_ref());
        let networks = networks.map(|name| name.map(known).transpose());
        let networks: Vec<Option<NetworkNo>> = networks.collect::<Result<_, _>>()?;
        let names = self.request.as_slice().iter().map(|port| &port.name);
        let ports = self.ports.into_iter().zip(names).zip(&networks);
        let ports = ports.map(|((port, name), network)| DeclaredPort {
            alias: port.alias,
            published: port.published,
            network: *network,
            name: cycle.number_of_port_name(name),
        });
        Ok(Profile {
            id,
            ports: ports.collect(),
            service_id: cycle.id_of_service(&self.service),
            service: self.service,
            request: self.request.in_networks(networks),
        })
    }
}

/// # Safety
///
/// `raw` points to what the header says.
unsafe fn read_port(raw: &PrPort, prefix: &str) -> Result<(WantedPort, WrittenPort), Failure> {
    if raw.flags & !PR_PORT_UNPUBLISHED != 0 {
        return Err(Failure::flags("port.flags", raw.flags));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { read_text(raw.name, MOST_TEXT, "port.name") }?;
    let name: PortName = name
        .ok_or_else(|| Failure::absent("port.name"))?
        .parse()
        .map_err(|fault| Failure::malformed("port.name", fault))?;
    // SAFETY: the caller's promise.
    let alias = unsafe { read_text(raw.env, MOST_TEXT, "port.env") }?;
    if let Some(alias) = &alias {
        check_alias(alias, prefix)?;
    }
    // SAFETY: the caller's promise.
    let network = unsafe { read_text(raw.network, MOST_TEXT, "port.network") }?;
    let network = network.map(|name| name.parse()).transpose();
    let network = network.map_err(|fault| Failure::malformed("port.network", fault))?;
    // SAFETY: the caller's promise.
    let within = unsafe { read_ranges(raw.within, raw.n_within, "port.within") }?;
    let want = match (Port::new(raw.fixed), NonZeroU16::new(raw.count)) {
        (Some(_), Some(count)) if count.get() > 1 => {
            return Err(Failure::said(
                PR_EINVAL,
                "a port is fixed and a block at once",
            ));
        }
        (Some(fixed), _) => Want::Fixed(fixed),
        (None, count) => Want::Any {
            count: count.unwrap_or(NonZeroU16::MIN),
        },
    };
    let port = WantedPort {
        name,
        protocol: protocol(raw.proto)?,
        want,
        within,
    };
    let beside = WrittenPort {
        alias,
        published: raw.flags & PR_PORT_UNPUBLISHED == 0,
        network,
    };
    Ok((port, beside))
}

pub(crate) fn protocol(proto: u32) -> Result<Protocol, Failure> {
    match proto {
        PR_TCP => Ok(Protocol::Tcp),
        PR_UDP => Ok(Protocol::Udp),
        PR_TCP_UDP => Ok(Protocol::TcpUdp),
        _ => Err(Failure::none_of(
            "proto",
            proto,
            "PR_TCP, PR_UDP or PR_TCP_UDP",
        )),
    }
}

/// The header's number of a protocol.
pub(crate) const fn proto(protocol: Protocol) -> u32 {
    match protocol {
        Protocol::Tcp => PR_TCP,
        Protocol::Udp => PR_UDP,
        Protocol::TcpUdp => PR_TCP_UDP,
    }
}

fn check_alias(alias: &str, prefix: &str) -> Result<(), Failure> {
    if !is_variable(alias) {
        return Err(Failure::malformed(
            "port.env",
            format_args!("{alias:?} is no variable: write A-Z, a-z, 0-9 and _, no digit first"),
        ));
    }
    if alias.starts_with(prefix) {
        return Err(Failure::malformed(
            "port.env",
            format_args!("{alias} begins with {prefix}, which is ours"),
        ));
    }
    Ok(())
}

/// Copies a set of numbers; `None` for null.
///
/// # Safety
///
/// `first` is null or points to `n` ranges.
pub(crate) unsafe fn read_ranges(
    first: *const PrRange,
    n: u32,
    what: &'static str,
) -> Result<Option<PortRanges>, Failure> {
    if first.is_null() && n == 0 {
        return Ok(None);
    }
    let most = u32::try_from(PortRanges::MAX_RANGES).unwrap_or(u32::MAX);
    // SAFETY: the caller's promise.
    let ranges = unsafe { Input::new(first, n, most, what) }?;
    let ranges = ranges
        .iter()
        .map(|range| read_range(range.lo, range.hi, what));
    Ok(Some(PortRanges::new(
        ranges.collect::<Result<Vec<_>, _>>()?,
    )))
}

/// The numbers from `lo` to `hi`.
pub(crate) fn read_range(lo: u16, hi: u16, what: &'static str) -> Result<PortRange, Failure> {
    let ends = Port::new(lo).zip(Port::new(hi));
    let range = ends.and_then(|(first, last)| PortRange::new(first, last));
    let asked = "is no range: the lower number first, both 1 to 65535";
    range.ok_or_else(|| Failure::malformed(what, format_args!("{lo}-{hi} {asked}")))
}
