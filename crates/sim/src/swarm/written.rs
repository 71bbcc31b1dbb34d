//! A spec as the scenario file that plays the same run.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::time::Duration;

use portreeve::registry::{Allowance, DrainPace, HostVerb, Suspects};
use portreeve::supervision::{ExitStatus, ProbeKind, ProbeOutcome, signal_name};
use portreeve::time::{Monotonic, Spelled};
use serde_json::Value;

use crate::cluster::act::{Act, ControllerAct, HostAct, PersonAct, StrangerPort, Whom};
use crate::cluster::spec::{DiskSpec, HostSpec, NetworkSpec, ServiceSpec, Spec, WorkloadKind};
use crate::scenario::{Answer, Binds, RunScript};

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
        let ports = |ranges: &portreeve::port::PortRanges| text(&String::from(ranges.clone()));
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

    fn act(&mut self, act: &Act) {
        match act {
            Act::Person(act) => self.person(act),
            Act::Host(host, act) => {
                let host = text(self.spec.hosts[*host].name.as_str());
                self.line(format_args!("host = {host}"));
                self.host_act(act, false);
            }
            Act::HostOf(whom, act) => {
                self.whom(*whom);
                self.host_act(act, true);
            }
            Act::Controller(act) => self.controller_act(act),
            Act::Network(quality) => {
                let quality = network(quality);
                self.line(format_args!("act = \"network\"\nnetwork = {quality}"));
            }
            Act::Disk(quality) => {
                let quality = disk(quality);
                self.line(format_args!("act = \"disk\"\ndisk = {quality}"));
            }
            Act::Heal => self.line(format_args!("act = \"heal\"")),
        }
    }

    fn person(&mut self, act: &PersonAct) {
        let (word, service) = match act {
            PersonAct::Submit(service) => ("submit", service),
            PersonAct::Replace(service, generation) => {
                self.line(format_args!("generation = {generation}"));
                ("replace", service)
            }
            PersonAct::Scale(service, replicas) => {
                self.line(format_args!("replicas = {replicas}"));
                ("scale", service)
            }
            PersonAct::Start(service) => ("start", service),
            PersonAct::Stop(service) => ("stop", service),
            PersonAct::Restart(service, index) => {
                if let Some(index) = index {
                    self.line(format_args!("replica = {index}"));
                }
                ("restart", service)
            }
            PersonAct::Kill(service, index) => {
                self.line(format_args!("replica = {index}"));
                ("kill", service)
            }
            PersonAct::Delete(service) => ("delete", service),
            PersonAct::Host(host, verb) => {
                let host = text(self.spec.hosts[*host].name.as_str());
                self.line(format_args!("host = {host}"));
                return self.verb(verb);
            }
        };
        let service = self.name(*service);
        self.line(format_args!("act = \"{word}\"\nservice = {service}"));
    }

    fn verb(&mut self, verb: &HostVerb) {
        match verb {
            HostVerb::Drain { pace } => {
                self.line(format_args!("act = \"drain\""));
                match pace {
                    DrainPace::OneByOne => {}
                    DrainPace::Within(time) => {
                        self.line(format_args!("within = {}", span(*time)));
                    }
                    DrainPace::AtOnce => self.line(format_args!("at_once = true")),
                }
            }
            HostVerb::Undrain => self.line(format_args!("act = \"undrain\"")),
            HostVerb::Down { fenced } => {
                self.line(format_args!("act = \"down\"\nfenced = {fenced}"));
            }
            HostVerb::Remove => self.line(format_args!("act = \"remove\"")),
            HostVerb::Fence { .. } => self.line(format_args!("act = \"fence\"")),
            HostVerb::Adopt { replica } => {
                let service = text(&replica.service.to_string());
                let index = replica.index;
                self.line(format_args!(
                    "act = \"adopt\"\nservice = {service}\nreplica = {index}"
                ));
            }
        }
    }

    /// `said`: the replica that is meant stands there already.
    fn host_act(&mut self, act: &HostAct, said: bool) {
        let word = match act {
            HostAct::PowerLoss => "power-loss",
            HostAct::Boot => "boot",
            HostAct::Shutdown => "shutdown",
            HostAct::CutOff { from_host, to_host } => {
                let direction = match (from_host, to_host) {
                    (true, false) => "from-host",
                    (false, true) => "to-host",
                    _ => "both",
                };
                self.line(format_args!("direction = \"{direction}\""));
                "cut-off"
            }
            // Of one host no scenario says it.
            HostAct::Heals => "heal",
            HostAct::Rejoin => "rejoin",
            HostAct::AgentKilled => "kill-agent",
            HostAct::AgentHalted => "halt-agent",
            HostAct::AgentContinued => "continue-agent",
            HostAct::AgentStarts => "start-agent",
            HostAct::WorkerKilled(_) => "kill-worker",
            HostAct::WorkerHalted(_) => "halt-worker",
            HostAct::WorkerContinued(_) => "continue-worker",
            HostAct::AgentDiesAfter(count) => {
                self.line(format_args!("after_effects = {count}"));
                "kill-agent"
            }
            HostAct::WorkerDiesAfter(_, count) => {
                self.line(format_args!("after_effects = {count}"));
                "kill-worker"
            }
            HostAct::ProcessEnds(_, status) => {
                for word in status_words(*status) {
                    self.line(format_args!("{word}"));
                }
                "process-ends"
            }
            HostAct::WorkerStop(_, grace) => {
                if let Some(grace) = grace {
                    self.line(format_args!("grace = {}", span(*grace)));
                }
                "stop-by-hand"
            }
            HostAct::WorkerRestart(_) => "restart-by-hand",
            // No script asks for it of one host alone.
            HostAct::DiskFull(true) => "disk-full",
            HostAct::DiskFull(false) => "disk-free",
            HostAct::StrangerTakes(port) => {
                self.stranger(*port, said);
                "stranger-takes"
            }
            HostAct::StrangerLeaves(port) => {
                self.stranger(*port, said);
                "stranger-leaves"
            }
            HostAct::ClockJumps(ms) => {
                self.line(format_args!("by = {}", signed(*ms)));
                "clock-jump"
            }
            HostAct::AddressBecomes(address) => {
                let address = address.map_or_else(|| "none".to_owned(), |it| it.to_string());
                self.line(format_args!("becomes = \"{address}\""));
                "address"
            }
            HostAct::NextWorkerBegins(..) => "next-worker-begins",
        };
        self.line(format_args!("act = \"{word}\""));
    }

    fn stranger(&mut self, port: StrangerPort, said: bool) {
        match port {
            StrangerPort::Number(port, protocol) => {
                self.line(format_args!("port = \"{port}/{protocol}\""));
            }
            StrangerPort::Of(whom) if !said => self.whom(whom),
            StrangerPort::Of(_) => {}
        }
    }

    fn controller_act(&mut self, act: &ControllerAct) {
        let word = match act {
            ControllerAct::Killed => "kill-controller",
            ControllerAct::Starts => "start-controller",
            ControllerAct::Halted => "halt-controller",
            ControllerAct::Continued => "continue-controller",
            ControllerAct::DiesAfter(count) => {
                self.line(format_args!("after_effects = {count}"));
                "kill-controller"
            }
            ControllerAct::DiskFull(true) => "controller-disk-full",
            ControllerAct::DiskFull(false) => "controller-disk-free",
            ControllerAct::DiesInCommit { written } => {
                let word = if *written { "written" } else { "lost" };
                self.line(format_args!("in_commit = \"{word}\""));
                "kill-controller"
            }
            ControllerAct::ClockJumps(ms) => {
                self.line(format_args!("by = {}", signed(*ms)));
                "controller-clock-jump"
            }
            ControllerAct::Backup => "backup",
            ControllerAct::Restore => "restore",
        };
        self.line(format_args!("act = \"{word}\""));
    }

    fn whom(&mut self, whom: Whom) {
        let service = self.name(whom.service);
        let index = whom.index;
        self.line(format_args!("service = {service}\nreplica = {index}"));
    }

    fn name(&self, no: usize) -> String {
        let service = &self.spec.services[no];
        text(&format!("{}.{}", service.profile.name, service.owner.user))
    }
}

