//! One owner of pools: its settings, its locks, and what each class of call may take of it.
//!
//! * The **cycle** holds all that decides. Hot calls try its lock and answer `PR_EBUSY`; control calls and
//!   `pump` wait for it, for as long as one call takes.
//! * The **board** holds what readers are told. Only control and report calls take it.
//! * The **register** holds the grants by id. Everybody takes it, for a moment.
//!
//! Who takes several takes them in this order. Readers take none: they use the endpoint table.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::allocator::{Allocator, AllocatorConfig, CoolingRecord, Mark};
use crate::endpoints::EndpointTable;
use crate::identity::{HostName, NetworkName, ServiceId, ServiceName};
use crate::plugin_abi::border::entry::{Class, even_poisoned, outside};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::{Handle, Kind, SLOTS};
use crate::plugin_abi::border::injected;
use crate::plugin_abi::border::memory::{Output, SizedOutput, read_sized, read_text};
use crate::plugin_abi::border::process::ProcessMark;
use crate::plugin_abi::constants::*;
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::cycle::explain::Asking;
use crate::plugin_abi::cycle::trial::Paused;
use crate::plugin_abi::reading::snap::Snaps;
use crate::plugin_abi::reading::text::Names;
use crate::plugin_abi::reports::waits::Doorbell;
use crate::plugin_abi::state::board::{Board, HostNo, Member};
use crate::plugin_abi::state::contexts;
use crate::plugin_abi::state::queue::Queue;
use crate::plugin_abi::state::register::Register;
use crate::plugin_abi::state::scratch::Scratch;
use crate::plugin_abi::types::{PrConfig, PrCtx, PrLog, PrStats};
use crate::plugin_abi::watch::Followers;
use crate::port::PortName;
use crate::port_pool::NetworkNo;
use crate::profile::is_variable;
use crate::time::Monotonic;

/// See `create` in the header.
pub(crate) unsafe extern "C" fn create(config: *const PrConfig, ctx: *mut PrCtx) -> i32 {
    outside(|| {
        // SAFETY: by C's promise null, or a struct of the size it says.
        let config = unsafe { read_sized::<PrConfig>(config, "config") }?;
        // SAFETY: by C's promise null, or writable.
        let ctx = unsafe { Output::new(ctx, "ctx") }?;
        let handle = contexts::add(|handle| {
            // SAFETY: the caller's promise for what the struct points to.
            let settings = unsafe { Settings::read(&config) }?;
            Context::new(handle, settings)
        })?;
        ctx.set(handle.id());
        Ok(PR_OK)
    })
}

/// See `destroy` in the header. Answers for a poisoned context too.
pub(crate) unsafe extern "C" fn destroy(ctx: PrCtx) -> i32 {
    outside(|| {
        contexts::remove(Handle::read(ctx, Kind::Context)?)?;
        Ok(PR_OK)
    })
}

/// See `stats` in the header. Answers for a poisoned context too.
pub(crate) unsafe extern "C" fn stats(ctx: PrCtx, stats: *mut PrStats) -> i32 {
    even_poisoned(ctx, Kind::Context, Class::Read, |context, _| {
        // SAFETY: by C's promise null, or as many writable bytes as its size says.
        let stats = unsafe { SizedOutput::new(stats, "stats") }?;
        stats.set(context.stats());
        Ok(PR_OK)
    })
}

/// What `create` was told.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) prefix: String,
    pub(crate) limits: Limits,
    pub(crate) seed: u64,
    cooling: Duration,
    foreign_rest: Duration,
    restoring: bool,
    log: Option<Log>,
}

/// The most there may be of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) hosts: u32,
    pub(crate) allocs: u32,
    pub(crate) profiles: u32,
    /// Of one transaction.
    pub(crate) ports: u32,
    pub(crate) waits: u32,
    pub(crate) watches: u32,
}

/// The scheduler's log.
#[derive(Clone, Copy, Debug)]
struct Log {
    call: PrLog,
    ud: *mut c_void,
}

