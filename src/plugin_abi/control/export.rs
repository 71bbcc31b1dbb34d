//! Reading everything out that a later context restores: grants, and numbers that still cool.

use std::collections::BTreeMap;

use crate::identity::{HostId, ServiceId};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::Kind;
use crate::plugin_abi::border::memory::{Output, Room, read};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::cycle::grants::record_of;
use crate::plugin_abi::state::context::{Context, Cycle};
use crate::plugin_abi::types::{PrCtx, PrRec, PrWant};
use crate::port_pool::Side;
use crate::time::Monotonic;

/// See `export_` in the header.
pub(crate) unsafe extern "C" fn export(
    ctx: PrCtx,
    cursor: *mut u64,
    records: *mut PrRec,
    cap: u32,
    ports: *mut u16,
    ports_cap: u32,
    n: *mut u32,
    n_ports: *mut u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Control, |context, _| {
        // SAFETY: by C's promise null, or readable.
        let from = Place::read(unsafe { read(cursor, "cursor") }?);
        // SAFETY: by C's promise null, or writable.
        let cursor = unsafe { Output::new(cursor, "cursor") }?;
        // SAFETY: by C's promise null, or room for `cap` elements.
        let records = unsafe { Room::new(records, cap, "records") }?;
        // SAFETY: by C's promise null, or room for `ports_cap` numbers.
        let ports = unsafe { Room::new(ports, ports_cap, "ports") }?;
        // SAFETY: by C's promise null, or writable.
        let n = unsafe { Output::new(n, "n") }?;
        // SAFETY: by C's promise null, or writable.
        let n_ports = unsafe { Output::new(n_ports, "n_ports") }?;
        let mut cycle = context.control()?;
        if cycle.restoring {
            // What cools is known to the pools only then.
            return Err(Failure::said(PR_EAGAIN, "restore_end has not been called"));
        }
        // What was confirmed before this call cools already.
        cycle.apply_queue(context);
        let mut piece = Piece {
            records,
            ports,
            n: 0,
            n_ports: 0,
            full: None,
        };
        let place = cycle.export(context, from, &mut piece);
        if let Some(full) = piece.full.filter(|_| piece.n == 0) {
            return Err(full);
        }
        cursor.set(place.number());
        n.set(piece.n);
        n_ports.set(piece.n_ports);
        Ok(PR_OK)
    })
}

/// Where an export goes on. It names a slot or a number, not how many came before, so that what stays
/// is told once, whatever comes and goes between two pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// With the grants from this slot on.
    Grants(u32),
    /// With what cools on this host from this number of a side on.
    Cooling(u32, Side, u16),
}

/// Set in a cursor that is among what cools.
const COOLING: u64 = 1 << 63;
const UDP: u64 = 1 << 16;

impl Place {
    /// The place that a number says; any number says one.
    #[expect(clippy::cast_possible_truncation, reason = "each is cut to its field")]
    const fn read(cursor: u64) -> Self {
        if cursor & COOLING == 0 {
            return Self::Grants(if cursor > u32::MAX as u64 {
                u32::MAX
            } else {
                cursor as u32
            });
        }
        let side = if cursor & UDP == 0 {
            Side::Tcp
        } else {
            Side::Udp
        };
        Self::Cooling((cursor >> 17) as u32, side, cursor as u16)
    }

    const fn number(self) -> u64 {
        match self {
            Self::Grants(slot) => slot as u64,
            Self::Cooling(host, side, first) => {
                let side = match side {
                    Side::Tcp => 0,
                    Side::Udp => UDP,
                };
                COOLING | (host as u64) << 17 | side | first as u64
            }
        }
    }
}

/// What one call tells.
struct Piece {
    records: Room<PrRec>,
    ports: Room<u16>,
    n: u32,
    n_ports: u32,
    /// Why the next record is left for the next piece.
    full: Option<Failure>,
}

impl Piece {
    /// Adds a record; whether there was room for it.
    fn push(&mut self, record: PrRec, numbers: impl Iterator<Item = u16>) -> bool {
        let fits = (self.records.fits(self.n.saturating_add(1)))
            .and_then(|()| self.ports.fits(self.n_ports.saturating_add(record.n_ports)));
        if let Err(full) = fits {
            self.full = Some(full);
            return false;
        }
        let port_off = self.n_ports;
        for number in numbers {
            self.ports.set(self.n_ports, number);
            self.n_ports += 1;
        }
        self.records.set(self.n, PrRec { port_off, ..record });
        self.n += 1;
        true
    }
}

