//! `GET /backup`: everything that is stored, as `portreeve restore` takes it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;

use crate::app::App;
use crate::backup::Backup;
use crate::clock;
use crate::store::RedbStore;
use crate::token::TokenKey;
use crate::vital;

use super::identity::Asker;
use super::query::Query;
use super::refused::Refused;

/// For admins: it has what every user submitted. Cost: the store is read once, and truth waits that long, some
/// 0.2 s for 100,000 replicas; the answer is made in memory.
pub(crate) async fn make(
    State(app): State<Arc<App>>,
    asker: Asker,
    mut query: Query,
) -> Result<Response, Refused> {
    let with_secrets = query.flag("secrets")?;
    query.end()?;
    let caller = asker.acting()?;
    if !caller.is_admin() {
        return Err(Refused::forbidden(format!(
            "{} may not make a backup, which has what every user submitted: ask as root or as the controller's account",
            caller.user
        )));
    }
    let stored = app.queue.stored().await.ok_or_else(Refused::stopping)?;
    let stored = stored.ok_or_else(|| {
        Refused::too_many(
            "backup_under_way",
            "another backup is being made; ask again",
        )
    })?;
    let stored = stored.map_err(|cause| {
        Refused::unavailable("not_readable", format!("the store cannot be read: {cause}"))
    })?;
    let folder = app.data.clone();
    let made = vital::blocking("backup", move || {
        let secret = with_secrets.then(|| TokenKey::bytes_of(&folder));
        let secret = secret.transpose().map_err(|cause| cause.reason)?;
        let mut bytes = Vec::new();
        let backup = Backup::of(RedbStore::FORMAT, stored, secret, clock::wall());
        backup
            .write(&mut bytes)
            .map_err(|cause| cause.to_string())?;
        Ok::<_, String>(bytes)
    });
    let bytes = made.await.map_err(|cause| Refused::broken(&cause))?;
    let headers = [
        (header::CONTENT_TYPE, "application/gzip"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, bytes).into_response())
}
