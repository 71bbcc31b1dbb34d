//! What a host offers, as `agent`, `dev` and `worker` are told.

use clap::Args;
use portreeve::identity::HostName;
use portreeve::port::PortRanges;
use portreeve::registry::HostOwner;
use portreeve_agent::Ephemeral;
use portreeve_api::containment::Choice;
use portreeve_api::local::LogBounds;
use portreeve_api::service_manager::{BackendKind, ServiceManager};

use crate::exit::Failure;
use crate::size::Size;
use crate::span::Span;

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
