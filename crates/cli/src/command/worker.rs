//! `worker`: one replica, for an agent, or for a scheduler that has no controller.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use portreeve::identity::{ServiceId, ServiceName};
use portreeve::port::PortRanges;
use portreeve::profile::Profile;
use portreeve::registry::{Desired, Want};
use portreeve::supervision::Final;
use portreeve_api::containment::Containment;
use portreeve_api::local::{Assignment, Ids, LogBounds, ReplicaFolder, Tokens};
use portreeve_api::service_manager::BackendKind;
use portreeve_api::site_profiles::first_bytes;
use portreeve_api::tls::TlsFiles;
use portreeve_worker::alone::{self, Alone, AloneError, GrantFile};

use crate::exit::{Code, Failure};
use crate::output::tell;
use crate::places::{self, Places};

use super::daemon::{BackendOption, system_host_name};
use super::logging::log_to_stderr;
use super::on_one_core;
use super::submit::Draft;

/// Supervise one replica: in the folder that an agent prepared, or without a controller from a profile and a grant.
///
/// With --profile, --grant and --status-fd it is the whole worker for a scheduler of your own: it writes one JSON object
/// per change to the descriptor and reads commands as JSON lines on standard input: {"command":"stop","grace":"5s"},
/// {"command":"restart"}, {"command":"tell"}. The end of the input ends nothing; TERM and Ctrl-C stop the service. Killed, it
/// leaves the service running; started again with the same folder it takes it over.
///
/// Exit codes then: 0 stopped or succeeded, 1 failed or gave up, 2 bad profile, grant or usage, 75 a stranger has a port,
/// 125 a failure of its own.
#[derive(Args, Debug)]
pub(crate) struct Worker {
    /// The replica's folder; without a controller it is made, by default below the data folder
    #[arg(long, value_name = "DIR", required_unless_present = "profile")]
    folder: Option<PathBuf>,
    /// Become this account first: UID:GID:GROUP,GROUP; for an agent that runs as root
    #[arg(
        long = "as",
        value_name = "IDS",
        hide = true,
        conflicts_with = "profile"
    )]
    user: Option<Ids>,
    /// What to run, TOML
    #[arg(long, value_name = "FILE", requires = "grant", requires = "status_fd")]
    profile: Option<PathBuf>,
    /// Who it is and which ports it got, JSON
    #[arg(long, value_name = "FILE", requires = "profile")]
    grant: Option<PathBuf>,
    /// Where its status lines go: a descriptor that is open for writing
    #[arg(long, value_name = "N", requires = "profile", value_parser = clap::value_parser!(i32).range(1..))]
    status_fd: Option<i32>,
    /// The site's profiles: DIR/NAME.toml is site/NAME; by default /etc/portreeve/profiles for root, else none
    #[arg(long, value_name = "DIR", requires = "profile")]
    site_profiles: Option<PathBuf>,
    /// What starts the service: this process, or systemd, as a transient unit per start
    #[arg(long, value_enum, requires = "profile")]
    backend: Option<BackendOption>,
}

/// Exit codes that only a worker without a controller has.
const PORT_CONFLICT: u8 = 75;
const OWN_FAILURE: u8 = 125;

impl Worker {
    /// The one of an agent.
    pub(crate) const fn of(folder: PathBuf, user: Option<Ids>) -> Self {
        Self {
            folder: Some(folder),
            user,
            profile: None,
            grant: None,
            status_fd: None,
            site_profiles: None,
            backend: None,
        }
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (Some(profile), Some(grant), Some(descriptor)) =
            (&self.profile, &self.grant, self.status_fd)
        else {
            log_to_stderr();
            let folder = self.folder.unwrap_or_default();
            portreeve_worker::run(ReplicaFolder::at(folder), self.user.as_ref())?;
            return Ok(ExitCode::SUCCESS);
        };
        // Before anything of ours has a descriptor that could be taken for it.
        let status = alone::take_descriptor(descriptor).map_err(|cause| {
            usage(format!(
                "--status-fd {descriptor}: {cause}; open it for writing before this program is started"
            ))
        })?;
        log_to_stderr();
        let mut assignment = assignment_of(profile, grant, self.site_profiles.clone())?;
        assignment.backend = on_one_core(self.backend.unwrap_or_default().find())?;
        let folder = match self.folder {
            Some(folder) => ReplicaFolder::at(folder),
            None => usual_folder(&assignment),
        };
        let ended = portreeve_worker::run_alone(Alone {
            folder,
            assignment,
            status,
        });
        match ended {
            Ok(end) => Ok(code_of(&end)),
            Err(cause) if cause.is::<AloneError>() => Err(usage(cause.to_string())),
            Err(cause) => {
                _ = Failure::from(cause).report();
                Ok(ExitCode::from(OWN_FAILURE))
            }
        }
    }
}

