//! The controller: it owns the truth, keeps it on disk, and answers over REST.
//!
//! One task drives [`portreeve::registry::Registry`] and the [`RedbStore`]; readers take endpoints from the
//! lock-free table and everything else from a swapped view, and never wait for it. [`Controller::start`]
//! reads the truth before it opens a listener: refused connections are understood everywhere, an empty
//! answer is not.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portreeve::commit::{Front, Terms};
use portreeve::host_addr::Networks;
use portreeve::registry::{self, Registry, Silence, Store};
use portreeve_api::Target;
use portreeve_api::site_profiles::SiteFolder;
use tokio::net::TcpListener;
use tokio::sync::watch as watch_channel;
use tokio::task::JoinHandle;

mod account;
mod app;
mod audit;
mod backup;
mod bindings;
mod clock;
mod data_dir;
mod desk;
mod door;
mod driver;
#[cfg(fuzzing)]
pub mod fuzzing;
mod impatient;
mod jwt;
mod limits;
mod limits_file;
mod lineage;
mod listen;
mod meters;
mod peer;
mod queue;
mod rate;
mod reads;
mod rest;
mod room;
mod secret;
mod share;
mod site_file;
mod socket;
mod start_error;
mod stop;
mod store;
mod tally;
mod tls;
mod token;
mod vital;
mod watch;

pub use audit::AuditPlace;
pub use backup::{BackupError, BackupHead, Former, Restored, back_up, check_backup, restore};
pub use door::{Door, Wanted};
pub use jwt::{JwtAlgorithm, JwtConfig, ParseJwtAlgorithmError};
pub use limits::raise_open_files;
pub use site_file::SiteFileError;
pub use start_error::StartError;
pub use store::RedbStore;
pub use tls::ServerTls;

use account::Accounts;
use app::App;
use audit::AuditLog;
use bindings::RightsFile;
use data_dir::DataDir;
use driver::Driver;
use jwt::Jwt;
use limits::Limits;
use limits_file::LimitsFile;
use lineage::Lineage;
use listen::Listener;
use meters::Meters;
use rate::Rates;
use reads::Reads;
use share::Shares;
use site_file::Follow;
use socket::SocketPlace;
use stop::StopSwitch;
use tally::Tally;
use tls::Seal;
use token::TokenKey;

/// What a controller needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of the truth; made (0700) if it is not there, held by one controller at a time.
    pub data: PathBuf,
    /// The Unix socket; its folder is made (0755) if it is not there.
    pub socket: PathBuf,
    /// Addresses to listen at; port 0 takes a free one. Beyond loopback only over TLS, or as `insecure` says.
    pub listen: Vec<SocketAddr>,
    /// For addresses beyond loopback; those on loopback, and the socket, stay plain.
    pub tls: Option<ServerTls>,
    /// Answer beyond loopback in the clear where there is no `tls`: to readers without a name, for what everybody on the
    /// cluster may see. No token is taken and no secret sent there.
    pub insecure: bool,
    /// All on one machine: hosts may publish loopback addresses.
    pub single_host: bool,
    /// How long a freed port rests before another service gets it.
    pub cooling: Duration,
    /// How long changes of a service's readiness are gathered before readers see them; the first after quiet is
    /// shown at once, and who is not ready any more is withdrawn within 20 ms.
    pub coalesce: Duration,
    /// When the silence of a host makes it suspect, and lost; must forgive a restart of agent and workers.
    pub silence: Silence,
    /// Begin a new epoch, so that every watcher starts anew: after the disk or the machine was set back as a whole.
    /// A copied data directory is noticed without it.
    pub new_epoch: bool,
    /// The networks that ports may name.
    pub networks: Networks,
    /// The site's profiles that submitted ones may extend.
    pub site_profiles: SiteFolder,
    /// Connections at once of each listener, streams among them; by default as many as the process may have
    /// files, and at most 16,384. What the process may have bounds it in any case.
    pub max_connections: Option<usize>,
    /// Streams at once of each listener; by default three quarters of its connections. One user has at most
    /// half of them.
    pub max_streams: Option<usize>,
    /// Requests a second that one user may send on the long run, five times as many at once; by default 1,000. Root
    /// and the controller's account may send as many as they like.
    pub requests_per_second: Option<u32>,
    /// The file that says how much users and groups may hold; read again when it changes. `None`: what is usual.
    pub limits: Option<PathBuf>,
    /// The file that says who may see and do what; read again when it changes. `None`: everybody has its own services.
    pub rights: Option<PathBuf>,
    /// Whose signed tokens are believed. `None`: nobody's.
    pub jwt: Option<JwtConfig>,
    /// Where every change and every refusal is written. `None`: nowhere.
    pub audit: Option<AuditPlace>,
}

