//! `portreeve dev`: controller, agent and workers on this machine, with a live view.
//!
//! Ctrl-C or TERM stops everything in order and leaves no process, socket, lock or temporary file. Without
//! `--data` the workers also watch this process: should it be killed, they stop their services by themselves.

mod home;
mod hosts;
mod resume;
mod screen;

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::Method;
use portreeve_agent::{Config as AgentConfig, SocketPlace};
use portreeve_api::body::{Answer, HostList, ServiceList, ServiceView};
use portreeve_api::{Client, ClientError, Target, paths};
use portreeve_controller::{Config as ControllerConfig, Controller, StartError};

use crate::command::daemon::{HostOptions, NetworkOptions, agent_config};
use crate::command::submit::Draft;
use crate::command::told::Told;
use crate::exit::{Code, Failure};
use crate::output::tell;
use crate::places::{self, Places};
use crate::span::Span;

use home::Home;
use screen::{Screen, Watched};

/// Try it: run services on this machine with a live view.
///
/// Ctrl-C stops every service in order and leaves nothing. With --data the services are kept: a later
/// `portreeve dev --data DIR` without a profile continues them.
#[derive(Args, Debug)]
pub(crate) struct Dev {
    /// The profiles to run
    #[arg(required_unless_present = "data")]
    profiles: Vec<PathBuf>,
    /// Keep everything here; without it a temporary folder is used
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the controller's socket is made; other commands look there by default
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Addresses to listen on; loopback only
    #[arg(long, value_name = "ADDRESS", default_values = places::LISTEN)]
    listen: Vec<SocketAddr>,
    /// How long a freed port rests
    #[arg(long, value_name = "TIME", default_value = "60s")]
    cooling: Span,
    /// The site's profiles: DIR/NAME.toml is site/NAME; by default /etc/portreeve/profiles for root, else none
    #[arg(long, value_name = "DIR")]
    site_profiles: Option<PathBuf>,
    /// Be so many hosts, 2 to 16: dev-1 at 127.0.0.1, dev-2 at 127.0.0.2 and so on, each with its share of the numbers
    #[arg(long, value_name = "N", conflicts_with = "host", value_parser = clap::value_parser!(u16).range(2..=16))]
    hosts: Option<u16>,
    #[command(flatten)]
    networks: NetworkOptions,
    #[command(flatten)]
    host: HostOptions,
}

/// A held question of ours returns at the latest after this.
const HOLD: Duration = Duration::from_secs(30);
/// A plain question may take this long.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the first submission waits for hosts that have not joined.
const JOINED_WITHIN: Duration = Duration::from_secs(10);

impl Dev {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let networks = self.networks.read()?;
        let profiles = self.read_profiles()?;
        let told = Told::listen()?;
        let home = Home::open(self.data.clone())?;
        home.log_to_file()?;
        let run_dir = self.run_dir.clone().unwrap_or_else(|| Places::here().run);
        let socket = places::socket(&run_dir);
        // All that can be refused without a trace comes before the first daemon.
        let agents = self.agents(&home, &run_dir).await?;
        let controller = Controller::start(ControllerConfig {
            data: home.path().join("controller"),
            socket: socket.clone(),
            listen: self.listen.clone(),
            tls: None,
            insecure: false,
            audit: None,
            single_host: true,
            cooling: self.cooling.0,
            coalesce: ControllerConfig::COALESCE,
            silence: portreeve::registry::Silence::default(),
            new_epoch: false,
            max_connections: None,
            max_streams: None,
            requests_per_second: None,
            limits: None,
            rights: None,
            jwt: None,
            networks,
            site_profiles: places::site_profiles(self.site_profiles.clone()),
        });
        let controller = controller.await.map_err(|cause| in_the_way(&cause))?;
        let client = Client::new(Target::Unix(socket));
        let ended = match hosts::start(agents).await {
            Ok(mut agents) => {
                let addresses: Vec<_> = controller
                    .addresses()
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                joined(&client, agents.len()).await;
                let ended = serve(&client, &home, &profiles, &addresses, told).await;
                // The workers of ended replicas go when the agent has told them that the controller knows.
                let empty = tokio::time::timeout(PATIENCE, hosts::empty(&mut agents)).await;
                hosts::stop(agents).await;
                ended.and(empty.map_err(|_| {
                    Failure::plain("workers are left: `ps` shows them as `portreeve worker`")
                }))
            }
            Err(cause) => Err(cause),
        };
        controller.stop().await;
        home.close()?;
        ended
    }

    /// The agents' configurations: one for this machine, or one for each host it shall be.
    async fn agents(&self, home: &Home, run_dir: &Path) -> Result<Vec<AgentConfig>, Failure> {
        let target = Target::Unix(places::socket(run_dir));
        let mut config = agent_config(&self.host, home.path().join("agent"), target)?;
        config.single_host = true;
        config.lifeline = home.lifeline()?;
        config.backend = self.host.backend.find().await?;
        let mut agents = match self.hosts.and_then(NonZeroU16::new) {
            Some(count) => hosts::split(&config, count)?,
            None => vec![config],
        };
        // Jobs of another scheduler on this machine are on the first of its hosts.
        if let Some(first) = agents.first_mut() {
            first.socket = Some(SocketPlace::Usual(places::agent_socket(run_dir)));
        }
        Ok(agents)
    }

    fn read_profiles(&self) -> Result<Vec<Draft>, Failure> {
        let site = places::site_profiles(self.site_profiles.clone());
        let mut drafts: Vec<Draft> = Vec::new();
        let mut profiles: Vec<portreeve::profile::Profile> = Vec::new();
        let mut files = Vec::new();
        let mut refused = 0;
        for file in &self.profiles {
            let read = Draft::read(file, Vec::new());
            let read = read.and_then(|draft| Ok((draft.check(&site)?, draft)));
            let (profile, draft) = match read {
                Ok((checked, draft)) => (checked.profile, draft),
                Err(failure) => {
                    refused += 1;
                    tell!("{failure}");
                    continue;
                }
            };
            // The second would replace the first without a word.
            let twin = profiles.iter().position(|other| {
                (&other.name, &other.namespace) == (&profile.name, &profile.namespace)
            });
            if let Some(twin) = twin {
                let first: &Path = files[twin];
                refused += 1;
                tell!(
                    "{}: name: the service {} is that of {} too; choose another name",
                    file.display(),
                    profile.name,
                    first.display()
                );
                continue;
            }
            profiles.push(profile);
            drafts.push(draft);
            files.push(file);
        }
        match refused {
            0 => Ok(drafts),
            1 => Err(Failure::plain("1 profile refused; nothing was started")),
            many => Err(Failure::plain(format!(
                "{many} profiles refused; nothing was started"
            ))),
        }
    }
}

