//! What of a service a caller sees who may see it: the owner's secrets stay the owner's.

use std::sync::Arc;

use portreeve::profile::{HttpProbe, Probe, Profile, Template};
use portreeve::registry::{HostView, ServiceView, View};
use portreeve::rights::Caller;

use crate::clock;

use super::refused::Refused;

/// The service for this caller: whole for who may read its logs, but for the values of its probes' headers, which are
/// told to nobody; for others without what a process or a probe wrote, and without the values of its environment.
pub(crate) fn service(service: &Arc<ServiceView>, caller: &Caller) -> Arc<ServiceView> {
    if reads_logs(service, caller) {
        let mut seen = Arc::clone(service);
        if service.waits() {
            // The reasons name holders that the owner sees, and rests as they were when they were found.
            seen = Arc::new(service.told_to(caller, clock::now().mono));
        }
        // Most have none, and are not copied.
        if probes(&seen.profile).any(|probe| !probe.headers.is_empty()) {
            hide_headers(Arc::make_mut(&mut Arc::make_mut(&mut seen).profile));
        }
        return seen;
    }
    let mut seen = ServiceView::clone(service);
    for replica in &mut seen.replicas {
        replica.reason = None;
        replica.reasons = Vec::new();
        replica.reason_sums = None;
        replica.last_failure_detail = None;
        replica.first_failure_detail = None;
    }
    seen.waits_for = None;
    hide_secrets(Arc::make_mut(&mut seen.profile));
    Arc::new(seen)
}

/// The host for this caller: what stays on it, of the services that may be seen.
pub(crate) fn host(host: &HostView, caller: &Caller, view: &View) -> HostView {
    let mut seen = host.clone();
    if let Some(drain) = &mut seen.drain {
        let all = drain.stays.len();
        drain.stays.retain(|stay| {
            let service = view.services.get(&stay.service);
            service.is_some_and(|it| caller.may_see(it.holding()))
        });
        let hidden = u32::try_from(all - drain.stays.len()).unwrap_or(u32::MAX);
        drain.stays_more = drain.stays_more.saturating_add(hidden);
    }
    seen
}

/// Whether the caller reads what the service's processes and probes write.
pub(crate) fn reads_logs(service: &ServiceView, caller: &Caller) -> bool {
    caller.may_read_logs(service.holding(), &service.profile.logs)
}

/// Refuses a visible service's `what` to a caller who may not read its logs.
pub(crate) fn readable(service: &ServiceView, caller: &Caller, what: &str) -> Result<(), Refused> {
    if reads_logs(service, caller) {
        return Ok(());
    }
    Err(Refused::forbidden(format!(
        "{} may not read the {what} of {}: it belongs to {}, whose profile can allow it with logs = [..]",
        caller.user, service.service, service.owner
    )))
}

/// The probes that ask over HTTP.
fn probes(profile: &Profile) -> impl Iterator<Item = &HttpProbe> {
    let probes = [&profile.startup, &profile.liveness, &profile.readiness];
    probes
        .into_iter()
        .flatten()
        .filter_map(|probe| match probe {
            Probe::Http(http) => Some(http),
            _ => None,
        })
}

/// What stands in the place of a value that is not told.
pub(crate) const HIDDEN: &str = "***";

fn hidden() -> Template {
    Template::parse(HIDDEN).expect("it has no place to fill in")
}

/// Values go, names stay: what the profile's templates refer to is still declared.
fn hide_secrets(profile: &mut Profile) {
    for value in profile.env.values_mut() {
        *value = hidden();
    }
    hide_headers(profile);
}

fn hide_headers(profile: &mut Profile) {
    let probes = [
        &mut profile.startup,
        &mut profile.liveness,
        &mut profile.readiness,
    ];
    for probe in probes.into_iter().flatten() {
        if let Probe::Http(http) = probe {
            for value in http.headers.values_mut() {
                *value = hidden();
            }
        }
    }
}
