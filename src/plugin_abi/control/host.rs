//! Hosts: the name is the host, the index is where it stands now.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::allocator::{HostSpec, HostState, PutHostError, Removal, RemoveHostError};
use crate::identity::{HostId, HostName};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::Kind;
use crate::plugin_abi::border::memory::{read_sized_array, read_text};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::read_ranges;
use crate::plugin_abi::state::context::{Context, Cycle};
use crate::plugin_abi::state::queue::Queued;
use crate::plugin_abi::state::register::Standing;
use crate::plugin_abi::types::{PrCtx, PrHost};
use crate::port_pool::{Draw, PoolRanges};

/// See `host_put` in the header.
pub(crate) unsafe extern "C" fn host_put(ctx: PrCtx, hosts: *const PrHost, n: u32) -> i32 {
    inside(ctx, Kind::Context, Class::Control, |context, _| {
        let settings = context.settings();
        // SAFETY: by C's promise null, or `n` structs of the size that the first one says.
        let hosts = unsafe { read_sized_array(hosts, n, settings.limits.hosts, "hosts") }?;
        let mut written = Vec::with_capacity(hosts.len());
        for (place, host) in hosts.iter().enumerate() {
            // SAFETY: the caller's promise for what each struct points to.
            let read = unsafe { Written::read(host, settings.seed) };
            written.push(read.map_err(|failure| failure.of_element("hosts", place))?);
        }
        put(context, written)?;
        Ok(PR_OK)
    })
}

fn put(context: &Context, hosts: Vec<Written>) -> Result<(), Failure> {
    let mut cycle = context.control()?;
    // What was confirmed before this call must not stand in its way.
    cycle.apply_queue(context);
    let mut concerned = Concerned::default();
    for host in &hosts {
        concerned.place(&cycle, host.index);
        concerned.name(&cycle, &host.spec.name);
    }
    let states: Vec<_> = hosts.iter().map(|h| (h.index, h.state)).collect();
    let specs = hosts.into_iter().map(|host| (host.index, host.spec));
    cycle
        .allocator
        .put_hosts(specs.collect())
        .map_err(|refused| Failure::told(code_of(&refused), refused))?;
    for (index, state) in states {
        // The host was put just now.
        let known = cycle.allocator.set_host_state(index, state);
        debug_assert!(known.is_ok(), "{index} was put but is unknown");
    }
    concerned.stand(context, &mut cycle);
    Ok(())
}

/// The places and names that a call may change, gathered before it does: all others stay as they are known, so
/// that hosts which are put one by one cost no more than in one list.
#[derive(Default)]
struct Concerned {
    places: BTreeSet<HostId>,
    names: BTreeSet<HostName>,
}

impl Concerned {
    /// A place, and who stands there.
    fn place(&mut self, cycle: &Cycle, place: HostId) {
        self.places.insert(place);
        self.names.extend(cycle.allocator.host_name(place));
    }

    /// A host, and where it stands.
    fn name(&mut self, cycle: &Cycle, name: &HostName) {
        self.places.extend(cycle.allocator.host_id(name));
        self.names.insert(name.clone());
    }

    /// Lets everybody know who stands where now, and who is no host any more.
    fn stand(self, context: &Context, cycle: &mut Cycle) {
        cycle.room_for_networks();
        let allocator = Arc::clone(&cycle.allocator);
        let (mut here, mut gone) = (Vec::new(), Vec::new());
        for name in self.names {
            if let Some(place) = allocator.host_id(&name) {
                here.push((cycle.number_of_host(&name), name, place));
            } else {
                gone.extend(cycle.hosts.remove(&name));
            }
        }
        for place in &self.places {
            context.names().stand(place.0, allocator.host_name(*place));
        }
        {
            let mut register = context.register();
            for host in &gone {
                register.hosts.remove(host);
                register.addresses.remove(host);
            }
            let standing = here.iter().map(|(host, name, place)| {
                let (name, index) = (name.clone(), place.0);
                (*host, Standing { name, index })
            });
            register.hosts.extend(standing);
        }
        cycle.end_of_hosts = context.report(|board| {
            for host in gone {
                board.forget(host);
            }
            for place in self.places {
                board.leave(place.0);
            }
            for (host, name, place) in here {
                // It stands there, so it has a state.
                let state = allocator.host_state(place).unwrap_or_default();
                board.put_host(host, &name, place.0, state);
            }
            board.end_of_hosts()
        });
    }
}

