//! `controller`, `agent`, `worker`, `shim`: what runs for long.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use portreeve::host_addr::{AddressRule, NamedNetwork, Networks};
use portreeve::identity::{HostName, Run};
use portreeve::port::PortRanges;
use portreeve::registry::{HostOwner, Silence, Suspects};
use portreeve::time::ParseDurationError;
use portreeve_agent::{
    Agent as AgentDaemon, Config as AgentConfig, Ephemeral, SocketPlace, TokenPlaces,
};
use portreeve_api::Target;
use portreeve_api::containment::Choice;
use portreeve_api::local::{LogBounds, ReplicaFolder};
use portreeve_api::service_manager::{BackendKind, ServiceManager};
use portreeve_controller::{
    AuditPlace, Config as ControllerConfig, Controller as ControllerDaemon, JwtAlgorithm,
    JwtConfig, ServerTls,
};

use crate::command::logging::LogOptions;
use crate::command::told::{Told, Word, look_again_at, say_checked};
use crate::command::{check, renewal, shutdown};
use crate::config::ConfigFile;
use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::output::{self, Format};
use crate::places::{self, Places};
use crate::size::Size;
use crate::span::Span;
use crate::supervised;

/// Run the controller: the truth about services, ports and endpoints.
///
/// Ends on SIGTERM or Ctrl-C; services go on. On SIGHUP it reads certificates, limits and the like again, and goes on.
///
/// Every option that stays can be set in /etc/portreeve/controller.toml (without root: ~/.config/portreeve), with _ for -.
#[derive(Args, Debug)]
pub(crate) struct Controller {
    /// Where the truth is kept; by default /var/lib/portreeve for root, else the user's state folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the socket is made; by default /run/portreeve for root, else the user's runtime folder
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Addresses to listen on; beyond loopback with --tls-cert and --tls-key, or --insecure
    #[arg(long, value_name = "ADDRESS", default_values = places::LISTEN)]
    listen: Vec<SocketAddr>,
    /// The certificate for addresses beyond loopback, and those between it and its CA, PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The key of --tls-cert, PEM; refused if others may read it
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Have everybody beyond loopback show a certificate of one of these CAs, PEM
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Answer beyond loopback in the clear: to readers without a name, what everybody on the cluster may see; no token is
    /// taken there, so agents on other hosts need https://
    #[arg(long, conflicts_with = "tls_cert", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, action = clap::ArgAction::Set, value_name = "BOOL", hide_possible_values = true)]
    insecure: bool,
    /// How long a freed port rests
    #[arg(long, value_name = "TIME", default_value = "60s")]
    cooling: Span,
    /// How long changes of a service's readiness are gathered before readers see them, up to 1s: the first after
    /// quiet is seen at once, and who is not ready any more is withdrawn within 20ms
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = window)]
    coalesce: Span,
    #[command(flatten)]
    silence: SilenceOptions,
    /// Begin a new epoch, so that every watcher starts anew: after the disk or the machine was set back as a whole;
    /// a copied or restored data directory is noticed without it
    #[arg(long)]
    new_epoch: bool,
    /// All on one machine: loopback addresses are published
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, action = clap::ArgAction::Set, value_name = "BOOL", hide_possible_values = true)]
    single_host: bool,
    #[command(flatten)]
    networks: NetworkOptions,
    /// The site's profiles: DIR/NAME.toml is site/NAME; by default /etc/portreeve/profiles for root, else none
    #[arg(long, value_name = "DIR")]
    site_profiles: Option<PathBuf>,
    /// Connections at once of each listener; by default as many as the system allows files, and at most 16384
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..))]
    max_connections: Option<u32>,
    /// Of these, streams that watch endpoints; by default three quarters. One user has at most half of them
    #[arg(long, value_name = "N")]
    max_streams: Option<u32>,
    /// Requests a second that one user may send on the long run, five times as many at once; root and the controller's
    /// account are not bound by it
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    max_requests: u32,
    /// How much users and groups may hold: tables such as [user.default], [user.alice] and [group.chem] with
    /// ports_per_host, ports, replicas and services; a change holds within 5s and ends nothing
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    /// Who may see and do what: common_groups, and tables such as [default], [user.alice] and [group.staff] with role,
    /// view and manage; a change holds within 5s
    #[arg(long, value_name = "FILE")]
    rights: Option<PathBuf>,
    #[command(flatten)]
    jwt: JwtOptions,
    /// Where every change and every refusal is written, a JSON object a line; by default audit.log in --data, in parts of
    /// 50 MB of which 3 are kept. A file named here is never cut: have logrotate move it
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    #[command(flatten)]
    log: LogOptions,
    /// Only check the configuration file, the options and the files they name; starts nothing
    #[arg(long)]
    check_config: bool,
}

