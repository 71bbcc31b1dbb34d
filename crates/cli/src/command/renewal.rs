//! `agent --renew-workers`: after an upgrade, so that no worker of the old program is left.

use std::path::Path;
use std::process::ExitCode;

use portreeve_api::attach::Renewing;

use crate::exit::{Code, Failure};
use crate::output::{self, Format};
use crate::run::link::WorkerRenewal;

/// Has the agent at `socket` replace workers of an older program, one after the other, and waits for it.
///
/// # Errors
///
/// No agent answers there, it refuses, or one that was replaced does not come back; the others are then left as they were.
pub(crate) async fn run(socket: &Path, output: Format) -> Result<ExitCode, Failure> {
    let mut renewal = WorkerRenewal::begin(socket).await.map_err(|cause| {
        Failure::plain(format!(
            "no agent answers at {}: {cause}; name its socket with --socket",
            socket.display()
        ))
    })?;
    loop {
        let word = renewal.next().await.map_err(|cause| {
            Failure::plain(format!(
                "the agent went away while it renewed workers: {cause}; services go on, ask again"
            ))
        })?;
        let now = word.map_err(|problem| {
            let code = match problem.status {
                403 => Code::NotAllowed,
                _ => Code::Failure,
            };
            Failure::new(code, problem.detail)
        })?;
        if now.left > 0 {
            if output == Format::Table {
                output::print(&format!("{} renewed, {} to go\n", now.renewed, now.left))?;
            }
            continue;
        }
        match output {
            Format::Json => output::print_json(&now)?,
            Format::Table => output::print(&format!("{}\n", words(now)))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
}

fn words(now: Renewing) -> String {
    match now.renewed {
        0 => "no worker runs an older program".to_owned(),
        1 => "1 worker was renewed".to_owned(),
        many => format!("{many} workers were renewed"),
    }
}
