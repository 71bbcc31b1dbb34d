//! `check`: whether profiles would be taken, told to people or to programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use portreeve::profile::{Profile, ProfileErrors, SiteProfiles, Warning};
use portreeve_api::site_profiles::SiteFolder;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output::{Format, print, print_json, tell};
use crate::places;

use super::submit::{Draft, Flags, shown};

/// Validate profiles without storing anything.
///
/// Every error of every file is printed with file, line and column. The same rules as submit.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The profiles, TOML, `-` reads standard input; none with --site-profiles: that folder is checked
    #[arg(required_unless_present = "site_profiles")]
    files: Vec<PathBuf>,
    /// The site's profiles, as the controller has them: DIR/NAME.toml is site/NAME; by default /etc/portreeve/profiles for root, else none
    #[arg(long, value_name = "DIR")]
    site_profiles: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    /// How to print it; as JSON a list with file, service, errors and warnings
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let site = places::site_profiles(self.site_profiles.clone());
        if self.files.is_empty() {
            return check_site(&site, self.output);
        }
        let bad = match self.output {
            Format::Json => {
                let found: Vec<_> = self
                    .files
                    .iter()
                    .map(|it| self.finding(it, &site))
                    .collect();
                print_json(&found)?;
                found.iter().filter(|it| !it.errors.is_empty()).count()
            }
            Format::Table => self.tell_each(&site)?,
        };
        match bad {
            0 => Ok(ExitCode::SUCCESS),
            _ => {
                let all = match self.files.len() {
                    1 => "1 profile".to_owned(),
                    many => format!("{many} profiles"),
                };
                Err(Failure::plain(format!("{bad} of {all} refused")))
            }
        }
    }

    /// Says of each file what is wrong with it, or that nothing is; how many are refused.
    fn tell_each(&self, site: &SiteFolder) -> Result<usize, Failure> {
        let mut bad = 0;
        for file in &self.files {
            let draft = Draft::read(file, self.flags.set.clone());
            match draft.and_then(|draft| draft.check(site)) {
                Ok(checked) => {
                    let name = &checked.profile.name;
                    print(&format!("{}: ok, service {name}\n", shown(file)))?;
                }
                Err(failure) => {
                    bad += 1;
                    tell!("{failure}");
                }
            }
        }
        Ok(bad)
    }

    fn finding(&self, file: &Path, site: &SiteFolder) -> Finding {
        let draft = match Draft::read(file, self.flags.set.clone()) {
            Ok(draft) => draft,
            Err(unreadable) => return Finding::broken(shown(file), &unreadable),
        };
        let mut found = Finding {
            file: shown(file),
            ..Finding::default()
        };
        match Profile::from_layers(draft.written(), site) {
            Ok(checked) => {
                found.service = Some(checked.profile.name.to_string());
                found.warnings = checked.warnings;
            }
            Err(errors) => found.errors = each(&errors),
        }
        found
    }
}

/// What a check found out about one file, for programs.
#[derive(Debug, Default, Serialize)]
struct Finding {
    file: String,
    /// The name of the service, where nothing is wrong.
    service: Option<String>,
    /// Each with `problem`, and with `line`, `column`, `field`, `allowed` and `layer` where it has a place.
    errors: Vec<Value>,
    warnings: Vec<Warning>,
}

impl Finding {
    /// One without a place in the file.
    fn broken(file: String, problem: &impl ToString) -> Self {
        Self {
            file,
            errors: vec![json!({ "problem": problem.to_string() })],
            ..Self::default()
        }
    }
}

fn each(errors: &ProfileErrors) -> Vec<Value> {
    errors.as_slice().iter().map(|error| json!(error)).collect()
}

/// Checks every profile of the site by itself.
fn check_site(site: &SiteFolder, output: Format) -> Result<ExitCode, Failure> {
    let (names, broken) = (site.names(), site.broken());
    if let (true, Some(folder)) = (names.is_empty(), site.path()) {
        let folder = folder.display();
        return Err(Failure::plain(format!("{folder}: no NAME.toml is there")));
    }
    if output == Format::Json {
        let found = names.iter().map(|name| {
            let file = format!("site/{name}");
            match broken.iter().find(|(other, _)| other == name) {
                Some((_, errors)) => Finding {
                    file,
                    errors: each(errors),
                    ..Finding::default()
                },
                None => Finding {
                    file,
                    ..Finding::default()
                },
            }
        });
        print_json(&found.collect::<Vec<_>>())?;
        return told_broken(names.len(), broken.len());
    }
    for name in &names {
        match broken.iter().find(|(other, _)| other == name) {
            Some((_, errors)) => tell!("{errors}"),
            None => print(&format!("site/{name}: ok\n"))?,
        }
    }
    told_broken(names.len(), broken.len())
}

fn told_broken(all: usize, broken: usize) -> Result<ExitCode, Failure> {
    match broken {
        0 => Ok(ExitCode::SUCCESS),
        bad => Err(Failure::plain(format!(
            "{bad} of the site's {all} profiles cannot be extended"
        ))),
    }
}
