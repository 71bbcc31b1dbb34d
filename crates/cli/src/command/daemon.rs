//! `controller`, `agent`, `worker`, `shim`: what runs for long.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use portreeve::identity::{HostName, Run};
use portreeve::port::PortRanges;
use portreeve_agent::{Agent as AgentDaemon, Config as AgentConfig, Ephemeral, SocketPlace};
use portreeve_api::local::ReplicaFolder;
use portreeve_controller::{Config as ControllerConfig, Controller as ControllerDaemon};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::connect::Connect;
use crate::exit::Failure;
use crate::output;
use crate::places::{self, Places};
use crate::span::Span;

/// Run the controller: the truth about services, ports and endpoints.
///
/// Ends on SIGTERM, SIGHUP or Ctrl-C; services go on.
#[derive(Args, Debug)]
pub(crate) struct Controller {
    /// Where the truth is kept; by default /var/lib/portreeve for root, else the user's state folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the socket is made; by default /run/portreeve for root, else the user's runtime folder
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Addresses to listen on; loopback only
    #[arg(long, value_name = "ADDRESS", default_values = places::LISTEN)]
    listen: Vec<SocketAddr>,
    /// How long a freed port rests
    #[arg(long, value_name = "TIME", default_value = "60s")]
    cooling: Span,
    /// All on one machine: loopback addresses are published
    #[arg(long)]
    single_host: bool,
    /// The site's profiles: DIR/NAME.toml is site/NAME; by default /etc/portreeve/profiles for root, else none
    #[arg(long, value_name = "DIR")]
    site_profiles: Option<PathBuf>,
}

impl Controller {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        log_to_stderr();
        let mut told = Told::listen()?;
        let places = Places::here();
        let config = ControllerConfig {
            data: self.data.unwrap_or(places.data),
            socket: places::socket(&self.run_dir.unwrap_or(places.run)),
            listen: self.listen,
            single_host: self.single_host,
            cooling: self.cooling.0,
            site_profiles: places::site_profiles(self.site_profiles),
        };
        let controller = ControllerDaemon::start(config)
            .await
            .map_err(Failure::plain)?;
        for address in controller.addresses() {
            output::print(&format!("portreeve controller answers at {address}\n"))?;
        }
        told.stop().await;
        controller.stop().await;
        Ok(())
    }
}

/// What a host offers; shared by `agent` and `dev`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HostOptions {
    /// The name of this host; by default what the system says
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<HostName>,
    /// Numbers that "any" draws from
    #[arg(long, value_name = "RANGES", default_value = "20000-32767")]
    pub(crate) ports: PortRanges,
    /// What to do where those overlap the kernel's ephemeral range: warn, or exclude them
    #[arg(long, value_enum, default_value_t)]
    pub(crate) ephemeral: EphemeralOption,
    /// Numbers that a fixed request may name
    #[arg(long, value_name = "RANGES", default_value = "1024-65535")]
    pub(crate) fixed_ports: PortRanges,
    /// Numbers never given
    #[arg(long, value_name = "RANGES", default_value = "")]
    pub(crate) reserved_ports: ReservedPorts,
}

/// [`Ephemeral`] as it is written.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum EphemeralOption {
    #[default]
    Warn,
    Exclude,
}

impl From<EphemeralOption> for Ephemeral {
    fn from(option: EphemeralOption) -> Self {
        match option {
            EphemeralOption::Warn => Self::Warn,
            EphemeralOption::Exclude => Self::Exclude,
        }
    }
}

/// Ranges that may also be none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReservedPorts(pub(crate) PortRanges);

impl std::str::FromStr for ReservedPorts {
    type Err = portreeve::port::ParsePortRangesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        PortRanges::try_from(text.to_owned()).map(Self)
    }
}

