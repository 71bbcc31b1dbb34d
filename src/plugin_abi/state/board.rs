//! What readers are told: grants joined with addresses, host states and readiness, per service.
//!
//! Written by report calls only. A hot call leaves a slot of the register dirty; whoever reports next, or `pump`, posts
//! what has become of it.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::allocator::HostState;
use crate::endpoints::{Change, EndpointState, EndpointTable, Entry, ServiceUpdate};
use crate::host_addr::Prefix;
use crate::identity::{HostName, Incarnation, ServiceId, ServiceName};
use crate::plugin_abi::border::failure::Failure;
use crate::plugin_abi::border::handle::Handle;
use crate::plugin_abi::constants::{PR_ENOENT, PR_ESTALE};
use crate::plugin_abi::control::network::{Addresses, Reported};
use crate::plugin_abi::control::profile::Profile;
use crate::plugin_abi::state::context::Limits;
use crate::plugin_abi::state::register::{Key, Placed, Register, Stage, room_for_dirty};
use crate::plugin_abi::watch::{Followers, Touched};
use crate::port_pool::{NetworkNo, NetworkSet};

/// One replica as readers see it; numbers only, so that reading allocates nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    pub(crate) handle: Handle,
    pub(crate) key: Key,
    pub(crate) incarnation: u32,
    /// Where the host stands now.
    pub(crate) host: u32,
    pub(crate) reached: Reached,
    pub(crate) state: EndpointState,
    /// Shared with every version of it; names and numbers of the published ports.
    pub(crate) placed: SharedPlace,
}

/// A grant, equal to itself only: it never changes.
#[derive(Clone, Debug)]
pub(crate) struct SharedPlace(pub(crate) Arc<Placed>);

impl PartialEq for SharedPlace {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Where clients find the ports of a replica.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reached {
    /// All at one address, if any.
    At(Option<IpAddr>),
    /// Each at its own, in the order of the profile.
    Each(Arc<[Option<IpAddr>]>),
}

impl Reached {
    fn new(profile: &Profile, there: &Addresses) -> Self {
        if profile.request.networks().is_empty() {
            return Self::At(there.usual);
        }
        let ports = profile.ports.iter();
        Self::Each(ports.map(|port| there.of_port(port.network)).collect())
    }

    /// Where the port at a place of the profile is.
    pub(crate) fn of_port(&self, place: usize) -> Option<IpAddr> {
        match self {
            Self::At(address) => *address,
            Self::Each(addresses) => addresses.get(place).copied().flatten(),
        }
    }

    /// Whether any port is.
    fn anywhere(&self) -> bool {
        match self {
            Self::At(address) => address.is_some(),
            Self::Each(addresses) => addresses.iter().any(Option::is_some),
        }
    }
}

impl Entry for Member {
    type Key = Key;
    type Kept = Self;

    fn keep(self) -> Self {
        self
    }

    fn of(kept: &Self) -> &Self {
        kept
    }

    fn key(&self) -> Key {
        self.key
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation)
    }

    fn is_listed(&self) -> bool {
        self.state.is_listed() && self.reached.anywhere()
    }

    fn same_but_for_age(&self, other: &Self) -> bool {
        let ageless = |member: &Self| Self {
            state: EndpointState::Ready,
            ..member.clone()
        };
        self == other
            || self.state.is_listed() && other.state.is_listed() && ageless(self) == ageless(other)
    }
}

/// A host, whatever index it stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostNo(pub(crate) u32);

/// Everything that is told to readers of one context.
#[derive(Debug, Default)]
pub(crate) struct Board {
    posted: BTreeMap<Handle, Posted>,
    /// Who is posted under each key; more than one while another placement of it is being released.
    by_key: BTreeMap<(ServiceId, Key), BTreeSet<Handle>>,
    /// Who is posted on each host, known or forgotten.
    by_host: BTreeMap<HostNo, BTreeSet<Handle>>,
    services: BTreeMap<ServiceId, ServiceName>,
    /// How many profiles that may be asked for name each service.
    profiles: BTreeMap<ServiceId, u32>,
    hosts: BTreeMap<HostNo, PostedHost>,
    at: BTreeMap<u32, HostNo>,
    /// What named networks stand for, by their numbers.
    networks: Vec<Option<Prefix>>,
    /// The keys of each service that may be shown otherwise than they are.
    touched: BTreeMap<ServiceId, BTreeSet<Key>>,
    revision: u64,
    /// Which grant is posted of each slot of the register.
    by_slot: BTreeMap<u32, Handle>,
    /// Swapped with the register's dirty slots, so that neither loses its room.
    dirty: Vec<u32>,
}

