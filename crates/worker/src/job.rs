//! What the programs of a replica see: their environment, directory and arguments, the same at every start
//! but for the run's number and its scratch directory.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use portreeve::identity::Run;
use portreeve::port::PortName;
use portreeve::profile::{Command, Profile, Template};
use portreeve::supervision::ProbeKind;
use portreeve::variables::{self, FillError, Setting};
use portreeve_api::containment::Containment;
use portreeve_api::local::{Assignment, ReplicaFolder};
use portreeve_api::removal::remove_folder;

use crate::env_file::{self, EnvFileError};
use crate::shim::{Launch, RunFolder, pre_exec_done};

/// Passed on from the worker's own environment; nothing else is.
const PASSED_ON: [&str; 8] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR",
];
/// Where programs are, if nobody says.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One run of a replica, from the inside.
#[derive(Clone)]
pub(crate) struct Job {
    run: Run,
    host_address: IpAddr,
    port_addresses: BTreeMap<PortName, IpAddr>,
    scratch: String,
    token_file: String,
    controller: String,
    env: BTreeMap<String, String>,
    working_dir: PathBuf,
}

impl Job {
    /// Reads what is read at each start. Makes nothing.
    ///
    /// # Errors
    ///
    /// [`PrepareError`]; the run cannot be started.
    pub(crate) fn read(
        assignment: &Assignment,
        folder: &ReplicaFolder,
        run: Run,
        (host_address, port_addresses): (IpAddr, &BTreeMap<PortName, IpAddr>),
    ) -> Result<Self, PrepareError> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut job = Self {
            run,
            host_address,
            port_addresses: port_addresses.clone(),
            scratch: text(&RunFolder::of(folder, run).scratch()),
            token_file: text(&folder.token()),
            controller: controllers(assignment),
            env: passed_on(),
            working_dir: folder.path().to_owned(),
        };
        let profile = &assignment.desired.profile;
        if assignment.desired.attached {
            job.env = of_the_job(&assignment.prefix, profile);
            if let Ok(here) = std::env::current_dir() {
                job.working_dir = here;
            }
        }
        if let Some(path) = &profile.working_dir {
            job.working_dir = job.path(path);
        }
        if let Some(path) = &profile.env_file {
            job.env.extend(env_file::read(&job.path(path))?);
        }
        // What the profile says wins over the file.
        let given = job.env.clone();
        for (name, value) in &profile.env {
            let value = job.fill(assignment, value, &given)?;
            job.env.insert(name.clone(), value);
        }
        let users_port = job.env.get("PORT").cloned();
        job.append_own_folder();
        let ours = variables::environment(profile, &job.setting(assignment));
        job.env.extend(ours);
        if assignment.controller.is_none() {
            job.env.remove(&format!("{}CONTROLLER", assignment.prefix));
        }
        if let Some(ca) = &assignment.tls.ca {
            // A job believes whom its host does.
            let name = format!("{}CA_FILE", assignment.prefix);
            job.env.insert(name, ca.to_string_lossy().into_owned());
        }
        if let Some(port) = users_port {
            job.env.insert("PORT".into(), port);
        }
        Ok(job)
    }

    /// Everything the shim needs; makes the run's folder and its scratch directory anew.
    ///
    /// # Errors
    ///
    /// [`PrepareError`]; the run cannot be started.
    pub(crate) fn launch(
        &self,
        assignment: &Assignment,
        folder: &ReplicaFolder,
    ) -> Result<Launch, PrepareError> {
        let profile = &assignment.desired.profile;
        let pre_exec = profile.pre_exec.as_ref();
        let launch = Launch {
            run: self.run,
            argv: self.argv(assignment, &profile.command)?,
            pre_exec: pre_exec
                .filter(|_| !pre_exec_done(folder).exists())
                .map(|command| self.argv(assignment, command))
                .transpose()?,
            env: self.env.clone().into_iter().collect(),
            working_dir: self.working_dir.clone(),
            // These are the backend's to say.
            containment: Containment::default(),
            init: Vec::new(),
            attached: assignment.desired.attached,
        };
        let scratch = PathBuf::from(&self.scratch);
        match new_folder(&scratch) {
            Ok(()) => Ok(launch),
            Err(cause) => Err(PrepareError::Scratch {
                path: scratch,
                cause,
            }),
        }
    }

    /// A command with its references filled in.
    ///
    /// # Errors
    ///
    /// [`PrepareError`] names the reference that has no value.
    pub(crate) fn argv(
        &self,
        assignment: &Assignment,
        command: &Command,
    ) -> Result<Vec<String>, PrepareError> {
        let fill = |template: &Template| self.fill(assignment, template, &self.env);
        match command {
            Command::Argv(words) => words.iter().map(fill).collect(),
            Command::Shell(line) => Ok(vec!["/bin/sh".into(), "-c".into(), fill(line)?]),
        }
    }

    /// The environment of a command probe: the job's, and which probe it is.
    pub(crate) fn probe_env(
        &self,
        assignment: &Assignment,
        kind: ProbeKind,
    ) -> Vec<(String, String)> {
        let mut env = self.env.clone();
        env.insert(format!("{}PROBE", assignment.prefix), kind.to_string());
        env.into_iter().collect()
    }

    /// Where its programs run.
    pub(crate) fn working_dir(&self) -> &Path {
        &self.working_dir
    }

    /// A text of the profile with its references filled in.
    pub(crate) fn filled(
        &self,
        assignment: &Assignment,
        template: &Template,
    ) -> Result<String, PrepareError> {
        self.fill(assignment, template, &self.env)
    }

    fn fill(
        &self,
        assignment: &Assignment,
        template: &Template,
        env: &BTreeMap<String, String>,
    ) -> Result<String, PrepareError> {
        let look_up = |name: &str| env.get(name).cloned();
        Ok(variables::fill(
            template,
            &self.setting(assignment),
            &look_up,
        )?)
    }

    fn setting<'a>(&'a self, assignment: &'a Assignment) -> Setting<'a> {
        let desired = &assignment.desired;
        Setting {
            prefix: &assignment.prefix,
            service: &desired.service,
            index: desired.index,
            incarnation: desired.incarnation,
            run: self.run,
            host: &assignment.host,
            host_address: self.host_address,
            port_addresses: &self.port_addresses,
            grant: &desired.grant,
            scratch: &self.scratch,
            controller: &self.controller,
            token_file: &self.token_file,
        }
    }

    /// A path of the profile: `~/` is the user's home, a relative one begins at the working directory.
    fn path(&self, written: &str) -> PathBuf {
        let home = self.env.get("HOME").map_or("/", String::as_str);
        match written.strip_prefix("~/") {
            Some(rest) => Path::new(home).join(rest),
            None if written == "~" => home.into(),
            None => self.working_dir.join(written),
        }
    }

    /// So that `portreeve hello` and the like are found where nothing is installed.
    fn append_own_folder(&mut self) {
        let own = std::env::current_exe().ok();
        let own = own.as_deref().and_then(Path::parent).and_then(Path::to_str);
        if let Some(own) = own {
            let path = self.env.entry("PATH".into()).or_default();
            if !path.split(':').any(|folder| folder == own) {
                path.push(':');
                path.push_str(own);
            }
        }
    }
}