/// A window for changes of readiness.
fn window(text: &str) -> Result<Span, String> {
    let span: Span = text
        .parse()
        .map_err(|cause: ParseDurationError| cause.to_string())?;
    if span.0 > ControllerConfig::MOST_COALESCED {
        return Err(
            "it is longer than 1s, for which clients would not hear of new replicas".to_owned(),
        );
    }
    Ok(span)
}

/// Whose signed tokens are believed.
#[derive(Args, Clone, Debug)]
struct JwtOptions {
    /// Believe tokens (JWT) of this issuer; with --jwt-audience, --jwt-algorithm and --jwt-key
    #[arg(long, value_name = "TEXT")]
    jwt_issuer: Option<String>,
    /// For whom they have to be made
    #[arg(long, value_name = "TEXT")]
    jwt_audience: Option<String>,
    /// How they have to be signed: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA; what a token says of
    /// itself does not count
    #[arg(long, value_name = "NAME")]
    jwt_algorithm: Option<JwtAlgorithm>,
    /// The issuer's public key, PEM; a change holds within 5s, and what another key signed ends
    #[arg(long, value_name = "FILE")]
    jwt_key: Option<PathBuf>,
    /// Which claim names the account
    #[arg(long, value_name = "NAME", default_value = JwtConfig::USER_CLAIM)]
    jwt_user_claim: String,
    /// Which claim names its groups
    #[arg(long, value_name = "NAME", default_value = JwtConfig::GROUPS_CLAIM)]
    jwt_groups_claim: String,
}

impl JwtOptions {
    fn read(self) -> Result<Option<JwtConfig>, Failure> {
        let named = (
            self.jwt_issuer,
            self.jwt_audience,
            self.jwt_algorithm,
            self.jwt_key,
        );
        // Not said by the options themselves: some may stand in the configuration file and some on the command line.
        match named {
            (None, None, None, None) => Ok(None),
            (Some(issuer), Some(audience), Some(algorithm), Some(key)) => Ok(Some(JwtConfig {
                issuer,
                audience,
                algorithm,
                key,
                user_claim: self.jwt_user_claim,
                groups_claim: self.jwt_groups_claim,
            })),
            _ => Err(Failure::new(
                Code::Usage,
                "--jwt-issuer, --jwt-audience, --jwt-algorithm and --jwt-key go together: name all four, or none",
            )),
        }
    }
}

/// What the silence of a host means.
#[derive(Args, Clone, Debug)]
struct SilenceOptions {
    /// After how long a silence a host is suspect: its endpoints stay listed but unconfirmed, and it gets nothing new
    #[arg(long, value_name = "TIME", default_value = "20s")]
    suspect_after: Span,
    /// After how long a silence a host is lost: its endpoints leave, and its replicas are run elsewhere; its ports stay
    /// held until it reports or is booted
    #[arg(long, value_name = "TIME", default_value = "90s")]
    host_grace: Span,
    /// Take the endpoints of suspect hosts off the lists at once
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, action = clap::ArgAction::Set, value_name = "BOOL", hide_possible_values = true)]
    withdraw_suspect: bool,
}

