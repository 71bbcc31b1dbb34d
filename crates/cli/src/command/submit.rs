//! `submit` and `check`: a written profile on its way in.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use http::Method;
use portreeve::profile::{Checked, MAX_FILE, Profile};
use portreeve_api::body::Answer;
use portreeve_api::{Client, paths};

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::names::ServiceArg;
use crate::output::print;

use super::services::PATIENCE;
use super::verbs::print_answer;

/// Create a service from a profile, or replace it.
///
/// The same profile again changes nothing where it runs, and starts again what was stopped or failed; a changed one
/// needs --replace where anything runs. It returns at once: `portreeve wait NAME` waits until it is ready.
#[derive(Args, Debug)]
pub(crate) struct Submit {
    /// The profile, TOML; `-` reads standard input
    file: PathBuf,
    /// Replace the running service of this name, one replica at a time
    #[arg(long)]
    replace: bool,
}

impl Submit {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let checked = read(&self.file).map_err(|refused| {
            // Lines that begin with the file's name are those that an editor finds.
            eprintln!("{refused}");
            Failure::plain("the profile is refused; nothing is stored")
        })?;
        let mut answer = submit(&connect.client()?, &checked.profile, self.replace).await?;
        // The controller warns of the same; here it was said with its line.
        let told = |note: &String| checked.warnings.iter().any(|it| note.ends_with(&it.text));
        answer.notes.retain(|note| !told(note));
        print_answer(&answer)
    }
}

/// Validate profiles without storing anything.
///
/// Every error of every file is printed with file, line and column. The same rules as submit.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The profiles, TOML; `-` reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut bad = 0;
        for file in &self.files {
            match read(file) {
                Ok(checked) => {
                    let name = &checked.profile.name;
                    print(&format!("{}: ok, service {name}\n", shown(file)))?;
                }
                Err(failure) => {
                    bad += 1;
                    eprintln!("{failure}");
                }
            }
        }
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
}

/// Reads and checks a profile, `-` from standard input; its warnings go to standard error.
pub(crate) fn read(file: &Path) -> Result<Checked, Failure> {
    let name = shown(file);
    let bytes = first_bytes(file).map_err(|cause| Failure::plain(format!("{name}: {cause}")))?;
    let checked = Profile::from_toml_bytes(&bytes)
        .map_err(|errors| Failure::plain(errors.in_file(&name).to_string()))?;
    for warning in &checked.warnings {
        eprintln!("{name}: warning: {warning}");
    }
    Ok(checked)
}

/// The file as far as a profile may reach, and one byte more: it may be a device without an end.
fn first_bytes(file: &Path) -> std::io::Result<Vec<u8>> {
    let most = u64::try_from(MAX_FILE)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut bytes = Vec::new();
    if is_standard_input(file) {
        // Not as /dev/stdin: that opens it anew, which fails on a socket, and on what only the caller may open.
        std::io::stdin().take(most).read_to_end(&mut bytes)?;
    } else {
        File::open(file)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The name under which a profile's errors are told.
fn shown(file: &Path) -> String {
    if is_standard_input(file) {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    }
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new("-")
}

/// Sends a checked profile. The controller checks it again by the same rules.
pub(crate) async fn submit(
    client: &Client,
    profile: &Profile,
    replace: bool,
) -> Result<Answer, Failure> {
    let name = match &profile.namespace {
        Some(namespace) => format!("{}.{namespace}", profile.name),
        None => profile.name.to_string(),
    };
    let name: ServiceArg = name
        .parse()
        .map_err(|cause: String| Failure::new(Code::Usage, cause))?;
    let mut path = paths::service(&name);
    if replace {
        path.push_str("?replace=1");
    }
    Ok(client.call(Method::PUT, &path, profile, PATIENCE).await?)
}
