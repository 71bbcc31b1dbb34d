//! What a `dev --data` stopped at its end, so that the next one starts it again.

use std::collections::BTreeSet;
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

/// Notes the services that run now and are about to be stopped, beside those that were noted before and
/// not all started again: it may have been told to stop in the middle of that.
pub(crate) fn remember(home: &Home, services: &[&ServiceName]) -> Result<(), Failure> {
    if services.is_empty() {
        return Ok(());
    }
    let mut names = noted(home)?;
    names.extend(services.iter().copied().cloned());
    let text = serde_json::to_string(&names).map_err(Failure::plain)?;
    Ok(std::fs::write(file(home), text)?)
}

/// What is noted; nothing without the file.
fn noted(home: &Home) -> Result<BTreeSet<ServiceName>, Failure> {
    let text = match std::fs::read_to_string(file(home)) {
        Ok(text) => text,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(cause) => return Err(cause.into()),
    };
    serde_json::from_str(&text).map_err(|cause| {
        Failure::plain(format!(
            "{}: {cause}; remove the file to begin without it",
            file(home).display()
        ))
    })
}

/// Starts what the last `dev` stopped at its end; what was deleted since is left out.
pub(crate) async fn start_again(client: &Client, home: &Home) -> Result<(), Failure> {
    let names = noted(home)?;
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
    match std::fs::remove_file(file(home)) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(cause.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_started_again_yet_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("data"))).unwrap();
        let [web, db]: [ServiceName; 2] =
            ["web.alice", "db.alice"].map(|name| name.parse().unwrap());
        remember(&home, &[&web, &db]).unwrap();
        // Told to stop when only one of them ran again, or none did.
        remember(&home, &[&web]).unwrap();
        remember(&home, &[]).unwrap();
        assert_eq!(noted(&home).unwrap(), BTreeSet::from([db, web]));
    }
}
