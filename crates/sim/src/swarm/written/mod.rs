//! A spec as the scenario file that plays the same run.

mod act;
mod value;

use std::fmt::{self, Write as _};

use portreeve::port::PortRanges;
use portreeve::registry::{Allowance, Suspects};
use portreeve::supervision::{ProbeKind, ProbeOutcome};
use serde_json::Value;

use crate::cluster::spec::{HostSpec, ServiceSpec, Spec, WorkloadKind};
use crate::scenario::{Answer, Binds, RunScript};
use value::{disk, network, since, span, status_words, text, toml};

/// The scenario, to be played by `portreeve sim`. What no scenario can say, which no seed draws, is left out.
pub(super) fn written(spec: &Spec) -> String {
    let mut file = File {
        spec,
        text: String::new(),
    };
    file.line(format_args!("seed = {}", spec.seed));
    file.line(format_args!("until = {}", since(spec.until)));
    file.controller();
    file.line(format_args!("network = {}", network(&spec.network)));
    file.line(format_args!("disk = {}", disk(&spec.disk)));
    for host in &spec.hosts {
        file.host(host);
    }
    for service in &spec.services {
        file.service(service);
    }
    for no in 0..spec.services.len() {
        file.runs(no);
    }
    file.workloads();
    for planned in &spec.acts {
        file.line(format_args!("[[at]]\ntime = {}", since(planned.at)));
        file.act(&planned.act);
    }
    file.text
}

struct File<'a> {
    spec: &'a Spec,
    text: String,
}

