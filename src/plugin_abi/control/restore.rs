//! The restore phase: what the scheduler's own records say is held.

use std::time::Duration;

use crate::allocator::{Conflict, CoolingRecord, GrantRecord};
use crate::endpoints::EndpointState;
use crate::identity::{HostId, ServiceId};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::border::memory::{Input, Output, Room};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::reports::report::read_state;
use crate::plugin_abi::state::context::{Context, Cycle};
use crate::plugin_abi::state::register::{Entry, Key, Reported, replica_id};
use crate::plugin_abi::types::{PrCtx, PrGrant, PrRec};
use crate::port::{Port, PortRange, PortRanges, Protocol};
use crate::port_pool::{GrantedPort, PortGrant};

/// See `restore_put` in the header.
pub(crate) unsafe extern "C" fn restore_put(
    ctx: PrCtx,
    records: *const PrRec,
    n: u32,
    ports: *const u16,
    n_ports: u32,
    grants: *mut PrGrant,
) -> i32 {
    inside(ctx, Kind::Context, Class::Control, |context, _| {
        let most = context.settings().limits.allocs;
        // SAFETY: by C's promise null, or `n` readable elements.
        let records = unsafe { Input::new(records, n, most, "records") }?;
        // SAFETY: by C's promise null, or `n_ports` readable numbers.
        let ports = unsafe { Input::new(ports, n_ports, most.saturating_mul(256), "ports") }?;
        // SAFETY: by C's promise null, or room for `n` elements.
        let grants = unsafe { Room::optional(grants, n, "grants") }?;
        let mut cycle = context.control()?;
        if !cycle.restoring {
            return Err(Failure::said(PR_ESTATE, "the restore phase is over"));
        }
        let mut first = None;
        let mut presumed = Vec::new();
        for (place, record) in (0..).zip(records.iter()) {
            let restored = cycle.restore(context, &record, &ports);
            grants.set(place, told(&record, &restored));
            match restored {
                Ok(Some(back)) => presumed.push((back, (record.run, record.seq))),
                Ok(None) => {}
                Err(failure) => first = first.or(Some(failure)),
            }
        }
        context.report(|board| {
            for ((handle, state), order) in presumed {
                // Nobody has said since the restart that it still is.
                let state = match state {
                    EndpointState::Ready => EndpointState::Unconfirmed,
                    other => other,
                };
                board.presume(handle, order, state);
            }
        });
        first.map_or(Ok(PR_OK), Err)
    })
}

fn told(record: &PrRec, restored: &Result<Option<(Handle, EndpointState)>, Failure>) -> PrGrant {
    let handle = restored
        .as_ref()
        .ok()
        .copied()
        .flatten()
        .map(|(handle, _)| handle);
    PrGrant {
        id: handle.map_or(0, Handle::id),
        rc: restored.as_ref().err().map_or(PR_OK, Failure::code),
        reason: PR_R_NONE,
        host: record.who.host,
        n_ports: record.n_ports,
        port_off: record.port_off,
        retry_ms: 0,
    }
}

impl Cycle {
    /// Brings one record back: a grant under a new id, or numbers that rest.
    fn restore(
        &mut self,
        context: &Context,
        record: &PrRec,
        ports: &Input<u16>,
    ) -> Result<Option<(Handle, EndpointState)>, Failure> {
        let sides = record.flags & (PR_REC_TCP | PR_REC_UDP);
        if record.flags & !(PR_REC_CONFLICT | PR_REC_TCP | PR_REC_UDP) != 0
            || sides != 0 && record.state != PR_P_COOLING
            || record.who.flags & !PR_WANT_PREFER != 0
        {
            return Err(Failure::flags("record.flags", record.flags));
        }
        let state = read_state(record.ready)?;
        if sides != 0 {
            self.restore_numbers(record, ports)?;
            return Ok(None);
        }
        let profile = self.profile(record.who.profile)?;
        let host = HostId(record.who.host);
        let unknown = Failure::value(PR_ENOENT, "host", u64::from(host.0));
        let host_name = self.allocator.host_name(host).ok_or(unknown)?;
        let grant = read_grant(&profile, record, ports)?;
        let releasing = match record.state {
            PR_P_HELD => false,
            PR_P_RELEASING => true,
            PR_P_COOLING => {
                let left = Duration::from_millis(u64::from(record.cool_left_ms));
                self.resting
                    .extend(grant.ports.iter().map(|port| CoolingRecord {
                        host,
                        protocol: port.protocol,
                        numbers: port.numbers,
                        service: profile.service_id,
                        left,
                    }));
                return Ok(None);
            }
            other => {
                return Err(Failure::none_of(
                    "record.state",
                    other,
                    "PR_P_HELD, _RELEASING or _COOLING",
                ));
            }
        };
        let key = Key::from(&record.who);
        let mut register = context.register();
        if register.find(key, record.who.incarnation).is_some() {
            return Err(Failure::value(PR_EEXIST, "job", key.job));
        }
        let handle = register.next()?;
        let replica = replica_id(&profile, handle);
        let conflicts = self.allocator.restore([GrantRecord {
            host,
            replica,
            grant: grant.clone(),
            // Begins with the queue, as every release does.
            releasing: false,
        }]);
        for conflict in conflicts {
            if let Conflict::Shared { first, second, .. } = conflict {
                register.conflicts.extend([first, second]);
            }
        }
        let entry = Entry {
            key,
            incarnation: record.who.incarnation,
            host: self.number_of_host(&host_name),
            profile,
        };
        let numbers: Vec<PortRange> = grant.ports.iter().map(|port| port.numbers).collect();
        register.enter(handle, entry, &numbers)?;
        register.hold(handle);
        register.note(
            handle,
            Reported {
                seq: record.seq,
                run: record.run,
                state: record.ready,
                restarts: record.restarts,
            },
        );
        if releasing {
            register.begin_release(handle)?;
        }
        Ok(Some((handle, state)))
    }
}