impl HostOptions {
    /// The name given, else the system's.
    pub(crate) fn host_name(&self) -> Result<HostName, Failure> {
        if let Some(host) = &self.host {
            return Ok(host.clone());
        }
        let name = nix::unistd::gethostname()
            .map_err(|cause| Failure::plain(format!("host name: {cause}")))?;
        let name = name.to_string_lossy().into_owned();
        name.parse()
            .map_err(|cause| Failure::plain(format!("{cause}; name the host with --host")))
    }
}

/// Run the agent of this host: it reports the host's ports and starts a worker per replica.
///
/// Ends on SIGTERM, SIGHUP or Ctrl-C and touches no service; started again it adopts what runs.
#[derive(Args, Debug)]
pub(crate) struct Agent {
    #[command(flatten)]
    options: HostOptions,
    /// Where the replicas' folders are, below agent/; by default as for the controller
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// All on one machine: the loopback address is published
    #[arg(long)]
    single_host: bool,
    /// Where `portreeve run` of other schedulers' jobs asks for ports; by default agent.sock in /run/portreeve for root, else in the user's runtime folder
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

impl Agent {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        log_to_stderr();
        let mut told = Told::listen()?;
        let state = self
            .data
            .unwrap_or_else(|| Places::here().data)
            .join("agent");
        let client = connect.client()?;
        let mut config = agent_config(&self.options, state, client.target().clone())?;
        config.single_host = self.single_host;
        config.socket = Some(match self.socket {
            Some(socket) => SocketPlace::At(socket),
            None => SocketPlace::Usual(places::agent_socket(&Places::here().run)),
        });
        let mut agent = AgentDaemon::start(config).await.map_err(Failure::plain)?;
        let broken = tokio::select! {
            () = told.stop() => None,
            why = agent.broken() => Some(why),
        };
        agent.stop().await;
        broken.map_or(Ok(()), |why| Err(Failure::plain(why)))
    }
}

/// The configuration of an agent on this machine.
pub(crate) fn agent_config(
    options: &HostOptions,
    state: PathBuf,
    controller: portreeve_api::Target,
) -> Result<AgentConfig, Failure> {
    Ok(AgentConfig {
        host: options.host_name()?,
        state,
        controller,
        single_host: false,
        dynamic: options.ports.clone(),
        ephemeral: options.ephemeral.into(),
        fixed: options.fixed_ports.clone(),
        reserved: options.reserved_ports.0.clone(),
        worker_program: std::env::current_exe()?,
        lifeline: None,
        labels: BTreeMap::new(),
        ..AgentConfig::default()
    })
}

/// Supervise one replica in its folder; started by the agent.
#[derive(Args, Debug)]
pub(crate) struct Worker {
    /// The replica's folder, prepared by the agent
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
}

impl Worker {
    pub(crate) fn run(self) -> Result<(), Failure> {
        log_to_stderr();
        Ok(portreeve_worker::run(ReplicaFolder::at(self.folder))?)
    }
}

/// Hold one process of a replica.
#[derive(Args, Debug)]
pub(crate) struct Shim {
    /// The replica's folder
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    /// Which start
    #[arg(long)]
    run: u32,
}

impl Shim {
    pub(crate) fn run(self) -> Result<(), Failure> {
        portreeve_worker::shim::run(&ReplicaFolder::at(self.folder), Run(self.run))
            .map_err(Failure::plain)
    }
}

/// The signals that end a daemon. Made first of all, so that none that comes early kills it unprepared.
pub(crate) struct Told {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Told {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            // A terminal that is closed.
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns at the first SIGTERM, Ctrl-C or hang-up since [`Told::listen`].
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Log lines go to standard error; `PORTREEVE_LOG=debug` says more.
pub(crate) fn log_to_stderr() {
    log_from("info");
}

/// The same, by default from this level on.
pub(crate) fn log_from(level: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PORTREEVE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        // It would say on standard error that a line is lost, and die where that is full or closed as well.
        .log_internal_errors(false)
        .init();
}