#[derive(Debug)]
struct Posted {
    placed: Arc<Placed>,
    state: EndpointState,
    newest: Option<(u32, u64)>,
    releasing: bool,
}

#[derive(Debug)]
struct PostedHost {
    name: HostName,
    index: u32,
    state: HostState,
    newest: Option<u64>,
    newest_foreign: Option<u64>,
    reported: Vec<Reported>,
    /// The best of them, shared with the register.
    addresses: Arc<Addresses>,
    /// What the pools were told of its networks.
    told: Option<NetworkSet>,
}

/// What a host's addresses became, for the register and the pools.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) host: HostNo,
    pub(crate) addresses: Arc<Addresses>,
    /// Its name and its networks, where the pools do not know them yet.
    pub(crate) networks: Option<(HostName, Option<NetworkSet>)>,
}

impl Board {
    /// # Errors
    ///
    /// `PR_ENOMEM` if there is no memory for what hot calls may leave.
    pub(crate) fn new(limits: Limits) -> Result<Self, Failure> {
        Ok(Self {
            dirty: room_for_dirty(limits)?,
            ..Self::default()
        })
    }

    /// Makes a service known, with no replica yet.
    pub(crate) fn know(&mut self, profile: &Profile) {
        let id = profile.service_id;
        self.services
            .entry(id)
            .or_insert_with(|| profile.service.clone());
        *self.profiles.entry(id).or_default() += 1;
        self.touched.entry(id).or_default();
    }

    /// A profile is not asked for any more. With its last profile and its last replica a service goes.
    pub(crate) fn drop_profile(&mut self, profile: &Profile) {
        let id = profile.service_id;
        if let Place::Occupied(mut known) = self.profiles.entry(id) {
            *known.get_mut() -= 1;
            if *known.get() == 0 {
                known.remove();
            }
        }
        self.touched.entry(id).or_default();
    }

    /// A host is no host any more.
    pub(crate) fn forget(&mut self, host: HostNo) {
        if self.hosts.remove(&host).is_some() {
            self.touch_host(host);
        }
    }

    /// Nobody stands at an index, until a host is put there.
    pub(crate) fn leave(&mut self, index: u32) {
        self.at.remove(&index);
    }

    /// Above every index at which a host stands.
    pub(crate) fn end_of_hosts(&self) -> u32 {
        self.at.last_key_value().map_or(0, |(index, _)| index + 1)
    }

    /// Who stands at an index.
    pub(crate) fn host_at(&self, index: u32) -> Result<HostNo, Failure> {
        let host = self.at.get(&index).copied();
        host.ok_or(Failure::value(PR_ENOENT, "host", u64::from(index)))
    }

    /// Where a host stands, and how it is.
    pub(crate) fn put_host(&mut self, host: HostNo, name: &HostName, index: u32, state: HostState) {
        let posted = self.hosts.entry(host).or_insert_with(|| PostedHost {
            name: name.clone(),
            index,
            state,
            newest: None,
            newest_foreign: None,
            reported: Vec::new(),
            addresses: Arc::default(),
            told: None,
        });
        posted.index = index;
        posted.state = state;
        self.at.insert(index, host);
        self.touch_host(host);
    }

    /// How a host is now.
    pub(crate) fn set_state(&mut self, host: HostNo, state: HostState) {
        if let Some(posted) = self.hosts.get_mut(&host) {
            posted.state = state;
            self.touch_host(host);
        }
    }

    /// The name of the host at an index, and its number.
    pub(crate) fn host_named_at(&self, index: u32) -> Result<(HostNo, HostName), Failure> {
        let host = self.host_at(index)?;
        let name = self.hosts.get(&host).map(|posted| posted.name.clone());
        let name = name.ok_or(Failure::value(PR_ENOENT, "host", u64::from(index)))?;
        Ok((host, name))
    }

    /// Takes a newer report of a host's addresses.
    pub(crate) fn report_addresses(
        &mut self,
        host: HostNo,
        seq: u64,
        reported: Vec<Reported>,
    ) -> Result<Chosen, Failure> {
        let unknown = Failure::value(PR_ENOENT, "host", u64::from(host.0));
        let Some(posted) = self.hosts.get_mut(&host) else {
            return Err(unknown);
        };
        if posted.newest.is_some_and(|newest| seq <= newest) {
            return Err(Failure::value(PR_ESTALE, "seq is not greater", seq));
        }
        posted.newest = Some(seq);
        posted.reported = reported;
        self.choose(host).ok_or(unknown)
    }

    /// Takes what networks stand for from now on; what became of the addresses of every host.
    pub(crate) fn put_networks(&mut self, networks: Vec<(NetworkNo, Prefix)>) -> Vec<Chosen> {
        for (number, prefix) in networks {
            if self.networks.len() <= number.place() {
                self.networks.resize(number.place() + 1, None);
            }
            self.networks[number.place()] = Some(prefix);
        }
        let hosts: Vec<HostNo> = self.hosts.keys().copied().collect();
        let hosts = hosts.into_iter();
        hosts.filter_map(|host| self.choose(host)).collect()
    }