impl Cycle {
    /// Lets numbers rest that a record names by their sides, whatever the ports of its profile are.
    fn restore_numbers(&mut self, record: &PrRec, ports: &Input<u16>) -> Result<(), Failure> {
        let host = HostId(record.who.host);
        if self.allocator.host_state(host).is_none() {
            return Err(Failure::value(PR_ENOENT, "host", u64::from(host.0)));
        }
        let service = match record.who.profile {
            PR_ANY => NOBODY,
            known => self.profile(known)?.service_id,
        };
        let protocol = match record.flags & (PR_REC_TCP | PR_REC_UDP) {
            PR_REC_TCP => Protocol::Tcp,
            PR_REC_UDP => Protocol::Udp,
            _ => Protocol::TcpUdp,
        };
        if record.n_ports > u32::from(u16::MAX) {
            let most = u64::from(u16::MAX);
            return Err(Failure::limit(
                "record.n_ports",
                record.n_ports.into(),
                most,
            ));
        }
        let end = record.port_off.checked_add(record.n_ports);
        let end = end.ok_or(Failure::said(PR_EINVAL, "port_off is too large"))?;
        let all = (record.port_off..end).map(|at| Port::new(ports.get(at)?));
        let all: Option<Vec<Port>> = all.collect();
        let beyond = "a record names numbers beyond n_ports, or 0";
        let all = all.ok_or(Failure::said(PR_EINVAL, beyond))?;
        let left = Duration::from_millis(u64::from(record.cool_left_ms));
        let numbers = PortRanges::new(all.into_iter().map(PortRange::single));
        self.resting
            .extend(numbers.as_slice().iter().map(|numbers| CoolingRecord {
                host,
                protocol,
                numbers: *numbers,
                service,
                left,
            }));
        Ok(())
    }
}

/// Whose numbers are that no known service held: everybody waits for them alike.
const NOBODY: ServiceId = ServiceId(u64::MAX);

/// The grant that a record's numbers make, in the order of the profile.
fn read_grant(profile: &Profile, record: &PrRec, ports: &Input<u16>) -> Result<PortGrant, Failure> {
    let refuse = |words| Failure::said(PR_EINVAL, words);
    if record.n_ports != profile.numbers() {
        return Err(refuse("a record has not as many numbers as its profile"));
    }
    let mut at = record.port_off;
    let mut grant = PortGrant::default();
    for wanted in profile.request.as_slice() {
        let count = u32::from(wanted.count().get());
        let end = at
            .checked_add(count)
            .ok_or(refuse("port_off is too large"))?;
        let all: Option<Vec<Port>> = (at..end).map(|at| Port::new(ports.get(at)?)).collect();
        let all = all.ok_or(refuse("a record names numbers beyond n_ports, or 0"))?;
        let [first, .., last] = all.as_slice() else {
            let [only] = all.as_slice() else { continue };
            grant.ports.push(granted(wanted, PortRange::single(*only)));
            at = end;
            continue;
        };
        let range =
            PortRange::new(*first, *last).filter(|range| range.iter().eq(all.iter().copied()));
        let range = range.ok_or(refuse("the numbers of a block are not consecutive"))?;
        grant.ports.push(granted(wanted, range));
        at = end;
    }
    Ok(grant)
}

fn granted(wanted: &crate::port_pool::WantedPort, numbers: PortRange) -> GrantedPort {
    GrantedPort {
        name: wanted.name.clone(),
        protocol: wanted.protocol,
        numbers,
    }
}

/// See `restore_end` in the header.
pub(crate) unsafe extern "C" fn restore_end(
    ctx: PrCtx,
    flags: u32,
    now_ms: u64,
    conflicts: *mut u32,
) -> i32 {
    inside(ctx, Kind::Context, Class::Control, |context, _| {
        // SAFETY: by C's promise null, or writable.
        let conflicts = unsafe { Output::new(conflicts, "conflicts") }?;
        if flags != 0 {
            return Err(Failure::flags("flags", flags));
        }
        let mut cycle = context.control()?;
        if !cycle.restoring {
            return Err(Failure::said(PR_ESTATE, "the restore phase is over"));
        }
        cycle.restoring = false;
        context.register().outline.restoring = false;
        let mut resting = std::mem::take(&mut cycle.resting);
        // The later one of two that name a number counts; records come in any order.
        resting.sort_by_key(|record| record.left);
        // Records of hosts that went away since rest nowhere.
        cycle.allocator.restore_cooling(resting, context.at(now_ms));
        let shared = u32::try_from(context.register().conflicts.len()).unwrap_or(u32::MAX);
        conflicts.set(shared);
        drop(cycle);
        if shared > 0 {
            let words =
                format!("{shared} restored grants share a number with another; both keep it");
            context.log(4, PR_OK, &words);
        }
        Ok(PR_OK)
    })
}
