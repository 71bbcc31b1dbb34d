//! `endpoints`: where a service's ready replicas answer.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use portreeve_api::{body, paths};

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::listing::{Form, Listing, Surface, Template, Writing};
use crate::names::PortArg;
use crate::output::{print, tell};

use super::services::PATIENCE;

/// Print where a service's ready replicas answer: one host:port a line.
///
/// Without :PORT the first published port is meant. Exit code 3 if none is ready, 4 if the service is
/// unknown or publishes no port, 6 if no controller answers: then nothing is printed on standard output
/// (-o json prints the empty snapshot with 3).
///
/// A template is in the syntax of Jinja, with these names: service, name, namespace, revision, desired, ready, stale,
/// and the list endpoints; each of it has authority (host:port), address, port, url, host, replica, job, weight, state,
/// ready, ready_since, restarts, reason, path, protocol, app_protocol, port_name, last_port (of a block),
/// labels.NAME, and the same of its other ports in ports.NAME.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Endpoints {
    /// The service, and which of its ports: NAME[.NAMESPACE][:PORT]
    name: PortArg,
    /// Only one, the ready replica of the lowest index
    #[arg(long, conflicts_with = "all")]
    one: bool,
    /// Also what is not ready, with state and reason, as a table, JSON or by a template
    #[arg(long)]
    all: bool,
    /// How to print it; by default lines, with --all a table
    #[arg(short, long, value_enum)]
    output: Option<Form>,
    #[command(flatten)]
    template: TemplateArgs,
    /// Exit with code 8 if the hosts have not confirmed the answer since the controller started
    ///
    /// Without it, such an answer is printed, and a line on standard error says so.
    #[arg(long)]
    fresh: bool,
}

const EXAMPLE: &str = "Example: portreeve endpoints web --template '{% for e in endpoints %}server {{ e.authority }};{% endfor %}'";

/// A form of the reader's own.
#[derive(Args, Debug)]
pub(crate) struct TemplateArgs {
    /// Print by this template, in the syntax of Jinja
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["output", "template_file"])]
    template: Option<String>,
    /// Print by the template in this file
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    template_file: Option<PathBuf>,
}

impl TemplateArgs {
    /// The template, if one is wished, and it can be read.
    pub(crate) fn read(&self) -> Result<Option<Writing>, Failure> {
        let template = match (&self.template, &self.template_file) {
            (Some(source), _) => Some(Template::given(source)?),
            (None, Some(path)) => Some(Template::read(path)?),
            (None, None) => None,
        };
        Ok(template.map(Writing::Template))
    }

    /// Whether one is wished.
    pub(crate) const fn is_given(&self) -> bool {
        self.template.is_some() || self.template_file.is_some()
    }
}

impl Endpoints {
    pub(crate) async fn run(self, connect: &Connect) -> Result<(), Failure> {
        let writing = match (self.template.read()?, self.output, self.all) {
            (Some(template), ..) => template,
            (None, None, true) => Writing::Form(Form::Table),
            (None, None, false) => Writing::Form(Form::Lines),
            (None, Some(Form::Lines | Form::Env | Form::Url), true) => {
                let message = "--all lists what has no state in this form; add -o table or -o json";
                return Err(Failure::new(Code::Usage, message));
            }
            (None, Some(form), _) => Writing::Form(form),
        };
        let mut path = paths::service_part(&self.name.service, "endpoints");
        path.push_str(if self.all {
            "?state=all"
        } else {
            "?state=ready"
        });
        if let Some(port) = &self.name.port {
            path.push_str(&format!("&port={port}"));
        }
        let mut answer: body::Endpoints = connect.client()?.get(&path, PATIENCE).await?;
        if self.one {
            answer.endpoints.truncate(1);
        }
        let listing = Listing::of(answer, self.name.port)?;
        let outcome = usable(&listing).and_then(|()| fresh(&listing, self.fresh));
        // A script never takes a failure for an empty list. Who asks for everything, or for the whole answer, reads it.
        let told_in_full = matches!(writing, Writing::Form(Form::Json | Form::Table)) || self.all;
        if outcome.is_ok() || told_in_full {
            let surface = if std::io::stdout().is_terminal() {
                Surface::Terminal
            } else {
                Surface::Plain
            };
            print(&writing.one(&listing, surface)?)?;
        }
        outcome
    }
}

/// Whether a client can be sent anywhere by it; else the exit code tells why not.
pub(crate) fn usable(listing: &Listing) -> Result<(), Failure> {
    let service = &listing.service;
    if listing.ready == 0 {
        return Err(Failure::new(Code::NoneReady, none_is_ready(listing)));
    }
    if listing.listed().next().is_none() {
        let named = listing.port.as_ref().map(|port| format!(" {port}"));
        let named = named.unwrap_or_default();
        let there = match listing.port_names().as_slice() {
            [] => String::new(),
            names => format!("; it publishes {}", names.join(", ")),
        };
        let message = format!("{service} is ready, but publishes no port{named}{there}");
        return Err(Failure::new(Code::NoSuchService, message));
    }
    Ok(())
}

/// Says what is stale; a failure where only what is fresh is wished.
fn fresh(listing: &Listing, wished: bool) -> Result<(), Failure> {
    if !listing.stale {
        return Ok(());
    }
    let stale = listing.staleness();
    if wished {
        return Err(Failure::new(Code::Stale, stale));
    }
    tell!("portreeve: {stale}");
    Ok(())
}

fn none_is_ready(listing: &Listing) -> String {
    let service = &listing.service;
    match listing.desired {
        0 => format!("{service} has no replica; `portreeve scale {service} N` gives it some"),
        1 => format!(
            "{service} is known, but its replica is not ready; `portreeve service {service}` says why"
        ),
        many => format!(
            "{service} is known, but none of its {many} replicas is ready; `portreeve service {service}` says why"
        ),
    }
}