impl SilenceOptions {
    fn read(&self) -> Result<Silence, Failure> {
        let suspects = if self.withdraw_suspect {
            Suspects::AreWithdrawn
        } else {
            Suspects::StayListed
        };
        Silence::new(self.suspect_after.0, self.host_grace.0, suspects).map_err(|cause| {
            let words = format!("--suspect-after and --host-grace: {cause}");
            Failure::new(Code::Usage, words)
        })
    }
}

/// The site's networks; shared by `controller` and `dev`.
#[derive(Args, Clone, Debug)]
pub(crate) struct NetworkOptions {
    /// A network that ports may name, such as data=10.20.0.0/16 (repeatable): a port with `network = "data"` is given
    /// out at the host's address in it, and only on hosts that have one; further parts follow after a comma
    #[arg(long = "network", value_name = "NAME=NETWORK")]
    all: Vec<NamedNetwork>,
}

impl NetworkOptions {
    pub(crate) fn read(&self) -> Result<Networks, Failure> {
        Networks::new(self.all.clone())
            .map_err(|cause| Failure::new(Code::Usage, format!("--network: {cause}")))
    }
}

impl Controller {
    pub(crate) async fn run(self, file: Option<&ConfigFile>) -> Result<(), Failure> {
        let check = self.check_config;
        if !check {
            self.log.begin();
        }
        let config = self.config()?;
        if check {
            ControllerDaemon::check(&config).map_err(Failure::plain)?;
            return say_checked(file);
        }
        portreeve_controller::raise_open_files();
        let mut told = Told::listen()?;
        let controller = ControllerDaemon::start(config)
            .await
            .map_err(Failure::plain)?;
        for address in controller.addresses() {
            output::print(&format!("portreeve controller answers at {address}\n"))?;
        }
        supervised::ready();
        while told.next().await == Word::Reload {
            look_again_at(file);
            controller.reload().await;
        }
        supervised::stopping();
        controller.stop().await;
        Ok(())
    }

    fn config(self) -> Result<ControllerConfig, Failure> {
        let places = Places::here();
        let number = |most: u32| usize::try_from(most).unwrap_or(usize::MAX);
        let data = self.data.unwrap_or(places.data);
        let audit = match self.audit_log {
            Some(path) => AuditPlace::File(path),
            None => AuditPlace::InParts(data.join("audit.log")),
        };
        Ok(ControllerConfig {
            max_connections: self.max_connections.map(number),
            max_streams: self.max_streams.map(number),
            requests_per_second: Some(self.max_requests),
            limits: self.limits,
            rights: self.rights,
            jwt: self.jwt.read()?,
            audit: Some(audit),
            data,
            socket: places::socket(&self.run_dir.unwrap_or(places.run)),
            listen: self.listen,
            tls: tls_of(self.tls_cert, self.tls_key, self.tls_client_ca)?,
            insecure: self.insecure,
            single_host: self.single_host,
            cooling: self.cooling.0,
            coalesce: self.coalesce.0,
            silence: self.silence.read()?,
            new_epoch: self.new_epoch,
            networks: self.networks.read()?,
            site_profiles: places::site_profiles(self.site_profiles),
        })
    }
}

/// The files of TLS: a certificate with its key, or nothing.
fn tls_of(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
) -> Result<Option<ServerTls>, Failure> {
    // Not by rules of the options: a part may stand in the file, and another on the command line.
    let words = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            return Ok(Some(ServerTls {
                certificate,
                key,
                client_ca,
            }));
        }
        (None, None) if client_ca.is_none() => return Ok(None),
        (None, None) => {
            "--tls-client-ca asks for certificates over TLS, which needs --tls-cert and --tls-key"
        }
        _ => "a certificate is shown with its key: name both --tls-cert and --tls-key, or neither",
    };
    Err(Failure::new(Code::Usage, words))
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
    /// What starts the services: the worker itself, or systemd, as a transient unit per start (root: the system's, else
    /// the user's own)
    #[arg(long, value_enum, default_value_t)]
    pub(crate) backend: BackendOption,
    /// How the processes of a start are held together, so that none outlives its end: auto takes the first of cgroup,
    /// pid-namespace, freezer, process-tree that is possible here; any other is taken or the start is refused
    #[arg(long, value_name = "HOW", default_value_t)]
    pub(crate) containment: Choice,
    /// How large a file of a service's output grows before its beginning becomes a part of its own
    #[arg(long, value_name = "SIZE", default_value = "50M")]
    pub(crate) log_size: Size,
    /// How many files of each output are kept, the growing one among them
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(LogBounds::MAX_FILES)))]
    pub(crate) log_files: u32,
    /// How long a replica's output is kept after its end
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub(crate) keep_logs: Span,
}

