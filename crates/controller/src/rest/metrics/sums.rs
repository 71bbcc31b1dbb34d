//! Sums over what a caller may see: services, replicas, hosts, numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use portreeve::registry::{PortCounts, View};
use portreeve::rights::Caller;
use portreeve::time::WallClock;

/// By word, as the lists show it.
pub(super) type Counts = BTreeMap<String, u64>;

/// The sums of one view. Cost: a look at every visible replica and every host.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) services: Counts,
    pub(super) stale: u64,
    pub(super) replicas: Counts,
    /// Replicas without a place, by what keeps them from most hosts.
    pub(super) waiting: Counts,
    pub(super) restarts: u64,
    pub(super) hosts: Counts,
    pub(super) ports: Vec<(&'static str, u64)>,
    /// Since the host that was silent for longest was heard of; none without hosts.
    pub(super) silence: Option<Duration>,
}

impl Sums {
    pub(super) fn of(view: &View, caller: &Caller, now: WallClock) -> Self {
        let mut sums = Self::default();
        for service in view.services.values() {
            if !caller.may_see(service.holding()) {
                continue;
            }
            count(&mut sums.services, &service.state);
            sums.stale += u64::from(view.is_stale(&service.service));
            for replica in service.replicas.iter() {
                count(&mut sums.replicas, &replica.state);
                sums.restarts += u64::from(replica.restarts_total);
                if replica.job_state == "PEND" {
                    let causes = replica.reason_sums.as_ref().map(|it| &it.causes);
                    let first = causes.and_then(|causes| causes.first());
                    let cause = first.map_or("none", |cause| cause.code.as_str());
                    count(&mut sums.waiting, cause);
                }
            }
        }
        let mut ports = PortCounts::default();
        let mut oldest: Option<WallClock> = None;
        for host in view.hosts.values() {
            count(&mut sums.hosts, &host.state);
            let of = &host.counts;
            ports.dynamic = ports.dynamic.saturating_add(of.dynamic);
            ports.free_both = ports.free_both.saturating_add(of.free_both);
            ports.held = ports.held.saturating_add(of.held);
            ports.releasing = ports.releasing.saturating_add(of.releasing);
            ports.cooling = ports.cooling.saturating_add(of.cooling);
            ports.foreign = ports.foreign.saturating_add(of.foreign);
            ports.reserved = ports.reserved.saturating_add(of.reserved);
            oldest = Some(oldest.map_or(host.last_seen, |oldest| oldest.min(host.last_seen)));
        }
        sums.ports = [
            ("dynamic", ports.dynamic),
            ("free", ports.free_both),
            ("held", ports.held),
            ("releasing", ports.releasing),
            ("cooling", ports.cooling),
            ("foreign", ports.foreign),
            ("reserved", ports.reserved),
        ]
        .map(|(state, count)| (state, u64::from(count)))
        .into();
        sums.silence = oldest.map(|oldest| {
            let since = now.as_unix_millis().saturating_sub(oldest.as_unix_millis());
            Duration::from_millis(since)
        });
        sums
    }
}

fn count(counts: &mut Counts, word: &str) {
    // Most words were met before, and need no copy.
    match counts.get_mut(word) {
        Some(count) => *count += 1,
        None => {
            counts.insert(word.to_owned(), 1);
        }
    }
}
