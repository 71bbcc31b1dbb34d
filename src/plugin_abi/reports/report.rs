//! Reports: addresses and readiness, and the pump that lets readers see what hot calls did.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::endpoints::EndpointState;
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::border::memory::{Input, Output, Room};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::network::Reported as ReportedAddress;
use crate::plugin_abi::control::profile::{protocol, read_range};
use crate::plugin_abi::state::context::Context;
use crate::plugin_abi::state::queue::{Queued, RefusedBind};
use crate::plugin_abi::state::register::{Reported, Stage, not_committed};
use crate::plugin_abi::types::{PrAddr, PrAlloc, PrCtx, PrForeign, PrReady};
use crate::port::Port;
use crate::port_pool::{Foreign, GrantedPort, Side, Stranger};
use crate::time::Monotonic;

/// See `pump` in the header.
pub(crate) unsafe extern "C" fn pump(ctx: PrCtx, now_ms: u64, next_ms: *mut u64) -> i32 {
    inside(ctx, Kind::Context, Class::Report, |context, _| {
        // SAFETY: by C's promise null, or writable.
        let next_ms = unsafe { Output::new(next_ms, "next_ms") }?;
        let now = context.at(now_ms);
        let due = {
            let mut cycle = context.between()?;
            if cycle.open.is_none() {
                cycle.apply_queue(context);
                let nobody_waits = context.register().waits.is_empty();
                if !nobody_waits {
                    let woken = cycle.allocator.take_woken(now);
                    let mut register = context.register();
                    register.waits.wake(context.handle(), woken);
                    if register.waits.has_woken() {
                        drop(register);
                        context.doorbell.tell();
                    }
                } else {
                    // Whom the freed numbers would wake need not be asked.
                    cycle.allocator.on_deadline(now);
                }
            }
            cycle.allocator.next_deadline()
        };
        context.register().drop_profile(None);
        context.report(|_| ());
        next_ms.set(due.map_or(PR_NEVER, Monotonic::as_millis));
        Ok(PR_OK)
    })
}

/// See `report_addr` in the header.
pub(crate) unsafe extern "C" fn report_addr(
    ctx: PrCtx,
    host: u32,
    seq: u64,
    addresses: *const PrAddr,
    n: u32,
) -> i32 {
    const MOST_ADDRESSES: u32 = 256;
    inside(ctx, Kind::Context, Class::Report, |context, _| {
        // SAFETY: by C's promise null, or `n` readable elements.
        let addresses = unsafe { Input::new(addresses, n, MOST_ADDRESSES, "addresses") }?;
        let read = |(place, raw): (usize, PrAddr)| {
            let address = read_address(&raw);
            let address = address.map_err(|failure| failure.of_element("addresses", place))?;
            let rank = (raw.pref, raw.scope);
            Ok(ReportedAddress { rank, address })
        };
        let reported = addresses.iter().enumerate().map(read);
        let reported: Vec<ReportedAddress> = reported.collect::<Result<_, Failure>>()?;
        context.report(|board| {
            let number = board.host_at(host)?;
            let chosen = board.report_addresses(number, seq, reported)?;
            context.register().rechoose(chosen);
            Ok(PR_OK)
        })
    })
}

fn read_address(raw: &PrAddr) -> Result<IpAddr, Failure> {
    const HOST_SCOPE: u32 = 3;
    if raw.flags != 0 {
        return Err(Failure::flags("address.flags", raw.flags));
    }
    if raw.scope > HOST_SCOPE {
        return Err(Failure::none_of("address.scope", raw.scope, "0 to 3"));
    }
    let address = ip_address(raw.family, raw.ip);
    let address = address.ok_or(Failure::none_of("address.family", raw.family, "4 or 6"))?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(Failure::said(
            PR_EINVAL,
            "no client can connect to such an address",
        ));
    }
    Ok(address)
}

/// The address that the header writes so; `None` for another family, or bytes behind a short address.
pub(crate) fn ip_address(family: u32, ip: [u8; 16]) -> Option<IpAddr> {
    match (family, ip) {
        (4, [a, b, c, d, rest @ ..]) if rest == [0; 12] => {
            Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
        }
        (6, ip) => Some(IpAddr::V6(Ipv6Addr::from(ip))),
        _ => None,
    }
}

/// See `report_ready` in the header.
pub(crate) unsafe extern "C" fn report_ready(
    ctx: PrCtx,
    reports: *const PrReady,
    n: u32,
    rc: *mut i32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Report, |context, _| {
        let most = context.settings().limits.allocs;
        // SAFETY: by C's promise null, or `n` readable elements.
        let reports = unsafe { Input::new(reports, n, most, "reports") }?;
        // SAFETY: by C's promise null, or room for `n` codes.
        let codes = unsafe { Room::optional(rc, n, "rc") }?;
        let mut first = None;
        context.report(|board| {
            for (place, report) in (0..).zip(reports.iter()) {
                let done = read_report(&report).and_then(|(handle, state)| {
                    let order = (report.run, report.seq);
                    let taken = board.report_ready(handle, order, state);
                    taken.unwrap_or_else(|| Err(why_not_posted(context, handle)))?;
                    let reported = Reported {
                        seq: report.seq,
                        run: report.run,
                        state: report.state,
                        restarts: report.restarts,
                    };
                    context.register().note(handle, reported);
                    Ok(())
                });
                codes.set(place, done.as_ref().err().map_or(PR_OK, Failure::code));
                first = first.take().or(done.err());
            }
        });
        first.map_or(Ok(PR_OK), Err)
    })
}

