//! Looking at one grant: by key, as a record, as an environment.

use std::fmt::Write as _;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::allocator::Allocator;
use crate::identity::{HostId, HostName, Incarnation};
use crate::plugin_abi::border::entry::{Class, inside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind};
use crate::plugin_abi::border::memory::{Output, Room, read, write_told};
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::network::Addresses;
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::cycle::reserve::numbers;
use crate::plugin_abi::state::register::{Key, Register, Stage};
use crate::plugin_abi::types::{PrAlloc, PrCtx, PrRec, PrWant};
use crate::port::PortRange;
use crate::port_pool::PortRequest;
use crate::variables::{Tell, ToldPlacement, ToldPort};

/// See `grant_find` in the header.
pub(crate) unsafe extern "C" fn grant_find(
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
        id.set(found.ok_or(unknown)?.0.id());
        Ok(PR_OK)
    })
}

/// See `grant_get` in the header.
pub(crate) unsafe extern "C" fn grant_get(
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
        let _alone = context.hot()?;
        let register = context.register();
        let (found, numbers) = record_of(context.allocator(), &register, handle)?;
        need.set(found.n_ports);
        ports.fits(found.n_ports)?;
        ports.fill(numbers);
        record.set(found);
        Ok(PR_OK)
    })
}

/// A grant as a record, and every number of it.
pub(crate) fn record_of<'a>(
    allocator: &Allocator,
    register: &'a Register,
    handle: Handle,
) -> Result<(PrRec, impl Iterator<Item = u16> + use<'a>), Failure> {
    let entered = register.get(handle)?;
    let host = register.hosts.get(&entered.host);
    // Only those can that ever did.
    let shared = register.conflicts.contains(&entered.replica)
        && host.is_some_and(|host| allocator.shares_numbers(HostId(host.index), entered.replica));
    let reported = entered.reported;
    let record = PrRec {
        who: PrWant {
            job: entered.key.job,
            step: entered.key.step,
            replica: entered.key.replica,
            incarnation: entered.incarnation,
            profile: entered.profile.id,
            host: host.map_or(PR_ANY, |host| host.index),
            flags: 0,
        },
        id: handle.id(),
        seq: reported.seq,
        n_ports: entered.profile.numbers(),
        port_off: 0,
        state: match entered.stage {
            Stage::Releasing => PR_P_RELEASING,
            Stage::Tentative | Stage::Held => PR_P_HELD,
        },
        cool_left_ms: 0,
        ready: reported.state,
        run: reported.run,
        restarts: reported.restarts,
        flags: if shared { PR_REC_CONFLICT } else { 0 },
    };
    Ok((record, numbers(&entered.numbers)))
}

/// See `env` in the header.
pub(crate) unsafe extern "C" fn env(
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
            return Err(Failure::flags("flags", flags));
        }
        let handle = Handle::read(id, Kind::Alloc)?;
        // Copied out, so that nobody waits for the register while it is spelled.
        let seen = Seen::of(&context.register(), handle)?;
        write_told(&room, &need, |text| {
            // A text without end for the writer is none for the caller: its length does not fit into `need`.
            let mut all_fits = Ok(());
            seen.tell(&context.settings().prefix, &mut |name, value| {
                all_fits = all_fits.and(write!(text, "{name}={value}\0"));
            });
            all_fits?;
            text.write_char('\0')
        })
    })
}

/// A grant as its replica is told of it: not its runs, and its address only once reported.
struct Seen {
    key: Key,
    incarnation: u32,
    profile: Arc<Profile>,
    /// As many as one profile can have, on the stack.
    numbers: SmallVec<[PortRange; MOST_PORTS]>,
    host: HostName,
    /// Shared with the host's latest report.
    addresses: Arc<Addresses>,
}

const MOST_PORTS: usize = PortRequest::MAX_NUMBERS as usize;

impl Seen {
    fn of(register: &Register, handle: Handle) -> Result<Self, Failure> {
        let entered = register.get(handle)?;
        let standing = register.hosts.get(&entered.host);
        let standing = standing.ok_or_else(|| handle.stale())?;
        Ok(Self {
            key: entered.key,
            incarnation: entered.incarnation,
            profile: Arc::clone(&entered.profile),
            numbers: SmallVec::from_slice(&entered.numbers),
            host: standing.name.clone(),
            addresses: register.addresses_of(entered.host),
        })
    }

    fn tell(&self, prefix: &str, tell: &mut Tell<'_>) {
        let profile = &self.profile;
        let wanted = profile.request.as_slice().iter().zip(&profile.ports);
        for ((wanted, declared), numbers) in wanted.zip(&self.numbers) {
            let port = ToldPort {
                name: &wanted.name,
                numbers: *numbers,
                address: self.addresses.of_port(declared.network),
            };
            port.tell(prefix, tell);
        }
        let placement = ToldPlacement {
            service: &profile.service,
            index: self.key.replica,
            incarnation: Incarnation(self.incarnation),
            host: &self.host,
            host_address: self.addresses.usual,
        };
        placement.tell(prefix, tell);
        let ports = profile.ports.iter().zip(&self.numbers);
        for (declared, numbers) in ports.clone() {
            if let Some(alias) = declared.alias.as_deref() {
                let first = numbers.first();
                tell(format_args!("{alias}"), format_args!("{first}"));
            }
        }
        if let [declared] = profile.ports.as_slice()
            && declared.alias.as_deref() != Some("PORT")
            && let Some((_, numbers)) = ports.clone().next()
        {
            let first = numbers.first();
            tell(format_args!("PORT"), format_args!("{first}"));
        }
    }
}
