//! `env`: the variables that a job sees of us.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use portreeve::identity::Run;
use portreeve::profile::PREFIX;
use portreeve::variables::{self, Setting};
use portreeve_api::local::ReplicaFolder;
use serde_json::{Map, Value};

use crate::exit::{Code, Failure};
use crate::output::{Format, print, print_json, tell};

use super::worker::{assignment_of, usual_folder};

/// Print the variables that a job sees: inside a job its own, else those of a profile with the ports it got.
///
/// One NAME=value a line, quoted as a shell reads them. Of a profile: what portreeve sets (PORTREEVE_*, PORT, the names
/// that its ports ask for) and its `env`, filled in as at a first start by `portreeve worker`. What stands in its
/// `env_file` or is named in `env_secret` may be secret: it is not read and not shown. Asks no controller.
///
/// Exit code 1 outside of a job without a profile.
#[derive(Args, Debug)]
pub(crate) struct Env {
    /// The profile, TOML; `-` reads standard input
    #[arg(requires = "grant")]
    profile: Option<PathBuf>,
    /// Who the replica is and which ports it got, JSON, as for `portreeve worker`
    #[arg(long, value_name = "FILE", requires = "profile")]
    grant: Option<PathBuf>,
    /// The site's profiles: DIR/NAME.toml is site/NAME; by default /etc/portreeve/profiles for root, else none
    #[arg(long, value_name = "DIR", requires = "profile")]
    site_profiles: Option<PathBuf>,
    /// Write `export` before each name, for a shell to take them over
    #[arg(long, conflicts_with = "output")]
    export: bool,
    /// How to print it; as JSON one object of names and values
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Env {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let all = match (&self.profile, &self.grant) {
            (Some(profile), Some(grant)) => {
                of_profile(profile.clone(), grant.clone(), self.site_profiles.clone())?
            }
            _ => of_this_job(std::env::vars_os().filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.into_string().ok()?))
            })),
        };
        if all.is_empty() {
            return Err(Failure::plain(format!(
                "this is no job of portreeve: no variable begins with {PREFIX}; `portreeve env PROFILE --grant FILE` \
                 prints what a job would see"
            )));
        }
        if self.output == Format::Json {
            let object: Map<String, Value> = all
                .into_iter()
                .map(|(name, value)| (name, value.into()))
                .collect();
            print_json(&object)?;
        } else {
            let before = if self.export { "export " } else { "" };
            let lines: String = all
                .iter()
                .map(|(name, value)| format!("{before}{name}={}\n", quoted(value)))
                .collect();
            print(&lines)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Ours, and `PORT`, which is not told from one that somebody else set.
fn of_this_job(variables: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let all: BTreeMap<_, _> = variables.collect();
    // What only a client sets is no sign of a job.
    let in_job = all.contains_key(&format!("{PREFIX}SERVICE"));
    let ours = |name: &str| in_job && (name.starts_with(PREFIX) || name == "PORT");
    all.into_iter().filter(|(name, _)| ours(name)).collect()
}

fn of_profile(
    profile: PathBuf,
    grant: PathBuf,
    site: Option<PathBuf>,
) -> Result<BTreeMap<String, String>, Failure> {
    let assignment = assignment_of(&profile, &grant, site)?;
    let desired = &assignment.desired;
    let profile = &desired.profile;
    let run = Run(1);
    let folder = usual_folder(&assignment);
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let scratch = text(portreeve_worker::alone::scratch(&folder, run));
    let token_file = text(ReplicaFolder::token(&folder));
    let setting = Setting {
        prefix: &assignment.prefix,
        service: &desired.service,
        index: desired.index,
        incarnation: desired.incarnation,
        run,
        host: &assignment.host,
        host_address: assignment.host_address,
        port_addresses: &desired.addresses,
        grant: &desired.grant,
        scratch: &scratch,
        controller: "",
        token_file: &token_file,
    };
    let look_up = |name: &str| std::env::var(name).ok();
    let mut all = BTreeMap::new();
    for (name, value) in &profile.env {
        let value = variables::fill(value, &setting, &look_up)
            .map_err(|cause| Failure::new(Code::Failure, format!("env.{name}: {cause}")))?;
        all.insert(name.clone(), value);
    }
    all.extend(variables::environment(profile, &setting));
    // There is none that a job could ask.
    all.remove(&format!("{}CONTROLLER", assignment.prefix));
    if let Some(file) = &profile.env_file {
        tell!("what stands in {file} is left out: it may be secret");
    }
    if !profile.env_secret.is_empty() {
        let names = profile.env_secret.join(", ");
        tell!("{names}: left out, as env_secret says");
    }
    Ok(all)
}

/// As a shell reads it back.
fn quoted(value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@%+=,".contains(letter);
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_s_own_variables_are_ours_and_its_port() {
        let set = |names: &[&str]| {
            let pairs = names
                .iter()
                .map(|name| ((*name).to_owned(), "1".to_owned()));
            of_this_job(pairs).into_keys().collect::<Vec<_>>()
        };
        let of_a_job = ["HOME", "PORT", "PORTREEVE_RUN", "PORTREEVE_SERVICE"];
        assert_eq!(set(&of_a_job), of_a_job[1..]);
        // A person who named the controller is in no job.
        assert!(set(&["HOME", "PORT", "PORTREEVE_CONTROLLER"]).is_empty());
    }

    #[test]
    fn a_value_is_quoted_where_a_shell_would_read_it_as_something_else() {
        for (value, written) in [
            ("10.1.0.7:20000", "10.1.0.7:20000"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's $HOME", "'it'\\''s $HOME'"),
            ("~root", "'~root'"),
        ] {
            assert_eq!(quoted(value), written);
        }
    }
}
