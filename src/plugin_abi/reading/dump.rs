//! Everything a context knows, as text for people: what an operator asks a scheduler for when something is
//! wrong. So it must work when something is: each part is told by itself.

use std::ffi::c_char;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::allocator::HostState;
use crate::plugin_abi::border::entry::{Class, even_poisoned};
use crate::plugin_abi::border::handle::Kind;
use crate::plugin_abi::border::memory::{Output, Room, write_bytes};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::cycle::grants::record_of;
use crate::plugin_abi::state::context::Context;
use crate::plugin_abi::types::{PrCtx, PrRec, PrWant};
use crate::port::PortRange;
use crate::port_pool::Want;

/// See `dump` in the header.
pub(crate) unsafe extern "C" fn dump(
    ctx: PrCtx,
    buf: *mut c_char,
    cap: u32,
    need: *mut u32,
) -> i32 {
    even_poisoned(ctx, Kind::Context, Class::Read, |context, _| {
        // SAFETY: by C's promise null, or room for `cap`.
        let room = unsafe { Room::new(buf, cap, "buf") }?;
        // SAFETY: by C's promise null, or writable.
        let need = unsafe { Output::new(need, "need") }?;
        let mut text = told(context).into_bytes();
        text.push(0);
        write_bytes(&text, &room, &need)
    })
}

/// So many of each are told one by one.
const MOST: usize = 1000;

/// A part of the text.
type Part = fn(&Context, &mut String) -> fmt::Result;

fn told(context: &Context) -> String {
    let parts: [(&str, Part); 6] = [
        ("context", state),
        ("counts", counts),
        ("hosts", hosts),
        ("profiles", profiles),
        ("grants", grants),
        ("waits", waits),
    ];
    let mut text = String::new();
    for (name, part) in parts {
        let mut told = String::new();
        // In a poisoned context a defect may show again: the other parts are told all the same.
        let whole = catch_unwind(AssertUnwindSafe(|| part(context, &mut told)));
        text.push_str(&told);
        if !matches!(whole, Ok(Ok(()))) {
            text.push_str(name);
            text.push_str(": the rest cannot be told, a defect is in the way\n");
        }
    }
    text
}

fn state(context: &Context, to: &mut String) -> fmt::Result {
    let settings = context.settings();
    let sound = match context.check_sound() {
        Ok(()) => "sound",
        Err(_) => "poisoned: destroy it, create and restore",
    };
    write!(to, "context {:#x}: {sound}; ", context.handle().id())?;
    let outline = context.register().outline.clone();
    let open = match outline.what_if {
        None => "no transaction is open",
        Some(true) => "a what-if is open",
        Some(false) => "a transaction is open",
    };
    let phase = if outline.restoring {
        "restore phase; "
    } else {
        ""
    };
    write!(to, "{phase}{open}")?;
    for (place, network) in outline.networks.iter().enumerate() {
        let begin = if place == 0 { "; networks" } else { "" };
        write!(to, "{begin} {network}")?;
    }
    let now = context.at(0);
    write!(to, "\ntime: {} ms; ", now.as_millis())?;
    match context.allocator().next_deadline() {
        Some(due) => writeln!(
            to,
            "next due at {} ms, in {} ms",
            due.as_millis(),
            due.since(now).as_millis()
        )?,
        None => writeln!(to, "nothing is due")?,
    }
    let limits = settings.limits;
    writeln!(
        to,
        "limits: {} hosts, {} grants, {} profiles, {} waits, {} numbers in a transaction; variables begin with {}",
        limits.hosts, limits.allocs, limits.profiles, limits.waits, limits.ports, settings.prefix
    )
}

fn counts(context: &Context, to: &mut String) -> fmt::Result {
    let it = context.stats();
    writeln!(
        to,
        "counts: {} hosts, {} grants, {} waits, {} snapshots, {} watches, {} of them reset; {} of {} numbers in grants, {} cool",
        it.hosts,
        it.allocs,
        it.waits,
        it.snaps,
        it.watches,
        it.watch_resets,
        it.ports_used,
        it.ports_total,
        it.ports_cooling
    )?;
    writeln!(
        to,
        "calls: {} commits, {} aborts, {} busy, {} stale, {} queued; about {} bytes",
        it.commits, it.aborts, it.busy, it.stale, it.queued, it.bytes
    )
}