/// Every address of the controller, as `--controller` takes them.
fn controllers(assignment: &Assignment) -> String {
    let all = assignment.controller.iter();
    let all = all.chain(&assignment.further_controllers);
    all.map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Removes what earlier runs left: their folders with their scratch directories. The newest is kept.
pub(crate) fn remove_runs_before(folder: &ReplicaFolder, run: Run) {
    runs(folder)
        .filter(|earlier| *earlier < run)
        .for_each(|earlier| remove_run(folder, earlier));
}

/// The runs that left a folder and are newer than `run`.
pub(crate) fn runs_after(folder: &ReplicaFolder, run: Run) -> Vec<Run> {
    runs(folder).filter(|later| *later > run).collect()
}

/// Removes the run's folder.
pub(crate) fn remove_run(folder: &ReplicaFolder, run: Run) {
    // What cannot be removed only takes room, until the replica's folder goes.
    _ = remove_folder(RunFolder::of(folder, run).path());
}

fn runs(folder: &ReplicaFolder) -> impl Iterator<Item = Run> {
    let entries = fs::read_dir(folder.path()).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_prefix(RunFolder::PREFIX)?;
        number.parse().ok().map(Run)
    })
}

/// Makes `path` an empty folder of our own, whatever was there.
fn new_folder(path: &Path) -> io::Result<()> {
    remove_folder(path)?;
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// The environment of another scheduler's job, which its service inherits whole: without the variables of an outer
/// replica, and without a `PORT` that would hide the granted one.
fn of_the_job(prefix: &str, profile: &Profile) -> BTreeMap<String, String> {
    let replaced =
        |name: &str| name.starts_with(prefix) || name == "PORT" && profile.ports.len() == 1;
    let mut env = passed_on();
    // What is no text cannot be handed on, and is nothing a service reads.
    let own = std::env::vars_os();
    let own =
        own.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    env.extend(own.filter(|(name, _)| !replaced(name)));
    env
}

fn passed_on() -> BTreeMap<String, String> {
    let own = |name: &str| std::env::var(name).ok();
    let mut env: BTreeMap<String, String> = PASSED_ON
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), own(name)?)))
        .collect();
    let mut default = |name: &str, value: &str| {
        env.entry(name.into()).or_insert_with(|| value.to_owned());
    };
    default("PATH", DEFAULT_PATH);
    // A daemon started by the system often has none of these.
    if let Ok(Some(user)) = nix::unistd::User::from_uid(nix::unistd::geteuid()) {
        default("HOME", &user.dir.to_string_lossy());
        default("USER", &user.name);
        default("LOGNAME", &user.name);
        default("SHELL", &user.shell.to_string_lossy());
    }
    env
}

/// Why a run cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    /// The file of variables.
    #[error(transparent)]
    EnvFile(#[from] EnvFileError),
    /// A reference without a value.
    #[error(transparent)]
    Fill(#[from] FillError),
    /// The run's own directory.
    #[error("the scratch directory {} cannot be made: {cause}", path.display())]
    Scratch {
        /// Which.
        path: PathBuf,
        /// The system's words.
        cause: io::Error,
    },
}
