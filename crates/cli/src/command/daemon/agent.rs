//! `portreeve agent`: its options, its checks and orders, and the process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use portreeve::host_addr::AddressRule;
use portreeve_agent::{Agent as AgentDaemon, Config as AgentConfig, SocketPlace, TokenPlaces};
use portreeve_api::Target;
use portreeve_api::local::LogBounds;

use crate::command::logging::LogOptions;
use crate::command::told::{Told, Word, look_again_at, say_checked};
use crate::command::{check, renewal, shutdown};
use crate::config::ConfigFile;
use crate::connect::Connect;
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::places::{self, Places};
use crate::span::Span;
use crate::supervised;

use super::host_options::{HostOptions, OwnerOption};

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
