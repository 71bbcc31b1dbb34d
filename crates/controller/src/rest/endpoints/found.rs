//! One service as a caller finds it.

use std::sync::Arc;

use portreeve::endpoints::Snapshot;
use portreeve::identity::ServiceName;
use portreeve::registry::ServiceView;
use portreeve::rights::Caller;

use crate::app::{App, visible_in};
use crate::clock;
use crate::rest::refused::Refused;

/// The view for rights, the snapshot for the answer.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) service: Arc<ServiceView>,
    pub(crate) snapshot: Arc<Snapshot>,
    /// The table's number, read before the snapshot.
    pub(crate) table_revision: u64,
    /// Whether a host of it has not reported since the controller started; also read before: what is told as
    /// confirmed is.
    pub(crate) stale: bool,
    /// When it was last decided anew who may see what, of the same moment as `service`.
    pub(crate) rights: u64,
}

impl Found {
    /// What `caller` may see of the service `name`.
    pub(crate) fn of(app: &App, caller: &Caller, name: &ServiceName) -> Result<Self, Refused> {
        let (service, stale, rights) = {
            let view = app.shown.view.borrow();
            let service = visible_in(&view, caller, name)?;
            (service, view.is_stale(name), view.rights)
        };
        let table_revision = app.shown.table.revision();
        let handle = app.shown.table.service(name);
        // The table is written before the view, so a service that is gone from it is going from the view.
        let handle = handle.ok_or_else(|| Refused::no_such_service(name))?;
        Ok(Self {
            service,
            snapshot: handle.snapshot(),
            table_revision,
            stale,
            rights,
        })
    }

    /// For how many milliseconds the longest silent of its hosts has not been heard of; 0 without a host.
    pub(crate) fn synced_ms(&self) -> u64 {
        let age = self.service.age(clock::now().mono);
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }
}
