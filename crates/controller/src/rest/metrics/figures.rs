//! Every figure with its name and meaning. `docs/metrics.md` lists the same, and a test holds it against this.

use std::sync::atomic::{AtomicU64, Ordering};

use portreeve::rights::Caller;

use crate::app::App;
use crate::clock;

use super::family::{Families, Sample, number};
use super::process;
use super::sums::{Counts, Sums};

/// What is told to this caller.
pub(super) fn of(app: &App, caller: &Caller) -> Families {
    let mut families = Families::default();
    let view = super::super::services::newest(app);
    let sums = Sums::of(&view, caller, clock::wall());
    about(&mut families, app, caller);
    services(&mut families, &sums);
    hosts(&mut families, &sums);
    store(&mut families, app);
    if caller.is_admin() {
        // How much others ask for is theirs.
        traffic(&mut families, app);
    }
    process::tell(&mut families);
    families
}

fn about(families: &mut Families, app: &App, caller: &Caller) {
    families.info(
        "portreeve_build_info",
        "The version of the controller; always 1",
        "version",
        env!("CARGO_PKG_VERSION"),
    );
    families.info(
        "portreeve_epoch_info",
        "The life of the revision line, another one after a restore; always 1",
        "epoch",
        app.shown.table.epoch(),
    );
    families.info(
        "portreeve_view_info",
        "Which services are counted here, all or those that the asker may see; always 1",
        "scope",
        &*caller.view_scope(),
    );
    families.gauge(
        "portreeve_revision",
        "The newest revision of the endpoints",
        number(app.shown.table.revision()),
    );
}

fn services(families: &mut Families, sums: &Sums) {
    families.gauges(
        "portreeve_services",
        "Services by state",
        by("state", &sums.services),
    );
    families.gauge(
        "portreeve_stale_services",
        "Services shown as they were stored, since a host of theirs has not told everything yet",
        number(sums.stale),
    );
    families.gauges(
        "portreeve_replicas",
        "Replicas by state",
        by("state", &sums.replicas),
    );
    families.gauges(
        "portreeve_waiting_replicas",
        "Replicas without a place by what keeps them from most hosts",
        by("cause", &sums.waiting),
    );
    families.gauge(
        "portreeve_replica_restarts",
        "Automatic restarts of the replicas that are known now, over all their incarnations",
        number(sums.restarts),
    );
}

fn hosts(families: &mut Families, sums: &Sums) {
    families.gauges(
        "portreeve_hosts",
        "Hosts by state",
        by("state", &sums.hosts),
    );
    let ports = sums.ports.iter();
    families.gauges(
        "portreeve_ports",
        "Numbers of all hosts by state; dynamic is how many any may draw from, free how many of these are free for TCP and UDP",
        ports
            .map(|(state, count)| Sample::by("state", *state, *count))
            .collect(),
    );
    if let Some(silence) = sums.silence {
        families.gauge(
            "portreeve_longest_host_silence_seconds",
            "Since the host was heard of that was silent for longest, in seconds",
            silence.as_secs_f64(),
        );
    }
}

fn store(families: &mut Families, app: &App) {
    let shown = &app.shown;
    families.gauge(
        "portreeve_store_writable",
        "Whether the store took the newest commit: 1, or 0 where changes are refused",
        f64::from(u8::from(shown.writable.load(Ordering::Relaxed))),
    );
    if let Ok(file) = std::fs::metadata(&app.store_file) {
        families.gauge(
            "portreeve_store_bytes",
            "The size of the store's file, in bytes",
            number(file.len()),
        );
    }
    families.counter(
        "portreeve_commits",
        "Commits that were made durable since the start",
        read(&shown.commits),
    );
    families.counter(
        "portreeve_refused_commits",
        "Commits that the store refused since the start; nothing of them was changed",
        read(&shown.commit_meters.refused),
    );
    families.histogram(
        "portreeve_commit_seconds",
        "How long durable commits took, in seconds",
        &shown.commit_meters.seconds,
    );
    families.histogram(
        "portreeve_commit_records",
        "How many records a durable commit wrote",
        &shown.commit_meters.records,
    );
    let heard = [
        ("status", &app.heard.statuses),
        ("report", &app.heard.reports),
        ("lease", &app.heard.leases),
    ];
    families.counters(
        "portreeve_heard",
        "What agents and workers told since the start, by kind",
        heard
            .map(|(kind, count)| Sample::by("kind", kind, count.load(Ordering::Relaxed)))
            .into(),
    );
}

fn traffic(families: &mut Families, app: &App) {
    let meters = &app.meters;
    families.gauge(
        "portreeve_connections",
        "Connections at present, streams left out",
        number(meters.connections.count()),
    );
    families.gauge(
        "portreeve_streams",
        "Streams that watch endpoints at present",
        number(meters.streams.count()),
    );
    families.gauge(
        "portreeve_polls",
        "Questions that are held at present until there is something new",
        number(u64::try_from(app.polls.all()).unwrap_or(u64::MAX)),
    );
    let requests = meters.requests().map(|([route, method], status, count)| {
        let labels = vec![
            ("route", route.to_owned()),
            ("method", method.to_owned()),
            ("status", status),
        ];
        Sample::new(labels, number(count))
    });
    families.counters(
        "portreeve_requests",
        "Requests that were answered since the start; a stream counts when it begins",
        requests.collect(),
    );
    families.counters(
        "portreeve_refusals",
        "Requests that were refused since the start, by the code of the problem",
        by("code", &meters.refusals()),
    );
    families.counter(
        "portreeve_audit_lines",
        "Lines of the audit log that were written since the start",
        number(app.audit.written()),
    );
    families.counter(
        "portreeve_audit_lost_lines",
        "Lines of the audit log that were lost since the start: on a full disk, or faster than it could be written",
        number(app.audit.lost()),
    );
}

fn by(label: &'static str, counts: &Counts) -> Vec<Sample> {
    let counts = counts.iter();
    counts
        .map(|(word, count)| Sample::by(label, word.as_str(), *count))
        .collect()
}

fn read(counter: &AtomicU64) -> f64 {
    number(counter.load(Ordering::Relaxed))
}