fn hosts(context: &Context, to: &mut String) -> fmt::Result {
    let all = context.allocator().hosts();
    writeln!(to, "hosts: {}", all.len())?;
    for (index, name, state) in all.iter().take(MOST) {
        let counts = context.allocator().counts(*index);
        let state = match state {
            HostState::Up => "up",
            HostState::Drained => "drained",
            HostState::Suspect => "suspect",
            HostState::Lost => "lost",
            HostState::NotReported => "not reported",
        };
        writeln!(
            to,
            "  {index} {name}: {state}, {} numbers for any, free {} tcp {} udp, {} held, {} cool",
            counts.dynamic, counts.free_tcp, counts.free_udp, counts.held, counts.resting
        )?;
    }
    more(to, all.len())
}

fn profiles(context: &Context, to: &mut String) -> fmt::Result {
    let all: Vec<_> = {
        let register = context.register();
        register.profiles.iter().flatten().cloned().collect()
    };
    writeln!(to, "profiles: {}", all.len())?;
    for profile in all.iter().take(MOST) {
        write!(to, "  {} {}:", profile.id, profile.service)?;
        for port in profile.request.as_slice() {
            write!(to, " {}=", port.name)?;
            match port.want {
                Want::Fixed(number) => write!(to, "{number}")?,
                Want::Any { count } if count.get() > 1 => write!(to, "any*{count}")?,
                Want::Any { .. } => write!(to, "any")?,
            }
            write!(to, "/{}", port.protocol)?;
        }
        writeln!(to)?;
    }
    more(to, all.len())
}

fn grants(context: &Context, to: &mut String) -> fmt::Result {
    let (mut all, mut total, mut slot) = (Vec::new(), 0, Some(0));
    while let Some(from) = slot {
        // Let go of now and then: no hot call waits for the whole text.
        let register = context.register();
        slot = register.some_living(from, |handle| {
            total += 1;
            if total <= MOST
                && let Ok((record, numbers)) = record_of(context.allocator(), &register, handle)
            {
                all.push((record, numbers.collect::<Vec<u16>>()));
            }
            true
        });
    }
    writeln!(to, "grants: {total}")?;
    for (record, numbers) in &all {
        grant(record, numbers, to)?;
    }
    more(to, total)
}

fn grant(record: &PrRec, numbers: &[u16], to: &mut String) -> fmt::Result {
    let who = &record.who;
    write!(to, "  ")?;
    key(who, to)?;
    match who.host {
        PR_ANY => write!(to, " on a host that is gone:")?,
        host => write!(to, " on host {host}:")?,
    }
    let numbers = numbers.iter().filter_map(|it| crate::port::Port::new(*it));
    let numbers = crate::port::PortRanges::new(numbers.map(PortRange::single));
    for range in numbers.as_slice() {
        write!(to, " {range}")?;
    }
    let releasing = record.state == PR_P_RELEASING;
    let state = if releasing { "releasing" } else { "held" };
    let said = match record.ready {
        PR_E_READY => "ready",
        PR_E_SERVING => "serving",
        PR_E_UNCONFIRMED => "unconfirmed",
        PR_E_TERMINATING => "terminating",
        _ => "not ready",
    };
    let shared = if record.flags & PR_REC_CONFLICT == 0 {
        ""
    } else {
        ", shares a number"
    };
    writeln!(
        to,
        "; {state}, run {} said {said}, {} restarts{shared}",
        record.run, record.restarts
    )
}

fn key(who: &PrWant, to: &mut String) -> fmt::Result {
    let PrWant {
        job,
        step,
        replica,
        incarnation,
        profile,
        ..
    } = who;
    write!(
        to,
        "job {job} step {step} replica {replica} incarnation {incarnation} of profile {profile}"
    )
}

fn waits(context: &Context, to: &mut String) -> fmt::Result {
    let (all, total) = context.register().waits.listed(MOST);
    writeln!(to, "waits: {total}")?;
    for who in &all {
        write!(to, "  ")?;
        key(who, to)?;
        match who.host {
            PR_ANY => writeln!(to, " for any host")?,
            host => writeln!(to, " for host {host}")?,
        }
    }
    more(to, total)
}

fn more(to: &mut String, all: usize) -> fmt::Result {
    match all.checked_sub(MOST) {
        None | Some(0) => Ok(()),
        Some(rest) => writeln!(to, "  … and {rest} more"),
    }
}
