//! A spec in lines that people read.

use std::fmt::Write as _;

use portreeve::time::{Monotonic, Spelled};

use crate::cluster::act::Act;
use crate::cluster::spec::{DiskSpec, NetworkSpec, Spec};

/// What the cluster is made of and what befalls it.
pub(super) fn story(spec: &Spec) -> String {
    let mut text = String::new();
    let since_start = |at: Monotonic| Spelled(at.since(Monotonic::default())).to_string();
    // A text takes everything.
    let _ = writeln!(text, "until {}", since_start(spec.until));
    let config = &spec.config;
    let _ = writeln!(
        text,
        "cooling {}, foreign rest {}, news delay {}, coalesce {}, silence {:?}",
        Spelled(config.cooling),
        Spelled(config.foreign_rest),
        Spelled(config.news_delay),
        Spelled(config.coalesce),
        config.silence,
    );
    if spec.network != NetworkSpec::default() {
        let _ = writeln!(text, "{:?}", spec.network);
    }
    if spec.disk != DiskSpec::default() {
        let _ = writeln!(text, "{:?}", spec.disk);
    }
    for (no, host) in spec.hosts.iter().enumerate() {
        let _ = writeln!(
            text,
            "host {no} is {}: any {}; fixed {}; reserved {}; {:?}",
            host.name, host.dynamic, host.fixed, host.reserved, host.labels
        );
    }
    for (no, service) in spec.services.iter().enumerate() {
        let profile = serde_json::to_string(&service.profile).unwrap_or_default();
        let _ = writeln!(text, "service {no} of {}: {profile}", service.owner.user);
        for (replica, scripts) in &service.scripts {
            let whose =
                replica.map_or_else(|| "every replica".to_owned(), |it| format!("replica {it}"));
            let _ = writeln!(text, "  {whose}: {scripts:?}");
        }
    }
    for workload in &spec.workloads {
        let _ = writeln!(text, "{workload:?}");
    }
    for planned in &spec.acts {
        let at = since_start(planned.at);
        let _ = match &planned.act {
            Act::Host(host, act) => writeln!(text, "{at:>10}  host {host}: {act:?}"),
            Act::Controller(act) => writeln!(text, "{at:>10}  controller: {act:?}"),
            Act::Person(act) => writeln!(text, "{at:>10}  person: {act:?}"),
            act => writeln!(text, "{at:>10}  {act:?}"),
        };
    }
    text
}
