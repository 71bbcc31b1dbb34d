//! The command line: what each command is called and where it lives.

mod backup;
mod check;
mod check_profiles;
pub(crate) mod daemon;
mod endpoints;
mod env;
mod events;
mod every_page;
mod explain;
mod host;
mod hosts;
pub(crate) mod logging;
mod logs;
mod ports;
mod probe;
pub(crate) mod renewal;
pub(crate) mod services;
mod shell;
pub(crate) mod shutdown;
mod sim;
pub(crate) mod submit;
mod teaching;
mod token;
pub(crate) mod told;
mod verbs;
mod wait;
mod watch;
mod why;
pub(crate) mod worker;

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::ConfigFile;
use crate::connect::Connect;
use crate::dev::Dev;
use crate::exit::Failure;
use crate::hello::Hello;
use crate::look::Colour;
use crate::meant::meant;
use crate::output::terminal_width;
use crate::run::Run;

/// Ports, supervision and endpoints for long-running services.
///
/// Gives every replica of a service its ports on its host, watches over the process, and tells clients where the ready
/// replicas are. Answers are tables on a terminal, tab-separated lines in a pipe, and JSON with -o json.
///
/// Exit codes: 0 ok, 1 failure, 2 usage, 3 known but none ready, 4 no such service, 5 not allowed,
/// 6 controller unreachable, 7 timeout, 8 stale under --fresh. `run`, `probe` and `worker` have further ones; their --help lists them.
#[derive(Debug, Parser)]
#[command(
    name = "portreeve",
    version,
    propagate_version = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    connect: Connect,
    /// A file with options, TOML; by default controller.toml, agent.toml or, for all others, client.toml in /etc/portreeve
    /// (without root in ~/.config/portreeve). A flag or a variable of the environment wins over it
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    config: Option<PathBuf>,
    /// What was read of it.
    #[arg(skip)]
    file: Option<ConfigFile>,
    /// When to colour what is written
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        help_heading = "Look"
    )]
    color: Colour,
    #[command(subcommand)]
    command: Command,
}

/// What each command is for is told where it lives: a word here would hide that from its help.
#[derive(Debug, Subcommand)]
enum Command {
    Dev(Dev),
    Run(Run),
    Check(check_profiles::Check),
    Submit(submit::Submit),
    Explain(explain::Explain),
    Services(services::Services),
    Service(services::Service),
    Endpoints(endpoints::Endpoints),
    Wait(wait::Wait),
    Watch(watch::Watch),
    Scale(verbs::Scale),
    Start(verbs::Start),
    Restart(verbs::Restart),
    Stop(verbs::Stop),
    Kill(verbs::Kill),
    Delete(verbs::Delete),
    Logs(logs::Logs),
    Why(why::Why),
    Events(events::Events),
    Hosts(hosts::Hosts),
    Host(host::Host),
    Ports(ports::Ports),
    Whoami(hosts::Whoami),
    Login(token::Login),
    Logout(token::Logout),
    Token(token::Token),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Controller(daemon::Controller),
    Agent(daemon::Agent),
    Worker(worker::Worker),
    #[command(hide = true)]
    Shim(daemon::Shim),
    Probe(probe::Probe),
    Hello(Hello),
    Sim(sim::Sim),
    Replay(why::Replay),
    Env(env::Env),
    Completions(shell::Completions),
    Man(shell::Man),
}

impl Cli {
    /// The command goes by this file.
    pub(crate) fn keep_file(&mut self, file: Option<ConfigFile>) {
        self.file = file;
    }

    /// What arguments are held against: every command, with its help laid out for the terminal of this process.
    pub(crate) fn tree() -> clap::Command {
        // Not those that are no text: they are refused later, in the colours of the others.
        let words = std::env::args_os().filter_map(|word| word.into_string().ok());
        let width = terminal_width().unwrap_or(teaching::WIDEST);
        teaching::tree_for(width).color(Colour::among(words).for_help())
    }

    /// From here on this process writes as was wished.
    pub(crate) fn settle(&self) {
        self.color.choose();
    }

    /// Runs the command to its end.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let connect = &self.connect;
        let done = |()| ExitCode::SUCCESS;
        let ended = match self.command {
            Command::Dev(dev) => on_all_cores(dev.run()).map(done),
            Command::Run(run) => on_one_core(async { Ok(run.run().await) }),
            Command::Check(check) => check.run(),
            Command::Submit(submit) => on_one_core(submit.run(connect)).map(done),
            Command::Explain(explain) => on_one_core(explain.run(connect)),
            Command::Services(services) => on_one_core(services.run(connect)).map(done),
            Command::Service(service) => on_one_core(service.run(connect)).map(done),
            Command::Endpoints(endpoints) => on_one_core(endpoints.run(connect)).map(done),
            Command::Wait(wait) => on_one_core(wait.run(connect)).map(done),
            Command::Watch(watch) => on_one_core(watch.run(connect)),
            Command::Scale(scale) => on_one_core(scale.run(connect)).map(done),
            Command::Start(start) => on_one_core(start.run(connect)).map(done),
            Command::Restart(restart) => on_one_core(restart.run(connect)).map(done),
            Command::Stop(stop) => on_one_core(stop.run(connect)).map(done),
            Command::Kill(kill) => on_one_core(kill.run(connect)).map(done),
            Command::Delete(delete) => on_one_core(delete.run(connect)).map(done),
            Command::Logs(logs) => on_one_core(logs.run(connect)).map(done),
            Command::Why(why) => on_one_core(why.run(connect)).map(done),
            Command::Events(events) => on_one_core(events.run(connect)).map(done),
            Command::Hosts(hosts) => on_one_core(hosts.run(connect)).map(done),
            Command::Host(host) => on_one_core(host.run(connect)).map(done),
            Command::Ports(ports) => on_one_core(ports.run(connect)).map(done),
            Command::Whoami(whoami) => on_one_core(whoami.run(connect)).map(done),
            Command::Login(login) => on_one_core(login.run(connect)).map(done),
            Command::Logout(logout) => on_one_core(logout.run(connect)).map(done),
            Command::Token(token) => on_one_core(token.run(connect)).map(done),
            Command::Backup(backup) => on_one_core(backup.run(connect)).map(done),
            Command::Restore(restore) => restore.run().map(done),
            Command::Controller(controller) => {
                on_all_cores(controller.run(self.file.as_ref())).map(done)
            }
            Command::Agent(agent) => on_one_core(agent.run(connect, self.file.as_ref())),
            Command::Worker(worker) => worker.run(),
            Command::Shim(shim) => shim.run().map(done),
            Command::Probe(probe) => on_one_core(probe.run()),
            Command::Hello(hello) => on_one_core(hello.run()),
            Command::Sim(sim) => sim.run().map(done),
            Command::Replay(replay) => replay.run().map(done),
            Command::Env(env) => env.run(),
            Command::Completions(completions) => completions.run().map(done),
            Command::Man(man) => man.run().map(done),
        };
        ended.map_err(|failure| with_what_was_meant(failure, connect))
    }
}

/// Who mistyped a name is told the one that is like it.
fn with_what_was_meant(failure: Failure, connect: &Connect) -> Failure {
    let meant = failure.missing_service().and_then(|service| {
        let client = connect.client().ok()?;
        on_one_core(async { Ok(meant(&client, service).await) }).ok()?
    });
    match meant {
        Some(name) => failure.with_hint(&format!("did you mean {name}?")),
        None => failure,
    }
}

/// For what serves many at once.
fn on_all_cores<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// For what does one thing at a time.
pub(crate) fn on_one_core<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
