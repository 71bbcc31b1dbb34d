//! `agent --check-address` and `agent --check`: what an agent here would do, shown without joining.

use std::process::ExitCode;

use portreeve::host_addr::{Candidate, Published};
use portreeve_agent::{Config, Finding, Verdict};
use portreeve_api::Client;
use portreeve_api::service_manager::BackendKind;
use serde::Serialize;

use crate::exit::Failure;
use crate::output::{Format, or_dash, print, print_json, rows};

/// The address that would be published, with every candidate. Exit code 1 if there is none.
pub(crate) fn address(config: &Config, output: Format) -> Result<ExitCode, Failure> {
    let choice = portreeve_agent::chosen_address(config)
        .map_err(|cause| Failure::plain(format!("the addresses of this host: {cause}")))?;
    let candidates = candidates(&choice);
    match output {
        Format::Json => print_json(&Choice {
            published: choice.address,
            rule: &choice.rule,
            candidates,
        })?,
        Format::Table => {
            let heading = ["", "INTERFACE", "ADDRESS", "SCOPE", "ROUTE", "USE"];
            let lines = candidates.iter().map(Row::line).collect();
            print(&format!(
                "published: {} ({})\n{}",
                or_dash(choice.address),
                choice.rule,
                rows(&heading, lines)
            ))?;
        }
    }
    if choice.address.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::plain(format!(
        "no address is published: {}; name one with --address",
        choice.rule
    )))
}

/// Whether an agent could start and join; `backend` is what was found of the one that it was told. Exit code 1 if not.
pub(crate) async fn readiness(
    config: &Config,
    client: &Client,
    backend: Result<BackendKind, Failure>,
    output: Format,
) -> Result<ExitCode, Failure> {
    let mut findings = portreeve_agent::check(config, client).await;
    findings.extend(backend_finding(backend));
    let ready = findings.iter().all(|it| it.verdict != Verdict::NotReady);
    match output {
        Format::Json => print_json(&serde_json::json!({
            "host": config.host,
            "ready": ready,
            "findings": findings,
        }))?,
        Format::Table => {
            let lines = findings.iter().map(|finding| {
                let verdict = match finding.verdict {
                    Verdict::Ok => "ok",
                    Verdict::Warning => "warning",
                    Verdict::NotReady => "not ready",
                };
                [finding.what, verdict, &finding.words]
                    .map(str::to_owned)
                    .into()
            });
            print(&rows(&["WHAT", "VERDICT", "FOUND"], lines.collect()))?;
        }
    }
    if ready {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::plain(format!(
        "{} is not ready; nothing was started or joined",
        config.host
    )))
}

/// Nothing is to be said of the workers themselves, which are always there.
fn backend_finding(backend: Result<BackendKind, Failure>) -> Option<Finding> {
    let (verdict, words) = match backend {
        Ok(BackendKind::Process) => return None,
        Ok(BackendKind::Systemd(manager)) => (Verdict::Ok, format!("{manager} runs units")),
        Err(failure) => (Verdict::NotReady, failure.to_string()),
    };
    Some(Finding {
        what: "backend",
        verdict,
        words,
    })
}

#[derive(Serialize)]
struct Choice<'a> {
    published: Option<std::net::IpAddr>,
    rule: &'a str,
    candidates: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    candidate: &'a Candidate,
    scope: String,
    published: bool,
    /// Why it is never published.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<String>,
}

/// Those that may be published first, each group in the order of the choice.
fn candidates(choice: &Published) -> Vec<Row<'_>> {
    let usable = choice.usable.iter().map(|one| (one, None));
    let unusable = choice.unusable.iter();
    let unusable = unusable.map(|(one, why)| (one, Some(why.to_string())));
    let rows = usable.chain(unusable).map(|(candidate, unusable)| Row {
        candidate,
        scope: candidate.scope().to_string(),
        published: choice.address == Some(candidate.address),
        unusable,
    });
    rows.collect()
}

impl Row<'_> {
    fn line(&self) -> Vec<String> {
        let Candidate {
            interface,
            address,
            prefix,
            default_route,
            ..
        } = self.candidate;
        let route = if *default_route { "default" } else { "-" };
        let usage = match (&self.unusable, self.published) {
            (Some(why), _) => why.as_str(),
            (None, true) => "published",
            (None, false) => "usable",
        };
        vec![
            if self.published { "*" } else { "" }.to_owned(),
            interface.clone(),
            format!("{address}/{prefix}"),
            self.scope.clone(),
            route.to_owned(),
            usage.to_owned(),
        ]
    }
}
