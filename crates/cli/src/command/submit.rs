//! `submit`: a written profile on its way in.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::{Path, PathBuf};

use clap::Args;
use http::Method;
use portreeve::identity::Label;
use portreeve::profile::{Body, Checked, Profile, SiteProfiles, Written};
use portreeve_api::body::{self, Answer};
use portreeve_api::site_profiles::{first_bytes, first_bytes_of};
use portreeve_api::{Client, ClientError, Problem, paths};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::names::ServiceArg;
use crate::output::{Format, tell};
use crate::span::Span;

use super::services::PATIENCE;
use super::verbs::show_answer;
use super::wait::Wait;

/// What is set over a profile; shared by what reads profiles.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Flags {
    /// Set one field over the profile, such as replicas=3 or restart.policy=never; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Create a service from a profile, or replace it.
///
/// The same profile again changes nothing where it runs, and starts again what was stopped or failed; a changed one
/// needs --replace where anything runs. It returns at once; with --wait it goes on as `portreeve wait NAME` would, with
/// its exit codes: 0 ready, 1 it cannot become ready, 7 not in time. What was submitted stays so in every case.
#[derive(Args, Debug)]
pub(crate) struct Submit {
    /// The profile, TOML; `-` reads standard input
    file: PathBuf,
    /// Replace the running service of this name, one replica at a time
    #[arg(long)]
    replace: bool,
    /// Wait until it is ready, and a replacement is through
    #[arg(long)]
    wait: bool,
    /// How long to wait at most
    #[arg(long, default_value = "5m", value_name = "TIME", requires = "wait")]
    timeout: Span,
    #[command(flatten)]
    flags: Flags,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Submit {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let draft = Draft::read(&self.file, self.flags.set).map_err(plainly)?;
        let told = draft.check_alone().map_err(plainly)?;
        let mut answer = draft.submit(&connect.client()?, self.replace).await?;
        // The controller warns of the same; here it was said with its line.
        answer
            .notes
            .retain(|note| !told.iter().any(|it| note.ends_with(it)));
        show_answer(&answer, self.output)?;
        if !self.wait {
            return Ok(());
        }
        let name = answer.subject().parse();
        let name = name.map_err(Failure::plain)?;
        Wait::until_ready(name, self.timeout, self.output)
            .run(connect)
            .await
    }
}

/// Lines that begin with the file's name are those that an editor finds.
fn plainly(refused: Failure) -> Failure {
    tell!("{refused}");
    Failure::plain("the profile is refused; nothing is stored")
}

/// A profile as written, with what is set over it. The controller makes the effective profile of it: it has the
/// site's own.
#[derive(Debug)]
pub(crate) struct Draft {
    file: String,
    bytes: Vec<u8>,
    flags: Vec<String>,
}

impl Draft {
    /// Reads the file, whatever it holds.
    pub(crate) fn read(file: &Path, flags: Vec<String>) -> Result<Self, Failure> {
        let name = shown(file);
        let bytes = if is_standard_input(file) {
            // Not as /dev/stdin: that opens it anew, which fails on a socket, and on what only the caller may open.
            first_bytes_of(std::io::stdin())
        } else {
            first_bytes(file)
        };
        let bytes = bytes.map_err(|cause| Failure::plain(format!("{name}: {cause}")))?;
        Ok(Self {
            file: name,
            bytes,
            flags,
        })
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> Result<String, Failure> {
        let text = String::from_utf8(self.bytes.clone());
        text.map_err(|_| Failure::plain(format!("{}: it is no UTF-8 text", self.file)))
    }

    /// Checks it over these profiles of the site; its warnings go to standard error.
    pub(crate) fn check(&self, site: &dyn SiteProfiles) -> Result<Checked, Failure> {
        let checked = Profile::from_layers(self.written(), site)
            .map_err(|errors| Failure::plain(errors.in_file(&self.file)))?;
        for warning in &checked.warnings {
            tell!("{}: warning: {warning}", self.file);
        }
        Ok(checked)
    }

    /// Checks what can be checked without the controller, and says what was warned of.
    pub(crate) fn check_alone(&self) -> Result<Vec<String>, Failure> {
        let site = Elsewhere::default();
        let checked = self.check_quietly(&site);
        if site.asked.get() {
            // Only the controller knows the whole.
            return Ok(Vec::new());
        }
        let checked = checked?;
        for warning in &checked.warnings {
            tell!("{}: warning: {warning}", self.file);
        }
        Ok(checked.warnings.into_iter().map(|it| it.text).collect())
    }

    fn check_quietly(&self, site: &dyn SiteProfiles) -> Result<Checked, Failure> {
        Profile::from_layers(self.written(), site)
            .map_err(|errors| Failure::plain(errors.in_file(&self.file)))
    }

    pub(super) fn written(&self) -> Written<'_> {
        Written {
            body: Body::Toml(&self.bytes),
            flags: &self.flags,
        }
    }