    /// Chooses a host's addresses anew.
    fn choose(&mut self, host: HostNo) -> Option<Chosen> {
        let posted = self.hosts.get_mut(&host)?;
        let addresses = Addresses::choose(&posted.reported, &self.networks);
        let networks = posted.newest.map(|_| addresses.networks());
        // Without networks nobody asks for one, and the pools need not hear of every report.
        let news = !self.networks.is_empty() && posted.told != networks;
        if news {
            posted.told = networks;
        }
        let networks = news.then(|| (posted.name.clone(), networks));
        if *posted.addresses != addresses {
            posted.addresses = Arc::new(addresses);
            self.touch_host(host);
        }
        let addresses = Arc::clone(&self.hosts.get(&host)?.addresses);
        Some(Chosen {
            host,
            addresses,
            networks,
        })
    }

    /// Takes note of a newer report of strangers; the name of their host.
    pub(crate) fn report_foreign(&mut self, index: u32, seq: u64) -> Result<HostName, Failure> {
        let host = self.host_at(index)?;
        let Some(posted) = self.hosts.get_mut(&host) else {
            return Err(Failure::value(PR_ENOENT, "host", u64::from(index)));
        };
        if posted.newest_foreign.is_some_and(|newest| seq <= newest) {
            return Err(Failure::value(PR_ESTALE, "seq is not greater", seq));
        }
        posted.newest_foreign = Some(seq);
        Ok(posted.name.clone())
    }

    /// Takes a newer report of a replica's readiness; `None` if nothing is posted under the handle.
    pub(crate) fn report_ready(
        &mut self,
        handle: Handle,
        order: (u32, u64),
        state: EndpointState,
    ) -> Option<Result<(), Failure>> {
        let posted = self.posted.get_mut(&handle)?;
        if posted.newest.is_some_and(|newest| order <= newest) {
            let stale = Failure::value(PR_ESTALE, "(run, seq) is not greater, seq", order.1);
            return Some(Err(stale));
        }
        posted.newest = Some(order);
        posted.state = state;
        let place = place(&posted.placed);
        self.touch(place);
        Some(Ok(()))
    }

    /// What a restored grant is shown as until its replica reports: what was reported last, which then confirms
    /// it, or something newer.
    pub(crate) fn presume(&mut self, handle: Handle, order: (u32, u64), state: EndpointState) {
        if let Some(posted) = self.posted.get_mut(&handle) {
            posted.newest = before(order);
            posted.state = state;
            let place = place(&posted.placed);
            self.touch(place);
        }
    }

    /// Posts what hot calls left: of each slot that they touched, what has become of it.
    pub(crate) fn post_news(&mut self, register: &Mutex<Register>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        register.lock().swap_dirty(&mut dirty);
        for slot in dirty.drain(..) {
            // A lock for each, so that hot calls get theirs in between.
            let shown = register.lock().shown(slot);
            self.post_slot(slot, shown, register);
        }
        self.dirty = dirty;
    }

    fn post_slot(&mut self, slot: u32, shown: Option<(Handle, Stage)>, register: &Mutex<Register>) {
        let before = self.by_slot.get(&slot).copied();
        if let Some(before) = before.filter(|before| shown.is_none_or(|(now, _)| now != *before)) {
            self.take_down(before);
        }
        let Some((handle, stage)) = shown else {
            return;
        };
        if before != Some(handle) {
            // Gone by now, it is dirty again.
            let Some(placed) = register.lock().placed(handle) else {
                return;
            };
            self.post(Arc::new(placed));
        }
        if let Some(posted) = self.posted.get_mut(&handle)
            && posted.releasing != (stage == Stage::Releasing)
        {
            posted.releasing = stage == Stage::Releasing;
            let place = place(&posted.placed);
            self.touch(place);
        }
    }

    fn post(&mut self, placed: Arc<Placed>) {
        let (handle, place) = (placed.handle, place(&placed));
        self.by_slot.insert(handle.slot(), handle);
        self.by_host.entry(placed.host).or_default().insert(handle);
        self.by_key.entry(place).or_default().insert(handle);
        self.touch(place);
        self.posted.insert(
            handle,
            Posted {
                placed,
                state: EndpointState::NotReady,
                newest: None,
                releasing: false,
            },
        );
    }