/// `code = 1`, and so on: one field each.
fn status_words(status: ExitStatus) -> Vec<String> {
    match status {
        ExitStatus::Code(code) => vec![format!("code = {code}")],
        ExitStatus::Signal { signal, core, oom } => {
            let name = signal_name(signal).unwrap_or("KILL");
            vec![
                format!("signal = \"{name}\""),
                format!("core = {core}"),
                format!("oom = {oom}"),
            ]
        }
        ExitStatus::Unknown => vec!["lost = true".to_owned()],
    }
}

fn network(spec: &NetworkSpec) -> String {
    let (part, by) = spec.reordering;
    format!(
        "{{ delay = {}, loss = {}, duplication = {}, reordering = {{ part = {}, by = {} }} }}",
        spans(&spec.delay),
        percent(spec.loss),
        percent(spec.duplication),
        percent(part),
        span(by)
    )
}

fn disk(spec: &DiskSpec) -> String {
    let (commit, refusal) = (spans(&spec.commit), percent(spec.refusal));
    format!("{{ commit = {commit}, refusal = {refusal} }}")
}

fn since(at: Monotonic) -> String {
    span(at.since(Monotonic::default()))
}

fn span(span: Duration) -> String {
    format!("\"{}\"", Spelled(span))
}

fn spans(range: &Range<Duration>) -> String {
    format!("[{}, {}]", span(range.start), span(range.end))
}

fn signed(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    format!(
        "\"{sign}{}\"",
        Spelled(Duration::from_millis(ms.unsigned_abs()))
    )
}

/// Millionths as `"0.0001%"`.
fn percent(millionths: u32) -> String {
    format!("\"{}.{:04}%\"", millionths / 10_000, millionths % 10_000)
}

/// A text in quotes: JSON's are TOML's as well.
fn text(text: &str) -> String {
    Value::from(text).to_string()
}

/// A value of JSON in TOML, on one line; `None`: there is none.
fn toml(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Array(all) => {
            let all: Vec<_> = all.iter().filter_map(toml).collect();
            Some(format!("[{}]", all.join(", ")))
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .filter_map(|(key, value)| Some(format!("{} = {}", text(key), toml(value)?)));
            let fields: Vec<_> = fields.collect();
            Some(format!("{{ {} }}", fields.join(", ")))
        }
        plain => Some(plain.to_string()),
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