/// [`BackendKind`] as it is written.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum BackendOption {
    #[default]
    Process,
    Systemd,
}

impl BackendOption {
    /// The backend, tried where it can be missing.
    pub(crate) async fn find(self) -> Result<BackendKind, Failure> {
        match self {
            Self::Process => Ok(BackendKind::Process),
            Self::Systemd => {
                let manager = ServiceManager::find().await.map_err(Failure::plain)?;
                if manager.ends_at_log_out() {
                    tracing::warn!(
                        "services end when this user logs out; `loginctl enable-linger` lets them stay"
                    );
                }
                Ok(BackendKind::Systemd(manager))
            }
        }
    }
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

/// [`HostOwner`] as it is written.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum OwnerOption {
    #[default]
    Controller,
    Plugin,
}

impl From<OwnerOption> for HostOwner {
    fn from(option: OwnerOption) -> Self {
        match option {
            OwnerOption::Controller => Self::Controller,
            OwnerOption::Plugin => Self::Plugin,
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
        system_host_name()
            .map_err(|words| Failure::plain(format!("{words}; name the host with --host")))
    }
}

/// What the system calls this host.
pub(crate) fn system_host_name() -> Result<HostName, String> {
    let name = nix::unistd::gethostname().map_err(|cause| format!("host name: {cause}"))?;
    let name = name.to_string_lossy().into_owned();
    name.parse()
        .map_err(|cause: portreeve::identity::ParseHostNameError| cause.to_string())
}

/// Run the agent of this host: it reports the host's ports and starts a worker per replica.
///
/// Ends on SIGTERM or Ctrl-C and touches no service; started again it adopts what runs.
///
/// Every option that stays can be set in /etc/portreeve/agent.toml (without root: ~/.config/portreeve), with _ for -.
#[derive(Args, Debug)]
pub(crate) struct Agent {
    #[command(flatten)]
    options: HostOptions,
    /// Where the replicas' folders are, below agent/; by default as for the controller
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// All on one machine: the loopback address is published
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, action = clap::ArgAction::Set, value_name = "BOOL", hide_possible_values = true)]
    single_host: bool,
    /// Which address is published: words separated by commas
    ///
    /// An address is published as it stands. Interfaces (`ib0`, `eth*`) and networks (`10.20.0.0/16`) are tried in
    /// order; `!NAME` and `!NETWORK` exclude; `ipv4` or `ipv6` is preferred. Without it: the interface of the default
    /// route, a global address before a site's own.
    #[arg(long, value_name = "RULE", default_value_t, hide_default_value = true)]
    address: AddressRule,
    /// A command that prints the address to publish, run by `sh -c` at the start and every 30 s
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["address", "single_host"])]
    address_command: Option<String>,
    /// Who gives the ports of this host; `plugin`: a scheduler that has the plugin loaded, and the controller none
    #[arg(long, value_name = "OWNER", value_enum, default_value_t)]
    owner: OwnerOption,
    /// Only show which address would be published, and all candidates; asks no controller
    #[arg(long)]
    check_address: bool,
    /// Only show whether an agent here could join: address, numbers, neighbours, processes, controller, token, clock
    #[arg(long, conflicts_with = "check_address")]
    check: bool,
    /// End everything that was placed on this host, and wait for it: for a service manager, before the machine goes down
    ///
    /// Asks the agent that runs at --socket, as root or its own account, whatever host that is. Each service is unpublished, drained and stopped by its
    /// profile, then placed on other hosts with the reason `host shutting down`; nothing begins here until the agent is
    /// started again. A mere stop of the agent touches nothing.
    // Another agent's folder or name would not be looked at, and the wrong host be ended.
    #[arg(long, conflicts_with_all = ["check", "check_address", "data", "host"])]
    shutdown: bool,
    /// How long to wait for that
    #[arg(
        long,
        value_name = "TIME",
        default_value = "90s",
        requires = "shutdown"
    )]
    timeout: Span,
    /// How to print a check, a shutdown or a renewal
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Where `portreeve run` of other schedulers' jobs and --shutdown ask; by default agent.sock in /run/portreeve for root, else in the user's runtime folder
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
    /// A file with a token that lets this host join (portreeve token create --kind join), traded once for one of its own;
    /// not needed where the controller's socket is on this machine
    #[arg(long, value_name = "FILE")]
    join_token_file: Option<PathBuf>,
    /// Where this host's own token is kept, 0600; by default agent/host-token in --data
    #[arg(long, value_name = "FILE")]
    host_token_file: Option<PathBuf>,
    /// Join in place of the machine that has this host's name until now, keep the token, and end: for a machine that was
    /// installed anew. The agent is started after that
    #[arg(long, conflicts_with_all = ["check", "check_address", "shutdown"])]
    replace: bool,
    /// Replace workers that run an older program, one after the other, under their services: after an upgrade
    ///
    /// Asks the agent that runs at --socket, as root or its own account. No service notices: each new worker goes on with the
    /// run of the one before. A worker that does not come back ends it, with those left as they were.
    #[arg(long, conflicts_with_all = ["check", "check_address", "shutdown", "replace", "data", "host"])]
    renew_workers: bool,
    #[command(flatten)]
    log: LogOptions,
    /// Only check the configuration file and the options; asks nobody and starts nothing
    #[arg(long, conflicts_with_all = ["check", "check_address", "shutdown", "replace", "renew_workers"])]
    check_config: bool,
}