    fn take_down(&mut self, handle: Handle) {
        let Some(posted) = self.posted.remove(&handle) else {
            return;
        };
        let place = place(&posted.placed);
        self.by_slot.remove(&handle.slot());
        take_out(&mut self.by_host, posted.placed.host, handle);
        take_out(&mut self.by_key, place, handle);
        self.touch(place);
    }

    fn touch(&mut self, (service, key): (ServiceId, Key)) {
        self.touched.entry(service).or_default().insert(key);
    }

    fn touch_host(&mut self, host: HostNo) {
        let members = self.by_host.get(&host).into_iter().flatten();
        let posted = members.filter_map(|handle| self.posted.get(handle));
        let places: Vec<_> = posted.map(|posted| place(&posted.placed)).collect();
        for place in places {
            self.touch(place);
        }
    }

    /// Shows readers everything that was touched, and tells who follows it: one swap per service that differs at all.
    /// Cost: of what was touched, whatever the size of its services.
    pub(crate) fn publish(&mut self, table: &EndpointTable<Member>, followers: &Followers) {
        if self.touched.is_empty() {
            return;
        }
        let touched = std::mem::take(&mut self.touched);
        let touched: Vec<_> = touched
            .into_iter()
            .filter_map(|(id, keys)| self.touched(id, keys))
            .collect();
        let revision = self.revision + 1;
        let updates = touched.iter().map(|one| self.update_of(one)).collect();
        let gone = touched.iter().filter(|one| one.is_gone);
        let gone: Vec<_> = gone.map(|one| one.name.clone()).collect();
        let publish = || table.publish(revision, updates, &gone);
        if followers.publish(table, revision, &touched, publish) {
            self.revision = revision;
        }
        for one in touched.iter().filter(|one| one.is_gone) {
            self.services.remove(&one.service);
        }
    }

    fn touched(&self, id: ServiceId, keys: BTreeSet<Key>) -> Option<Touched> {
        const FIRST: Key = Key {
            job: 0,
            step: 0,
            replica: 0,
        };
        let next = self.by_key.range((id, FIRST)..).next();
        let is_empty = next.is_none_or(|((service, _), _)| *service != id);
        Some(Touched {
            service: id,
            name: self.services.get(&id)?.clone(),
            is_gone: is_empty && !self.profiles.contains_key(&id),
            keys: keys.into_iter().collect(),
        })
    }

    fn update_of(&self, touched: &Touched) -> ServiceUpdate<Member> {
        let keys = touched.keys.iter();
        let handles = keys.filter_map(|key| self.by_key.get(&(touched.service, *key)));
        let posted = handles
            .flatten()
            .filter_map(|handle| self.posted.get(handle));
        let upsert = posted.map(|posted| self.member(posted)).collect();
        ServiceUpdate {
            service: touched.name.clone(),
            // How many there shall be is the scheduler's business; nobody reads it here.
            desired: 0,
            change: Change::Parts {
                upsert,
                // Each of them anew: an earlier placement may be all that is left of a key.
                remove: touched.keys.clone(),
            },
        }
    }

    fn member(&self, posted: &Posted) -> Member {
        let placed = &posted.placed;
        let host = self.hosts.get(&placed.host);
        Member {
            handle: placed.handle,
            key: placed.key,
            incarnation: placed.incarnation,
            host: host.map_or(u32::MAX, |host| host.index),
            reached: host.map_or(Reached::At(None), |host| {
                Reached::new(&placed.profile, &host.addresses)
            }),
            state: shown(posted, host.map_or(HostState::Lost, |h| h.state)),
            placed: SharedPlace(Arc::clone(placed)),
        }
    }
}

fn take_out<K: Ord>(from: &mut BTreeMap<K, BTreeSet<Handle>>, key: K, handle: Handle) {
    if let Place::Occupied(mut handles) = from.entry(key) {
        handles.get_mut().remove(&handle);
        if handles.get().is_empty() {
            handles.remove();
        }
    }
}

/// Where readers find a placed replica.
fn place(placed: &Placed) -> (ServiceId, Key) {
    (placed.profile.service_id, placed.key)
}

/// The last report that is older than this one.
fn before((run, seq): (u32, u64)) -> Option<(u32, u64)> {
    let same_run = seq.checked_sub(1).map(|seq| (run, seq));
    same_run.or_else(|| run.checked_sub(1).map(|run| (run, u64::MAX)))
}

/// What readers are told of a replica: its own report, as far as its stop and its host allow.
fn shown(posted: &Posted, host: HostState) -> EndpointState {
    use EndpointState::{NotReady, Ready, Serving, Terminating, Unconfirmed};
    match (posted.state, host) {
        (_, HostState::Lost) => NotReady,
        (Serving, _) => Serving,
        _ if posted.releasing => Terminating,
        (Ready, HostState::Suspect) => Unconfirmed,
        (reported, _) => reported,
    }
}