/// Returns once so many hosts have joined, or after a moment: what is submitted then is spread over all of them.
async fn joined(client: &Client, count: usize) {
    let all = async {
        loop {
            let hosts = client.get::<HostList>(&paths::hosts(), JOINED_WITHIN).await;
            let up = hosts.map_or(0, |list| {
                list.hosts.iter().filter(|host| host.state == "up").count()
            });
            if up >= count {
                return;
            }
            tokio::time::sleep(JOINED_WITHIN / 200).await;
        }
    };
    _ = tokio::time::timeout(JOINED_WITHIN, all).await;
}

/// Submits, shows until told to stop, then stops every service and waits for its last process.
async fn serve(
    client: &Client,
    home: &Home,
    profiles: &[Draft],
    addresses: &[String],
    mut told: Told,
) -> Result<(), Failure> {
    let mut screen = Screen::new(addresses);
    let lives = async {
        resume::start_again(client, home).await?;
        for profile in profiles {
            profile.submit(client, true).await?;
        }
        show(client, &mut screen).await
    };
    // Told to stop in the middle of the beginning, what was begun is stopped all the same.
    let lived = tokio::select! {
        lived = lives => lived,
        () = told.stop() => Ok(()),
    };
    screen.stopping();
    let stopped = stop_all(client, home, &mut screen).await;
    lived.and(stopped)
}

/// Follows the list of services until nobody watches any more.
async fn show(client: &Client, screen: &mut Screen) -> Result<(), Failure> {
    let mut revision = None;
    loop {
        let list = services(client, revision).await?;
        if screen.draw(&list.services) == Watched::No {
            return Ok(());
        }
        revision = Some(list.revision);
    }
}

/// Stops every running service and shows until no replica lives.
async fn stop_all(client: &Client, home: &Home, screen: &mut Screen) -> Result<(), Failure> {
    let mut list = services(client, None).await?;
    loop {
        // At each look: a submit on its way, ours or another terminal's, may add to them while others end.
        let running = list.services.iter();
        let running = running.filter(|service| service.state == "running");
        let names: Vec<_> = running.map(|service| &service.service).collect();
        resume::remember(home, &names)?;
        for name in names {
            let path = paths::service_part(name, "stop");
            match client
                .call::<Answer>(Method::POST, &path, &(), PATIENCE)
                .await
            {
                // Deleted meanwhile.
                Err(ClientError::Refused(problem)) if problem.status == 404 => {}
                other => drop(other?),
            }
        }
        let after = Some(list.revision).filter(|_| living(&list.services) > 0);
        list = services(client, after).await?;
        // Nobody may be looking any more; that is no reason to leave something behind.
        _ = screen.draw(&list.services);
        if living(&list.services) == 0 {
            return Ok(());
        }
    }
}

/// How many replicas still have, or wait for, a process.
fn living(services: &[ServiceView]) -> usize {
    let replicas = services.iter().flat_map(|service| &service.replicas);
    replicas
        .filter(|replica| matches!(replica.job_state.as_str(), "PEND" | "RUN"))
        .count()
}

async fn services(client: &Client, after: Option<u64>) -> Result<ServiceList, ClientError> {
    let mut path = paths::services();
    if let Some(revision) = after {
        path.push_str(&format!("?revision={revision}&wait={}s", HOLD.as_secs()));
    }
    client.get(&path, HOLD + PATIENCE).await
}

/// Says what is in the way of the controller, and, where it is another one, how to run one beside it.
fn in_the_way(cause: &StartError) -> Failure {
    let advice = "\nto run another one beside it, give it a place of its own:\n  \
        portreeve dev --run-dir /tmp/portreeve-2 --listen 127.0.0.1:7374 --ports 30000-30999 PROFILE\n\
        and name it to the other commands:\n  \
        portreeve --controller unix:/tmp/portreeve-2/controller.sock services";
    let another = matches!(
        cause,
        StartError::DataInUse { .. }
            | StartError::SocketInUse { .. }
            | StartError::AddressInUse { .. }
    );
    let advice = if another { advice } else { "" };
    Failure::new(Code::Failure, format!("{cause}{advice}"))
}