// SAFETY: the pointer is never followed here, only handed back; the header lets any thread that is in a
// control or report call do so, and the caller promised with `create` that its callback bears that.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Settings {
    /// # Safety
    ///
    /// `raw` holds what the header says.
    unsafe fn read(raw: &PrConfig) -> Result<Self, Failure> {
        const MOST_PREFIX: usize = 64;
        if raw.flags & !PR_CFG_NO_RESTORE != 0 {
            return Err(Failure::flags("config.flags", raw.flags));
        }
        // SAFETY: the caller's promise.
        let prefix = unsafe { read_text(raw.env_prefix, MOST_PREFIX, "config.env_prefix") }?;
        if prefix.as_deref().is_some_and(|prefix| !is_variable(prefix)) {
            return Err(Failure::malformed(
                "config.env_prefix",
                "write A-Z, a-z, 0-9 and _, no digit first",
            ));
        }
        let most = |value, otherwise, most, what| match value {
            0 => Ok(otherwise),
            value if value <= most => Ok(value),
            value => Err(Failure::limit(what, u64::from(value), u64::from(most))),
        };
        let span = |ms| Duration::from_millis(u64::from(if ms == 0 { 60_000 } else { ms }));
        Ok(Self {
            prefix: prefix.unwrap_or_else(|| crate::variables::PREFIX.to_owned()),
            limits: Limits {
                hosts: most(raw.max_hosts, 16_384, 1 << 20, "config.max_hosts")?,
                allocs: most(raw.max_allocs, 131_072, SLOTS, "config.max_allocs")?,
                profiles: most(raw.max_profiles, 4096, 1 << 20, "config.max_profiles")?,
                ports: most(raw.max_ports, 65_536, SLOTS, "config.max_ports")?,
                waits: most(raw.max_waits, 4096, SLOTS, "config.max_waits")?,
                watches: most(raw.max_watches, 1024, 1 << 20, "config.max_watches")?,
            },
            seed: raw.seed,
            cooling: span(raw.cool_ms),
            foreign_rest: span(raw.foreign_rest_ms),
            restoring: raw.flags & PR_CFG_NO_RESTORE == 0,
            log: raw.log.map(|call| Log { call, ud: raw.ud }),
        })
    }
}

/// One owner of pools.
#[derive(Debug)]
pub(crate) struct Context {
    handle: Handle,
    process: ProcessMark,
    settings: Settings,
    poisoned: AtomicBool,
    ended: AtomicBool,
    /// The largest moment that any call told.
    newest: AtomicU64,
    cycle: Mutex<Cycle>,
    board: Mutex<Board>,
    register: Mutex<Register>,
    table: EndpointTable<Member>,
    followers: Followers,
    snaps: Snaps,
    /// Rings when somebody who waits fits.
    pub(crate) doorbell: Doorbell,
    names: Names,
    /// The cycle's own, for those who must not wait for it.
    allocator: Arc<Allocator>,
    pub(crate) counters: Counters,
}

/// What happened since the context was made.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Commits that changed something.
    pub(crate) commits: AtomicU64,
    /// Transactions that were aborted; what-ifs are not counted.
    pub(crate) aborts: AtomicU64,
    /// Calls that were answered `PR_EBUSY`.
    busy: AtomicU64,
    /// Calls that were answered `PR_ESTALE`, on an id of this context.
    stale: AtomicU64,
}

impl Counters {
    /// Notes the answer to a call.
    pub(crate) fn note(&self, code: i32) {
        match code {
            PR_EBUSY => self.busy.fetch_add(1, Ordering::Relaxed),
            PR_ESTALE => self.stale.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

impl Context {
    fn new(handle: Handle, settings: Settings) -> Result<Self, Failure> {
        let mut register = Register::new(handle, settings.limits)?;
        register.outline.restoring = settings.restoring;
        let followers = Followers::new(handle, settings.limits.watches)?;
        let snaps = Snaps::new(handle)?;
        let allocator = Allocator::try_new(AllocatorConfig {
            cooling: settings.cooling,
            foreign_rest: settings.foreign_rest,
            max_hosts: settings.limits.hosts,
            room_for: settings.limits.allocs,
            // Who ended is known here, by ids that are stale.
            remembers_releases: false,
            ..AllocatorConfig::default()
        });
        let grants = settings.limits.allocs;
        let no_room = Failure::value(PR_ENOMEM, "room for grants", grants.into());
        let allocator = Arc::new(allocator.map_err(|_| no_room)?);
        let cycle = Cycle::new(Arc::clone(&allocator), &settings)?;
        Ok(Self {
            handle,
            process: ProcessMark::make(),
            poisoned: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            cycle: Mutex::new(cycle),
            board: Mutex::new(Board::new(settings.limits)?),
            register: Mutex::new(register),
            // One context is one number line; C has no word for its epoch.
            table: EndpointTable::new(String::new(), 0),
            followers,
            snaps,
            doorbell: Doorbell::default(),
            names: Names::default(),
            allocator,
            counters: Counters::default(),
            settings,
        })
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) const fn table(&self) -> &EndpointTable<Member> {
        &self.table
    }

    pub(crate) const fn followers(&self) -> &Followers {
        &self.followers
    }

    pub(crate) const fn snaps(&self) -> &Snaps {
        &self.snaps
    }

    pub(crate) const fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_here()
    }

    /// That no defect was caught here.
    pub(crate) fn check_sound(&self) -> Result<(), Failure> {
        if self.poisoned.load(Ordering::Acquire) {
            let words = "a defect was caught in an earlier call";
            return Err(Failure::said(PR_EPOISON, words));
        }
        Ok(())
    }

    /// Notes that a call ended in a panic, and tells the scheduler's log where the class allows it.
    pub(crate) fn poison(&self, words: &str, class: Class) -> Failure {
        self.poisoned.store(true, Ordering::Release);
        if matches!(class, Class::Control | Class::Report) {
            self.log(3, PR_EPOISON, words);
        }
        Failure::told(PR_EPOISON, words)
    }

    /// Tells the scheduler's log. Not from hot calls, and under no lock.
    ///
    /// A call that found the context before `destroy` may come here after it: most such lines are left
    /// out here, and for the one that passed this check in time the header has `ud` kept.
    pub(crate) fn log(&self, level: i32, code: i32, words: &str) {
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        if let Some(log) = &self.settings.log {
            let at = words.as_ptr().cast();
            // SAFETY: the caller of `create` gave a function of this type that may be called with its own
            // `ud` until `destroy` and every call that other threads were in have returned; `words` lives
            // for the call.
            unsafe { (log.call)(log.ud, level, code, at, words.len() as u64) };
        }
    }

    /// The moment `ms`, or the largest one told before if that is later.
    pub(crate) fn at(&self, ms: u64) -> Monotonic {
        Monotonic::from_millis(ms.max(self.newest.fetch_max(ms, Ordering::AcqRel)))
    }

    /// For control calls: nobody else decides, and no transaction is open.
    pub(crate) fn control(&self) -> Result<MutexGuard<'_, Cycle>, Failure> {
        let cycle = self.whole(self.cycle.lock())?;
        if cycle.open.is_some() {
            return Err(Failure::said(PR_EBUSY, "a transaction is open"));
        }
        Ok(cycle)
    }

    /// For hot calls: never waits.
    pub(crate) fn hot(&self) -> Result<MutexGuard<'_, Cycle>, Failure> {
        let cycle = self.cycle.try_lock();
        let busy = Failure::said(PR_EBUSY, "another thread is in a call of this context");
        self.whole(cycle.ok_or(busy)?)
    }

