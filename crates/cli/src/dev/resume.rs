//! What a `dev --data` stopped at its end, so that the next one starts it again.

use std::path::PathBuf;

use http::Method;
use portreeve::identity::ServiceName;
use portreeve_api::body::Answer;
use portreeve_api::{Client, ClientError, paths};

use crate::exit::Failure;

use super::PATIENCE;
use super::home::Home;

fn file(home: &Home) -> PathBuf {
    home.path().join("stopped-by-dev.json")
}

/// Notes the services that run now and are about to be stopped.
pub(crate) fn remember<'a>(
    home: &Home,
    services: impl Iterator<Item = &'a ServiceName>,
) -> Result<(), Failure> {
    let names: Vec<_> = services.collect();
    let text = serde_json::to_string(&names).map_err(Failure::plain)?;
    Ok(std::fs::write(file(home), text)?)
}

/// Starts what the last `dev` stopped at its end; what was deleted since is left out.
pub(crate) async fn start_again(client: &Client, home: &Home) -> Result<(), Failure> {
    let text = match std::fs::read_to_string(file(home)) {
        Ok(text) => text,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(cause.into()),
    };
    let names: Vec<ServiceName> = serde_json::from_str(&text).map_err(|cause| {
        Failure::plain(format!(
            "{}: {cause}; remove the file to begin without it",
            file(home).display()
        ))
    })?;
    for name in names {
        let path = paths::service_part(&name, "start");
        match client
            .call::<Answer>(Method::POST, &path, &(), PATIENCE)
            .await
        {
            Err(ClientError::Refused(problem)) if problem.status == 404 => {}
            other => drop(other?),
        }
    }
    Ok(std::fs::remove_file(file(home))?)
}
