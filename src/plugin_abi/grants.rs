//! Looking at one grant: by key, as a record, as an environment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::allocator::Allocator;
use crate::identity::{Incarnation, ReplicaId, Run};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::context::Context;
use crate::plugin_abi::entry::{Class, inside};
use crate::plugin_abi::failure::Failure;
use crate::plugin_abi::handle::{Handle, Kind};
use crate::plugin_abi::memory::{Output, Room, read, write_bytes};
use crate::plugin_abi::network::Addresses;
use crate::plugin_abi::register::{Key, Placed, Register, Stage};
use crate::plugin_abi::reserve::numbers;
use crate::plugin_abi::types::{PrAlloc, PrCtx, PrRec, PrWant};
use crate::port::PortName;
use crate::variables::{Setting, variables};

/// See `grant_find` in the header.
pub(super) unsafe extern "C" fn grant_find(
    ctx: PrCtx,
    key: *const PrWant,
    id: *mut PrAlloc,
) -> i32 {
    inside(ctx, Kind::Context, Class::Hot, |context, _| {
        // SAFETY: by C's promise null, or readable.
        let want = unsafe { read(key, "key") }?;
        // SAFETY: by C's promise null, or writable.
        let id = unsafe { Output::new(id, "id") }?;
        let key = Key::from(&want);
        let register = context.register();
        let found = match want.incarnation {
            PR_ANY => register.newest(key),
            exactly => register.find(key, exactly),
        };
        let unknown = Failure::value(PR_ENOENT, "job", want.job);
        id.set(found.ok_or(unknown)?.handle.id());
        Ok(PR_OK)
    })
}

/// See `grant_get` in the header.
pub(super) unsafe extern "C" fn grant_get(
    ctx: PrCtx,
    id: PrAlloc,
    record: *mut PrRec,
    ports: *mut u16,
    cap: u32,
    need: *mut u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Hot, |context, _| {
        // SAFETY: by C's promise null, or writable.
        let record = unsafe { Output::new(record, "record") }?;
        // SAFETY: by C's promise null, or room for `cap` numbers.
        let ports = unsafe { Room::new(ports, cap, "ports") }?;
        // SAFETY: by C's promise null, or writable.
        let need = unsafe { Output::new(need, "need") }?;
        let handle = Handle::read(id, Kind::Alloc)?;
        let cycle = context.hot()?;
        let register = context.register();
        let (found, numbers) = record_of(&cycle.allocator, &cycle.conflicts, &register, handle)?;
        need.set(found.n_ports);
        ports.fits(found.n_ports)?;
        ports.fill(numbers);
        record.set(found);
        Ok(PR_OK)
    })
}

/// A grant as a record, and every number of it.
pub(super) fn record_of<'a>(
    allocator: &Allocator,
    conflicts: &BTreeSet<ReplicaId>,
    register: &'a Register,
    handle: Handle,
) -> Result<(PrRec, impl Iterator<Item = u16> + use<'a>), Failure> {
    let (placed, stage) = register.get(handle)?;
    let host = allocator.host_id(&placed.host_name);
    let shared = conflicts.contains(&placed.replica());
    let reported = register.reported(handle);
    let record = PrRec {
        who: PrWant {
            job: placed.key.job,
            step: placed.key.step,
            replica: placed.key.replica,
            incarnation: placed.incarnation,
            profile: placed.profile.id,
            host: host.map_or(PR_ANY, |host| host.0),
            flags: 0,
        },
        id: handle.id(),
        seq: reported.seq,
        n_ports: placed.profile.numbers(),
        port_off: 0,
        state: match stage {
            Stage::Releasing => PR_P_RELEASING,
            Stage::Tentative | Stage::Held => PR_P_HELD,
        },
        cool_left_ms: 0,
        ready: reported.state,
        run: reported.run,
        restarts: reported.restarts,
        flags: if shared { PR_REC_CONFLICT } else { 0 },
    };
    Ok((record, numbers(&placed.grant)))
}

/// See `env` in the header.
pub(super) unsafe extern "C" fn env(
    ctx: PrCtx,
    id: PrAlloc,
    flags: u32,
    buf: *mut std::ffi::c_char,
    cap: u32,
    need: *mut u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Hot, |context, _| {
        // SAFETY: by C's promise null, or room for `cap`.
        let room = unsafe { Room::new(buf, cap, "buf") }?;
        // SAFETY: by C's promise null, or writable.
        let need = unsafe { Output::new(need, "need") }?;
        if flags != 0 {
            return Err(Failure::value(PR_EINVAL, "flags", u64::from(flags)));
        }
        let handle = Handle::read(id, Kind::Alloc)?;
        let (placed, address) = {
            let register = context.register();
            let placed = Arc::clone(register.get(handle)?.0);
            let address = register.addresses.get(&placed.host).cloned();
            (placed, address)
        };
        let mut text = Vec::new();
        for (name, value) in environment(context, &placed, &address.unwrap_or_default()) {
            text.extend_from_slice(name.as_bytes());
            text.push(b'=');
            text.extend_from_slice(value.as_bytes());
            text.push(0);
        }
        text.push(0);
        write_bytes(&text, &room, &need)
    })
}

/// What is known here of a replica's variables: not its runs, and its address only once reported.
fn environment(context: &Context, placed: &Placed, addresses: &Addresses) -> Vec<(String, String)> {
    let prefix = context.settings().prefix.as_str();
    let profile = &placed.profile;
    let reached = profile
        .ports
        .iter()
        .map(|port| addresses.of_port(port.network));
    let reached = placed.grant.ports.iter().zip(reached);
    let own = reached
        .clone()
        .filter_map(|(port, at)| Some((port.name.clone(), at?)));
    let port_addresses: BTreeMap<PortName, IpAddr> = own.collect();
    let lost = reached.filter(|(_, at)| at.is_none());
    let lost: BTreeSet<String> = lost
        .map(|(port, _)| format!("ADDR_{}", port.name.variable()))
        .collect();
    let setting = Setting {
        prefix,
        service: &profile.service,
        index: placed.key.replica,
        incarnation: Incarnation(placed.incarnation),
        run: Run::default(),
        host: &placed.host_name,
        host_address: addresses.usual.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
        port_addresses: &port_addresses,
        grant: &placed.grant,
        scratch: "",
        controller: "",
        token_file: "",
    };
    let named = profile.request.as_slice().iter().zip(&profile.ports);
    let aliases = named.filter_map(|(wanted, port)| Some((&wanted.name, port.alias.as_deref()?)));
    let mut all = variables(&setting, aliases);
    let only = match (placed.grant.ports.as_slice(), profile.ports.as_slice()) {
        ([port], [declared]) if declared.alias.as_deref() != Some("PORT") => Some(port),
        _ => None,
    };
    all.retain(|(name, _)| {
        let ours = name.strip_prefix(prefix).unwrap_or_default();
        let unknown = ours == "HOST_ADDR" && addresses.usual.is_none() || lost.contains(ours);
        let of_worker = matches!(ours, "RUN" | "SCRATCH" | "CONTROLLER" | "TOKEN_FILE");
        !of_worker && !unknown
    });
    if let Some(port) = only {
        all.push(("PORT".to_owned(), port.numbers.first().to_string()));
    }
    all
}
