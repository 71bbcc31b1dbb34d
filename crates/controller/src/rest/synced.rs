//! How old the controller's knowledge of hosts is.

use std::sync::Arc;

use portreeve::registry::HostView;

use crate::clock;

/// For how many milliseconds the longest silent of these hosts has not been heard of; 0 without a host.
///
/// Cost: one pass.
pub(crate) fn age_ms<'a>(hosts: impl Iterator<Item = &'a Arc<HostView>>) -> u64 {
    let oldest = hosts.map(|host| host.last_seen.as_unix_millis()).min();
    let now = clock::wall().as_unix_millis();
    oldest.map_or(0, |oldest| now.saturating_sub(oldest))
}