impl Config {
    /// What [`Config::coalesce`] is unless somebody says otherwise.
    pub const COALESCE: Duration = Duration::from_millis(20);
    /// The longest [`Config::coalesce`]; a longer one is cut to it.
    pub const MOST_COALESCED: Duration = Duration::from_secs(1);
}

/// A running controller. Dropped without [`Controller::stop`] it ends as if killed.
#[derive(Debug)]
pub struct Controller {
    addresses: Vec<Target>,
    app: Arc<App>,
    stopping: StopSwitch,
    end: StopSwitch,
    listeners: Vec<JoinHandle<()>>,
    driver: Option<JoinHandle<()>>,
    /// What looks at the site's files.
    files: Vec<JoinHandle<()>>,
    look_again: watch_channel::Sender<u64>,
    socket: Option<SocketPlace>,
    seal: Option<Arc<Seal>>,
    _data: DataDir,
}

impl Controller {
    /// Looks at everything that can be looked at without taking anything: the options, and the files they name.
    ///
    /// # Errors
    ///
    /// [`StartError`]; a start would fail with it.
    pub fn check(config: &Config) -> Result<(), StartError> {
        let beyond = config.listen.iter().find(|a| !a.ip().is_loopback());
        if let Some(address) = beyond
            && config.tls.is_none()
            && !config.insecure
        {
            return Err(StartError::NotLoopback { address: *address });
        }
        config.tls.clone().map(Seal::of).transpose()?;
        Terms::new(&config.silence, config.single_host)?;
        config.limits.as_deref().map(LimitsFile::open).transpose()?;
        config.rights.as_deref().map(RightsFile::open).transpose()?;
        config.jwt.clone().map(Jwt::open).transpose()?;
        Ok(())
    }