impl Agent {
    pub(crate) async fn run(
        self,
        connect: &Connect,
        file: Option<&ConfigFile>,
    ) -> Result<ExitCode, Failure> {
        if self.shutdown {
            let usual = || places::agent_socket(&Places::here().run);
            let socket = self.socket.unwrap_or_else(usual);
            return shutdown::run(&socket, self.timeout.0, self.output).await;
        }
        if self.renew_workers {
            let usual = || places::agent_socket(&Places::here().run);
            let socket = self.socket.unwrap_or_else(usual);
            return renewal::run(&socket, self.output).await;
        }
        if self.check_config {
            self.options.host_name()?;
            let tls = connect.tls()?;
            tls.check().map_err(Failure::plain)?;
            connect.client()?;
            say_checked(file)?;
            return Ok(ExitCode::SUCCESS);
        }
        let checks = self.check || self.check_address;
        if !checks {
            self.log.begin();
        }
        let mut told = Told::listen()?;
        let state = self
            .data
            .unwrap_or_else(|| Places::here().data)
            .join("agent");
        let mut config = agent_config(&self.options, state, AgentConfig::default().controller)?;
        config.single_host = self.single_host;
        config.address = self.address;
        config.address_command = self.address_command;
        config.owner = self.owner.into();
        if self.check_address {
            return check::address(&config, self.output);
        }
        let client = connect.controller()?;
        config.controller = client.target().clone();
        config.further_controllers = client.targets()[1..].to_vec();
        config.tls = connect.tls()?;
        config.tokens = tokens(
            client.targets(),
            self.host_token_file
                .unwrap_or_else(|| config.state.join("host-token")),
            self.join_token_file,
        );
        if self.replace {
            let kept = portreeve_agent::replace(&config).await;
            let kept = kept.map_err(Failure::plain)?;
            let (host, kept) = (&config.host, kept.display());
            return output::print(&format!("{host} has joined; its token is in {kept}\n"))
                .map(|()| ExitCode::SUCCESS);
        }
        if self.check {
            let backend = self.options.backend.find().await;
            if let Ok(found) = &backend {
                config.backend = *found;
            }
            return check::readiness(&config, &client, backend, self.output).await;
        }
        config.backend = self.options.backend.find().await?;
        config.socket = Some(match self.socket {
            Some(socket) => SocketPlace::At(socket),
            None => SocketPlace::Usual(places::agent_socket(&Places::here().run)),
        });
        // Where no token is needed, people ask the controller itself.
        if config.tokens.is_some() {
            config.relay = config.socket.as_ref().map(|socket| match socket {
                SocketPlace::At(path) => SocketPlace::At(path.with_file_name("api.sock")),
                SocketPlace::Usual(_) => {
                    SocketPlace::Usual(places::relay_socket(&Places::here().run))
                }
            });
        }
        let mut agent = AgentDaemon::start(config).await.map_err(Failure::plain)?;
        let mut joined = Box::pin(agent.joined(JOINS_WITHIN));
        let mut is_ready = false;
        let broken = loop {
            tokio::select! {
                // Who is told takes away what the host joins by.
                () = &mut joined, if !is_ready => {
                    is_ready = true;
                    supervised::ready();
                }
                word = told.next() => match word {
                    Word::Stop => break None,
                    Word::Reload => look_again_at(file),
                },
                why = agent.broken() => break Some(why),
            }
        };
        supervised::stopping();
        agent.stop().await;
        broken.map_or(Ok(ExitCode::SUCCESS), |why| Err(Failure::plain(why)))
    }
}

