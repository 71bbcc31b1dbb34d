//! What a driver hears, as events of the machine: orders, what became of processes, what probes found.

use std::time::Duration;

use portreeve::identity::Run;
use portreeve::registry::Want;
use portreeve::supervision::{Effect, Event, ExitStatus};
use portreeve::time::Now;
use portreeve_api::local::{Tokens, WorkerCommand};

use super::Driver;
use crate::backend::BackendEvent;
use crate::conflict;
use crate::file::{self, Durability};
use crate::probing::ProbeEnd;

impl Driver {
    /// Does what is said; gives why not, where it cannot be done.
    pub(super) fn on_command(
        &mut self,
        now: Now,
        command: &WorkerCommand,
        effects: &mut Vec<Effect>,
    ) -> Option<String> {
        match *command {
            WorkerCommand::Stop { grace } => {
                if self.record.is_final() {
                    return Some("it has ended".into());
                }
                if grace.is_some() {
                    self.event(now, Event::Stop { grace }, effects);
                } else {
                    self.stop(now, effects);
                }
            }
            WorkerCommand::Restart => {
                if self.record.is_final() {
                    return Some("it has ended; a new incarnation begins again".into());
                }
                if self.record.machine.is_stop_wanted() {
                    return Some("it was told to stop".into());
                }
                self.record.restart_no += 1;
                self.event(now, Event::UserRestart, effects);
            }
            WorkerCommand::Renew { ref tokens } => return self.renew(tokens),
            WorkerCommand::Leave { why } => self.leave(why, now, effects),
            WorkerCommand::Tell => {}
            WorkerCommand::Hurry => {
                let grace = Some(Duration::ZERO);
                self.event(now, Event::Stop { grace }, effects);
                // The drain, which that leaves alone, is skipped too.
                if !self.record.is_final() {
                    self.backend.kill_group(self.record.machine.run());
                }
            }
            WorkerCommand::Address { address, ref ports } => {
                let known = &mut self.record.port_addresses;
                for (port, address) in ports {
                    self.progress.changed |= known.insert(port.clone(), *address) != Some(*address);
                }
                if address != self.record.host_address {
                    self.progress.changed = true;
                    self.record.host_address = address;
                    self.record.address_seen = false;
                }
            }
            WorkerCommand::Want { want, restart_no } => match want {
                Want::Run => {
                    if restart_no > self.record.restart_no {
                        self.record.restart_no = restart_no;
                        self.event(now, Event::UserRestart, effects);
                    }
                }
                Want::Stop => self.stop(now, effects),
                Want::Forget => {
                    // The controller has given its ports away, so nothing of it may go on.
                    self.stop(now, effects);
                    self.progress.forget = true;
                }
            },
        }
        None
    }

    /// The job finds its own where it found the one before.
    fn renew(&mut self, tokens: &Tokens) -> Option<String> {
        if self.assignment.tokens != *tokens {
            let (path, job) = (self.folder.token(), tokens.job.as_bytes());
            if let Err(cause) = file::write(&path, job, Durability::Written) {
                return Some(format!("the token file cannot be written: {cause}"));
            }
            self.assignment.tokens = tokens.clone();
            self.teller.renew(&tokens.worker);
        }
        None
    }

    /// Repeating a stop would only make its grace shorter in words; it is one stop.
    pub(super) fn stop(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.record.machine.is_stop_wanted() && !self.record.is_final() {
            self.event(now, Event::Stop { grace: None }, effects);
        }
    }

    pub(super) fn on_backend(&mut self, now: Now, event: BackendEvent, effects: &mut Vec<Effect>) {
        let newest = self.record.machine.run();
        match event {
            BackendEvent::Adopted { .. } => {}
            BackendEvent::PreExecStarted { run } => {
                self.event(now, Event::PreExecStarted { run }, effects);
            }
            BackendEvent::Spawned { run, process } => {
                if run == newest {
                    self.record.process = Some(process);
                }
                self.event(now, Event::Spawned { run }, effects);
            }
            BackendEvent::SpawnFailed { run, why } => {
                self.event(now, Event::SpawnFailed { run, why }, effects);
            }
            BackendEvent::Exited { run, status } => {
                self.progress.exit = Some((run, status));
                if run == newest {
                    self.record.process = None;
                }
                let conflict = match status {
                    // Its shim is lost, and what the shim held may still live and listen for a moment.
                    ExitStatus::Unknown => None,
                    _ => self.conflict_at_exit(run),
                };
                let event =
                    conflict.map_or(Event::Exited { run, status }, |found| found.event(run));
                self.event(now, event, effects);
            }
            BackendEvent::Cleared { run } => {
                // Nothing else ends a run that is starting.
                if run == newest
                    && let Err(event) = self.spawn_alone(run)
                {
                    self.progress.own.push(event);
                }
            }
            BackendEvent::GroupEmpty { run } => {
                self.progress.emptied = self.progress.emptied.max(Some(run));
                self.event(now, Event::GroupEmpty { run }, effects);
            }
        }
    }

    /// An exit before READY that nobody asked for may be due to a port somebody took after the start.
    fn conflict_at_exit(&self, run: Run) -> Option<conflict::Conflict> {
        let was_ready = self.record.ready_run == Some(run);
        if !self.record.machine.suspects_stranger(run, was_ready) {
            return None;
        }
        let desired = &self.assignment.desired;
        conflict::at_exit(
            &desired.grant,
            &desired.profile.ports,
            self.backend.root().as_ref(),
        )
    }

    pub(super) fn on_probe(&mut self, now: Now, end: ProbeEnd, effects: &mut Vec<Effect>) {
        self.progress.counters.probes += 1;
        let outcome = self.probing.ended(&end);
        let of_this_run = end.run == self.record.machine.run();
        let before = self.record.machine.state();
        let event = Event::ProbeResult {
            run: end.run,
            kind: end.kind,
            probe: end.probe,
            outcome,
        };
        // Counters are not worth a write: a new worker begins with new ones.
        let machine = &mut self.record.machine;
        self.journal
            .handle(machine, now, event, Some(&end.text), effects);
        if of_this_run {
            self.progress.news.probed(end.kind, outcome, end.text);
        }
        self.progress.changed |= before != self.record.machine.state();
    }
}