fn read_report(report: &PrReady) -> Result<(Handle, EndpointState), Failure> {
    let handle = Handle::read(report.id, Kind::Alloc)?;
    Ok((handle, read_state(report.state)?))
}

/// The state of an endpoint.
pub(crate) fn read_state(state: u32) -> Result<EndpointState, Failure> {
    match state {
        PR_E_NOT_READY => Ok(EndpointState::NotReady),
        PR_E_READY => Ok(EndpointState::Ready),
        PR_E_SERVING => Ok(EndpointState::Serving),
        PR_E_UNCONFIRMED => Ok(EndpointState::Unconfirmed),
        PR_E_TERMINATING => Ok(EndpointState::Terminating),
        other => Err(Failure::none_of(
            "state of an endpoint",
            other,
            "PR_E_NOT_READY, _READY, _SERVING, _UNCONFIRMED or _TERMINATING",
        )),
    }
}

/// The header's number of a state.
pub(crate) const fn state_number(state: EndpointState) -> u32 {
    match state {
        EndpointState::NotReady => PR_E_NOT_READY,
        EndpointState::Ready => PR_E_READY,
        EndpointState::Serving => PR_E_SERVING,
        EndpointState::Unconfirmed => PR_E_UNCONFIRMED,
        EndpointState::Terminating => PR_E_TERMINATING,
    }
}

fn why_not_posted(context: &Context, handle: Handle) -> Failure {
    match context.register().get(handle) {
        Ok(entered) if entered.stage == Stage::Tentative => not_committed(),
        _ => handle.stale(),
    }
}

/// See `report_foreign` in the header.
pub(crate) unsafe extern "C" fn report_foreign(
    ctx: PrCtx,
    host: u32,
    seq: u64,
    listeners: *const PrForeign,
    n: u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Report, |context, _| {
        // SAFETY: by C's promise null, or `n` readable elements.
        let listeners = unsafe { Input::new(listeners, n, MOST_FOREIGN, "listeners") }?;
        let mut list = Vec::new();
        for (place, raw) in listeners.iter().enumerate() {
            let read = read_foreign(&raw, &mut list);
            read.map_err(|failure| failure.of_element("listeners", place))?;
        }
        context.report(|board| {
            let name = board.report_foreign(host, seq)?;
            let report = Box::new((name, list));
            context.register().queue.push(Queued::Foreign(report));
            Ok(PR_OK)
        })
    })
}

/// Each number of both sides once.
const MOST_FOREIGN: u32 = 2 * 65_535;

fn read_foreign(raw: &PrForeign, list: &mut Vec<Foreign>) -> Result<(), Failure> {
    if raw.flags != 0 {
        return Err(Failure::flags("listener.flags", raw.flags));
    }
    let protocol = protocol(raw.proto)?;
    let range = read_range(raw.lo, raw.hi, "listener")?;
    let all = list.len() as u64 + u64::from(range.count());
    if all > u64::from(MOST_FOREIGN) {
        return Err(Failure::limit(
            "numbers of listeners",
            all,
            MOST_FOREIGN.into(),
        ));
    }
    let name: Vec<u8> = raw.comm.iter().map(|byte| byte.cast_unsigned()).collect();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    list.extend(range.iter().map(|port| Foreign {
        port,
        protocol,
        pid: (raw.pid != 0).then_some(raw.pid),
        comm: (!name.is_empty()).then(|| name.clone().into_owned()),
    }));
    Ok(())
}

/// See `report_conflict` in the header.
pub(crate) unsafe extern "C" fn report_conflict(
    ctx: PrCtx,
    id: PrAlloc,
    port: u16,
    proto: u32,
    pid: u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Report, |context, _| {
        let handle = Handle::read(id, Kind::Alloc)?;
        let protocol = protocol(proto)?;
        let number = Failure::value(PR_ENOENT, "a number of this grant", u64::from(port));
        let port = Port::new(port).ok_or(number.clone())?;
        let at = context.at(0);
        let mut register = context.register();
        let entered = register.get(handle)?;
        if entered.stage == Stage::Tentative {
            return Err(not_committed());
        }
        let has = |granted: &GrantedPort| {
            let mut sides = Side::of(protocol);
            granted.numbers.iter().any(|it| it == port)
                && sides.all(|side| Side::of(granted.protocol).any(|of| of == side))
        };
        if !entered.ports().any(|port| has(&port)) {
            return Err(number);
        }
        let standing = register.hosts.get(&entered.host);
        let standing = standing.ok_or_else(|| handle.stale())?;
        let refused = RefusedBind {
            host: standing.name.clone(),
            port,
            protocol,
            stranger: Stranger {
                pid: (pid != 0).then_some(pid),
                comm: None,
            },
            at,
        };
        register.queue.push(Queued::Conflict(Box::new(refused)));
        Ok(PR_OK)
    })
}