    /// For hot calls inside a transaction.
    pub(crate) fn transaction(&self, txn: Handle) -> Result<MutexGuard<'_, Cycle>, Failure> {
        let cycle = self.hot()?;
        match &cycle.open {
            Some(open) if open.handle == txn => Ok(cycle),
            _ => Err(txn.stale()),
        }
    }

    pub(crate) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// For `pump`: waits, and a transaction may be open.
    pub(crate) fn between(&self) -> Result<MutexGuard<'_, Cycle>, Failure> {
        self.whole(self.cycle.lock())
    }

    fn whole<'a>(&self, cycle: MutexGuard<'a, Cycle>) -> Result<MutexGuard<'a, Cycle>, Failure> {
        if self.ended.load(Ordering::Acquire) {
            return Err(self.handle.stale());
        }
        injected::point();
        Ok(cycle)
    }

    pub(crate) fn register(&self) -> MutexGuard<'_, Register> {
        let register = self.register.lock();
        injected::point();
        register
    }

    /// What there is, and what happened. Takes the register's lock for a look, and each host's.
    pub(crate) fn stats(&self) -> PrStats {
        // What readers are shown of a grant, here and in their versions of its service, is about so much.
        const SHOWN: u64 = 512;
        let sums = self.allocator.stats();
        let (queued, waiting) = {
            let register = self.register();
            let queued = register.queue.len() as u64;
            (queued, register.bytes(self.settings.limits))
        };
        let (watches, watch_resets) = self.followers.counts();
        let mut stats = PrStats {
            size: u32::try_from(size_of::<PrStats>()).unwrap_or(u32::MAX),
            flags: 0,
            hosts: sums.hosts,
            allocs: sums.grants,
            waits: sums.waiting,
            ports_used: 0,
            ports_total: 0,
            ports_cooling: 0,
            commits: self.counters.commits.load(Ordering::Relaxed),
            aborts: self.counters.aborts.load(Ordering::Relaxed),
            busy: self.counters.busy.load(Ordering::Relaxed),
            stale: self.counters.stale.load(Ordering::Relaxed),
            poisoned: u64::from(self.poisoned.load(Ordering::Acquire)),
            snaps: self.snaps.count(),
            watches,
            watch_resets,
            queued,
            bytes: sums.bytes + waiting + sums.grants * SHOWN,
        };
        for (host, _, _) in self.allocator.hosts() {
            let counts = self.allocator.counts(host);
            stats.ports_used += u64::from(counts.held);
            stats.ports_total += u64::from(counts.dynamic);
            stats.ports_cooling += u64::from(counts.resting);
        }
        stats
    }

    /// Posts what hot calls left, lets `tell` add to it, and shows readers what differs.
    pub(crate) fn report<R>(&self, tell: impl FnOnce(&mut Board) -> R) -> R {
        let mut board = self.board.lock();
        board.post_news(&self.register);
        let told = tell(&mut board);
        injected::point();
        board.publish(&self.table, &self.followers);
        told
    }

    /// Ends the context: whoever waits for a lock finds it stale. Returns the highest generation in
    /// any id it gave out.
    pub(crate) fn end(&self) -> u32 {
        let mut cycle = self.cycle.lock();
        self.ended.store(true, Ordering::Release);
        cycle.open = None;
        self.doorbell.end();
        let ended = [self.followers.end(), self.snaps.end()];
        let highest = self.register.lock().highest_generation();
        ended.into_iter().fold(highest, u32::max)
    }
}

