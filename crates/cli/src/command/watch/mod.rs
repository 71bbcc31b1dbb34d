//! `watch`: what changes, as it changes: printed, kept in a file, or handed to a command.

mod file;
mod hook;
mod known;
mod session;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use portreeve::time::Spelled;
use portreeve_api::paths;
use portreeve_api::stream::Watch as Stream;

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::listing::{Form, Surface, Writing};
use crate::names::PortArg;
use crate::output::tell;
use crate::run::Signals;
use crate::span::Span;

use super::endpoints::TemplateArgs;

use file::WholeFile;
use hook::Hook;
use known::Known;
use session::{Plan, Session};

/// Follow where services answer: first as it is now, then each change.
///
/// Prints one line a change: service, ready of desired, host:port of each that is ready; with -o its endpoints in
/// that form, then an empty line; with -o json a line of JSON. With --output a file is kept instead, with --exec a
/// command is run. It tells the newest state: of several changes in quick succession the last one.
///
/// While the controller is away, it says so on standard error, changes nothing, and goes on when it is back. A service
/// that does not exist yet is waited for. Ends by Ctrl-C (130) or TERM (0), when its standard output is closed (0),
/// or if it is not allowed (5).
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Watch {
    /// The services, and which of their ports: NAME[.NAMESPACE][:PORT]
    #[arg(required_unless_present = "prefix")]
    names: Vec<PortArg>,
    /// Also every service whose full name begins so, when it appears too; '' is every service
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Also what is not ready, with state and reason, as a table, JSON or by a template
    #[arg(long)]
    all: bool,
    /// How to print it, or to write the file; there by default lines
    #[arg(
        short = 'o',
        long = "form",
        value_name = "FORM",
        value_enum,
        id = "output"
    )]
    form: Option<Form>,
    #[command(flatten)]
    template: TemplateArgs,
    /// Keep this file as it is now: replaced as a whole, only when what it says changes
    ///
    /// Several services are written one after the other. A service that is gone, or not visible any more, is written
    /// as one without endpoints; while the controller is away, the file stays.
    #[arg(long = "output", value_name = "FILE", id = "file")]
    file: Option<PathBuf>,
    /// Run this at the start and at each change of a service, by /bin/sh; with --output: when the file is written
    ///
    /// One at a time: what changes meanwhile is told to the next run, as it is then. Standard input has the change as
    /// a line of JSON; the variables are PORTREEVE_EVENT (endpoints or removed), PORTREEVE_SERVICE, PORTREEVE_READY,
    /// PORTREEVE_DESIRED, PORTREEVE_ENDPOINTS (host:port with spaces between; not set if that is over 64 KiB),
    /// PORTREEVE_REVISION, and with --output PORTREEVE_FILE. Its failure is told and ends nothing.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// How long the command may take; then it is told to end, and killed 5s later
    #[arg(long, value_name = "TIME", default_value = "5m", requires = "exec")]
    exec_timeout: Span,
    /// End with code 1 when the command fails
    #[arg(long, requires = "exec")]
    exec_or_end: bool,
    /// End as soon as everything was told once, as `endpoints` would: 3 if none is ready, 4 if one does not exist
    #[arg(long)]
    once: bool,
    /// After so long without a sign from the controller, which gives one every 15s, its connection is dead
    #[arg(long, value_name = "TIME", default_value = "1m")]
    dead_after: Span,
}

const EXAMPLE: &str = "Example: portreeve watch web --output /etc/nginx/web.conf --template-file web.tmpl --exec 'nginx -s reload'";

impl Watch {
    /// No controller is silent for less.
    const LEAST_SILENCE: Duration = Duration::from_secs(1);

    pub(crate) async fn run(self, connect: &Connect) -> Result<ExitCode, Failure> {
        let usage = |message: &str| Err(Failure::new(Code::Usage, message));
        let formed = self.form.is_some() || self.template.is_given();
        if formed && self.exec.is_some() && self.file.is_none() {
            return usage("a form says how --output writes its file; the command is told JSON");
        }
        if self.all && matches!(self.form, Some(Form::Lines | Form::Env | Form::Url)) {
            return usage("--all lists what has no state in this form; add -o table or -o json");
        }
        if let Some(file) = &self.file
            && let Some(form) = file.to_str().filter(|it| Form::from_str(it, true).is_ok())
        {
            // `endpoints` has its forms there.
            let message = format!(
                "--output is a file here: write -o {form}, or ./{form} for a file of that name"
            );
            return Err(Failure::new(Code::Usage, message));
        }
        if let Some(name) = named_twice(&self.names) {
            let message = format!(
                "one port of a service can be watched at once: {} is named with two",
                name.service
            );
            return Err(Failure::new(Code::Usage, message));
        }
        if self.dead_after.0 < Stream::SIGNS {
            let (given, signs) = (Spelled(self.dead_after.0), Spelled(Stream::SIGNS));
            tell!(
                "portreeve: a quiet controller gives a sign within {signs}; with --dead-after {given} its connection is cut before"
            );
        }
        let signals = Signals::listen()?;
        let writing = match (self.template.read()?, self.form) {
            (Some(template), _) => Some(template),
            (None, Some(form)) => Some(Writing::Form(form)),
            (None, None) if self.all && self.exec.is_none() => Some(Writing::Form(Form::Table)),
            (None, None) => None,
        };
        let file = self.file.as_deref().map(WholeFile::at).transpose()?;
        let hook = self
            .exec
            .map(|command| Hook::new(command, self.exec_timeout.0));
        let services: Vec<_> = self
            .names
            .iter()
            .map(|name| name.service.to_string())
            .collect();
        let state = if self.all { "all" } else { "ready" };
        let path = paths::watch(&services, self.prefix.as_deref(), state);
        let silence = self.dead_after.0.max(Self::LEAST_SILENCE);
        let terminal = std::io::stdout().is_terminal() && file.is_none();
        let client = connect.client()?;
        let plan = Plan {
            client: client.clone(),
            several: self.names.len() != 1 || self.prefix.is_some(),
            writing,
            surface: if terminal {
                Surface::Terminal
            } else {
                Surface::Plain
            },
            file,
            hook,
            once: self.once,
            exec_or_end: self.exec_or_end,
        };
        let stream = Stream::new(client, path).silent_at_most(silence);
        let session = Session::new(plan, stream, Known::of(&self.names));
        session.run(signals).await
    }
}

/// A service that is named with one port and with another, or with one and without.
fn named_twice(names: &[PortArg]) -> Option<&PortArg> {
    let mut ports = BTreeMap::new();
    names.iter().find(|name| {
        let before = ports.insert(name.service.to_string(), &name.port);
        before.is_some_and(|port| *port != name.port)
    })
}
