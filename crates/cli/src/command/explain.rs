//! `explain`: where a replica would fit now, and what is against every other host.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use http::Method;
use portreeve_api::body::{FitView, HostFit, ReasonView};
use portreeve_api::paths;

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::names::ReplicaArg;
use crate::output::{Format, or_dash, print, print_json, rows};

use super::services::PATIENCE;
use super::submit;

/// Ask where a replica would fit now, and why not elsewhere. Nothing is stored or reserved.
///
/// Of a profile: as if it were submitted. Of a service: its first waiting replica, or one more. One line per host and
/// cause: host, whether it fits, cause, port name, number/protocol, holder, seconds left, detail. The sum goes to
/// standard error. Exit code 0 if a host fits, 1 if none does.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Explain {
    /// The profile, TOML; `-` reads standard input
    #[arg(group = "what")]
    profile: Option<PathBuf>,
    /// A service that is known, or one replica of it: NAME[/N]
    #[arg(long, value_name = "NAME", group = "what")]
    service: Option<ReplicaArg>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Explain {
    pub(crate) async fn run(self, connect: &Connect) -> Result<ExitCode, Failure> {
        let client = connect.client()?;
        let fit: FitView = match (&self.profile, &self.service) {
            (Some(file), _) => {
                let checked = submit::read(file).map_err(|cause| refused(file, &cause))?;
                let mut fit: FitView = client
                    .call(Method::POST, &paths::explain(), &checked.profile, PATIENCE)
                    .await?;
                // The controller warns of the same; here it was said with its line.
                let told =
                    |note: &String| checked.warnings.iter().any(|it| note.ends_with(&it.text));
                fit.notes.retain(|note| !told(note));
                fit
            }
            (None, Some(service)) => {
                let mut path = paths::service_part(&service.service, "explain");
                if let Some(index) = service.index {
                    path.push_str(&format!("?replica={index}"));
                }
                client.get(&path, PATIENCE).await?
            }
            (None, None) => {
                let message = "name a profile, or a service with --service";
                return Err(Failure::new(Code::Usage, message));
            }
        };
        let code = if fit.sums.fitting > 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(Code::Failure as u8)
        };
        if self.output == Format::Json {
            print_json(&fit)?;
            return Ok(code);
        }
        let lines: Vec<_> = fit.hosts.iter().flat_map(host_rows).collect();
        if !lines.is_empty() {
            print(&rows(&HEADING, lines))?;
            if std::io::stdout().is_terminal() {
                print("\n")?;
            }
        }
        for host in fit.hosts.iter().filter(|host| host.left_out > 0) {
            eprintln!("{}: {} causes more", host.host, host.left_out);
        }
        let whose = match fit.replica {
            Some(index) => format!("{}/{index}", fit.service),
            None => fit.service.to_string(),
        };
        for line in std::iter::once(&fit.sentence).chain(&fit.notes) {
            eprintln!("{whose}: {line}");
        }
        Ok(code)
    }
}

const HEADING: [&str; 8] = [
    "HOST", "FITS", "CAUSE", "PORT", "NUMBER", "HOLDER", "LEFT", "DETAIL",
];

/// The refusal, and what to write where the name of a service was given as a file.
fn refused(file: &Path, cause: &Failure) -> Failure {
    // Lines that begin with the file's name are those that an editor finds.
    eprintln!("{cause}");
    let text = file.to_string_lossy();
    if !file.exists() && text.parse::<ReplicaArg>().is_ok() {
        return Failure::plain(format!(
            "no profile to ask for; of a service that is known, ask `portreeve explain --service {text}`"
        ));
    }
    Failure::plain("the profile is refused; nothing is asked")
}

fn host_rows(host: &HostFit) -> Vec<Vec<String>> {
    if host.fits {
        let mut row = vec![host.host.to_string(), "yes".to_owned()];
        row.resize(HEADING.len(), "-".to_owned());
        return vec![row];
    }
    host.reasons.iter().map(row).collect()
}

fn row(reason: &ReasonView) -> Vec<String> {
    let number = reason.protocol.map(|protocol| match reason.number {
        Some(number) => format!("{number}/{protocol}"),
        None => format!("any/{protocol}"),
    });
    let holder = reason.holder.as_ref();
    vec![
        reason.host.to_string(),
        "no".to_owned(),
        reason.code.clone(),
        or_dash(reason.port.as_ref()),
        or_dash(number),
        or_dash(holder.map(|holder| format!("{}/{}", holder.service, holder.replica))),
        or_dash(reason.left_s.map(|left| format!("{left}s"))),
        or_dash(detail(reason)),
    ]
}

/// What is known beside: the stranger's process, or how many numbers there are where.
fn detail(reason: &ReasonView) -> Option<String> {
    let wanted = match (reason.have, reason.want) {
        (Some(have), Some(want)) => Some(format!("{have} of {want}")),
        (None, Some(size)) => Some(format!("block of {size}")),
        _ => None,
    };
    let known = [
        wanted.clone(),
        reason.range.as_ref().map(|range| match wanted {
            Some(_) => format!("in {range}"),
            None => format!("offered: {range}"),
        }),
        reason.pid.map(|pid| format!("pid {pid}")),
        reason.comm.clone(),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(" "))
}