/// How long whoever starts an agent is let wait for it to join: the controller may be away, and services do not wait.
const JOINS_WITHIN: Duration = Duration::from_secs(60);

/// What this host is known by. A controller behind a Unix socket sees who asks, and one on loopback where no token is
/// named or kept.
fn tokens(controllers: &[Target], host: PathBuf, join: Option<PathBuf>) -> Option<TokenPlaces> {
    let needed = controllers.iter().any(Target::is_tls);
    let by_network = controllers
        .iter()
        .any(|target| !matches!(target, Target::Unix(_)));
    let there = join.is_some() || host.exists();
    (needed || by_network && there).then_some(TokenPlaces { host, join })
}

/// The configuration of an agent on this machine.
pub(crate) fn agent_config(
    options: &HostOptions,
    state: PathBuf,
    controller: Target,
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
        containment: options.containment,
        worker_program: std::env::current_exe()?,
        lifeline: None,
        labels: BTreeMap::new(),
        logs: LogBounds {
            size: options.log_size.0,
            files: options.log_files,
        },
        keep_logs: options.keep_logs.0,
        ..AgentConfig::default()
    })
}

/// Hold one process of a replica.
#[derive(Args, Debug)]
pub(crate) struct Shim {
    /// The replica's folder
    #[arg(long, value_name = "DIR", required_unless_present = "init")]
    folder: Option<PathBuf>,
    /// Which start
    #[arg(long, default_value_t)]
    run: u32,
    /// Be the first process of a run's namespace of process numbers, and only reap
    #[arg(long, conflicts_with_all = ["folder", "run"])]
    init: bool,
}

impl Shim {
    pub(crate) const fn of_namespace() -> Self {
        Self {
            folder: None,
            run: 0,
            init: true,
        }
    }

    pub(crate) const fn of(folder: PathBuf, run: u32) -> Self {
        Self {
            folder: Some(folder),
            run,
            init: false,
        }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let ended = match self.folder {
            Some(folder) => portreeve_worker::shim::run(&ReplicaFolder::at(folder), Run(self.run)),
            None => portreeve_worker::shim::init(),
        };
        ended.map_err(Failure::plain)
    }
}