    /// Takes the data directory, reads the truth, shows the stored endpoints, and then listens.
    ///
    /// # Errors
    ///
    /// [`StartError`] says what is in the way; nothing listens then.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::check(&config)?;
        let seal = config.tls.clone().map(Seal::of).transpose()?.map(Arc::new);
        let terms = Terms::new(&config.silence, config.single_host)?;
        let data = DataDir::take(&config.data)?;
        let (store, stored, lineage) = {
            let folder = data.path().to_owned();
            vital::blocking("store", move || {
                let noted = Tally::of(&folder).noted().map(|noted| noted.commits);
                let mut store = RedbStore::open(&folder)?;
                let stored = store.load()?;
                let lineage = Lineage::of(&folder, stored.commits, noted);
                let store = Box::new(store) as Box<dyn Store>;
                Ok::<_, StartError>((store, stored, lineage))
            })
            .await?
        };
        if let Some(why) = lineage.copied() {
            tracing::warn!(
                why,
                "the data directory is a copy or a backup: a new epoch begins, and every watcher starts anew"
            );
        }
        let key = TokenKey::of(data.path())?;
        let audit = AuditLog::begin(config.audit.as_ref());
        let audit = audit.map_err(|cause| StartError::audit(config.audit.as_ref(), &cause))?;
        let limits_file = config.limits.as_deref().map(LimitsFile::open);
        let (limits_file, limits) = limits_file.transpose()?.unzip();
        let rights_file = config.rights.as_deref().map(RightsFile::open);
        let (rights_file, bindings) = rights_file.transpose()?.unzip();
        let jwt = config.jwt.clone().map(Jwt::open).transpose()?;
        let (jwt, key_file) = jwt.unzip();
        let registry = registry::Config {
            limits: limits.unwrap_or_default(),
            cooling: config.cooling,
            networks: config.networks.clone(),
            coalesce: config.coalesce.min(Config::MOST_COALESCED),
            silence: Some(config.silence),
            stale_for: Some(config.silence.host_grace()),
            begin_epoch: config.new_epoch || lineage.copied().is_some(),
            ..registry::Config::default()
        };
        let epoch = random_name()?;
        let registry = Registry::load(registry, &stored, epoch, clock::now())?;
        let commits = stored.commits;
        drop(stored);
        let (mut driver, shown, queue) = Driver::new(registry, store);
        driver.begin().await?;
        // Before the first reader sees the epoch, so that no start after it takes the directory for a copy.
        let commits = commits + shown.commits.load(Ordering::Relaxed);
        if let Err(cause) = vital::blocking("lineage", move || lineage.note(commits)).await {
            tracing::warn!(%cause, "the witness of this start was not written: the next start begins a new epoch");
        }
        let front = Front::new(terms.clone(), &shown.view.borrow(), clock::now().mono);
        let (stopping, stop) = StopSwitch::new();
        warn_of_broken(&config.site_profiles).await;
        let own_uid = nix::unistd::geteuid().as_raw();
        // What the file said before this start is not known.
        let bound_at = rights_file.as_ref().map_or(0, |_| shown.table.revision());
        let app = Arc::new(App {
            shown,
            queue,
            reads: Reads::default(),
            heard: rest::counters::Heard::default(),
            accounts: Accounts::new(own_uid, bindings.unwrap_or_default()),
            bound_at: AtomicU64::new(bound_at),
            jwt,
            pages: rest::pages::Pages::default(),
            host_pages: rest::pages::Pages::default(),
            synced: rest::synced::Synced::default(),
            key,
            instance: random_name()?,
            polls: Shares::default(),
            data: data.path().to_owned(),
            meters: Meters::new(rest::routed()),
            rates: Rates::new(config.requests_per_second.unwrap_or(Rates::PER_SECOND)),
            store_file: data.path().join(RedbStore::FILE),
            limits: Limits::of_account(own_uid, config.max_connections, config.max_streams),
            terms,
            site_profiles: config.site_profiles.clone(),
            stopping: stop,
            front: Mutex::new(front),
            audit,
            texts: watch::Texts::default(),
        });
        let opened = open(&config, seal.as_ref()).await?;
        let (look_again, wished) = watch_channel::channel(0);
        let follow = Follow {
            wished,
            stopping: app.stopping.clone(),
        };
        let limits = limits_file.map(|file| {
            let followed = file.follow(app.queue.clone(), follow.clone());
            vital::spawn("limits", followed)
        });
        let rights = rights_file.map(|file| {
            let followed = file.follow(Arc::clone(&app), follow.clone());
            vital::spawn("rights", followed)
        });
        let keys = key_file.map(|file| {
            let followed = file.follow(Arc::clone(&app), follow);
            vital::spawn("keys", followed)
        });
        let (end, ended) = StopSwitch::new();
        let driver = vital::spawn("driver", driver.run(ended));
        let api = rest::Api::new(Arc::clone(&app));
        let listeners = opened.listeners.into_iter().map(|listener| {
            let stop = app.stopping.clone();
            let limits = app.limits.clone();
            let served = listen::serve(listener, api.clone(), limits, stop);
            vital::spawn("listener", served)
        });
        Ok(Self {
            listeners: listeners.collect(),
            addresses: opened.addresses,
            app,
            stopping,
            end,
            driver: Some(driver),
            files: limits.into_iter().chain(rights).chain(keys).collect(),
            look_again,
            socket: Some(opened.socket),
            seal,
            _data: data,
        })
    }

    /// Where it answers: the socket first, then the addresses with the ports they really have.
    #[must_use]
    pub fn addresses(&self) -> &[Target] {
        &self.addresses
    }

    /// How many commits became durable since the start. Unchanged facts make none.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.app.shown.commits.load(Ordering::Relaxed)
    }

    /// A way in for hosts and people that live in this process. It has to be gone before the data directory is free.
    #[must_use]
    pub fn door(&self) -> Door {
        Door::of(Arc::clone(&self.app))
    }

    /// Looks at the site's files of limits and rights now, not within 5 s.
    pub fn look_at_files(&self) {
        self.look_again.send_modify(|number| *number += 1);
    }

    /// Reads again what may change while it runs: certificate, key and CA of clients, and the files of limits and
    /// rights; opens the audit log by its name. Connections go on; what cannot be used as it is now stays as it was, and the log says so.
    pub async fn reload(&self) {
        self.look_at_files();
        self.app.audit.reopen();
        let Some(seal) = self.seal.clone() else {
            tracing::info!("told to read everything again");
            return;
        };
        match vital::blocking("certificate", move || seal.renew()).await {
            Ok(()) => tracing::info!("told to read everything again; the certificate was read"),
            Err(cause) => tracing::error!(%cause, "the certificate stays as it was"),
        }
    }

    /// Ends in order: nothing new is let in, held questions are answered, connections finish, everything is
    /// written, and neither socket nor lock is left. Services go on.
    pub async fn stop(mut self) {
        self.stopping.stop();
        for listener in std::mem::take(&mut self.listeners) {
            // A task that panicked has ended the process.
            let _ = listener.await;
        }
        for follows in std::mem::take(&mut self.files) {
            let _ = follows.await;
        }
        self.end.stop();
        if let Some(driver) = self.driver.take() {
            let _ = driver.await;
        }
        if let Some(socket) = self.socket.take() {
            socket.remove();
        }
        let app = Arc::clone(&self.app);
        vital::blocking("audit", move || app.audit.end()).await;
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let others = self.driver.iter().chain(&self.files);
        for task in self.listeners.iter().chain(others) {
            task.abort();
        }
    }
}

