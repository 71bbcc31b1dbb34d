//! What happens, and when.

use portreeve::registry::{DrainPace, HostVerb};

use super::File;
use super::value::{disk, network, signed, span, status_words, text};
use crate::cluster::act::{Act, ControllerAct, HostAct, PersonAct, StrangerPort, Whom};

impl File<'_> {
    pub(super) fn act(&mut self, act: &Act) {
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
}