/// The replica of this profile with this grant, for the worker itself to start.
pub(super) fn assignment_of(
    profile: &Path,
    grant: &Path,
    site: Option<PathBuf>,
) -> Result<Assignment, Failure> {
    let profile = read_profile(profile, site)?;
    let grant = read_grant(grant, &profile)?;
    assignment(profile, grant)
}

/// Where it is where nobody names a folder.
pub(super) fn usual_folder(assignment: &Assignment) -> ReplicaFolder {
    let desired = &assignment.desired;
    let state = Places::here().data.join("worker");
    ReplicaFolder::of(&state, &desired.service, desired.index, desired.incarnation)
}

fn usage(words: impl Into<String>) -> Failure {
    Failure::new(Code::Usage, words)
}

fn code_of(end: &Final) -> ExitCode {
    match end {
        Final::Stopped | Final::Left(_) | Final::Succeeded => ExitCode::SUCCESS,
        Final::Failed(_) | Final::GaveUp { .. } => ExitCode::FAILURE,
        Final::PortConflict { .. } => ExitCode::from(PORT_CONFLICT),
    }
}

/// Every error with file, line and column, as `check` prints them.
fn read_profile(file: &Path, site: Option<PathBuf>) -> Result<Profile, Failure> {
    let draft = Draft::read(file, Vec::new()).and_then(|draft| {
        let site = places::site_profiles(site);
        draft.check(&site)
    });
    match draft {
        Ok(checked) => Ok(checked.profile),
        Err(refused) => {
            tell!("{refused}");
            Err(usage("the profile is refused; nothing was started"))
        }
    }
}

fn read_grant(file: &Path, profile: &Profile) -> Result<GrantFile, Failure> {
    let name = file.display().to_string();
    let bytes = first_bytes(file).map_err(|cause| usage(format!("{name}: {cause}")))?;
    GrantFile::read(&bytes, profile).map_err(|errors| {
        tell!("{}", errors.in_file(&name));
        usage("the grant is refused; nothing was started")
    })
}

fn assignment(profile: Profile, grant: GrantFile) -> Result<Assignment, Failure> {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    let user = user.map_or_else(|| uid.to_string(), |user| user.name);
    let service = match grant.service {
        Some(service) => service,
        None => own_name(&profile, &user)?,
    };
    let host = match grant.host {
        Some(host) => host,
        None => system_host_name()
            .map_err(|words| usage(format!("{words}; name the host in the grant")))?,
    };
    Ok(Assignment {
        desired: Desired {
            service,
            service_id: ServiceId(0),
            index: grant.replica,
            incarnation: grant.incarnation,
            want: Want::Run,
            restart_no: 0,
            grant: grant.ports,
            addresses: grant.addresses,
            profile: profile.into(),
            user,
            uid: uid.as_raw(),
            last_status: None,
            attached: false,
        },
        host,
        host_address: grant.host_address,
        single_host: grant.single_host,
        controller: None,
        further_controllers: Vec::new(),
        tls: TlsFiles::default(),
        tokens: Tokens {
            worker: String::new(),
            job: String::new(),
        },
        boot_id: alone::boot_id()?,
        lifeline: None,
        prefix: portreeve::variables::PREFIX.to_owned(),
        backend: BackendKind::Process,
        containment: Containment::default(),
        logs: LogBounds::default(),
        pool: PortRanges::default(),
        user: None,
    })
}

/// The profile's name in its own namespace, else in that of the user.
fn own_name(profile: &Profile, user: &str) -> Result<ServiceName, Failure> {
    let namespace = match &profile.namespace {
        Some(namespace) => namespace.to_string(),
        None => user.to_owned(),
    };
    let name = format!("{}.{namespace}", profile.name);
    name.parse().map_err(|cause| {
        usage(format!(
            "{name}: {cause}; name the service in the grant, such as \"web.alice\""
        ))
    })
}