/// See `host_remove` in the header.
pub(crate) unsafe extern "C" fn host_remove(ctx: PrCtx, host: u32, flags: u32) -> i32 {
    inside(ctx, Kind::Context, Class::Control, |context, _| {
        let removal = match flags {
            0 => Removal::IfEmpty,
            PR_REMOVE_FORCE => Removal::Forced,
            other => return Err(Failure::flags("flags", other)),
        };
        let mut cycle = context.control()?;
        // What was confirmed before this call must not stand in its way.
        cycle.apply_queue(context);
        let mut concerned = Concerned::default();
        concerned.place(&cycle, HostId(host));
        {
            // Held until the grants are forgotten, so that nobody queues a release of one that is gone.
            let mut register = context.register();
            let removed = cycle.allocator.remove_host(HostId(host), removal);
            let lost = removed.map_err(|refused| {
                let code = match refused {
                    RemoveHostError::Unknown { .. } => PR_ENOENT,
                    RemoveHostError::Holders { .. } | RemoveHostError::InTransaction { .. } => {
                        PR_EBUSY
                    }
                };
                Failure::told(code, refused)
            })?;
            register.lose(context.handle(), &lost);
        }
        concerned.stand(context, &mut cycle);
        Ok(PR_OK)
    })
}

const fn code_of(refused: &PutHostError) -> i32 {
    match refused {
        PutHostError::Occupied { .. } | PutHostError::InTransaction { .. } => PR_EBUSY,
        PutHostError::BeyondLimit { .. } => PR_ELIMIT,
        PutHostError::Twice { .. } => PR_EINVAL,
    }
}

/// A host as written.
struct Written {
    index: HostId,
    spec: HostSpec,
    state: HostState,
}

impl Written {
    /// # Safety
    ///
    /// `raw` points to what the header says.
    unsafe fn read(raw: &PrHost, seed: u64) -> Result<Self, Failure> {
        const MOST_NAME: usize = 255;
        let draw = match raw.flags {
            0 => Draw::NextFit,
            PR_HOST_LOWEST => Draw::Lowest,
            // Each host begins elsewhere, and the same one in the same place at each run.
            PR_HOST_RANDOM => Draw::Random {
                seed: seed ^ u64::from(raw.host).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            },
            flags if flags == PR_HOST_LOWEST | PR_HOST_RANDOM => {
                let both = "host.flags: PR_HOST_LOWEST and PR_HOST_RANDOM exclude each other";
                return Err(Failure::said(PR_EINVAL, both));
            }
            other => return Err(Failure::flags("host.flags", other)),
        };
        // SAFETY: the caller's promise.
        let name = unsafe { read_text(raw.name, MOST_NAME, "host.name") }?;
        let name = name
            .ok_or_else(|| Failure::absent("host.name"))?
            .parse()
            .map_err(|fault| Failure::malformed("host.name", fault))?;
        let usual = PoolRanges::default();
        // SAFETY: the caller's promise.
        let dynamic = unsafe { read_ranges(raw.dynamic, raw.n_dynamic, "host.dynamic") }?;
        // SAFETY: the caller's promise.
        let fixed = unsafe { read_ranges(raw.fixed, raw.n_fixed, "host.fixed") }?;
        // SAFETY: the caller's promise.
        let reserved = unsafe { read_ranges(raw.reserved, raw.n_reserved, "host.reserved") }?;
        let cooling = match raw.cool_ms {
            0 => None,
            ms => Some(Duration::from_millis(u64::from(ms))),
        };
        Ok(Self {
            index: HostId(raw.host),
            spec: HostSpec {
                name,
                ranges: PoolRanges {
                    dynamic: dynamic.unwrap_or(usual.dynamic),
                    fixed: fixed.unwrap_or(usual.fixed),
                    reserved: reserved.unwrap_or(usual.reserved),
                },
                draw,
                cooling,
            },
            state: read_state(raw.state)?,
        })
    }
}

fn read_state(state: u32) -> Result<HostState, Failure> {
    match state {
        PR_HOST_UP => Ok(HostState::Up),
        PR_HOST_DRAINED => Ok(HostState::Drained),
        PR_HOST_SUSPECT => Ok(HostState::Suspect),
        PR_HOST_LOST => Ok(HostState::Lost),
        other => Err(Failure::none_of(
            "state of a host",
            other,
            "PR_HOST_UP, _DRAINED, _SUSPECT or _LOST",
        )),
    }
}

/// See `host_state` in the header.
pub(crate) unsafe extern "C" fn host_state(ctx: PrCtx, host: u32, state: u32) -> i32 {
    inside(ctx, Kind::Context, Class::Report, |context, _| {
        let state = read_state(state)?;
        context.report(|board| {
            let (number, name) = board.host_named_at(host)?;
            board.set_state(number, state);
            context.register().queue.push(Queued::State(name, state));
            Ok(PR_OK)
        })
    })
}