/// So many numbers of a long run are told in one record, so that room for one replica is always enough.
const MOST_NUMBERS: u16 = 256;

impl Cycle {
    /// Tells what there is room for, and where the next piece begins.
    fn export(&self, context: &Context, from: Place, piece: &mut Piece) -> Place {
        let mut cooling_from = match from {
            Place::Grants(slot) => {
                if let Some(next) = self.export_grants(context, slot, piece) {
                    return next;
                }
                (0, Side::Tcp, 0)
            }
            Place::Cooling(host, side, number) => (host, side, number),
        };
        let profiles = self.profiles_by_service();
        let now = context.at(0);
        for (host, ..) in self.allocator.hosts() {
            let (first_host, first_side, first_number) = cooling_from;
            if host.0 < first_host {
                continue;
            }
            let resting = self.allocator.resting(host).into_iter();
            for (side, numbers, until, service) in resting.filter(|it| it.2 > now) {
                let (mut first, last) = (numbers.first().number(), numbers.last().number());
                if host.0 == first_host {
                    if side < first_side || side == first_side && last < first_number {
                        continue;
                    }
                    if side == first_side {
                        first = first.max(first_number);
                    }
                }
                loop {
                    let end = last.min(first.saturating_add(MOST_NUMBERS - 1));
                    let profile = profiles.get(&service).copied().unwrap_or(PR_ANY);
                    let mut record = cooling_record(host, side, profile, until, now);
                    record.n_ports = u32::from(end - first) + 1;
                    if !piece.push(record, first..=end) {
                        return Place::Cooling(host.0, side, first);
                    }
                    if end == last {
                        break;
                    }
                    first = end + 1;
                }
            }
            cooling_from = (host.0 + 1, Side::Tcp, 0);
        }
        let (host, side, number) = cooling_from;
        Place::Cooling(host, side, number)
    }

    /// Tells grants from a slot on; where to go on, if not all of them had room.
    fn export_grants(&self, context: &Context, from: u32, piece: &mut Piece) -> Option<Place> {
        let (mut slot, mut full) = (Some(from), None);
        while let Some(from) = slot {
            // Let go of now and then: a release on another thread may wait for it.
            let register = context.register();
            slot = register.some_living(from, |handle| {
                // It lives, as the register said.
                if let Ok((record, numbers)) = record_of(context.allocator(), &register, handle)
                    && !piece.push(record, numbers)
                {
                    full = Some(Place::Grants(handle.slot()));
                }
                full.is_none()
            });
        }
        full
    }

    /// The lowest profile of each service.
    fn profiles_by_service(&self) -> BTreeMap<ServiceId, u32> {
        let profiles = self.profiles.iter().rev().flatten();
        profiles.map(|it| (it.service_id, it.id)).collect()
    }
}

/// Numbers of one side that cool on a host, without the numbers. Who held them is not known.
fn cooling_record(
    host: HostId,
    side: Side,
    profile: u32,
    until: Monotonic,
    now: Monotonic,
) -> PrRec {
    let left = until.since(now).as_millis();
    PrRec {
        who: PrWant {
            job: 0,
            step: PR_ANY,
            replica: PR_ANY,
            incarnation: 0,
            profile,
            host: host.0,
            flags: 0,
        },
        id: 0,
        seq: 0,
        n_ports: 0,
        port_off: 0,
        state: PR_P_COOLING,
        cool_left_ms: u32::try_from(left).unwrap_or(u32::MAX),
        ready: PR_E_NOT_READY,
        run: 0,
        restarts: 0,
        flags: match side {
            Side::Tcp => PR_REC_TCP,
            Side::Udp => PR_REC_UDP,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_its_place_and_every_number_is_a_cursor() {
        for place in [
            Place::Grants(0),
            Place::Grants(u32::MAX),
            Place::Cooling(0, Side::Tcp, 1),
            Place::Cooling(u32::MAX, Side::Udp, u16::MAX),
        ] {
            assert_eq!(Place::read(place.number()), place);
        }
        assert_eq!(Place::read(u64::MAX >> 1), Place::Grants(u32::MAX));
        let all = Place::Cooling(u32::MAX, Side::Udp, u16::MAX);
        assert_eq!(Place::read(u64::MAX), all);
    }
}