    /// Sends it as it is written. What is wrong in a layer of the site is told by the controller.
    pub(crate) async fn submit(&self, client: &Client, replace: bool) -> Result<Answer, Failure> {
        let site = Elsewhere::default();
        let (label, namespace) = match self.check_quietly(&site) {
            Ok(checked) => (
                checked.profile.name.to_string(),
                checked.profile.namespace.map(|name| name.to_string()),
            ),
            // Its name may stand in a layer that is not here.
            Err(_) => {
                let checked: body::Checked = self
                    .send(client, Method::POST, &paths::check(), &[])
                    .await?;
                (checked.name, checked.namespace)
            }
        };
        let name = match namespace {
            Some(namespace) => format!("{label}.{namespace}"),
            None => label,
        };
        let name: ServiceArg = name
            .parse()
            .map_err(|cause: String| Failure::new(Code::Usage, cause))?;
        let replace: &[_] = if replace { &[("replace", "1")] } else { &[] };
        self.send(client, Method::PUT, &paths::service(&name), replace)
            .await
    }

    /// Sends it as a request's body, with what is set over it.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Result<T, Failure> {
        let mut parameters = parameters.to_vec();
        parameters.extend(self.flags.iter().map(|flag| ("set", flag.as_str())));
        let path = paths::with_parameters(path, &parameters);
        let bytes = self.bytes.clone().into();
        let sent = client.send(method, &path, Some(bytes), "application/toml", PATIENCE);
        match sent.await {
            Ok(reply) => serde_json::from_slice(&reply.body)
                .map_err(|cause| Failure::plain(format!("the controller's answer: {cause}"))),
            Err(ClientError::Refused(problem)) if problem.code == "profile_invalid" => {
                Err(plainly(Failure::plain(self.lines_of(&problem))))
            }
            Err(other) => Err(other.into()),
        }
    }

    /// The controller's refusal as the lines that `check` prints.
    fn lines_of(&self, problem: &Problem) -> String {
        let errors = problem.more.get("errors").and_then(|all| all.as_array());
        let line = |error: &Value| {
            let text = |name: &str| error[name].as_str().filter(|text| !text.is_empty());
            let mut line = text("layer").unwrap_or(&self.file).to_owned();
            if let (Some(nth), Some(column)) = (error["line"].as_u64(), error["column"].as_u64()) {
                line.push_str(&format!(":{nth}:{column}"));
            }
            let parts = [text("field"), text("message")];
            for part in parts.into_iter().flatten() {
                line.push_str(": ");
                line.push_str(part);
            }
            if let Some(allowed) = text("allowed") {
                line.push_str("; ");
                line.push_str(allowed);
            }
            line
        };
        let lines: Vec<_> = errors.into_iter().flatten().map(line).collect();
        match lines.is_empty() {
            true => problem.detail.clone(),
            false => lines.join("\n"),
        }
    }
}

/// The site's profiles where only the controller has them: notes whether one was asked for.
#[derive(Default)]
struct Elsewhere {
    asked: Cell<bool>,
}

impl SiteProfiles for Elsewhere {
    fn read(&self, _name: &Label) -> Result<Option<Cow<'_, [u8]>>, String> {
        self.asked.set(true);
        Ok(None)
    }

    fn names(&self) -> Vec<Label> {
        Vec::new()
    }
}

/// The name under which a profile's errors are told.
pub(super) fn shown(file: &Path) -> String {
    if is_standard_input(file) {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    }
}

fn is_standard_input(file: &Path) -> bool {
    file == Path::new("-")
}