/// Says at once what would be refused when somebody extends it.
async fn warn_of_broken(site: &SiteFolder) {
    let folder = site.clone();
    for (name, errors) in vital::blocking("site profiles", move || folder.broken()).await {
        for error in errors.as_slice() {
            let layer = error.layer.as_deref().unwrap_or_default();
            let place = error.place.map(|place| place.to_string());
            let place = place.unwrap_or_default();
            tracing::warn!("site/{name} cannot be extended: {layer}:{place}: {error}");
        }
    }
}

struct Opened {
    listeners: Vec<Listener>,
    addresses: Vec<Target>,
    socket: SocketPlace,
}

async fn open(config: &Config, seal: Option<&Arc<Seal>>) -> Result<Opened, StartError> {
    let (socket, listener) = SocketPlace::take(&config.socket)
        .map_err(|cause| StartError::socket(config.socket.clone(), cause))?;
    let mut opened = Opened {
        listeners: vec![Listener::Unix(listener)],
        addresses: vec![Target::Unix(config.socket.clone())],
        socket,
    };
    for address in &config.listen {
        match listen_at(*address).await {
            Ok(Some((listener, address))) => {
                let text = address.to_string();
                let (listener, target) = match seal {
                    _ if address.ip().is_loopback() => (Listener::Tcp(listener), Target::Tcp(text)),
                    Some(seal) => {
                        let seal = Some(Arc::clone(seal));
                        (Listener::Remote(listener, seal), Target::Tls(text))
                    }
                    None => (Listener::Remote(listener, None), Target::Tcp(text)),
                };
                opened.listeners.push(listener);
                opened.addresses.push(target);
            }
            Ok(None) => tracing::info!(%address, "this machine has no IPv6; not listening there"),
            Err(cause) => {
                opened.socket.remove();
                return Err(cause);
            }
        }
    }
    Ok(opened)
}

/// Listens at `address`; `None`: the machine has no such kind of address.
async fn listen_at(address: SocketAddr) -> Result<Option<(TcpListener, SocketAddr)>, StartError> {
    let opened = TcpListener::bind(address)
        .await
        .and_then(|listener| listener.local_addr().map(|address| (listener, address)));
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => {
            Err(StartError::AddressInUse { address })
        }
        Err(cause) if address.is_ipv6() && is_missing(&cause) => Ok(None),
        Err(cause) => Err(StartError::Address {
            address,
            reason: cause.to_string(),
        }),
    }
}

fn is_missing(cause: &io::Error) -> bool {
    let unsupported = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    cause.kind() == io::ErrorKind::AddrNotAvailable || cause.raw_os_error() == Some(unsupported)
}

/// 16 hexadecimal digits that nobody had before.
fn random_name() -> Result<String, StartError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|cause| StartError::Randomness {
        reason: cause.to_string(),
    })?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod site;
#[cfg(test)]
mod tests {
    mod attach;
    mod audit;
    mod backup;
    mod conditions;
    mod described;
    mod door;
    mod epoch;
    mod golden;
    mod host_orders;
    mod hostile_clients;
    mod hostile_reads;
    mod hosts;
    mod layers;
    mod life;
    mod limits;
    mod matrix;
    mod metrics;
    mod past;
    mod rest;
    mod rogue;
    mod services;
    mod shares;
    mod tls;
    mod tokens;
    pub(crate) mod watch;
}
