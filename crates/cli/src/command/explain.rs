//! `explain`: where a replica would fit now and what is against every other host; what its profile really says, and
//! what its rules will do in time.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use http::Method;
use portreeve::profile::EffectiveValue;
use portreeve_api::body::{Explained, FitView, HostFit, ReasonView};
use portreeve_api::paths;

use crate::connect::Connect;
use crate::exit::{Code, Failure};
use crate::names::ReplicaArg;
use crate::output::{Format, or_dash, print, print_json, rows, tell};
use crate::places;

use super::services::PATIENCE;
use super::submit::{Draft, Flags};

/// Ask where a replica would fit now, and why not elsewhere; what its profile comes to, and what its rules will do.
///
/// Nothing is stored or reserved. Of a profile: as if it were submitted. Of a service: its first waiting replica, or one
/// more. Three parts: placement, one line per host and cause (host, whether it fits, cause, port name,
/// number/protocol, holder, seconds left, detail; the sum goes to standard error); the effective profile, one line per
/// value with the layer that set it; the forecast. Exit code 0 if a host fits, 1 if none does. Without a controller the
/// latter two are told of a profile all the same, and the exit code is 6.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Explain {
    /// The profile, TOML; `-` reads standard input
    #[arg(group = "what")]
    profile: Option<PathBuf>,
    /// A service that is known, or one replica of it: NAME[/N]
    #[arg(long, value_name = "NAME", group = "what")]
    service: Option<ReplicaArg>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    show: Vec<Part>,
    /// The site's profiles where no controller answers: DIR/NAME.toml is site/NAME; by default /etc/portreeve/profiles for root, else none
    #[arg(long, value_name = "DIR")]
    site_profiles: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// A part of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Where a replica fits
    Placement,
    /// The effective profile, each value with its layer
    Profile,
    /// What the rules will do in time
    Forecast,
}

impl Explain {
    pub(crate) async fn run(self, connect: &Connect) -> Result<ExitCode, Failure> {
        let draft = match &self.profile {
            Some(file) => {
                let draft = Draft::read(file, self.flags.set.clone());
                Some(draft.map_err(|cause| refused(file, &cause))?)
            }
            None => None,
        };
        let answer = match self.ask(draft.as_ref(), connect).await {
            Err(failure) if failure.code() == Code::Unreachable => {
                let Some(draft) = draft else {
                    return Err(failure);
                };
                return self.alone(&draft, &failure);
            }
            answer => answer?,
        };
        let fit = &answer.fit;
        let code = if fit.sums.fitting > 0 || !self.shows(Part::Placement) {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(Code::Failure as u8)
        };
        self.tell(&answer)?;
        if self.output == Format::Table && self.shows(Part::Placement) {
            for host in fit.hosts.iter().filter(|host| host.left_out > 0) {
                tell!("{}: {} causes more", host.host, host.left_out);
            }
            let whose = match fit.replica {
                Some(index) => format!("{}/{index}", fit.service),
                None => fit.service.to_string(),
            };
            for line in std::iter::once(&fit.sentence).chain(&fit.notes) {
                tell!("{whose}: {line}");
            }
        }
        Ok(code)
    }

    async fn ask(&self, draft: Option<&Draft>, connect: &Connect) -> Result<Explained, Failure> {
        if let (Some(file), Some(draft)) = (&self.profile, draft) {
            let told = draft.check_alone().map_err(|cause| refused(file, &cause))?;
            let client = connect.client()?;
            let mut answer: Explained = draft
                .send(&client, Method::POST, &paths::explain(), &[])
                .await?;
            // The controller warns of the same; here it was said with its line.
            let notes = &mut answer.fit.notes;
            notes.retain(|note| !told.iter().any(|it| note.ends_with(it)));
            return Ok(answer);
        }
        let Some(service) = &self.service else {
            let message = "name a profile, or a service with --service";
            return Err(Failure::new(Code::Usage, message));
        };
        let mut path = paths::service_part(&service.service, "explain");
        if let Some(index) = service.index {
            path.push_str(&format!("?replica={index}"));
        }
        Ok(connect.client()?.get(&path, PATIENCE).await?)
    }

    /// What can be told without a controller.
    fn alone(&self, draft: &Draft, why: &Failure) -> Result<ExitCode, Failure> {
        let site = places::site_profiles(self.site_profiles.clone());
        let checked = draft
            .check(&site)
            .map_err(|refused| Failure::plain(format!("{refused}\n{why}")))?;
        let forecast = checked.profile.forecast();
        if self.output == Format::Json {
            let values = &checked.values;
            print_json(&serde_json::json!({ "effective": values, "forecast": forecast }))?;
        } else {
            self.tell_rules(&checked.values, Some(&forecast.to_string()))?;
        }
        if !self.shows(Part::Placement) {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::new(
            Code::Unreachable,
            format!("where it would fit is not known: {why}"),
        ))
    }

    fn shows(&self, part: Part) -> bool {
        self.show.is_empty() || self.show.contains(&part)
    }

    fn tell(&self, answer: &Explained) -> Result<(), Failure> {
        if self.output == Format::Json {
            return print_json(answer);
        }
        if self.shows(Part::Placement) {
            self.tell_placement(&answer.fit)?;
        }
        let forecast = answer.forecast.as_ref().map(ToString::to_string);
        self.tell_rules(&answer.effective, forecast.as_deref())
    }

    fn tell_placement(&self, fit: &FitView) -> Result<(), Failure> {
        let lines: Vec<_> = fit.hosts.iter().flat_map(host_rows).collect();
        if lines.is_empty() {
            return Ok(());
        }
        print(&rows(&HEADING, lines))?;
        let more = self.shows(Part::Profile) || self.shows(Part::Forecast);
        if more || std::io::stdout().is_terminal() {
            print("\n")?;
        }
        Ok(())
    }

    fn tell_rules(&self, values: &[EffectiveValue], forecast: Option<&str>) -> Result<(), Failure> {
        if self.shows(Part::Profile) && !values.is_empty() {
            let lines = values.iter().map(value_row).collect();
            print(&rows(&["FIELD", "VALUE", "SET BY"], lines))?;
            if self.shows(Part::Forecast) {
                print("\n")?;
            }
        }
        match forecast {
            Some(lines) if self.shows(Part::Forecast) => print(&format!("{lines}\n")),
            _ => Ok(()),
        }
    }
}

const HEADING: [&str; 8] = [
    "HOST", "FITS", "CAUSE", "PORT", "NUMBER", "HOLDER", "LEFT", "DETAIL",
];

/// The refusal, and what to write where the name of a service was given as a file.
fn refused(file: &Path, cause: &Failure) -> Failure {
    // Lines that begin with the file's name are those that an editor finds.
    tell!("{cause}");
    let text = file.to_string_lossy();
    if !file.exists() && text.parse::<ReplicaArg>().is_ok() {
        return Failure::plain(format!(
            "no profile to ask for; of a service that is known, ask `portreeve explain --service {text}`"
        ));
    }
    Failure::plain("the profile is refused; nothing is asked")
}

/// A value in one line: JSON's escapes are those of the profile.
fn value_row(value: &EffectiveValue) -> Vec<String> {
    vec![
        value.field.clone(),
        value.value.to_string(),
        value.layer.to_string(),
    ]
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
