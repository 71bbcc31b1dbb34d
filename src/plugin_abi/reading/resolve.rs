//! Reading endpoints: without a lock, from one version of the service.

use std::net::IpAddr;

use crate::endpoints::Entry;
use crate::identity::ServiceName;
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::Kind;
use crate::plugin_abi::border::memory::{Output, Room, read_text};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::proto;
use crate::plugin_abi::reports::report::state_number;
use crate::plugin_abi::state::board::Member;
use crate::plugin_abi::types::{PrCtx, PrEndpoint, PrStr};

/// See `resolve` in the header.
pub(crate) unsafe extern "C" fn resolve(
    ctx: PrCtx,
    service: PrStr,
    port: PrStr,
    flags: u32,
    endpoints: *mut PrEndpoint,
    cap: u32,
    need: *mut u32,
    revision: *mut u64,
) -> i32 {
    inside(ctx, Kind::Context, Class::Read, |context, _| {
        // SAFETY: by C's promise readable during the call.
        let service = unsafe { read_service(service) }?;
        // SAFETY: as above.
        let port = unsafe { read_text(port, MOST_NAME, "port") }?;
        // SAFETY: by C's promise null, or room for `cap` elements.
        let room = unsafe { Room::new(endpoints, cap, "endpoints") }?;
        // SAFETY: by C's promise null, or writable.
        let need = unsafe { Output::new(need, "need") }?;
        // SAFETY: by C's promise null, or writable.
        let revision = unsafe { Output::new(revision, "revision") }?;
        if flags & !PR_RESOLVE_ALL != 0 {
            return Err(Failure::flags("flags", flags));
        }
        let all = flags & PR_RESOLVE_ALL != 0;
        let service = service.ok_or_else(|| Failure::absent("service"))?;
        let told = context.table().read(&service, |snapshot| {
            let entries = snapshot.entries();
            let shown = entries.filter(|(member, _)| all || member.is_listed());
            let rows = shown.flat_map(|(member, since)| rows(member, since, port.as_deref()));
            let rows = rows.filter(|row| all || row.family != 0);
            let count = u32::try_from(rows.clone().count()).unwrap_or(u32::MAX);
            need.set(count);
            room.fits(count)?;
            room.fill(rows);
            revision.set(if all {
                snapshot.mod_revision()
            } else {
                snapshot.ready_revision()
            });
            Ok(PR_OK)
        });
        told.unwrap_or_else(|| Err(unknown(&service)))
    })
}

/// The longest name.
const MOST_NAME: usize = 255;

/// Copies the name of a service; `None` if it is absent.
///
/// # Safety
///
/// As [`read_text`].
pub(crate) unsafe fn read_service(service: PrStr) -> Result<Option<ServiceName>, Failure> {
    // SAFETY: the caller's promise.
    let service = unsafe { read_text(service, MOST_NAME, "service") }?;
    let service = service.map(|service| service.parse());
    service
        .transpose()
        .map_err(|fault| Failure::malformed("service", fault))
}

pub(crate) fn unknown(service: &ServiceName) -> Failure {
    Failure::told(PR_ENOENT, format_args!("no service {service} is known"))
}

/// One row per published port of a replica.
pub(crate) fn rows<'a>(
    member: &'a Member,
    revision: u64,
    port: Option<&'a str>,
) -> impl Iterator<Item = PrEndpoint> + Clone + 'a {
    let placed = &member.placed.0;
    let declared = &placed.profile.ports;
    let granted = placed.grant.ports.iter().zip(declared).enumerate();
    let wanted = granted.filter(move |(_, (granted, declared))| {
        declared.published && port.is_none_or(|port| granted.name.as_str() == port)
    });
    wanted.map(move |(place, (granted, declared))| {
        let (ip, family) = spelled(member.reached.of_port(place));
        PrEndpoint {
            id: member.handle.id(),
            revision,
            ip,
            port: granted.numbers.first().number(),
            // A block has at most 256 numbers.
            count: u16::try_from(granted.numbers.count()).unwrap_or(u16::MAX),
            family,
            proto: proto(granted.protocol),
            state: state_number(member.state),
            service: u32::try_from(placed.profile.service_id.0).unwrap_or(u32::MAX),
            name: declared.name,
            replica: member.key.replica,
            host: member.host,
        }
    })
}

/// An address as the header writes it; family 0 if there is none.
fn spelled(address: Option<IpAddr>) -> ([u8; 16], u32) {
    let mut ip = [0; 16];
    match address {
        None => (ip, 0),
        Some(IpAddr::V4(v4)) => {
            ip[..4].copy_from_slice(&v4.octets());
            (ip, 4)
        }
        Some(IpAddr::V6(v6)) => (v6.octets(), 6),
    }
}