impl File<'_> {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        self.text.write_fmt(line).expect("a text takes everything");
        self.text.push('\n');
    }

    fn controller(&mut self) {
        let config = &self.spec.config;
        let silence = config.silence.unwrap_or_default();
        let user = config.limits.user;
        let mut limits = Vec::new();
        for (key, most) in [
            ("ports_per_host", user.ports_per_host),
            ("ports", user.ports),
            ("replicas", user.replicas),
            ("services", user.services),
        ] {
            if most != Allowance::UNLIMITED {
                limits.push(format!("{key} = {most}"));
            }
        }
        let withdraw = silence.suspects() == Suspects::AreWithdrawn;
        let (cooling, foreign_rest) = (span(config.cooling), span(config.foreign_rest));
        let (news_delay, coalesce) = (span(config.news_delay), span(config.coalesce));
        self.line(format_args!(
            "controller = {{ cooling = {cooling}, foreign_rest = {foreign_rest}, news_delay = {news_delay}, coalesce = {coalesce}, \
             suspect_after = {}, host_grace = {}, withdraw_suspect = {withdraw}, limits = {{ {} }} }}",
            span(silence.suspect_after()),
            span(silence.host_grace()),
            limits.join(", ")
        ));
    }

    fn host(&mut self, host: &HostSpec) {
        let labels: Vec<_> = host
            .labels
            .iter()
            .map(|(key, value)| format!("{} = {}", text(key), text(value)))
            .collect();
        let ports = |ranges: &PortRanges| text(&String::from(ranges.clone()));
        self.line(format_args!(
            "[[host]]\nname = {}\nports = {}\nfixed_ports = {}\nreserved_ports = {}\nlabels = {{ {} }}",
            text(host.name.as_str()),
            ports(&host.dynamic),
            ports(&host.fixed),
            ports(&host.reserved),
            labels.join(", ")
        ));
    }

    fn service(&mut self, service: &ServiceSpec) {
        let owner = text(&service.owner.user);
        self.line(format_args!(
            "[[service]]\nowner = {owner}\nsubmitted = \"never\""
        ));
        let profile = serde_json::to_value(&service.profile).unwrap_or_default();
        if let Value::Object(fields) = profile {
            for (key, value) in fields {
                if let Some(value) = toml(&value) {
                    self.line(format_args!("{key} = {value}"));
                }
            }
        }
    }

    fn runs(&mut self, no: usize) {
        for (replica, scripts) in &self.spec.services[no].scripts {
            for script in scripts.each() {
                let service = self.name(no);
                self.line(format_args!("[[run]]\nservice = {service}"));
                if let Some(replica) = replica {
                    self.line(format_args!("replica = {replica}"));
                }
                self.run(script);
            }
        }
    }

    fn run(&mut self, script: &RunScript) {
        let usual = RunScript::default();
        self.line(format_args!("times = {}", script.times));
        self.line(format_args!("spawn_takes = {}", span(script.spawn_takes)));
        let errors = [
            (2, "ENOENT"),
            (11, "EAGAIN"),
            (13, "EACCES"),
            (28, "ENOSPC"),
        ];
        let error = errors
            .iter()
            .find(|(number, _)| script.spawn_error == Some(*number));
        if let Some((_, word)) = error {
            self.line(format_args!("spawn_error = \"{word}\""));
        }
        for (key, takes, end) in [
            ("pre_exec", "takes", script.pre_exec),
            ("exit", "after", script.exit),
            ("on_term", "takes", script.on_term),
        ] {
            if let Some((after, status)) = end {
                let (after, status) = (span(after), status_words(status).join(", "));
                self.line(format_args!("{key} = {{ {takes} = {after}, {status} }}"));
            }
        }
        if script.on_term.is_none() {
            self.line(format_args!("ignores_term = true"));
        }
        if script.killable != usual.killable {
            self.line(format_args!("survives_kill = true"));
        }
        match script.leftover {
            None => self.line(format_args!("leftover_stays = true")),
            Some(after) => self.line(format_args!("leftover = {}", span(after))),
        }
        self.line(format_args!(
            "leftover_listens = {}",
            script.leftover_listens
        ));
        if let Some(after) = script.hangs {
            self.line(format_args!("hangs = {}", span(after)));
        }
        let binds = match script.binds {
            Binds::Granted => "granted",
            Binds::Beside(_) => "wrong",
            Binds::Never => "never",
        };
        let after = span(script.binds_after);
        self.line(format_args!("binds = \"{binds}\"\nbinds_after = {after}"));
        for probe in &script.probes {
            self.line(format_args!("[[run.probe]]"));
            let kind = probe.kind.map(|kind| match kind {
                ProbeKind::Startup => "startup",
                ProbeKind::Liveness => "liveness",
                ProbeKind::Readiness => "readiness",
            });
            if let Some(kind) = kind {
                self.line(format_args!("kind = \"{kind}\""));
            }
            let (from, to) = (span(probe.from), span(probe.to));
            self.line(format_args!("from = {from}\nto = {to}"));
            match probe.answer {
                Answer::Never => self.line(format_args!("answer = \"none\"")),
                Answer::After(takes, outcome) => {
                    let word = match outcome {
                        ProbeOutcome::Ok => "ok",
                        ProbeOutcome::Inconclusive => "inconclusive",
                        ProbeOutcome::Fail | ProbeOutcome::Timeout => "fail",
                    };
                    let takes = span(takes);
                    self.line(format_args!("answer = \"{word}\"\ntakes = {takes}"));
                }
            }
        }
    }

    fn workloads(&mut self) {
        for workload in &self.spec.workloads {
            let among: Vec<_> = workload.services.clone().map(|no| self.name(no)).collect();
            let (from, to) = (since(workload.within.start), since(workload.within.end));
            let per_minute = workload.per_minute;
            let kind = match workload.kind {
                WorkloadKind::Churn => "churn",
                WorkloadKind::Scale { .. } => "scale",
                WorkloadKind::Restart => "restart",
                WorkloadKind::Replace => "replace",
                WorkloadKind::Crash => "crash",
            };
            self.line(format_args!(
                "[[workload]]\nfrom = {from}\nto = {to}\nper_minute = {per_minute}\nkind = \"{kind}\"\nservices = [{}]",
                among.join(", ")
            ));
            if let WorkloadKind::Scale { most } = workload.kind {
                self.line(format_args!("most = {most}"));
            }
        }
    }

    fn name(&self, no: usize) -> String {
        let service = &self.spec.services[no];
        text(&format!("{}.{}", service.profile.name, service.owner.user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;

    #[test]
    fn the_scenario_of_a_seed_is_read_as_the_very_run_of_the_seed() {
        for seed in 0..60 {
            let spec = Spec::of_seed(seed);
            let text = written(&spec);
            let read = Scenario::from_toml(&text, |_| Err("there is no other file".to_owned()));
            let read = read.unwrap_or_else(|errors| panic!("seed {seed}: {errors}\n{text}"));
            assert_eq!(
                format!("{:#?}", read.spec),
                format!("{spec:#?}"),
                "seed {seed}\n{text}"
            );
        }
    }
}