/// Everything that decides: pools, hosts, profiles, and the open transaction.
#[derive(Debug)]
pub(crate) struct Cycle {
    pub(crate) allocator: Arc<Allocator>,
    /// By their numbers; nothing where one was dropped.
    pub(crate) profiles: Vec<Option<Arc<Profile>>>,
    /// Every host by name; the board and the grants know it by this number.
    pub(crate) hosts: BTreeMap<HostName, HostNo>,
    next_host: u32,
    /// Every named network by name.
    pub(crate) networks: BTreeMap<NetworkName, NetworkNo>,
    /// Above every index at which a host stands.
    pub(crate) end_of_hosts: u32,
    services: BTreeMap<ServiceName, ServiceId>,
    port_names: BTreeMap<PortName, u32>,
    pub(crate) restoring: bool,
    pub(crate) open: Option<Open>,
    /// What rests according to records, until the moment of the restart is told.
    pub(crate) resting: Vec<CoolingRecord>,
    pub(crate) asking: Asking,
    /// Swapped with the register's, so that neither loses its room.
    pub(crate) queue: Queue,
    /// What calls need room for, kept and used again.
    pub(crate) scratch: Scratch,
}

/// The open transaction.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) handle: Handle,
    /// The allocator's part of it; lent out during a call.
    pub(crate) paused: Option<Paused>,
    pub(crate) what_if: bool,
    /// What it took, in order.
    pub(crate) taken: Vec<Handle>,
    /// What ended in it, in order, if it is a what-if.
    pub(crate) given: Vec<Handle>,
    /// How many numbers it took.
    pub(crate) numbers: u32,
    pub(crate) marks: Vec<MarkHere>,
    pub(crate) next_mark: u32,
}

/// A point in the open transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkHere {
    pub(crate) number: u32,
    pub(crate) mark: Mark,
    /// How many grants had been taken.
    pub(crate) taken: usize,
    /// How many grants had been given.
    pub(crate) given: usize,
    /// How many numbers had been taken.
    pub(crate) numbers: u32,
}

impl Cycle {
    fn new(allocator: Arc<Allocator>, settings: &Settings) -> Result<Self, Failure> {
        Ok(Self {
            allocator,
            profiles: Vec::new(),
            hosts: BTreeMap::new(),
            next_host: 0,
            networks: BTreeMap::new(),
            end_of_hosts: 0,
            services: BTreeMap::new(),
            port_names: BTreeMap::new(),
            restoring: settings.restoring,
            open: None,
            resting: Vec::new(),
            asking: Asking::default(),
            queue: Queue::new(settings.limits)?,
            scratch: Scratch::new(settings.limits)?,
        })
    }

    /// What `profile_put` made known under `id`.
    pub(crate) fn profile(&self, id: u32) -> Result<Arc<Profile>, Failure> {
        find_profile(&self.profiles, id)
    }

    /// The number of a service.
    pub(crate) fn id_of_service(&mut self, service: &ServiceName) -> ServiceId {
        let next = ServiceId(self.services.len() as u64);
        *self.services.entry(service.clone()).or_insert(next)
    }

    /// The number of a port's name.
    pub(crate) fn number_of_port_name(&mut self, name: &PortName) -> u32 {
        let next = u32::try_from(self.port_names.len()).unwrap_or(u32::MAX);
        *self.port_names.entry(name.clone()).or_insert(next)
    }

    /// The number of a host, a new one for a new name.
    pub(crate) fn number_of_host(&mut self, name: &HostName) -> HostNo {
        if let Some(known) = self.hosts.get(name) {
            return *known;
        }
        let number = HostNo(self.next_host);
        self.next_host += 1;
        self.hosts.insert(name.clone(), number);
        number
    }
}

/// The profile under a number.
pub(crate) fn find_profile(
    profiles: &[Option<Arc<Profile>>],
    id: u32,
) -> Result<Arc<Profile>, Failure> {
    let profile = profiles.get(id as usize).cloned().flatten();
    profile.ok_or(Failure::value(PR_ENOENT, "profile", u64::from(id)))
}
