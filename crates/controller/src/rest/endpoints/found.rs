//! One service as a caller finds it.

use std::sync::Arc;

use portreeve::endpoints::Snapshot;
use portreeve::identity::ServiceName;
use portreeve::registry::ServiceView;
use portreeve::rights::Caller;

use crate::app::App;
use crate::rest::refused::Refused;
use crate::rest::services::newest;
use crate::rest::synced;

/// The view for rights, the snapshot for the answer.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) service: Arc<ServiceView>,
    pub(crate) snapshot: Arc<Snapshot>,
    /// The table's number, read before the snapshot.
    pub(crate) table_revision: u64,
}

impl Found {
    /// What `caller` may see of the service `name`.
    pub(crate) fn of(app: &App, caller: &Caller, name: &ServiceName) -> Result<Self, Refused> {
        let service = app.visible(caller, name)?;
        let table_revision = app.shown.table.revision();
        let handle = app.shown.table.service(name);
        // The table is written before the view, so a service that is gone from it is going from the view.
        let handle = handle.ok_or_else(|| Refused::no_such_service(name))?;
        Ok(Self {
            service,
            snapshot: handle.snapshot(),
            table_revision,
        })
    }

    /// For how many milliseconds the longest silent of its hosts has not been heard of; 0 without a host.
    pub(crate) fn synced_ms(&self, app: &App) -> u64 {
        let view = newest(app);
        let replicas = self.service.replicas.iter();
        let hosts = replicas.filter_map(|r| view.hosts.get(r.host.as_ref()?));
        synced::age_ms(hosts)
    }

    /// Whether a host of it has not reported since the controller started.
    pub(crate) fn is_stale(&self, app: &App) -> bool {
        let view = app.shown.view.borrow();
        let replicas = self.service.replicas.iter();
        let mut hosts = replicas.filter_map(|r| r.host.as_ref());
        hosts.any(|host| {
            let host = view.hosts.get(host);
            host.is_some_and(|host| host.state == "not reported")
        })
    }
}
